//! The manager stops while many writes are pending.

use serde_json::json;
use test_cluster::Verdict;

use crate::world::{Manager, SEC, World, broken, pass};

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
async fn a_manager_that_stops_under_load_leaves_no_started_time_untold() {
    let (world, manager) = busy().await;
    manager.stop().await;
    let made = world.jobs().len();
    assert!((20..100).contains(&made), "{made} are made");
    assert!(world.untold().is_empty(), "of {made} untold: {:?}", world.untold());
    // The Jobs are deleted, as after their TTL, so that only the status shows that they ran.
    world.jobs().iter().for_each(|it| world.remove_job(it));
    let _successor = world.start().await;
    pass(SEC * 20).await;
    assert_eq!(world.jobs().len(), 100 - made, "none runs twice");
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_is_killed_under_load_leaves_one_time_untold_for_each_worker_at_most() {
    let (world, manager) = busy().await;
    drop(manager);
    let (made, untold) = (world.jobs().len(), world.untold());
    assert!(made >= 20 && untold.len() <= WORKERS, "of {made} untold: {untold:?}");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_failed_is_written_when_the_manager_stops() {
    let (world, manager) = waiting().await;
    world.spoil(|line| if line.starts_with("update cronjobs/status") { broken() } else { None });
    world.until("2026-05-19T10:02:00Z").await;
    assert_eq!((world.jobs(), world.untold().len()), (vec![FIRST.to_owned()], 1));
    world.cluster.stop_intercepting();
    manager.stop().await;
    assert!(world.untold().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_creation_without_an_answer_is_looked_for_when_the_manager_stops() {
    let (world, manager) = waiting().await;
    world.cluster.freeze_watches("jobs");
    let mut lost = false;
    world.spoil(move |line| match line {
        "create jobs" if !std::mem::replace(&mut lost, true) => Some(Verdict::LoseAnswer),
        "create jobs" => broken(),
        _ if line.starts_with("get jobs") => broken(),
        _ => None,
    });
    world.until("2026-05-19T10:00:30Z").await;
    assert_eq!((world.jobs(), world.untold().len()), (vec![FIRST.to_owned()], 1));
    world.cluster.stop_intercepting();
    manager.stop().await;
    assert!(world.untold().is_empty());
    assert_eq!(world.active("c"), [FIRST]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_busy_when_the_manager_stops_is_asked_again() {
    let (world, manager) = waiting().await;
    world.spoil(|line| if line.starts_with("update cronjobs/status") { broken() } else { None });
    world.until("2026-05-19T10:02:00Z").await;
    let mut refused = 0;
    world.spoil(move |line| {
        refused += u32::from(line.starts_with("update cronjobs/status"));
        let busy = || Verdict::Answer { status: 429, headers: vec![("Retry-After", "1".into())], body: json!("busy") };
        (line.starts_with("update cronjobs/status") && refused < 4).then(busy)
    });
    manager.stop().await;
    assert!(world.untold().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stores_no_status_does_not_keep_the_manager_from_stopping() {
    let (world, manager) = waiting().await;
    world.spoil(|line| if line.starts_with("update cronjobs/status") { broken() } else { None });
    world.until("2026-05-19T10:02:00Z").await;
    let asked = world.clock.now();
    manager.stop().await;
    assert!(world.clock.now().saturating_duration_since(asked) < SEC * 8);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stores_slowly_is_told_many_last_statuses_at_a_time() {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    for number in 0..32 {
        world.cron_job(&format!("c{number}"), json!({ "schedule": "0 10 * * *" }));
    }
    let is_status = |line: &str| line.starts_with("update cronjobs/status");
    world.spoil(move |line| if is_status(line) { broken() } else { None });
    world.until("2026-05-19T10:02:00Z").await;
    assert_eq!(world.untold().len(), 32);
    world.spoil(move |line| is_status(line).then_some(Verdict::Delay(SEC)));
    let asked = world.clock.now();
    manager.stop().await;
    assert!(world.untold().is_empty());
    assert!(world.clock.now().saturating_duration_since(asked) < SEC * 4);
}
