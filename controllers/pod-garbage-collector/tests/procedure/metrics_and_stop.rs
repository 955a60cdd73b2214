//! The metrics, and the end of the manager.

use harness::pass;
use test_cluster::Interception;

use crate::world::{FAST, MS, SEC, SLOW, World, counted, out_of_service, terminating};

#[tokio::test(start_paused = true)]
async fn acceptance_podgc_028_each_attempt_is_counted_with_reason_and_namespace() {
    let world = World::new();
    world.add_node_with("n1", "Unknown", out_of_service("NoExecute"));
    world.add_node("n2");
    world.add_pod_with("a", "n1", "Running", terminating(30));
    world.add_pod_with("b", "", "Running", terminating(0));
    world.add_pod("c", "gone", "Running");
    world.add_pod("d", "n2", "Failed");
    world.add_pod("e", "n2", "Failed");
    let manager = world.start_with(1, FAST).await;
    world.sleep_until(100 * SEC).await;
    let lines = manager.metric_lines("pod_gc_collector_force_delete_pods_total");
    let line =
        |reason: &str| format!("pod_gc_collector_force_delete_pods_total{{namespace=\"n\",reason=\"{reason}\"}} 1");
    assert_eq!(lines, ["orphaned", "out-of-service", "terminated", "unscheduled"].map(line));
    assert_eq!(manager.metric_lines("pod_gc_collector_force_delete_pod_errors_total"), [""; 0]);
    assert!(manager.metric("workqueue_adds_total{name=\"orphaned_pods_nodes\"}") > 0);
}

#[tokio::test(start_paused = true)]
async fn a_failed_delete_counts_as_an_error() {
    let world = World::new();
    world.add_pod("c", "gone", "Failed");
    world.fail_requests(|line, _| line.starts_with("delete").then(|| Interception::status(500, "InternalError", "no")));
    let manager = world.start().await;
    world.sleep_until(41 * SEC).await;
    assert_eq!(counted(&manager, "force_delete_pods_total", "orphaned"), 1);
    assert_eq!(counted(&manager, "force_delete_pod_errors_total", "orphaned"), 1);
    assert_eq!(world.logged("Failed to delete orphaned pod").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_passes_between_two_calls_and_reports_no_failures() {
    let world = World::new();
    world.add_node("n1");
    (0..500).for_each(|it| drop(world.add_pod(&format!("t{it:03}"), "n1", "Failed")));
    (0..500).for_each(|it| drop(world.add_pod(&format!("o{it:03}"), "gone", "Running")));
    let manager = world.start_with(1, SLOW).await;
    // The read of its node waits for the rate limiter at the stop.
    world.sleep_until(4900 * MS).await;
    world.add_pod("late", "gone-too", "Running");
    world.sleep_until(45 * SEC).await;
    let begun = || world.logged("PodGC is force deleting Pod").len();
    let (before, calls, pods) = (world.clock.now(), world.lines().len(), begun());
    manager.stop_and_wait().await;
    assert_eq!(begun(), pods, "no further pod is begun");
    assert!(world.clock.now() - before < 100 * MS);
    assert!(world.lines().len() - calls <= 1);
    pass(60 * SEC).await;
    assert_eq!(world.logged("ERROR"), [""; 0]);
    assert_eq!(world.call_count("get nodes"), 1);
}
