//! Terminating pods of out-of-service nodes, and those without a node.

use harness::{failure, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

use crate::world::{FAST, MS, SEC, SLOW, World, counted, finalizer, held, out_of_service, terminating};

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_021_terminating_pods_of_out_of_service_nodes_are_failed_and_deleted() {
    let world = World::new();
    for effect in ["NoExecute", "NoSchedule", "PreferNoSchedule"] {
        let node = effect.to_lowercase();
        let mut taints = out_of_service(effect);
        taints[0]["value"] = if effect == "NoSchedule" { json!("nodeshutdown") } else { Value::Null };
        world.add_node_with(&node, "Unknown", taints);
        world.add_pod_with(&node, &node, "Running", terminating(30));
    }
    let _manager = world.start().await;
    world.sleep_until(SEC).await;
    assert_eq!([world.call_count("get nodes"), world.call_count("patch"), world.call_count("delete")], [3, 3, 3]);
    for patch in world.bodies("patch") {
        assert_eq!(patch["status"], json!({ "phase": "Failed", "observedGeneration": 1 }), "no condition");
    }
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_023_terminated_pods_of_an_out_of_service_node_are_deleted_without_a_patch() {
    let world = World::new();
    world.add_node_with("n1", "False", out_of_service("NoExecute"));
    world.add_pod_with("a", "n1", "Failed", terminating(30));
    world.add_pod_with("b", "n1", "Succeeded", terminating(30));
    let _manager = world.start().await;
    world.sleep_until(SEC).await;
    assert_eq!(world.lines(), ["get nodes n1", "delete pods a", "delete pods b"]);
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_024_a_long_grace_period_ends_within_one_pass() {
    let world = World::new();
    world.add_node_with("n1", "Unknown", json!([]));
    world.add_pod_with("a", "n1", "Running", terminating(300));
    let _manager = world.start().await;
    world.sleep_until(15 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "the taint is missing");
    world.cluster.update("nodes", "", "n1", |it| it["spec"]["taints"] = out_of_service("NoExecute"));
    world.sleep_until(20 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    world.sleep_until(20 * SEC + 100 * MS).await;
    assert_eq!(world.pod_names(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_025_unscheduled_terminating_pods_are_deleted() {
    let world = World::new();
    for phase in ["Failed", "Succeeded", "Running"] {
        world.add_pod_with(&phase.to_lowercase(), "", phase, terminating(0));
    }
    let _manager = world.start().await;
    world.sleep_until(SEC).await;
    let mut lines = world.lines();
    lines.sort();
    assert_eq!(
        lines,
        ["delete pods failed", "delete pods running", "delete pods succeeded", "patch pods/status running"]
    );
    assert_eq!(world.bodies("patch")[0]["status"], json!({ "phase": "Failed", "observedGeneration": 1 }));
    assert_eq!(world.pod_names(), [""; 0]);
    assert_eq!(world.logged("Forced deletion of unscheduled terminating Pod succeeded").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_026_other_pods_without_a_node_or_a_deletion_stay() {
    let world = World::new();
    world.add_node("n1");
    world.add_pod_with("a", "n1", "Running", terminating(30));
    world.add_pod("b", "", "Pending");
    let _manager = world.start().await;
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_027_after_a_refused_patch_the_pod_is_not_deleted_and_the_next_pass_tries_again() {
    let world = World::new();
    world.add_pod_with("a", "", "Running", terminating(0));
    let mut first = true;
    world.fail_requests(move |line, _| {
        if line.starts_with("patch") && std::mem::take(&mut first) { failure(403, "Forbidden") } else { None }
    });
    let manager = world.start().await;
    world.sleep_until(20 * SEC).await;
    assert_eq!(world.lines(), ["patch pods/status a"]);
    assert_eq!(counted(&manager, "force_delete_pods_total", "unscheduled"), 1);
    assert_eq!(counted(&manager, "force_delete_pod_errors_total", "unscheduled"), 1);
    let logged = world.logged("Failed to delete unscheduled terminating pod");
    assert_eq!(logged.len(), 1);
    assert!(logged[0].contains("failed to patch status") && logged[0].contains("for pod"), "{logged:?}");
    world.sleep_until(21 * SEC).await;
    assert_eq!(world.lines()[1..], ["patch pods/status a", "delete pods a"]);
    assert_eq!(counted(&manager, "force_delete_pods_total", "unscheduled"), 2);
    assert_eq!(counted(&manager, "force_delete_pod_errors_total", "unscheduled"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_period_counts_from_the_end_of_a_pass() {
    let world = World::new();
    world.add_pod_with("a", "", "Failed", terminating(0));
    world.fail_requests(|line, _| line.starts_with("delete").then_some(Interception::Delay(5 * SEC)));
    let _manager = world.start().await;
    world.sleep_until(10 * SEC).await;
    world.add_pod_with("b", "", "Failed", terminating(0));
    world.sleep_until(60 * SEC).await;
    assert_eq!(world.call_times("delete pods b")[0].as_secs(), 25);
}

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_030_pods_that_only_finalizers_keep_need_no_request() {
    let world = World::new();
    world.add_node_with("n1", "Unknown", out_of_service("NoExecute"));
    world.add_pod_with("a", "n1", "Failed", held(0));
    world.add_pod_with("b", "", "Succeeded", held(0));
    world.add_pod_with("c", "gone", "Failed", held(0));
    // These two are still running: they are marked once.
    world.add_pod_with("d", "n1", "Running", held(0));
    world.add_pod_with("e", "", "Pending", held(0));
    // This one is requested once.
    world.add_pod_with("f", "n1", "Failed", held(30));
    let manager = world.start_with(1, FAST).await;
    world.sleep_until(3600 * SEC).await;
    let mut lines = world.lines();
    lines.sort();
    assert_eq!(lines, ["delete pods f", "get nodes n1", "patch pods/status d", "patch pods/status e"]);
    assert_eq!(world.pod_names().len(), 6);
    assert_eq!(counted(&manager, "force_delete_pods_total", "terminated"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_deletion_stays_on_an_out_of_service_node() {
    let world = World::new();
    world.add_node_with("n1", "Unknown", out_of_service("NoExecute"));
    world.add_pod_with("a", "n1", "Running", finalizer());
    let _manager = world.start().await;
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_deletion_hangs_does_not_delay_the_pods_of_other_nodes() {
    let world = World::new();
    for node in ["n1", "n2"] {
        world.add_node_with(node, "Unknown", out_of_service("NoExecute"));
        world.add_pod_with(&format!("on-{node}"), node, "Failed", terminating(0));
    }
    world.fail_requests(|line, _| (line == "delete pods on-n1").then_some(Interception::Delay(30 * SEC)));
    let _manager = world.start().await;
    pass(25 * SEC).await;
    assert_eq!(world.pod_names(), ["on-n1"]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_ready_again_during_the_pass_stay() {
    let world = World::new();
    world.add_node_with("n1", "Unknown", out_of_service("NoExecute"));
    (0..100).for_each(|it| drop(world.add_pod_with(&format!("p{it:03}"), "n1", "Failed", terminating(30))));
    let (cluster, mut deletes) = (world.cluster.clone(), 0);
    world.fail_requests(move |line, _| {
        if !line.starts_with("delete") {
            return None;
        }
        deletes += 1;
        if deletes == 5 {
            cluster.update("nodes", "", "n1", |it| it["status"]["conditions"][0]["status"] = json!("True"));
        }
        Some(Interception::Delay(50 * MS))
    });
    let _manager = world.start().await;
    world.sleep_until(3600 * SEC).await;
    let left = world.pod_names().len();
    assert!((60..100).contains(&left), "only requests in flight were completed: {left} are left");
}

#[tokio::test(start_paused = true)]
async fn many_terminated_pods_do_not_delay_terminating_ones() {
    let world = World::new();
    world.add_node("n1");
    (0..2000).for_each(|it| drop(world.add_pod(&format!("t{it:04}"), "n1", "Failed")));
    let _manager = world.start_with(100, SLOW).await;
    world.sleep_until(5 * SEC).await;
    world.add_pod_with("a", "", "Running", terminating(0));
    world.sleep_until(22 * SEC).await;
    assert!(world.pod("a").is_none());
    assert!(world.pod_names().len() > 1000);
}
