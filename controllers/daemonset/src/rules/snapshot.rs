//! The input of a decision.

use std::{sync::Arc, time::Duration};

use api::{DaemonSet, Node, Pod, PodPhase, UpdateStrategyType};
use clock::Timestamp;
use revisions::REVISION_LABEL;
use workload::{is_available, is_terminal};

use crate::rules::placement::{NodeFit, fit, unreachable_since};

/// The label with the number of the template of the pod.
pub(crate) const GENERATION_LABEL: &str = "pod-template-generation";

/// What is known of a set at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    /// The set in the cache.
    pub(crate) set: &'a DaemonSet,
    /// The hash of the current revision.
    pub(crate) hash: &'a str,
    /// All nodes, sorted by name, then rotated by [`Snapshot::begin_after`] if a write has failed.
    pub(crate) nodes: Vec<NodePods<'a>>,
    /// The pods that wait for a node that does not exist. The scheduler will never bind them.
    pub(crate) without_node: Vec<&'a Pod>,
    /// The time at which availability is evaluated.
    pub(crate) now: Timestamp,
    /// How long a node must be unreachable so that an update does not wait for it, in seconds.
    pub(crate) ignore_unreachable_after: Option<i64>,
}

/// A node and the pods of the set that are on it or wait for it.
#[derive(Debug)]
pub(crate) struct NodePods<'a> {
    /// The node.
    pub(crate) node: &'a Node,
    /// Whether it runs a pod.
    pub(crate) fit: NodeFit,
    /// All pods: those that are bound first, then the older ones.
    pub(crate) all: &'a [Arc<Pod>],
    /// How long its failed pods must stay.
    pub(crate) backoff: Option<Duration>,
}

/// What a snapshot is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cluster<'a> {
    /// All nodes, see [`sort_nodes`].
    pub(crate) nodes: &'a [Arc<Node>],
    /// The pods of the set, see [`sort_pods`].
    pub(crate) pods: &'a [Arc<Pod>],
    /// The feature gate TaintTolerationComparisonOperators.
    pub(crate) compares_numbers: bool,
}

/// Sorts nodes by name, so that a rollout is repeatable.
pub(crate) fn sort_nodes(nodes: &mut [Arc<Node>]) {
    nodes.sort_unstable_by(|a, b| a.meta.name.cmp(&b.meta.name));
}

/// Sorts pods by node; on a node bound ones first, then by age and name (`podByCreationTimestampAndPhase`).
pub(crate) fn sort_pods(pods: &mut [Arc<Pod>]) {
    pods.sort_unstable_by(|a, b| {
        let key = |it: &'_ Pod| (it.node.is_empty(), it.creation);
        let (node, other) = (&**node_name(a), &**node_name(b));
        node.cmp(other).then_with(|| key(a).cmp(&key(b))).then_with(|| a.meta.name.cmp(&b.meta.name))
    });
}

/// The node of a pod, or the one for which it was created (`GetTargetNodeName`). Empty for a pod of another client.
pub(crate) fn node_name(pod: &Pod) -> &api::Atom {
    if pod.node.is_empty() { &pod.target_node } else { &pod.node }
}

/// Divides the pods among the nodes. `backoff` returns how long a failed pod must stay on a node.
pub(crate) fn gather<'a>(
    set: &'a DaemonSet,
    hash: &'a str,
    cluster: Cluster<'a>,
    backoff: impl Fn(&str) -> Option<Duration>,
    now: Timestamp,
) -> Snapshot<'a> {
    let (mut nodes, mut without_node) = (Vec::with_capacity(cluster.nodes.len()), Vec::new());
    let mut by_node = cluster.pods.chunk_by(|a, b| node_name(a) == node_name(b)).peekable();
    // Both are sorted by the name of the node.
    for node in cluster.nodes {
        while let Some(pods) = by_node.next_if(|it| *first_node_name(it) < *node.meta.name) {
            add_unbound(&mut without_node, pods);
        }
        let all = by_node.next_if(|it| *first_node_name(it) == *node.meta.name).unwrap_or_default();
        let has_failed = all.iter().any(|it| it.phase == PodPhase::Failed);
        let backoff = if has_failed { backoff(&node.meta.name) } else { None };
        nodes.push(NodePods { node, fit: fit(node, &set.spec.placement, cluster.compares_numbers), all, backoff });
    }
    by_node.for_each(|it| add_unbound(&mut without_node, it));
    Snapshot { set, hash, nodes, without_node, now, ignore_unreachable_after: None }
}

