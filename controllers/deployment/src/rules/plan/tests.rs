use serde_json::{Value, json};

use super::*;
use crate::testing::{NAME_OF_NEW, World, at, deployment, deployment_with, template};

/// The plan in words: `create 3 as 2`, `a 10->8`, `a annotates`, `a ready:5`, `delete a`, and so on.
fn words(world: &World) -> Vec<String> {
    let snapshot = world.snapshot();
    let Plan { create, changes, delete, rollback, problem, .. } = plan(&snapshot);
    let name = |at: usize| &snapshot.sets[at].meta.name;
    let mut words = Vec::new();
    words.extend(create.map(|it| format!("create {} as {}", it.replicas, it.revision)));
    for SetChange { at, replicas, min_ready_seconds, annotations } in changes {
        if let Some(next) = replicas {
            words.push(format!("{} {}->{next}", name(at), snapshot.sets[at].spec.replicas));
        } else if annotations.contains_key(DESIRED_REPLICAS) || annotations.contains_key(MAX_REPLICAS) {
            words.push(format!("{} annotates", name(at)));
        }
        words.extend(min_ready_seconds.map(|it| format!("{} ready:{it}", name(at))));
        words.extend(annotations.get(annotations::REVISION).map(|it| format!("{} revision:{it}", name(at))));
    }
    words.extend(delete.into_iter().map(|at| format!("delete {}", name(at))));
    words.extend(rollback.map(|it| format!("{it:?}")));
    words.extend(problem.map(|it| format!("{it:?}")));
    words
}

fn rolling(replicas: i64, surge: Value, unavailable: Value) -> Value {
    let rolling = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
    json!({ "replicas": replicas, "strategy": { "type": "RollingUpdate", "rollingUpdate": rolling } })
}

/// A Deployment of 10 with surge 3 and 2 unavailable.
fn ten(rows: &[&str]) -> Vec<String> {
    words(&World::new(deployment(rolling(10, json!("25%"), json!("25%"))), rows))
}

fn recreate(replicas: i64, rows: &[&str], has_old_pods: bool) -> Vec<String> {
    let spec = json!({ "replicas": replicas, "strategy": { "type": "Recreate" } });
    let mut world = World::new(deployment(spec), rows);
    world.has_old_pods = has_old_pods;
    words(&world)
}

const NOTHING: [&str; 0] = [];

#[test]
fn acceptance_deploy_001_018_a_new_deployment_creates_its_set_and_then_rests() {
    let three = |rows: &[&str]| words(&World::new(deployment(json!({})), rows));
    assert_eq!(three(&[]), ["create 3 as 1"]);
    assert_eq!(three(&["a new 3"]), NOTHING);
}

#[test]
fn acceptance_deploy_004_022_one_sync_creates_the_new_set_and_scales_down_the_old_one() {
    assert_eq!(ten(&["a old 10"]), ["create 3 as 2", "a 10->8"]);
}

#[test]
fn acceptance_deploy_023_024_a_broken_rollout_stays_contained() {
    assert_eq!(ten(&["a old 8", "b new 3/0 revision:2"]), ["b 3->5"]);
    assert_eq!(ten(&["a old 8", "b new 5/0 revision:2"]), NOTHING);
    assert_eq!(ten(&["a old 8/7", "b new 5/0 revision:2"]), NOTHING, "unavailable new pods protect the old ones");
}

#[test]
fn acceptance_deploy_025_a_reverted_rollout_deletes_its_broken_pods_first() {
    assert_eq!(ten(&["a new 8/7 revision:1", "b old 5/0 revision:2"]), ["a revision:3", "b 5->1"]);
    assert_eq!(ten(&["a new 8/7 revision:3", "b old 1/0 revision:2"]), ["a 8->10"]);
}

#[test]
fn acceptance_deploy_026_a_third_template_replaces_the_broken_pods() {
    assert_eq!(ten(&["a old 8 age:3", "b old 5/0 age:2 revision:2"]), ["create 0 as 3", "b 5->0"]);
    assert_eq!(ten(&["a old 8 age:3", "b old 0 age:2 revision:2", "c new 0 age:1 revision:3"]), ["c 0->5"]);
}

#[test]
fn acceptance_deploy_027_each_available_new_pod_replaces_an_old_one() {
    assert_eq!(ten(&["a old 8", "b new 5/1 revision:2"]), ["a 8->7"]);
    assert_eq!(ten(&["a old 7", "b new 5/1 revision:2"]), ["b 5->6"]);
}

