use std::{sync::Arc, time::Duration};

use api::{Atom, Event, Meta};
use tasks::Task;
use tokio_util::sync::CancellationToken;

use crate::{
    Change, HandlerRegistration, Informer, Store, Watched,
    receiver::{Decoded, ObjectReceiver},
};

/// Which objects of a resource are watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All objects.
    Cluster,
    /// The objects of one namespace.
    Namespace(Atom),
}

impl Scope {
    pub(crate) fn namespace(self) -> Option<Atom> {
        match self {
            Self::Cluster => None,
            Self::Namespace(name) => Some(name),
        }
    }
}

/// A metadata store of the caller, so that objects are not stored twice.
///
/// All methods are called in the informer's task, one at a time and in order. They must be fast.
pub trait Sink: Send + Sync + 'static {
    /// What the sink collects of a list until it is complete. The sink itself compares it with its present content.
    type List: Default + Send;

    /// Adds an object to a list that is being received. It replaces an earlier object of the same name.
    fn collect(&self, list: &mut Self::List, object: Meta);

    /// Removes an object from a list that is being received, because it was deleted meanwhile.
    fn discard(&self, list: &mut Self::List, object: Meta);

    /// The list is complete: objects that are not in it no longer exist. Readers must not see a partial replacement.
    fn replace(&self, list: Self::List);

    /// Events of the watch, in order. The sink must decide from its own content whether an object is new; the event
    /// type may be wrong. For a deletion, the object has the last state.
    fn apply(&self, batch: Vec<(Event, Meta)>);

    /// An event could not be decoded, so an object may be missing. A complete list follows.
    fn mark_untrusted(&self, _why: &str) {}

    /// How many objects of this informer the sink stores.
    fn object_count(&self) -> usize;
}

/// Adapts a [`Sink`] to a [`ObjectReceiver`].
pub(crate) struct SinkReceiver<S>(pub(crate) Arc<S>);

impl<S: Sink> ObjectReceiver<Meta> for SinkReceiver<S> {
    type Set = S::List;

    fn begin(&self) -> S::List {
        S::List::default()
    }

    fn collect(&self, set: &mut S::List, event: Event, object: Decoded<Meta>) {
        match event {
            Event::Deleted => self.0.discard(set, metadata_of(object)),
            Event::Added | Event::Modified => self.0.collect(set, metadata_of(object)),
        }
    }

    fn replace(&self, set: S::List) -> bool {
        self.0.replace(set);
        // The sink compares the content itself, so a deletion must be assumed.
        true
    }

    fn apply(&self, batch: Vec<(Event, Decoded<Meta>)>) {
        self.0.apply(batch.into_iter().map(|(event, object)| (event, metadata_of(object))).collect());
    }

    fn mark_untrusted(&self, why: &str) {
        self.0.mark_untrusted(why);
    }

    fn object_counts(&self) -> (usize, usize) {
        (self.0.object_count(), 0)
    }
}

/// Only metadata is requested, so an object whose metadata decodes is complete.
fn metadata_of(object: Decoded<Meta>) -> Meta {
    object.unwrap_or_else(|(meta, _)| meta)
}

/// A running informer of a resource that is described at run time. It stops when this is dropped.
pub struct Dynamic<F> {
    target: F,
    watched: Arc<dyn Watched>,
    stop: CancellationToken,
    task: Option<Task>,
}

impl<F> Dynamic<F> {
    pub(crate) fn new(target: F, watched: Arc<dyn Watched>, task: Task, stop: CancellationToken) -> Self {
        Self { target, watched, stop, task: Some(task) }
    }

    /// What it writes to: an [`Informer`] with store and handlers, or the sink of the caller.
    #[must_use]
    pub fn target(&self) -> &F {
        &self.target
    }

    /// Its freshness.
    #[must_use]
    pub fn watched(&self) -> Arc<dyn Watched> {
        self.watched.clone()
    }

    /// Stops it and closes the stream. After this returns, nothing is stored and no handler is called.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            task.wait_until_ended().await;
        }
    }
}

impl Dynamic<Informer<Meta>> {
    /// See [`Informer::store`].
    #[must_use]
    pub fn store(&self) -> &Store<Meta> {
        self.target.store()
    }

    /// See [`Informer::add_handler`].
    pub fn add_handler(
        &self,
        name: &'static str,
        resync: Option<Duration>,
        handler: impl Fn(Change<'_, Meta>) + Send + Sync + 'static,
    ) -> HandlerRegistration {
        self.target.add_handler(name, resync, handler)
    }
}

impl<F> Drop for Dynamic<F> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests;