fn first_node_name(pods: &[Arc<Pod>]) -> &str {
    pods.first().map_or("", |it| node_name(it))
}

/// Adds the pods that wait for their node. Bound ones are left to the pod garbage collector.
fn add_unbound<'a>(without_node: &mut Vec<&'a Pod>, pods: &'a [Arc<Pod>]) {
    let waits = |it: &&Pod| it.node.is_empty() && !it.target_node.is_empty() && it.meta.deletion.is_none();
    without_node.extend(pods.iter().map(|it| &**it).filter(waits));
}

impl<'a> NodePods<'a> {
    /// The pods that count. One that has ended and is being deleted is only held by a finalizer.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &'a Pod> + use<'a> {
        let all = self.all.iter().map(|it| &**it);
        all.filter(|it| !(is_terminal(it) && it.meta.deletion.is_some()))
    }

    /// Whether no pod counts.
    pub(crate) fn is_empty(&self) -> bool {
        self.pods().next().is_none()
    }

    /// The pods that are not being deleted.
    pub(crate) fn not_deleting(&self) -> impl Iterator<Item = &'a Pod> + use<'a> {
        self.pods().filter(|it| it.meta.deletion.is_none())
    }
}

impl Snapshot<'_> {
    /// Moves the nodes up to this one, for which a write failed, to the end. Otherwise a node that refuses every write would
    /// always come before the others, and its failure would end the creations and block a rollout.
    pub(crate) fn begin_after(&mut self, node: &str) {
        let first = self.nodes.partition_point(|it| *it.node.meta.name <= *node);
        self.nodes.rotate_left(first);
    }

    /// The number of nodes that should run a pod.
    pub(crate) fn desired(&self) -> usize {
        self.nodes.iter().filter(|it| it.fit == NodeFit::ShouldRun).count()
    }

    /// Whether the pod has the present template. After an upgrade of a server that adds defaults the hash is another
    /// one, and only the number of the template shows it.
    pub(crate) fn is_updated(&self, pod: &Pod) -> bool {
        let number = || pod.labels.get(GENERATION_LABEL).and_then(|it| it.parse::<i64>().ok());
        self.has_hash(pod) || self.set.template_generation.is_some_and(|it| number() == Some(it))
    }

    /// Whether the pod has the label of the current revision.
    pub(crate) fn has_hash(&self, pod: &Pod) -> bool {
        !self.hash.is_empty() && pod.labels.get(REVISION_LABEL) == Some(self.hash)
    }

    /// Whether the pod has been ready for `minReadySeconds`.
    pub(crate) fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.set.spec.min_ready_seconds, self.now)
    }

    /// How many nodes may have a second pod in a rolling update, for `desired` nodes (`SurgeCount`).
    pub(crate) fn max_surge(&self, desired: usize) -> usize {
        let spec = &self.set.spec;
        let surge = spec.max_surge.as_ref().filter(|_| spec.update_strategy == UpdateStrategyType::RollingUpdate);
        surge.and_then(|it| it.scaled_up(desired)).unwrap_or_default()
    }

    /// Whether a node may have two pods (`AllowsSurge`).
    pub(crate) fn may_surge(&self) -> bool {
        self.max_surge(1) > 0
    }

    /// In how many seconds an update stops waiting for this node, because it is unreachable; zero or less if it does
    /// not wait any more. `None` if it always waits.
    pub(crate) fn ignored_in(&self, node: &Node) -> Option<i64> {
        let until = unreachable_since(node)?.saturating_add(self.ignore_unreachable_after?);
        Some(until.saturating_sub(self.now.as_second()))
    }
}
