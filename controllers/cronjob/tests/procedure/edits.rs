//! A user edits a CronJob while it waits for its next time.

use std::time::Duration;

use harness::pass;
use serde_json::json;

use crate::world::{MINUTE, SEC, SOON, World, broken, lead, queued};

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_020_a_sooner_time_runs_in_time() {
    let world = World::at("2026-05-19T10:00:10Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 12 * * *" }));
    pass(SOON).await;
    world.edit("c", "schedule", json!("30 10 * * *"));
    world.until("2026-05-19T10:30:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T10:30:00Z"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_020_a_later_time_is_waited_for() {
    let world = World::at("2026-05-19T10:00:10Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "30 10 * * *" }));
    pass(SOON).await;
    world.edit("c", "schedule", json!("0 12 * * *"));
    world.until("2026-05-19T10:30:00Z").await;
    assert!(world.jobs().is_empty() && world.new_calls().is_empty(), "the old time is not in the schedule any more");
    world.until("2026-05-19T11:59:58Z").await;
    assert!(world.jobs().is_empty());
    world.until("2026-05-19T12:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T12:00:00Z"]);
}

#[tokio::test(start_paused = true)]
async fn a_schedule_edited_several_times_runs_at_the_times_of_the_last_edit() {
    let world = World::at("2026-05-19T10:00:10Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "*/5 * * * *" }));
    for schedule in ["*/3 * * * *", "nonsense", "59 23 31 2 *", "*/7 * * * *", "20 10 * * *"] {
        pass(SEC).await;
        world.edit("c", "schedule", json!(schedule));
    }
    world.until("2026-05-19T11:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T10:20:00Z"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_021_any_other_edit_is_synced_at_once() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 * * * *" }));
    world.until("2026-05-19T10:00:00Z").await;
    world.end("c-29653080", "Complete");
    pass(SOON).await;
    assert_eq!(world.jobs().len(), 1);
    world.edit("c", "successfulJobsHistoryLimit", json!(0));
    pass(SOON).await;
    assert!(world.jobs().is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_021_a_status_write_of_another_client_is_synced_at_once() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 * * * *" }));
    pass(SOON).await;
    let stale = json!([{ "apiVersion": "batch/v1", "kind": "Job", "namespace": "ns", "name": "c-1", "uid": "u-1" }]);
    world.set_status("c", "active", stale);
    assert_eq!(world.active("c"), ["c-1"]);
    pass(SOON).await;
    assert!(world.active("c").is_empty());
    assert_eq!(world.event_count("MissingJob"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_021_a_resync_is_synced_at_once() {
    for (resync, written) in [(MINUTE, "2026-05-19T10:00:00Z"), (Duration::ZERO, "")] {
        let world = World::at("2026-05-19T09:59:30Z");
        let _manager = world.start_with("UTC", resync).await;
        world.cron_job("c", json!({ "schedule": "0 * * * *" }));
        world.fail_requests(|line, _| if line.starts_with("update cronjobs/status") { broken() } else { None });
        // After this many failures the next retry is minutes away.
        world.until("2026-05-19T10:11:40Z").await;
        world.cluster.stop_intercepting();
        pass(MINUTE + SEC).await;
        assert_eq!(world.status("c", "lastScheduleTime"), written, "{resync:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_022_an_edit_to_an_invalid_schedule_is_reported_and_stops_runs() {
    let world = World::at("2026-05-19T10:00:10Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 12 * * *" }));
    pass(SOON).await;
    world.edit("c", "schedule", json!("every noon"));
    pass(MINUTE).await;
    assert_eq!(world.events(), ["1 Warning UnParseableCronJobSchedule unparseable schedule for cronjob: every noon"]);
    world.until("2026-05-19T12:00:00Z").await;
    assert!(world.jobs().is_empty());
    assert_eq!(world.event_count("UnparseableSchedule"), 1, "the sync at the old time reports it too");
    world.edit("c", "schedule", json!("0 13 * * *"));
    world.until("2026-05-19T13:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T13:00:00Z"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_039_suspended_and_resumed() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({}));
    world.until("2026-05-19T10:00:00Z").await;
    world.edit("c", "suspend", json!(true));
    world.until("2026-05-19T10:10:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T10:00:00Z"]);
    world.end("c-29653080", "Complete");
    pass(SOON).await;
    assert!(world.active("c").is_empty(), "its Jobs are still synced");
    world.edit("c", "suspend", json!(false));
    pass(SOON).await;
    assert_eq!(world.times(), ["2026-05-19T10:00:00Z", "2026-05-19T10:10:00Z"]);
    pass(MINUTE).await;
    assert_eq!(world.jobs().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_041_an_unknown_zone_is_reported_and_a_known_one_runs() {
    let world = World::at("2026-05-19T09:58:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "timeZone": "Europe/Bern", "suspend": true }));
    pass(MINUTE).await;
    let said = "1 Warning UnknownTimeZone invalid timeZone: \"Europe/Bern\": unknown time zone Europe/Bern";
    assert_eq!(world.events(), [said]);
    world.edit("c", "suspend", json!(false));
    pass(MINUTE * 2).await;
    assert!(world.jobs().is_empty());
    assert_eq!(world.event_count("UnknownTimeZone"), 1);
    world.edit("c", "timeZone", json!("Europe/Berlin"));
    world.until("2026-05-19T10:02:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T12:02:00+02:00"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_042_another_zone_is_another_time() {
    let world = World::at("2026-05-19T09:00:10Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 12 * * *", "timeZone": "UTC" }));
    pass(SOON).await;
    world.edit("c", "timeZone", json!("Europe/Berlin"));
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T12:00:00+02:00"]);
}

/// The case of k/k#130838: the time of the new schedule is between the last run and the edit.
#[tokio::test(start_paused = true)]
async fn a_time_before_the_edit_does_not_run_when_the_old_time_comes() {
    let world = World::at("2026-05-19T11:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 12 * * *" }));
    world.until("2026-05-19T15:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T12:00:00Z"]);
    world.edit("c", "schedule", json!("0 14 * * *"));
    world.until("2026-05-20T11:00:00Z").await;
    let before = queued(&manager);
    pass(MINUTE).await;
    let of_a_minute = queued(&manager) - before;
    world.until("2026-05-20T11:59:30Z").await;
    let before = queued(&manager);
    pass(MINUTE).await;
    assert_eq!(queued(&manager) - before, of_a_minute, "the old timer does not fire");
    assert_eq!(world.times(), ["2026-05-19T12:00:00Z"]);
    world.until("2026-05-20T14:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T12:00:00Z", "2026-05-20T14:00:00Z"]);
}

#[tokio::test(start_paused = true)]
async fn a_time_before_the_edit_does_not_run_after_any_event() {
    for (what, value) in
        [("suspend", json!(true)), ("startingDeadlineSeconds", json!(7200)), ("timeZone", json!("UTC"))]
    {
        let world = World::at("2026-05-19T11:59:30Z");
        let _manager = world.start().await;
        world.cron_job("c", json!({ "schedule": "0 12 * * *" }));
        world.until("2026-05-19T15:00:00Z").await;
        world.edit("c", "schedule", json!("0 14 * * *"));
        pass(SEC).await;
        world.edit("c", what, value);
        pass(SEC).await;
        world.edit("c", what, json!(null));
        world.until("2026-05-20T13:59:59Z").await;
        assert_eq!(world.times(), ["2026-05-19T12:00:00Z"], "{what}");
        world.until("2026-05-20T14:00:00Z").await;
        assert_eq!(world.times().len(), 2, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_zone_whose_time_is_past_runs_nothing_of_today() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 12 * * *", "timeZone": "Europe/Berlin" }));
    // 11:00 UTC is noon in London.
    world.until("2026-05-19T11:30:00Z").await;
    world.edit("c", "timeZone", json!("Europe/London"));
    world.until("2026-05-20T10:59:50Z").await;
    assert_eq!(world.times(), ["2026-05-19T12:00:00+02:00"]);
    world.until("2026-05-20T11:00:00Z").await;
    assert_eq!(world.times()[1..], ["2026-05-20T12:00:00+01:00"]);
}

#[tokio::test(start_paused = true)]
async fn a_time_of_both_schedules_that_was_due_at_the_edit_still_runs() {
    for (schedule, runs) in [("0 12 * * 1-5", 2), ("0 12,13 * * *", 2), ("0 13 * * *", 1)] {
        let world = World::at("2026-05-18T11:59:30Z");
        let _manager = world.start().await;
        world.cron_job("c", json!({ "schedule": "0 12 * * *", "concurrencyPolicy": "Forbid" }));
        world.until("2026-05-19T12:10:00Z").await;
        assert_eq!(world.times(), ["2026-05-18T12:00:00Z"], "the first Job runs for a day");
        world.edit("c", "schedule", json!(schedule));
        pass(MINUTE).await;
        world.end("c-29651760", "Complete");
        pass(SEC).await;
        assert_eq!(world.times().len(), runs, "{schedule}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_observed_on_standby_counts_after_the_takeover() {
    let world = World::at("2026-05-19T11:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 12 * * *" }));
    world.until("2026-05-19T12:30:00Z").await;
    let standby = world.stand_by();
    world.until("2026-05-19T15:00:00Z").await;
    world.edit("c", "schedule", json!("0 14 * * *"));
    pass(SEC).await;
    manager.stop_and_wait().await;
    let _manager = lead(standby).await;
    world.until("2026-05-20T13:59:59Z").await;
    assert_eq!(world.times(), ["2026-05-19T12:00:00Z"]);
    world.until("2026-05-20T14:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T12:00:00Z", "2026-05-20T14:00:00Z"]);
}

/// This manager does not know the time of the edit, so the latest missed time runs, as after any restart.
#[tokio::test(start_paused = true)]
async fn a_manager_that_did_not_see_the_edit_runs_the_latest_time() {
    let world = World::at("2026-05-19T11:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 12 * * *" }));
    world.until("2026-05-19T15:00:00Z").await;
    world.edit("c", "schedule", json!("0 14 * * *"));
    pass(SEC).await;
    drop(manager);
    let _manager = world.start().await;
    assert_eq!(world.times(), ["2026-05-19T12:00:00Z", "2026-05-19T14:00:00Z"]);
}
