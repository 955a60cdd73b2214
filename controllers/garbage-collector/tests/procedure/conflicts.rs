//! Changes between the verdict and the DELETE.

use client::Propagation::{Background, Foreground};
use harness::{failure, pass};
use serde_json::{Value, json};
use test_cluster::TestCluster;

use crate::world::{SEC, World, blocking, missing_owner, own_metric, owner};

/// An owner that is gone, and a pod of it. Runs `change` just before the first DELETE of the pod arrives.
async fn changed(world: &World, change: impl FnOnce(&TestCluster) + Send + 'static) {
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create("Pod", "pod", &[owner(&rc)]);
    let mut change = Some(change);
    world.respond(move |line, cluster| {
        if line == "delete pods pod"
            && let Some(change) = change.take()
        {
            change(cluster);
        }
        None
    });
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_036_an_owner_added_meanwhile_counts() {
    let world = World::new();
    let added = owner(&world.create("ReplicationController", "added", &[]));
    changed(&world, |cluster| {
        cluster.update("pods", "n", "pod", |it| {
            it["metadata"]["ownerReferences"].as_array_mut().unwrap().push(added);
        });
    })
    .await;
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(30 * SEC).await;
    assert_eq!(world.owners("pods", "pod"), ["added"]);
    assert_eq!(world.calls()[0].status, 409);
    assert_eq!(world.call_count("delete"), 1, "{:?}", world.lines());
    assert_eq!(world.call_count("patch pods pod"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_036_an_object_whose_owners_were_removed_stays() {
    let world = World::new();
    changed(&world, |cluster| {
        cluster.update("pods", "n", "pod", |it| it["metadata"]["ownerReferences"] = json!([]));
    })
    .await;
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(30 * SEC).await;
    assert!(world.has("pods", "pod") && !world.is_deleting("pods", "pod"));
    assert_eq!(world.lines(), ["delete pods pod", "get pods pod"]);
    assert_eq!(world.calls()[0].status, 409);
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_037_irrelevant_changes_do_not_prevent_the_delete() {
    let world = World::new();
    changed(&world, |cluster| {
        cluster.update("pods", "n", "pod", |it| it["metadata"]["labels"] = json!({ "a": "b" }));
    })
    .await;
    let manager = world.start().await;
    world.cluster.freeze_watches("pods");
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(SEC).await;
    assert!(!world.has("pods", "pod"));
    assert_eq!(world.lines(), ["delete pods pod", "get pods pod", "delete pods pod"], "in one pass, without the watch");
    let bodies: Vec<Value> =
        world.calls().iter().filter(|it| it.verb == "delete").map(test_cluster::Call::json).collect();
    assert_eq!(bodies[0]["preconditions"]["uid"], bodies[1]["preconditions"]["uid"]);
    assert_ne!(bodies[0]["preconditions"]["resourceVersion"], bodies[1]["preconditions"]["resourceVersion"]);
    assert!(bodies[1]["preconditions"]["resourceVersion"].is_string(), "the second one has a resourceVersion too");
    assert_eq!(own_metric(&manager, "deletes_total{policy=\"Background\",reason=\"owners_gone\"}"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_038_a_delete_of_a_gone_object_is_not_retried() {
    // How the owner is deleted, the finalizer of the object, and the resulting policy of its deletion.
    for (owners, finalizer, policy) in [
        (Background, None, "Background"),
        (Background, Some("orphan"), "Orphan"),
        (Background, Some("foregroundDeletion"), "Foreground"),
        (Foreground, None, "Foreground"),
    ] {
        let world = World::new();
        let rc = world.create("ReplicationController", "rc", &[]);
        let finalizers: Vec<&str> = finalizer.into_iter().collect();
        let metadata = json!({
            "namespace": "n", "name": "pod", "ownerReferences": [blocking(&rc)], "finalizers": finalizers,
        });
        let pod = world.create_with("Pod", metadata);
        world.create("ConfigMap", "below", &[owner(&pod)]);
        world.respond(|line, cluster| {
            if line == "delete pods pod" {
                cluster.remove("pods", "n", "pod");
            }
            None
        });
        let manager = world.start().await;
        world.cluster.freeze_watches("pods");
        world.delete("ReplicationController", "rc", Some(owners)).await;
        pass(30 * SEC).await;
        let case = format!("{owners:?} {finalizer:?}: {:?}", world.lines());
        let of_owner = |line: &String| line.ends_with("replicationcontrollers rc");
        let lines: Vec<String> = world.lines().into_iter().filter(|it| !of_owner(it)).collect();
        assert_eq!(
            lines,
            ["delete pods pod", "get pods pod", "delete configmaps below"],
            "{case}: the 404 to the DELETE is checked once, and its dependents are processed without the watch"
        );
        let deleted = world.calls().into_iter().find(|it| it.verb == "delete").unwrap();
        assert_eq!((deleted.status, &deleted.json()["propagationPolicy"]), (404, &json!(policy)), "{case}");
        assert!(!world.has("replicationcontrollers", "rc"), "{case}: no dependent blocks it any more");
        let queued = || manager.metric("workqueue_adds_total{name=\"garbage_collector_attempt_to_delete\"}");
        let early = queued();
        pass(600 * SEC).await;
        assert_eq!(queued(), early, "{case}: it is not queued again");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_039_a_successor_stays_and_dependents_of_the_first_are_deleted() {
    let world = World::new();
    changed(&world, |cluster| {
        cluster.remove("pods", "n", "pod");
        cluster.create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "pod", "namespace": "n" } }));
    })
    .await;
    let mut reference = owner(&world.get("Pod", "pod").unwrap());
    reference["apiVersion"] = json!("v1");
    reference["kind"] = json!("Pod");
    world.create("ConfigMap", "below", &[reference]);
    let _manager = world.start().await;
    world.cluster.freeze_watches("pods");
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(30 * SEC).await;
    assert_eq!(world.lines(), ["delete pods pod", "get pods pod", "delete configmaps below"]);
    assert!(world.has("pods", "pod") && !world.is_deleting("pods", "pod"));
}

#[tokio::test(start_paused = true)]
async fn a_constantly_written_object_backs_off_and_is_deleted_in_the_end() {
    let world = World::new();
    world.create("Pod", "pod", &[missing_owner("v1", "ReplicationController", "never")]);
    let mut left = 10;
    world.respond(move |line, cluster| {
        if line == "delete pods pod" && left > 0 {
            left -= 1;
            cluster.update("pods", "n", "pod", |it| it["metadata"]["labels"] = json!({ "left": left.to_string() }));
        }
        None
    });
    let manager = world.start().await;
    pass(10 * SEC).await;
    assert!(!world.has("pods", "pod"));
    // One more pass may begin before the watch shows the change that the last one met.
    assert!((11..=12).contains(&world.call_count("delete pods pod")));
    assert_eq!(own_metric(&manager, "deletes_total{policy=\"Background\",reason=\"owners_gone\"}"), 1);
    assert_eq!(world.logged("Sync failed"), [""; 0], "a conflict is not a failure");
}

#[tokio::test(start_paused = true)]
async fn a_failing_delete_backs_off() {
    let world = World::new();
    world.create("Pod", "pod", &[missing_owner("v1", "ReplicationController", "never")]);
    world.respond(|line, _| if line.starts_with("delete") { failure(500, "InternalError") } else { None });
    let _manager = world.start().await;
    pass(60 * SEC).await;
    let pauses = world.pauses("delete pods pod");
    assert!(pauses.len() >= 8 && pauses.windows(2).all(|it| it[1] > it[0]), "{pauses:?}");
    assert_eq!(world.call_count("get"), 1, "the proof is kept");
    world.cluster.stop_intercepting();
    pass(120 * SEC).await;
    assert!(!world.has("pods", "pod"));
}

/// An object of two owners, one of which is deleted. Runs `change` on the object just before its reference to that
/// owner is removed.
async fn detached(kind: &'static str, plural: &'static str, change: fn(&mut Value)) -> World {
    let world = World::with_widgets();
    let [goes, stays] = ["goes", "stays"].map(|it| owner(&world.create("ReplicationController", it, &[])));
    world.create(kind, "it", &[goes, stays]);
    let mut change = Some(change);
    world.respond(move |line, cluster| {
        if line == format!("patch {plural} it")
            && let Some(change) = change.take()
        {
            cluster.update(kind, "n", "it", change);
        }
        None
    });
    let _manager = world.start().await;
    world.delete("ReplicationController", "goes", Some(Background)).await;
    pass(30 * SEC).await;
    assert_eq!(world.logged("Sync failed"), [""; 0], "a conflict is not a failure");
    world
}

#[tokio::test(start_paused = true)]
async fn references_stay_if_the_existing_owner_was_removed_meanwhile() {
    for (kind, plural) in [("Pod", "pods"), ("Widget", "widgets")] {
        let world = detached(kind, plural, |it| {
            it["metadata"]["ownerReferences"].as_array_mut().unwrap().retain(|it| it["name"] == "goes");
        })
        .await;
        assert!(!world.has(kind, "it"), "{:?}", world.lines());
        let patches = world.calls().into_iter().filter(|it| it.verb == "patch").map(|it| it.status);
        assert!(patches.clone().all(|it| it >= 400), "{kind} {:?}", patches.collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn a_reference_is_removed_despite_other_writes() {
    for (kind, plural) in [("Pod", "pods"), ("Widget", "widgets")] {
        let world = detached(kind, plural, |it| it["metadata"]["labels"] = json!({ "a": "b" })).await;
        assert_eq!(world.owners(kind, "it"), ["stays"], "{:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_added_while_a_cycle_is_broken_counts() {
    let world = World::new();
    let first = world.create("Pod", "a", &[]);
    let second = world.create("Pod", "b", &[blocking(&first)]);
    world.cluster.update("pods", "n", "a", |it| it["metadata"]["ownerReferences"] = json!([blocking(&second)]));
    let added = owner(&world.create("ReplicationController", "added", &[]));
    // `b` must stop blocking `a`, whose deletion waits for it. Just then it gets another owner.
    let mut added = Some(added);
    world.respond(move |line, cluster| {
        if line == "patch pods b"
            && let Some(added) = added.take()
        {
            cluster.update("pods", "n", "b", |it| {
                it["metadata"]["ownerReferences"].as_array_mut().unwrap().push(added);
            });
        }
        None
    });
    let _manager = world.start().await;
    world.delete("Pod", "a", Some(Foreground)).await;
    pass(60 * SEC).await;
    assert!(!world.has("pods", "a"), "{:?}", world.lines());
    assert!(!world.is_deleting("pods", "b"), "{:?}", world.lines());
    assert_eq!(world.owners("pods", "b"), ["added"]);
}
