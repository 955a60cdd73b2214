//! Simulated nodes: pods become ready, and end when they are deleted.

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{HOME, MS, PODS};

/// Pods of this image do not become ready before the world is calm.
pub(super) const BROKEN: &str = "broken";

/// All nodes. An event has the name and the uid of a pod, and whether it is being deleted.
pub(super) async fn run(world: World, mut events: UnboundedReceiver<(String, String, bool)>, mut rng: Rng) {
    while let Some((name, uid, is_deleted)) = events.recv().await {
        let (world, rng) = (world.clone(), rng.fork());
        match is_deleted {
            false => world.clone().spawn("pod", run_pod(world, name, uid, rng)),
            true => world.clone().spawn("pod's end", end_pod(world, name, uid, rng)),
        }
    }
}

fn current(world: &World, name: &str, uid: &str) -> Option<Value> {
    world.cluster().get(PODS, HOME, name).filter(|it| it["metadata"]["uid"] == uid)
}

async fn run_pod(world: World, name: String, uid: String, mut rng: Rng) {
    world.sleep(MS * rng.u32(0..1_000)).await;
    let may_run = |it: &Value| it["metadata"]["deletionTimestamp"].is_null() && it["status"]["phase"] == "Pending";
    let Some(pod) = current(&world, &name, &uid).filter(may_run) else { return };
    set_ready(&world, &name, false);
    world.sleep(MS * rng.u32(0..2_500)).await;
    while pod["spec"]["containers"][0]["image"] == BROKEN && !world.is_calm() {
        world.sleep(MS * 1_000).await;
    }
    let runs = |it: &Value| it["metadata"]["deletionTimestamp"].is_null() && it["status"]["phase"] == "Running";
    if current(&world, &name, &uid).is_some_and(|it| runs(&it)) {
        set_ready(&world, &name, true);
    }
    if rng.u8(0..10) > 0 {
        return;
    }
    // The pod is evicted.
    world.sleep(MS * rng.u32(1_000..30_000)).await;
    if !world.is_calm() && current(&world, &name, &uid).is_some_and(|it| runs(&it)) {
        world.cluster().update(PODS, HOME, &name, |it| {
            it["status"]["phase"] = "Failed".into();
            it["status"]["conditions"] = json!([]);
        });
    }
}

fn set_ready(world: &World, pod: &str, is_ready: bool) {
    let at = world.clock().wall().as_second();
    let at = clock::Timestamp::from_second(at).unwrap_or(clock::Timestamp::UNIX_EPOCH).to_string();
    let status = if is_ready { "True" } else { "False" };
    world.cluster().update(PODS, HOME, pod, |it| {
        it["spec"]["nodeName"] = "node".into();
        it["status"]["phase"] = "Running".into();
        it["status"]["conditions"] = json!([{ "type": "Ready", "status": status, "lastTransitionTime": at }]);
    });
}

async fn end_pod(world: World, name: String, uid: String, mut rng: Rng) {
    world.sleep(MS * rng.u32(0..4_000)).await;
    if current(&world, &name, &uid).is_some() {
        world.cluster().remove(PODS, HOME, &name);
    }
}
