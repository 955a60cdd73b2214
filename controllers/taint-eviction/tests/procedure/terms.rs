//! From one leader to the next.

use harness::pass;
use serde_json::json;

use crate::world::{MARKED_A, MS, NOT_READY, SEC, UNREACHABLE, World, taint, tolerates};

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

/// Nothing lifts taints between two leaders. A pod that becomes due meanwhile must not be deleted before the new leader has
/// lifted the taint.
#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_ready_again_stay_until_its_taint_can_be_lifted() {
    for (key, tolerations, is_lifted, ready_at, leads_at) in [
        (UNREACHABLE, json!([tolerates(UNREACHABLE, Some(60))]), true, 55, 70),
        (NOT_READY, json!([tolerates(NOT_READY, Some(60))]), true, 55, 70),
        // The node lifecycle controller does not run.
        (UNREACHABLE, json!([tolerates(UNREACHABLE, Some(60))]), false, 55, 70),
        (UNREACHABLE, json!([]), false, 55, 70),
        // The node was ready for long before anything could lift its taint.
        (UNREACHABLE, json!([tolerates(UNREACHABLE, Some(60))]), true, 20, 200),
        (UNREACHABLE, json!([tolerates(UNREACHABLE, Some(60))]), false, 20, 200),
    ] {
        let world = World::new();
        world.add_pod("a", "n1", tolerations);
        let mut standby = world.standby();
        standby.begin();
        world.sleep_until(SEC).await;
        world.taint("n1", json!([taint(key)]));
        world.sleep_until(ready_at * SEC).await;
        world.set_ready("n1", true);
        world.sleep_until(leads_at * SEC).await;
        let _leader = standby.lead();
        if is_lifted {
            world.sleep_until((leads_at + 50) * SEC).await;
            world.lift("n1");
            pass(600 * SEC).await;
            assert_eq!(world.lines(), [""; 0], "{key}");
        } else {
            world.assert_deleted_at("a", (leads_at + 60) * SEC).await;
        }
    }
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
