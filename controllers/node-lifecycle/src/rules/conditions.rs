//! The conditions of a node that is silent.

use api::{Atom, ConditionStatus, Node, NodeCondition};
use clock::Timestamp;
use serde_json::{Value, json};

/// The condition that shows whether a node can run pods.
pub(crate) const READY: &str = "Ready";

/// The conditions that become Unknown, in upstream's order. NetworkUnavailable is not in the list: no kubelet reports
/// it.
const REPORTED: [&str; 4] = [READY, "MemoryPressure", "DiskPressure", "PIDPressure"];

const NEVER_UPDATED: &str = "NodeStatusNeverUpdated";
const UNKNOWN: &str = "NodeStatusUnknown";

/// The status of Ready; `None` if the node has none.
pub(crate) fn readiness(node: &Node) -> Option<&ConditionStatus> {
    node.condition(READY).map(|it| &it.status)
}

/// Whether a node controller wrote this condition. Then its times are no sign of life of the node.
pub(crate) fn is_written_by_controller(condition: &NodeCondition) -> bool {
    condition.status == ConditionStatus::Unknown && matches!(&*condition.reason, NEVER_UPDATED | UNKNOWN)
}

/// The conditions of a silent node that change (`tryUpdateNodeHealth`). A heartbeat that exists is kept. `None` if
/// Ready is Unknown already: the other conditions are written only together with Ready.
pub(crate) fn unknown_conditions(node: &Node, now: Timestamp) -> Option<Vec<NodeCondition>> {
    let changed = |type_: &&str| {
        let (reason, heartbeat) = match node.condition(type_) {
            None => (NEVER_UPDATED, node.creation),
            Some(it) if it.status == ConditionStatus::Unknown => return None,
            Some(it) => (UNKNOWN, it.last_heartbeat),
        };
        Some(NodeCondition {
            type_: (*type_).into(),
            status: ConditionStatus::Unknown,
            reason: reason.into(),
            last_heartbeat: heartbeat,
            last_transition: Some(now.as_second()),
        })
    };
    let changes: Vec<NodeCondition> = REPORTED.iter().filter_map(changed).collect();
    changes.iter().any(|it| &*it.type_ == READY).then_some(changes)
}

/// The patch of the status. Conditions are merged by type and keep their order.
pub(crate) fn patch(node: &Node, changes: &[NodeCondition]) -> Value {
    let is_new = |type_: &Atom| node.conditions.iter().all(|it| it.type_ != *type_);
    let order: Vec<&NodeCondition> =
        node.conditions.iter().chain(changes.iter().filter(|it| is_new(&it.type_))).collect();
    // The server refuses a list in another order.
    let changed = |it: &&NodeCondition| changes.iter().find(|change| change.type_ == it.type_);
    let conditions: Vec<Value> = order.iter().filter_map(changed).map(condition).collect();
    let order: Vec<Value> = order.iter().map(|it| json!({ "type": &*it.type_ })).collect();
    json!({
        "metadata": { "resourceVersion": node.meta.version },
        "status": { "$setElementOrder/conditions": order, "conditions": conditions },
    })
}

fn condition(changed: &NodeCondition) -> Value {
    let NodeCondition { type_, status, reason, last_heartbeat, last_transition } = changed;
    let message = if **reason == *NEVER_UPDATED {
        "Kubelet never posted node status."
    } else {
        "Kubelet stopped posting node status."
    };
    let mut value = json!({
        "type": &**type_, "status": status.as_str(), "reason": &**reason, "message": message,
        "lastTransitionTime": last_transition.and_then(|it| api::rfc3339(it).ok()),
    });
    if let (Some(heartbeat), Some(fields)) =
        (last_heartbeat.and_then(|it| api::rfc3339(it).ok()), value.as_object_mut())
    {
        fields.insert("lastHeartbeatTime".to_owned(), heartbeat.into());
    }
    value
}

/// The node after the patch.
pub(crate) fn with_conditions(node: &Node, changes: Vec<NodeCondition>) -> Node {
    let is_changed = |type_: &Atom| changes.iter().any(|it| it.type_ == *type_);
    let kept = node.conditions.iter().filter(|it| !is_changed(&it.type_)).cloned();
    let conditions: Vec<NodeCondition> = kept.collect();
    Node { conditions: conditions.into_iter().chain(changes).collect(), ..node.clone() }
}

#[cfg(test)]
mod tests;
