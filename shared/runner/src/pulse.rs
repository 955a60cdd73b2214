//! Whether the workers of one queue still move.
//!
//! A sync that takes long is no fault: it may have much to do, on a slow server. So what counts is not how long a key is
//! with its worker but when anything happened to it last: each time the sync's future is polled an answer has come, or a
//! timer has fired. Only what nothing happens to for [`STALL`] is stuck.

use std::{fmt, hash::Hash, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use parking_lot::Mutex;
use workqueue::Queue;

/// Nothing happens to a key for so long only if it is stuck: a call ends after 70 s, or after 190 s where the server asked
/// for repeats of it, and a wait for the budget wakes once a minute. The rest is for a machine that is busy otherwise.
pub const STALL: Duration = Duration::from_secs(300);

/// Shared by the workers of one queue and whoever asks for them; cheap to clone.
#[derive(Clone)]
pub struct Pulse(Arc<Inner>);

struct Inner {
    queue: &'static str,
    clock: Clock,
    backlog: Box<dyn Fn() -> Backlog + Send + Sync>,
    state: Mutex<State>,
}

struct State {
    /// For each worker: since when it has its key, and when anything happened to that last.
    hands: Vec<Option<Instant>>,
    /// When a key was taken or given back last; before the first one, when the workers started.
    active: Option<Instant>,
}

/// What waits in the queue.
struct Backlog {
    depth: usize,
    oldest: Option<Duration>,
}

/// The workers of one queue, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The queue's name.
    pub queue: &'static str,
    /// Keys that can be taken now.
    pub depth: usize,
    /// How long the first of them waits.
    pub oldest: Option<Duration>,
    /// How many workers there are.
    pub workers: usize,
    /// For each worker that has a key: how long ago anything happened to it.
    pub silences: Vec<Duration>,
    /// How long ago a key was taken or given back; `None` before the workers started.
    pub active: Option<Duration>,
}

/// Workers that do not move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stuck {
    /// Nothing happened to a key for so long.
    Key(&'static str, Duration),
    /// So many keys wait, workers are free, and none of them took one for so long.
    Queue(&'static str, usize, Duration),
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(queue, silence) => {
                write!(f, "a worker of the queue {queue} has been stuck with its key for {} s", silence.as_secs())
            }
            Self::Queue(queue, depth, silence) => {
                write!(f, "no worker took any of the {depth} keys of the queue {queue} for {} s", silence.as_secs())
            }
        }
    }
}

impl std::error::Error for Stuck {}

impl Reading {
    /// Whether these workers move.
    ///
    /// # Errors
    /// What is stuck.
    pub fn verdict(&self) -> Result<(), Stuck> {
        let Self { queue, depth, oldest, workers, silences, active } = self;
        if let Some(longest) = silences.iter().max().filter(|it| **it >= STALL) {
            return Err(Stuck::Key(queue, *longest));
        }
        let someone_is_free = silences.len() < *workers;
        // Before the start nobody is expected to take anything.
        let Some(active) = active else { return Ok(()) };
        // Both: a queue that was empty for an hour may have got its first key just now.
        let untouched = oldest.unwrap_or_default().min(*active);
        if someone_is_free && untouched >= STALL { Err(Stuck::Queue(queue, *depth, untouched)) } else { Ok(()) }
    }
}

impl Pulse {
    /// For so many workers of a queue, which have not started yet.
    #[must_use]
    pub fn new<K>(queue: &Queue<K>, workers: usize, clock: Clock) -> Self
    where
        K: Clone + Eq + Hash + Send + fmt::Debug + 'static,
    {
        let name = queue.name();
        let queue = queue.clone();
        let backlog = move || Backlog { depth: queue.len(), oldest: queue.oldest() };
        let state = Mutex::new(State { hands: vec![None; workers], active: None });
        Self(Arc::new(Inner { queue: name, clock, backlog: Box::new(backlog), state }))
    }

    /// How they are now.
    #[must_use]
    pub fn read(&self) -> Reading {
        let Inner { queue, clock, backlog, state } = &*self.0;
        let Backlog { depth, oldest } = backlog();
        let state = state.lock();
        let now = clock.now();
        let since = |it: Instant| now.saturating_duration_since(it);
        let silences = state.hands.iter().flatten().map(|it| since(*it)).collect();
        Reading { queue, depth, oldest, workers: state.hands.len(), silences, active: state.active.map(since) }
    }

    /// How many workers this is for.
    pub(crate) fn workers(&self) -> usize {
        self.0.state.lock().hands.len()
    }

    /// From now on keys are expected to be taken.
    pub fn started(&self) {
        self.0.state.lock().active = Some(self.0.clock.now());
    }

    /// Something happened to the key of this worker, which has just been taken perhaps.
    pub(crate) fn moved(&self, worker: usize) {
        let now = self.0.clock.now();
        if let Some(hand) = self.0.state.lock().hands.get_mut(worker) {
            *hand = Some(now);
        }
    }

    /// This worker took its key or gave it back.
    pub(crate) fn turned(&self, worker: usize, has_key: bool) {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock();
        state.active = Some(now);
        if let Some(hand) = state.hands.get_mut(worker) {
            *hand = has_key.then_some(now);
        }
    }
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pulse").field(&self.0.queue).finish()
    }
}

#[cfg(test)]
mod tests;
