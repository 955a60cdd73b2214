//! Validates a status and its changes.

use serde_json::{Value, json};

use super::{batch::parse_indexes, faults::Faults, list, number, text};
use crate::kinds::{self, Kind};

/// Checks a write of the status subresource.
pub(super) fn check(kind: &Kind, old: &Value, new: &Value, faults: &mut Faults) {
    let status = &new["status"];
    match kind.table.as_str() {
        kinds::JOBS => check_job(faults, old, new),
        kinds::DEPLOYMENTS => {
            let counts = ["observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
            faults.check_not_negative(status, "status", &counts);
            faults.check_not_negative(
                status,
                "status",
                &["unavailableReplicas", "terminatingReplicas", "collisionCount"],
            );
            check_within(faults, status, &["updatedReplicas", "readyReplicas", "availableReplicas"], "readyReplicas");
            check_counters_grow(faults, old, new);
        }
        kinds::REPLICA_SETS | kinds::REPLICATION_CONTROLLERS => {
            let counts = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
            faults.check_not_negative(status, "status", &counts);
            faults.check_not_negative(status, "status", &["observedGeneration", "terminatingReplicas"]);
            check_within(
                faults,
                status,
                &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
                "readyReplicas",
            );
        }
        kinds::STATEFUL_SETS => {
            let counts = ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
            faults.check_not_negative(status, "status", &counts);
            faults.check_not_negative(status, "status", &["observedGeneration", "collisionCount"]);
            check_within(faults, status, &counts[1..], "status.readyReplicas");
            check_counters_grow(faults, old, new);
        }
        kinds::DAEMON_SETS => {
            let counts = ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"];
            faults.check_not_negative(status, "status", &counts);
            let counts = ["observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable"];
            faults.check_not_negative(status, "status", &counts);
            faults.check_not_negative(status, "status", &["collisionCount"]);
            check_counters_grow(faults, old, new);
        }
        kinds::BUDGETS => {
            let counts = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];
            faults.check_not_negative(status, "status", &counts);
        }
        kinds::NODES => check_node(faults, status),
        kinds::PODS => check_pod(faults, old, new),
        _ => {}
    }
}

/// Counts of parts must not exceed the replicas, and the available ones must not exceed the ready ones.
fn check_within(faults: &mut Faults, status: &Value, parts: &[&str], ready: &str) {
    let most = number(status, "replicas");
    for part in parts.iter().filter(|it| number(status, it) > most) {
        let why = "cannot be greater than status.replicas";
        faults.add_invalid(format!("status.{part}"), &json!(number(status, part)), why);
    }
    let available = number(status, "availableReplicas");
    if available > number(status, "readyReplicas") {
        faults.add_invalid("status.availableReplicas", &json!(available), &format!("cannot be greater than {ready}"));
    }
}

fn check_counters_grow(faults: &mut Faults, old: &Value, new: &Value) {
    let (before, after) = (&old["status"]["collisionCount"], &new["status"]["collisionCount"]);
    if before.is_i64() && after.as_i64().unwrap_or(0) < before.as_i64().unwrap_or(0) {
        faults.add_invalid("status.collisionCount", after, "cannot be decremented");
    }
}

