//! The real controller, with informer, work queue, workers and client, against an in-memory API server in virtual time.

use std::time::Duration;

use client::Limits;
use harness::{Manager, World, failure, pass};
use node_ttl_controller::NAME;
use serde_json::{Value, json};

const SEC: Duration = Duration::from_secs(1);
const TTL: &str = "node.alpha.kubernetes.io/ttl";

/// A world with this many nodes.
fn world_of(count: usize) -> World {
    let world = World::new(NAME);
    (0..count).for_each(|it| add_node(&world, &node_name(it), json!({})));
    world
}

fn node_name(number: usize) -> String {
    format!("n{number:04}")
}

fn add_node(world: &World, name: &str, annotations: Value) {
    world.cluster.create(json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "annotations": annotations } }));
}

async fn start(world: &World) -> Manager {
    start_with(world, Limits { qps: 10_000.0, burst: 10_000 }).await
}

async fn start_with(world: &World, limits: Limits) -> Manager {
    let manager = world.process(limits, Duration::ZERO, node_ttl_controller::start).lead();
    pass(SEC).await;
    manager
}

/// How many nodes have this value.
fn count(world: &World, value: &str) -> usize {
    world.cluster.list("nodes", "").iter().filter(|it| it["metadata"]["annotations"][TTL] == value).count()
}

/// The kubelet updates its node.
fn update(world: &World, name: &str) {
    world.cluster.update("nodes", "", name, |it| it["status"]["nodeInfo"] = json!({ "bootID": "another" }));
}

#[tokio::test(start_paused = true)]
async fn acceptance_small_001_each_of_100_nodes_gets_zero() {
    let world = world_of(100);
    let manager = start(&world).await;
    assert_eq!((count(&world, "0"), world.lines().len()), (100, 100));
    assert!(manager.metric("workqueue_adds_total{name=\"ttlcontroller\"}") >= 100);
}

#[tokio::test(start_paused = true)]
async fn acceptance_small_002_with_101_nodes_the_value_is_15() {
    let world = world_of(100);
    let _manager = start(&world).await;
    add_node(&world, "more", json!({}));
    pass(SEC).await;
    assert_eq!(count(&world, "15"), 101);
    assert_eq!(world.call_count("patch nodes more"), 1);
    world.cluster.update("nodes", "", "n0007", |it| it["metadata"]["annotations"][TTL] = json!("0"));
    pass(SEC).await;
    assert_eq!(count(&world, "15"), 101);
}

#[tokio::test(start_paused = true)]
async fn acceptance_small_003_a_value_changes_back_only_below_its_range() {
    let world = world_of(101);
    let _manager = start(&world).await;
    assert_eq!((count(&world, "15"), world.lines().len()), (101, 101), "no node gets a too low value first");
    (0..11).for_each(|it| world.cluster.remove("nodes", "", &node_name(it)));
    (11..101).for_each(|it| update(&world, &node_name(it)));
    pass(SEC).await;
    assert_eq!(count(&world, "15"), 90);
    world.cluster.remove("nodes", "", &node_name(11));
    pass(SEC).await;
    assert_eq!(count(&world, "0"), 89);
}

#[tokio::test(start_paused = true)]
async fn acceptance_small_005_a_node_with_the_right_value_needs_no_request() {
    let world = world_of(0);
    for (name, value) in [("a", "0"), ("b", "+0"), ("c", "-0")] {
        add_node(&world, name, json!({ TTL: value }));
    }
    let _manager = start(&world).await;
    ["a", "b", "c"].iter().for_each(|it| update(&world, it));
    pass(SEC).await;
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_small_006_one_patch_changes_only_the_annotation() {
    let world = world_of(0);
    add_node(&world, "absent", json!({ "other": "kept" }));
    add_node(&world, "unparsable", json!({ "other": "kept", TTL: "abc" }));
    let _manager = start(&world).await;
    let mut lines = world.lines();
    lines.sort();
    assert_eq!(lines, ["patch nodes absent", "patch nodes unparsable"]);
    for call in world.calls() {
        assert_eq!(call.json(), json!({ "metadata": { "annotations": { TTL: "0" } } }));
        let stored = world.cluster.get("nodes", "", &call.name).unwrap();
        assert_eq!(stored["metadata"]["annotations"], json!({ "other": "kept", TTL: "0" }));
    }
    let logged = world.logged("Could not convert the value with annotation key for the node");
    assert!(logged.len() == 1 && logged[0].contains("abc"), "{logged:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_small_007_deletions_that_only_a_list_shows_are_counted() {
    let world = world_of(101);
    let _manager = start(&world).await;
    assert_eq!(count(&world, "15"), 101);
    world.cluster.freeze_watches("nodes");
    (0..12).for_each(|it| world.cluster.remove("nodes", "", &node_name(it)));
    world.cluster.compact();
    world.cluster.break_watches("nodes");
    pass(60 * SEC).await;
    assert_eq!(count(&world, "0"), 89);
}

#[tokio::test(start_paused = true)]
async fn acceptance_small_008_after_a_change_of_the_value_all_nodes_are_patched_at_the_clients_rate() {
    let world = world_of(500);
    let _manager = start_with(&world, Limits { qps: 20.0, burst: 30 }).await;
    world.sleep_until(30 * SEC).await;
    assert_eq!(count(&world, "15"), 500);
    add_node(&world, "more", json!({}));
    pass(SEC).await;
    assert!(count(&world, "30") < 60);
    // A node that is updated in the meantime does not wait for the others.
    update(&world, "n0499");
    world.cluster.update("nodes", "", "n0499", |it| it["metadata"]["annotations"][TTL] = json!("7"));
    pass(SEC).await;
    assert_eq!(world.cluster.get("nodes", "", "n0499").unwrap()["metadata"]["annotations"][TTL], "30");
    world.sleep_until(60 * SEC).await;
    assert_eq!(count(&world, "30"), 501);
    assert!(world.lines().len() <= 500 + 501 + 1, "each node is patched once: {}", world.lines().len());
}

#[tokio::test(start_paused = true)]
async fn a_refused_patch_is_retried_and_a_deleted_node_is_not() {
    let world = world_of(2);
    let cluster = world.cluster.clone();
    let mut failures = 3;
    world.fail_requests(move |line, _| {
        if line == "patch nodes n0000" {
            cluster.remove("nodes", "", "n0000");
        }
        let fails = line == "patch nodes n0001" && failures > 0;
        failures -= i32::from(fails);
        if fails { failure(500, "InternalError") } else { None }
    });
    let _manager = start(&world).await;
    assert_eq!((world.call_count("patch nodes n0000"), world.call_count("patch nodes n0001")), (1, 4));
    assert_eq!(world.logged("failed to change ttl annotation for node n0001").len(), 3);
    assert_eq!(world.logged("failed to change ttl annotation for node n0000").len(), 0);
    assert_eq!(count(&world, "0"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_forgets_the_hysteresis_as_upstream() {
    let world = world_of(101);
    let first = start(&world).await;
    (0..6).for_each(|it| world.cluster.remove("nodes", "", &node_name(it)));
    pass(SEC).await;
    assert_eq!(count(&world, "15"), 95);
    drop(first);
    let _second = start(&world).await;
    assert_eq!(count(&world, "0"), 95);
}
