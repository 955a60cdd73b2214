//! What must be true some time after the faults: every node and every pod is in its final state.

use serde_json::Value;

use super::{
    SimulatedCluster,
    kubelets::Machine,
    model::{Model, NOT_READY, Node, Pod, Ready, Tolerated, UNREACHABLE, condition, list, text, tolerated},
    node_checks::{LABELS, OF_KUBELET, TTL, is_managed, no_schedule_keys},
    zones::Modes,
};

/// The first object that is not in its final state, as a text.
pub(super) fn first_unfinished(cluster: &SimulatedCluster) -> Option<String> {
    let (model, machines) = (cluster.model.lock(), cluster.machines.lock());
    let nodes = model.nodes.iter().filter(|it| !it.1.object.is_null());
    let mut nodes = nodes.map(|(name, node)| (name, unfinished_node(&model, node, machines.get(name))));
    if let Some((name, Some(why))) = nodes.find(|it| it.1.is_some()) {
        return Some(format!("node {name} {why}"));
    }
    let terminated = model.living_pods().filter(|it| it.1.has_ended() && !it.1.is_held()).count();
    if terminated > model.settings.terminated_pods {
        return Some(format!("{terminated} terminated pods are left"));
    }
    let mut pods = model.living_pods().map(|(_, it)| (it, unfinished_pod(&model, it, machines.get(&it.node))));
    let (pod, why) = pods.find(|it| it.1.is_some())?;
    Some(format!("pod {} on {:?} {}", pod.name, pod.node, why.unwrap_or_default()))
}

fn unfinished_node(model: &Model, node: &Node, machine: Option<Machine>) -> Option<String> {
    let (object, state) = (&node.object, node.state());
    let machine = machine?;
    let statuses = OF_KUBELET.map(|it| text(&condition(object, it)["status"]));
    let wanted = match (machine.is_on(), machine.is_ready) {
        (true, true) => "True",
        (true, false) => "False",
        (false, _) => "Unknown",
    };
    if statuses[0] != wanted || (!machine.is_on() && statuses.iter().any(|it| it != "Unknown")) {
        return Some(format!("has the conditions {statuses:?}, and Ready should be {wanted}"));
    }
    let taints = list(&object["spec"]["taints"]).iter();
    let managed = |effect: &str| {
        let of_effect = taints.clone().filter(|it| it["effect"] == effect).map(|it| text(&it["key"]));
        let mut keys: Vec<String> = of_effect.filter(|it| is_managed(it, effect)).collect();
        keys.sort_unstable();
        keys
    };
    let mut wanted = no_schedule_keys(object);
    wanted.sort_unstable();
    if managed("NoSchedule") != wanted {
        return Some(format!("has the NoSchedule taints {:?}, not {wanted:?}", managed("NoSchedule")));
    }
    let wanted = match state.ready {
        Some(Ready::False) => Some(NOT_READY),
        Some(Ready::Unknown) => Some(UNREACHABLE),
        Some(Ready::True) | None => None,
    };
    let (present, rate) = (managed("NoExecute"), model.modes.last().map(|it| it.rate(&state.zone, &model.settings)));
    let are_all_full = model.modes.last().is_some_and(Modes::are_all_full);
    let is_right = match *present {
        // A zone in partial disruption keeps the taints that it has.
        [] => wanted.is_none() || rate.is_none_or(|it| it <= 0.0),
        [ref key] => Some(&**key) == wanted && !are_all_full,
        _ => false,
    };
    if !is_right {
        return Some(format!("has the NoExecute taints {present:?}, not {wanted:?}, at the rate {rate:?}"));
    }
    unfinished_metadata(&object["metadata"])
}

fn unfinished_metadata(metadata: &Value) -> Option<String> {
    let labels = &metadata["labels"];
    if let Some((_, label)) = LABELS.into_iter().find(|it| labels[it.0] != labels[it.1]) {
        return Some(format!("has the label {label}={}", labels[label]));
    }
    let ttl = &metadata["annotations"][TTL];
    (*ttl != "0").then(|| format!("has the TTL {ttl}"))
}

fn unfinished_pod(model: &Model, pod: &Pod, machine: Option<Machine>) -> Option<&'static str> {
    let is_failed = pod.deletion.is_some() && pod.has_ended();
    if pod.node.is_empty() {
        return (pod.deletion.is_some() && !pod.is_held()).then_some("has no node, is deleted and is not collected");
    }
    let node = model.nodes.get(&pod.node)?;
    let state = node.state();
    if !state.exists() {
        return (!pod.is_held()).then_some("is an orphan and is not collected");
    }
    let ends = machine.is_some_and(|it| it.is_on()) || (state.is_not_ready() && state.is_out_of_service);
    if pod.deletion.is_some() && ends && !(is_failed && pod.is_held()) {
        return Some("is deleted, but remains");
    }
    if pod.has_ended() {
        return None;
    }
    // Every time that a pod tolerates has passed when the time limit has passed.
    let is_evicted = |taint| {
        let tolerations = pod.tolerations.last().map(Vec::as_slice).unwrap_or_default();
        tolerated(tolerations, taint) != Tolerated::Always
    };
    if pod.deletion.is_none() && state.taints.iter().any(is_evicted) {
        return Some("does not tolerate a taint and is not evicted");
    }
    let is_marked = pod.ready.is_none_or(|it| it == Ready::False);
    if state.is_not_ready() && !is_marked {
        return Some("is ready, but its node is not");
    }
    (state.ready == Some(Ready::True) && pod.deletion.is_none() && pod.ready != Some(Ready::True))
        .then_some("is not ready, but its node is")
}
