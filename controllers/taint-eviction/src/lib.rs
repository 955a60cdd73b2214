//! Deletes pods that do not tolerate the `NoExecute` taints of their node.
//!
//! Guarantees: a pod is deleted only after live reads of the pod and of its node. The tolerations of the live pod
//! decide. The cache of nodes must have passed the version of the live node, and the observed taints must be exactly
//! those of the live node. So neither an old cache nor a taint that was lifted meanwhile deletes a pod. The live pod
//! may be newer than the cached one: the cache of pods must have passed only the version of the cached pod, so that the
//! arrival of the pod on the node is recorded. A pod is never deleted before its tolerationSeconds are over, counted
//! from the time at which this process observed the taint. All memory of a pod is by uid, and the DELETE has the uid as
//! precondition, so a new pod of the same name inherits no timer. A deletion that fails is retried until the pod is
//! gone or the taint is lifted.
//!
//! When tolerationSeconds begin: upstream counts from the time at which a controller computes the timer, so a restart
//! begins anew (k/k#108268). Here they count from the time at which this process observed the taint. A standby observes
//! too, so a new leader that was a warm standby continues the count. timeAdded alone is not used, because it comes from
//! another clock or from a user, and may be long past. Otherwise all pods of a node could be deleted at once after a
//! restart, before the node had time to report. But tolerationSeconds never begin before timeAdded, so they are not
//! shortened if our clock is behind. They do not begin before the pod was observed on the node either. Time in which the
//! watch of nodes was interrupted does not count, because then the nodes could not report either, and after ten seconds
//! of it they begin anew.
//!
//! Reading order: `sync` (one pod, top to bottom), `handlers` (what events record and enqueue), then `rules`, which
//! decides and is pure: `taints` (since when a taint is observed), `tolerations` (when a pod must go). Then the shared
//! state: `memory` (observations and announced deletions), `live_nodes` (live reads), `metrics`.

mod handlers;
mod sync;

mod live_nodes;
mod memory;
mod metrics;

mod rules;

use std::{sync::Arc, time::Duration};

use api::{Atom, Node, ObjectKey, Pod, Uid};
use client::Api;
use clock::Clock;
use controller::{Backoff, Builder, ByDefault, Factor, Profile, Proof, Queue, Registration, Right, Settings};
use events::{EventType, ObjectReference, Recorder};
use informer::{Index, Informer};
use tokio_util::sync::CancellationToken;

use crate::{
    live_nodes::LiveNodes,
    memory::{Memory, Stage},
    metrics::Meters,
    rules::taints::Now,
};

/// The canonical name.
pub const NAME: &str = "taint-eviction-controller";

