//! Runs pods to completion and counts each exactly once.
//!
//! Promises: each pod that ends is counted exactly once, whatever dies in between; never more pods are active than the Job
//! wants, nor two for one index; a Job that has ended is never opened again, and leaves no pod held by our finalizer.
//!
//! The course of one Job: pods are created as they are wanted, each held by a finalizer. One that ended is named in the
//! status; only when that is stored its finalizer goes; only when it is gone it moves from the names to the counters. How
//! the Job ends is announced first and made final when all pods are counted.
//!
//! Reading order: `sync` (one Job, top to bottom), `handlers` (who wakes it). Then the rules, which are pure: `snapshot`
//! (what a decision rests on), `plan` (what is to be done), with `tally`, `ending`, `backoff`, `delayed`,
//! `failure_policy`, `success_policy`, `indexes` and `brake`; `tracking` and `status` (what is told). Then what acts:
//! `apply` (pods), `track` (status and finalizers), `orphans` (pods that nobody counts any more). Last what is shared:
//! `memory` (with `leaving`), `calls`, `metrics`.

mod handlers;
mod sync;

mod apply;
mod orphans;
mod track;

mod calls;
mod leaving;
mod memory;
mod metrics;

mod snapshot;

mod ending;
mod plan;
mod tally;

mod backoff;
mod delayed;
mod failure_policy;
mod indexes;
mod success_policy;

mod status;
mod tracking;

mod brake;
#[cfg(test)]
mod testing;

use std::{sync::Arc, time::Duration};

use api::{Job, ObjectKey, Pod, Uid, Version};
use clock::Clock;
use consistency::Gate;
use controller::{Builder, Factor, Profile, Proof, Right};
use events::Recorder;
use informer::Informer;
use pod_control::PodControl;
use tokio_util::sync::CancellationToken;
use workqueue::{Backoff, Queue};

use crate::{calls::Calls, memory::Memory, metrics::Meters, orphans::OrphanKey};

/// The canonical name.
pub const NAME: &str = "job-controller";

/// As upstream's role of this controller grants it, as far as it is used.
pub const PROFILE: Profile = Profile {
    acts: &[
        Right { group: "batch", resource: "jobs", verbs: &["get"] },
        Right { group: "batch", resource: "jobs/status", verbs: &["update"] },
        // Asked where owners that block their deletion are checked.
        Right { group: "batch", resource: "jobs/finalizers", verbs: &["update"] },
        Right { group: "", resource: "pods", verbs: &["create", "delete", "list", "patch"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    paths: &[],
    watches: &[
        Right { group: "batch", resource: "jobs", verbs: &["list", "watch"] },
        Right { group: "", resource: "pods", verbs: &["list", "watch"] },
    ],
    // A Job's status may be another controller's by right.
    marks: &[],
};

/// A key that fails is tried again after a second, at last every minute.
const BACKOFF: Backoff = Backoff::per_key(Duration::from_secs(1), Duration::from_secs(60));

/// What the user can choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-job-syncs`
    pub workers: usize,
    /// The gate StaleControllerConsistencyJob: a Job waits until the caches show what was last written for it.
    pub reads_own_writes: bool,
    /// The gate MutableSchedulingDirectivesForSuspendedJobs: a Job that is suspended loses its `startTime`.
    pub clears_start: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 5, reads_own_writes: true, clears_start: true }
    }
}

/// Declares the controller.
pub fn start(builder: &mut Builder, options: Options) {
    wire(builder, options);
}

fn wire(builder: &mut Builder, options: Options) -> Arc<Ctx> {
    let Options { workers, reads_own_writes, clears_start } = options;
    let jobs = builder.informer::<Job>(Proof::Needed);
    let pods = builder.informer::<Pod>(Proof::Needed);
    let api = builder.api(Factor::ONE);
    let recorder = builder.recorder(api.clone());
    let metrics = builder.deps().metrics.clone();
    let memory = Arc::new(Memory::default());
    let gate = Arc::new(Gate::new("job_controller", "Job", &metrics, builder.deps().clock.clone()));
    let control = PodControl::new(api, recorder.clone(), {
        let (memory, gate, cache) = (memory.clone(), gate.clone(), pods.watched());
        move |job, version| {
            if reads_own_writes && memory.holds(job) {
                gate.wrote(job, &cache, version);
            }
        }
    });
    let ctx = Arc::new(Ctx {
        unlimited: control.through(builder.unlimited_api()),
        control,
        recorder,
        memory,
        gate,
        reads_own_writes,
        clears_start,
        queue: builder.queue("job", BACKOFF),
        orphans: builder.queue("job_orphan_pod", BACKOFF),
        meters: Meters::new(&metrics),
        calls: Calls::default(),
        clock: builder.deps().clock.clone(),
        stopping: builder.deps().stopping.clone(),
        jobs: jobs.clone(),
        pods: pods.clone(),
    });
    let woken = ctx.clone();
    builder.on_change(&jobs, None, move |change, lane| handlers::job(&woken, change, lane));
    let woken = ctx.clone();
    builder.on_change(&pods, None, move |change, lane| handlers::pod(&woken, change, lane));
    let (queue, orphans) = (ctx.queue.clone(), ctx.orphans.clone());
    let syncing = ctx.clone();
    builder.workers(&queue, workers, move |key: ObjectKey| {
        let ctx = syncing.clone();
        async move { sync::sync(&ctx, &key).await }
    });
    let releasing = ctx.clone();
    builder.workers(&orphans, workers, move |key: OrphanKey| {
        let ctx = releasing.clone();
        async move { orphans::release(&ctx, &key).await }
    });
    ctx
}

/// What all syncs share.
struct Ctx {
    control: PodControl,
    /// The same without a rate limit, for what must be finished at a stop.
    unlimited: PodControl,
    recorder: Recorder,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    queue: Queue<ObjectKey>,
    orphans: Queue<OrphanKey>,
    memory: Arc<Memory>,
    gate: Arc<Gate>,
    reads_own_writes: bool,
    clears_start: bool,
    meters: Meters,
    calls: Calls,
    clock: Clock,
    /// The manager stops: a pass ends between two calls.
    stopping: CancellationToken,
}

impl Ctx {
    /// A status of this Job was stored, which our cache has to show before we look again.
    fn wrote_job(&self, job: &Uid, version: &Version) {
        if self.reads_own_writes {
            self.gate.wrote(job, &self.jobs.watched(), version);
        }
    }

    /// How long a Job is parked at most whose writes the caches do not show yet. It is woken when they do.
    fn behind(&self, job: &Job) -> Option<Duration> {
        let (queue, key) = (self.queue.clone(), job.meta.as_ref().key());
        self.gate.behind(&job.meta.uid, move || queue.add(key))
    }
}

#[cfg(test)]
mod tests;
