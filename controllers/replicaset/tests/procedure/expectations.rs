//! Creations and deletions that the cache does not show yet.

use harness::{NAMESPACE, pass};
use replicaset_controller::Options;
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{MS, SEC, WITHOUT_GATE, World, waiting};

#[tokio::test(start_paused = true)]
async fn acceptance_rs_008_while_a_pod_is_expected_the_status_is_written() {
    let world = World::new();
    let manager = world.start_with(WITHOUT_GATE).await;
    world.cluster.freeze_watches("pods");
    world.set(1, json!({}));
    pass(SEC).await;
    world.scale(3);
    pass(SEC).await;
    assert_eq!((world.call_count("create pods"), world.count("observedGeneration"), waiting(&manager)), (1, 2, 1));
    world.cluster.unfreeze_watches("pods");
    pass(SEC).await;
    assert_eq!((world.call_count("create pods"), world.own().len(), waiting(&manager)), (3, 3, 0));
}

/// Upstream needs another event to look again.
#[tokio::test(start_paused = true)]
async fn acceptance_rs_009_a_pod_that_is_never_observed_is_expected_for_five_minutes() {
    let world = World::new();
    let _manager = world.start_with(WITHOUT_GATE).await;
    world.cluster.freeze_watches("pods");
    world.set(1, json!({}));
    pass(SEC).await;
    world.cluster.remove("pods", NAMESPACE, &world.pods()[0]);
    world.relist("pods");
    pass(290 * SEC).await;
    assert_eq!(world.call_count("create pods"), 1);
    // The next bookmark shows that the cache is current.
    pass(85 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.own().len()), (2, 1));
}

