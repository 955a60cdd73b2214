use std::sync::Arc;

use api::ReplicaSet;
use serde_json::{Value, json};

use super::*;
use crate::testing::{BASE, NOW, at, now, pods, set_with};

/// The next status of a set with these fields and pods.
fn status_of(spec: Value, status: Value, rows: &[&str], managed: &Managed) -> ReplicaSetStatus {
    let set = set_with(spec, json!({ "generation": 4 }), status);
    status_for(&set, &pods(rows), managed)
}

fn status_for(set: &ReplicaSet, active: &[Arc<Pod>], managed: &Managed) -> ReplicaSetStatus {
    next_status(&Snapshot { set, active, now: now(), ..BASE.snapshot() }, &HashSet::new(), managed, "rs-")
}

/// replicas, fullyLabeledReplicas, readyReplicas, availableReplicas
fn numbers(spec: Value, rows: &[&str]) -> [i32; 4] {
    let ReplicaSetStatus { replicas, fully_labeled, ready, available, .. } =
        status_of(spec, json!({}), rows, &Managed::Done);
    [replicas, fully_labeled, ready, available]
}

#[test]
fn acceptance_rs_044_pods_are_counted_by_state() {
    assert_eq!(numbers(json!({ "minReadySeconds": 10 }), &["ready:10", "ready:9", "running"]), [3, 3, 2, 1]);
    assert_eq!(numbers(json!({}), &["ready:0", "pending"]), [2, 2, 1, 1]);
    assert_eq!(numbers(json!({}), &[]), [0; 4]);
}

#[test]
fn a_pod_whose_deletion_was_not_observed_is_not_counted_as_ready() {
    let (set, active) = (set_with(json!({}), json!({}), json!({})), pods(&["ready:0", "ready:0"]));
    let snapshot = Snapshot { set: &set, active: &active, now: now(), ..BASE.snapshot() };
    let next = next_status(&snapshot, &HashSet::from([active[0].meta.uid.clone()]), &Managed::Done, "rs-");
    assert_eq!([next.replicas, next.fully_labeled, next.ready, next.available], [2, 2, 1, 1]);
}

#[test]
fn acceptance_rs_047_pods_with_all_labels_of_the_template_are_fully_labeled() {
    let template = json!({ "metadata": { "labels": { "app": "rs", "extra": "x" } } });
    let spec = json!({ "template": template });
    assert_eq!(numbers(spec, &["ready:0 label:extra=x", "ready:0", "ready:0 label:extra=y"]), [3, 1, 3, 3]);
}

#[test]
fn terminating_pods_are_counted_only_if_they_are_known() {
    let set = set_with(json!({}), json!({}), json!({ "terminatingReplicas": 1 }));
    let next = |terminating| {
        let snapshot = Snapshot { set: &set, now: now(), terminating, ..BASE.snapshot() };
        next_status(&snapshot, &HashSet::new(), &Managed::Done, "rs-").terminating
    };
    assert_eq!([next(None), next(Some(0)), next(Some(2))], [None, Some(0), Some(2)]);
}

fn failure(reason: &str, message: &str, since: i64) -> Value {
    json!({ "type": REPLICA_FAILURE, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at(since) })
}

/// Reason, message and age of the failure.
fn failure_of(status: &ReplicaSetStatus) -> Option<(String, String, i64)> {
    let found = status.conditions.iter().find(|it| &*it.type_ == REPLICA_FAILURE)?;
    Some((found.reason.to_string(), found.message.to_string(), NOW - found.last_transition.unwrap()))
}

#[test]
fn a_failure_is_a_condition_whose_reason_is_its_direction() {
    let reason = |rows: &[&str]| {
        let failed = Managed::Failed("no".to_owned());
        failure_of(&status_of(json!({ "replicas": 2 }), json!({}), rows, &failed)).unwrap()
    };
    assert_eq!(reason(&["ready"]), ("FailedCreate".into(), "no".into(), 0));
    assert_eq!(reason(&["ready"; 3]).0, "FailedDelete");
    assert_eq!(reason(&["ready"; 2]).0, "");
}

#[test]
fn a_failure_is_kept_while_nothing_is_known_and_removed_after_a_success() {
    let other = json!({ "type": "Other", "status": "True" });
    let stored = json!({ "conditions": [failure("FailedCreate", "old", -9), other] });
    let next = |managed: &Managed| status_of(json!({}), stored.clone(), &[], managed);
    assert_eq!(failure_of(&next(&Managed::Skipped)), Some(("FailedCreate".into(), "old".into(), 9)));
    assert_eq!(failure_of(&next(&Managed::Done)), None);
    assert_eq!(next(&Managed::Done).conditions.len(), 1, "conditions of others are kept");
    let refreshed = next(&Managed::Failed("new".to_owned()));
    assert_eq!(failure_of(&refreshed), Some(("FailedCreate".into(), "new".into(), 9)), "the time stays");
    assert_eq!(refreshed.conditions.len(), 2);
}

