//! Creations and deletions that the cache does not show yet.

use harness::pass;
use serde_json::json;

use crate::world::{SEC, WITHOUT_GATE, World};

const STATUS: &str = "update daemonsets/status web";

#[tokio::test(start_paused = true)]
async fn acceptance_ds_031_while_pods_are_expected_only_counters_of_the_status_change() {
    let world = World::with_nodes(2);
    let _manager = world.start_with(WITHOUT_GATE).await;
    world.cluster.freeze_watches("pods");
    world.set(json!({}));
    pass(SEC).await;
    assert_eq!((world.call_count("create pods"), world.count("observedGeneration")), (2, 1));
    world.set_image("two");
    world.add_node("node-3");
    pass(5 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.call_count("delete pods")), (2, 0));
    assert_eq!((world.count("desiredNumberScheduled"), world.count("observedGeneration")), (3, 1));
    world.cluster.unfreeze_watches("pods");
    pass(5 * SEC).await;
    assert_eq!((world.pod_nodes().len(), world.count("observedGeneration")), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_never_observed_is_expected_for_five_minutes() {
    let world = World::with_nodes(1);
    let _manager = world.start_with(WITHOUT_GATE).await;
    world.cluster.freeze_watches("pods");
    world.set(json!({}));
    pass(SEC).await;
    world.remove_unobserved(&world.pod_on("node-1"));
    pass(290 * SEC).await;
    assert_eq!(world.call_count("create pods"), 1);
    pass(15 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.pod_nodes()), (2, vec!["node-1".to_owned()]));
}

/// With the gate, the cache has passed the creation. So a pod that it does not show is gone again.
#[tokio::test(start_paused = true)]
async fn a_pod_that_was_removed_before_it_was_observed_is_created_again_within_seconds() {
    let world = World::with_nodes(1);
    let _manager = world.start().await;
    world.cluster.freeze_watches("pods");
    world.set(json!({}));
    pass(SEC).await;
    assert_eq!(world.call_count("create pods"), 1);
    world.remove_unobserved(&world.pod_on("node-1"));
    pass(15 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.pod_nodes()), (2, vec!["node-1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_first_observed_while_it_is_being_deleted_fulfils_its_creation() {
    let world = World::with_nodes(1);
    let _manager = world.start_with(WITHOUT_GATE).await;
    world.cluster.freeze_watches("pods");
    world.set(json!({}));
    pass(SEC).await;
    world.delete_pod_gracefully(&world.pod_on("node-1"));
    world.relist("pods");
    pass(15 * SEC).await;
    assert_eq!(world.call_count("create pods"), 1, "the pod still exists");
    world.remove_terminating_pods();
    pass(SEC).await;
    assert_eq!((world.call_count("create pods"), world.pod_nodes()), (2, vec!["node-1".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_031_while_pods_are_expected_no_write_of_the_status_is_repeated() {
    let world = World::with_nodes(2);
    let _manager = world.start_with(WITHOUT_GATE).await;
    world.cluster.freeze_watches("pods");
    world.set(json!({}));
    pass(SEC).await;
    assert_eq!(world.call_count(STATUS), 1);
    world.set_image("two");
    pass(SEC).await;
    assert_eq!(world.call_count(STATUS), 1, "the new generation is not observed yet");
    world.add_node("node-3");
    pass(SEC).await;
    assert_eq!(world.call_count(STATUS), 2, "a counter has changed");
    for value in ["a", "b", "c"] {
        world.update_set(|it| it["metadata"]["labels"] = json!({ "changed": value }));
        pass(SEC).await;
    }
    assert_eq!((world.call_count(STATUS), world.count("observedGeneration")), (2, 1));
    assert_eq!((world.call_count("create pods"), world.call_count("delete pods")), (2, 0));
}
