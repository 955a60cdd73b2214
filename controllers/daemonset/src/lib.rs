//! Runs a pod on each node that a DaemonSet selects.
//!
//! Guarantees: without surge a node never has two pods of a set, because a pod is created only when the one before it is
//! gone, and a repeated creation has the same name. A rollout takes down no more than `maxUnavailable` available pods, and
//! adds no more than `maxSurge`. A pod stays on a node that only refuses new ones.
//!
//! Reading order: `sync` (one set, top to bottom), `handlers` (which events enqueue a set). Then `rules`, which decides
//! and is pure. Then the writes: `apply` (pods), `history` (revisions). Last the shared state: `memory`, `metrics`.

mod handlers;
mod sync;

mod apply;
mod error;
mod history;

mod memory;
mod metrics;
mod pod_index;
mod pods;

mod rules;

#[cfg(test)]
mod testing;

use std::sync::Arc;

use api::{Atom, ControllerRevision, DaemonSet, Node, ObjectKey, Pod, Uid};
use client::Api;
use clock::Clock;
use controller::{
    Backoff, Builder, ByDefault, ConsistencyStore, ControllerFlag, Factor, FlagKind, Mark, Profile, Proof, Queue,
    Registration, Right, Settings,
};
use events::{EventType, Recorder};
use informer::{Index, Informer};
use revisions::{HashLabel, RevisionControl};
use tokio_util::sync::CancellationToken;
use workload::{CallLimit, ObjectWriter, Owner, PodControl};

use crate::{memory::Memory, metrics::Meters};

/// The canonical name.
pub const NAME: &str = "daemonset-controller";

/// The rights of upstream's ClusterRole `system:controller:daemon-set-controller` that this controller uses.
pub const PROFILE: Profile = Profile {
    requests: &[
        Right { group: "apps", resource: "daemonsets", verbs: &["get"] },
        Right { group: "apps", resource: "daemonsets/status", verbs: &["update"] },
        // Required by the admission plugin OwnerReferencesPermissionEnforcement for `blockOwnerDeletion`.
        Right { group: "apps", resource: "daemonsets/finalizers", verbs: &["update"] },
        Right { group: "", resource: "pods", verbs: &["create", "delete", "patch"] },
        Right { group: "apps", resource: "controllerrevisions", verbs: &["get", "create", "delete", "patch"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    paths: &[],
    watches: &[
        Right { group: "apps", resource: "daemonsets", verbs: &["list", "watch"] },
        Right { group: "", resource: "nodes", verbs: &["list", "watch"] },
        Right { group: "", resource: "pods", verbs: &["list", "watch"] },
        Right { group: "apps", resource: "controllerrevisions", verbs: &["list", "watch"] },
    ],
    marks: &[Mark { list: "/apis/apps/v1/daemonsets?limit=50", subresource: "status" }],
};

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "daemonset",
    service_account: "daemon-set-controller",
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[ControllerFlag {
        section: "Daemonset-controller flags",
        name: "concurrent-daemonset-syncs",
        kind: FlagKind::Workers,
        default: "2",
        help: "Concurrent syncs of DaemonSets.",
        is_upstream: true,
    }],
    gates: &["StaleControllerConsistencyDaemonSet", "TaintTolerationComparisonOperators"],
    start: |builder, settings| start(builder, Options::from(settings)),
};

/// The options of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--concurrent-daemonset-syncs`
    pub workers: usize,
    /// The feature gate StaleControllerConsistencyDaemonSet: a set waits until the caches show the last writes for it.
    pub read_own_writes: bool,
    /// The feature gate TaintTolerationComparisonOperators (KEP-5471).
    pub compare_numbers: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 2, read_own_writes: true, compare_numbers: false }
    }
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            workers: settings.workers("concurrent-daemonset-syncs"),
            read_own_writes: settings.is_enabled("StaleControllerConsistencyDaemonSet"),
            compare_numbers: settings.is_enabled("TaintTolerationComparisonOperators"),
        }
    }
}

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { workers, read_own_writes, compare_numbers } = options;
    let sets = builder.informer::<DaemonSet>(Proof::Needed);
    let nodes = builder.informer::<Node>(Proof::Needed);
    let pods = builder.informer::<Pod>(Proof::Needed);
    let revisions = builder.informer::<ControllerRevision>(Proof::Needed);
    let api = builder.api(Factor::ONE);
    let recorder = builder.recorder(api.clone());
    let metrics = builder.deps().metrics.clone();
    let clock = builder.deps().clock.clone();
    let consistency =
        ConsistencyStore::new("daemonset_controller", "DaemonSet", read_own_writes, &metrics, clock.clone());
    let consistency = Arc::new(consistency);
    let queue = builder.queue("daemonset", Backoff::default());
    let pod_writer = ObjectWriter::recording(api.clone(), consistency.clone(), pods.watched(), queue.clone());
    let revision_writer = ObjectWriter::recording(api, consistency.clone(), revisions.watched(), queue.clone());
    let ctx = Arc::new(Ctx {
        control: PodControl::new(pod_writer, recorder.clone()),
        history: RevisionControl::new(revision_writer.clone(), HashLabel::OfName),
        revision_writer,
        recorder,
        memory: Memory::default(),
        consistency,
        compare_numbers,
        queue,
        meters: Meters::new(&metrics),
        call_limit: CallLimit::default(),
        clock,
        stopping: builder.deps().stopping.clone(),
        sets: sets.clone(),
        nodes: nodes.clone(),
        pods_of_node: pods.store().declare_index("daemonset: node", pod_index::node_of_daemon_pod),
        pods: pods.clone(),
        revisions: revisions.clone(),
    });
    let handler_ctx = ctx.clone();
    builder.on_change(&sets, None, move |change, lane| handlers::on_set(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&nodes, None, move |change, lane| handlers::on_node(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&pods, None, move |change, lane| handlers::on_pod(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&revisions, None, move |change, lane| handlers::on_revision(&handler_ctx, change, lane));
    let queue = ctx.queue.clone();
    builder.workers(&queue, workers, move |key: ObjectKey| {
        let ctx = ctx.clone();
        async move { sync::sync(&ctx, &key).await }
    });
}

/// The state that all syncs share.
struct Ctx {
    /// Writes pods.
    control: PodControl,
    /// Writes the metadata of revisions.
    revision_writer: ObjectWriter,
    history: RevisionControl,
    recorder: Recorder,
    sets: Informer<DaemonSet>,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    pods_of_node: Index<Pod, Atom>,
    revisions: Informer<ControllerRevision>,
    queue: Queue<ObjectKey>,
    memory: Memory,
    consistency: Arc<ConsistencyStore>,
    compare_numbers: bool,
    meters: Meters,
    call_limit: CallLimit,
    clock: Clock,
    /// Cancelled when the manager stops. A sync then ends between two calls.
    stopping: CancellationToken,
}

impl Ctx {
    fn api(&self) -> &Api {
        self.control.api()
    }

    fn send_event(&self, owner: &Owner, type_: EventType, reason: &str, message: String) {
        self.recorder.event(owner.reference(), type_, reason, message);
    }

    /// Removes what is kept about a deleted set.
    fn remove(&self, set: &Uid) {
        self.memory.remove(set);
        self.consistency.remove(set);
        self.meters.remove(set);
    }

    /// Clears the memory of a set that was deleted during the sync. Its delete handler may have run before the sync
    /// stored something.
    fn clear_memory_of_deleted(&self, set: &DaemonSet) {
        if self.sets.store().is_gone(&set.meta.namespace, &set.meta.name, &set.meta.uid) {
            self.remove(&set.meta.uid);
        }
    }
}
