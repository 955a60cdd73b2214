use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use clock::Instant;

use crate::workqueue::{
    backoff::{Backoff, Limiter},
    delayed::Delayed,
};

/// While both lanes have keys, one of this many gets is served from the slow lane.
const SLOW_SHARE: u32 = 8;

/// The lane (internal queue) in which a key waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// For keys whose object changed now. Served first.
    Now,
    /// For keys of the initial list and of resyncs. They may be late, but they are never lost.
    Slow,
}

/// The effect of an add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// The key is queued now.
    Queued,
    /// A worker has the key; it is queued after `done`.
    Later,
    /// The key was queued already, or the queue is shut down.
    Nothing,
}

/// A key that a worker has taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken<K> {
    /// The key. The worker must call `done` with it.
    pub(crate) key: K,
    /// How long the key was queued.
    pub(crate) waited: Duration,
}

/// The work queue without tasks and without a clock: each result depends only on the calls and the times passed to
/// them.
///
/// FIFO within a lane, by first add. The iteration order of the hash tables has no effect: they are only looked up by
/// key, summed, or searched for their oldest entry.
pub(crate) struct Core<K> {
    /// Each entry has a ticket. When a key moves to the other lane, its old entry stays in the lane and is ignored.
    lanes: [VecDeque<(u64, K)>; 2],
    /// How many entries of each lane are valid.
    queued: [usize; 2],
    /// Keys that must be processed: queued, or waiting until their worker calls `done`.
    dirty: HashMap<K, QueuedKey>,
    /// Keys that workers have, with the time of the get.
    processing: HashMap<K, Instant>,
    delayed: Delayed<K>,
    limiter: Limiter<K>,
    /// How many gets in a row the first lane has served while the slow lane had keys too.
    passed_over: u32,
    tickets: u64,
    shut_down: bool,
}

struct QueuedKey {
    since: Instant,
    lane: Lane,
    /// The ticket of the valid entry in the lane; `None` while a worker has the key.
    ticket: Option<u64>,
}

