//! Default values, set at every write.

mod pod;
mod volume;
mod workload;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::{
    kinds::{self, Kind},
    meta,
};

/// Sets the defaults of this kind. Fields with a value stay.
pub(crate) fn fill(kind: &Kind, object: &mut Value) {
    match kind.table.as_str() {
        kinds::PODS => pod::pod(object),
        kinds::POD_TEMPLATES => within(object, "template", pod::template),
        kinds::DEPLOYMENTS => workload::deployment(object),
        kinds::REPLICA_SETS => workload::replica_set(object),
        kinds::REPLICATION_CONTROLLERS => workload::replication_controller(object),
        kinds::STATEFUL_SETS => workload::stateful_set(object),
        kinds::DAEMON_SETS => workload::daemon_set(object),
        kinds::JOBS => workload::job(object),
        kinds::CRON_JOBS => workload::cron_job(object),
        kinds::SECRETS => secret(object),
        kinds::SERVICES => service(object),
        kinds::NODES => node(object),
        kinds::VOLUME_CLAIMS => volume::claim(object),
        kinds::VOLUMES => volume::volume(object),
        kinds::AUTOSCALERS => autoscaler(object),
        kinds::LIMIT_RANGES => within(object, "spec", |it| each(it, "limits", limit)),
        kinds::ENDPOINTS => each(object, "subsets", |it| each(it, "ports", protocol)),
        kinds::ENDPOINT_SLICES => each(object, "ports", |it| {
            or(it, "name", "");
            protocol(it);
        }),
        kinds::STORAGE_CLASSES => {
            or(object, "reclaimPolicy", "Delete");
            or(object, "volumeBindingMode", "Immediate");
        }
        kinds::PRIORITY_CLASSES => or(object, "preemptionPolicy", "PreemptLowerPriority"),
        kinds::ROLE_BINDINGS | kinds::CLUSTER_ROLE_BINDINGS => binding(object),
        kinds::API_SERVICES => within(object, "spec", |it| within(it, "service", |it| or(it, "port", 443))),
        _ => {}
    }
}

/// Sets a field if it is missing, null, the empty text or zero.
fn or(parent: &mut Value, field: &str, value: impl Into<Value>) {
    let slot = meta::as_map(parent).entry(field).or_insert(Value::Null);
    if slot.is_null() || slot == "" {
        *slot = value.into();
    }
}

/// Visits the maps in the list `field`, if it exists.
fn each(parent: &mut Value, field: &str, visit: impl FnMut(&mut Value)) {
    if let Some(Value::Array(list)) = parent.get_mut(field) {
        list.iter_mut().filter(|it| it.is_object()).for_each(visit);
    }
}

/// Visits the map `field`, if it exists.
fn within(parent: &mut Value, field: &str, visit: impl FnOnce(&mut Value)) {
    if let Some(it) = parent.get_mut(field).filter(|it| it.is_object()) {
        visit(it);
    }
}

/// The field as a map; created empty if it is missing.
fn part<'a>(parent: &'a mut Value, field: &str) -> &'a mut Value {
    let slot = meta::as_map(parent).entry(field).or_insert(Value::Null);
    meta::as_map(slot);
    slot
}

fn protocol(port: &mut Value) {
    or(port, "protocol", "TCP");
}

fn secret(object: &mut Value) {
    or(object, "type", "Opaque");
    let Some(texts) = meta::as_map(object).remove("stringData") else { return };
    for (key, text) in texts.as_object().into_iter().flatten() {
        meta::map(object, "data")
            .insert(key.clone(), STANDARD.encode(text.as_str().unwrap_or_default().as_bytes()).into());
    }
}

fn service(object: &mut Value) {
    let spec = part(object, "spec");
    or(spec, "type", "ClusterIP");
    or(spec, "sessionAffinity", "None");
    if spec["sessionAffinity"] == "ClientIP" {
        or(part(part(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", 10_800);
    }
    let of = spec["type"].as_str().unwrap_or_default().to_owned();
    if matches!(of.as_str(), "NodePort" | "LoadBalancer") {
        or(spec, "externalTrafficPolicy", "Cluster");
    }
    if of != "ExternalName" {
        or(spec, "internalTrafficPolicy", "Cluster");
    }
    if of == "LoadBalancer" {
        or(spec, "allocateLoadBalancerNodePorts", true);
    }
    each(spec, "ports", |port| {
        protocol(port);
        let number = port["port"].clone();
        if port["targetPort"] == 0 {
            meta::as_map(port).remove("targetPort");
        }
        or(port, "targetPort", number);
    });
}

fn node(object: &mut Value) {
    let capacity = object["status"]["capacity"].clone();
    if capacity.is_object() {
        or(part(object, "status"), "allocatable", capacity);
    }
    let (one, many) = (object["spec"]["podCIDR"].clone(), object["spec"]["podCIDRs"].clone());
    if many.is_null() && one.as_str().is_some_and(|it| !it.is_empty()) {
        part(object, "spec")["podCIDRs"] = json!([one]);
    } else if one.is_null() && many[0].is_string() {
        part(object, "spec")["podCIDR"] = many[0].clone();
    }
}

fn limit(item: &mut Value) {
    if item["type"] != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let given = item[from].as_object().cloned().unwrap_or_default();
        for (resource, amount) in given {
            or(part(item, to), &resource, amount);
        }
    }
}

fn binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    or(part(object, "roleRef"), "apiGroup", GROUP);
    each(object, "subjects", |subject| {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            or(subject, "apiGroup", GROUP);
        }
    });
}

fn autoscaler(object: &mut Value) {
    let spec = part(object, "spec");
    or(spec, "minReplicas", 1);
    if spec["metrics"].as_array().is_none_or(Vec::is_empty) {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        spec["metrics"] = json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]);
    }
    within(spec, "behavior", |behavior| {
        let percent = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
        let pods = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
        let up = part(behavior, "scaleUp");
        or(up, "stabilizationWindowSeconds", 0);
        or(up, "selectPolicy", "Max");
        or(up, "policies", json!([pods, percent]));
        let down = part(behavior, "scaleDown");
        or(down, "selectPolicy", "Max");
        or(down, "policies", json!([percent]));
    });
}

/// Sets the labels if there are none.
fn labels_from(object: &mut Value, labels: &Map<String, Value>) {
    let has = object["metadata"]["labels"].as_object().is_some_and(|it| !it.is_empty());
    if !has && !labels.is_empty() {
        meta::set(object, "labels", labels.clone());
    }
}
