//! Simulated nodes: they come, go and change. Pods are bound to them, become ready, and end when they are deleted.

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    HOME, MS, NODES, PODS,
    model::{NodeState, Template, text},
};

/// Pods of this image do not become ready before the world is calm.
pub(super) const BROKEN: &str = "broken";
/// The key of every taint.
pub(super) const TAINT: &str = "dedicated";
/// The number of names. A name that was removed may come back.
const NAMES: usize = 8;
const MOST: usize = 5;

pub(super) fn create(world: &World, name: &str, zone: &str) {
    let metadata = json!({ "name": name, "labels": { "zone": zone } });
    world.cluster().create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata }));
}

pub(super) fn remove(world: &World, name: &str) {
    world.cluster().remove(NODES, "", name);
}

/// Replaces the taints of a node, if it exists. `None` removes them.
pub(super) fn taint(world: &World, name: &str, effect: Option<&str>) {
    let taints: Vec<Value> = effect.iter().map(|it| json!({ "key": TAINT, "effect": it })).collect();
    change(world, name, |it| it["spec"]["taints"] = json!(taints));
}

fn change(world: &World, name: &str, change: impl FnOnce(&mut Value)) {
    if world.cluster().get(NODES, "", name).is_some() {
        world.cluster().update(NODES, "", name, change);
    }
}

pub(super) fn random_zone(rng: &mut Rng) -> &'static str {
    if rng.u8(0..3) == 0 { "b" } else { "a" }
}

/// Adds, removes, renames, labels or taints one node.
pub(super) fn change_one(world: &World, rng: &mut Rng) {
    let all: Vec<String> = world.cluster().list(NODES, "").iter().map(|it| text(&it["metadata"]["name"])).collect();
    let unused: Vec<String> = (0..NAMES).map(|it| format!("n{it}")).filter(|it| !all.contains(it)).collect();
    let (Some(node), Some(name)) = (rng.choice(&all).cloned(), rng.choice(&unused).cloned()) else { return };
    match rng.u8(0..9) {
        0 | 1 if all.len() < MOST => create(world, &name, random_zone(rng)),
        0..=2 if all.len() > 1 => remove(world, &node),
        3 => {
            remove(world, &node);
            create(world, &name, random_zone(rng));
        }
        4 | 5 => {
            let zone = random_zone(rng);
            change(world, &node, |it| it["metadata"]["labels"]["zone"] = json!(zone));
        }
        6 => taint(world, &node, Some("NoExecute")),
        7 => taint(world, &node, Some("NoSchedule")),
        _ => taint(world, &node, None),
    }
}

/// The scheduler and all kubelets. An event has the name and the uid of a pod, and whether it is being deleted.
pub(super) async fn run(world: World, mut events: UnboundedReceiver<(String, String, bool)>, mut rng: Rng) {
    while let Some((name, uid, is_deleted)) = events.recv().await {
        let (world, rng) = (world.clone(), rng.fork());
        match is_deleted {
            false => world.clone().spawn("pod", run_pod(world, name, uid, rng)),
            true => world.clone().spawn("pod's end", end_pod(world, name, uid, rng)),
        }
    }
}

fn current(world: &World, name: &str, uid: &str) -> Option<Value> {
    world.cluster().get(PODS, HOME, name).filter(|it| it["metadata"]["uid"] == uid)
}

async fn run_pod(world: World, name: String, uid: String, mut rng: Rng) {
    let may_run = |it: &Value| it["metadata"]["deletionTimestamp"].is_null() && it["status"]["phase"] == "Pending";
    let (pod, node) = loop {
        world.sleep(MS * rng.u32(0..1_000)).await;
        let Some(pod) = current(&world, &name, &uid).filter(may_run) else { return };
        if let Some(node) = fitting_node(&world, &pod) {
            break (pod, node);
        }
        world.sleep(MS * 500).await;
    };
    set_ready(&world, &name, &node, false);
    world.sleep(MS * rng.u32(0..2_500)).await;
    while pod["spec"]["containers"][0]["image"] == BROKEN && !world.is_calm() {
        world.sleep(MS * 1_000).await;
    }
    let runs = |it: &Value| it["metadata"]["deletionTimestamp"].is_null() && it["status"]["phase"] == "Running";
    if current(&world, &name, &uid).is_some_and(|it| runs(&it)) {
        set_ready(&world, &name, &node, true);
    }
    if rng.u8(0..10) > 0 {
        return;
    }
    // The pod is evicted.
    world.sleep(MS * rng.u32(1_000..30_000)).await;
    if !world.is_calm() && current(&world, &name, &uid).is_some_and(|it| runs(&it)) {
        end(&world, &name, "Failed");
    }
}

/// The node of the pod's affinity, if it exists and has no untolerated taint.
fn fitting_node(world: &World, pod: &Value) -> Option<String> {
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let name = text(&required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]);
    let node = world.cluster().get(NODES, "", &name);
    Template::of(&pod["spec"]).is_wanted_on(&NodeState::of(node.as_ref())).then_some(name)
}

fn set_ready(world: &World, pod: &str, node: &str, is_ready: bool) {
    let at = world.clock().wall().as_second();
    let at = clock::Timestamp::from_second(at).unwrap_or(clock::Timestamp::UNIX_EPOCH).to_string();
    let status = if is_ready { "True" } else { "False" };
    world.cluster().update(PODS, HOME, pod, |it| {
        it["spec"]["nodeName"] = node.into();
        it["status"]["phase"] = "Running".into();
        it["status"]["conditions"] = json!([{ "type": "Ready", "status": status, "lastTransitionTime": at }]);
    });
}

/// Ends a pod with this phase.
pub(super) fn end(world: &World, pod: &str, phase: &str) {
    world.cluster().update(PODS, HOME, pod, |it| {
        it["status"]["phase"] = phase.into();
        it["status"]["conditions"] = json!([]);
    });
}

async fn end_pod(world: World, name: String, uid: String, mut rng: Rng) {
    world.sleep(MS * rng.u32(0..4_000)).await;
    if current(&world, &name, &uid).is_some() {
        world.cluster().remove(PODS, HOME, &name);
    }
}
