//! Old ReplicaSets and rollbacks.

use harness::name;
use serde_json::json;

use crate::world::{REVISION, World, annotation, pairs};

const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_055_old_sets_over_the_limit_are_deleted_after_the_rollout() {
    let (world, _manager) = World::running(json!({ "revisionHistoryLimit": 0 })).await;
    world.set_image("two");
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("two", 3)]));
    let deletions: Vec<_> = world.calls().into_iter().filter(|it| it.verb == "delete").collect();
    let preconditions = &deletions[0].json()["preconditions"];
    assert_eq!(deletions.len(), 1);
    assert!(preconditions["uid"].is_string() && preconditions["resourceVersion"].is_string());

    let (world, _manager) = World::running(json!({ "revisionHistoryLimit": 2_147_483_647 })).await;
    for image in 0..15 {
        world.set_image(&format!("i{image}"));
        world.run_rollout().await;
    }
    assert_eq!(world.sets().len(), 16);
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_056_057_a_set_that_changed_since_it_was_cached_is_not_deleted() {
    let (world, _manager) = World::running(json!({ "revisionHistoryLimit": 1 })).await;
    world.set_image("two");
    world.run_rollout().await;
    let cluster = world.cluster.clone();
    let mut first = true;
    world.fail_requests(move |line, call| {
        if line.starts_with("delete replicasets") && std::mem::take(&mut first) {
            cluster.update("replicasets.apps", harness::NAMESPACE, &call.name, |it| it["spec"]["replicas"] = json!(1));
        }
        None
    });
    world.set_image("three");
    world.run_rollout().await;
    assert_eq!(world.response_count(409), 1, "the precondition");
    // It is deleted when the Deployment has scaled it to 0 again.
    assert_eq!((world.call_count("delete replicasets"), world.sets().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_059_a_rollback_restores_template_and_annotations_in_one_write() {
    let world = World::new();
    let _manager = world.start().await;
    world.deploy_as("d", json!({ "kubernetes.io/change-cause": "create" }), json!({}));
    world.run_rollout().await;
    world.update(|it| {
        it["spec"]["template"]["spec"]["containers"][0]["image"] = json!("two");
        it["metadata"]["annotations"]["kubernetes.io/change-cause"] = json!("edit");
    });
    world.run_rollout().await;
    world.cluster.clear_requests();
    world.update(|it| it["metadata"]["annotations"][ROLLBACK_TO] = json!("0"));
    world.run_rollout().await;
    assert_eq!(world.call_count("update deployments d"), 1);
    let stored = world.stored();
    assert_eq!(stored["spec"]["template"]["spec"]["containers"][0]["image"], "one");
    assert!(stored["spec"]["template"]["metadata"]["labels"]["pod-template-hash"].is_null());
    let annotations =
        ["kubernetes.io/change-cause", ROLLBACK_TO, REVISION].map(|it| annotation(&stored, it).to_owned());
    assert_eq!(annotations, ["create", "", "3"]);
    assert_eq!(world.sizes(), pairs(&[("two", 0), ("one", 3)]));
    let events = world.events().await;
    assert!(events.contains(&"Normal DeploymentRollback: Rolled back deployment \"d\" to revision 1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_060_a_rollback_that_is_impossible_only_loses_its_annotation() {
    for (to, event) in [
        ("7", "Warning DeploymentRollbackRevisionNotFound: Unable to find the revision to rollback to."),
        ("0", "Warning DeploymentRollbackRevisionNotFound: Unable to find last revision."),
        (
            "1",
            "Warning DeploymentRollbackTemplateUnchanged: The rollback revision contains the same template as current deployment \"d\"",
        ),
    ] {
        let (world, _manager) = World::running(json!({})).await;
        world.update(|it| it["metadata"]["annotations"][ROLLBACK_TO] = json!(to));
        world.run_rollout().await;
        assert_eq!(annotation(&world.stored(), ROLLBACK_TO), "", "{to}");
        assert!(world.events().await.contains(&event.to_owned()), "{to}");
        assert_eq!(world.sizes(), pairs(&[("one", 3)]));
    }
    let (world, _manager) = World::running(json!({})).await;
    world.update(|it| it["metadata"]["annotations"][ROLLBACK_TO] = json!("x"));
    world.run_rollout().await;
    assert_eq!(annotation(&world.stored(), ROLLBACK_TO), "x", "it is ignored");
    assert_eq!(world.call_count("update deployments d"), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_008_a_revision_of_64_bits_is_continued() {
    let world = World::new();
    let _manager = world.start().await;
    world.add_set("old", "zero", json!({ "app": "d" }), json!({ REVISION: "3546343826724305832" }));
    world.deploy(json!({}));
    world.run_rollout().await;
    assert_eq!(annotation(&world.set_of("one"), REVISION), "3546343826724305833");
    assert_eq!(world.revision(), "3546343826724305833");
    assert_ne!(name(&world.set_of("one")), "old");
}
