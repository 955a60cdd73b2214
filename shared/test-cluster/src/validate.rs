use serde_json::{Value, json};

use crate::{
    Failure,
    answer::Fault,
    apiservice, crd, kinds,
    kinds::{Kind, NameRule},
    meta,
};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// Brings a body into the kind's form, or says why it is none.
///
/// # Errors
/// 400 for what is no JSON object of this kind.
pub(crate) fn decode(kind: &Kind, api_version: &str, body: &[u8]) -> Result<Value, Failure> {
    let unrecognized = |why: String| {
        Failure::bad_request(format!("the object provided is unrecognized (must be of type {}): {why}", kind.kind))
    };
    let mut object: Value = serde_json::from_slice(body).map_err(|err| {
        let start = String::from_utf8_lossy(&body[..body.len().min(32)]).into_owned();
        unrecognized(format!("couldn't get version/kind; json parse error: {err} ({start})"))
    })?;
    if !object.is_object() {
        return Err(unrecognized("couldn't get version/kind; json parse error: not an object".into()));
    }
    match object["kind"].as_str().unwrap_or_default() {
        "" if kind.custom => {
            let shown = String::from_utf8_lossy(body);
            return Err(unrecognized(format!("Object 'Kind' is missing in '{shown}'")));
        }
        "" => {
            meta::as_map(&mut object).insert("kind".into(), kind.kind.clone().into());
        }
        other if other == kind.kind => {}
        other if kind.custom => {
            let fault = Fault::invalid("kind", &json!(other), &format!("must be {}", kind.kind));
            return Err(Failure::invalid(kind, meta::name(&object), &[fault]));
        }
        other => {
            let version = api_version.rsplit('/').next().unwrap_or(api_version);
            let why = format!(
                "{other} in version {version:?} cannot be handled as a {}: converting ({version}.{other}) to \
                 ({}.{}): unknown conversion",
                kind.kind,
                kind.go_package(),
                kind.kind
            );
            return Err(Failure::bad_request(why));
        }
    }
    match object["apiVersion"].as_str().unwrap_or_default() {
        "" => {}
        sent if sent == api_version => {}
        sent => {
            let why =
                format!("the API version in the data ({sent}) does not match the expected API version ({api_version})");
            return Err(Failure::bad_request(why));
        }
    }
    check_types(&object).and_then(|()| check_parts(kind, &object)).map_err(|why| {
        let version = api_version.rsplit('/').next().unwrap_or(api_version);
        Failure::bad_request(format!("{0} in version {version:?} cannot be handled as a {0}: {why}", kind.kind))
    })?;
    if kind.is(kinds::SECRETS) && !object["stringData"].is_null() {
        return Err(Failure::not_served("stringData of a Secret"));
    }
    times(kind, &mut object)?;
    Ok(object)
}

/// `metadata` has the shape that everything else relies on.
pub(crate) fn check_types(object: &Value) -> Result<(), String> {
    let wrong = |value: &Value, field: &str, wanted: &str| {
        let word = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let field = if field.is_empty() { "metadata".into() } else { format!("ObjectMeta.metadata.{field}") };
        Err(format!("json: cannot unmarshal {word} into Go struct field {field} of type {wanted}"))
    };
    let metadata = match &object["metadata"] {
        Value::Null => return Ok(()),
        Value::Object(metadata) => metadata,
        other => return wrong(other, "", "v1.ObjectMeta"),
    };
    for (field, value) in metadata {
        let fits = match field.as_str() {
            "name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp"
            | "deletionTimestamp" => value.is_string(),
            "generation" | "deletionGracePeriodSeconds" => value.is_i64(),
            "labels" | "annotations" => {
                value.as_object().is_some_and(|map| map.values().all(|it| it.is_string() || it.is_null()))
            }
            "finalizers" => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
            "ownerReferences" => value.as_array().is_some_and(|list| list.iter().all(Value::is_object)),
            _ => true,
        };
        if !fits && !value.is_null() {
            let wanted = match field.as_str() {
                "labels" | "annotations" => "map[string]string",
                "finalizers" => "[]string",
                "ownerReferences" => "[]v1.OwnerReference",
                "generation" | "deletionGracePeriodSeconds" => "int64",
                _ => "string",
            };
            return wrong(value, field, wanted);
        }
    }
    Ok(())
}

