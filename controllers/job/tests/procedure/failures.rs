//! Quotas, terminating namespaces, lost responses, and pods that never end.

use harness::{NAMESPACE, failure, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{MS, SEC, World};

#[tokio::test(start_paused = true)]
async fn acceptance_job_006_an_exhausted_quota_costs_few_calls() {
    let world = World::new();
    let manager = world.start().await;
    let mut room = 10;
    world.fail_requests(move |line, _| {
        if line != "create pods" {
            return None;
        }
        if room == 0 {
            return Some(Interception::status(403, "Forbidden", "pods \"j-\" is forbidden: exceeded quota: q"));
        }
        room -= 1;
        None
    });
    world.job("j", json!({ "parallelism": 100, "completions": 100 }));
    pass(900 * MS).await;
    assert_eq!((world.call_count("create pods"), world.active_pods().len()), (1 + 2 + 4 + 8, 10));
    assert_eq!(world.count("j", "active"), 10, "created pods are reported");
    let failed = r#"job_controller_job_pods_creation_total{reason="new",status="failed"}"#;
    let created = r#"job_controller_job_pods_creation_total{reason="new",status="succeeded"}"#;
    assert_eq!((manager.metric(created), manager.metric(failed)), (10, 5));
    // The cache shows the created pods and nothing else is expected, so each retry makes one call.
    pass(10 * SEC).await;
    let tries = world.call_count("create pods") - 15;
    assert!((1..=4).contains(&tries), "{tries}");
    let event = "Warning FailedCreate: Error creating: pods \"j-\" is forbidden: exceeded quota: q";
    assert!(world.events().await.iter().any(|it| it == event));
}

#[tokio::test(start_paused = true)]
async fn acceptance_job_071_a_terminating_namespace_sends_no_event_and_leaves_no_expectation() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 4, "completions": 9 }));
    pass(5 * SEC).await;
    world.cluster.delete("namespaces", "", "n");
    let pods = world.active_pods();
    world.succeed(&pods[0]);
    pass(20 * SEC).await;
    let events = world.events().await;
    assert!(!events.iter().any(|it| it.contains("FailedCreate")), "{events:?}");
    assert_eq!((world.count("j", "active"), world.count("j", "succeeded")), (3, 1), "missing pods are not reported");
    let tries = world.call_count("create pods") - 4;
    assert!((1..=3).contains(&tries), "{tries}: few retries");
}

#[tokio::test(start_paused = true)]
async fn lost_create_response_does_not_create_twice() {
    let world = World::new();
    let _manager = world.start().await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        (line == "create pods" && std::mem::take(&mut first)).then_some(Interception::LoseAnswer)
    });
    world.job("j", json!({}));
    pass(60 * SEC).await;
    assert_eq!((world.active_pods().len(), world.call_count("create pods")), (1, 1));
    assert_eq!(world.count("j", "active"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lost_create_request_is_repeated_after_the_request_timeout() {
    let world = World::new();
    let _manager = world.start().await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        (line == "create pods" && std::mem::take(&mut first)).then_some(Interception::Fail)
    });
    world.job("j", json!({}));
    pass(85 * SEC).await;
    assert_eq!((world.active_pods().len(), world.call_count("create pods")), (0, 1));
    pass(80 * SEC).await;
    assert_eq!((world.active_pods().len(), world.call_count("create pods")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_create_with_a_server_error_is_repeated_when_the_cache_has_passed_it() {
    let world = World::new();
    let _manager = world.start().await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        if line == "create pods" && std::mem::take(&mut first) { failure(500, "InternalError") } else { None }
    });
    world.job("j", json!({}));
    pass(90 * SEC).await;
    assert_eq!((world.active_pods().len(), world.call_count("create pods")), (1, 2));
    let event = "Warning FailedCreate: Error creating: not now";
    assert!(world.events().await.iter().any(|it| it == event));
}

#[tokio::test(start_paused = true)]
async fn a_job_with_an_unobserved_create_ends_when_the_expectation_expires() {
    let world = World::new();
    let _manager = world.start().await;
    let mut tries = 0;
    world.fail_requests(move |line, _| {
        if line == "create pods" {
            tries += 1;
        }
        (line == "create pods" && tries == 2).then_some(Interception::Fail)
    });
    world.job("j", json!({ "parallelism": 2, "completions": 2, "backoffLimit": 0 }));
    pass(5 * SEC).await;
    world.fail(&world.active_pods()[0]);
    pass(5 * SEC).await;
    assert!(!world.conditions("j").iter().any(|it| it.starts_with("Failed")), "an unobserved pod may exist");
    pass(400 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Failed=True BackoffLimitExceeded");
    assert_eq!((world.count("j", "failed"), world.with_finalizer()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_unobserved_pod_that_ended_is_counted_while_the_job_is_suspended() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 1, "completions": 3 }));
    pass(5 * SEC).await;
    let pod = world.active_pods()[0].clone();
    world.run_pod(&pod);
    pass(5 * SEC).await;
    world.cluster.freeze_watches("pods");
    world.succeed(&pod);
    world.edit("j", |spec| spec["suspend"] = json!(true));
    pass(5 * SEC).await;
    assert!(world.has_finalizer(&pod), "the pod has ended, though the cache shows it active");
    world.cluster.unfreeze_watches("pods");
    pass(200 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.with_finalizer()), (1, 0));
    assert_eq!(world.conditions("j"), ["Suspended=True JobSuspended"]);
}

