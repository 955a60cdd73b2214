use api::Pod;
use serde_json::{Value, json};

use super::*;
use crate::{
    rules::snapshot::SnapshotInputs,
    testing::{INPUTS, at, job, pod, pods, snapshot_of, true_condition},
};

/// The reason with which the Job ends with these pods; empty if it does not end.
fn reason(spec: Value, status: Value, pods: &[Pod]) -> String {
    outcome(spec, status, pods, INPUTS).map_or_else(String::new, |it| it.reason.to_string())
}

fn outcome(spec: Value, status: Value, pods: &[Pod], inputs: SnapshotInputs) -> Option<Ending> {
    let job = job(spec, status);
    let snapshot = snapshot_of(&job, pods, inputs);
    ending(&snapshot, &Tally::of(&snapshot))
}

#[test]
fn acceptance_job_029_one_failure_more_than_the_limit_ends_the_job() {
    let failed = |many: usize| -> Vec<Pod> { (0..many).map(|it| pod(&it.to_string()).failed(-5).build()).collect() };
    let limit = |it| json!({ "backoffLimit": it });
    assert_eq!(reason(limit(6), json!({}), &failed(7)), "BackoffLimitExceeded");
    assert_eq!(reason(limit(6), json!({}), &failed(6)), "");
    assert_eq!(reason(limit(6), json!({ "failed": 6 }), &failed(1)), "BackoffLimitExceeded");
    let uncounted = json!({ "failed": 5, "uncountedTerminatedPods": { "failed": ["x", "y"] } });
    assert_eq!(reason(limit(6), uncounted, &[]), "BackoffLimitExceeded");
    let known_already = json!({ "failed": 5, "uncountedTerminatedPods": { "failed": ["uid-0"] } });
    assert_eq!(reason(limit(6), known_already, &failed(1)), "", "a pod is counted once");
    let ending = outcome(limit(0), json!({}), &failed(1), INPUTS).unwrap();
    assert_eq!(&*ending.message, "Job has reached the specified backoff limit");
}

#[test]
fn acceptance_job_034_failures_counted_before_a_restart_still_end_the_job() {
    let inputs = SnapshotInputs { backoff: None, ..INPUTS };
    let done = pods([pod("a").failed(-5).without_finalizer()]);
    let status = json!({ "failed": 1, "succeeded": 9 });
    let spec = json!({ "backoffLimit": 0, "completions": 10 });
    assert_eq!(&*outcome(spec, status, &done, inputs).unwrap().reason, "BackoffLimitExceeded");
}

#[test]
fn a_pod_deleted_as_uncounted_does_not_fail_the_job() {
    let rules = json!([{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [1] } }]);
    let spec = || json!({ "podFailurePolicy": { "rules": rules } });
    assert_eq!(reason(spec(), json!({}), &pods([pod("a").failed(-5)])), "PodFailurePolicy");
    assert_eq!(reason(spec(), json!({}), &pods([pod("a").failed(-5).without_finalizer()])), "");
}

#[test]
fn acceptance_job_030_restarts_count_with_restart_policy_on_failure() {
    let spec = |policy: &str, limit: i32| json!({ "backoffLimit": limit, "template": { "spec": { "restartPolicy": policy } } });
    let restarted = |list: &str, restarts: i32| pod("p").running().restarts(list, restarts);
    for (name, spec, pod, want) in [
        ("running", spec("OnFailure", 1), restarted("containerStatuses", 1), "BackoffLimitExceeded"),
        ("pending", spec("OnFailure", 1), restarted("containerStatuses", 1).phase("Pending"), "BackoffLimitExceeded"),
        ("init containers", spec("OnFailure", 1), restarted("initContainerStatuses", 1), "BackoffLimitExceeded"),
        ("too few restarts", spec("OnFailure", 2), restarted("containerStatuses", 1), ""),
        ("none at limit 0", spec("OnFailure", 0), restarted("containerStatuses", 0), ""),
        ("one at limit 0", spec("OnFailure", 0), restarted("containerStatuses", 1), "BackoffLimitExceeded"),
        ("never restarted by policy", spec("Never", 1), restarted("containerStatuses", 1), ""),
        ("ended", spec("OnFailure", 1), restarted("containerStatuses", 1).phase("Succeeded"), ""),
    ] {
        assert_eq!(reason(spec, json!({}), &pods([pod])), want, "{name}");
    }
}

