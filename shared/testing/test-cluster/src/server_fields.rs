//! The fields that the server itself sets, at creation and at every change.

use clock::Timestamp;
use serde_json::{Value, json};

use crate::{
    decode, defaults,
    kinds::{self, Kind},
    meta, service_addresses,
    store::State,
    write::Part,
};

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Sets the fields of a new object. Its uid and its initial status are set already.
pub(crate) fn create(state: &mut State, kind: &Kind, object: &mut Value, now: Timestamp) {
    if kind.is(kinds::JOBS) {
        generate_selector(object);
    }
    defaults::fill(kind, object);
    match kind.table.as_str() {
        kinds::PODS => set_pod_status(object, now),
        kinds::DAEMON_SETS => meta::annotate(object, TEMPLATE_GENERATION, "1"),
        kinds::VOLUMES => {
            meta::map(object, "status").insert("lastPhaseTransitionTime".into(), meta::stamp(now).into());
        }
        kinds::SERVICES => allocate(state, object),
        _ => {}
    }
}

/// Sets the fields of a changed object. Fields that this request must not change are restored already.
pub(crate) fn update(state: &mut State, kind: &Kind, current: &Value, next: &mut Value, part: Part, now: Timestamp) {
    match (kind.table.as_str(), part) {
        (kinds::VOLUMES, Part::Status) => set_phase_time(current, next, now),
        (kinds::SERVICES, Part::Main) => keep_addresses(current, next),
        _ => {}
    }
    // These two kinds get the labels of their template again, even after a status update that removed them.
    if part == Part::Main || kind.is(kinds::JOBS) || kind.is(kinds::REPLICATION_CONTROLLERS) {
        defaults::fill(kind, next);
    }
    decode::complete(kind, next);
    if part != Part::Main {
        return;
    }
    match kind.table.as_str() {
        kinds::DAEMON_SETS => update_template_generation(current, next),
        kinds::SERVICES => allocate(state, next),
        _ => {}
    }
}

/// Unless `manualSelector` is set, a Job selects its pods by its uid, which its template gets as a label.
fn generate_selector(job: &mut Value) {
    const UID: &str = "batch.kubernetes.io/controller-uid";
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (meta::uid(job).to_owned(), meta::name(job).to_owned());
    let spec = meta::map(job, "spec");
    let template = spec.entry("template").or_insert_with(|| json!({}));
    let metadata = meta::map(template, "metadata");
    let labels = meta::as_map(metadata.entry("labels").or_insert_with(|| json!({})));
    // What the user has set stays; validation reports the conflict.
    for (label, value) in
        [(UID, &uid), ("controller-uid", &uid), ("batch.kubernetes.io/job-name", &name), ("job-name", &name)]
    {
        labels.entry(label).or_insert_with(|| value.as_str().into());
    }
    let selector = meta::as_map(spec.entry("selector").or_insert_with(|| json!({})));
    let matching = meta::as_map(selector.entry("matchLabels").or_insert_with(|| json!({})));
    matching.entry(UID).or_insert_with(|| uid.into());
}

fn set_pod_status(pod: &mut Value, now: Timestamp) {
    let class = qos_class(&pod["spec"]);
    let gated = pod["spec"]["schedulingGates"].as_array().is_some_and(|it| !it.is_empty());
    let status = meta::map(pod, "status");
    status.insert("qosClass".into(), class.into());
    if gated {
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": meta::stamp(now),
        });
        status.insert("conditions".into(), json!([condition]));
    }
}

