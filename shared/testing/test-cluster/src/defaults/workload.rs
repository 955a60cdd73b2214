//! Kinds with a pod template.

use serde_json::{Map, Value, json};

use super::{ensure_map, fill_labels, pod, set_default, visit_list, visit_map, volume};

pub(super) fn fill_deployment(object: &mut Value) {
    let spec = ensure_map(object, "spec");
    set_default(spec, "replicas", 1);
    set_default(spec, "revisionHistoryLimit", 10);
    set_default(spec, "progressDeadlineSeconds", 600);
    let strategy = ensure_map(spec, "strategy");
    set_default(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = ensure_map(strategy, "rollingUpdate");
        set_default(rolling, "maxUnavailable", "25%");
        set_default(rolling, "maxSurge", "25%");
    }
    pod::fill_template(ensure_map(spec, "template"));
}

pub(super) fn fill_replica_set(object: &mut Value) {
    let spec = ensure_map(object, "spec");
    set_default(spec, "replicas", 1);
    if !spec["template"].is_null() {
        pod::fill_template(ensure_map(spec, "template"));
    }
}

pub(super) fn fill_replication_controller(object: &mut Value) {
    let labels = labels_of(&object["spec"]["template"]);
    let spec = ensure_map(object, "spec");
    set_default(spec, "replicas", 1);
    if spec["selector"].as_object().is_none_or(Map::is_empty) && !labels.is_empty() {
        spec["selector"] = Value::Object(labels.clone());
    }
    visit_map(spec, "template", pod::fill_template);
    fill_labels(object, &labels);
}

pub(super) fn fill_stateful_set(object: &mut Value) {
    let spec = ensure_map(object, "spec");
    set_default(spec, "replicas", 1);
    set_default(spec, "podManagementPolicy", "OrderedReady");
    set_default(spec, "revisionHistoryLimit", 10);
    let strategy = ensure_map(spec, "updateStrategy");
    if strategy["type"].is_null() || strategy["type"] == "" {
        strategy["type"] = json!("RollingUpdate");
        ensure_map(strategy, "rollingUpdate");
    }
    if strategy["type"] == "RollingUpdate" {
        visit_map(strategy, "rollingUpdate", |it| set_default(it, "partition", 0));
    }
    let retention = ensure_map(spec, "persistentVolumeClaimRetentionPolicy");
    set_default(retention, "whenDeleted", "Retain");
    set_default(retention, "whenScaled", "Retain");
    visit_list(spec, "volumeClaimTemplates", |it| {
        set_default(it, "kind", "PersistentVolumeClaim");
        set_default(it, "apiVersion", "v1");
        volume::fill_claim(it);
    });
    pod::fill_template(ensure_map(spec, "template"));
}

pub(super) fn fill_daemon_set(object: &mut Value) {
    let spec = ensure_map(object, "spec");
    set_default(spec, "revisionHistoryLimit", 10);
    let strategy = ensure_map(spec, "updateStrategy");
    set_default(strategy, "type", "RollingUpdate");
    if strategy["type"] == "RollingUpdate" {
        let rolling = ensure_map(strategy, "rollingUpdate");
        set_default(rolling, "maxUnavailable", 1);
        set_default(rolling, "maxSurge", 0);
    }
    pod::fill_template(ensure_map(spec, "template"));
}

pub(super) fn fill_job(object: &mut Value) {
    let spec = ensure_map(object, "spec");
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        set_default(spec, "completions", 1);
    }
    set_default(spec, "parallelism", 1);
    let limit = if spec["backoffLimitPerIndex"].is_null() { 6 } else { i32::MAX };
    set_default(spec, "backoffLimit", limit);
    set_default(spec, "completionMode", "NonIndexed");
    set_default(spec, "suspend", false);
    set_default(spec, "manualSelector", false);
    let replaced = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    set_default(spec, "podReplacementPolicy", replaced);
    visit_map(spec, "podFailurePolicy", |it| {
        visit_list(it, "rules", |it| visit_list(it, "onPodConditions", |it| set_default(it, "status", "True")));
    });
    pod::fill_template(ensure_map(spec, "template"));
    let labels = labels_of(&object["spec"]["template"]);
    fill_labels(object, &labels);
}

pub(super) fn fill_cron_job(object: &mut Value) {
    let spec = ensure_map(object, "spec");
    set_default(spec, "concurrencyPolicy", "Allow");
    set_default(spec, "suspend", false);
    set_default(spec, "successfulJobsHistoryLimit", 3);
    set_default(spec, "failedJobsHistoryLimit", 1);
    pod::fill_template(ensure_map(ensure_map(ensure_map(spec, "jobTemplate"), "spec"), "template"));
}

fn labels_of(template: &Value) -> Map<String, Value> {
    template["metadata"]["labels"].as_object().cloned().unwrap_or_default()
}
