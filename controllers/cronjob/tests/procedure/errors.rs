//! Jobs that cannot be created, and missed times.

use harness::pass;
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{MINUTE, SEC, SOON, World, broken};

const FIRST: &str = "c-29653080";

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_036_a_taken_name_prevents_only_that_time() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "concurrencyPolicy": "Forbid" }));
    world.job(FIRST, None);
    world.until("2026-05-19T10:00:00Z").await;
    pass(SEC * 30).await;
    assert!(world.active("c").is_empty());
    assert_eq!(world.status("c", "lastScheduleTime"), "");
    assert_eq!(world.new_calls(), ["create jobs".to_owned(), format!("get jobs {FIRST}")]);
    assert_eq!(
        world.events(),
        [format!(
            "1 Warning FailedCreate Error creating job: jobs.batch \"{FIRST}\" already exists and is not of this CronJob"
        )]
    );
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!((world.jobs(), world.active("c")), (vec![FIRST.into(), "c-29653081".into()], vec!["c-29653081".into()]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_037_a_quota_error_is_reported_and_surplus_jobs_are_deleted_first() {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "successfulJobsHistoryLimit": 0 }));
    world.until("2026-05-19T10:00:00Z").await;
    // The Job finishes while no manager runs, so that all that follows happens in one sync.
    drop(manager);
    world.end(FIRST, "Complete");
    world.until("2026-05-19T10:01:00Z").await;
    world.fail_requests(|line, _| {
        (line == "create jobs").then(|| Interception::status(403, "Forbidden", "exceeded quota: q"))
    });
    world.new_calls();
    let _manager = world.start().await;
    assert_eq!(world.new_calls()[..2], [format!("delete jobs {FIRST}"), "create jobs".to_owned()]);
    assert!(world.jobs().is_empty());
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:00:00Z");
    assert!(world.event_count("FailedCreate") > 1, "it is retried");
    assert!(world.events().iter().any(|it| it.ends_with("Warning FailedCreate Error creating job: exceeded quota: q")));
    world.cluster.stop_intercepting();
    world.until("2026-05-19T10:02:00Z").await;
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:02:00Z");
}

#[tokio::test(start_paused = true)]
async fn the_next_time_is_tried_in_time_after_many_failures() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({}));
    world.fail_requests(|line, _| (line == "create jobs").then(|| Interception::status(403, "Forbidden", "no")));
    // By then the back-off is longer than ten minutes.
    world.until("2026-05-19T11:00:30Z").await;
    world.cluster.stop_intercepting();
    world.until("2026-05-19T11:01:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T11:01:00Z"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_038_in_a_terminating_namespace_nothing_is_reported_or_retried() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({}));
    world.cluster.delete("namespaces", "", "ns");
    world.until("2026-05-19T10:09:00Z").await;
    assert!(world.jobs().is_empty() && world.events().is_empty(), "{:?}", world.events());
    assert_eq!(world.new_calls(), vec!["create jobs"; 10], "one for each time");
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_014_015_the_latest_of_missed_times_runs() {
    for (missed, warned) in [("2026-05-19T08:20:00Z", 0), ("2026-05-19T08:19:00Z", 1), ("2025-05-19T08:19:00Z", 1)] {
        let world = World::at("2026-05-19T10:00:30Z");
        world.cron_job("c", json!({}));
        world.set_status("c", "lastScheduleTime", json!(missed));
        let _manager = world.start().await;
        assert_eq!(world.times(), ["2026-05-19T10:00:00Z"]);
        assert_eq!(world.event_count("TooManyMissedTimes"), warned, "since {missed}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_017_a_time_that_is_too_late_is_reported_once_and_the_next_one_runs() {
    let world = World::at("2026-05-19T10:00:30Z");
    world.cron_job("c", json!({ "startingDeadlineSeconds": 10, "schedule": "0 * * * *" }));
    world.set_status("c", "lastScheduleTime", json!("2026-05-19T08:00:00Z"));
    let _manager = world.start().await;
    world.cluster.update("cronjobs", "ns", "c", |it| it["metadata"]["labels"] = json!({ "a": "b" }));
    pass(MINUTE).await;
    assert!(world.jobs().is_empty());
    assert_eq!(
        world.events(),
        ["1 Warning MissSchedule Missed scheduled time to start a job: Tue, 19 May 2026 10:00:00 +0000"]
    );
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T08:00:00Z");
    world.until("2026-05-19T11:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T11:00:00Z"]);
}

#[tokio::test(start_paused = true)]
async fn a_period_with_a_short_deadline_runs() {
    let world = World::at("2026-05-19T10:00:05Z");
    world.cron_job("c", json!({ "startingDeadlineSeconds": 10, "schedule": "@every 1h" }));
    let _manager = world.start().await;
    pass(MINUTE * 60 + SOON).await;
    assert_eq!(world.times(), ["2026-05-19T11:00:05Z"]);
    // A deadline larger than any time must not prevent runs, as it does upstream.
    world.edit("c", "startingDeadlineSeconds", json!(i64::MAX));
    pass(MINUTE * 60).await;
    assert_eq!(world.jobs().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn history_limits_hold_while_no_status_is_stored() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "successfulJobsHistoryLimit": 1 }));
    world.fail_requests(|line, _| if line.starts_with("update cronjobs/status") { broken() } else { None });
    let mut ended = Vec::new();
    for minute in 0..8 {
        world.until(&format!("2026-05-19T10:{minute:02}:30Z")).await;
        for job in world.jobs() {
            if !ended.contains(&job) {
                world.end(&job, "Complete");
                ended.push(job);
            }
        }
    }
    assert_eq!(ended.len(), 8, "each minute ran once");
    // The last Job is kept, so that the next leader finds that its time has run.
    world.until("2026-05-19T10:07:59Z").await;
    assert_eq!(world.jobs(), ["c-29653087"]);
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_cron_job_stops_only_itself() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    for name in ["a", "b"] {
        world.cron_job(name, json!({}));
    }
    world.set_status("a", "lastScheduleTime", json!("2026-05-19T09:00:00Z"));
    world.cluster.update("cronjobs", "ns", "a", |it| it["spec"]["suspend"] = json!("yes"));
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!(world.jobs(), ["b-29653080"]);
}

