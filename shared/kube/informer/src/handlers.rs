//! The event handlers and their calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api::{Cached, Entry, MetaRef};
use clock::{Clock, Instant};
use parking_lot::{Mutex, ReentrantMutex};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{metrics::Meter, store::Delta};

/// Handlers should only record state and enqueue keys. A call that takes longer is counted under the handler's name.
pub(crate) const SLOW: Duration = Duration::from_millis(1);
/// Shorter resync periods are raised to this.
const MIN_RESYNC: Duration = Duration::from_secs(1);

/// One change, as a handler gets it. The store already has it, and may have later changes too.
pub struct Change<'a, T> {
    /// The state before; `None` for an addition. For a deletion it is the last known state.
    pub old: Option<&'a Entry<T>>,
    /// The state after; `None` for a deletion. If its uid differs from that of `old`, one object was deleted and
    /// another of the same name was created.
    pub new: Option<&'a Entry<T>>,
    /// Why the handler is called.
    pub cause: Cause,
    /// A deletion that is known only from a relist: `old` may be older than the state that was deleted (client-go's
    /// `DeletedFinalStateUnknown`).
    pub stale: bool,
}

/// Why a handler is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The object belongs to the first set that this handler gets.
    Initial,
    /// An event of the watch.
    Watch,
    /// A relist differed from the store.
    Relist,
    /// The handler's resync timer; nothing has changed.
    Resync,
}

/// A [`Change`] reduced to object metadata.
#[derive(Debug, Clone, Copy)]
pub struct MetaChange<'a> {
    /// See [`Change::old`].
    pub old: Option<MetaRef<'a>>,
    /// See [`Change::new`].
    pub new: Option<MetaRef<'a>>,
    /// See [`Change::cause`].
    pub cause: Cause,
}

impl<'a, T: Cached> Change<'a, T> {
    /// The object that does not exist any more, also if another one has its name now.
    #[must_use]
    pub fn gone(&self) -> Option<&'a Entry<T>> {
        self.old.filter(|old| self.new.is_none_or(|new| new.meta().uid != old.meta().uid))
    }
}

impl<'a, T: Cached> From<Change<'a, T>> for MetaChange<'a> {
    fn from(change: Change<'a, T>) -> Self {
        let Change { old, new, cause, stale: _ } = change;
        Self { old: old.map(Entry::meta), new: new.map(Entry::meta), cause }
    }
}

impl<T> Clone for Change<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Change<'_, T> {}

impl<T: std::fmt::Debug> std::fmt::Debug for Change<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { old, new, cause, stale } = self;
        f.debug_struct("Change")
            .field("old", old)
            .field("new", new)
            .field("cause", cause)
            .field("stale", stale)
            .finish()
    }
}

/// A handler that was added. Dropping this does not remove the handler.
pub struct HandlerRegistration(Arc<RegistrationState>);

impl HandlerRegistration {
    /// True once this handler was called for its whole first set.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.0.has_synced()
    }

    /// Waits until [`HandlerRegistration::has_synced`]. Waits for ever if the informer is stopped before.
    pub async fn wait_for_sync(&self) {
        wait_for(&self.0.synced, |synced| *synced).await;
    }

    /// Removes the handler: no call begins after this returned. It waits for a running call, so do not call it under a
    /// lock that the handler takes. The handler itself may call it.
    pub fn remove(&self) {
        let _no_call_runs = self.0.gate.lock();
        self.0.removed.store(true, Ordering::Release);
    }
}

impl std::fmt::Debug for HandlerRegistration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandlerRegistration").field("synced", &self.has_synced()).finish_non_exhaustive()
    }
}

/// Waits until the value of the channel fulfils `wanted`. Waits for ever if it never does.
pub(crate) async fn wait_for<V>(value: &watch::Sender<V>, wanted: impl FnMut(&V) -> bool) {
    // The sender is borrowed while we wait, so the channel cannot close.
    let _ = value.subscribe().wait_for(wanted).await;
}

/// State that a registration and its handler share.
struct RegistrationState {
    /// Locked while the handler runs.
    gate: ReentrantMutex<()>,
    removed: AtomicBool,
    synced: watch::Sender<bool>,
}

impl RegistrationState {
    fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }
}

