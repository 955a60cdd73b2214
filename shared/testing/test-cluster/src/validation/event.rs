//! Events: the rules of all Events, and the stricter rules of `events.k8s.io`.

use serde_json::{Value, json};

use super::{faults::Faults, number, text};
use crate::kinds::Kind;

/// True for requests to `events.k8s.io`, where most fields of an Event are immutable.
fn is_view(kind: &Kind) -> bool {
    kind.group != kind.stored_group()
}

pub(super) fn check_event(faults: &mut Faults, kind: &Kind, object: &Value) {
    if object["eventTime"].is_null() {
        return;
    }
    let component = if is_view(kind) { "reportingController" } else { "reportingComponent" };
    let reporter = text(object, "reportingComponent");
    if reporter.is_empty() {
        faults.add_required(component, "");
    }
    faults.check_qualified_name(reporter, component);
    for (field, most) in [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)] {
        let value = text(object, field);
        if value.is_empty() && field != "message" {
            faults.add_required(field, "");
        }
        if value.len() > most {
            faults.add_invalid(field, &json!(""), &format!("can have at most {most} characters"));
        }
    }
    if is_view(kind) {
        check_series(faults, object);
    }
}

/// Rules for new Events of `events.k8s.io` only.
pub(super) fn check_new_event(faults: &mut Faults, kind: &Kind, object: &Value) {
    if !is_view(kind) {
        return;
    }
    if object["eventTime"].is_null() {
        faults.add_required("eventTime", "");
        check_series(faults, object);
    }
    if !matches!(text(object, "type"), "Normal" | "Warning") {
        faults.add_invalid("type", &json!(""), &format!("has invalid value: {}", text(object, "type")));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        let value = &object[field];
        let unset = value.is_null() || *value == 0 || *value == json!({});
        if !unset {
            faults.add_invalid(field, &json!(""), "needs to be unset");
        }
    }
}

fn check_series(faults: &mut Faults, object: &Value) {
    let series = &object["series"];
    if series.is_null() {
        return;
    }
    if number(series, "count") < 2 {
        faults.add_invalid("series.count", &json!(""), "should be at least 2");
    }
    if series["lastObservedTime"].is_null() {
        faults.add_required("series.lastObservedTime", "");
    }
}

/// In `events.k8s.io` only the series and the metadata may change.
pub(super) fn check_change(faults: &mut Faults, kind: &Kind, old: &Value, new: &Value) {
    if !is_view(kind) {
        return;
    }
    for (field, shown) in [
        ("reason", "reason"),
        ("message", "message"),
        ("action", "action"),
        ("type", "type"),
        ("reportingComponent", "reportingController"),
        ("reportingInstance", "reportingInstance"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("eventTime", "eventTime"),
    ] {
        if !same(&old[field], &new[field]) {
            faults.add_invalid(shown, &new[field], "field is immutable");
        }
    }
    for field in ["involvedObject", "related"] {
        if old[field] != new[field] {
            faults.add_wrong(field, &format!("{}: field is immutable", reference(&new[field])));
        }
    }
    if !same(&old["source"], &new["source"]) {
        faults.add_invalid("source", &new["source"], "field is immutable");
    }
}

/// True when two values are equal; missing and empty values are equal too.
fn same(one: &Value, other: &Value) -> bool {
    let nothing = |it: &Value| it.is_null() || it == "" || *it == 0 || *it == json!({});
    one == other || (nothing(one) && nothing(other))
}

/// A reference as Go prints it.
fn reference(it: &Value) -> String {
    if it.is_null() {
        return "null".into();
    }
    let fields = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];
    let names = ["Kind", "Namespace", "Name", "UID", "APIVersion", "ResourceVersion", "FieldPath"];
    let parts: Vec<String> =
        fields.iter().zip(names).map(|(field, name)| format!("{name:?}:{}", json!(text(it, field)))).collect();
    format!("{{{}}}", parts.join(","))
}
