//! A trivial scheduler as a function of values.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Taint, Toleration,
};

use crate::quantity::Resources;

/// The decision for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Placement {
    /// The node of this name.
    On(String),
    /// No node fits; the message of the kube-scheduler.
    Nowhere(String),
}

/// Places pods one after another: first by priority, then the oldest first. `used` has the resources of pods that are
/// already on each node; placed pods are added to it.
pub(crate) fn place<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    nodes: &[&Node],
    used: &mut BTreeMap<String, Resources>,
) -> Vec<(&'a Pod, Placement)> {
    let mut pods: Vec<&Pod> = pods.into_iter().collect();
    pods.sort_by(|a, b| order(a).cmp(&order(b)));
    let placed = pods.into_iter().map(|pod| {
        let placement = place_one(pod, nodes, used);
        if let (Placement::On(node), Some(spec)) = (&placement, &pod.spec) {
            *used.entry(node.clone()).or_default() += Resources::needed(spec);
        }
        (pod, placement)
    });
    placed.collect()
}

/// A pod that waits for a scheduler: it has no scheduling gates and no node.
pub(crate) fn is_waiting(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.node_name.is_none()
        && pod.metadata.deletion_timestamp.is_none()
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && !crate::kubelet::is_terminal(pod)
}

fn order(pod: &Pod) -> impl Ord + '_ {
    let priority = pod.spec.as_ref().and_then(|it| it.priority).unwrap_or(0);
    let meta = &pod.metadata;
    (std::cmp::Reverse(priority), meta.creation_timestamp.as_ref(), meta.namespace.as_ref(), meta.name.as_ref())
}

fn place_one(pod: &Pod, nodes: &[&Node], used: &BTreeMap<String, Resources>) -> Placement {
    let mut reasons: BTreeMap<String, u32> = BTreeMap::new();
    let mut fitting: Vec<(i128, &str)> = Vec::new();
    for node in nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let taken = used.get(name).copied().unwrap_or_default();
        let refusals = refusals(pod, node, taken);
        if refusals.is_empty() {
            fitting.push((taken.pods, name));
        }
        for reason in refusals {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    match fitting.into_iter().min() {
        Some((_, name)) => Placement::On(name.to_owned()),
        None => Placement::Nowhere(explain(nodes.len(), &reasons)),
    }
}

/// The message of the kube-scheduler, because users search for it.
fn explain(nodes: usize, reasons: &BTreeMap<String, u32>) -> String {
    if nodes == 0 {
        return "no nodes available to schedule pods".to_owned();
    }
    let refused: Vec<String> = reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    format!("0/{nodes} nodes are available: {}.", refused.join(", "))
}

/// Why a node does not fit a pod; empty if it fits.
fn refusals(pod: &Pod, node: &Node, taken: Resources) -> Vec<String> {
    let (nothing, unspecified) = (PodSpec::default(), k8s_openapi::api::core::v1::NodeSpec::default());
    let spec = pod.spec.as_ref().unwrap_or(&nothing);
    let node_spec = node.spec.as_ref().unwrap_or(&unspecified);
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    let cordon =
        Taint { key: "node.kubernetes.io/unschedulable".into(), effect: "NoSchedule".into(), ..Taint::default() };
    if node_spec.unschedulable == Some(true) && !tolerates(tolerations, &cordon) {
        return vec!["node(s) were unschedulable".to_owned()];
    }
    let counts = |it: &&Taint| it.effect != "PreferNoSchedule" && !is_outdated(it, node);
    let taints = node_spec.taints.iter().flatten().filter(counts);
    if let Some(taint) = taints.into_iter().find(|it| !tolerates(tolerations, it)) {
        let value = taint.value.as_deref().unwrap_or_default();
        return vec![format!("node(s) had untolerated taint {{{}: {value}}}", taint.key)];
    }
    if !matches_node_selector(spec, node) {
        return vec!["node(s) didn't match Pod's node affinity/selector".to_owned()];
    }
    let status = node.status.as_ref();
    let offered = status.and_then(|it| it.allocatable.as_ref()).map(Resources::offered).unwrap_or_default();
    let needed = Resources::needed(spec);
    let mut refusals = Vec::new();
    if taken.pods + needed.pods > offered.pods {
        refusals.push("Too many pods".to_owned());
    }
    if needed.cpu > 0 && taken.cpu + needed.cpu > offered.cpu {
        refusals.push("Insufficient cpu".to_owned());
    }
    if needed.memory > 0 && taken.memory + needed.memory > offered.memory {
        refusals.push("Insufficient memory".to_owned());
    }
    refusals
}

/// The API server taints every new node as not ready, and the node lifecycle controller removes the taint once the node
/// is ready. Where no such controller runs, the Ready condition counts more than the taint.
fn is_outdated(taint: &Taint, node: &Node) -> bool {
    let conditions = || node.status.iter().flat_map(|it| it.conditions.iter().flatten());
    let ready = || conditions().any(|it| it.type_ == "Ready" && it.status == "True");
    taint.key == "node.kubernetes.io/not-ready" && taint.effect == "NoSchedule" && ready()
}

fn tolerates(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|it| {
        let effect = it.effect.as_deref().unwrap_or_default();
        let key = it.key.as_deref().unwrap_or_default();
        let value = it.value.as_deref().unwrap_or_default();
        let exists = it.operator.as_deref() == Some("Exists");
        let same_value = exists || value == taint.value.as_deref().unwrap_or_default();
        let same_key = key == taint.key || (key.is_empty() && exists);
        (effect.is_empty() || effect == taint.effect) && same_key && same_value
    })
}

fn matches_node_selector(spec: &PodSpec, node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let by_label = spec.node_selector.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec.affinity.as_ref().and_then(|it| it.node_affinity.as_ref());
    let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    by_label && required.is_none_or(|it| matches_any_term(it, node, &labels))
}

fn matches_any_term(selector: &NodeSelector, node: &Node, labels: &BTreeMap<String, String>) -> bool {
    let fields = BTreeMap::from([("metadata.name".to_owned(), node.metadata.name.clone().unwrap_or_default())]);
    selector.node_selector_terms.iter().any(|NodeSelectorTerm { match_expressions, match_fields }| {
        let expressions = match_expressions.as_deref().unwrap_or_default();
        let on_fields = match_fields.as_deref().unwrap_or_default();
        // A term without requirements matches nothing.
        !(expressions.is_empty() && on_fields.is_empty())
            && expressions.iter().all(|it| matches_requirement(it, labels))
            && on_fields.iter().all(|it| matches_requirement(it, &fields))
    })
}

fn matches_requirement(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&requirement.key);
    let values = requirement.values.as_deref().unwrap_or_default();
    let is_among = value.is_some_and(|it| values.contains(it));
    let compared = || -> Option<std::cmp::Ordering> {
        let bound: i64 = values.first()?.parse().ok()?;
        Some(value?.parse::<i64>().ok()?.cmp(&bound))
    };
    match requirement.operator.as_str() {
        "In" => is_among,
        "NotIn" => !is_among,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => compared().is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
