use std::sync::Arc;

use clock::Timestamp;
use serde_json::{Value, json};

use crate::{
    Failure, admission, apiservice, crd, decode,
    kinds::{self, Generation, Kind, StatusRule},
    meta, namespace,
    response::Fault,
    server_fields, service_addresses,
    store::{State, storage_key},
    validate, versions,
};

/// The target of a request.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) table: String,
    pub(crate) kind: Arc<Kind>,
    /// `group/version` of the URL.
    pub(crate) api_version: String,
    /// Empty for cluster-scoped objects and for all namespaces.
    pub(crate) namespace: String,
    /// Empty for collections.
    pub(crate) name: String,
}

impl Target {
    pub(crate) fn key(&self) -> String {
        storage_key(&self.kind, &self.namespace, &self.name)
    }

    /// The object as stored.
    pub(crate) fn current(&self, state: &State) -> Result<Arc<Value>, Failure> {
        state.object(&self.table, &self.key()).ok_or_else(|| Failure::not_found(&self.kind, &self.name))
    }
}

/// Which resource or subresource an update uses. It determines what may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    Finalize,
}

/// Creates an object like a POST: admission, validation, check for existence, in this order.
pub(crate) fn create(state: &mut State, target: &Target, body: Value, now: Timestamp) -> Result<Arc<Value>, Failure> {
    let kind = &target.kind;
    let body = versions::stored(kind, &target.api_version, body);
    if !matches!(meta::version(&body), "" | "0") {
        return Err(Failure::internal("resourceVersion should not be set on objects to be created"));
    }
    check_namespace(target, &body)?;
    let (name, generated) = name_for(state, target, &body);
    if kind.namespaced {
        // A generated name is created later.
        let named = if generated { meta::text(&body, "generateName") } else { &name };
        namespace::admit_create(state, kind, &target.namespace, named)?;
    }
    crd::admit_create(state, kind, &name)?;
    if name.is_empty() {
        let fault = Fault::required("metadata.name", "name or generateName is required");
        return Err(Failure::invalid(kind, "", &[fault]));
    }
    let mut object = prepare(state, kind, &target.namespace, &name, body, now);
    admission::create(state, kind, &mut object)?;
    validate::created(kind, &object)?;
    service_addresses::check(state, kind, &object)?;
    if kind.is(kinds::NAMESPACES) {
        validate::fail(kind, &object, &namespace::check_finalizers(&object, false))?;
    }
    let key = storage_key(kind, &target.namespace, &name);
    if let Some(existing) = state.object(&target.table, &key) {
        return Err(if generated { validate::clash(kind, &name) } else { Failure::already_exists(kind, &existing) });
    }
    let stored = state.put(&target.table, &key, object)?;
    if !state.dry_run {
        crd::after_create(state, kind, &stored, now)?;
        apiservice::after_write(state, kind, &stored, now)?;
    }
    Ok(stored)
}

/// The requested name, or a free one from `generateName`; empty when neither is given.
fn name_for(state: &mut State, target: &Target, body: &Value) -> (String, bool) {
    let (name, prefix) = (meta::name(body), meta::text(body, "generateName"));
    if !name.is_empty() || prefix.is_empty() {
        return (name.to_owned(), false);
    }
    let cut = prefix.char_indices().nth(58).map_or(prefix.len(), |it| it.0);
    let mut drawn = String::new();
    for _ in 0..8 {
        drawn = format!("{}{}", &prefix[..cut], meta::suffix(&mut state.rng));
        if state.stored(&target.table, &storage_key(&target.kind, &target.namespace, &drawn)).is_none() {
            break;
        }
    }
    (drawn, true)
}

/// Sets or clears fields before a new object is stored.
pub(crate) fn prepare(
    state: &mut State,
    kind: &Kind,
    namespace: &str,
    name: &str,
    mut object: Value,
    now: Timestamp,
) -> Value {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "managedFields", "namespace"] {
        meta::remove(&mut object, field);
    }
    meta::set(&mut object, "name", name);
    if kind.namespaced {
        meta::set(&mut object, "namespace", namespace);
    }
    meta::set(&mut object, "uid", meta::new_uid(&mut state.rng));
    meta::set(&mut object, "creationTimestamp", meta::stamp(now));
    if kind.rules.generation != Generation::Unused {
        meta::set(&mut object, "generation", 1);
    }
    if let StatusRule::Apart(initial) = kind.rules.status {
        let fields = meta::as_map(&mut object);
        match serde_json::from_str(initial) {
            Ok(status) => fields.insert("status".into(), status),
            Err(_) => fields.remove("status"),
        };
    }
    server_fields::create(state, kind, &mut object, now);
    meta::as_map(&mut object).insert("apiVersion".into(), kind.api_version().into());
    if kind.is(kinds::NAMESPACES) {
        namespace::on_create(&mut object);
    } else if kind.is(kinds::CRDS) {
        crd::complete(&mut object);
    } else if kind.is(kinds::API_SERVICES) {
        apiservice::complete(&mut object);
    }
    meta::tidy(&mut object);
    decode::complete(kind, &mut object);
    if state.managed_fields {
        meta::set(&mut object, "managedFields", managed_fields(kind, now));
    }
    object
}