/// Spec and status of built-in kinds are objects; what is inside is not checked.
fn check_parts(kind: &Kind, object: &Value) -> Result<(), String> {
    for field in ["spec", "status"] {
        let part = &object[field];
        if !kind.custom && !part.is_object() && !part.is_null() {
            return Err(format!("json: cannot unmarshal {part} into Go struct field {}.{field}", kind.kind));
        }
    }
    Ok(())
}

/// Times with microseconds demand six decimals, and are kept in UTC.
fn times(kind: &Kind, object: &mut Value) -> Result<(), Failure> {
    let fields: &[(&str, &str)] = match kind.table().as_str() {
        kinds::LEASES => &[("spec", "acquireTime"), ("spec", "renewTime")],
        kinds::EVENTS => &[("", "eventTime"), ("series", "lastObservedTime")],
        _ => return Ok(()),
    };
    for (parent, field) in fields {
        let parent = if parent.is_empty() { Some(&mut *object) } else { object.get_mut(*parent) };
        let Some(slot) = parent.and_then(|it| it.get_mut(*field)) else { continue };
        let Some(text) = slot.as_str() else { continue };
        let decimals = text.split_once('.').map_or(0, |it| it.1.bytes().take_while(u8::is_ascii_digit).count());
        match text.parse::<clock::Timestamp>() {
            Ok(time) if decimals == 6 => *slot = format!("{time:.6}").into(),
            _ => {
                let why = format!(
                    "{} in version \"v1\" cannot be handled as a {}: parsing time {text:?} as \
                     \"2006-01-02T15:04:05.000000Z07:00\": cannot parse the fraction as \".000000\"",
                    kind.kind, kind.kind
                );
                return Err(Failure::bad_request(why));
            }
        }
    }
    Ok(())
}

/// Checks a new object.
///
/// # Errors
/// 422 naming every fault.
pub(crate) fn created(kind: &Kind, object: &Value) -> Result<(), Failure> {
    let mut faults = Vec::new();
    name(kind, meta::name(object), &mut faults);
    common(kind, object, &mut faults);
    if kind.is(kinds::CRDS) {
        crd::check(object, &mut faults);
    }
    if kind.is(kinds::API_SERVICES) {
        apiservice::check(object, &mut faults);
    }
    fail(kind, object, &faults)
}

/// Checks a changed object.
///
/// # Errors
/// 422 naming every fault.
pub(crate) fn updated(kind: &Kind, current: &Value, next: &Value) -> Result<(), Failure> {
    let mut faults = Vec::new();
    for field in ["uid", "deletionGracePeriodSeconds"] {
        let value = &next["metadata"][field];
        if *value != current["metadata"][field] {
            faults.push(Fault::invalid(format!("metadata.{field}"), value, "field is immutable"));
        }
    }
    if meta::is_deleting(current) {
        let old = meta::finalizers(current);
        let new: Vec<&str> = meta::finalizers(next).into_iter().filter(|it| !old.contains(it)).collect();
        if !new.is_empty() {
            let why = "no new finalizers can be added if the object is being deleted, found new finalizers []string";
            let quoted: Vec<String> = new.iter().map(|it| format!("{it:?}")).collect();
            faults.push(Fault::forbidden("metadata.finalizers", &format!("{why}{{{}}}", quoted.join(", "))));
        }
    }
    if kind.is(kinds::NAMESPACES) {
        phase(next, &mut faults);
    }
    common(kind, next, &mut faults);
    fail(kind, next, &faults)
}

fn fail(kind: &Kind, object: &Value, faults: &[Fault]) -> Result<(), Failure> {
    if faults.is_empty() { Ok(()) } else { Err(Failure::invalid(kind, meta::name(object), faults)) }
}

fn common(kind: &Kind, object: &Value, faults: &mut Vec<Fault>) {
    finalizers(object, faults);
    owners(object, faults);
    match kind.table().as_str() {
        kinds::EVENTS => event(object, faults),
        kinds::LEASES => lease(object, faults),
        _ => {}
    }
}

