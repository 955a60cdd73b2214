use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use clock::Instant;

use crate::{
    backoff::{Backoff, Limiter},
    delayed::Delayed,
};

/// While both lanes wait, one of this many gets goes to the slow one.
const SLOW_SHARE: u32 = 8;

/// Which of two queues a key waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// What changed now. Goes first.
    Now,
    /// The initial list and resyncs: late is fine, never is not.
    Slow,
}

/// What an add changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The key can be taken now.
    Queued,
    /// A worker has the key; it comes again after `done`.
    Later,
    /// The key was waiting already, or the queue is shut down.
    Nothing,
}

/// A key in the hands of a worker.
#[derive(Debug, PartialEq, Eq)]
pub struct Taken<K> {
    /// The key. Hand it back with `done`.
    pub key: K,
    /// How long it waited.
    pub waited: Duration,
}

/// The queue without tasks or time: every decision is a function of what it was told, and when.
///
/// FIFO within a lane, by first add. The order of the hash tables never escapes: they are asked by key, summed up, or
/// searched for their oldest.
pub struct Core<K> {
    /// Each place has a ticket; a key that moved to another lane leaves a place without meaning behind.
    lanes: [VecDeque<(u64, K)>; 2],
    /// How many places of each lane have a meaning.
    queued: [usize; 2],
    /// Keys that need work, queued or waiting for their worker to finish.
    dirty: HashMap<K, Waiting>,
    /// Keys that workers have, and since when.
    processing: HashMap<K, Instant>,
    delayed: Delayed<K>,
    limiter: Limiter<K>,
    /// Gets from the first lane since the slow one, waiting too, had one.
    passed_over: u32,
    tickets: u64,
    shut_down: bool,
}

struct Waiting {
    since: Instant,
    lane: Lane,
    /// The place in the lane; `None` while a worker has the key.
    ticket: Option<u64>,
}

impl<K: Eq + Hash + Clone> Core<K> {
    /// An empty queue.
    #[must_use]
    pub fn new(backoff: Backoff) -> Self {
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

    /// Asks for work on `key`. One that waits in the slow lane moves up when it is added to the other.
    pub fn add(&mut self, key: K, lane: Lane, now: Instant) -> Added {
        if self.shut_down {
            return Added::Nothing;
        }
        let with_worker = self.processing.contains_key(&key);
        match self.dirty.get_mut(&key) {
            None => {
                let ticket = (!with_worker).then(|| self.place(key.clone(), lane));
                self.dirty.insert(key, Waiting { since: now, lane, ticket });
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

    /// Adds `key` at `at`, in the first lane. Of several such times for one key the earliest counts; an immediate add in
    /// between leaves it in place.
    pub fn add_after(&mut self, key: K, at: Instant) {
        if !self.shut_down {
            self.delayed.insert(key, at);
        }
    }

    /// Drops the time at which `key` was to be added, back-off included. It stays queued if it is.
    pub fn cancel_delay(&mut self, key: &K) {
        self.delayed.remove(key);
    }

    /// Counts a failure of `key` and adds it after its back-off, which is returned.
    pub fn add_rate_limited(&mut self, key: K, now: Instant) -> Duration {
        let delay = self.limiter.failed(&key, now);
        self.add_after(key, far(now, delay));
        delay
    }

    /// Counts an attempt at `key` that led nowhere, though nothing failed, and adds it after its own back-off, which is
    /// returned. Those who fail do not wait for it, nor it for them.
    pub fn add_backed_off(&mut self, key: K, now: Instant) -> Duration {
        let delay = self.limiter.in_vain(&key);
        self.add_after(key, far(now, delay));
        delay
    }

    /// When [`Core::due`] has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        self.delayed.next_deadline()
    }

    /// Queues the delayed keys whose time has come; returns how many of them were not waiting already.
    pub fn due(&mut self, now: Instant) -> usize {
        let mut added = 0;
        while let Some(key) = self.delayed.pop(now) {
            if self.add(key, Lane::Now, now) != Added::Nothing {
                added += 1;
            }
        }
        added
    }

    /// Gives a key to a worker. Until [`Core::done`] nobody else gets it.
    pub fn get(&mut self, now: Instant) -> Option<Taken<K>> {
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

    /// Takes a key back from its worker; returns how long that had it. Queues the key if it was added meanwhile.
    pub fn done(&mut self, key: &K, now: Instant) -> Option<Duration> {
        let since = self.processing.remove(key)?;
        self.queue_again(key);
        Some(now.saturating_duration_since(since))
    }

    /// Forgets the failures of `key`.
    pub fn forget(&mut self, key: &K) {
        self.limiter.forget(key);
    }

    /// How often `key` failed since it was last forgotten.
    #[must_use]
    pub fn failures(&self, key: &K) -> u32 {
        self.limiter.failures(key)
    }

    /// Takes no more keys and drops the delayed ones. What is queued still comes out.
    pub fn shut_down(&mut self) {
        self.shut_down = true;
        self.delayed.clear();
    }

    /// Shuts down and drops what is queued, so that workers find nothing more to take.
    pub fn close(&mut self) {
        self.shut_down();
        self.lanes.iter_mut().for_each(VecDeque::clear);
        self.queued = [0, 0];
        self.dirty.clear();
        self.limiter.clear();
    }

    /// True after a shutdown.
    #[must_use]
    pub fn is_shut_down(&self) -> bool {
        self.shut_down
    }

    /// True after a shutdown once nothing is queued and no worker has a key.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.shut_down && self.is_empty() && self.processing.is_empty()
    }

    /// How many keys can be taken now: without delayed ones and those with workers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queued.iter().sum()
    }

    /// True when no key can be taken now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Since when the first key has been waiting, of the lane whose first key waits longer.
    #[must_use]
    pub fn oldest(&self) -> Option<Instant> {
        let firsts = self.lanes.iter().filter_map(|lane| {
            let meant = |(ticket, key): &(u64, K)| {
                let waiting = self.dirty.get(key).filter(|it| it.ticket == Some(*ticket))?;
                Some(waiting.since)
            };
            lane.iter().find_map(meant)
        });
        firsts.min()
    }

    /// Since when workers have had their keys, in no order.
    pub fn running(&self) -> impl Iterator<Item = Instant> {
        self.processing.values().copied()
    }

    /// The next place in `lane`.
    fn place(&mut self, key: K, lane: Lane) -> u64 {
        self.tickets += 1;
        self.lanes[lane as usize].push_back((self.tickets, key));
        self.queued[lane as usize] += 1;
        self.tickets
    }

    /// Gives a key that needs work, and is in no worker's hands, a place at the end of its lane.
    fn queue_again(&mut self, key: &K) {
        let Some(lane) = self.dirty.get(key).map(|it| it.lane) else { return };
        let ticket = self.place(key.clone(), lane);
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

/// `now + delay`, or a time that nobody lives to see.
pub(crate) fn far(now: Instant, delay: Duration) -> Instant {
    const YEARS: Duration = Duration::from_secs(30 * 365 * 24 * 3600);
    now + delay.min(YEARS)
}

#[cfg(test)]
mod tests;
