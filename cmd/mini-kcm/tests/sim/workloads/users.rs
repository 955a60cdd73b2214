//! Users who create and change Deployments, sets and pods.

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::{
    CONTROLLERS, DEPLOYMENTS, HOME, MS, PODS, SETS,
    model::{ROLLBACK_TO, text, without_hash},
};
use crate::{
    deletion,
    kubelet::{self, BROKEN},
};

/// The label by which objects are selected.
const APP: &str = "app";
/// Another label of all pods. The selectors of some ReplicationControllers have it too.
const TIER: &str = "tier";
/// The value of [`APP`] in an object that is not selected any more.
const LOST: &str = "lost";
/// The value of [`APP`] before.
const WAS: &str = "was";

fn template(name: &str) -> Value {
    json!({ "metadata": { "labels": { APP: name, TIER: "front" } },
        "spec": { "containers": [{ "name": "main", "image": "one" }], "terminationGracePeriodSeconds": 5 } })
}

/// A Deployment that is changed by `edit` before.
pub(super) fn create_deployment(world: &World, name: &str, edit: impl FnOnce(&mut Value)) {
    let mut deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "namespace": HOME },
        "spec": { "replicas": 2, "selector": { "matchLabels": { APP: name } }, "template": template(name),
            "strategy": rolling(&1.into(), &0.into()), "revisionHistoryLimit": 1, "progressDeadlineSeconds": 60 },
    });
    edit(&mut deployment);
    world.cluster().create(deployment);
}

fn create_random_deployment(world: &World, name: &str, rng: &mut Rng) {
    create_deployment(world, name, |it| {
        let spec = &mut it["spec"];
        spec["replicas"] = rng.u8(0..5).into();
        spec["strategy"] = strategy(rng);
        spec["revisionHistoryLimit"] = rng.u8(0..4).into();
        spec["minReadySeconds"] = min_ready(rng);
        spec["progressDeadlineSeconds"] = deadline(rng);
        spec["paused"] = (rng.u8(0..8) == 0).into();
    });
}

/// A ReplicaSet or a ReplicationController of this size.
pub(super) fn create_set(world: &World, resource: &str, name: &str, replicas: u8) {
    let labels = json!({ APP: name });
    let (api_version, kind, selector) = match resource {
        SETS => ("apps/v1", "ReplicaSet", json!({ "matchLabels": labels })),
        _ => ("v1", "ReplicationController", labels),
    };
    world.cluster().create(json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": { "name": name, "namespace": HOME, "labels": { APP: name } },
        "spec": { "replicas": replicas, "selector": selector, "template": template(name) },
    }));
}

/// Creates a Deployment, or a set, whose kind follows from its name.
pub(super) fn create_random(world: &World, name: &str, rng: &mut Rng) {
    match resource_of(name) {
        DEPLOYMENTS => create_random_deployment(world, name, rng),
        resource => {
            create_set(world, resource, name, rng.u8(0..6));
            let min_ready = min_ready(rng);
            change(world, resource, name, |it| it["spec"]["minReadySeconds"] = min_ready);
        }
    }
}

fn resource_of(name: &str) -> &'static str {
    match name.as_bytes().first() {
        Some(b'd') => DEPLOYMENTS,
        Some(b'r') => SETS,
        _ => CONTROLLERS,
    }
}

/// A rolling update with these limits.
fn rolling(max_surge: &Value, max_unavailable: &Value) -> Value {
    let limits = json!({ "maxSurge": max_surge, "maxUnavailable": max_unavailable });
    json!({ "type": "RollingUpdate", "rollingUpdate": limits })
}

fn strategy(rng: &mut Rng) -> Value {
    match rng.u8(0..8) {
        0 | 1 => json!({ "type": "Recreate" }),
        2 => rolling(&0.into(), &1.into()),
        3 => rolling(&2.into(), &1.into()),
        4 => rolling(&"25%".into(), &"25%".into()),
        5 => rolling(&"60%".into(), &0.into()),
        _ => rolling(&1.into(), &0.into()),
    }
}

