//! Which object a reference means, and in which namespace.

use harness::{failure, pass};
use serde_json::{Value, json};

use client::Propagation::Background;

use crate::world::{SEC, World, missing_owner, own_metric, owner};

/// The same reference with another value of one field.
fn with_field(mut reference: Value, field: &str, value: &str) -> Value {
    reference[field] = json!(value);
    reference
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_026_an_owner_in_another_namespace_does_not_count() {
    for child_first in [true, false] {
        let world = World::new();
        let _manager = world.start().await;
        let uid = "6b4e1c52-8d1f-4a0b-9b6e-0123456789ab";
        let create_owner = || {
            world.create_with("Secret", json!({ "name": "own", "namespace": "m", "uid": uid }));
        };
        let reference = json!({ "apiVersion": "v1", "kind": "Secret", "name": "own", "uid": uid });
        // While the watch of the owner's type is behind, the child is observed first.
        if child_first {
            world.respond(|line, _| if line.starts_with("get") { failure(503, "") } else { None });
            world.create("ConfigMap", "bad", std::slice::from_ref(&reference));
            pass(2 * SEC).await;
            create_owner();
        } else {
            create_owner();
            pass(2 * SEC).await;
            world.create("ConfigMap", "bad", std::slice::from_ref(&reference));
        }
        world.create_in("m", "ConfigMap", "good", &[reference]);
        pass(SEC).await;
        world.cluster.stop_intercepting();
        pass(60 * SEC).await;
        assert!(!world.has("configmaps", "bad"), "child first: {child_first}");
        assert!(world.cluster.get("configmaps", "m", "good").is_some(), "child first: {child_first}");
        let message =
            format!("ownerRef [v1/Secret, namespace: n, name: own, uid: {uid}] does not exist in namespace \"n\"");
        assert_eq!(world.events().await, [format!("n Warning OwnerRefInvalidNamespace: {message}")]);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_027_a_cluster_scoped_object_cannot_have_a_namespaced_owner() {
    let world = World::new();
    let map = world.create("ConfigMap", "own", &[]);
    world.create("ClusterRole", "observed", &[owner(&map)]);
    world.create("ClusterRole", "never", &[missing_owner("v1", "Secret", "never")]);
    let manager = world.start().await;
    let uid = map["metadata"]["uid"].as_str().unwrap();
    let message =
        format!("ownerRef [v1/ConfigMap, namespace: , name: own, uid: {uid}] does not exist in namespace \"\"");
    assert_eq!(world.events().await, [format!("default Warning OwnerRefInvalidNamespace: {message}")]);
    let queued = || manager.metric("workqueue_adds_total{name=\"garbage_collector_attempt_to_delete\"}");
    let early = queued();
    pass(3600 * SEC).await;
    assert_eq!(world.cluster.list("ClusterRole", "").len(), 2);
    assert_eq!((world.lines(), queued() - early), (vec![], 0), "no requests and no retries");
    assert_eq!(
        own_metric(&manager, "unresolvable_objects{why=\"misplaced\"}"),
        2,
        "an object, and an owner that is not observed"
    );
    // A change of the object makes it due again.
    world.cluster.update("ClusterRole", "", "never", |it| it["metadata"]["ownerReferences"] = json!([]));
    pass(SEC).await;
    world.cluster.update("ClusterRole", "", "observed", |it| {
        it["metadata"]["ownerReferences"] =
            json!([missing_owner("rbac.authorization.k8s.io/v1", "ClusterRole", "never")]);
    });
    pass(5 * SEC).await;
    assert_eq!(world.cluster.list("ClusterRole", "").len(), 1);
    pass(30 * SEC).await;
    assert_eq!(own_metric(&manager, "unresolvable_objects{why=\"misplaced\"}"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_unresolved_object_is_removed_without_a_metrics_scrape() {
    let world = World::new();
    let map = world.create("ConfigMap", "own", &[]);
    let _manager = world.start().await;
    for told in 1..=2 {
        world.create("ClusterRole", "child", &[owner(&map)]);
        pass(SEC).await;
        assert_eq!(
            world.logged("An owner cannot be looked up: its dependents are not deleted").len(),
            told,
            "it is logged again"
        );
        world.cluster.remove("ClusterRole", "", "child");
        pass(31 * SEC).await;
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_028_an_owner_not_shown_by_a_watch_is_read_live() {
    let world = World::new();
    let role = world.create("ClusterRole", "role", &[]);
    world.create("ConfigMap", "child", &[owner(&role)]);
    world.fail_lists("clusterroles");
    let _manager = world.start().await;
    pass(600 * SEC).await;
    assert!(world.has("configmaps", "child"));
    // acceptance_gc_040: polled with back-off, until a watch shows it.
    let pauses = world.pauses("get clusterroles role");
    assert!(pauses.len() >= 10 && pauses.len() < 40, "{pauses:?}");
    assert!(pauses.last() > pauses.first() && *pauses.last().unwrap() > 100 * SEC, "{pauses:?}");
    world.cluster.stop_intercepting();
    pass(900 * SEC).await;
    let asked = world.lines().len();
    pass(3600 * SEC).await;
    assert_eq!(world.lines().len(), asked, "no request for an observed owner");
    world.cluster.remove("ClusterRole", "", "role");
    pass(5 * SEC).await;
    assert!(!world.has("configmaps", "child"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_029_an_unknown_kind_is_no_proof() {
    let world = World::new();
    world.create("ConfigMap", "child", &[missing_owner("example.com/v9", "Gadget", "g")]);
    let manager = world.start().await;
    let queued = || manager.metric("workqueue_adds_total{name=\"garbage_collector_attempt_to_delete\"}");
    pass(60 * SEC).await;
    let early = queued();
    assert!(early >= 10, "{early}");
    pass(3600 * SEC).await;
    assert!(queued() - early < 30, "the retries back off: {early}, {}", queued());
    assert!(world.has("configmaps", "child"));
    assert_eq!(world.lines(), [""; 0]);
    assert_eq!(own_metric(&manager, "unresolvable_objects{why=\"unknown_kind\"}"), 1, "the owner that is looked up");
    let told = world.logged("An owner cannot be looked up: its dependents are not deleted");
    assert!(told.len() == 1 && told[0].contains("unknown_kind"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_030_any_version_that_is_served_names_an_owner() {
    let world = World::with_widgets();
    let widget = world.create("Widget", "w", &[]);
    world.create("ConfigMap", "child", &[with_field(owner(&widget), "apiVersion", "example.com/v1beta1")]);
    let _manager = world.start().await;
    pass(600 * SEC).await;
    assert!(world.has("configmaps", "child"));
    assert!(world.lines().len() <= 3, "it is not read again: {:?}", world.lines());
    world.delete("Widget", "w", Some(Background)).await;
    pass(5 * SEC).await;
    assert!(!world.has("configmaps", "child"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_031_a_dependent_of_an_unserved_version_stays() {
    let world = World::with_widgets();
    let widget = world.create("Widget", "w", &[]);
    world.create("ConfigMap", "child", &[with_field(owner(&widget), "apiVersion", "example.com/v0")]);
    let manager = world.start().await;
    pass(3600 * SEC).await;
    assert!(world.has("configmaps", "child"));
    assert_eq!(world.lines(), [""; 0], "no request is sent");
    assert_eq!(
        own_metric(&manager, "unresolvable_objects{why=\"unknown_kind\"}"),
        1,
        "only the dependent: its owner is observed"
    );
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_030_031_an_owner_by_another_version_is_looked_up_until_it_is_observed() {
    for version in ["example.com/v1beta1", "example.com/v0"] {
        let world = World::with_widgets();
        let manager = world.start().await;
        world.cluster.freeze_watches("widgets");
        let widget = world.create("Widget", "w", &[]);
        world.create("ConfigMap", "child", &[with_field(owner(&widget), "apiVersion", version)]);
        let named_only = || own_metric(&manager, "graph_nodes{state=\"virtual\"}");
        let queued = || manager.metric("workqueue_adds_total{name=\"garbage_collector_attempt_to_delete\"}");
        pass(10 * SEC).await;
        assert!(named_only() == 1 && queued() > 5, "{version}: {}", queued());
        world.cluster.unfreeze_watches("widgets");
        pass(5 * SEC).await;
        assert_eq!(named_only(), 0, "{version}");
        // A served version shows that the owner exists. With the other version, the child looks it up with growing
        // delays.
        let asked = world.lines().len();
        pass(3600 * SEC).await;
        assert_eq!(world.lines().len(), asked, "{version}: no further lookup: {:?}", world.lines());
        assert!(world.has("configmaps", "child"), "{version}");
        world.delete("Widget", "w", Some(Background)).await;
        pass(5 * SEC).await;
        assert_eq!(world.has("configmaps", "child"), version == "example.com/v0", "{version}: {:?}", world.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_032_a_served_and_an_unserved_name_of_one_absent_owner() {
    for served_first in [true, false] {
        let world = World::with_widgets();
        let served = missing_owner("example.com/v1", "Widget", "never");
        let unserved = with_field(served.clone(), "apiVersion", "example.com/v0");
        let _manager = world.start().await;
        let mut children = [("served", served), ("unserved", unserved)];
        if !served_first {
            children.reverse();
        }
        for (name, reference) in children {
            world.create("ConfigMap", name, &[reference]);
            pass(SEC).await;
        }
        pass(600 * SEC).await;
        assert_eq!(world.names("configmaps"), ["unserved"], "served first: {served_first}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_033_a_wrong_kind_affects_only_the_dependent_that_names_it() {
    for order in [
        ["parent", "good", "bad"],
        ["parent", "bad", "good"],
        ["good", "parent", "bad"],
        ["good", "bad", "parent"],
        ["bad", "parent", "good"],
        ["bad", "good", "parent"],
    ] {
        let world = World::new();
        let uid = "6b4e1c52-8d1f-4a0b-9b6e-0123456789ab";
        let right = json!({ "apiVersion": "v1", "kind": "Secret", "name": "parent", "uid": uid });
        let manager = world.start().await;
        // An object that is observed late was not created late: only the order of the watches differs.
        world.cluster.freeze_watches("secrets");
        world.create_with("Secret", json!({ "name": "parent", "namespace": "n", "uid": uid }));
        for name in order {
            match name {
                "parent" => world.cluster.unfreeze_watches("secrets"),
                "good" => drop(world.create("ConfigMap", "good", std::slice::from_ref(&right))),
                _ => drop(world.create("ConfigMap", "bad", &[with_field(right.clone(), "kind", "Pod")])),
            }
            pass(SEC).await;
        }
        pass(60 * SEC).await;
        assert_eq!(world.names("configmaps"), ["good"], "{order:?}");
        assert!(world.has("secrets", "parent"), "{order:?}");
        world.cluster.remove("secrets", "n", "parent");
        pass(5 * SEC).await;
        assert_eq!(world.names("configmaps"), [""; 0], "{order:?}: the graph still had the parent");
        drop(manager);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_040_an_owner_is_polled_at_its_right_coordinates_until_it_is_observed() {
    for order in [["good", "bad"], ["bad", "good"]] {
        let world = World::new();
        let secret = world.create("Secret", "parent", &[]);
        // It sorts before the right name, so it is looked up first when both are referenced.
        let renamed = with_field(owner(&secret), "name", "another");
        world.fail_lists("secrets");
        let manager = world.start().await;
        for name in order {
            let reference = if name == "good" { owner(&secret) } else { renamed.clone() };
            world.create("ConfigMap", name, &[reference]);
            pass(20 * SEC).await;
        }
        pass(600 * SEC).await;
        assert_eq!(world.names("configmaps"), ["good"], "{order:?}");
        // In the second order there are two reads: one for the owner that is not observed, and one for the object that
        // names it. A proof is not kept while the monitor of the owner's type is behind.
        let asked = if order == ["good", "bad"] { 1 } else { 2 };
        assert_eq!(world.call_count("get secrets another"), asked, "{order:?}: {:?}", world.lines());
        let pauses = world.pauses("get secrets parent");
        assert!((10..40).contains(&pauses.len()), "{order:?}: {pauses:?}");
        assert!(*pauses.last().unwrap() > 100 * SEC, "{order:?}: the retries back off: {pauses:?}");
        world.cluster.stop_intercepting();
        pass(900 * SEC).await;
        let asked = world.lines().len();
        // Another dependent with a wrong name appears after the owner is observed.
        world.create("ConfigMap", "late", &[with_field(owner(&secret), "name", "late")]);
        pass(3600 * SEC).await;
        assert_eq!(world.names("configmaps"), ["good"], "{order:?}");
        assert_eq!(world.lines().len() - asked, 2, "{order:?}: no request for an observed owner: {:?}", world.lines());
        assert_eq!(own_metric(&manager, "graph_nodes{state=\"virtual\"}"), 0, "{order:?}");
        world.cluster.remove("secrets", "n", "parent");
        pass(5 * SEC).await;
        assert_eq!(world.names("configmaps"), [""; 0], "{order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_034_each_child_is_checked_by_its_own_namespace() {
    for (parent_is_there, cluster_first) in [(false, true), (false, false), (true, true), (true, false)] {
        let world = World::new();
        let uid = "6b4e1c52-8d1f-4a0b-9b6e-0123456789ab";
        let reference = json!({ "apiVersion": "v1", "kind": "Secret", "name": "parent", "uid": uid });
        let _manager = world.start().await;
        world.cluster.freeze_watches("secrets");
        if parent_is_there {
            world.create_with("Secret", json!({ "name": "parent", "namespace": "n", "uid": uid }));
        }
        let children: [(&str, &str); 2] = [("ClusterRole", "bad"), ("ConfigMap", "good")];
        let children: Vec<_> = if cluster_first { children.into() } else { children.into_iter().rev().collect() };
        for (kind, name) in children {
            world.create(kind, name, std::slice::from_ref(&reference));
            pass(SEC).await;
        }
        world.cluster.unfreeze_watches("secrets");
        pass(300 * SEC).await;
        let case = format!("parent is there: {parent_is_there}, cluster first: {cluster_first}");
        assert_eq!(world.has("configmaps", "good"), parent_is_there, "{case}");
        assert!(world.cluster.get("ClusterRole", "", "bad").is_some(), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_in_all_namespaces_of_an_unobserved_cluster_scoped_owner_are_deleted() {
    let world = World::new();
    let role = world.create("ClusterRole", "role", &[]);
    let namespaces: Vec<String> = (0..300).map(|number| format!("ns-{number}")).collect();
    for name in &namespaces {
        world.cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
        world.create_in(name, "ConfigMap", "child", &[owner(&role)]);
    }
    // No event shows its deletion: it is polled.
    world.fail_lists("clusterroles");
    let _manager = world.start().await;
    // The workers wait this long for that type.
    pass(31 * SEC).await;
    let children = || namespaces.iter().filter(|it| world.cluster.get("configmaps", it, "child").is_some()).count();
    assert_eq!(children(), 300);
    world.cluster.remove("ClusterRole", "", "role");
    // The pause between two lookups by then.
    pass(10 * SEC).await;
    assert_eq!(children(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_unwatched_owner_is_polled_while_a_wrong_dependent_remains() {
    let world = World::new();
    let secret = world.create("Secret", "parent", &[]);
    world.fail_lists("secrets");
    let _manager = world.start().await;
    world.create_held("ConfigMap", "bad", &[with_field(owner(&secret), "name", "another")]);
    pass(60 * SEC).await;
    assert!(world.is_deleting("configmaps", "bad"));
    world.create("ConfigMap", "good", &[owner(&secret)]);
    pass(60 * SEC).await;
    assert!(!world.is_deleting("configmaps", "good"), "{:?}", world.lines());
    world.cluster.remove("secrets", "n", "parent");
    pass(1000 * SEC).await;
    assert_eq!(world.names("configmaps"), ["bad"], "{:?}", world.lines());
}
