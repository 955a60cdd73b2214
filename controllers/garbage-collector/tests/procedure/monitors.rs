//! Owners that must not be deleted before all their dependents can be known.

use client::Propagation::{Background, Foreground, Orphan};
use harness::{failure, pass};
use serde_json::json;
use test_cluster::{DiscoveryFault, Interception};

use crate::world::{SEC, World, blocking, lead, missing_owner, own_metric, owner};

const GOES_WITHOUT: &str = "The finalizer of an owner is removed although not all types are synced";

#[tokio::test(start_paused = true)]
async fn acceptance_gc_048_instances_and_dependents_of_a_deleted_definition_are_deleted_twice() {
    let world = World::new();
    let _manager = world.start().await;
    for life in ["first", "second"] {
        world.define_widgets();
        pass(5 * SEC).await;
        let widget = world.create("Widget", "w", &[]);
        world.create("ConfigMap", life, &[owner(&widget)]);
        pass(SEC).await;
        world.cluster.delete("customresourcedefinitions", "", "widgets.example.com");
        pass(5 * SEC).await;
        assert_eq!(world.names("configmaps"), [""; 0], "{life}: {:?}", world.lines());
        assert!(!world.cluster.is_served("widgets"), "{life}");
        // Another owner is deleted, and does not wait for the missing type.
        world.create("ConfigMap", "other", &[]);
        world.delete("ConfigMap", "other", Some(Foreground)).await;
        pass(SEC).await;
        assert!(!world.has("configmaps", "other"), "{life}: {:?}", world.lines());
    }
    assert_eq!(world.logged(GOES_WITHOUT), [""; 0]);
}

