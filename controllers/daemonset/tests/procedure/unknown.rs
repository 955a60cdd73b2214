//! Writes whose outcome is unknown.

use daemonset_controller::Options;
use harness::{Manager, NAMESPACE, failure, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{SEC, World, rolling, target};

/// The first request that begins with these words has this fate.
fn fail_first(world: &World, words: &str, fate: &Interception) {
    let (mut first, words, fate) = (true, words.to_owned(), fate.clone());
    world.fail_requests(move |line, _| (line.starts_with(&words) && std::mem::take(&mut first)).then(|| fate.clone()));
}

/// Deletions get no answer, and reads of pods hang.
fn keep_deletions_unknown(world: &World) {
    world.cluster.intercept(|call| match (call.verb, &*call.resource) {
        ("delete", "pods") => Interception::status(504, "Timeout", "request timed out"),
        ("list", "pods") => Interception::Hang,
        _ => Interception::Pass,
    });
}

fn select_nodes(world: &World, selector: Option<Value>) {
    world.edit(|spec| {
        let pod = spec["template"]["spec"].as_object_mut().unwrap();
        pod.remove("nodeSelector");
        pod.extend(selector.map(|it| ("nodeSelector".to_owned(), it)));
    });
}

/// A create whose answer is lost, or which is lost itself, must not lead to two pods.
#[tokio::test(start_paused = true)]
async fn a_creation_without_an_answer_is_sent_again_unchanged() {
    for fate in [Interception::LoseAnswer, Interception::Fail] {
        let world = World::with_nodes(1);
        let _manager = world.start().await;
        world.cluster.freeze_watches("pods");
        fail_first(&world, "create pods", &fate);
        world.set(json!({}));
        pass(10 * SEC).await;
        let bodies = world.created();
        assert!(bodies.len() > 1 && bodies.iter().all(|it| *it == bodies[0]), "{fate:?}: {bodies:?}");
        world.cluster.unfreeze_watches("pods");
        world.kubelet(10).await;
        assert_eq!((world.pods().len(), world.count("numberAvailable")), (1, 1), "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_an_answer_is_sent_again_for_the_same_pod() {
    for fate in [Interception::LoseAnswer, Interception::Fail] {
        let (world, _manager) = World::running(3, json!({})).await;
        world.cluster.freeze_watches("pods");
        fail_first(&world, "delete pods", &fate);
        let pod = world.pod_on("node-1");
        world.set_image("two");
        pass(10 * SEC).await;
        let deleted = world.deleted();
        assert!(deleted.len() > 1 && deleted.iter().all(|it| *it == pod), "{fate:?}: {deleted:?}");
    }
}

/// Upstream decides anew at once.
#[tokio::test(start_paused = true)]
async fn deletions_without_an_answer_are_not_repeated_after_the_spec_was_corrected() {
    let (world, _manager) = World::running(3, json!({})).await;
    world.fail_requests(|line, _| line.starts_with("delete pods").then_some(Interception::Fail));
    select_nodes(&world, Some(json!({ "wrong": "label" })));
    pass(SEC).await;
    let before = world.deleted().len();
    assert!(before >= 3, "{:?}", world.deleted());
    select_nodes(&world, None);
    pass(SEC / 2).await;
    world.cluster.stop_intercepting();
    let before = world.deleted().len();
    pass(80 * SEC).await;
    assert_eq!((world.deleted().len(), world.pods().len()), (before, 3), "{:?}", world.lines());
    // The requests have certainly ended then.
    world.add_node("node-4");
    world.kubelet(60).await;
    assert_eq!((world.pods().len(), world.count("numberAvailable")), (4, 4));
}

/// Upstream decides anew, from a cache in which no pod is deleted.
#[tokio::test(start_paused = true)]
async fn no_more_lost_deletions_are_repeated_than_the_corrected_limit_allows() {
    let (world, _manager) = World::running(3, json!({ "updateStrategy": rolling(3, 0) })).await;
    world.fail_requests(|line, _| line.starts_with("delete pods").then_some(Interception::Fail));
    world.set_image("two");
    pass(SEC).await;
    assert!(world.deleted().len() >= 3, "{:?}", world.lines());
    world.cluster.stop_intercepting();
    world.cluster.clear_requests();
    world.edit(|spec| spec["updateStrategy"] = rolling(1, 0));
    pass(20 * SEC).await;
    assert_eq!(world.deleted().len(), 1, "{:?}", world.lines());
    world.kubelet(200).await;
    assert!(world.images().values().all(|it| it == "two"), "{:?}", world.images());
}

/// One deletion was executed, and the cache does not show it. Two others were lost.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_the_cache_does_not_show_uses_the_budget_of_the_lost_ones() {
    let (world, _manager) = World::running(3, json!({ "updateStrategy": rolling(3, 0) })).await;
    world.cluster.freeze_watches("pods");
    let mut first = true;
    world.fail_requests(move |line, _| {
        let is_lost = line.starts_with("delete pods") && !std::mem::take(&mut first);
        is_lost.then_some(Interception::Fail)
    });
    world.set_image("two");
    pass(SEC).await;
    world.cluster.stop_intercepting();
    world.cluster.clear_requests();
    world.edit(|spec| spec["updateStrategy"] = rolling(1, 0));
    pass(20 * SEC).await;
    assert_eq!(world.deleted(), [""; 0], "{:?}", world.lines());
}

/// Upstream creates a second pod on the other node too.
#[tokio::test(start_paused = true)]
async fn a_creation_that_was_stored_although_the_answer_is_an_error_uses_the_surge() {
    let (world, _manager) = World::running(2, json!({ "updateStrategy": rolling(0, 1) })).await;
    world.cluster.freeze_watches("pods");
    let (cluster, mut first) = (world.cluster.clone(), true);
    world.fail_requests(move |line, call| {
        if line != "create pods" || !std::mem::take(&mut first) {
            return None;
        }
        let mut pod = call.json();
        pod["metadata"]["namespace"] = json!(NAMESPACE);
        cluster.create(pod);
        failure(500, "InternalError")
    });
    world.set_image("two");
    pass(20 * SEC).await;
    assert_eq!(world.pod_nodes(), ["node-1", "node-1", "node-2"], "{:?}", world.lines());
    world.cluster.unfreeze_watches("pods");
    world.kubelet(60).await;
    assert_eq!(world.images().values().collect::<Vec<_>>(), ["two", "two"]);
}

/// Upstream has no memory of it. Waiting for the outcome must not keep a new node without its pod.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_deletion_always_fails_prevents_no_others() {
    let (world, _manager) = World::running(3, json!({})).await;
    let refused = format!("delete pods {}", world.pod_on("node-1"));
    world.fail_requests(move |line, _| if line == refused { failure(500, "InternalError") } else { None });
    world.set_image("two");
    world.kubelet(5).await;
    world.add_node("node-4");
    world.kubelet(60).await;
    let images = world.images();
    assert_eq!(images.iter().filter(|(node, image)| **node != "node-1" && *image == "two").count(), 3, "{images:?}");
    world.cluster.stop_intercepting();
    world.update_set(|it| it["metadata"]["labels"] = json!({ "a": "b" }));
    world.kubelet(30).await;
    assert!(world.images().values().all(|it| it == "two"), "{:?}", world.images());
}

/// Upstream deletes all of them.
#[tokio::test(start_paused = true)]
async fn ready_pods_that_a_late_cache_shows_as_unready_are_not_deleted() {
    let (world, _manager) = World::running(4, json!({})).await;
    let pods = world.pods();
    for pod in &pods {
        world.update_pod(pod, |it| it["status"]["conditions"][0]["status"] = json!("False"));
    }
    pass(SEC).await;
    world.cluster.freeze_watches("pods");
    pods.iter().for_each(|it| world.run(it));
    world.set_image("two");
    pass(10 * SEC).await;
    let lost = pods.iter().filter(|it| world.pod(it)["metadata"]["deletionTimestamp"].is_string()).count();
    assert_eq!(lost, 0, "{:?}", world.lines());
    world.cluster.unfreeze_watches("pods");
    world.kubelet(60).await;
    assert!(world.images().values().all(|it| it == "two"), "{:?}", world.images());
}

/// Upstream deletes it, and the second pod is not ready yet.
#[tokio::test(start_paused = true)]
async fn with_surge_an_outdated_pod_that_is_ready_again_is_not_deleted() {
    let surge = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } });
    let (world, _manager) = World::running(1, json!({ "updateStrategy": surge })).await;
    let old = world.pod_on("node-1");
    world.set_image("two");
    pass(SEC).await;
    assert_eq!(world.pods().len(), 2);
    let set_ready = |it: &mut Value, ready: &str| it["status"]["conditions"][0]["status"] = json!(ready);
    let cluster = world.cluster.clone();
    world.fail_requests(move |line, _| {
        if let Some(pod) = line.strip_prefix("delete pods ") {
            cluster.update("pods", NAMESPACE, pod, |it| set_ready(it, "True"));
        }
        None
    });
    world.update_pod(&old, |it| set_ready(it, "False"));
    pass(5 * SEC).await;
    assert_eq!(world.deleted(), std::slice::from_ref(&old));
    assert!(world.pod(&old)["metadata"]["deletionTimestamp"].is_null());
}

