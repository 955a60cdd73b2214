use serde_json::{Value, json};

use super::*;
use crate::testing::{NOW, at, decode, node};

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

/// The changes as `type reason heartbeat`, where the heartbeat is in seconds from now.
fn changes(conditions: &[&str]) -> Option<Vec<String>> {
    let changes = unknown_conditions(&node(conditions), now())?;
    assert!(changes.iter().all(|it| it.status == ConditionStatus::Unknown && it.last_transition == Some(NOW)));
    let text = |it: &NodeCondition| format!("{} {} {}", it.type_, it.reason, it.last_heartbeat.unwrap() - NOW);
    Some(changes.iter().map(text).collect())
}

const ALL: [&str; 5] =
    ["NetworkUnavailable=False", "Ready=True", "PIDPressure=False", "DiskPressure=True", "MemoryPressure=False"];

#[test]
fn acceptance_node_002_a_silent_node_has_four_unknown_conditions_with_their_heartbeats() {
    let want = [
        "Ready NodeStatusUnknown -10",
        "MemoryPressure NodeStatusUnknown -10",
        "DiskPressure NodeStatusUnknown -10",
        "PIDPressure NodeStatusUnknown -10",
    ];
    assert_eq!(changes(&ALL).unwrap(), want, "NetworkUnavailable is not among them");
    let not_ready = ["Ready=False", "MemoryPressure=False", "DiskPressure=False", "PIDPressure=False"];
    assert_eq!(changes(&not_ready).unwrap(), want, "a node that was not ready becomes Unknown too");
}

#[test]
fn acceptance_node_004_a_node_without_conditions_never_reported_and_its_heartbeat_is_its_creation() {
    let want = [
        "Ready NodeStatusNeverUpdated -3600",
        "MemoryPressure NodeStatusNeverUpdated -3600",
        "DiskPressure NodeStatusNeverUpdated -3600",
        "PIDPressure NodeStatusNeverUpdated -3600",
    ];
    assert_eq!(changes(&[]).unwrap(), want);
    assert_eq!(changes(&["NetworkUnavailable=True"]).unwrap(), want);
}

#[test]
fn each_condition_is_changed_by_its_own_state() {
    let mixed = changes(&["Ready=True", "MemoryPressure=Unknown", "DiskPressure=True"]).unwrap();
    let want = [
        "Ready NodeStatusUnknown -10",
        "DiskPressure NodeStatusUnknown -10",
        "PIDPressure NodeStatusNeverUpdated -3600",
    ];
    assert_eq!(mixed, want);
    let strange = changes(&["Ready=Perhaps", "MemoryPressure=Unknown", "DiskPressure=Unknown", "PIDPressure=Unknown"]);
    assert_eq!(strange.unwrap(), ["Ready NodeStatusUnknown -10"], "a value of a newer server");
}

#[test]
fn nothing_is_written_if_ready_is_unknown_already() {
    assert_eq!(changes(&["Ready=Unknown"]), None);
    assert_eq!(changes(&["Ready=Unknown", "MemoryPressure=False", "DiskPressure=True"]), None);
}

#[test]
fn acceptance_node_003_patch_has_the_read_version_and_keeps_heartbeats() {
    let node = node(&["Ready=True", "MemoryPressure=Unknown", "DiskPressure=Unknown"]);
    let body = patch(&node, &unknown_conditions(&node, now()).unwrap());
    let order: Vec<Value> =
        ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"].map(|it| json!({ "type": it })).to_vec();
    let want = json!({ "metadata": { "resourceVersion": "7" }, "status": {
        "$setElementOrder/conditions": order, "conditions": [
        { "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
          "message": "Kubelet stopped posting node status.",
          "lastHeartbeatTime": at(-10), "lastTransitionTime": at(0) },
        { "type": "PIDPressure", "status": "Unknown", "reason": "NodeStatusNeverUpdated",
          "message": "Kubelet never posted node status.",
          "lastHeartbeatTime": at(-3600), "lastTransitionTime": at(0) },
    ] } });
    assert_eq!(body, want);
}

#[test]
fn condition_without_a_heartbeat_gets_none() {
    let node = decode(&json!({ "metadata": { "name": "a", "uid": "u", "resourceVersion": "7" },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }));
    let body = patch(&node, &unknown_conditions(&node, now()).unwrap());
    let conditions = body["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 4);
    assert!(conditions.iter().all(|it| it.get("lastHeartbeatTime").is_none()), "{conditions:?}");
}

#[test]
fn node_after_the_patch_has_the_changes_and_all_other_conditions() {
    let before = node(&ALL);
    let after = with_conditions(&before, unknown_conditions(&before, now()).unwrap());
    let mut shown: Vec<String> =
        after.conditions.iter().map(|it| format!("{}={}", it.type_, it.status.as_str())).collect();
    shown.sort();
    let want = [
        "DiskPressure=Unknown",
        "MemoryPressure=Unknown",
        "NetworkUnavailable=False",
        "PIDPressure=Unknown",
        "Ready=Unknown",
    ];
    assert_eq!(shown, want);
    assert_eq!((&after.meta, &after.taints), (&before.meta, &before.taints));
    assert_eq!(unknown_conditions(&after, now()), None);
}

#[test]
fn only_unknown_with_a_reason_of_the_controller_is_no_sign_of_life() {
    let written = |status: &str, reason: &str| {
        let condition = json!({ "type": "Ready", "status": status, "reason": reason });
        let node = decode(&json!({ "metadata": { "name": "a" }, "status": { "conditions": [condition] } }));
        is_written_by_controller(node.condition(READY).unwrap())
    };
    assert!(written("Unknown", "NodeStatusUnknown") && written("Unknown", "NodeStatusNeverUpdated"));
    assert!(!written("Unknown", "KubeletSays") && !written("True", "NodeStatusUnknown"));
    assert!(!written("False", "NodeStatusNeverUpdated"));
}

#[test]
fn readiness_is_the_status_of_ready() {
    assert_eq!(readiness(&node(&["Ready=False", "DiskPressure=True"])), Some(&ConditionStatus::False));
    assert_eq!(readiness(&node(&["DiskPressure=True"])), None);
}
