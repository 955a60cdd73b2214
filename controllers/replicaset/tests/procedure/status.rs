//! Writes of the status.

use std::time::Duration;

use harness::{NAMESPACE, failure, pass};
use replicaset_controller::Options;
use serde_json::{Value, json};

use crate::world::{MS, SEC, STATUS, WITHOUT_GATE, World};

#[tokio::test(start_paused = true)]
async fn acceptance_rs_045_046_a_pod_becomes_available_exactly_when_it_is_due() {
    for min_ready in [5_u32, 3_600] {
        let world = World::new();
        let _manager = world.start().await;
        world.set(3, json!({ "minReadySeconds": min_ready }));
        pass(SEC).await;
        let pods = world.pods();
        world.sleep_until(10 * SEC).await;
        for (pod, millis) in pods.iter().zip([10_000, 12_300, 14_300]) {
            world.sleep_until(Duration::from_millis(millis)).await;
            world.run_pod(pod);
        }
        pass(10 * MS).await;
        assert_eq!((world.count("readyReplicas"), world.count("availableReplicas")), (3, 0));
        world.cluster.clear_requests();
        world.sleep_until((10 + min_ready) * SEC + 10 * MS).await;
        assert_eq!((world.count("readyReplicas"), world.count("availableReplicas")), (3, 1));
        pass(10 * SEC).await;
        // Times in the API are whole seconds.
        let due = [10, 12, 14].map(|it| (it + min_ready) * SEC);
        let times = world.call_times(STATUS);
        let is_exact = times.len() == 3 && times.iter().zip(due).all(|(it, due)| it.abs_diff(due) < 10 * MS);
        assert!(is_exact, "{times:?}");
        assert_eq!(world.count("availableReplicas"), 3);
    }
}