#[tokio::test(start_paused = true)]
async fn pods_released_by_another_client_are_replaced_up_to_twice_the_parallelism() {
    let world = World::new();
    let manager = world.start().await;
    // Each created pod loses its owner and labels at once.
    world.job("j", json!({ "parallelism": 2, "completions": 9 }));
    for _ in 0..30 {
        for pod in world.active_pods() {
            world.cluster.update("pods", "n", &pod, |it| {
                it["metadata"]["ownerReferences"] = json!([]);
                it["metadata"]["labels"] = json!({});
            });
        }
        pass(SEC).await;
    }
    assert_eq!(world.call_count("create pods"), 4);
    let limited = r#"mini_kcm_job_creations_limited_total{namespace="n"}"#;
    assert_eq!(manager.metric(limited), 1);
    let events = world.events().await;
    let event = |it: &&String| it.starts_with("Warning CreationLimited: ");
    assert_eq!(events.iter().filter(event).count(), 1, "{events:?}");
    // One of the pods ends and frees its slot.
    let pod = world.active_pods()[0].clone();
    world.fail(&pod);
    pass(5 * SEC).await;
    assert_eq!(world.call_count("create pods"), 5);
}

#[tokio::test(start_paused = true)]
async fn pods_deleted_without_a_watch_take_no_slot() {
    let world = World::new();
    let _manager = world.start().await;
    pass(5 * SEC).await;
    world.cluster.freeze_watches("pods");
    world.job("j", json!({ "parallelism": 1, "completions": 1 }));
    for _ in 0..3 {
        pass(5 * SEC).await;
        world.active_pods().iter().for_each(|it| world.cluster.remove("pods", "n", it));
        world.cluster.compact();
        world.cluster.break_watches("pods");
        world.cluster.unfreeze_watches("pods");
        // The expectation of the created pod expires after five minutes.
        pass(295 * SEC).await;
        world.cluster.freeze_watches("pods");
    }
    assert_eq!(world.call_count("create pods"), 3);
    world.cluster.unfreeze_watches("pods");
    pass(10 * SEC).await;
    world.active_pods().iter().for_each(|it| world.succeed(it));
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
}

