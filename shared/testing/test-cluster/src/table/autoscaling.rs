use clock::Timestamp;
use serde_json::Value;

use super::{AGE, Column, NAME, NONE, Printer, age, at_most, cells, list_at, name, number_at, scalar, text, text_at};

pub(super) fn printer(plural: &str) -> Option<Printer> {
    (plural == "horizontalpodautoscalers").then_some(Printer { columns: COLUMNS, cells })
}

const COLUMNS: &[Column] =
    &[NAME, text("Reference"), text("Targets"), text("MinPods"), text("MaxPods"), text("Replicas"), AGE];

const UNKNOWN: &str = "<unknown>";

fn cells(it: &Value, now: Timestamp) -> Vec<Value> {
    let reference = &it["spec"]["scaleTargetRef"];
    let fewest = &it["spec"]["minReplicas"];
    cells![
        name(it),
        format!("{}/{}", text_at(reference, "kind"), text_at(reference, "name")),
        targets(it),
        if fewest.is_null() { "<unset>".into() } else { scalar(fewest) },
        number_at(it, "spec.maxReplicas"),
        number_at(it, "status.currentReplicas"),
        age(it, now),
    ]
}

/// The measured and the wanted value of each metric.
fn targets(it: &Value) -> String {
    let wanted = list_at(it, "spec.metrics");
    let measured = list_at(it, "status.currentMetrics");
    let nothing = Value::Null;
    let all: Vec<String> =
        wanted.iter().enumerate().map(|(at, metric)| target(metric, measured.get(at).unwrap_or(&nothing))).collect();
    if all.is_empty() { NONE.into() } else { at_most(&all, 2, ", ") }
}

fn target(metric: &Value, measured: &Value) -> String {
    let field = match text_at(metric, "type") {
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        "Pods" => "pods",
        "Object" => "object",
        "External" => "external",
        _ => return "<unknown type>".into(),
    };
    let (target, current) = (&metric[field]["target"], &measured[field]["current"]);
    let value = |of: &Value, name: &str| match &of[name] {
        Value::Null => UNKNOWN.to_owned(),
        value => scalar(value),
    };
    let against = |name: &str| format!("{}/{}", value(current, name), value(target, name));
    match field {
        "resource" | "containerResource" => {
            let measured = if target["averageValue"].is_null() {
                let percent = |of: &Value| match &of["averageUtilization"] {
                    Value::Null => UNKNOWN.to_owned(),
                    value => format!("{value}%"),
                };
                format!(
                    "{}/{}",
                    percent(current),
                    if target["averageUtilization"].is_null() { "<auto>".into() } else { percent(target) }
                )
            } else {
                against("averageValue")
            };
            format!("{}: {measured}", text_at(&metric[field], "name"))
        }
        "pods" => against("averageValue"),
        _ if target["averageValue"].is_null() => against("value"),
        _ => format!("{} (avg)", against("averageValue")),
    }
}
