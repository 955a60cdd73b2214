//! Owners that are deleted after their dependents.

use client::Propagation::{Foreground, Orphan};
use harness::pass;
use serde_json::json;

use crate::world::{SEC, World, blocking, own_metric, owner};

#[tokio::test(start_paused = true)]
async fn acceptance_gc_016_an_owner_is_deleted_after_its_blocking_dependents() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    for number in 0..20 {
        world.create("Pod", &format!("pod-{number}"), &[blocking(&rc)]);
    }
    world.create_held("Pod", "slow", &[blocking(&rc)]);
    let manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Foreground)).await;
    pass(5 * SEC).await;
    assert!(world.is_deleting("pods", "slow") && world.is_deleting("replicationcontrollers", "rc"));
    assert_eq!(world.names("pods"), ["slow"]);
    assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["foregroundDeletion"]);
    world.release("pods", "slow");
    pass(2 * SEC).await;
    assert_eq!((world.names("pods"), world.names("replicationcontrollers")), (vec![], vec![]));
    assert_eq!(world.call_count("delete pods"), 21);
    assert_eq!(world.call_count("patch replicationcontrollers rc"), 1);
    assert!(world.call_count("get") <= 2, "the owner is read at most once a second: {:?}", world.lines());
    assert_eq!(own_metric(&manager, "deletes_total{policy=\"Background\",reason=\"owner_waits\"}"), 21);
    let finalizer = world.calls().into_iter().find(|it| it.verb == "patch").unwrap().json();
    assert_eq!(finalizer["metadata"]["finalizers"], json!(null));
    assert_eq!(finalizer["metadata"]["uid"], rc["metadata"]["uid"]);
    assert!(finalizer["metadata"]["resourceVersion"].is_string());
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_017_a_dependent_with_a_finalizer_keeps_its_owner() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create_held("Pod", "held", &[blocking(&rc)]);
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Foreground)).await;
    pass(600 * SEC).await;
    assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["foregroundDeletion"]);
    assert!(world.is_deleting("pods", "held"));
    assert!(world.lines().len() <= 3, "no further requests: {:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_018_dependents_that_do_not_block_delay_no_owner() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    let mut allows = owner(&rc);
    allows["blockOwnerDeletion"] = json!(false);
    world.create_held("Pod", "unset", &[owner(&rc)]);
    world.create_held("Pod", "false", &[allows]);
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Foreground)).await;
    pass(SEC).await;
    assert!(!world.has("replicationcontrollers", "rc"));
    pass(5 * SEC).await;
    assert!(world.is_deleting("pods", "unset") && world.is_deleting("pods", "false"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_019_an_object_with_another_owner_stays_and_delays_no_owner() {
    let world = World::new();
    let (goes, stays) =
        (world.create("ReplicationController", "a", &[]), world.create("ReplicationController", "b", &[]));
    world.create("Pod", "pod", &[blocking(&goes), blocking(&stays)]);
    let _manager = world.start().await;
    world.delete("ReplicationController", "a", Some(Foreground)).await;
    pass(5 * SEC).await;
    assert!(!world.has("replicationcontrollers", "a"));
    assert_eq!(world.owners("pods", "pod"), ["b"]);
    assert!(!world.is_deleting("pods", "pod"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_020_a_dependent_is_deleted_after_its_own_dependents() {
    let world = World::new();
    let deployment = world.create("Deployment", "web", &[]);
    let set = world.create("ReplicaSet", "set", &[blocking(&deployment)]);
    world.create_held("Pod", "pod", &[blocking(&set)]);
    let _manager = world.start().await;
    world.delete("Deployment", "web", Some(Foreground)).await;
    pass(5 * SEC).await;
    assert_eq!(world.finalizers("ReplicaSet", "set"), ["foregroundDeletion"]);
    assert!(world.is_deleting("pods", "pod") && world.is_deleting("Deployment", "web"));
    world.release("pods", "pod");
    pass(5 * SEC).await;
    assert_eq!((world.names("Deployment"), world.names("ReplicaSet"), world.names("pods")), (vec![], vec![], vec![]));
    let deletes: Vec<_> = world.calls().into_iter().filter(|it| it.verb == "delete").collect();
    let policies: Vec<_> =
        deletes.iter().map(|it| (it.name.as_str(), it.json()["propagationPolicy"].clone())).collect();
    assert_eq!(policies, [("set", json!("Foreground")), ("pod", json!("Background"))]);
    // Five writes for three objects, and the reads of their owners.
    assert!(world.lines().len() <= 6, "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_021_a_cycle_is_deleted_completely() {
    for (kind, world) in [("Pod", World::new()), ("Widget", World::with_widgets())] {
        let first = world.create(kind, "a", &[]);
        let second = world.create(kind, "b", &[blocking(&first)]);
        let third = world.create(kind, "c", &[blocking(&second)]);
        world.cluster.update(kind, "n", "a", |it| it["metadata"]["ownerReferences"] = json!([blocking(&third)]));
        let _manager = world.start().await;
        pass(60 * SEC).await;
        assert_eq!(world.names(kind).len(), 3, "each has an owner that exists");
        world.delete(kind, "a", Some(Foreground)).await;
        pass(90 * SEC).await;
        assert_eq!(world.names(kind), [""; 0], "{:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_022_a_finalizer_is_removed_for_each_of_two_deletions() {
    let world = World::new();
    world.create_held("ConfigMap", "a", &[]);
    let _manager = world.start().await;
    for _ in 0..2 {
        world.delete("ConfigMap", "a", Some(Foreground)).await;
        pass(2 * SEC).await;
        assert_eq!(world.finalizers("configmaps", "a"), ["example.com/hold"]);
    }
    assert_eq!(world.call_count("patch configmaps a"), 2);
    world.release("configmaps", "a");
    assert!(!world.has("configmaps", "a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_023_an_owner_is_deleted_when_it_is_unblocked() {
    for (name, change) in [("removed", json!([])), ("flipped", json!(false)), ("unset", json!(null))] {
        let world = World::new();
        let rc = world.create("ReplicationController", "rc", &[]);
        world.create_held("Pod", "held", &[blocking(&rc)]);
        let _manager = world.start().await;
        world.delete("ReplicationController", "rc", Some(Foreground)).await;
        pass(5 * SEC).await;
        assert!(world.has("replicationcontrollers", "rc"), "{name}");
        world.cluster.update("pods", "n", "held", |it| {
            let references = &mut it["metadata"]["ownerReferences"];
            if change.is_array() {
                *references = change.clone();
            } else {
                references[0]["blockOwnerDeletion"] = change.clone();
            }
        });
        pass(2 * SEC).await;
        assert!(!world.has("replicationcontrollers", "rc"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_024_an_owner_that_waited_before_the_start_is_deleted() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create("Pod", "pod", &[blocking(&rc)]);
    world.delete("ReplicationController", "rc", Some(Foreground)).await;
    let _manager = world.start().await;
    pass(5 * SEC).await;
    assert_eq!((world.names("pods"), world.names("replicationcontrollers")), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_removed_after_monitors_synced_or_the_time_limit() {
    let world = World::new();
    let _manager = world.start().await;
    // A new type may have dependents, and cannot be listed.
    world.fail_lists("widgets");
    world.define_widgets();
    pass(5 * SEC).await;
    world.create_held("ConfigMap", "early", &[]);
    world.delete("ConfigMap", "early", Some(Foreground)).await;
    pass(15 * SEC).await;
    assert_eq!(world.finalizers("configmaps", "early"), ["example.com/hold", "foregroundDeletion"]);
    assert_eq!(world.lines(), [""; 0]);
    pass(20 * SEC).await;
    assert_eq!(world.finalizers("configmaps", "early"), ["example.com/hold"], "{:?}", world.lines());
    let told = world.logged("is removed although not all types are synced");
    assert!(told.len() == 1 && told[0].contains("widgets.example.com"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_049_custom_and_built_in_types_own_each_other() {
    let world = World::with_widgets();
    let widget = world.create("Widget", "w", &[]);
    world.create_held("ConfigMap", "of-widget", &[blocking(&widget)]);
    let map = world.create("ConfigMap", "m", &[]);
    world.create_held("Widget", "of-map", &[blocking(&map)]);
    let _manager = world.start().await;
    world.delete("Widget", "w", Some(Foreground)).await;
    world.delete("ConfigMap", "m", Some(Foreground)).await;
    pass(5 * SEC).await;
    assert!(world.has("Widget", "w") && world.has("configmaps", "m"), "both wait");
    world.release("configmaps", "of-widget");
    world.release("Widget", "of-map");
    pass(5 * SEC).await;
    assert_eq!((world.names("Widget"), world.names("configmaps")), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_removed_only_from_the_owner_itself() {
    let world = World::new();
    world.create("ConfigMap", "a", &[]);
    let _manager = world.start().await;
    let mut replaced = false;
    world.respond(move |line, cluster| {
        if line == "patch configmaps a" && !std::mem::replace(&mut replaced, true) {
            cluster.remove("configmaps", "n", "a");
            cluster.create(json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "name": "a", "namespace": "n", "finalizers": ["foregroundDeletion"] } }));
        }
        None
    });
    world.delete("ConfigMap", "a", Some(Foreground)).await;
    pass(10 * SEC).await;
    assert_eq!(world.finalizers("configmaps", "a"), ["foregroundDeletion"], "the successor keeps its finalizer");
    assert_eq!(world.lines(), ["patch configmaps a", "get configmaps a"]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_not_removed_in_four_attempts_is_retried_later() {
    let world = World::new();
    world.create("ConfigMap", "a", &[]);
    let _manager = world.start().await;
    world.respond(|line, _| {
        (line == "patch configmaps a").then(|| test_cluster::Interception::status(409, "Conflict", "no"))
    });
    world.delete("ConfigMap", "a", Some(Foreground)).await;
    pass(5 * SEC).await;
    let pauses: Vec<u128> = world.pauses("patch configmaps a").iter().map(|it| it.as_millis()).collect();
    let wanted: Vec<(u128, u128)> = vec![(10, 12), (50, 56), (250, 276)];
    for (pause, (least, most)) in pauses.iter().zip(wanted) {
        assert!((least..=most).contains(pause), "{pauses:?}");
    }
    let told = world.logged("updateMaxRetries(4) has reached. The garbage collector will retry later for owner");
    assert!(!told.is_empty() && told.len() <= world.call_count("patch configmaps a") / 4, "{told:?}");
    world.cluster.stop_intercepting();
    pass(5 * SEC).await;
    assert!(!world.has("configmaps", "a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_022_025_a_second_deletion_that_a_relist_merges_with_the_first_completes() {
    for (policy, finalizer) in [(Foreground, "foregroundDeletion"), (Orphan, "orphan")] {
        let world = World::new();
        let rc = world.create_held("ReplicationController", "rc", &[]);
        let _manager = world.start().await;
        world.delete("ReplicationController", "rc", Some(policy)).await;
        // The watch shows the first deletion, and then nothing until both are complete.
        world.respond(|line, cluster| {
            if line == "patch replicationcontrollers rc" {
                cluster.freeze_watches("replicationcontrollers");
            }
            None
        });
        pass(2 * SEC).await;
        world.cluster.stop_intercepting();
        assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["example.com/hold"], "{finalizer}");
        world.create("Pod", "pod", &[blocking(&rc)]);
        world.delete("ReplicationController", "rc", Some(policy)).await;
        assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["example.com/hold", finalizer]);
        world.cluster.compact();
        world.cluster.break_watches("replicationcontrollers");
        pass(60 * SEC).await;
        assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["example.com/hold"], "{:?}", world.lines());
        assert_eq!(world.call_count("patch replicationcontrollers rc"), 2, "{finalizer}");
        assert_eq!(world.has("pods", "pod"), finalizer == "orphan");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_025_a_deletion_that_is_merged_into_a_later_change_completes() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create("Pod", "pod", &[blocking(&rc)]);
    let _manager = world.start().await;
    world.cluster.freeze_watches("replicationcontrollers");
    world.delete("ReplicationController", "rc", Some(Foreground)).await;
    world.cluster.update("replicationcontrollers", "n", "rc", |it| it["metadata"]["labels"] = json!({ "a": "b" }));
    world.cluster.compact();
    world.cluster.break_watches("replicationcontrollers");
    pass(60 * SEC).await;
    assert_eq!((world.names("pods"), world.names("replicationcontrollers")), (vec![], vec![]));
}
