//! From one leader to the next.

use harness::pass;
use serde_json::json;

use crate::world::{MARKED_A, MS, SEC, World, taint, tolerates};

#[tokio::test(start_paused = true)]
async fn acceptance_node_048_no_timer_fires_after_the_stop() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(10))]));
    let manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(9 * SEC).await;
    manager.stop();
    pass(600 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    manager.stop_and_wait().await;
    assert!(world.events().await.is_empty(), "nothing was cancelled: the next leader continues");
}

#[tokio::test(start_paused = true)]
async fn a_standby_continues_the_seconds_that_it_observed() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let manager = world.start().await;
    let mut standby = world.standby();
    standby.begin();
    world.sleep_until(SEC).await;
    world.taint("n1", json!([taint("k")]));
    // It comes when the taint is there.
    world.sleep_until(11 * SEC).await;
    world.add_pod("b", "n1", json!([tolerates("k", Some(60))]));
    world.sleep_until(31 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    drop(manager);
    let _leader = standby.lead();
    world.assert_deleted_at("a", 61 * SEC).await;
    world.assert_deleted_at("b", 71 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_observes_lifted_taints_and_sends_nothing() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let mut standby = world.standby();
    standby.begin();
    world.sleep_until(SEC).await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(50 * SEC).await;
    world.lift("n1");
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(100 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    assert!(world.events().await.is_empty());
    let _leader = standby.lead();
    world.assert_deleted_at("a", 110 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_evicts_at_once_what_became_due() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    world.add_pod("b", "n1", json!([]));
    let mut standby = world.standby();
    standby.begin();
    world.sleep_until(SEC).await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(100 * SEC).await;
    let _leader = standby.lead();
    pass(50 * MS).await;
    assert!(world.is_deleted("a") && world.is_deleted("b"));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_counts_anew() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let manager = world.start().await;
    world.sleep_until(SEC).await;
    let mut added = taint("k");
    added["timeAdded"] = json!(World::time(1));
    world.taint("n1", json!([added]));
    world.sleep_until(50 * SEC).await;
    drop(manager);
    world.sleep_until(500 * SEC).await;
    let _leader = world.start().await;
    world.assert_deleted_at("a", 560 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_a_crash_interrupts_is_completed_by_the_next_leader() {
    let world = World::new();
    world.add_pod("a", "n1", json!([]));
    let manager = world.start().await;
    world.fail_requests(|line, _| (line == "delete pods a").then_some(test_cluster::Interception::Hang));
    world.taint("n1", json!([taint("k")]));
    pass(SEC).await;
    drop(manager);
    world.cluster.stop_intercepting();
    let _leader = world.start().await;
    assert!(world.is_deleted("a"));
    assert_eq!(world.events().await, [MARKED_A, MARKED_A], "each process announced it");
}