fn min_ready(rng: &mut Rng) -> Value {
    [0, 0, 0, 2, 7][rng.usize(..5)].into()
}

/// Without a deadline the field has the largest number.
fn deadline(rng: &mut Rng) -> Value {
    [i32::MAX, 600, 60, 20][rng.usize(..4)].into()
}

pub(super) fn set_image(object: &mut Value, image: &str) {
    object["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
}

/// Changes an object as a PUT does, if it exists.
pub(super) fn change(world: &World, resource: &str, name: &str, change: impl FnOnce(&mut Value)) {
    if world.cluster().get(resource, HOME, name).is_some() {
        world.cluster().update(resource, HOME, name, change);
    }
}

/// The edits in a run. Few kinds of edits make the checks stricter, because any state of the last minutes may be in
/// use.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Edits {
    All,
    Templates,
    Sizes,
    /// Templates and strategies, or sizes without a Deployment, with so much time between them that every process knows
    /// the state before. No user changes a pod, and none is evicted.
    Steady,
}

impl Edits {
    pub(super) fn random(rng: &mut Rng) -> Self {
        [Self::All, Self::Templates, Self::Sizes, Self::Steady][rng.usize(..4)]
    }

    /// The duration of the run in milliseconds.
    pub(super) fn duration(self, rng: &mut Rng) -> u32 {
        if self == Self::Steady { rng.u32(300_000..900_000) } else { rng.u32(10_000..90_000) }
    }

    /// The time until the next edit in milliseconds.
    fn pause(self, rng: &mut Rng) -> u32 {
        if self == Self::Steady { rng.u32(205_000..280_000) } else { rng.u32(300..9_000) }
    }

    fn is_done(self, edit: Edit) -> bool {
        match self {
            Self::All => true,
            Self::Templates => edit != Edit::Other && edit != Edit::Size,
            Self::Sizes => matches!(edit, Edit::Size | Edit::Pod),
            Self::Steady => matches!(edit, Edit::Template | Edit::Strategy),
        }
    }
}

/// What an edit changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Edit {
    Template,
    Strategy,
    Size,
    Pod,
    Other,
}

/// Changes an object from time to time, until the world is calm.
pub(super) async fn change_randomly(world: World, edits: Edits, mut rng: Rng) {
    loop {
        world.sleep(MS * edits.pause(&mut rng)).await;
        if world.is_calm() {
            return;
        }
        match rng.u8(0..24) {
            0 if edits != Edits::Steady => world.cluster().compact(),
            1 if edits != Edits::Steady => world.cluster().send_bookmarks(),
            2..=8 if edits.is_done(Edit::Pod) => {
                if let Some(pod) = random_name(&world, PODS, &mut rng) {
                    change_pod(&world, &pod, &mut rng);
                }
            }
            9 | 10 if edits.is_done(Edit::Other) => change_owned_set(&world, &mut rng),
            _ => match random_name(&world, DEPLOYMENTS, &mut rng) {
                Some(name) if rng.u8(0..5) > 0 => change_deployment(&world, edits, &name, &mut rng).await,
                _ => change_set(&world, edits, &mut rng).await,
            },
        }
    }
}

/// The name of a random object.
fn random_name(world: &World, resource: &str, rng: &mut Rng) -> Option<String> {
    let all = world.cluster().list(resource, HOME);
    rng.choice(&all).map(|it| text(&it["metadata"]["name"]))
}