/// Upstream decides from the late cache: it creates each pod again, and may delete pods beyond the surplus (k/k#129795).
#[tokio::test(start_paused = true)]
async fn while_the_cache_is_late_expectations_do_not_expire() {
    let (world, manager) = World::running_with(4, json!({}), WITHOUT_GATE).await;
    // The cache gets nothing. The sync can list pods.
    world.cluster.intercept(|call| match call.verb {
        "watch" if call.resource == "pods" => Interception::Fail,
        "list" if call.resource == "pods" && call.parameter("limit") != "100" => Interception::Fail,
        _ => Interception::Pass,
    });
    world.cluster.break_watches("pods");
    pass(MS).await;
    world.scale(2);
    pass(400 * SEC).await;
    assert_eq!((world.call_count("delete pods"), waiting(&manager), own_lists(&world)), (2, 1, 1));
    world.cluster.stop_intercepting();
    pass(90 * SEC).await;
    assert_eq!((world.own().len(), world.call_count("delete pods"), waiting(&manager)), (2, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_after_the_timeout_is_repeated() {
    let (world, manager) = World::running_with(4, json!({}), WITHOUT_GATE).await;
    let mut first = true;
    world.cluster.intercept(move |call| match call.verb {
        "watch" if call.resource == "pods" => Interception::Fail,
        "list" if call.resource == "pods" && call.parameter("limit") != "100" => Interception::Fail,
        "list" if call.resource == "pods" && std::mem::take(&mut first) => Interception::Fail,
        _ => Interception::Pass,
    });
    world.cluster.break_watches("pods");
    pass(MS).await;
    world.scale(2);
    pass(320 * SEC).await;
    assert_eq!((own_lists(&world), waiting(&manager)), (2, 1));
}

/// With the gate, the cache has passed the creation. So a pod that it does not show is gone again.
#[tokio::test(start_paused = true)]
async fn a_pod_that_was_removed_before_it_was_observed_is_created_again_within_seconds() {
    let world = World::new();
    let _manager = world.start().await;
    world.cluster.freeze_watches("pods");
    world.set(1, json!({}));
    pass(SEC).await;
    world.cluster.remove("pods", NAMESPACE, &world.pods()[0]);
    world.relist("pods");
    pass(15 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.own().len()), (2, 1));
}

/// The sync waits for the read before an adoption while the expected pods arrive.
#[tokio::test(start_paused = true)]
async fn acceptance_rs_010_pods_that_arrive_during_a_sync_do_not_change_its_decision() {
    let world = World::new();
    world.add_pod("orphan");
    world.relabel("orphan", "mine");
    let _manager = world.start_with(WITHOUT_GATE).await;
    world.cluster.freeze_watches("pods");
    world.set(2, json!({}));
    pass(SEC).await;
    assert_eq!(world.call_count("create pods"), 2);
    world.fail_first("get replicasets rs", &Interception::Delay(SEC));
    let both = json!([{ "key": "app", "operator": "In", "values": ["web", "mine"] }]);
    world.update_set(|it| it["spec"]["selector"] = json!({ "matchExpressions": both }));
    pass(500 * MS).await;
    // The sync knows the orphan only.
    world.cluster.unfreeze_watches("pods");
    pass(5 * SEC).await;
    assert_eq!(world.call_count("create pods"), 2);
    assert_eq!((world.own().len(), world.call_count("delete pods")), (2, 1), "one of three is surplus");
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_011_a_new_set_of_the_same_name_inherits_no_expectations() {
    for options in [Options::default(), WITHOUT_GATE] {
        let world = World::new();
        let _manager = world.start_with(options).await;
        world.cluster.freeze_watches("pods");
        world.set(2, json!({}));
        pass(SEC).await;
        assert_eq!(world.call_count("create pods"), 2);
        // One event shows both the deletion and the new set.
        world.cluster.freeze_watches("replicasets");
        world.pods().iter().for_each(|it| world.cluster.remove("pods", NAMESPACE, it));
        world.remove_set();
        let uid: Value = world.set(1, json!({}))["metadata"]["uid"].clone();
        world.relist("replicasets");
        pass(5 * SEC).await;
        assert_eq!((world.call_count("create pods"), world.own().len()), (3, 1), "{options:?}");
        assert_eq!(world.owner(&world.pods()[0]).as_deref(), uid.as_str());
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_027_a_pod_whose_deletion_is_observed_twice_counts_once() {
    let (world, manager) = World::running_with(3, json!({}), WITHOUT_GATE).await;
    // The deletion of one pod succeeds, and that of the other one has no answer.
    let mut first: Option<String> = None;
    world.fail_requests(move |line, _| {
        let is_other = line.starts_with("delete pods") && first.get_or_insert_with(|| line.to_owned()) != line;
        is_other.then_some(Interception::Fail)
    });
    world.scale(1);
    pass(SEC).await;
    world.remove_terminating_pods();
    pass(SEC).await;
    world.scale(0);
    pass(SEC).await;
    assert_eq!((world.pods().len(), waiting(&manager)), (2, 1), "one deletion is still expected");
    let mut deleted: Vec<String> = world.lines().into_iter().filter(|it| it.starts_with("delete pods")).collect();
    deleted.sort();
    deleted.dedup();
    assert_eq!(deleted.len(), 2);
    world.cluster.stop_intercepting();
    pass(120 * SEC).await;
    assert_eq!((world.own().len(), waiting(&manager)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_048_a_resync_or_a_change_that_means_nothing_sends_no_request() {
    let (world, manager) = World::running(2, json!({})).await;
    drop(manager);
    let manager = world.start_with_resync(Options::default(), 12 * 3_600 * SEC).await;
    let adds = || manager.metric("workqueue_adds_total{name=\"replicaset\"}");
    let before = adds();
    world.touch_set("again");
    for pod in world.pods() {
        world.update_pod(&pod, |it| it["status"]["podIP"] = json!("10.0.0.1"));
    }
    pass(SEC).await;
    assert_eq!(adds(), before + 1, "the change of the set only");
    pass(25 * 3_600 * SEC).await;
    assert!(adds() > before + 1, "the resync");
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_event_of_a_pod_enqueues_its_set_only() {
    let (world, manager) = World::running(2, json!({})).await;
    (0..5).for_each(|it| drop(world.named_set(&format!("other-{it}"), 0, json!({}))));
    pass(SEC).await;
    let adds = || manager.metric("workqueue_adds_total{name=\"replicaset\"}");
    let before = adds();
    world.update_pod(&world.pods()[0], |it| it["metadata"]["labels"]["more"] = json!("x"));
    pass(SEC).await;
    assert_eq!(adds(), before + 1);
}

/// How often a sync has listed the pods. The informer lists more of them at once.
fn own_lists(world: &World) -> usize {
    world.cluster.requests().iter().filter(|it| it.verb == "list" && it.parameter("limit") == "100").count()
}
