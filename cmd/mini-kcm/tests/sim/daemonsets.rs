//! DaemonSets under all faults: the guarantees of the controller, nodes that come, go and change, garbage collectors,
//! and users who change sets and pods.

mod checks;
mod garbage_collector;
mod model;
mod nodes;
mod users;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use clock::Instant;
use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testing::sim::{Scenario, World};

use crate::{
    history::LAG,
    kubelet::{self, PodEvents},
    manager::manager,
    requests,
};
use model::{Model, NodeState, Pod, Spec, Template, text};

const MS: Duration = Duration::from_millis(1);
/// The namespace of the sets.
const HOME: &str = "work";
const SETS: &str = "daemonsets.apps";
const PODS: &str = "pods";
const NODES: &str = "nodes";
const REVISIONS: &str = "controllerrevisions.apps";
/// The Lease of the leader election.
const LEASE: &str = "kube-system/kube-controller-manager";
/// Only the DaemonSet controller.
const FLAGS: &[&str] = &["--controllers=daemonset-controller"];
/// The time limit after the faults: a hung call, a frozen watch, an expiring Lease, and a rollout of all pods.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// The model, shared with its readers.
type SharedModel = Arc<Mutex<Model>>;

/// For many seeds: two managers, sets and nodes of every kind, and users.
pub(crate) fn random() -> Scenario {
    Scenario::new("daemonsets", run_random)
}

/// For a sweep: the smallest scenario with every step.
pub(crate) fn swept() -> Scenario {
    Scenario::new("daemonsets, swept", run_swept)
}

async fn run_random(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let shared = start(&world, &mut rng);
    for number in 0..rng.u8(2..6) {
        nodes::create(&world, &format!("n{number}"), nodes::random_zone(&mut rng));
    }
    for number in 0..rng.u8(1..3) {
        users::create_random(&world, &format!("s{number}"), &mut rng);
    }
    world.run_elected("a", LEASE, manager(FLAGS));
    let edits = users::Edits::random(&mut rng);
    world.spawn("users", users::change_randomly(world.clone(), edits, rng.fork()));
    world.sleep(MS * rng.u32(0..8_000)).await;
    world.run_elected("b", LEASE, manager(FLAGS));
    world.sleep(MS * edits.duration(&mut rng)).await;
    finish(&world, &shared).await?;
    check_last_rollout(&world, &shared).await
}

async fn run_swept(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let shared = start(&world, &mut rng);
    nodes::create(&world, "n0", "a");
    nodes::create(&world, "n1", "b");
    users::create(&world, "plain", |it| it["spec"]["updateStrategy"] = users::rolling(1, 0));
    users::create(&world, "surge", |it| {
        it["spec"]["updateStrategy"] = users::rolling(0, 1);
        users::set_zone(it, Some("a"));
    });
    world.run_elected("a", LEASE, manager(FLAGS));
    world.sleep(MS * 3_000).await;
    for set in ["plain", "surge"] {
        users::change(&world, set, |it| users::set_image(it, "two"));
    }
    world.run_elected("b", LEASE, manager(FLAGS));
    world.sleep(MS * 4_000).await;
    nodes::taint(&world, "n1", Some("NoExecute"));
    world.sleep(MS * 1_500).await;
    finish(&world, &shared).await
}

/// A cluster with a scheduler, kubelets and garbage collectors, and with all guarantees checked.
fn start(world: &World, rng: &mut Rng) -> SharedModel {
    let shared = SharedModel::default();
    let (events, receiver) = PodEvents::new();
    let (model, clock) = (shared.clone(), world.clock().clone());
    world.always("the guarantees of the DaemonSet controller", move |write| {
        events.report(write);
        checks::check_write(&mut model.lock(), write, clock.now())
    });
    requests::check_preconditions(world, &[PODS], &[PODS]);
    requests::check_statuses(world, &["daemonsets"]);
    world.cluster().create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HOME } }));
    world.spawn("nodes", kubelet::run(world.clone(), receiver, rng.fork(), nodes::run_pod));
    world.spawn("collector", garbage_collector::run(world.clone(), rng.fork()));
    world.spawn("pod collector", garbage_collector::remove_pods_of_removed_nodes(world.clone(), rng.fork()));
    shared
}

/// The faults end, and every rollout too.
async fn finish(world: &World, shared: &SharedModel) -> Result<(), String> {
    world.calm();
    users::unblock(world);
    wait_for_goal(world, shared).await
}

async fn wait_for_goal(world: &World, shared: &SharedModel) -> Result<(), String> {
    let first_fault = || first_unfinished(world).or_else(|| shared.lock().check_history_limits().err());
    world.eventually_complete(TIME_LIMIT, "every node has its pods, and every rollout has ended", first_fault).await
}

