use std::sync::Arc;

use clock::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    Failure,
    answer::Fault,
    meta,
    store::State,
    strategic, validate, versions,
    write::{self, Part, Target},
};

/// The languages in which a patch can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    Json,
    Merge,
    Strategic,
}

impl Language {
    /// Chooses by media type.
    ///
    /// # Errors
    /// 415 for unknown ones, for strategic merge on custom resources, and for server-side apply.
    pub(crate) fn of(content_type: &str, custom: bool) -> Result<Self, Failure> {
        let unsupported = |message: &str| Failure::new(415, "UnsupportedMediaType", message, Some(json!({})));
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" if custom => Err(unsupported(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Err(unsupported(
                "server-side apply is not supported by this server; use application/json-patch+json, \
                 application/merge-patch+json or application/strategic-merge-patch+json",
            )),
            _ => Err(unsupported("415: Unsupported Media Type")),
        }
    }
}

/// Applies a patch to the object as it is now, and stores the result like a PUT.
pub(crate) fn patch(
    state: &mut State,
    target: &Target,
    language: Language,
    body: &[u8],
    part: Part,
    now: Timestamp,
) -> Result<Arc<Value>, Failure> {
    let undecodable = |why: String| Failure::bad_request(format!("error decoding patch: {why}"));
    let body: Value = serde_json::from_slice(body).map_err(|err| undecodable(err.to_string()))?;
    let current = target.current(state)?;
    let shown = versions::shown(&current, &target.api_version);
    let mut next = Value::clone(&shown);
    meta::as_map(&mut next).insert("apiVersion".into(), target.api_version.clone().into());
    match (language, body) {
        (Language::Json, Value::Array(operations)) => {
            for operation in &operations {
                operate(&mut next, operation).ok_or_else(rejected)?;
            }
        }
        (Language::Merge, Value::Object(patch)) => merge(&mut next, patch),
        (Language::Strategic, Value::Object(mut patch)) => {
            patch.remove("kind");
            patch.remove("apiVersion");
            strategic::apply(&target.kind, &mut next, patch)?;
        }
        (_, other) => return Err(undecodable(format!("cannot unmarshal {other} into a patch of this type"))),
    }
    let decodes =
        next.is_object() && next["kind"] == current["kind"] && next["apiVersion"] == target.api_version.as_str();
    if let Err(why) = if decodes { validate::check_types(&next) } else { Err("unrecognized type".into()) } {
        return Err(no_longer_decodes(&next, &why));
    }
    let next = versions::stored(&target.kind, &target.api_version, next);
    write::update(state, target, &current, next, part, now)
}

fn rejected() -> Failure {
    Failure::new(422, "Invalid", "the server rejected our request due to an error in our request", Some(json!({})))
}

fn no_longer_decodes(next: &Value, why: &str) -> Failure {
    let fault = Fault::invalid("patch", &Value::from(next.to_string()), why);
    let cause = Failure::invalid_options("", fault).into_status()["details"]["causes"].clone();
    let message = format!(" \"\" is invalid: patch: Invalid value: {}: {why}", Value::from(next.to_string()));
    Failure::new(422, "Invalid", message, Some(json!({ "causes": cause })))
}

/// RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: Map<String, Value>) {
    let fields = meta::as_map(target);
    for (field, value) in patch {
        match value {
            Value::Null => {
                fields.remove(&field);
            }
            Value::Object(inner) => merge(fields.entry(field).or_insert(Value::Null), inner),
            other => {
                fields.insert(field, other);
            }
        }
    }
}

/// One operation of RFC 6902; `None` when it cannot be done.
fn operate(document: &mut Value, operation: &Value) -> Option<()> {
    let path = pointer(operation["path"].as_str()?)?;
    let from = || pointer(operation["from"].as_str()?);
    let value = || operation.get("value").cloned();
    match operation["op"].as_str()? {
        "add" => add(document, &path, value()?),
        "remove" => remove(document, &path).map(drop),
        "replace" => {
            let exists = find(document, &path).is_some();
            // A missing member of a map is simply set, as the real server's library does.
            if exists && !path.is_empty() {
                remove(document, &path)?;
            }
            add(document, &path, value()?)
        }
        "move" => {
            let moved = remove(document, &from()?)?;
            add(document, &path, moved)
        }
        "copy" => {
            let copied = find(document, &from()?)?.clone();
            add(document, &path, copied)
        }
        "test" => {
            let wanted = operation.get("value").unwrap_or(&Value::Null);
            (find(document, &path).unwrap_or(&Value::Null) == wanted).then_some(())
        }
        _ => None,
    }
}

fn pointer(text: &str) -> Option<Vec<String>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let parts = text.strip_prefix('/')?.split('/');
    Some(parts.map(|it| it.replace("~1", "/").replace("~0", "~")).collect())
}

fn find<'a>(document: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(document, |value, part| match value {
        Value::Object(map) => map.get(part),
        Value::Array(list) => list.get(index(part, list.len())?),
        _ => None,
    })
}

fn find_mut<'a>(document: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(document, |value, part| match value {
        Value::Object(map) => map.get_mut(part),
        Value::Array(list) => {
            let at = index(part, list.len())?;
            list.get_mut(at)
        }
        _ => None,
    })
}

/// Negative indexes count from the end.
fn index(part: &str, len: usize) -> Option<usize> {
    let at: i64 = part.parse().ok()?;
    let len = i64::try_from(len).ok()?;
    usize::try_from(if at < 0 { at + len } else { at }).ok()
}

fn add(document: &mut Value, path: &[String], value: Value) -> Option<()> {
    let Some((last, parent)) = path.split_last() else {
        *document = value;
        return Some(());
    };
    match find_mut(document, parent)? {
        Value::Object(map) => {
            map.insert(last.clone(), value);
        }
        Value::Array(list) if last == "-" => list.push(value),
        Value::Array(list) => {
            let at = index(last, list.len())?;
            if at > list.len() {
                return None;
            }
            list.insert(at, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &[String]) -> Option<Value> {
    let (last, parent) = path.split_last()?;
    match find_mut(document, parent)? {
        Value::Object(map) => map.remove(last),
        Value::Array(list) => {
            let at = index(last, list.len())?;
            (at < list.len()).then(|| list.remove(at))
        }
        _ => None,
    }
}
