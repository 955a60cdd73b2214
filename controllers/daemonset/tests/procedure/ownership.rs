//! Adoption and release of pods, and sets that are deleted or created again.

use daemonset_controller::Options;
use harness::{NAMESPACE, failure, pass};
use serde_json::{Value, json};

use crate::world::{HASH, MS, SEC, WITHOUT_GATE, World, on_delete};

#[tokio::test(start_paused = true)]
async fn acceptance_ds_020_pods_of_another_owner_are_ignored() {
    let world = World::with_nodes(1);
    world.add_pod("foreign", json!({ "app": "web" }), "node-1", 60);
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "other",
        "controller": true });
    world.update_pod("foreign", |it| it["metadata"]["ownerReferences"] = json!([owner]));
    let _manager = world.start().await;
    world.set(json!({}));
    world.kubelet(10).await;
    assert_eq!(world.pod_nodes(), ["node-1", "node-1"], "the set has its own pod");
    assert_eq!(world.call_count("delete pods") + world.call_count("patch pods"), 0);
    assert_eq!(world.owner("foreign").as_deref(), Some("rs"));
    assert_eq!((world.count("numberAvailable"), world.count("updatedNumberScheduled")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_033_a_set_that_is_being_deleted_writes_nothing() {
    let (world, _manager) = World::running(2, json!({})).await;
    world.delete_set();
    world.add_pod("orphan", json!({ "app": "web" }), "node-1", 60);
    world.cluster.remove("pods", NAMESPACE, &world.pod_on("node-2"));
    world.add_node("node-3");
    world.set_image("two");
    pass(60 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    assert_eq!(world.owner("orphan"), None);
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_034_a_set_that_is_being_deleted_on_the_server_adopts_nothing() {
    let (world, _manager) = World::running(1, json!({})).await;
    world.cluster.freeze_watches("daemonsets");
    world.delete_set();
    world.add_pod("orphan", json!({ "app": "web" }), "node-1", 60);
    pass(5 * SEC).await;
    assert_eq!((world.owner("orphan"), world.call_count("patch pods")), (None, 0));
    assert_eq!(world.call_count("delete pods"), 0, "it is no surplus pod of the set");
    assert!(world.call_count("get daemonsets web") > 1, "it is retried");
    assert!(!world.logged("has just been deleted").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_036_a_new_set_of_the_same_name_inherits_no_expectations() {
    for options in [Options::default(), WITHOUT_GATE] {
        let world = World::with_nodes(1);
        let _manager = world.start_with(options).await;
        world.cluster.freeze_watches("pods");
        world.set(json!({}));
        pass(SEC).await;
        assert_eq!(world.call_count("create pods"), 1);
        world.cluster.remove("pods", NAMESPACE, &world.pod_on("node-1"));
        world.cluster.remove("controllerrevisions.apps", NAMESPACE, &world.revisions()[0].0);
        world.cluster.remove("daemonsets.apps", NAMESPACE, "web");
        let uid = world.set(json!({}))["metadata"]["uid"].clone();
        pass(SEC).await;
        assert_eq!(world.call_count("create pods"), 2);
        assert_eq!(world.pod(&world.pod_on("node-1"))["metadata"]["ownerReferences"][0]["uid"], uid);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_070_an_orphan_is_adopted_and_not_duplicated() {
    let world = World::with_nodes(1);
    world.add_pod("orphan", json!({ "app": "web" }), "node-1", 60);
    let uid = world.pod("orphan")["metadata"]["uid"].clone();
    let _manager = world.start().await;
    let set = world.set(json!({ "updateStrategy": on_delete() }));
    pass(5 * SEC).await;
    assert_eq!(world.pods(), ["orphan"]);
    let owner = &world.pod("orphan")["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&set["metadata"]["uid"], &json!(true)));
    let calls = world.calls();
    let patches: Vec<Value> = calls.iter().filter(|it| it.verb == "patch").map(|it| it.json()).collect();
    assert_eq!(patches.len(), 1, "{:?}", world.lines());
    assert_eq!(patches[0]["metadata"]["uid"], uid, "another pod of the same name is not patched");
    assert_eq!(world.call_count("create pods"), 0);
    assert!(world.call_count("get daemonsets web") > 0, "the set is read before an adoption");
    assert_eq!(world.count("numberAvailable"), 1);
}

/// An adopted pod of the previous set has the hash of the current template, so it is not replaced.
#[tokio::test(start_paused = true)]
async fn a_set_that_is_created_again_adopts_the_pods_of_an_equal_template() {
    let (world, _manager) = World::running(2, json!({})).await;
    let (pods, hash) = (world.pods(), world.hash(&world.pod_on("node-1")));
    // As the garbage collector does with the policy Orphan.
    world.cluster.remove("daemonsets.apps", NAMESPACE, "web");
    let revision = world.revisions()[0].0.clone();
    let remove_owner = |it: &mut Value| drop(it["metadata"].as_object_mut().unwrap().remove("ownerReferences"));
    pods.iter().for_each(|it| world.update_pod(it, remove_owner));
    world.cluster.update("controllerrevisions.apps", NAMESPACE, &revision, remove_owner);
    let uid = world.set(json!({}))["metadata"]["uid"].clone();
    world.kubelet(10).await;
    assert_eq!(world.pods(), pods);
    assert!(pods.iter().all(|it| world.pod(it)["metadata"]["ownerReferences"][0]["uid"] == uid));
    assert_eq!(world.revision(&revision)["metadata"]["ownerReferences"][0]["uid"], uid);
    assert_eq!(world.revision(&revision)["metadata"]["labels"][HASH], hash);
    assert_eq!((world.revisions().len(), world.count("updatedNumberScheduled")), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_selected_any_more_is_released_and_replaced() {
    let (world, _manager) = World::running(1, json!({})).await;
    let pod = world.pod_on("node-1");
    world.update_pod(&pod, |it| it["metadata"]["labels"]["app"] = json!("other"));
    pass(SEC).await;
    assert_eq!((world.owner(&pod), world.pods().len()), (None, 2));
    assert_eq!((world.call_count("create pods"), world.call_count("delete pods")), (1, 0));
}

/// Upstream enqueues no set for it, so the node waits for another event.
#[tokio::test(start_paused = true)]
async fn a_terminating_pod_that_loses_its_owner_is_replaced() {
    let (world, _manager) = World::running(1, json!({})).await;
    let pod = world.pod_on("node-1");
    world.update_pod(&pod, |it| {
        it["metadata"]["finalizers"] = json!(["example.com/kept"]);
        it["metadata"]["deletionTimestamp"] = json!(world.second());
    });
    pass(SEC).await;
    assert_eq!(world.pods(), std::slice::from_ref(&pod));
    world.update_pod(&pod, |it| {
        it["metadata"]["ownerReferences"] = json!([]);
        it["metadata"]["labels"] = json!({});
    });
    pass(SEC).await;
    assert_eq!(world.pods().len(), 2);
}

/// Upstream claims the pods up to four times in each sync.
#[tokio::test(start_paused = true)]
async fn a_release_that_fails_is_tried_once_in_each_sync() {
    let (world, _manager) = World::running(1, json!({})).await;
    let pod = world.pod_on("node-1");
    let patch = format!("patch pods {pod}");
    let refused = patch.clone();
    world.fail_requests(move |line, _| if line == refused { failure(500, "InternalError") } else { None });
    world.update_pod(&pod, |it| it["metadata"]["labels"]["app"] = json!("other"));
    pass(5 * SEC).await;
    // The back-off between two syncs begins with 5 ms, and two patches of one sync have no time between them.
    let times = world.call_times(&patch);
    assert!(times.len() > 3 && times.windows(2).all(|it| it[1] - it[0] >= 4 * MS), "{times:?}");
    assert_eq!((world.lines().len(), world.owner(&pod).as_deref()), (times.len(), Some("web")));
}

/// A delete by name would delete the pod that another client created in the meantime.
#[tokio::test(start_paused = true)]
async fn a_deletion_names_the_pod_as_it_was_seen() {
    let (world, _manager) = World::running(1, json!({})).await;
    let pod: Value = world.pod(&world.pod_on("node-1"))["metadata"].clone();
    let seen = json!({ "uid": pod["uid"], "resourceVersion": pod["resourceVersion"] });
    world.set_image("two");
    pass(SEC).await;
    let calls = world.calls();
    assert_eq!(calls.iter().find(|it| it.verb == "delete").unwrap().json()["preconditions"], seen);
}
