//! StatefulSets under all faults: the guarantees of the controller, simulated nodes, a garbage collector, and users who
//! change sets, pods and claims.

mod checks;
mod garbage_collector;
mod model;
mod users;

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testing::sim::{Scenario, World};

use crate::{
    kubelet::{self, NodePod, PodEvents},
    manager::manager,
    requests,
    workloads::selects,
};
use model::{Model, controller};

const MS: Duration = Duration::from_millis(1);
/// The namespace of the sets.
const HOME: &str = "work";
const SETS: &str = "statefulsets.apps";
const PODS: &str = "pods";
const CLAIMS: &str = "persistentvolumeclaims";
const REVISIONS: &str = "controllerrevisions.apps";
/// The Lease of the leader election.
const LEASE: &str = "kube-system/kube-controller-manager";
/// Only the StatefulSet controller.
const FLAGS: &[&str] = &["--controllers=statefulset-controller"];
/// The time limit after the faults: a hung call, a frozen watch, an expiring Lease, and a rollout of all pods.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// The model, shared with its readers.
type SharedModel = Arc<Mutex<Model>>;

/// For many seeds: two managers, sets of every kind, and users.
pub(crate) fn random() -> Scenario {
    Scenario::new("statefulsets", run_random)
}

/// For a sweep: the smallest scenario with every step.
pub(crate) fn swept() -> Scenario {
    Scenario::new("statefulsets, swept", run_swept)
}

async fn run_random(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let shared = start(&world, &mut rng);
    for number in 0..rng.u8(1..3) {
        users::create_random(&world, &format!("s{number}"), &mut rng);
    }
    world.run_elected("a", LEASE, manager(FLAGS));
    world.spawn("users", users::change_randomly(world.clone(), rng.fork()));
    world.sleep(MS * rng.u32(0..8_000)).await;
    world.run_elected("b", LEASE, manager(FLAGS));
    world.sleep(MS * rng.u32(10_000..90_000)).await;
    finish(&world, &shared).await
}

async fn run_swept(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let shared = start(&world, &mut rng);
    let both = json!({ "whenDeleted": "Delete", "whenScaled": "Delete" });
    let spec = json!({ "replicas": 2, "persistentVolumeClaimRetentionPolicy": both });
    users::create(&world, "ordered", spec);
    users::create(&world, "parallel", json!({ "replicas": 1, "podManagementPolicy": "Parallel" }));
    world.run_elected("a", LEASE, manager(FLAGS));
    world.sleep(MS * 4_000).await;
    for set in ["ordered", "parallel"] {
        users::change(&world, set, |it| users::set_image(it, "two"));
    }
    world.run_elected("b", LEASE, manager(FLAGS));
    world.sleep(MS * 4_000).await;
    users::change(&world, "ordered", |it| it["spec"]["replicas"] = json!(1));
    world.sleep(MS * 4_000).await;
    users::change(&world, "ordered", |it| it["spec"]["replicas"] = json!(2));
    world.sleep(MS * 5_000).await;
    finish(&world, &shared).await
}

/// A cluster with nodes and a garbage collector, and with all guarantees checked.
fn start(world: &World, rng: &mut Rng) -> SharedModel {
    let shared = SharedModel::default();
    let (events, receiver) = PodEvents::new();
    let (model, clock) = (shared.clone(), world.clock().clone());
    world.always("the guarantees of the StatefulSet controller", move |write| {
        events.report(write);
        checks::check_write(&mut model.lock(), write, clock.now())
    });
    requests::check_preconditions(world, &[PODS], &[PODS]);
    requests::check_statuses(world, &["statefulsets"]);
    world.cluster().create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HOME } }));
    world.spawn("nodes", kubelet::run(world.clone(), receiver, rng.fork(), run_pod));
    world.spawn("collector", garbage_collector::run(world.clone(), rng.fork()));
    shared
}

async fn run_pod(pod: NodePod, mut rng: Rng) {
    pod.world.sleep(MS * rng.u32(0..1_000)).await;
    if let Some(object) = pod.pending() {
        pod.run_on("node", &object, true, rng).await;
    }
}

