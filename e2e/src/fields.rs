//! Fields of objects that scenarios read.

use serde_json::Value;

/// A text; empty if there is none.
#[must_use]
pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The name of an object.
#[must_use]
pub fn name(object: &Value) -> &str {
    text(&object["metadata"]["name"])
}

/// The uid of an object.
#[must_use]
pub fn uid(object: &Value) -> String {
    text(&object["metadata"]["uid"]).to_owned()
}

/// The name of the first owner.
#[must_use]
pub fn owner(object: &Value) -> &str {
    text(&object["metadata"]["ownerReferences"][0]["name"])
}

/// Whether an object is being deleted.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// A condition of an object; null if it has none.
#[must_use]
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let all = object["status"]["conditions"].as_array();
    all.into_iter().flatten().find(|it| it["type"] == kind).unwrap_or(&Value::Null)
}

/// Whether a pod or a node is ready.
#[must_use]
pub fn is_ready(object: &Value) -> bool {
    condition(object, "Ready")["status"] == "True"
}
