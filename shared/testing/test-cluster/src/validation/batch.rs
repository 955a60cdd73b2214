//! Jobs and CronJobs.

use serde_json::{Value, json};

use super::{
    cron,
    faults::{Faults, is_label, join, selects},
    list, number, pod, text,
};
use crate::meta;

const INDEXED: &str = "requires indexed completion mode";

pub(super) fn check_job(faults: &mut Faults, object: &Value) {
    let (spec, name) = (&object["spec"], meta::name(object));
    let (selector, labels) = (&spec["selector"], &spec["template"]["metadata"]["labels"]);
    if selector.is_null() {
        faults.add_required("spec.selector", "");
    } else {
        faults.check_selector(selector, "spec.selector");
    }
    check_generated_labels(faults, object);
    if !selects(selector, labels) {
        let why = "`selector` does not match template `labels`";
        faults.add_invalid("spec.template.metadata.labels", labels, why);
    }
    check_job_spec(faults, spec, "spec");
    let completions = number(spec, "completions");
    if is_indexed(spec) && completions > 0 {
        let last = format!("{name}-{}", completions - 1);
        if !is_label(&last) {
            let why = format!("will not able to create pod with invalid DNS label: {last}");
            faults.add_invalid("metadata.name", &json!(name), &why);
        }
    }
}

