//! Requests that fail: an eviction is tried until the pod is gone or the taint is lifted.

use harness::{failure, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{CANCELLED_A, EVICTION_OF_A, MARKED_A, SEC, World, deletions, taint, tolerates};

#[tokio::test(start_paused = true)]
async fn acceptance_node_044_a_refused_deletion_is_retried_until_it_succeeds() {
    for refused in ["get pods a", "get nodes n1", "patch pods/status a", "delete pods a"] {
        let world = World::new();
        world.add_pod("a", "n1", json!([]));
        let manager = world.start().await;
        world.fail_requests(move |line, _| if line == refused { failure(500, "InternalError") } else { None });
        world.taint("n1", json!([taint("k")]));
        world.sleep_until(1800 * SEC).await;
        assert!(!world.is_deleted("a"), "{refused}");
        let tries = world.call_times(refused);
        let pauses: Vec<_> = tries.windows(2).map(|it| it[1] - it[0]).collect();
        assert!(pauses[..10].windows(2).all(|it| it[1] > it[0]), "the pauses grow: {pauses:?}");
        assert!(pauses.iter().all(|it| *it <= 61 * SEC), "up to a minute: {pauses:?}");
        let failed = world.logged("cannot evict pod n/a");
        assert_eq!(failed.len(), tries.len(), "{failed:?}");
        assert!(world.call_count("patch") <= 1 || refused.starts_with("patch"), "{:?}", world.lines());

        world.cluster.stop_intercepting();
        world.sleep_until(1862 * SEC).await;
        assert!(world.is_deleted("a"), "{refused}");
        let (count, seconds) = deletions(&manager);
        assert!(count == 1 && seconds > 1790.0, "counted from when it was due: {count} {seconds}");
        let marked: Vec<i64> =
            world.cluster.list("events", "n").iter().map(|it| it["count"].as_i64().unwrap_or(1)).collect();
        assert!(marked.iter().sum::<i64>() <= 1, "{refused}: announced once: {marked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_044_retries_end_when_the_taint_is_lifted() {
    let world = World::new();
    world.add_pod("a", "n1", json!([]));
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line == "delete pods a" { failure(403, "Forbidden") } else { None });
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(60 * SEC).await;
    world.cluster.stop_intercepting();
    world.lift("n1");
    let before = world.lines().len();
    world.sleep_until(3000 * SEC).await;
    assert_eq!(world.lines().len(), before);
    assert!(!world.is_deleted("a"));
    assert_eq!(world.events().await, [CANCELLED_A, MARKED_A]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_044_retries_end_when_the_pod_is_gone() {
    let world = World::new();
    world.add_pod("a", "n1", json!([]));
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line == "delete pods a" { failure(500, "InternalError") } else { None });
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(60 * SEC).await;
    world.remove_pod("a");
    let before = world.lines().len();
    world.sleep_until(3000 * SEC).await;
    assert_eq!(world.lines().len(), before);
    assert_eq!(world.events().await, [MARKED_A], "nothing was cancelled");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_tolerates_longer_while_its_deletion_is_refused_waits_again() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(10))]));
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line == "delete pods a" { failure(500, "InternalError") } else { None });
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(60 * SEC).await;
    world.cluster.stop_intercepting();
    world.set_tolerations("a", json!([tolerates("k", Some(300))]));
    world.sleep_until(299 * SEC).await;
    assert!(!world.is_deleted("a"));
    assert_eq!(world.events().await, [CANCELLED_A, MARKED_A]);
    world.sleep_until(310 * SEC).await;
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_whose_response_is_lost_is_not_repeated() {
    let world = World::new();
    world.add_pod("a", "n1", json!([]));
    let _manager = world.start().await;
    world.fail_requests(|line, _| (line == "delete pods a").then_some(Interception::LoseAnswer));
    world.taint("n1", json!([taint("k")]));
    pass(600 * SEC).await;
    assert!(world.is_deleted("a"));
    assert_eq!(world.call_count("delete pods a"), 1, "{:?}", world.lines());
    world.lift("n1");
    assert_eq!(world.events().await, [MARKED_A]);
}