#[test]
fn an_old_set_is_scaled_down_in_one_write() {
    // One pod that is not available, and four that are not needed any more.
    assert_eq!(ten(&["a old 10/9", "b new 3 revision:2"]), ["a 10->5"]);
}

#[test]
fn acceptance_deploy_028_with_nothing_unavailable_the_old_pod_goes_last() {
    let one = |rows: &[&str]| words(&World::new(deployment(rolling(1, json!(1), json!(0))), rows));
    assert_eq!(one(&["a old 1"]), ["create 1 as 2"]);
    assert_eq!(one(&["a old 1", "b new 1/0 revision:2"]), NOTHING);
    assert_eq!(one(&["a old 1", "b new 1 revision:2"]), ["a 1->0"]);
}

#[test]
fn acceptance_deploy_029_without_surge_pods_are_replaced_one_by_one() {
    let two = |rows: &[&str]| words(&World::new(deployment(rolling(2, json!(0), json!("1%"))), rows));
    assert_eq!(two(&["a old 2"]), ["create 0 as 2", "a 2->1"]);
    assert_eq!(two(&["a old 1", "b new 0 revision:2"]), ["b 0->1"]);
    assert_eq!(two(&["a old 1", "b new 1/0 revision:2"]), NOTHING);
    assert_eq!(two(&["a old 1", "b new 1 revision:2"]), ["a 1->0"]);
    assert_eq!(two(&["a old 0", "b new 1 revision:2"]), ["b 1->2"]);
}

#[test]
fn acceptance_deploy_021_a_new_set_that_is_too_large_is_scaled_down() {
    let rows = ["a old 2", "b new 11 revision:2"];
    assert_eq!(words(&World::new(deployment(rolling(10, json!(2), json!(0))), &rows)), ["b 11->10"]);
}

#[test]
fn acceptance_deploy_034_a_complete_rollover_leaves_only_the_newest_set() {
    assert_eq!(ten(&["a old 0 age:3", "b old 0 age:2 revision:2", "c new 10 age:1 revision:3"]), NOTHING);
}

#[test]
fn acceptance_deploy_035_036_recreate_waits_for_all_old_pods() {
    assert_eq!(recreate(2, &["a old 2"], true), ["a 2->0"]);
    assert_eq!(recreate(2, &["a old 0 pods:2"], true), NOTHING, "the status has pods");
    assert_eq!(recreate(2, &["a old 0"], true), NOTHING, "a pod is terminating");
    assert_eq!(recreate(2, &["a old 0 unobserved"], false), NOTHING, "its controller may create pods still");
    assert_eq!(recreate(2, &["a old 0"], false), ["create 2 as 2"]);
    assert_eq!(recreate(2, &["a old 0", "b new 0 revision:2"], false), ["b 0->2"]);
}

#[test]
fn a_paused_or_scaled_recreate_waits_for_all_old_pods_too() {
    let paused = |rows: &[&str], has_old_pods| {
        let spec = json!({ "replicas": 2, "paused": true, "strategy": { "type": "Recreate" } });
        let mut world = World::new(deployment(spec), rows);
        world.has_old_pods = has_old_pods;
        words(&world)
    };
    let rows = ["a old 0", "b new 0 revision:2"];
    assert_eq!(paused(&rows, true), NOTHING);
    assert_eq!(paused(&rows, false), ["b 0->2"]);
    assert_eq!(paused(&["a old 0 pods:2", "b new 0 revision:2"], false), NOTHING);
    assert_eq!(paused(&["a old 0 age:2", "b old 0 pods:2 age:1"], true), NOTHING, "nor an old one");
    assert_eq!(paused(&["a old 0 age:2", "b old 0 age:1"], false), ["b 0->2"]);
    assert_eq!(paused(&["a old 1"], true), ["a 1->2"], "the pods are its own");
    let rows = ["a old 0", "b new 1 desired:1 revision:2"];
    assert_eq!(recreate(2, &rows, true), ["b annotates"]);
    assert_eq!(recreate(2, &rows, false), ["b 1->2"]);
}

