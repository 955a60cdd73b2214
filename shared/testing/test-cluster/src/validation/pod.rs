//! Pods and pod templates: containers, volumes, tolerations.

use serde_json::{Value, json};

use super::{
    faults::{Faults, LABEL, SUBDOMAIN, is_label, is_subdomain},
    list, text,
};
use crate::canonical;

const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

pub(super) fn check_pod(faults: &mut Faults, object: &Value) {
    check_pod_spec(faults, &object["spec"], "spec");
}

/// Rules for new pods only.
pub(super) fn check_new_pod(faults: &mut Faults, object: &Value) {
    let spec = &object["spec"];
    if !list(spec, "schedulingGates").is_empty() && !text(spec, "nodeName").is_empty() {
        faults.add_forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared");
    }
    if !list(spec, "ephemeralContainers").is_empty() {
        faults.add_forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
}

pub(super) fn check_template(faults: &mut Faults, template: &Value, path: &str) {
    let spec = &template["spec"];
    let metadata = &template["metadata"];
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let path = format!("{path}.labels");
        if value.len() > 63 {
            faults.add_invalid(path, &json!(value), "must be no more than 63 bytes");
        } else {
            faults.check_qualified_name(key, &path);
            faults.check_label_value(value, &path);
        }
    }
    check_pod_spec(faults, spec, &format!("{path}.spec"));
    if !list(spec, "ephemeralContainers").is_empty() {
        let why = "ephemeral containers not allowed in pod template";
        faults.add_forbidden(format!("{path}.spec.ephemeralContainers"), why);
    }
}

fn check_pod_spec(faults: &mut Faults, spec: &Value, path: &str) {
    let volumes = check_volumes(faults, spec, path);
    check_containers(faults, spec, path, &volumes);
    faults.check_one_of(spec, "restartPolicy", &format!("{path}.restartPolicy"), &POLICIES);
    let dns = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    faults.check_one_of(spec, "dnsPolicy", &format!("{path}.dnsPolicy"), &dns);
    faults.check_labels(&spec["nodeSelector"], &format!("{path}.nodeSelector"));
    if let Some(seconds) = spec["activeDeadlineSeconds"].as_i64().filter(|it| !(1..=2_147_483_647).contains(it)) {
        let why = "must be between 1 and 2147483647, inclusive";
        faults.add_invalid(format!("{path}.activeDeadlineSeconds"), &json!(seconds), why);
    }
    for (field, legal, why) in [
        ("hostname", is_label as fn(&str) -> bool, LABEL),
        ("subdomain", is_label, LABEL),
        ("nodeName", is_subdomain, SUBDOMAIN),
        ("serviceAccountName", is_subdomain, SUBDOMAIN),
        ("priorityClassName", is_subdomain, SUBDOMAIN),
    ] {
        let name = text(spec, field);
        if !name.is_empty() && !legal(name) {
            faults.add_invalid(format!("{path}.{field}"), &json!(name), why);
        }
    }
    for (at, toleration) in list(spec, "tolerations").iter().enumerate() {
        check_toleration(faults, toleration, &format!("{path}.tolerations[{at}]"));
    }
    let mut gates = Vec::new();
    for (at, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let (name, path) = (text(gate, "name"), format!("{path}.schedulingGates[{at}]"));
        faults.check_qualified_name(name, &path);
        if gates.contains(&name) {
            faults.add_duplicate(path, gate);
        }
        gates.push(name);
    }
}

fn check_volumes<'a>(faults: &mut Faults, spec: &'a Value, path: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (at, volume) in list(spec, "volumes").iter().enumerate() {
        let (name, path) = (text(volume, "name"), format!("{path}.volumes[{at}].name"));
        if name.is_empty() {
            faults.add_required(path, "");
            continue;
        }
        faults.check_label_name(name, &path);
        if names.contains(&name) {
            faults.add_duplicate(path, &json!(name));
        }
        names.push(name);
    }
    names
}

fn check_containers(faults: &mut Faults, spec: &Value, path: &str, volumes: &[&str]) {
    let regular = list(spec, "containers");
    if regular.is_empty() {
        faults.add_required(format!("{path}.containers"), "");
    }
    let mut names = Vec::new();
    for (at, it) in regular.iter().enumerate() {
        check_container(faults, it, &format!("{path}.containers[{at}]"), volumes, &mut names);
    }
    for (at, it) in list(spec, "initContainers").iter().enumerate() {
        let path = format!("{path}.initContainers[{at}]");
        check_container(faults, it, &path, volumes, &mut names);
        faults.check_one_of(it, "restartPolicy", &format!("{path}.restartPolicy"), &["Always", "Never", "OnFailure"]);
    }
}