impl<K: Eq + Hash + Clone> Core<K> {
    /// An empty queue.
    #[must_use]
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            lanes: [VecDeque::new(), VecDeque::new()],
            queued: [0, 0],
            dirty: HashMap::new(),
            processing: HashMap::new(),
            delayed: Delayed::new(),
            limiter: Limiter::new(backoff),
            passed_over: 0,
            tickets: 0,
            shut_down: false,
        }
    }

    /// Adds `key`. A key that waits in the slow lane moves to the first lane when it is added with [`Lane::Now`].
    pub(crate) fn add(&mut self, key: K, lane: Lane, now: Instant) -> Added {
        if self.shut_down {
            return Added::Nothing;
        }
        let with_worker = self.processing.contains_key(&key);
        match self.dirty.get_mut(&key) {
            None => {
                let ticket = (!with_worker).then(|| self.push(key.clone(), lane));
                self.dirty.insert(key, QueuedKey { since: now, lane, ticket });
                if with_worker { Added::Later } else { Added::Queued }
            }
            Some(waiting) => {
                let moves_up = waiting.lane == Lane::Slow && lane == Lane::Now;
                if moves_up {
                    waiting.lane = Lane::Now;
                    if waiting.ticket.is_some() {
                        self.queued[Lane::Slow as usize] -= 1;
                        self.queue_again(&key);
                    }
                }
                Added::Nothing
            }
        }
    }

    /// Adds `key` to the first lane at the time `at`. If the key has several such times, only the earliest counts. An
    /// immediate add does not remove this time.
    pub(crate) fn add_after(&mut self, key: K, at: Instant) {
        if !self.shut_down {
            self.delayed.insert(key, at);
        }
    }

    /// Removes the time at which `key` would be added, also a back-off. A key that is queued stays queued.
    pub(crate) fn cancel_delay(&mut self, key: &K) {
        self.delayed.remove(key);
    }

    /// Counts a failure of `key`, schedules its add after the back-off, and returns the back-off.
    pub(crate) fn add_rate_limited(&mut self, key: K, now: Instant) -> Duration {
        let delay = self.limiter.count_failure(&key, now);
        self.add_after(key, add_capped(now, delay));
        delay
    }

    /// Counts an attempt at `key` that made no progress but did not fail, schedules its add after its own back-off, and
    /// returns the back-off. It takes no token of the shared bucket, so it does not delay failed keys, and failed keys
    /// do not delay it.
    pub(crate) fn add_backed_off(&mut self, key: K, now: Instant) -> Duration {
        let delay = self.limiter.count_attempt(&key);
        self.add_after(key, add_capped(now, delay));
        delay
    }

    /// The earliest time at which [`Core::enqueue_due`] will have something to do.
    #[must_use]
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.delayed.next_deadline()
    }

    /// Queues the delayed keys whose time has come. Returns how many of them were not queued before.
    pub(crate) fn enqueue_due(&mut self, now: Instant) -> usize {
        let mut added = 0;
        while let Some(key) = self.delayed.pop(now) {
            if self.add(key, Lane::Now, now) != Added::Nothing {
                added += 1;
            }
        }
        added
    }

    /// Returns the next key for a worker. No other worker gets this key before [`Core::done`].
    pub(crate) fn get(&mut self, now: Instant) -> Option<Taken<K>> {
        let lane = self.next_lane()?;
        while let Some((ticket, key)) = self.lanes[lane as usize].pop_front() {
            let Some(waiting) = self.dirty.get(&key) else { continue };
            if waiting.ticket != Some(ticket) {
                continue;
            }
            let waited = now.saturating_duration_since(waiting.since);
            self.queued[lane as usize] -= 1;
            self.dirty.remove(&key);
            self.processing.insert(key.clone(), now);
            return Some(Taken { key, waited });
        }
        None
    }

    /// Ends the work on a key and returns how long the worker had it. If the key was added in the meantime, it is
    /// queued again.
    pub(crate) fn done(&mut self, key: &K, now: Instant) -> Option<Duration> {
        let since = self.processing.remove(key)?;
        self.queue_again(key);
        Some(now.saturating_duration_since(since))
    }

    /// Resets the failure count of `key`.
    pub(crate) fn forget(&mut self, key: &K) {
        self.limiter.forget(key);
    }

    /// How often `key` failed since the last [`Core::forget`].
    #[must_use]
    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.limiter.failures(key)
    }

    /// Accepts no more keys and removes the delayed ones. Queued keys can still be taken.
    pub(crate) fn shut_down(&mut self) {
        self.shut_down = true;
        self.delayed.clear();
    }

    /// Shuts down and removes the queued keys too, so that workers get no further key.
    pub(crate) fn close(&mut self) {
        self.shut_down();
        self.lanes.iter_mut().for_each(VecDeque::clear);
        self.queued = [0, 0];
        self.dirty.clear();
        self.limiter.clear();
    }

    /// True after a shutdown.
    #[must_use]
    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// True after a shutdown, once no key is queued and no worker has a key.
    #[must_use]
    pub(crate) fn is_drained(&self) -> bool {
        self.shut_down && self.is_empty() && self.processing.is_empty()
    }

    /// How many keys are queued. Delayed keys and keys that workers have do not count.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.queued.iter().sum()
    }

    /// True when no key is queued.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the longest waiting key of both lanes was added.
    #[must_use]
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let firsts = self.lanes.iter().filter_map(|lane| {
            let meant = |(ticket, key): &(u64, K)| {
                let waiting = self.dirty.get(key).filter(|it| it.ticket == Some(*ticket))?;
                Some(waiting.since)
            };
            lane.iter().find_map(meant)
        });
        firsts.min()
    }

    /// When each key that a worker has now was taken, in no order.
    pub(crate) fn running(&self) -> impl Iterator<Item = Instant> {
        self.processing.values().copied()
    }

    /// Adds an entry at the end of `lane` and returns its ticket.
    fn push(&mut self, key: K, lane: Lane) -> u64 {
        self.tickets += 1;
        self.lanes[lane as usize].push_back((self.tickets, key));
        self.queued[lane as usize] += 1;
        self.tickets
    }

    /// Adds a new entry for a key that must be processed and that no worker has.
    fn queue_again(&mut self, key: &K) {
        let Some(lane) = self.dirty.get(key).map(|it| it.lane) else { return };
        let ticket = self.push(key.clone(), lane);
        if let Some(waiting) = self.dirty.get_mut(key) {
            waiting.ticket = Some(ticket);
        }
    }

    fn next_lane(&mut self) -> Option<Lane> {
        let [now, slow] = self.queued;
        if now > 0 && slow > 0 && self.passed_over + 1 < SLOW_SHARE {
            self.passed_over += 1;
            return Some(Lane::Now);
        }
        self.passed_over = 0;
        match (now, slow) {
            (0, 0) => None,
            (_, 0) => Some(Lane::Now),
            _ => Some(Lane::Slow),
        }
    }
}

/// `now + delay`, at most 30 years from now, so that the sum cannot overflow.
pub(crate) fn add_capped(now: Instant, delay: Duration) -> Instant {
    const YEARS: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    now + delay.min(YEARS)
}

#[cfg(test)]
mod tests;
