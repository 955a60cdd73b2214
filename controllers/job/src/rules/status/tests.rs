use serde_json::{Value, json};

use super::*;
use crate::testing::{NOW, at, job, true_condition};

/// The server's objection to this change; empty when it accepts it.
fn broken_rule(spec: Value, old: Value, new: Value) -> &'static str {
    let (old, new) = (job(spec.clone(), old), job(spec, new));
    check(&new.spec, &old.status, &new.status).map_or_else(|InvalidStatus(rule)| rule, |()| "")
}

fn has(types: &[&str]) -> Value {
    types.iter().map(|it| true_condition(it, "R", "m")).collect()
}

#[test]
fn an_invalid_status_is_not_sent() {
    let indexed = || json!({ "completionMode": "Indexed", "completions": 4, "backoffLimitPerIndex": 1 });
    let elastic = || json!({ "completionMode": "Indexed", "completions": 2, "parallelism": 2 });
    let ended = |change: Value| {
        let mut status = json!({ "conditions": has(&["FailureTarget", "Failed"]) });
        status.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        status
    };
    let none = || json!({});
    for (spec, old, new, want) in [
        (none(), none(), none(), ""),
        (none(), none(), ended(none()), ""),
        (none(), none(), json!({ "conditions": has(&["Failed"]) }), "failed without FailureTarget"),
        (
            none(),
            none(),
            json!({ "conditions": has(&["Complete"]), "completionTime": at(0) }),
            "complete without SuccessCriteriaMet",
        ),
        (
            none(),
            none(),
            json!({ "conditions": has(&["SuccessCriteriaMet", "Complete"]), "completionTime": at(0) }),
            "",
        ),
        (none(), none(), json!({ "conditions": has(&["SuccessCriteriaMet", "Complete"]) }), "complete without a time"),
        (none(), none(), json!({ "completionTime": at(0) }), "a time without being complete"),
        (
            none(),
            none(),
            json!({ "conditions": has(&["SuccessCriteriaMet", "Complete"]), "completionTime": at(-61) }),
            "complete before it started",
        ),
        (
            none(),
            none(),
            json!({ "conditions": has(&["SuccessCriteriaMet", "FailureTarget"]) }),
            "SuccessCriteriaMet and FailureTarget",
        ),
        (none(), none(), json!({ "conditions": has(&["Complete", "Failed"]) }), "complete and failed"),
        (none(), none(), json!({ "conditions": has(&["Complete", "FailureTarget"]) }), "complete, with FailureTarget"),
        (
            none(),
            none(),
            json!({ "conditions": has(&["SuccessCriteriaMet", "Failed"]) }),
            "failed, with SuccessCriteriaMet",
        ),
        (
            none(),
            ended(none()),
            json!({ "conditions": has(&["FailureTarget"]) }),
            "a terminal or interim condition was removed",
        ),
        (none(), none(), ended(json!({ "active": 1 })), "ended with active pods"),
        (none(), none(), ended(json!({ "terminating": 1 })), "ended with terminating pods"),
        (none(), none(), ended(json!({ "uncountedTerminatedPods": { "failed": ["x"] } })), "ended with uncounted pods"),
        (none(), json!({ "startTime": null }), ended(json!({ "startTime": null })), "ended without a start"),
        (
            json!({ "suspend": true, "completions": 0 }),
            json!({ "startTime": null }),
            ended(json!({ "startTime": null })),
            "",
        ),
        (none(), none(), json!({ "ready": 2, "active": 1 }), "more ready than active"),
        (none(), json!({ "ready": 2, "active": 1 }), json!({ "ready": 2, "active": 1, "failed": 1 }), ""),
        (none(), json!({ "failed": 2 }), json!({ "failed": 1 }), "fewer failed than before"),
        (none(), json!({ "succeeded": 2 }), json!({ "succeeded": 1 }), "fewer succeeded than before"),
        (
            elastic(),
            json!({ "succeeded": 3, "completedIndexes": "0-2" }),
            json!({ "succeeded": 2, "completedIndexes": "0,1" }),
            "",
        ),
        (none(), none(), json!({ "startTime": at(-1) }), "the start moved though the Job is not suspended"),
        (none(), none(), json!({ "startTime": null }), "the start moved though the Job is not suspended"),
        (json!({ "suspend": true }), none(), json!({ "startTime": null }), ""),
        (none(), json!({ "conditions": has(&["Suspended"]) }), json!({ "startTime": at(0) }), ""),
        (
            none(),
            none(),
            json!({ "uncountedTerminatedPods": { "succeeded": ["x"], "failed": ["x"] } }),
            "an uncounted pod without uid, or twice",
        ),
        (
            none(),
            none(),
            json!({ "uncountedTerminatedPods": { "failed": [""] } }),
            "an uncounted pod without uid, or twice",
        ),
        (none(), none(), json!({ "completedIndexes": "0" }), "completed indexes without indexes"),
        (none(), none(), json!({ "failedIndexes": "" }), "failed indexes without a limit for each"),
        (indexed(), none(), json!({ "completedIndexes": "0,1", "failedIndexes": "" }), ""),
        (indexed(), none(), json!({ "completedIndexes": "0,4" }), "indexes malformed or out of range"),
        (indexed(), none(), json!({ "completedIndexes": "1,0" }), "indexes malformed or out of range"),
        (indexed(), none(), json!({ "failedIndexes": "x" }), "indexes malformed or out of range"),
        (
            indexed(),
            none(),
            json!({ "completedIndexes": "0-2", "failedIndexes": "2,3" }),
            "an index completed and failed",
        ),
    ] {
        assert_eq!(broken_rule(spec.clone(), old.clone(), new.clone()), want, "{spec}: {old} to {new}");
    }
}

#[test]
fn a_condition_is_replaced_only_when_its_values_differ() {
    let mut status = job(json!({}), json!({})).status;
    let now = Moment(NOW * 1_000);
    let later = Moment(now.0 + 5_000);
    let set = |status: &mut JobStatus, reason: &str, at| set(status, "X", ConditionStatus::True, reason, "m", at);
    assert!(set(&mut status, "A", now));
    assert!(!set(&mut status, "A", later));
    assert_eq!(status.condition("X").unwrap().last_transition, Some(NOW));
    assert!(set(&mut status, "B", later));
    let [condition] = &*status.conditions else { panic!("{status:?}") };
    assert_eq!((condition.last_transition, condition.last_probe), (Some(NOW + 5), Some(NOW + 5)));
}

#[test]
fn finished_pod_metrics_never_decrease() {
    let status =
        |succeeded: i32, failed: i32| job(json!({}), json!({ "succeeded": succeeded, "failed": failed })).status;
    assert_eq!(counter_increases(&status(1, 1), &status(4, 1)), (3, 0));
    assert_eq!(counter_increases(&status(4, 1), &status(1, 3)), (0, 2));
}
