//! Which nodes run a pod (`NodeShouldRunDaemonPod`).

use api::{Node, Placement, Taint, TaintEffect};

/// The taints that each pod tolerates, and their effects (`AddOrUpdateDaemonPodTolerations`).
pub(crate) const TOLERATED: [(&str, &str); 6] = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    (UNREACHABLE, "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// The taint that pods in the network of their node tolerate too.
pub(crate) const TOLERATED_WITH_HOST_NETWORK: (&str, &str) = ("node.kubernetes.io/network-unavailable", "NoSchedule");

/// The taint of a node that does not report its state any more.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Whether a node runs a pod of a set (`NodeShouldRunDaemonPod`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeFit {
    /// It should run one.
    ShouldRun,
    /// It should not get one, but one that is there stays: only new pods are refused (`NoSchedule`).
    ShouldContinueRunning,
    /// It must not have one.
    MustNotRun,
}

/// Decides whether a node runs a pod. Conditions, resources, ports and other pods play no part: the scheduler decides about them.
/// `compares_numbers` is the feature gate TaintTolerationComparisonOperators.
pub(crate) fn fit(node: &Node, placement: &Placement, compares_numbers: bool) -> NodeFit {
    let Placement { node_name, node_labels, affinity, .. } = placement;
    let name = &*node.meta.name;
    let is_named = node_name.is_empty() || **node_name == *name;
    let has_labels = node_labels.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    let is_selected = affinity.as_ref().is_none_or(|it| it.matches(name, &node.labels));
    if !is_named || !has_labels || !is_selected {
        return NodeFit::MustNotRun;
    }
    let refuses = |effect: TaintEffect| {
        node.taints.iter().any(|it| it.effect == effect && !is_tolerated(it, placement, compares_numbers))
    };
    if refuses(TaintEffect::NoExecute) {
        NodeFit::MustNotRun
    } else if refuses(TaintEffect::NoSchedule) {
        NodeFit::ShouldContinueRunning
    } else {
        NodeFit::ShouldRun
    }
}

fn is_tolerated(taint: &Taint, placement: &Placement, compares_numbers: bool) -> bool {
    let is_same = |(key, effect): (&str, &str)| *taint.key == *key && taint.effect.as_str() == effect;
    TOLERATED.into_iter().any(is_same)
        || (placement.host_network && is_same(TOLERATED_WITH_HOST_NETWORK))
        || placement.tolerations.iter().any(|it| it.tolerates(taint, compares_numbers))
}

