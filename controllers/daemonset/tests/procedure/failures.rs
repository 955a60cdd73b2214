//! Pods that fail, and creations that are refused.

use std::time::Duration;

use harness::{NAMESPACE, failure, pass};
use serde_json::json;

use crate::world::{MS, SEC, World, on_delete, rolling, target};

#[tokio::test(start_paused = true)]
async fn acceptance_ds_022_a_failed_pod_and_the_surplus_are_deleted_with_one_event() {
    let world = World::with_nodes(1);
    for (name, age) in [("failed", 50), ("a", 40), ("b", 30), ("c", 20)] {
        world.add_pod(name, json!({ "app": "web" }), "node-1", age);
    }
    world.end("failed", "Failed");
    let _manager = world.start().await;
    world.set(json!({ "updateStrategy": on_delete() }));
    pass(5 * SEC).await;
    let mut deleted = world.deleted();
    deleted.sort();
    assert_eq!(deleted, ["b", "c", "failed"]);
    let events = world.events().await;
    let failed: Vec<&String> = events.iter().filter(|it| it.contains(" FailedDaemonPod: ")).collect();
    let wanted = "Warning FailedDaemonPod: Found failed daemon pod n/failed on node node-1, will try to kill it";
    assert_eq!((failed, world.event_count("FailedDaemonPod")), (vec![&wanted.to_owned()], 1));
}

