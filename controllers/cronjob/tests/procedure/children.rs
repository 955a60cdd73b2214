//! Jobs that finish, are deleted, or are created by users.

use harness::{Manager, pass};
use serde_json::{Value, json};

use crate::world::{SEC, SOON, World, broken};

const FIRST: &str = "c-29653080";

/// An hourly CronJob whose first Job runs.
async fn running(fields: Value) -> (World, Manager) {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "schedule": "0 * * * *" }));
    world.cluster.update("cronjobs", "ns", "c", |it| {
        for (key, value) in fields.as_object().unwrap() {
            it["spec"][key] = value.clone();
        }
    });
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!(world.active("c"), [FIRST]);
    world.new_calls();
    (world, manager)
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_029_a_finished_job_is_removed_from_active_with_an_event() {
    for (condition, successful) in [("Complete", "2026-05-19T10:00:05Z"), ("Failed", "")] {
        let (world, _manager) = running(json!({})).await;
        pass(SEC * 5).await;
        world.end(FIRST, condition);
        pass(SOON).await;
        assert!(world.active("c").is_empty());
        assert_eq!(world.status("c", "lastSuccessfulTime"), successful);
        let said = format!("1 Normal SawCompletedJob Saw completed job: {FIRST}, condition: {condition}");
        assert!(world.events().contains(&said), "{:?}", world.events());
        assert_eq!(world.new_calls(), ["update cronjobs/status c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_030_a_job_that_is_about_to_end_is_active() {
    for condition in ["SuccessCriteriaMet", "FailureTarget"] {
        let (world, _manager) = running(json!({})).await;
        world.end(FIRST, condition);
        pass(SEC).await;
        assert_eq!(world.active("c"), [FIRST]);
        assert!(world.new_calls().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_031_a_deleted_job_is_reported_missing() {
    let (world, _manager) = running(json!({})).await;
    world.remove_job(FIRST);
    pass(SOON).await;
    assert!(world.active("c").is_empty());
    assert!(world.events().contains(&format!("1 Normal MissingJob Active job went missing: {FIRST}")));
    assert_eq!(world.new_calls(), [format!("get jobs {FIRST}"), "update cronjobs/status c".into()]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_031_a_job_missing_only_from_the_cache_stays() {
    let (world, _manager) = running(json!({})).await;
    world.cluster.freeze_watches("jobs");
    world.job("c-77", Some("c"));
    let uid = world.get("jobs", "c-77")["metadata"]["uid"].clone();
    let first = world.get("cronjobs", "c")["status"]["active"][0].clone();
    let second = json!({ "kind": "Job", "namespace": "ns", "name": "c-77", "uid": uid });
    world.set_status("c", "active", json!([first, second]));
    pass(SEC).await;
    assert_eq!(world.active("c"), [FIRST, "c-77"]);
    assert_eq!((world.event_count("MissingJob"), world.new_calls()), (0, vec!["get jobs c-77".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn active_jobs_whose_name_was_reused_are_missing() {
    let (world, _manager) = running(json!({})).await;
    world.job("other", None);
    let names = ["other", "gone"].map(|it| json!({ "kind": "Job", "namespace": "ns", "name": it, "uid": it }));
    let elsewhere = json!({ "kind": "Job", "namespace": "kube-system", "name": "theirs", "uid": "theirs" });
    let first = world.get("cronjobs", "c")["status"]["active"][0].clone();
    world.set_status("c", "active", json!([first, names[0], names[1], elsewhere, {}]));
    pass(SEC).await;
    assert_eq!(world.active("c"), [FIRST]);
    assert_eq!(world.event_count("MissingJob"), 2, "{:?}", world.events());
    assert_eq!(world.new_calls(), ["get jobs other", "get jobs gone", "update cronjobs/status c"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_032_a_job_active_only_in_the_live_status_is_expected() {
    let (world, _manager) = running(json!({})).await;
    world.cluster.freeze_watches("cronjobs");
    world.job("by-another-manager", Some("c"));
    let uid = world.get("jobs", "by-another-manager")["metadata"]["uid"].clone();
    let first = world.get("cronjobs", "c")["status"]["active"][0].clone();
    let second = json!({ "kind": "Job", "namespace": "ns", "name": "by-another-manager", "uid": uid });
    world.set_status("c", "active", json!([first, second]));
    pass(SEC).await;
    assert_eq!(world.event_count("UnexpectedJob"), 0);
    assert_eq!(world.active("c"), [FIRST, "by-another-manager"]);
    assert!(world.new_calls().iter().all(|it| it == "get cronjobs c"));
    // When the Job finishes, it is removed from the active list although the cache never had it there.
    world.end("by-another-manager", "Complete");
    world.end(FIRST, "Complete");
    pass(SEC).await;
    assert_eq!(world.active("c"), ["by-another-manager"]);
    world.cluster.unfreeze_watches("cronjobs");
    pass(SEC * 2).await;
    assert!(world.active("c").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_033_a_job_made_by_hand_is_reported_once_and_counts_for_history() {
    let (world, _manager) = running(json!({ "concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 0 })).await;
    world.end(FIRST, "Failed");
    world.job("by-hand", Some("c"));
    pass(SOON).await;
    let said = "1 Warning UnexpectedJob Saw a job that the controller did not create or forgot: by-hand";
    assert!(world.events().contains(&said.to_owned()), "{:?}", world.events());
    assert!(world.active("c").is_empty());
    world.edit("c", "failedJobsHistoryLimit", json!(7));
    world.until("2026-05-19T10:50:00Z").await;
    assert_eq!(world.event_count("UnexpectedJob"), 1);
    world.until("2026-05-19T11:00:00Z").await;
    assert_eq!(world.active("c"), ["c-29653140"], "it blocks no run");
    let reads = world.new_calls().iter().filter(|it| *it == "get cronjobs c").count();
    assert_eq!(reads, 1, "the CronJob is read once");
    world.end("by-hand", "Complete");
    pass(SOON).await;
    assert!(!world.jobs().contains(&"by-hand".to_owned()));
    assert_eq!(world.status("c", "lastSuccessfulTime"), "2026-05-19T11:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_034_jobs_of_an_earlier_cron_job_of_the_name_are_not_ours() {
    let (world, _manager) = running(json!({ "successfulJobsHistoryLimit": 0 })).await;
    world.end(FIRST, "SuccessCriteriaMet");
    world.cluster.remove("cronjobs", "ns", "c");
    world.cron_job("c", json!({ "schedule": "0 * * * *", "successfulJobsHistoryLimit": 0 }));
    pass(SOON).await;
    world.end(FIRST, "Complete");
    pass(SOON).await;
    assert_eq!(world.jobs(), [FIRST]);
    assert!(world.active("c").is_empty() && world.new_calls().is_empty());
    assert_eq!(world.event_count("UnexpectedJob"), 0);
    assert_eq!(world.status("c", "lastSuccessfulTime"), "");
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_048_049_jobs_over_the_limit_are_deleted_and_their_success_counts() {
    let (world, _manager) = running(json!({ "successfulJobsHistoryLimit": 0 })).await;
    world.end(FIRST, "Complete");
    pass(SOON).await;
    assert!(world.jobs().is_empty() && world.active("c").is_empty());
    assert_eq!(world.status("c", "lastSuccessfulTime"), "2026-05-19T10:00:00Z");
    assert_eq!(world.new_calls(), [format!("delete jobs {FIRST}"), "update cronjobs/status c".into()]);
    assert_eq!(world.event_count("SuccessfulDelete"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_050_a_job_that_cannot_be_deleted_prevents_no_other_deletion() {
    let (world, _manager) = running(json!({ "failedJobsHistoryLimit": 0 })).await;
    world.fail_requests(|line, _| if line == "delete jobs a" { broken() } else { None });
    for name in ["a", "b"] {
        world.job(name, Some("c"));
        world.end(name, "Failed");
    }
    pass(SOON).await;
    assert_eq!(world.jobs(), ["a", FIRST]);
    assert!(world.event_count("FailedDelete") >= 1);
    world.cluster.stop_intercepting();
    world.end(FIRST, "Failed");
    pass(SOON).await;
    assert!(world.jobs().is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_040_one_that_is_being_deleted_starts_nothing_and_records_finished_jobs() {
    let (world, _manager) = running(json!({})).await;
    world.cluster.update("cronjobs", "ns", "c", |it| it["metadata"]["finalizers"] = json!(["example.com/hold"]));
    world.delete("cronjobs", "c");
    world.until("2026-05-19T11:00:00Z").await;
    assert_eq!(world.jobs(), [FIRST]);
    world.end(FIRST, "Complete");
    pass(SOON).await;
    assert!(world.active("c").is_empty());
}
