//! Jobs that are suspended, resumed, or managed by another controller.

use client::Limits;
use harness::pass;
use serde_json::{Value, json};

use crate::world::{MS, SEC, World};

#[tokio::test(start_paused = true)]
async fn acceptance_job_056_058_a_suspended_job_deletes_its_pods_uncounted_and_restarts_when_resumed() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 2, "completions": 4 }));
    pass(5 * SEC).await;
    world.active_pods().iter().for_each(|it| world.run_pod(it));
    pass(5 * SEC).await;
    world.edit("j", |spec| spec["suspend"] = json!(true));
    pass(500 * MS).await;
    assert_eq!((world.active_pods().len(), world.with_finalizer()), (0, 0));
    world.remove_terminating_pods();
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j"), ["Suspended=True JobSuspended"]);
    let status = world.status("j");
    assert_eq!((status.get("startTime"), world.count("j", "active"), world.count("j", "failed")), (None, 0, 0));
    world.edit("j", |spec| spec["suspend"] = json!(false));
    pass(500 * MS).await;
    let now = world.clock.wall().as_second();
    pass(3 * SEC).await;
    assert_eq!((world.conditions("j"), world.active_pods().len()), (vec!["Suspended=False JobResumed".to_owned()], 2));
    let start: clock::Timestamp = world.status("j")["startTime"].as_str().unwrap().parse().unwrap();
    assert!((start.as_second() - now).abs() <= 1, "{start}");
    let events = world.events().await;
    for event in ["Normal Suspended: Job suspended", "Normal Resumed: Job resumed"] {
        assert_eq!(events.iter().filter(|it| **it == event).count(), 1, "{event}");
    }
    assert_eq!(events.iter().filter(|it| it.starts_with("Normal SuccessfulDelete: Deleted pod: j-")).count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_stop_under_the_rate_limit_leaves_no_active_pod_without_finalizer() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 100, "completions": 100 }));
    pass(5 * SEC).await;
    world.active_pods().iter().for_each(|it| world.run_pod(it));
    pass(5 * SEC).await;
    drop(manager);
    let manager = world.start_limited(job_controller::Options::default(), Limits { qps: 20.0, burst: 30 }).await;
    pass(5 * SEC).await;
    world.edit("j", |spec| spec["suspend"] = json!(true));
    pass(3 * SEC).await;
    manager.stop();
    pass(20 * SEC).await;
    let (removed, active) = (world.pods().len() - world.with_finalizer(), world.active_pods());
    let unheld: Vec<&String> = active.iter().filter(|it| !world.has_finalizer(it)).collect();
    assert!(removed > 0 && !active.is_empty(), "{removed} of 100 finalizers were removed when the manager stopped");
    assert!(unheld.is_empty(), "{} of {removed}", unheld.len());
}

#[tokio::test(start_paused = true)]
async fn without_the_feature_gate_a_suspended_job_keeps_its_start_time_until_it_is_resumed() {
    let world = World::new();
    let options = job_controller::Options { clear_start_time: false, ..Default::default() };
    let _manager = world.start_with(options).await;
    world.job("j", json!({ "activeDeadlineSeconds": 60 }));
    pass(5 * SEC).await;
    let start = world.status("j")["startTime"].clone();
    world.edit("j", |spec| spec["suspend"] = json!(true));
    pass(100 * SEC).await;
    assert_eq!((world.status("j")["startTime"].clone(), world.active_pods().len()), (start.clone(), 0));
    assert_eq!(world.conditions("j"), ["Suspended=True JobSuspended"]);
    world.edit("j", |spec| spec["suspend"] = json!(false));
    pass(5 * SEC).await;
    assert!(world.status("j")["startTime"].as_str() > start.as_str());
    assert_eq!((world.conditions("j"), world.active_pods().len()), (vec!["Suspended=False JobResumed".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_057_unfulfilled_expectations_delay_a_suspension() {
    let world = World::new();
    let options = job_controller::Options { read_own_writes: false, ..Default::default() };
    let _manager = world.start_with(options).await;
    pass(SEC).await;
    world.cluster.freeze_watches("pods");
    world.job("j", json!({}));
    pass(3 * SEC).await;
    assert_eq!(world.active_pods().len(), 1);
    world.edit("j", |spec| spec["suspend"] = json!(true));
    pass(5 * SEC).await;
    assert_eq!((world.active_pods().len(), world.conditions("j")), (1, vec![]));
    world.cluster.unfreeze_watches("pods");
    pass(200 * SEC).await;
    assert_eq!(world.active_pods(), [""; 0]);
    assert_eq!(world.conditions("j"), ["Suspended=True JobSuspended"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_059_a_job_created_suspended_has_no_pods_and_no_start_time() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "suspend": true }));
    pass(5 * SEC).await;
    assert_eq!((world.pods(), world.status("j").get("startTime")), (vec![], None));
    assert_eq!(
        (world.conditions("j"), world.count("j", "active")),
        (vec!["Suspended=True JobSuspended".to_owned()], 0)
    );
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_060_a_suspended_job_with_zero_completions_completes() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "suspend": true, "completions": 0 }));
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_062_a_deleting_job_is_not_suspended_and_its_pods_lose_their_finalizers() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({}));
    pass(5 * SEC).await;
    world.run_pod(&world.active_pods()[0]);
    pass(3 * SEC).await;
    world.cluster.update("jobs.batch", "n", "j", |it| it["metadata"]["finalizers"] = json!(["foregroundDeletion"]));
    world.cluster.delete("jobs.batch", "n", "j");
    world.edit("j", |spec| spec["suspend"] = json!(true));
    pass(5 * SEC).await;
    assert_eq!((world.conditions("j"), world.active_pods().len(), world.with_finalizer()), (vec![], 1, 0));
    assert_eq!(world.call_count("delete pods"), 0);
}

fn pod_of(job: &Value, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "n", "labels": job["spec"]["template"]["metadata"]["labels"],
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job["metadata"]["uid"],
                "controller": true }] },
        "spec": { "nodeName": "node", "containers": [{ "name": "c", "image": "i" }] },
        "status": { "phase": "Succeeded" },
    })
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_063_a_job_managed_by_any_other_controller_is_ignored() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 1, "completions": 5 }));
    pass(5 * SEC).await;
    // The key is queued when the Job is deleted, and another controller's Job has the name then.
    world.edit("j", |spec| spec["parallelism"] = json!(2));
    for pod in world.pods() {
        world.cluster.remove("pods", "n", &pod);
    }
    world.cluster.remove("jobs.batch", "n", "j");
    let theirs = world.job("j", json!({ "managedBy": "example.com/controller" }));
    world.cluster.clear_requests();
    world.cluster.create(pod_of(&theirs, "theirs"));
    pass(5 * SEC).await;
    world.delete_pod_gracefully("theirs");
    pass(5 * SEC).await;
    assert_eq!((world.lines(), world.has_finalizer("theirs")), (vec![], true));
    let external = r#"job_controller_jobs_by_external_controller_total{controller_name="example.com/controller"}"#;
    assert_eq!(manager.metric(external), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_064_our_own_name_in_managed_by_changes_nothing() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "managedBy": "kubernetes.io/job-controller" }));
    pass(5 * SEC).await;
    world.succeed(&world.active_pods()[0]);
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
}
