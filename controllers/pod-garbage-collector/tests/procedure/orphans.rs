//! Pods of nodes that do not exist.

use std::time::Duration;

use harness::{NAMESPACE, failure, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{FAST, MS, SEC, World, finalizer, node, pod};

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a Value {
    pod["status"]["conditions"].as_array().unwrap().iter().find(|it| it["type"] == kind).unwrap()
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_008_a_pod_of_a_known_node_is_no_orphan() {
    let world = World::new();
    world.add_node_with("n1", "Unknown", json!([]));
    world.add_pod("a", "n1", "Running");
    let _manager = world.start().await;
    world.add_pod("b", "n1", "Running");
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_009_the_first_pass_deletes_and_reads_nothing() {
    let world = World::new();
    world.add_pod("a", "gone", "Running");
    let _manager = world.start().await;
    world.sleep_until(10 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_010_a_pod_of_an_unknown_node_is_deleted_after_40_seconds_and_a_live_read() {
    let world = World::new();
    let created = world.add_pod("a", "gone", "Running");
    let _manager = world.start().await;
    world.sleep_until(40 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    world.sleep_until(40 * SEC + 100 * MS).await;
    assert_eq!(world.lines(), ["get nodes gone", "patch pods/status a", "delete pods a"]);
    let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        "preconditions": { "uid": created["metadata"]["uid"] } });
    assert_eq!(world.bodies("delete"), [options]);
    assert_eq!(world.pod_names(), [""; 0]);
    assert_eq!(world.logged("Forced deletion of orphaned Pod succeeded").len(), 1);
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.lines().len(), 3, "nothing is left to do");
}

#[tokio::test(start_paused = true)]
async fn the_quarantine_starts_when_the_node_is_deleted() {
    let world = World::new();
    world.add_node("n1");
    world.add_pod("a", "n1", "Running");
    let _manager = world.start().await;
    world.sleep_until(113 * SEC).await;
    world.remove_node("n1");
    // A pod that is bound late does not prolong it.
    world.sleep_until(130 * SEC).await;
    world.add_pod("b", "n1", "Pending");
    world.sleep_until(153 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    world.sleep_until(153 * SEC + 100 * MS).await;
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn no_quarantine_starts_before_the_cache_of_nodes_is_filled() {
    let world = World::new();
    world.add_node("n1");
    world.add_pod("a", "n1", "Running");
    world.cluster.intercept(|call| match call.resource == "nodes" && matches!(call.verb, "list" | "watch") {
        true => Interception::Delay(30 * SEC),
        false => Interception::Pass,
    });
    let _manager = world.start().await;
    world.sleep_until(20 * SEC).await;
    world.remove_node("n1");
    world.sleep_until(60 * SEC).await;
    assert_eq!(world.pod_names(), ["a"], "its node is gone for 40 s, but was not missed for 40 s");
    world.sleep_until(200 * SEC).await;
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_quarantine_of_a_node_never_seen_starts_with_its_first_pod() {
    let world = World::new();
    let _manager = world.start().await;
    world.sleep_until(7 * SEC).await;
    world.add_pod("a", "", "Pending");
    world.sleep_until(13 * SEC).await;
    world.cluster.update("pods", NAMESPACE, "a", |it| it["spec"]["nodeName"] = json!("never"));
    world.sleep_until(53 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    world.sleep_until(53 * SEC + 100 * MS).await;
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_without_pods_is_not_read() {
    let world = World::new();
    world.add_node("n1");
    let _manager = world.start().await;
    world.remove_node("n1");
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_011_three_pods_of_a_node_need_one_read_and_one_patch() {
    let world = World::new();
    world.add_pod("a", "gone", "Failed");
    world.add_pod("b", "gone", "Succeeded");
    world.add_pod("c", "gone", "Running");
    let _manager = world.start().await;
    world.sleep_until(60 * SEC).await;
    assert_eq!([world.call_count("get"), world.call_count("patch"), world.call_count("delete")], [1, 1, 3]);
    assert_eq!(world.call_count("patch pods/status c"), 1);
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_012_a_node_that_only_the_server_knows_keeps_its_pods() {
    let world = World::new();
    world.add_pod("a", "late", "Running");
    let _manager = world.start().await;
    let found = Interception::Answer { status: 200, headers: Vec::new(), body: node("late", "True", json!([])) };
    world.fail_requests(move |line, _| (line == "get nodes late").then(|| found.clone()));
    world.sleep_until(121 * SEC).await;
    assert_eq!((world.lines(), world.pod_names()), (vec!["get nodes late".to_owned(); 3], vec!["a".to_owned()]));
    let reads: Vec<u64> = world.call_times("get nodes late").iter().map(|it| it.as_secs()).collect();
    assert_eq!(reads, [40, 80, 120], "after each quarantine");
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_013_a_node_that_appears_during_the_quarantine_is_not_read() {
    let world = World::new();
    world.add_pod("a", "late", "Running");
    let _manager = world.start().await;
    world.sleep_until(39 * SEC).await;
    world.add_node("late");
    world.sleep_until(3600 * SEC).await;
    assert_eq!((world.lines(), world.pod_names()), (vec![], vec!["a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_appears_while_it_waits_for_a_worker_is_not_read() {
    let world = World::new();
    // Their reads occupy all workers.
    (0..4).for_each(|it| drop(world.add_pod(&format!("p{it}"), &format!("gone-{it}"), "Running")));
    world.fail_requests(|line, _| line.starts_with("get nodes").then_some(Interception::Delay(30 * SEC)));
    let manager = world.start().await;
    world.sleep_until(SEC).await;
    world.add_pod("a", "late", "Running");
    world.sleep_until(50 * SEC).await;
    assert_eq!(manager.metric("workqueue_depth{name=\"orphaned_pods_nodes\"}"), 1);
    world.add_node("late");
    world.sleep_until(3600 * SEC).await;
    assert_eq!((world.pod_names(), world.call_count("get nodes late")), (vec!["a".to_owned()], 0));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_returned_and_is_deleted_again_gets_a_whole_quarantine_again() {
    let world = World::new();
    world.add_pod("a", "n1", "Running");
    let _manager = world.start().await;
    world.sleep_until(20 * SEC).await;
    world.add_node("n1");
    world.sleep_until(35 * SEC).await;
    world.remove_node("n1");
    world.sleep_until(75 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    world.sleep_until(75 * SEC + 100 * MS).await;
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_014_after_a_failed_read_the_node_is_checked_after_another_quarantine() {
    let proxy = Interception::text(404, "no route");
    for response in [Interception::status(500, "InternalError", "not now"), proxy] {
        let world = World::new();
        world.add_pod("a", "gone", "Running");
        let _manager = world.start().await;
        let mut first = true;
        world.fail_requests(move |line, _| {
            (line == "get nodes gone" && std::mem::take(&mut first)).then(|| response.clone())
        });
        world.sleep_until(79 * SEC).await;
        assert_eq!(world.lines(), ["get nodes gone"]);
        assert_eq!(world.logged("Error while getting node").len(), 1);
        world.sleep_until(81 * SEC).await;
        assert_eq!(world.lines()[1..], ["get nodes gone", "patch pods/status a", "delete pods a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_015_an_orphan_gets_the_phase_failed_and_the_disruption_target() {
    let world = World::new();
    let before = world.add_pod_with("a", "gone", "Running", finalizer());
    let _manager = world.start().await;
    world.sleep_until(41 * SEC).await;
    let after = world.pod("a").unwrap();
    assert_eq!(after["status"]["phase"], "Failed");
    assert_eq!(condition(&after, "Ready"), condition(&before, "Ready"));
    let target = condition(&after, "DisruptionTarget");
    assert_eq!(target["status"], "True");
    assert_eq!(target["reason"], "DeletionByPodGC");
    assert_eq!(target["message"], "PodGC: node no longer exists");
    assert_eq!(target["lastTransitionTime"], "2027-01-15T08:00:40Z");
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_016_a_pending_orphan_with_a_finalizer_is_failed_and_stays() {
    let world = World::new();
    let before = world.add_pod_with("a", "gone", "Pending", finalizer());
    let _manager = world.start().await;
    world.sleep_until(3600 * SEC).await;
    let after = world.pod("a").unwrap();
    assert_eq!(after["status"]["phase"], "Failed");
    // The deletion increases the generation of the pod after the patch.
    let generation = &before["metadata"]["generation"];
    assert_eq!(condition(&after, "DisruptionTarget")["observedGeneration"], *generation);
    assert_eq!(after["status"]["observedGeneration"], *generation);
    assert!(after["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(world.lines(), ["get nodes gone", "patch pods/status a", "delete pods a"], "no further request");
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_017_a_terminated_orphan_with_a_finalizer_keeps_its_status() {
    let world = World::new();
    let before = ["Succeeded", "Failed"]
        .map(|phase| world.add_pod_with(&phase.to_lowercase(), "gone", phase, finalizer())["status"].clone());
    let _manager = world.start().await;
    world.sleep_until(3600 * SEC).await;
    let after = ["succeeded", "failed"].map(|it| world.pod(it).unwrap());
    assert_eq!(after.each_ref().map(|it| it["status"].clone()), before);
    assert!(after.iter().all(|it| it["metadata"]["deletionTimestamp"].is_string()));
    assert_eq!([world.call_count("patch"), world.call_count("delete")], [0, 2]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_018_duplicate_list_keys_do_not_prevent_the_deletion() {
    let world = World::new();
    let port = |port: u32| json!({ "containerPort": port, "protocol": "TCP" });
    let env = |value: &str| json!({ "name": "TWICE", "value": value });
    for (name, field, list) in
        [("env", "env", json!([env("1"), env("2")])), ("ports", "ports", json!([port(80), port(80)]))]
    {
        let mut double = pod(name, "gone", "Running", json!({}));
        double["spec"]["containers"][0][field] = list;
        world.cluster.create(double);
    }
    let _manager = world.start().await;
    world.sleep_until(41 * SEC).await;
    assert_eq!([world.call_count("patch"), world.call_count("delete")], [2, 2]);
    assert!(world.calls().iter().skip(1).all(|it| it.status == 200), "{:?}", world.lines());
    for call in world.calls().iter().filter(|it| it.verb == "patch") {
        let fields: Vec<String> = call.json().as_object().unwrap().keys().cloned().collect();
        assert_eq!(fields, ["metadata", "status"]);
    }
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_029_a_successor_of_the_same_name_is_neither_patched_nor_deleted() {
    for request in ["patch pods/status a", "delete pods a"] {
        let world = World::new();
        world.add_pod("a", "gone", "Running");
        world.add_node("n1");
        let _manager = world.start().await;
        let (cluster, mut first) = (world.cluster.clone(), true);
        world.fail_requests(move |line, _| {
            if line == request && std::mem::take(&mut first) {
                cluster.remove("pods", NAMESPACE, "a");
                cluster.create(pod("a", "n1", "Running", json!({})));
            }
            None
        });
        world.sleep_until(3600 * SEC).await;
        let successor = world.pod("a").unwrap();
        assert_eq!((&successor["spec"]["nodeName"], &successor["status"]["phase"]), (&json!("n1"), &json!("Running")));
        assert!(successor["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(world.calls().last().map(|it| it.status), Some(409), "{request}: it was refused");
        assert_eq!(world.logged("Failed to delete"), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_counts_as_deleted() {
    for request in ["patch pods/status a", "delete pods a"] {
        let world = World::new();
        world.add_pod("a", "gone", "Running");
        let manager = world.start().await;
        let cluster = world.cluster.clone();
        world.fail_requests(move |line, _| {
            if line == request {
                cluster.remove("pods", NAMESPACE, "a");
            }
            None
        });
        world.sleep_until(3600 * SEC).await;
        assert_eq!(world.calls().last().map(|it| it.status), Some(404));
        assert_eq!(world.call_count("get nodes"), 1);
        assert_eq!(manager.metric_lines("pod_gc_collector_force_delete_pod_errors_total"), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_bound_after_the_read_of_the_node_gets_its_own_quarantine() {
    let world = World::new();
    world.add_pod("a", "n1", "Running");
    let _manager = world.start().await;
    let (cluster, mut first) = (world.cluster.clone(), true);
    world.fail_requests(move |line, _| {
        if line != "get nodes n1" || !std::mem::take(&mut first) {
            return None;
        }
        // The cache shows the pod before the response arrives.
        cluster.create(pod("b", "n1", "Pending", json!({})));
        Some(Interception::DelayAnswer(2 * SEC))
    });
    world.sleep_until(79 * SEC).await;
    assert_eq!(world.pod_names(), ["b"]);
    world.sleep_until(81 * SEC).await;
    assert_eq!(world.pod_names(), [""; 0]);
}

/// A hundred orphans, whose node returns while the fifth of them is deleted. The first deletion takes this time.
fn with_a_node_that_returns(first_deletion: Duration) -> World {
    let world = World::new();
    (0..100).for_each(|it| drop(world.add_pod(&format!("p{it:03}"), "n1", "Failed")));
    let cluster = world.cluster.clone();
    let mut deletes = 0;
    world.fail_requests(move |line, _| {
        if !line.starts_with("delete") {
            return None;
        }
        deletes += 1;
        if deletes == 5 {
            cluster.create(node("n1", "True", json!([])));
        }
        Some(Interception::Delay(if deletes == 1 { first_deletion } else { 50 * MS }))
    });
    world
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_returns_during_the_deletion_stay() {
    let world = with_a_node_that_returns(50 * MS);
    let _manager = world.start().await;
    world.sleep_until(3600 * SEC).await;
    let left = world.pod_names().len();
    assert!((60..100).contains(&left), "only requests in flight were completed: {left} are left");
}

/// A request that was sent before the node returned ends after the node is gone again.
#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_returned_during_the_deletion_get_a_whole_quarantine_again() {
    let world = with_a_node_that_returns(SEC);
    let _manager = world.start().await;
    world.sleep_until(40 * SEC + 500 * MS).await;
    world.remove_node("n1");
    world.sleep_until(80 * SEC).await;
    let left = world.pod_names().len();
    assert!((60..100).contains(&left), "{left} are left");
    world.sleep_until(90 * SEC).await;
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn pods_with_a_controller_are_deleted_first() {
    let world = World::new();
    let owned = json!({ "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
        "uid": "11111111-2222-3333-4444-555555555555", "controller": true }] });
    (0..30).for_each(|it| drop(world.add_pod(&format!("a{it:02}"), "gone", "Failed")));
    (0..30).for_each(|it| drop(world.add_pod_with(&format!("b{it:02}"), "gone", "Failed", owned.clone())));
    let _manager = world.start().await;
    world.sleep_until(60 * SEC).await;
    let lines = world.lines();
    assert!(lines[1..31].iter().all(|it| it.starts_with("delete pods b")), "{lines:?}");
    assert_eq!(lines.len(), 61);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_observes_the_node_for_a_whole_quarantine() {
    let world = World::new();
    world.add_pod("a", "gone", "Running");
    let first = world.start().await;
    world.sleep_until(39 * SEC).await;
    drop(first);
    let _second = world.start().await;
    world.sleep_until(79 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    world.sleep_until(80 * SEC).await;
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_repeated_after_the_period_of_the_passes() {
    let world = World::new();
    world.add_pod("a", "gone", "Running");
    world.add_pod("b", "gone", "Running");
    let _manager = world.start().await;
    let mut failures = 3;
    world.fail_requests(move |line, _| {
        let fails = line == "delete pods a" && failures > 0;
        failures -= i32::from(fails);
        if fails { failure(500, "InternalError") } else { None }
    });
    pass(41 * SEC).await;
    assert_eq!(world.pod_names(), ["a"], "other pods are deleted");
    world.sleep_until(101 * SEC).await;
    assert_eq!(world.pod_names(), [""; 0]);
    let times: Vec<u64> = world.call_times("delete pods a").iter().map(|it| it.as_secs()).collect();
    assert_eq!(times, [40, 60, 80, 100]);
    assert_eq!(world.call_count("get nodes"), 4, "each time the node is read");
    assert_eq!(world.call_count("patch pods/status a"), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_005_without_a_threshold_orphans_are_still_deleted() {
    for threshold in [0, -1] {
        let world = World::new();
        world.add_node("n1");
        world.add_pod("a", "gone", "Failed");
        ["b", "c", "d"].iter().for_each(|it| drop(world.add_pod(it, "n1", "Failed")));
        let _manager = world.start_with(threshold, FAST).await;
        world.sleep_until(200 * SEC).await;
        assert_eq!(world.pod_names(), ["b", "c", "d"]);
        assert_eq!(world.lines(), ["get nodes gone", "delete pods a"]);
    }
}