/// The timeout of expectations is over while the server is read. Upstream has forgotten the deletion.
#[tokio::test(start_paused = true)]
async fn expectations_do_not_expire_while_the_server_is_read() {
    let (world, _manager) = World::running(3, json!({})).await;
    keep_deletions_unknown(&world);
    let pod = world.pod_on("node-1");
    world.set_image("two");
    pass(900 * SEC).await;
    assert!(world.deleted().iter().all(|it| *it == pod), "{:?}", world.deleted());
}

/// Upstream sends it again at once.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_was_lost_is_repeated_although_the_next_plan_would_begin_with_another() {
    for change in ["another pod of the rollout is gone", "the pod has failed", "another node has failed before"] {
        let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } });
        let (world, _manager) = World::running(3, json!({ "updateStrategy": rolling })).await;
        let lost = world.pod_on("node-2");
        fail_first(&world, &format!("delete pods {lost}"), &Interception::Fail);
        match change {
            "the pod has failed" => world.end(&lost, "Failed"),
            "another node has failed before" => {
                world.update_pod(&world.pod_on("node-1"), |it| it["metadata"]["labels"]["a"] = json!("b"));
                world.set_image("two");
            }
            _ => world.set_image("two"),
        }
        world.kubelet(8).await;
        assert_eq!(world.deleted().iter().filter(|it| **it == lost).count(), 2, "{change}: {:?}", world.lines());
    }
}

