use std::sync::Arc;

use clock::Timestamp;
use serde_json::{Value, json};

use crate::{
    Failure,
    delete::{DeleteOptions, Deleted, finalizers_after},
    kinds::{self, Kind},
    meta,
    response::Fault,
    store::State,
    write,
};

/// Namespaces that always exist.
pub(crate) const ALWAYS: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Refuses an update in a namespace that does not exist.
pub(crate) fn admit_update(state: &State, namespace: &str) -> Result<(), Failure> {
    match state.stored(kinds::NAMESPACES, namespace) {
        Some(_) => Ok(()),
        None => Err(missing(namespace)),
    }
}

fn missing(namespace: &str) -> Failure {
    let message = format!("namespaces {namespace:?} not found");
    Failure::new(404, "NotFound", message, Some(json!({ "name": namespace, "kind": "namespaces" })))
}

/// Refuses a create in a namespace that does not exist or is being deleted.
pub(crate) fn admit_create(state: &State, kind: &Kind, namespace: &str, name: &str) -> Result<(), Failure> {
    let Some(found) = state.stored(kinds::NAMESPACES, namespace) else {
        return Err(missing(namespace));
    };
    if !found.is_deleting() {
        return Ok(());
    }
    let message = format!(
        "{} {name:?} is forbidden: unable to create new content in namespace {namespace} because it is being terminated",
        kind.qualified()
    );
    let mut details = kind.details(name);
    details["causes"] = json!([{
        "reason": "NamespaceTerminating",
        "message": format!("namespace {namespace} is being terminated"),
        "field": "metadata.namespace",
    }]);
    Err(Failure::new(403, "Forbidden", message, Some(details)))
}

/// Sets the fields of a new namespace.
pub(crate) fn on_create(object: &mut Value) {
    let mut finalizers: Vec<String> =
        meta::texts(&object["spec"], "finalizers").into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|it| it == "kubernetes") {
        finalizers.push("kubernetes".into());
    }
    meta::map(object, "spec").insert("finalizers".into(), json!(finalizers));
    on_update(object);
}

/// Faults of `spec.finalizers`. The messages of the finalize subresource have the index.
pub(crate) fn check_finalizers(object: &Value, numbered: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (at, finalizer) in meta::texts(&object["spec"], "finalizers").into_iter().enumerate() {
        if finalizer != "kubernetes" && !finalizer.contains('/') {
            let field = if numbered { format!("spec.finalizers[{at}]") } else { "spec.finalizers".into() };
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            faults.push(Fault::invalid(field, &finalizer.into(), why));
        }
    }
    faults
}

/// The label with the name is set again at every write.
pub(crate) fn on_update(object: &mut Value) {
    let name = meta::name(object).to_owned();
    let mut labels = object["metadata"]["labels"].take();
    meta::as_map(&mut labels).insert(NAME_LABEL.into(), name.into());
    meta::set(object, "labels", labels);
}

/// The first DELETE marks the namespace; a later one removes it when it has no finalizers.
pub(crate) fn delete(
    state: &mut State,
    kind: &Kind,
    current: &Arc<Value>,
    options: &DeleteOptions,
    now: Timestamp,
) -> Result<Deleted, Failure> {
    let name = meta::name(current).to_owned();
    if ALWAYS[..3].contains(&name.as_str()) {
        return Err(Failure::forbidden(kind, &name, "this namespace may not be deleted"));
    }
    if let Some(uid) = options.uid.as_deref().filter(|it| *it != meta::uid(current)) {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", meta::uid(current));
        return Err(Failure::conflict(kind, &name, &why));
    }
    if let Some(version) = options.version.as_deref().filter(|it| *it != meta::version(current)) {
        let why = format!(
            "Precondition failed: ResourceVersion in precondition: {version}, ResourceVersion in object meta: {}",
            meta::version(current)
        );
        return Err(Failure::conflict(kind, &name, &why));
    }
    let held = !meta::texts(&current["spec"], "finalizers").is_empty();
    if meta::is_deleting(current) && held {
        return Ok(Deleted::Remains(current.clone()));
    }
    let mut next = Value::clone(current);
    let finalizers = finalizers_after(kind, current, options);
    meta::set_finalizers(&mut next, &finalizers.iter().map(String::as_str).collect::<Vec<_>>());
    if meta::is_deleting(current) {
        // Without spec.finalizers it is deleted like any other object.
        meta::set(&mut next, "deletionGracePeriodSeconds", 0);
        if write::may_be_removed(kind, &next) {
            return Ok(Deleted::Gone(state.remove(kinds::NAMESPACES, &name, now)?));
        }
    } else {
        meta::set(&mut next, "deletionTimestamp", meta::stamp(now));
    }
    meta::map(&mut next, "status").insert("phase".into(), "Terminating".into());
    if next == **current {
        return Ok(Deleted::Remains(current.clone()));
    }
    Ok(Deleted::Remains(state.put(kinds::NAMESPACES, &name, next)?))
}
