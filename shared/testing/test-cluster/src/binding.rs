//! Binding a pod to a node, as a scheduler does.

use clock::Timestamp;
use http::Response;
use serde_json::{Value, json};

use crate::{
    Failure, ResponseBody, admission,
    cluster::Shared,
    decode,
    kinds::{self, Kind},
    meta, namespace,
    options::{Verb, WriteOptions},
    pod_status, response,
    rest::Exchange,
    store::State,
    write::{self, Target},
};

/// Serves a POST to `pods/<name>/binding`, or to `bindings`, where only the body names the pod.
pub(crate) fn serve(shared: &Shared, exchange: &Exchange, target: &Target) -> Result<Response<ResponseBody>, Failure> {
    exchange.check_body()?;
    let options = WriteOptions::parse(Verb::Create, &exchange.query)?;
    let Some(kind) = kinds::by_route(kinds::BINDINGS) else { return Err(Failure::no_route()) };
    let sent = decode::body(kind, "v1", &exchange.body, options.strictness)?;
    write::check_namespace(target, &sent.object)?;
    let now = shared.clock.wall();
    shared.state.lock().act(options.dry_run, |state| bind(state, target, &sent.object, now))?;
    Ok(response::warn(response::json_answer(201, &response::created()), &sent.warnings))
}

fn bind(state: &mut State, target: &Target, binding: &Value, now: Timestamp) -> Result<(), Failure> {
    let name = meta::name(binding);
    let target = pod_named(target, name)?;
    namespace::admit_create(state, &target.kind, &target.namespace, name)?;
    let node = node_of(binding)?;
    let current = target.current(state)?;
    check_preconditions(&target.kind, &current, binding)?;
    may_be_bound(&current)?;
    let mut next = Value::clone(&current);
    meta::map(&mut next, "spec").insert("nodeName".into(), node.into());
    if binding["target"]["kind"] == "Node" {
        admission::copy_topology(state, node, &mut next);
    }
    for field in ["annotations", "labels"] {
        let added = binding["metadata"][field].as_object().cloned().unwrap_or_default();
        if !added.is_empty() {
            let mut merged = next["metadata"][field].take();
            meta::as_map(&mut merged).extend(added);
            meta::set(&mut next, field, merged);
        }
    }
    pod_status::set_condition(&mut next, "PodScheduled", "", "", now);
    decode::complete(&target.kind, &mut next);
    state.put(&target.table, &target.key(), next).map(drop)
}

/// The pod of the binding: the one in the URL, which the body must agree with, or the one in the body.
fn pod_named(target: &Target, name: &str) -> Result<Target, Failure> {
    if target.kind.is(kinds::PODS) {
        let same = target.name == name;
        let why = "name in URL does not match name in Binding object";
        return if same { Ok(target.clone()) } else { Err(Failure::bad_request(why)) };
    }
    if name.is_empty() {
        return Err(Failure::bad_request("Name parameter required."));
    }
    let Some(kind) = kinds::by_route(kinds::PODS) else { return Err(Failure::no_route()) };
    Ok(Target { table: kind.table(), kind: kind.clone(), name: name.to_owned(), ..target.clone() })
}

fn node_of(binding: &Value) -> Result<&str, Failure> {
    let text = |field: &str| binding["target"][field].as_str().unwrap_or_default();
    let kind = text("kind");
    if !matches!(kind, "" | "Node") {
        let why = format!("target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\"");
        return Err(Failure::internal(why));
    }
    match text("name") {
        "" => Err(Failure::internal("target.name: Required value")),
        node => Ok(node),
    }
}

/// If the binding has a uid or a version, it must be the pod's.
fn check_preconditions(kind: &Kind, pod: &Value, binding: &Value) -> Result<(), Failure> {
    let parts =
        [("UID", meta::uid(binding), meta::uid(pod)), ("ResourceVersion", meta::version(binding), meta::version(pod))];
    for (part, sent, stored) in parts {
        if !sent.is_empty() && sent != stored {
            return Err(write::storage_conflict(kind, meta::name(pod), part, sent, stored));
        }
    }
    Ok(())
}

fn may_be_bound(pod: &Value) -> Result<(), Failure> {
    let name = meta::name(pod);
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    let why = if meta::is_deleting(pod) {
        format!("pod {name} is being deleted, cannot be assigned to a host")
    } else if !node.is_empty() {
        format!("pod {name} is already assigned to node {node:?}")
    } else if pod["spec"]["schedulingGates"].as_array().is_some_and(|it| !it.is_empty()) {
        format!("pod {name} has non-empty .spec.schedulingGates")
    } else {
        return Ok(());
    };
    let details = json!({ "name": name, "kind": "pods/binding" });
    let message = format!("Operation cannot be fulfilled on pods/binding {name:?}: {why}");
    Err(Failure::new(409, "Conflict", message, Some(details)))
}
