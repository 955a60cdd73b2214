//! After a restore of etcd to an older state, deleted objects may exist again.

use client::Propagation::{Background, Orphan};
use harness::{failure, pass};
use test_cluster::Interception;

use crate::world::{SEC, World, missing, owner};

#[tokio::test(start_paused = true)]
async fn a_restored_dependent_is_not_checked_by_proofs_from_before_the_restore() {
    // Proved by a watch or by a live read; and the proof is kept because a reference names the owner, or only in the
    // cache.
    for (is_watched, is_named) in [(true, true), (true, false), (false, true), (false, false)] {
        let world = World::new();
        let map = world.create("ConfigMap", "map", &[]);
        world.create("Pod", "pod", &[owner(&map)]);
        if is_named {
            world.create_held("Secret", "held", &[owner(&map)]);
        }
        if !is_watched {
            world.fail_lists("configmaps");
        }
        let _manager = world.start().await;
        let snapshot = world.cluster.snapshot();
        world.cluster.remove("configmaps", "n", "map");
        pass(30 * SEC).await;
        assert!(!world.has("Pod", "pod"), "watched {is_watched}, named {is_named}: {:?}", world.lines());
        // The type of the owner is not shown again.
        world.cluster.freeze_watches("configmaps");
        world.cluster.restore(&snapshot);
        pass(60 * SEC).await;
        let there = [("ConfigMap", "map"), ("Pod", "pod")].map(|(kind, name)| world.has(kind, name));
        assert_eq!(there, [true, true], "watched {is_watched}, named {is_named}: {:?}", world.lines());
        assert!(!is_named || !world.is_deleting("Secret", "held"), "watched {is_watched}: {:?}", world.lines());
        assert!(!world.logged("etcd was probably restored").is_empty());
        // Collection works as before.
        world.cluster.stop_intercepting();
        world.cluster.unfreeze_watches("configmaps");
        pass(60 * SEC).await;
        world.cluster.remove("configmaps", "n", "map");
        pass(60 * SEC).await;
        assert!(!world.has("Pod", "pod"), "watched {is_watched}, named {is_named}: {:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn a_newer_list_keeps_the_proofs() {
    let world = World::new();
    let map = world.create("ConfigMap", "map", &[]);
    world.create("Pod", "pod", &[owner(&map)]);
    let _manager = world.start().await;
    world.cluster.remove("configmaps", "n", "map");
    pass(5 * SEC).await;
    // Each type is listed again, because the old resourceVersions are too old, and one object is new.
    world.cluster.freeze_watches("pods");
    world.create("Pod", "late", &[owner(&map)]);
    world.cluster.compact();
    for resource in ["pods", "secrets", "configmaps"] {
        world.cluster.end_watches(resource);
    }
    pass(60 * SEC).await;
    assert!(!world.has("Pod", "late"));
    assert_eq!(world.call_count("get configmaps map"), 0, "{:?}", world.lines());
    assert!(world.logged("etcd was probably restored").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_owner_found_by_a_live_read_loses_the_proofs_of_all_its_claims() {
    let world = World::with_widgets();
    let _manager = world.start().await;
    // No watch shows it, and then it does not exist for a time.
    world.cluster.freeze_watches("widgets");
    let widget = world.create("Widget", "w", &[]);
    let mut beta = owner(&widget);
    beta["apiVersion"] = "example.com/v1beta1".into();
    let mut is_missing = true;
    world.cluster.intercept(move |call| {
        let is_asked = call.resource == "widgets" && call.verb == "get" && call.path.contains("/v1beta1/");
        if is_asked && std::mem::replace(&mut is_missing, false) {
            return missing("w", "widgets", "example.com");
        }
        Interception::Pass
    });
    world.create("ConfigMap", "first", std::slice::from_ref(&beta));
    pass(5 * SEC).await;
    assert!(!world.has("ConfigMap", "first"), "{:?}", world.lines());
    world.create("ConfigMap", "right", &[owner(&widget)]);
    pass(5 * SEC).await;
    world.create("ConfigMap", "late", &[beta]);
    pass(60 * SEC).await;
    assert!(world.has("ConfigMap", "right") && world.has("ConfigMap", "late"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn a_read_sent_before_a_restore_of_etcd_is_repeated() {
    let world = World::new();
    let map = world.create("ConfigMap", "map", &[]);
    world.create("Pod", "shows", &[]);
    world.create("Pod", "pod", &[owner(&map)]);
    let snapshot = world.cluster.snapshot();
    world.cluster.remove("configmaps", "n", "map");
    world.cluster.remove("pods", "n", "shows");
    let mut is_first = true;
    world.cluster.intercept(move |call| match (call.verb, call.resource.as_str()) {
        ("list" | "watch", "configmaps") => Interception::status(500, "InternalError", "not now"),
        ("get", "configmaps") if std::mem::replace(&mut is_first, false) => Interception::DelayAnswer(25 * SEC),
        _ => Interception::Pass,
    });
    let _manager = world.start().await;
    // Workers start without the type that cannot be listed.
    pass(38 * SEC).await;
    assert_eq!(world.lines(), ["get configmaps map"]);
    world.cluster.restore(&snapshot);
    pass(120 * SEC).await;
    assert!(world.has("Pod", "pod"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn an_object_found_gone_by_a_read_from_before_a_restore_is_no_proof() {
    let world = World::new();
    let map = world.create("ConfigMap", "map", &[]);
    let pod = world.create("Pod", "pod", &[owner(&map)]);
    world.create("Secret", "child", &[owner(&pod)]);
    world.create("Pod", "shows", &[]);
    let _manager = world.start().await;
    let snapshot = world.cluster.snapshot();
    world.cluster.remove("pods", "n", "shows");
    pass(SEC).await;
    // The watch does not show that the pod is removed before the DELETE, and the read that finds that is slow.
    world.cluster.freeze_watches("pods");
    let mut is_first = true;
    world.respond(move |line, cluster| match line {
        "delete pods pod" if cluster.get("pods", "n", "pod").is_some() => {
            cluster.remove("pods", "n", "pod");
            None
        }
        "get pods pod" if std::mem::replace(&mut is_first, false) => Some(Interception::DelayAnswer(25 * SEC)),
        _ => None,
    });
    world.cluster.remove("configmaps", "n", "map");
    pass(2 * SEC).await;
    assert_eq!(world.call_count("get pods pod"), 1, "{:?}", world.lines());
    world.cluster.restore(&snapshot);
    world.cluster.unfreeze_watches("pods");
    pass(120 * SEC).await;
    assert!(!world.logged("etcd was probably restored").is_empty());
    assert!(world.has("Secret", "child") && world.has("Pod", "pod"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn an_object_partly_checked_before_a_restore_of_etcd_is_checked_again() {
    let world = World::new();
    let (secret, map) = (world.create("Secret", "back", &[]), world.create("ConfigMap", "gone", &[]));
    world.create("Pod", "shows", &[]);
    world.create("Pod", "pod", &[owner(&secret), owner(&map)]);
    world.cluster.remove("configmaps", "n", "gone");
    let snapshot = world.cluster.snapshot();
    world.cluster.remove("pods", "n", "shows");
    world.respond(|line, _| if line == "get configmaps gone" { failure(503, "ServiceUnavailable") } else { None });
    let _manager = world.start().await;
    // One owner is deleted, and the response about the other is slow.
    world.respond(|line, _| (line == "get configmaps gone").then_some(Interception::DelayAnswer(20 * SEC)));
    world.cluster.remove("secrets", "n", "back");
    pass(2 * SEC).await;
    world.cluster.freeze_watches("secrets");
    world.cluster.restore(&snapshot);
    pass(300 * SEC).await;
    assert!(world.has("Pod", "pod"), "{:?}", world.lines());
    assert_eq!(world.owners("Pod", "pod"), ["back"], "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn dependents_of_an_owner_orphaned_before_a_restore_are_deleted_with_it_after_the_restore() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create("Pod", "pod", &[owner(&rc)]);
    world.create("Pod", "shows", &[]);
    let _manager = world.start().await;
    let snapshot = world.cluster.snapshot();
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    world.cluster.remove("pods", "n", "shows");
    pass(30 * SEC).await;
    assert!(world.owners("Pod", "pod").is_empty() && !world.has("ReplicationController", "rc"), "{:?}", world.lines());
    world.cluster.restore(&snapshot);
    pass(60 * SEC).await;
    assert!(!world.logged("etcd was probably restored").is_empty());
    assert_eq!(world.owners("Pod", "pod"), ["rc"], "{:?}", world.lines());
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(60 * SEC).await;
    assert!(!world.has("Pod", "pod"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn a_proof_from_before_a_restore_deletes_nothing_before_the_first_complete_set() {
    let world = World::new();
    let map = world.create("ConfigMap", "map", &[]);
    world.create("Pod", "pod", &[owner(&map)]);
    let _manager = world.start().await;
    let snapshot = world.cluster.snapshot();
    world.respond(|line, _| if line == "delete pods pod" { failure(500, "InternalError") } else { None });
    world.cluster.remove("configmaps", "n", "map");
    pass(5 * SEC).await;
    assert!(
        world.call_count("delete pods pod") > 0 && world.call_count("get configmaps map") == 0,
        "{:?}",
        world.lines()
    );
    // Reads of workers are answered, and lists are not yet.
    world.cluster.intercept(|call| match call.verb {
        "list" | "watch" => Interception::status(500, "InternalError", "not now"),
        _ => Interception::Pass,
    });
    world.cluster.restore(&snapshot);
    pass(60 * SEC).await;
    assert!(world.logged("etcd was probably restored").is_empty());
    assert!(world.has("Pod", "pod") && world.call_count("get configmaps map") > 0, "{:?}", world.lines());
    world.cluster.stop_intercepting();
    pass(120 * SEC).await;
    assert!(world.has("Pod", "pod"), "{:?}", world.lines());
    world.cluster.remove("configmaps", "n", "map");
    pass(60 * SEC).await;
    assert!(!world.has("Pod", "pod"), "{:?}", world.lines());
}
