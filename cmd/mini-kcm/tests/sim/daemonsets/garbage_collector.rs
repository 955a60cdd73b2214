//! Garbage collectors: the pods and revisions of a set go with it, or are orphaned; pods of removed nodes go.

use fastrand::Rng;
use testing::sim::World;

use super::{HOME, MS, NODES, PODS, REVISIONS, SETS};
use crate::garbage_collector::GarbageCollector;

pub(super) async fn run(world: World, rng: Rng) {
    let collector = GarbageCollector {
        namespace: HOME,
        owners: SETS,
        owner_kinds: &[("DaemonSet", SETS)],
        dependents: &[PODS, REVISIONS],
    };
    collector.run(world, rng, |_| {}).await;
}

/// As upstream's pod garbage collector: removes pods that are bound to a node that does not exist.
pub(super) async fn remove_pods_of_removed_nodes(world: World, mut rng: Rng) {
    loop {
        world.sleep(MS * rng.u32(1_000..10_000)).await;
        for pod in world.cluster().list(PODS, HOME) {
            let Some(node) = pod["spec"]["nodeName"].as_str() else { continue };
            if world.cluster().get(NODES, "", node).is_none() {
                world.cluster().remove(PODS, HOME, pod["metadata"]["name"].as_str().unwrap_or_default());
            }
        }
    }
}
