//! When a Job is deleted.

use harness::pass;
use serde_json::json;

use crate::world::{MS, SEC, World, complete, job, observed, queued};

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_001_with_a_ttl_of_zero_a_complete_job_is_deleted_at_once() {
    let world = World::new();
    let created = world.cluster.create(job("a", Some(0), &[]));
    let _manager = world.start().await;
    world.sleep_until(5 * SEC).await;
    world.finish("a", "Complete");
    let version = world.get("a").unwrap()["metadata"]["resourceVersion"].clone();
    pass(100 * MS).await;
    assert_eq!(world.lines(), ["get jobs a", "delete jobs a"]);
    let options = world.calls()[1].json();
    assert_eq!(options["propagationPolicy"], "Foreground");
    let exactly = json!({ "uid": created["metadata"]["uid"], "resourceVersion": version });
    assert_eq!(options["preconditions"], exactly);
    let left = world.get("a").unwrap();
    assert_eq!(left["metadata"]["finalizers"], json!(["foregroundDeletion"]), "the garbage collector does the rest");
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_002_a_failed_job_is_deleted_when_its_ttl_is_over_and_not_before() {
    let world = World::new();
    world.cluster.create(job("a", Some(10), &[]));
    let _manager = world.start().await;
    world.sleep_until(5 * SEC).await;
    world.finish("a", "Failed");
    world.sleep_until(15 * SEC - MS).await;
    assert_eq!(world.lines(), [""; 0]);
    world.sleep_until(15 * SEC + 100 * MS).await;
    assert_eq!(world.lines(), ["get jobs a", "delete jobs a"]);
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_003_a_job_is_requeued_for_the_remaining_ttl() {
    let world = World::new();
    world.cluster.create(job("a", Some(15), &[complete(-10)]));
    let _manager = world.start().await;
    world.sleep_until(5 * SEC - MS).await;
    assert_eq!(world.lines(), [""; 0]);
    world.sleep_until(6 * SEC).await;
    let times = world.call_times("delete jobs a");
    assert!(times.len() == 1 && times[0] >= 5 * SEC && times[0] < 5 * SEC + 100 * MS, "{times:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_011_a_ttl_lowered_below_the_age_deletes_the_job_at_once() {
    let world = World::new();
    world.cluster.create(job("a", Some(100), &[complete(0)]));
    let _manager = world.start().await;
    world.sleep_until(50 * SEC).await;
    assert!(!world.is_deleted("a"));
    world.set_ttl("a", Some(20));
    pass(100 * MS).await;
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn a_ttl_lowered_but_not_over_counts_from_the_finish_time() {
    let world = World::new();
    world.cluster.create(job("a", Some(1000), &[complete(0)]));
    let _manager = world.start().await;
    world.sleep_until(5 * SEC).await;
    world.set_ttl("a", Some(20));
    world.sleep_until(20 * SEC - MS).await;
    assert!(!world.is_deleted("a"));
    world.sleep_until(21 * SEC).await;
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_012_a_ttl_set_on_a_job_finished_a_day_ago_deletes_it_at_once() {
    let world = World::new();
    world.cluster.create(job("a", None, &[complete(-86_400)]));
    let manager = world.start().await;
    world.sleep_until(10 * SEC).await;
    world.set_ttl("a", Some(60));
    pass(100 * MS).await;
    assert!(world.is_deleted("a"));
    let (count, sum) = observed(&manager);
    assert!(count == 1 && (sum - 86_350.0).abs() < 1.0, "{count} {sum}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_022_a_restart_deletes_expired_jobs_and_keeps_the_ttl_of_the_others() {
    let world = World::new();
    let manager = world.start().await;
    (0..50).for_each(|number| drop(world.cluster.create(job(&format!("early-{number}"), Some(10), &[complete(0)]))));
    world.cluster.create(job("late", Some(100), &[complete(0)]));
    world.sleep_until(5 * SEC).await;
    drop(manager);
    world.sleep_until(60 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    let _manager = world.start().await;
    world.sleep_until(70 * SEC).await;
    assert!((0..50).all(|number| world.is_deleted(&format!("early-{number}"))), "within the rate limit of the client");
    world.sleep_until(100 * SEC - MS).await;
    assert!(!world.is_deleted("late"));
    world.sleep_until(101 * SEC).await;
    assert!(world.is_deleted("late"));
    assert_eq!(world.lines().len(), 2 * 51);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_023_the_ttl_applies_with_any_manager_or_owner() {
    let world = World::new();
    let mut foreign = job("foreign", Some(10), &[complete(0)]);
    foreign["spec"]["managedBy"] = json!("example.com/elsewhere");
    world.cluster.create(foreign);
    let mut owned = job("owned", Some(10), &[complete(0)]);
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly", "uid": "11111111-2222-3333-4444-555555555555",
        "controller": true, "blockOwnerDeletion": true,
    }]);
    world.cluster.create(owned);
    let _manager = world.start().await;
    world.sleep_until(10 * SEC - MS).await;
    assert!(!world.is_deleted("foreign") && !world.is_deleted("owned"));
    world.sleep_until(11 * SEC).await;
    assert!(world.is_deleted("foreign") && world.is_deleted("owned"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_025_a_resync_sends_no_request_before_the_ttl_is_over() {
    let world = World::new();
    world.cluster.create(job("a", Some(100), &[complete(0)]));
    let manager = world.start_with(10 * SEC).await;
    world.sleep_until(100 * SEC - MS).await;
    assert!(queued(&manager) >= 9, "each resync delivered it: {}", queued(&manager));
    assert_eq!(world.lines(), [""; 0]);
    world.sleep_until(200 * SEC).await;
    assert_eq!(world.lines(), ["get jobs a", "delete jobs a"], "no request after the deletion");
}

#[tokio::test(start_paused = true)]
async fn a_clock_jump_after_a_machine_suspension_is_detected_within_ten_seconds() {
    let world = World::new();
    world.cluster.create(job("a", Some(3600), &[complete(0)]));
    let _manager = world.start().await;
    world.sleep_until(10 * SEC).await;
    world.clock.suspend(3600 * SEC);
    world.sleep_until(21 * SEC).await;
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn waiting_jobs_share_one_clock_check() {
    let world = World::new();
    (0..50).for_each(|number| drop(world.cluster.create(job(&format!("a-{number}"), Some(86_400), &[complete(0)]))));
    let manager = world.start().await;
    let at_first = queued(&manager);
    world.sleep_until(600 * SEC).await;
    let looks = queued(&manager) - at_first;
    assert!((50..=62).contains(&looks), "{looks}");
}