async fn change_deployment(world: &World, edits: Edits, name: &str, rng: &mut Rng) {
    let number = rng.u8(0..26);
    let edit = match number {
        0..=9 => Edit::Template,
        10 | 11 => Edit::Strategy,
        12..=16 => Edit::Size,
        _ => Edit::Other,
    };
    if !edits.is_done(edit) {
        return;
    }
    let change = |edit: &mut dyn FnMut(&mut Value)| change(world, DEPLOYMENTS, name, edit);
    match number {
        0..=4 => change(&mut |it| set_image(it, ["one", "two", "three", "four", BROKEN][rng.usize(..5)])),
        5 => {
            // As `kubectl rollout undo`.
            let sets = world.cluster().list(SETS, HOME);
            let Some(set) = rng.choice(&sets).filter(|it| text(&it["metadata"]["labels"][APP]) == name) else { return };
            change(&mut |it| it["spec"]["template"] = without_hash(&set["spec"]["template"]));
        }
        6 | 7 => change(&mut |it| {
            it["metadata"]["annotations"][ROLLBACK_TO] = rng.u8(0..4).to_string().into();
        }),
        8 | 9 => change(&mut |it| it["spec"]["paused"] = (it["spec"]["paused"] != true).into()),
        10 | 11 => change(&mut |it| it["spec"]["strategy"] = strategy(rng)),
        12..=16 => change(&mut |it| it["spec"]["replicas"] = rng.u8(0..7).into()),
        17 => change(&mut |it| it["spec"]["minReadySeconds"] = min_ready(rng)),
        18 => change(&mut |it| it["spec"]["revisionHistoryLimit"] = rng.u8(0..4).into()),
        19 => change(&mut |it| it["spec"]["progressDeadlineSeconds"] = deadline(rng)),
        20 => change(&mut |it| it["metadata"]["annotations"]["note"] = rng.u8(..).to_string().into()),
        // Both in one edit.
        21 | 22 => change(&mut |it| {
            it["spec"]["replicas"] = rng.u8(0..7).into();
            set_image(it, ["one", "two", "three"][rng.usize(..3)]);
        }),
        _ => replace(world, DEPLOYMENTS, name, rng).await,
    }
}

/// Changes a set without an owner.
async fn change_set(world: &World, edits: Edits, rng: &mut Rng) {
    let cluster = world.cluster();
    let mut all = cluster.list(SETS, HOME);
    all.extend(cluster.list(CONTROLLERS, HOME));
    all.retain(|it| it["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty));
    let Some(set) = rng.choice(&all) else { return };
    let name = text(&set["metadata"]["name"]);
    let resource = if set["kind"] == "ReplicaSet" { SETS } else { CONTROLLERS };
    let number = rng.u8(0..14);
    // Without Deployments the sizes are changed in a steady run.
    let is_done = match number {
        0..=6 => edits.is_done(Edit::Size) || edits == Edits::Steady,
        _ => edits.is_done(Edit::Other),
    };
    if !is_done {
        return;
    }
    match number {
        0..=6 => change(world, resource, &name, |it| it["spec"]["replicas"] = rng.u8(0..7).into()),
        7 => change(world, resource, &name, |it| set_image(it, ["one", "two", BROKEN][rng.usize(..3)])),
        8 => change(world, resource, &name, |it| it["spec"]["minReadySeconds"] = min_ready(rng)),
        // Only the selector of a ReplicationController can be changed.
        9 if resource == CONTROLLERS => change(world, resource, &name, |it| {
            let mut selector = json!({ APP: it["spec"]["selector"][APP] });
            if it["spec"]["selector"][TIER].is_null() {
                selector[TIER] = "front".into();
            }
            it["spec"]["selector"] = selector;
        }),
        9..=11 => {
            let (labels, version) = (&set["spec"]["template"]["metadata"]["labels"], cluster.version());
            let metadata = json!({ "name": format!("stray-{version}"), "namespace": HOME, "labels": labels });
            let spec = &set["spec"]["template"]["spec"];
            cluster.create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec }));
        }
        _ => replace(world, resource, &name, rng).await,
    }
}

