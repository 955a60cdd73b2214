//! Adoption and release of pods, and sets that are deleted.

use harness::{NAMESPACE, failure, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{MS, SEC, World};

#[tokio::test(start_paused = true)]
async fn acceptance_rs_031_an_orphan_is_adopted_and_nothing_is_created() {
    let world = World::new();
    world.add_pod("orphan");
    let uid = world.pod("orphan")["metadata"]["uid"].clone();
    let _manager = world.start().await;
    let set = world.set(1, json!({}));
    pass(SEC).await;
    assert_eq!((world.pods(), world.call_count("create pods")), (vec!["orphan".to_owned()], 0));
    let patches = world.bodies("patch");
    assert_eq!(patches.len(), 1, "{:?}", world.lines());
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": set["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true }]);
    assert_eq!(patches[0]["metadata"], json!({ "uid": uid, "ownerReferences": owner }));
    assert_eq!(world.count("availableReplicas"), 1);
}

/// The cache knows such a pod only as an orphan, so the change that it shows then names no set.
#[tokio::test(start_paused = true)]
async fn an_adopted_pod_that_is_lost_before_it_was_observed_is_replaced_within_seconds() {
    for is_removed in [true, false] {
        let world = World::new();
        world.add_pod("orphan");
        let _manager = world.start().await;
        world.cluster.freeze_watches("pods");
        world.set(1, json!({}));
        pass(SEC).await;
        assert_eq!((world.call_count("patch pods"), world.call_count("create pods")), (1, 0));
        if is_removed {
            world.cluster.remove("pods", NAMESPACE, "orphan");
        } else {
            world.orphan("orphan");
            world.relabel("orphan", "other");
        }
        world.relist("pods");
        pass(15 * SEC).await;
        assert_eq!((world.call_count("create pods"), world.own().len()), (1, 1), "{is_removed}");
    }
}

/// The answer comes when the cache has passed the adoption already.
#[tokio::test(start_paused = true)]
async fn an_adopted_pod_that_is_lost_before_the_answer_is_replaced_within_seconds() {
    let world = World::new();
    world.add_pod("orphan");
    world.fail_requests(|line, _| (line == "patch pods orphan").then_some(Interception::DelayAnswer(5 * SEC)));
    let _manager = world.start().await;
    world.cluster.freeze_watches("pods");
    world.set(1, json!({}));
    pass(SEC).await;
    world.cluster.remove("pods", NAMESPACE, "orphan");
    world.relist("pods");
    pass(20 * SEC).await;
    assert_eq!((world.call_count("create pods"), world.own().len()), (1, 1), "{:?}", world.lines());
}

/// The cache does not show yet that the orphan has failed.
#[tokio::test(start_paused = true)]
async fn in_a_sync_that_adopts_no_other_pod_is_deleted() {
    let world = World::new();
    world.add_pod("orphan");
    pass(60 * SEC).await;
    let set = world.set(1, json!({}));
    world.add_pod("own");
    world.update_pod("own", |it| {
        it["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1",
        "kind": "ReplicaSet", "name": "rs", "uid": set["metadata"]["uid"], "controller": true }])
    });
    let cluster = world.cluster.clone();
    world.fail_requests(move |line, _| {
        if line == "get replicasets rs" {
            cluster.freeze_watches("pods");
            cluster.update("pods", NAMESPACE, "orphan", |it| it["status"]["phase"] = json!("Failed"));
        }
        None
    });
    let _manager = world.start().await;
    pass(SEC).await;
    assert_eq!(world.owner("orphan"), Some(world.uid()));
    world.cluster.unfreeze_watches("pods");
    pass(60 * SEC).await;
    assert_eq!(world.call_count("delete pods"), 0, "{:?}", world.lines());
}

