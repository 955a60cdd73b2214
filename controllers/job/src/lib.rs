//! Runs pods to completion and counts each exactly once.
//!
//! Guarantees: each pod that ends is counted exactly once, even if a process crashes between any two writes. There are
//! never more active pods than the Job allows, and never two for one index. A finished Job is never started again, and
//! none of its pods keeps our finalizer.
//!
//! The life of a Job: pods are created as needed, each with a finalizer. When a pod has ended, its uid is written to
//! `uncountedTerminatedPods`, or the index of a succeeded pod to `completedIndexes`. After that write the finalizer is
//! removed. After the removal the uid moves to the counters. How the Job ends is first announced by an interim
//! condition, and becomes final when all pods are counted (KEP-2307).
//!
//! Reading order: `sync` (one Job, top to bottom), `handlers` (which events enqueue a Job). Then `rules`, which decides
//! and is pure. Then the writes: `apply` (pods), `finalizers` (status and finalizers), `orphans` (pods that no Job will
//! count). Last the shared state: `memory` (with `finalizer_removals`), `metrics`.

mod handlers;
mod sync;

mod apply;
mod finalizers;
mod orphans;

mod finalizer_removals;
mod memory;
mod metrics;
mod pod_indexes;

mod rules;

#[cfg(test)]
mod testing;

use std::{sync::Arc, time::Duration};

use api::{Job, ObjectKey, Pod, Uid, Version};
use clock::Clock;
use controller::{
    Backoff, Builder, ByDefault, ConsistencyStore, ControllerFlag, Factor, FlagKind, Profile, Proof, Queue,
    Registration, Right, Settings,
};
use events::Recorder;
use informer::Informer;
use tokio_util::sync::CancellationToken;
use workload::{CallLimit, ObjectWriter, PodControl, StageStart};

use crate::{
    handlers::FinalizerRemovalKey,
    memory::Memory,
    metrics::Meters,
    pod_indexes::PodIndexes,
    rules::{managed_jobs::ManagedJobs, moment::Moment},
};

/// The canonical name.
pub const NAME: &str = "job-controller";

/// The rights of upstream's ClusterRole `system:controller:job-controller` that this controller uses.
pub const PROFILE: Profile = Profile {
    requests: &[
        Right { group: "batch", resource: "jobs", verbs: &["get"] },
        Right { group: "batch", resource: "jobs/status", verbs: &["update"] },
        // Required by the admission plugin OwnerReferencesPermissionEnforcement for `blockOwnerDeletion`.
        Right { group: "batch", resource: "jobs/finalizers", verbs: &["update"] },
        Right { group: "", resource: "pods", verbs: &["create", "delete", "list", "patch"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    paths: &[],
    watches: &[
        Right { group: "batch", resource: "jobs", verbs: &["list", "watch"] },
        Right { group: "", resource: "pods", verbs: &["list", "watch"] },
    ],
    // No marks: with `spec.managedBy` another controller may write the status.
    marks: &[],
};

/// A failing key is retried after one second, and finally every minute.
const BACKOFF: Backoff = Backoff::per_key(Duration::from_secs(1), Duration::from_secs(60));

/// The section of upstream's help for its flags.
const SECTION: &str = "Job-controller flags";

/// The flag that selects Jobs by `spec.managedBy`.
pub const MANAGED_BY_FLAG: &str = "job-managed-by";

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "job",
    service_account: "job-controller",
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[
        ControllerFlag {
            section: SECTION,
            name: "concurrent-job-syncs",
            kind: FlagKind::Workers,
            default: "5",
            help: "Concurrent syncs of Jobs.",
            is_upstream: true,
        },
        ControllerFlag {
            section: SECTION,
            name: MANAGED_BY_FLAG,
            kind: FlagKind::Text,
            default: "",
            help: "Only Jobs whose spec.managedBy has this value are processed, such as 'example.com/controller'. Empty: the Jobs of the built-in controller.",
            is_upstream: false,
        },
    ],
    gates: &["StaleControllerConsistencyJob", "MutableSchedulingDirectivesForSuspendedJobs"],
    start: |builder, settings| start(builder, Options::from(settings)),
};

/// The options of the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-job-syncs`
    pub workers: usize,
    /// The feature gate StaleControllerConsistencyJob: a Job waits until the caches show the last writes for it.
    pub read_own_writes: bool,
    /// The feature gate MutableSchedulingDirectivesForSuspendedJobs: a suspended Job loses its `startTime`.
    pub clear_start_time: bool,
    /// `--job-managed-by`: only Jobs with this `spec.managedBy`; empty for the Jobs of the built-in controller.
    pub managed_by: String,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 5, read_own_writes: true, clear_start_time: true, managed_by: String::new() }
    }
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            workers: settings.workers("concurrent-job-syncs"),
            read_own_writes: settings.is_enabled("StaleControllerConsistencyJob"),
            clear_start_time: settings.is_enabled("MutableSchedulingDirectivesForSuspendedJobs"),
            managed_by: settings.text(MANAGED_BY_FLAG).to_owned(),
        }
    }
}

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    wire(builder, options);
}

