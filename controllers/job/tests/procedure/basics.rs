//! Pods are created and deleted as the Job needs them.

use harness::pass;
use serde_json::{Value, json};

use crate::world::{FINALIZER, INDEX, MS, SEC, World};

#[tokio::test(start_paused = true)]
async fn acceptance_job_001_a_job_runs_its_pods_two_at_a_time_and_completes() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 2, "completions": 4 }));
    let mut done = 0;
    for _ in 0..20 {
        pass(2 * SEC).await;
        let active = world.active_pods();
        assert!(active.len() <= 2 && active.len() as i64 == world.count("j", "active"), "{active:?}");
        let Some(pod) = active.first() else { break };
        world.succeed(pod);
        done += 1;
    }
    pass(3 * SEC).await;
    assert_eq!((done, world.pods().len(), world.with_finalizer()), (4, 4, 0));
    assert_eq!((world.count("j", "succeeded"), world.count("j", "active")), (4, 0));
    let want = ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"];
    assert_eq!(world.conditions("j"), want);
    assert!(world.status("j")["completionTime"].is_string());
    let finished = r#"job_controller_jobs_finished_total{completion_mode="NonIndexed",reason="CompletionsReached",result="succeeded"}"#;
    assert_eq!(manager.metric(finished), 1);
    let pods = r#"job_controller_job_pods_finished_total{completion_mode="NonIndexed",result="succeeded"}"#;
    assert_eq!(manager.metric(pods), 4);
    let created = r#"job_controller_job_pods_creation_total{reason="new",status="succeeded"}"#;
    assert_eq!(manager.metric(created), 4);
    for (event, counts) in [("add", 4), ("delete", 4)] {
        let held = format!(r#"job_controller_terminated_pods_tracking_finalizer_total{{event="{event}"}}"#);
        assert_eq!(manager.metric(&held), counts, "{event}");
    }
    let events = world.events().await;
    assert_eq!(events.iter().filter(|it| it.starts_with("Normal SuccessfulCreate: Created pod: j-")).count(), 4);
    assert_eq!(events.iter().filter(|it| **it == "Normal Completed: Job completed").count(), 1);
    assert_eq!(events.len(), 5, "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_002_without_completions_one_success_is_enough_when_no_pod_is_active() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 5, "completions": null }));
    pass(2 * SEC).await;
    let pods = world.active_pods();
    assert_eq!(pods.len(), 5);
    world.succeed(&pods[0]);
    pass(5 * SEC).await;
    assert_eq!((world.active_pods().len(), world.pods().len()), (4, 5), "no pod is created or deleted");
    assert_eq!(world.conditions("j"), [""; 0]);
    pods[1..].iter().for_each(|it| world.succeed(it));
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
    assert_eq!(world.count("j", "succeeded"), 5);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_003_the_start_time_is_written_once() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 1, "completions": 2 }));
    pass(2 * SEC).await;
    let start = world.status("j")["startTime"].clone();
    assert!(start.is_string());
    world.succeed(&world.active_pods()[0]);
    pass(5 * SEC).await;
    world.succeed(&world.active_pods()[0]);
    pass(5 * SEC).await;
    assert_eq!(world.status("j")["startTime"], start);
    assert_eq!(world.count("j", "succeeded"), 2);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_004_a_new_parallelism_changes_pods_and_no_counter() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 1, "completions": 9 }));
    pass(2 * SEC).await;
    for wanted in [2, 1, 3, 0] {
        world.edit("j", |spec| spec["parallelism"] = json!(wanted));
        pass(5 * SEC).await;
        world.remove_terminating_pods();
        pass(3 * SEC).await;
        assert_eq!(world.active_pods().len(), wanted, "{wanted}");
        assert_eq!((world.count("j", "succeeded"), world.count("j", "failed")), (0, 0), "{wanted}");
    }
    assert_eq!(world.pods(), [""; 0], "the deleted pods are gone");
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_005_one_sync_creates_at_most_five_hundred_pods() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 1000, "completions": 1000 }));
    pass(500 * MS).await;
    assert_eq!(world.call_count("create pods"), 500);
    pass(5 * SEC).await;
    assert_eq!(world.call_count("create pods"), 1000);
    assert_eq!(world.count("j", "active"), 1000);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_008_pods_that_end_within_a_second_are_counted_together() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 20, "completions": 20 }));
    pass(5 * SEC).await;
    let before = world.call_count("update jobs/status");
    // The first event after a pause is handled at once. The others are handled together.
    for pod in world.active_pods() {
        world.succeed(&pod);
        pass(20 * MS).await;
    }
    pass(5 * SEC).await;
    assert_eq!(world.count("j", "succeeded"), 20);
    let writes = world.call_count("update jobs/status") - before;
    assert!(writes <= 3, "{writes}: the first pod, the others, the end");
    assert_eq!(world.call_count("patch pods"), 20);
}

