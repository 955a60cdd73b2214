//! Detects nodes that are silent or not ready, and taints them.
//!
//! Guarantees: a node becomes Unknown only after a whole grace period without a sign of life, which is a renewed Lease
//! or a new heartbeat. This process must have observed the whole period, and a live read of the Lease must confirm it.
//! The node gets the NoExecute taint `unreachable` only while it is still silent, at upstream's pace and in upstream's
//! disruption modes. No node becomes Unknown while a watch of nodes or Leases is interrupted or stale, nor a node whose
//! Lease cannot be read. Every write of a node has the resourceVersion of the state on which it is based.
//!
//! Reading order: `sync` (one node, top to bottom), `pass` (the modes of all zones), `pods` (marks a pod as not ready),
//! `handlers`. Then `rules`, which decides and is pure. Then the state machines: `nodes` (what was observed) and
//! `pacing` (the pace of each zone); `workload::Observation` records whether watches work. Last `live` (live reads) and
//! `metrics`.

mod handlers;
mod pass;
mod pods;
mod sync;

mod live;

mod nodes;
mod pacing;

mod metrics;

mod rules;
#[cfg(test)]
mod testing;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use api::{Atom, Lease, Node, ObjectKey, Pod, Version};
use client::Api;
use clock::{BootInstant, Clock};
use controller::{
    Backoff, Builder, ByDefault, ControllerFlag, Factor, FlagKind, Outcome, Profile, Proof, Queue, Registration, Right,
    Settings,
};
use events::Recorder;
use informer::{Index, Informer};
use parking_lot::Mutex;
use workload::{Observation, pods_of_node};

use crate::{
    metrics::Meters,
    nodes::Nodes,
    pacing::Pacing,
    rules::zones::{Mode, Pace},
    sync::SyncError,
};

/// The canonical name.
pub const NAME: &str = "node-lifecycle-controller";

/// The limit is upstream's period. When writes succeed again, a ready node must lose its taint soon, and the pods of a
/// node that is not ready must be marked no later than by upstream's next pass.
const BACKOFF: Backoff = Backoff::per_key(Duration::from_millis(5), Duration::from_secs(5));
/// The component in its events, as in upstream.
const COMPONENT: &str = "node-controller";
/// The namespace of the Leases of nodes (KEP-589).
const LEASES: &str = "kube-node-lease";
/// The numbers of workers for nodes and for pods, as upstream.
const NODE_WORKERS: usize = 8;
const POD_WORKERS: usize = 4;
/// A kubelet notices a dead connection after 45 s at most, so a shorter grace period can hit healthy nodes
/// (k/k#121793).
const SAFE_GRACE: Duration = Duration::from_secs(45);

/// The rights of upstream's ClusterRole `system:controller:node-controller` that this controller uses. The watches are
/// those of the manager. The manager also reads single Leases for it.
pub const PROFILE: Profile = Profile {
    requests: &[
        Right { group: "", resource: "nodes", verbs: &["get", "patch"] },
        Right { group: "", resource: "nodes/status", verbs: &["patch"] },
        Right { group: "", resource: "pods/status", verbs: &["patch"] },
        Right { group: "", resource: "events", verbs: &["create", "patch"] },
    ],
    paths: &[],
    watches: &[
        Right { group: "", resource: "nodes", verbs: &["list", "watch"] },
        Right { group: "", resource: "pods", verbs: &["list", "watch"] },
        Right { group: "coordination.k8s.io", resource: "leases", verbs: &["list", "watch"] },
    ],
    // No marks: the attach/detach controller writes the status of nodes too.
    marks: &[],
};

/// The section of upstream's help for most of its flags.
const SECTION: &str = "Node-lifecycle-controller flags";

