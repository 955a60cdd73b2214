//! How Jobs end, and which events and metrics report it.

use harness::pass;
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World};

#[tokio::test(start_paused = true)]
async fn acceptance_job_028_too_many_failures_end_all_pods_and_then_the_job() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 100, "completions": 100, "backoffLimit": 0 }));
    pass(5 * SEC).await;
    let pods = world.active_pods();
    pods.iter().for_each(|it| world.run_pod(it));
    pass(5 * SEC).await;
    world.fail(&pods[0]);
    pass(5 * SEC).await;
    assert_eq!((world.active_pods().len(), world.call_count("delete pods")), (0, 99));
    assert_eq!(world.conditions("j"), ["FailureTarget=True BackoffLimitExceeded"]);
    assert_eq!((world.count("j", "terminating"), world.with_finalizer()), (99, 0));
    world.remove_terminating_pods();
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Failed=True BackoffLimitExceeded");
    assert_eq!((world.count("j", "failed"), world.pods()), (100, vec![pods[0].clone()]));
    let failed = r#"job_controller_jobs_finished_total{completion_mode="NonIndexed",reason="BackoffLimitExceeded",result="failed"}"#;
    assert_eq!(manager.metric(failed), 1);
    let events = world.events().await;
    assert!(events.contains(&"Warning BackoffLimitExceeded: Job has reached the specified backoff limit".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_032_each_failure_doubles_the_back_off() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({}));
    pass(5 * SEC).await;
    for wait in [10, 20] {
        world.fail(&world.active_pods()[0]);
        pass(SEC * (wait - 1)).await;
        assert_eq!(world.active_pods(), [""; 0], "{wait}");
        pass(3 * SEC).await;
        assert_eq!(world.active_pods().len(), 1, "{wait}");
    }
    assert_eq!(world.count("j", "failed"), 2);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_033_during_back_off_other_pods_are_reported_and_counted() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 2, "completions": 5 }));
    pass(5 * SEC).await;
    let pods = world.active_pods();
    world.run_pod(&pods[1]);
    world.fail(&pods[0]);
    pass(4 * SEC).await;
    assert_eq!((world.count("j", "active"), world.count("j", "ready"), world.count("j", "failed")), (1, 1, 1));
    assert!(!world.has_finalizer(&pods[0]));
}

