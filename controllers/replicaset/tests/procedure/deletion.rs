//! Deletion of surplus pods.

use harness::{NAMESPACE, failure, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{MS, SEC, World, waiting};

#[tokio::test(start_paused = true)]
async fn acceptance_rs_015_surplus_pods_are_deleted_once() {
    let (world, manager) = World::running(4, json!({})).await;
    world.cluster.freeze_watches("pods");
    world.scale(2);
    pass(SEC).await;
    assert_eq!((world.call_count("delete pods"), waiting(&manager)), (2, 1));
    world.touch_set("again");
    pass(SEC).await;
    assert_eq!((world.call_count("delete pods"), waiting(&manager)), (2, 1));
    world.cluster.unfreeze_watches("pods");
    pass(SEC).await;
    assert_eq!((world.call_count("delete pods"), world.own().len(), waiting(&manager)), (2, 2, 0));
    assert_eq!(world.event_count("SuccessfulDelete").await, 2);
    assert_eq!((world.count("replicas"), world.count("terminatingReplicas")), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_016_a_sync_deletes_at_most_500() {
    let world = World::new();
    let manager = world.start().await;
    world.set(1_200, json!({}));
    pass(5 * SEC).await;
    assert_eq!(world.own().len(), 1_200);
    let ratios = || manager.metric("replicaset_controller_sorting_deletion_age_ratio_count");
    world.cluster.freeze_watches("pods");
    world.scale(0);
    pass(SEC).await;
    for total in [500, 1_000, 1_200] {
        assert_eq!(world.call_count("delete pods"), total);
        // The cache shows the deletions, and the next ones are stored before it can show those.
        let cluster = world.cluster.clone();
        let mut is_first = true;
        world.fail_requests(move |line, _| {
            if line.starts_with("delete pods") && std::mem::take(&mut is_first) {
                cluster.freeze_watches("pods");
            }
            None
        });
        world.cluster.unfreeze_watches("pods");
        pass(SEC).await;
    }
    assert_eq!((world.call_count("delete pods"), world.pods().len()), (1_200, 0));
    assert_eq!(ratios(), 0, "no pod was ready");
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_024_scaling_to_zero_deletes_all_pods_without_an_observation() {
    let (world, manager) = World::running(3, json!({})).await;
    pass(10 * SEC).await;
    let ratios = || manager.metric("replicaset_controller_sorting_deletion_age_ratio_count");
    world.scale(2);
    pass(SEC).await;
    assert_eq!((world.call_count("delete pods"), ratios()), (1, 1));
    world.scale(0);
    pass(SEC).await;
    assert_eq!((world.call_count("delete pods"), ratios(), world.own().len()), (3, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_025_a_pod_that_is_gone_already_is_no_error() {
    let (world, manager) = World::running(2, json!({})).await;
    world.cluster.freeze_watches("pods");
    let pods = world.pods();
    pods.iter().for_each(|it| world.cluster.remove("pods", NAMESPACE, it));
    world.scale(0);
    pass(SEC).await;
    assert_eq!((world.call_count("delete pods"), waiting(&manager)), (2, 1), "the cache still shows them");
    assert_eq!((world.event_count("SuccessfulDelete").await, world.event_count("FailedDelete").await), (0, 0));
    assert!(world.logged("cannot delete").is_empty());
    world.cluster.unfreeze_watches("pods");
    pass(100 * MS).await;
    assert_eq!((world.call_count("delete pods"), waiting(&manager)), (2, 0));
    world.scale(1);
    pass(SEC).await;
    assert_eq!(world.own().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_026_a_refused_deletion_is_reported_and_retried() {
    let (world, _manager) = World::running(2, json!({})).await;
    for (code, reason) in [(500, "InternalError"), (403, "Forbidden")] {
        world.cluster.clear_requests();
        world.fail_requests(move |line, _| if line.starts_with("delete pods") { failure(code, reason) } else { None });
        world.scale(1);
        pass(SEC).await;
        assert_eq!(world.failure_reason().as_deref(), Some("FailedDelete"), "{code}");
        assert_eq!(world.status()["conditions"][0]["message"], "unable to delete pods: not now");
        let times = world.call_times("delete pods");
        let has_pauses = times.windows(2).all(|it| it[1] - it[0] >= 4 * MS);
        assert!((4..=12).contains(&times.len()) && has_pauses, "{code}: {times:?}");
        let deleted: Vec<String> = world.lines().into_iter().filter(|it| it.starts_with("delete pods")).collect();
        assert!(deleted.iter().all(|it| *it == deleted[0]), "{deleted:?}");
        assert!(world.events().await.contains(&"Warning FailedDelete: Error deleting: not now".to_owned()));
        world.cluster.stop_intercepting();
        world.scale(2);
        pass(20 * SEC).await;
        assert_eq!(world.failure_reason(), None, "{code}");
    }
}

/// Upstream waits five minutes for the deletion of a pod that is not its own any more.
#[tokio::test(start_paused = true)]
async fn acceptance_rs_028_a_pod_to_delete_that_is_orphaned_instead_is_not_waited_for() {
    let (world, manager) = World::running(2, json!({})).await;
    // The server accepts the deletion, and does not do it.
    let accepted = || Interception::Answer { status: 200, headers: vec![], body: json!({}) };
    world.fail_requests(move |line, _| line.starts_with("delete pods").then(accepted));
    world.scale(1);
    pass(100 * MS).await;
    let pod_to_delete = world.lines().iter().find_map(|it| it.strip_prefix("delete pods ").map(str::to_owned)).unwrap();
    assert_eq!(waiting(&manager), 1);
    world.update_pod(&pod_to_delete, |it| {
        it["metadata"]["ownerReferences"] = json!([]);
        it["metadata"]["labels"] = json!({ "app": "mine" });
    });
    pass(100 * MS).await;
    assert_eq!(waiting(&manager), 0);
    world.scale(2);
    pass(SEC).await;
    assert_eq!((world.own().len(), world.pods().len(), waiting(&manager)), (2, 3, 0));
}

/// A webhook may answer so for one pod. A read shows that the pod is unchanged.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_deletion_always_fails_prevents_no_others() {
    let (world, manager) = World::running(5, json!({})).await;
    world.fail_first_deletion(failure(500, "InternalError").unwrap());
    world.scale(4);
    pass(SEC).await;
    assert_eq!(world.own().len(), 5);
    let attempts = world.call_count("delete pods");
    assert!((4..20).contains(&attempts), "with back-off: {attempts}");
    world.scale(1);
    pass(20 * SEC).await;
    world.scale(2);
    pass(20 * SEC).await;
    assert_eq!((world.own().len(), waiting(&manager)), (2, 0), "what is wanted meanwhile is done");
    world.cluster.stop_intercepting();
    world.scale(0);
    pass(60 * SEC).await;
    assert_eq!((world.own().len(), world.call_count("create pods"), waiting(&manager)), (0, 0, 0));
}

/// Upstream deletes all pods that it has planned to delete.
#[tokio::test(start_paused = true)]
async fn a_size_that_is_corrected_deletes_and_creates_no_further_pods() {
    let (world, manager) = World::running(200, json!({})).await;
    let is_slow = |line: &str| line.starts_with("delete pods") || line == "create pods";
    world.fail_requests(move |line, _| is_slow(line).then_some(Interception::Delay(SEC)));
    world.scale(0);
    pass(SEC / 2).await;
    let sent = world.call_count("delete pods");
    assert!((1..200).contains(&sent), "{sent}");
    world.scale(200);
    for _ in 0..200 {
        pass(10 * MS).await;
        let ready = world.count("readyReplicas");
        assert!(ready >= 200 - sent, "{ready} of {sent}");
    }
    assert_eq!(world.call_count("delete pods"), sent);
    pass(20 * SEC).await;
    assert_eq!((world.call_count("delete pods"), world.call_count("create pods")), (sent, sent));
    world.scale(1_000);
    pass(5 * SEC).await;
    world.scale(300);
    pass(60 * SEC).await;
    assert_eq!((world.own().len(), waiting(&manager)), (300, 0));
    let created = world.call_count("create pods");
    assert!(created < 700, "{created}");
}

/// The deletion happened, the answer was an error, and the cache does not show it.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_happened_although_the_server_failed_it_is_not_done_to_another_pod() {
    let (world, manager) = World::running(3, json!({})).await;
    let (cluster, mut first) = (world.cluster.clone(), true);
    world.fail_requests(move |line, call| {
        if !line.starts_with("delete pods") || !std::mem::take(&mut first) {
            return None;
        }
        cluster.freeze_watches("pods");
        cluster.remove("pods", NAMESPACE, &call.name);
        failure(500, "InternalError")
    });
    world.scale(2);
    // The order of the pods may change meanwhile, because it compares the magnitude of ages.
    for minute in 0..4 {
        pass(60 * SEC).await;
        world.touch_set(&minute.to_string());
    }
    pass(SEC).await;
    assert_eq!(world.pods().len(), 2);
    world.cluster.unfreeze_watches("pods");
    pass(20 * SEC).await;
    assert_eq!((world.own().len(), world.call_count("create pods"), waiting(&manager)), (2, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_029_a_pod_that_was_orphaned_or_replaced_meanwhile_survives() {
    let (world, _manager) = World::running(2, json!({})).await;
    world.cluster.freeze_watches("pods");
    let pods = world.pods();
    world.orphan(&pods[0]);
    let mut successor = world.pod(&pods[1]);
    world.cluster.remove("pods", NAMESPACE, &pods[1]);
    for field in ["uid", "resourceVersion", "ownerReferences", "creationTimestamp"] {
        successor["metadata"][field] = Value::Null;
    }
    successor["metadata"]["labels"] = json!({ "app": "mine" });
    world.cluster.create(successor);
    world.scale(0);
    pass(SEC).await;
    assert!(world.call_count("delete pods") >= 2);
    assert_eq!(world.active_pods().len(), 2);
    assert_eq!((world.event_count("FailedDelete").await, world.failure_reason()), (0, None));
    let preconditions = &world.bodies("delete")[0]["preconditions"];
    assert!(preconditions["uid"].is_string() && preconditions["resourceVersion"].is_string(), "{preconditions}");
    // The set sees the orphan, adopts it, and deletes it because it wants no pod.
    world.cluster.unfreeze_watches("pods");
    pass(5 * SEC).await;
    assert_eq!(world.active_pods(), [pods[1].clone()]);
}

/// A change of the pod that means nothing must not make its deletion wait for another event.
#[tokio::test(start_paused = true)]
async fn a_pod_that_has_changed_is_deleted_when_the_cache_shows_the_change() {
    let (world, _manager) = World::running(2, json!({})).await;
    world.cluster.freeze_watches("pods");
    for pod in world.pods() {
        world.update_pod(&pod, |it| it["metadata"]["annotations"] = json!({ "a": "b" }));
    }
    world.scale(1);
    pass(50 * MS).await;
    assert_eq!(world.active_pods().len(), 2);
    world.cluster.unfreeze_watches("pods");
    pass(SEC).await;
    assert_eq!(world.own().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_021_pods_of_other_revisions_of_the_deployment_count() {
    let world = World::new();
    let _manager = world.start().await;
    let deployment =
        json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d-uid", "controller": true }]);
    for (set, app, replicas) in [("rs", "new", 2), ("old", "old", 1)] {
        let selector = json!({ "matchLabels": { "app": app } });
        let template = json!({ "metadata": { "labels": { "app": app } },
            "spec": { "containers": [{ "name": "main", "image": "one" }] } });
        world.named_set(set, replicas, json!({ "selector": selector, "template": template }));
        let owned = |it: &mut Value| it["metadata"]["ownerReferences"] = deployment.clone();
        world.cluster.update("replicasets.apps", NAMESPACE, set, owned);
    }
    pass(SEC).await;
    let own = world.own();
    world.run_all();
    for pod in world.pods() {
        // The pod of the other revision is on the node of the second one.
        let node = if pod == own[0] { "a" } else { "b" };
        world.update_pod(&pod, |it| it["spec"]["nodeName"] = json!(node));
    }
    pass(SEC).await;
    world.scale(1);
    pass(SEC).await;
    assert_eq!(world.own(), [own[0].clone()]);
    // A sibling that does not decode only costs the spread.
    world.cluster.update("replicasets.apps", NAMESPACE, "old", |it| it["spec"]["replicas"] = json!("x"));
    world.scale(2);
    pass(SEC).await;
    world.scale(1);
    pass(SEC).await;
    assert_eq!(world.own().len(), 1);
}
