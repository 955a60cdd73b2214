//! Creates the Jobs of CronJobs at their times.
//!
//! Guarantees: a time has at most one Job, even if a process crashes between any two writes, because the Job's name is
//! made from the time. After missed times only the latest one runs, however many were missed. Every time that exists on
//! the wall clock of the time zone is found, across all changes of that clock. A Job belongs to a CronJob by the uid of
//! its controller, and is deleted with a uid precondition. A waiting CronJob costs one delayed key: neither times nor
//! Jobs are searched until a time is due. Each run is in the status before the Lease is released.
//!
//! Reading order: `handlers` (which events enqueue a CronJob), `sync` (one CronJob, top to bottom), `apply` (its
//! writes), `flush` (the last writes of a term). Then `rules`, which decides and is pure. `zones` reads the time zones,
//! `memory` is what the process keeps about each CronJob.

mod apply;
mod error;
mod flush;
mod handlers;
mod sync;

mod rules;

mod zones;

mod memory;
mod metrics;

use std::{fmt, sync::Arc};

use api::{CronJob, Job, ObjectKey, Typed, Uid};
use client::{Api, ApiError};
use clock::{Clock, Drift};
use controller::{
    Backoff, Builder, ByDefault, ConsistencyStore, ControllerFlag, Factor, FlagKind, Lane, Outcome, Profile, Proof,
    Queue, Registration, Right, Settings, TimedKey,
};
use events::{EventType, Recorder};
use informer::Informer;
use parking_lot::Mutex;

use crate::{error::SyncError, memory::Memory, metrics::CronJobMetrics, zones::Zones};

pub use crate::zones::ProcessZone;

/// The canonical name.
pub const NAME: &str = "cronjob-controller";

/// The rights of upstream's ClusterRole `system:controller:cronjob-controller` that this controller uses.
pub const PROFILE: Profile = Profile {
    requests: &[
        Right { group: "batch", resource: "cronjobs", verbs: &["get"] },
        Right { group: "batch", resource: "cronjobs/status", verbs: &["update"] },
        // Required by the admission plugin OwnerReferencesPermissionEnforcement for `blockOwnerDeletion`.
        Right { group: "batch", resource: "cronjobs/finalizers", verbs: &["update"] },
        Right { group: "batch", resource: "jobs", verbs: &["get", "create", "delete"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    paths: &[],
    watches: &[
        Right { group: "batch", resource: "cronjobs", verbs: &["list", "watch"] },
        Right { group: "batch", resource: "jobs", verbs: &["list", "watch"] },
    ],
    marks: &[],
};

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "cronjob",
    service_account: "cronjob-controller",
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[ControllerFlag {
        section: "Cronjob-controller flags",
        name: "concurrent-cron-job-syncs",
        kind: FlagKind::Workers,
        default: "5",
        help: "Concurrent syncs of CronJobs.",
        is_upstream: true,
    }],
    gates: &[],
    start: |builder, settings| start(builder, Options::from(settings)),
};

/// The options of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-cron-job-syncs`
    pub workers: usize,
    /// The time zone of schedules without `timeZone`.
    pub zone: ProcessZone,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 5, zone: ProcessZone::Named("UTC") }
    }
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self { workers: settings.workers("concurrent-cron-job-syncs"), zone: ProcessZone::System }
    }
}

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { workers, zone } = options;
    // The caches must show the writes of the previous leader: the Jobs and the statuses.
    let cron_jobs = builder.informer::<CronJob>(Proof::Needed);
    let jobs = builder.informer::<Job>(Proof::Needed);
    let queue = builder.queue::<Key>("cronjob", Backoff::default());
    let api = builder.api(Factor::ONE);
    let clock = builder.deps().clock.clone();
    let metrics = builder.deps().metrics.clone();
    let ctx = Arc::new(Ctx {
        recorder: builder.recorder(api.clone()),
        api,
        zones: Zones::new(zone, clock.clone()),
        memory: Memory::default(),
        consistency: ConsistencyStore::new("cronjob_controller", "CronJob", true, &metrics, clock.clone()),
        metrics: CronJobMetrics::new(&metrics),
        drift: Mutex::new(Drift::new(clock.wall(), clock.now())),
        clock,
        queue: queue.clone(),
        cron_jobs: cron_jobs.clone(),
        jobs: jobs.clone(),
    });
    let (flushed, unlimited) = (ctx.clone(), builder.unlimited_api());
    builder.background("cronjob statuses", move |end| async move {
        end.cancelled().await;
        flush::flush(&flushed, &unlimited).await;
    });
    let handler_ctx = ctx.clone();
    builder.on_every_change(&cron_jobs, move |change| handlers::record(&handler_ctx, change));
    let handler_ctx = ctx.clone();
    builder.on_change(&cron_jobs, None, move |change, lane| handlers::enqueue(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&jobs, None, move |change, lane| handlers::enqueue_owners(&handler_ctx, change, lane));
    builder.workers(&queue, workers, move |key: Key| {
        let ctx = ctx.clone();
        async move {
            match key {
                TimedKey::Object(SyncKey::Sync(key)) => sync::sync(&ctx, &key).await,
                TimedKey::Object(SyncKey::ScheduleEdited(key)) => sync::on_edited(&ctx, &key),
                TimedKey::Clock => Ok::<_, SyncError>(ctx.check_clock()),
            }
        }
    });
}

