//! ReplicaSets, ReplicationControllers and Deployments under all faults: the guarantees of their controllers, simulated
//! nodes, garbage collectors, and users who change everything.

mod deployment_checks;
mod garbage_collector;
mod goal;
mod model;
mod pod_checks;
mod set_checks;
mod users;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use clock::Instant;
use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::json;
use test_cluster::Change;
use testing::sim::{Scenario, World, Write};

use crate::{
    history::LAG,
    kubelet::{self, NodePod, PodEvents},
    manager::manager,
    requests,
};
pub(crate) use model::selects;
use model::{Model, text};
use users::Edits;

const MS: Duration = Duration::from_millis(1);
/// The namespace of all objects.
const HOME: &str = "work";
const DEPLOYMENTS: &str = "deployments.apps";
const SETS: &str = "replicasets.apps";
const CONTROLLERS: &str = "replicationcontrollers";
const PODS: &str = "pods";
/// The Lease of the leader election.
const LEASE: &str = "kube-system/kube-controller-manager";
/// The controllers of pods.
const OF_PODS: &[&str] = &["--controllers=replicaset-controller,replicationcontroller-controller"];
/// All three controllers.
const ALL: &[&str] = &["--controllers=replicaset-controller,replicationcontroller-controller,deployment-controller"];
/// The nodes.
const NODES: [&str; 3] = ["n0", "n1", "n2"];
/// The time limit after the faults: a hung call, a frozen watch, an expiring Lease, a rollout of all pods, and the
/// back-off of pods that failed at once.
const TIME_LIMIT: Duration = Duration::from_secs(900);

/// The model, shared with its readers.
type SharedModel = Arc<Mutex<Model>>;

/// For many seeds: two managers, ReplicaSets and ReplicationControllers, and users.
pub(crate) fn sets() -> Scenario {
    Scenario::new("replicasets", run_sets)
}

/// For a sweep: the smallest scenario with every step.
pub(crate) fn swept_sets() -> Scenario {
    Scenario::new("replicasets, swept", run_swept_sets)
}

/// The same with Deployments.
pub(crate) fn deployments() -> Scenario {
    Scenario::new("deployments", run_deployments)
}

/// For a sweep: a rolling update, a rollback, and an update with the strategy Recreate.
pub(crate) fn swept_deployments() -> Scenario {
    Scenario::new("deployments, swept", run_swept_deployments)
}

async fn run_sets(world: World) -> Result<(), String> {
    run(world, OF_PODS, |world, rng| {
        for number in 0..rng.u8(1..3) {
            users::create_random(world, &format!("r{number}"), rng);
        }
        users::create_random(world, "c0", rng);
    })
    .await
}

async fn run_deployments(world: World) -> Result<(), String> {
    run(world, ALL, |world, rng| {
        for number in 0..rng.u8(1..3) {
            users::create_random(world, &format!("d{number}"), rng);
        }
        if rng.bool() {
            users::create_random(world, "r0", rng);
        }
    })
    .await
}

async fn run(world: World, flags: &'static [&'static str], create: fn(&World, &mut Rng)) -> Result<(), String> {
    let mut rng = world.rng();
    let edits = Edits::random(&mut rng);
    let shared = start(&world, edits != Edits::Steady, &mut rng);
    create(&world, &mut rng);
    world.run_elected("a", LEASE, manager(flags));
    world.spawn("users", users::change_randomly(world.clone(), edits, rng.fork()));
    world.sleep(MS * rng.u32(0..8_000)).await;
    world.run_elected("b", LEASE, manager(flags));
    world.sleep(MS * edits.duration(&mut rng)).await;
    finish(&world).await?;
    check_last_rollout(&world, &shared).await
}

async fn run_swept_sets(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    start(&world, false, &mut rng);
    users::create_set(&world, SETS, "r0", 2);
    users::create_set(&world, CONTROLLERS, "c0", 1);
    world.run_elected("a", LEASE, manager(OF_PODS));
    world.sleep(MS * 4_000).await;
    let scale = |name: &str, resource: &str, replicas: u8| {
        users::change(&world, resource, name, |it| it["spec"]["replicas"] = replicas.into());
    };
    scale("r0", SETS, 4);
    scale("c0", CONTROLLERS, 2);
    world.run_elected("b", LEASE, manager(OF_PODS));
    world.sleep(MS * 4_000).await;
    scale("r0", SETS, 1);
    scale("c0", CONTROLLERS, 0);
    world.sleep(MS * 4_000).await;
    finish(&world).await
}

