//! A time runs once, even if a response is lost, an event is late, or a name is taken.

use harness::{Manager, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{SEC, SOON, World, broken};

const FIRST: &str = "c-29653080";
const SECOND: &str = "c-29653081";

/// A minutely CronJob just before its first time.
async fn waiting(policy: &str) -> (World, Manager) {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "concurrencyPolicy": policy }));
    pass(SOON).await;
    (world, manager)
}

fn creations(world: &World) -> usize {
    world.new_calls().iter().filter(|it| *it == "create jobs").count()
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_033_a_job_made_by_hand_is_neither_waited_for_nor_replaced_under_any_name() {
    for policy in ["Forbid", "Replace"] {
        let (world, _manager) = waiting(policy).await;
        world.job("c-1795359600", Some("c"));
        world.until("2026-05-19T10:00:00Z").await;
        assert_eq!(world.jobs(), ["c-1795359600", FIRST], "{policy}");
        assert_eq!(world.active("c"), [FIRST], "{policy}");
        assert_eq!(world.event_count("UnexpectedJob"), 1, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_only_record_of_a_run_stays_until_the_status_contains_it() {
    let (world, manager) = waiting("Allow").await;
    world.edit("c", "successfulJobsHistoryLimit", json!(0));
    world.fail_requests(|line, _| if line.starts_with("update cronjobs/status") { broken() } else { None });
    world.until("2026-05-19T10:00:00Z").await;
    world.end(FIRST, "Complete");
    pass(SEC).await;
    assert_eq!(world.jobs(), [FIRST]);
    // The next leader has only the stored state.
    drop(manager);
    world.cluster.stop_intercepting();
    let _manager = world.start().await;
    pass(SEC).await;
    assert_eq!((creations(&world), world.jobs().len()), (1, 0), "the Job was deleted after the status contained it");
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_create_is_resolved_before_another_job_starts() {
    for (policy, want) in [("Forbid", vec![FIRST]), ("Replace", vec![SECOND])] {
        let (world, _manager) = waiting(policy).await;
        world.cluster.freeze_watches("jobs");
        let mut lost = false;
        world.fail_requests(move |line, _| match line {
            "create jobs" if !std::mem::replace(&mut lost, true) => Some(Interception::LoseAnswer),
            "create jobs" => broken(),
            _ if line.starts_with("get jobs") => broken(),
            _ => None,
        });
        world.until("2026-05-19T10:00:58Z").await;
        assert_eq!(world.jobs(), [FIRST]);
        assert_eq!(world.event_count("FailedCreate"), 0, "no failure is reported");
        world.cluster.stop_intercepting();
        world.until("2026-05-19T10:01:00Z").await;
        assert_eq!(world.jobs(), want, "{policy}");
        assert_eq!(world.active("c"), want, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_whose_answer_was_lost_is_waited_for() {
    let (world, _manager) = waiting("Allow").await;
    world.cluster.freeze_watches("cronjobs");
    let mut lost = false;
    world.fail_requests(move |line, _| {
        let lose = line.starts_with("update cronjobs/status") && !std::mem::replace(&mut lost, true);
        lose.then_some(Interception::LoseAnswer)
    });
    world.until("2026-05-19T10:00:00Z").await;
    world.remove_job(FIRST);
    pass(SEC * 20).await;
    assert_eq!((creations(&world), world.jobs().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_gone_from_the_server_starts_nothing() {
    let (world, _manager) = waiting("Allow").await;
    world.cluster.freeze_watches("cronjobs");
    world.cluster.remove("cronjobs", "ns", "c");
    world.cron_job("c", json!({ "schedule": "0 0 1 1 *" }));
    world.until("2026-05-19T10:00:00Z").await;
    // The garbage collector deletes the Job, because its owner is gone.
    world.remove_job(FIRST);
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!((creations(&world), world.jobs().len()), (1, 0));
    world.cluster.unfreeze_watches("cronjobs");
    pass(SEC).await;
    world.edit("c", "schedule", json!("* * * * *"));
    world.until("2026-05-19T10:02:00Z").await;
    assert_eq!(world.active("c"), ["c-29653082"], "the next CronJob of the name runs");
}

#[tokio::test(start_paused = true)]
async fn replace_keeps_a_finished_job_though_the_cache_is_stale() {
    let (world, _manager) = waiting("Replace").await;
    world.until("2026-05-19T10:00:00Z").await;
    pass(SEC * 5).await;
    world.cluster.freeze_watches("jobs");
    world.end(FIRST, "Complete");
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!((world.jobs(), world.active("c")), (vec![FIRST.into(), SECOND.into()], vec![SECOND.to_owned()]));
    assert_eq!((world.event_count("SawCompletedJob"), world.event_count("SuccessfulDelete")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_surplus_job_changed_meanwhile_stays() {
    let (world, _manager) = waiting("Allow").await;
    world.edit("c", "schedule", json!("0 * * * *"));
    world.until("2026-05-19T10:00:00Z").await;
    world.end(FIRST, "Complete");
    pass(SEC).await;
    // A user removes the owner to keep the Job, and the cache does not show it.
    world.cluster.freeze_watches("jobs");
    world.cluster.update("jobs", "ns", FIRST, |it| it["metadata"]["ownerReferences"] = json!([]));
    world.edit("c", "successfulJobsHistoryLimit", json!(0));
    pass(SEC).await;
    assert_eq!((world.jobs(), world.event_count("FailedDelete")), (vec![FIRST.to_owned()], 0));
    assert!(world.new_calls().contains(&format!("delete jobs {FIRST}")));
}

#[tokio::test(start_paused = true)]
async fn a_time_run_by_a_faster_clock_does_not_run_again() {
    let world = World::at("2026-05-19T09:59:30Z");
    world.cron_job("c", json!({}));
    // Another manager ran these times, and their Jobs are gone.
    world.set_status("c", "lastScheduleTime", json!("2026-05-19T10:05:00Z"));
    let _manager = world.start().await;
    world.until("2026-05-19T10:05:30Z").await;
    assert!(world.jobs().is_empty());
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:05:00Z");
    let said = "1 Warning LastScheduleInFuture Last schedule time Tue, 19 May 2026 10:05:00 +0000 is in the future: \
                nothing runs before it";
    assert_eq!(world.events(), [said]);
    world.until("2026-05-19T10:06:00Z").await;
    assert_eq!(world.times(), ["2026-05-19T10:06:00Z"]);
}

#[tokio::test(start_paused = true)]
async fn no_time_is_skipped_while_a_call_fails_for_an_hour() {
    for failing in ["update cronjobs/status", "get jobs"] {
        let (world, _manager) = waiting("Allow").await;
        // A Job that the cache does not have, so that it is read from the server.
        let unknown = json!([{ "kind": "Job", "namespace": "ns", "name": "unknown", "uid": "unknown" }]);
        world.fail_requests(move |line, _| if line.starts_with(failing) { broken() } else { None });
        world.set_status("c", "active", unknown);
        world.until("2026-05-19T10:59:00Z").await;
        assert_eq!(world.jobs().len(), 60, "{failing}");
        world.cluster.stop_intercepting();
        world.until("2026-05-19T11:00:00Z").await;
        assert_eq!(world.active("c").len(), 61, "{failing}");
        assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T11:00:00Z");
    }
}
