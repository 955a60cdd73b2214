//! Jobs of every kind under all faults: the guarantees of the controller, simulated nodes for the pods, and users who
//! change Jobs and pods.

mod condition_checks;
mod garbage_collector;
mod kubelet;
mod model;
mod pod_checks;
mod status_checks;
mod users;
mod workload;

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::json;
use test_cluster::Change;
use testing::sim::{Scenario, World, Write};
use tokio::sync::mpsc;

use crate::manager::manager;
use kubelet::PodEvent;
use model::Model;

const MS: Duration = Duration::from_millis(1);
/// The Lease of the leader election.
const LEASE: &str = "kube-system/kube-controller-manager";
/// Only the Job controller.
const FLAGS: &[&str] = &["--controllers=job-controller"];
/// The time limit after the faults: a hung call, a frozen watch, an expiring Lease, and the back-off after many
/// failures.
const TIME_LIMIT: Duration = Duration::from_secs(420);

/// The model, shared with its readers.
type SharedModel = Arc<Mutex<Model>>;

/// For many seeds: two managers, Jobs of every kind, and users.
pub(crate) fn random() -> Scenario {
    Scenario::new("jobs", run_random)
}

/// For a sweep: the smallest scenario with every step.
pub(crate) fn swept() -> Scenario {
    Scenario::new("jobs, swept", run_swept)
}

async fn run_random(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let shared = start(&world, &mut rng);
    let some = rng.u8(1..4);
    for number in 0..some {
        workload::create_random(&world, &format!("j{number}"), &mut rng);
    }
    workload::create_foreign_pod(&world, "stranger");
    world.run_elected("a", LEASE, manager(FLAGS));
    if rng.u8(0..3) > 0 {
        world.spawn("users", users::change_randomly(world.clone(), shared.clone(), rng.fork()));
    }
    if rng.u8(0..8) == 0 {
        world.spawn("relabel", users::relabel_pods(world.clone(), shared.clone(), rng.fork()));
    }
    world.sleep(MS * rng.u32(0..3_000)).await;
    world.run_elected("b", LEASE, manager(FLAGS));
    world.sleep(MS * rng.u32(0..8_000)).await;
    workload::create_random(&world, "late", &mut rng);
    world.sleep(MS * rng.u32(4_000..90_000)).await;
    world.calm();
    unblock_jobs(&world);
    wait_until_finished(&world, &shared).await
}

async fn run_swept(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let shared = start(&world, &mut rng);
    let quick = json!({ kubelet::RUN_TIME: "1500" });
    let plain = json!({ "completions": 2, "parallelism": 2, "backoffLimit": 1 });
    workload::create(&world, "plain", plain, quick.clone(), 1);
    let notes = json!({ kubelet::RUN_TIME: "1200", kubelet::FAILING_INDEX: "1" });
    let indexed = json!({
        "completionMode": "Indexed", "completions": 3, "parallelism": 2, "backoffLimitPerIndex": 0,
    });
    workload::create(&world, "indexed", indexed, notes, 1);
    let labels = json!({ "app": "by-hand" });
    let by_hand = json!({
        "suspend": true, "manualSelector": true, "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels } },
    });
    workload::create(&world, "by-hand", by_hand, json!({}), 1);
    world.run_elected("a", LEASE, manager(FLAGS));
    world.sleep(MS * 2_500).await;
    world.cluster().remove("jobs.batch", users::HOME, "by-hand");
    world.run_elected("b", LEASE, manager(FLAGS));
    let failing = json!({ "completions": 2, "parallelism": 2, "backoffLimit": 0 });
    workload::create(
        &world,
        "failing",
        failing,
        json!({ kubelet::RUN_TIME: "2000", kubelet::FAILURE_RATE: "1000" }),
        1,
    );
    world.sleep(MS * 2_000).await;
    users::delete_job(&world, "plain", Some("orphan"));
    world.sleep(MS * 2_500).await;
    if world.cluster().get("jobs.batch", users::HOME, "plain").is_none() {
        workload::create(&world, "plain", json!({ "completions": 1 }), quick, 1);
    }
    world.sleep(MS * 12_000).await;
    // A process with a stale cache would adopt this pod for the deleted Job.
    workload::create_orphan(&world, "stray", &labels, &mut rng);
    world.sleep(MS * 3_000).await;
    world.calm();
    unblock_jobs(&world);
    wait_until_finished(&world, &shared).await
}