fn check_container<'a>(faults: &mut Faults, it: &'a Value, path: &str, volumes: &[&str], names: &mut Vec<&'a str>) {
    let name = text(it, "name");
    if name.is_empty() {
        faults.add_required(format!("{path}.name"), "");
    } else {
        faults.check_label_name(name, &format!("{path}.name"));
        if names.contains(&name) {
            faults.add_duplicate(format!("{path}.name"), &json!(name));
        }
        names.push(name);
    }
    if text(it, "image").is_empty() {
        faults.add_required(format!("{path}.image"), "");
    }
    let pulls = ["Always", "IfNotPresent", "Never"];
    faults.check_one_of(it, "imagePullPolicy", &format!("{path}.imagePullPolicy"), &pulls);
    for (at, port) in list(it, "ports").iter().enumerate() {
        let path = format!("{path}.ports[{at}]");
        match super::number(port, "containerPort") {
            0 => faults.add_required(format!("{path}.containerPort"), ""),
            number => check_port_number(faults, number, &format!("{path}.containerPort")),
        }
        faults.check_one_of(port, "protocol", &format!("{path}.protocol"), &["SCTP", "TCP", "UDP"]);
    }
    for (at, variable) in list(it, "env").iter().enumerate() {
        if text(variable, "name").is_empty() {
            faults.add_required(format!("{path}.env[{at}].name"), "");
        }
    }
    for (at, mount) in list(it, "volumeMounts").iter().enumerate() {
        let (volume, path) = (text(mount, "name"), format!("{path}.volumeMounts[{at}]"));
        if !volumes.contains(&volume) {
            faults.add("FieldValueNotFound", format!("{path}.name"), format!("Not found: {volume:?}"));
        }
        if text(mount, "mountPath").is_empty() {
            faults.add_required(format!("{path}.mountPath"), "");
        }
    }
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        check_probe(faults, &it[field], &format!("{path}.{field}"));
    }
    check_resources(faults, &it["resources"], &format!("{path}.resources"));
}

pub(super) fn check_port_number(faults: &mut Faults, number: i64, path: &str) {
    if !(1..=65535).contains(&number) {
        faults.add_invalid(path, &json!(number), "must be between 1 and 65535, inclusive");
    }
}

fn check_probe(faults: &mut Faults, probe: &Value, path: &str) {
    if !probe.is_object() {
        return;
    }
    if ["exec", "httpGet", "tcpSocket", "grpc"].iter().all(|it| probe[*it].is_null()) {
        faults.add_required(path, "must specify a handler type");
    }
    let fields = ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"];
    faults.check_not_negative(probe, path, &fields);
}

fn check_resources(faults: &mut Faults, resources: &Value, path: &str) {
    for list in ["limits", "requests"] {
        for (resource, amount) in resources[list].as_object().into_iter().flatten() {
            if amount.as_str().is_some_and(|it| it.starts_with('-')) {
                faults.add_invalid(format!("{path}.{list}[{resource}]"), amount, "must be greater than or equal to 0");
            }
        }
    }
    for (resource, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][resource];
        let (Some(asked), Some(allowed)) = (amount(request), amount(limit)) else { continue };
        if asked > allowed {
            let why =
                format!("must be less than or equal to {resource} limit of {}", limit.as_str().unwrap_or_default());
            faults.add_invalid(format!("{path}.requests"), request, &why);
        }
    }
}

/// A quantity as a number for comparisons, in billionths.
pub(super) fn amount(quantity: &Value) -> Option<i128> {
    canonical::amount(quantity.as_str()?)
}

pub(super) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

fn check_toleration(faults: &mut Faults, toleration: &Value, path: &str) {
    let (key, operator, value) = (text(toleration, "key"), text(toleration, "operator"), text(toleration, "value"));
    if !key.is_empty() {
        faults.check_qualified_name(key, &format!("{path}.key"));
    }
    let field = format!("{path}.operator");
    if key.is_empty() && operator != "Exists" {
        let why = r#"operator must be Exists when `key` is empty, which means "match all values and all keys""#;
        faults.add_invalid(field.clone(), &json!(operator), why);
    }
    if !toleration["tolerationSeconds"].is_null() && text(toleration, "effect") != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        faults.add_invalid(format!("{path}.effect"), &json!(text(toleration, "effect")), why);
    }
    match operator {
        "" | "Equal" => faults.check_label_value(value, &field),
        "Exists" if value.is_empty() => {}
        "Exists" => faults.add_invalid(field, &json!(value), "value must be empty when `operator` is 'Exists'"),
        other => faults.add_unsupported(field, &json!(other), &["Equal", "Exists"]),
    }
    if !text(toleration, "effect").is_empty() {
        faults.check_one_of(toleration, "effect", &format!("{path}.effect"), &EFFECTS);
    }
}
