//! The strategy Recreate.

use harness::{NAMESPACE, name, pass};
use serde_json::{Value, json};

use crate::world::{MS, SEC, World, adds, pairs};

fn recreate() -> Value {
    json!({ "replicas": 2, "strategy": { "type": "Recreate" } })
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_035_036_038_new_pods_wait_for_the_end_of_all_old_ones() {
    for phase in ["Pending", "Unknown", "Running"] {
        let (world, _manager) = World::running(recreate()).await;
        for ended in ["Failed", "Succeeded"] {
            world.add_pod(&ended.to_lowercase(), "one", ended);
        }
        world.add_pod("old", "one", phase);
        world.set_image("two");
        pass(SEC).await;
        assert_eq!(world.sizes(), pairs(&[("one", 0)]));
        world.run_sets();
        pass(60 * SEC).await;
        assert_eq!(world.sizes(), pairs(&[("one", 0)]), "{phase}: the status has no pods, but the cache has");
        world.delete_pod_gracefully("old");
        pass(5 * SEC).await;
        assert_eq!(world.sizes(), pairs(&[("one", 0)]), "{phase}: it is terminating");
        world.cluster.remove("pods", NAMESPACE, "old");
        pass(100 * MS).await;
        assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 2)]), "{phase}: at once, although ended pods remain");
    }
}

/// Upstream waits for the next event of a ReplicaSet, or for the deadline.
#[tokio::test(start_paused = true)]
async fn an_old_pod_that_ends_or_is_released_is_waited_for_no_longer() {
    let changes: [fn(&mut Value); 2] =
        [|it| it["status"]["phase"] = json!("Failed"), |it| it["metadata"]["ownerReferences"] = json!([])];
    for change in changes {
        let (world, _manager) = World::running(recreate()).await;
        world.add_pod("old", "one", "Running");
        world.set_image("two");
        pass(SEC).await;
        world.run_sets();
        pass(SEC).await;
        assert_eq!(world.sizes(), pairs(&[("one", 0)]));
        world.cluster.update("pods", NAMESPACE, "old", change);
        pass(100 * MS).await;
        assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 2)]));
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_other_namespaces_that_name_an_old_set_do_not_count() {
    let (world, _manager) = World::running(recreate()).await;
    world.create_namespace("other");
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name(&world.set_of("one")),
        "uid": world.set_of("one")["metadata"]["uid"], "controller": true });
    world.cluster.create(json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "a", "namespace": "other", "ownerReferences": [owner] },
        "spec": { "containers": [{ "name": "c", "image": "i" }] }, "status": { "phase": "Running" } }));
    world.set_image("two");
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 2)]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_037_terminating_pods_are_reported_during_the_wait() {
    let (world, _manager) = World::running(recreate()).await;
    world.add_pod("a", "one", "Running");
    world.set_image("two");
    pass(SEC).await;
    world.update_set("one", |it| {
        it["status"] =
            json!({ "replicas": 0, "terminatingReplicas": 6, "observedGeneration": it["metadata"]["generation"] });
    });
    pass(SEC).await;
    assert_eq!((world.count("replicas"), world.count("terminatingReplicas")), (0, 6));
    assert_eq!(world.sizes(), pairs(&[("one", 0)]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_039_deleted_pods_of_other_strategies_enqueue_nothing() {
    let (world, manager) = World::running(json!({})).await;
    world.add_pod("a", "one", "Running");
    pass(SEC).await;
    let before = adds(&manager);
    world.cluster.remove("pods", NAMESPACE, "a");
    pass(5 * SEC).await;
    assert_eq!(adds(&manager), before);
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_040_the_set_follows_the_replicas() {
    let (world, _manager) = World::running(recreate()).await;
    for replicas in [0, 1] {
        world.scale(replicas);
        world.run_rollout().await;
        assert_eq!(world.sizes(), pairs(&[("one", replicas)]));
        assert_eq!(world.count("replicas"), replicas);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_deploy_050_a_strategy_that_is_changed_in_mid_rollout_does_not_get_stuck() {
    let (world, _manager) = World::running(json!({ "replicas": 4 })).await;
    world.set_image("two");
    pass(SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 3), ("two", 2)]));
    world.edit(|spec| {
        spec["strategy"] = json!({ "type": "Recreate" });
        spec["replicas"] = json!(6);
    });
    pass(SEC).await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 2)]));
    world.run_rollout().await;
    assert_eq!(world.sizes(), pairs(&[("one", 0), ("two", 6)]));
}