#[test]
fn acceptance_deploy_040_recreate_follows_the_replicas() {
    assert_eq!(recreate(0, &["a new 2 desired:2"], false), ["a 2->0"]);
    assert_eq!(recreate(1, &["a new 0 desired:0"], false), ["a 0->1"]);
}

#[test]
fn acceptance_deploy_041_a_single_active_set_follows_the_replicas() {
    let world = |rows: &[&str]| World::new(deployment(json!({ "replicas": 5 })), rows);
    assert_eq!(words(&world(&["a new 3 desired:3"])), ["a 3->5"]);
    let world = world(&["a new 3 desired:3"]);
    let snapshot = world.snapshot();
    let change = &plan(&snapshot).changes[0];
    let annotation = |key: &str| change.annotations.get(key).map(String::as_str);
    assert_eq!((annotation(DESIRED_REPLICAS), annotation(MAX_REPLICAS)), (Some("5"), Some("7")));
}

#[test]
fn acceptance_deploy_042_proportional_scaling_annotates_every_active_set() {
    let spec = rolling(10, json!(3), json!(2));
    let rows = ["a old 8 desired:9 max:13 age:2", "b new 5 desired:9 max:13 revision:2 age:1", "c old 0 age:3"];
    assert_eq!(words(&World::new(deployment(spec), &rows)), ["a annotates", "b annotates"], "no size changes");
}

#[test]
fn acceptance_deploy_044_a_change_of_replicas_and_template_scales_first() {
    let rows = ["a old 8 desired:10 max:13 age:2", "b old 5 desired:10 max:13 age:1"];
    let spec = rolling(30, json!(3), json!(2));
    assert_eq!(words(&World::new(deployment(spec), &rows)), ["a 8->20", "b 5->13"]);
    assert_eq!(words(&World::new(deployment(json!({ "replicas": 5 })), &["a old 3 desired:3"])), ["a 3->5"]);
}

#[test]
fn acceptance_deploy_045_without_active_sets_the_new_one_or_the_newest_old_one_is_scaled_up() {
    let six =
        |paused: bool, rows: &[&str]| words(&World::new(deployment(json!({ "replicas": 6, "paused": paused })), rows));
    assert_eq!(six(false, &["a old 0 desired:0", "b new 0 desired:0 revision:2"]), ["b 0->6"]);
    assert_eq!(six(true, &["a old 0 age:3", "b old 0 age:2"]), ["b 0->6"]);
    assert_eq!(six(true, &["a new 0 age:3 revision:2", "b old 0 age:2"]), ["a 0->6"]);
    assert_eq!(six(true, &[]), NOTHING);
}

#[test]
fn acceptance_deploy_046_a_saturated_new_set_needs_no_adopted_one() {
    let world = World::new(deployment(json!({ "paused": true })), &["a new 3 revision:2", "b old 3 desired:9"]);
    assert_eq!(words(&world), ["b 3->0"]);
}

#[test]
fn acceptance_deploy_049_a_stale_annotation_does_not_block_a_rollout() {
    let three = |rows: &[&str]| words(&World::new(deployment(json!({})), rows));
    assert_eq!(three(&["a old 3 desired:5"]), ["a annotates"]);
    assert_eq!(three(&["a old 3"]), ["create 1 as 2"]);
    assert_eq!(three(&["a old 3 desired:x"]), ["create 1 as 2"], "an annotation that is not valid is ignored");
}

#[test]
fn acceptance_deploy_050_recreate_with_two_active_sets_does_not_get_stuck() {
    let rows = ["a old 3 desired:3", "b new 2 desired:3 revision:2"];
    assert_eq!(recreate(5, &rows, true), ["a 3->0", "b annotates"]);
    assert_eq!(recreate(5, &["a old 0 desired:5", "b new 2 desired:5 revision:2"], true), NOTHING);
    assert_eq!(recreate(5, &["a old 0 desired:5", "b new 2 desired:5 revision:2"], false), ["b 2->5"]);
    assert_eq!(recreate(1, &rows, true), ["a 3->0", "b 2->1"]);
}

#[test]
fn acceptance_deploy_051_052_a_paused_deployment_begins_no_rollout() {
    let paused = |rows: &[&str]| words(&World::new(deployment(json!({ "replicas": 10, "paused": true })), rows));
    assert_eq!(paused(&[]), NOTHING);
    assert_eq!(paused(&["a new 1 desired:1"]), ["a 1->10"]);
    assert_eq!(paused(&["a old 10"]), NOTHING);
    assert_eq!(paused(&["a old 8 max:13 age:2", "b new 5/0 max:13 revision:2 age:1"]), NOTHING, "the sizes stay");
}

