//! A garbage collector for sets: their pods, claims and revisions go with them, or are orphaned.

use fastrand::Rng;
use serde_json::Value;
use testing::sim::World;

use super::{CLAIMS, HOME, PODS, REVISIONS, SETS};
use crate::garbage_collector::GarbageCollector;

pub(super) async fn run(world: World, rng: Rng) {
    let collector = GarbageCollector {
        namespace: HOME,
        owners: SETS,
        owner_kinds: &[("StatefulSet", SETS), ("Pod", PODS)],
        dependents: &[PODS, CLAIMS, REVISIONS],
    };
    collector.run(world, rng, release_claims).await;
}

/// As upstream's PVC protection controller: a deleted claim goes when no pod uses it.
fn release_claims(world: &World) {
    let pods = world.cluster().list(PODS, HOME);
    let uses = |claim: &Value| {
        let volumes = pods.iter().flat_map(|it| it["spec"]["volumes"].as_array().into_iter().flatten());
        volumes.into_iter().any(|it| it["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"])
    };
    for claim in world.cluster().list(CLAIMS, HOME) {
        if claim["metadata"]["deletionTimestamp"].is_string() && !uses(&claim) {
            world.cluster().remove(CLAIMS, HOME, claim["metadata"]["name"].as_str().unwrap_or_default());
        }
    }
}