async fn run_swept_deployments(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    start(&world, false, &mut rng);
    users::create_deployment(&world, "d0", |_| {});
    users::create_deployment(&world, "d1", |it| {
        it["spec"]["replicas"] = 1.into();
        it["spec"]["strategy"] = json!({ "type": "Recreate" });
    });
    world.run_elected("a", LEASE, manager(ALL));
    world.sleep(MS * 4_000).await;
    let update = |image: &str| {
        for name in ["d0", "d1"] {
            users::change(&world, DEPLOYMENTS, name, |it| users::set_image(it, image));
        }
    };
    update("two");
    world.run_elected("b", LEASE, manager(ALL));
    world.sleep(MS * 3_000).await;
    update("one");
    world.sleep(MS * 5_000).await;
    users::change(&world, DEPLOYMENTS, "d0", |it| it["spec"]["replicas"] = 1.into());
    world.sleep(MS * 3_000).await;
    finish(&world).await
}

/// A cluster with nodes and garbage collectors, and with all guarantees checked.
fn start(world: &World, may_be_evicted: bool, rng: &mut Rng) -> SharedModel {
    let shared = SharedModel::default();
    let (events, receiver) = PodEvents::new();
    let (model, clock) = (shared.clone(), world.clock().clone());
    world.always("the guarantees of the workload controllers", move |write| {
        events.report(write);
        check_write(&mut model.lock(), write, clock.now())
    });
    requests::check_preconditions(world, &[PODS, "replicasets"], &[PODS, "replicasets"]);
    requests::check_statuses(world, &["deployments", "replicasets", "replicationcontrollers"]);
    world.cluster().create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HOME } }));
    let run_pod = move |pod, rng| run_pod(pod, may_be_evicted, rng);
    world.spawn("nodes", kubelet::run(world.clone(), receiver, rng.fork(), run_pod));
    garbage_collector::start(world, rng);
    shared
}

async fn run_pod(pod: NodePod, may_be_evicted: bool, mut rng: Rng) {
    pod.world.sleep(MS * rng.u32(0..1_000)).await;
    if let Some(object) = pod.pending() {
        let node = NODES[rng.usize(..NODES.len())];
        pod.run_on(node, &object, may_be_evicted, rng).await;
    }
}

/// Records a write in the model, and returns the broken guarantee.
fn check_write(model: &mut Model, write: &Write, now: Instant) -> Result<(), String> {
    let (before, after) = (write.before(), write.after());
    let object = after.as_ref().or(before.as_ref()).cloned().unwrap_or_default();
    let (uid, by_manager) = (text(&object["metadata"]["uid"]), write.by != "world");
    let change = (before.as_ref(), after.as_ref());
    let held = match &*write.resource() {
        DEPLOYMENTS => deployment_checks::check_deployment(model, &uid, change, by_manager, now),
        SETS | CONTROLLERS => set_checks::check_set(model, &uid, change, by_manager, now),
        PODS => pod_checks::check_pod(model, &uid, change.1, write.change() == Change::Added, by_manager, now),
        _ => Ok(()),
    };
    held.map_err(|why| format!("{} on {} {}: {why}", write.by, write.resource(), write.name()))
}

/// The faults end, and every rollout too.
async fn finish(world: &World) -> Result<(), String> {
    world.calm();
    users::unblock(world);
    wait_for_goal(world).await
}

async fn wait_for_goal(world: &World) -> Result<(), String> {
    let first_fault = || goal::first_unfinished(world);
    world.eventually_complete(TIME_LIMIT, "every set has its pods, and every rollout has ended", first_fault).await
}

/// No rollout restarts a pod twice. Nothing fails any more, so an edit creates exactly as many pods as are wanted.
async fn check_last_rollout(world: &World, shared: &SharedModel) -> Result<(), String> {
    // After this time no process uses an older state, so the limits of the rollout are exact.
    world.sleep(LAG).await;
    let all = world.cluster().list(DEPLOYMENTS, HOME);
    let Some(deployment) = all.first() else { return Ok(()) };
    let name = text(&deployment["metadata"]["name"]);
    let before: BTreeSet<String> = shared.lock().pods.keys().cloned().collect();
    users::change(world, DEPLOYMENTS, &name, |it| users::set_image(it, "last"));
    wait_for_goal(world).await?;
    let created = shared.lock().pods.keys().filter(|it| !before.contains(*it)).count();
    let wanted = deployment["spec"]["replicas"].as_u64().unwrap_or_default();
    if u64::try_from(created).ok() != Some(wanted) {
        return Err(format!("an edit of {name} creates {created} pods, not {wanted}"));
    }
    Ok(())
}