#[test]
fn acceptance_job_031_a_deadline_counts_from_the_start_and_the_limit_takes_precedence() {
    let spec = |deadline: i64| json!({ "activeDeadlineSeconds": deadline, "backoffLimit": 0 });
    assert_eq!(reason(spec(60), json!({}), &[]), "DeadlineExceeded");
    assert_eq!(reason(spec(61), json!({}), &[]), "");
    assert_eq!(reason(spec(60), json!({ "failed": 1 }), &[]), "BackoffLimitExceeded");
    assert_eq!(reason(spec(1), json!({ "startTime": null }), &[]), "", "it starts now");
    assert_eq!(
        &*outcome(spec(1), json!({}), &[], INPUTS).unwrap().message,
        "Job was active longer than specified deadline"
    );
}

#[test]
fn acceptance_job_061_suspended_time_does_not_count_towards_the_deadline() {
    let spec = |suspend: bool| json!({ "activeDeadlineSeconds": 10, "suspend": suspend });
    assert_eq!(reason(spec(true), json!({}), &[]), "");
    let suspended = json!({ "conditions": [true_condition("Suspended", "JobSuspended", "Job suspended")] });
    assert_eq!(reason(spec(false), suspended, &[]), "", "it is resumed in this pass");
    assert_eq!(reason(spec(false), json!({ "startTime": at(-10) }), &[]), "DeadlineExceeded");
}

#[test]
fn acceptance_job_036_an_interim_condition_keeps_its_message() {
    let announced = json!({ "conditions": [true_condition("FailureTarget", "PodFailurePolicy", "the container")] });
    let ending = outcome(json!({ "backoffLimit": 0 }), announced, &pods([pod("p").failed(-1)]), INPUTS).unwrap();
    assert_eq!((&*ending.reason, &*ending.message), ("PodFailurePolicy", "the container"));
    assert!(ending.announced && !ending.is_success());
    let not_true = json!({ "type": "FailureTarget", "status": "False", "reason": "R" });
    assert_eq!(reason(json!({}), json!({ "conditions": [not_true] }), &[]), "");
}

#[test]
fn acceptance_job_052_the_first_interim_condition_decides_the_end() {
    let success = json!({ "failed": 9, "conditions": [true_condition("SuccessCriteriaMet", "SuccessPolicy", "m")] });
    let ending = outcome(json!({ "backoffLimit": 0 }), success, &[], INPUTS).unwrap();
    assert!(ending.is_success() && ending.announced && &*ending.reason == "SuccessPolicy");

    let indexed = json!({ "completionMode": "Indexed", "successPolicy": { "rules": [{ "succeededCount": 1 }] } });
    let failure = json!({ "completedIndexes": "1", "conditions": [true_condition("FailureTarget", "BackoffLimitExceeded", "m")] });
    assert!(!outcome(indexed.clone(), failure, &[], INPUTS).unwrap().is_success());
    assert!(outcome(indexed, json!({ "completedIndexes": "1" }), &[], INPUTS).unwrap().is_success());
}

#[test]
fn acceptance_job_051_a_fulfilled_policy_is_reported_with_its_rule() {
    let spec = json!({ "completionMode": "Indexed", "completions": 4,
        "successPolicy": { "rules": [{ "succeededIndexes": "3" }, { "succeededIndexes": "1" }] } });
    let ending = outcome(spec.clone(), json!({}), &pods([pod("p").index(1).succeeded(-1)]), INPUTS).unwrap();
    assert_eq!((&*ending.reason, &*ending.message), ("SuccessPolicy", "Matched rules at index 1"));
    assert!(ending.is_success() && !ending.announced);
    assert_eq!(reason(spec, json!({}), &pods([pod("p").index(2).succeeded(-1)])), "");
}

fn per_index(change: Value) -> Value {
    let mut spec = json!({ "completionMode": "Indexed", "completions": 4, "backoffLimitPerIndex": 1 });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    spec
}

