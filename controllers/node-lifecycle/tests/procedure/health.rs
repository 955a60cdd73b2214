//! When a node is silent, and how its conditions change.

use harness::pass;
use node_lifecycle_controller::Options;
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{MS, SEC, World, condition, is_punctual, is_status};

const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

#[tokio::test(start_paused = true)]
async fn acceptance_node_001_a_node_that_only_renews_its_lease_stays_ready() {
    let world = World::with(&["a"]);
    let _manager = world.start().await;
    world.kubelets(&["a"], 300 * SEC).await;
    assert_eq!(world.ready("a"), "True");
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_only_posts_its_status_stays_ready() {
    let world = World::with(&["expired"]);
    world.create("a", json!({}), json!({}));
    world.post("a", "True");
    let _manager = world.start().await;
    for _ in 0..10 {
        ["a", "expired"].iter().for_each(|it| world.post(it, "True"));
        pass(40 * SEC).await;
    }
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_002_a_silent_node_is_unknown_after_its_grace_period_and_at_most_100_ms_later() {
    let world = World::with(&["a", "b"]);
    world.update("a", |it| {
        let conditions = it["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({ "type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated",
            "lastHeartbeatTime": "2027-01-15T07:00:00Z", "lastTransitionTime": "2027-01-15T07:00:00Z" }));
    });
    let before = world.node("a");
    let _manager = world.start().await;
    world.kubelets(&["a", "b"], 7 * SEC).await;
    world.renew("a");
    world.kubelets(&["b"], 57 * SEC - MS).await;
    assert_eq!(world.lines(), [""; 0]);
    world.kubelets(&["b"], 100 * SEC).await;
    assert_eq!(world.unknown_at("a").len(), 1);
    assert!(is_punctual(world.unknown_at("a")[0], 57 * SEC), "{:?}", world.unknown_at("a"));
    let after = world.node("a");
    for type_ in REPORTED {
        let (was, is) = (condition(&before, type_), condition(&after, type_));
        assert_eq!((&is["status"], &is["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")), "{type_}");
        assert_eq!(is["message"], "Kubelet stopped posting node status.");
        assert_eq!(is["lastHeartbeatTime"], was["lastHeartbeatTime"], "{type_}");
        assert_eq!(is["lastTransitionTime"], "2027-01-15T08:00:57Z", "{type_}");
    }
    assert_eq!(condition(&after, "NetworkUnavailable"), condition(&before, "NetworkUnavailable"));
    assert_eq!(world.ready("b"), "True");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_003_the_conditions_are_written_with_one_patch_that_has_the_read_version() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.kubelets(&["b"], 45 * SEC).await;
    world.set_labels("a", json!({ "color": "red" }));
    let version = world.node("a")["metadata"]["resourceVersion"].clone();
    world.kubelets(&["b"], 70 * SEC).await;
    let calls = world.calls();
    let written: Vec<_> = calls.iter().filter(|it| is_status(it)).collect();
    assert_eq!(written.len(), 1);
    assert_eq!((written[0].verb, &*written[0].name), ("patch", "a"));
    let body = written[0].json();
    assert_eq!(body["metadata"], json!({ "resourceVersion": version }));
    assert_eq!(body["status"]["conditions"].as_array().unwrap().len(), 4);
    assert!(body.get("spec").is_none());
    let types = |node: &Value| -> Vec<Value> {
        node["status"]["conditions"].as_array().unwrap().iter().map(|it| it["type"].clone()).collect()
    };
    assert_eq!(types(&world.node("a")), types(&world.node("b")), "the order of a kubelet is kept");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_004_a_node_that_never_reported_is_unknown_60_s_after_its_creation() {
    let world = World::with(&["b"]);
    let _manager = world.start().await;
    world.kubelets(&["b"], 20 * SEC).await;
    world.create("a", json!({}), json!({}));
    world.kubelets(&["b"], 80 * SEC - MS).await;
    assert_eq!(world.lines(), [""; 0]);
    world.kubelets(&["b"], 90 * SEC).await;
    assert!(is_punctual(world.unknown_at("a")[0], 80 * SEC), "{:?}", world.unknown_at("a"));
    let conditions: Vec<Value> = world.node("a")["status"]["conditions"].as_array().unwrap().clone();
    let types: Vec<&str> = conditions.iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(types, REPORTED);
    for condition in conditions {
        assert_eq!((&condition["status"], &condition["reason"]), (&json!("Unknown"), &json!("NodeStatusNeverUpdated")));
        assert_eq!(condition["message"], "Kubelet never posted node status.");
        assert_eq!(condition["lastHeartbeatTime"], "2027-01-15T08:00:20Z", "its creation");
        assert_eq!(condition["lastTransitionTime"], "2027-01-15T08:01:20Z");
    }
}

#[tokio::test(start_paused = true)]
async fn startup_grace_period_begins_anew_with_a_start_of_the_manager() {
    let world = World::with(&["b"]);
    world.create("old", json!({}), json!({}));
    world.update("old", |it| it["metadata"]["creationTimestamp"] = json!("2012-01-01T00:00:00Z"));
    world.sleep_until(40 * SEC).await;
    let _manager = world.start().await;
    world.kubelets(&["b"], 120 * SEC).await;
    assert!(is_punctual(world.unknown_at("old")[0], 100 * SEC), "{:?}", world.unknown_at("old"));
    assert_eq!(world.condition("old", "Ready")["lastHeartbeatTime"], "2012-01-01T00:00:00Z");
}

#[tokio::test(start_paused = true)]
async fn a_node_without_status_that_renews_its_lease_does_not_become_unknown() {
    // Whichever cache is filled first.
    for late in ["leases", "nodes"] {
        let world = World::with(&["b"]);
        world.create("a", json!({}), json!({}));
        world.update("a", |it| it["metadata"]["creationTimestamp"] = json!("2012-01-01T00:00:00Z"));
        world.renew("a");
        world.sleep_until(5 * SEC).await;
        delay(&world, late);
        let _manager = world.start().await;
        world.kubelets(&["a", "b"], 300 * SEC).await;
        assert_eq!(world.lines(), [""; 0], "{late} late");
        world.kubelets(&["b"], 400 * SEC).await;
        let unknown_at = world.unknown_at("a")[0];
        assert!(unknown_at >= 350 * SEC && unknown_at <= 361 * SEC, "{unknown_at:?}: the startup grace period applies");
    }
}

/// The first set of this resource comes two seconds late.
fn delay(world: &World, resource: &'static str) {
    world.cluster.intercept(move |call| match call.resource == resource && matches!(call.verb, "list" | "watch") {
        true => test_cluster::Interception::Delay(2 * SEC),
        false => test_cluster::Interception::Pass,
    });
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_006_a_node_that_was_unknown_at_the_start_is_tainted_at_once_whichever_cache_is_filled_first() {
    for late in ["leases", "nodes", "none"] {
        let world = World::with(&["b"]);
        world.create_old("a", "Unknown", 3600, &[]);
        delay(&world, late);
        let _manager = world.start().await;
        world.kubelets(&["b"], 20 * SEC).await;
        assert_eq!(world.no_execute("a"), ["unreachable"], "{late} late");
        assert!(world.taintings()[0].1 < 5 * SEC, "{late} late: {:?}", world.taintings());
        assert!(world.unknown_at("a").is_empty(), "its conditions are Unknown already");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_005_only_the_change_of_a_lease_counts_and_not_its_time() {
    for begin in ["2001-01-01T00:00:00Z", "2050-01-01T00:00:00Z"] {
        let mut micros = begin.parse::<clock::Timestamp>().unwrap().as_microsecond();
        let world = World::with(&["a"]);
        world.renew_at("a", micros);
        let _manager = world.start().await;
        for _ in 0..30 {
            micros += 10_000_000;
            world.renew_at("a", micros);
            pass(10 * SEC).await;
        }
        assert_eq!(world.lines(), [""; 0], "{begin}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_006_after_a_restart_a_ready_node_has_a_full_grace_period() {
    let world = World::with(&["b"]);
    world.create_old("a", "True", 3600, &[]);
    world.create_old("c", "False", 3600, &["not-ready:NoExecute", "not-ready:NoSchedule"]);
    world.sleep_until(5 * SEC).await;
    let _manager = world.start().await;
    world.kubelets(&["b"], 55 * SEC - MS).await;
    assert_eq!(world.lines(), [""; 0]);
    world.kubelets(&["b"], 60 * SEC).await;
    for node in ["a", "c"] {
        assert!(is_punctual(world.unknown_at(node)[0], 55 * SEC), "{node}: {:?}", world.unknown_at(node));
    }
}

#[tokio::test(start_paused = true)]
async fn the_health_of_each_node_is_checked_at_its_own_deadline() {
    let world = World::with(&["a", "b", "c", "alive"]);
    let _manager = world.start().await;
    for (node, last) in [("a", 3_100), ("b", 5_777), ("c", 9_999)] {
        world.sleep_until(last * MS).await;
        world.renew(node);
    }
    world.kubelets(&["alive"], 70 * SEC).await;
    for (node, last) in [("a", 3_100), ("b", 5_777), ("c", 9_999)] {
        let unknown_at = world.unknown_at(node);
        assert!(unknown_at.len() == 1 && is_punctual(unknown_at[0], last * MS + 50 * SEC), "{node}: {unknown_at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn grace_periods_of_the_user_apply() {
    let world = World::with(&["a", "b"]);
    let options = Options { grace: 20 * SEC, startup_grace: 30 * SEC, ..Options::default() };
    let _manager = world.start_with(options).await;
    world.create("new", json!({}), json!({}));
    world.kubelets(&["b"], 40 * SEC).await;
    assert!(is_punctual(world.unknown_at("a")[0], 20 * SEC), "{:?}", world.unknown_at("a"));
    assert!(is_punctual(world.unknown_at("new")[0], 30 * SEC + 100 * MS), "{:?}", world.unknown_at("new"));
    assert_eq!(world.logged("--node-monitor-grace-period below 45s").len(), 1, "k/k#121793");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_not_ready_becomes_unknown_too() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.kubelets(&["b"], 10 * SEC).await;
    world.post("a", "False");
    world.kubelets(&["b"], 70 * SEC).await;
    assert_eq!(world.ready("a"), "Unknown");
    assert!(is_punctual(world.unknown_at("a")[0], 60 * SEC), "{:?}", world.unknown_at("a"));
}

#[tokio::test(start_paused = true)]
async fn a_removed_ready_condition_gets_the_startup_grace_period() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.kubelets(&["b"], 20 * SEC).await;
    world.update("a", |it| it["status"]["conditions"] = json!([]));
    world.kubelets(&["b"], 79 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "neither tainted nor Unknown");
    world.kubelets(&["b"], 90 * SEC).await;
    assert!(is_punctual(world.unknown_at("a")[0], 80 * SEC), "{:?}", world.unknown_at("a"));
    assert_eq!(world.condition("a", "Ready")["reason"], "NodeStatusNeverUpdated");
}

#[tokio::test(start_paused = true)]
async fn a_changed_pressure_alone_is_not_written() {
    let world = World::with(&["b"]);
    world.create_old("a", "Unknown", 3600, &["unreachable:NoExecute", "unreachable:NoSchedule"]);
    let _manager = world.start().await;
    world.kubelets(&["b"], 200 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "three conditions are missing, but Ready is Unknown already");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_back_is_left_alone() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.kubelets(&["b"], 100 * SEC).await;
    assert_eq!(world.ready("a"), "Unknown");
    world.post("a", "True");
    world.renew("a");
    world.cluster.clear_requests();
    pass(MS * 100).await;
    assert_eq!(world.taints("a"), [""; 0]);
    world.kubelets(&["a", "b"], 400 * SEC).await;
    assert_eq!(world.lines(), ["patch nodes a"]);
    world.kubelets(&["b"], 500 * SEC).await;
    assert_eq!((world.ready("a"), world.no_execute("a").len()), ("Unknown".to_owned(), 1), "it becomes Unknown again");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_replaced_under_its_name_has_a_grace_period_of_its_own() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.kubelets(&["b"], 45 * SEC).await;
    world.cluster.delete("nodes", "", "a");
    world.create("a", json!({}), json!({}));
    world.post("a", "True");
    world.kubelets(&["b"], 95 * SEC - MS).await;
    assert_eq!(world.lines(), [""; 0], "the Lease of the first one tells nothing");
    world.kubelets(&["b"], 100 * SEC).await;
    assert!(is_punctual(world.unknown_at("a")[0], 95 * SEC), "{:?}", world.unknown_at("a"));
}

#[tokio::test(start_paused = true)]
async fn a_tainted_node_that_is_replaced_under_its_name_does_not_inherit_its_state() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.kubelets(&["b"], 60 * SEC).await;
    assert_eq!(world.no_execute("a"), ["unreachable"]);
    // The watch shows the deletion and the creation in one relist.
    world.cluster.compact();
    world.cluster.break_watches("nodes");
    world.cluster.delete("nodes", "", "a");
    world.create("a", json!({}), json!({}));
    world.post("a", "True");
    world.cluster.clear_requests();
    world.kubelets(&["a", "b"], 300 * SEC).await;
    assert_eq!((world.ready("a"), world.lines()), ("True".to_owned(), vec![]));
    assert_eq!(world.event_count("RemovingNode").await, 1);
    assert_eq!(world.event_count("RegisteredNode").await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_or_never_created_does_not_matter() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.kubelets(&["b"], 20 * SEC).await;
    world.cluster.delete("leases", "kube-node-lease", "a");
    world.kubelets(&["b"], 60 * SEC).await;
    assert!(is_punctual(world.unknown_at("a")[0], 50 * SEC), "{:?}", world.unknown_at("a"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_another_namespace_is_no_sign_of_life() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    for second in 1..=5 {
        world.cluster.create(json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "a", "namespace": "default" },
            "spec": { "renewTime": format!("2027-01-15T08:00:{second}0.000000Z") } }));
        world.kubelets(&["b"], 10 * second * SEC).await;
        world.cluster.delete("leases", "default", "a");
    }
    world.kubelets(&["b"], 60 * SEC).await;
    assert!(is_punctual(world.unknown_at("a")[0], 50 * SEC), "{:?}", world.unknown_at("a"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_renews_its_lease_while_its_status_is_written_is_not_tainted() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.fail_requests(|line, _| (line == "patch nodes/status a").then_some(Interception::DelayAnswer(6 * SEC)));
    world.kubelets(&["b"], 52 * SEC).await;
    world.kubelets(&["a", "b"], 90 * SEC).await;
    assert_eq!((world.unknown_at("a").len(), world.ready("a")), (1, "Unknown".to_owned()));
    assert_eq!(world.no_execute("a"), [""; 0]);
}
