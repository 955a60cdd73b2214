//! Jobs that the controller must not delete.

use harness::pass;
use serde_json::{Value, json};

use crate::world::{MS, SEC, World, complete, condition, job, queued};

/// Runs with one such Job from the start, and another that is created and updated later. The controller sends no
/// request for either and queues neither.
async fn assert_ignored(name: &str, made: impl Fn(&str) -> Value) {
    let world = World::new();
    world.cluster.create(made("old"));
    let manager = world.start().await;
    world.cluster.create(made("new"));
    pass(100 * MS).await;
    world.cluster.update("jobs", "default", "new", |it| it["metadata"]["labels"] = json!({ "seen": "yes" }));
    pass(3600 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "{name}");
    assert_eq!(queued(&manager), 0, "{name}");
    assert!(world.get("old").is_some() && world.get("new").is_some(), "{name}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_004_an_unfinished_job_is_not_queued() {
    assert_ignored("unfinished", |name| job(name, Some(0), &[])).await;
    assert_ignored("suspended", |name| job(name, Some(0), &[condition("Suspended", "True", 0)])).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_005_a_finished_job_without_a_ttl_is_not_queued() {
    assert_ignored("no time to live", |name| job(name, None, &[complete(0)])).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_006_a_job_with_only_an_interim_condition_is_not_finished() {
    let criteria = condition("SuccessCriteriaMet", "True", 0);
    assert_ignored("an interim success condition", |name| job(name, Some(0), std::slice::from_ref(&criteria))).await;
    let target = condition("FailureTarget", "True", 0);
    assert_ignored("an interim failure condition", |name| job(name, Some(0), std::slice::from_ref(&target))).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_007_a_condition_that_is_not_true_is_ignored() {
    let conditions = [condition("Complete", "False", 0), condition("Failed", "Unknown", 0)];
    assert_ignored("Complete is False", |name| job(name, Some(0), &conditions)).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_ttl_008_a_deleting_job_is_ignored() {
    let terminating = |name: &str| {
        let mut job = job(name, Some(0), &[complete(0)]);
        job["metadata"]["finalizers"] = json!(["example.com/hold"]);
        job["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        job
    };
    assert_ignored("terminating", terminating).await;

    // Another client deletes the Job while its timer runs.
    let world = World::new();
    let mut held = job("a", Some(10), &[complete(0)]);
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.cluster.create(held);
    let _manager = world.start().await;
    world.sleep_until(5 * SEC).await;
    world.cluster.delete("jobs", "default", "a");
    world.sleep_until(3600 * SEC).await;
    assert!(world.get("a").is_some());
    assert_eq!(world.lines(), [""; 0]);
}
