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
    let mut shown = versions::shown(&current, &target.api_version).into_owned();
    meta::as_map(&mut shown).insert("apiVersion".into(), target.api_version.clone().into());
    let Decoded { object, warnings } =
        language.patched(&target.kind, &target.api_version, &shown, &patch, strictness)?;
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

    /// An object after a patch, read again as what it was.
    ///
    /// # Errors
    /// Those of the patch, and 422 for what is no longer an object of this kind.
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
            // It works on members, not on the text of the object: kind and version are beyond its reach.
            meta::default_at(&mut next, "apiVersion", api_version.into());
        }
        if kind.custom {
            self.check_custom(kind, api_version, patch, &next)?;
        }
        check_result(kind, api_version, &mut next, strictness)
            .map_err(|why| no_longer_decodes(self, patch, &next, &why))
    }

    /// A custom resource must say itself what it is.
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

    /// Changes an object as a patch says.
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

/// The result is still an object of its kind; a kind or version that the patch took away is filled in again.
fn check_result(kind: &Kind, api_version: &str, next: &mut Value, strictness: Strictness) -> Result<Decoded, String> {
    if !next.is_object() {
        return Err("the object provided is unrecognized".into());
    }
    meta::default_at(next, "kind", kind.kind.clone().into());
    if next["apiVersion"].as_str().unwrap_or_default().is_empty() && !kind.custom {
        // A real server reads it in no version at all, and so finds nothing in it.
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