/// Issue 16, 11: more owners than the table of proofs has places, and the type does not respond any more.
#[tokio::test(start_paused = true)]
async fn dependents_of_many_instances_of_a_deleted_definition_are_deleted_late_too() {
    const OWNERS: usize = 520;
    let world = World::with_widgets();
    for number in 0..OWNERS {
        let widget = world.create("Widget", &format!("w-{number}"), &[]);
        world.create("ConfigMap", &format!("c-{number}"), &[owner(&widget)]);
    }
    let _manager = world.start().await;
    world.respond(|line, _| line.starts_with("delete configmaps").then(|| failure(500, "InternalError")).flatten());
    world.cluster.delete("customresourcedefinitions", "", "widgets.example.com");
    pass(60 * SEC).await;
    assert!(!world.cluster.is_served("widgets"));
    assert_eq!(world.names("configmaps").len(), OWNERS);
    // Owners are read while the monitor fails, and not after it has ended.
    let asked = world.call_count("get widgets");
    world.respond(|_, _| None);
    pass(3600 * SEC).await;
    assert_eq!(world.names("configmaps"), [""; 0], "a watch showed that their owners were deleted");
    assert_eq!(world.call_count("get widgets"), asked);
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_046_047_a_type_that_cannot_be_listed_stops_only_itself() {
    let errors = "garbagecollector_controller_resources_sync_error_total";
    for from_the_start in [true, false] {
        let world = World::new();
        let never = |kind: &str| missing_owner("v1", kind, "never");
        let begins = || {
            world.fail_lists("widgets");
            world.define_widgets();
        };
        let manager = if from_the_start {
            begins();
            let manager = world.start().await;
            // Workers wait for it, but only this long.
            pass(30 * SEC).await;
            manager
        } else {
            let manager = world.start().await;
            begins();
            pass(5 * SEC).await;
            manager
        };
        let case = format!("from the start: {from_the_start}");
        let unsynced =
            || own_metric(&manager, "unsynced_monitor{group=\"example.com\",resource=\"widgets\",version=\"v1\"}");
        assert_eq!((unsynced(), own_metric(&manager, "monitors{state=\"unsynced\"}")), (1, 1), "{case}");
        world.create("Widget", "broken", &[never("Secret")]);
        world.create("ConfigMap", "lost", &[never("ConfigMap")]);
        let rc = world.create("ReplicationController", "rc", &[]);
        world.create("Pod", "of-rc", &[owner(&rc)]);
        let deployment = world.create("Deployment", "web", &[]);
        let set = world.create("ReplicaSet", "set", &[blocking(&deployment)]);
        world.create("Pod", "of-set", &[blocking(&set)]);
        world.delete("ReplicationController", "rc", Some(Background)).await;
        world.delete("Deployment", "web", Some(Foreground)).await;
        pass(SEC).await;
        assert_eq!((world.names("pods"), world.names("configmaps")), (vec![], vec![]), "{case}");
        // Waiting owners may have dependents of that type: each waits for it for at most half a minute.
        pass(61 * SEC).await;
        assert_eq!((world.names("Deployment"), world.names("ReplicaSet")), (vec![], vec![]), "{case}");
        assert!(world.has("Widget", "broken") && unsynced() == 1, "{case}");
        assert_eq!(manager.metric(errors), 1, "{case}: counted once for each state");
        let told = world.logged("A type does not sync");
        assert!(told.len() == 1 && told[0].contains("widgets.example.com"), "{case}: {told:?}");

        world.cluster.stop_intercepting();
        pass(95 * SEC).await;
        assert!(!world.has("Widget", "broken"), "{case}: objects of the type are collected again");
        assert_eq!((unsynced(), own_metric(&manager, "monitors{state=\"unsynced\"}")), (0, 0), "{case}");
        let told = world.logged("A type has synced");
        assert!(told.len() == 1 && told[0].contains("widgets.example.com"), "{case}: {told:?}");
        assert_eq!(manager.metric(errors), 1, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_051_events_are_not_collected_with_any_owner() {
    let world = World::new();
    let event = |api_version: &str, name: &str| {
        let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "never", "namespace": "n" });
        let mut event = json!({
            "apiVersion": api_version, "kind": "Event",
            "metadata": { "name": name, "namespace": "n", "ownerReferences": [missing_owner("v1", "ConfigMap", "never")] },
            "type": "Normal", "reason": "Test",
        });
        if api_version == "v1" {
            event["involvedObject"] = object;
        } else {
            event["regarding"] = object;
            event["action"] = json!("Test");
            event["reportingController"] = json!("example.com/test");
            event["reportingInstance"] = json!("test-1");
            event["eventTime"] = json!("2027-01-15T08:00:00.000000Z");
        }
        world.cluster.create(event);
    };
    event("v1", "early-core");
    event("events.k8s.io/v1", "early");
    let _manager = world.start().await;
    event("v1", "late-core");
    event("events.k8s.io/v1", "late");
    world.create("ConfigMap", "lost", &[missing_owner("v1", "ConfigMap", "never")]);
    pass(60 * SEC).await;
    assert_eq!(world.names("configmaps"), [""; 0], "other objects are collected");
    assert_eq!(world.names("events"), ["early", "early-core", "late", "late-core"]);
    assert_eq!(world.lines(), ["get configmaps never", "delete configmaps lost"], "no request for events");
    let watched = |it: &test_cluster::Call| it.resource == "events" && it.user_agent.contains("garbage");
    assert!(!world.cluster.requests().iter().any(watched));
}

#[tokio::test(start_paused = true)]
async fn orphaning_waits_while_a_type_is_missing_or_its_group_is_unknown() {
    for fault in [DiscoveryFault::Missing, DiscoveryFault::Stale] {
        let world = World::new();
        let rc = world.create("ReplicationController", "rc", &[]);
        world.create("ReplicaSet", "set", &[owner(&rc)]);
        let is_known = fault == DiscoveryFault::Missing;
        if !is_known {
            world.cluster.fail_discovery("apps", fault);
        }
        let _manager = world.start().await;
        if is_known {
            world.cluster.fail_discovery("apps", fault);
            pass(32 * SEC).await;
        }
        world.delete("ReplicationController", "rc", Some(Orphan)).await;
        pass(10 * SEC).await;
        assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["orphan"], "{fault:?}");
        assert_eq!(world.lines(), [""; 0], "{fault:?}");
        world.cluster.restore_group("apps");
        pass(30 * SEC).await;
        assert!(!world.has("replicationcontrollers", "rc"), "{fault:?}: {:?}", world.lines());
        assert!(world.owners("ReplicaSet", "set").is_empty(), "{fault:?}: {:?}", world.lines());
        assert_eq!(world.logged(GOES_WITHOUT), [""; 0], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_missing_before_its_group_went_stale_delays_no_owner() {
    for policy in [Orphan, Foreground] {
        let world = World::new();
        let _manager = world.start().await;
        world.cluster.fail_discovery("apps", DiscoveryFault::Missing);
        pass(31 * SEC).await;
        world.cluster.fail_discovery("apps", DiscoveryFault::Stale);
        pass(600 * SEC).await;
        world.create("ReplicationController", "rc", &[]);
        world.delete("ReplicationController", "rc", Some(policy)).await;
        pass(2 * SEC).await;
        assert!(!world.has("replicationcontrollers", "rc"), "{policy:?}: {:?}", world.lines());
        assert_eq!(world.logged(GOES_WITHOUT), [""; 0], "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_finalizer_is_removed_before_discovery_answered_once() {
    for (policy, finalizer) in [(Orphan, "orphan"), (Foreground, "foregroundDeletion")] {
        let world = World::new();
        let rc = world.create("ReplicationController", "rc", &[]);
        world.create("ReplicaSet", "set", &[blocking(&rc)]);
        world.cluster.intercept(|call| {
            if call.path == "/apis" { Interception::status(500, "InternalError", "no") } else { Interception::Pass }
        });
        let _manager = world.start().await;
        world.delete("ReplicationController", "rc", Some(policy)).await;
        pass(300 * SEC).await;
        assert_eq!(world.finalizers("replicationcontrollers", "rc"), [finalizer]);
        world.cluster.intercept(|_| Interception::Pass);
        pass(60 * SEC).await;
        assert!(!world.has("replicationcontrollers", "rc"), "{policy:?}: {:?}", world.lines());
        assert_eq!(world.has("ReplicaSet", "set"), policy == Orphan);
        assert_eq!(world.logged(GOES_WITHOUT), [""; 0], "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_answer_that_lacks_a_type_has_no_effect() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    let set = world.create("ReplicaSet", "live", &[]);
    world.create("Pod", "shared", &[owner(&rc), owner(&set)]);
    let manager = world.start().await;
    world.cluster.fail_discovery("apps", DiscoveryFault::Missing);
    pass(31 * SEC).await;
    world.cluster.restore_group("apps");
    assert_eq!(
        own_metric(&manager, "unsynced_monitor{group=\"apps\",resource=\"replicasets\",version=\"v1\"}"),
        1,
        "the type is missing in discovery"
    );
    world.create("Pod", "lost", &[missing_owner("apps/v1", "ReplicaSet", "never")]);
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(5 * SEC).await;
    assert!(!world.has("pods", "lost"), "{:?}", world.lines());
    assert_eq!(world.owners("pods", "shared"), ["live"]);
    assert_eq!(world.logged("An owner cannot be looked up"), [""; 0]);
    assert_eq!(own_metric(&manager, "unresolvable_objects{why=\"unknown_kind\"}"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_owner_waits_half_a_minute_in_total_for_changing_unsynced_types() {
    for policy in [Orphan, Foreground] {
        let world = World::new();
        let _manager = world.start().await;
        pass(60 * SEC).await;
        world.cluster.intercept(|call| {
            let is_new = call.group == "example.com" && matches!(call.verb, "list" | "watch");
            if is_new { Interception::status(500, "InternalError", "no") } else { Interception::Pass }
        });
        let comes = |number: usize| {
            let schema = json!({ "openAPIV3Schema": { "type": "object" } });
            world.cluster.create(json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": { "name": format!("type{number}s.example.com") },
                "spec": { "group": "example.com", "scope": "Namespaced",
                          "names": { "plural": format!("type{number}s"), "kind": format!("Type{number}") },
                          "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }] },
            }));
        };
        comes(0);
        pass(5 * SEC).await;
        world.create_held("ConfigMap", "early", &[]);
        world.delete("ConfigMap", "early", Some(policy)).await;
        let finalizers = |world: &World| world.finalizers("configmaps", "early").len();
        for number in 1..=2 {
            pass(13 * SEC).await;
            assert_eq!(finalizers(&world), 2, "{policy:?} {number}");
            // Another type, at the start of its own time limit.
            comes(number);
        }
        pass(6 * SEC).await;
        assert_eq!(finalizers(&world), 1, "{policy:?}: {:?}", world.lines());
        let told = world.logged(GOES_WITHOUT);
        assert!(told.len() == 1 && told[0].contains("type0s.example.com, type1s.example.com, type2s.example.com"));
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_logged_once_for_repeated_finalizer_failures() {
    let world = World::new();
    let _manager = world.start().await;
    world.fail_lists("widgets");
    world.define_widgets();
    pass(5 * SEC).await;
    world.create_held("ConfigMap", "early", &[]);
    world.delete("ConfigMap", "early", Some(Foreground)).await;
    pass(20 * SEC).await;
    world.cluster.intercept(|call| {
        let fails = call.resource == "widgets" || (call.verb == "patch" && call.resource == "configmaps");
        if fails { Interception::status(500, "InternalError", "no") } else { Interception::Pass }
    });
    pass(60 * SEC).await;
    assert!(world.call_count("patch configmaps early") > 5, "{:?}", world.lines());
    assert_eq!(world.logged(GOES_WITHOUT).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn caches_of_a_standby_are_proved_before_a_finalizer_is_removed_in_the_new_term() {
    // A type that does not sync delays the start of the workers.
    for (policy, is_late) in [(Orphan, false), (Orphan, true), (Foreground, false), (Foreground, true)] {
        let world = World::with_widgets();
        if is_late {
            world.fail_lists("widgets");
        }
        let rc = world.create("ReplicationController", "rc", &[]);
        let standby = world.stand_by().await;
        // Its watch stalls without an error.
        world.cluster.freeze_watches("secrets");
        world.create_held("Secret", "unseen", &[blocking(&rc)]);
        pass(SEC).await;
        let _manager = lead(standby).await;
        world.delete("ReplicationController", "rc", Some(policy)).await;
        pass(if is_late { 40 * SEC } else { 10 * SEC }).await;
        let (case, lines) = (format!("{policy:?}, late: {is_late}"), world.lines());
        match policy {
            Orphan => {
                assert!(world.owners("secrets", "unseen").is_empty(), "{case}: {lines:?}");
                assert!(!world.has("replicationcontrollers", "rc"), "{case}: {lines:?}");
            }
            _ => {
                assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["foregroundDeletion"], "{case}");
                assert!(world.is_deleting("secrets", "unseen"), "{case}: {lines:?}");
            }
        }
        assert!(!world.logged(GOES_WITHOUT).iter().any(|it| it.contains("secrets")), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_term_requests_no_proofs_if_no_owner_waits() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create("Pod", "pod", &[owner(&rc)]);
    let standby = world.stand_by().await;
    world.cluster.clear_requests();
    let _manager = lead(standby).await;
    world.cluster.remove("replicationcontrollers", "n", "rc");
    pass(10 * SEC).await;
    assert!(!world.has("pods", "pod"));
    let watches = world.cluster.requests().iter().filter(|it| matches!(it.verb, "list" | "watch")).count();
    assert_eq!(watches, 0);
}

#[tokio::test(start_paused = true)]
async fn an_owner_waits_five_minutes_for_a_dependent_of_an_unserved_type() {
    let world = World::new();
    for name in ["early", "late"] {
        let rc = world.create("ReplicationController", name, &[]);
        world.create_held("ReplicaSet", name, &[blocking(&rc)]);
    }
    let _manager = world.start().await;
    world.delete("ReplicationController", "early", Some(Foreground)).await;
    // Two discovery answers lack it.
    world.cluster.fail_discovery("apps", DiscoveryFault::Missing);
    pass(95 * SEC).await;
    assert!(world.is_deleting("ReplicaSet", "early"), "{:?}", world.lines());
    pass(220 * SEC).await;
    assert!(world.has("ReplicationController", "early"), "{:?}", world.lines());
    pass(60 * SEC).await;
    assert!(!world.has("ReplicationController", "early"), "{:?}", world.lines());
    // The time when its type disappeared is not stored forever.
    pass(900 * SEC).await;
    world.delete("ReplicationController", "late", Some(Foreground)).await;
    pass(5 * SEC).await;
    assert!(!world.has("ReplicationController", "late"), "{:?}", world.lines());
    assert_eq!(world.logged("An owner no longer waits for an object whose type is not served any more").len(), 2);
}
