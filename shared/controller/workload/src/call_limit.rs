//! Limits the concurrent API calls of a controller and shares them between the owners of pods.

use std::{future::Future, pin::pin, time::Duration};

use clock::Instant;
use futures::{StreamExt, stream};
use tokio::sync::Semaphore;

/// The maximum of concurrent calls about pods.
const MAX_CALLS: usize = 96;

/// The maximum for one owner, so that an owner of ten thousand pods leaves calls for others. Permits are granted in the
/// order of requests, so an owner of one pod waits for at most this many calls of each other owner.
const MAX_CALLS_PER_OWNER: usize = 64;

/// How long one stage of a sync starts new calls while other owners wait for a worker. An owner with thousands of pods,
/// at twenty calls per second, would otherwise delay them for minutes.
const STAGE_TIME: Duration = Duration::from_secs(5);

/// How often a sync wakes while it waits for permits. Otherwise it would count as stuck while other owners use all
/// permits for calls that hang.
const WAKE_INTERVAL: Duration = Duration::from_secs(60);

/// The start of one stage of a sync.
#[derive(Debug, Clone, Copy)]
pub struct StageStart(Instant);

impl StageStart {
    /// A stage that starts now.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self(now)
    }

    /// Whether the stage must start no further call, because its time is over and other keys wait.
    #[must_use]
    pub fn is_over(self, now: Instant, has_waiting_keys: bool) -> bool {
        now.saturating_duration_since(self.0) >= STAGE_TIME && has_waiting_keys
    }
}

/// The permits for calls.
#[derive(Debug)]
pub struct CallLimit(Semaphore);

impl Default for CallLimit {
    fn default() -> Self {
        Self(Semaphore::new(MAX_CALLS))
    }
}

impl CallLimit {
    /// Makes a call for each item, many concurrently. Results are in the order of the items.
    pub async fn call_each<T, R, F>(&self, items: Vec<T>, call: impl Fn(T) -> F) -> Vec<R>
    where
        F: Future<Output = R>,
    {
        self.call_each_until(|| false, items, call).await.into_iter().flatten().collect()
    }

    /// Like [`CallLimit::call_each`], with `None` for each item whose call was not started because `is_over` returned
    /// true.
    pub async fn call_each_until<T, R, F>(
        &self,
        is_over: impl Fn() -> bool,
        items: Vec<T>,
        call: impl Fn(T) -> F,
    ) -> Vec<Option<R>>
    where
        F: Future<Output = R>,
    {
        let mut calls = Vec::with_capacity(items.len());
        for item in items {
            let (call, is_over) = (call(item), &is_over);
            calls.push(async move {
                // Checked before the wait too: the remaining items need no permit when the time is over.
                if is_over() {
                    return None;
                }
                // The semaphore is never closed. If it were, calls would only lose their limit.
                let _permit = self.0.acquire().await;
                if is_over() { None } else { Some(call.await) }
            });
        }
        let mut results = pin!(stream::iter(calls).buffered(MAX_CALLS_PER_OWNER).collect());
        loop {
            if let Ok(results) = tokio::time::timeout(WAKE_INTERVAL, &mut results).await {
                return results;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::poll_fn,
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_large_job_leaves_permits_for_a_small_one() {
        let limit = CallLimit::default();
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let call = |item: usize| {
            let (now, most) = (&now, &most);
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                item
            }
        };
        let clock = clock::Clock::system();
        let began = clock.now();
        let (large, (small, took)) = tokio::join!(limit.call_each((0..10_000).collect(), call), async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let small = limit.call_each(vec![7], call).await;
            (small, clock.now() - began)
        });
        assert_eq!((large, small), ((0..10_000).collect(), vec![7]));
        assert!(took < Duration::from_secs(2), "it got a permit at once: {took:?}");
        assert_eq!(most.load(Ordering::SeqCst), MAX_CALLS_PER_OWNER + 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_for_permits_wakes_each_minute() {
        let limit = CallLimit::default();
        let clock = clock::Clock::system();
        let began = clock.now();
        let hang = |()| tokio::time::sleep(Duration::from_secs(600));
        let hanging = limit.call_each(vec![(); MAX_CALLS_PER_OWNER], hang);
        let also_hanging = limit.call_each(vec![(); MAX_CALLS - MAX_CALLS_PER_OWNER], hang);
        let mut wakes = Vec::new();
        let mut waiting = pin!(limit.call_each(vec![()], |()| async {}));
        let waiting = poll_fn(|context| {
            wakes.push((clock.now() - began).as_secs());
            waiting.as_mut().poll(context)
        });
        tokio::join!(hanging, also_hanging, waiting);
        let longest = wakes.windows(2).map(|it| it[1] - it[0]).max();
        assert_eq!((longest, wakes.last()), (Some(60), Some(&600)));
    }
}
