//! The Jobs of the scenario: every kind of Job that the API has, with options drawn from the seed.

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::{kubelet, users::HOME};

/// Creates a Job of a random kind with this name.
pub(super) fn any(world: &World, name: &str, rng: &mut Rng) {
    let (mut spec, mut notes) = match rng.u8(0..16) {
        0 | 1 => plain(rng),
        2 => queue(rng),
        3 => indexed(rng),
        4 | 5 => by_index(rng),
        6 | 14 => successful(rng),
        7 | 8 => with_policy(rng),
        9 => elastic(rng),
        10 => by_hand(world, name, rng),
        11 => foreign(),
        12 => patient(),
        _ => short(rng),
    };
    if rng.u8(0..6) == 0 {
        spec["suspend"] = true.into();
    }
    if spec["podFailurePolicy"].is_null() && rng.u8(0..3) == 0 {
        spec["podReplacementPolicy"] = "Failed".into();
    }
    if notes[kubelet::RUNS].is_null() {
        notes[kubelet::RUNS] = rng.u32(500..8_000).to_string().into();
    }
    create(world, name, spec, notes, rng.i64(0..6));
}

/// Creates a Job whose pods have these annotations and this grace period in seconds.
pub(super) fn create(world: &World, name: &str, mut spec: Value, notes: Value, grace: i64) {
    let template = &mut spec["template"];
    template["metadata"]["annotations"] = notes;
    if template["spec"]["restartPolicy"].is_null() {
        template["spec"]["restartPolicy"] = "Never".into();
    }
    template["spec"]["terminationGracePeriodSeconds"] = grace.into();
    template["spec"]["containers"] = json!([{ "name": "main", "image": "i" }]);
    world.cluster().create(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "namespace": HOME }, "spec": spec,
    }));
}

type Made = (Value, Value);

fn plain(rng: &mut Rng) -> Made {
    let spec = json!({
        "completions": rng.u8(1..5), "parallelism": rng.u8(1..4), "backoffLimit": rng.u8(0..4),
    });
    (spec, fails(rng, 250))
}

fn queue(rng: &mut Rng) -> Made {
    (json!({ "parallelism": rng.u8(1..4), "backoffLimit": rng.u8(0..4) }), fails(rng, 250))
}

fn indexed(rng: &mut Rng) -> Made {
    let spec = json!({
        "completionMode": "Indexed", "completions": rng.u8(2..6), "parallelism": rng.u8(1..4),
        "backoffLimit": rng.u8(1..4),
    });
    (spec, fails(rng, 200))
}

fn by_index(rng: &mut Rng) -> Made {
    let completions = rng.u8(2..5);
    let mut spec = json!({
        "completionMode": "Indexed", "completions": completions, "parallelism": rng.u8(1..completions),
        "backoffLimitPerIndex": rng.u8(0..3),
    });
    if rng.bool() {
        spec["maxFailedIndexes"] = rng.u8(0..2).into();
    }
    let mut notes = fails(rng, 350);
    if rng.bool() {
        notes[kubelet::ALWAYS] = rng.u8(0..completions).to_string().into();
    }
    if rng.u8(0..3) == 0 {
        spec["podFailurePolicy"] = json!({ "rules": [
            { "action": "FailIndex", "onExitCodes": { "operator": "In", "values": [43] } },
            { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
        ]});
        notes[kubelet::CODE] = ["1", "43"][rng.usize(..2)].into();
    }
    (spec, notes)
}

fn successful(rng: &mut Rng) -> Made {
    let rule = match rng.u8(0..3) {
        0 => json!({ "succeededIndexes": "0,2" }),
        1 => json!({ "succeededCount": 2 }),
        _ => json!({ "succeededIndexes": "0-2", "succeededCount": 1 }),
    };
    let mut spec = json!({
        "completionMode": "Indexed", "completions": 4, "parallelism": rng.u8(2..5), "backoffLimit": rng.u8(0..4),
        "successPolicy": { "rules": [rule] },
    });
    if rng.bool() {
        spec["backoffLimitPerIndex"] = rng.u8(0..2).into();
    }
    (spec, fails(rng, 200))
}

fn with_policy(rng: &mut Rng) -> Made {
    let spec = json!({
        "completions": rng.u8(1..4), "parallelism": rng.u8(1..4), "backoffLimit": rng.u8(1..4),
        "podFailurePolicy": { "rules": [
            { "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } },
            { "action": "Ignore", "onExitCodes": { "containerName": "main", "operator": "In", "values": [44] } },
            { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
        ]},
    });
    let mut notes = fails(rng, 300);
    notes[kubelet::CODE] = ["1", "42", "44"][rng.usize(..3)].into();
    (spec, notes)
}

fn elastic(rng: &mut Rng) -> Made {
    let size = rng.u8(1..5);
    let spec = json!({
        "completionMode": "Indexed", "completions": size, "parallelism": size, "backoffLimit": 3,
    });
    (spec, fails(rng, 100))
}

/// A Job with a manual selector. Some matching pods without an owner exist already.
fn by_hand(world: &World, name: &str, rng: &mut Rng) -> Made {
    let labels = json!({ "app": name });
    for number in 0..rng.u8(0..3) {
        orphan(world, &format!("{name}-stray-{number}-{}", rng.u16(..)), &labels, rng);
    }
    let spec = json!({
        "completions": rng.u8(1..4), "parallelism": rng.u8(1..4), "backoffLimit": 3,
        "manualSelector": true, "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels } },
    });
    (spec, fails(rng, 150))
}

/// A pod without a controller.
pub(super) fn orphan(world: &World, name: &str, labels: &Value, rng: &mut Rng) {
    let held: &[&str] = if rng.bool() { &[super::book::FINALIZER] } else { &[] };
    world.cluster().create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": HOME, "labels": labels, "finalizers": held },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }] },
    }));
}

/// A pod with the finalizer of Jobs whose controller has another kind.
pub(super) fn stranger(world: &World, name: &str) {
    world.cluster().create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": HOME, "finalizers": [super::book::FINALIZER],
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "j0", "uid": "of-a-replica-set", "controller": true,
            }],
        },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }] },
    }));
}

fn foreign() -> Made {
    (json!({ "completions": 2, "parallelism": 2, "managedBy": "example.com/other" }), json!({}))
}

/// A Job whose pods fail many times, with a growing back-off.
fn patient() -> Made {
    let notes = json!({ kubelet::FAILS: "1000", kubelet::RUNS: "400" });
    (json!({ "completions": 1, "parallelism": 1, "backoffLimit": 6 }), notes)
}

/// A Job with a short deadline.
fn short(rng: &mut Rng) -> Made {
    let mut spec = json!({
        "completions": rng.u8(1..4), "parallelism": rng.u8(1..4), "activeDeadlineSeconds": rng.u8(2..30),
        "backoffLimit": rng.u8(0..4),
    });
    if rng.bool() {
        spec["completionMode"] = "Indexed".into();
        spec["backoffLimitPerIndex"] = rng.u8(0..2).into();
    }
    (spec, json!({ kubelet::STAYS: if rng.bool() { "yes" } else { "" } }))
}

fn fails(rng: &mut Rng, most: u32) -> Value {
    json!({ kubelet::FAILS: rng.u32(0..=most).to_string() })
}
