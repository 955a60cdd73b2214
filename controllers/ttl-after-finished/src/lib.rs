//! Deletes finished Jobs when their time to live is over.
//!
//! Guarantees: a Job is deleted when `finish time + ttlSecondsAfterFinished` is reached on our clock, and never before.
//! The finish time is from the API. As with upstream, our clock may be ahead of the API server's. A Job is deleted only
//! in the state in which it was due: the DELETE has the uid and resourceVersion of a live read as preconditions. So
//! neither a later Job of the same name nor a Job whose TTL was raised is deleted, however old the cache is. Deletion
//! is in the foreground, so the pods are deleted first.
//!
//! Reading order: `handlers` (which events enqueue a Job), `sync` (one Job, top to bottom), `rules` (whether
//! and when it is due), `metrics` (the metrics and the event).

mod handlers;
mod sync;

mod rules;

mod metrics;

use std::sync::Arc;

use api::Job;
use client::Api;
use clock::{Clock, Drift};
use controller::{
    Backoff, Builder, ByDefault, ControllerFlag, Factor, FlagKind, Lane, Outcome, Profile, Proof, Queue, Registration,
    Right, Settings, TimedKey,
};
use events::Recorder;
use informer::Store;
use parking_lot::Mutex;

use crate::{metrics::Meters, sync::SyncError};

/// The canonical name.
pub const NAME: &str = "ttl-after-finished-controller";

/// The rights of upstream's ClusterRole `system:controller:ttl-after-finished-controller` that this controller uses.
pub const PROFILE: Profile = Profile {
    requests: &[
        Right { group: "batch", resource: "jobs", verbs: &["get", "delete"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    paths: &[],
    watches: &[Right { group: "batch", resource: "jobs", verbs: &["list", "watch"] }],
    // A deleted Job keeps no managedFields entry of this controller, so there is no mark of another manager.
    marks: &[],
};

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "ttl-after-finished",
    service_account: "ttl-after-finished-controller",
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[ControllerFlag {
        section: "Ttl-after-finished-controller flags",
        name: "concurrent-ttl-after-finished-syncs",
        kind: FlagKind::Workers,
        default: "5",
        help: "Concurrent syncs of finished Jobs.",
        is_upstream: true,
    }],
    gates: &[],
    start: |builder, settings| start(builder, Options::from(settings)),
};

/// The options of the user.
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

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self { workers: settings.workers("concurrent-ttl-after-finished-syncs") }
    }
}

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { workers } = options;
    // Every DELETE follows a live read, so the cache need not be proved.
    let jobs = builder.informer::<Job>(Proof::LiveReads);
    let queue = builder.queue::<TimedKey>("ttl_jobs_to_delete", Backoff::default());
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
    let handler_ctx = ctx.clone();
    builder.on_change(&jobs, None, move |change, lane| {
        meters.on_job_changed(change);
        handlers::enqueue(&handler_ctx, change, lane);
    });
    builder.workers(&queue, workers, move |key: TimedKey| {
        let ctx = ctx.clone();
        async move {
            match key {
                TimedKey::Object(key) => sync::sync(&ctx, &key).await,
                TimedKey::Clock => Ok::<_, SyncError>(ctx.check_clock()),
            }
        }
    });
}

/// The state that all syncs share.
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
    /// Checks for a jump of the wall clock. After a jump every timer is wrong, so all Jobs that wait for their TTL are
    /// enqueued. Without Jobs the check stops; the handler of the next Job starts it again.
    fn check_clock(&self) -> Outcome {
        if self.drift.lock().detect_jump(self.clock.wall(), self.clock.now()) {
            tracing::info!("The wall clock has jumped: all finished Jobs are enqueued");
            for entry in self.jobs.entries() {
                if entry.readable().is_some_and(|it| rules::expiry::active_ttl(it).is_some()) {
                    self.queue.add_to(TimedKey::Object(entry.meta().key()), Lane::Slow);
                }
            }
        }
        if self.jobs.is_empty() { Outcome::Done } else { Outcome::After(Drift::EVERY) }
    }
}