/// A `managedFields` entry as on a real server, which clients may remove.
fn managed_fields(kind: &Kind, now: Timestamp) -> Value {
    json!([{
        "manager": "test-cluster", "operation": "Update", "apiVersion": kind.api_version(), "time": meta::stamp(now),
        "fieldsType": "FieldsV1", "fieldsV1": { "f:metadata": { "f:labels": { ".": {}, "f:app": {} } } },
    }])
}

/// Stores `next` instead of `current`, as far as `part` may change it. Nothing is written when nothing changes. An
/// object that is being deleted is removed when `next` has no finalizers any more.
pub(crate) fn update(
    state: &mut State,
    target: &Target,
    current: &Arc<Value>,
    mut next: Value,
    part: Part,
    now: Timestamp,
) -> Result<Arc<Value>, Failure> {
    let kind = &target.kind;
    check_identity(target, &next)?;
    if kind.namespaced {
        namespace::admit_update(state, &target.namespace)?;
    }
    match meta::version(&next) {
        "" | "0" if kind.rules.needs_version => {
            let shown = Value::from(0);
            let fault = Fault::invalid("metadata.resourceVersion", &shown, "must be specified for an update");
            return Err(validate::invalid_resource(kind, &target.name, &fault));
        }
        "" | "0" => {}
        version if version.parse::<u64>().is_err() => {
            return Err(Failure::internal(format!("strconv.ParseUint: parsing {version:?}: invalid syntax")));
        }
        version if version != meta::version(current) => return Err(Failure::modified(kind, &target.name)),
        _ => {}
    }
    keep_metadata(kind, current, &mut next);
    let mut next = combine(kind, current, next, part);
    if kind.is(kinds::NAMESPACES) {
        namespace::on_update(&mut next);
    } else if kind.is(kinds::CRDS) {
        crd::on_update(&mut next);
    }
    if part == Part::Main {
        admission::update(kind, current, &mut next);
    }
    server_fields::update(state, kind, current, &mut next, part, now);
    meta::tidy(&mut next);
    validate::updated(kind, current, &next, part)?;
    service_addresses::check(state, kind, &next)?;
    if part == Part::Finalize {
        validate::fail(kind, &next, &namespace::check_finalizers(&next, true))?;
    }
    if part == Part::Main && is_generation_change(kind, current, &next) {
        let generation = current["metadata"]["generation"].as_i64().unwrap_or(0);
        meta::set(&mut next, "generation", generation.saturating_add(1));
    }
    if next == **current {
        return Ok(current.clone());
    }
    if may_be_removed(kind, &next) {
        state.remove(&target.table, &target.key(), now)?;
        // As a real server: the object as sent, with the old version.
        return Ok(Arc::new(next));
    }
    let stored = state.put(&target.table, &target.key(), next)?;
    if !state.dry_run {
        crd::after_update(state, kind, &stored, now)?;
        apiservice::after_write(state, kind, &stored, now)?;
    }
    Ok(stored)
}

/// A PUT: an update of the existing object, with its uid as a precondition. Some kinds are created if they do not
/// exist.
pub(crate) fn replace(
    state: &mut State,
    target: &Target,
    body: Value,
    part: Part,
    now: Timestamp,
) -> Result<(u16, Arc<Value>), Failure> {
    let kind = &target.kind;
    let body = versions::stored(kind, &target.api_version, body);
    check_identity(target, &body)?;
    let Some(current) = state.object(&target.table, &target.key()) else {
        if !kind.rules.put_creates || part != Part::Main {
            return Err(Failure::not_found(kind, &target.name));
        }
        let mut body = body;
        meta::remove(&mut body, "resourceVersion");
        if !meta::uid(&body).is_empty() {
            return Err(uid_conflict(kind, &target.name, meta::uid(&body), ""));
        }
        return create(state, target, body, now).map(|it| (201, it));
    };
    let uid = meta::uid(&body);
    if !uid.is_empty() && uid != meta::uid(&current) {
        return Err(uid_conflict(kind, &target.name, uid, meta::uid(&current)));
    }
    update(state, target, &current, body, part, now).map(|it| (200, it))
}

pub(crate) fn uid_conflict(kind: &Kind, name: &str, sent: &str, stored: &str) -> Failure {
    storage_conflict(kind, name, "UID", sent, stored)
}

/// The storage refuses the write, because a part of the metadata differs from the precondition.
pub(crate) fn storage_conflict(kind: &Kind, name: &str, part: &str, sent: &str, stored: &str) -> Failure {
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{name}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: {part} in precondition: {sent}, {part} in object meta: {stored}",
        kind.plural
    );
    Failure::conflict(kind, name, &why)
}

