//! Events and metrics.

use std::{collections::BTreeSet, time::Duration};

use harness::pass;
use node_lifecycle_controller::Options;
use serde_json::json;

use crate::world::{MS, SEC, World, names, of_zone};

#[tokio::test(start_paused = true)]
async fn acceptance_node_007_029_030_the_events_of_nodes() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.kubelets(&["b"], 60 * SEC).await;
    world.add("c");
    world.cluster.delete("nodes", "", "a");
    world.kubelets(&["b", "c"], 120 * SEC).await;
    let want = [
        ("NodeNotReady a: Node a status is now: NodeNotReady", 1),
        ("RegisteredNode a: Node a event: Registered Node a in Controller", 1),
        ("RegisteredNode b: Node b event: Registered Node b in Controller", 1),
        ("RegisteredNode c: Node c event: Registered Node c in Controller", 1),
        ("RemovingNode a: Node a event: Removing Node a from Controller", 1),
    ];
    assert_eq!(world.node_events().await, want.map(|(line, count)| (line.to_owned(), count)).into());
    let events = world.cluster.list("events", "default");
    let of_b = events.iter().find(|it| it["involvedObject"]["name"] == "b").unwrap();
    let uid = world.node("b")["metadata"]["uid"].clone();
    assert_eq!((&of_b["involvedObject"]["kind"], &of_b["involvedObject"]["uid"]), (&json!("Node"), &uid));
}

#[tokio::test(start_paused = true)]
async fn node_that_only_changes_or_is_resynced_has_no_further_event() {
    let world = World::with(&["a"]);
    let _manager = world.start().await;
    world.set_labels("a", json!({ "color": "red" }));
    world.cluster.compact();
    world.cluster.break_watches("nodes");
    world.kubelets(&["a"], 100 * SEC).await;
    assert_eq!(world.node_events().await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_falls_from_false_to_unknown_has_no_event() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.post("a", "False");
    world.kubelets(&["b"], 100 * SEC).await;
    assert_eq!(world.ready("a"), "Unknown");
    assert_eq!(world.event_count("NodeNotReady").await, 0, "as upstream: only from True");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_029_a_deleted_node_is_not_written_any_more() {
    let world = World::with(&["a", "b", "c", "d", "e"]);
    let _manager = world.start().await;
    world.kubelets(&["c", "d", "e"], 51 * SEC).await;
    let tainted = world.tainted()[0].0.clone();
    ["a", "b"].iter().for_each(|it| world.cluster.delete("nodes", "", it));
    world.cluster.clear_requests();
    world.kubelets(&["c", "d", "e"], 300 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "neither {tainted} nor the one that waited");
    assert_eq!(world.event_count("RemovingNode").await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_just_before_a_write_is_no_error() {
    for line in ["patch nodes/status a", "patch nodes a"] {
        let world = World::with(&["a", "b"]);
        let _manager = world.start().await;
        let cluster = world.cluster.clone();
        world.fail_requests(move |it, _| {
            if it == line {
                cluster.remove("nodes", "", "a");
            }
            None
        });
        world.kubelets(&["b"], 200 * SEC).await;
        assert_eq!(world.call_count(line), 1);
        assert_eq!(world.logged("Sync failed"), [""; 0], "{line}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_metrics_of_zones() {
    let world = World::new();
    for (zone, count) in [("x", 4), ("y", 2)] {
        names(zone, count).iter().for_each(|it| world.add_in(zone, it));
    }
    let manager = world.start().await;
    world.kubelets(&["x-1", "x-2", "x-3", "y-1", "y-2"], 60 * SEC).await;
    let values = |zone| {
        let names = ["zone_size", "unhealthy_nodes_in_zone", "zone_health", "evictions_total"];
        names.map(|it| of_zone(&manager, it, zone))
    };
    assert_eq!((values("x"), values("y")), ([4, 1, 75, 1], [2, 0, 100, 0]));
    assert_eq!(manager.metric_lines("node_collector_evictions_total").len(), 2, "also of a zone without evictions");
    ["y-1", "y-2"].iter().for_each(|it| world.cluster.delete("nodes", "", it));
    world.kubelets(&["x-1", "x-2", "x-3"], 70 * SEC).await;
    assert_eq!(values("y"), [0, 0, 100, 0]);
    let durations = ["update_node_health", "update_all_nodes_health"];
    for name in durations {
        let count = manager.metric(&format!("node_collector_{name}_duration_seconds_count"));
        assert!(count > 10, "{name}: {count}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_gauges_of_a_zone_are_cleared_also_if_a_sync_finds_it_empty_first() {
    let world = World::new();
    [("x", "a"), ("x", "b"), ("y", "c")].iter().for_each(|(zone, node)| world.add_in(zone, node));
    let manager = world.start().await;
    world.kubelets(&["b", "c"], 61 * SEC).await;
    assert_eq!(of_zone(&manager, "zone_size", "y"), 1);
    world.cluster.delete("nodes", "", "c");
    pass(20 * MS).await;
    world.update("a", |it| it["spec"]["unschedulable"] = json!(true));
    world.kubelets(&["b"], 70 * SEC).await;
    assert_eq!(of_zone(&manager, "zone_size", "y"), 0);
    assert_eq!(of_zone(&manager, "zone_health", "y"), 100);
}

#[tokio::test(start_paused = true)]
async fn the_mode_is_determined_once_per_period() {
    let world = World::with(&["a"]);
    let options = Options { period: 20 * SEC, ..Options::default() };
    let manager = world.start_with(options).await;
    world.kubelets(&["a"], 101 * SEC).await;
    assert_eq!(manager.metric("node_collector_update_all_nodes_health_duration_seconds_count"), 6);
}

#[tokio::test(start_paused = true)]
async fn the_shortest_period_is_100_ms() {
    let world = World::with(&["a"]);
    let manager = world.start_with(Options { period: Duration::ZERO, ..Options::default() }).await;
    world.sleep_until(SEC - MS).await;
    assert_eq!(manager.metric("node_collector_update_all_nodes_health_duration_seconds_count"), 10);
}

#[tokio::test(start_paused = true)]
async fn only_nodes_leases_and_pods_are_watched() {
    let world = World::with(&["a"]);
    let _manager = world.start().await;
    let requests = world.cluster.requests();
    let watched: BTreeSet<&str> = requests.iter().filter(|it| it.verb == "watch").map(|it| &*it.resource).collect();
    assert_eq!(watched, BTreeSet::from(["leases", "nodes", "pods"]), "upstream waits for DaemonSets, too");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_049_healthy_nodes_of_a_large_cluster_cost_no_call_and_few_syncs() {
    const NODES: usize = 5_000;
    let world = World::new();
    let nodes = names("node", NODES);
    for node in &nodes {
        world.add(node);
        world.update(node, |it| {
            it["metadata"]["labels"] = json!({ "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux" })
        });
    }
    let manager = world.start().await;
    let adds = "workqueue_adds_total{name=\"node_lifecycle_controller\"}";
    let at_start = manager.metric(adds);
    assert!(at_start >= NODES as u64, "{at_start}");
    world.cluster.set_recording(false);
    for _ in 0..4 {
        nodes.iter().for_each(|it| world.renew(it));
        pass(40 * SEC).await;
    }
    world.cluster.set_recording(true);
    assert_eq!((world.lines(), world.lease_reads()), (vec![], 0));
    let syncs = manager.metric(adds) - at_start;
    assert!(syncs <= 4 * NODES as u64 + 100, "{syncs}: at most one for each grace period");
}