#[tokio::test(start_paused = true)]
async fn unobserved_pods_that_are_gone_free_their_slots_at_once() {
    let world = World::new();
    // Otherwise the Job waits until the cache shows the first pod.
    let options = job_controller::Options { read_own_writes: false, ..Default::default() };
    let _manager = world.start_with(options).await;
    pass(5 * SEC).await;
    world.cluster.intercept(|call| {
        let reads = call.resource == "pods" && matches!(call.verb, "list" | "watch");
        reads.then(|| failure(503, "ServiceUnavailable")).flatten().unwrap_or(Interception::Pass)
    });
    world.cluster.break_watches("pods");
    world.job("j", json!({ "parallelism": 1, "completions": 1 }));
    // Each expectation expires after five minutes. The second pod takes the last slot.
    for _ in 0..130 {
        pass(5 * SEC).await;
        world.active_pods().iter().for_each(|it| world.cluster.remove("pods", "n", it));
    }
    assert_eq!(world.call_count("create pods"), 2);
    world.cluster.compact();
    world.cluster.stop_intercepting();
    // The informer retries within one minute.
    pass(60 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.active_pods().len()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn pods_that_lose_the_finalizer_are_replaced_up_to_twice_the_parallelism_and_then_rarely() {
    let world = World::new();
    let manager = world.start().await;
    world.job("j", json!({ "parallelism": 2, "completions": 2 }));
    let rob = || {
        for pod in world.active_pods() {
            world.cluster.update("pods", "n", &pod, |it| it["metadata"]["finalizers"] = json!([]));
        }
    };
    for _ in 0..60 {
        rob();
        pass(SEC).await;
    }
    assert_eq!((world.call_count("create pods"), world.call_count("delete pods")), (4, 4));
    assert_eq!(manager.metric(r#"mini_kcm_job_creations_limited_total{namespace="n"}"#), 1);
    let events = world.events().await;
    let event = |it: &&String| it.starts_with("Warning CreationLimited: ");
    assert_eq!(events.iter().filter(event).count(), 1, "{events:?}");
    // The user stops, and nothing else happens to the Job.
    pass(SEC * 600).await;
    assert_eq!((world.call_count("create pods"), world.active_pods().len()), (6, 2), "it retries later");
    world.active_pods().iter().for_each(|it| world.succeed(it));
    pass(5 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached");
}

#[tokio::test(start_paused = true)]
async fn untracked_pods_whose_deletion_fails_take_no_slot() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 3, "completions": 9 }));
    pass(5 * SEC).await;
    let mut left = 2;
    world.fail_requests(move |line, _| {
        let fails = line.starts_with("delete pods") && left > 0;
        left -= i32::from(fails);
        if fails { failure(500, "InternalError") } else { None }
    });
    world.edit("j", |spec| spec["parallelism"] = json!(1));
    pass(30 * SEC).await;
    assert_eq!(world.active_pods().len(), 1);
    world.succeed(&world.active_pods()[0]);
    pass(5 * SEC).await;
    world.succeed(&world.active_pods()[0]);
    pass(5 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.active_pods().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_status_conflict_is_retried_from_the_new_status() {
    let world = World::new();
    let _manager = world.start().await;
    world.job("j", json!({ "parallelism": 1, "completions": 2 }));
    pass(5 * SEC).await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        if line.starts_with("update jobs/status") && std::mem::take(&mut first) {
            failure(409, "Conflict")
        } else {
            None
        }
    });
    world.succeed(&world.active_pods()[0]);
    pass(5 * SEC).await;
    assert_eq!((world.count("j", "succeeded"), world.with_finalizer()), (1, 1));
    let puts: Vec<Value> =
        world.calls().into_iter().filter(|it| it.subresource == "status").map(|it| it.json()).collect();
    assert!(puts.iter().all(|it| it["metadata"]["resourceVersion"].is_string()), "each has a resourceVersion");
}

#[tokio::test(start_paused = true)]
async fn a_404_without_the_job_name_does_not_count_as_deleted() {
    let not_served = || Interception::status(404, "NotFound", "the server could not find the requested resource");
    for failing in ["update jobs/status", "patch pods"] {
        let world = World::new();
        let _manager = world.start().await;
        world.job("j", json!({}));
        pass(5 * SEC).await;
        world.fail_requests(move |line, _| line.starts_with(failing).then(not_served));
        world.succeed(&world.active_pods()[0]);
        pass(SEC).await;
        assert_eq!((world.with_finalizer(), world.count("j", "succeeded")), (1, 0), "{failing}");
        world.cluster.stop_intercepting();
        pass(20 * SEC).await;
        assert_eq!((world.with_finalizer(), world.count("j", "succeeded")), (0, 1), "{failing}");
        assert_eq!(world.conditions("j").last().unwrap(), "Complete=True CompletionsReached", "{failing}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopping_manager_starts_no_further_call() {
    let world = World::new();
    let manager = world.start().await;
    world.fail_requests(|line, _| (line == "create pods").then_some(Interception::DelayAnswer(SEC)));
    world.job("j", json!({ "parallelism": 100, "completions": 100 }));
    pass(500 * MS).await;
    manager.stop();
    pass(30 * SEC).await;
    assert!(world.call_count("create pods") <= 3, "{}", world.call_count("create pods"));
}

#[tokio::test(start_paused = true)]
async fn a_stop_after_a_finalizer_removal_still_deletes_the_pod() {
    for spec in [json!({ "suspend": true }), json!({ "parallelism": 1 })] {
        let world = World::new();
        let manager = world.start().await;
        world.job("j", json!({ "parallelism": 3, "completions": 9 }));
        pass(5 * SEC).await;
        world.fail_requests(|line, _| line.starts_with("patch pods").then_some(Interception::DelayAnswer(SEC)));
        let changes = spec.clone();
        world.edit("j", move |it| it.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone()));
        pass(500 * MS).await;
        manager.stop();
        pass(30 * SEC).await;
        assert!(world.call_count("patch pods") > 0, "{spec}");
        let unheld: Vec<String> = world.active_pods().into_iter().filter(|it| !world.has_finalizer(it)).collect();
        assert_eq!(unheld, [""; 0], "{spec}: active pods without finalizer would not be counted");
    }
}

/// The response to one of three creations is lost.
async fn lose_one_response(world: &World) {
    let mut creations = 0;
    world.fail_requests(move |line, _| {
        creations += i32::from(line == "create pods");
        (line == "create pods" && creations == 3).then_some(Interception::Fail)
    });
    world.job("j", json!({ "parallelism": 3, "completions": 9, "backoffLimit": 0 }));
    pass(5 * SEC).await;
    assert_eq!(world.active_pods().len(), 2, "the third pod is not observed");
}

#[tokio::test(start_paused = true)]
async fn a_lost_create_response_does_not_delay_a_suspension() {
    let world = World::new();
    let _manager = world.start().await;
    lose_one_response(&world).await;
    world.edit("j", |spec| spec["suspend"] = json!(true));
    pass(3 * SEC).await;
    assert_eq!((world.active_pods(), world.count("j", "active")), (vec![], 0));
    assert_eq!(world.conditions("j"), ["Suspended=True JobSuspended"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_create_response_delays_creations_but_not_a_lower_parallelism() {
    let world = World::new();
    let _manager = world.start().await;
    lose_one_response(&world).await;
    world.edit("j", |spec| spec["parallelism"] = json!(1));
    pass(3 * SEC).await;
    assert_eq!((world.active_pods().len(), world.count("j", "active")), (1, 1));
    let created = world.call_count("create pods");
    world.edit("j", |spec| spec["parallelism"] = json!(4));
    pass(60 * SEC).await;
    assert_eq!(world.call_count("create pods"), created, "one unobserved pod may exist");
    pass(60 * SEC).await;
    assert_eq!(world.active_pods().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_late_pod_of_a_lost_create_response_is_deleted_by_the_suspension() {
    let world = World::new();
    let _manager = world.start().await;
    lose_one_response(&world).await;
    let lost = world.calls().into_iter().filter(|it| it.verb == "create" && it.resource == "pods").nth(2);
    world.edit("j", |spec| spec["suspend"] = json!(true));
    pass(3 * SEC).await;
    assert_eq!((world.active_pods(), world.count("j", "active")), (vec![], 0));
    // The server stores it now.
    let mut late = lost.unwrap().json();
    late["apiVersion"] = json!("v1");
    late["kind"] = json!("Pod");
    late["metadata"]["name"] = json!("late");
    late["metadata"]["namespace"] = json!(NAMESPACE);
    world.cluster.create(late);
    assert_eq!(world.active_pods(), ["late"]);
    pass(5 * SEC).await;
    assert_eq!((world.active_pods(), world.with_finalizer(), world.count("j", "active")), (vec![], 0, 0));
    assert_eq!(world.conditions("j"), ["Suspended=True JobSuspended"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_create_response_delays_the_end_but_not_the_interim_condition() {
    let world = World::new();
    let _manager = world.start().await;
    lose_one_response(&world).await;
    world.fail(&world.active_pods()[0]);
    pass(5 * SEC).await;
    assert_eq!(
        (world.active_pods(), world.conditions("j")),
        (vec![], vec!["FailureTarget=True BackoffLimitExceeded".into()])
    );
    world.remove_terminating_pods();
    pass(60 * SEC).await;
    assert_eq!(world.conditions("j").len(), 1, "one unobserved pod may exist");
    pass(60 * SEC).await;
    assert_eq!(world.conditions("j").last().unwrap(), "Failed=True BackoffLimitExceeded");
    assert_eq!(world.count("j", "failed"), 2);
}
