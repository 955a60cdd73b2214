use std::{fmt, hash::Hash, pin::pin, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use metrics::Metrics;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    backoff::Backoff,
    core::{Added, Core, Lane, Taken, far},
    meters::{Gauges, Meters, Readable, Reading},
};

/// A work queue, cheap to clone. It has no task of its own: waiting getters watch the next deadline.
pub struct Queue<K>(Arc<Inner<K>>);

struct Inner<K> {
    name: &'static str,
    clock: Clock,
    core: Mutex<Core<K>>,
    /// One call per key that can be taken; all are called when a deadline moves forward or the queue shuts down.
    wake: Notify,
    drained: Notify,
    meters: Meters,
}

/// What a getter finds.
enum Look<K> {
    Key(K),
    End,
    Nothing { until: Option<Instant> },
}

impl<K: Clone + Eq + Hash + Send + fmt::Debug + 'static> Queue<K> {
    /// An empty queue that reports as `name`.
    ///
    /// # Panics
    /// If `metrics` already knows a queue of this name: a programming error.
    #[must_use]
    pub fn new(name: &'static str, backoff: Backoff, clock: Clock, metrics: &Metrics) -> Self {
        let inner = Arc::new(Inner {
            name,
            clock,
            core: Mutex::new(Core::new(backoff)),
            wake: Notify::new(),
            drained: Notify::new(),
            meters: Meters::new(name, metrics),
        });
        let readable: Arc<dyn Readable> = inner.clone();
        Gauges::register(Arc::downgrade(&readable), name, metrics);
        Self(inner)
    }

    /// The name it reports as.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Asks for work on a key that changed now.
    pub fn add(&self, key: K) {
        self.add_to(key, Lane::Now);
    }

    /// Asks for work on a key, in the lane that suits the reason.
    pub fn add_to(&self, key: K, lane: Lane) {
        let added = self.0.core.lock().add(key, lane, self.0.clock.now());
        self.added(added);
    }

    /// Asks for work on a key in `delay`, or earlier if that was asked before.
    pub fn add_after(&self, key: K, delay: Duration) {
        let now = self.0.clock.now();
        if delay.is_zero() {
            let mut core = self.0.core.lock();
            let counts = !core.is_shut_down();
            let added = core.add(key, Lane::Now, now);
            drop(core);
            self.retried(counts);
            self.added(added);
        } else {
            self.delay(|core| core.add_after(key, far(now, delay)));
        }
    }

    /// Drops the time at which work on a key was to be asked for, back-off included. It stays queued if it is.
    pub fn cancel_delay(&self, key: &K) {
        // A getter that waits for this time wakes then, finds nothing, and waits for the next one.
        self.0.core.lock().cancel_delay(key);
    }

    /// Counts a failure of the key and asks for work on it after its back-off, which is returned.
    pub fn add_rate_limited(&self, key: K) -> Duration {
        let now = self.0.clock.now();
        self.delay(|core| core.add_rate_limited(key, now))
    }

    /// Counts an attempt at the key that led nowhere, though nothing failed, and asks for work on it after its own
    /// back-off, which is returned: however many such keys there are, those that fail do not wait for them.
    pub fn add_backed_off(&self, key: K) -> Duration {
        let now = self.0.clock.now();
        self.delay(|core| core.add_backed_off(key, now))
    }

    /// Forgets the failures of a key, as each success must.
    pub fn forget(&self, key: &K) {
        self.0.core.lock().forget(key);
    }

    /// How often a key failed since it was last forgotten.
    #[must_use]
    pub fn failures(&self, key: &K) -> u32 {
        self.0.core.lock().failures(key)
    }

    /// Waits for a key, which is then the caller's until [`Queue::done`]; `None` once the queue is shut down and empty.
    ///
    /// Dropping the future loses no key and no wake-up.
    pub async fn get(&self) -> Option<K> {
        loop {
            // Enlisted before the look: what is added between look and wait must find us. And each waiting getter knows
            // the earliest deadline, so that none can take another's timer away by leaving.
            let mut woken = pin!(self.0.wake.notified());
            woken.as_mut().enable();
            match self.look() {
                Look::Key(key) => return Some(key),
                Look::End => return None,
                Look::Nothing { until: None } => woken.await,
                // Which of the two it was does not matter: the next look tells.
                Look::Nothing { until: Some(deadline) } => drop(tokio::time::timeout_at(deadline, woken).await),
            }
        }
    }

    /// Gives a key back. Every key from [`Queue::get`] must come back.
    pub fn done(&self, key: &K) {
        let mut core = self.0.core.lock();
        let worked = core.done(key, self.0.clock.now());
        let (more, drained) = (!core.is_empty(), core.is_drained());
        drop(core);
        if let Some(worked) = worked {
            self.0.meters.work_duration.observe(worked.as_secs_f64());
        }
        if more {
            self.0.wake.notify_one();
        }
        if drained {
            self.0.drained.notify_waiters();
        }
    }

    /// Takes no more keys and drops the delayed ones; what is queued still comes out.
    pub fn shut_down(&self) {
        self.0.core.lock().shut_down();
        self.ended();
    }

    /// Shuts down and drops what is queued: workers take no further key.
    pub fn close(&self) {
        self.0.core.lock().close();
        self.ended();
    }

    /// Shuts down and waits until every key that was queued has been worked on and given back.
    pub async fn drain(&self) {
        self.shut_down();
        loop {
            let mut drained = pin!(self.0.drained.notified());
            drained.as_mut().enable();
            if self.0.core.lock().is_drained() {
                return;
            }
            drained.await;
        }
    }

    /// How many keys can be taken now: without delayed ones and those with workers.
    #[must_use]
    pub fn len(&self) -> usize {
        let mut core = self.0.core.lock();
        // With all workers busy nobody else looks whose time has come.
        let due = core.due(self.0.clock.now());
        let len = core.len();
        drop(core);
        self.0.meters.adds.inc_by(due as u64);
        len
    }

    /// How long the first key has been waiting, of the lane whose first key waits longer.
    #[must_use]
    pub fn oldest(&self) -> Option<Duration> {
        let now = self.0.clock.now();
        let since = self.0.core.lock().oldest();
        since.map(|it| now.saturating_duration_since(it))
    }

    /// True when no key can be taken now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn look(&self) -> Look<K> {
        let now = self.0.clock.now();
        let mut core = self.0.core.lock();
        let due = core.due(now);
        let taken = core.get(now);
        let (until, shut_down) = (core.next_deadline(), core.is_shut_down());
        drop(core);
        self.0.meters.adds.inc_by(due as u64);
        match taken {
            Some(Taken { key, waited }) => {
                self.0.meters.queue_duration.observe(waited.as_secs_f64());
                Look::Key(key)
            }
            None if shut_down => Look::End,
            None => Look::Nothing { until },
        }
    }

    /// Lets `change` delay a key, and tells waiting getters when that is the new earliest deadline.
    fn delay<T>(&self, change: impl FnOnce(&mut Core<K>) -> T) -> T {
        let mut core = self.0.core.lock();
        let counts = !core.is_shut_down();
        let before = core.next_deadline();
        let result = change(&mut core);
        let moved = core.next_deadline() != before;
        drop(core);
        self.retried(counts);
        if moved {
            self.0.wake.notify_waiters();
        }
        result
    }

    fn added(&self, added: Added) {
        if added != Added::Nothing {
            self.0.meters.adds.inc();
        }
        if added == Added::Queued {
            self.0.wake.notify_one();
        }
    }

    fn retried(&self, counts: bool) {
        if counts {
            self.0.meters.retries.inc();
        }
    }

    fn ended(&self) {
        self.0.wake.notify_waiters();
        self.0.drained.notify_waiters();
    }
}

impl<K: Clone + Eq + Hash + Send> Readable for Inner<K> {
    fn read(&self) -> Reading {
        let now = self.clock.now();
        let mut core = self.core.lock();
        // While every worker is busy nobody else queues what is due. Getters that wait have their timer.
        let due = core.due(now);
        let (depth, mut unfinished, mut longest) = (core.len(), Duration::ZERO, Duration::ZERO);
        for since in core.running() {
            let running = now.saturating_duration_since(since);
            unfinished += running;
            longest = longest.max(running);
        }
        drop(core);
        self.meters.adds.inc_by(due as u64);
        Reading { depth, unfinished_seconds: unfinished.as_secs_f64(), longest_seconds: longest.as_secs_f64() }
    }
}

impl<K> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> fmt::Debug for Queue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Queue").field(&self.0.name).finish()
    }
}

#[cfg(test)]
mod tests;