/// A cluster with nodes and a garbage collector, and with all guarantees checked.
fn start(world: &World, rng: &mut Rng) -> SharedModel {
    let shared = SharedModel::default();
    let (sender, receiver) = mpsc::unbounded_channel();
    let (model, clock) = (shared.clone(), world.clock().clone());
    world.always("the guarantees of the Job controller", move |write| {
        let held = pod_checks::check_write(&mut model.lock(), write, clock.now());
        if let Some(it) = node_event(write) {
            // The receiver exists during the whole run.
            let _ = sender.send(it);
        }
        held
    });
    require_uids(world);
    world.cluster().create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": users::HOME } }));
    world.spawn("nodes", kubelet::nodes(world.clone(), receiver, rng.fork()));
    world.spawn("collector", garbage_collector::run(world.clone(), shared.clone(), rng.fork()));
    shared
}

/// The event for a node, if the write needs one.
fn node_event(write: &Write) -> Option<PodEvent> {
    if write.resource() != "pods" {
        return None;
    }
    let after = write.after()?;
    let text = |it: &str| after["metadata"][it].as_str().unwrap_or_default().to_owned();
    let (namespace, name, uid) = (text("namespace"), text("name"), text("uid"));
    if write.change() == Change::Added {
        return Some(PodEvent::Created { namespace, name, uid });
    }
    let deletes = after["metadata"]["deletionTimestamp"].is_string();
    let deleted = write.before().is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string());
    (deletes && !deleted).then_some(PodEvent::Deleted { namespace, name, uid })
}

/// Checks that each delete and patch by name has a uid precondition, and that no status write is rejected as invalid.
fn require_uids(world: &World) {
    let reporter = world.clone();
    world.cluster().intercept(move |call| {
        let text = call.json();
        let named = match call.verb {
            "delete" => text["preconditions"]["uid"].is_string(),
            "patch" if call.resource == "pods" => text["metadata"]["uid"].is_string(),
            _ => true,
        };
        if !named {
            reporter.fail(format!("{} {} has no uid precondition", call.method, call.path));
        }
        test_cluster::Interception::Pass
    });
    let reporter = world.clone();
    world.cluster().on_response(move |call| {
        if call.status == 422 && call.resource == "jobs" {
            reporter.fail(format!("a status is refused as invalid: {} {}", call.path, call.json()["status"]));
        }
    });
}

/// Changes the Jobs so that each can end.
fn unblock_jobs(world: &World) {
    for job in world.cluster().list("jobs.batch", users::HOME) {
        let name = job["metadata"]["name"].as_str().unwrap_or_default();
        if job["spec"]["suspend"] == true || job["spec"]["parallelism"] == 0 {
            world.cluster().update("jobs.batch", users::HOME, name, |it| {
                it["spec"]["suspend"] = false.into();
                if it["spec"]["parallelism"] == 0 {
                    it["spec"]["parallelism"] = 1.into();
                }
            });
        }
    }
}

/// Every Job ends, no pod keeps its finalizer, and no pod of a finished Job continues to run.
async fn wait_until_finished(world: &World, shared: &SharedModel) -> Result<(), String> {
    let what = "every Job is finished, and its pods have ended";
    world.eventually_complete(TIME_LIMIT, what, || first_unfinished(&shared.lock())).await
}

/// The first object that has not ended yet, as a text.
fn first_unfinished(model: &Model) -> Option<String> {
    let foreign = |job: &Option<String>| {
        let job = job.as_deref().and_then(|it| model.jobs.get(it));
        job.is_some_and(|it| it.is_foreign())
    };
    for job in model.jobs.values().filter(|it| !it.gone && !it.is_foreign()) {
        if !job.is_finished() || job.deleted_since.is_some() {
            return Some(format!("Job {} (uid {}) is not finished", job.name, job.uid));
        }
    }
    for pod in model.pods.values().filter(|it| !it.gone && !it.foreign && !foreign(&it.job)) {
        if pod.tracked {
            return Some(format!("pod {} still has its finalizer", pod.name));
        }
        if pod.is_running() && pod.job.is_some() {
            return Some(format!("pod {} still runs although its Job is finished", pod.name));
        }
    }
    None
}
