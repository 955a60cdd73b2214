//! Conditions of pods, as far as the server itself writes them.

use clock::Timestamp;
use serde_json::{Value, json};

use crate::meta;

/// Whether the pod says that it is ready.
pub(crate) fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Makes a condition true, now unless it is already; an empty reason or message is none.
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
