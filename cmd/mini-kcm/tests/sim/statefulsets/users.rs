//! Users who create and change sets, and delete pods and claims.

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::{CLAIMS, HOME, MS, PODS, SETS};
use crate::{deletion, kubelet::BROKEN};

/// A set with one claim per pod and these changes of its spec.
pub(super) fn create(world: &World, name: &str, changes: Value) {
    let mut spec = json!({
        "replicas": 2, "serviceName": "svc", "selector": { "matchLabels": { "app": name } }, "revisionHistoryLimit": 1,
        "template": { "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "main", "image": "one" }], "terminationGracePeriodSeconds": 5 } },
        "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } } } }],
    });
    for (key, value) in changes.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let metadata = json!({ "name": name, "namespace": HOME });
    world
        .cluster()
        .create(json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec }));
}

pub(super) fn create_random(world: &World, name: &str, rng: &mut Rng) {
    let policy = if rng.bool() { "OrderedReady" } else { "Parallel" };
    create(
        world,
        name,
        json!({
            "replicas": rng.u8(0..4), "podManagementPolicy": policy, "updateStrategy": strategy(rng),
            "persistentVolumeClaimRetentionPolicy": retention(rng), "revisionHistoryLimit": rng.u8(0..3),
            "minReadySeconds": if rng.bool() { 0 } else { rng.u8(1..6) },
        }),
    );
}

fn strategy(rng: &mut Rng) -> Value {
    match rng.u8(0..6) {
        0 => json!({ "type": "OnDelete" }),
        5 => json!({ "type": "RollingUpdate" }),
        1 => json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": rng.u8(0..3) } }),
        2 => json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0, "maxUnavailable": 2 } }),
        _ => json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } }),
    }
}

fn retention(rng: &mut Rng) -> Value {
    let policy = |rng: &mut Rng| if rng.bool() { "Retain" } else { "Delete" };
    json!({ "whenDeleted": policy(rng), "whenScaled": policy(rng) })
}

pub(super) fn set_image(set: &mut Value, image: &str) {
    set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
}

/// Changes a set as a PUT does, if it exists.
pub(super) fn change(world: &World, name: &str, change: impl FnOnce(&mut Value)) {
    if world.cluster().get(SETS, HOME, name).is_some() {
        world.cluster().update(SETS, HOME, name, change);
    }
}

/// The edits of sets in a run.
#[derive(Clone, Copy)]
enum Edits {
    All,
    Images,
    Sizes,
}

/// Changes a set, a pod or a claim from time to time, until the world is calm.
/// Few kinds of edits make the checks stricter, because any spec of the last minutes may be in use.
pub(super) async fn change_randomly(world: World, mut rng: Rng) {
    let edits = [Edits::All, Edits::Images, Edits::Sizes][rng.usize(..3)];
    loop {
        world.sleep(MS * rng.u32(300..9_000)).await;
        if world.is_calm() {
            return;
        }
        let cluster = world.cluster();
        let Some(set) = pick(&cluster.list(SETS, HOME), &mut rng) else { continue };
        let name = set["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let number = rng.u8(0..20);
        let is_skipped = match edits {
            Edits::All => false,
            Edits::Images => matches!(number, 0..=3 | 8..=12),
            Edits::Sizes => matches!(number, 4..=9 | 11..=12),
        };
        if is_skipped {
            continue;
        }
        match number {
            0..=3 => change(&world, &name, |it| it["spec"]["replicas"] = json!(rng.u8(0..5))),
            4..=7 => {
                let image = ["one", "two", "three", BROKEN][rng.usize(..4)];
                change(&world, &name, |it| set_image(it, image));
            }
            8 => change(&world, &name, |it| it["spec"]["updateStrategy"] = strategy(&mut rng)),
            9 => change(&world, &name, |it| it["spec"]["persistentVolumeClaimRetentionPolicy"] = retention(&mut rng)),
            10 => change(&world, &name, |it| it["spec"]["ordinals"] = json!({ "start": rng.u8(0..3) })),
            11 => change(&world, &name, |it| {
                it["metadata"]["annotations"]["mini-kcm.dev/replace-blocked-pods"] = json!(rng.bool().to_string());
            }),
            12 => replace(&world, &name, &mut rng).await,
            13 => {
                let claims = cluster.list(CLAIMS, HOME);
                if let Some(claim) = pick(&claims, &mut rng) {
                    deletion::delete(&world, CLAIMS, HOME, claim["metadata"]["name"].as_str().unwrap_or_default());
                }
            }
            14 => cluster.compact(),
            15 => cluster.send_bookmarks(),
            _ => {
                let pods = cluster.list(PODS, HOME);
                if let Some(pod) = pick(&pods, &mut rng) {
                    change_pod(&world, pod["metadata"]["name"].as_str().unwrap_or_default(), &mut rng);
                }
            }
        }
    }
}

fn change_pod(world: &World, pod: &str, rng: &mut Rng) {
    let cluster = world.cluster();
    match rng.u8(0..6) {
        0..=2 => deletion::delete(world, PODS, HOME, pod),
        // Removed by force, so that its end is never observed.
        3 => cluster.remove(PODS, HOME, pod),
        4 => drop(cluster.update(PODS, HOME, pod, |it| {
            if let Some(labels) = it["metadata"]["labels"].as_object_mut() {
                labels.remove("statefulset.kubernetes.io/pod-name");
            }
        })),
        _ => drop(cluster.update(PODS, HOME, pod, |it| it["metadata"]["labels"]["app"] = json!("lost"))),
    }
}

/// Deletes a set with one of the three propagation policies. A successor with the same name may be created.
async fn replace(world: &World, name: &str, rng: &mut Rng) {
    let finalizer = [None, Some("orphan"), Some("foregroundDeletion")][rng.usize(..3)];
    deletion::begin_deletion(world, SETS, HOME, name, finalizer);
    world.sleep(MS * rng.u32(0..6_000)).await;
    if rng.u8(0..4) > 0 && world.cluster().get(SETS, HOME, name).is_none() && !world.is_calm() {
        create_random(world, name, rng);
    }
}

/// Changes the sets whose strategy ends no rollout, and removes pods that lost their set and occupy its names. Other sets
/// are not changed: the event would hide that nothing else enqueues them.
pub(super) fn unblock(world: &World) {
    let cluster = world.cluster();
    for set in cluster.list(SETS, HOME) {
        let strategy = &set["spec"]["updateStrategy"];
        if strategy["type"] == "RollingUpdate"
            && strategy["rollingUpdate"]["partition"].as_i64().unwrap_or_default() == 0
        {
            continue;
        }
        change(world, set["metadata"]["name"].as_str().unwrap_or_default(), |it| {
            it["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } });
        });
    }
    for pod in cluster.list(PODS, HOME) {
        if pod["metadata"]["labels"]["app"] == "lost" {
            cluster.remove(PODS, HOME, pod["metadata"]["name"].as_str().unwrap_or_default());
        }
    }
}

fn pick<T: Clone>(all: &[T], rng: &mut Rng) -> Option<T> {
    (!all.is_empty()).then(|| all[rng.usize(..all.len())].clone())
}