/// The answer of the server has no reference.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_adoption_a_webhook_undoes_prevents_no_deletion_of_others() {
    let (world, _manager) = World::running(2, json!({})).await;
    world.add_pod("orphan");
    let orphan = world.pod("orphan");
    world.fail_requests(move |line, _| {
        let body = orphan.clone();
        (line == "patch pods orphan").then(|| Interception::Answer { status: 200, headers: Vec::new(), body })
    });
    let mut own = world.own();
    own.sort();
    world.scale(0);
    pass(60 * SEC).await;
    let mut deleted: Vec<String> =
        world.lines().iter().filter_map(|it| it.strip_prefix("delete pods ").map(str::to_owned)).collect();
    deleted.sort();
    assert_eq!(deleted, own, "{:?}", world.lines());
    let count = world.call_count("patch pods orphan");
    assert!((1..=4).contains(&count), "{count}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_032_all_orphans_are_adopted_and_the_surplus_is_deleted() {
    let world = World::new();
    ["a", "b", "c"].iter().for_each(|it| world.add_pod(it));
    let _manager = world.start().await;
    world.set(2, json!({}));
    pass(SEC).await;
    assert_eq!((world.call_count("patch pods"), world.call_count("delete pods")), (3, 1));
    assert_eq!((world.own().len(), world.call_count("create pods")), (2, 0));
    assert_eq!(world.call_count("get replicasets rs"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_033_034_a_pod_is_released_and_replaced_and_adopted_again() {
    let (world, _manager) = World::running(2, json!({})).await;
    let pod = world.pods()[0].clone();
    world.relabel(&pod, "other");
    pass(SEC).await;
    assert_eq!((world.owner(&pod), world.own().len(), world.pods().len()), (None, 2, 3));
    assert_eq!((world.call_count("create pods"), world.call_count("delete pods")), (1, 0));
    world.relabel(&pod, "web");
    pass(SEC).await;
    assert_eq!((world.own().len(), world.call_count("delete pods")), (2, 1));
    assert_eq!(world.owner(&pod), Some(world.uid()), "the new pod is not assigned");
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_035_pods_of_another_controller_are_ignored() {
    let world = World::new();
    world.add_pod("foreign");
    let owner =
        json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "other", "controller": true });
    world.update_pod("foreign", |it| it["metadata"]["ownerReferences"] = json!([owner]));
    let before = world.pod("foreign");
    let _manager = world.start().await;
    world.set(2, json!({}));
    pass(SEC).await;
    assert_eq!((world.call_count("create pods"), world.own().len(), world.count("replicas")), (2, 2, 2));
    assert_eq!(world.pod("foreign"), before);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_036_037_a_reference_that_is_not_of_a_controller_does_not_prevent_an_adoption() {
    let world = World::new();
    let uid = world.set(2, json!({}))["metadata"]["uid"].clone();
    let reference = |kind: &str, name: &str, uid: &Value| json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid }]);
    world.add_pod("ours");
    world.update_pod("ours", |it| it["metadata"]["ownerReferences"] = reference("ReplicaSet", "rs", &uid));
    world.add_pod("theirs");
    world.update_pod("theirs", |it| it["metadata"]["ownerReferences"] = reference("StatefulSet", "s", &json!("s-uid")));
    let _manager = world.start().await;
    pass(SEC).await;
    assert_eq!((world.own().len(), world.call_count("create pods")), (2, 0));
    let owners = world.pod("ours")["metadata"]["ownerReferences"].clone();
    let ours = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": uid, "controller": true,
        "blockOwnerDeletion": true });
    assert_eq!(owners, json!([ours]));
    let owners = world.pod("theirs")["metadata"]["ownerReferences"].clone();
    assert_eq!(
        (owners.as_array().unwrap().len(), owners[0]["controller"] == true || owners[1]["controller"] == true),
        (2, true)
    );
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_038_if_adoptions_fail_nothing_is_created() {
    let world = World::new();
    ["a", "b"].iter().for_each(|it| world.add_pod(it));
    world.fail_requests(|line, _| if line.starts_with("patch pods") { failure(500, "InternalError") } else { None });
    let _manager = world.start().await;
    world.set(3, json!({}));
    pass(SEC).await;
    let times = world.call_times("patch pods a");
    let has_pauses = times.windows(2).all(|it| it[1] - it[0] >= 4 * MS);
    assert!((4..=12).contains(&times.len()) && has_pauses, "{times:?}");
    assert_eq!((world.call_count("create pods"), world.call_count("update replicasets")), (0, 0));
    assert!(!world.logged("cannot claim 2 pods").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_039_a_set_that_is_being_deleted_writes_its_status_only() {
    let (world, _manager) = World::running(2, json!({})).await;
    world.delete_set();
    pass(SEC).await;
    world.add_pod("orphan");
    world.delete_pod_gracefully(&world.own()[0]);
    pass(60 * SEC).await;
    assert!(world.lines().iter().all(|it| it == "update replicasets/status rs"), "{:?}", world.lines());
    assert_eq!((world.owner("orphan"), world.count("replicas"), world.count("terminatingReplicas")), (None, 1, 1));
    // Surplus pods are left to the garbage collector too.
    world.scale(0);
    pass(SEC).await;
    assert_eq!(world.call_count("delete pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_040_a_set_that_is_being_deleted_on_the_server_adopts_and_creates_nothing() {
    let (world, _manager) = World::running(2, json!({})).await;
    world.cluster.freeze_watches("replicasets");
    world.delete_set();
    world.add_pod("orphan");
    pass(100 * MS).await;
    // A deficit, of which the orphan would be the remedy.
    world.own().iter().for_each(|it| world.end_pod(it, "Failed", 1));
    pass(5 * SEC).await;
    assert_eq!((world.owner("orphan"), world.call_count("patch pods"), world.call_count("create pods")), (None, 0, 0));
    assert!(world.call_count("get replicasets rs") > 1, "it is retried");
    assert!(!world.logged("has just been deleted").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_041_pods_that_have_ended_or_are_being_deleted_keep_their_reference() {
    let (world, _manager) = World::running(2, json!({})).await;
    let pods = world.pods();
    world.end_pod(&pods[0], "Failed", 1);
    world.delete_pod_gracefully(&pods[1]);
    pods.iter().for_each(|it| world.relabel(it, "other"));
    pass(SEC).await;
    assert_eq!((world.call_count("create pods"), world.call_count("patch pods"), world.own().len()), (2, 0, 2));
    assert!(pods.iter().all(|it| world.owner(it) == Some(world.uid())));
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_042_sets_with_the_same_selector_count_their_own_pods() {
    let world = World::new();
    let _manager = world.start().await;
    world.add_pod("orphan");
    world.set(1, json!({}));
    world.named_set("other", 2, json!({}));
    pass(5 * SEC).await;
    assert_eq!((world.pods().len(), world.own().len()), (3, 1));
    assert!(world.pods().iter().all(|it| world.owner(it).is_some()));
    world.add_pod("another");
    pass(SEC).await;
    assert!(!world.logged("user error! more than one ReplicaSet is selecting pods").is_empty());
    assert_eq!(world.active_pods().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn acceptance_rs_043_a_pod_that_loses_its_reference_is_adopted_again() {
    let (world, _manager) = World::running(2, json!({})).await;
    let pod = world.pods()[0].clone();
    world.orphan(&pod);
    pass(SEC).await;
    assert_eq!((world.owner(&pod), world.pods().len()), (Some(world.uid()), 2));
    assert_eq!((world.call_count("create pods"), world.call_count("patch pods")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_namespace_that_names_the_set_does_not_count() {
    let (world, _manager) = World::running(1, json!({})).await;
    world.create_namespace("other");
    let owner =
        json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": world.uid(), "controller": true });
    world.cluster.create(json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "forged", "namespace": "other", "labels": { "app": "web" }, "ownerReferences": [owner],
            "finalizers": ["example.com/hold"], "deletionTimestamp": "2027-01-15T08:00:30Z" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } }));
    pass(SEC).await;
    world.touch_set("again");
    pass(SEC).await;
    assert_eq!((world.lines(), &world.status()["terminatingReplicas"]), (Vec::new(), &json!(0)));
}
