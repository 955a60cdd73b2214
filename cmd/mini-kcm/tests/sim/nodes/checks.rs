//! Every guarantee: each stored write of a manager is allowed, and each of its requests is safe.

use clock::Instant;
use test_cluster::{Call, Interception};
use testing::sim::Write;

use super::{
    Checked, LEASES, NODE_LEASES, NODES, PODS, SimulatedCluster,
    model::{Model, text},
    node_checks, pod_checks,
    timeline::Point,
};

/// The namespace of the Lease of the election.
const SYSTEM: &str = "kube-system";

/// Checks a write, and records it in the model.
pub(super) fn check_write(model: &mut Model, write: &Write, now: Instant) -> Checked {
    let (by_manager, point) = (write.by != "world", Point { version: write.version(), at: now });
    let (resource, name) = (write.resource(), write.name());
    let held = match &*resource {
        NODES => {
            let after = write.after();
            let held = if by_manager { node_checks::check(model, write, after.as_ref(), point) } else { Ok(()) };
            model.record_node(name, after, !by_manager, point);
            held
        }
        PODS => {
            let after = write.after();
            let uid = after.clone().or_else(|| write.before()).map(|it| text(&it["metadata"]["uid"]));
            let uid = uid.unwrap_or_default();
            let held = if by_manager { pod_checks::check(model, write, &uid, after.as_ref(), point) } else { Ok(()) };
            model.record_pod(&uid, after.as_ref(), point);
            held
        }
        LEASES if write.namespace() == NODE_LEASES && !by_manager => {
            model.record_lease(name, write.after().as_ref(), point);
            Ok(())
        }
        LEASES if write.namespace() == SYSTEM => Ok(()),
        other if by_manager && !other.starts_with("events") => Err("writes an object of another type".to_owned()),
        _ => Ok(()),
    };
    held.map_err(|why| format!("{} on {resource} {name}: {why}", write.by))
}

/// Checks each request of a manager: what it deletes or patches is named by uid or version. While the API server is
/// away, every request fails.
pub(super) fn check_requests(cluster: &SimulatedCluster) {
    let reporter = cluster.world.clone();
    let machines = cluster.machines.clone();
    let clock = cluster.world.clock().clone();
    // The role of the built-in manager does not allow it.
    let may_get_leases = cluster.world.rng().bool();
    cluster.world.cluster().intercept(move |call| {
        if machines.lock().is_server_away(clock.now()) {
            return Interception::Fail;
        }
        if call.resource == "selfsubjectaccessreviews" {
            return Interception::access(may_get_leases);
        }
        if !may_get_leases && call.verb == "get" && call.path.contains(NODE_LEASES) {
            reporter.fail(format!("gets a Lease without the right: {}", call.path));
        }
        if let Err(why) = check_request(call) {
            reporter.fail(format!("{} {} {why}: {}", call.method, call.path, call.json()));
        }
        Interception::Pass
    });
}

fn check_request(call: &Call) -> Checked {
    let body = call.json();
    let (uid, version) = (&body["metadata"]["uid"], &body["metadata"]["resourceVersion"]);
    let needs_version = call.subresource == "status" || !body["spec"].is_null() || body.is_array();
    match (call.verb, &*call.resource, &*call.subresource) {
        ("deletecollection", ..) => Err("deletes a whole collection".to_owned()),
        ("delete", ..) if !body["preconditions"]["uid"].is_string() => Err("has no uid precondition".to_owned()),
        ("update", "pods", _) | ("update", "nodes", "") => Err("overwrites the object".to_owned()),
        ("patch", "pods", _) if !uid.is_string() => Err("has no uid precondition".to_owned()),
        ("update" | "patch", "nodes", _) if needs_version && !version.is_string() => {
            Err("has no resourceVersion".to_owned())
        }
        _ => Ok(()),
    }
}
