//! The status, its conditions, and the deadline of a rollout.

use harness::{failure, pass};
use serde_json::json;

use crate::world::{MS, SEC, STATUS, World, adds, pairs, rolling};

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_031_the_counts_follow_the_status_of_the_sets() {
    let world = World::new();
    let _manager = world.start().await;
    world.deploy(json!({ "replicas": 10 }));
    pass(SEC).await;
    world.run_set("one", 10);
    pass(SEC).await;
    let fields = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"];
    assert_eq!(fields.map(|it| world.count(it)), [10, 10, 10, 10, 0]);
    world.update_set("one", |it| it["status"]["availableReplicas"] = json!(0));
    pass(SEC).await;
    assert_eq!(fields.map(|it| world.count(it)), [10, 10, 10, 0, 10]);
    assert_eq!(world.condition("Available"), "False MinimumReplicasUnavailable");
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_061_062_064_a_rollout_times_out_and_recovers() {
    let (world, _manager) = World::running(json!({ "progressDeadlineSeconds": 10 })).await;
    world.set_image("two");
    pass(100 * MS).await;
    world.run_set("two", 0);
    pass(9 * SEC).await;
    assert_eq!(world.condition("Progressing"), "True ReplicaSetUpdated");
    pass(3 * SEC).await;
    assert_eq!(world.condition("Progressing"), "False ProgressDeadlineExceeded");
    let events = world.events().await;
    let timeouts = events.iter().filter(|it| it.starts_with("Warning ProgressDeadlineExceeded: ReplicaSet"));
    assert_eq!(timeouts.count(), 1, "{events:?}");
    world.run_set("two", 1);
    pass(100 * MS).await;
    assert_eq!(world.condition("Progressing"), "True ReplicaSetUpdated");
    world.run_rollout().await;
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetAvailable");
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 3)]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_066_a_finished_rollout_with_an_unready_pod_needs_no_sync() {
    let (world, manager) = World::running(json!({ "progressDeadlineSeconds": 10 })).await;
    pass(60 * SEC).await;
    world.run_set("one", 2);
    pass(SEC).await;
    let before = adds(&manager);
    pass(600 * SEC).await;
    assert_eq!(adds(&manager), before);
    assert_eq!(world.condition("Progressing"), "True NewReplicaSetAvailable");
    assert_eq!(world.count("availableReplicas"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_to_a_set_that_exists_has_a_deadline() {
    let (world, _manager) = World::running(json!({ "progressDeadlineSeconds": 30 })).await;
    world.set_image("two");
    world.run_rollout().await;
    pass(60 * SEC).await;
    // The pods of the first template cannot run any more.
    world.set_image("one");
    pass(SEC).await;
    assert_eq!(world.condition("Progressing"), "True FoundNewReplicaSet");
    pass(35 * SEC).await;
    assert_eq!(world.condition("Progressing"), "False ProgressDeadlineExceeded");
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_067_a_deadline_that_is_set_later_begins_with_the_set_that_was_found() {
    let (world, _manager) = World::running(json!({ "progressDeadlineSeconds": 2_147_483_647 })).await;
    assert_eq!(world.condition("Progressing"), "");
    world.run_set("one", 2);
    pass(SEC).await;
    world.edit(|spec| spec["progressDeadlineSeconds"] = json!(600));
    pass(SEC).await;
    assert_eq!(world.condition("Progressing"), "True FoundNewReplicaSet");
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_069_a_failure_of_the_new_set_is_shown_until_it_is_over() {
    let (world, _manager) = World::running(json!({})).await;
    let failed = json!([{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "quota",
        "lastTransitionTime": world.second() }]);
    world.update_set("one", |it| it["status"]["conditions"] = failed);
    pass(SEC).await;
    assert_eq!(world.condition("ReplicaFailure"), "True FailedCreate");
    world.update_set("one", |it| it["status"]["conditions"] = json!([]));
    pass(SEC).await;
    assert_eq!(world.condition("ReplicaFailure"), "");
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_072_the_observed_generation_follows_every_change() {
    let (world, _manager) = World::running(json!({})).await;
    let is_observed =
        || world.count("observedGeneration") == world.stored()["metadata"]["generation"].as_i64().unwrap();
    assert!(is_observed());
    world.update(|it| it["metadata"]["annotations"]["a"] = json!("1"));
    pass(SEC).await;
    assert!(is_observed());
    world.edit(|spec| spec["paused"] = json!(true));
    pass(SEC).await;
    assert!(is_observed());
    world.delete();
    world.update(|it| it["spec"]["minReadySeconds"] = json!(1));
    pass(SEC).await;
    assert!(is_observed());
}

#[tokio::test(start_paused = true)]
async fn counters_that_change_in_quick_succession_are_stored_together() {
    let (world, _manager) = World::running(json!({ "replicas": 10, "strategy": rolling(json!(10), json!(0)) })).await;
    world.set_image("two");
    pass(SEC).await;
    world.run_set("two", 0);
    pass(SEC).await;
    world.cluster.clear_requests();
    for ready in 1..=9 {
        world.update_set("two", |it| it["status"]["readyReplicas"] = json!(ready));
        pass(20 * MS).await;
    }
    assert_eq!((world.call_count(STATUS), world.count("readyReplicas")), (1, 11));
    pass(250 * MS).await;
    assert_eq!((world.call_count(STATUS), world.count("readyReplicas")), (2, 19));
    world.run_rollout().await;
    assert_eq!(
        (world.count("readyReplicas"), world.condition("Progressing")),
        (10, "True NewReplicaSetAvailable".into())
    );
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_073_a_status_that_fails_again_and_again_is_repeated_until_it_is_stored() {
    let (world, _manager) = World::running(json!({})).await;
    let mut left = 20;
    world.fail_requests(move |line, _| {
        let fails = line == STATUS && left > 0;
        left -= i32::from(fails);
        if fails { failure(409, "Conflict") } else { None }
    });
    world.run_set("one", 2);
    pass(30 * SEC).await;
    assert_eq!(world.count("availableReplicas"), 3, "not yet");
    pass(6_000 * SEC).await;
    assert_eq!(world.call_count(STATUS), 21);
    assert_eq!(world.count("availableReplicas"), 2);
}

#[tokio::test(start_paused = true)]
async fn conditions_of_other_writers_and_unknown_fields_stay() {
    let (world, _manager) = World::running(json!({})).await;
    let foreign = json!({ "type": "Checked", "status": "True", "reason": "r", "message": "m" });
    world.update(|it| it["status"]["conditions"].as_array_mut().unwrap().insert(0, foreign.clone()));
    world.run_set("one", 2);
    pass(SEC).await;
    assert_eq!(world.count("availableReplicas"), 2);
    assert_eq!(world.status()["conditions"][0]["type"], "Checked");
}