/// Checks that name and namespace of the body are those of the URL.
pub(crate) fn check_identity(target: &Target, body: &Value) -> Result<(), Failure> {
    let (name, wanted) = (meta::name(body), &target.name);
    if name.is_empty() {
        let why = format!("the name of the object ({wanted} based on URL) was undeterminable: name must be provided");
        return Err(Failure::bad_request(why));
    }
    if name != wanted {
        let why = format!("the name of the object ({name}) does not match the name on the URL ({wanted})");
        return Err(Failure::bad_request(why));
    }
    check_namespace(target, body)
}

/// Checks that the namespace of the body is that of the URL, or is missing.
pub(crate) fn check_namespace(target: &Target, body: &Value) -> Result<(), Failure> {
    let sent = meta::namespace(body);
    if target.kind.namespaced && !sent.is_empty() && sent != target.namespace {
        let why = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(Failure::bad_request(why));
    }
    Ok(())
}

/// Restores the metadata that an update never changes.
fn keep_metadata(kind: &Kind, current: &Value, next: &mut Value) {
    if meta::uid(next).is_empty() {
        meta::keep(next, current, "uid");
    }
    for field in ["creationTimestamp", "generation", "resourceVersion", "managedFields", "namespace"] {
        meta::keep(next, current, field);
    }
    if meta::is_deleting(current) {
        meta::keep(next, current, "deletionTimestamp");
    }
    // A wrong value is reported by validation; a missing one is restored.
    if next["metadata"]["deletionGracePeriodSeconds"].is_null() {
        meta::keep(next, current, "deletionGracePeriodSeconds");
    }
    let fields = meta::as_map(next);
    fields.insert("kind".into(), kind.kind.clone().into());
    fields.insert("apiVersion".into(), kind.api_version().into());
}

/// Takes from `next` what `part` may change, and the rest from `current`.
fn combine(kind: &Kind, current: &Value, mut next: Value, part: Part) -> Value {
    let take = |into: &mut Value, from: &Value, field: &str| {
        match from.get(field) {
            Some(value) => meta::as_map(into).insert(field.into(), value.clone()),
            None => meta::as_map(into).remove(field),
        };
    };
    match part {
        Part::Main => {
            if kind.status_apart() {
                take(&mut next, current, "status");
            }
            if kind.is(kinds::NAMESPACES) {
                // Only the finalize subresource changes spec.finalizers, and the spec has no other field.
                take(&mut next, current, "spec");
            }
            next
        }
        Part::Status => {
            let mut combined = current.clone();
            if !kind.custom {
                let kept = match kind.table().as_str() {
                    kinds::DEPLOYMENTS => "labels",
                    kinds::PODS => "ownerReferences",
                    _ => "",
                };
                if !kept.is_empty() {
                    meta::keep(&mut next, current, kept);
                }
                if kind.is(kinds::PODS) {
                    meta::keep(&mut next, current, "deletionTimestamp");
                }
                take(&mut combined, &next, "metadata");
            }
            if kind.is(kinds::PODS) && meta::at(&next, "status.qosClass").as_str().unwrap_or_default().is_empty() {
                meta::set_at(&mut next, "status.qosClass", current["status"]["qosClass"].clone());
            }
            take(&mut combined, &next, "status");
            combined
        }
        Part::Finalize => {
            let mut combined = current.clone();
            take(&mut combined, &next, "metadata");
            let finalizers = meta::texts(&next["spec"], "finalizers");
            if finalizers.is_empty() {
                meta::map(&mut combined, "spec").remove("finalizers");
            } else {
                meta::map(&mut combined, "spec").insert("finalizers".into(), json!(finalizers));
            }
            combined
        }
    }
}

/// True when the change from `current` to `next` increases the generation.
pub(crate) fn is_generation_change(kind: &Kind, current: &Value, next: &Value) -> bool {
    match kind.rules.generation {
        Generation::Unused | Generation::Once => false,
        Generation::Spec => current["spec"] != next["spec"],
        Generation::SpecOrAnnotations => {
            current["spec"] != next["spec"] || current["metadata"]["annotations"] != next["metadata"]["annotations"]
        }
        Generation::Template => current["template"] != next["template"],
        Generation::Content | Generation::ContentOrLabels => {
            let ignored = |field: &str| field == "metadata" || (field == "status" && kind.status_apart());
            let content = |object: &Value| -> Vec<(String, Value)> {
                let fields = object.as_object().into_iter().flatten();
                fields.filter(|it| !ignored(it.0)).map(|(field, value)| (field.clone(), value.clone())).collect()
            };
            let labelled = kind.rules.generation == Generation::ContentOrLabels
                && current["metadata"]["labels"] != next["metadata"]["labels"];
            labelled || content(current) != content(next)
        }
    }
}

/// True for an object that is being deleted and has no finalizers.
pub(crate) fn may_be_removed(kind: &Kind, object: &Value) -> bool {
    let grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let held = kind.is(kinds::NAMESPACES) && !meta::texts(&object["spec"], "finalizers").is_empty();
    meta::is_deleting(object) && meta::finalizers(object).is_empty() && grace == 0 && !held
}
