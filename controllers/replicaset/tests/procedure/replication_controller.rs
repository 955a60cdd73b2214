//! ReplicationControllers.

use harness::pass;
use serde_json::json;

use crate::world::{SEC, World};

const STATUS: &str = "update replicationcontrollers/status rs";

#[tokio::test(start_paused = true)]
async fn acceptance_rs_054_a_replication_controller_gets_its_pods_and_events() {
    let world = World::of_replication_controllers();
    let _manager = world.start().await;
    let set = world.set(2, json!({}));
    pass(SEC).await;
    let owner = json!([{ "apiVersion": "v1", "kind": "ReplicationController", "name": "rs",
        "uid": set["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true }]);
    let bodies = world.bodies("create");
    assert!(bodies.len() == 2 && bodies.iter().all(|it| it["metadata"]["ownerReferences"] == owner), "{bodies:?}");
    assert_eq!(world.event_count("SuccessfulCreate").await, 2);
    let events = world.cluster.list("events", harness::NAMESPACE);
    assert!(events.iter().all(|it| it["involvedObject"]["kind"] == "ReplicationController"));
    assert!(events.iter().all(|it| it["source"]["component"] == "replication-controller"), "{events:?}");
    assert_eq!((world.count("replicas"), world.own().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_055_at_rest_no_status_is_written() {
    let world = World::of_replication_controllers();
    let _manager = world.start().await;
    world.set(2, json!({}));
    pass(SEC).await;
    world.run_all();
    world.delete_pod_gracefully(&world.pods()[0]);
    pass(SEC).await;
    world.run_all();
    pass(SEC).await;
    world.cluster.clear_requests();
    for value in ["a", "b", "c"] {
        world.touch_set(value);
        pass(SEC).await;
    }
    assert_eq!(world.lines(), [""; 0]);
    assert_eq!(world.status()["terminatingReplicas"], json!(null));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_056_after_a_change_of_the_selector_pods_are_released_and_created() {
    let world = World::of_replication_controllers();
    let _manager = world.start().await;
    world.set(2, json!({}));
    pass(SEC).await;
    let before = world.pods();
    world.update_set(|it| {
        it["spec"]["selector"] = json!({ "app": "new" });
        it["spec"]["template"]["metadata"]["labels"] = json!({ "app": "new" });
    });
    pass(SEC).await;
    assert_eq!((world.own().len(), world.pods().len()), (2, 4));
    assert!(before.iter().all(|it| world.owner(it).is_none()));
    assert!(world.call_count(STATUS) > 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_057_its_deletions_are_spread_by_its_own_pods() {
    let world = World::of_replication_controllers();
    let _manager = world.start().await;
    world.set(3, json!({}));
    pass(SEC).await;
    world.run_all();
    let pods = world.pods();
    for (pod, node) in pods.iter().zip(["a", "b", "b"]) {
        world.update_pod(pod, |it| it["spec"]["nodeName"] = json!(node));
    }
    pass(SEC).await;
    world.update_set(|it| it["spec"]["replicas"] = json!(2));
    pass(SEC).await;
    assert!(world.own().contains(&pods[0]), "{:?}", world.own());
    assert_eq!(world.own().len(), 2);
    assert!(world.logged("has no controller").is_empty());
}

/// Upstream has this gate for ReplicaSets only.
#[tokio::test(start_paused = true)]
async fn a_sync_of_a_replication_controller_waits_for_its_own_writes_too() {
    let world = World::of_replication_controllers();
    let manager = world.start().await;
    world.cluster.freeze_watches("pods");
    world.set(1, json!({}));
    pass(SEC).await;
    world.cluster.clear_requests();
    world.update_set(|it| it["spec"]["replicas"] = json!(2));
    pass(SEC).await;
    let skips = r#"mini_kcm_replicationcontroller_stale_sync_skips_total{group="",resource="pods"}"#;
    assert_eq!((world.lines(), manager.metric(skips)), (Vec::new(), 1));
}
