use serde_json::{Value, json};

use super::*;
use crate::testing::{PodBuilder, job, pod};

fn outcome(rules: Value, pod: PodBuilder) -> String {
    let job = job(json!({ "podFailurePolicy": { "rules": rules } }), json!({}));
    let pod = pod.build();
    match policy_result(&job, &pod) {
        PolicyResult::FailJob(cause) => cause.message(&pod),
        other => format!("{:?} {}", other.action(), other.is_counted()),
    }
}

const UNMATCHED: &str = "None true";

#[test]
fn acceptance_job_035_the_fail_job_message_has_container_pod_code_and_rule() {
    let rules = json!([
        { "action": "Ignore", "onExitCodes": { "operator": "In", "values": [7] } },
        { "action": "FailJob", "onExitCodes": { "operator": "In", "values": [5, 42] } },
    ]);
    let want = "Container b for pod ns/p failed with exit code 42 matching FailJob rule at index 1";
    assert_eq!(outcome(rules.clone(), pod("p").phase("Failed").exit("a", 0, -1).exit("b", 42, -1)), want);
    assert_eq!(outcome(rules.clone(), pod("p").phase("Failed").exit("a", 41, -1)), UNMATCHED);
    let condition = json!([{ "action": "FailJob", "onPodConditions": [{ "type": "X", "status": "True" }] }]);
    let want = "Pod ns/p has condition X matching FailJob rule at index 0";
    assert_eq!(outcome(condition.clone(), pod("p").failed(-1).condition("X", "True", -1)), want);
    assert_eq!(outcome(condition, pod("p").failed(-1).condition("X", "False", -1)), UNMATCHED);
}

#[test]
fn acceptance_job_039_the_first_matching_rule_decides() {
    let codes = |action| json!({ "action": action, "onExitCodes": { "operator": "In", "values": [1] } });
    for (name, rules, want) in [
        ("count before fail", json!([codes("Count"), codes("FailJob")]), "Some(\"Count\") true"),
        ("ignore before fail", json!([codes("Ignore"), codes("FailJob")]), "Some(\"Ignore\") false"),
        ("an index", json!([codes("FailIndex"), codes("Ignore")]), "Some(\"FailIndex\") true"),
        ("an unknown action", json!([codes("Celebrate"), codes("Ignore")]), "Some(\"Ignore\") false"),
        ("no rules", json!([]), UNMATCHED),
    ] {
        assert_eq!(outcome(rules, pod("p").failed(-1)), want, "{name}");
    }
}

#[test]
fn acceptance_job_040_a_rule_for_one_container_does_not_match_another() {
    let rule = |name| json!([{ "action": "Ignore", "onExitCodes": { "containerName": name, "operator": "NotIn", "values": [0] } }]);
    let failed = || pod("p").phase("Failed").exit("b", 1, -1);
    assert_eq!(outcome(rule("a"), failed()), UNMATCHED);
    assert_eq!(outcome(rule("b"), failed()), "Some(\"Ignore\") false");
}

#[test]
fn exit_codes_are_compared_only_for_failed_containers() {
    let rule = |operator: &str, values: &[i32]| json!([{ "action": "Ignore", "onExitCodes": { "operator": operator, "values": values } }]);
    let failed = || pod("p").phase("Failed").exit("a", 0, -1).exit("b", 3, -1);
    for (name, rules, pod, matches) in [
        ("in", rule("In", &[3]), failed(), true),
        ("not in", rule("NotIn", &[4]), failed(), true),
        ("not in, but the code is in the list", rule("NotIn", &[3]), failed(), false),
        ("an unknown operator", rule("Near", &[3]), failed(), false),
        ("zero is no failure", rule("NotIn", &[3]), pod("p").phase("Failed").exit("a", 0, -1), false),
        ("still running", rule("NotIn", &[3]), pod("p").restarts("containerStatuses", 3), false),
    ] {
        assert_eq!(outcome(rules, pod) != UNMATCHED, matches, "{name}");
    }
}

#[test]
fn acceptance_job_037_an_evicted_pod_is_not_counted_where_evictions_are_ignored() {
    let rules = json!([{ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }]);
    let evicted = pod("p").failed(-1).condition("DisruptionTarget", "True", -1);
    assert_eq!(outcome(rules, evicted), "Some(\"Ignore\") false");
}
