//! Revisions: collisions, duplicates, rollbacks and the limit of the history.

use harness::{NAMESPACE, failure, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{HASH, SEC, World, adds, on_delete, template};

/// The name of the first revision of a set with this image.
async fn first_revision(image: &str) -> String {
    let world = World::with_nodes(0);
    let _manager = world.start().await;
    let container = json!({ "name": "main", "image": image });
    world.set(json!({ "template": template(json!({ "containers": [container] })) }));
    pass(SEC).await;
    world.revisions()[0].0.clone()
}

/// Creates a revision with data of something else.
fn add_foreign_revision(world: &World, name: &str) {
    world.cluster.create(json!({ "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": { "name": name, "namespace": NAMESPACE }, "data": { "x": 1 }, "revision": 1 }));
}

/// Creates a revision of the set with the data of another one, and with `dup` as its hash.
fn add_duplicate(world: &World, of: &str, number: i64) {
    add_duplicate_with_hash(world, of, number, "dup");
}

fn add_duplicate_with_hash(world: &World, of: &str, number: i64, hash: &str) {
    let mut copy = world.revision(of);
    let metadata = json!({ "name": "web-dup", "namespace": NAMESPACE, "labels": { "app": "web", HASH: hash },
        "ownerReferences": copy["metadata"]["ownerReferences"] });
    copy["metadata"] = metadata;
    copy["revision"] = json!(number);
    world.cluster.create(copy);
}

fn hash_of(revision: &str) -> &str {
    revision.strip_prefix("web-").unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_new_set_has_one_revision_with_its_template() {
    let (world, _manager) = World::running(2, json!({})).await;
    let [(name, 1)] = &world.revisions()[..] else { panic!("{:?}", world.revisions()) };
    let stored = world.revision(name);
    assert_eq!(stored["metadata"]["labels"], json!({ "app": "web", HASH: hash_of(name) }));
    assert_eq!(stored["metadata"]["ownerReferences"][0]["kind"], "DaemonSet");
    assert_eq!(stored["data"]["spec"]["template"]["$patch"], "replace");
    assert!(world.pods().iter().all(|it| world.hash(it) == hash_of(name)));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_060_a_name_that_other_data_has_raises_the_counter_once() {
    let taken = first_revision("one").await;
    let world = World::with_nodes(2);
    add_foreign_revision(&world, &taken);
    let _manager = world.start().await;
    world.set(json!({}));
    world.kubelet(10).await;
    assert_eq!((world.count("collisionCount"), world.count("numberAvailable")), (1, 2));
    let names: Vec<String> = world.revisions().into_iter().map(|it| it.0).collect();
    let [own] = &names.iter().filter(|it| **it != taken).collect::<Vec<_>>()[..] else { panic!("{names:?}") };
    assert_eq!(world.revision(own)["metadata"]["labels"][HASH], hash_of(own));
    assert!(world.pods().iter().all(|it| world.hash(it) == hash_of(own)));
    assert_eq!(world.revision(&taken)["data"], json!({ "x": 1 }));
    assert!(world.revision(&taken)["metadata"]["ownerReferences"].is_null());
}

/// A sync tries 20 names.
#[tokio::test(start_paused = true)]
async fn after_many_collisions_the_counter_is_stored_and_a_later_sync_finds_a_free_name() {
    let world = World::with_nodes(2);
    let mut left = 25;
    world.fail_requests(move |line, call| match line {
        "create controllerrevisions" if left > 0 => {
            left -= 1;
            failure(409, "AlreadyExists")
        }
        _ if line.starts_with("get controllerrevisions ") => {
            let body = json!({ "apiVersion": "apps/v1", "kind": "ControllerRevision",
                "metadata": { "name": call.name, "namespace": NAMESPACE, "uid": "foreign", "resourceVersion": "1" },
                "data": { "x": 1 }, "revision": 1 });
            Some(Interception::Answer { status: 200, headers: Vec::new(), body })
        }
        _ => None,
    });
    let _manager = world.start().await;
    world.set(json!({}));
    world.kubelet(10).await;
    let calls = world.calls();
    let first = calls.iter().find(|it| it.subresource == "status").unwrap().json();
    assert_eq!((&first["status"]["collisionCount"], world.count("collisionCount")), (&json!(20), 25));
    assert_eq!((world.revisions().len(), world.call_count("create controllerrevisions")), (1, 26));
    assert_eq!((world.count("numberAvailable"), world.count("observedGeneration")), (2, 1));
}

/// Another manager has raised the counter, and the cache does not show it yet.
#[tokio::test(start_paused = true)]
async fn acceptance_ds_061_a_stale_counter_of_collisions_does_not_raise_the_stored_one() {
    let taken = first_revision("two").await;
    for stored in [1, 3] {
        let (world, _manager) = World::running(2, json!({})).await;
        add_foreign_revision(&world, &taken);
        let mut first = true;
        world.fail_requests(move |line, _| {
            let is_first = line == "create controllerrevisions" && std::mem::take(&mut first);
            is_first.then_some(Interception::Delay(SEC))
        });
        world.set_image("two");
        pass(SEC / 2).await;
        world.update_set(|it| it["status"]["collisionCount"] = json!(stored));
        world.kubelet(30).await;
        assert_eq!(world.count("collisionCount"), stored);
        assert_eq!((world.count("updatedNumberScheduled"), world.count("observedGeneration")), (2, 2));
        assert!(world.images().values().all(|it| it == "two"));
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_062_of_two_equal_revisions_the_one_with_the_higher_number_stays() {
    let (world, manager) = World::running(2, json!({ "updateStrategy": on_delete() })).await;
    world.set_image("two");
    pass(SEC).await;
    world.cluster.remove("pods", NAMESPACE, &world.pod_on("node-2"));
    world.kubelet(10).await;
    let [(first, 1), (second, 2)] = &world.revisions()[..] else { panic!("{:?}", world.revisions()) };
    drop(manager);
    add_duplicate(&world, second, 5);
    let (old, new) = (world.pod_on("node-1"), world.pod_on("node-2"));
    let uid_of = |it: &Value| it["metadata"]["uid"].clone();
    let (uid, revision_uid) = (uid_of(&world.pod(&new)), uid_of(&world.revision(second)));
    world.cluster.clear_requests();
    let _manager = world.start().await;
    pass(10 * SEC).await;
    assert_eq!(world.revisions(), [(first.clone(), 1), ("web-dup".to_owned(), 5)]);
    // Upstream relabels all pods, so that old ones count as updated.
    assert_eq!((world.hash(&old), world.hash(&new)), (hash_of(first).to_owned(), "dup".to_owned()));
    let writes: Vec<String> = world.lines().into_iter().filter(|it| !it.contains("/status")).collect();
    assert_eq!(writes, [format!("patch pods {new}"), format!("delete controllerrevisions {second}")]);
    let calls = world.calls();
    let body = |verb: &str| calls.iter().find(|it| it.verb == verb).unwrap().json();
    assert_eq!(body("patch")["metadata"]["uid"], uid);
    assert_eq!(body("delete")["preconditions"]["uid"], revision_uid);
    assert_eq!(world.count("updatedNumberScheduled"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_revision_with_the_same_hash_is_removed_and_no_pod_is_written() {
    let (world, manager) = World::running(2, json!({})).await;
    let own = world.revisions()[0].0.clone();
    drop(manager);
    add_duplicate_with_hash(&world, &own, 2, hash_of(&own));
    world.cluster.clear_requests();
    let _manager = world.start().await;
    pass(10 * SEC).await;
    assert_eq!((world.revisions().len(), world.call_count("patch pods")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_063_a_new_owned_revision_causes_no_sync_and_its_deletion_does() {
    let (world, manager) = World::running(1, json!({})).await;
    let own = world.revisions()[0].0.clone();
    let before = adds(&manager, "daemonset");
    add_duplicate(&world, &own, 2);
    pass(30 * SEC).await;
    assert_eq!((world.lines(), world.revisions().len()), (vec![], 2));
    assert_eq!(adds(&manager, "daemonset"), before);
    [own.as_str(), "web-dup"].iter().for_each(|it| world.cluster.remove("controllerrevisions.apps", NAMESPACE, it));
    pass(SEC).await;
    assert_eq!(world.call_count("create controllerrevisions"), 1);
    assert_eq!(world.revisions(), [(own, 1)]);
    assert_eq!(world.call_count("create pods") + world.call_count("delete pods"), 0);
}

/// As in the conformance test for revisions. The label of the generation protects the pods.
#[tokio::test(start_paused = true)]
async fn acceptance_ds_063_a_revision_that_replaces_the_own_one_is_used_without_a_restart_of_pods() {
    let (world, _manager) = World::running(2, json!({})).await;
    let own = world.revisions()[0].0.clone();
    add_duplicate(&world, &own, 2);
    pass(5 * SEC).await;
    world.cluster.remove("controllerrevisions.apps", NAMESPACE, &own);
    world.kubelet(10).await;
    assert_eq!(world.revisions(), [("web-dup".to_owned(), 2)]);
    assert_eq!(world.call_count("delete pods") + world.call_count("create controllerrevisions"), 0);
    assert_eq!(world.count("updatedNumberScheduled"), 2);
    world.set_image("next");
    world.kubelet(30).await;
    let numbers: Vec<_> = world.revisions().into_iter().map(|it| it.1).collect();
    assert_eq!(numbers, [2, 3], "the final number of the conformance test");
}

#[tokio::test(start_paused = true)]
async fn acceptance_ds_064_the_oldest_revisions_without_pods_are_deleted_first() {
    let (world, _manager) = World::running(2, json!({ "updateStrategy": on_delete() })).await;
    for (image, restarted) in [("two", vec!["node-1", "node-2"]), ("three", vec!["node-2"]), ("four", vec!["node-2"])] {
        world.set_image(image);
        pass(SEC).await;
        restarted.iter().for_each(|it| world.cluster.remove("pods", NAMESPACE, &world.pod_on(it)));
        world.kubelet(5).await;
    }
    let [(first, 1), (second, 2), (third, 3), (fourth, 4)] = &world.revisions()[..] else {
        panic!("{:?}", world.revisions())
    };
    let hashes = ["node-1", "node-2"].map(|it| world.hash(&world.pod_on(it)));
    assert_eq!(hashes, [hash_of(second), hash_of(fourth)]);
    world.cluster.clear_requests();
    world.edit(|spec| spec["revisionHistoryLimit"] = json!(2));
    pass(5 * SEC).await;
    assert_eq!(world.revisions(), [(second.clone(), 2), (third.clone(), 3), (fourth.clone(), 4)]);
    world.edit(|spec| spec["revisionHistoryLimit"] = json!(1));
    pass(5 * SEC).await;
    assert_eq!(world.revisions(), [(second.clone(), 2), (fourth.clone(), 4)], "the one with a pod stays");
    let deletions = [first, third].map(|it| format!("delete controllerrevisions {it}"));
    let lines = world.lines();
    assert_eq!(lines.iter().filter(|it| it.starts_with("delete")).collect::<Vec<_>>(), deletions.each_ref());
}

#[tokio::test(start_paused = true)]
async fn a_rollback_raises_the_number_of_the_old_revision() {
    let (world, _manager) = World::running(1, json!({})).await;
    let first = world.revisions()[0].0.clone();
    world.set_image("two");
    world.kubelet(10).await;
    world.cluster.clear_requests();
    world.set_image("one");
    world.kubelet(10).await;
    let [(second, 2), (last, 3)] = &world.revisions()[..] else { panic!("{:?}", world.revisions()) };
    assert!(*last == first && *second != first);
    assert_eq!(world.call_count(&format!("patch controllerrevisions {first}")), 1);
    assert_eq!(world.call_count("create controllerrevisions"), 0);
    assert_eq!(world.images()["node-1"], "one");
    assert_eq!(world.hash(&world.pod_on("node-1")), hash_of(&first));
}

#[tokio::test(start_paused = true)]
async fn a_legacy_revision_without_a_hash_gets_its_own_name_as_the_hash() {
    let (world, manager) = World::running(2, json!({})).await;
    let name = world.revisions()[0].0.clone();
    drop(manager);
    world.cluster.update("controllerrevisions.apps", NAMESPACE, &name, |it| {
        it["metadata"]["labels"] = json!({ "app": "web" });
    });
    let _manager = world.start().await;
    world.kubelet(10).await;
    assert_eq!(world.revision(&name)["metadata"]["labels"][HASH], name);
    assert_eq!(world.call_count(&format!("patch controllerrevisions {name}")), 1);
    // The label of the generation says that the pods are new.
    assert_eq!((world.call_count("delete pods"), world.count("updatedNumberScheduled")), (0, 2));
    assert_eq!(world.revisions(), [(name, 1)]);
}

#[tokio::test(start_paused = true)]
async fn an_orphaned_revision_is_adopted_and_used() {
    let (world, manager) = World::running(1, json!({})).await;
    let name = world.revisions()[0].0.clone();
    drop(manager);
    world.cluster.update("controllerrevisions.apps", NAMESPACE, &name, |it| {
        it["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    });
    let _manager = world.start().await;
    world.kubelet(5).await;
    assert_eq!(world.revisions(), [(name.clone(), 1)]);
    assert_eq!(world.revision(&name)["metadata"]["ownerReferences"][0]["name"], "web");
    assert_eq!(world.call_count("create controllerrevisions") + world.call_count("delete pods"), 0);
}
