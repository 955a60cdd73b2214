//! Pod conditions that the server itself writes.

use clock::Timestamp;
use serde_json::{Value, json};

use crate::meta;

/// True when the pod has a true Ready condition.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Sets a condition to true, with the present time if it was not true. An empty reason or message is omitted.
pub(crate) fn set_condition(pod: &mut Value, name: &str, reason: &str, message: &str, now: Timestamp) {
    let mut condition = json!({
        "type": name, "status": "True", "lastProbeTime": null, "lastTransitionTime": meta::stamp(now),
    });
    for (field, text) in [("reason", reason), ("message", message)] {
        if !text.is_empty() {
            condition[field] = text.into();
        }
    }
    let list = meta::map(pod, "status").entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(list) = list else { return };
    match list.iter_mut().find(|it| it["type"] == name) {
        None => list.push(condition),
        Some(stored) => {
            if stored["status"] == "True" {
                condition["lastTransitionTime"] = stored["lastTransitionTime"].take();
            }
            *stored = condition;
        }
    }
}
