use super::*;
use crate::testing::{node, pod_names, pods};

/// The plan as text, with these words for each node and pod.
fn planned(nodes: &[&str], all: &[&str], threshold: i32) -> String {
    let nodes: Vec<_> = nodes.iter().map(|it| Arc::new(node(it))).collect();
    let Plan { out_of_service, unscheduled, terminated } = plan(pods(all), &nodes, threshold);
    let by_node = out_of_service.iter().map(|(node, pods)| format!("{node}: {}", pod_names(pods).join(" ")));
    let of =
        |what: &str, pods: &[Arc<Pod>]| (!pods.is_empty()).then(|| format!("{what}: {}", pod_names(pods).join(" ")));
    let others = [of("unscheduled", &unscheduled), of("terminated", &terminated)].into_iter().flatten();
    by_node.chain(others).collect::<Vec<_>>().join(", ")
}

fn check(threshold: i32, all: &[&str], want: &str) {
    assert_eq!(planned(&[], all, threshold), want, "{all:?}");
}

#[test]
fn acceptance_podgc_002_running_pods_do_not_count_as_terminated() {
    check(1, &["a Running created=1", "b Succeeded created=2", "c Failed created=3"], "terminated: b");
}

#[test]
fn acceptance_podgc_003_an_evicted_pod_goes_before_older_pods() {
    check(1, &["a Failed created=1", "b Succeeded created=2", "c Failed Evicted created=3"], "terminated: c a");
}

#[test]
fn acceptance_podgc_004_only_the_evicted_pod_goes() {
    check(1, &["a Running created=1", "b Succeeded created=2", "c Failed Evicted created=3"], "terminated: c");
}

#[test]
fn acceptance_podgc_006_fewer_pods_than_the_threshold_stay() {
    check(5, &["a Failed", "b Succeeded"], "");
    check(2, &["a Failed", "b Succeeded"], "");
}

#[test]
fn only_the_two_terminal_phases_count() {
    check(1, &["a Failed", "b NoPhase", "c Unknown", "d Pending", "e Newer"], "");
}

#[test]
fn acceptance_podgc_019_a_node_without_the_taint_keeps_its_pods() {
    assert_eq!(planned(&["n1 NotReady", "n2"], &["a Running deleting on n1", "b Failed deleting on n2"], 9), "");
}

#[test]
fn acceptance_podgc_020_a_ready_node_keeps_its_pods() {
    assert_eq!(planned(&["n1 Ready tainted=NoExecute"], &["a Running deleting on n1"], 9), "");
}

#[test]
fn acceptance_podgc_021_the_taint_counts_with_every_effect_on_a_node_that_is_not_ready() {
    for node in ["NotReady tainted=NoExecute", "Unknown tainted=NoSchedule", "tainted=PreferNoSchedule=x"] {
        let all = ["b Running deleting on n1", "a Pending deleting on n1"];
        assert_eq!(planned(&[&format!("n1 {node}")], &all, 9), "n1: a b", "{node}");
    }
}

#[test]
fn acceptance_podgc_022_pods_that_are_not_terminating_stay_on_an_out_of_service_node() {
    for phase in ["Pending", "Running", "Succeeded", "Failed", "Unknown"] {
        assert_eq!(planned(&["n1 NotReady tainted=NoExecute"], &[&format!("a {phase} on n1")], 9), "", "{phase}");
    }
}

#[test]
fn pods_of_other_nodes_and_of_missing_nodes_stay() {
    let nodes = ["n1 NotReady tainted=NoExecute", "n2 NotReady"];
    let all = ["a Running deleting on n2", "b Running deleting on missing", "c Running on missing"];
    assert_eq!(planned(&nodes, &all, 9), "");
}

#[test]
fn acceptance_podgc_026_only_unscheduled_terminating_pods_are_taken_without_a_node() {
    let all = ["a Running deleting on n1", "b Pending", "c Running", "d Pending deleting", "e Failed deleting owned"];
    assert_eq!(planned(&["n1"], &all, 9), "unscheduled: e d");
}

#[test]
fn a_pod_is_deleted_for_one_reason_and_does_not_count_for_another() {
    let all = ["a Failed deleting", "b Failed deleting on n1", "c Failed created=1", "d Failed created=2"];
    assert_eq!(planned(&["n1 NotReady tainted=NoExecute"], &all, 1), "n1: b, unscheduled: a, terminated: c");
    assert_eq!(planned(&["n1 NotReady tainted=NoExecute"], &all, 2), "n1: b, unscheduled: a");
}

#[test]
fn acceptance_podgc_030_held_pods_need_nothing_and_do_not_count() {
    let held = "Failed deleting grace=0 held";
    check(1, &[&format!("a {held} on n1"), &format!("b {held}"), "c Failed"], "");
    let nodes = ["n1 NotReady tainted=NoExecute"];
    assert_eq!(planned(&nodes, &[&format!("a {held} on n1")], 1), "");
    let running = ["a Running deleting grace=0 held on n1", "b Pending deleting grace=0 held"];
    assert_eq!(planned(&nodes, &running, 1), "n1: a, unscheduled: b", "they must still be marked as failed");
}

#[test]
fn acceptance_podgc_031_held_pods_do_not_count_towards_the_default_threshold() {
    let mut all = vec!["a Succeeded"; 12_400];
    all.extend(vec!["b Succeeded deleting grace=0 held"; 200]);
    check(12_500, &all, "");
    all.extend(vec!["c Succeeded created=9"; 101]);
    check(12_500, &all, "terminated: a");
}