#[test]
fn acceptance_job_045_failed_indexes_fail_the_job_when_all_others_have_ended() {
    let second = |index| pod("p").index(index).failures(1).failed(-1);
    assert_eq!(reason(per_index(json!({})), json!({ "completedIndexes": "1-3" }), &pods([second(0)])), "FailedIndexes");
    assert_eq!(reason(per_index(json!({})), json!({ "completedIndexes": "1,2" }), &pods([second(0)])), "");
    let first = pod("p").index(0).failures(0).failed(-1);
    assert_eq!(
        reason(per_index(json!({})), json!({ "completedIndexes": "1-3" }), &pods([first])),
        "",
        "one failure is allowed"
    );
    assert_eq!(reason(per_index(json!({})), json!({ "failedIndexes": "0-3" }), &[]), "FailedIndexes");
    let ending = outcome(per_index(json!({})), json!({ "failedIndexes": "0-3" }), &[], INPUTS).unwrap();
    assert_eq!(&*ending.message, "Job has failed indexes");
}

#[test]
fn acceptance_job_046_too_many_failed_indexes_fail_the_job_at_once() {
    let spec = || per_index(json!({ "maxFailedIndexes": 1 }));
    let ending = outcome(spec(), json!({ "failedIndexes": "0,2" }), &[], INPUTS).unwrap();
    assert_eq!(&*ending.reason, "MaxFailedIndexesExceeded");
    assert_eq!(&*ending.message, "Job has exceeded the specified maximal number of failed indexes");
    assert_eq!(reason(spec(), json!({ "failedIndexes": "0" }), &[]), "");
    let one_more = pods([pod("p").index(2).failures(1).failed(-1)]);
    assert_eq!(reason(spec(), json!({ "failedIndexes": "0" }), &one_more), "MaxFailedIndexesExceeded");
}

#[test]
fn acceptance_job_048_a_fail_index_rule_applies_regardless_of_the_limit_per_index() {
    let rules = json!([{ "action": "FailIndex", "onExitCodes": { "operator": "In", "values": [1] } }]);
    let spec = per_index(json!({ "backoffLimitPerIndex": 9, "podFailurePolicy": { "rules": rules } }));
    let failed = pods([pod("p").index(0).failures(0).failed(-1)]);
    assert_eq!(reason(spec, json!({ "completedIndexes": "1-3" }), &failed), "FailedIndexes");
}

#[test]
fn acceptance_job_053_a_failure_takes_precedence_over_a_success_of_the_same_sync() {
    let spec = per_index(json!({ "backoffLimitPerIndex": 0, "maxFailedIndexes": 0,
        "successPolicy": { "rules": [{ "succeededIndexes": "1" }] } }));
    let both = pods([pod("a").index(0).failures(0).failed(-1), pod("b").index(1).succeeded(-1)]);
    assert_eq!(reason(spec, json!({}), &both), "MaxFailedIndexesExceeded");
}

#[test]
fn acceptance_job_038_a_failure_policy_is_applied_when_the_pod_has_ended() {
    let rules = json!([{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [1] } }]);
    let spec = || json!({ "podFailurePolicy": { "rules": rules }, "backoffLimit": 0 });
    let terminating = pod("p").running().exit("main", 1, -1).deleting();
    assert_eq!(reason(spec(), json!({}), &pods([terminating])), "");
    let ended = pod("p").running().phase("Failed").exit("main", 1, -1).deleting();
    assert_eq!(reason(spec(), json!({}), &pods([ended])), "PodFailurePolicy");
}

#[test]
fn acceptance_job_035_a_pod_that_matches_a_fail_job_rule_fails_the_job() {
    let rules = json!([{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } }]);
    let failed = pod("p").phase("Failed").exit("main", 42, -1);
    let ending =
        outcome(json!({ "podFailurePolicy": { "rules": rules } }), json!({}), &pods([failed]), INPUTS).unwrap();
    assert_eq!(&*ending.reason, "PodFailurePolicy");
    assert_eq!(
        &*ending.message,
        "Container main for pod ns/p failed with exit code 42 matching FailJob rule at index 0"
    );
}