#[tokio::test(start_paused = true)]
async fn a_time_does_not_run_again_if_its_job_was_deleted_before_the_status_write() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({}));
    world.fail_requests(|line, _| {
        line.starts_with("update cronjobs/status").then(|| Interception::status(500, "", "no"))
    });
    world.until("2026-05-19T10:00:00Z").await;
    world.remove_job(FIRST);
    pass(SEC * 10).await;
    world.cluster.stop_intercepting();
    world.until("2026-05-19T10:00:50Z").await;
    let creations = world.new_calls().iter().filter(|it| *it == "create jobs").count();
    assert_eq!((creations, world.jobs().len()), (1, 0));
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn each_of_a_hundred_runs_is_in_the_status_before_the_next_starts() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    for number in 0..100 {
        world.cron_job(&format!("c{number}"), json!({ "schedule": "0 10 * * *" }));
    }
    world.until("2026-05-19T10:00:00Z").await;
    pass(SEC * 12).await;
    assert_eq!(world.jobs().len(), 100);
    let calls = world.new_calls();
    assert_eq!(calls.len(), 200, "a Job and a status each");
    let mut unrecorded = 0_usize;
    for call in &calls {
        unrecorded = if call == "create jobs" { unrecorded + 1 } else { unrecorded - 1 };
        assert!(unrecorded <= 5, "each worker writes the status of its run before the next run: {calls:?}");
    }
    let statuses = world.cluster.list("cronjobs", "ns");
    let active = |it: &Value| it["status"]["active"].as_array().map_or(0, Vec::len);
    assert_eq!(statuses.iter().map(active).sum::<usize>(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_404_that_does_not_name_the_cron_job_is_no_proof() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({}));
    let not_served = || Interception::status(404, "NotFound", "the server could not find the requested resource");
    world.fail_requests(move |line, _| line.contains(" cronjobs").then(not_served));
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!(world.jobs(), [FIRST]);
    world.cluster.stop_intercepting();
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!((world.jobs().len(), world.active("c").len()), (2, 2));
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:01:00Z");
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_with_an_event_after_it_was_marked_gone_continues() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({}));
    // The server was restored from an older backup.
    world.fail_requests(|line, _| {
        let Interception::Answer { status, headers, mut body } = Interception::status(404, "NotFound", "not found")
        else {
            return None;
        };
        body["details"] = json!({ "name": "c", "group": "batch", "kind": "cronjobs" });
        line.contains(" cronjobs").then_some(Interception::Answer { status, headers, body })
    });
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!(world.jobs(), [FIRST]);
    world.cluster.stop_intercepting();
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!(world.jobs(), [FIRST], "the CronJob is marked as gone");
    world.edit("c", "failedJobsHistoryLimit", json!(7));
    world.until("2026-05-19T10:02:00Z").await;
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:02:00Z");
}
