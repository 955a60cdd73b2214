//! Deployments and similar kinds: selectors, templates and rollouts.

use serde_json::{Value, json};

use super::{
    faults::{Faults, is_zero, selects},
    list, number, pod, text,
};
use crate::meta;

/// The messages about a selector, which differ between kinds.
#[derive(Clone, Copy, PartialEq)]
enum Words {
    Deployment,
    StatefulSet,
    DaemonSet,
}

pub(super) fn check_deployment(faults: &mut Faults, object: &Value) {
    let spec = &object["spec"];
    faults.check_not_negative(
        spec,
        "spec",
        &["replicas", "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"],
    );
    let deadline = &spec["progressDeadlineSeconds"];
    if deadline.is_i64() && number(spec, "progressDeadlineSeconds") <= number(spec, "minReadySeconds") {
        faults.add_invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds");
    }
    let strategy = &spec["strategy"];
    let rolling = &strategy["rollingUpdate"];
    match text(strategy, "type") {
        "RollingUpdate" => check_deployment_roll(faults, rolling),
        "Recreate" if rolling.is_null() => {}
        "Recreate" => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            faults.add_forbidden("spec.strategy.rollingUpdate", why);
        }
        other => {
            let shown = json_in_order(&[("Type", json!(other)), ("RollingUpdate", rolling.clone())]);
            let supported = r#""Recreate", "RollingUpdate""#;
            let message = format!("Unsupported value: {shown}: supported values: {supported}");
            faults.add("FieldValueNotSupported", "spec.strategy", message);
        }
    }
    check_selector_and_template(faults, spec, Words::Deployment, "ReplicaSet");
}