#[tokio::test(start_paused = true)]
async fn back_off_continues_after_a_restart() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({}));
    pass(5 * SEC).await;
    world.fail(&world.active_pods()[0]);
    pass(2 * SEC).await;
    drop(manager);
    assert_eq!(
        world.count("j", "failed")
            + world.status("j")["uncountedTerminatedPods"]["failed"].as_array().map_or(0, |it| it.len() as i64),
        1
    );
    let _manager = world.start().await;
    pass(5 * SEC).await;
    assert_eq!(world.active_pods(), [""; 0], "upstream loses the back-off and creates at once");
    pass(5 * SEC).await;
    assert_eq!(world.active_pods().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn back_off_of_ignored_failures_continues_after_a_restart() {
    let world = World::new();
    let manager = world.start().await;
    let rule = json!({ "action": "Ignore", "onExitCodes": { "operator": "In", "values": [44] } });
    world.job("j", json!({ "podFailurePolicy": { "rules": [rule] } }));
    pass(5 * SEC).await;
    for _ in 0..2 {
        world.end_pod(&world.active_pods()[0], "Failed", 44);
        pass(12 * SEC).await;
    }
    drop(manager);
    assert_eq!((world.count("j", "failed"), world.with_finalizer(), world.active_pods().len()), (0, 0, 0));
    let _manager = world.start().await;
    pass(5 * SEC).await;
    assert_eq!(world.active_pods(), [""; 0], "two failed, though no counter shows it");
    pass(5 * SEC).await;
    assert_eq!(world.active_pods().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn back_off_continues_when_a_status_response_is_lost() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({}));
    pass(5 * SEC).await;
    let mut first = true;
    let mut is_first = move |line: &str| line.starts_with("update jobs/status") && std::mem::take(&mut first);
    world.fail_requests(move |line, _| is_first(line).then_some(Interception::LoseAnswer));
    world.fail(&world.active_pods()[0]);
    pass(8 * SEC).await;
    assert_eq!(world.active_pods(), [""; 0], "it is counted in a status whose response was lost");
    pass(5 * SEC).await;
    assert_eq!(world.active_pods().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_031_a_deadline_ends_a_job_regardless_of_its_pods() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "activeDeadlineSeconds": 7 }));
    pass(6 * SEC).await;
    assert_eq!((world.active_pods().len(), world.conditions("j")), (1, vec![]));
    pass(3 * SEC).await;
    world.remove_terminating_pods();
    pass(3 * SEC).await;
    let want = ["FailureTarget=True DeadlineExceeded", "Failed=True DeadlineExceeded"];
    assert_eq!((world.conditions("j"), world.with_finalizer()), (want.map(str::to_owned).to_vec(), 0));
    let events = world.events().await;
    assert!(events.contains(&"Warning DeadlineExceeded: Job was active longer than specified deadline".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_034_a_new_manager_completes_the_failure_of_a_job() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 10, "completions": 10, "backoffLimit": 0 }));
    pass(5 * SEC).await;
    drop(manager);
    let pods = world.active_pods();
    pods[1..].iter().for_each(|it| world.succeed(it));
    world.fail(&pods[0]);
    let _manager = world.start().await;
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Failed=True BackoffLimitExceeded");
    assert_eq!((world.count("j", "failed"), world.count("j", "succeeded"), world.with_finalizer()), (1, 9, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_035_036_an_exit_code_fails_the_job_and_the_message_stays_after_the_pod_is_gone() {
    let world = World::new();
    let manager = world.start().await;
    let rule =
        json!({ "action": "FailJob", "onExitCodes": { "containerName": "main", "operator": "In", "values": [42] } });
    world.job(
        "j",
        json!({ "parallelism": 2, "completions": 2, "podFailurePolicy": { "rules": [rule] },
        "podReplacementPolicy": "Failed" }),
    );
    pass(5 * SEC).await;
    let pods = world.active_pods();
    pods.iter().for_each(|it| world.run_pod(it));
    pass(3 * SEC).await;
    world.end_pod(&pods[0], "Failed", 42);
    pass(3 * SEC).await;
    assert_eq!(world.conditions("j"), ["FailureTarget=True PodFailurePolicy"]);
    let handled = r#"job_controller_pod_failures_handled_by_failure_policy_total{action="FailJob"}"#;
    assert_eq!(manager.metric(handled), 1);
    drop(manager);
    world.cluster.remove("pods", "n", &pods[0]);
    world.remove_terminating_pods();
    let _manager = world.start().await;
    pass(5 * SEC).await;
    let message =
        format!("Container main for pod n/{} failed with exit code 42 matching FailJob rule at index 0", pods[0]);
    let status = world.status("j");
    assert_eq!(status["conditions"][1]["type"], "Failed");
    assert_eq!(status["conditions"][1]["message"], json!(message));
    let events = world.events().await;
    assert!(events.contains(&format!("Warning PodFailurePolicy: {message}")), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_045_a_failed_index_fails_the_job_when_all_have_ended() {
    let world = World::new();
    let manager = world.start().await;
    let spec = json!({ "parallelism": 2, "completions": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1 });
    world.job("j", spec);
    pass(5 * SEC).await;
    let pods = world.active_pods();
    world.run_pod(&pods[1]);
    world.fail(&pods[0]);
    pass(15 * SEC).await;
    assert_eq!(
        (world.status("j")["failedIndexes"].clone(), world.active_pods().len()),
        (json!(""), 2),
        "it may fail once"
    );
    let again = world.active_pods().into_iter().find(|it| *it != pods[1]).unwrap();
    world.fail(&again);
    pass(30 * SEC).await;
    assert_eq!((world.status("j")["failedIndexes"].clone(), world.conditions("j")), (json!("0"), vec![]));
    assert_eq!(world.active_pods(), [pods[1].as_str()], "the other index continues, and this one is not retried");
    world.succeed(&pods[1]);
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j"), ["FailureTarget=True FailedIndexes", "Failed=True FailedIndexes"]);
    assert_eq!((world.count("j", "failed"), world.status("j")["completedIndexes"].clone()), (2, json!("1")));
    for (status, count) in [("failed", 1), ("succeeded", 1)] {
        let indexes =
            format!(r#"job_controller_job_finished_indexes_total{{backoffLimit="perIndex",status="{status}"}}"#);
        assert_eq!(manager.metric(&indexes), count, "{status}");
    }
    assert_eq!(world.with_finalizer(), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_046_too_many_failed_indexes_end_the_others_at_once() {
    let world = World::new();
    let _manager = world.start().await;
    world.job(
        "j",
        json!({ "parallelism": 3, "completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
        "maxFailedIndexes": 1 }),
    );
    pass(5 * SEC).await;
    let pods = world.active_pods();
    pods.iter().for_each(|it| world.run_pod(it));
    pass(5 * SEC).await;
    world.fail(&pods[0]);
    pass(5 * SEC).await;
    assert_eq!((world.conditions("j"), world.active_pods().len()), (vec![], 2), "one may fail");
    world.fail(&pods[1]);
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j"), ["FailureTarget=True MaxFailedIndexesExceeded"]);
    assert_eq!((world.active_pods().len(), world.call_count(&format!("delete pods {}", pods[2]))), (0, 1));
    world.remove_terminating_pods();
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Failed=True MaxFailedIndexesExceeded");
    assert_eq!((world.status("j")["failedIndexes"].clone(), world.with_finalizer()), (json!("0,1"), 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_051_a_success_policy_deletes_the_other_pods_without_counting_them() {
    let world = World::new();
    let _manager = world.start().await;
    let policy = json!({ "rules": [{ "succeededIndexes": "1" }] });
    world.job("j", json!({ "parallelism": 3, "completions": 3, "completionMode": "Indexed", "successPolicy": policy }));
    pass(5 * SEC).await;
    let pods = world.active_pods();
    pods.iter().for_each(|it| world.run_pod(it));
    pass(3 * SEC).await;
    world.succeed(&pods[1]);
    pass(3 * SEC).await;
    assert_eq!(world.conditions("j"), ["SuccessCriteriaMet=True SuccessPolicy"]);
    world.remove_terminating_pods();
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True SuccessPolicy");
    assert_eq!((world.count("j", "succeeded"), world.count("j", "failed"), world.with_finalizer()), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_050_an_elastic_job_drops_indexes_out_of_range_and_runs_them_again() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 3, "completions": 3, "completionMode": "Indexed" }));
    pass(5 * SEC).await;
    let pods = world.active_pods();
    world.succeed(&pods[2]);
    pass(3 * SEC).await;
    assert_eq!(world.status("j")["completedIndexes"], "2");
    let scale = |to: u32| {
        world.edit("j", move |spec| (spec["parallelism"], spec["completions"]) = (json!(to), json!(to)));
    };
    scale(1);
    pass(5 * SEC).await;
    world.remove_terminating_pods();
    pass(3 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.active_pods()), (0, vec![pods[0].clone()]));
    scale(3);
    pass(5 * SEC).await;
    assert_eq!(world.active_pods().len(), 3, "the third one runs again");
    scale(0);
    pass(5 * SEC).await;
    world.remove_terminating_pods();
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_054_with_replacement_after_failure_a_deleted_pod_is_counted_when_it_ends() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "podReplacementPolicy": "Failed" }));
    pass(5 * SEC).await;
    let pod = world.active_pods()[0].clone();
    world.run_pod(&pod);
    pass(3 * SEC).await;
    world.delete_pod_gracefully(&pod);
    pass(5 * SEC).await;
    assert_eq!(["active", "failed", "terminating"].map(|it| world.count("j", it)), [0, 0, 1]);
    assert_eq!(world.pods(), [pod.as_str()], "no replacement is created");
    world.fail(&pod);
    pass(15 * SEC).await;
    assert_eq!((world.count("j", "failed"), world.active_pods().len()), (1, 1));
    let again = r#"job_controller_job_pods_creation_total{reason="recreate_failed",status="succeeded"}"#;
    assert_eq!(manager.metric(again), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_069_more_successes_than_completions_are_reported_before_the_end() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 3, "completions": 3 }));
    pass(5 * SEC).await;
    drop(manager);
    world.active_pods().iter().for_each(|it| world.succeed(it));
    // The API server does not allow this change for such a Job; the test writes it directly.
    world.edit("j", |spec| spec["completions"] = json!(2));
    let _manager = world.start().await;
    let events = world.events().await;
    let event = "Warning TooManySucceededPods: Too many succeeded pods running after completion count reached";
    assert!(events.iter().any(|it| it == event) && events.iter().any(|it| it == "Normal Completed: Job completed"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_070_pods_deleted_in_this_sync_are_neither_active_nor_ready() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 3, "completions": 9 }));
    pass(5 * SEC).await;
    world.active_pods().iter().for_each(|it| world.run_pod(it));
    pass(5 * SEC).await;
    assert_eq!((world.count("j", "active"), world.count("j", "ready")), (3, 3));
    world.edit("j", |spec| spec["parallelism"] = json!(1));
    pass(100 * MS).await;
    assert_eq!(["active", "ready", "terminating"].map(|it| world.count("j", it)), [1, 1, 2]);
}