fn check_node(faults: &mut Faults, status: &Value) {
    for field in ["capacity", "allocatable"] {
        for (resource, amount) in status[field].as_object().into_iter().flatten() {
            if amount.as_str().is_some_and(|it| it.starts_with('-')) {
                faults.add_invalid(format!("status.{field}.{resource}"), amount, "must be greater than or equal to 0");
            }
        }
    }
    let addresses = list(status, "addresses");
    for (at, address) in addresses.iter().enumerate().filter(|(at, it)| addresses[..*at].contains(it)) {
        let shown = format!(r#"Duplicate value: {{"Type":{},"Address":{}}}"#, address["type"], address["address"]);
        faults.add("FieldValueDuplicate", format!("status.addresses[{at}]"), shown);
    }
}

/// The QoS class must match the spec, and a container that ended for good must not run again.
fn check_pod(faults: &mut Faults, old: &Value, new: &Value) {
    if !old["status"]["qosClass"].is_null() {
        faults.check_immutable(old, new, "status.qosClass");
    }
    let restart = text(&new["spec"], "restartPolicy");
    if restart == "Always" {
        return;
    }
    for (at, after) in list(&new["status"], "containerStatuses").iter().enumerate() {
        let before = list(&old["status"], "containerStatuses").iter().find(|it| it["name"] == after["name"]);
        let Some(ended) = before.map(|it| &it["state"]["terminated"]).filter(|it| !it.is_null()) else { continue };
        let for_good = restart == "Never" || ended["exitCode"] == 0;
        if for_good && after["state"]["terminated"].is_null() {
            let why = "may not be transitioned to non-terminated state";
            faults.add_forbidden(format!("status.containerStatuses[{at}].state"), why);
        }
    }
}

fn has_condition(job: &Value, condition: &str) -> bool {
    list(&job["status"], "conditions").iter().any(|it| it["type"] == condition && it["status"] == "True")
}

/// Each rule checks only what this write changes, so that earlier faults do not block it.
fn check_job(faults: &mut Faults, old: &Value, new: &Value) {
    let status = &new["status"];
    faults.check_not_negative(status, "status", &["active", "succeeded", "failed", "ready", "terminating"]);
    check_uncounted(faults, &old["status"]["uncountedTerminatedPods"], &status["uncountedTerminatedPods"]);
    check_conditions(faults, old, new);
    check_times(faults, old, new);
    check_finished(faults, old, new);
    check_counters(faults, old, new);
    check_indexes(faults, old, new);
}

fn check_conditions(faults: &mut Faults, old: &Value, new: &Value) {
    const PATH: &str = "status.conditions";
    for (condition, word) in
        [("Failed", "terminal "), ("Complete", "terminal "), ("FailureTarget", "terminal "), ("SuccessCriteriaMet", "")]
    {
        if has_condition(old, condition) && !has_condition(new, condition) {
            faults.add_wrong(PATH, &format!("cannot disable the {word}{condition}=True condition"));
        }
    }
    let pairs = [
        ("Complete", "Failed"),
        ("Complete", "FailureTarget"),
        ("SuccessCriteriaMet", "Failed"),
        ("SuccessCriteriaMet", "FailureTarget"),
    ];
    for (one, other) in pairs {
        let both = |job: &Value| has_condition(job, one) && has_condition(job, other);
        if both(new) && !both(old) {
            faults.add_wrong(PATH, &format!("cannot set {one}=True and {other}=true conditions"));
        }
    }
    for (end, sign) in [("Failed", "FailureTarget"), ("Complete", "SuccessCriteriaMet")] {
        if has_condition(new, end) && !has_condition(old, end) && !has_condition(new, sign) {
            faults.add_wrong(PATH, &format!("cannot set {end}=True condition without the {sign}=true condition"));
        }
    }
}

fn check_times(faults: &mut Faults, old: &Value, new: &Value) {
    const END: &str = "status.completionTime";
    let (before, after) = (&old["status"], &new["status"]);
    let (started, ended) = (&after["startTime"], &after["completionTime"]);
    if before["startTime"] != *started && !before["startTime"].is_null() {
        let resumes = has_condition(old, "Suspended") && !has_condition(new, "Suspended");
        let suspended = new["spec"]["suspend"] == true;
        if !suspended && !resumes {
            faults.add_invalid("status.startTime", started, "field is immutable for unsuspended job once set");
        }
    }
    let changed = before["completionTime"] != *ended;
    // A removed completionTime is an error of a complete Job; otherwise the rules for conditions report it.
    if changed && !before["completionTime"].is_null() && !ended.is_null() {
        faults.add_invalid(END, ended, "field is immutable");
    }
    let complete = has_condition(new, "Complete");
    if (changed || !has_condition(old, "Complete")) && complete && ended.is_null() {
        faults.add_required(END, "completionTime is required for Complete jobs");
    }
    if changed && !complete && !ended.is_null() {
        let why = "cannot set completionTime when there is no Complete=True condition";
        faults.add_invalid(END, ended, why);
    }
    if let (Some(start), Some(end)) = (started.as_str(), ended.as_str())
        && changed
        && end < start
    {
        faults.add_invalid(END, ended, "must be equal to or after `startTime`");
    }
}

fn check_finished(faults: &mut Faults, old: &Value, new: &Value) {
    let (before, after) = (&old["status"], &new["status"]);
    let ends = |job: &Value| has_condition(job, "Complete") || has_condition(job, "Failed");
    if !ends(new) {
        return;
    }
    let news = !ends(old);
    let never_ran = new["spec"]["suspend"] == true && new["spec"]["completions"] == 0;
    if after["startTime"].is_null() && !never_ran && (news || !before["startTime"].is_null()) {
        faults.add_required("status.startTime", "startTime is required for finished job");
    }
    for field in ["active", "terminating"] {
        let count = number(after, field);
        if count > 0 && (news || count != number(before, field)) {
            let why = format!("{field}>0 is invalid for finished job");
            faults.add_invalid(format!("status.{field}"), &json!(count), &why);
        }
    }
    let uncounted = &after["uncountedTerminatedPods"];
    let any = ["succeeded", "failed"].iter().any(|it| !list(uncounted, it).is_empty());
    if any && (news || before["uncountedTerminatedPods"] != *uncounted) {
        let shown = format!(r#"{{"Succeeded":{},"Failed":{}}}"#, uncounted["succeeded"], uncounted["failed"]);
        faults.add_wrong("status.uncountedTerminatedPods", &format!("{shown}: must be empty for finished job"));
    }
}

fn check_counters(faults: &mut Faults, old: &Value, new: &Value) {
    let (before, after, spec) = (&old["status"], &new["status"], &new["spec"]);
    let (active, ready) = (number(after, "active"), number(after, "ready"));
    let changed = before["ready"] != after["ready"] || before["active"] != after["active"];
    if after["ready"].is_i64() && ready > active && changed {
        faults.add_invalid("status.ready", &json!(ready), "cannot set more ready pods than active");
    }
    if number(after, "failed") < number(before, "failed") {
        let why = "cannot decrease the failed counter";
        faults.add_invalid("status.failed", &json!(number(after, "failed")), why);
    }
    // The completions of an Indexed Job with equal parallelism may be lowered.
    let elastic = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    if number(after, "succeeded") < number(before, "succeeded") && !elastic {
        let why = "cannot decrease the succeeded counter";
        faults.add_invalid("status.succeeded", &json!(number(after, "succeeded")), why);
    }
}

fn check_indexes(faults: &mut Faults, old: &Value, new: &Value) {
    let (before, after, spec) = (&old["status"], &new["status"], &new["spec"]);
    let completions = number(spec, "completions");
    let mut read = Vec::new();
    for field in ["completedIndexes", "failedIndexes"] {
        let path = format!("status.{field}");
        let Some(text) = after[field].as_str() else { continue };
        let changed = before[field] != after[field];
        let shown = json!(text);
        if field == "completedIndexes" && spec["completionMode"] != "Indexed" {
            if changed && !text.is_empty() {
                let why = "cannot set non-empty completedIndexes when non-indexed completion mode";
                faults.add_invalid(path, &shown, why);
            }
            continue;
        }
        if field == "failedIndexes" && spec["backoffLimitPerIndex"].is_null() {
            if changed {
                let why = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
                faults.add_invalid(path, &shown, why);
            }
            continue;
        }
        match parse_indexes(text, completions) {
            Ok(indexes) => read.push(indexes),
            Err(why) if changed => faults.add_invalid(path, &shown, &format!("error parsing {field}: {why}")),
            Err(_) => {}
        }
    }
    let changed = ["completedIndexes", "failedIndexes"].iter().any(|it| before[*it] != after[*it]);
    if let ([completed, failed], true) = (&read[..], changed)
        && let Some(index) = failed.iter().find(|it| completed.contains(it))
    {
        let why = format!("failedIndexes and completedIndexes overlap at index: {index}");
        faults.add_invalid("status.failedIndexes", &after["failedIndexes"], &why);
    }
}

fn check_uncounted(faults: &mut Faults, old: &Value, new: &Value) {
    if old == new {
        return;
    }
    let mut known: Vec<&Value> = Vec::new();
    for field in ["succeeded", "failed"] {
        for (at, uid) in list(new, field).iter().enumerate() {
            let path = format!("status.uncountedTerminatedPods.{field}[{at}]");
            if uid == "" {
                faults.add_invalid(path, uid, "must not be empty");
            } else if known.contains(&uid) {
                faults.add_duplicate(path, uid);
            } else {
                known.push(uid);
            }
        }
    }
}
