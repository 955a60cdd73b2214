//! Objects that are served in several forms: Events in two groups, HorizontalPodAutoscalers in two versions.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::{kinds::Kind, meta};

const EVENTS_V1: &str = "events.k8s.io/v1";
const AUTOSCALING_V1: &str = "autoscaling/v1";

/// Fields of an Event: in core/v1, and in events.k8s.io/v1.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The stored object in the form of `api_version`. If the forms differ only in the version, it is the object itself,
/// and the caller prints the version.
pub(crate) fn shown<'a>(object: &'a Value, api_version: &str) -> Cow<'a, Value> {
    match (api_version, object["kind"].as_str()) {
        (EVENTS_V1, Some("Event")) => Cow::Owned(event_shown(object)),
        (AUTOSCALING_V1, Some("HorizontalPodAutoscaler")) => Cow::Owned(autoscaler_shown(object)),
        _ => Cow::Borrowed(object),
    }
}

/// The stored form of an object in the form of `api_version`. An object in the stored form stays unchanged.
pub(crate) fn stored(kind: &Kind, api_version: &str, object: Value) -> Value {
    let stored = kind.api_version();
    if api_version == stored || object["apiVersion"] == stored.as_str() {
        return object;
    }
    let mut object = match (api_version, kind.kind.as_str()) {
        (EVENTS_V1, "Event") => event_stored(object),
        (AUTOSCALING_V1, "HorizontalPodAutoscaler") => autoscaler_stored(object),
        _ => object,
    };
    meta::as_map(&mut object).insert("apiVersion".into(), stored.into());
    object
}

fn event_shown(object: &Value) -> Value {
    let mut shown = Map::new();
    for (field, value) in object.as_object().into_iter().flatten() {
        let renamed = EVENT_FIELDS.iter().find(|it| it.0 == field).map_or(field.as_str(), |it| it.1);
        // Optional in the stored form, always printed in the other one.
        if matches!(renamed, "reportingController" | "reportingInstance") && value == "" {
            continue;
        }
        shown.insert(renamed.to_owned(), value.clone());
    }
    shown.insert("apiVersion".into(), EVENTS_V1.into());
    shown.entry("deprecatedSource").or_insert_with(|| json!({}));
    shown.entry("regarding").or_insert_with(|| json!({}));
    for time in ["deprecatedFirstTimestamp", "deprecatedLastTimestamp", "eventTime"] {
        shown.entry(time).or_insert(Value::Null);
    }
    Value::Object(shown)
}

fn event_stored(object: Value) -> Value {
    let Value::Object(fields) = object else { return object };
    let mut stored = Map::new();
    for (field, value) in fields {
        let renamed = EVENT_FIELDS.iter().find(|it| it.1 == field).map_or(field.as_str(), |it| it.0);
        stored.insert(renamed.to_owned(), value);
    }
    Value::Object(stored)
}

/// In `autoscaling/v1` only the cpu utilization has a field.
fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn autoscaler_shown(object: &Value) -> Value {
    let mut shown = object.clone();
    meta::as_map(&mut shown).insert("apiVersion".into(), AUTOSCALING_V1.into());
    let percent = |of: &[Value], field: &str| {
        let metric = of.iter().find(|it| is_cpu(it))?;
        Some(metric["resource"][field]["averageUtilization"].clone()).filter(|it| !it.is_null())
    };
    let spec = meta::map(&mut shown, "spec");
    for field in ["metrics", "behavior"] {
        spec.remove(field);
    }
    if let Some(target) = percent(list(&object["spec"]["metrics"]), "target") {
        spec.insert("targetCPUUtilizationPercentage".into(), target);
    }
    let status = meta::map(&mut shown, "status");
    for field in ["currentMetrics", "conditions"] {
        status.remove(field);
    }
    status.entry("currentReplicas").or_insert(json!(0));
    if let Some(current) = percent(list(&object["status"]["currentMetrics"]), "current") {
        status.insert("currentCPUUtilizationPercentage".into(), current);
    }
    // Metrics without a field are in annotations.
    for (annotation, value) in [
        ("behavior", object["spec"]["behavior"].clone()),
        ("conditions", object["status"]["conditions"].clone()),
        ("metrics", others(&object["spec"]["metrics"])),
        ("current-metrics", others(&object["status"]["currentMetrics"])),
    ] {
        let empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !empty {
            let key = format!("{ANNOTATION}{annotation}");
            meta::annotate(&mut shown, &key, value.to_string());
        }
    }
    shown
}

const ANNOTATION: &str = "autoscaling.alpha.kubernetes.io/";

/// Metrics except that of the cpu.
fn others(metrics: &Value) -> Value {
    list(metrics).iter().filter(|it| !is_cpu(it)).cloned().collect()
}

fn autoscaler_stored(mut object: Value) -> Value {
    let mut carried = |name: &str| {
        let key = format!("{ANNOTATION}{name}");
        let text = object["metadata"]["annotations"].as_object_mut().and_then(|it| it.remove(&key));
        text.and_then(|it| serde_json::from_str::<Value>(it.as_str()?).ok())
    };
    let (behavior, conditions) = (carried("behavior"), carried("conditions"));
    let (metrics, current) = (carried("metrics"), carried("current-metrics"));
    let spec = meta::map(&mut object, "spec");
    let target = spec.remove("targetCPUUtilizationPercentage").filter(|it| !it.is_null());
    let mut wanted = list(metrics.as_ref().unwrap_or(&Value::Null)).to_vec();
    if let Some(percent) = target {
        let target = json!({ "type": "Utilization", "averageUtilization": percent });
        wanted.push(json!({ "type": "Resource", "resource": { "name": "cpu", "target": target } }));
    }
    if !wanted.is_empty() {
        spec.insert("metrics".into(), wanted.into());
    }
    if let Some(behavior) = behavior {
        spec.insert("behavior".into(), behavior);
    }
    if object["status"].is_null() {
        return object;
    }
    let status = meta::map(&mut object, "status");
    let percent = status.remove("currentCPUUtilizationPercentage").filter(|it| !it.is_null());
    let mut seen = list(current.as_ref().unwrap_or(&Value::Null)).to_vec();
    if let Some(percent) = percent {
        let current = json!({ "averageUtilization": percent });
        seen.push(json!({ "type": "Resource", "resource": { "name": "cpu", "current": current } }));
    }
    status.insert("currentMetrics".into(), if seen.is_empty() { Value::Null } else { seen.into() });
    if status.get("currentReplicas") == Some(&json!(0)) {
        status.remove("currentReplicas");
    }
    if let Some(conditions) = conditions {
        status.insert("conditions".into(), conditions);
    }
    object
}
