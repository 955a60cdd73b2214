use std::{sync::Arc, time::Duration};

use api::{Cached, Resource};

use crate::{
    Change, MetaChange, Registration, Store, Watched,
    hub::Hub,
    watched::{Command, Vitals},
};

/// One type's store and the handlers that are told of its changes. Cheap to clone; all clones are one informer.
pub struct Informer<T: Cached> {
    hub: Arc<Hub<T>>,
    vitals: Arc<Vitals>,
}

impl<T: Cached> Informer<T> {
    pub(crate) fn new(hub: Arc<Hub<T>>, vitals: Arc<Vitals>) -> Self {
        Self { hub, vitals }
    }

    /// The objects.
    #[must_use]
    pub fn store(&self) -> &Store<T> {
        &self.hub.store
    }

    /// Has `handler` called for every change from now on, in order and without gap or duplicate. It first gets the set
    /// that is there, or the first one that comes, as [`crate::Cause::Initial`].
    ///
    /// A handler runs in the informer's task and holds everybody up: it observes and adds keys. With `resync` it is also
    /// called with every object, old and new the same, at that period.
    pub fn add_handler(
        &self,
        name: &'static str,
        resync: Option<Duration>,
        handler: impl Fn(Change<'_, T>) + Send + Sync + 'static,
    ) -> Registration {
        let registration = self.hub.add_handler(name, resync, handler);
        self.vitals.command(Command::Tend);
        registration
    }

    /// What it watches.
    #[must_use]
    pub fn resource(&self) -> &Resource {
        self.hub.store.resource()
    }

    /// Its freshness.
    #[must_use]
    pub fn watched(&self) -> Arc<dyn Watched> {
        self.vitals.clone()
    }
}

/// An informer for those who do not know its type.
pub(crate) trait Hearable: Send + Sync {
    /// Adds a handler of metadata.
    fn hear(&self, name: &'static str, handler: MetaHandler) -> Registration;
}

/// Is told of metadata only.
pub(crate) type MetaHandler = Box<dyn Fn(MetaChange<'_>) + Send + Sync>;

impl<T: Cached> Hearable for Informer<T> {
    fn hear(&self, name: &'static str, handler: MetaHandler) -> Registration {
        self.add_handler(name, None, move |change| handler(change.into()))
    }
}

impl<T: Cached> Clone for Informer<T> {
    fn clone(&self) -> Self {
        Self { hub: self.hub.clone(), vitals: self.vitals.clone() }
    }
}

impl<T: Cached> std::fmt::Debug for Informer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Informer").field("resource", self.resource()).finish_non_exhaustive()
    }
}
