//! The manager crashes between two writes, or a response is lost.

use harness::pass;
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MINUTE, SEC, SOON, World, broken};

const FIRST: &str = "c-29653080";

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_010_a_period_continues_from_its_last_time() {
    let world = World::at("2026-05-19T09:17:42Z");
    world.cron_job("c", json!({ "schedule": "@every 1h" }));
    let manager = world.start().await;
    world.until("2026-05-19T10:17:42Z").await;
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:17:42Z");
    drop(manager);
    world.until("2026-05-19T10:50:00Z").await;
    let _manager = world.start().await;
    world.until("2026-05-19T11:17:41Z").await;
    assert_eq!(world.jobs().len(), 1);
    world.until("2026-05-19T11:17:42Z").await;
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T11:17:42Z");
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_035_crash_between_job_and_status() {
    for policy in ["Allow", "Forbid", "Replace"] {
        let world = World::at("2026-05-19T09:59:30Z");
        let manager = world.start().await;
        world.cron_job("c", json!({ "concurrencyPolicy": policy }));
        world.fail_requests(
            |line, _| if line.starts_with("update cronjobs/status") { Some(Interception::Fail) } else { None },
        );
        world.until("2026-05-19T10:00:00Z").await;
        assert_eq!((world.jobs(), world.active("c").len()), (vec![FIRST.to_owned()], 0));
        drop(manager);
        world.cluster.stop_intercepting();
        world.new_calls();
        let _manager = world.start().await;
        pass(SEC).await;
        assert_eq!(world.jobs(), [FIRST], "{policy}");
        assert_eq!(world.active("c"), [FIRST]);
        assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:00:00Z");
        assert_eq!(world.new_calls(), ["update cronjobs/status c"]);
        assert_eq!(world.event_count("UnexpectedJob"), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_035_restarted_minutes_later_forbid_still_waits() {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "concurrencyPolicy": "Forbid" }));
    world.fail_requests(
        |line, _| if line.starts_with("update cronjobs/status") { Some(Interception::Fail) } else { None },
    );
    world.until("2026-05-19T10:00:00Z").await;
    drop(manager);
    world.cluster.stop_intercepting();
    pass(MINUTE * 3).await;
    let _manager = world.start().await;
    assert_eq!((world.jobs(), world.active("c")), (vec![FIRST.to_owned()], vec![FIRST.to_owned()]));
    assert_eq!(world.event_count("JobAlreadyActive"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_035_a_create_response_is_lost() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({}));
    // The cache does not show the Job, so it is read from the server.
    world.cluster.freeze_watches("jobs");
    let mut lost = false;
    world.fail_requests(move |line, _| {
        let lose = line == "create jobs" && !std::mem::replace(&mut lost, true);
        lose.then_some(Interception::LoseAnswer)
    });
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!((world.jobs(), world.active("c")), (vec![FIRST.to_owned()], vec![FIRST.to_owned()]));
    let calls = world.new_calls();
    assert_eq!(
        calls,
        ["create jobs", &format!("get jobs {FIRST}"), "update cronjobs/status c"],
        "{:?}",
        world.events()
    );
}

#[tokio::test(start_paused = true)]
async fn two_restarts_within_a_minute_create_one_job() {
    let world = World::at("2026-05-19T09:59:30Z");
    world.cron_job("c", json!({}));
    pass(MINUTE).await;
    for _ in 0..3 {
        let manager = world.start().await;
        pass(SEC * 5).await;
        drop(manager);
        // The content of the status is lost too.
        world.set_status("c", "lastScheduleTime", json!(null));
        world.set_status("c", "active", json!(null));
    }
    assert_eq!(world.jobs(), [FIRST]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_046_after_a_conflict_the_change_is_applied_to_the_live_status() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({}));
    world.until("2026-05-19T10:00:00Z").await;
    // The cache does not show the write of another client.
    world.cluster.freeze_watches("cronjobs");
    world.set_status("c", "lastSuccessfulTime", json!("2026-05-19T10:00:30Z"));
    world.cluster.update("cronjobs", "ns", "c", |it| it["metadata"]["labels"] = json!({ "new": "one" }));
    world.new_calls();
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!(world.active("c"), [FIRST, "c-29653081"]);
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:01:00Z");
    assert_eq!(world.status("c", "lastSuccessfulTime"), "2026-05-19T10:00:30Z");
    assert_eq!(world.get("cronjobs", "c")["metadata"]["labels"], json!({ "new": "one" }));
    assert_eq!(
        world.new_calls(),
        ["create jobs", "update cronjobs/status c", "get cronjobs c", "update cronjobs/status c"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_is_never_written_to_a_successor() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({}));
    pass(SOON).await;
    world.cluster.freeze_watches("cronjobs");
    world.cluster.remove("cronjobs", "ns", "c");
    world.cron_job("c", json!({ "schedule": "0 0 1 1 *" }));
    world.until("2026-05-19T10:00:00Z").await;
    assert!(world.active("c").is_empty());
    assert_eq!(world.status("c", "lastScheduleTime"), "");
}

#[tokio::test(start_paused = true)]
async fn a_status_that_cannot_be_written_is_written_later() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 * * * *" }));
    world.fail_requests(|line, _| if line.starts_with("update cronjobs/status") { broken() } else { None });
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!((world.jobs(), world.active("c").len()), (vec![FIRST.to_owned()], 0));
    world.cluster.stop_intercepting();
    pass(MINUTE).await;
    assert_eq!((world.jobs(), world.active("c")), (vec![FIRST.to_owned()], vec![FIRST.to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_sync_waits_until_the_cache_shows_the_own_last_writes() {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({}));
    pass(SOON).await;
    world.cluster.freeze_watches("jobs");
    world.until("2026-05-19T10:00:00Z").await;
    world.new_calls();
    world.edit("c", "successfulJobsHistoryLimit", json!(2));
    pass(SEC * 20).await;
    assert!(world.new_calls().is_empty());
    let skips = "cronjob_controller_stale_sync_skips_total{group=\"batch\",resource=\"jobs\"}";
    assert!(!manager.metric_lines(skips).is_empty());
    world.cluster.unfreeze_watches("jobs");
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!(world.active("c").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_in_the_status_before_its_job_is_deleted() {
    for policy in ["Allow", "Replace"] {
        let world = World::at("2026-05-19T09:59:30Z");
        let manager = world.start().await;
        world.cron_job("c", json!({ "concurrencyPolicy": policy, "successfulJobsHistoryLimit": 0 }));
        world.fail_requests(
            |line, _| if line.starts_with("update cronjobs/status") { Some(Interception::Fail) } else { None },
        );
        world.until("2026-05-19T10:00:00Z").await;
        drop(manager);
        world.cluster.stop_intercepting();
        if policy == "Allow" {
            world.end(FIRST, "Complete");
        }
        pass(MINUTE * 2).await;
        world.new_calls();
        let _manager = world.start().await;
        pass(SEC).await;
        let calls = world.new_calls();
        assert_eq!(calls[0], "update cronjobs/status c", "{policy}: {calls:?}");
        assert!(calls.contains(&format!("delete jobs {FIRST}")), "{policy}: {calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_a_webhook_resets_is_written_once_per_second_at_most() {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({}));
    world.fail_requests(
        |line, _| if line.starts_with("update cronjobs/status") { Some(Interception::Fail) } else { None },
    );
    world.until("2026-05-19T10:00:00Z").await;
    drop(manager);
    let stored = world.get("cronjobs", "c");
    let mut writes = 0;
    world.fail_requests(move |line, _| {
        let is_write = line.starts_with("update cronjobs/status");
        writes += u32::from(is_write);
        // The failure ends a run in which time does not advance.
        let reset = || Interception::Answer { status: 200, headers: Vec::new(), body: stored.clone() };
        is_write.then(|| if writes > 100 { Interception::Fail } else { reset() })
    });
    world.new_calls();
    let _manager = world.start().await;
    pass(SEC * 10).await;
    let writes = world.new_calls().iter().filter(|it| *it == "update cronjobs/status c").count();
    assert!((2..=11).contains(&writes), "{writes} writes in ten seconds");
}
