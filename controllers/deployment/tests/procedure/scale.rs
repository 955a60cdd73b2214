//! Scaling and pausing.

use harness::pass;
use serde_json::json;

use crate::world::{DESIRED, MAX, SEC, World, annotation, pairs};

async fn broken() -> (World, harness::Manager) {
    let (world, manager) = World::with_broken_rollout(json!(3), json!(2)).await;
    world.cluster.clear_requests();
    (world, manager)
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_041_a_complete_deployment_is_scaled_with_its_annotations() {
    let (world, _manager) = World::running(json!({})).await;
    world.scale(5);
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 5)]));
    let set = world.set_of("one");
    assert_eq!((annotation(&set, DESIRED), annotation(&set, MAX)), ("5", "7"));
    assert_eq!((world.call_count("create"), world.call_count("patch replicasets")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_042_043_a_stuck_rollout_is_scaled_in_proportion() {
    let (world, _manager) = broken().await;
    world.scale(30);
    pass(SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 20), ("two", 13)]));
    for image in ["one", "two"] {
        let set = world.set_of(image);
        assert_eq!((annotation(&set, DESIRED), annotation(&set, MAX)), ("30", "33"));
    }
    assert_eq!(world.call_count("patch replicasets"), 2);
    assert_eq!(world.response_count(409), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_044_replicas_come_before_a_template_that_changes_with_them() {
    let (world, _manager) = broken().await;
    world.edit(|spec| {
        spec["replicas"] = json!(30);
        spec["template"]["spec"]["containers"][0]["image"] = json!("three");
    });
    pass(SEC).await;
    let lines = world.lines();
    let writes: Vec<&str> = lines.iter().filter(|it| it.contains("replicasets")).map(|it| &it[..6]).collect();
    assert_eq!(writes[..3], ["patch ", "patch ", "create"], "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_046_an_adopted_set_is_not_needed_beside_a_saturated_one() {
    let (world, _manager) = World::running(json!({})).await;
    world.edit(|spec| spec["paused"] = json!(true));
    pass(SEC).await;
    world.add_set("old", "zero", json!({ "app": "d" }), json!({}));
    pass(SEC).await;
    let old = world.set_of("zero");
    assert_eq!((crate::world::owner(&old), old["spec"]["replicas"].as_i64()), (Some("d"), Some(0)));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_049_a_stale_annotation_is_repaired_and_the_rollout_continues() {
    let (world, manager) = World::running(json!({})).await;
    drop(manager);
    world.update_set("one", |it| it["metadata"]["annotations"][DESIRED] = json!("7"));
    world.set_image("two");
    let _manager = world.start().await;
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 3)]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_051_a_paused_deployment_creates_its_set_when_it_is_resumed() {
    let world = World::new();
    let _manager = world.start().await;
    world.deploy(json!({ "paused": true }));
    pass(60 * SEC).await;
    assert_eq!(world.sets().len(), 0);
    assert_eq!(
        (world.condition("Progressing"), world.count("observedGeneration")),
        ("Unknown DeploymentPaused".into(), 1)
    );
    world.edit(|spec| spec["paused"] = json!(false));
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 3)]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_052_a_paused_deployment_follows_its_replicas_but_not_its_template() {
    let (world, _manager) = World::running(json!({ "replicas": 1, "paused": false })).await;
    world.edit(|spec| spec["paused"] = json!(true));
    pass(SEC).await;
    world.scale(10);
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 10)]));
    world.set_image("two");
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 10)]));
    world.edit(|spec| spec["paused"] = json!(false));
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 10)]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_053_the_deadline_counts_from_the_end_of_a_pause() {
    let (world, _manager) = World::running(json!({ "progressDeadlineSeconds": 60 })).await;
    world.set_image("two");
    pass(SEC).await;
    world.edit(|spec| spec["paused"] = json!(true));
    pass(300 * SEC).await;
    assert_eq!(world.condition("Progressing"), "Unknown DeploymentPaused");
    world.edit(|spec| spec["paused"] = json!(false));
    pass(59 * SEC).await;
    assert_eq!(world.condition("Progressing"), "Unknown DeploymentResumed");
    pass(4 * SEC).await;
    assert_eq!(world.condition("Progressing"), "False ProgressDeadlineExceeded");
}
