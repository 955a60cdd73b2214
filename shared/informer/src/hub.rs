//! Where a driver puts what it read: a store with its handlers, or a consumer's own.

use std::{sync::Arc, time::Duration};

use api::{Cached, Entry, Event, Meta, Unreadable};
use clock::Instant;

use crate::{
    Change, Registration, Store,
    handlers::Handlers,
    metrics::Meter,
    store::{Delta, Slots},
};

/// An object, or its metadata and why there is no more.
pub(crate) type Decoded<T> = Result<T, (Meta, String)>;

/// What a driver feeds. Every method is called in the informer's task only.
pub(crate) trait Feed<T>: Send + Sync + 'static {
    /// A whole set on its way.
    type Set: Send;

    fn begin(&self) -> Self::Set;
    /// Part of the set that is on its way.
    fn collect(&self, set: &mut Self::Set, event: Event, object: Decoded<T>);
    /// The set is whole: it is the content from now on. True when something that was there may be gone.
    fn replace(&self, set: Self::Set) -> bool;
    /// What the watch brought, in order.
    fn apply(&self, batch: Vec<(Event, Decoded<T>)>);
    /// Something came that cannot be read: until the next `replace` nothing here is to be trusted.
    fn distrust(&self, why: &str);
    /// How many objects are held, and how many of them are unreadable.
    fn held(&self) -> (usize, usize);

    /// Somebody joined, or [`Feed::next_turn`] has come.
    fn turn(&self, _now: Instant) {}
    /// When something of the feed's own is due.
    fn next_turn(&self) -> Option<Instant> {
        None
    }
}

/// A store and those who are told of its changes.
pub(crate) struct Hub<T: Cached> {
    pub(crate) store: Store<T>,
    handlers: Handlers<T>,
    meter: Arc<Meter>,
}

impl<T: Cached> Hub<T> {
    pub(crate) fn new(store: Store<T>, handlers: Handlers<T>, meter: Arc<Meter>) -> Self {
        Self { store, handlers, meter }
    }

    pub(crate) fn add_handler(
        &self,
        name: &'static str,
        resync: Option<Duration>,
        handler: impl Fn(Change<'_, T>) + Send + Sync + 'static,
    ) -> Registration {
        self.handlers.add(name, resync, Box::new(handler))
    }

    /// What the store is to hold. An unreadable object is named once a state.
    fn entry(&self, object: Decoded<T>) -> Entry<T> {
        match object {
            Ok(object) => Entry::Readable(Arc::new(object)),
            Err((meta, why)) => {
                let entry = Entry::Unreadable(Arc::new(Unreadable { meta, why }));
                if self.store.same(&entry).is_none()
                    && let Entry::Unreadable(it) = &entry
                {
                    let key = it.meta.as_ref().key();
                    self.meter.failed("Object does not decode", &format_args!("{key}: {}", it.why));
                }
                entry
            }
        }
    }
}

impl<T: Cached> Feed<T> for Hub<T> {
    type Set = Slots<T>;

    fn begin(&self) -> Slots<T> {
        self.store.empty_set()
    }

    fn collect(&self, set: &mut Slots<T>, event: Event, object: Decoded<T>) {
        let entry = self.entry(object);
        if event == Event::Deleted {
            let meta = entry.meta();
            set.remove(meta.namespace, meta.name);
        } else {
            // What has not changed keeps its `Arc`: a relist costs slots, not objects.
            set.upsert(self.store.same(&entry).unwrap_or(entry));
        }
    }

    fn replace(&self, set: Slots<T>) -> bool {
        let deltas: Vec<Delta<T>> = self.store.replace(set);
        self.handlers.tell_of_set(&deltas);
        deltas.iter().any(|it| it.new.is_none())
    }

    fn apply(&self, batch: Vec<(Event, Decoded<T>)>) {
        let batch = batch.into_iter().map(|(event, object)| (event, self.entry(object))).collect();
        let deltas = self.store.apply(batch);
        self.handlers.tell(&deltas);
    }

    fn distrust(&self, why: &str) {
        self.store.distrust(why);
    }

    fn held(&self) -> (usize, usize) {
        (self.store.len(), self.store.unreadable())
    }

    fn turn(&self, now: Instant) {
        self.handlers.join(|| self.store.is_synced().then(|| self.store.entries()));
        self.handlers.resync(now, || self.store.entries());
    }

    fn next_turn(&self) -> Option<Instant> {
        self.handlers.next_resync()
    }
}