/// What the manager needs to know.
pub const REGISTRATION: Registration = Registration {
    name: NAME,
    alias: "nodelifecycle",
    service_account: COMPONENT,
    profile: PROFILE,
    default: ByDefault::On,
    flags: &[
        ControllerFlag {
            section: "Generic flags",
            name: "node-monitor-period",
            kind: FlagKind::Duration,
            default: "5s",
            help: "How often the modes of all zones are determined; less than 100ms counts as 100ms. The health of a \
                   node is checked when its own grace period is over.",
            is_upstream: true,
        },
        ControllerFlag {
            section: SECTION,
            name: "node-monitor-grace-period",
            kind: FlagKind::Duration,
            default: "50s",
            help: "A node without a status update and without a renewed Lease for this long is unhealthy.",
            is_upstream: true,
        },
        ControllerFlag {
            section: SECTION,
            name: "node-startup-grace-period",
            kind: FlagKind::Duration,
            default: "1m0s",
            help: "A new node may have no status update for this long.",
            is_upstream: true,
        },
        ControllerFlag {
            section: SECTION,
            name: "node-eviction-rate",
            kind: FlagKind::Float,
            default: "0.1",
            help: "Nodes a second that are tainted in a healthy zone.",
            is_upstream: true,
        },
        ControllerFlag {
            section: SECTION,
            name: "secondary-node-eviction-rate",
            kind: FlagKind::Float,
            default: "0.01",
            help: "Nodes a second that are tainted in an unhealthy zone.",
            is_upstream: true,
        },
        ControllerFlag {
            section: SECTION,
            name: "large-cluster-size-threshold",
            kind: FlagKind::Integer,
            default: "50",
            help: "Zones with at most this many nodes stop evicting when unhealthy.",
            is_upstream: true,
        },
        ControllerFlag {
            section: SECTION,
            name: "unhealthy-zone-threshold",
            kind: FlagKind::Float,
            default: "0.55",
            help: "A zone with this share of nodes not ready, and at least 3, is unhealthy.",
            is_upstream: true,
        },
    ],
    gates: &[],
    start: |builder, settings| start(builder, Options::from(settings)),
};

/// The options of the user.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// `--node-monitor-period`
    pub period: Duration,
    /// `--node-monitor-grace-period`
    pub grace: Duration,
    /// `--node-startup-grace-period`
    pub startup_grace: Duration,
    /// `--node-eviction-rate`, in nodes a second.
    pub rate: f64,
    /// `--secondary-node-eviction-rate`, in nodes a second.
    pub secondary_rate: f64,
    /// `--large-cluster-size-threshold`
    pub large_zone: i32,
    /// `--unhealthy-zone-threshold`
    pub unhealthy_zone: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(5),
            grace: Duration::from_secs(50),
            startup_grace: Duration::from_secs(60),
            rate: 0.1,
            secondary_rate: 0.01,
            large_zone: 50,
            unhealthy_zone: 0.55,
        }
    }
}

impl From<&Settings> for Options {
    fn from(settings: &Settings) -> Self {
        Self {
            period: settings.duration("node-monitor-period"),
            grace: settings.duration("node-monitor-grace-period"),
            startup_grace: settings.duration("node-startup-grace-period"),
            rate: settings.float("node-eviction-rate"),
            secondary_rate: settings.float("secondary-node-eviction-rate"),
            large_zone: settings.integer("large-cluster-size-threshold"),
            unhealthy_zone: settings.float("unhealthy-zone-threshold"),
        }
    }
}

