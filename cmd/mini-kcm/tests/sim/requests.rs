//! Rules for the requests of managers.

use testing::sim::World;

/// Every DELETE has the uid as precondition. Every patch of the `patched` resources has a uid. For the `versioned` ones each
/// DELETE and each patch of a spec has the resourceVersion too.
pub(crate) fn check_preconditions(world: &World, patched: &'static [&'static str], versioned: &'static [&'static str]) {
    let reporter = world.clone();
    world.cluster().intercept(move |call| {
        let body = call.json();
        let needs_version = versioned.contains(&&*call.resource);
        let named = match call.verb {
            "delete" => {
                let preconditions = &body["preconditions"];
                preconditions["uid"].is_string() && (!needs_version || preconditions["resourceVersion"].is_string())
            }
            "patch" if patched.contains(&&*call.resource) => {
                let metadata = &body["metadata"];
                // The server allows no change of the spec of a pod that could be wrong.
                let is_harmless = body["spec"].is_null() || *call.resource == *"pods";
                let is_versioned = metadata["resourceVersion"].is_string() || is_harmless;
                metadata["uid"].is_string() && (!needs_version || is_versioned)
            }
            _ => true,
        };
        if !named {
            let wanted = if needs_version { "uid and version" } else { "uid" };
            reporter.fail(format!("{} {} has no {wanted} precondition", call.method, call.path));
        }
        test_cluster::Interception::Pass
    });
}

/// The server finds every status of these resources valid.
pub(crate) fn check_statuses(world: &World, resources: &'static [&'static str]) {
    let reporter = world.clone();
    world.cluster().on_response(move |call| {
        if call.status == 422 && resources.contains(&&*call.resource) && call.subresource == "status" {
            reporter.fail(format!("a status is refused as invalid: {} {}", call.path, call.json()["status"]));
        }
    });
}
