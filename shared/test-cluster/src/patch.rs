use std::sync::Arc;

use clock::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    Failure,
    answer::Fault,
    decode::{self, Decoded, Strictness},
    json_patch,
    kinds::Kind,
    meta,
    store::State,
    strategic, versions,
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
    strictness: Strictness,
    now: Timestamp,
) -> Result<(Arc<Value>, Vec<String>), Failure> {
    let patch = language.decode(body)?;
    let current = target.current(state)?;
    let mut next = versions::shown(&current, &target.api_version).into_owned();
    meta::as_map(&mut next).insert("apiVersion".into(), target.api_version.clone().into());
    language.apply(&target.kind, &mut next, &patch)?;
    let read = check_result(target, &mut next, strictness);
    let Decoded { object, warnings } = read.map_err(|why| no_longer_decodes(language, &patch, &next, &why))?;
    let next = versions::stored(&target.kind, &target.api_version, object);
    Ok((write::update(state, target, &current, next, part, now)?, warnings))
}

impl Language {
    /// Reads the body of a request.
    pub(crate) fn decode(self, body: &[u8]) -> Result<Value, Failure> {
        let prefix = if self == Self::Strategic { "" } else { "error decoding patch: " };
        let undecodable = |why: String| Failure::bad_request(format!("{prefix}{why}"));
        let patch: Value = serde_json::from_slice(body).map_err(|err| undecodable(err.to_string()))?;
        match (self, &patch) {
            (Self::Json, _) | (_, Value::Object(_)) | (Self::Strategic, Value::Null) => Ok(patch),
            (Self::Merge, Value::Null) => Err(Failure::bad_request("Invalid JSON Patch")),
            (_, other) => {
                let word = json_patch::word(other);
                let why = format!("json: cannot unmarshal {word} into Go value of type map[string]interface {{}}");
                Err(undecodable(why))
            }
        }
    }

    /// Changes an object as a patch says.
    pub(crate) fn apply(self, kind: &Kind, object: &mut Value, patch: &Value) -> Result<(), Failure> {
        match (self, patch) {
            (Self::Json, patch) => json_patch::apply(object, patch),
            (Self::Merge, Value::Object(patch)) => {
                merge(object, patch.clone());
                Ok(())
            }
            (Self::Strategic, Value::Object(patch)) => {
                let mut patch = patch.clone();
                patch.remove("kind");
                patch.remove("apiVersion");
                strategic::apply(kind, object, patch)
            }
            _ => Ok(()),
        }
    }
}

/// The result is still an object of its kind; a kind or version that the patch took away is filled in again.
fn check_result(target: &Target, next: &mut Value, strictness: Strictness) -> Result<Decoded, String> {
    if !next.is_object() {
        return Err("the object provided is unrecognized".into());
    }
    let kind = &target.kind;
    meta::default_at(next, "kind", kind.kind.clone().into());
    meta::default_at(next, "apiVersion", target.api_version.clone().into());
    if next["kind"] != kind.kind || next["apiVersion"] != target.api_version {
        let (kind, version) = (next["kind"].to_string(), next["apiVersion"].to_string());
        return Err(format!("no kind {kind} is registered for version {version}"));
    }
    decode::value(kind, &target.api_version, next, strictness)
}

fn no_longer_decodes(language: Language, patch: &Value, next: &Value, why: &str) -> Failure {
    let shown = if language == Language::Strategic { strategic::shown(patch) } else { next.to_string() };
    let fault = Fault::invalid("patch", &Value::from(shown), why);
    Failure::invalid_patch(&fault)
}

/// RFC 7386, and as a real server's library does it: nulls go from the elements of new lists too.
pub(crate) fn merge(target: &mut Value, patch: Map<String, Value>) {
    let fields = meta::as_map(target);
    for (field, value) in patch {
        match (fields.get_mut(&field), value) {
            (_, Value::Null) => {
                fields.remove(&field);
            }
            (Some(stored @ Value::Object(_)), Value::Object(inner)) => merge(stored, inner),
            (Some(stored @ Value::Object(_)), other) => *stored = other,
            (_, mut other) => {
                prune(&mut other);
                fields.insert(field, other);
            }
        }
    }
}

/// Takes the members that are null out of a value, and of the elements of lists in it.
fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, it| !it.is_null());
            map.values_mut().for_each(prune);
        }
        Value::Array(list) => list.iter_mut().for_each(prune),
        _ => {}
    }
}
