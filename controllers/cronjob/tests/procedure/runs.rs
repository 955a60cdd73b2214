//! A time comes, and a Job is created.

use harness::pass;
use serde_json::json;

use crate::world::{MINUTE, SEC, SOON, World};

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_012_013_023_027_each_minute_has_its_job() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({}));
    pass(SOON).await;
    assert!(world.jobs().is_empty() && world.new_calls().is_empty(), "nothing is due");
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!(world.jobs(), ["c-29653080"]);
    assert_eq!(world.new_calls(), ["create jobs", "update cronjobs/status c"]);
    let job = world.get("jobs", "c-29653080");
    let owner = &job["metadata"]["ownerReferences"][0];
    let uid = world.get("cronjobs", "c")["metadata"]["uid"].clone();
    assert_eq!(
        *owner,
        json!({ "apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": uid, "controller": true,
            "blockOwnerDeletion": true })
    );
    let active = &world.get("cronjobs", "c")["status"]["active"];
    assert_eq!(
        *active,
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "namespace": "ns", "name": "c-29653080",
            "uid": job["metadata"]["uid"], "resourceVersion": job["metadata"]["resourceVersion"] }])
    );
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:00:00Z");
    // With `concurrencyPolicy: Allow` the next Job does not wait for the end of the first.
    pass(MINUTE).await;
    assert_eq!(world.active("c"), ["c-29653080", "c-29653081"]);
    assert_eq!(
        world.status("c", "lastScheduleTime"),
        "2026-05-19T10:01:00Z",
        "the scheduled time, not the time of creation"
    );
    assert_eq!(
        world.events(),
        ["1 Normal SuccessfulCreate Created job c-29653080", "1 Normal SuccessfulCreate Created job c-29653081"]
    );
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_006_a_zone_determines_the_time_and_its_annotation() {
    let world = World::at("2026-05-19T00:58:00Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 3 * * *", "timeZone": "Europe/Berlin" }));
    world.until("2026-05-19T01:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T03:00:00+02:00"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_007_without_a_zone_the_process_zone_counts_and_the_annotation_is_utc() {
    let world = World::at("2026-05-18T23:58:00Z");
    let _manager = world.start_in("Asia/Tokyo").await;
    world.cron_job("c", json!({ "schedule": "0 9 * * *" }));
    world.until("2026-05-19T00:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T00:00:00Z"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_008_a_zone_in_the_text_is_used_and_reported_once() {
    let world = World::at("2026-05-19T12:58:00Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "TZ=America/New_York 0,10 9 * * *" }));
    world.until("2026-05-19T13:00:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T13:00:00Z"]);
    world.until("2026-05-19T13:10:00Z").await;
    assert_eq!(world.jobs().len(), 2);
    assert_eq!(world.event_count("UnsupportedSchedule"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_019_a_schedule_without_times_is_reported_once_and_costs_nothing() {
    let world = World::at("2026-05-19T10:00:00Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "59 23 31 2 *" }));
    pass(MINUTE * 20).await;
    assert_eq!(
        world.events(),
        ["1 Warning InvalidSchedule invalid schedule: 59 23 31 2 * : time difference between two schedules is less \
          than 1 second"]
    );
    world.edit("c", "schedule", json!("0 0 30 2 *"));
    pass(MINUTE * 20).await;
    assert_eq!(world.event_count("InvalidSchedule"), 2);
    assert!(world.new_calls().is_empty() && world.jobs().is_empty());
    // Two syncs of the CronJob, and the clock checks.
    let adds = manager.metric_lines("workqueue_adds_total{name=\"cronjob\"}");
    let adds: u64 = adds[0].rsplit(' ').next().unwrap().parse().unwrap();
    assert!(adds < 2 * 120 + 10, "{adds}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_043_a_minute_has_one_job_for_any_period() {
    let world = World::at("2026-05-19T10:00:05Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "@every 20s" }));
    pass(MINUTE * 10).await;
    let jobs = world.jobs();
    assert!((10..=11).contains(&jobs.len()), "{jobs:?}");
    let creations = world.new_calls().iter().filter(|it| it.starts_with("create jobs")).count();
    assert_eq!(creations, jobs.len(), "no creation is repeated");
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_044_a_job_of_another_manager_is_finished_by_its_conditions() {
    let world = World::at("2026-05-19T09:59:30Z");
    let _manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 * * * *" }));
    let managed = json!("example.com/other");
    world.cluster.update("cronjobs", "ns", "c", |it| it["spec"]["jobTemplate"]["spec"]["managedBy"] = managed);
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!(world.get("jobs", "c-29653080")["spec"]["managedBy"], "example.com/other");
    world.end("c-29653080", "Complete");
    pass(SOON).await;
    assert!(world.active("c").is_empty());
    assert_eq!(world.status("c", "lastSuccessfulTime"), "2026-05-19T10:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_045_047_nothing_changed_costs_no_call() {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 * * * *" }));
    world.until("2026-05-19T10:00:00Z").await;
    world.new_calls();
    // A change of labels does not concern the controller, and neither do the pod counters of a Job.
    world.cluster.update("cronjobs", "ns", "c", |it| it["metadata"]["labels"] = json!({ "a": "b" }));
    world.cluster.update("jobs", "ns", "c-29653080", |it| it["status"]["active"] = json!(1));
    pass(SEC).await;
    assert!(world.new_calls().is_empty());
    // A new manager syncs each CronJob once.
    drop(manager);
    let _manager = world.start().await;
    pass(MINUTE).await;
    assert!(world.new_calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_051_how_late_a_job_was_made_is_measured() {
    let world = World::at("2026-05-19T09:59:30Z");
    world.cron_job("c", json!({ "schedule": "0 * * * *" }));
    pass(SEC * 33).await;
    let manager = world.start().await;
    let skew = "cronjob_controller_job_creation_skew_duration_seconds";
    for (line, want) in [("_bucket{le=\"2\"}", "0"), ("_bucket{le=\"4\"}", "1"), ("_sum", "3"), ("_count", "1")] {
        assert_eq!(manager.metric_lines(&format!("{skew}{line}")), [format!("{skew}{line} {want}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_051_a_job_that_another_manager_made_is_not_measured() {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 * * * *" }));
    pass(SOON).await;
    world.cluster.freeze_watches("jobs");
    world.job("c-29653080", Some("c"));
    world.cluster.update("jobs", "ns", "c-29653080", |it| {
        it["metadata"]["annotations"] =
            json!({ "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-05-19T10:00:00Z" });
    });
    world.new_calls();
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!(world.new_calls(), ["create jobs", "get jobs c-29653080", "update cronjobs/status c"]);
    assert_eq!(world.active("c"), ["c-29653080"]);
    let count = manager.metric_lines("cronjob_controller_job_creation_skew_duration_seconds_count");
    assert!(count.iter().all(|it| it.ends_with(" 0")), "{count:?}");
}
