use clock::Timestamp;
use serde_json::{Map, Value};

/// A text of `metadata`; empty when missing.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "uid")
}

pub(crate) fn version(object: &Value) -> &str {
    text(object, "resourceVersion")
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// A list of texts under `parent`, such as the finalizers in `metadata`; empty when missing.
pub(crate) fn texts<'a>(parent: &'a Value, field: &str) -> Vec<&'a str> {
    parent[field].as_array().map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    texts(&object["metadata"], "finalizers")
}

/// The field as a map; replaced by an empty map if it is something else.
pub(crate) fn map<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    let value = as_map(object).entry(field).or_insert_with(|| Value::Object(Map::new()));
    as_map(value)
}

/// The value as a map; replaced by an empty map if it is something else.
pub(crate) fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("just made a map"),
    }
}

/// Sets a field of `metadata`.
pub(crate) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    map(object, "metadata").insert(field.into(), value.into());
}

pub(crate) fn remove(object: &mut Value, field: &str) {
    map(object, "metadata").remove(field);
}

/// Sets one annotation.
pub(crate) fn annotate(object: &mut Value, key: &str, value: impl Into<Value>) {
    let annotations = map(object, "metadata").entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    as_map(annotations).insert(key.into(), value.into());
}

/// Copies a field of `metadata`, also its absence.
pub(crate) fn keep(next: &mut Value, current: &Value, field: &str) {
    match current["metadata"].get(field) {
        Some(value) => set(next, field, value.clone()),
        None => remove(next, field),
    }
}

pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[&str]) {
    if finalizers.is_empty() {
        remove(object, "finalizers");
    } else {
        set(object, "finalizers", finalizers.iter().map(|it| Value::from(*it)).collect::<Vec<_>>());
    }
}

/// Removes what a real server does not print: nulls and empty collections in `metadata`.
pub(crate) fn tidy(object: &mut Value) {
    let metadata = map(object, "metadata");
    metadata.remove("selfLink");
    metadata.retain(|_, value| match value {
        Value::Null => false,
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !text.is_empty(),
        _ => true,
    });
    for field in ["labels", "annotations"] {
        if let Some(Value::Object(map)) = metadata.get_mut(field) {
            for value in map.values_mut().filter(|it| it.is_null()) {
                *value = Value::from("");
            }
        }
    }
}

/// A time as in objects: whole seconds, UTC.
pub(crate) fn stamp(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

/// The inverse of [`stamp`], in seconds.
pub(crate) fn seconds(stamp: &str) -> Option<i64> {
    stamp.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

/// The value at a dotted path.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, field| &value[field])
}

/// Sets the value at a dotted path if there is none.
pub(crate) fn default_at(object: &mut Value, path: &str, value: Value) {
    if at(object, path).is_null() {
        set_at(object, path, value);
    }
}

/// Sets the value at a dotted path.
pub(crate) fn set_at(object: &mut Value, path: &str, value: Value) {
    let mut parent = object;
    let mut fields = path.split('.').peekable();
    while let Some(field) = fields.next() {
        if fields.peek().is_none() {
            as_map(parent).insert(field.into(), value);
            return;
        }
        parent = as_map(parent).entry(field).or_insert_with(|| Value::Object(Map::new()));
    }
}

/// A random uid, version 4.
pub(crate) fn new_uid(rng: &mut fastrand::Rng) -> String {
    let bits = rng.u128(..) & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
    let hex = format!("{bits:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// A random suffix for `generateName`.
pub(crate) fn suffix(rng: &mut fastrand::Rng) -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(ALPHABET[rng.usize(..ALPHABET.len())])).collect()
}
