//! What a driver writes to: a store with its handlers, or a sink of the caller.

use std::{sync::Arc, time::Duration};

use api::{Cached, Entry, Event, Meta, Unreadable};
use clock::Instant;

use crate::{
    Change, HandlerRegistration, Store,
    handlers::Handlers,
    metrics::Meter,
    store::{Delta, Slots},
};

/// An object, or only its metadata and the decoding error.
pub(crate) type Decoded<T> = Result<T, (Meta, String)>;

/// What a driver writes to. Every method but `remove_handlers` is called in the informer's task only.
pub(crate) trait ObjectReceiver<T>: Send + Sync + 'static {
    /// A set that is being received.
    type Set: Send;

    fn begin(&self) -> Self::Set;
    /// Adds one event to a set that is being received.
    fn collect(&self, set: &mut Self::Set, event: Event, object: Decoded<T>);
    /// The set is complete and becomes the content. True when an object that existed before may have been deleted.
    fn replace(&self, set: Self::Set) -> bool;
    /// Applies events of the watch, in order.
    fn apply(&self, batch: Vec<(Event, Decoded<T>)>);
    /// An event could not be decoded: until the next `replace` the content must not be trusted.
    fn mark_untrusted(&self, why: &str);
    /// How many objects are stored, and how many of them do not decode.
    fn object_counts(&self) -> (usize, usize);

    /// A handler was added, or [`ObjectReceiver::next_deadline`] is due.
    fn serve_handlers(&self, _now: Instant) {}
    /// When [`ObjectReceiver::serve_handlers`] must be called next.
    fn next_deadline(&self) -> Option<Instant> {
        None
    }
    /// The informer's task has ended.
    fn remove_handlers(&self) {}
}

/// A store and the handlers of its changes.
pub(crate) struct StoreWithHandlers<T: Cached> {
    pub(crate) store: Store<T>,
    handlers: Handlers<T>,
    meter: Arc<Meter>,
}

impl<T: Cached> StoreWithHandlers<T> {
    pub(crate) fn new(store: Store<T>, handlers: Handlers<T>, meter: Arc<Meter>) -> Self {
        Self { store, handlers, meter }
    }

    pub(crate) fn add_handler(
        &self,
        name: &'static str,
        resync: Option<Duration>,
        handler: impl Fn(Change<'_, T>) + Send + Sync + 'static,
    ) -> HandlerRegistration {
        self.handlers.add(name, resync, Box::new(handler))
    }

    /// The entry for the store. An object that does not decode is logged once per state.
    fn entry(&self, object: Decoded<T>) -> Entry<T> {
        match object {
            Ok(object) => Entry::Readable(Arc::new(object)),
            Err((meta, why)) => {
                let entry = Entry::Unreadable(Arc::new(Unreadable { meta, why }));
                if self.store.same(&entry).is_none()
                    && let Entry::Unreadable(it) = &entry
                {
                    let key = it.meta.as_ref().key();
                    self.meter.report_failure("Object does not decode", &format_args!("{key}: {}", it.why));
                }
                entry
            }
        }
    }
}

impl<T: Cached> ObjectReceiver<T> for StoreWithHandlers<T> {
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
            // An unchanged object keeps its `Arc`, so a relist does not copy objects.
            set.upsert(self.store.same(&entry).unwrap_or(entry));
        }
    }

    fn replace(&self, set: Slots<T>) -> bool {
        let deltas: Vec<Delta<T>> = self.store.replace(set);
        self.handlers.deliver_set(&deltas);
        deltas.iter().any(|it| it.new.is_none())
    }

    fn apply(&self, batch: Vec<(Event, Decoded<T>)>) {
        let batch = batch.into_iter().map(|(event, object)| (event, self.entry(object))).collect();
        let deltas = self.store.apply(batch);
        self.handlers.deliver_events(&deltas);
    }

    fn mark_untrusted(&self, why: &str) {
        self.store.mark_untrusted(why);
    }

    fn object_counts(&self) -> (usize, usize) {
        (self.store.len(), self.store.unreadable())
    }

    fn serve_handlers(&self, now: Instant) {
        self.handlers.activate_added(|| self.store.is_synced().then(|| self.store.entries()));
        self.handlers.resync(now, || self.store.entries());
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.handlers.next_resync()
    }

    fn remove_handlers(&self) {
        self.handlers.remove_all();
    }
}