/// The kubelet may write the status of the pod meanwhile. Nothing was deleted, so no back-off begins.
#[tokio::test(start_paused = true)]
async fn a_failed_pod_that_has_changed_is_deleted_without_a_delay() {
    let (world, _manager) = World::running(1, json!({})).await;
    let (pod, cluster, mut first) = (world.pod_on("node-1"), world.cluster.clone(), true);
    world.fail_requests(move |line, _| {
        if let Some(pod) = line.strip_prefix("delete pods ").filter(|_| std::mem::take(&mut first)) {
            cluster.update("pods", NAMESPACE, pod, |it| it["status"]["message"] = json!("again"));
        }
        None
    });
    world.end(&pod, "Failed");
    pass(SEC / 2).await;
    assert_eq!(world.deleted().len(), 2, "{:?}", world.lines());
    assert!(world.pod(&pod)["status"]["phase"] == "Pending", "it is a new pod");
    pass(SEC).await;
    assert_eq!(world.event_count("FailedDaemonPod"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_023_pods_that_fail_again_and_again_are_replaced_after_growing_delays() {
    let (world, _manager) = World::running(1, json!({})).await;
    let first = world.pod_on("node-1");
    for _ in 0..14_500 {
        world.active_pods().iter().for_each(|it| world.end(it, "Failed"));
        pass(200 * MS).await;
    }
    let times = world.call_times("delete pods");
    let delays: Vec<Duration> = times.windows(2).map(|it| it[1] - it[0]).collect();
    let wanted = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900].map(Duration::from_secs);
    assert_eq!(delays.len(), wanted.len(), "{delays:?}");
    // Upstream waits for the full delay again after a pod has failed, even if a part of it is over.
    let is_exact = delays.iter().zip(wanted).all(|(it, wanted)| it.abs_diff(wanted) < 100 * MS);
    assert!(is_exact, "{delays:?}");
    let message = format!("Found failed daemon pod n/{first} on node node-1, will try to kill it");
    assert!(world.events().await.contains(&format!("Warning FailedDaemonPod: {message}")));
}

/// Upstream creates a new pod in each sync while failed ones wait (k/k#124388).
#[tokio::test(start_paused = true)]
async fn with_surge_a_node_that_rejects_pods_gets_no_new_one_during_the_back_off() {
    let (world, _manager) = World::running(1, json!({ "updateStrategy": rolling(0, 1) })).await;
    for _ in 0..300 {
        world.active_pods().iter().for_each(|it| world.end(it, "Failed"));
        pass(200 * MS).await;
    }
    // After 0, 1, 3, 7, 15 and 31 seconds.
    assert_eq!((world.call_count("delete pods"), world.call_count("create pods")), (6, 6));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_024_after_a_change_of_the_template_a_failed_pod_is_replaced_at_once() {
    let (world, _manager) = World::running(1, json!({ "updateStrategy": on_delete() })).await;
    for (replaced, delay) in [(1, 0), (2, 1), (3, 2)] {
        world.end(&world.pod_on("node-1"), "Failed");
        pass(delay * SEC + 100 * MS).await;
        assert_eq!(world.call_count("delete pods"), replaced);
    }
    // The next failure would wait for 4 s.
    world.set_image("two");
    pass(200 * MS).await;
    assert_eq!(world.count("observedGeneration"), 2);
    world.end(&world.pod_on("node-1"), "Failed");
    pass(100 * MS).await;
    assert_eq!((world.call_count("delete pods"), world.call_count("create pods")), (4, 4));
    assert_eq!(world.images()["node-1"], "two");
}

#[tokio::test(start_paused = true)]
async fn of_two_nodes_in_back_off_the_one_that_is_due_first_decides_when_the_set_is_synced() {
    let (world, _manager) = World::running(2, json!({})).await;
    let nodes = world.node_of_pods();
    // The next pod of a node has the name of the one before it.
    let deletions = || ["node-1", "node-2"].map(|node| world.deleted().iter().filter(|it| nodes[*it] == node).count());
    let fail = |node: &str| world.end(&world.pod_on(node), "Failed");
    for delay in [0, 1, 2, 4] {
        fail("node-1");
        pass(delay * SEC + 100 * MS).await;
    }
    // Node-1 waits for 8 s now, and node-2 for one.
    fail("node-1");
    fail("node-2");
    pass(100 * MS).await;
    assert_eq!(deletions(), [4, 1]);
    fail("node-2");
    pass(700 * MS).await;
    assert_eq!(deletions(), [4, 1]);
    pass(400 * MS).await;
    assert_eq!(deletions(), [4, 2]);
    pass(6 * SEC).await;
    assert_eq!(deletions(), [4, 2]);
    pass(SEC).await;
    assert_eq!(deletions(), [5, 2]);
}

/// The back-off of a set whose syncs fail must not replace the timer for `minReadySeconds`.
#[tokio::test(start_paused = true)]
async fn a_creation_that_is_always_refused_does_not_delay_the_count_of_available_pods() {
    let world = World::with_nodes(2);
    world.fail_requests(|line, call| {
        let is_refused = line == "create pods" && target(&call.json()) == "node-2";
        if is_refused { failure(403, "Forbidden") } else { None }
    });
    let _manager = world.start().await;
    world.set(json!({ "minReadySeconds": 30 }));
    // Then the back-off is longer than a minute, and no sync is due in the next 40 s.
    pass(90 * SEC).await;
    world.run_pending();
    pass(28 * SEC).await;
    assert_eq!((world.count("numberReady"), world.count("numberAvailable")), (1, 0));
    pass(5 * SEC).await;
    assert_eq!((world.pod_nodes(), world.count("numberAvailable")), (vec!["node-1".to_owned()], 1));
}

/// Its outcome is read after each back-off.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_always_fails_does_not_delay_the_count_of_available_pods() {
    let (world, _manager) = World::running(2, json!({ "minReadySeconds": 30 })).await;
    world.kubelet(40).await;
    assert_eq!(world.count("numberAvailable"), 2);
    let (pod, other) = (world.pod_on("node-1"), world.pod_on("node-2"));
    world.fail_requests(|line, _| if line.starts_with("delete pods") { failure(500, "InternalError") } else { None });
    world.taint("node-2", json!([{ "key": "example.com/custom", "effect": "NoExecute" }]));
    pass(90 * SEC).await;
    world.update_pod(&pod, |it| it["status"]["conditions"][0]["status"] = json!("False"));
    pass(SEC).await;
    world.run(&pod);
    pass(28 * SEC).await;
    assert_eq!((world.count("numberReady"), world.count("numberAvailable")), (1, 0));
    pass(5 * SEC).await;
    assert_eq!((world.count("numberAvailable"), world.pods().contains(&other)), (1, true));
}

/// A failure ends the creations of a sync, and the first batch is one pod.
#[tokio::test(start_paused = true)]
async fn a_node_whose_creations_are_always_refused_does_not_delay_the_other_nodes() {
    let world = World::with_nodes(9);
    world.fail_requests(|line, call| {
        let is_refused = line == "create pods" && matches!(&*target(&call.json()), "node-1" | "node-2" | "node-5");
        if is_refused { failure(403, "Forbidden") } else { None }
    });
    let _manager = world.start().await;
    world.set(json!({}));
    pass(5 * SEC).await;
    assert_eq!(world.pod_nodes(), ["node-3", "node-4", "node-6", "node-7", "node-8", "node-9"]);
    world.add_node("node-10");
    pass(30 * SEC).await;
    assert!(world.pod_nodes().contains(&"node-10".to_owned()));
}
