//! Creation and deletion of pods.

use std::collections::BTreeSet;

use daemonset_controller::Options;
use harness::{NAMESPACE, failure, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, WITHOUT_GATE, World, on_delete, target};

/// The names in all requests that create pods.
fn created_names(world: &World) -> BTreeSet<String> {
    world.created().iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_019_missing_pods_are_created_and_the_younger_surplus_is_deleted() {
    let world = World::with_nodes(5);
    for (name, app, node, age) in [
        ("a", "web", "node-2", 10),
        ("b-younger", "web", "node-3", 10),
        ("b-older", "web", "node-3", 20),
        ("c-10", "web", "node-4", 10),
        ("c-20", "web", "node-4", 20),
        ("c-50", "web", "node-4", 50),
        ("c-40", "web", "node-4", 40),
        ("c-30", "web", "node-4", 30),
        ("d", "other", "node-5", 10),
        ("e", "other", "node-5", 20),
    ] {
        world.add_pod(name, json!({ "app": app }), node, age);
    }
    let _manager = world.start().await;
    world.set(json!({ "updateStrategy": on_delete() }));
    pass(5 * SEC).await;
    let nodes: Vec<String> = world.created().iter().map(target).collect();
    assert_eq!(nodes, ["node-1", "node-5"]);
    let mut deleted = world.deleted();
    deleted.sort();
    assert_eq!(deleted, ["b-younger", "c-10", "c-20", "c-30", "c-40"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_021_an_empty_selector_is_reported_and_nothing_is_written() {
    let world = World::with_nodes(2);
    world.add_pod("a", json!({ "app": "web" }), "node-1", 10);
    world.add_pod("b", json!({ "app": "web" }), "node-1", 20);
    let _manager = world.start().await;
    world.set(json!({ "selector": {} }));
    pass(5 * SEC).await;
    let event = "Warning SelectingAll: This daemon set is selecting all pods. A non-empty selector is required.";
    assert_eq!((world.events().await, world.lines()), (vec![event.to_owned()], vec![]));
    assert_eq!(world.event_count("SelectingAll"), 1);
}

/// What such a selector means is unknown, so no pod may be adopted, released, created or deleted.
#[tokio::test(start_paused = true)]
async fn a_set_whose_selector_is_not_valid_writes_nothing() {
    for (operator, values) in [("Near", json!(["web"])), ("In", json!([]))] {
        let (world, _manager) = World::running(1, json!({})).await;
        let requirement = json!({ "key": "app", "operator": operator, "values": values });
        world.edit(|spec| spec["selector"] = json!({ "matchExpressions": [requirement] }));
        pass(SEC).await;
        world.add_pod("orphan", json!({ "app": "web" }), "node-1", 10);
        world.add_node("node-2");
        pass(20 * SEC).await;
        assert_eq!(world.lines(), [""; 0], "{operator}");
        assert!(!world.logged("has a requirement that is not valid").is_empty(), "{operator}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_025_a_pod_that_has_succeeded_is_replaced_without_a_back_off() {
    let (world, _manager) = World::running(1, json!({})).await;
    for replaced in 1..=4 {
        let pod = world.pod_on("node-1");
        world.end(&pod, "Succeeded");
        pass(100 * MS).await;
        assert_eq!((world.call_count("delete pods"), world.call_count("create pods")), (replaced, replaced));
        let message = format!("Found succeeded daemon pod n/{pod} on node node-1, will try to delete it");
        assert!(world.events().await.contains(&format!("Normal SucceededDaemonPod: {message}")));
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_026_a_terminating_pod_is_replaced_when_it_is_gone() {
    let (world, _manager) = World::running(1, json!({})).await;
    world.delete_pod_gracefully(&world.pod_on("node-1"));
    pass(20 * SEC).await;
    assert_eq!(world.call_count("create pods"), 0);
    world.remove_terminating_pods();
    pass(SEC).await;
    assert_eq!(world.call_count("create pods"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_027_an_ended_pod_that_a_finalizer_keeps_is_replaced_at_once() {
    for phase in ["Failed", "Succeeded"] {
        let (world, _manager) = World::running(1, json!({})).await;
        let pod = world.pod_on("node-1");
        world.update_pod(&pod, |it| it["metadata"]["finalizers"] = json!(["example.com/hold"]));
        world.end(&pod, phase);
        pass(SEC).await;
        assert_eq!((world.deleted(), world.pods().len()), (vec![pod], 2), "{phase}");
        world.run_pending();
        pass(5 * SEC).await;
        assert_eq!(world.count("numberAvailable"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_028_at_most_250_pods_are_created_and_deleted_before_they_are_observed() {
    let world = World::with_nodes(300);
    let _manager = world.start().await;
    world.cluster.freeze_watches("pods");
    world.set(json!({}));
    pass(5 * SEC).await;
    assert_eq!(world.call_count("create pods"), 250);
    world.cluster.unfreeze_watches("pods");
    world.kubelet(10).await;
    assert_eq!((world.pods().len(), world.call_count("create pods")), (300, 300));
    world.cluster.freeze_watches("pods");
    world.edit(|spec| spec["template"]["spec"]["nodeSelector"] = json!({ "is": "absent" }));
    pass(5 * SEC).await;
    assert_eq!(world.call_count("delete pods"), 250);
    world.cluster.unfreeze_watches("pods");
    pass(5 * SEC).await;
    assert_eq!((world.call_count("delete pods"), world.active_pods().len()), (300, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_029_a_batch_with_a_failure_is_the_last_and_only_successes_are_expected() {
    for options in [Options::default(), WITHOUT_GATE] {
        let world = World::with_nodes(100);
        let mut allowed = 10;
        world.fail_requests(move |line, _| {
            let is_refused = line == "create pods" && {
                allowed -= 1;
                allowed < 0
            };
            if is_refused { failure(403, "Forbidden") } else { None }
        });
        let _manager = world.start_with(options).await;
        world.set(json!({}));
        pass(SEC).await;
        let lines = world.lines();
        let first_sync = lines.iter().take_while(|it| !it.starts_with("update daemonsets/status"));
        assert_eq!(first_sync.filter(|it| *it == "create pods").count(), 1 + 2 + 4 + 8);
        assert_eq!(world.pods().len(), 10);
        assert!(world.events().await.contains(&"Warning FailedCreate: Error creating: not now".to_owned()));
        world.cluster.stop_intercepting();
        // Longer than the back-off, and shorter than the timeout of expectations.
        pass(60 * SEC).await;
        assert_eq!(world.pods().len(), 100);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_030_a_pod_that_is_gone_already_is_no_error_and_not_expected() {
    let (world, _manager) = World::running(2, json!({})).await;
    let (gone, other) = (world.pod_on("node-1"), world.pod_on("node-2"));
    world.cluster.freeze_watches("pods");
    world.cluster.remove("pods", NAMESPACE, &gone);
    let taints = || json!([{ "key": "example.com/custom", "effect": "NoExecute" }]);
    world.taint("node-1", taints());
    pass(5 * SEC).await;
    // The status changes, which causes another sync. A back-off would cause ten.
    let deleted = world.deleted();
    assert!((1..=3).contains(&deleted.len()) && deleted.iter().all(|it| *it == gone), "{deleted:?}");
    world.taint("node-2", taints());
    pass(SEC).await;
    assert!(!world.deleted().contains(&other), "the cache still shows the first pod");
    world.cluster.unfreeze_watches("pods");
    pass(SEC).await;
    assert!(world.deleted().contains(&other), "nothing is expected");
    assert!(!world.events().await.iter().any(|it| it.contains("FailedDelete")));
}

#[tokio::test(start_paused = true)]
async fn a_refused_deletion_is_reported_and_repeated() {
    let (world, _manager) = World::running(1, json!({})).await;
    let mut first = true;
    world.fail_requests(move |line, _| {
        let is_refused = line.starts_with("delete pods") && std::mem::take(&mut first);
        if is_refused { failure(403, "Forbidden") } else { None }
    });
    world.set_image("two");
    pass(SEC).await;
    assert_eq!(world.call_count("delete pods"), 2);
    assert!(world.events().await.contains(&"Warning FailedDelete: Error deleting: not now".to_owned()));
}

/// Creations are refused because the namespace terminates.
fn refuse_as_terminating(world: &World) {
    let Interception::Answer { status, headers, mut body } = Interception::status(403, "Forbidden", "terminating")
    else {
        panic!("no response")
    };
    body["details"]["causes"] = json!([{ "reason": "NamespaceTerminating", "field": "metadata.namespace" }]);
    let refusal = Interception::Answer { status, headers, body };
    world.fail_requests(move |line, _| (line == "create pods").then(|| refusal.clone()));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_035_a_terminating_namespace_is_no_error_and_nothing_stays_expected() {
    let (world, _manager) = World::running(1, json!({})).await;
    refuse_as_terminating(&world);
    world.add_node("node-2");
    pass(60 * SEC).await;
    // The status changes, which causes another sync. A back-off would cause more than ten.
    assert!((1..=3).contains(&world.call_count("create pods")), "{:?}", world.lines());
    assert!(!world.events().await.iter().any(|it| it.contains("FailedCreate")));
    world.cluster.stop_intercepting();
    world.add_node("node-3");
    pass(SEC).await;
    assert_eq!(world.pod_nodes(), ["node-1", "node-2", "node-3"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_035_a_terminating_namespace_ends_the_batches_of_a_sync() {
    let world = World::with_nodes(5);
    refuse_as_terminating(&world);
    let _manager = world.start().await;
    world.set(json!({}));
    pass(60 * SEC).await;
    // One sync, and another one after the change of the status. Each would try five.
    assert!((1..=3).contains(&world.call_count("create pods")), "{:?}", world.lines());
    assert_eq!(world.count("desiredNumberScheduled"), 5);
}

#[tokio::test(start_paused = true)]
async fn the_next_pod_of_a_node_may_have_the_name_of_the_one_before_it() {
    let (world, _manager) = World::running(1, json!({})).await;
    let uid = |pod: &str| world.pod(pod)["metadata"]["uid"].clone();
    let first = world.pod_on("node-1");
    let before = uid(&first);
    world.cluster.remove("pods", NAMESPACE, &first);
    world.kubelet(5).await;
    assert_eq!(world.pods(), [first.as_str()]);
    assert_ne!(uid(&first), before);
    assert_eq!((world.call_count("create pods"), world.count("numberAvailable")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_creation_has_the_same_name_even_after_a_restart() {
    let world = World::with_nodes(1);
    world.fail_requests(|line, _| (line == "create pods").then(|| failure(403, "Forbidden")).flatten());
    let manager = world.start().await;
    world.set(json!({}));
    pass(5 * SEC).await;
    let before = world.call_count("create pods");
    drop(manager);
    let _manager = world.start().await;
    pass(5 * SEC).await;
    assert!(before > 1 && world.call_count("create pods") > before);
    assert_eq!(created_names(&world).len(), 1, "{:?}", created_names(&world));
}

#[tokio::test(start_paused = true)]
async fn a_name_that_another_pod_has_is_retried_without_an_event() {
    let world = World::with_nodes(1);
    let mut first = true;
    world.fail_requests(move |line, _| {
        (line == "create pods" && std::mem::take(&mut first)).then_some(Interception::Delay(SEC))
    });
    let _manager = world.start().await;
    world.set(json!({}));
    pass(500 * MS).await;
    let name = created_names(&world).pop_first().unwrap();
    world.add_pod(&name, json!({ "app": "other" }), "node-1", 0);
    pass(5 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.owner(&name)), (2, None));
    assert_eq!(created_names(&world).len(), 2, "when the cache shows the other pod, the next one has another name");
    assert_eq!(world.pods().len(), 2);
    assert!(!world.events().await.iter().any(|it| it.contains("FailedCreate")));
}
