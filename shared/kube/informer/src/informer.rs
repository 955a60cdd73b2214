use std::{sync::Arc, time::Duration};

use api::{Cached, Resource};

use crate::{
    Change, HandlerRegistration, MetaChange, Store, Watched,
    receiver::StoreWithHandlers,
    watched::{Command, InformerState},
};

/// The store of one type and the handlers of its changes. Cheap to clone; all clones are one informer.
pub struct Informer<T: Cached> {
    receiver: Arc<StoreWithHandlers<T>>,
    state: Arc<InformerState>,
}

impl<T: Cached> Informer<T> {
    pub(crate) fn new(receiver: Arc<StoreWithHandlers<T>>, state: Arc<InformerState>) -> Self {
        Self { receiver, state }
    }

    /// The store with the objects.
    #[must_use]
    pub fn store(&self) -> &Store<T> {
        &self.receiver.store
    }

    /// Calls `handler` for every change from now on, in order, without gaps and duplicates. The first calls are for the
    /// present set, or for the first set once it arrives, with [`crate::Cause::Initial`].
    ///
    /// A handler runs in the informer's task and delays all other handlers, so it should only record state and enqueue
    /// keys. With `resync` it is also called with every object at that period, with equal old and new state.
    pub fn add_handler(
        &self,
        name: &'static str,
        resync: Option<Duration>,
        handler: impl Fn(Change<'_, T>) + Send + Sync + 'static,
    ) -> HandlerRegistration {
        let registration = self.receiver.add_handler(name, resync, handler);
        self.state.send_command(Command::ServeHandlers);
        registration
    }

    /// The resource that it watches.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        self.receiver.store.resource()
    }

    /// Its freshness.
    #[must_use]
    pub fn watched(&self) -> Arc<dyn Watched> {
        self.state.clone()
    }
}

/// An informer without its type parameter, as a source of metadata changes.
pub(crate) trait MetadataSource: Send + Sync {
    /// Adds a handler for metadata.
    fn add_metadata_handler(&self, name: &'static str, handler: MetaHandler) -> HandlerRegistration;
}

/// A handler for metadata.
pub(crate) type MetaHandler = Box<dyn Fn(MetaChange<'_>) + Send + Sync>;

impl<T: Cached> MetadataSource for Informer<T> {
    fn add_metadata_handler(&self, name: &'static str, handler: MetaHandler) -> HandlerRegistration {
        self.add_handler(name, None, move |change| handler(change.into()))
    }
}

impl<T: Cached> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Self { receiver: self.receiver.clone(), state: self.state.clone() }
    }
}

impl<T: Cached> std::fmt::Debug for Informer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Informer").field("resource", self.resource()).finish_non_exhaustive()
    }
}
