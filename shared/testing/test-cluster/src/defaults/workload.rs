//! Kinds with a pod template.

use serde_json::{Map, Value, json};

use super::{each, labels_from, or, part, pod, volume, within};

pub(super) fn deployment(object: &mut Value) {
    let spec = part(object, "spec");
    or(spec, "replicas", 1);
    or(spec, "revisionHistoryLimit", 10);
    or(spec, "progressDeadlineSeconds", 600);
    let strategy = part(spec, "strategy");
    or(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = part(strategy, "rollingUpdate");
        or(rolling, "maxUnavailable", "25%");
        or(rolling, "maxSurge", "25%");
    }
    pod::template(part(spec, "template"));
}

pub(super) fn replica_set(object: &mut Value) {
    let spec = part(object, "spec");
    or(spec, "replicas", 1);
    if !spec["template"].is_null() {
        pod::template(part(spec, "template"));
    }
}

pub(super) fn replication_controller(object: &mut Value) {
    let labels = labels_of(&object["spec"]["template"]);
    let spec = part(object, "spec");
    or(spec, "replicas", 1);
    if spec["selector"].as_object().is_none_or(Map::is_empty) && !labels.is_empty() {
        spec["selector"] = Value::Object(labels.clone());
    }
    within(spec, "template", pod::template);
    labels_from(object, &labels);
}

pub(super) fn stateful_set(object: &mut Value) {
    let spec = part(object, "spec");
    or(spec, "replicas", 1);
    or(spec, "podManagementPolicy", "OrderedReady");
    or(spec, "revisionHistoryLimit", 10);
    let strategy = part(spec, "updateStrategy");
    if strategy["type"].is_null() || strategy["type"] == "" {
        strategy["type"] = json!("RollingUpdate");
        part(strategy, "rollingUpdate");
    }
    if strategy["type"] == "RollingUpdate" {
        within(strategy, "rollingUpdate", |it| or(it, "partition", 0));
    }
    let retention = part(spec, "persistentVolumeClaimRetentionPolicy");
    or(retention, "whenDeleted", "Retain");
    or(retention, "whenScaled", "Retain");
    each(spec, "volumeClaimTemplates", |it| {
        or(it, "kind", "PersistentVolumeClaim");
        or(it, "apiVersion", "v1");
        volume::claim(it);
    });
    pod::template(part(spec, "template"));
}

pub(super) fn daemon_set(object: &mut Value) {
    let spec = part(object, "spec");
    or(spec, "revisionHistoryLimit", 10);
    let strategy = part(spec, "updateStrategy");
    or(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = part(strategy, "rollingUpdate");
        or(rolling, "maxUnavailable", 1);
        or(rolling, "maxSurge", 0);
    }
    pod::template(part(spec, "template"));
}

pub(super) fn job(object: &mut Value) {
    let spec = part(object, "spec");
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        or(spec, "completions", 1);
    }
    or(spec, "parallelism", 1);
    let limit = if spec["backoffLimitPerIndex"].is_null() { 6 } else { i32::MAX };
    or(spec, "backoffLimit", limit);
    or(spec, "completionMode", "NonIndexed");
    or(spec, "suspend", false);
    or(spec, "manualSelector", false);
    let replaced = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    or(spec, "podReplacementPolicy", replaced);
    within(spec, "podFailurePolicy", |it| {
        each(it, "rules", |it| each(it, "onPodConditions", |it| or(it, "status", "True")));
    });
    pod::template(part(spec, "template"));
    let labels = labels_of(&object["spec"]["template"]);
    labels_from(object, &labels);
}

pub(super) fn cron_job(object: &mut Value) {
    let spec = part(object, "spec");
    or(spec, "concurrencyPolicy", "Allow");
    or(spec, "suspend", false);
    or(spec, "successfulJobsHistoryLimit", 3);
    or(spec, "failedJobsHistoryLimit", 1);
    pod::template(part(part(part(spec, "jobTemplate"), "spec"), "template"));
}

fn labels_of(template: &Value) -> Map<String, Value> {
    template["metadata"]["labels"].as_object().cloned().unwrap_or_default()
}
