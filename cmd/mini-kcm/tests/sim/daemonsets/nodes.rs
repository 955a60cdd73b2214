//! Simulated nodes: they come, go and change, and pods are bound to them.

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::{
    MS, NODES,
    model::{NodeState, Template, text},
};
use crate::kubelet::NodePod;

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

/// Binds a pod when its node fits, and runs it.
pub(super) async fn run_pod(pod: NodePod, mut rng: Rng) {
    let (object, node) = loop {
        pod.world.sleep(MS * rng.u32(0..1_000)).await;
        let Some(object) = pod.pending() else { return };
        if let Some(node) = fitting_node(&pod.world, &object) {
            break (object, node);
        }
        pod.world.sleep(MS * 500).await;
    };
    pod.run_on(&node, &object, true, rng).await;
}

/// The node of the pod's affinity, if it exists and has no untolerated taint.
fn fitting_node(world: &World, pod: &Value) -> Option<String> {
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let name = text(&required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]);
    let node = world.cluster().get(NODES, "", &name);
    Template::of(&pod["spec"]).is_wanted_on(&NodeState::of(node.as_ref())).then_some(name)
}