/// The rights of upstream's ClusterRole `system:controller:node-controller` that this controller uses.
pub const PROFILE: Profile = Profile {
    requests: &[
        Right { group: "", resource: "pods", verbs: &["get", "delete"] },
        Right { group: "", resource: "pods/status", verbs: &["patch"] },
        Right { group: "", resource: "nodes", verbs: &["get"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    paths: &[],
    watches: &[
        Right { group: "", resource: "nodes", verbs: &["list", "watch"] },
        Right { group: "", resource: "pods", verbs: &["list", "watch"] },
    ],
    // An evicted pod is soon gone, so there is no lasting mark of another manager.
    marks: &[],
};

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "",
    service_account: "node-controller",
    profile: PROFILE,
    // Upstream's feature gate SeparateTaintEvictionController is locked to true in 1.36 (KEP-3902).
    default: ByDefault::On,
    flags: &[],
    gates: &["TaintTolerationComparisonOperators"],
    start: |builder, settings| start(builder, Options::from(settings)),
};

/// How many pods are evicted concurrently (`UpdateWorkerSize`). With more, a pod would be deleted long after its node was read,
/// because the calls wait for the rate limiter.
const WORKERS: usize = 8;

/// The back-off of a failed eviction. It begins with upstream's pause between attempts. Its limit is a minute, because
/// with the usual 1,000 s a pod would remain long after the server has recovered.
const BACKOFF: Backoff = Backoff::per_key(Duration::from_millis(10), Duration::from_secs(60));

/// The options of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// The feature gate TaintTolerationComparisonOperators (KEP-5471).
    pub compare_numbers: bool,
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self { compare_numbers: settings.is_enabled("TaintTolerationComparisonOperators") }
    }
}

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { compare_numbers } = options;
    // Live reads confirm each eviction, so the caches need not be proved.
    let pods = builder.informer::<Pod>(Proof::LiveReads);
    let nodes = builder.informer::<Node>(Proof::LiveReads);
    let api = builder.api(Factor::ONE);
    let clock = builder.deps().clock.clone();
    let ctx = Arc::new(Ctx {
        recorder: builder.recorder(api.clone()),
        live_nodes: LiveNodes::new(api.clone(), clock.clone()),
        api,
        compare_numbers,
        memory: Memory::default(),
        node_queue: builder.queue("noexec_taint_node", Backoff::default()),
        pod_queue: builder.queue("noexec_taint_pod", BACKOFF),
        meters: Meters::new(&builder.deps().metrics),
        clock,
        pods_of_node: workload::pods_of_node(pods.store()),
        pods: pods.clone(),
        nodes: nodes.clone(),
    });
    let handler_ctx = ctx.clone();
    builder.on_every_change(&nodes, move |change| handlers::record_node(&handler_ctx, change));
    let handler_ctx = ctx.clone();
    builder.on_every_change(&pods, move |change| handlers::record_pod(&handler_ctx, change));
    let task_ctx = ctx.clone();
    builder.background("observation of taints", move |end| watch_observation(task_ctx, end));
    let handler_ctx = ctx.clone();
    builder.on_change(&nodes, None, move |change, lane| handlers::enqueue_node(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&pods, None, move |change, lane| handlers::enqueue_pod(&handler_ctx, change, lane));
    let worker_ctx = ctx.clone();
    // One worker is enough: it only reads the index of the cache.
    builder.workers(&ctx.node_queue, 1, move |node: ObjectKey| {
        let ctx = worker_ctx.clone();
        async move { sync::enqueue_pods(&ctx, &node) }
    });
    let term = ctx.clone();
    builder.on_term_start(move || term.memory.begin_term(term.clock.now()));
    let queue = ctx.pod_queue.clone();
    builder.workers(&queue, WORKERS, move |pod: ObjectKey| {
        let ctx = ctx.clone();
        async move { sync::sync(&ctx, &pod).await }
    });
}

/// Checks once a second, also on a standby, whether the watch of nodes works.
async fn watch_observation(ctx: Arc<Ctx>, end: CancellationToken) {
    let check = |_: &[String], interrupted_for: Option<Duration>| {
        ctx.memory.check_observation(interrupted_for, ctx.clock.boot(), ctx.clock.now());
    };
    workload::observe(&[ctx.nodes.watched()], end, || {}, check).await;
}

/// The state that all syncs share.
struct Ctx {
    api: Api,
    live_nodes: LiveNodes,
    recorder: Recorder,
    clock: Clock,
    compare_numbers: bool,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    pods_of_node: Index<Pod, Atom>,
    /// Nodes whose taints have changed.
    node_queue: Queue<ObjectKey>,
    /// Pods to decide about. A delayed key is the timer of its pod.
    pod_queue: Queue<ObjectKey>,
    memory: Memory,
    meters: Meters,
}

impl Ctx {
    fn now(&self) -> Now {
        Now { instant: self.clock.now(), wall: self.clock.wall() }
    }

    /// Ends the timer of a pod that is gone, with an event. If this process has already announced the deletion, no
    /// event is sent.
    fn on_pod_gone(&self, uid: &Uid, pod: &ObjectKey) {
        if self.memory.end_eviction(uid) == Some(Stage::Waiting) {
            self.send_cancelled_event(pod);
        }
    }

    /// Clears the memory of a pod that was deleted during its sync. Its delete handler may have run before the sync
    /// stored something.
    fn clear_memory_of_deleted(&self, pod: &Pod) {
        if self.pods.store().is_gone(&pod.meta.namespace, &pod.meta.name, &pod.meta.uid) {
            self.on_pod_gone(&pod.meta.uid, &pod.meta.as_ref().key());
        }
    }

    fn send_marked_event(&self, pod: &ObjectKey) {
        self.send_event(pod, format!("Marking for deletion Pod {pod}"));
    }

    fn send_cancelled_event(&self, pod: &ObjectKey) {
        self.send_event(pod, format!("Cancelling deletion of Pod {pod}"));
    }

    /// The reference has no uid, as upstream's.
    fn send_event(&self, pod: &ObjectKey, message: String) {
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(pod.namespace.to_string()),
            name: Some(pod.name.to_string()),
            ..ObjectReference::default()
        };
        self.recorder.event(&object, EventType::Normal, "TaintManagerEviction", message);
    }
}
