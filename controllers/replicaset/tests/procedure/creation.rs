//! Creation of pods, slow start, refusals and replacements.

use harness::{Manager, NAMESPACE, failure, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, STATUS, WITHOUT_GATE, World};

#[tokio::test(start_paused = true)]
async fn acceptance_rs_001_missing_pods_are_created_from_the_template() {
    let world = World::new();
    let _manager = world.start().await;
    let set = world.set(3, json!({}));
    pass(SEC).await;
    let bodies = world.bodies("create");
    assert_eq!((bodies.len(), world.own().len()), (3, 3));
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": set["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true }]);
    for body in bodies {
        let metadata = json!({ "generateName": "rs-", "labels": { "app": "web" }, "ownerReferences": owner });
        assert_eq!((&body["metadata"], &body["spec"]["containers"][0]["image"]), (&metadata, &json!("one")));
    }
    assert_eq!(world.event_count("SuccessfulCreate").await, 3);
    assert_eq!(
        (world.count("replicas"), world.count("fullyLabeledReplicas"), world.count("observedGeneration")),
        (3, 3, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_002_a_sync_creates_500_pods_and_waits_until_all_are_observed() {
    for options in [replicaset_controller::Options::default(), WITHOUT_GATE] {
        let world = World::new();
        let mut left = 499;
        world.fail_requests(move |line, _| {
            let is_last = line == "create pods" && left == 0;
            left -= i64::from(line == "create pods");
            is_last.then_some(Interception::Delay(SEC))
        });
        let _manager = world.start_with(options).await;
        world.set(1_000, json!({}));
        // The cache shows 499 of the first 500.
        pass(500 * MS).await;
        world.cluster.freeze_watches("pods");
        pass(SEC).await;
        assert_eq!((world.call_count("create pods"), world.pods().len()), (500, 500));
        world.touch_set("again");
        pass(5 * SEC).await;
        assert_eq!(world.call_count("create pods"), 500);
        world.cluster.unfreeze_watches("pods");
        pass(5 * SEC).await;
        assert_eq!((world.call_count("create pods"), world.pods().len()), (1_000, 1_000));
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_003_if_each_creation_is_refused_a_sync_sends_one_and_is_retried_with_back_off() {
    let world = World::new();
    world.quota(0);
    let _manager = world.start().await;
    world.set(10, json!({}));
    pass(3 * SEC).await;
    let times = world.call_times("create pods");
    let delays: Vec<_> = times.windows(2).map(|it| it[1] - it[0]).collect();
    assert!(times.len() > 5 && delays.iter().skip(1).is_sorted(), "{delays:?}");
    assert!(delays.iter().all(|it| *it >= 4 * MS), "one in each sync: {delays:?}");
    assert!(delays.last() > Some(&(200 * MS)), "{delays:?}");
    assert_eq!(i64::try_from(world.call_count("create pods")).unwrap(), world.event_count("FailedCreate").await);
    assert!(world.events().await.iter().any(|it| it == "Warning FailedCreate: Error creating: exceeded quota: q"));
    assert!(!world.logged("cannot create 1 of 10 pods").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_004_a_slow_start_stops_after_the_batch_with_a_refusal() {
    let world = World::new();
    world.quota(10);
    let _manager = world.start().await;
    world.cluster.freeze_watches("pods");
    world.set(100, json!({}));
    pass(SEC).await;
    assert_eq!((world.call_count("create pods"), world.pods().len()), (15, 10));
    world.cluster.unfreeze_watches("pods");
    pass(10 * SEC).await;
    assert_eq!(world.pods().len(), 10);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_005_only_created_pods_are_expected() {
    for options in [replicaset_controller::Options::default(), WITHOUT_GATE] {
        let world = World::new();
        world.quota(5);
        let manager = world.start_with(options).await;
        world.cluster.freeze_watches("pods");
        world.set(10, json!({}));
        pass(4 * MS).await;
        assert_eq!((world.call_count("create pods"), world.pods().len()), (7, 5));
        pass(SEC).await;
        assert_eq!(world.call_count("create pods"), 7, "five pods are expected");
        world.cluster.stop_intercepting();
        world.cluster.unfreeze_watches("pods");
        pass(SEC).await;
        assert_eq!((world.pods().len(), crate::world::waiting(&manager)), (10, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_006_a_failed_creation_is_not_expected() {
    let world = World::new();
    let _manager = world.start_with(WITHOUT_GATE).await;
    world.fail_first("create pods", &failure(403, "Forbidden").unwrap());
    world.set(1, json!({}));
    pass(100 * MS).await;
    assert_eq!((world.call_count("create pods"), world.pods().len()), (2, 1));
}

/// Upstream sends up to 500 such requests in one sync, and is silent for five minutes.
#[tokio::test(start_paused = true)]
async fn acceptance_rs_007_in_a_terminating_namespace_one_creation_is_tried_and_nothing_is_reported() {
    let (world, manager) = World::running(3, json!({})).await;
    let mut body = json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": "it is being terminated" });
    body["details"]["causes"] = json!([{ "reason": "NamespaceTerminating", "field": "metadata.namespace" }]);
    world.fail_requests(move |line, _| {
        let answer = Interception::Answer { status: 403, headers: Vec::new(), body: body.clone() };
        (line == "create pods").then_some(answer)
    });
    for pod in world.pods() {
        world.cluster.remove("pods", NAMESPACE, &pod);
        pass(SEC).await;
    }
    pass(290 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.count("replicas")), (1, 0));
    assert_eq!((world.event_count("FailedCreate").await, world.failure_reason()), (0, None));
    assert!(world.logged("cannot create").is_empty());
    assert_eq!(crate::world::waiting(&manager), 0);
}

/// An API server may learn late that the namespace exists again.
#[tokio::test(start_paused = true)]
async fn a_creation_that_a_terminating_namespace_refused_is_tried_again_after_five_minutes() {
    let world = World::new();
    let _manager = world.start().await;
    let mut body = json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "message": "it is being terminated" });
    body["details"]["causes"] = json!([{ "reason": "NamespaceTerminating", "field": "metadata.namespace" }]);
    world.fail_requests(move |line, _| {
        let answer = Interception::Answer { status: 403, headers: Vec::new(), body: body.clone() };
        (line == "create pods").then_some(answer)
    });
    world.set(3, json!({}));
    pass(590 * SEC).await;
    assert_eq!(world.call_count("create pods"), 2);
    world.cluster.stop_intercepting();
    pass(15 * SEC).await;
    assert_eq!(world.count("replicas"), 3);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_012_a_failed_pod_is_replaced_and_neither_deleted_nor_counted() {
    let (world, _manager) = World::running(2, json!({})).await;
    let failed = world.pods()[0].clone();
    world.end_pod(&failed, "Failed", 1);
    pass(SEC).await;
    assert_eq!((world.call_count("create pods"), world.call_count("delete pods")), (1, 0));
    assert_eq!((world.pods().len(), world.own().len(), world.count("replicas")), (3, 2, 2));
    assert_eq!(world.owner(&failed), Some(world.uid()));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_013_a_pod_that_is_being_deleted_is_replaced_before_it_is_gone() {
    let (world, _manager) = World::running(1, json!({})).await;
    world.delete_pod_gracefully(&world.pods()[0]);
    pass(SEC).await;
    assert_eq!((world.pods().len(), world.own().len(), world.count("terminatingReplicas")), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_014_scaling_to_the_present_number_writes_no_pod() {
    let (world, _manager) = World::running(2, json!({})).await;
    world.quota(0);
    world.scale(4);
    pass(SEC).await;
    world.cluster.clear_requests();
    world.scale(2);
    pass(SEC).await;
    assert_eq!(world.lines(), [STATUS]);
    assert_eq!((world.count("observedGeneration"), world.count("replicas")), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_template_without_labels_creates_nothing_and_is_reported() {
    let world = World::new();
    let _manager = world.start().await;
    world.set(1, json!({ "template": { "metadata": {}, "spec": {} } }));
    pass(SEC).await;
    assert_eq!((world.call_count("create pods"), world.failure_reason().as_deref()), (0, Some("FailedCreate")));
}

/// Pods that users release are replaced without a limit.
#[tokio::test(start_paused = true)]
async fn pods_that_were_counted_once_occupy_no_slot() {
    let world = World::new();
    let _manager = world.start().await;
    world.set(1, json!({}));
    for _ in 0..5 {
        pass(SEC).await;
        world.relabel(&world.own()[0], "other");
    }
    pass(SEC).await;
    assert_eq!((world.pods().len(), world.own().len()), (6, 1));
}

/// A set of two whose new pods are not shown by the cache.
async fn unseen_pods() -> (World, Manager) {
    let world = World::new();
    let cluster = world.cluster.clone();
    world.fail_requests(move |line, _| {
        if line == "create pods" {
            cluster.freeze_watches("pods");
        }
        None
    });
    let manager = world.start().await;
    world.set(2, json!({}));
    (world, manager)
}

/// Without the limit a webhook that changes the labels of pods would lead to pods without end.
#[tokio::test(start_paused = true)]
async fn pods_that_never_count_are_created_at_most_twice_the_replicas() {
    let (world, _manager) = unseen_pods().await;
    for _ in 0..20 {
        pass(SEC).await;
        // The cache never shows them with their labels.
        world.own().iter().for_each(|it| world.relabel(it, "other"));
        world.cluster.unfreeze_watches("pods");
    }
    pass(SEC).await;
    assert_eq!((world.pods().len(), world.own().len()), (4, 0));
    assert_eq!(world.event_count("CreationLimited").await, 1);
    world.cluster.stop_intercepting();
    // A pod that is gone frees its slot. No event enqueues the set.
    world.cluster.remove("pods", NAMESPACE, &world.pods()[0]);
    pass(61 * SEC).await;
    assert_eq!(world.own().len(), 2, "one after the other, because a pod that counts occupies no slot");
}

/// With the gate, a pod that the set never counts would be replaced at once, without end.
#[tokio::test(start_paused = true)]
async fn pods_that_another_controller_takes_are_created_at_most_twice_the_replicas() {
    let (world, _manager) = unseen_pods().await;
    let other =
        json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "uid": "other", "controller": true }]);
    for _ in 0..20 {
        pass(SEC).await;
        for pod in world.own() {
            world.update_pod(&pod, |it| it["metadata"]["ownerReferences"] = other.clone());
        }
        world.cluster.unfreeze_watches("pods");
    }
    pass(SEC).await;
    assert_eq!((world.pods().len(), world.own().len(), world.event_count("CreationLimited").await), (4, 0, 1));
}
