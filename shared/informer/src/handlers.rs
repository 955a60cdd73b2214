//! Who is told of changes, and how.

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

/// A handler is to observe and to add keys; a call that takes longer is counted against its name.
pub(crate) const SLOW: Duration = Duration::from_millis(1);
/// Resync periods below this are raised to it.
const LEAST_RESYNC: Duration = Duration::from_secs(1);

/// One change, as a handler sees it. The store shows it already, and perhaps later ones too.
pub struct Change<'a, T> {
    /// Before; `None` for an addition. Of a deletion, the last known state.
    pub old: Option<&'a Entry<T>>,
    /// Now; `None` for a deletion. Where it differs from `old` in uid, one object went and a successor came.
    pub new: Option<&'a Entry<T>>,
    /// Why the handler is told.
    pub cause: Cause,
    /// A deletion known only from a relist: `old` may be older than what was deleted.
    pub stale: bool,
}

/// Why a handler is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It belongs to the first set of this handler.
    Initial,
    /// The watch told it.
    Watch,
    /// A list differed from the store.
    Relist,
    /// The handler's own timer: nothing has changed.
    Resync,
}

/// A [`Change`] as those see it who want of an object what every object has.
#[derive(Debug, Clone, Copy)]
pub struct MetaChange<'a> {
    /// As [`Change::old`].
    pub old: Option<MetaRef<'a>>,
    /// As [`Change::new`].
    pub new: Option<MetaRef<'a>>,
    /// As [`Change::cause`].
    pub cause: Cause,
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

/// A handler that was added. Dropping this leaves it there.
pub struct Registration(Arc<Ticket>);

impl Registration {
    /// True once the whole first set was delivered to this handler and handled.
    #[must_use]
    pub fn has_synced(&self) -> bool {
        self.0.has_synced()
    }

    /// Waits for that; for ever if the informer is stopped before.
    pub async fn synced(&self) {
        wait_for(&self.0.synced, |synced| *synced).await;
    }

    /// Takes the handler away: no call begins after this returned. Waits for a running call, so it must not be called
    /// under a lock that the handler takes; from within the handler itself it may be.
    pub fn remove(&self) {
        let _no_call_runs = self.0.gate.lock();
        self.0.removed.store(true, Ordering::Release);
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("synced", &self.has_synced()).finish_non_exhaustive()
    }
}

/// Waits until a watched value is as wanted; for ever if it never is.
pub(crate) async fn wait_for<V>(value: &watch::Sender<V>, wanted: impl FnMut(&V) -> bool) {
    // The sender is borrowed for as long as we wait, so the channel cannot close.
    let _ = value.subscribe().wait_for(wanted).await;
}

/// What a registration and its handler share.
struct Ticket {
    /// Held while the handler runs.
    gate: ReentrantMutex<()>,
    removed: AtomicBool,
    synced: watch::Sender<bool>,
}

impl Ticket {
    fn has_synced(&self) -> bool {
        *self.synced.borrow()
    }

    fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }
}

type Call<T> = Box<dyn Fn(Change<'_, T>) + Send + Sync>;

struct Handler<T> {
    name: &'static str,
    ticket: Arc<Ticket>,
    call: Call<T>,
    resync: Option<Duration>,
    /// When it is due; `None` before the first set.
    next_resync: Mutex<Option<Instant>>,
}

/// The handlers of one informer. All calls are made in the informer's task, without a lock of ours but the handler's own.
pub(crate) struct Handlers<T> {
    /// In the order in which they came, which is that of the calls.
    joined: Mutex<Vec<Arc<Handler<T>>>>,
    /// Added since the informer's task last looked.
    joining: Mutex<Vec<Arc<Handler<T>>>>,
    clock: Clock,
    stop: CancellationToken,
    meter: Arc<Meter>,
}

impl<T: Cached> Handlers<T> {
    pub(crate) fn new(clock: Clock, stop: CancellationToken, meter: Arc<Meter>) -> Self {
        Self { joined: Mutex::default(), joining: Mutex::default(), clock, stop, meter }
    }

    /// Takes a handler, which joins in the informer's task.
    pub(crate) fn add(&self, name: &'static str, resync: Option<Duration>, call: Call<T>) -> Registration {
        let synced = watch::Sender::new(false);
        let ticket = Arc::new(Ticket { gate: ReentrantMutex::new(()), removed: AtomicBool::new(false), synced });
        let resync = resync.filter(|it| !it.is_zero()).map(|it| it.max(LEAST_RESYNC));
        let handler = Handler { name, ticket: ticket.clone(), call, resync, next_resync: Mutex::new(None) };
        self.joining.lock().push(Arc::new(handler));
        Registration(ticket)
    }

    /// Lets added handlers join. `present` is the set that is there, once there is one: they get it and have then synced.
    pub(crate) fn join(&self, present: impl Fn() -> Option<Vec<Entry<T>>>) {
        let joining = std::mem::take(&mut *self.joining.lock());
        for handler in joining {
            if let Some(present) = present() {
                for entry in &present {
                    self.call(&handler, Change { old: None, new: Some(entry), cause: Cause::Initial, stale: false });
                }
                self.has_synced(&handler);
            }
            self.joined.lock().push(handler);
        }
    }

    /// Tells everybody of what the watch brought.
    pub(crate) fn tell(&self, deltas: &[Delta<T>]) {
        self.deliver(deltas, Cause::Watch);
    }

    /// Tells everybody of what a whole set changed; those for whom it was the first have then synced.
    pub(crate) fn tell_of_set(&self, deltas: &[Delta<T>]) {
        self.deliver(deltas, Cause::Relist);
        for handler in self.present() {
            if !handler.ticket.has_synced() {
                self.has_synced(&handler);
            }
        }
    }

    /// When the first resync is due.
    pub(crate) fn next_resync(&self) -> Option<Instant> {
        self.joined.lock().iter().filter_map(|it| *it.next_resync.lock()).min()
    }

    /// Tells those whose resync is due of everything that is there.
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

    fn deliver(&self, deltas: &[Delta<T>], cause: Cause) {
        let handlers: Vec<_> = self.present().into_iter().map(|it| (it.ticket.has_synced(), it)).collect();
        for Delta { old, new } in deltas {
            let stale = cause == Cause::Relist && new.is_none();
            for (synced, handler) in &handlers {
                let cause = if *synced { cause } else { Cause::Initial };
                self.call(handler, Change { old: old.as_ref(), new: new.as_ref(), cause, stale });
            }
        }
    }

    fn call(&self, handler: &Handler<T>, change: Change<'_, T>) {
        let _running = handler.ticket.gate.lock();
        if handler.ticket.is_removed() || self.stop.is_cancelled() {
            return;
        }
        let began = self.clock.now();
        (handler.call)(change);
        let took = self.clock.now().saturating_duration_since(began);
        if took > SLOW {
            self.meter.slow_call(handler.name, took);
        }
    }

    fn has_synced(&self, handler: &Handler<T>) {
        if self.stop.is_cancelled() {
            // Its calls were left out: it has not seen its set.
            return;
        }
        *handler.next_resync.lock() = handler.resync.map(|period| self.clock.now() + period);
        handler.ticket.synced.send_replace(true);
    }

    /// Those who are there now, so that no lock is held while they are called.
    fn present(&self) -> Vec<Arc<Handler<T>>> {
        let mut joined = self.joined.lock();
        joined.retain(|it| !it.ticket.is_removed());
        joined.clone()
    }
}

#[cfg(test)]
mod tests;