/// Since when the node has the taint of unreachable nodes, in seconds since the epoch. `None` without the taint.
pub(crate) fn unreachable_since(node: &Node) -> Option<i64> {
    let taint = node.taints.iter().find(|it| &*it.key == UNREACHABLE && it.effect == TaintEffect::NoExecute);
    taint.and_then(|it| it.added)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{node, set};

    fn fits(pod_spec: Value, node_fields: Value) -> NodeFit {
        let set = set(json!({ "template": { "spec": pod_spec } }));
        fit(&node("n1", node_fields), &set.spec.placement, false)
    }

    fn tainted(key: &str, effect: &str) -> Value {
        json!({ "spec": { "taints": [{ "key": key, "value": "v", "effect": effect }] } })
    }

    fn labelled(zone: &str) -> Value {
        json!({ "metadata": { "labels": { "zone": zone } } })
    }

    fn affinity(terms: Value) -> Value {
        json!({ "affinity": { "nodeAffinity":
            { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } })
    }

    #[test]
    fn acceptance_ds_014_015_names_labels_and_affinity_select_nodes() {
        let in_zone =
            |zone: &str| json!({ "matchExpressions": [{ "key": "zone", "operator": "In", "values": [zone] }] });
        let invalid = json!({ "matchExpressions": [{ "key": "zone", "operator": "In", "values": [] }] });
        let rows = [
            (json!({}), json!({}), NodeFit::ShouldRun),
            (json!({ "nodeName": "n1" }), json!({}), NodeFit::ShouldRun),
            (json!({ "nodeName": "n2" }), json!({}), NodeFit::MustNotRun),
            (json!({ "nodeName": "n1", "nodeSelector": { "zone": "b" } }), labelled("a"), NodeFit::MustNotRun),
            (json!({ "nodeSelector": { "zone": "a" } }), labelled("a"), NodeFit::ShouldRun),
            (json!({ "nodeSelector": { "zone": "a" } }), json!({}), NodeFit::MustNotRun),
            (affinity(json!([in_zone("a"), in_zone("b")])), labelled("b"), NodeFit::ShouldRun),
            (affinity(json!([in_zone("a"), in_zone("b")])), labelled("c"), NodeFit::MustNotRun),
            (affinity(json!([invalid])), labelled("a"), NodeFit::MustNotRun),
            (affinity(json!([invalid, in_zone("a")])), labelled("a"), NodeFit::ShouldRun),
        ];
        for (pod_spec, node_fields, want) in rows {
            assert_eq!(fits(pod_spec.clone(), node_fields.clone()), want, "{pod_spec} {node_fields}");
        }
    }

    #[test]
    fn acceptance_ds_005_to_011_taints_that_are_not_tolerated_refuse_pods() {
        let plain = || json!({});
        let host = || json!({ "hostNetwork": true });
        let network = "node.kubernetes.io/network-unavailable";
        let all = || json!({ "tolerations": [{ "operator": "Exists" }] });
        let rows = [
            (plain(), tainted("dedicated", "NoSchedule"), NodeFit::ShouldContinueRunning),
            (plain(), tainted("dedicated", "NoExecute"), NodeFit::MustNotRun),
            (plain(), tainted("dedicated", "PreferNoSchedule"), NodeFit::ShouldRun),
            (all(), tainted("dedicated", "NoExecute"), NodeFit::ShouldRun),
            (plain(), tainted(network, "NoSchedule"), NodeFit::ShouldContinueRunning),
            (host(), tainted(network, "NoSchedule"), NodeFit::ShouldRun),
            (host(), tainted(network, "NoExecute"), NodeFit::MustNotRun),
            (plain(), tainted("node.kubernetes.io/not-ready", "NoSchedule"), NodeFit::ShouldContinueRunning),
            (plain(), json!({ "spec": { "unschedulable": true } }), NodeFit::ShouldRun),
        ];
        let automatic = TOLERATED.map(|(key, effect)| (plain(), tainted(key, effect), NodeFit::ShouldRun));
        for (pod_spec, node_fields, want) in rows.into_iter().chain(automatic) {
            assert_eq!(fits(pod_spec.clone(), node_fields.clone()), want, "{pod_spec} {node_fields}");
        }
    }

    #[test]
    fn numbers_are_compared_only_with_the_feature_gate() {
        let taint = json!({ "key": "gpus", "value": "5", "effect": "NoExecute" });
        let node = node("n1", json!({ "spec": { "taints": [taint] } }));
        let rows = [
            ("Gt", "3", false, NodeFit::MustNotRun),
            ("Gt", "3", true, NodeFit::ShouldRun),
            ("Gt", "5", true, NodeFit::MustNotRun),
            ("Lt", "9", false, NodeFit::MustNotRun),
            ("Lt", "9", true, NodeFit::ShouldRun),
            ("Lt", "5", true, NodeFit::MustNotRun),
            ("Equal", "5", false, NodeFit::ShouldRun),
        ];
        for (operator, value, compares_numbers, want) in rows {
            let toleration = json!({ "key": "gpus", "operator": operator, "value": value, "effect": "NoExecute" });
            let set = set(json!({ "template": { "spec": { "tolerations": [toleration] } } }));
            let fit = fit(&node, &set.spec.placement, compares_numbers);
            assert_eq!(fit, want, "{operator} {value} {compares_numbers}");
        }
    }

    #[test]
    fn a_node_is_unreachable_since_its_taint_was_added() {
        let taint = json!({ "key": UNREACHABLE, "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:10Z" });
        assert_eq!(unreachable_since(&node("n1", json!({ "spec": { "taints": [taint] } }))), Some(1_767_225_610));
        assert_eq!(unreachable_since(&node("n1", tainted(UNREACHABLE, "NoExecute"))), None, "an unknown time");
        assert_eq!(unreachable_since(&node("n1", tainted("other", "NoExecute"))), None);
    }
}
