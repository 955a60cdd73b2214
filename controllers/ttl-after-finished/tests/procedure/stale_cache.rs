//! A cache that is behind: the live read and the preconditions protect changed Jobs.

use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, complete, job, observed, queued};

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_009_a_raised_ttl_that_the_cache_does_not_show_is_respected() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let _manager = world.start().await;
    world.cluster.freeze_watches("jobs");
    world.set_ttl("a", Some(30));
    world.sleep_until(30 * SEC - MS).await;
    assert_eq!(world.lines(), ["get jobs a"], "the old timer found the new TTL");
    assert_eq!(world.call_times("get jobs a")[0].as_secs(), 10);
    world.sleep_until(31 * SEC).await;
    assert_eq!(world.lines(), ["get jobs a", "get jobs a", "delete jobs a"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_010_the_timer_of_a_removed_ttl_does_nothing() {
    let world = World::new();
    world.cluster.create(job("seen", Some(10), &[complete(0)]));
    let manager = world.start().await;
    world.set_ttl("seen", None);
    world.sleep_until(5 * SEC).await;
    world.cluster.create(job("behind", Some(10), &[complete(0)]));
    world.sleep_until(6 * SEC).await;
    world.cluster.freeze_watches("jobs");
    world.set_ttl("behind", None);
    world.sleep_until(20 * SEC).await;
    assert_eq!(world.lines(), ["get jobs behind"]);
    let before = queued(&manager);
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.lines().len(), 1);
    assert!(queued(&manager) - before <= 358, "only clock checks are queued");
    assert!(!world.is_deleted("seen") && !world.is_deleted("behind"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_013_a_new_job_of_the_same_name_is_not_deleted() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let _manager = world.start().await;
    world.cluster.freeze_watches("jobs");
    world.cluster.remove("jobs", "default", "a");
    world.cluster.create(job("a", Some(10), &[]));
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.lines(), ["get jobs a"]);
    assert!(!world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_014_a_job_replaced_between_read_and_delete_is_not_deleted() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let manager = world.start().await;
    let mut replaced = false;
    let cluster = world.cluster.clone();
    world.fail_requests(move |line, _| {
        if line == "delete jobs a" && !std::mem::replace(&mut replaced, true) {
            cluster.remove("jobs", "default", "a");
            cluster.create(job("a", Some(0), &[]));
        }
        None
    });
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.lines(), ["get jobs a", "delete jobs a", "get jobs a"], "refused, and read again at once");
    assert_eq!(world.calls()[1].status, 409);
    assert!(!world.is_deleted("a"));
    assert_eq!(observed(&manager).0, 0);
    assert_eq!(world.logged("Sync failed"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_ttl_raised_between_read_and_delete_is_respected() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let _manager = world.start().await;
    let mut raised = false;
    let cluster = world.cluster.clone();
    world.fail_requests(move |line, _| {
        if line == "delete jobs a" && !std::mem::replace(&mut raised, true) {
            cluster.update("jobs", "default", "a", |it| it["spec"]["ttlSecondsAfterFinished"] = json!(20));
        }
        None
    });
    world.sleep_until(20 * SEC - MS).await;
    assert_eq!(world.lines(), ["get jobs a", "delete jobs a", "get jobs a"]);
    assert!(!world.is_deleted("a"));
    world.sleep_until(21 * SEC).await;
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_015_a_missing_job_is_not_retried() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let _manager = world.start().await;
    world.cluster.freeze_watches("jobs");
    world.cluster.remove("jobs", "default", "a");
    world.sleep_until(50 * SEC).await;
    assert_eq!(world.lines(), ["get jobs a"]);
    assert_eq!(world.calls()[0].status, 404);
    assert_eq!(world.logged("Sync failed"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_017_a_job_that_is_gone_at_its_delete_is_no_error() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let manager = world.start().await;
    let cluster = world.cluster.clone();
    world.fail_requests(move |line, _| {
        if line == "delete jobs a" {
            cluster.remove("jobs", "default", "a");
        }
        None
    });
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.lines(), ["get jobs a", "delete jobs a"]);
    assert_eq!(world.calls()[1].status, 404);
    assert_eq!(world.logged("Sync failed"), [""; 0]);
    assert_eq!(observed(&manager).0, 0, "this controller did not delete it");
}

#[tokio::test(start_paused = true)]
async fn a_404_without_the_job_name_is_retried() {
    for spoilt in ["get jobs a", "delete jobs a"] {
        let world = World::new();
        world.cluster.create(job("a", Some(10), &[complete(0)]));
        let _manager = world.start().await;
        let mut first = true;
        world.fail_requests(move |line, _| {
            let not_served =
                || Interception::status(404, "NotFound", "the server could not find the requested resource");
            (line == spoilt && std::mem::take(&mut first)).then(not_served)
        });
        world.sleep_until(60 * SEC).await;
        assert!(world.is_deleted("a"), "{spoilt}: {:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_delete_that_the_cache_does_not_show_yet_is_not_repeated() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let manager = world.start_with(SEC).await;
    world.sleep_until(5 * SEC).await;
    world.cluster.freeze_watches("jobs");
    world.sleep_until(20 * SEC).await;
    let deletes = world.call_times("delete jobs a");
    assert_eq!(deletes.len(), 1, "{deletes:?}");
    assert!(world.call_times("get jobs a").len() > 1, "resyncs led to further reads");
    assert_eq!(observed(&manager).0, 1);
}
