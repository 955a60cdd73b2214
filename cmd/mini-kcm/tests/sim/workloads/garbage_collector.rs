//! Garbage collectors: the ReplicaSets of a Deployment and the pods of a set go with it, or are orphaned.

use fastrand::Rng;
use testing::sim::World;

use super::{CONTROLLERS, DEPLOYMENTS, HOME, PODS, SETS};
use crate::garbage_collector::GarbageCollector;

/// Starts one for each kind of owner.
pub(super) fn start(world: &World, rng: &mut Rng) {
    let of_deployments = &[("Deployment", DEPLOYMENTS)];
    let of_sets = &[("ReplicaSet", SETS), ("ReplicationController", CONTROLLERS)];
    let collectors = [
        GarbageCollector { namespace: HOME, owners: DEPLOYMENTS, owner_kinds: of_deployments, dependents: &[SETS] },
        GarbageCollector { namespace: HOME, owners: SETS, owner_kinds: of_sets, dependents: &[PODS] },
        GarbageCollector { namespace: HOME, owners: CONTROLLERS, owner_kinds: of_sets, dependents: &[PODS] },
    ];
    for collector in collectors {
        world.spawn("collector", collector.run(world.clone(), rng.fork(), |_| {}));
    }
}
