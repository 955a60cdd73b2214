use std::{error::Error, fmt, future::Future, hash::Hash, panic::AssertUnwindSafe, pin::pin, sync::Arc};

use client::error_chain;
use clock::Clock;
use futures::{FutureExt, future::poll_fn};
use metrics::{IntCounter, Metrics};
use tasks::{Spawner, Task};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info_span};

use crate::{
    Queue,
    runner::{Outcome, WorkerHealth},
};

/// The environment of workers.
#[derive(Clone)]
pub struct Environment {
    /// Starts the tasks.
    pub spawner: Spawner,
    /// The clock.
    pub clock: Clock,
    /// The registry of the panic counter.
    pub metrics: Metrics,
    /// When cancelled, no further key is taken. Running syncs are completed.
    pub stop: CancellationToken,
}

/// The workers of one queue.
pub struct Workers {
    tasks: Vec<Task>,
}

/// The state that the workers of one queue share.
struct Shared<K, F> {
    controller: &'static str,
    queue: Queue<K>,
    worker_health: WorkerHealth,
    sync: F,
    clock: Clock,
    panics: IntCounter,
    stop: CancellationToken,
}

impl Workers {
    /// Starts the workers of `worker_health`. They call `sync` for each key of `queue` until the queue is closed or
    /// they are stopped.
    ///
    /// Keys that are queued at the stop are dropped without a sync.
    pub fn start<K, E, F, S>(
        env: &Environment,
        controller: &'static str,
        worker_health: &WorkerHealth,
        queue: Queue<K>,
        sync: F,
    ) -> Self
    where
        K: Clone + Eq + Hash + Send + Sync + fmt::Debug + fmt::Display + 'static,
        E: Error + Send + 'static,
        F: Fn(K) -> S + Send + Sync + 'static,
        S: Future<Output = Result<Outcome, E>> + Send + 'static,
    {
        let Environment { spawner, clock, metrics, stop } = env.clone();
        let panics = metrics.counters(
            "mini_kcm_sync_panics_total",
            "Panics of single keys, each contained and retried with back-off.",
            &["controller"],
        );
        let panics = panics.with_label_values(&[controller]);
        let shared =
            Arc::new(Shared { controller, queue, worker_health: worker_health.clone(), sync, clock, panics, stop });
        worker_health.on_started();
        let tasks = (0..worker_health.workers()).map(|worker| spawner.spawn(controller, work(shared.clone(), worker)));
        let tasks = tasks.collect();
        Self { tasks }
    }

    /// Waits until every worker has ended after the stop, with all running syncs completed.
    pub async fn wait_until_ended(self) {
        for task in self.tasks {
            task.wait_until_ended().await;
        }
    }
}

/// One worker.
async fn work<K, E, F, S>(shared: Arc<Shared<K, F>>, worker: usize)
where
    K: Clone + Eq + Hash + Send + fmt::Debug + fmt::Display + 'static,
    E: Error,
    F: Fn(K) -> S,
    S: Future<Output = Result<Outcome, E>>,
{
    loop {
        let key = tokio::select! {
            biased;
            () = shared.stop.cancelled() => {
                shared.queue.close();
                return;
            }
            key = shared.queue.get() => key,
        };
        let Some(key) = key else { return };
        shared.worker_health.on_key_changed(worker, true);
        // All log lines of the sync contain controller and key.
        let span = info_span!("sync", controller = shared.controller, %key);
        shared.run(&key, worker).instrument(span).await;
        shared.queue.done(&key);
        shared.worker_health.on_key_changed(worker, false);
    }
}

impl<K, F> Shared<K, F>
where
    K: Clone + Eq + Hash + Send + fmt::Debug + fmt::Display + 'static,
{
    /// Syncs one key and reports the outcome to the queue.
    async fn run<E, S>(&self, key: &K, worker: usize)
    where
        E: Error,
        F: Fn(K) -> S,
        S: Future<Output = Result<Outcome, E>>,
    {
        let started = self.clock.now();
        // The call is inside the future, so that a panic before the first await is also caught.
        let mut sync = pin!(AssertUnwindSafe(async { (self.sync)(key.clone()).await }).catch_unwind());
        // A sync is polled only when a response or timer is ready.
        let watched = poll_fn(|context| {
            self.worker_health.on_polled(worker);
            sync.as_mut().poll(context)
        });
        let result = watched.await;
        let duration = self.clock.now().saturating_duration_since(started);
        match result {
            Ok(Ok(outcome)) => {
                self.handle_outcome(key, outcome);
                debug!(?duration, ?outcome, "Finished syncing");
            }
            Ok(Err(err)) => {
                let retry_in = self.queue.add_rate_limited(key.clone());
                error!(err = error_chain(&err), ?duration, ?retry_in, "Sync failed");
            }
            Err(panic) => {
                self.panics.inc();
                let retry_in = self.queue.add_rate_limited(key.clone());
                let message = tasks::panic_message(&*panic);
                error!(err = message, ?duration, ?retry_in, "Sync panicked");
            }
        }
    }

    fn handle_outcome(&self, key: &K, outcome: Outcome) {
        match outcome {
            Outcome::Done => self.queue.forget(key),
            Outcome::After(delay) => {
                self.queue.forget(key);
                self.queue.add_after(key.clone(), delay);
            }
            Outcome::Parked(limit) => self.queue.add_after(key.clone(), limit),
        }
    }
}

#[cfg(test)]
mod tests;
