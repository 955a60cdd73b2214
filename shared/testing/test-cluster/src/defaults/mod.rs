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
        kinds::PODS => pod::fill_pod(object),
        kinds::POD_TEMPLATES => visit_map(object, "template", pod::fill_template),
        kinds::DEPLOYMENTS => workload::fill_deployment(object),
        kinds::REPLICA_SETS => workload::fill_replica_set(object),
        kinds::REPLICATION_CONTROLLERS => workload::fill_replication_controller(object),
        kinds::STATEFUL_SETS => workload::fill_stateful_set(object),
        kinds::DAEMON_SETS => workload::fill_daemon_set(object),
        kinds::JOBS => workload::fill_job(object),
        kinds::CRON_JOBS => workload::fill_cron_job(object),
        kinds::SECRETS => fill_secret(object),
        kinds::SERVICES => fill_service(object),
        kinds::NODES => fill_node(object),
        kinds::VOLUME_CLAIMS => volume::fill_claim(object),
        kinds::VOLUMES => volume::fill_volume(object),
        kinds::AUTOSCALERS => fill_autoscaler(object),
        kinds::LIMIT_RANGES => visit_map(object, "spec", |it| visit_list(it, "limits", fill_limit)),
        kinds::ENDPOINTS => visit_list(object, "subsets", |it| visit_list(it, "ports", fill_protocol)),
        kinds::ENDPOINT_SLICES => visit_list(object, "ports", |it| {
            set_default(it, "name", "");
            fill_protocol(it);
        }),
        kinds::STORAGE_CLASSES => {
            set_default(object, "reclaimPolicy", "Delete");
            set_default(object, "volumeBindingMode", "Immediate");
        }
        kinds::PRIORITY_CLASSES => set_default(object, "preemptionPolicy", "PreemptLowerPriority"),
        kinds::ROLE_BINDINGS | kinds::CLUSTER_ROLE_BINDINGS => fill_binding(object),
        kinds::API_SERVICES => {
            visit_map(object, "spec", |it| visit_map(it, "service", |it| set_default(it, "port", 443)))
        }
        _ => {}
    }
}

/// Sets a field if it is missing, null, the empty text or zero.
fn set_default(parent: &mut Value, field: &str, value: impl Into<Value>) {
    let slot = meta::as_map(parent).entry(field).or_insert(Value::Null);
    if slot.is_null() || slot == "" {
        *slot = value.into();
    }
}

/// Visits the maps in the list `field`, if it exists.
fn visit_list(parent: &mut Value, field: &str, visit: impl FnMut(&mut Value)) {
    if let Some(Value::Array(list)) = parent.get_mut(field) {
        list.iter_mut().filter(|it| it.is_object()).for_each(visit);
    }
}

/// Visits the map `field`, if it exists.
fn visit_map(parent: &mut Value, field: &str, visit: impl FnOnce(&mut Value)) {
    if let Some(it) = parent.get_mut(field).filter(|it| it.is_object()) {
        visit(it);
    }
}

/// The field as a map; created empty if it is missing.
fn ensure_map<'a>(parent: &'a mut Value, field: &str) -> &'a mut Value {
    let slot = meta::as_map(parent).entry(field).or_insert(Value::Null);
    meta::as_map(slot);
    slot
}

fn fill_protocol(port: &mut Value) {
    set_default(port, "protocol", "TCP");
}

fn fill_secret(object: &mut Value) {
    set_default(object, "type", "Opaque");
    let Some(texts) = meta::as_map(object).remove("stringData") else { return };
    for (key, text) in texts.as_object().into_iter().flatten() {
        meta::map(object, "data")
            .insert(key.clone(), STANDARD.encode(text.as_str().unwrap_or_default().as_bytes()).into());
    }
}

fn fill_service(object: &mut Value) {
    let spec = ensure_map(object, "spec");
    set_default(spec, "type", "ClusterIP");
    set_default(spec, "sessionAffinity", "None");
    if spec["sessionAffinity"] == "ClientIP" {
        set_default(ensure_map(ensure_map(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", 10_800);
    }
    let of = spec["type"].as_str().unwrap_or_default().to_owned();
    if matches!(of.as_str(), "NodePort" | "LoadBalancer") {
        set_default(spec, "externalTrafficPolicy", "Cluster");
    }
    if of != "ExternalName" {
        set_default(spec, "internalTrafficPolicy", "Cluster");
    }
    if of == "LoadBalancer" {
        set_default(spec, "allocateLoadBalancerNodePorts", true);
    }
    visit_list(spec, "ports", |port| {
        fill_protocol(port);
        let number = port["port"].clone();
        if port["targetPort"] == 0 {
            meta::as_map(port).remove("targetPort");
        }
        set_default(port, "targetPort", number);
    });
}

fn fill_node(object: &mut Value) {
    let capacity = object["status"]["capacity"].clone();
    if capacity.is_object() {
        set_default(ensure_map(object, "status"), "allocatable", capacity);
    }
    let (one, many) = (object["spec"]["podCIDR"].clone(), object["spec"]["podCIDRs"].clone());
    if many.is_null() && one.as_str().is_some_and(|it| !it.is_empty()) {
        ensure_map(object, "spec")["podCIDRs"] = json!([one]);
    } else if one.is_null() && many[0].is_string() {
        ensure_map(object, "spec")["podCIDR"] = many[0].clone();
    }
}

fn fill_limit(item: &mut Value) {
    if item["type"] != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let given = item[from].as_object().cloned().unwrap_or_default();
        for (resource, amount) in given {
            set_default(ensure_map(item, to), &resource, amount);
        }
    }
}

fn fill_binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    set_default(ensure_map(object, "roleRef"), "apiGroup", GROUP);
    visit_list(object, "subjects", |subject| {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            set_default(subject, "apiGroup", GROUP);
        }
    });
}

fn fill_autoscaler(object: &mut Value) {
    let spec = ensure_map(object, "spec");
    set_default(spec, "minReplicas", 1);
    if spec["metrics"].as_array().is_none_or(Vec::is_empty) {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        spec["metrics"] = json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]);
    }
    visit_map(spec, "behavior", |behavior| {
        let percent = json!({ "type": "Percent", "value": 100, "periodSeconds": 15 });
        let pods = json!({ "type": "Pods", "value": 4, "periodSeconds": 15 });
        let up = ensure_map(behavior, "scaleUp");
        set_default(up, "stabilizationWindowSeconds", 0);
        set_default(up, "selectPolicy", "Max");
        set_default(up, "policies", json!([pods, percent]));
        let down = ensure_map(behavior, "scaleDown");
        set_default(down, "selectPolicy", "Max");
        set_default(down, "policies", json!([percent]));
    });
}

/// Sets the labels if there are none.
fn fill_labels(object: &mut Value, labels: &Map<String, Value>) {
    let has = object["metadata"]["labels"].as_object().is_some_and(|it| !it.is_empty());
    if !has && !labels.is_empty() {
        meta::set(object, "labels", labels.clone());
    }
}
