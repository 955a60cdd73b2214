use std::{sync::Arc, time::Duration};

use api::{Atom, Event, Meta};
use tasks::Task;
use tokio_util::sync::CancellationToken;

use crate::{
    Change, Informer, Registration, Store, Watched,
    hub::{Decoded, Feed},
};

/// How much of a resource is watched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// All of it.
    Cluster,
    /// One namespace.
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

/// A consumer's own store of metadata: it keeps what it wants, so that nothing is held twice.
///
/// All methods are called in the informer's task, one at a time and in order, and are to be quick.
pub trait Sink: Send + Sync + 'static {
    /// What it keeps of a whole set while that arrives. The comparison with what it has is its own.
    type Set: Default + Send;

    /// Adds an object to a set that is arriving; a later one of the same name takes its place.
    fn collect(&self, set: &mut Self::Set, object: Meta);

    /// Takes an object out of a set that is arriving: it was deleted meanwhile.
    fn discard(&self, set: &mut Self::Set, object: Meta);

    /// The set is whole: what is not in it is gone. Readers must not see this half done.
    fn replace(&self, set: Self::Set);

    /// What the watch brought, in order. Whether an object is new is for the sink to know: the event's word need not
    /// tell. Of a deletion the object is the last state.
    fn apply(&self, batch: Vec<(Event, Meta)>);

    /// Something came that cannot be read; a whole set follows when it can.
    fn distrust(&self, _why: &str) {}

    /// How many objects it holds of this informer.
    fn held(&self) -> usize;
}

/// Feeds a sink.
pub(crate) struct Handed<S>(pub(crate) Arc<S>);

impl<S: Sink> Feed<Meta> for Handed<S> {
    type Set = S::Set;

    fn begin(&self) -> S::Set {
        S::Set::default()
    }

    fn collect(&self, set: &mut S::Set, event: Event, object: Decoded<Meta>) {
        match event {
            Event::Deleted => self.0.discard(set, known(object)),
            Event::Added | Event::Modified => self.0.collect(set, known(object)),
        }
    }

    fn replace(&self, set: S::Set) -> bool {
        self.0.replace(set);
        // The comparison is the sink's own.
        true
    }

    fn apply(&self, batch: Vec<(Event, Decoded<Meta>)>) {
        self.0.apply(batch.into_iter().map(|(event, object)| (event, known(object))).collect());
    }

    fn distrust(&self, why: &str) {
        self.0.distrust(why);
    }

    fn held(&self) -> (usize, usize) {
        (self.0.held(), 0)
    }
}

/// Metadata is all that is asked for: where it decodes, nothing is missing.
fn known(object: Decoded<Meta>) -> Meta {
    object.unwrap_or_else(|(meta, _)| meta)
}

/// A running informer of a resource that is known by its description only. It ends when this is dropped.
pub struct Dynamic<F> {
    fed: F,
    watched: Arc<dyn Watched>,
    stop: CancellationToken,
    task: Option<Task>,
}

impl<F> Dynamic<F> {
    pub(crate) fn new(fed: F, watched: Arc<dyn Watched>, task: Task, stop: CancellationToken) -> Self {
        Self { fed, watched, stop, task: Some(task) }
    }

    /// What it feeds: an [`Informer`] with its store and handlers, or the sink that was handed in.
    #[must_use]
    pub fn fed(&self) -> &F {
        &self.fed
    }

    /// Its freshness.
    #[must_use]
    pub fn watched(&self) -> Arc<dyn Watched> {
        self.watched.clone()
    }

    /// Ends it: the stream is closed, and nothing is fed and no handler called when this returns.
    pub async fn stop(mut self) {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            task.ended().await;
        }
    }
}

impl Dynamic<Informer<Meta>> {
    /// As [`Informer::store`].
    #[must_use]
    pub fn store(&self) -> &Store<Meta> {
        self.fed.store()
    }

    /// As [`Informer::add_handler`].
    pub fn add_handler(
        &self,
        name: &'static str,
        resync: Option<Duration>,
        handler: impl Fn(Change<'_, Meta>) + Send + Sync + 'static,
    ) -> Registration {
        self.fed.add_handler(name, resync, handler)
    }
}

impl<F> Drop for Dynamic<F> {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

#[cfg(test)]
mod tests;