#[test]
fn acceptance_deploy_009_only_the_new_set_gets_min_ready_seconds() {
    let world = World::new(deployment(json!({ "minReadySeconds": 5 })), &["a old 0", "b new 3 revision:2"]);
    assert_eq!(words(&world), ["b ready:5"]);
}

#[test]
fn acceptance_deploy_005_a_reverted_template_uses_its_set_again() {
    let rows = ["a new 0 revision:1 age:2", "b old 3 revision:2 age:1"];
    let world = World::new(deployment(json!({})), &rows);
    assert_eq!(words(&world), ["a 0->1", "a revision:3"]);
    let snapshot = world.snapshot();
    let plan = plan(&snapshot);
    assert_eq!(plan.changes[0].annotations.get(annotations::REVISION_HISTORY).map(String::as_str), Some("1"));
    assert_eq!(plan.revision.as_deref(), Some("3"));
}

#[test]
fn acceptance_deploy_010_the_other_equal_set_is_scaled_down() {
    let rows = ["a new 3 revision:2 age:2", "b new 3 revision:1 age:1"];
    assert_eq!(words(&World::new(deployment(json!({})), &rows)), ["b 3->0"]);
}

#[test]
fn acceptance_deploy_003_annotations_reach_only_the_new_set() {
    let metadata = json!({ "annotations": { "a": "1" } });
    let world = World::new(deployment_with(json!({}), metadata, json!({})), &["a old 0", "b new 3 revision:2"]);
    let snapshot = world.snapshot();
    let changes = plan(&snapshot).changes;
    let want = [("a".to_owned(), "1".to_owned())].into_iter().collect();
    assert_eq!(changes, [SetChange { at: 1, annotations: want, ..SetChange::default() }]);
}

#[test]
fn acceptance_deploy_017_a_template_that_the_server_changed_is_not_created_again() {
    // Each change of the size increases the generation.
    for generation in [1, 2] {
        let row = format!("{NAME_OF_NEW} changed 3 generation:{generation} revision:2");
        let world = World::new(deployment(json!({})), &["a old 3 age:2000", &row]);
        assert_eq!(words(&world), ["TemplateChanged(1)"]);
    }
    let row = format!("{NAME_OF_NEW} changed 3 revision:2");
    let world = World::new(deployment(json!({ "strategy": { "type": "Recreate" } })), &["a old 3 age:2000", &row]);
    assert_eq!(words(&world), ["TemplateChanged(1)"]);
}

