//! The Jobs of the scenario: every kind of Job that the API has, with options drawn from the seed.

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::{kubelet, users::HOME};

/// Creates a Job of a random kind with this name.
pub(super) fn create_random(world: &World, name: &str, rng: &mut Rng) {
    let (mut spec, mut notes) = match rng.u8(0..16) {
        0 | 1 => plain(rng),
        2 => work_queue(rng),
        3 => indexed(rng),
        4 | 5 => by_index(rng),
        6 | 14 => with_success_policy(rng),
        7 | 8 => with_failure_policy(rng),
        9 => elastic(rng),
        10 => with_manual_selector(world, name, rng),
        11 => managed_by_other(),
        12 => failing_repeatedly(),
        _ => with_deadline(rng),
    };
    if rng.u8(0..6) == 0 {
        spec["suspend"] = true.into();
    }
    if spec["podFailurePolicy"].is_null() && rng.u8(0..3) == 0 {
        spec["podReplacementPolicy"] = "Failed".into();
    }
    if notes[kubelet::RUN_TIME].is_null() {
        notes[kubelet::RUN_TIME] = rng.u32(500..8_000).to_string().into();
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

type SpecAndNotes = (Value, Value);

fn plain(rng: &mut Rng) -> SpecAndNotes {
    let spec = json!({
        "completions": rng.u8(1..5), "parallelism": rng.u8(1..4), "backoffLimit": rng.u8(0..4),
    });
    (spec, failure_rate(rng, 250))
}

fn work_queue(rng: &mut Rng) -> SpecAndNotes {
    (json!({ "parallelism": rng.u8(1..4), "backoffLimit": rng.u8(0..4) }), failure_rate(rng, 250))
}

fn indexed(rng: &mut Rng) -> SpecAndNotes {
    let spec = json!({
        "completionMode": "Indexed", "completions": rng.u8(2..6), "parallelism": rng.u8(1..4),
        "backoffLimit": rng.u8(1..4),
    });
    (spec, failure_rate(rng, 200))
}

fn by_index(rng: &mut Rng) -> SpecAndNotes {
    let completions = rng.u8(2..5);
    let mut spec = json!({
        "completionMode": "Indexed", "completions": completions, "parallelism": rng.u8(1..completions),
        "backoffLimitPerIndex": rng.u8(0..3),
    });
    if rng.bool() {
        spec["maxFailedIndexes"] = rng.u8(0..2).into();
    }
    let mut notes = failure_rate(rng, 350);
    if rng.bool() {
        notes[kubelet::FAILING_INDEX] = rng.u8(0..completions).to_string().into();
    }
    if rng.u8(0..3) == 0 {
        spec["podFailurePolicy"] = json!({ "rules": [
            { "action": "FailIndex", "onExitCodes": { "operator": "In", "values": [43] } },
            { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
        ]});
        notes[kubelet::EXIT_CODE] = ["1", "43"][rng.usize(..2)].into();
    }
    (spec, notes)
}

fn with_success_policy(rng: &mut Rng) -> SpecAndNotes {
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
    (spec, failure_rate(rng, 200))
}

fn with_failure_policy(rng: &mut Rng) -> SpecAndNotes {
    let spec = json!({
        "completions": rng.u8(1..4), "parallelism": rng.u8(1..4), "backoffLimit": rng.u8(1..4),
        "podFailurePolicy": { "rules": [
            { "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } },
            { "action": "Ignore", "onExitCodes": { "containerName": "main", "operator": "In", "values": [44] } },
            { "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] },
        ]},
    });
    let mut notes = failure_rate(rng, 300);
    notes[kubelet::EXIT_CODE] = ["1", "42", "44"][rng.usize(..3)].into();
    (spec, notes)
}

fn elastic(rng: &mut Rng) -> SpecAndNotes {
    let size = rng.u8(1..5);
    let spec = json!({
        "completionMode": "Indexed", "completions": size, "parallelism": size, "backoffLimit": 3,
    });
    (spec, failure_rate(rng, 100))
}

/// A Job with a manual selector. Some matching pods without an owner exist already.
fn with_manual_selector(world: &World, name: &str, rng: &mut Rng) -> SpecAndNotes {
    let labels = json!({ "app": name });
    for number in 0..rng.u8(0..3) {
        create_orphan(world, &format!("{name}-stray-{number}-{}", rng.u16(..)), &labels, rng);
    }
    let spec = json!({
        "completions": rng.u8(1..4), "parallelism": rng.u8(1..4), "backoffLimit": 3,
        "manualSelector": true, "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels } },
    });
    (spec, failure_rate(rng, 150))
}

/// A pod without a controller.
pub(super) fn create_orphan(world: &World, name: &str, labels: &Value, rng: &mut Rng) {
    let held: &[&str] = if rng.bool() { &[super::model::FINALIZER] } else { &[] };
    world.cluster().create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": HOME, "labels": labels, "finalizers": held },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }] },
    }));
}

/// A pod with the finalizer of Jobs whose controller has another kind.
pub(super) fn create_foreign_pod(world: &World, name: &str) {
    world.cluster().create(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": HOME, "finalizers": [super::model::FINALIZER],
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "j0", "uid": "of-a-replica-set", "controller": true,
            }],
        },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }] },
    }));
}

fn managed_by_other() -> SpecAndNotes {
    (json!({ "completions": 2, "parallelism": 2, "managedBy": "example.com/other" }), json!({}))
}

/// A Job whose pods fail many times, with a growing back-off.
fn failing_repeatedly() -> SpecAndNotes {
    let notes = json!({ kubelet::FAILURE_RATE: "1000", kubelet::RUN_TIME: "400" });
    (json!({ "completions": 1, "parallelism": 1, "backoffLimit": 6 }), notes)
}

/// A Job with a short deadline.
fn with_deadline(rng: &mut Rng) -> SpecAndNotes {
    let mut spec = json!({
        "completions": rng.u8(1..4), "parallelism": rng.u8(1..4), "activeDeadlineSeconds": rng.u8(2..30),
        "backoffLimit": rng.u8(0..4),
    });
    if rng.bool() {
        spec["completionMode"] = "Indexed".into();
        spec["backoffLimitPerIndex"] = rng.u8(0..2).into();
    }
    (spec, json!({ kubelet::UNTIL_CALM: if rng.bool() { "yes" } else { "" } }))
}

fn failure_rate(rng: &mut Rng, most: u32) -> Value {
    json!({ kubelet::FAILURE_RATE: rng.u32(0..=most).to_string() })
}
