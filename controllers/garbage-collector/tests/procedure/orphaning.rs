//! Owners whose dependents stay.

use client::Propagation::{Background, Orphan};
use harness::pass;
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, SEC, World, blocking, own_metric, owner};

#[tokio::test(start_paused = true)]
async fn acceptance_gc_009_dependents_stay_without_the_owner_reference() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    for number in 0..120 {
        world.create("Pod", &format!("pod-{number}"), &[blocking(&rc)]);
    }
    let manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    pass(5 * SEC).await;
    assert!(!world.has("replicationcontrollers", "rc"));
    assert_eq!(world.names("pods").len(), 120);
    assert!(world.names("pods").iter().all(|it| world.owners("pods", it).is_empty()));
    assert_eq!((world.call_count("patch pods"), world.call_count("patch replicationcontrollers")), (120, 1));
    assert_eq!((world.lines().len(), world.call_count("get replicationcontrollers")), (122, 1), "no other requests");
    assert_eq!(own_metric(&manager, "references_removed_total{reason=\"orphaned\"}"), 120);
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_010_the_server_chooses_the_default_policy() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    let set = world.create("ReplicaSet", "set", &[]);
    world.create("Pod", "of-rc", &[owner(&rc)]);
    world.create("Pod", "of-set", &[owner(&set)]);
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", None).await;
    world.delete("ReplicaSet", "set", None).await;
    pass(5 * SEC).await;
    assert_eq!(world.names("pods"), ["of-rc"]);
    assert_eq!((world.names("replicationcontrollers"), world.names("ReplicaSet")), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_011_a_replica_set_outlives_its_deployment() {
    let world = World::new();
    let deployment = world.create("Deployment", "web", &[]);
    let mut controlled = blocking(&deployment);
    controlled["controller"] = json!(true);
    let set = world.create("ReplicaSet", "set", &[controlled]);
    world.create("Pod", "pod", &[owner(&set)]);
    let _manager = world.start().await;
    world.delete("Deployment", "web", Some(Orphan)).await;
    pass(5 * SEC).await;
    assert!(!world.has("Deployment", "web"));
    assert_eq!((world.owners("ReplicaSet", "set").len(), world.owners("pods", "pod")), (0, vec!["set".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_012_a_dependent_that_cannot_be_patched_keeps_the_owner() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create("Pod", "busy", &[owner(&rc)]);
    world.create("Pod", "quiet", &[owner(&rc)]);
    world.respond(|line, _| (line == "patch pods busy").then(|| Interception::status(409, "Conflict", "busy")));
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    pass(30 * SEC).await;
    assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["orphan"]);
    assert!(world.owners("pods", "quiet").is_empty());
    assert!(world.call_count("patch pods busy") > 5, "it is retried");
    assert_eq!(world.call_count("patch replicationcontrollers"), 0);
    world.cluster.stop_intercepting();
    pass(120 * SEC).await;
    assert!(!world.has("replicationcontrollers", "rc") && world.owners("pods", "busy").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_013_a_deleted_dependent_is_ignored() {
    for replaced in [false, true] {
        let world = World::new();
        let rc = world.create("ReplicationController", "rc", &[]);
        world.create("Pod", "pod", &[owner(&rc)]);
        world.respond(move |line, cluster| {
            if line == "patch pods pod"
                && cluster.get("pods", "n", "pod").is_some_and(|it| it["metadata"]["labels"].is_null())
            {
                cluster.remove("pods", "n", "pod");
                if replaced {
                    cluster.create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {
                        "name": "pod", "namespace": "n", "labels": { "is": "another" } } }));
                }
            }
            None
        });
        let _manager = world.start().await;
        world.delete("ReplicationController", "rc", Some(Orphan)).await;
        pass(5 * SEC).await;
        assert!(!world.has("replicationcontrollers", "rc"), "replaced: {replaced}");
        assert_eq!(world.has("pods", "pod"), replaced);
        assert_eq!(world.call_count("patch pods"), 1);
        assert_eq!(world.call_count("get pods"), 1, "a read shows if it is gone or replaced");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_014_orphaning_comes_before_waiting() {
    let world = World::new();
    let rc = world.create_with(
        "ReplicationController",
        json!({
            "name": "rc", "namespace": "n", "finalizers": ["foregroundDeletion", "orphan"],
            "deletionTimestamp": "2027-01-15T08:00:00Z",
        }),
    );
    world.create("Pod", "pod", &[blocking(&rc)]);
    let _manager = world.start().await;
    pass(5 * SEC).await;
    assert!(world.has("pods", "pod") && world.owners("pods", "pod").is_empty());
    assert!(!world.has("replicationcontrollers", "rc"), "then it is deleted: {:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_015_custom_resources_get_a_merge_patch() {
    let world = World::with_widgets();
    let parent = world.create("Widget", "parent", &[]);
    let other = world.create("ConfigMap", "other", &[]);
    world.create("Widget", "a", &[blocking(&parent), owner(&other)]);
    world.create("Widget", "b", &[blocking(&parent)]);
    world.create("ConfigMap", "c", &[blocking(&parent)]);
    let _manager = world.start().await;
    world.delete("Widget", "parent", Some(Orphan)).await;
    pass(5 * SEC).await;
    assert_eq!(
        (world.names("Widget"), world.owners("Widget", "a")),
        (vec!["a".into(), "b".into()], vec!["other".into()])
    );
    assert!(world.owners("Widget", "b").is_empty() && world.owners("configmaps", "c").is_empty());
    let calls = world.calls();
    let (refused, done): (Vec<_>, Vec<_>) = calls
        .iter()
        .filter(|it| it.verb == "patch" && it.resource == "widgets" && it.name != "parent")
        .partition(|it| it.status == 415);
    assert!(!refused.is_empty(), "strategic patches are sent first: {:?}", world.lines());
    for name in ["a", "b"] {
        let patch = done.iter().find(|it| it.name == name).unwrap().json();
        assert!(patch["metadata"]["resourceVersion"].is_string(), "the merge patch has a resourceVersion: {patch}");
        assert!(!patch.to_string().contains("$patch"), "it contains all remaining fields: {patch}");
    }
    let second = world.create("Widget", "second", &[]);
    world.create("Widget", "d", &[owner(&second)]);
    pass(SEC).await;
    world.cluster.clear_requests();
    world.delete("Widget", "second", Some(Orphan)).await;
    pass(5 * SEC).await;
    let asked = ["get widgets second", "get widgets d", "patch widgets d", "patch widgets second"];
    assert_eq!(world.lines(), asked, "the 415 is cached");
}

#[tokio::test(start_paused = true)]
async fn an_owner_without_the_orphan_finalizer_keeps_its_dependents_though_the_watch_is_late() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create("Pod", "pod", &[owner(&rc)]);
    let mut first = true;
    world.respond(move |line, cluster| {
        // A user changes the request before the owner is read.
        if line == "get replicationcontrollers rc" && std::mem::replace(&mut first, false) {
            cluster.update("replicationcontrollers", "n", "rc", |it| it["metadata"]["finalizers"] = json!([]));
        }
        None
    });
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    pass(5 * SEC).await;
    assert_eq!((world.call_count("patch pods pod"), world.has("replicationcontrollers", "rc")), (0, false));
    assert!(!world.has("pods", "pod"), "it is deleted as a dependent");
}

#[tokio::test(start_paused = true)]
async fn a_dependent_observed_during_orphaning_is_orphaned_too() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create("Pod", "pod", &[owner(&rc)]);
    let reference = owner(&rc);
    let mut is_late = true;
    world.respond(move |line, cluster| {
        if line == "patch pods pod" && std::mem::replace(&mut is_late, false) {
            cluster.create(json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {
                "name": "late", "namespace": "n", "ownerReferences": [reference] } }));
            return Some(Interception::DelayAnswer(100 * MS));
        }
        None
    });
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    pass(5 * SEC).await;
    let asked =
        ["get replicationcontrollers rc", "patch pods pod", "patch pods late", "patch replicationcontrollers rc"];
    assert_eq!(world.lines(), asked);
    assert!(world.owners("pods", "late").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_dependent_observed_after_orphaning_stays() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    let manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    pass(5 * SEC).await;
    assert!(!world.has("replicationcontrollers", "rc"));
    let stays = world.create("ReplicationController", "stays", &[]);
    world.create("Pod", "late", &[blocking(&rc)]);
    world.create("Pod", "shared", &[owner(&rc), owner(&stays)]);
    pass(5 * SEC).await;
    assert!(world.has("pods", "late") && world.owners("pods", "late").is_empty(), "{:?}", world.lines());
    assert_eq!(world.owners("pods", "shared"), ["stays"]);
    assert_eq!(own_metric(&manager, "references_removed_total{reason=\"orphaned\"}"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_in_another_way_later_is_not_recorded_as_orphaned() {
    let world = World::new();
    let rc = world.create_held("ReplicationController", "rc", &[]);
    let _manager = world.start().await;
    // Between the last dependent and the finalizer, a user deletes it again with another policy.
    let mut chosen = false;
    world.respond(move |line, cluster| {
        if line == "patch replicationcontrollers rc" && !std::mem::replace(&mut chosen, true) {
            cluster.update("replicationcontrollers", "n", "rc", |it| {
                it["metadata"]["finalizers"] = json!(["example.com/hold", "foregroundDeletion"]);
            });
        }
        None
    });
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    pass(5 * SEC).await;
    assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["example.com/hold"], "{:?}", world.lines());
    world.create("Pod", "late", &[owner(&rc)]);
    world.release("replicationcontrollers", "rc");
    pass(5 * SEC).await;
    assert!(!world.has("pods", "late"), "it was not orphaned");
}

#[tokio::test(start_paused = true)]
async fn a_late_dependent_of_an_owner_with_both_finalizers_stays() {
    let world = World::new();
    let rc = world.create_held("ReplicationController", "rc", &[]);
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Background)).await;
    world.cluster.update("replicationcontrollers", "n", "rc", |it| {
        it["metadata"]["finalizers"] = json!(["orphan", "foregroundDeletion"]);
    });
    pass(5 * SEC).await;
    assert!(!world.has("replicationcontrollers", "rc"), "{:?}", world.lines());
    world.create("Pod", "late", &[owner(&rc)]);
    pass(5 * SEC).await;
    assert!(world.has("pods", "late") && world.owners("pods", "late").is_empty(), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn orphaning_waits_for_all_monitors() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create("ConfigMap", "known", &[owner(&rc)]);
    world.create("Secret", "unknown", &[owner(&rc)]);
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    world.fail_lists("secrets");
    let _manager = world.start().await;
    pass(15 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "not before all types have synced");
    assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["orphan"]);
    world.cluster.stop_intercepting();
    pass(60 * SEC).await;
    assert!(!world.has("replicationcontrollers", "rc"));
    assert!(world.owners("secrets", "unknown").is_empty() && world.owners("configmaps", "known").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_041_dependents_are_created_and_deleted_while_orphaning_runs() {
    let world = World::new();
    let (rc, other) =
        (world.create("ReplicationController", "rc", &[]), world.create("ReplicationController", "o", &[]));
    for number in 0..60 {
        world.create("Pod", &format!("pod-{number}"), &[owner(&rc)]);
    }
    let _manager = world.start().await;
    world.respond(|line, _| line.starts_with("patch pods").then_some(Interception::DelayAnswer(300 * MS)));
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    for number in 0..60 {
        let name = format!("pod-{number}");
        match number % 4 {
            0 => world.cluster.remove("pods", "n", &name),
            1 => drop(world.cluster.update("pods", "n", &name, |it| {
                it["metadata"]["ownerReferences"] = json!([owner(&rc), owner(&other)]);
            })),
            2 => drop(world.cluster.update("pods", "n", &name, |it| {
                it["metadata"]["ownerReferences"] = json!([]);
            })),
            _ => drop(world.create("Pod", &format!("new-{number}"), &[owner(&rc)])),
        }
        pass(10 * MS).await;
    }
    pass(60 * SEC).await;
    assert!(!world.has("replicationcontrollers", "rc"));
    assert_eq!(world.names("pods").len(), 60, "fifteen were deleted, fifteen were created");
    let named = |name: &String| world.owners("pods", name).contains(&"rc".to_owned());
    assert!(!world.names("pods").iter().any(named));
}

#[tokio::test(start_paused = true)]
async fn orphaning_waits_while_a_synced_type_cannot_be_watched() {
    for heals in [true, false] {
        let world = World::new();
        let rc = world.create("ReplicationController", "rc", &[]);
        world.create("Secret", "known", &[owner(&rc)]);
        let manager = world.start().await;
        pass(100 * SEC).await;
        world.fail_lists("secrets");
        world.cluster.end_watches("secrets");
        pass(5 * SEC).await;
        let unknown = world.create("Secret", "unknown", &[owner(&rc)]);
        world.delete("ReplicationController", "rc", Some(Orphan)).await;
        pass(10 * SEC).await;
        assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["orphan"], "{:?}", world.lines());
        let gauge = "unsynced_monitor{group=\"\",resource=\"secrets\",version=\"v1\"}";
        assert_eq!(own_metric(&manager, gauge), 1);
        if heals {
            world.cluster.stop_intercepting();
        }
        pass(60 * SEC).await;
        assert!(!world.has("replicationcontrollers", "rc"));
        assert_eq!(world.owners("secrets", "unknown").is_empty(), heals, "{unknown}: {:?}", world.lines());
        assert_eq!(own_metric(&manager, gauge), u64::from(!heals));
        let named = world.logged("A type cannot be watched any more").len();
        assert_eq!(named, usize::from(!heals), "{heals}");
    }
}