type HandlerFn<T> = Box<dyn Fn(Change<'_, T>) + Send + Sync>;

struct Handler<T> {
    name: &'static str,
    state: Arc<RegistrationState>,
    call: HandlerFn<T>,
    resync: Option<Duration>,
    /// When its resync is due; `None` before the first set.
    next_resync: Mutex<Option<Instant>>,
}

/// The handlers of one informer. All calls run in the informer's task, and only the handler's own lock is held.
pub(crate) struct Handlers<T> {
    /// The active handlers, in the order in which they were added and are called.
    active_handlers: Mutex<Vec<Arc<Handler<T>>>>,
    /// Handlers that were added and that the informer's task has not activated yet. `None` when the task has ended:
    /// nothing calls a handler any more.
    added_handlers: Mutex<Option<Vec<Arc<Handler<T>>>>>,
    clock: Clock,
    stop: CancellationToken,
    meter: Arc<Meter>,
}

impl<T: Cached> Handlers<T> {
    pub(crate) fn new(clock: Clock, stop: CancellationToken, meter: Arc<Meter>) -> Self {
        Self { active_handlers: Mutex::default(), added_handlers: Mutex::new(Some(Vec::new())), clock, stop, meter }
    }

    /// Adds a handler. It becomes active in the informer's task.
    pub(crate) fn add(&self, name: &'static str, resync: Option<Duration>, call: HandlerFn<T>) -> HandlerRegistration {
        let synced = watch::Sender::new(false);
        let state =
            Arc::new(RegistrationState { gate: ReentrantMutex::new(()), removed: AtomicBool::new(false), synced });
        let resync = resync.filter(|it| !it.is_zero()).map(|it| it.max(MIN_RESYNC));
        let handler = Handler { name, state: state.clone(), call, resync, next_resync: Mutex::new(None) };
        if let Some(added) = &mut *self.added_handlers.lock() {
            added.push(Arc::new(handler));
        }
        HandlerRegistration(state)
    }

    /// Activates added handlers. `present` is the content of the store once it is synced: they are called with it and
    /// have then synced.
    pub(crate) fn activate_added(&self, present: impl Fn() -> Option<Vec<Entry<T>>>) {
        let added_handlers = self.added_handlers.lock().as_mut().map(std::mem::take);
        for handler in added_handlers.into_iter().flatten() {
            if let Some(present) = present() {
                for entry in &present {
                    self.call(&handler, Change { old: None, new: Some(entry), cause: Cause::Initial, stale: false });
                }
                self.mark_synced(&handler);
            }
            self.active_handlers.lock().push(handler);
        }
    }

    /// Calls all handlers with the events of the watch.
    pub(crate) fn deliver_events(&self, deltas: &[Delta<T>]) {
        self.deliver(deltas, Cause::Watch);
    }

    /// Calls all handlers with the changes of a new set. Handlers for which it was the first set have then synced.
    pub(crate) fn deliver_set(&self, deltas: &[Delta<T>]) {
        self.deliver(deltas, Cause::Relist);
        for handler in self.present() {
            if !handler.state.has_synced() {
                self.mark_synced(&handler);
            }
        }
    }

    /// When the next resync is due.
    pub(crate) fn next_resync(&self) -> Option<Instant> {
        self.active_handlers.lock().iter().filter_map(|it| *it.next_resync.lock()).min()
    }

    /// Calls each handler whose resync is due with every object of the store.
    pub(crate) fn resync(&self, now: Instant, present: impl Fn() -> Vec<Entry<T>>) {
        for handler in self.present() {
            let due = handler.next_resync.lock().is_some_and(|at| at <= now);
            if !due {
                continue;
            }
            for entry in &present() {
                let same = Some(entry);
                self.call(&handler, Change { old: same, new: same, cause: Cause::Resync, stale: false });
            }
            *handler.next_resync.lock() = handler.resync.map(|period| now + period);
        }
    }

    /// Drops all handlers, also those that are added later. A handler usually owns its controller, which owns the
    /// informer: without this, neither would ever be freed.
    pub(crate) fn remove_all(&self) {
        // A handler is dropped without a lock, because it may own anything.
        let added_handlers = self.added_handlers.lock().take();
        let active_handlers = std::mem::take(&mut *self.active_handlers.lock());
        drop((added_handlers, active_handlers));
    }

    fn deliver(&self, deltas: &[Delta<T>], cause: Cause) {
        let handlers: Vec<_> = self.present().into_iter().map(|it| (it.state.has_synced(), it)).collect();
        for Delta { old, new } in deltas {
            let stale = cause == Cause::Relist && new.is_none();
            for (synced, handler) in &handlers {
                let cause = if *synced { cause } else { Cause::Initial };
                self.call(handler, Change { old: old.as_ref(), new: new.as_ref(), cause, stale });
            }
        }
    }

    fn call(&self, handler: &Handler<T>, change: Change<'_, T>) {
        let _running = handler.state.gate.lock();
        if handler.state.is_removed() || self.stop.is_cancelled() {
            return;
        }
        let started = self.clock.now();
        (handler.call)(change);
        let duration = self.clock.now().saturating_duration_since(started);
        if duration > SLOW {
            self.meter.count_slow_call(handler.name, duration);
        }
    }

    fn mark_synced(&self, handler: &Handler<T>) {
        if self.stop.is_cancelled() {
            // The informer was stopped and calls were skipped, so the handler has not seen its whole set.
            return;
        }
        *handler.next_resync.lock() = handler.resync.map(|period| self.clock.now() + period);
        handler.state.synced.send_replace(true);
    }

    /// A copy of the list, so that no lock is held during the calls.
    fn present(&self) -> Vec<Arc<Handler<T>>> {
        let mut active_handlers = self.active_handlers.lock();
        active_handlers.retain(|it| !it.state.is_removed());
        active_handlers.clone()
    }
}

#[cfg(test)]
mod tests;