/// The faults end, and every rollout too.
async fn finish(world: &World, shared: &SharedModel) -> Result<(), String> {
    world.calm();
    users::unblock(world);
    let first_fault = || first_unfinished(world).or_else(|| shared.lock().check_history_limits().err());
    world.eventually_complete(TIME_LIMIT, "every set has its pods, and every rollout has ended", first_fault).await
}

/// The first object that is not in its final state, as a text.
fn first_unfinished(world: &World) -> Option<String> {
    let cluster = world.cluster();
    let pods = cluster.list(PODS, HOME);
    let sets = cluster.list(SETS, HOME);
    for set in &sets {
        let (name, spec, status) = (set["metadata"]["name"].as_str()?, &set["spec"], &set["status"]);
        if set["metadata"]["deletionTimestamp"].is_string() {
            return Some(format!("{name} is being deleted"));
        }
        let replicas = spec["replicas"].as_i64().unwrap_or_default();
        let start = spec["ordinals"]["start"].as_i64().unwrap_or_default();
        let counters = ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "currentReplicas"];
        let wrong = counters.iter().find(|it| status[**it].as_i64().unwrap_or_default() != replicas);
        if let Some(wrong) = wrong {
            return Some(format!("{wrong} of {name} is {}, not {replicas}", status[*wrong]));
        }
        if status["currentRevision"] != status["updateRevision"]
            || status["observedGeneration"] != set["metadata"]["generation"]
        {
            return Some(format!("the rollout of {name} has not ended: {status}"));
        }
        let image = &spec["template"]["spec"]["containers"][0]["image"];
        let owned = pods.iter().filter(|it| it["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"]);
        let mut names: Vec<&str> = Vec::new();
        for pod in owned {
            if pod["spec"]["containers"][0]["image"] != *image {
                return Some(format!("{} has not the template of {name}", pod["metadata"]["name"]));
            }
            let is_available = kubelet::is_available(world, pod, &spec["minReadySeconds"]);
            if !is_available || pod["metadata"]["deletionTimestamp"].is_string() {
                return Some(format!("{} is not available", pod["metadata"]["name"]));
            }
            names.extend(pod["metadata"]["name"].as_str());
        }
        let is_adoptable = |pod: &&Value| {
            controller(pod).is_none()
                && pod["metadata"]["deletionTimestamp"].is_null()
                && selects(&spec["selector"]["matchLabels"], &pod["metadata"]["labels"])
        };
        if let Some(pod) = pods.iter().find(is_adoptable) {
            return Some(format!("{} has no owner, and {name} selects it", pod["metadata"]["name"]));
        }
        names.sort_unstable();
        let mut wanted: Vec<String> = (start..start + replicas).map(|it| format!("{name}-{it}")).collect();
        wanted.sort_unstable();
        if names != wanted {
            return Some(format!("{name} has the pods {names:?}, not {wanted:?}"));
        }
        let deletes = spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] == "Delete";
        let retained = cluster.list(CLAIMS, HOME).into_iter().find(|claim| {
            let claim = claim["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let ordinal = claim.strip_prefix(&format!("data-{name}-")).and_then(|it| it.parse::<i64>().ok());
            ordinal.is_some_and(|it| {
                cluster.get(CLAIMS, HOME, &claim).is_some_and(|claim| {
                    claim["metadata"]["ownerReferences"][0]["kind"] == "Pod" && (start..start + replicas).contains(&it)
                })
            })
        });
        if let Some(claim) = retained.filter(|_| deletes) {
            return Some(format!("{} still belongs to an earlier pod", claim["metadata"]["name"]));
        }
        let owns_claims = spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete";
        for claim in wanted.iter().filter_map(|it| cluster.get(CLAIMS, HOME, &format!("data-{it}"))) {
            let owners = claim["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
            let is_owned = owners.iter().any(|it| it["uid"] == set["metadata"]["uid"]);
            if is_owned != owns_claims && claim["metadata"]["deletionTimestamp"].is_null() {
                return Some(format!("the owners of {} are {owners:?}", claim["metadata"]["name"]));
            }
        }
    }
    None
}