/// No rollout restarts a pod twice. Nothing fails any more, so an edit creates exactly one pod on each node that wants
/// one.
async fn check_last_rollout(world: &World, shared: &SharedModel) -> Result<(), String> {
    // After this time no process uses an older state, so the limits of the rollout are checked for every pod.
    world.sleep(LAG).await;
    let sets = world.cluster().list(SETS, HOME);
    let Some(set) = sets.iter().find(|it| !Spec::of(it).is_on_delete) else { return Ok(()) };
    let (name, uid) = (text(&set["metadata"]["name"]), text(&set["metadata"]["uid"]));
    let before: BTreeSet<String> = shared.lock().pods.keys().cloned().collect();
    users::change(world, &name, |it| users::set_image(it, "last"));
    wait_for_goal(world, shared).await?;
    let model = shared.lock();
    let is_new = |it: &(&String, &Pod)| !before.contains(it.0) && it.1.created_for.as_ref() == Some(&uid);
    let mut created: Vec<&str> = model.pods.iter().filter(is_new).map(|it| &*it.1.node).collect();
    created.sort_unstable();
    let nodes = all_nodes(world);
    let wanted = wanted_nodes(&Spec::of(set).template, &nodes);
    if created != wanted {
        return Err(format!("an edit of {name} creates pods on {created:?}, not one on each of {wanted:?}"));
    }
    Ok(())
}

fn all_nodes(world: &World) -> BTreeMap<String, NodeState> {
    let all = world.cluster().list(NODES, "");
    all.iter().map(|it| (text(&it["metadata"]["name"]), NodeState::of(Some(it)))).collect()
}

/// The names of the nodes on which a pod should be created, sorted.
fn wanted_nodes<'a>(template: &Template, nodes: &'a BTreeMap<String, NodeState>) -> Vec<&'a str> {
    nodes.iter().filter(|it| template.is_wanted_on(it.1)).map(|it| &**it.0).collect()
}

/// The first object that is not in its final state, as a text.
fn first_unfinished(world: &World) -> Option<String> {
    let cluster = world.cluster();
    let nodes = all_nodes(world);
    let (pods, revisions) = (cluster.list(PODS, HOME), cluster.list(REVISIONS, HOME));
    let now = world.clock().now();
    cluster.list(SETS, HOME).iter().find_map(|it| {
        let is_orphan = |pod: &&Value| {
            pod["metadata"]["labels"]["app"] == it["spec"]["selector"]["matchLabels"]["app"]
                && pod["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty)
                && pod["metadata"]["deletionTimestamp"].is_null()
        };
        if let Some(orphan) = pods.iter().find(is_orphan) {
            return Some(format!("{} is not adopted", orphan["metadata"]["name"]));
        }
        let is_of_set = |other: &&Value| other["metadata"]["ownerReferences"][0]["uid"] == it["metadata"]["uid"];
        let newest = revisions.iter().filter(is_of_set).max_by_key(|it| it["revision"].as_i64());
        let hash = newest.map(|it| text(&it["metadata"]["labels"]["controller-revision-hash"])).unwrap_or_default();
        let pods = pods.iter().filter(is_of_set).map(|it| read_pod(it, now)).collect::<Vec<_>>();
        unfinished(it, &nodes, &pods, &hash)
    })
}

fn read_pod(object: &Value, now: Instant) -> Pod {
    let mut pod = Pod::default();
    pod.update_from(Some(object), now);
    pod
}

/// Why a set is not in its final state. All its pods should have this hash.
fn unfinished(set: &Value, nodes: &BTreeMap<String, NodeState>, pods: &[Pod], hash: &str) -> Option<String> {
    let (name, spec, status) = (text(&set["metadata"]["name"]), Spec::of(set), &set["status"]);
    if set["metadata"]["deletionTimestamp"].is_string() {
        return Some(format!("{name} is being deleted"));
    }
    let (mut with_pod, mut misscheduled) = (Vec::new(), BTreeSet::new());
    for pod in pods {
        let Some(node) = nodes.get(&pod.node).filter(|it| spec.template.may_stay_on(it)) else {
            return Some(format!("{} is on {}, which must not run it", pod.name, pod.node));
        };
        if pod.deleting || pod.is_lost || pod.has_ended {
            return Some(format!("{} has ended, or is no pod of {name} any more", pod.name));
        }
        if !spec.template.is_wanted_on(node) {
            // An update with surge that began before the taint ends with one pod.
            if !misscheduled.insert(&*pod.node) {
                return Some(format!("{} of {name} has two pods", pod.node));
            }
            continue;
        }
        if pod.template != spec.template || pod.hash != hash {
            return Some(format!("{} has not the template or the hash {hash} of {name}", pod.name));
        }
        if !pod.is_ready {
            return Some(format!("{} is not ready", pod.name));
        }
        with_pod.push(&*pod.node);
    }
    with_pod.sort_unstable();
    let wanted = wanted_nodes(&spec.template, nodes);
    if with_pod != wanted {
        return Some(format!("{name} has pods on {with_pod:?}, not on {wanted:?}"));
    }
    let expected = [
        ("desiredNumberScheduled", wanted.len()),
        ("currentNumberScheduled", wanted.len()),
        ("numberReady", wanted.len()),
        ("numberAvailable", wanted.len()),
        ("updatedNumberScheduled", wanted.len()),
        ("numberMisscheduled", misscheduled.len()),
        ("numberUnavailable", 0),
    ];
    let wrong = expected.iter().find(|it| status[it.0].as_u64().unwrap_or_default() != it.1 as u64);
    if let Some((field, number)) = wrong {
        return Some(format!("{field} of {name} is {}, not {number}", status[*field]));
    }
    if status["observedGeneration"] != set["metadata"]["generation"] {
        return Some(format!("the last change of {name} is not observed: {status}"));
    }
    None
}
