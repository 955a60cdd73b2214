//! After an end is announced, the deletion of pods does not change it.

use client::Limits;
use harness::{failure, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{MS, SEC, World};

/// Three running pods of an Indexed Job with backoffLimit 0, with these changes of its spec.
async fn three(world: &World, changes: &[(&str, Value)]) -> Vec<String> {
    let mut spec = json!({ "parallelism": 3, "completions": 3, "completionMode": "Indexed", "backoffLimit": 0 });
    changes.iter().for_each(|(field, value)| spec[*field] = value.clone());
    world.job("j", spec);
    pass(3 * SEC).await;
    let pods = world.active_pods();
    pods.iter().for_each(|it| world.run_pod(it));
    pass(2 * SEC).await;
    pods
}

/// The first DELETE of this pod is rejected.
fn reject_one_deletion(world: &World, pod: &str) {
    let (words, mut first) = (format!("delete pods {pod}"), true);
    world.fail_requests(move |line, _| {
        let refused = line == words && std::mem::take(&mut first);
        refused.then(|| failure(500, "InternalError")).flatten()
    });
}

fn success_policy() -> (&'static str, Value) {
    ("successPolicy", json!({ "rules": [{ "succeededIndexes": "0" }] }))
}

#[tokio::test(start_paused = true)]
async fn a_refused_deletion_does_not_change_a_fulfilled_success_policy() {
    let world = World::new();
    let _manager = world.start().await;
    let pods = three(&world, &[success_policy()]).await;
    reject_one_deletion(&world, &pods[2]);
    world.succeed(&pods[0]);
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j"), ["SuccessCriteriaMet=True SuccessPolicy"]);
    pass(5 * SEC).await;
    world.remove_terminating_pods();
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True SuccessPolicy");
    assert_eq!((world.count("j", "succeeded"), world.count("j", "failed"), world.with_finalizer()), (1, 0, 0));
}

/// The response of each DELETE is delayed. Meanwhile the first of these pods fails and the second succeeds.
async fn end_before_responses(world: &World, pods: &[String]) {
    while world.call_count("delete pods") < pods.len() {
        pass(20 * MS).await;
    }
    world.end_pod(&pods[0], "Failed", 143);
    world.succeed(&pods[1]);
}

fn delay_deletion_responses(world: &World) {
    world.fail_requests(|line, _| line.starts_with("delete pods").then_some(Interception::DelayAnswer(SEC / 2)));
}

/// An end for which pods are deleted, and how they are counted.
struct End {
    change: (&'static str, Value),
    /// Makes the first pod end the Job.
    first: fn(&World, &str),
    condition: &'static str,
    /// Succeeded, failed, and the completed indexes.
    counts: (i64, i64, Option<&'static str>),
}

#[tokio::test(start_paused = true)]
async fn pods_deleted_by_an_end_are_counted_with_it_even_if_they_exit_fast() {
    let ignores = json!({ "rules": [{ "action": "Ignore", "onExitCodes": { "operator": "In", "values": [143] } }] });
    let ends = [
        End {
            change: success_policy(),
            first: World::succeed,
            condition: "Complete=True SuccessPolicy",
            counts: (1, 0, Some("0")),
        },
        End {
            change: ("podFailurePolicy", ignores),
            first: World::fail,
            condition: "Failed=True BackoffLimitExceeded",
            counts: (0, 3, None),
        },
    ];
    for End { change, first, condition, counts } in ends {
        for exits in [false, true] {
            let world = World::new();
            let mut manager = world.start().await;
            let pods = three(&world, std::slice::from_ref(&change)).await;
            delay_deletion_responses(&world);
            first(&world, &pods[0]);
            end_before_responses(&world, &pods[1..]).await;
            if exits {
                drop(manager);
                manager = world.start().await;
            }
            pass(5 * SEC).await;
            world.remove_terminating_pods();
            pass(5 * SEC).await;
            let status = world.status("j");
            let got = (world.count("j", "succeeded"), world.count("j", "failed"), status["completedIndexes"].as_str());
            assert_eq!((got, world.with_finalizer()), (counts, 0), "{condition}, exits: {exits}");
            assert_eq!(world.conditions("j").last().unwrap(), condition, "exits: {exits}");
            drop(manager);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_counted_with_an_interim_failure_is_counted_once_after_a_refused_deletion() {
    let world = World::new();
    let _manager = world.start().await;
    let pods = three(&world, &[]).await;
    reject_one_deletion(&world, &pods[2]);
    world.fail(&pods[0]);
    while world.conditions("j").is_empty() {
        pass(20 * MS).await;
    }
    world.succeed(&pods[2]);
    pass(5 * SEC).await;
    world.remove_terminating_pods();
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Failed=True BackoffLimitExceeded");
    assert_eq!((world.count("j", "succeeded"), world.count("j", "failed"), world.with_finalizer()), (0, 3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refused_deletion_does_not_change_the_deadline_reason_or_fail_an_index() {
    let world = World::new();
    let _manager = world.start().await;
    let changes =
        [("activeDeadlineSeconds", json!(10)), ("backoffLimitPerIndex", json!(0)), ("backoffLimit", json!(1))];
    let pods = three(&world, &changes).await;
    reject_one_deletion(&world, &pods[2]);
    pass(15 * SEC).await;
    assert_eq!(world.conditions("j"), ["FailureTarget=True DeadlineExceeded"]);
    world.remove_terminating_pods();
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Failed=True DeadlineExceeded");
    assert_eq!((world.status("j")["failedIndexes"].clone(), world.count("j", "failed")), (json!(""), 3));
    assert_eq!(world.with_finalizer(), 0);
}

#[tokio::test(start_paused = true)]
async fn pods_are_deleted_at_the_deadline_though_the_cache_does_not_show_the_interim_condition() {
    let world = World::new();
    let _manager = world.start().await;
    three(&world, &[("activeDeadlineSeconds", json!(10))]).await;
    world.cluster.freeze_watches("jobs.batch");
    pass(10 * SEC).await;
    assert_eq!(world.conditions("j"), ["FailureTarget=True DeadlineExceeded"]);
    assert_eq!((world.active_pods(), world.with_finalizer()), (vec![], 0), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_ends_needs_two_or_three_status_writes() {
    // With pods to delete there are three writes: announced with all counts, moved to the counters, ended. Without them
    // there are two.
    for (pods, want) in [(1, 2), (3, 3)] {
        let world = World::new();
        let _manager = world.start().await;
        world.job("j", json!({ "parallelism": pods, "completions": pods, "backoffLimit": 0 }));
        pass(3 * SEC).await;
        let active = world.active_pods();
        active.iter().for_each(|it| world.run_pod(it));
        pass(5 * SEC).await;
        let before = world.call_count("update jobs/status j");
        world.fail(&active[0]);
        pass(5 * SEC).await;
        world.remove_terminating_pods();
        pass(5 * SEC).await;
        assert_eq!(world.conditions("j").last().unwrap(), "Failed=True BackoffLimitExceeded");
        assert_eq!(world.call_count("update jobs/status j") - before, want, "{pods} pods: {:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_fail_because_the_job_fails_do_not_fail_their_index() {
    let world = World::new();
    let _manager = world.start().await;
    let changes = [("maxFailedIndexes", json!(0)), ("backoffLimitPerIndex", json!(0)), ("backoffLimit", json!(9))];
    let pods = three(&world, &changes).await;
    let words = "patch pods";
    world.fail_requests(move |line, _| line.starts_with(words).then(|| failure(500, "InternalError")).flatten());
    world.fail(&pods[0]);
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j"), ["FailureTarget=True MaxFailedIndexesExceeded"]);
    // Their grace period is over and they still have the finalizer.
    pods[1..].iter().for_each(|it| world.fail(it));
    pass(5 * SEC).await;
    world.cluster.stop_intercepting();
    pass(70 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Failed=True MaxFailedIndexesExceeded");
    assert_eq!((world.status("j")["failedIndexes"].clone(), world.count("j", "failed")), (json!("0"), 3));
}

#[tokio::test(start_paused = true)]
async fn the_next_manager_completes_an_end_that_a_stop_interrupted() {
    let world = World::new();
    let manager = world.start().await;
    let pods = three(&world, &[success_policy(), ("parallelism", json!(80)), ("completions", json!(80))]).await;
    // These are more than the concurrent calls, so the manager is stopped in the middle of the deletion.
    world.fail_requests(|line, _| line.starts_with("delete pods").then_some(Interception::DelayAnswer(2 * SEC)));
    world.succeed(&pods[0]);
    while world.call_count("delete pods") == 0 {
        pass(20 * MS).await;
    }
    manager.stop();
    pass(20 * SEC).await;
    drop(manager);
    world.cluster.stop_intercepting();
    let _manager = world.start().await;
    pass(5 * SEC).await;
    world.remove_terminating_pods();
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True SuccessPolicy");
    assert_eq!((world.count("j", "failed"), world.with_finalizer()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_interim_condition_is_stored_before_pods_are_deleted() {
    let world = World::new();
    let manager = world.start().await;
    let pods = three(&world, &[success_policy()]).await;
    let mut left = 1;
    world.fail_requests(move |line, _| {
        let is_deletion = line.starts_with("delete pods");
        left -= i32::from(is_deletion);
        (is_deletion && left < 0).then_some(Interception::Hang)
    });
    world.succeed(&pods[0]);
    while world.call_count("delete pods") < 2 {
        pass(20 * MS).await;
    }
    drop(manager);
    world.cluster.stop_intercepting();
    let _manager = world.start().await;
    pass(5 * SEC).await;
    world.remove_terminating_pods();
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True SuccessPolicy");
}

#[tokio::test(start_paused = true)]
async fn a_large_job_interrupted_while_it_ends_keeps_its_reason() {
    let world = World::new();
    let manager = world.start().await;
    let many = json!({ "parallelism": 300, "completions": 300, "completionMode": "Indexed", "backoffLimit": 6,
        "successPolicy": { "rules": [{ "succeededIndexes": "0" }] } });
    world.job("j", many);
    pass(5 * SEC).await;
    let pods = world.active_pods();
    pods.iter().for_each(|it| world.run_pod(it));
    pass(5 * SEC).await;
    drop(manager);
    let _manager = world.start_limited(job_controller::Options::default(), Limits { qps: 20.0, burst: 30 }).await;
    pass(5 * SEC).await;
    for other in 0..5 {
        world.job(&format!("other-{other}"), json!({ "parallelism": 400, "completions": 400 }));
    }
    pass(SEC).await;
    world.succeed(&pods[0]);
    for _ in 0..60 {
        pass(10 * SEC).await;
        world.remove_terminating_pods();
    }
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True SuccessPolicy");
    assert_eq!(world.count("j", "failed"), 0);
}
