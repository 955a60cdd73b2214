//! Deletes pods that nothing else deletes: pods of nodes that do not exist, terminating pods that no kubelet ends, and
//! terminated pods above a threshold.
//!
//! Guarantees: a pod of a missing node is deleted only after the node was missing in the cache of this process for 40 s
//! and a live read has shown that it does not exist. A terminating pod of an out-of-service node is deleted only after
//! a live read of the node. The pod must have been bound to the node before that read. Every write has the uid of the
//! pod as precondition, so a later pod of the same name is never changed. A pod that has not ended is marked as failed
//! before it is deleted. This write is refused if the pod has changed since it was cached, so a pod that has just
//! succeeded is not counted as failed by its owner.
//!
//! Reading order: `handlers` (which nodes are checked), `orphans` (one missing node, top to bottom), `passes` (the two
//! passes over all pods), `rules` (which pods, pure), `collect` (how pods are deleted), `recreations` (the back-off of
//! pods that are created again), `metrics`.

mod handlers;
mod orphans;
mod passes;

mod rules;

mod collect;
mod recreations;

mod metrics;

#[cfg(test)]
mod testing;

use std::{convert::Infallible, sync::Arc, time::Duration};

use api::{Atom, Node, Pod};
use client::Api;
use clock::Clock;
use controller::{
    Backoff, Builder, ByDefault, ControllerFlag, Factor, FlagKind, Profile, Proof, Queue, Registration, Right, Settings,
};
use informer::{Index, Store};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{metrics::Meters, passes::Pass, recreations::Recreations};

/// The canonical name.
pub const NAME: &str = "pod-garbage-collector-controller";

/// How long a node must be missing before its pods are deleted. In this time a node may register again, and the cache
/// of nodes may be behind the cache of pods (k/k#82365).
const QUARANTINE: Duration = Duration::from_secs(40);

/// The time from the end of a pass to the next one.
const PERIOD: Duration = Duration::from_secs(20);

/// How many missing nodes are checked concurrently, so that one request without a response does not delay the others.
const NODE_WORKERS: usize = 4;

/// The rights of upstream's ClusterRole `system:controller:pod-garbage-collector`, all of which this controller uses.
pub const PROFILE: Profile = Profile {
    requests: &[
        Right { group: "", resource: "pods", verbs: &["delete"] },
        Right { group: "", resource: "pods/status", verbs: &["patch"] },
        Right { group: "", resource: "nodes", verbs: &["get"] },
    ],
    paths: &[],
    watches: &[
        Right { group: "", resource: "pods", verbs: &["list", "watch"] },
        Right { group: "", resource: "nodes", verbs: &["list", "watch"] },
    ],
    // A pod that another manager marks as failed is deleted at once, so no mark of it remains.
    marks: &[],
};

/// The flag with the threshold of terminated pods.
const THRESHOLD_FLAG: &str = "terminated-pod-gc-threshold";

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "podgc",
    service_account: "pod-garbage-collector",
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[ControllerFlag {
        section: "Pod-garbage-collector-controller flags",
        name: THRESHOLD_FLAG,
        kind: FlagKind::Integer,
        default: "12500",
        help: "More terminated pods than this are deleted, of the largest namespaces first; 0 or less: none.",
        is_upstream: true,
    }],
    gates: &[],
    start: |builder, settings| start(builder, Options::from(settings)),
};

/// The options of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// `--terminated-pod-gc-threshold`
    pub terminated_pod_threshold: i32,
}

impl Default for Options {
    fn default() -> Self {
        Self { terminated_pod_threshold: 12_500 }
    }
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self { terminated_pod_threshold: settings.integer(THRESHOLD_FLAG) }
    }
}

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { terminated_pod_threshold } = options;
    // The number of terminated pods comes from this cache alone.
    let pods = builder.informer::<Pod>(Proof::Needed);
    // Each deletion for the state or the absence of a node follows a live read of the node.
    let nodes = builder.informer::<Node>(Proof::LiveReads);
    let ctx = Arc::new(Ctx {
        api: builder.api(Factor::ONE),
        clock: builder.deps().clock.clone(),
        pods_of_node: workload::pods_of_node(pods.store()),
        pods: pods.store().clone(),
        nodes: nodes.store().clone(),
        node_queue: builder.queue("orphaned_pods_nodes", Backoff::default()),
        idle_node_workers: Semaphore::new(NODE_WORKERS),
        recreations: Mutex::default(),
        threshold: terminated_pod_threshold,
        meters: Meters::new(&builder.deps().metrics),
        stopping: builder.deps().stopping.clone(),
    });
    let handler_ctx = ctx.clone();
    builder.on_change(&nodes, None, move |change, _| handlers::on_node(&handler_ctx, change));
    let handler_ctx = ctx.clone();
    builder.on_change(&pods, None, move |change, _| handlers::on_pod(&handler_ctx, change));

    let worker_ctx = ctx.clone();
    builder.workers(&ctx.node_queue, NODE_WORKERS, move |node: Atom| {
        let ctx = worker_ctx.clone();
        async move { Ok::<_, Infallible>(orphans::sync(&ctx, &node).await) }
    });

    // One worker for each pass, so that the deletion of thousands of terminated pods does not delay the other pass.
    let passes = if terminated_pod_threshold > 0 { &Pass::ALL[..] } else { &[Pass::Terminating] };
    let queue = builder.queue("pod_garbage_collector_passes", Backoff::default());
    let first = queue.clone();
    builder.on_term_start(move || passes.iter().for_each(|it| first.add(*it)));
    builder.workers(&queue, passes.len(), move |pass: Pass| {
        let ctx = ctx.clone();
        async move { Ok::<_, Infallible>(passes::run(&ctx, pass).await) }
    });
}

/// The state that all syncs share.
struct Ctx {
    api: Api,
    clock: Clock,
    pods: Store<Pod>,
    pods_of_node: Index<Pod, Atom>,
    nodes: Store<Node>,
    /// Nodes that are missing in the cache although pods are bound to them.
    node_queue: Queue<Atom>,
    /// A permit for each worker that deletes no pods of a missing node.
    idle_node_workers: Semaphore,
    recreations: Mutex<Recreations>,
    threshold: i32,
    meters: Meters,
    /// Cancelled when the manager stops. A pass then ends between two calls.
    stopping: CancellationToken,
}

impl Ctx {
    /// Pods of missing nodes are being deleted, or are waiting for a worker.
    fn has_orphan_work(&self) -> bool {
        self.idle_node_workers.available_permits() < NODE_WORKERS || !self.node_queue.is_empty()
    }
}
