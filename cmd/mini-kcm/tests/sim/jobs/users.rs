//! Users who change Jobs and their pods, and other changes in a cluster.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::{SharedModel, workload};

const MS: Duration = Duration::from_millis(1);
/// The namespace of the Jobs.
pub(super) const HOME: &str = "work";
const JOBS: &str = "jobs.batch";
const PODS: &str = "pods";

/// Changes a Job or one of its pods from time to time, until the world is calm.
pub(super) async fn change_randomly(world: World, shared: SharedModel, mut rng: Rng) {
    loop {
        world.sleep(MS * rng.u32(300..9_000)).await;
        if world.is_calm() {
            return;
        }
        let Some(job) = pick(&world.cluster().list(JOBS, HOME), &mut rng) else { continue };
        let name = job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let uid = job["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        match rng.u8(0..16) {
            0..=3 => change_parallelism(&world, &job, &mut rng),
            4 | 5 => change(&world, &name, |it| {
                let suspended = it["spec"]["suspend"] == true;
                it["spec"]["suspend"] = (!suspended).into();
            }),
            6 => replace(&world, &job, &mut rng).await,
            7 => world.cluster().compact(),
            8 => world.cluster().send_bookmarks(),
            9 => change(&world, &name, |it| it["metadata"]["annotations"]["sim/seen"] = rng.u32(..).to_string().into()),
            _ => {
                let pods: Vec<String> =
                    shared.lock().pods_of(&uid).filter(|it| !it.gone).map(|it| it.name.clone()).collect();
                if let Some(pod) = pick(&pods, &mut rng) {
                    change_pod(&world, &pod, &mut rng);
                }
            }
        }
    }
}

/// Removes running pods of a Job from its selector, one after the other.
pub(super) async fn relabel_pods(world: World, shared: SharedModel, mut rng: Rng) {
    let Some(job) = pick(&world.cluster().list(JOBS, HOME), &mut rng) else { return };
    let uid = job["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    for _ in 0..rng.u8(4..16) {
        world.sleep(MS * rng.u32(300..1_500)).await;
        if world.is_calm() {
            return;
        }
        let pod = shared.lock().pods_of(&uid).find(|it| it.is_active()).map(|it| it.name.clone());
        if let Some(pod) = pod {
            relabel(&world, &pod);
        }
    }
}

/// Changes the labels of a pod, so that the selector of its Job no longer matches.
fn relabel(world: &World, pod: &str) {
    world.cluster().update(PODS, HOME, pod, |it| it["metadata"]["labels"] = json!({ "app": "lost" }));
}

fn pick<T: Clone>(all: &[T], rng: &mut Rng) -> Option<T> {
    (!all.is_empty()).then(|| all[rng.usize(..all.len())].clone())
}

/// Changes a Job as a PUT does, if it exists.
fn change(world: &World, name: &str, change: impl FnOnce(&mut Value)) {
    if world.cluster().get(JOBS, HOME, name).is_some() {
        world.cluster().update(JOBS, HOME, name, change);
    }
}

fn change_parallelism(world: &World, job: &Value, rng: &mut Rng) {
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    let spec = &job["spec"];
    let elastic = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    let size = rng.i64(if elastic { 1 } else { 0 }..=4);
    // Fields that depend on the number of completions would become invalid.
    let free = spec["successPolicy"].is_null() && spec["maxFailedIndexes"].is_null();
    change(world, name, |it| {
        if !elastic || free {
            it["spec"]["parallelism"] = size.into();
        }
        if elastic && free {
            it["spec"]["completions"] = size.into();
        }
    });
}

/// Deletes a Job with one of the three propagation policies. A successor with the same name may be created.
async fn replace(world: &World, job: &Value, rng: &mut Rng) {
    let name = job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let how = [None, Some("orphan"), Some("foregroundDeletion")][rng.usize(..3)];
    delete_job(world, &name, how);
    world.sleep(MS * rng.u32(0..4_000)).await;
    if rng.u8(0..4) > 0 && world.cluster().get(JOBS, HOME, &name).is_none() && !world.is_calm() {
        workload::create_random(world, &name, rng);
    }
}

/// Deletes a Job: without a finalizer with Background, otherwise with this finalizer.
pub(super) fn delete_job(world: &World, name: &str, finalizer: Option<&str>) {
    let now = time_after(world, 0);
    change(world, name, |it| {
        it["metadata"]["finalizers"] = json!(finalizer.into_iter().collect::<Vec<_>>());
        if it["metadata"]["deletionTimestamp"].is_null() {
            it["metadata"]["deletionTimestamp"] = now.into();
            it["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        }
    });
}

fn change_pod(world: &World, pod: &str, rng: &mut Rng) {
    let cluster = world.cluster();
    let Some(now) = cluster.get(PODS, HOME, pod) else { return };
    let ended = matches!(now["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    match rng.u8(0..12) {
        // An ended pod that loses its finalizer before it is counted would never be counted. An ended pod without its
        // Job's label would be counted again when it loses its owner. So users make neither change.
        7 | 8 if ended => {}
        9 if ended && now["metadata"]["labels"]["batch.kubernetes.io/controller-uid"].is_null() => {}
        0..=4 => delete_pod(world, HOME, pod),
        5 | 6 => {
            cluster.update(PODS, HOME, pod, |it| {
                let evicted =
                    json!({ "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI" });
                if let Some(conditions) = it["status"]["conditions"].as_array_mut() {
                    conditions.push(evicted);
                }
            });
            delete_pod(world, HOME, pod);
        }
        7 | 8 => relabel(world, pod),
        9 => remove_owner(world, HOME, pod),
        // Removed by force, so that its end is never observed.
        10 => cluster.remove(PODS, HOME, pod),
        _ => {
            cluster.update(PODS, HOME, pod, |it| it["metadata"]["labels"]["seen"] = rng.u32(..).to_string().into());
        }
    }
}

/// Deletes a pod as a user does, with its grace period.
pub(super) fn delete_pod(world: &World, namespace: &str, name: &str) {
    let Some(pod) = world.cluster().get(PODS, namespace, name) else { return };
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return;
    }
    let runs = pod["spec"]["nodeName"].is_string() && pod["status"]["phase"] == "Running";
    let grace = if runs { pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0) } else { 0 };
    if grace == 0 {
        return world.cluster().delete(PODS, namespace, name);
    }
    let at = time_after(world, grace);
    world.cluster().update(PODS, namespace, name, |it| {
        it["metadata"]["deletionTimestamp"] = at.into();
        it["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    });
}

/// Removes the owner references of a pod.
pub(super) fn remove_owner(world: &World, namespace: &str, name: &str) {
    if world.cluster().get(PODS, namespace, name).is_some() {
        world.cluster().update(PODS, namespace, name, |it| it["metadata"]["ownerReferences"] = json!([]));
    }
}

/// The wall time plus so many seconds, in the format of the API.
pub(super) fn time_after(world: &World, seconds: i64) -> String {
    let at = world.clock().wall().as_second() + seconds;
    clock::Timestamp::from_second(at).unwrap_or(clock::Timestamp::UNIX_EPOCH).to_string()
}