/// An object as Go prints it, with its fields in the order of the type.
fn json_in_order(fields: &[(&str, Value)]) -> String {
    let fields: Vec<String> = fields.iter().map(|(field, value)| format!("{field:?}:{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

fn check_deployment_roll(faults: &mut Faults, rolling: &Value) {
    const UNAVAILABLE: &str = "spec.strategy.rollingUpdate.maxUnavailable";
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    faults.check_quantity(unavailable, UNAVAILABLE);
    faults.check_quantity(surge, "spec.strategy.rollingUpdate.maxSurge");
    if is_zero(unavailable) && is_zero(surge) {
        faults.add_invalid(UNAVAILABLE, unavailable, "may not be 0 when `maxSurge` is 0");
    }
    faults.check_percentage(unavailable, UNAVAILABLE);
}

pub(super) fn check_replica_set(faults: &mut Faults, object: &Value) {
    let spec = &object["spec"];
    faults.check_not_negative(spec, "spec", &["replicas", "minReadySeconds"]);
    check_selector_and_template(faults, spec, Words::Deployment, "ReplicaSet");
}

pub(super) fn check_replication_controller(faults: &mut Faults, object: &Value) {
    let spec = &object["spec"];
    faults.check_not_negative(spec, "spec", &["minReadySeconds"]);
    let wanted = spec["selector"].as_object().filter(|it| !it.is_empty());
    if wanted.is_none() {
        faults.add_required("spec.selector", "");
    }
    faults.check_not_negative(spec, "spec", &["replicas"]);
    let template = &spec["template"];
    if template.is_null() {
        return faults.add_required("spec.template", "");
    }
    let labels = &template["metadata"]["labels"];
    if wanted.is_some_and(|it| !it.iter().all(|(key, value)| labels.get(key) == Some(value))) {
        faults.add_invalid("spec.template.metadata.labels", labels, MISMATCH);
    }
    pod::check_template(faults, template, "spec.template");
    check_restart_policy(faults, template);
    if !template["spec"]["activeDeadlineSeconds"].is_null() {
        let why = "activeDeadlineSeconds in ReplicationController is not Supported";
        faults.add_forbidden("spec.template.spec.activeDeadlineSeconds", why);
    }
}

pub(super) fn check_stateful_set(faults: &mut Faults, object: &Value) {
    const STRATEGY: &str = "spec.updateStrategy";
    let spec = &object["spec"];
    let strategy = &spec["updateStrategy"];
    let rolling = &strategy["rollingUpdate"];
    match text(spec, "podManagementPolicy") {
        "OrderedReady" | "Parallel" => {}
        "" => faults.add_required("spec.podManagementPolicy", ""),
        other => faults.add_invalid("spec.podManagementPolicy", &json!(other), "must be 'OrderedReady' or 'Parallel'"),
    }
    match text(strategy, "type") {
        "OnDelete" if rolling.is_null() => {}
        "OnDelete" => {
            let shown = json_in_order(&[
                ("Partition", json!(number(rolling, "partition"))),
                ("MaxUnavailable", rolling["maxUnavailable"].clone()),
            ]);
            faults.add_wrong(
                format!("{STRATEGY}.rollingUpdate"),
                &format!("{shown}: only allowed for updateStrategy 'RollingUpdate'"),
            );
        }
        "RollingUpdate" => faults.check_not_negative(rolling, "spec.updateStrategy.rollingUpdate", &["partition"]),
        other => {
            let shown = json_in_order(&[("Type", json!(other)), ("RollingUpdate", rolling.clone())]);
            faults.add_wrong(STRATEGY, &format!("{shown}: must be 'RollingUpdate' or 'OnDelete'"));
        }
    }
    let retention = &spec["persistentVolumeClaimRetentionPolicy"];
    for field in ["whenDeleted", "whenScaled"] {
        let path = format!("spec.persistentVolumeClaimRetentionPolicy.{field}");
        faults.check_one_of(retention, field, &path, &["Retain", "Delete"]);
    }
    faults.check_not_negative(&spec["ordinals"], "spec.ordinals", &["start"]);
    faults.check_not_negative(spec, "spec", &["replicas", "minReadySeconds"]);
    let service = text(spec, "serviceName");
    if !service.is_empty() {
        faults.check_label_name(service, "spec.serviceName");
    }
    check_selector_and_template(faults, spec, Words::StatefulSet, "StatefulSet");
}

pub(super) fn check_stateful_set_change(faults: &mut Faults, old: &Value, new: &Value) {
    const MUTABLE: [&str; 7] = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let rest = |object: &Value| {
        let mut spec = object["spec"].clone();
        meta::as_map(&mut spec).retain(|field, _| !MUTABLE.contains(&field.as_str()));
        spec
    };
    if rest(old) != rest(new) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        faults.add_forbidden("spec", why);
    }
}

pub(super) fn check_daemon_set(faults: &mut Faults, object: &Value) {
    let spec = &object["spec"];
    faults.check_not_negative(spec, "spec", &["minReadySeconds", "revisionHistoryLimit"]);
    let strategy = &spec["updateStrategy"];
    match text(strategy, "type") {
        "OnDelete" => {}
        "RollingUpdate" => check_daemon_roll(faults, &strategy["rollingUpdate"]),
        other => {
            let shown = json_in_order(&[("Type", json!(other)), ("RollingUpdate", strategy["rollingUpdate"].clone())]);
            let message = format!(r#"Unsupported value: {shown}: supported values: "RollingUpdate", "OnDelete""#);
            faults.add("FieldValueNotSupported", "spec.updateStrategy", message);
        }
    }
    check_selector_and_template(faults, spec, Words::DaemonSet, "DaemonSet");
}

fn check_daemon_roll(faults: &mut Faults, rolling: &Value) {
    const UNAVAILABLE: &str = "spec.updateStrategy.rollingUpdate.maxUnavailable";
    const SURGE: &str = "spec.updateStrategy.rollingUpdate.maxSurge";
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    faults.check_quantity(unavailable, UNAVAILABLE);
    faults.check_quantity(surge, SURGE);
    faults.check_percentage(unavailable, UNAVAILABLE);
    faults.check_percentage(surge, SURGE);
    match (is_zero(unavailable), is_zero(surge)) {
        (true, true) => faults.add_required(UNAVAILABLE, "cannot be 0 when maxSurge is 0"),
        (false, false) => faults.add_invalid(SURGE, surge, "may not be set when maxUnavailable is non-zero"),
        _ => {}
    }
}

const MISMATCH: &str = "`selector` does not match template `labels`";

fn check_selector_and_template(faults: &mut Faults, spec: &Value, words: Words, kind: &str) {
    let (selector, template) = (&spec["selector"], &spec["template"]);
    let empty = selector.is_object() && list(selector, "matchExpressions").is_empty() && {
        selector["matchLabels"].as_object().is_none_or(serde_json::Map::is_empty)
    };
    let mut well_formed = true;
    if selector.is_null() {
        if words != Words::DaemonSet {
            faults.add_required("spec.selector", "");
        }
    } else {
        well_formed = faults.check_selector(selector, "spec.selector");
        if empty {
            let name = match words {
                Words::Deployment => "deployment",
                Words::StatefulSet => "statefulset",
                Words::DaemonSet => "daemonset",
            };
            faults.add_invalid("spec.selector", selector, &format!("empty selector is invalid for {name}"));
        }
        match words {
            Words::Deployment if !well_formed => {
                faults.add_invalid("spec.selector", selector, "invalid label selector")
            }
            Words::StatefulSet if !well_formed => faults.add_wrong("spec.selector", &selector.to_string()),
            _ => {}
        }
    }
    let labels = &template["metadata"]["labels"];
    if well_formed && !empty && !selects(selector, labels) {
        faults.add_invalid("spec.template.metadata.labels", labels, MISMATCH);
    }
    pod::check_template(faults, template, "spec.template");
    check_restart_policy(faults, template);
    if !template["spec"]["activeDeadlineSeconds"].is_null() {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        faults.add_forbidden("spec.template.spec.activeDeadlineSeconds", &why);
    }
}

fn check_restart_policy(faults: &mut Faults, template: &Value) {
    faults.check_one_of(&template["spec"], "restartPolicy", "spec.template.spec.restartPolicy", &["Always"]);
}

pub(super) fn check_revision(faults: &mut Faults, object: &Value) {
    faults.check_not_negative(object, "", &["revision"]);
    match &object["data"] {
        Value::Null => faults.add_required("data", "data is mandatory"),
        Value::Object(_) => {}
        _ => faults.add_required("data", "data must be a valid JSON object"),
    }
}