#[tokio::test(start_paused = true)]
async fn the_first_pod_that_ends_after_a_pause_is_counted_and_replaced_at_once() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 1, "completions": 2 }));
    pass(5 * SEC).await;
    world.succeed(&world.active_pods()[0]);
    pass(50 * MS).await;
    assert_eq!((world.active_pods().len(), world.with_finalizer()), (1, 1), "upstream syncs after one second");
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_009_a_new_spec_is_synced_at_once_and_a_new_status_after_one_second() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 1, "completions": 5 }));
    pass(5 * SEC).await;
    world.edit("j", |spec| spec["parallelism"] = json!(2));
    pass(50 * MS).await;
    assert_eq!(world.active_pods().len(), 2);
    pass(5 * SEC).await;
    let syncs = || {
        manager
            .metrics_page()
            .lines()
            .filter(|it| it.starts_with("job_controller_job_syncs_total{"))
            .map(total)
            .sum::<u64>()
    };
    let before = syncs();
    world.cluster.update("jobs.batch", "n", "j", |it| it["status"]["ready"] = json!(2));
    pass(900 * MS).await;
    assert_eq!(syncs(), before);
    pass(200 * MS).await;
    assert_eq!(syncs(), before + 1);
    assert_eq!(world.count("j", "ready"), 0);
}

fn total(line: &str) -> u64 {
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_010_an_unknown_completion_mode_sends_an_event_and_is_not_synced() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "completionMode": "Alphabetical" }));
    let event = "Warning UnknownCompletionMode: Skipped Job sync because completion mode is unknown";
    assert_eq!(world.events().await, [event]);
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_041_indexed_pods_have_their_index_and_the_lowest_are_created_first() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 3, "completions": 4, "completionMode": "Indexed" }));
    pass(2 * SEC).await;
    let mut pods = world.cluster.list("pods", "n");
    pods.sort_by_key(|it| it["metadata"]["annotations"][INDEX].as_str().unwrap().to_owned());
    assert_eq!(pods.len(), 3);
    for (index, pod) in pods.iter().enumerate() {
        let (text, metadata) = (index.to_string(), &pod["metadata"]);
        assert_eq!((&metadata["annotations"][INDEX], &metadata["labels"][INDEX]), (&json!(text), &json!(text)));
        assert_eq!(pod["spec"]["hostname"], json!(format!("j-{index}")));
        assert!(metadata["name"].as_str().unwrap().starts_with(&format!("j-{index}-")));
        assert_eq!(metadata["finalizers"], json!([FINALIZER]));
        let env = &pod["spec"]["containers"][0]["env"][0];
        assert_eq!(env["name"], "JOB_COMPLETION_INDEX");
        assert_eq!(env["valueFrom"]["fieldRef"]["fieldPath"], json!(format!("metadata.labels['{INDEX}']")));
    }
    let second = pods[1]["metadata"]["name"].as_str().unwrap();
    world.succeed(second);
    pass(3 * SEC).await;
    assert_eq!(world.status("j")["completedIndexes"], "1");
    let indexes = |it: &Value| it["metadata"]["annotations"][INDEX].as_str().unwrap().to_owned();
    let mut all: Vec<String> = world.cluster.list("pods", "n").iter().map(indexes).collect();
    all.sort();
    assert_eq!(all, ["0", "1", "2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_042_a_duplicate_index_is_deleted_before_any_creation() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 2, "completions": 2, "completionMode": "Indexed" }));
    pass(2 * SEC).await;
    // A user creates a second pod for the first index and deletes the pod of the second.
    let mut twin =
        world.cluster.list("pods", "n").into_iter().find(|it| it["metadata"]["annotations"][INDEX] == "0").unwrap();
    let other = world.pods().into_iter().find(|it| it.starts_with("j-1-")).unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generateName"] {
        twin["metadata"].as_object_mut().unwrap().remove(field);
    }
    twin["metadata"]["name"] = json!("j-0-twin");
    world.cluster.clear_requests();
    world.cluster.create(twin);
    world.cluster.remove("pods", "n", &other);
    pass(10 * SEC).await;
    let lines = world.lines();
    let (deleted, created) = (position(&lines, "delete pods"), position(&lines, "create pods"));
    assert!(deleted < created, "{lines:?}");
    let indexes: Vec<char> = world.active_pods().iter().map(|it| it.chars().nth(2).unwrap()).collect();
    assert_eq!(indexes, ['0', '1']);
}

fn position(lines: &[String], words: &str) -> usize {
    lines.iter().position(|it| it.starts_with(words)).unwrap()
}
