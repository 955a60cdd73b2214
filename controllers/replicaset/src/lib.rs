//! Runs the pods of ReplicaSets and ReplicationControllers.
//!
//! Guarantees: as many pods are active (they have not ended and are not being deleted) as `spec.replicas`, and the
//! controller never creates more pods than that, also with a stale cache or after lost responses. A pod is deleted only
//! in the state in which it was chosen, so a pod that was orphaned or replaced meanwhile is not deleted. Pods of other
//! controllers are never changed.
//!
//! A ReplicationController is read as a ReplicaSet; `kind` has the only differences. "Set" means either.
//!
//! Reading order: `sync` (one set, top to bottom), `handlers` (which events enqueue a set). Then `rules`, which decides
//! and is pure. Then `apply` (the writes of pods). Last the shared state: `memory`, `metrics`.

mod handlers;
mod sync;

mod apply;

mod kind;
mod memory;
mod metrics;

mod rules;

#[cfg(test)]
mod testing;

use std::sync::Arc;

use api::{Atom, Entry, ObjectKey, Pod, ReplicaSet, ReplicationController, Uid, Version};
use client::Api;
use clock::Clock;
use controller::{
    Backoff, Builder, ByDefault, ConsistencyStore, ControllerFlag, Factor, FlagKind, Mark, Profile, Proof, Queue,
    Registration, Right, Settings,
};
use events::{EventType, Recorder};
use informer::{Index, Informer};
use tokio_util::sync::CancellationToken;
use workload::{CallLimit, ObjectWriter, Owner, PodControl};

use crate::{kind::Kind, memory::Memory, metrics::Meters};

/// The canonical name of the controller of ReplicaSets.
pub const NAME: &str = ReplicaSet::CONTROLLER;

/// The canonical name of the controller of ReplicationControllers.
pub const REPLICATION_CONTROLLER_NAME: &str = ReplicationController::CONTROLLER;

const PODS: Right = Right { group: "", resource: "pods", verbs: &["create", "delete", "list", "patch"] };
const EVENTS: Right = Right { group: "", resource: "events", verbs: &["create", "patch"] };
const WATCHED_PODS: Right = Right { group: "", resource: "pods", verbs: &["list", "watch"] };

/// The rights of upstream's ClusterRole `system:controller:replicaset-controller` that this controller uses.
pub const PROFILE: Profile = Profile {
    requests: &[
        Right { group: "apps", resource: "replicasets", verbs: &["get"] },
        Right { group: "apps", resource: "replicasets/status", verbs: &["update"] },
        // Required by the admission plugin OwnerReferencesPermissionEnforcement for `blockOwnerDeletion`.
        Right { group: "apps", resource: "replicasets/finalizers", verbs: &["update"] },
        PODS,
        EVENTS,
    ],
    paths: &[],
    watches: &[Right { group: "apps", resource: "replicasets", verbs: &["list", "watch"] }, WATCHED_PODS],
    marks: &[Mark { list: "/apis/apps/v1/replicasets?limit=50", subresource: "status" }],
};

/// The rights of upstream's ClusterRole `system:controller:replication-controller` that this controller uses.
pub const REPLICATION_CONTROLLER_PROFILE: Profile = Profile {
    requests: &[
        Right { group: "", resource: "replicationcontrollers", verbs: &["get"] },
        Right { group: "", resource: "replicationcontrollers/status", verbs: &["update"] },
        Right { group: "", resource: "replicationcontrollers/finalizers", verbs: &["update"] },
        PODS,
        EVENTS,
    ],
    paths: &[],
    watches: &[Right { group: "", resource: "replicationcontrollers", verbs: &["list", "watch"] }, WATCHED_PODS],
    marks: &[Mark { list: "/api/v1/replicationcontrollers?limit=50", subresource: "status" }],
};

const READ_OWN_WRITES: &str = "StaleControllerConsistencyReplicaSet";
const DELETION_COST: &str = "PodDeletionCost";
const TERMINATING_REPLICAS: &str = "DeploymentReplicaSetTerminatingReplicas";

/// What the manager needs to know of the controller of ReplicaSets.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "replicaset",
    service_account: "replicaset-controller",
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[ControllerFlag {
        section: "Replicaset-controller flags",
        name: "concurrent-replicaset-syncs",
        kind: FlagKind::Workers,
        default: "5",
        help: "Concurrent syncs of ReplicaSets.",
        is_upstream: true,
    }],
    gates: &[READ_OWN_WRITES, DELETION_COST, TERMINATING_REPLICAS],
    start: |builder, settings| start(builder, Options::from_settings(settings, "concurrent-replicaset-syncs")),
};

/// What the manager needs to know of the controller of ReplicationControllers.
pub const REPLICATION_CONTROLLER_REGISTRATION: Registration = Registration {
    name: REPLICATION_CONTROLLER_NAME,
    alias: "replicationcontroller",
    service_account: "replication-controller",
    profile: REPLICATION_CONTROLLER_PROFILE,
    default: ByDefault::On,
    flags: &[ControllerFlag {
        section: "Replicationcontroller-controller flags",
        name: "concurrent-rc-syncs",
        kind: FlagKind::Workers,
        default: "5",
        help: "Concurrent syncs of ReplicationControllers.",
        is_upstream: true,
    }],
    gates: REGISTRATION.gates,
    start: |builder, settings| {
        start_replication_controller(builder, Options::from_settings(settings, "concurrent-rc-syncs"));
    },
};