#[test]
fn acceptance_deploy_055_surplus_sets_are_deleted_when_the_rollout_is_complete() {
    let complete = json!({ "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3, "observedGeneration": 1 });
    let history = |spec: Value, status: Value| {
        let rows = ["a old 0 revision:1", "b new 3 revision:2"];
        words(&World::new(deployment_with(spec, json!({}), status), &rows))
    };
    assert_eq!(history(json!({ "revisionHistoryLimit": 0 }), complete.clone()), ["delete a"]);
    assert_eq!(history(json!({ "revisionHistoryLimit": 0 }), json!({})), NOTHING, "not complete");
    assert_eq!(history(json!({ "revisionHistoryLimit": 1 }), complete), NOTHING);
    assert_eq!(history(json!({ "revisionHistoryLimit": 0, "paused": true }), json!({})), ["delete a"]);
}

#[test]
fn a_set_that_is_scaled_up_is_not_deleted() {
    let spec = json!({ "revisionHistoryLimit": 0, "paused": true });
    assert_eq!(words(&World::new(deployment(spec), &["a old 0"])), ["a 0->3"]);
}

#[test]
fn acceptance_deploy_059_060_a_rollback_begins_when_the_present_template_has_a_set() {
    let annotated = |to: &str, spec: Value, rows: &[&str]| {
        let metadata = json!({ "annotations": { "deprecated.deployment.rollback.to": to } });
        words(&World::new(deployment_with(spec, metadata, json!({})), rows))
    };
    let rows = ["a old 0 revision:1", "b new 3 revision:2"];
    assert_eq!(annotated("0", json!({}), &rows), ["To { at: 0, revision: 1 }"]);
    assert_eq!(annotated("2", json!({}), &rows), ["Unchanged"]);
    assert_eq!(annotated("7", json!({}), &rows), ["NotFound(\"Unable to find the revision to rollback to.\")"]);
    let equal = ["a new 3 revision:2", "b new 0 revision:1 age:1"];
    assert_eq!(annotated("1", json!({}), &equal), ["Unchanged"], "a second one has the template too");
    assert_eq!(annotated("x", json!({}), &rows), NOTHING);
    assert_eq!(annotated("1", json!({}), &rows[..1]), ["create 0 as 2", "To { at: 0, revision: 1 }"]);
    assert_eq!(annotated("1", json!({ "paused": true }), &rows), NOTHING, "a pause comes first");
    let changed = format!("{NAME_OF_NEW} changed 3 generation:1 revision:2");
    assert_eq!(
        annotated("1", json!({}), &[rows[0], &changed]),
        ["To { at: 0, revision: 1 }", "TemplateChanged(1)"],
        "it needs no set that the server would change"
    );
}

#[test]
fn acceptance_deploy_078_nothing_is_written_for_a_deployment_that_is_being_deleted() {
    let metadata = json!({ "deletionTimestamp": at(-5), "annotations": { "a": "1" } });
    let deleting = |rows: &[&str]| words(&World::new(deployment_with(json!({}), metadata.clone(), json!({})), rows));
    assert_eq!(deleting(&[]), NOTHING);
    assert_eq!(deleting(&["a old 3 desired:1"]), NOTHING);
}

#[test]
fn an_unknown_strategy_changes_nothing() {
    let world = World::new(deployment(json!({ "strategy": { "type": "Newer" } })), &["a old 3"]);
    assert_eq!(words(&world), ["Strategy(\"Newer\")"]);
}

/// One deployment against an exact model of its ReplicaSets: whatever the order of events, the sums stay in the limits,
/// and the rollout ends.
#[test]
fn acceptance_deploy_027_random_rollouts_stay_within_their_limits_and_end() {
    let mut rng = fastrand::Rng::with_seed(22);
    for round in 0..300 {
        let replicas = rng.i64(1..25);
        let (surge, unavailable) = (rng.i64(0..5), rng.i64(0..5));
        let (surge, unavailable) = if surge + unavailable == 0 { (1, 0) } else { (surge, unavailable) };
        let spec = rolling(replicas, json!(surge), json!(unavailable));
        let (mut old, mut new) = ((replicas, replicas), None::<(i64, i64)>);
        for step in 0.. {
            assert!(step < 1_000, "round {round} does not end: {replicas} {surge} {unavailable}");
            let mut rows = vec![format!("a old {}/{}", old.0, old.1)];
            rows.extend(new.map(|it| format!("b new {}/{} revision:2", it.0, it.1)));
            let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
            let world = World::new(deployment(spec.clone()), &rows);
            let snapshot = world.snapshot();
            let Plan { create, changes, .. } = plan(&snapshot);
            let before = old.1 + new.map_or(0, |it| it.1);
            if let Some(Creation { replicas, .. }) = create {
                new = Some((i64::from(replicas), 0));
            }
            for change in changes {
                let Some(size) = change.replicas.map(i64::from) else { continue };
                // The ReplicaSet deletes pods that are not available first.
                if change.at == 0 {
                    old = (size, old.1.min(size));
                } else {
                    new = new.map(|it| (size, it.1.min(size)));
                }
            }
            let now = old.1 + new.map_or(0, |it| it.1);
            let total = old.0 + new.map_or(0, |it| it.0);
            assert!(total <= replicas + surge, "{rows:?} -> {old:?} {new:?}");
            assert!(now >= before.min(replicas - unavailable.min(replicas)), "{rows:?} -> {old:?} {new:?}");
            if old.0 == 0 && new == Some((replicas, replicas)) {
                break;
            }
            // Some pods become available, and old ones may be lost.
            new = new.map(|it| (it.0, (it.1 + rng.i64(0..=2)).min(it.0)));
            if rng.u8(0..10) == 0 {
                old.1 = (old.1 - 1).max(0);
            }
        }
    }
}

#[test]
fn the_template_of_the_tests_is_found() {
    let world = World::new(deployment(json!({ "template": template("x") })), &["a x 3"]);
    assert_eq!(world.snapshot().new, Some(0));
}
