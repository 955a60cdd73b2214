//! Writes whose outcome is unknown.

use std::sync::{Arc, Mutex};

use harness::{NAMESPACE, pass};
use replicaset_controller::Options;
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, WITHOUT_GATE, World, waiting};

/// Upstream creates another pod, and deletes one of the two.
#[tokio::test(start_paused = true)]
async fn a_creation_without_an_answer_does_not_lead_to_two_pods() {
    for options in [Options::default(), WITHOUT_GATE] {
        for fate in [Interception::LoseAnswer, Interception::Fail] {
            let world = World::new();
            let manager = world.start_with(options).await;
            world.cluster.freeze_watches("pods");
            world.fail_first("create pods", &fate);
            world.set(3, json!({}));
            pass(10 * SEC).await;
            assert_eq!(world.call_count("create pods"), 1, "{fate:?}");
            world.cluster.unfreeze_watches("pods");
            pass(120 * SEC).await;
            assert_eq!((world.pods().len(), world.call_count("delete pods"), waiting(&manager)), (3, 0, 0), "{fate:?}");
        }
    }
}

/// The response shows that the request has ended. If the cache shows all pods of the namespace, it was not created.
#[tokio::test(start_paused = true)]
async fn a_creation_that_the_server_failed_is_repeated_at_once_in_an_idle_cluster() {
    for options in [Options::default(), WITHOUT_GATE] {
        let world = World::new();
        world.add_pod("another");
        world.relabel("another", "mine");
        let _manager = world.start_with(options).await;
        world.fail_first("create pods", &Interception::status(500, "InternalError", "not now"));
        world.set(3, json!({}));
        pass(SEC).await;
        assert_eq!((world.own().len(), world.call_count("create pods")), (3, 4));
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_the_server_failed_is_not_repeated_while_the_cache_lacks_pods() {
    let world = World::new();
    let manager = world.start().await;
    world.fail_first("create pods", &Interception::status(500, "InternalError", "not now"));
    world.cluster.freeze_watches("pods");
    world.add_pod("another");
    world.relabel("another", "mine");
    world.set(3, json!({}));
    pass(10 * SEC).await;
    assert_eq!((world.call_count("create pods"), waiting(&manager)), (1, 1));
    world.cluster.unfreeze_watches("pods");
    pass(SEC).await;
    assert_eq!((world.own().len(), world.call_count("create pods"), waiting(&manager)), (3, 4, 0));
}

#[tokio::test(start_paused = true)]
async fn creations_that_the_server_always_fails_are_repeated_with_back_off() {
    let world = World::new();
    let _manager = world.start().await;
    world.fail_requests(|line, _| {
        (line == "create pods").then(|| Interception::status(500, "InternalError", "not now"))
    });
    world.set(3, json!({}));
    pass(60 * SEC).await;
    let times = world.call_times("create pods");
    let delays: Vec<_> = times.windows(2).map(|it| it[1] - it[0]).collect();
    assert!((8..=16).contains(&times.len()) && delays.last() > Some(&(10 * SEC)), "{delays:?}");
    assert_eq!(world.failure_reason().as_deref(), Some("FailedCreate"));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_an_answer_is_sent_again_for_the_same_pod() {
    for fate in [Interception::LoseAnswer, Interception::Fail] {
        let (world, manager) = World::running(3, json!({})).await;
        world.cluster.freeze_watches("pods");
        world.fail_first("delete pods", &fate);
        world.scale(2);
        pass(10 * SEC).await;
        let lines = world.lines();
        let deleted: Vec<&String> = lines.iter().filter(|it| it.starts_with("delete pods")).collect();
        assert!(deleted.len() > 1 && deleted.iter().all(|it| *it == deleted[0]), "{fate:?}: {deleted:?}");
        assert_eq!(world.active_pods().len(), 2);
        world.cluster.unfreeze_watches("pods");
        pass(10 * SEC).await;
        assert_eq!((world.own().len(), world.call_count("create pods"), waiting(&manager)), (2, 0, 0), "{fate:?}");
    }
}

/// No request can be running any more, and the pod is unchanged.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_never_gets_an_answer_prevents_no_others_for_longer_than_it_may_run() {
    let (world, manager) = World::running(5, json!({})).await;
    world.fail_first_deletion(Interception::Fail);
    world.scale(4);
    pass(80 * SEC).await;
    assert!(world.call_count("delete pods") > 2);
    assert_eq!((world.own().len(), waiting(&manager)), (5, 1));
    world.scale(1);
    pass(80 * SEC).await;
    assert_eq!((world.own().len(), waiting(&manager)), (2, 1), "the others are deleted");
    world.scale(2);
    pass(120 * SEC).await;
    assert_eq!((world.own().len(), waiting(&manager)), (2, 0));
}

/// The deletion was for an older state of the pod, so it can never happen.
#[tokio::test(start_paused = true)]
async fn a_deletion_without_an_answer_ends_when_the_pod_has_changed() {
    let (world, manager) = World::running(2, json!({})).await;
    world.fail_requests(|line, _| line.starts_with("delete pods").then_some(Interception::Fail));
    world.scale(1);
    pass(30 * SEC).await;
    assert_eq!(waiting(&manager), 1);
    world.cluster.stop_intercepting();
    for pod in world.pods() {
        world.cluster.update("pods", NAMESPACE, &pod, |it| it["metadata"]["annotations"] = json!({ "a": "b" }));
    }
    pass(11 * SEC).await;
    assert_eq!((waiting(&manager), world.own().len(), world.active_pods().len()), (0, 1, 1));
}

/// The pods have changed, so a deletion of their older state can never succeed.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_conflicts_is_not_repeated_while_the_cache_is_late() {
    let (world, manager) = World::running(3, json!({})).await;
    world.cluster.freeze_watches("pods");
    for pod in world.pods() {
        world.cluster.update("pods", NAMESPACE, &pod, |it| it["metadata"]["annotations"] = json!({ "a": "b" }));
    }
    world.scale(2);
    pass(30 * SEC).await;
    assert_eq!((world.call_count("delete pods"), world.own().len(), waiting(&manager)), (1, 3, 1));
    world.cluster.unfreeze_watches("pods");
    pass(SEC).await;
    assert_eq!((world.call_count("delete pods"), world.own().len(), waiting(&manager)), (2, 2, 0));
}

/// Upstream forgets deletions that failed. To repeat this one would delete a pod that the set wants.
#[tokio::test(start_paused = true)]
async fn a_deletion_without_an_answer_is_not_repeated_when_the_pod_is_wanted_again() {
    let (world, manager) = World::running(3, json!({})).await;
    world.fail_requests(|line, _| line.starts_with("delete pods").then_some(Interception::Fail));
    world.scale(1);
    pass(SEC).await;
    assert_eq!(waiting(&manager), 1);
    world.scale(3);
    pass(100 * MS).await;
    world.cluster.stop_intercepting();
    pass(60 * SEC).await;
    assert_eq!((world.own().len(), world.call_count("create pods"), waiting(&manager)), (3, 0, 0));
}

/// Upstream counts it, so that a Deployment deletes a ready pod of another set.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_wanted_again_and_may_still_be_deleted_does_not_count_as_ready() {
    let (world, _manager) = World::running(3, json!({})).await;
    pass(10 * SEC).await;
    assert_eq!(world.count("readyReplicas"), 3);
    let no_answer = || Interception::status(504, "Timeout", "request timed out");
    world.fail_requests(move |line, _| line.starts_with("delete pods").then(no_answer));
    world.scale(2);
    pass(100 * MS).await;
    world.scale(3);
    pass(100 * MS).await;
    world.cluster.stop_intercepting();
    pass(10 * SEC).await;
    assert_eq!((world.count("readyReplicas"), world.count("replicas")), (2, 3));
    pass(90 * SEC).await;
    assert_eq!((world.count("readyReplicas"), world.call_count("create pods")), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn no_more_deletions_are_repeated_than_pods_are_surplus() {
    let (world, manager) = World::running(5, json!({})).await;
    world.fail_requests(|line, _| line.starts_with("delete pods").then_some(Interception::Fail));
    world.scale(2);
    pass(SEC).await;
    world.cluster.clear_requests();
    world.scale(4);
    pass(80 * SEC).await;
    let mut lines = world.lines();
    lines.retain(|it| it.starts_with("delete pods"));
    assert!((2..10).contains(&lines.len()) && lines.iter().all(|it| *it == lines[0]), "one of the three: {lines:?}");
    world.cluster.clear_requests();
    pass(5 * SEC).await;
    assert_eq!(world.call_count("delete pods"), 0, "for some seconds only");
    world.cluster.stop_intercepting();
    pass(120 * SEC).await;
    assert_eq!((world.own().len(), world.call_count("create pods"), waiting(&manager)), (4, 0, 0));
}

/// Two of three deletions have happened, and the cache shows none. The third one is not surplus any more.
#[tokio::test(start_paused = true)]
async fn deletions_that_the_cache_does_not_show_are_no_surplus() {
    let (world, manager) = World::running(5, json!({})).await;
    let (mut first, late) = (None::<String>, world.cluster.clone());
    world.fail_requests(move |line, _| {
        late.freeze_watches("pods");
        let is_lost = line.starts_with("delete pods") && first.get_or_insert_with(|| line.to_owned()) == line;
        is_lost.then_some(Interception::Fail)
    });
    world.scale(2);
    pass(SEC).await;
    assert_eq!((world.active_pods().len(), waiting(&manager)), (3, 1));
    world.scale(3);
    pass(100 * MS).await;
    world.cluster.stop_intercepting();
    pass(5 * SEC).await;
    assert_eq!(world.active_pods().len(), 3, "{:?}", world.lines());
    world.cluster.unfreeze_watches("pods");
    pass(60 * SEC).await;
    assert_eq!((world.own().len(), world.call_count("create pods"), waiting(&manager)), (3, 0, 0));
}

/// The server says that it has failed, so the outcome is read after each back-off.
#[tokio::test(start_paused = true)]
async fn a_creation_that_always_fails_does_not_delay_the_count_of_available_pods() {
    let world = World::new();
    let mut count = 0;
    world.fail_requests(move |line, _| {
        count += usize::from(line == "create pods");
        (line == "create pods" && count > 1).then(|| Interception::status(500, "InternalError", "no quorum"))
    });
    let _manager = world.start().await;
    world.set(2, json!({ "minReadySeconds": 30 }));
    pass(90 * SEC).await;
    world.run_pod(&world.own()[0]);
    pass(28 * SEC).await;
    assert_eq!((world.count("readyReplicas"), world.count("availableReplicas")), (1, 0));
    pass(5 * SEC).await;
    assert_eq!(world.count("availableReplicas"), 1);
}

/// The timeout of expectations counts from the first request. The server is read when the last one has certainly ended.
#[tokio::test(start_paused = true)]
async fn expectations_do_not_expire_while_a_creation_may_be_stored() {
    let world = World::new();
    let (mut count, lost) = (0, Arc::new(Mutex::new(None)));
    let kept = lost.clone();
    world.fail_requests(move |line, call| {
        if line != "create pods" {
            return None;
        }
        count += 1;
        if count < 500 {
            return Some(Interception::Delay(25 * SEC));
        }
        kept.lock().unwrap().get_or_insert_with(|| call.json());
        Some(Interception::status(504, "Timeout", "request timed out"))
    });
    let _manager = world.start().await;
    world.set(500, json!({}));
    pass(400 * SEC).await;
    assert_eq!(world.call_count("create pods"), 500, "the last one may still be stored");
    let mut pod = lost.lock().unwrap().take().unwrap();
    pod["metadata"]["namespace"] = json!(NAMESPACE);
    pod["metadata"]["name"] = json!("late");
    world.cluster.create(pod);
    pass(300 * SEC).await;
    assert_eq!((world.own().len(), world.call_count("create pods")), (500, 500));
}
