//! Responses that arrive late, and owners that changed meanwhile.

use client::Propagation::{Foreground, Orphan};
use harness::pass;
use serde_json::json;
use test_cluster::{Interception, TestCluster};

use crate::world::{MS, SEC, World, blocking, own_metric, owner};

/// Removes the object without an event: only a complete set shows it.
fn delete_without_event(cluster: &TestCluster, resource: &str, name: &str) {
    cluster.freeze_watches(resource);
    cluster.remove(resource, "n", name);
    cluster.compact();
    cluster.end_watches(resource);
}

#[tokio::test(start_paused = true)]
async fn an_owner_found_by_a_read_is_read_again_for_later_passes() {
    let world = World::new();
    let (rc, map) = (world.create("ReplicationController", "rc", &[]), world.create("ConfigMap", "map", &[]));
    world.create("Pod", "first", &[owner(&map), owner(&rc)]);
    for number in 0..19 {
        world.create("Pod", &format!("pod-{number}"), &[owner(&rc)]);
    }
    let _manager = world.start().await;
    let mut is_late = true;
    world.respond(move |line, _| {
        let late = line.starts_with("get replicationcontrollers") && std::mem::replace(&mut is_late, false);
        late.then_some(Interception::DelayAnswer(30 * SEC))
    });
    // One of two owners is deleted, so the other is read. It exists, and the response is slow.
    world.cluster.remove("configmaps", "n", "map");
    pass(5 * SEC).await;
    assert_eq!(world.lines(), ["get replicationcontrollers rc"]);
    delete_without_event(&world.cluster, "replicationcontrollers", "rc");
    pass(300 * SEC).await;
    assert_eq!(world.names("pods"), [""; 0], "{:?}", world.lines());
    let asked = world.call_count("get replicationcontrollers rc");
    assert_eq!(asked, 2, "one more read for all later items: {:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn a_cached_waiting_state_is_invalid_when_the_owner_is_not_shown() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    world.create_held("Pod", "held", &[blocking(&rc)]);
    let manager = world.start().await;
    // While the response is in flight, the owner is deleted, and a complete set does not contain it.
    let mut is_late = true;
    world.respond(move |line, _| {
        let late = line.starts_with("get") && std::mem::replace(&mut is_late, false);
        late.then_some(Interception::DelayAnswer(10 * SEC))
    });
    world.delete("ReplicationController", "rc", Some(Foreground)).await;
    pass(SEC).await;
    delete_without_event(&world.cluster, "replicationcontrollers", "rc");
    pass(9 * SEC + 100 * MS).await;
    assert_eq!(world.lines(), ["get replicationcontrollers rc", "delete pods held"]);
    world.create("Pod", "late", &[blocking(&rc)]);
    pass(100 * MS).await;
    assert!(!world.has("pods", "late"));
    assert_eq!(world.call_count("get replicationcontrollers rc"), 2, "{:?}", world.lines());
    let deletes = ["owner_waits", "owners_gone"]
        .map(|it| own_metric(&manager, &format!("deletes_total{{policy=\"Background\",reason=\"{it}\"}}")));
    assert_eq!(deletes, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_orphaned_though_the_response_to_its_patch_was_lost() {
    let world = World::new();
    let rc = world.create_held("ReplicationController", "rc", &[]);
    let _manager = world.start().await;
    // The next pass uses the old state of the owner.
    let mut is_lost = true;
    world.respond(move |line, cluster| {
        let lost = line == "patch replicationcontrollers rc" && std::mem::replace(&mut is_lost, false);
        lost.then(|| {
            cluster.freeze_watches("replicationcontrollers");
            Interception::LoseAnswer
        })
    });
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    pass(5 * SEC).await;
    assert_eq!(world.finalizers("replicationcontrollers", "rc"), ["example.com/hold"]);
    let asked = ["get", "patch", "get"].map(|it| format!("{it} replicationcontrollers rc"));
    assert_eq!(world.lines(), asked, "the second pass finds it removed");
    world.cluster.unfreeze_watches("replicationcontrollers");
    world.create("Pod", "late", &[owner(&rc)]);
    world.release("replicationcontrollers", "rc");
    pass(5 * SEC).await;
    assert!(world.has("pods", "late") && world.owners("pods", "late").is_empty(), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_orphaned_though_the_client_retried_its_patch() {
    let world = World::new();
    let rc = world.create_held("ReplicationController", "rc", &[]);
    let _manager = world.start().await;
    // The write is stored, but the response asks the client to retry.
    let mut is_first = true;
    world.respond(move |line, cluster| {
        let first = line == "patch replicationcontrollers rc" && std::mem::replace(&mut is_first, false);
        first.then(|| {
            cluster.update("replicationcontrollers", "n", "rc", |it| {
                it["metadata"]["finalizers"] = json!(["example.com/hold"]);
            });
            Interception::status(503, "ServiceUnavailable", "later").retry_after(1)
        })
    });
    world.delete("ReplicationController", "rc", Some(Orphan)).await;
    pass(5 * SEC).await;
    assert_eq!(world.call_count("patch replicationcontrollers rc"), 2, "{:?}", world.lines());
    world.create("Pod", "late", &[owner(&rc)]);
    world.release("replicationcontrollers", "rc");
    pass(5 * SEC).await;
    assert!(world.has("pods", "late") && world.owners("pods", "late").is_empty(), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn acceptance_gc_014_an_owner_with_both_finalizers_deletes_no_dependent() {
    let world = World::with_widgets();
    let finalizers = json!(["foregroundDeletion", "orphan"]);
    let widget = world.create_with(
        "Widget",
        json!({ "name": "w", "namespace": "n", "finalizers": finalizers, "deletionTimestamp": "2027-01-15T08:00:00Z" }),
    );
    // The reference uses a version that is not watched: the owner is checked when it is observed.
    let mut reference = blocking(&widget);
    reference["apiVersion"] = json!("example.com/v1beta1");
    world.create("ConfigMap", "child", &[reference]);
    // Orphaning is slow.
    world.respond(|line, _| (line == "patch configmaps child").then_some(Interception::Delay(3 * SEC)));
    let _manager = world.start().await;
    pass(30 * SEC).await;
    assert!(world.call_count("get widgets w") > 0, "{:?}", world.lines());
    assert!(world.has("configmaps", "child"), "{:?}", world.lines());
    assert!(world.owners("configmaps", "child").is_empty() && !world.has("Widget", "w"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_observed_during_a_read_counts_though_the_response_shows_the_owner() {
    let world = World::new();
    let (rc, map) = (world.create("ReplicationController", "rc", &[]), world.create("ConfigMap", "map", &[]));
    world.create("Pod", "pod", &[owner(&map), owner(&rc)]);
    let _manager = world.start().await;
    let mut is_late = true;
    world.respond(move |line, _| {
        let late = line.starts_with("get replicationcontrollers") && std::mem::replace(&mut is_late, false);
        late.then_some(Interception::DelayAnswer(10 * SEC))
    });
    world.cluster.remove("configmaps", "n", "map");
    pass(2 * SEC).await;
    assert_eq!(world.lines(), ["get replicationcontrollers rc"]);
    world.cluster.remove("replicationcontrollers", "n", "rc");
    pass(60 * SEC).await;
    assert!(!world.has("pods", "pod"), "{:?}", world.lines());
    assert_eq!(world.call_count("get replicationcontrollers rc"), 1, "{:?}", world.lines());
}
