use std::sync::Arc;

use clock::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    Failure,
    decode::{self, Decoded, Strictness},
    json_patch,
    kinds::Kind,
    meta,
    response::Fault,
    store::State,
    strategic, versions,
    write::{self, Part, Target},
};

/// The types of patches.
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
    /// 415 for unknown types, for strategic merge on custom resources, and for server-side apply.
    pub(crate) fn of(content_type: &str, custom: bool) -> Result<Self, Failure> {
        let unsupported = |message: &str| Failure::new(415, "UnsupportedMediaType", message, None);
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
            _ => {
                let message = "415: Unsupported Media Type";
                Err(Failure::new(415, "UnsupportedMediaType", message, Some(json!({}))))
            }
        }
    }
}

/// Applies a patch to the present object, and stores the result like a PUT.
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
    let mut shown = versions::shown(&current, &target.api_version).into_owned();
    meta::as_map(&mut shown).insert("apiVersion".into(), target.api_version.clone().into());
    let Decoded { object, warnings } =
        language.patched(&target.kind, &target.api_version, &shown, &patch, strictness)?;
    let next = versions::stored(&target.kind, &target.api_version, object);
    Ok((write::update(state, target, &current, next, part, now)?, warnings))
}

impl Language {
    /// Decodes the body of a request.
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

    /// An object after a patch, decoded again.
    ///
    /// # Errors
    /// Those of the patch, and 422 for a result that is not an object of this kind.
    pub(crate) fn patched(
        self,
        kind: &Kind,
        api_version: &str,
        object: &Value,
        patch: &Value,
        strictness: Strictness,
    ) -> Result<Decoded, Failure> {
        let mut next = object.clone();
        self.apply(kind, &mut next, patch)?;
        if self == Self::Strategic {
            // A strategic merge works on decoded fields, so it cannot remove kind and version.
            meta::default_at(&mut next, "apiVersion", api_version.into());
        }
        if kind.custom {
            self.check_custom(kind, api_version, patch, &next)?;
        }
        check_result(kind, api_version, &mut next, strictness)
            .map_err(|why| no_longer_decodes(self, patch, &next, &why))
    }

    /// A custom resource must keep its kind and version.
    fn check_custom(self, kind: &Kind, api_version: &str, patch: &Value, next: &Value) -> Result<(), Failure> {
        let said = |field: &str| next[field].as_str().unwrap_or_default();
        if said("kind").is_empty() {
            return Err(no_longer_decodes(self, patch, next, &format!("Object 'Kind' is missing in '{next}'")));
        }
        if said("apiVersion").is_empty() {
            let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
            let details = json!({ "causes": [{ "message": why }] });
            return Err(Failure::new(500, "InternalError", format!("Internal error occurred: {why}"), Some(details)));
        }
        for (field, wanted) in [("apiVersion", api_version), ("kind", kind.kind.as_str())] {
            if said(field) != wanted {
                let fault = Fault::invalid(field, &next[field], &format!("must be {wanted}"));
                let sent = Kind { kind: said("kind").to_owned(), ..kind.clone() };
                return Err(Failure::invalid(&sent, meta::name(next), &[fault]));
            }
        }
        Ok(())
    }

    /// Applies the patch to an object.
    fn apply(self, kind: &Kind, object: &mut Value, patch: &Value) -> Result<(), Failure> {
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

/// Decodes the result. A kind or version that the patch removed is set again.
fn check_result(kind: &Kind, api_version: &str, next: &mut Value, strictness: Strictness) -> Result<Decoded, String> {
    if !next.is_object() {
        return Err("the object provided is unrecognized".into());
    }
    meta::default_at(next, "kind", kind.kind.clone().into());
    if next["apiVersion"].as_str().unwrap_or_default().is_empty() && !kind.custom {
        // A real server decodes it without a version, and so ignores all its fields.
        *next = json!({ "kind": kind.kind, "apiVersion": api_version });
    }
    if next["kind"] != kind.kind || next["apiVersion"] != api_version {
        let (kind, version) = (next["kind"].to_string(), next["apiVersion"].to_string());
        return Err(format!("no kind {kind} is registered for version {version}"));
    }
    decode::value(kind, api_version, next, strictness)
}

fn no_longer_decodes(language: Language, patch: &Value, next: &Value, why: &str) -> Failure {
    let shown = if language == Language::Strategic { strategic::shown(patch) } else { next.to_string() };
    let fault = Fault::invalid("patch", &Value::from(shown), why);
    Failure::invalid_patch(&fault)
}

/// RFC 7386, with the deviation of a real server's library: nulls are removed from the elements of new lists too.
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

/// Removes members that are null from a value and from the elements of its lists.
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
