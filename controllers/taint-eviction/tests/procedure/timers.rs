//! When pods with tolerationSeconds are deleted.

use harness::pass;
use serde_json::json;

use crate::world::{
    CANCELLED_A, EVICTION_OF_A, MARKED_A, MS, NOT_READY, SEC, UNREACHABLE, World, pod, taint, tolerates,
};

#[tokio::test(start_paused = true)]
async fn acceptance_node_035_a_pod_is_deleted_after_its_toleration_seconds_and_not_before() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(5))]));
    let _manager = world.start().await;
    world.sleep_until(10 * SEC).await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(15 * SEC - MS).await;
    assert_eq!(world.lines(), [""; 0]);
    world.assert_deleted_at("a", 15 * SEC).await;
    assert_eq!(world.lines(), EVICTION_OF_A);
    assert_eq!(world.events().await, [MARKED_A]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_036_a_lifted_taint_cancels_the_deletion_with_an_event() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    world.add_pod("untouched", "n1", json!([tolerates("k", None)]));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    pass(5 * SEC).await;
    world.lift("n1");
    pass(600 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    assert_eq!(world.events().await, [CANCELLED_A], "no timer of the other pod was cancelled");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_036_a_taint_that_comes_back_counts_anew() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(50 * SEC).await;
    world.lift("n1");
    world.taint("n1", json!([taint("k")]));
    world.assert_deleted_at("a", 110 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_037_of_two_tolerations_the_shorter_counts() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(10)), tolerates("l", Some(60))]));
    let _manager = world.start().await;
    world.sleep_until(SEC).await;
    world.taint("n1", json!([taint("l"), taint("k")]));
    world.assert_deleted_at("a", 11 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_038_pods_of_a_node_have_their_own_timers() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(5))]));
    world.add_pod("b", "n1", json!([tolerates("k", Some(300))]));
    let _manager = world.start().await;
    world.sleep_until(SEC).await;
    world.taint("n1", json!([taint("k")]));
    world.assert_deleted_at("a", 6 * SEC).await;
    world.assert_deleted_at("b", 301 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_039_zero_and_negative_seconds_delete_at_once() {
    for seconds in [0, -10] {
        let world = World::new();
        world.add_pod("a", "n1", json!([tolerates("k", Some(seconds))]));
        let _manager = world.start().await;
        world.taint("n1", json!([taint("k")]));
        pass(50 * MS).await;
        assert_eq!(world.lines(), EVICTION_OF_A, "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_050_default_tolerations_end_300_s_after_the_taint_is_observed() {
    let world = World::new();
    let defaults = [NOT_READY, UNREACHABLE].map(|it| tolerates(it, Some(300)));
    world.add_pod("a", "n1", json!(defaults));
    let _manager = world.start().await;
    world.sleep_until(20 * SEC).await;
    let mut unreachable = taint(UNREACHABLE);
    // The clock of the process that added it is an hour behind.
    unreachable["timeAdded"] = json!(World::time(20 - 3600));
    world.taint("n1", json!([unreachable]));
    world.assert_deleted_at("a", 320 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn seconds_count_from_a_time_added_that_is_ahead() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(10))]));
    world.add_pod("b", "n1", json!([]));
    let _manager = world.start().await;
    world.sleep_until(SEC).await;
    let mut ahead = taint("k");
    ahead["timeAdded"] = json!(World::time(8));
    world.taint("n1", json!([ahead]));
    pass(100 * MS).await;
    assert!(world.is_deleted("b"), "without a toleration there is nothing to count");
    world.assert_deleted_at("a", 18 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn updates_of_a_node_do_not_restart_the_seconds() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let _manager = world.start().await;
    world.sleep_until(SEC).await;
    world.taint("n1", json!([taint("k")]));
    for second in 2..60 {
        world.sleep_until(second * SEC).await;
        world.cluster.update("nodes", "", "n1", |it| it["metadata"]["labels"] = json!({ "at": second.to_string() }));
        world.update_pod("a", |it| it["metadata"]["labels"] = json!({ "at": second.to_string() }));
    }
    // A taint of another effect, and one that the pod tolerates without limit.
    world.taint("n1", json!([{ "key": "k", "effect": "NoSchedule" }, taint("k")]));
    world.assert_deleted_at("a", 61 * SEC).await;
    assert_eq!(world.events().await, [MARKED_A]);
}

#[tokio::test(start_paused = true)]
async fn a_taint_with_another_time_added_counts_anew() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let _manager = world.start().await;
    let added_at = |second: i64| {
        let mut taint = taint("k");
        taint["timeAdded"] = json!(World::time(second));
        json!([taint])
    };
    world.sleep_until(SEC).await;
    world.taint("n1", added_at(1));
    world.sleep_until(31 * SEC).await;
    world.taint("n1", added_at(31));
    world.assert_deleted_at("a", 91 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn seconds_count_from_the_arrival_of_a_pod_on_a_tainted_node() {
    let world = World::new();
    world.taint("n1", json!([taint("k")]));
    let _manager = world.start().await;
    world.sleep_until(500 * SEC).await;
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    world.add_pod("b", "", json!([tolerates("k", Some(60))]));
    world.sleep_until(530 * SEC).await;
    world.update_pod("b", |it| it["spec"]["nodeName"] = json!("n1"));
    world.assert_deleted_at("a", 560 * SEC).await;
    world.assert_deleted_at("b", 590 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_047_a_new_pod_of_the_same_name_inherits_no_timer() {
    let world = World::new();
    for name in ["a", "b"] {
        world.add_pod(name, "n1", json!([tolerates("k", Some(10))]));
    }
    let _manager = world.start().await;
    world.sleep_until(SEC).await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(6 * SEC).await;
    for (name, node) in [("a", "n2"), ("b", "n1")] {
        world.remove_pod(name);
        world.cluster.create(pod(name, node, json!([tolerates("k", Some(10))])));
    }
    world.assert_deleted_at("b", 16 * SEC).await;
    pass(600 * SEC).await;
    assert!(!world.is_deleted("a"));
    let of_b = |text: &str| text.replace("n/a", "n/b");
    assert_eq!(world.events().await, [CANCELLED_A.to_owned(), of_b(CANCELLED_A), of_b(MARKED_A)]);
}

#[tokio::test(start_paused = true)]
async fn the_timer_of_a_pod_that_is_gone_is_cancelled_with_an_event() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(10))]));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    pass(5 * SEC).await;
    world.remove_pod("a");
    pass(60 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    assert_eq!(world.events().await, [CANCELLED_A]);
}

/// The node lifecycle controller replaces one taint by the other one, and the node is never ready.
#[tokio::test(start_paused = true)]
async fn a_node_that_changes_between_not_ready_and_unreachable_does_not_keep_its_pods() {
    let keys = [NOT_READY, UNREACHABLE];
    // Upstream adds the new taint before it removes the other one.
    for in_two_writes in [false, true] {
        let world = World::new();
        world.add_pod("a", "n1", json!(keys.map(|it| tolerates(it, Some(300)))));
        world.add_pod("b", "n1", json!([tolerates(keys[0], None), tolerates(keys[1], Some(300))]));
        let _manager = world.start().await;
        world.sleep_until(10 * SEC).await;
        world.taint("n1", json!([taint(keys[1])]));
        for (second, before, key) in [(110, keys[1], keys[0]), (210, keys[0], keys[1])] {
            world.sleep_until(second * SEC).await;
            if in_two_writes {
                world.taint("n1", json!([taint(before), taint(key)]));
                world.sleep_until(second * SEC + MS).await;
            }
            world.taint("n1", json!([taint(key)]));
        }
        world.assert_deleted_at("a", 310 * SEC).await;
        world.assert_deleted_at("b", 510 * SEC).await;
    }
}