fn name(kind: &Kind, name: &str, faults: &mut Vec<Fault>) {
    let part = |it: &str| {
        let edge = |it: Option<char>| it.is_some_and(|it| it.is_ascii_lowercase() || it.is_ascii_digit());
        let inside = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
        edge(it.chars().next()) && edge(it.chars().last()) && it.chars().all(inside)
    };
    let (legal, most, text) = match kind.rules.name {
        NameRule::Label => (part(name), 63, LABEL),
        NameRule::Segment => (!matches!(name, "." | "..") && !name.contains(['/', '%']), 253, SUBDOMAIN),
        NameRule::CronJob => (name.split('.').all(part), 52, SUBDOMAIN),
        NameRule::Subdomain => (name.split('.').all(part), 253, SUBDOMAIN),
    };
    if !legal {
        faults.push(Fault::invalid("metadata.name", &json!(name), text));
    }
    if name.len() > most {
        let why = format!("must be no more than {most} characters");
        faults.push(Fault::invalid("metadata.name", &json!(name), &why));
    }
}

fn finalizers(object: &Value, faults: &mut Vec<Fault>) {
    let list = meta::finalizers(object);
    for finalizer in &list {
        let standard = matches!(*finalizer, "kubernetes" | "orphan" | "foregroundDeletion");
        if !standard && !finalizer.contains('/') {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            faults.push(Fault::invalid("metadata.finalizers", &json!(finalizer), why));
        }
    }
    if list.contains(&"orphan") && list.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        faults.push(Fault::invalid("metadata.finalizers", &json!(list), why));
    }
}

fn owners(object: &Value, faults: &mut Vec<Fault>) {
    let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    for owner in owners {
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                faults.push(Fault::invalid(format!("metadata.ownerReferences.{field}"), &json!(""), why));
            }
        }
        if owner["kind"] == "Event" && owner["apiVersion"] == "v1" {
            faults.push(Fault::invalid("metadata.ownerReferences", owner, "is disallowed from being an owner"));
        }
    }
    let controllers: Vec<&Value> = owners.iter().filter(|it| it["controller"] == true).collect();
    if let [first, second, ..] = controllers[..] {
        let shown = |it: &Value| {
            format!("{}/{}", it["kind"].as_str().unwrap_or_default(), it["name"].as_str().unwrap_or_default())
        };
        let why = format!(
            "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
            shown(first),
            shown(second)
        );
        faults.push(Fault::invalid("metadata.ownerReferences", &json!(owners), &why));
    }
}

fn event(object: &Value, faults: &mut Vec<Fault>) {
    let (own, other) = (meta::namespace(object), object["involvedObject"]["namespace"].as_str().unwrap_or_default());
    let modern = object["eventTime"].is_string();
    let cluster_scoped = other.is_empty() && (own == "default" || (modern && own == "kube-system"));
    if other != own && !cluster_scoped {
        faults.push(Fault::invalid("involvedObject.namespace", &json!(other), "does not match event.namespace"));
    }
}

fn lease(object: &Value, faults: &mut Vec<Fault>) {
    let spec = &object["spec"];
    if let Some(duration) = spec["leaseDurationSeconds"].as_i64().filter(|it| *it <= 0) {
        faults.push(Fault::invalid("spec.leaseDurationSeconds", &json!(duration), "must be greater than 0"));
    }
    if let Some(count) = spec["leaseTransitions"].as_i64().filter(|it| *it < 0) {
        faults.push(Fault::invalid("spec.leaseTransitions", &json!(count), "must be greater than or equal to 0"));
    }
}

fn phase(namespace: &Value, faults: &mut Vec<Fault>) {
    let phase = &namespace["status"]["phase"];
    let deleting = meta::is_deleting(namespace);
    if !deleting && !phase.is_null() && phase != "Active" {
        faults.push(Fault::invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty"));
    }
    if deleting && phase != "Terminating" {
        faults.push(Fault::invalid(
            "status.Phase",
            phase,
            "may only be 'Terminating' if `deletionTimestamp` is not empty",
        ));
    }
}

/// Eight draws from `generateName` were all taken.
pub(crate) fn clash(kind: &Kind, name: &str) -> Failure {
    let mut details = kind.details(name);
    details["retryAfterSeconds"] = json!(1);
    let message = format!(
        "{} {name:?} already exists, the server was not able to generate a unique name for the object",
        kind.qualified()
    );
    Failure::new(409, "AlreadyExists", message, Some(details))
}

/// Invalid in the form that names the resource rather than the kind.
pub(crate) fn invalid_resource(kind: &Kind, name: &str, fault: &Fault) -> Failure {
    let named = Kind { kind: kind.plural.clone(), ..kind.clone() };
    Failure::invalid(&named, name, std::slice::from_ref(fault))
}
