//! Users who create and change sets, delete pods, and change nodes.

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::{
    HOME, MS, PODS, SETS,
    model::text,
    nodes::{self, TAINT},
};
use crate::{
    deletion,
    kubelet::{self, BROKEN},
};

/// Counts the changes of the template. The API server writes it.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Creates a set that is changed by `edit` before.
pub(super) fn create(world: &World, name: &str, edit: impl FnOnce(&mut Value)) {
    let spec = json!({
        "selector": { "matchLabels": { "app": name } }, "revisionHistoryLimit": 1,
        "template": { "metadata": { "labels": { "app": name } },
            "spec": { "containers": [{ "name": "main", "image": "one" }], "terminationGracePeriodSeconds": 5 } },
    });
    let metadata = json!({ "name": name, "namespace": HOME });
    let mut set = json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec });
    edit(&mut set);
    let cluster = world.cluster();
    cluster.create(set);
    // As upstream, an adopted pod with the set's generation counts as updated, whatever its template is. So no set has
    // the generations of its predecessor.
    let first = cluster.version().to_string();
    cluster.update(SETS, HOME, name, |it| it["metadata"]["annotations"][TEMPLATE_GENERATION] = first.into());
}

pub(super) fn create_random(world: &World, name: &str, rng: &mut Rng) {
    create(world, name, |it| {
        it["spec"]["updateStrategy"] = strategy(rng);
        it["spec"]["revisionHistoryLimit"] = json!(rng.u8(0..3));
        set_zone(it, random_selector(rng));
        if rng.u8(0..4) == 0 {
            it["spec"]["template"]["spec"]["tolerations"] = json!([{ "key": TAINT, "operator": "Exists" }]);
        }
    });
}

/// A rolling update with these limits.
pub(super) fn rolling(max_unavailable: u8, max_surge: u8) -> Value {
    let limits = json!({ "maxUnavailable": max_unavailable, "maxSurge": max_surge });
    json!({ "type": "RollingUpdate", "rollingUpdate": limits })
}

fn strategy(rng: &mut Rng) -> Value {
    match rng.u8(0..7) {
        0 => json!({ "type": "OnDelete" }),
        1 | 2 => rolling(1, 0),
        3 => rolling(2, 0),
        4 | 5 => rolling(0, 1),
        _ => rolling(0, 2),
    }
}

fn random_selector(rng: &mut Rng) -> Option<&'static str> {
    if rng.bool() { Some(nodes::random_zone(rng)) } else { None }
}

pub(super) fn set_image(set: &mut Value, image: &str) {
    set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
}

/// Selects the nodes of this zone, or all nodes.
pub(super) fn set_zone(set: &mut Value, zone: Option<&str>) {
    let spec = &mut set["spec"]["template"]["spec"];
    match zone {
        Some(zone) => spec["nodeSelector"] = json!({ "zone": zone }),
        None => {
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("nodeSelector");
            }
        }
    }
}

/// Changes a set as a PUT does, if it exists.
pub(super) fn change(world: &World, name: &str, change: impl FnOnce(&mut Value)) {
    if world.cluster().get(SETS, HOME, name).is_none() {
        return;
    }
    world.cluster().update(SETS, HOME, name, |it| {
        let before = it["spec"]["template"].clone();
        change(it);
        if it["spec"]["template"] != before {
            let generation = &mut it["metadata"]["annotations"][TEMPLATE_GENERATION];
            let number: u64 = generation.as_str().and_then(|it| it.parse().ok()).unwrap_or_default();
            *generation = (number + 1).to_string().into();
        }
    });
}

/// The edits in a run. Few kinds of edits make the checks stricter, because any state of the last minutes may be in
/// use.
#[derive(Clone, Copy)]
pub(super) enum Edits {
    All,
    Images,
    Nodes,
    /// Templates and strategies only, with so much time between them that every process knows the state before.
    Rollouts,
}

impl Edits {
    pub(super) fn random(rng: &mut Rng) -> Self {
        [Self::All, Self::Images, Self::Nodes, Self::Rollouts][rng.usize(..4)]
    }

    /// The duration of the run in milliseconds.
    pub(super) fn duration(self, rng: &mut Rng) -> u32 {
        if matches!(self, Self::Rollouts) { rng.u32(300_000..900_000) } else { rng.u32(10_000..90_000) }
    }

    /// The time until the next edit in milliseconds.
    fn pause(self, rng: &mut Rng) -> u32 {
        if matches!(self, Self::Rollouts) { rng.u32(205_000..280_000) } else { rng.u32(300..9_000) }
    }

    /// The number of the next edit, if it is done.
    fn choice(self, rng: &mut Rng) -> Option<u8> {
        let number = rng.u8(0..26);
        let is_skipped = match self {
            Self::All => false,
            Self::Images => matches!(number, 5..=8 | 11..=17),
            Self::Nodes => number < 9,
            Self::Rollouts => return Some(if number < 20 { 0 } else { 7 }),
        };
        (!is_skipped).then_some(number)
    }
}

/// Changes a set, a pod or a node from time to time, until the world is calm.
pub(super) async fn change_randomly(world: World, edits: Edits, mut rng: Rng) {
    loop {
        world.sleep(MS * edits.pause(&mut rng)).await;
        if world.is_calm() {
            return;
        }
        let cluster = world.cluster();
        let Some(number) = edits.choice(&mut rng) else { continue };
        let Some(name) = random_name(&world, SETS, &mut rng) else { continue };
        match number {
            0..=4 => {
                let image = ["one", "two", "three", BROKEN][rng.usize(..4)];
                change(&world, &name, |it| set_image(it, image));
            }
            5 | 6 => {
                let zone = random_selector(&mut rng);
                change(&world, &name, |it| set_zone(it, zone));
            }
            7 => change(&world, &name, |it| it["spec"]["updateStrategy"] = strategy(&mut rng)),
            8 => replace(&world, &name, &mut rng).await,
            9 => cluster.compact(),
            10 => cluster.send_bookmarks(),
            11..=17 => nodes::change_one(&world, &mut rng),
            _ => {
                if let Some(pod) = random_name(&world, PODS, &mut rng) {
                    change_pod(&world, &pod, &mut rng);
                }
            }
        }
    }
}

/// The name of a random object.
fn random_name(world: &World, resource: &str, rng: &mut Rng) -> Option<String> {
    let all = world.cluster().list(resource, HOME);
    rng.choice(&all).map(|it| text(&it["metadata"]["name"]))
}

fn change_pod(world: &World, pod: &str, rng: &mut Rng) {
    let cluster = world.cluster();
    match rng.u8(0..8) {
        0..=2 => deletion::delete(world, PODS, HOME, pod),
        // Removed by force, so that its end is never observed.
        3 => cluster.remove(PODS, HOME, pod),
        4 => kubelet::end(world, HOME, pod, "Succeeded"),
        5 | 6 => kubelet::end(world, HOME, pod, "Failed"),
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

/// Changes the sets so that every rollout can end.
pub(super) fn unblock(world: &World) {
    for set in world.cluster().list(SETS, HOME) {
        change(world, &text(&set["metadata"]["name"]), |it| {
            if it["spec"]["updateStrategy"]["type"] == "OnDelete" {
                it["spec"]["updateStrategy"] = rolling(1, 0);
            }
        });
    }
}
