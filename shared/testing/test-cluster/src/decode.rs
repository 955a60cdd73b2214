use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Failure,
    kinds::Kind,
    meta,
    reader::{self, Notes, Wrong},
    response::Fault,
    schema::{self, Type},
};

/// How to handle unknown and duplicate fields (`fieldValidation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Strictness {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// An object in its shortest form: without empty fields, with texts in the server's canonical form. Fields that are
/// printed even when empty are added later, see [`schema::pad`].
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    /// Warnings for the response.
    pub(crate) warnings: Vec<String>,
}

/// Decodes the body of a POST or PUT.
///
/// # Errors
/// 400 for a body that is not a JSON object of this kind, or that strict validation refuses.
pub(crate) fn body(kind: &Kind, api_version: &str, body: &[u8], strictness: Strictness) -> Result<Decoded, Failure> {
    let it = type_of(kind, api_version)?;
    let mut json = serde_json::Deserializer::from_slice(body);
    let (read, notes) = reader::read(it, &mut json);
    match read.and_then(|object| json.end().map(|()| object)) {
        Ok(mut object) => {
            check_kind(kind, api_version, &object, body)?;
            meta::as_map(&mut object).insert("kind".into(), kind.kind.clone().into());
            meta::as_map(&mut object).insert("apiVersion".into(), api_version.into());
            finish(object, notes, strictness, "").map_err(|why| unhandled(kind, api_version, &why))
        }
        Err(err) => Err(why_not(kind, api_version, body, notes, &err)),
    }
}

/// Decodes the result of a patch, in the version of the URL.
///
/// # Errors
/// Why it is not an object of this kind any more, or why strict validation refuses it.
pub(crate) fn value(kind: &Kind, api_version: &str, next: &Value, strictness: Strictness) -> Result<Decoded, String> {
    let Some(it) = schema::of(kind, api_version) else { return Err("unrecognized type".into()) };
    let (read, notes) = reader::read(it, next);
    match (read, &notes.wrong) {
        (Ok(object), _) => finish(object, notes, strictness, " after mutating admission happens"),
        (Err(_), Some(Wrong::Inside(why))) => Err(why.clone()),
        (Err(_), _) => Err("unrecognized type".into()),
    }
}

/// Decodes an object that a test stores without checks. An object that does not fit is kept unchanged.
pub(crate) fn direct(kind: &Kind, api_version: &str, object: Value) -> Value {
    schema::of(kind, api_version).and_then(|it| reader::read(it, &object).0.ok()).unwrap_or(object)
}

/// Adds the fields that are printed even when empty.
pub(crate) fn complete(kind: &Kind, object: &mut Value) {
    if let Some(it) = schema::of(kind, &kind.api_version()) {
        schema::pad(it, object);
    }
}

fn type_of(kind: &Kind, api_version: &str) -> Result<&'static Type, Failure> {
    schema::of(kind, api_version).ok_or_else(|| Failure::not_served(&format!("the schema of {}", kind.qualified())))
}

/// Removes duplicate owner references and handles unknown and duplicate fields. `found` says, for the warning, when the
/// owners were checked.
fn finish(mut object: Value, notes: Notes, strictness: Strictness, found: &str) -> Result<Decoded, String> {
    let mut warnings = Vec::new();
    match strictness {
        Strictness::Strict if !notes.remarks.is_empty() => {
            return Err(format!("strict decoding error: {}", notes.remarks.join(", ")));
        }
        Strictness::Warn => warnings = notes.remarks,
        Strictness::Strict | Strictness::Ignore => {}
    }
    merge_owners(&mut object, found, &mut warnings);
    Ok(Decoded { object, warnings })
}

/// Merges equal owner references.
fn merge_owners(object: &mut Value, found: &str, warnings: &mut Vec<String>) {
    let Some(Value::Array(owners)) = object["metadata"].get_mut("ownerReferences") else { return };
    let mut kept: Vec<Value> = Vec::with_capacity(owners.len());
    let mut doubled: Vec<String> = Vec::new();
    for owner in owners.drain(..) {
        if kept.contains(&owner) {
            doubled.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        } else {
            kept.push(owner);
        }
    }
    *owners = kept;
    doubled.dedup();
    if !doubled.is_empty() {
        warnings.push(format!(
            ".metadata.ownerReferences contains duplicate entries{found}; API server dedups owner references in 1.20+, and \
             may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            doubled.join(", ")
        ));
    }
}