/// Not every read is answered. Nothing else would enqueue the set.
#[tokio::test(start_paused = true)]
async fn after_a_read_that_hangs_the_outcome_is_read_again() {
    let (world, _manager) = World::running(3, json!({})).await;
    keep_deletions_unknown(&world);
    world.set_image("two");
    pass(120 * SEC).await;
    world.cluster.stop_intercepting();
    // The deadline of a request, and the delay after it.
    world.kubelet(85).await;
    assert!(world.images().values().any(|it| it == "two"), "{:?}", world.images());
}

/// The adoption is answered, and changes nothing. Upstream creates the pods of other nodes.
#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_adopted_prevents_no_others() {
    let world = World::with_nodes(2);
    world.add_pod("orphan", json!({ "app": "web" }), "node-1", 50);
    let orphan = world.pod("orphan");
    world.fail_requests(move |line, _| {
        let body = orphan.clone();
        (line == "patch pods orphan").then(|| Interception::Answer { status: 200, headers: Vec::new(), body })
    });
    let _manager = world.start().await;
    world.set(json!({}));
    world.kubelet(10).await;
    assert_eq!(world.pod_nodes(), ["node-1", "node-2"]);
    assert_eq!(world.count("observedGeneration"), 1);
    let before = world.call_count("patch pods orphan");
    assert!((1..=8).contains(&before), "{before}");
    pass(60 * SEC).await;
    assert_eq!(world.call_count("patch pods orphan"), before, "nothing has changed");
}

/// Upstream decides from the late cache, and takes down the pod of another node.
#[tokio::test(start_paused = true)]
async fn while_the_cache_is_late_expectations_do_not_expire() {
    let (world, _manager) = World::running(3, json!({})).await;
    // The cache gets nothing. The sync can list pods.
    world.cluster.intercept(|call| match call.verb {
        "watch" if call.resource == "pods" => Interception::Fail,
        "list" if call.resource == "pods" && call.parameter("limit") != "100" => Interception::Fail,
        _ => Interception::Pass,
    });
    world.cluster.break_watches("pods");
    world.set_image("two");
    pass(400 * SEC).await;
    world.set_image("three");
    pass(10 * SEC).await;
    assert_eq!(world.deleted().len(), 1, "{:?}", world.lines());
    world.cluster.stop_intercepting();
    world.kubelet(150).await;
    assert!(world.images().values().all(|it| it == "three"), "{:?}", world.images());
}

/// Upstream deletes all pods that it has planned to delete.
#[tokio::test(start_paused = true)]
async fn a_mistake_that_is_corrected_deletes_no_further_pods() {
    let (world, _manager) = World::running(100, json!({})).await;
    world.fail_requests(|line, _| line.starts_with("delete pods").then_some(Interception::Delay(SEC)));
    select_nodes(&world, Some(json!({ "wrong": "label" })));
    pass(SEC / 2).await;
    let sent = world.deleted().len();
    assert!((1..100).contains(&sent), "{sent}");
    select_nodes(&world, None);
    pass(10 * SEC).await;
    assert_eq!(world.deleted().len(), sent);
    world.kubelet(10).await;
    assert_eq!((world.pods().len(), world.count("numberAvailable")), (100, 100));
}