/// The QoS class from requests and limits of cpu and memory.
fn qos_class(spec: &Value) -> &'static str {
    let amount = |of: &Value, resource: &str| {
        let amount = of[resource].as_str().filter(|it| it.bytes().any(|it| (b'1'..=b'9').contains(&it)));
        amount.map(str::to_owned)
    };
    let (mut any, mut all) = (false, true);
    let lists = ["containers", "initContainers"].map(|it| &spec[it]);
    for container in lists.into_iter().filter_map(Value::as_array).flatten() {
        let (requests, limits) = (&container["resources"]["requests"], &container["resources"]["limits"]);
        for resource in ["cpu", "memory"] {
            let (request, limit) = (amount(requests, resource), amount(limits, resource));
            any |= request.is_some() || limit.is_some();
            all &= limit.is_some() && request == limit;
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Counts changes of the template in an annotation, which only the server writes.
fn update_template_generation(current: &Value, next: &mut Value) {
    let count = current["metadata"]["annotations"][TEMPLATE_GENERATION].as_str();
    let count: i64 = count.and_then(|it| it.parse().ok()).unwrap_or(0);
    let changed = current["spec"]["template"] != next["spec"]["template"];
    meta::annotate(next, TEMPLATE_GENERATION, (count + i64::from(changed)).to_string());
}

fn set_phase_time(current: &Value, next: &mut Value, now: Timestamp) {
    const FIELD: &str = "lastPhaseTransitionTime";
    let moved = current["status"]["phase"] != next["status"]["phase"];
    if moved && (next["status"][FIELD].is_null() || next["status"][FIELD] == current["status"][FIELD]) {
        meta::map(next, "status").insert(FIELD.into(), meta::stamp(now).into());
    }
}

/// A Service keeps the addresses that it was given, unless the change sets others.
fn keep_addresses(current: &Value, next: &mut Value) {
    if next["spec"]["type"] == "ExternalName" || current["spec"]["type"] == "ExternalName" {
        return;
    }
    let spec = meta::map(next, "spec");
    let unset = |value: Option<&Value>| value.is_none_or(|it| it.is_null() || it == "");
    if unset(spec.get("clusterIP")) {
        for field in ["clusterIP", "clusterIPs"] {
            copy_field(&current["spec"], spec, field);
        }
    }
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if unset(spec.get(field)) {
            copy_field(&current["spec"], spec, field);
        }
    }
    let before = current["spec"]["ports"].as_array().cloned().unwrap_or_default();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let same = |it: &&Value| it["port"] == port["port"] && it["name"] == port["name"];
        if let Some(old) = before.iter().find(same).filter(|it| it["nodePort"].is_i64() && port["nodePort"].is_null()) {
            port["nodePort"] = old["nodePort"].clone();
        }
    }
}

fn copy_field(from: &Value, into: &mut serde_json::Map<String, Value>, field: &str) {
    if let Some(value) = from.get(field) {
        into.insert(field.to_owned(), value.clone());
    }
}

/// The next port that no Service has and that is not in `own`; `None` when all are in use.
fn free_port(state: &mut State, own: &[i64]) -> Option<u32> {
    for _ in 0..service_addresses::PORTS {
        let port = service_addresses::FIRST_PORT + state.next_address() % service_addresses::PORTS;
        if state.service_addresses.is_free(&port.to_string()) && !own.contains(&port.into()) {
            return Some(port);
        }
    }
    None
}

/// The next address that no Service has.
fn free_address(state: &mut State) -> String {
    loop {
        let [_, high, middle, low] = (state.next_address() + 1).to_be_bytes();
        let address = format!("10.{}.{middle}.{low}", 96 + (high & 15));
        if state.service_addresses.is_free(&address) {
            return address;
        }
    }
}

/// Allocates the addresses and ports that a Service lacks: increasing, and none of another Service.
fn allocate(state: &mut State, service: &mut Value) {
    let selects = service["spec"]["selector"].as_object().is_some_and(|it| !it.is_empty());
    let spec = meta::map(service, "spec");
    let of = spec.get("type").and_then(Value::as_str).unwrap_or("ClusterIP").to_owned();
    let ports = matches!(of.as_str(), "NodePort" | "LoadBalancer");
    let listed = spec.get("ports").and_then(Value::as_array).into_iter().flatten();
    let mut own: Vec<i64> = listed.filter_map(|it| it["nodePort"].as_i64()).collect();
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if !ports {
            meta::as_map(port).remove("nodePort");
        } else if port["nodePort"].as_i64().unwrap_or(0) == 0 {
            match free_port(state, &own) {
                Some(free) => {
                    port["nodePort"] = free.into();
                    own.push(free.into());
                }
                // The validation reports it.
                None => drop(meta::as_map(port).remove("nodePort")),
            }
        }
    }
    if of == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            spec.remove(field);
        }
        return;
    }
    let given = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let address = if given.is_empty() { free_address(state) } else { given };
    let alone = address == "None" && !selects;
    spec.entry("clusterIPs").or_insert_with(|| json!([address]));
    spec.insert("clusterIP".into(), address.into());
    let (families, policy) =
        if alone { (json!(["IPv4", "IPv6"]), "RequireDualStack") } else { (json!(["IPv4"]), "SingleStack") };
    spec.entry("ipFamilies").or_insert(families);
    spec.entry("ipFamilyPolicy").or_insert(policy.into());
}
