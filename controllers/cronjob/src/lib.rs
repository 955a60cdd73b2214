//! Makes the Jobs of CronJobs at their times.
//!
//! Promises: a time has one Job at most, whoever dies between two writes, as its name is that of the time; a missed time is
//! made up for by the latest one alone, however many were missed; what exists on the clock of a zone is found, through every
//! change of that clock. A Job is ours by the uid of its owner, and is deleted by its own uid. Waiting costs an entry of the
//! queue: no time is looked for, and no Job, before it comes. What was started is in the status before the Lease is released.
//!
//! Reading order: `handlers` (who wakes), `sync` (one CronJob, top to bottom), `apply` (its writes), `flush` (the last ones
//! of a term); then what decides, which is pure: `snapshot` (what there is), `plan` (what follows from it), `due` (which time), `history` (what goes), `status`
//! (what is written), `job` (what is made), `notice` (what people are told); then the time itself: `schedule`, `timing`,
//! `zones`; `memory` is what is remembered.

mod apply;
mod flush;
mod handlers;
mod sync;

mod due;
mod history;
mod job;
mod notice;
mod plan;
mod snapshot;
mod status;

mod schedule;
mod timing;
mod zones;

mod memory;
mod metrics;

use std::{fmt, sync::Arc, time::Duration};

use api::{CronJob, Job, ObjectKey, Uid};
use client::{Api, ApiError};
use clock::{Clock, Drift};
use consistency::Gate;
use controller::{Builder, Factor, Profile, Proof, Right, TimedKey};
use events::{ObjectReference, Recorder, Type};
use informer::Informer;
use parking_lot::Mutex;
use runner::Outcome;
use workqueue::{Backoff, Lane, Queue};

use crate::{memory::Memory, metrics::Numbers, sync::SyncError, zones::Zones};

pub use crate::zones::ProcessZone;

/// The canonical name.
pub const NAME: &str = "cronjob-controller";

/// As upstream's role of this controller grants it, as far as it is used.
pub const PROFILE: Profile = Profile {
    acts: &[
        Right { group: "batch", resource: "cronjobs", verbs: &["get"] },
        Right { group: "batch", resource: "cronjobs/status", verbs: &["update"] },
        // For the owner reference that keeps a CronJob until its Jobs are gone.
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

/// A CronJob that fails is tried again after 5 ms, at last every quarter of an hour, and when its next time comes.
const BACKOFF: Backoff =
    Backoff { base: Duration::from_millis(5), cap: Duration::from_secs(1000), bucket: Some((10.0, 100)) };

/// What the user can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-cron-job-syncs`
    pub workers: usize,
    /// The zone of schedules that name none.
    pub zone: ProcessZone,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 5, zone: ProcessZone::Named("UTC") }
    }
}

/// Declares the controller.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { workers, zone } = options;
    // What was made before the term must show: a Job and the status that names it.
    let cron_jobs = builder.informer::<CronJob>(Proof::Needed);
    let jobs = builder.informer::<Job>(Proof::Needed);
    let queue = builder.queue::<Key>("cronjob", BACKOFF);
    let api = builder.api(Factor::ONE);
    let clock = builder.deps().clock.clone();
    let metrics = builder.deps().metrics.clone();
    let ctx = Arc::new(Ctx {
        recorder: builder.recorder(api.clone()),
        api,
        zones: Zones::new(zone, clock.clone()),
        memory: Memory::default(),
        gate: Gate::new("cronjob_controller", "CronJob", &metrics, clock.clone()),
        numbers: Numbers::new(&metrics),
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
    let fed = ctx.clone();
    builder.feed(&cron_jobs, move |change| handlers::remember(&fed, change));
    let woken = ctx.clone();
    builder.on_change(&cron_jobs, None, move |change, lane| handlers::wake(&woken, change, lane));
    let woken = ctx.clone();
    builder.on_change(&jobs, None, move |change, lane| handlers::wake_owners(&woken, change, lane));
    builder.workers(&queue, workers, move |key: Key| {
        let ctx = ctx.clone();
        async move {
            match key {
                TimedKey::Object(Wake::Look(key)) => sync::sync(&ctx, &key).await,
                TimedKey::Object(Wake::Edited(key)) => sync::edited(&ctx, &key),
                TimedKey::Clock => Ok::<_, SyncError>(ctx.look_at_the_clock()),
            }
        }
    });
}

/// What a worker takes.
type Key = TimedKey<Wake>;

/// Why a CronJob is looked at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Wake {
    /// Something may be to do.
    Look(ObjectKey),
    /// It has another schedule, which may be none.
    Edited(ObjectKey),
}

/// The key that has a CronJob looked at.
fn look(key: ObjectKey) -> Key {
    TimedKey::Object(Wake::Look(key))
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Look(key) => key.fmt(f),
            Self::Edited(key) => write!(f, "the schedule of {key}"),
        }
    }
}

/// What all syncs share.
struct Ctx {
    api: Api,
    clock: Clock,
    zones: Zones,
    memory: Memory,
    gate: Gate,
    numbers: Numbers,
    recorder: Recorder,
    drift: Mutex<Drift>,
    queue: Queue<Key>,
    cron_jobs: Informer<CronJob>,
    jobs: Informer<Job>,
}

impl Ctx {
    /// A CronJob is gone.
    fn forget(&self, uid: &Uid) {
        self.memory.forget(uid);
        self.gate.forget(uid);
    }

    /// Tells people about a CronJob.
    fn tell(&self, cron_job: &CronJob, type_: Type, reason: &str, message: String) {
        let meta = &cron_job.meta;
        let object = ObjectReference {
            api_version: Some("batch/v1".to_owned()),
            kind: Some("CronJob".to_owned()),
            namespace: Some(meta.namespace.to_string()),
            name: Some(meta.name.to_string()),
            uid: Some(meta.uid.to_string()),
            resource_version: Some(meta.version.to_string()),
            field_path: None,
        };
        self.recorder.event(&object, type_, reason, message);
    }

    /// Tells people what went wrong, unless it is only that we stop.
    fn trouble(&self, cron_job: &CronJob, reason: &str, what: &str, err: &ApiError) {
        if matches!(err, ApiError::NotSent(_)) {
            return;
        }
        let why = err.status().map_or_else(|| err.to_string(), |it| it.message.clone());
        self.tell(cron_job, Type::Warning, reason, format!("{what}: {why}"));
    }

    /// After a jump of the time of day every timer is wrong: all CronJobs are looked at. Without any nobody looks again: the
    /// next one that comes asks for it.
    fn look_at_the_clock(&self) -> Outcome {
        if self.drift.lock().jumped(self.clock.wall(), self.clock.now()) {
            tracing::info!("The time of day has jumped, all schedules are looked at");
            for entry in self.cron_jobs.store().entries() {
                self.queue.add_to(look(entry.meta().key()), Lane::Slow);
            }
        }
        if self.cron_jobs.store().is_empty() { Outcome::Done } else { Outcome::After(Drift::EVERY) }
    }
}
