//! The few fields of a pod that may change.

use serde_json::{Value, json};

use super::{faults::Faults, list, text};
use crate::meta;

const ONLY: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn check_pod(faults: &mut Faults, old: &Value, new: &Value) {
    let (before, after) = (&old["spec"], &new["spec"]);
    for field in ["containers", "initContainers"] {
        if list(before, field).len() != list(after, field).len() {
            // The other fields cannot be compared then.
            return faults.add_forbidden(format!("spec.{field}"), "pod updates may not add or remove containers");
        }
    }
    check_deadline(faults, &before["activeDeadlineSeconds"], &after["activeDeadlineSeconds"]);
    if !list(before, "tolerations").iter().all(|it| kept(it, list(after, "tolerations"))) {
        faults
            .add_forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds");
    }
    let gated = !list(before, "schedulingGates").is_empty();
    check_gates(faults, before, after);
    if gated {
        check_selector_grows(faults, &before["nodeSelector"], &after["nodeSelector"]);
    }
    let rest = |spec: &Value| without_changeable_fields(spec, before, gated);
    if rest(before) != rest(after) {
        faults.add_forbidden("spec", ONLY);
    }
}

/// The deadline may be set or lowered.
fn check_deadline(faults: &mut Faults, old: &Value, new: &Value) {
    const PATH: &str = "spec.activeDeadlineSeconds";
    match (old.as_i64(), new.as_i64()) {
        (Some(_), None) => {
            faults.add_invalid(PATH, &Value::Null, "must not update from a positive integer to nil value")
        }
        (Some(old), Some(new)) if new > old => {
            faults.add_invalid(PATH, &json!(new), "must be less than or equal to previous value");
        }
        _ => {}
    }
}

fn kept(toleration: &Value, among: &[Value]) -> bool {
    let bare = |it: &Value| {
        let mut it = it.clone();
        meta::as_map(&mut it).remove("tolerationSeconds");
        it
    };
    among.iter().any(|it| bare(it) == bare(toleration))
}

fn check_gates(faults: &mut Faults, before: &Value, after: &Value) {
    let known = list(before, "schedulingGates");
    for (at, gate) in list(after, "schedulingGates").iter().enumerate().filter(|it| !known.contains(it.1)) {
        let why = format!("only deletion is allowed, but found new scheduling gate '{}'", text(gate, "name"));
        faults.add_forbidden(format!("spec.schedulingGates[{at}].name"), &why);
    }
}

/// While a pod has scheduling gates, labels may be added to its node selector.
fn check_selector_grows(faults: &mut Faults, old: &Value, new: &Value) {
    let keeps = old.as_object().into_iter().flatten().all(|(key, value)| new.get(key) == Some(value));
    if !keeps {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        faults.add_invalid("spec.nodeSelector", new, why);
    }
}

/// The spec without the fields that have rules of their own.
fn without_changeable_fields(spec: &Value, before: &Value, gated: bool) -> Value {
    let mut spec = spec.clone();
    let fields = meta::as_map(&mut spec);
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        fields.remove(field);
    }
    if gated {
        fields.remove("nodeSelector");
        if let Some(affinity) = fields.get_mut("affinity").and_then(Value::as_object_mut) {
            affinity.remove("nodeAffinity");
        }
        if fields.get("affinity").is_some_and(|it| it.as_object().is_some_and(serde_json::Map::is_empty)) {
            fields.remove("affinity");
        }
    }
    // A negative grace period may be changed to 1, because it has that effect anyway.
    if super::number(before, "terminationGracePeriodSeconds") < 0 && fields["terminationGracePeriodSeconds"] == 1 {
        fields.insert("terminationGracePeriodSeconds".into(), before["terminationGracePeriodSeconds"].clone());
    }
    for field in ["containers", "initContainers"] {
        for container in fields.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            meta::as_map(container).remove("image");
        }
    }
    spec
}
