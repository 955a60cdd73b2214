//! Rollouts that wait for nodes, and nodes that are unreachable.

use harness::{NAMESPACE, pass};
use serde_json::json;

use crate::world::{SEC, World, on_delete, template};

const BLOCKED_SINCE: &str = "mini_kcm_daemonset_blocked_since_timestamp_seconds{";
const IGNORE_UNREACHABLE: &str = "mini-kcm.dev/ignore-unreachable-after";

/// The events with this reason.
async fn events_of(world: &World, reason: &str) -> Vec<String> {
    let wanted = format!("Warning {reason}: ");
    world.events().await.into_iter().filter(|it| it.starts_with(&wanted)).collect()
}

/// The pod runs on this node, and is not ready since now.
fn run_unready(world: &World, pod: &str, node: &str) {
    let condition = json!({ "type": "Ready", "status": "False", "lastTransitionTime": world.second() });
    world.update_pod(pod, |it| {
        it["spec"]["nodeName"] = json!(node);
        it["status"] = json!({ "phase": "Running", "conditions": [condition] });
    });
}

/// Replaces the first pod by one that is on its node and never becomes ready.
async fn start_blocked_rollout(world: &World) -> String {
    world.set_image("two");
    pass(SEC).await;
    world.remove_terminating_pods();
    pass(SEC).await;
    let pod = world.pod_on("node-1");
    run_unready(world, &pod, "node-1");
    pod
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_waits_for_ten_minutes_is_reported_once_and_counted_until_it_continues() {
    let (world, manager) = World::running(3, json!({})).await;
    let pod = start_blocked_rollout(&world).await;
    let since = world.second();
    pass(580 * SEC).await;
    assert_eq!(events_of(&world, "Blocked").await, [""; 0]);
    assert_eq!(manager.metric_lines(BLOCKED_SINCE), [""; 0]);
    pass(60 * SEC).await;
    let message = "the rollout waits for 1 node: ";
    let blocked = format!("Warning Blocked: {message}node-1 (Pod {pod}, not ready since {since})");
    assert_eq!(events_of(&world, "Blocked").await, std::slice::from_ref(&blocked));
    let [series] = &manager.metric_lines(BLOCKED_SINCE)[..] else { panic!("{}", manager.metrics_page()) };
    assert!(series.contains(r#"daemonset_namespace="n""#) && series.contains(r#"daemonset_name="web""#), "{series}");
    pass(2_000 * SEC).await;
    assert_eq!(events_of(&world, "Blocked").await, [blocked]);
    assert_eq!(world.call_count("delete pods"), 1, "the rollout waits");
    world.run(&pod);
    world.kubelet(20).await;
    assert_eq!(world.count("updatedNumberScheduled"), 3);
    assert_eq!(manager.metric_lines(BLOCKED_SINCE), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_set_is_not_counted_as_blocked() {
    let (world, manager) = World::running(3, json!({})).await;
    start_blocked_rollout(&world).await;
    pass(700 * SEC).await;
    assert_eq!(manager.metric_lines(BLOCKED_SINCE).len(), 1);
    world.cluster.remove("daemonsets.apps", NAMESPACE, "web");
    pass(5 * SEC).await;
    assert_eq!(manager.metric_lines(BLOCKED_SINCE), [""; 0]);
}

/// The cache shows the new set in place of the old one, without a deletion in between.
#[tokio::test(start_paused = true)]
async fn a_set_that_replaces_a_blocked_one_inherits_neither_its_metric_nor_its_expectations() {
    let (world, manager) = World::running(3, json!({})).await;
    start_blocked_rollout(&world).await;
    pass(700 * SEC).await;
    // The old set waits for a pod that the cache does not show.
    world.cluster.freeze_watches("pods");
    world.add_node("node-4");
    pass(SEC).await;
    assert_eq!((world.call_count("create pods"), manager.metric_lines(BLOCKED_SINCE).len()), (2, 1));
    world.cluster.freeze_watches("daemonsets");
    world.cluster.remove("daemonsets.apps", NAMESPACE, "web");
    let containers = json!([{ "name": "main", "image": "three" }]);
    world.set(json!({ "template": template(json!({ "containers": containers })) }));
    world.relist("daemonsets");
    pass(15 * SEC).await;
    assert_eq!(manager.metric_lines(BLOCKED_SINCE), [""; 0]);
    assert_eq!(world.call_count("create pods"), 2 + 4, "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn the_report_of_a_blocked_rollout_stays_while_a_failed_pod_is_replaced() {
    let (world, manager) = World::running(3, json!({})).await;
    start_blocked_rollout(&world).await;
    pass(700 * SEC).await;
    assert_eq!(world.event_count("Blocked"), 1);
    world.end(&world.pod_on("node-3"), "Failed");
    pass(SEC).await;
    assert_eq!((world.call_count("create pods"), manager.metric_lines(BLOCKED_SINCE).len()), (2, 1));
    world.run(&world.pod_on("node-3"));
    pass(700 * SEC).await;
    assert_eq!((world.event_count("Blocked"), manager.metric_lines(BLOCKED_SINCE).len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_set_without_a_rollout_is_never_blocked() {
    for spec in [json!({}), json!({ "updateStrategy": on_delete() })] {
        let (world, manager) = World::running(2, spec.clone()).await;
        run_unready(&world, &world.pod_on("node-1"), "node-1");
        if !spec["updateStrategy"].is_null() {
            world.set_image("two");
        }
        pass(2_000 * SEC).await;
        assert_eq!(events_of(&world, "Blocked").await, [""; 0]);
        assert_eq!(manager.metric_lines(BLOCKED_SINCE), [""; 0]);
        assert_eq!(world.count("numberUnavailable"), 1);
    }
}

/// A rollout of three nodes. The kubelet of the second one has stopped, so its pod is never gone.
async fn start_rollout_with_a_dead_node(world: &World, ignore_after: Option<&str>) {
    if let Some(time) = ignore_after {
        world.update_set(|it| it["metadata"]["annotations"][IGNORE_UNREACHABLE] = json!(time));
    }
    let taint = json!({ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": world.second() });
    world.taint("node-2", json!([taint]));
    run_unready(world, &world.pod_on("node-2"), "node-2");
    pass(SEC).await;
    world.set_image("two");
}

fn images_of_live_nodes(world: &World) -> [String; 2] {
    let images = world.images();
    ["node-1", "node-3"].map(|it| images[it].clone())
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_unreachable_for_long_does_not_stop_a_rollout_if_the_user_allows_it() {
    for (ignore_after, wanted) in [(None, "one"), (Some("5m"), "two")] {
        let (world, _manager) = World::running(3, json!({})).await;
        start_rollout_with_a_dead_node(&world, ignore_after).await;
        world.kubelet_without("node-2", 280).await;
        assert_eq!(images_of_live_nodes(&world), ["one", "one"], "less than five minutes");
        world.kubelet_without("node-2", 60).await;
        assert_eq!(images_of_live_nodes(&world), [wanted, wanted], "{ignore_after:?}");
        // The node itself is treated as before.
        let stuck = world.pod(&world.pod_on("node-2"));
        assert!(!stuck["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(world.count("desiredNumberScheduled"), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn an_ignored_node_is_updated_when_it_is_reachable_again() {
    let (world, _manager) = World::running(3, json!({})).await;
    start_rollout_with_a_dead_node(&world, Some("5m")).await;
    world.kubelet_without("node-2", 400).await;
    assert_eq!(images_of_live_nodes(&world), ["two", "two"]);
    world.taint("node-2", json!([]));
    world.kubelet(20).await;
    assert_eq!(world.images()["node-2"], "two");
    assert_eq!((world.count("updatedNumberScheduled"), world.count("numberAvailable")), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_time_is_reported_once_and_ignored() {
    let (world, _manager) = World::running(3, json!({})).await;
    start_rollout_with_a_dead_node(&world, Some("soon")).await;
    world.kubelet_without("node-2", 400).await;
    assert_eq!(events_of(&world, "InvalidAnnotation").await.len(), 1);
    assert_eq!(images_of_live_nodes(&world), ["one", "one"]);
}
