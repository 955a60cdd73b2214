//! Rolling updates, with and without surge, and rollbacks.

use std::collections::{BTreeMap, BTreeSet};

use harness::{NAMESPACE, failure, name, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{SEC, World, custom_taint, on_delete, rolling, target, template};

/// How many requests have deleted and created pods.
fn counts(world: &World) -> (usize, usize) {
    (world.call_count("delete pods"), world.call_count("create pods"))
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_037_pods_are_replaced_in_groups_of_max_unavailable() {
    let (world, _manager) = World::running(5, json!({ "updateStrategy": rolling(2, 0) })).await;
    world.set_image("two");
    pass(SEC).await;
    assert_eq!(counts(&world), (2, 0));
    for (created, deleted) in [(2, 4), (4, 5), (5, 5)] {
        let before = counts(&world).0;
        world.remove_terminating_pods();
        pass(SEC).await;
        assert_eq!(counts(&world), (before, created), "a new pod is not available yet");
        world.run_pending();
        pass(SEC).await;
        assert_eq!(counts(&world), (deleted, created));
    }
    assert!(world.images().values().all(|it| it == "two"));
    assert_eq!((world.count("updatedNumberScheduled"), world.revisions().len()), (5, 2));
}

/// The order of upstream is random.
#[tokio::test(start_paused = true)]
async fn nodes_are_updated_in_the_order_of_their_names() {
    let (world, _manager) = World::running(4, json!({})).await;
    let nodes = world.node_of_pods();
    world.set_image("two");
    world.kubelet(30).await;
    let order: Vec<&str> = world.deleted().iter().map(|it| &*nodes[it]).collect();
    assert_eq!(order, ["node-1", "node-2", "node-3", "node-4"]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_over_changes_the_order_of_no_later_rollout() {
    for (code, reason) in [(409, "Conflict"), (403, "Forbidden")] {
        let (world, _manager) = World::running(4, json!({})).await;
        let (failing, mut first) = (format!("delete pods {}", world.pod_on("node-2")), true);
        world.fail_requests(
            move |line, _| {
                if line == failing && std::mem::take(&mut first) { failure(code, reason) } else { None }
            },
        );
        world.set_image("two");
        world.kubelet(30).await;
        assert!(world.images().values().all(|it| it == "two"), "{reason}: {:?}", world.images());
        let nodes = world.node_of_pods();
        world.cluster.clear_requests();
        world.set_image("three");
        world.kubelet(30).await;
        let order: Vec<&str> = world.deleted().iter().map(|it| &*nodes[it]).collect();
        assert_eq!(order, ["node-1", "node-2", "node-3", "node-4"], "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_answer_was_lost_changes_the_order_of_no_later_rollout() {
    let world = World::with_nodes(4);
    let _manager = world.start().await;
    let mut first = true;
    world.fail_requests(move |line, call| {
        let is_lost = line == "create pods" && target(&call.json()) == "node-2" && std::mem::take(&mut first);
        is_lost.then_some(Interception::LoseAnswer)
    });
    world.set(json!({}));
    world.kubelet(200).await;
    let nodes = world.node_of_pods();
    world.set_image("two");
    world.kubelet(30).await;
    let order: Vec<&str> = world.deleted().iter().map(|it| &*nodes[it]).collect();
    assert_eq!(order, ["node-1", "node-2", "node-3", "node-4"]);
}

/// A webhook may refuse with the code of a conflict.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_deletion_is_always_refused_does_not_stop_the_update_of_the_others() {
    let webhook = Interception::status(409, "Conflict", "admission webhook \"a.b.c\" denied the request: no");
    for refusal in [failure(403, "Forbidden").unwrap(), webhook] {
        let (world, _manager) = World::running(4, json!({})).await;
        let refused = format!("delete pods {}", world.pod_on("node-1"));
        world.fail_requests(move |line, _| (line == refused).then(|| refusal.clone()));
        world.set_image("two");
        world.kubelet(30).await;
        assert_eq!(world.images().values().collect::<Vec<_>>(), ["one", "two", "two", "two"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_second_pod_is_always_refused_does_not_stop_the_update_of_the_others() {
    let (world, _manager) = World::running(4, json!({ "updateStrategy": rolling(0, 1) })).await;
    world.fail_requests(|line, call| {
        let is_refused = line == "create pods" && target(&call.json()) == "node-1";
        if is_refused { failure(403, "Forbidden") } else { None }
    });
    world.set_image("two");
    world.kubelet(30).await;
    assert_eq!(world.images().values().collect::<Vec<_>>(), ["one", "two", "two", "two"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_pod_counts_as_unavailable_until_it_was_ready_for_min_ready_seconds() {
    let (world, _manager) = World::running(2, json!({ "minReadySeconds": 10 })).await;
    world.set_image("two");
    pass(SEC).await;
    world.remove_terminating_pods();
    pass(SEC).await;
    world.run_pending();
    pass(9 * SEC).await;
    assert_eq!(counts(&world), (1, 1));
    // No event says that the pod is available now.
    pass(3 * SEC).await;
    assert_eq!(counts(&world), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_043_pods_stay_when_only_metadata_of_the_set_changes() {
    let (world, _manager) = World::running(3, json!({})).await;
    world.update_set(|it| {
        it["metadata"]["labels"] = json!({ "a": "b" });
        it["metadata"]["annotations"]["example.com/a"] = json!("b");
    });
    pass(10 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    world.edit(|spec| spec["updateStrategy"] = rolling(2, 0));
    pass(10 * SEC).await;
    assert_eq!(world.lines(), ["update daemonsets/status web"], "the generation is observed");
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_045_on_delete_replaces_only_pods_that_the_user_deletes() {
    let (world, _manager) = World::running(3, json!({ "updateStrategy": on_delete() })).await;
    world.set_image("two");
    world.kubelet(20).await;
    assert_eq!((counts(&world), world.count("updatedNumberScheduled")), ((0, 0), 0));
    world.cluster.remove("pods", NAMESPACE, &world.pod_on("node-2"));
    world.kubelet(20).await;
    assert_eq!((counts(&world), world.count("updatedNumberScheduled")), ((0, 1), 1));
    let images = world.images();
    assert_eq!(["node-1", "node-2", "node-3"].map(|it| &*images[it]), ["one", "two", "one"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_046_a_rollback_does_not_restart_pods_that_were_not_updated_yet() {
    let (world, _manager) = World::running(4, json!({})).await;
    let first = world.revisions()[0].0.clone();
    world.set_image("two");
    world.kubelet(3).await;
    let uids = || -> BTreeSet<String> {
        let all = world.cluster.list("pods", NAMESPACE);
        let kept = all.iter().filter(|it| it["metadata"]["deletionTimestamp"].is_null());
        let kept = kept.filter(|it| it["spec"]["containers"][0]["image"] == "one");
        kept.map(|it| it["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
    };
    let before = uids();
    assert!((1..=3).contains(&before.len()), "{before:?}");
    world.set_image("one");
    world.kubelet(30).await;
    assert!(before.is_subset(&uids()));
    assert_eq!(uids().len(), 4);
    let [(_, 2), (last, 3)] = &world.revisions()[..] else { panic!("{:?}", world.revisions()) };
    assert_eq!(*last, first, "the old revision is the newest again");
    assert_eq!(world.count("updatedNumberScheduled"), 4);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_048_when_tolerations_are_removed_pods_end_only_on_the_other_nodes() {
    let world = World::with_nodes(6);
    let taint = json!([{ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" }]);
    world.add_tainted_node("node-7", taint);
    let _manager = world.start().await;
    let tolerations = json!([{ "key": "node-role.kubernetes.io/control-plane", "operator": "Exists" }]);
    world.set(json!({ "template": template(json!({ "tolerations": tolerations })) }));
    world.kubelet(10).await;
    assert_eq!((world.pod_nodes().len(), world.count("numberAvailable")), (7, 7));
    let uids =
        || -> BTreeSet<String> { world.pods().iter().map(|it| world.pod(it)["metadata"]["uid"].to_string()).collect() };
    let before = uids();
    world.edit(|spec| spec["template"]["spec"]["tolerations"] = json!([]));
    world.kubelet(60).await;
    assert_eq!(world.pod_nodes(), ["node-1", "node-2", "node-3", "node-4", "node-5", "node-6"]);
    assert!(uids().is_disjoint(&before));
    let counters = ["desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberMisscheduled"];
    assert_eq!(counters.map(|it| world.count(it)), [6, 6, 6, 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_049_surge_creates_new_pods_before_it_deletes_old_ones() {
    let (world, _manager) = World::running(5, json!({ "updateStrategy": rolling(0, 2) })).await;
    world.set_image("two");
    pass(SEC).await;
    assert_eq!(counts(&world), (0, 2));
    for wanted in [(2, 4), (4, 5), (5, 5)] {
        world.run_pending();
        pass(SEC).await;
        assert_eq!(counts(&world), wanted);
        world.remove_terminating_pods();
        pass(SEC).await;
        assert_eq!(counts(&world), wanted);
    }
    assert_eq!(world.pod_nodes(), ["node-1", "node-2", "node-3", "node-4", "node-5"]);
    assert!(world.images().values().all(|it| it == "two"));
    assert_eq!(world.count("updatedNumberScheduled"), 5);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_051_with_surge_the_old_pod_stays_until_the_new_one_is_available() {
    let spec = json!({ "minReadySeconds": 10, "updateStrategy": rolling(0, 1) });
    let (world, _manager) = World::running(1, spec).await;
    let old = world.pod_on("node-1");
    world.set_image("two");
    pass(20 * SEC).await;
    assert_eq!((counts(&world), world.active_pods().len()), ((0, 1), 2), "the new one is not ready");
    world.run_pending();
    pass(9 * SEC).await;
    assert_eq!(counts(&world), (0, 1), "the new one is not available");
    pass(3 * SEC).await;
    assert_eq!((world.deleted(), counts(&world)), (vec![old], (1, 1)));
}

/// The pods are read after the revision is stored, which may take long.
#[tokio::test(start_paused = true)]
async fn a_pod_that_becomes_unready_while_the_revision_is_created_uses_the_budget() {
    let (world, _manager) = World::running(3, json!({})).await;
    let broken = world.pod_on("node-3");
    let slow = |line: &str| (line == "create controllerrevisions").then_some(Interception::DelayAnswer(10 * SEC));
    world.fail_requests(move |line, _| slow(line));
    world.set_image("two");
    pass(5 * SEC).await;
    world.update_pod(&broken, |it| it["status"]["conditions"][0]["status"] = json!("False"));
    pass(6 * SEC).await;
    assert_eq!(world.deleted(), [broken]);
}

/// At no time does a node lose its ready pod before the new one is ready, and never more than the surge exists.
#[tokio::test(start_paused = true)]
async fn with_surge_no_node_is_without_a_ready_pod() {
    let (world, _manager) = World::running(6, json!({ "updateStrategy": rolling(0, 2) })).await;
    world.set_image("two");
    for second in 0..60 {
        world.kubelet(1).await;
        let mut ready: BTreeMap<String, usize> = BTreeMap::new();
        let nodes = world.node_of_pods();
        for pod in world.cluster.list("pods", NAMESPACE) {
            if pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] == "Running" {
                *ready.entry(nodes[&name(&pod)].clone()).or_default() += 1;
            }
        }
        assert_eq!(ready.len(), 6, "{second} s: {ready:?}");
        assert!(world.active_pods().len() <= 8, "{second} s: {:?}", world.pods());
    }
    assert!(world.images().values().all(|it| it == "two"));
    assert_eq!(counts(&world), (6, 6));
}

#[tokio::test(start_paused = true)]
async fn a_restart_during_a_rollout_restarts_no_pod_twice() {
    let (world, manager) = World::running(4, json!({})).await;
    world.set_image("two");
    world.kubelet(3).await;
    drop(manager);
    let _manager = world.start().await;
    world.kubelet(30).await;
    assert_eq!((counts(&world), world.revisions().len()), ((4, 4), 2));
    assert!(world.images().values().all(|it| it == "two"));
}

/// A pod that only a taint against scheduling keeps takes part in a rollout, and is not replaced.
#[tokio::test(start_paused = true)]
async fn an_update_removes_pods_from_nodes_where_they_may_only_continue() {
    let (world, _manager) = World::running(2, json!({})).await;
    world.taint("node-2", custom_taint("NoSchedule"));
    world.set_image("two");
    world.kubelet(30).await;
    assert_eq!(world.pod_nodes(), ["node-1"]);
    assert_eq!((counts(&world), world.images()["node-1"].as_str()), ((2, 1), "two"));
}