#[tokio::test(start_paused = true)]
async fn a_condition_whose_response_is_lost_is_written_again() {
    let world = World::new();
    world.add_pod("a", "n1", json!([]));
    let _manager = world.start().await;
    let mut lost = false;
    world.fail_requests(move |line, _| {
        let is_first = line == "patch pods/status a" && !std::mem::replace(&mut lost, true);
        is_first.then_some(Interception::LoseAnswer)
    });
    world.taint("n1", json!([taint("k")]));
    pass(SEC).await;
    assert_eq!((world.call_count("patch"), world.call_count("delete")), (2, 1));
    let conditions = world.get_pod("a").unwrap()["status"]["conditions"].clone();
    assert_eq!(conditions.as_array().unwrap().len(), 1, "{conditions}");
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_was_reset_is_written_again() {
    let world = World::new();
    world.add_pod("a", "n1", json!([]));
    let _manager = world.start().await;
    world.fail_requests(|line, _| if line == "delete pods a" { failure(500, "InternalError") } else { None });
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(120 * SEC).await;
    assert_eq!(world.call_count("patch"), 1);
    // The disruption controller does this when the pod has not been deleted for two minutes.
    world.update_pod("a", |it| it["status"]["conditions"][0]["status"] = json!("False"));
    world.cluster.stop_intercepting();
    world.sleep_until(200 * SEC).await;
    assert_eq!(world.call_count("patch"), 2);
    let stored = world.get_pod("a").unwrap();
    assert_eq!(stored["status"]["conditions"][0]["status"], "True");
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_at_a_call_is_done() {
    for gone_at in ["get pods a", "patch pods/status a", "delete pods a"] {
        let world = World::new();
        world.add_pod("a", "n1", json!([]));
        let manager = world.start().await;
        let cluster = world.cluster.clone();
        world.fail_requests(move |line, _| {
            if line == gone_at {
                cluster.remove("pods", "n", "a");
            }
            None
        });
        world.taint("n1", json!([taint("k")]));
        pass(600 * SEC).await;
        assert_eq!(world.lines().last().unwrap(), gone_at);
        assert_eq!((deletions(&manager).0, world.logged("Sync failed").len()), (0, 0), "{gone_at}");
        assert!(!world.events().await.contains(&CANCELLED_A.to_owned()), "{gone_at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_404_without_the_name_of_the_object_is_retried() {
    for spoilt in ["get pods a", "get nodes n1", "delete pods a"] {
        let world = World::new();
        world.add_pod("a", "n1", json!([]));
        let _manager = world.start().await;
        let mut first = true;
        world.fail_requests(
            move |line, _| {
                if line == spoilt && std::mem::take(&mut first) { failure(404, "NotFound") } else { None }
            },
        );
        world.taint("n1", json!([taint("k")]));
        pass(SEC).await;
        assert!(world.is_deleted("a"), "{spoilt}: {:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_an_admission_webhook_delays_take_effect() {
    let world = World::new();
    world.add_pod("a", "n1", json!([]));
    let _manager = world.start().await;
    // As long as the longest timeout of a webhook.
    let is_write = |line: &str| line.starts_with("patch") || line.starts_with("delete");
    world.fail_requests(move |line, _| is_write(line).then_some(Interception::Delay(30 * SEC)));
    world.taint("n1", json!([taint("k")]));
    pass(61 * SEC).await;
    assert!(world.is_deleted("a"), "{:?}", world.lines());
    assert_eq!(world.lines(), EVICTION_OF_A);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_read_of_a_node_does_not_hold_up_other_nodes() {
    // With nine pods all workers wait for the read until it is given up.
    for (pods, limit) in [(4, SEC), (9, 11 * SEC)] {
        let world = World::new();
        let names: Vec<String> = (0..pods).map(|it| format!("p{it}")).collect();
        names.iter().for_each(|it| drop(world.add_pod(it, "n1", json!([]))));
        world.add_pod("a", "n2", json!([]));
        let _manager = world.start().await;
        world.fail_requests(|line, _| (line == "get nodes n1").then_some(Interception::Hang));
        world.taint("n1", json!([taint("k")]));
        pass(SEC).await;
        world.taint("n2", json!([taint("k")]));
        assert_eq!(world.call_count("get nodes n1"), 1, "all pods wait for one read");
        pass(limit).await;
        assert!(world.is_deleted("a"), "{pods}");
        world.cluster.stop_intercepting();
        pass(150 * SEC).await;
        assert!(names.iter().all(|it| world.is_deleted(it)), "{:?}", world.lines());
        assert!(world.call_count("get nodes n1") < pods, "{pods}: {}", world.call_count("get nodes n1"));
    }
}
