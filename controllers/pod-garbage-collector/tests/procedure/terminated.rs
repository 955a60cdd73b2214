//! Terminated pods above the threshold.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use test_cluster::Interception;

use crate::world::{FAST, MS, SEC, SLOW, World};

fn created(second: u32) -> serde_json::Value {
    json!({ "creationTimestamp": format!("2027-01-01T00:00:{second:02}Z") })
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_001_the_oldest_pods_above_the_threshold_are_deleted() {
    let world = World::new();
    world.add_node("n1");
    let uids = [("a", "Failed", 1), ("b", "Succeeded", 2), ("c", "Failed", 3)]
        .map(|(name, phase, second)| world.add_pod_with(name, "n1", phase, created(second))["metadata"]["uid"].clone());
    let _manager = world.start_with(1, FAST).await;
    world.sleep_until(100 * SEC).await;
    assert_eq!(world.lines(), ["delete pods a", "delete pods b"]);
    for (body, uid) in world.bodies("delete").iter().zip(&uids) {
        assert_eq!((&body["gracePeriodSeconds"], &body["preconditions"]), (&json!(0), &json!({ "uid": uid })));
    }
    assert_eq!(world.pod_names(), ["c"]);
    assert_eq!(world.logged("Garbage collecting pods").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pods_that_end_later_are_deleted_by_the_next_pass() {
    let world = World::new();
    world.add_node("n1");
    world.add_pod("a", "n1", "Failed");
    let _manager = world.start_with(1, FAST).await;
    world.sleep_until(15 * SEC).await;
    world.add_pod("b", "n1", "Succeeded");
    world.sleep_until(20 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    world.sleep_until(20 * SEC + 100 * MS).await;
    assert_eq!(world.pod_names(), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_032_a_thousand_orphans_are_deleted_with_few_calls_in_flight_and_before_terminated_pods() {
    let world = World::new();
    world.add_node("n1");
    (0..3000).for_each(|it| drop(world.add_pod(&format!("t{it:04}"), "n1", "Failed")));
    (0..1000).for_each(|it| drop(world.add_pod(&format!("o{it:04}"), "gone", "Running")));
    let _manager = world.start_with(100, SLOW).await;
    world.sleep_until(41 * SEC).await;
    let terminated = world.call_count("delete pods t");
    assert!((800..870).contains(&terminated), "until then the whole rate is theirs: {terminated}");
    // Two calls for each orphan, and one for the node.
    world.sleep_until(40 * SEC + 2001 * 50 * MS + 2 * SEC).await;
    assert!(world.pod_names().iter().all(|it| it.starts_with('t')));
    let more = world.call_count("delete pods t") - terminated;
    assert!(more <= 50, "no terminated pod was deleted before the last orphan: {more}");
    let plans = world.logged("Garbage collecting pods").len();
    assert!(plans <= 3, "nothing is planned meanwhile: {plans}");
    world.sleep_until(300 * SEC).await;
    assert_eq!(world.pod_names().len(), 100);
    assert_eq!(world.call_count("delete pods t"), 2900);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_032_the_calls_of_all_nodes_in_flight_are_limited() {
    let world = World::new();
    (0..1000).for_each(|it| drop(world.add_pod(&format!("o{it:04}"), &format!("gone-{}", it % 10), "Running")));
    let [now, most] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (started, ended) = (now.clone(), now);
    let at_most = most.clone();
    world.fail_requests(move |_, _| {
        at_most.fetch_max(started.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Some(Interception::Delay(100 * MS))
    });
    world.cluster.on_response(move |call| {
        if matches!(call.verb, "get" | "patch" | "delete") {
            ended.fetch_sub(1, Ordering::SeqCst);
        }
    });
    let _manager = world.start().await;
    world.sleep_until(60 * SEC).await;
    assert_eq!(world.pod_names(), [""; 0]);
    assert_eq!(most.load(Ordering::SeqCst), 64, "16 for each of four nodes");
}
