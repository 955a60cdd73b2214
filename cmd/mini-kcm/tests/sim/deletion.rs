//! How users and garbage collectors of a scenario delete objects.

use serde_json::json;
use testing::sim::World;

const PODS: &str = "pods";

/// Deletes an object as a user does. A pod that runs gets a grace period.
pub(crate) fn delete(world: &World, resource: &str, namespace: &str, name: &str) {
    let Some(object) = world.cluster().get(resource, namespace, name) else { return };
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    if resource != PODS || object["spec"]["nodeName"].is_null() {
        return world.cluster().delete(resource, namespace, name);
    }
    let at = time_after(world, 5);
    world.cluster().update(resource, namespace, name, |it| {
        it["metadata"]["deletionTimestamp"] = at.into();
        it["metadata"]["deletionGracePeriodSeconds"] = 5.into();
    });
}

/// Marks an owner as deleted. The finalizer is the one of the propagation policy; without one the owner is removed.
pub(crate) fn begin_deletion(world: &World, resource: &str, namespace: &str, name: &str, finalizer: Option<&str>) {
    if world.cluster().get(resource, namespace, name).is_none() {
        return;
    }
    let at = time_after(world, 0);
    world.cluster().update(resource, namespace, name, |it| {
        if it["metadata"]["deletionTimestamp"].is_null() {
            it["metadata"]["finalizers"] = json!(finalizer.into_iter().collect::<Vec<_>>());
            it["metadata"]["deletionTimestamp"] = at.into();
            it["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        }
    });
}

/// The wall time plus so many seconds, in the format of the API.
fn time_after(world: &World, seconds: i64) -> String {
    let at = world.clock().wall().as_second() + seconds;
    clock::Timestamp::from_second(at).unwrap_or(clock::Timestamp::UNIX_EPOCH).to_string()
}