fn unrecognized(kind: &Kind, why: &str) -> Failure {
    Failure::bad_request(format!("the object provided is unrecognized (must be of type {}): {why}", kind.kind))
}

fn unhandled(kind: &Kind, api_version: &str, why: &str) -> Failure {
    let version = api_version.rsplit('/').next().unwrap_or(api_version);
    Failure::bad_request(format!("{0} in version {version:?} cannot be handled as a {0}: {why}", kind.kind))
}

/// Why a body could not be decoded. Its kind is checked first: for a body of another kind that is the error, whatever
/// its fields are.
fn why_not(kind: &Kind, api_version: &str, body: &[u8], notes: Notes, err: &serde_json::Error) -> Failure {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        #[serde(default)]
        kind: Value,
        #[serde(default)]
        api_version: Value,
    }
    match notes.wrong {
        Some(Wrong::NoObject(word)) => {
            let shape = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                         \"json:\\\"kind,omitempty\\\"\" }";
            let why = format!("json: cannot unmarshal {word} into Go value of type {shape}");
            unrecognized(kind, &format!("couldn't get version/kind; json parse error: {why} ({})", beginning(body)))
        }
        Some(Wrong::Inside(why)) => {
            let head = serde_json::from_slice::<Head>(body);
            let head = head.map(|it| json!({ "kind": it.kind, "apiVersion": it.api_version })).unwrap_or_default();
            check_kind(kind, api_version, &head, body).err().unwrap_or_else(|| unhandled(kind, api_version, &why))
        }
        None => {
            unrecognized(kind, &format!("couldn't get version/kind; json parse error: {err} ({})", beginning(body)))
        }
    }
}

/// The first bytes of a body: as text if it may be an object, otherwise in hex.
fn beginning(body: &[u8]) -> String {
    let (start, more) = if body.len() > 30 { (&body[..30], " ...") } else { (body, "") };
    match start.first() {
        None => "<empty>".into(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => start.iter().map(|it| format!("{it:02x}")).collect::<String>() + more,
    }
}

/// Checks that kind and version of the body, if present, are those of the URL.
fn check_kind(kind: &Kind, api_version: &str, object: &Value, body: &[u8]) -> Result<(), Failure> {
    let said = |field: &str, otherwise: &'static str| match object[field].as_str() {
        None | Some("") => otherwise.to_owned(),
        Some(text) => text.to_owned(),
    };
    if kind.custom {
        check_custom_kind(kind, object, body)?;
    }
    let (sent_kind, sent_version) = (said("kind", ""), said("apiVersion", ""));
    let sent_kind = if sent_kind.is_empty() { kind.kind.clone() } else { sent_kind };
    let sent_version = if sent_version.is_empty() { api_version.to_owned() } else { sent_version };
    if sent_kind == kind.kind && sent_version == api_version {
        return Ok(());
    }
    let version = sent_version.rsplit('/').next().unwrap_or(&sent_version);
    let unhandled = |why: &str| {
        let wanted = &kind.kind;
        Failure::bad_request(format!("{sent_kind} in version {version:?} cannot be handled as a {wanted}: {why}"))
    };
    let Some(it) = schema::by_kind(&sent_version, &sent_kind).filter(|_| !kind.custom) else {
        if kind.custom {
            return Err(other_version(&sent_version, api_version));
        }
        return Err(unhandled(&format!(
            "no kind {sent_kind:?} is registered for version {sent_version:?} in scheme \
             \"pkg/api/legacyscheme/scheme.go:30\""
        )));
    };
    if sent_kind == kind.kind {
        return Err(other_version(&sent_version, api_version));
    }
    // It is decoded as the kind that it claims, and refused after that.
    let (read, notes) = reader::read(it, &mut serde_json::Deserializer::from_slice(body));
    if let (Err(_), Some(Wrong::Inside(why))) = (read, notes.wrong) {
        return Err(unhandled(&why));
    }
    let (package, wanted) = (kind.go_package(), &kind.kind);
    let why = format!("converting ({version}.{sent_kind}) to ({package}.{wanted}): unknown conversion");
    Err(unhandled(&why))
}

/// Custom resources must have kind and version.
fn check_custom_kind(kind: &Kind, object: &Value, body: &[u8]) -> Result<(), Failure> {
    match object["kind"].as_str().unwrap_or_default() {
        "" => {
            let shown = String::from_utf8_lossy(body);
            Err(unrecognized(kind, &format!("Object 'Kind' is missing in '{shown}'")))
        }
        sent if sent == kind.kind => Ok(()),
        other => {
            let fault = Fault::invalid("kind", &json!(other), &format!("must be {}", kind.kind));
            // The refusal names the kind that was sent.
            let named = Kind { kind: other.to_owned(), ..Kind::clone(kind) };
            Err(Failure::invalid(&named, meta::name(object), &[fault]))
        }
    }
}

