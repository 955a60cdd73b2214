//! Detects whether the workers of one queue make progress.
//!
//! A long sync is not an error: it may have much to do on a slow server. So the duration of the sync does not count,
//! but the time since its future was last polled. A poll means that a response has come or a timer has fired. A key
//! without a poll for [`STALL`] is stuck.

use std::{fmt, hash::Hash, sync::Arc, time::Duration};

use crate::Queue;
use clock::{Clock, Instant};
use parking_lot::Mutex;

/// A key is polled within this time unless it is stuck: a call ends after 70 s, or after 190 s if the server requests
/// retries, and a wait for the rate limiter wakes once per minute. The rest is a reserve for a busy machine.
pub const STALL: Duration = Duration::from_secs(300);

/// The state of the workers of one queue, shared with its readers; cheap to clone.
#[derive(Clone)]
pub struct WorkerHealth(Arc<Inner>);

struct Inner {
    queue: &'static str,
    clock: Clock,
    backlog: Box<dyn Fn() -> Backlog + Send + Sync>,
    state: Mutex<State>,
}

struct State {
    /// For each worker with a key, when the sync was last polled.
    last_progress: Vec<Option<Instant>>,
    /// When a key was last taken or given back; before the first key, when the workers started.
    active: Option<Instant>,
}

/// The keys that wait in the queue.
struct Backlog {
    depth: usize,
    oldest: Option<Duration>,
}

/// The state of the workers of one queue at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerStatus {
    /// The queue's name.
    pub queue: &'static str,
    /// The number of keys that can be taken now.
    pub depth: usize,
    /// How long the first of them has been waiting.
    pub oldest: Option<Duration>,
    /// The number of workers.
    pub workers: usize,
    /// For each worker with a key, how long ago the sync was last polled.
    pub since_progress: Vec<Duration>,
    /// How long ago a key was last taken or given back; `None` before the workers started.
    pub active: Option<Duration>,
}

/// Workers without progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stuck {
    /// A key was not polled for this long.
    Key(&'static str, Duration),
    /// This many keys wait and a worker is free, but no key was taken for this long.
    Queue(&'static str, usize, Duration),
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(queue, since) => {
                write!(f, "a worker of the queue {queue} has been stuck with its key for {} s", since.as_secs())
            }
            Self::Queue(queue, depth, since) => {
                write!(f, "no worker took any of the {depth} keys of the queue {queue} for {} s", since.as_secs())
            }
        }
    }
}

impl std::error::Error for Stuck {}

impl WorkerStatus {
    /// Whether the workers make progress.
    ///
    /// # Errors
    /// The worker or queue that is stuck.
    pub fn check(&self) -> Result<(), Stuck> {
        let Self { queue, depth, oldest, workers, since_progress, active } = self;
        if let Some(longest) = since_progress.iter().max().filter(|it| **it >= STALL) {
            return Err(Stuck::Key(queue, *longest));
        }
        let has_free_worker = since_progress.len() < *workers;
        // Before the start no key is expected to be taken.
        let Some(active) = active else { return Ok(()) };
        // The smaller of both counts, because an idle queue may have received its first key just now.
        let idle = oldest.unwrap_or_default().min(*active);
        if has_free_worker && idle >= STALL { Err(Stuck::Queue(queue, *depth, idle)) } else { Ok(()) }
    }
}

impl WorkerHealth {
    /// The state of `workers` workers of a queue that have not started yet.
    #[must_use]
    pub fn new<K>(queue: &Queue<K>, workers: usize, clock: Clock) -> Self
    where
        K: Clone + Eq + Hash + Send + fmt::Debug + 'static,
    {
        let name = queue.name();
        let queue = queue.clone();
        let backlog = move || Backlog { depth: queue.len(), oldest: queue.longest_wait() };
        let state = Mutex::new(State { last_progress: vec![None; workers], active: None });
        Self(Arc::new(Inner { queue: name, clock, backlog: Box::new(backlog), state }))
    }

    /// Reads the present state.
    #[must_use]
    pub fn read(&self) -> WorkerStatus {
        let Inner { queue, clock, backlog, state } = &*self.0;
        let Backlog { depth, oldest } = backlog();
        let state = state.lock();
        let now = clock.now();
        let since = |it: Instant| now.saturating_duration_since(it);
        let since_progress = state.last_progress.iter().flatten().map(|it| since(*it)).collect();
        WorkerStatus {
            queue,
            depth,
            oldest,
            workers: state.last_progress.len(),
            since_progress,
            active: state.active.map(since),
        }
    }

    /// The number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.0.state.lock().last_progress.len()
    }

    /// The workers have started, so keys are expected to be taken.
    pub fn on_started(&self) {
        self.0.state.lock().active = Some(self.0.clock.now());
    }

    /// The sync of this worker is being polled.
    pub(crate) fn on_polled(&self, worker: usize) {
        let now = self.0.clock.now();
        if let Some(progress) = self.0.state.lock().last_progress.get_mut(worker) {
            *progress = Some(now);
        }
    }

    /// This worker took its key or gave it back.
    pub(crate) fn on_key_changed(&self, worker: usize, has_key: bool) {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock();
        state.active = Some(now);
        if let Some(progress) = state.last_progress.get_mut(worker) {
            *progress = has_key.then_some(now);
        }
    }
}

impl fmt::Debug for WorkerHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkerHealth").field(&self.0.queue).finish()
    }
}

#[cfg(test)]
mod tests;
