//! The next time comes while the previous Job still runs.

use harness::pass;
use serde_json::json;

use crate::world::{MINUTE, SEC, SOON, World, broken};

const FIRST: &str = "c-29653080";
const SECOND: &str = "c-29653081";

/// A CronJob with this policy, half a minute after its first Job started.
async fn running(policy: &str) -> (World, harness::Manager) {
    let world = World::at("2026-05-19T09:59:30Z");
    let manager = world.start().await;
    world.cron_job("c", json!({ "concurrencyPolicy": policy }));
    world.until("2026-05-19T10:00:00Z").await;
    assert_eq!(world.active("c"), [FIRST]);
    pass(SEC * 30).await;
    world.new_calls();
    (world, manager)
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_024_forbid_waits_and_starts_at_once_when_the_active_job_finishes() {
    let (world, _manager) = running("Forbid").await;
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!(world.jobs(), [FIRST]);
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:00:00Z");
    assert_eq!(world.event_count("JobAlreadyActive"), 1);
    assert!(world.new_calls().is_empty());
    // A further sync: the same time still waits.
    world.cluster.update("cronjobs", "ns", "c", |it| it["metadata"]["labels"] = json!({ "a": "b" }));
    pass(SEC * 10).await;
    assert_eq!(world.event_count("JobAlreadyActive"), 1);
    world.end(FIRST, "Failed");
    pass(SOON).await;
    assert_eq!(world.active("c"), [SECOND]);
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:01:00Z");
    assert_eq!(world.new_calls(), ["create jobs", "update cronjobs/status c"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_024_forbid_with_a_deadline_skips_a_time() {
    let (world, _manager) = running("Forbid").await;
    world.edit("c", "startingDeadlineSeconds", json!(5));
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!(world.event_count("JobAlreadyActive"), 1);
    pass(SEC * 10).await;
    world.end(FIRST, "Complete");
    pass(SOON).await;
    assert!(world.active("c").is_empty());
    assert_eq!(world.status("c", "lastScheduleTime"), "2026-05-19T10:00:00Z");
    assert_eq!(world.event_count("MissSchedule"), 1);
    world.until("2026-05-19T10:02:00Z").await;
    assert_eq!(world.active("c"), ["c-29653082"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_025_replace_deletes_and_creates_in_one_pass() {
    let (world, _manager) = running("Replace").await;
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!(
        world.new_calls(),
        [
            format!("get jobs {FIRST}"),
            format!("delete jobs {FIRST}"),
            "create jobs".into(),
            "update cronjobs/status c".into()
        ]
    );
    assert_eq!((world.jobs(), world.active("c")), (vec![SECOND.to_owned()], vec![SECOND.to_owned()]));
    assert!(world.events().contains(&format!("1 Normal SuccessfulDelete Deleted job {FIRST}")));
}

#[tokio::test(start_paused = true)]
async fn replace_deletes_the_observed_job_with_background_propagation() {
    let (world, _manager) = running("Replace").await;
    let metadata = world.get("jobs", FIRST)["metadata"].clone();
    world.until("2026-05-19T10:01:00Z").await;
    let requests = world.cluster.requests();
    let delete = requests.iter().find(|it| it.verb == "delete").unwrap();
    assert_eq!(
        delete.json(),
        json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": { "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] } })
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_that_finishes_during_replace_is_kept_for_history() {
    let (world, _manager) = running("Replace").await;
    let cluster = world.cluster.clone();
    let mut first = true;
    world.fail_requests(move |line, _| {
        if line.starts_with("delete jobs") && std::mem::take(&mut first) {
            cluster.update("jobs", "ns", FIRST, |it| {
                it["status"]["conditions"] = json!([{ "type": "Complete", "status": "True" }]);
            });
        }
        None
    });
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!((world.jobs(), world.active("c")), (vec![FIRST.to_owned(), SECOND.to_owned()], vec![SECOND.to_owned()]));
    assert_eq!((world.event_count("SawCompletedJob"), world.event_count("SuccessfulDelete")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_constantly_changing_job_is_replaced_when_it_stops_changing() {
    let (world, _manager) = running("Replace").await;
    let cluster = world.cluster.clone();
    let mut changes = 0;
    world.fail_requests(move |line, _| {
        if line.starts_with("delete jobs") {
            changes += 1;
            cluster.update("jobs", "ns", FIRST, |it| it["metadata"]["labels"]["changes"] = changes.to_string().into());
        }
        None
    });
    world.until("2026-05-19T10:01:00Z").await;
    let deletes = world.new_calls().iter().filter(|it| it.starts_with("delete jobs")).count();
    let passes = usize::try_from(world.event_count("FailedDelete")).unwrap();
    assert!(passes > 0 && world.jobs() == [FIRST]);
    assert_eq!(deletes, 4 * passes);
    world.cluster.stop_intercepting();
    pass(MINUTE / 2).await;
    assert_eq!((world.jobs(), world.active("c")), (vec![SECOND.to_owned()], vec![SECOND.to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_cronjob_026_replace_creates_nothing_while_the_old_job_exists() {
    for (call, reason, message) in [
        ("get jobs", "FailedGet", "Get job: internal error"),
        ("delete jobs", "FailedDelete", "Deleted job: internal error"),
    ] {
        let (world, _manager) = running("Replace").await;
        world.fail_requests(move |line, _| if line.starts_with(call) { broken() } else { None });
        world.until("2026-05-19T10:01:00Z").await;
        pass(SEC).await;
        assert_eq!((world.jobs(), world.active("c")), (vec![FIRST.to_owned()], vec![FIRST.to_owned()]), "{call}");
        assert!(world.event_count(reason) > 1, "{call}: it is retried");
        assert!(world.events().iter().any(|it| it.ends_with(&format!("Warning {reason} {message}"))));
        assert!(world.new_calls().len() < 20, "{call}: with back-off");
        world.cluster.stop_intercepting();
        pass(MINUTE).await;
        assert_eq!(world.active("c").len(), 1);
        assert_ne!(world.active("c"), [FIRST]);
    }
}

#[tokio::test(start_paused = true)]
async fn replace_keeps_a_job_that_has_another_owner_now() {
    let (world, _manager) = running("Replace").await;
    world.cluster.freeze_watches("jobs");
    world.cluster.update("jobs", "ns", FIRST, |it| it["metadata"]["ownerReferences"] = json!([]));
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!(world.jobs(), [FIRST, SECOND]);
    assert_eq!(world.active("c"), [SECOND]);
}

#[tokio::test(start_paused = true)]
async fn replace_continues_if_the_old_job_is_gone() {
    let (world, _manager) = running("Replace").await;
    world.cluster.freeze_watches("jobs");
    world.remove_job(FIRST);
    world.until("2026-05-19T10:01:00Z").await;
    assert_eq!((world.jobs(), world.active("c")), (vec![SECOND.to_owned()], vec![SECOND.to_owned()]));
    assert_eq!((world.event_count("FailedGet"), world.event_count("FailedDelete")), (0, 0));
}