fn other_version(sent: &str, wanted: &str) -> Failure {
    let why = format!("the API version in the data ({sent}) does not match the expected API version ({wanted})");
    Failure::bad_request(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn kind(table: &str) -> std::sync::Arc<Kind> {
        kinds::builtin().iter().find(|it| it.is(table)).unwrap().clone()
    }

    fn read(table: &str, text: &str, strictness: Strictness) -> Result<Decoded, String> {
        let kind = kind(table);
        body(&kind, &kind.api_version(), text.as_bytes(), strictness)
            .map_err(|it| it.into_status()["message"].as_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn empty_fields_are_omitted_and_a_zero_with_a_meaning_stays() {
        let text = r#"{"metadata":{"name":"a","labels":{},"annotations":{"x":null}},"spec":{"replicas":0,
            "minReadySeconds":0,"paused":false,"strategy":null,"template":{"spec":{"containers":[null,{"stdin":false,
            "securityContext":{},"resources":{"limits":{"cpu":"1000m"}}}],"terminationGracePeriodSeconds":0}}}}"#;
        let read = read(kinds::DEPLOYMENTS, text, Strictness::Strict).unwrap();
        let want = json!({
            "kind": "Deployment", "apiVersion": "apps/v1",
            "metadata": { "name": "a", "annotations": { "x": "" } },
            "spec": { "replicas": 0, "template": { "spec": {
                "containers": [{}, { "securityContext": {}, "resources": { "limits": { "cpu": "1" } } }],
                "terminationGracePeriodSeconds": 0,
            } } },
        });
        assert_eq!(read.object, want);
    }

    #[test]
    fn decoding_a_completed_object_changes_nothing() {
        let kind = kind(kinds::DEPLOYMENTS);
        let text = r#"{"metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"name":"c"}]}}}}"#;
        let mut first = read(kinds::DEPLOYMENTS, text, Strictness::Strict).unwrap().object;
        let short = first.clone();
        complete(&kind, &mut first);
        assert_ne!(first, short);
        let again = value(&kind, &kind.api_version(), &first, Strictness::Strict).unwrap().object;
        assert_eq!(again, short);
        let mut completed = again;
        complete(&kind, &mut completed);
        assert_eq!(completed, first);
    }

    #[test]
    fn unknown_and_duplicate_fields() {
        let text = r#"{"metadata":{"name":"a","name":"b"},"foo":1,"data":{"k":"1","k":"2"},"foo":2}"#;
        let said = ["duplicate field \"metadata.name\"", "unknown field \"foo\"", "duplicate field \"data.k\""];
        let warned = read(kinds::CONFIG_MAPS, text, Strictness::Warn).unwrap();
        assert_eq!(warned.warnings, said);
        assert_eq!((meta::name(&warned.object), &warned.object["data"]["k"]), ("b", &json!("2")));
        assert!(warned.object["foo"].is_null());
        assert!(read(kinds::CONFIG_MAPS, text, Strictness::Ignore).unwrap().warnings.is_empty());
        let refused = read(kinds::CONFIG_MAPS, text, Strictness::Strict).unwrap_err();
        assert!(refused.ends_with(&format!("strict decoding error: {}", said.join(", "))), "{refused}");
    }

    #[test]
    fn wrong_types_name_the_field_as_the_real_server_does() {
        for (text, said) in [
            (
                r#"{"spec":{"containers":[{"ports":[{"containerPort":"80"}]}]}}"#,
                "cannot unmarshal string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
            ),
            (r#"{"spec":5}"#, "cannot unmarshal number into Go struct field Pod.spec of type v1.PodSpec"),
            (
                r#"{"metadata":{"generation":2.0}}"#,
                "cannot unmarshal number 2.0 into Go struct field ObjectMeta.metadata.generation of type int64",
            ),
            (
                r#"{"spec":{"containers":{}}}"#,
                "cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
            ),
            (r#"{"spec":{"overhead":{"cpu":"x"}}}"#, "quantities must match the regular expression"),
        ] {
            let refused = read(kinds::PODS, text, Strictness::Warn).unwrap_err();
            assert!(refused.contains(said), "{text}: {refused}");
        }
    }
}