/// Adds the controller to the manager.
pub fn start(builder: &mut Builder, options: Options) {
    let Options { period, grace, startup_grace, rate, secondary_rate, large_zone, unhealthy_zone } = options;
    if grace < SAFE_GRACE {
        tracing::warn!(?grace, "--node-monitor-grace-period below 45s can make healthy nodes NotReady");
    }
    let pace = Pace { rate, reduced_rate: secondary_rate, large: large_zone, threshold: unhealthy_zone };
    // The pace of each zone continues from the taints of the last leader, so the cache must contain them.
    let nodes = builder.informer::<Node>(Proof::Needed);
    // A live read of the Lease confirms that a node is silent.
    let leases = builder.informer::<Lease>(Proof::LiveReads);
    let pods = builder.informer::<Pod>(Proof::LiveReads);
    let api = builder.api(Factor::ONE);
    let clock = builder.deps().clock.clone();
    let ctx = Arc::new(Ctx {
        recorder: builder.recorder_as(COMPONENT, api.clone()),
        api,
        reads: builder.manager_api(),
        state: Mutex::new(State {
            nodes: Nodes::new(grace, startup_grace),
            pacing: Pacing::new(pace.interval(Mode::Normal, 0)),
            observation: Observation::default(),
            modes: BTreeMap::new(),
            disrupted_since: None,
            stale_leases: None,
            unreadable_until: None,
            may_get_leases: None,
            is_suspended: false,
        }),
        pace,
        period: period.max(MIN_PERIOD),
        grace,
        rng: Mutex::new(builder.rng("conflicts")),
        queue: builder.queue("node_lifecycle_controller", BACKOFF),
        pod_queue: builder.queue("node_lifecycle_controller_pods", BACKOFF),
        meters: Meters::new(&builder.deps().metrics),
        clock,
        pods_of_node: pods_of_node(pods.store()),
        nodes: nodes.clone(),
        leases: leases.clone(),
        pods: pods.clone(),
    });

    let handler_ctx = ctx.clone();
    builder.on_every_change(&nodes, move |change| handlers::observe_node(&handler_ctx, change));
    let handler_ctx = ctx.clone();
    builder.on_every_change(&leases, move |change| handlers::observe_lease(&handler_ctx, change));
    let task_ctx = ctx.clone();
    builder.background("observation of nodes", move |end| live::watch_observation(task_ctx, end));

    let handler_ctx = ctx.clone();
    builder.on_change(&nodes, None, move |change, lane| handlers::on_node(&handler_ctx, change, lane));
    let handler_ctx = ctx.clone();
    builder.on_change(&pods, None, move |change, lane| handlers::on_pod(&handler_ctx, change, lane));
    let queue = ctx.queue.clone();
    builder.on_term_start(move || queue.add(Key::Pass));
    let worker_ctx = ctx.clone();
    builder.workers(&ctx.queue, NODE_WORKERS, move |key: Key| {
        let ctx = worker_ctx.clone();
        async move {
            match key {
                Key::Node(name) => sync::sync(&ctx, &name).await,
                Key::Pass => Ok::<Outcome, SyncError>(pass::pass(&ctx)),
            }
        }
    });
    let worker_ctx = ctx.clone();
    builder.workers(&ctx.pod_queue, POD_WORKERS, move |key: ObjectKey| {
        let ctx = worker_ctx.clone();
        async move { pods::sync(&ctx, &key).await }
    });
}

/// A shorter `--node-monitor-period` counts as this time, because it would keep a worker busy. Upstream accepts any.
const MIN_PERIOD: Duration = Duration::from_millis(100);

/// A key in the queue of nodes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    /// A node.
    Node(Atom),
    /// The pass over all zones.
    Pass,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => f.write_str(name),
            Self::Pass => f.write_str("all zones"),
        }
    }
}

/// The state that all syncs share.
struct Ctx {
    api: Api,
    /// Reads Leases with the identity of the manager.
    reads: Api,
    recorder: Recorder,
    nodes: Informer<Node>,
    leases: Informer<Lease>,
    pods: Informer<Pod>,
    pods_of_node: Index<Pod, Atom>,
    state: Mutex<State>,
    pace: Pace,
    period: Duration,
    /// `--node-monitor-grace-period`
    grace: Duration,
    rng: Mutex<fastrand::Rng>,
    queue: Queue<Key>,
    pod_queue: Queue<ObjectKey>,
    meters: Meters,
    clock: Clock,
}

/// What was observed, and what was decided.
struct State {
    nodes: Nodes,
    pacing: Pacing,
    observation: Observation,
    /// The mode of each zone that has nodes.
    modes: BTreeMap<Atom, Mode>,
    /// Since when all zones have been fully disrupted.
    disrupted_since: Option<BootInstant>,
    /// The version of a Lease that a live read returned and the cache did not contain, and the time of the read. No
    /// node becomes Unknown until the cache contains it (KEP-5647).
    stale_leases: Option<(Version, BootInstant)>,
    /// A live read of a Lease failed. No node becomes Unknown until this time.
    unreadable_until: Option<BootInstant>,
    /// Whether the manager may get the Leases of nodes; `None` before the server was asked.
    may_get_leases: Option<bool>,
    /// Whether the last check found the watches interrupted or stale.
    is_suspended: bool,
}
