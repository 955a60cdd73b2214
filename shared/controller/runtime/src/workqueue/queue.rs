use std::{fmt, hash::Hash, pin::pin, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use metrics::Metrics;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::workqueue::{
    backoff::Backoff,
    core::{Added, Core, Lane, Taken, add_capped},
    meters::{Gauges, Meters, QueueStatus, Readable},
};

/// A work queue, cheap to clone. It has no task of its own: one of the waiting `get` calls also waits for the next
/// deadline.
pub struct Queue<K>(Arc<Inner<K>>);

struct Inner<K> {
    name: &'static str,
    clock: Clock,
    core: Mutex<Core<K>>,
    /// One notification for each key that is added or ready again. All waiting `get` calls are notified when the next
    /// deadline changes and when the queue shuts down.
    wake: Notify,
    /// Locked by the one `get` that waits for the next deadline, so that a deadline does not wake all workers. When it
    /// returns, the next one checks for keys that are due.
    timer: tokio::sync::Mutex<()>,
    drained: Notify,
    meters: Meters,
}

/// What `get` finds in the queue.
enum TryGet<K> {
    Key(K),
    End,
    Nothing { until: Option<Instant> },
}

impl<K: Clone + Eq + Hash + Send + fmt::Debug + 'static> Queue<K> {
    /// An empty queue whose metrics have the label `name`.
    ///
    /// # Panics
    /// If `metrics` already has a queue of this name: a programming error.
    #[must_use]
    pub fn new(name: &'static str, backoff: Backoff, clock: Clock, metrics: &Metrics) -> Self {
        let inner = Arc::new(Inner {
            name,
            clock,
            core: Mutex::new(Core::new(backoff)),
            wake: Notify::new(),
            timer: tokio::sync::Mutex::new(()),
            drained: Notify::new(),
            meters: Meters::new(name, metrics),
        });
        let readable: Arc<dyn Readable> = inner.clone();
        Gauges::register(Arc::downgrade(&readable), name, metrics);
        Self(inner)
    }

    /// The name in its metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Adds a key whose object changed now.
    pub fn add(&self, key: K) {
        self.add_to(key, Lane::Now);
    }

    /// Adds a key to the given lane.
    pub fn add_to(&self, key: K, lane: Lane) {
        let added = self.0.core.lock().add(key, lane, self.0.clock.now());
        self.on_added(added);
    }

    /// Adds a key after `delay`, or earlier if an earlier time is already set.
    pub fn add_after(&self, key: K, delay: Duration) {
        let now = self.0.clock.now();
        if delay.is_zero() {
            let mut core = self.0.core.lock();
            let is_open = !core.is_shut_down();
            let added = core.add(key, Lane::Now, now);
            drop(core);
            self.count_retry(is_open);
            self.on_added(added);
        } else {
            self.delay(|core| core.add_after(key, add_capped(now, delay)));
        }
    }

    /// Removes the time at which the key would be added, also a back-off. A key that is queued stays queued.
    pub fn cancel_delay(&self, key: &K) {
        // A `get` that waits for this time wakes up then, finds nothing, and waits for the next deadline.
        self.0.core.lock().cancel_delay(key);
    }

    /// Counts a failure of the key, schedules its add after the back-off, and returns the back-off.
    pub fn add_rate_limited(&self, key: K) -> Duration {
        let now = self.0.clock.now();
        self.delay(|core| core.add_rate_limited(key, now))
    }

    /// Counts an attempt at the key that made no progress but did not fail, schedules its add after its own back-off,
    /// and returns the back-off. Such keys take no token of the shared bucket, so they never delay failed keys.
    pub fn add_backed_off(&self, key: K) -> Duration {
        let now = self.0.clock.now();
        self.delay(|core| core.add_backed_off(key, now))
    }

    /// Resets the failure count of a key. Call it after each success.
    pub fn forget(&self, key: &K) {
        self.0.core.lock().forget(key);
    }

    /// How often a key failed since the last [`Queue::forget`].
    #[must_use]
    pub fn failures(&self, key: &K) -> u32 {
        self.0.core.lock().failures(key)
    }

    /// Waits for a key. The caller has it until [`Queue::done`]. `None` once the queue is shut down and empty.
    ///
    /// Dropping the future loses no key and no notification. A future that is not dropped must be polled, because no other
    /// `get` waits for deadlines while this one does.
    pub async fn get(&self) -> Option<K> {
        // Released when this `get` returns or is dropped.
        let mut timer = None;
        loop {
            // Register for a notification before the check, so that an add between check and wait is not missed.
            let mut woken = pin!(self.0.wake.notified());
            woken.as_mut().enable();
            match self.try_get() {
                TryGet::Key(key) => return Some(key),
                TryGet::End => return None,
                TryGet::Nothing { until: None } => woken.await,
                // Notification, deadline or lock: the next check handles all.
                TryGet::Nothing { until: Some(deadline) } if timer.is_some() => {
                    drop(tokio::time::timeout_at(deadline, woken).await);
                }
                TryGet::Nothing { until: Some(_) } => tokio::select! {
                    biased;
                    () = woken => {}
                    locked = self.0.timer.lock() => timer = Some(locked),
                },
            }
        }
    }

    /// Ends the work on a key. Call it for every key from [`Queue::get`].
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

    /// Accepts no more keys and removes the delayed ones. Queued keys can still be taken.
    pub fn shut_down(&self) {
        self.0.core.lock().shut_down();
        self.on_ended();
    }

    /// Shuts down and removes the queued keys too: workers get no further key.
    pub fn close(&self) {
        self.0.core.lock().close();
        self.on_ended();
    }

    /// Shuts down and waits until every queued key has been processed and `done` was called for it.
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

    /// How many keys are queued. Delayed keys and keys that workers have do not count.
    #[must_use]
    pub fn len(&self) -> usize {
        let mut core = self.0.core.lock();
        // While all workers are busy, no `get` queues the delayed keys that are due.
        let due = core.enqueue_due(self.0.clock.now());
        let len = core.len();
        drop(core);
        self.0.meters.adds.inc_by(due as u64);
        len
    }

    /// How long the longest waiting key of both lanes has been queued.
    #[must_use]
    pub fn longest_wait(&self) -> Option<Duration> {
        let now = self.0.clock.now();
        let since = self.0.core.lock().oldest();
        since.map(|it| now.saturating_duration_since(it))
    }

    /// True when no key is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn try_get(&self) -> TryGet<K> {
        let now = self.0.clock.now();
        let mut core = self.0.core.lock();
        let due = core.enqueue_due(now);
        let taken = core.get(now);
        let (until, shut_down) = (core.next_deadline(), core.is_shut_down());
        drop(core);
        self.0.meters.adds.inc_by(due as u64);
        match taken {
            Some(Taken { key, waited }) => {
                self.0.meters.queue_duration.observe(waited.as_secs_f64());
                TryGet::Key(key)
            }
            None if shut_down => TryGet::End,
            None => TryGet::Nothing { until },
        }
    }

    /// Applies `change`, which delays a key, and notifies waiting `get` calls when the next deadline becomes earlier.
    fn delay<T>(&self, change: impl FnOnce(&mut Core<K>) -> T) -> T {
        let mut core = self.0.core.lock();
        let is_open = !core.is_shut_down();
        let before = core.next_deadline();
        let result = change(&mut core);
        let moved = core.next_deadline() != before;
        drop(core);
        self.count_retry(is_open);
        if moved {
            self.0.wake.notify_waiters();
        }
        result
    }

    fn on_added(&self, added: Added) {
        if added != Added::Nothing {
            self.0.meters.adds.inc();
        }
        if added == Added::Queued {
            self.0.wake.notify_one();
        }
    }

    fn count_retry(&self, counts: bool) {
        if counts {
            self.0.meters.retries.inc();
        }
    }

    fn on_ended(&self) {
        self.0.wake.notify_waiters();
        self.0.drained.notify_waiters();
    }
}

impl<K: Clone + Eq + Hash + Send> Readable for Inner<K> {
    fn read(&self) -> QueueStatus {
        let now = self.clock.now();
        let mut core = self.core.lock();
        // While all workers are busy, no `get` queues the delayed keys that are due. A waiting `get` would.
        let due = core.enqueue_due(now);
        let (depth, mut unfinished, mut longest) = (core.len(), Duration::ZERO, Duration::ZERO);
        for since in core.running() {
            let running = now.saturating_duration_since(since);
            unfinished += running;
            longest = longest.max(running);
        }
        drop(core);
        self.meters.adds.inc_by(due as u64);
        QueueStatus { depth, unfinished_seconds: unfinished.as_secs_f64(), longest_seconds: longest.as_secs_f64() }
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
