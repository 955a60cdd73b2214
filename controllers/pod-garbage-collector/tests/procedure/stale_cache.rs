//! Caches that are behind: the live read of a node and the preconditions protect pods.

use harness::NAMESPACE;
use serde_json::json;

use crate::world::{MS, SEC, World, out_of_service, terminating};

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_succeeded_is_not_marked_as_failed() {
    let world = World::new();
    world.add_pod("a", "gone", "Running");
    let manager = world.start().await;
    world.cluster.freeze_watches("pods");
    world.cluster.update("pods", NAMESPACE, "a", |it| it["status"]["phase"] = json!("Succeeded"));
    world.sleep_until(41 * SEC).await;
    assert_eq!(world.lines(), ["get nodes gone", "patch pods/status a"]);
    assert_eq!(world.calls()[1].status, 409);
    assert_eq!(world.pod("a").unwrap()["status"]["phase"], "Succeeded");
    world.cluster.unfreeze_watches("pods");
    world.sleep_until(61 * SEC).await;
    assert_eq!(world.lines()[2..], ["get nodes gone", "delete pods a"], "without a patch");
    assert_eq!(manager.metric_lines("pod_gc_collector_force_delete_pod_errors_total"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_in_service_again_keeps_its_pods_although_the_cache_does_not_show_it() {
    for is_ready in [true, false] {
        let world = World::new();
        world.add_node_with("n1", "Unknown", out_of_service("NoExecute"));
        let _manager = world.start().await;
        world.cluster.freeze_watches("nodes");
        world.cluster.update("nodes", "", "n1", |it| {
            if is_ready {
                it["status"]["conditions"][0]["status"] = json!("True");
            } else {
                it["spec"]["taints"] = json!([]);
            }
        });
        world.add_pod_with("a", "n1", "Running", terminating(30));
        world.sleep_until(21 * SEC).await;
        assert_eq!(world.lines(), ["get nodes n1"]);
        world.sleep_until(3600 * SEC).await;
        assert_eq!(world.lines().len(), world.call_count("get"), "no other request");
        assert_eq!(world.pod_names(), ["a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_out_of_service_node_that_is_gone_are_left_to_the_quarantine() {
    let world = World::new();
    world.add_node_with("n1", "Unknown", out_of_service("NoExecute"));
    let _manager = world.start().await;
    world.cluster.freeze_watches("nodes");
    world.remove_node("n1");
    world.add_pod_with("a", "n1", "Running", terminating(30));
    world.sleep_until(60 * SEC).await;
    assert_eq!(world.lines().len(), world.call_count("get"), "{:?}", world.lines());
    world.cluster.unfreeze_watches("nodes");
    world.sleep_until(100 * SEC).await;
    assert_eq!(world.pod_names(), ["a"]);
    world.sleep_until(100 * SEC + 100 * MS).await;
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_be_read_keeps_its_terminating_pods() {
    let world = World::new();
    world.add_node_with("n1", "Unknown", out_of_service("NoExecute"));
    world.add_pod_with("a", "n1", "Running", terminating(30));
    let mut failures = 2;
    world.fail_requests(move |line, _| {
        let fails = line == "get nodes n1" && failures > 0;
        failures -= i32::from(fails);
        if fails { harness::failure(500, "InternalError") } else { None }
    });
    let _manager = world.start().await;
    world.sleep_until(39 * SEC).await;
    assert_eq!(world.lines(), ["get nodes n1", "get nodes n1"]);
    world.sleep_until(41 * SEC).await;
    assert_eq!(world.pod_names(), [""; 0]);
}
