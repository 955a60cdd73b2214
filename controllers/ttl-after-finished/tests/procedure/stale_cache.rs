//! A cache that is behind: the live read and the preconditions protect changed Jobs.

use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, complete, job};

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_009_a_raised_ttl_that_the_cache_does_not_show_is_respected() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let _manager = world.start().await;
    world.cluster.freeze_watches("jobs");
    world.set_ttl("a", Some(30));
    world.until(30 * SEC - MS).await;
    assert_eq!(world.lines(), ["get a"], "the old timer found the new TTL");
    assert_eq!(world.times("get a")[0].as_secs(), 10);
    world.until(31 * SEC).await;
    assert_eq!(world.lines(), ["get a", "get a", "delete a"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_010_the_timer_of_a_removed_ttl_does_nothing() {
    let world = World::new();
    world.cluster.create(job("seen", Some(10), &[complete(0)]));
    let manager = world.start().await;
    world.set_ttl("seen", None);
    world.until(5 * SEC).await;
    world.cluster.create(job("behind", Some(10), &[complete(0)]));
    world.until(6 * SEC).await;
    world.cluster.freeze_watches("jobs");
    world.set_ttl("behind", None);
    world.until(20 * SEC).await;
    assert_eq!(world.lines(), ["get behind"]);
    let queued = manager.queued();
    world.until(3600 * SEC).await;
    assert_eq!(world.lines().len(), 1);
    assert!(manager.queued() - queued <= 358.0, "only clock checks are queued");
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
    world.until(3600 * SEC).await;
    assert_eq!(world.lines(), ["get a"]);
    assert!(!world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_014_a_job_replaced_between_read_and_delete_is_not_deleted() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let manager = world.start().await;
    let mut replaced = false;
    world.intercept(move |line, cluster| {
        if line == "delete a" && !std::mem::replace(&mut replaced, true) {
            cluster.remove("jobs", "default", "a");
            cluster.create(job("a", Some(0), &[]));
        }
        None
    });
    world.until(3600 * SEC).await;
    assert_eq!(world.lines(), ["get a", "delete a", "get a"], "refused, and read again at once");
    assert_eq!(world.calls()[1].status, 409);
    assert!(!world.is_deleted("a"));
    assert_eq!(manager.observed().0, 0.0);
    assert_eq!(world.logged("Sync failed"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_ttl_raised_between_read_and_delete_is_respected() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let _manager = world.start().await;
    let mut raised = false;
    world.intercept(move |line, cluster| {
        if line == "delete a" && !std::mem::replace(&mut raised, true) {
            cluster.update("jobs", "default", "a", |it| it["spec"]["ttlSecondsAfterFinished"] = json!(20));
        }
        None
    });
    world.until(20 * SEC - MS).await;
    assert_eq!(world.lines(), ["get a", "delete a", "get a"]);
    assert!(!world.is_deleted("a"));
    world.until(21 * SEC).await;
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_015_a_missing_job_is_not_retried() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let _manager = world.start().await;
    world.cluster.freeze_watches("jobs");
    world.cluster.remove("jobs", "default", "a");
    world.until(50 * SEC).await;
    assert_eq!(world.lines(), ["get a"]);
    assert_eq!(world.calls()[0].status, 404);
    assert_eq!(world.logged("Sync failed"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_017_a_job_that_is_gone_at_its_delete_is_no_error() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let manager = world.start().await;
    world.intercept(|line, cluster| {
        if line == "delete a" {
            cluster.remove("jobs", "default", "a");
        }
        None
    });
    world.until(3600 * SEC).await;
    assert_eq!(world.lines(), ["get a", "delete a"]);
    assert_eq!(world.calls()[1].status, 404);
    assert_eq!(world.logged("Sync failed"), [""; 0]);
    assert_eq!(manager.observed().0, 0.0, "this controller did not delete it");
}

#[tokio::test(start_paused = true)]
async fn a_404_without_the_job_name_is_retried() {
    for spoilt in ["get a", "delete a"] {
        let world = World::new();
        world.cluster.create(job("a", Some(10), &[complete(0)]));
        let _manager = world.start().await;
        let mut first = true;
        world.intercept(move |line, _| {
            let not_served =
                || Interception::status(404, "NotFound", "the server could not find the requested resource");
            (line == spoilt && std::mem::take(&mut first)).then(not_served)
        });
        world.until(60 * SEC).await;
        assert!(world.is_deleted("a"), "{spoilt}: {:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_delete_that_the_cache_does_not_show_yet_is_not_repeated() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[complete(0)]));
    let manager = world.start_with(SEC).await;
    world.until(5 * SEC).await;
    world.cluster.freeze_watches("jobs");
    world.until(20 * SEC).await;
    let deletes = world.times("delete a");
    assert_eq!(deletes.len(), 1, "{deletes:?}");
    assert!(world.times("get a").len() > 1, "resyncs led to further reads");
    assert_eq!(manager.observed().0, 1.0);
}
