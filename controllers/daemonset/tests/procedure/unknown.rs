//! Writes whose outcome is unknown.

use daemonset_controller::Options;
use harness::{Manager, NAMESPACE, failure, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{SEC, World, target};

/// The first request that begins with these words has this fate.
fn fail_first(world: &World, words: &'static str, fate: &Interception) {
    let (mut first, fate) = (true, fate.clone());
    world.fail_requests(move |line, _| (line.starts_with(words) && std::mem::take(&mut first)).then(|| fate.clone()));
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