/// The delay until a pod is due must not be counted from the end of a sync whose requests take seconds.
#[tokio::test(start_paused = true)]
async fn a_pod_that_becomes_available_during_a_sync_is_counted_at_its_end() {
    let world = World::new();
    let _manager = world.start().await;
    world.set(1, json!({ "minReadySeconds": 10 }));
    pass(SEC).await;
    world.sleep_until(10 * SEC).await;
    world.run_all();
    world.sleep_until(18 * SEC).await;
    assert_eq!((world.count("readyReplicas"), world.count("availableReplicas")), (1, 0));
    world.fail_first(STATUS, &test_cluster::Interception::Delay(5 * SEC));
    world.update_set(|it| it["spec"]["template"]["metadata"]["annotations"] = json!({ "a": "b" }));
    world.sleep_until(23 * SEC + 500 * MS).await;
    assert_eq!(world.count("availableReplicas"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_049_a_conflict_is_repeated_once_with_the_state_of_the_server() {
    let (world, _manager) = World::running(1, json!({})).await;
    world.fail_first(STATUS, &failure(409, "Conflict").unwrap());
    world.update_set(|it| it["spec"]["minReadySeconds"] = json!(1));
    pass(3 * SEC).await;
    assert_eq!(world.lines()[..3], [STATUS, "get replicasets rs", STATUS]);
    assert_eq!(world.count("observedGeneration"), 2);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_049_a_second_conflict_is_an_error() {
    let (world, _manager) = World::running(1, json!({})).await;
    world.fail_requests(|line, _| if line == STATUS { failure(409, "Conflict") } else { None });
    world.scale(2);
    pass(SEC).await;
    let lines: Vec<String> = world.lines().into_iter().filter(|it| it.contains("replicasets")).collect();
    assert!(lines.len() > 4, "the sync is repeated: {lines:?}");
    assert!(lines.chunks_exact(3).all(|it| it == [STATUS, "get replicasets rs", STATUS]), "{lines:?}");
    assert!(!world.logged("cannot store the status").is_empty());
}

/// The cache shows the right status before it shows the one that was written in between.
#[tokio::test(start_paused = true)]
async fn a_status_that_is_outdated_when_its_event_comes_is_replaced() {
    let (world, _manager) = World::running_with(2, json!({}), WITHOUT_GATE).await;
    let set_ready = |status: &str| {
        let status = json!([{ "type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
        world.update_pod(&world.pods()[0], |it| it["status"]["conditions"] = status);
    };
    world.cluster.freeze_watches("replicasets");
    set_ready("False");
    pass(SEC).await;
    assert_eq!(world.count("readyReplicas"), 1);
    set_ready("True");
    pass(SEC).await;
    world.cluster.unfreeze_watches("replicasets");
    pass(SEC).await;
    assert_eq!(world.count("readyReplicas"), 2, "{:?}", world.lines());
}

/// Upstream writes the status of the old set to the new one.
#[tokio::test(start_paused = true)]
async fn a_status_is_never_written_to_another_set_of_the_same_name() {
    let (world, _manager) = World::running(1, json!({})).await;
    world.cluster.freeze_watches("replicasets");
    world.remove_set();
    world.set(5, json!({ "selector": { "matchLabels": { "app": "x" } } }));
    world.end_pod(&world.pods()[0], "Failed", 1);
    pass(SEC).await;
    assert_eq!(world.count("replicas"), 0);
    assert_eq!(world.lines().iter().filter(|it| *it == STATUS).count(), world.call_count("get replicasets rs"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_050_a_quota_is_shown_as_a_condition_until_the_pods_fit() {
    let world = World::new();
    world.quota(2);
    let _manager = world.start().await;
    world.set(3, json!({}));
    pass(5 * SEC).await;
    assert_eq!((world.failure_reason().as_deref(), world.own().len()), (Some("FailedCreate"), 2));
    let condition = &world.status()["conditions"][0];
    assert_eq!((&condition["status"], &condition["message"]), (&json!("True"), &json!("exceeded quota: q")));
    world.scale(2);
    pass(SEC).await;
    assert_eq!(world.failure_reason(), None);
}

/// Each message contains another generated name.
#[tokio::test(start_paused = true)]
async fn repeated_refusals_do_not_lead_to_repeated_writes() {
    let world = World::new();
    let mut count = 0;
    world.fail_requests(move |line, _| {
        count += 1;
        let message = format!("pods \"rs-{count:05}\" is forbidden");
        (line == "create pods").then(|| test_cluster::Interception::status(403, "Forbidden", &message))
    });
    let _manager = world.start().await;
    world.set(3, json!({}));
    pass(60 * SEC).await;
    assert!(world.call_count("create pods") > 8);
    assert_eq!(world.call_count(STATUS), 1, "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_051_terminating_pods_are_counted_if_the_gate_is_on() {
    let (world, manager) = World::running(2, json!({})).await;
    world.delete_pod_gracefully(&world.pods()[0]);
    pass(SEC).await;
    assert_eq!(world.status()["terminatingReplicas"], 1);
    world.remove_terminating_pods();
    pass(SEC).await;
    assert_eq!(world.status()["terminatingReplicas"], 0);
    manager.stop_and_wait().await;
    let off = world.start_with(Options { counts_terminating: false, ..Options::default() }).await;
    pass(SEC).await;
    assert_eq!(world.status()["terminatingReplicas"], Value::Null);
    off.stop_and_wait().await;
    let _on = world.start().await;
    pass(SEC).await;
    assert_eq!(world.status()["terminatingReplicas"], 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_052_a_failed_pod_does_not_count_as_terminating() {
    let (world, _manager) = World::running(2, json!({})).await;
    let pod = &world.pods()[0];
    world.update_pod(pod, |it| it["metadata"]["finalizers"] = json!(["example.com/hold"]));
    world.end_pod(pod, "Failed", 1);
    world.delete_pod_gracefully(pod);
    pass(SEC).await;
    assert_eq!((&world.status()["terminatingReplicas"], world.count("replicas")), (&json!(0), 2));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_053_pods_and_the_observed_generation_follow_the_replicas() {
    let (world, _manager) = World::running(1, json!({})).await;
    for (generation, replicas) in [(2, 3), (3, 0), (4, 2)] {
        world.scale(replicas);
        pass(SEC).await;
        assert_eq!((world.own().len(), world.count("replicas")), (replicas, replicas));
        assert_eq!(world.count("observedGeneration"), generation);
    }
}

/// Upstream writes the status for each pod.
#[tokio::test(start_paused = true)]
async fn counters_that_change_in_quick_succession_are_written_together() {
    let world = World::new();
    let _manager = world.start().await;
    world.set(50, json!({}));
    pass(SEC).await;
    world.cluster.clear_requests();
    for pod in world.pods() {
        world.run_pod(&pod);
        pass(20 * MS).await;
    }
    // One second.
    assert_eq!(world.count("availableReplicas"), 50, "the last one is written at once");
    let writes = world.call_count(STATUS);
    assert!((4..=6).contains(&writes), "{writes}");
    world.cluster.clear_requests();
    let pods = world.pods();
    for pod in &pods[..2] {
        world.cluster.update("pods", NAMESPACE, pod, |it| it["status"]["conditions"] = json!([]));
    }
    pass(500 * MS).await;
    assert_eq!(world.count("readyReplicas"), 48);
    assert!(world.call_count(STATUS) <= 2);
}

/// Upstream returns the error of the status only.
#[tokio::test(start_paused = true)]
async fn if_pods_and_status_fail_both_errors_are_logged() {
    let world = World::new();
    world.fail_requests(|line, _| match line {
        "create pods" => Some(test_cluster::Interception::status(403, "Forbidden", "no pods")),
        STATUS => Some(test_cluster::Interception::status(403, "Forbidden", "no status")),
        _ => None,
    });
    let _manager = world.start().await;
    world.set(1, json!({}));
    pass(SEC).await;
    assert!(!world.logged("no pods").is_empty() && !world.logged("no status").is_empty());
}
