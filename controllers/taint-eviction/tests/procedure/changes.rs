//! Taints and tolerations that change while timers run.

use harness::pass;
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{CANCELLED_A, EVICTION_OF_A, MARKED_A, MS, SEC, World, pod, taint, tolerates};

#[tokio::test(start_paused = true)]
async fn edited_seconds_count_from_the_original_start() {
    for (edited, deleted) in [(30, 31), (600, 601)] {
        let world = World::new();
        world.add_pod("a", "n1", json!([tolerates("k", Some(300))]));
        let _manager = world.start().await;
        world.sleep_until(SEC).await;
        world.taint("n1", json!([taint("k")]));
        world.sleep_until(21 * SEC).await;
        world.set_tolerations("a", json!([tolerates("k", Some(edited))]));
        world.assert_deleted_at("a", deleted * SEC).await;
        assert_eq!(world.events().await, [MARKED_A], "the timer was moved, not cancelled");
    }
}

#[tokio::test(start_paused = true)]
async fn seconds_that_are_over_when_they_are_edited_delete_at_once() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(300))]));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(100 * SEC).await;
    world.set_tolerations("a", json!([tolerates("k", Some(50))]));
    world.assert_deleted_at("a", 100 * SEC + MS).await;
}

#[tokio::test(start_paused = true)]
async fn a_toleration_without_limit_cancels_the_deletion() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    pass(5 * SEC).await;
    world.set_tolerations("a", json!([tolerates("k", None)]));
    pass(600 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    assert_eq!(world.events().await, [CANCELLED_A]);
}

#[tokio::test(start_paused = true)]
async fn a_further_taint_with_a_shorter_toleration_moves_the_timer() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(300)), tolerates("l", Some(20))]));
    let _manager = world.start().await;
    world.sleep_until(SEC).await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(51 * SEC).await;
    world.taint("n1", json!([taint("k"), taint("l")]));
    world.assert_deleted_at("a", 71 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn the_taint_that_remains_counts_from_its_own_start() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(300)), tolerates("l", Some(20))]));
    let _manager = world.start().await;
    world.sleep_until(SEC).await;
    world.taint("n1", json!([taint("k"), taint("l")]));
    world.sleep_until(11 * SEC).await;
    world.taint("n1", json!([taint("k")]));
    world.assert_deleted_at("a", 301 * SEC).await;
    assert_eq!(world.events().await, [MARKED_A]);
}

#[tokio::test(start_paused = true)]
async fn a_further_taint_that_is_not_tolerated_deletes_at_once() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(300))]));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    pass(5 * SEC).await;
    world.taint("n1", json!([taint("k"), taint("other")]));
    pass(50 * MS).await;
    assert_eq!(world.lines(), EVICTION_OF_A);
    assert_eq!(world.events().await, [CANCELLED_A, MARKED_A], "as upstream");
}

#[tokio::test(start_paused = true)]
async fn timers_end_with_the_node() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    pass(5 * SEC).await;
    world.cluster.remove("nodes", "", "n1");
    pass(600 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "pod garbage collection deletes its pods");
    assert_eq!(world.events().await, [CANCELLED_A]);
}

#[tokio::test(start_paused = true)]
async fn a_new_node_of_the_same_name_inherits_no_timer() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(50 * SEC).await;
    world.cluster.remove("nodes", "", "n1");
    world.add_node("n1", json!([taint("k")]));
    world.assert_deleted_at("a", 110 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_while_its_name_is_being_evicted_is_evicted_too() {
    let world = World::new();
    world.add_pod("a", "n1", json!([]));
    let _manager = world.start().await;
    world.fail_requests(|line, call| {
        let is_first = line == "delete pods a" && call.at.elapsed().is_zero();
        is_first.then_some(Interception::DelayAnswer(5 * SEC))
    });
    world.taint("n1", json!([taint("k")]));
    pass(SEC).await;
    assert_eq!(world.call_count("delete pods a"), 1, "its response is on the way");
    world.remove_pod("a");
    let second = world.cluster.create(pod("a", "n1", json!([])));
    pass(SEC).await;
    assert_eq!(world.call_count("delete pods a"), 1);
    pass(30 * SEC).await;
    assert!(world.is_deleted("a"));
    let last = world.calls().pop().unwrap().json();
    assert_eq!(last["preconditions"]["uid"], second["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn numbers_are_compared_only_with_the_feature_gate() {
    for (compare_numbers, is_deleted) in [(false, true), (true, false)] {
        let world = World::new();
        let greater = json!({ "key": "gpus", "operator": "Gt", "value": "3", "effect": "NoExecute" });
        world.add_pod("a", "n1", json!([greater]));
        let options = taint_eviction_controller::Options { compare_numbers };
        let limits = client::Limits { qps: 100.0, burst: 100 };
        let start = |builder: &mut controller::Builder| taint_eviction_controller::start(builder, options);
        let _manager = world.process(limits, std::time::Duration::ZERO, start).lead();
        pass(100 * MS).await;
        let taint: Value = json!({ "key": "gpus", "value": "5", "effect": "NoExecute" });
        world.taint("n1", json!([taint]));
        pass(100 * MS).await;
        assert_eq!(world.is_deleted("a"), is_deleted, "{compare_numbers}");
    }
}