#[test]
fn a_message_that_differs_only_in_a_generated_name_is_not_refreshed() {
    let stored = json!({ "conditions": [failure("FailedCreate", "pods \"rs-abcde\" is forbidden: used 5", -9)] });
    let next = |message: &str| {
        failure_of(&status_of(json!({}), stored.clone(), &[], &Managed::Failed(message.to_owned()))).unwrap().1
    };
    assert_eq!(next("pods \"rs-fghij\" is forbidden: used 5"), "pods \"rs-abcde\" is forbidden: used 5");
    assert_eq!(next("pods \"rs-fghij\" is forbidden: used 6"), "pods \"rs-fghij\" is forbidden: used 6");
}

#[test]
fn a_failure_that_is_false_begins_anew() {
    let stored =
        json!({ "conditions": [{ "type": REPLICA_FAILURE, "status": "False", "lastTransitionTime": at(-9) }] });
    let next = status_of(json!({}), stored, &[], &Managed::Failed("no".to_owned()));
    assert_eq!((failure_of(&next).unwrap().2, next.conditions.len()), (0, 1));
}

#[test]
fn a_status_is_transferred_to_a_newer_state_of_the_set() {
    let next = status_of(json!({}), json!({}), &["ready"], &Managed::Failed("no".to_owned()));
    let newer = json!({ "observedGeneration": 9, "replicas": 7, "newerField": 1,
        "conditions": [failure("FailedCreate", "old", -9), { "type": "Other", "status": "True" }] });
    let newer = set_with(json!({}), json!({}), newer).status;
    let sent = transfer(&next, newer);
    assert_eq!((sent.observed_generation, sent.replicas, sent.conditions.len()), (9, 1, 2));
    assert_eq!(failure_of(&sent).unwrap().1, "no");
    assert!(serde_json::to_string(&sent).unwrap().contains("newerField"));
}

#[test]
fn acceptance_rs_048_an_equal_status_is_not_written() {
    let stored = json!({ "replicas": 1, "fullyLabeledReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "observedGeneration": 4 });
    let set = set_with(json!({}), json!({ "generation": 4 }), stored);
    let write =
        |set: &ReplicaSet| status_write(&set.status, &status_for(set, &pods(&["ready"]), &Managed::Done), 1, None);
    assert_eq!(write(&set), StatusWrite::Never);
    let edited = set_with(json!({}), json!({ "generation": 5 }), serde_json::to_value(&set.status).unwrap());
    assert_eq!(write(&edited), StatusWrite::Now);
}

#[test]
fn changes_of_counters_are_collected_and_what_users_wait_for_is_stored_at_once() {
    let status = |replicas: i32, available: i32, generation: i64| {
        let mut status = ReplicaSetStatus::default();
        (status.replicas, status.ready, status.available) = (replicas, available, available);
        status.observed_generation = generation;
        status
    };
    let millis = Duration::from_millis;
    let stored = status(3, 1, 1);
    let write = |next: &ReplicaSetStatus, since: u64| status_write(&stored, next, 3, Some(millis(since)));
    assert_eq!(write(&status(3, 2, 1), 50), StatusWrite::After(millis(200)));
    assert_eq!(write(&status(3, 2, 1), 250), StatusWrite::Now);
    assert_eq!(status_write(&stored, &status(3, 2, 1), 3, None), StatusWrite::Now, "the first write of this process");
    assert_eq!(write(&status(3, 3, 1), 50), StatusWrite::Now, "all pods are available");
    assert_eq!(write(&status(3, 1, 2), 50), StatusWrite::Now, "the spec has changed");
    let mut failed = status(3, 1, 1);
    set_failure(&mut failed.conditions, "FailedCreate", "no", "rs-", NOW);
    assert_eq!(write(&failed, 50), StatusWrite::Now);
    assert_eq!(status_write(&status(1, 1, 1), &status(0, 0, 1), 0, Some(millis(50))), StatusWrite::Now, "scaled to 0");
    let complete = status(3, 3, 1);
    let loss = |wanted| status_write(&complete, &status(3, 2, 1), wanted, Some(millis(50)));
    assert_eq!(loss(3), StatusWrite::Now, "an available pod is lost");
    assert_eq!(loss(2), StatusWrite::After(millis(200)), "a surplus one");
    let mut terminating = stored.clone();
    terminating.terminating = Some(0);
    assert_eq!(write(&terminating, 400), StatusWrite::Now, "absent differs from 0");
}
