//! The manager stops while many writes are pending.

use harness::{Manager, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{SEC, World, broken};

const FIRST: &str = "c-29653080";
const TEN: &str = "2026-05-19T10:00:00Z";
/// `--concurrent-cron-job-syncs`
const WORKERS: usize = 5;

/// A hundred minutely CronJobs, three seconds after their time. The rate limit has allowed 90 calls by then.
async fn busy() -> (World, Manager) {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    for number in 0..100 {
        world.cron_job(&format!("c{number}"), json!({ "schedule": "0 10 * * *", "concurrencyPolicy": "Forbid" }));
    }
    world.until(TEN).await;
    pass(SEC * 3).await;
    (world, manager)
}

/// A CronJob just before its time.
async fn waiting() -> (World, Manager) {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 10 * * *" }));
    (world, manager)
}

#[tokio::test(start_paused = true)]
async fn a_stop_under_load_leaves_no_run_out_of_the_status() {
    let (world, manager) = busy().await;
    manager.stop_and_wait().await;
    let made = world.jobs().len();
    assert!((20..100).contains(&made), "{made} Jobs are created");
    assert!(world.unrecorded().is_empty(), "of {made}, not in the status: {:?}", world.unrecorded());
    // The Jobs are deleted, as after their TTL, so that only the status shows that they ran.
    world.jobs().iter().for_each(|it| world.remove_job(it));
    let _successor = world.start().await;
    pass(SEC * 20).await;
    assert_eq!(world.jobs().len(), 100 - made, "no time runs twice");
}

#[tokio::test(start_paused = true)]
async fn a_kill_under_load_leaves_at_most_one_run_per_worker_out_of_the_status() {
    let (world, manager) = busy().await;
    drop(manager);
    let (made, unrecorded) = (world.jobs().len(), world.unrecorded());
    assert!(made >= 20 && unrecorded.len() <= WORKERS, "of {made} untold: {unrecorded:?}");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_failed_is_written_when_the_manager_stops() {
    let (world, manager) = waiting().await;
    world.fail_requests(|line, _| if line.starts_with("update cronjobs/status") { broken() } else { None });
    world.until("2026-05-19T10:02:00Z").await;
    assert_eq!((world.jobs(), world.unrecorded().len()), (vec![FIRST.to_owned()], 1));
    world.cluster.stop_intercepting();
    manager.stop_and_wait().await;
    assert!(world.unrecorded().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_create_is_resolved_when_the_manager_stops() {
    let (world, manager) = waiting().await;
    world.cluster.freeze_watches("jobs");
    let mut lost = false;
    world.fail_requests(move |line, _| match line {
        "create jobs" if !std::mem::replace(&mut lost, true) => Some(Interception::LoseAnswer),
        "create jobs" => broken(),
        _ if line.starts_with("get jobs") => broken(),
        _ => None,
    });
    world.until("2026-05-19T10:00:30Z").await;
    assert_eq!((world.jobs(), world.unrecorded().len()), (vec![FIRST.to_owned()], 1));
    world.cluster.stop_intercepting();
    manager.stop_and_wait().await;
    assert!(world.unrecorded().is_empty());
    assert_eq!(world.active("c"), [FIRST]);
}

#[tokio::test(start_paused = true)]
async fn a_write_to_a_busy_server_is_retried_when_the_manager_stops() {
    let (world, manager) = waiting().await;
    world.fail_requests(|line, _| if line.starts_with("update cronjobs/status") { broken() } else { None });
    world.until("2026-05-19T10:02:00Z").await;
    let mut refused = 0;
    world.fail_requests(move |line, _| {
        refused += u32::from(line.starts_with("update cronjobs/status"));
        let busy =
            || Interception::Answer { status: 429, headers: vec![("Retry-After", "1".into())], body: json!("busy") };
        (line.starts_with("update cronjobs/status") && refused < 4).then(busy)
    });
    manager.stop_and_wait().await;
    assert!(world.unrecorded().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stores_no_status_does_not_keep_the_manager_from_stopping() {
    let (world, manager) = waiting().await;
    world.fail_requests(|line, _| if line.starts_with("update cronjobs/status") { broken() } else { None });
    world.until("2026-05-19T10:02:00Z").await;
    let asked = world.clock.now();
    manager.stop_and_wait().await;
    assert!(world.clock.now().saturating_duration_since(asked) < SEC * 8);
}

#[tokio::test(start_paused = true)]
async fn last_statuses_are_written_to_a_slow_server_concurrently() {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    for number in 0..32 {
        world.cron_job(&format!("c{number}"), json!({ "schedule": "0 10 * * *" }));
    }
    let is_status = |line: &str| line.starts_with("update cronjobs/status");
    world.fail_requests(move |line, _| if is_status(line) { broken() } else { None });
    world.until("2026-05-19T10:02:00Z").await;
    assert_eq!(world.unrecorded().len(), 32);
    world.fail_requests(move |line, _| is_status(line).then_some(Interception::Delay(SEC)));
    let asked = world.clock.now();
    manager.stop_and_wait().await;
    assert!(world.unrecorded().is_empty());
    assert!(world.clock.now().saturating_duration_since(asked) < SEC * 4);
}
