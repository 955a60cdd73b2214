//! Deletes finished Jobs when their time to live is over.
//!
//! Promises: a Job is deleted when our clock, which may be ahead of the API server's as upstream's may, says that
//! `finish + ttlSecondsAfterFinished`, both the API's own, has come; never before, and only in the very state in which it was seen to be due: the DELETE names uid and resourceVersion of a live read. So neither a
//! successor of the same name nor a Job whose time to live was raised is hit, however old the cache. It goes in the
//! foreground, its pods first.
//!
//! Reading order: `handlers` (who wakes), `sync` (one Job, top to bottom), `expiry` (the rule: is it due, how long yet),
//! `telling` (the numbers and the one event).

mod handlers;
mod sync;

mod expiry;

mod telling;

use std::{sync::Arc, time::Duration};

use api::Job;
use client::Api;
use clock::{Clock, Drift};
use controller::{Builder, Factor, Profile, Proof, Right, TimedKey};
use events::Recorder;
use informer::Store;
use parking_lot::Mutex;
use runner::Outcome;
use workqueue::{Backoff, Lane, Queue};

use crate::{sync::SyncError, telling::Meters};

/// The canonical name.
pub const NAME: &str = "ttl-after-finished-controller";

/// As upstream's role of this controller grants it, as far as it is used.
pub const PROFILE: Profile = Profile {
    acts: &[
        Right { group: "batch", resource: "jobs", verbs: &["get", "delete"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    paths: &[],
    watches: &[Right { group: "batch", resource: "jobs", verbs: &["list", "watch"] }],
    // Whoever deletes a Job leaves nothing on it that names him.
    marks: &[],
};

/// As upstream: 5 ms, doubled up to 1000 s, and ten failures a second for all.
const BACKOFF: Backoff =
    Backoff { base: Duration::from_millis(5), cap: Duration::from_secs(1000), bucket: Some((10.0, 100)) };

/// What the user can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-ttl-after-finished-syncs`
    pub workers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 5 }
    }
}

/// Declares the controller.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { workers } = options;
    // Every delete rests on a live read, so the cache need not be proved.
    let jobs = builder.informer::<Job>(Proof::LiveReads);
    let queue = builder.queue::<TimedKey>("ttl_jobs_to_delete", BACKOFF);
    let api = builder.api(Factor::ONE);
    let meters = Meters::new(&builder.deps().metrics);
    let clock = builder.deps().clock.clone();
    let ctx = Arc::new(Ctx {
        recorder: builder.recorder(api.clone()),
        api,
        drift: Mutex::new(Drift::new(clock.wall(), clock.now())),
        clock,
        queue: queue.clone(),
        jobs: jobs.store().clone(),
        meters: meters.clone(),
    });
    let woken = ctx.clone();
    builder.on_change(&jobs, None, move |change, lane| {
        meters.terminating(change);
        handlers::wake(&woken, change, lane);
    });
    builder.workers(&queue, workers, move |key: TimedKey| {
        let ctx = ctx.clone();
        async move {
            match key {
                TimedKey::Object(key) => sync::sync(&ctx, &key).await,
                TimedKey::Clock => Ok::<_, SyncError>(ctx.look_at_the_clock()),
            }
        }
    });
}

/// What all syncs share.
struct Ctx {
    api: Api,
    clock: Clock,
    drift: Mutex<Drift>,
    queue: Queue<TimedKey>,
    jobs: Store<Job>,
    recorder: Recorder,
    meters: Meters,
}

impl Ctx {
    /// After a jump of the time of day every timer is wrong: all Jobs that wait for theirs are looked at. Without any Job
    /// nobody looks again: the next one that comes asks for it.
    fn look_at_the_clock(&self) -> Outcome {
        if self.drift.lock().jumped(self.clock.wall(), self.clock.now()) {
            tracing::info!("The time of day has jumped, all finished Jobs are looked at");
            for entry in self.jobs.entries() {
                if entry.readable().is_some_and(|it| expiry::applies(it).is_some()) {
                    self.queue.add_to(TimedKey::Object(entry.meta().key()), Lane::Slow);
                }
            }
        }
        if self.jobs.is_empty() { Outcome::Done } else { Outcome::After(Drift::EVERY) }
    }
}