/// The key of the work queue.
type Key = TimedKey<SyncKey>;

/// Why a CronJob is synced.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum SyncKey {
    /// Something may have to be done.
    Sync(ObjectKey),
    /// Its schedule has changed; the new one may be invalid.
    ScheduleEdited(ObjectKey),
}

/// The key for a sync of a CronJob.
fn sync_key(key: ObjectKey) -> Key {
    TimedKey::Object(SyncKey::Sync(key))
}

impl fmt::Display for SyncKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sync(key) => key.fmt(f),
            Self::ScheduleEdited(key) => write!(f, "the schedule of {key}"),
        }
    }
}

/// The state that all syncs share.
struct Ctx {
    api: Api,
    clock: Clock,
    zones: Zones,
    memory: Memory,
    consistency: ConsistencyStore,
    metrics: CronJobMetrics,
    recorder: Recorder,
    drift: Mutex<Drift>,
    queue: Queue<Key>,
    cron_jobs: Informer<CronJob>,
    jobs: Informer<Job>,
}

impl Ctx {
    /// Removes a deleted CronJob from memory.
    fn remove(&self, uid: &Uid) {
        self.memory.remove(uid);
        self.consistency.remove(uid);
    }

    /// Sends an event about a CronJob.
    fn send_event(&self, cron_job: &CronJob, type_: EventType, reason: &str, message: String) {
        let object = events::reference(&CronJob::resource(), &cron_job.meta.as_ref());
        self.recorder.event(&object, type_, reason, message);
    }

    /// Sends a warning event about an API error, unless the call was not sent because of shutdown.
    fn send_error_event(&self, cron_job: &CronJob, reason: &str, what: &str, err: &ApiError) {
        if matches!(err, ApiError::NotSent(_)) {
            return;
        }
        let why = err.status().map_or_else(|| err.to_string(), |it| it.message.clone());
        self.send_event(cron_job, EventType::Warning, reason, format!("{what}: {why}"));
    }

    /// Checks for a jump of the wall clock. After a jump every timer is wrong, so all CronJobs are enqueued. Without
    /// CronJobs the check stops; the handler of the next new CronJob starts it again.
    fn check_clock(&self) -> Outcome {
        if self.drift.lock().detect_jump(self.clock.wall(), self.clock.now()) {
            tracing::info!("The wall clock has jumped: all CronJobs are enqueued");
            for entry in self.cron_jobs.store().entries() {
                self.queue.add_to(sync_key(entry.meta().key()), Lane::Slow);
            }
        }
        if self.cron_jobs.store().is_empty() { Outcome::Done } else { Outcome::After(Drift::EVERY) }
    }
}