fn wire(builder: &mut Builder, options: Options) -> Arc<Ctx> {
    let Options { workers, read_own_writes, clear_start_time, managed_by } = options;
    let jobs = builder.informer::<Job>(Proof::Needed);
    let pods = builder.informer::<Pod>(Proof::Needed);
    let api = builder.api(Factor::ONE);
    let recorder = builder.recorder(api.clone());
    let metrics = builder.deps().metrics.clone();
    let memory = Arc::new(Memory::default());
    let clock = builder.deps().clock.clone();
    let consistency =
        Arc::new(ConsistencyStore::new("job_controller", "Job", read_own_writes, &metrics, clock.clone()));
    let writer = ObjectWriter::new(api, {
        let (memory, consistency, cache) = (memory.clone(), consistency.clone(), pods.watched());
        move |job, version| {
            if memory.contains(job) {
                consistency.record_write(job, &cache, version);
            }
        }
    });
    let control = PodControl::new(writer, recorder.clone());
    let ctx = Arc::new(Ctx {
        control_without_limit: control.with_client(builder.unlimited_api()),
        control,
        recorder,
        memory,
        consistency,
        clear_start_time,
        managed_jobs: ManagedJobs::from_flag(&managed_by),
        queue: builder.queue("job", BACKOFF),
        finalizer_removals: builder.queue("job_orphan_pod", BACKOFF),
        meters: Meters::new(&metrics),
        call_limit: CallLimit::default(),
        clock,
        stopping: builder.deps().stopping.clone(),
        jobs: jobs.clone(),
        pod_indexes: PodIndexes::declare(pods.store()),
        pods: pods.clone(),
    });
    let handler_ctx = ctx.clone();
    builder.on_change(&jobs, None, move |change, lane| handlers::on_job(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&pods, None, move |change, lane| handlers::on_pod(&handler_ctx, change, lane));
    let (queue, finalizer_removals) = (ctx.queue.clone(), ctx.finalizer_removals.clone());
    let worker_ctx = ctx.clone();
    builder.workers(&queue, workers, move |key: ObjectKey| {
        let ctx = worker_ctx.clone();
        async move { sync::sync(&ctx, &key).await }
    });
    let worker_ctx = ctx.clone();
    builder.workers(&finalizer_removals, workers, move |key: FinalizerRemovalKey| {
        let ctx = worker_ctx.clone();
        async move { orphans::remove_unneeded_finalizers(&ctx, &key).await }
    });
    ctx
}

/// The state that all syncs share.
struct Ctx {
    control: PodControl,
    /// Like `control` without a rate limit, for calls that must be completed during shutdown.
    control_without_limit: PodControl,
    recorder: Recorder,
    jobs: Informer<Job>,
    pods: Informer<Pod>,
    pod_indexes: PodIndexes,
    queue: Queue<ObjectKey>,
    finalizer_removals: Queue<FinalizerRemovalKey>,
    memory: Arc<Memory>,
    consistency: Arc<ConsistencyStore>,
    clear_start_time: bool,
    managed_jobs: ManagedJobs,
    meters: Meters,
    call_limit: CallLimit,
    clock: Clock,
    /// Cancelled when the manager stops. A sync then ends between two calls.
    stopping: CancellationToken,
}

impl Ctx {
    fn begin_stage(&self) -> StageStart {
        StageStart::new(self.clock.now())
    }

    /// The present time, for decisions.
    fn moment(&self) -> Moment {
        Moment(self.clock.wall().as_millisecond())
    }

    /// Whether a stage must start no further call, because its time is over and other Jobs wait.
    fn is_stage_over(&self, start: StageStart) -> bool {
        start.is_over(self.clock.now(), !self.queue.is_empty())
    }

    /// Records a stored status. The next sync waits until the cache shows it.
    fn record_job_write(&self, job: &Uid, version: &Version) {
        self.consistency.record_write(job, &self.jobs.watched(), version);
    }
}

#[cfg(test)]
mod tests;
