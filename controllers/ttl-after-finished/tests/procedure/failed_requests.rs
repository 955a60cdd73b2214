//! Requests that the server rejects, and Jobs with finalizers.

use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, complete, job};

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_016_a_failed_delete_is_retried_with_back_off() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let _manager = world.start().await;
    world.fail_requests(|line, _| {
        (line == "delete jobs a").then(|| Interception::status(500, "InternalError", "not today"))
    });
    world.sleep_until(60 * SEC).await;
    let tries = world.call_times("delete jobs a");
    let pauses: Vec<_> = tries.windows(2).map(|it| it[1] - it[0]).collect();
    assert!(pauses.len() >= 8, "{pauses:?}");
    assert!(pauses.windows(2).all(|it| it[1] > it[0]), "the pauses grow: {pauses:?}");
    assert!(!world.is_deleted("a"));
    let failed = world.logged("error cleaning up Job default/a, will retry");
    assert_eq!(failed.len(), tries.len(), "{failed:?}");

    world.fail_requests(|_, _| None);
    world.sleep_until(180 * SEC).await;
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn a_failed_live_read_is_retried_and_deletes_nothing() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let _manager = world.start().await;
    world.fail_requests(|line, _| (line == "get jobs a").then(|| Interception::status(403, "Forbidden", "not you")));
    world.sleep_until(60 * SEC).await;
    assert!(
        world.call_times("get jobs a").len() >= 8 && world.call_times("delete jobs a").is_empty(),
        "{:?}",
        world.lines()
    );
    world.fail_requests(|_, _| None);
    world.sleep_until(180 * SEC).await;
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn repeated_conflicts_back_off() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let _manager = world.start().await;
    world.fail_requests(|line, _| {
        (line == "delete jobs a").then(|| Interception::status(409, "Conflict", "the object has been modified"))
    });
    world.sleep_until(10 * SEC + 4 * MS).await;
    assert_eq!(world.call_times("delete jobs a").len(), 5, "a few times at once");
    world.sleep_until(70 * SEC).await;
    let tries = world.call_times("delete jobs a").len();
    assert!((40..=75).contains(&tries), "{tries}");
    world.fail_requests(|_, _| None);
    world.sleep_until(200 * SEC).await;
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_018_a_job_with_a_finalizer_is_deleted_once_and_not_early() {
    let world = World::new();
    let mut held = job("a", Some(10), &[]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.cluster.create(held);
    let manager = world.start().await;
    world.sleep_until(5 * SEC + 300 * MS).await;
    world.finish("a", "Complete");
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.lines(), ["get jobs a", "delete jobs a"]);
    let left = world.get("a").unwrap();
    let time = |text: &serde_json::Value| text.as_str().unwrap().parse::<clock::Timestamp>().unwrap().as_second();
    let deleted = time(&left["metadata"]["deletionTimestamp"]);
    assert!(deleted >= time(&left["status"]["conditions"][0]["lastTransitionTime"]) + 10);
    let lingering = "mini_kcm_ttl_after_finished_lingering_jobs";
    assert_eq!(manager.metric(lingering), 1, "the metric shows Jobs with finalizers");

    world.cluster.update("jobs", "default", "a", |it| it["metadata"]["finalizers"] = json!([]));
    world.sleep_until(3610 * SEC).await;
    assert!(world.get("a").is_none());
    assert_eq!((world.lines().len(), manager.metric(lingering)), (2, 0));
}
