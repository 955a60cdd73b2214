//! Writes that return 404 though the object exists: a webhook returns the 404 of another object, or the server does not
//! find the namespace.

use client::Propagation::{Background, Foreground, Orphan};
use harness::pass;

use crate::world::{SEC, World, blocking, missing, owner};

#[tokio::test(start_paused = true)]
async fn a_404_to_a_delete_proves_nothing_while_the_object_can_be_read() {
    // A webhook may return any error, also one with the details of the object itself.
    for (kind, group) in [("companions", "example.com"), ("configmaps", "")] {
        let world = World::new();
        let rc = world.create("ReplicationController", "rc", &[]);
        let middle = world.create("ConfigMap", "m", &[owner(&rc)]);
        world.create("Secret", "below", &[owner(&middle)]);
        world.respond(move |line, _| (line == "delete configmaps m").then(|| missing("m", kind, group)));
        let _manager = world.start().await;
        world.delete("ReplicationController", "rc", Some(Background)).await;
        pass(60 * SEC).await;
        assert!(
            world.has("secrets", "below") && world.call_count("delete secrets") == 0,
            "{kind}: {:?}",
            world.lines()
        );
        let (deletes, reads) = (world.call_count("delete configmaps m"), world.call_count("get configmaps m"));
        assert!(deletes > 5, "it is retried: {:?}", world.lines());
        assert_eq!(deletes, reads, "{kind}");
        assert!(!world.logged("Sync failed").is_empty(), "the failure is logged");
        world.cluster.stop_intercepting();
        pass(120 * SEC).await;
        assert!(!world.has("configmaps", "m") && !world.has("secrets", "below"), "{kind}: {:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn a_404_to_a_patch_does_not_count_as_orphaned() {
    for (kind, group) in [("namespaces", ""), ("replicasets", "apps")] {
        let world = World::new();
        let web = world.create("Deployment", "web", &[]);
        let set = world.create("ReplicaSet", "set", &[blocking(&web)]);
        world.create("Pod", "pod", &[owner(&set)]);
        world.respond(move |line, _| (line == "patch replicasets set").then(|| missing("set", kind, group)));
        let _manager = world.start().await;
        world.delete("Deployment", "web", Some(Orphan)).await;
        pass(60 * SEC).await;
        assert!(world.has("ReplicaSet", "set") && world.has("pods", "pod"), "{kind}: {:?}", world.lines());
        assert_eq!(world.finalizers("Deployment", "web"), ["orphan"], "{kind}: it still names the owner");
        world.cluster.stop_intercepting();
        pass(120 * SEC).await;
        assert!(!world.has("Deployment", "web") && world.owners("ReplicaSet", "set").is_empty(), "{kind}");
        assert!(world.has("pods", "pod"), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_removal_with_a_404_is_retried_later() {
    for policy in [Foreground, Orphan] {
        let world = World::new();
        let rc = world.create("ReplicationController", "rc", &[]);
        world.create("Pod", "pod", &[owner(&rc)]);
        let mut left = 3;
        world.respond(move |line, _| {
            let is_missing = line == "patch replicationcontrollers rc" && left > 0;
            left -= i32::from(is_missing);
            is_missing.then(|| missing("rc", "replicationcontrollers", ""))
        });
        let _manager = world.start().await;
        world.delete("ReplicationController", "rc", Some(policy)).await;
        pass(60 * SEC).await;
        assert!(!world.has("replicationcontrollers", "rc"), "{policy:?}: {:?}", world.lines());
        assert_eq!(world.has("pods", "pod"), policy == Orphan, "{policy:?}");
        let asked = ["patch", "get"].map(|it| world.call_count(&format!("{it} replicationcontrollers rc")));
        // A waiting owner is also read for its dependent, and an orphaning owner is read in each pass.
        assert_eq!(asked, [4, 3 + if policy == Foreground { 1 } else { 4 }], "{policy:?}: {:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn a_cycle_is_broken_later_after_a_404() {
    for (kind, plural) in [("Pod", "pods"), ("Widget", "widgets")] {
        let world = World::with_widgets();
        let first = world.create(kind, "a", &[]);
        let second = world.create(kind, "b", &[blocking(&first)]);
        let circle = blocking(&second);
        world.cluster.update(kind, "n", "a", |it| it["metadata"]["ownerReferences"] = serde_json::json!([circle]));
        let mut left = 3;
        world.respond(move |line, _| {
            let is_missing = line == format!("patch {plural} b") && left > 0;
            left -= i32::from(is_missing);
            is_missing.then(|| missing("b", plural, ""))
        });
        let _manager = world.start().await;
        world.delete(kind, "a", Some(Foreground)).await;
        pass(60 * SEC).await;
        assert_eq!(world.names(kind), [""; 0], "{:?}", world.lines());
    }
}
