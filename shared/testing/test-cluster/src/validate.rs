use serde_json::{Value, json};

use crate::{
    Failure, apiservice, canonical, crd, kinds, kinds::Kind, meta, metadata, response::Fault, validation, write::Part,
};

/// Checks a new object.
///
/// # Errors
/// 422 that names every fault.
pub(crate) fn created(kind: &Kind, object: &Value) -> Result<(), Failure> {
    let mut faults = Vec::new();
    metadata::check_names(kind, object, &mut faults);
    check_common(kind, object, &mut faults);
    if kind.is(kinds::CRDS) {
        crd::check_served(object)?;
        crd::check(object, &mut faults);
    }
    if kind.is(kinds::API_SERVICES) {
        apiservice::check(object, &mut faults);
    }
    faults.extend(validation::created(kind, object));
    fail(kind, object, &faults)
}

/// Checks a changed object.
///
/// # Errors
/// 422 that names every fault.
pub(crate) fn updated(kind: &Kind, current: &Value, next: &Value, part: Part) -> Result<(), Failure> {
    let mut faults = Vec::new();
    for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let value = &next["metadata"][field];
        if *value != current["metadata"][field] {
            faults.push(Fault::invalid(format!("metadata.{field}"), value, "field is immutable"));
        }
    }
    if meta::is_deleting(current) {
        let old = meta::finalizers(current);
        let new: Vec<&str> = meta::finalizers(next).into_iter().filter(|it| !old.contains(it)).collect();
        if !new.is_empty() {
            let why = "no new finalizers can be added if the object is being deleted, found new finalizers []string";
            let quoted: Vec<String> = new.iter().map(|it| format!("{it:?}")).collect();
            faults.push(Fault::forbidden("metadata.finalizers", &format!("{why}{{{}}}", quoted.join(", "))));
        }
    }
    if kind.is(kinds::NAMESPACES) {
        check_phase(next, &mut faults);
    }
    check_common(kind, next, &mut faults);
    if kind.is(kinds::CRDS) && part == Part::Main {
        crd::check_served(next)?;
        crd::check_update(current, next, &mut faults);
    }
    if kind.is(kinds::API_SERVICES) && part == Part::Main {
        apiservice::check(next, &mut faults);
    }
    faults.extend(validation::updated(kind, current, next, part));
    fail(kind, next, &faults)
}

pub(crate) fn fail(kind: &Kind, object: &Value, faults: &[Fault]) -> Result<(), Failure> {
    if faults.is_empty() { Ok(()) } else { Err(Failure::invalid(kind, meta::name(object), faults)) }
}

fn check_common(kind: &Kind, object: &Value, faults: &mut Vec<Fault>) {
    metadata::check(kind, object, faults);
    match kind.table().as_str() {
        kinds::EVENTS => check_event(object, faults),
        kinds::LEASES => check_lease(object, faults),
        kinds::CONFIG_MAPS => check_size(object, "[]", faults),
        kinds::SECRETS => check_size(object, "data", faults),
        _ => {}
    }
}

fn check_event(object: &Value, faults: &mut Vec<Fault>) {
    let (own, other) = (meta::namespace(object), object["involvedObject"]["namespace"].as_str().unwrap_or_default());
    let modern = object["eventTime"].is_string();
    let cluster_scoped = other.is_empty() && (own == "default" || (modern && own == "kube-system"));
    if other != own && !cluster_scoped {
        faults.push(Fault::invalid("involvedObject.namespace", &json!(other), "does not match event.namespace"));
    }
}

/// The data of a ConfigMap or a Secret has at most one mebibyte.
fn check_size(object: &Value, field: &str, faults: &mut Vec<Fault>) {
    const MOST: usize = 1024 * 1024;
    let encoded = field == "data";
    let texts = |field: &str| object[field].as_object().into_iter().flatten().filter_map(|it| it.1.as_str());
    let plain: usize = if encoded { 0 } else { texts("data").map(str::len).sum() };
    let bytes: usize = texts(if encoded { "data" } else { "binaryData" }).map(canonical::decoded_len).sum();
    if plain + bytes > MOST {
        faults.push(Fault::too_long(field, MOST));
    }
}

fn check_lease(object: &Value, faults: &mut Vec<Fault>) {
    let spec = &object["spec"];
    if let Some(duration) = spec["leaseDurationSeconds"].as_i64().filter(|it| *it <= 0) {
        faults.push(Fault::invalid("spec.leaseDurationSeconds", &json!(duration), "must be greater than 0"));
    }
    if let Some(count) = spec["leaseTransitions"].as_i64().filter(|it| *it < 0) {
        faults.push(Fault::invalid("spec.leaseTransitions", &json!(count), "must be greater than or equal to 0"));
    }
}

fn check_phase(namespace: &Value, faults: &mut Vec<Fault>) {
    let phase = &namespace["status"]["phase"];
    let deleting = meta::is_deleting(namespace);
    if !deleting && !phase.is_null() && phase != "Active" {
        faults.push(Fault::invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty"));
    }
    if deleting && phase != "Terminating" {
        faults.push(Fault::invalid(
            "status.Phase",
            phase,
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        ));
    }
}

/// Eight names from `generateName` were all in use.
pub(crate) fn clash(kind: &Kind, name: &str) -> Failure {
    let mut details = kind.details(name);
    details["retryAfterSeconds"] = json!(1);
    let message = format!(
        "{} {name:?} already exists, the server was not able to generate a unique name for the object",
        kind.qualified()
    );
    Failure::new(409, "AlreadyExists", message, Some(details))
}

/// Invalid, in the form that names the resource and not the kind.
pub(crate) fn invalid_resource(kind: &Kind, name: &str, fault: &Fault) -> Failure {
    let named = Kind { kind: kind.plural.clone(), ..kind.clone() };
    Failure::invalid(&named, name, std::slice::from_ref(fault))
}