/// Changes a ReplicaSet behind the back of its Deployment.
fn change_owned_set(world: &World, rng: &mut Rng) {
    let cluster = world.cluster();
    let mut all = cluster.list(SETS, HOME);
    all.retain(|it| it["metadata"]["labels"]["pod-template-hash"].is_string());
    let Some(set) = rng.choice(&all) else { return };
    let name = text(&set["metadata"]["name"]);
    match rng.u8(0..8) {
        0 | 1 => change(world, SETS, &name, lose),
        2 => all.iter().for_each(|it| change(world, SETS, &text(&it["metadata"]["name"]), restore)),
        3 => change(world, SETS, &name, |it| it["metadata"]["ownerReferences"] = json!([])),
        4 => change(world, SETS, &name, steal),
        5 => change(world, SETS, &name, |it| it["spec"]["replicas"] = rng.u8(0..4).into()),
        6 => cluster.remove(SETS, HOME, &name),
        _ => {
            let finalizer = [None, Some("orphan"), Some("foregroundDeletion")][rng.usize(..3)];
            deletion::begin_deletion(world, SETS, HOME, &name, finalizer);
        }
    }
}

fn change_pod(world: &World, pod: &str, rng: &mut Rng) {
    let cluster = world.cluster();
    let change = |edit: fn(&mut Value)| change(world, PODS, pod, edit);
    match rng.u8(0..14) {
        0..=3 => deletion::delete(world, PODS, HOME, pod),
        // Removed by force, so that its end is never observed.
        4 => cluster.remove(PODS, HOME, pod),
        5 => kubelet::end(world, HOME, pod, "Succeeded"),
        6 => kubelet::end(world, HOME, pod, "Failed"),
        7 | 8 => change(lose),
        9 | 10 => {
            for pod in cluster.list(PODS, HOME) {
                self::change(world, PODS, &text(&pod["metadata"]["name"]), restore);
            }
        }
        11 => change(steal),
        _ => change(|it| it["metadata"]["ownerReferences"] = json!([])),
    }
}

/// Its owner does not select it any more.
fn lose(object: &mut Value) {
    let labels = &mut object["metadata"]["labels"];
    if labels[APP] != LOST {
        labels[WAS] = labels[APP].take();
        labels[APP] = LOST.into();
    }
}

/// Its owner selects it again.
fn restore(object: &mut Value) {
    let labels = &mut object["metadata"]["labels"];
    if labels[APP] == LOST {
        labels[APP] = labels[WAS].take();
        if let Some(labels) = labels.as_object_mut() {
            labels.remove(WAS);
        }
    }
}

/// Another controller takes an object.
fn steal(object: &mut Value) {
    object["metadata"]["ownerReferences"] = json!([
        { "apiVersion": "example.com/v1", "kind": "Other", "name": "other", "uid": "other", "controller": true },
    ]);
}

/// Deletes an object with one of the three propagation policies. A successor with the same name may be created.
async fn replace(world: &World, resource: &str, name: &str, rng: &mut Rng) {
    let finalizer = [None, Some("orphan"), Some("foregroundDeletion")][rng.usize(..3)];
    deletion::begin_deletion(world, resource, HOME, name, finalizer);
    world.sleep(MS * rng.u32(0..6_000)).await;
    // A ReplicaSet that was orphaned by its Deployment has the name of one of its kind.
    let is_named = resource_of(name) == resource && !name.contains('-');
    if rng.u8(0..4) > 0 && is_named && world.cluster().get(resource, HOME, name).is_none() && !world.is_calm() {
        create_random(world, name, rng);
    }
}

/// Resumes every Deployment, so that every rollout can end. Pods are available as soon as they are ready, because the
/// clocks of managers differ.
pub(super) fn unblock(world: &World) {
    for resource in [DEPLOYMENTS, SETS, CONTROLLERS] {
        for object in world.cluster().list(resource, HOME) {
            let is_owned = object["metadata"]["ownerReferences"].as_array().is_some_and(|it| !it.is_empty());
            change(world, resource, &text(&object["metadata"]["name"]), |it| {
                if resource == DEPLOYMENTS {
                    it["spec"]["paused"] = false.into();
                }
                if !is_owned {
                    it["spec"]["minReadySeconds"] = 0.into();
                }
            });
        }
    }
}
