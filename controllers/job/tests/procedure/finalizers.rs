//! Each ended pod is counted exactly once, whatever fails in between.

use harness::{failure, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{FINALIZER, MS, SEC, World};

#[tokio::test(start_paused = true)]
async fn acceptance_job_012_a_finalizer_is_removed_after_the_status_lists_its_pod() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 1, "completions": 2 }));
    pass(5 * SEC).await;
    let pod = world.active_pods()[0].clone();
    let uid = world.pod(&pod)["metadata"]["uid"].clone();
    world.cluster.clear_requests();
    world.succeed(&pod);
    pass(3 * SEC).await;
    let calls = world.calls();
    let named = calls.iter().position(|it| {
        it.subresource == "status" && it.json()["status"]["uncountedTerminatedPods"]["succeeded"] == json!([uid])
    });
    let removal = calls.iter().position(|it| it.verb == "patch" && it.name == pod);
    assert!(named.unwrap() < removal.unwrap(), "{:?}", world.lines());
    assert_eq!(calls[removal.unwrap()].json()["metadata"]["uid"], uid, "the patch has the uid of the pod");
    assert!(!world.has_finalizer(&pod));
    assert_eq!((world.count("j", "succeeded"), &world.status("j")["uncountedTerminatedPods"]), (1, &json!({})));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_013_a_crash_before_finalizer_removals_counts_once() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 2, "completions": 2 }));
    pass(5 * SEC).await;
    world.fail_requests(|line, _| line.starts_with("patch pods").then_some(Interception::Hang));
    world.active_pods().iter().for_each(|it| world.succeed(it));
    pass(5 * SEC).await;
    assert_eq!(world.with_finalizer(), 2);
    assert_eq!(world.status("j")["uncountedTerminatedPods"]["succeeded"].as_array().map(Vec::len), Some(2));
    drop(manager);
    world.cluster.stop_intercepting();
    let _manager = world.start().await;
    pass(5 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.with_finalizer(), world.pods().len()), (2, 0, 2));
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_014_a_crash_after_finalizer_removals_counts_once() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 2, "completions": 2 }));
    pass(5 * SEC).await;
    let pods = world.active_pods();
    world.succeed(&pods[0]);
    // Its finalizer is removed, but the response is lost and the manager crashes.
    world.fail_requests(|line, _| line.starts_with("patch pods").then_some(Interception::LoseAnswer));
    pass(200 * MS).await;
    drop(manager);
    world.cluster.stop_intercepting();
    assert!(!world.has_finalizer(&pods[0]));
    assert_eq!(world.status("j")["uncountedTerminatedPods"]["succeeded"].as_array().map(Vec::len), Some(1));
    let _manager = world.start().await;
    pass(5 * SEC).await;
    assert_eq!(world.count("j", "succeeded"), 1);
    world.succeed(&pods[1]);
    pass(5 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.pods().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_015_a_pod_deleted_while_the_status_lists_it_is_counted() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 1, "completions": 2 }));
    pass(5 * SEC).await;
    world.fail_requests(|line, _| if line.starts_with("patch pods") { failure(500, "InternalError") } else { None });
    let pod = world.active_pods()[0].clone();
    world.succeed(&pod);
    pass(500 * MS).await;
    assert!(world.has_finalizer(&pod));
    world.cluster.remove("pods", "n", &pod);
    world.cluster.stop_intercepting();
    pass(5 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.count("j", "failed")), (1, 0));
    assert_eq!(world.status("j")["uncountedTerminatedPods"], json!({}));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_016_without_a_stored_status_no_finalizer_is_removed() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 2, "completions": 2 }));
    pass(5 * SEC).await;
    world.fail_requests(
        |line, _| if line.starts_with("update jobs/status") { failure(500, "InternalError") } else { None },
    );
    world.active_pods().iter().for_each(|it| world.succeed(it));
    pass(20 * SEC).await;
    assert_eq!((world.with_finalizer(), world.call_count("patch pods")), (2, 0));
    world.cluster.stop_intercepting();
    pass(60 * SEC).await;
    assert_eq!((world.with_finalizer(), world.count("j", "succeeded")), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_017_removed_finalizers_are_counted_though_others_remain_and_the_job_does_not_end() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 3, "completions": 3 }));
    pass(5 * SEC).await;
    let pods = world.active_pods();
    let stuck = format!("patch pods {}", pods[0]);
    world.fail_requests(move |line, _| if line == stuck { failure(500, "InternalError") } else { None });
    pods.iter().for_each(|it| world.succeed(it));
    pass(10 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.with_finalizer()), (2, 1));
    assert_eq!(world.status("j")["uncountedTerminatedPods"]["succeeded"].as_array().map(Vec::len), Some(1));
    assert_eq!(world.conditions("j"), ["SuccessCriteriaMet=True CompletionsReached"]);
    let failed = r#"job_controller_job_syncs_total{action="tracking",completion_mode="NonIndexed",result="error"}"#;
    assert!(manager.metric(failed) >= 1, "{}", manager.metrics_page());
    world.cluster.stop_intercepting();
    pass(60 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.with_finalizer()), (3, 0));
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_018_five_hundred_pods_are_recorded_in_a_sync_and_the_rest_later() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 501, "completions": 501 }));
    pass(10 * SEC).await;
    drop(manager);
    let pods = world.active_pods();
    assert_eq!(pods.len(), 501);
    pods.iter().for_each(|it| world.succeed(it));
    world.cluster.clear_requests();
    let _manager = world.start().await;
    pass(500 * MS).await;
    let first = world.calls().into_iter().find(|it| it.subresource == "status").unwrap().json();
    assert_eq!(first["status"]["uncountedTerminatedPods"]["succeeded"].as_array().map(Vec::len), Some(500));
    assert!(!world.conditions("j").iter().any(|it| it.starts_with("Complete")), "{:?}", world.conditions("j"));
    pass(10 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.with_finalizer(), world.pods().len()), (501, 0, 501));
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_019_a_pod_that_the_cache_still_shows_is_not_counted_again() {
    let world = World::new();
    let options = job_controller::Options { read_own_writes: false, ..Default::default() };
    let _manager = world.start_with(options).await;
    world.job("j", json!({ "parallelism": 1, "completions": 3 }));
    pass(5 * SEC).await;
    let pod = world.active_pods()[0].clone();
    let patch = format!("patch pods {pod}");
    let (cluster, wanted) = (world.cluster.clone(), patch.clone());
    // The cache shows that the pod has ended, but not that its finalizer was removed.
    world.fail_requests(move |line, _| {
        if line == wanted {
            cluster.freeze_watches("pods");
        }
        None
    });
    world.succeed(&pod);
    for _ in 0..5 {
        pass(2 * SEC).await;
        world
            .cluster
            .update("jobs.batch", "n", "j", |it| it["metadata"]["annotations"] = json!({ "at": world.second() }));
    }
    pass(2 * SEC).await;
    assert!(!world.has_finalizer(&pod));
    assert_eq!((world.count("j", "succeeded"), world.call_count(&patch)), (1, 1), "{}", world.status("j"));
    world.cluster.stop_intercepting();
    world.cluster.unfreeze_watches("pods");
    pass(200 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.call_count(&patch), world.with_finalizer()), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_counted_pod_is_not_counted_again_after_it_lost_its_owner() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 1, "completions": 3, "backoffLimit": 9 }));
    pass(5 * SEC).await;
    let well = world.active_pods()[0].clone();
    world.succeed(&well);
    pass(5 * SEC).await;
    let badly = world.active_pods()[0].clone();
    world.fail(&badly);
    pass(30 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.count("j", "failed"), world.has_finalizer(&well)), (1, 1, false));
    for pod in [&well, &badly] {
        world.cluster.update("pods", "n", pod, |it| it["metadata"]["ownerReferences"] = json!([]));
    }
    pass(10 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.count("j", "failed")), (1, 1), "{}", world.status("j"));
    assert!(!world.has_finalizer(&well) && !world.has_finalizer(&badly));
    // A pod that is not counted yet is adopted and counted.
    let open = world.active_pods()[0].clone();
    world.cluster.update("pods", "n", &open, |it| it["metadata"]["ownerReferences"] = json!([]));
    world.succeed(&open);
    pass(10 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.has_finalizer(&open)), (2, false));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_021_a_running_pod_that_a_user_deletes_has_failed_and_is_replaced_at_once() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({}));
    pass(5 * SEC).await;
    let pod = world.active_pods()[0].clone();
    world.run_pod(&pod);
    pass(5 * SEC).await;
    world.delete_pod_gracefully(&pod);
    pass(500 * MS).await;
    // The failure delays the next pod, but it is counted at once.
    assert!(!world.has_finalizer(&pod));
    pass(12 * SEC).await;
    assert_eq!((world.count("j", "failed"), world.active_pods().len()), (1, 1));
    assert_eq!(world.count("j", "terminating"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_007_unfulfilled_expectations_delay_creations_and_not_counting() {
    let world = World::new();
    let options = job_controller::Options { read_own_writes: false, ..Default::default() };
    let _manager = world.start_with(options).await;
    world.job("j", json!({ "parallelism": 2, "completions": 9 }));
    pass(5 * SEC).await;
    let pods = world.active_pods();
    // One pod ends, and the cache does not show its replacement.
    world.fail_requests(|line, _| (line == "create pods").then_some(Interception::Delay(100 * MS)));
    world.succeed(&pods[0]);
    pass(50 * MS).await;
    world.cluster.freeze_watches("pods");
    pass(5 * SEC).await;
    let created = world.call_count("create pods");
    assert_eq!(created, 3);
    world.edit("j", |spec| spec["parallelism"] = json!(5));
    pass(5 * SEC).await;
    assert_eq!(world.call_count("create pods"), created, "no creation before the third pod is observed");
    assert_eq!(world.count("j", "succeeded"), 1, "ended pods are counted");
    world.cluster.unfreeze_watches("pods");
    pass(200 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.active_pods().len()), (6, 5));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_047_a_failed_pod_keeps_the_failure_count_until_its_replacement_is_active() {
    let world = World::new();
    let _manager = world.start().await;
    world.job(
        "j",
        json!({ "parallelism": 1, "completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 3 }),
    );
    pass(5 * SEC).await;
    let pod = world.active_pods()[0].clone();
    assert_eq!(world.pod(&pod)["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"], "0");
    world.fail(&pod);
    pass(3 * SEC).await;
    world.cluster.delete("pods", "n", &pod);
    pass(3 * SEC).await;
    assert!(world.has_finalizer(&pod), "only this pod has the failure count");
    pass(10 * SEC).await;
    let next = world.active_pods()[0].clone();
    assert_eq!(world.pod(&next)["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"], "1");
    assert_eq!((world.pods(), world.count("j", "failed")), (vec![next], 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_kept_for_its_failure_count_does_not_block_namespace_deletion() {
    let world = World::new();
    let _manager = world.start().await;
    world.job(
        "j",
        json!({ "parallelism": 3, "completions": 3, "completionMode": "Indexed", "backoffLimitPerIndex": 3 }),
    );
    pass(5 * SEC).await;
    let pods = world.active_pods();
    world.fail(&pods[0]);
    pass(3 * SEC).await;
    // Its pods are deleted first, and the Job only when they are gone.
    world.cluster.delete("namespaces", "", "n");
    for pod in &pods {
        world.cluster.delete("pods", "n", pod);
    }
    pass(60 * SEC).await;
    assert_eq!((world.pods(), world.count("j", "failed")), (Vec::new(), 3), "each pod is counted before it is deleted");
    assert_eq!(world.conditions("j"), Vec::<String>::new());
    let tries = world.call_count("create pods") - 3;
    assert!((1..=5).contains(&tries), "{tries}: few retries");
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_with_the_metadata_and_nothing_else() {
    let world = World::new();
    let _manager = world.start().await;
    let job = world.job("j", json!({}));
    pass(5 * SEC).await;
    world.cluster.clear_requests();
    world.succeed(&world.active_pods()[0]);
    pass(5 * SEC).await;
    let puts: Vec<_> = world.calls().into_iter().filter(|it| it.subresource == "status").map(|it| it.json()).collect();
    assert!(!puts.is_empty());
    for put in puts {
        let fields: Vec<&str> = put.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["apiVersion", "kind", "metadata", "status"]);
    }
    assert_eq!(world.cluster.get("jobs.batch", "n", "j").unwrap()["spec"], job["spec"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_kept_for_its_failure_count_in_an_inactive_job_does_not_block_namespace_deletion() {
    for still in [json!({ "suspend": true }), json!({ "parallelism": 0 })] {
        let world = World::new();
        let _manager = world.start().await;
        world.job(
            "j",
            json!({ "parallelism": 1, "completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 3 }),
        );
        pass(5 * SEC).await;
        let pod = world.active_pods()[0].clone();
        world.fail(&pod);
        pass(3 * SEC).await;
        world.edit("j", |spec| {
            for (field, value) in still.as_object().unwrap() {
                spec[field] = value.clone();
            }
        });
        pass(30 * SEC).await;
        // A user deletes the pod. The next pod of the index, if there is one, needs its failure count.
        world.cluster.delete("pods", "n", &pod);
        pass(300 * SEC).await;
        assert!(world.has_finalizer(&pod), "{still}");
        assert!(world.call_count("create pods") <= 1 + 7, "{still}: few retries");
        // No event of the pod comes when its namespace is deleted.
        world.cluster.delete("namespaces", "", "n");
        pass(70 * SEC).await;
        assert_eq!((world.pods(), world.count("j", "failed")), (Vec::new(), 1), "{still}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_finalizers_are_kept() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({}));
    pass(5 * SEC).await;
    let pod = world.active_pods()[0].clone();
    world.cluster.update("pods", "n", &pod, |it| it["metadata"]["finalizers"] = json!(["example.com/x", FINALIZER]));
    world.succeed(&pod);
    pass(5 * SEC).await;
    assert_eq!(world.pod(&pod)["metadata"]["finalizers"], json!(["example.com/x"]));
}