/// The options of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-replicaset-syncs` or `--concurrent-rc-syncs`
    pub workers: usize,
    /// The feature gate StaleControllerConsistencyReplicaSet: a set waits until the caches show the last writes for it.
    /// Upstream applies it to ReplicaSets only.
    pub read_own_writes: bool,
    /// The feature gate PodDeletionCost (KEP-2255).
    pub compares_cost: bool,
    /// The feature gate DeploymentReplicaSetTerminatingReplicas (KEP-3973).
    pub counts_terminating: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 5, read_own_writes: true, compares_cost: true, counts_terminating: true }
    }
}

impl Options {
    fn from_settings(settings: &Settings, workers: &str) -> Self {
        Self {
            workers: settings.workers(workers),
            read_own_writes: settings.is_enabled(READ_OWN_WRITES),
            compares_cost: settings.is_enabled(DELETION_COST),
            counts_terminating: settings.is_enabled(TERMINATING_REPLICAS),
        }
    }
}

/// Adds the controller of ReplicaSets to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    start_for::<ReplicaSet>(builder, options);
}

/// Adds the controller of ReplicationControllers to the manager.
pub fn start_replication_controller(builder: &mut Builder, options: Options) {
    start_for::<ReplicationController>(builder, options);
}

fn start_for<K: Kind>(builder: &mut Builder, options: Options) {
    let Options { workers, read_own_writes, compares_cost, counts_terminating } = options;
    let sets = builder.informer::<K>(Proof::Needed);
    let pods = builder.informer::<Pod>(Proof::Needed);
    let api = builder.api(Factor::ONE);
    let recorder = builder.recorder_as(K::EVENT_SOURCE, api.clone());
    let metrics = builder.deps().metrics.clone();
    let clock = builder.deps().clock.clone();
    let kind = K::resource().kind;
    let consistency = ConsistencyStore::new(K::SKIPS_SUBSYSTEM, &kind, read_own_writes, &metrics, clock.clone());
    let consistency = Arc::new(consistency);
    let queue = builder.queue(K::QUEUE, Backoff::default());
    let writer = ObjectWriter::recording(api, consistency.clone(), pods.watched(), queue.clone());
    let ctx = Arc::new(Ctx::<K> {
        control: PodControl::new(writer, recorder.clone()),
        recorder,
        memory: Memory::default(),
        consistency,
        compares_cost,
        counts_terminating: counts_terminating && K::COUNTS_TERMINATING,
        queue,
        meters: Meters::new(K::CONTROLLER, &metrics),
        call_limit: CallLimit::default(),
        clock,
        stopping: builder.deps().stopping.clone(),
        of_controller: sets.store().declare_index("replicaset: controller", controller_of),
        of_namespace: sets.store().declare_index("replicaset: namespace", namespace_of),
        sets: sets.clone(),
        pods: pods.clone(),
    });
    let handler_ctx = ctx.clone();
    builder.on_change(&sets, None, move |change, lane| handlers::on_set(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&pods, None, move |change, lane| handlers::on_pod(&handler_ctx, change, lane));
    let queue = ctx.queue.clone();
    builder.workers(&queue, workers, move |key: ObjectKey| {
        let ctx = ctx.clone();
        async move { sync::sync(&ctx, &key).await }
    });
}

/// The uid of the Deployment, or of another controller of a set.
fn controller_of<K: Kind>(entry: &Entry<K>) -> Option<Uid> {
    entry.meta().controller().map(|it| it.uid.clone())
}

/// The namespace of a set, for the sets that may adopt a pod.
fn namespace_of<K: Kind>(entry: &Entry<K>) -> Option<Atom> {
    // A set that does not decode selects no pod.
    entry.readable().map(|it| it.meta().namespace.clone())
}

/// The state that all syncs share.
struct Ctx<K: Kind> {
    /// Writes pods.
    control: PodControl,
    recorder: Recorder,
    sets: Informer<K>,
    /// The sets of one Deployment.
    of_controller: Index<K, Uid>,
    of_namespace: Index<K, Atom>,
    pods: Informer<Pod>,
    queue: Queue<ObjectKey>,
    memory: Memory,
    consistency: Arc<ConsistencyStore>,
    compares_cost: bool,
    counts_terminating: bool,
    meters: Meters,
    call_limit: CallLimit,
    clock: Clock,
    /// Cancelled when the manager stops. A sync then ends between two calls.
    stopping: CancellationToken,
}

impl<K: Kind> Ctx<K> {
    fn api(&self) -> &Api {
        self.control.api()
    }

    /// Records a stored status. The next sync waits until the cache shows it.
    fn record_status(&self, set: &Uid, version: &Version) {
        self.memory.record_status_at(set, self.clock.now());
        self.consistency.record_write(set, &self.sets.watched(), version);
    }

    fn send_event(&self, owner: &Owner, type_: EventType, reason: &str, message: String) {
        self.recorder.event(owner.reference(), type_, reason, message);
    }

    /// Records whether a set waits for expectations.
    fn set_waiting(&self, set: &Uid, is_waiting: bool) {
        self.memory.set_waiting(set, is_waiting, |count| self.meters.set_waiting(count));
    }

    /// Removes what is kept about a deleted set.
    fn remove(&self, set: &Uid) {
        self.memory.remove(set);
        self.consistency.remove(set);
        self.set_waiting(set, false);
    }

    /// Clears the memory of a set that was deleted during the sync. Its delete handler may have run before the sync
    /// stored something.
    fn clear_memory_of_deleted(&self, set: &ReplicaSet) {
        if self.sets.store().is_gone(&set.meta.namespace, &set.meta.name, &set.meta.uid) {
            self.remove(&set.meta.uid);
        }
    }
}