/// The pod of the first node exists, but the cache does not show it.
#[tokio::test(start_paused = true)]
async fn a_creation_that_is_refused_because_the_pod_exists_stays_expected_until_the_cache_shows_it() {
    for read_own_writes in [true, false] {
        let world = World::with_nodes(2);
        let _manager = world.start_with(Options { read_own_writes, ..Options::default() }).await;
        world.cluster.freeze_watches("pods");
        fail_first(&world, "create pods", &Interception::LoseAnswer);
        world.set(json!({}));
        pass(10 * SEC).await;
        world.add_node("node-3");
        pass(10 * SEC).await;
        let nodes: Vec<String> = world.created().iter().map(target).collect();
        assert!(nodes.len() > 2 && nodes.iter().all(|it| it == "node-1"), "{nodes:?}");
        assert_eq!(world.pod_nodes(), ["node-1"]);
        world.cluster.unfreeze_watches("pods");
        world.kubelet(10).await;
        assert_eq!(world.pod_nodes(), ["node-1", "node-2", "node-3"]);
        assert_eq!((world.call_count("delete pods"), world.count("numberAvailable")), (0, 3));
        let events = world.events().await;
        assert!(!events.iter().any(|it| it.contains("already exists")), "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_outcome_of_a_creation_is_unknown_the_status_is_written_and_no_other_pod() {
    let world = World::with_nodes(1);
    world.fail_requests(|line, _| (line == "create pods").then_some(Interception::Fail));
    let _manager = world.start().await;
    world.set(json!({}));
    pass(5 * SEC).await;
    world.set_image("two");
    world.add_node("node-2");
    pass(5 * SEC).await;
    assert_eq!((world.count("desiredNumberScheduled"), world.count("observedGeneration")), (2, 1));
    let bodies = world.created();
    assert!(bodies.len() > 2 && bodies.iter().all(|it| *it == bodies[0]), "{bodies:?}");
    assert_eq!(target(&bodies[0]), "node-1");
    world.cluster.stop_intercepting();
    // Enqueues the set before its back-off is over.
    world.update_set(|it| it["metadata"]["labels"] = json!({ "a": "b" }));
    world.kubelet(30).await;
    assert_eq!((world.pod_nodes(), world.count("observedGeneration")), (vec!["node-1".into(), "node-2".into()], 2));
    assert!(world.images().values().all(|it| it == "two"), "{:?}", world.images());
}

/// The first creation gets no answer, and a quota refuses all others. The cache does not show whether it was stored.
async fn lose_first_creation(fate: Interception) -> (World, Manager) {
    let world = World::with_nodes(1);
    world.cluster.freeze_watches("pods");
    let mut first = true;
    world.fail_requests(move |line, _| {
        let is_lost = line == "create pods" && std::mem::take(&mut first);
        if is_lost { Some(fate.clone()) } else { failure(403, "Forbidden").filter(|_| line == "create pods") }
    });
    let manager = world.start().await;
    world.set(json!({}));
    pass(5 * SEC).await;
    (world, manager)
}

/// Upstream forgets a failed creation at once.
#[tokio::test(start_paused = true)]
async fn a_creation_without_an_answer_is_given_up_when_it_is_refused_after_the_longest_request() {
    let (world, _manager) = lose_first_creation(Interception::Fail).await;
    world.set_image("two");
    pass(80 * SEC).await;
    let bodies = world.created();
    assert!(bodies.len() > 2 && bodies.iter().all(|it| *it == bodies[0]), "it may still be stored: {bodies:?}");
    pass(10 * SEC).await;
    let last = world.created().pop().unwrap();
    assert_eq!(last["spec"]["containers"][0]["image"], "two");
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_was_given_up_although_it_was_stored_does_not_lead_to_two_pods() {
    let (world, _manager) = lose_first_creation(Interception::LoseAnswer).await;
    pass(120 * SEC).await;
    world.cluster.stop_intercepting();
    pass(200 * SEC).await;
    assert_eq!(world.pods().len(), 1);
    world.cluster.unfreeze_watches("pods");
    world.kubelet(10).await;
    assert_eq!((world.pods().len(), world.count("numberAvailable"), world.call_count("delete pods")), (1, 1, 0));
}

/// Upstream compares only the uid.
#[tokio::test(start_paused = true)]
async fn a_pod_with_the_uid_of_the_set_and_another_kind_as_its_controller_is_replaced() {
    let (world, _manager) = World::running(2, json!({})).await;
    let pod = world.pod_on("node-1");
    world.cluster.update("pods", NAMESPACE, &pod, |it| it["metadata"]["ownerReferences"][0]["kind"] = json!("Other"));
    world.kubelet(10).await;
    assert_eq!((world.pods().len(), world.call_count("create pods"), world.count("numberAvailable")), (3, 1, 2));
}
