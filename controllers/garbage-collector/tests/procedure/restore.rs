//! After a restore of etcd to an older state, deleted objects may exist again.

use client::Propagation::{Background, Orphan};
use test_cluster::Verdict;

use crate::world::{SEC, World, failure, missing, owner, pass};

#[tokio::test(start_paused = true)]
async fn a_dependent_that_is_shown_before_its_owner_is_not_judged_by_what_was_proved_before() {
    // Proved by a watch or by a live read; and the proof is kept because a reference names the owner, or only in the
    // cache.
    for (is_told, is_named) in [(true, true), (true, false), (false, true), (false, false)] {
        let world = World::new();
        let map = world.create("ConfigMap", "map", &[]);
        world.create("Pod", "pod", &[owner(&map)]);
        if is_named {
            world.create_held("Secret", "held", &[owner(&map)]);
        }
        if !is_told {
            world.spoil_lists("configmaps");
        }
        let _manager = world.start().await;
        let snapshot = world.cluster.snapshot();
        world.cluster.remove("configmaps", "n", "map");
        pass(30 * SEC).await;
        assert!(!world.has("Pod", "pod"), "told {is_told}, named {is_named}: {:?}", world.lines());
        // The type of the owner is not shown again.
        world.cluster.freeze_watches("configmaps");
        world.cluster.restore(&snapshot);
        pass(60 * SEC).await;
        let there = [("ConfigMap", "map"), ("Pod", "pod")].map(|(kind, name)| world.has(kind, name));
        assert_eq!(there, [true, true], "told {is_told}, named {is_named}: {:?}", world.lines());
        assert!(!is_named || !world.is_deleting("Secret", "held"), "told {is_told}: {:?}", world.lines());
        assert!(!world.logged("as when etcd was restored").is_empty());
        // Collection works as before.
        world.cluster.stop_intercepting();
        world.cluster.thaw("configmaps");
        pass(60 * SEC).await;
        world.cluster.remove("configmaps", "n", "map");
        pass(60 * SEC).await;
        assert!(!world.has("Pod", "pod"), "told {is_told}, named {is_named}: {:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_after_a_list_that_is_newer_than_all_before_is_judged_by_what_was_proved() {
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
    assert_eq!(world.asked("get configmaps map"), 0, "{:?}", world.lines());
    assert!(world.logged("as when etcd was restored").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_a_live_read_finds_is_gone_by_none_of_its_names_any_more() {
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
        Verdict::Pass
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
async fn a_question_that_was_sent_before_etcd_was_restored_is_asked_once_more() {
    let world = World::new();
    let map = world.create("ConfigMap", "map", &[]);
    world.create("Pod", "shows", &[]);
    world.create("Pod", "pod", &[owner(&map)]);
    let snapshot = world.cluster.snapshot();
    world.cluster.remove("configmaps", "n", "map");
    world.cluster.remove("pods", "n", "shows");
    let mut is_first = true;
    world.cluster.intercept(move |call| match (call.verb, call.resource.as_str()) {
        ("list" | "watch", "configmaps") => Verdict::status(500, "InternalError", "not now"),
        ("get", "configmaps") if std::mem::replace(&mut is_first, false) => Verdict::DelayAnswer(25 * SEC),
        _ => Verdict::Pass,
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
async fn an_object_that_was_half_judged_before_etcd_was_restored_is_judged_anew() {
    let world = World::new();
    let (secret, map) = (world.create("Secret", "back", &[]), world.create("ConfigMap", "gone", &[]));
    world.create("Pod", "shows", &[]);
    world.create("Pod", "pod", &[owner(&secret), owner(&map)]);
    world.cluster.remove("configmaps", "n", "gone");
    let snapshot = world.cluster.snapshot();
    world.cluster.remove("pods", "n", "shows");
    world.spoil(|line, _| if line == "get configmaps gone" { failure(503, "ServiceUnavailable") } else { None });
    let _manager = world.start().await;
    // One owner is deleted, and the response about the other is slow.
    world.spoil(|line, _| (line == "get configmaps gone").then_some(Verdict::DelayAnswer(20 * SEC)));
    world.cluster.remove("secrets", "n", "back");
    pass(2 * SEC).await;
    world.cluster.freeze_watches("secrets");
    world.cluster.restore(&snapshot);
    pass(300 * SEC).await;
    assert!(world.has("Pod", "pod"), "{:?}", world.lines());
    assert_eq!(world.owners("Pod", "pod"), ["back"], "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_was_orphaned_before_a_restore_takes_its_dependents_along_when_it_is_deleted_after_it() {
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
    assert!(!world.logged("as when etcd was restored").is_empty());
    assert_eq!(world.owners("Pod", "pod"), ["rc"], "{:?}", world.lines());
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(60 * SEC).await;
    assert!(!world.has("Pod", "pod"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn a_proof_from_before_a_restore_deletes_nothing_before_the_first_whole_set_after_it() {
    let world = World::new();
    let map = world.create("ConfigMap", "map", &[]);
    world.create("Pod", "pod", &[owner(&map)]);
    let _manager = world.start().await;
    let snapshot = world.cluster.snapshot();
    world.spoil(|line, _| if line == "delete pods pod" { failure(500, "InternalError") } else { None });
    world.cluster.remove("configmaps", "n", "map");
    pass(5 * SEC).await;
    assert!(world.asked("delete pods pod") > 0 && world.asked("get configmaps map") == 0, "{:?}", world.lines());
    // Reads of workers are answered, and lists are not yet.
    world.cluster.intercept(|call| match call.verb {
        "list" | "watch" => Verdict::status(500, "InternalError", "not now"),
        _ => Verdict::Pass,
    });
    world.cluster.restore(&snapshot);
    pass(60 * SEC).await;
    assert!(world.logged("as when etcd was restored").is_empty());
    assert!(world.has("Pod", "pod") && world.asked("get configmaps map") > 0, "{:?}", world.lines());
    world.cluster.stop_intercepting();
    pass(120 * SEC).await;
    assert!(world.has("Pod", "pod"), "{:?}", world.lines());
    world.cluster.remove("configmaps", "n", "map");
    pass(60 * SEC).await;
    assert!(!world.has("Pod", "pod"), "{:?}", world.lines());
}
