//! A garbage collector for sets: their pods, claims and revisions go with them, or are orphaned.

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::{CLAIMS, HOME, MS, PODS, REVISIONS, SETS, users};

pub(super) async fn run(world: World, mut rng: Rng) {
    loop {
        world.sleep(MS * rng.u32(300..2_500)).await;
        let exists = |owner: &Value| {
            let resource = match owner["kind"].as_str() {
                Some("StatefulSet") => SETS,
                Some("Pod") => PODS,
                _ => return true,
            };
            let found = world.cluster().get(resource, HOME, owner["name"].as_str().unwrap_or_default());
            found.is_some_and(|it| it["metadata"]["uid"] == owner["uid"])
        };
        for resource in [PODS, CLAIMS, REVISIONS] {
            for object in world.cluster().list(resource, HOME) {
                let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                if !owners.is_empty() && !owners.iter().any(&exists) {
                    users::delete(&world, resource, object["metadata"]["name"].as_str().unwrap_or_default());
                }
            }
        }
        release_claims(&world);
        for set in world.cluster().list(SETS, HOME) {
            if set["metadata"]["deletionTimestamp"].is_string() {
                end_set(&world, &set, &mut rng).await;
            }
        }
    }
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

/// Orphans or deletes the dependents of a set, then removes it. Orphaning takes time, and has no order.
async fn end_set(world: &World, set: &Value, rng: &mut Rng) {
    let (name, uid) = (set["metadata"]["name"].as_str().unwrap_or_default(), &set["metadata"]["uid"]);
    let finalizers = set["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let is_orphaning = finalizers.iter().any(|it| it == "orphan");
    let mut waits = false;
    let mut resources = [PODS, CLAIMS, REVISIONS];
    rng.shuffle(&mut resources);
    for resource in resources {
        for object in world.cluster().list(resource, HOME) {
            let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            if !owners.iter().any(|it| it["uid"] == *uid) {
                continue;
            }
            let object = object["metadata"]["name"].as_str().unwrap_or_default();
            if is_orphaning {
                if rng.u8(0..4) == 0 {
                    world.sleep(MS * rng.u32(0..3_000)).await;
                }
                remove_owner(world, resource, object, uid);
            } else {
                users::delete(world, resource, object);
                waits = true;
            }
        }
    }
    if !waits {
        world.cluster().update(SETS, HOME, name, |it| it["metadata"]["finalizers"] = json!([]));
    }
}

fn remove_owner(world: &World, resource: &str, name: &str, owner: &Value) {
    if world.cluster().get(resource, HOME, name).is_some() {
        world.cluster().update(resource, HOME, name, |it| {
            if let Some(owners) = it["metadata"]["ownerReferences"].as_array_mut() {
                owners.retain(|it| it["uid"] != *owner);
            }
        });
    }
}