/// Labels and selector must be those that the server generates, unless `manualSelector` is set.
fn check_generated_labels(faults: &mut Faults, object: &Value) {
    const UID: &str = "batch.kubernetes.io/controller-uid";
    let spec = &object["spec"];
    if spec["manualSelector"] == true {
        return;
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let (uid, name) = (meta::uid(object), meta::name(object));
    for (label, wanted) in
        [("controller-uid", uid), ("job-name", name), (UID, uid), ("batch.kubernetes.io/job-name", name)]
    {
        if labels[label] != wanted {
            let path = format!("spec.template.metadata.labels[{label}]");
            if labels[label].is_null() {
                faults.add_required(path, &format!("must be '{wanted}'"));
            } else {
                faults.add_invalid(path, labels, &format!("must be '{wanted}'"));
            }
        }
    }
    if !spec["selector"].is_null() && spec["selector"] != json!({ "matchLabels": { UID: uid } }) {
        faults.add_invalid("spec.selector", &spec["selector"], "`selector` not auto-generated");
    }
}

fn is_indexed(spec: &Value) -> bool {
    spec["completionMode"] == "Indexed"
}

/// Checks the spec of a Job, or of a CronJob's template.
fn check_job_spec(faults: &mut Faults, spec: &Value, path: &str) {
    let counts = ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"];
    faults.check_not_negative(spec, path, &counts);
    faults.check_not_negative(spec, path, &["backoffLimitPerIndex", "maxFailedIndexes"]);
    check_indexes(faults, spec, path);
    if let Some(manager) = spec["managedBy"].as_str() {
        let field = format!("{path}.managedBy");
        let parts = manager.split_once('/').filter(|it| !it.0.is_empty() && !it.1.is_empty());
        if parts.is_none() {
            faults.add_invalid(
                field.clone(),
                &json!(manager),
                r#"must be a domain-prefixed path (such as "acme.io/foo")"#,
            );
        }
        faults.check_length(field, manager, 63);
    }
    let replacement = format!("{path}.podReplacementPolicy");
    let allowed: &[&str] =
        if spec["podFailurePolicy"].is_null() { &["Failed", "TerminatingOrFailed"] } else { &["Failed"] };
    faults.check_one_of(spec, "podReplacementPolicy", &replacement, allowed);
    check_failure_policy(faults, spec, path);
    check_success_policy(faults, spec, path);
    let template = &spec["template"];
    pod::check_template(faults, template, &join(path, "template"));
    let restart = format!("{path}.template.spec.restartPolicy");
    match text(&template["spec"], "restartPolicy") {
        "" | "Always" => faults.add_required(restart, r#"valid values: "OnFailure", "Never""#),
        "OnFailure" if !spec["podFailurePolicy"].is_null() => {
            let why = r#"only "Never" is supported when podFailurePolicy is specified"#;
            faults.add_invalid(restart, &json!("OnFailure"), why);
        }
        "OnFailure" | "Never" => {}
        other => faults.add_unsupported(restart, &json!(other), &["OnFailure", "Never"]),
    }
}

const MANY: i64 = 100_000;
const FEW: i64 = 10_000;

fn check_indexes(faults: &mut Faults, spec: &Value, path: &str) {
    let at = |field: &str| format!("{path}.{field}");
    faults.check_one_of(spec, "completionMode", &at("completionMode"), &["NonIndexed", "Indexed"]);
    let (limit, most) = (&spec["backoffLimitPerIndex"], &spec["maxFailedIndexes"]);
    let (parallelism, completions) = (number(spec, "parallelism"), number(spec, "completions"));
    if most.is_i64() && limit.is_null() {
        faults.add_required(at("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    if !is_indexed(spec) {
        for (field, value) in [("backoffLimitPerIndex", limit), ("maxFailedIndexes", most)] {
            if value.is_i64() {
                faults.add_invalid(at(field), value, INDEXED);
            }
        }
        return;
    }
    if parallelism > MANY {
        let why = format!("must be less than or equal to {MANY} when completion mode is Indexed");
        faults.add_invalid(at("parallelism"), &json!(parallelism), &why);
    }
    let failed = most.as_i64();
    if failed.is_some_and(|it| it > MANY) {
        faults.add_invalid(at("maxFailedIndexes"), most, &format!("must be less than or equal to {MANY}"));
    }
    if spec["completions"].is_i64() && failed.is_some_and(|it| it > completions) {
        faults.add_invalid(at("maxFailedIndexes"), most, "must be less than or equal to completions");
    }
    if completions > MANY && limit.is_i64() {
        let why = format!(
            "must be less than or equal to {FEW} when completions are above {MANY} and used with backoff limit per \
             index"
        );
        if failed.is_none() {
            let why = format!("must be specified when completions is above {MANY}");
            faults.add_required(at("maxFailedIndexes"), &why);
        }
        if parallelism > FEW {
            faults.add_invalid(at("parallelism"), &json!(parallelism), &why);
        }
        if failed.is_some_and(|it| it > FEW) {
            faults.add_invalid(at("maxFailedIndexes"), most, &why);
        }
    }
}

fn check_failure_policy(faults: &mut Faults, spec: &Value, path: &str) {
    let path = format!("{path}.podFailurePolicy.rules");
    let rules = list(&spec["podFailurePolicy"], "rules");
    faults.check_count(path.clone(), rules.len(), 20);
    let pod = &spec["template"]["spec"];
    let containers = ["containers", "initContainers"].map(|it| list(pod, it)).into_iter().flatten();
    let names: Vec<&str> = containers.map(|it| text(it, "name")).collect();
    for (at, rule) in rules.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
        faults.check_one_of(rule, "action", &format!("{path}.action"), &actions);
        if rule["action"] == "FailIndex" && spec["backoffLimitPerIndex"].is_null() {
            let why = "requires the backoffLimitPerIndex to be set";
            faults.add_invalid(format!("{path}.action"), &rule["action"], why);
        }
        let conditions = list(rule, "onPodConditions");
        match (rule["onExitCodes"].is_null(), conditions.is_empty()) {
            (true, true) => faults.add_wrong(&path, "specifying one of OnExitCodes and OnPodConditions is required"),
            (false, false) => {
                faults.add_wrong(&path, "specifying both OnExitCodes and OnPodConditions is not supported")
            }
            (false, true) => check_exit_codes(faults, &rule["onExitCodes"], &format!("{path}.onExitCodes"), &names),
            (true, false) => {}
        }
        faults.check_count(format!("{path}.onPodConditions"), conditions.len(), 20);
        for (at, condition) in conditions.iter().enumerate() {
            let path = format!("{path}.onPodConditions[{at}]");
            faults.check_one_of(condition, "status", &format!("{path}.status"), &["False", "True", "Unknown"]);
        }
    }
}

fn check_exit_codes(faults: &mut Faults, rule: &Value, path: &str, containers: &[&str]) {
    faults.check_one_of(rule, "operator", &format!("{path}.operator"), &["In", "NotIn"]);
    if let Some(name) = rule["containerName"].as_str().filter(|it| !containers.contains(it)) {
        let why = "must be one of the container or initContainer names in the pod template";
        faults.add_invalid(format!("{path}.containerName"), &json!(name), why);
    }
    let values = list(rule, "values");
    let field = format!("{path}.values");
    if values.is_empty() {
        faults.add_wrong(field, "[]: at least one value is required");
        return;
    }
    faults.check_count(field.clone(), values.len(), 255);
    for (at, value) in values.iter().enumerate() {
        if *value == 0 && rule["operator"] == "In" {
            faults.add_invalid(format!("{field}[{at}]"), value, "must not be 0 for the In operator");
        }
        if values[..at].contains(value) {
            faults.add_duplicate(format!("{field}[{at}]"), value);
        }
    }
    if !values.is_sorted_by_key(|it| it.as_i64()) {
        faults.add_invalid(field, &json!(values), "must be ordered");
    }
}

fn check_success_policy(faults: &mut Faults, spec: &Value, path: &str) {
    let policy = &spec["successPolicy"];
    if policy.is_null() {
        return;
    }
    let path = format!("{path}.successPolicy");
    if !is_indexed(spec) {
        let rules: Vec<String> = list(policy, "rules")
            .iter()
            .map(|it| {
                format!(
                    r#"{{"SucceededIndexes":{},"SucceededCount":{}}}"#,
                    it["succeededIndexes"], it["succeededCount"]
                )
            })
            .collect();
        return faults.add_wrong(path, &format!(r#"{{"Rules":[{}]}}: {INDEXED}"#, rules.join(",")));
    }
    let rules = list(policy, "rules");
    if rules.is_empty() {
        let why = "at least one rules must be specified when the successPolicy is specified";
        faults.add_required(format!("{path}.rules"), why);
    }
    faults.check_count(format!("{path}.rules"), rules.len(), 20);
    for (at, rule) in rules.iter().enumerate() {
        check_success_rule(faults, rule, number(spec, "completions"), &format!("{path}.rules[{at}]"));
    }
}

fn check_success_rule(faults: &mut Faults, rule: &Value, completions: i64, path: &str) {
    let (count, indexes) = (rule["succeededCount"].as_i64(), rule["succeededIndexes"].as_str());
    if count.is_none() && indexes.is_none() {
        faults.add_required(path, "at least one of succeededCount or succeededIndexes must be specified");
    }
    let mut known = None;
    if let Some(text) = indexes {
        let field = format!("{path}.succeededIndexes");
        faults.check_length(field.clone(), text, 64 * 1024);
        match parse_indexes(text, completions) {
            Ok(indexes) => known = i64::try_from(indexes.len()).ok(),
            Err(why) => faults.add_invalid(field, &json!(text), &format!("error parsing succeededIndexes: {why}")),
        }
    }
    let Some(count) = count else { return };
    let field = format!("{path}.succeededCount");
    if count < 0 {
        faults.add_invalid(field.clone(), &json!(count), "must be greater than or equal to 0");
    }
    if count > completions {
        let why = format!("must be less than or equal to {completions} (the number of specified completions)");
        faults.add_invalid(field.clone(), &json!(count), &why);
    }
    if let Some(known) = known.filter(|it| count > *it) {
        let why = format!(
            "must be less than or equal to {known} (the number of indexes in the specified succeededIndexes field)"
        );
        faults.add_invalid(field, &json!(count), &why);
    }
}

/// Parses indexes and ranges of indexes, such as `1,3-5`, in ascending order.
pub(super) fn parse_indexes(text: &str, completions: i64) -> Result<Vec<i64>, String> {
    let mut indexes: Vec<i64> = Vec::new();
    if text.is_empty() {
        return Ok(indexes);
    }
    let mut previous = None;
    let read = |part: &str, previous: Option<i64>| -> Result<i64, String> {
        let index: i64 = part.parse().map_err(|_| format!("cannot convert string to integer for index: {part:?}"))?;
        if index >= completions {
            return Err(format!("too large index: {part:?}"));
        }
        match previous {
            Some(previous) if index <= previous => {
                Err(format!("non-increasing order, previous: {previous}, current: {index}"))
            }
            _ => Ok(index),
        }
    };
    for span in text.split(',') {
        let parts: Vec<&str> = span.split('-').collect();
        if parts.len() > 2 {
            return Err(format!(
                "the fragment {span:?} violates the requirement that an index interval can have at most two parts \
                 separated by '-'"
            ));
        }
        let first = read(parts[0], previous)?;
        let last = parts.get(1).map_or(Ok(first), |it| read(it, Some(first)))?;
        // Indexes above the completions are refused before, so the range is not longer than they are.
        indexes.extend(first..=last);
        previous = Some(last);
    }
    Ok(indexes)
}

pub(super) fn check_job_change(faults: &mut Faults, old: &Value, new: &Value) {
    let (before, after) = (&old["spec"], &new["spec"]);
    if before["completions"] != after["completions"] {
        if !is_indexed(before) {
            faults.check_immutable(old, new, "spec.completions");
        } else if after["completions"] != after["parallelism"] {
            let why = "can only be modified in tandem with spec.parallelism";
            faults.add_invalid("spec.completions", &after["completions"], why);
        }
    }
    faults.check_immutable(old, new, "spec.selector");
    check_template_change(faults, old, new);
    for field in ["completionMode", "backoffLimitPerIndex", "managedBy"] {
        faults.check_immutable(old, new, &format!("spec.{field}"));
    }
    for field in ["podFailurePolicy", "successPolicy"] {
        faults.check_immutable(old, new, &format!("spec.{field}"));
    }
}

/// While a Job is suspended and has no running pods, the scheduling fields of its template may change.
fn check_template_change(faults: &mut Faults, old: &Value, new: &Value) {
    let (before, after) = (&old["spec"]["template"], &new["spec"]["template"]);
    let idle = number(&old["status"], "active") == 0;
    let suspended =
        list(&old["status"], "conditions").iter().any(|it| it["type"] == "Suspended" && it["status"] == "True");
    let free = old["spec"]["suspend"] == true && idle && (old["status"]["startTime"].is_null() || suspended);
    if !free {
        return faults.check_immutable(old, new, "spec.template");
    }
    let fixed = |template: &Value| {
        let mut template = template.clone();
        let fields = meta::as_map(&mut template);
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("labels");
            metadata.remove("annotations");
        }
        let Some(spec) = fields.get_mut("spec").and_then(Value::as_object_mut) else { return template };
        for field in ["nodeSelector", "tolerations", "schedulingGates"] {
            spec.remove(field);
        }
        if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
            affinity.remove("nodeAffinity");
        }
        if spec.get("affinity").is_some_and(|it| *it == json!({})) {
            spec.remove("affinity");
        }
        for field in ["containers", "initContainers"] {
            for container in spec.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
                meta::as_map(container).remove("resources");
            }
        }
        template
    };
    if fixed(before)["spec"] != fixed(after)["spec"] {
        faults.add_invalid("spec.template.spec", &after["spec"], "field is immutable");
    } else if fixed(before) != fixed(after) {
        faults.add_invalid("spec.template", after, "field is immutable");
    }
}

pub(super) fn check_cron_job(faults: &mut Faults, object: &Value) {
    let spec = &object["spec"];
    let schedule = text(spec, "schedule");
    if schedule.is_empty() {
        faults.add_required("spec.schedule", "");
    } else if schedule.contains("TZ") {
        let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
        faults.add_invalid("spec.schedule", &json!(schedule), why);
    } else if let Err(why) = cron::check(schedule) {
        faults.add_invalid("spec.schedule", &json!(schedule), &why);
    }
    if let Some(zone) = spec["timeZone"].as_str() {
        let why = match zone {
            "" => Some("timeZone must be nil or non-empty string".to_owned()),
            it if it.eq_ignore_ascii_case("local") => {
                Some("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones".to_owned())
            }
            it if !cron::is_zone(it) => Some(format!("unknown time zone {it}")),
            _ => None,
        };
        if let Some(why) = why {
            faults.add_invalid("spec.timeZone", &json!(zone), &why);
        }
    }
    faults.check_one_of(spec, "concurrencyPolicy", "spec.concurrencyPolicy", &["Allow", "Forbid", "Replace"]);
    let counts = ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"];
    faults.check_not_negative(spec, "spec", &counts);
    let job = &spec["jobTemplate"]["spec"];
    check_job_spec(faults, job, "spec.jobTemplate.spec");
    if !job["selector"].is_null() {
        let why = "`selector` will be auto-generated";
        faults.add_invalid("spec.jobTemplate.spec.selector", &job["selector"], why);
    }
    if job["manualSelector"] == true {
        faults.add_unsupported("spec.jobTemplate.spec.manualSelector", &json!(true), &["nil", "false"]);
    }
}
