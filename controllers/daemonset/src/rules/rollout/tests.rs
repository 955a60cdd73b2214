use api::DaemonSet;
use serde_json::{Value, json};

use super::*;
use crate::testing::{Rows, rolling, set_with};

/// The rollout as text: `+n1` creates a pod on n1, `-n1-0` deletes that pod.
fn rolled(set: &DaemonSet, rows: &[&str]) -> Vec<String> {
    let rows = Rows::new(rows);
    let snapshot = rows.snapshot(set);
    let Rollout { create, delete, .. } = rollout(&snapshot);
    let created = create.iter().map(|it| format!("+{}", it.node.meta.name));
    created.chain(delete.iter().map(|it| format!("-{}", it.meta.name))).collect()
}

fn unavailable(count: u32) -> DaemonSet {
    rolling(json!(count), json!(0))
}

fn surge(count: u32) -> DaemonSet {
    rolling(json!(0), json!(count))
}

/// So many rows, numbered from this one.
fn rows(count: usize, from: usize, pods: &str) -> Vec<String> {
    (from..from + count).map(|it| format!("n{it:03}: {pods}")).collect()
}

fn texts(rows: &[String]) -> Vec<&str> {
    rows.iter().map(String::as_str).collect()
}

#[test]
fn acceptance_ds_037_available_pods_are_replaced_within_the_budget_in_the_order_of_names() {
    let five = ["n2: old ready", "n1: old ready", "n3: old ready", "n4: old ready", "n5: old ready"];
    assert_eq!(rolled(&unavailable(2), &five), ["-n1-0", "-n2-0"]);
    let later = ["n1: new ready", "n2: new running", "n3: old ready", "n4: old ready", "n5: old ready"];
    assert_eq!(rolled(&unavailable(2), &later), ["-n3-0"]);
}

#[test]
fn acceptance_ds_038_pods_that_never_become_ready_stop_the_rollout() {
    let rows = ["n1: new running", "n2: new running", "n3: old ready"];
    assert_eq!(rolled(&unavailable(2), &rows), [""; 0]);
    assert_eq!(rolled(&unavailable(3), &rows), ["-n3-0"]);
}

#[test]
fn what_uses_the_budget_of_a_node() {
    let uses = |row: &str| rolled(&unavailable(1), &[row, "z: old ready"]).is_empty();
    for row in
        ["n1:", "n1: old ready deleting", "n1: old ready / new ready", "n1: new running", "n1: new ready / new ready"]
    {
        assert!(uses(row), "{row}");
    }
    for row in ["n1: new ready", "n1 keep:", "n1 no: old ready deleting", "n1 nowhere: new running"] {
        assert!(!uses(row), "{row}");
    }
    assert!(uses("n1 keep: old ready deleting"), "it was not to be replaced");
}

#[test]
fn acceptance_ds_039_outdated_pods_that_are_not_available_are_replaced_at_once() {
    let all = rows(5, 0, "old running");
    assert_eq!(rolled(&unavailable(3), &texts(&all)), ["-n000-0", "-n001-0", "-n002-0", "-n003-0", "-n004-0"]);
}

#[test]
fn acceptance_ds_040_041_only_pods_that_are_not_available_are_replaced_when_they_use_the_budget() {
    let mut twenty = rows(10, 0, "old ready");
    twenty.extend(rows(10, 10, "old running"));
    let broken: Vec<String> = (10..20).map(|it| format!("-n{it:03}-0")).collect();
    for (limit, available) in [(1, &[][..]), (10, &[]), (11, &["-n000-0".to_owned()])] {
        assert_eq!(rolled(&unavailable(limit), &texts(&twenty)), [&broken, available].concat(), "{limit}");
    }
    let mut hundred = rows(88, 0, "new running");
    hundred.extend(rows(2, 88, "old running"));
    hundred.extend(rows(10, 90, "old ready"));
    assert_eq!(rolled(&unavailable(10), &texts(&hundred)), ["-n088-0", "-n089-0"]);
}

#[test]
fn acceptance_ds_042_percentages_are_rounded_up_and_two_zeros_mean_one() {
    let deleted =
        |limit: Value, nodes: usize| rolled(&rolling(limit, json!(0)), &texts(&rows(nodes, 0, "old ready"))).len();
    assert_eq!((deleted(json!("50%"), 3), deleted(json!("50%"), 2)), (2, 1));
    assert_eq!((deleted(json!(0), 3), deleted(json!("0%"), 3)), (1, 1));
    let kept = ["n1 keep: old ready", "n2 keep: old ready"];
    assert_eq!(rolled(&rolling(json!("30%"), json!(0)), &kept), [""; 0], "no node gets a new pod");
    assert_eq!(rolled(&rolling(json!(0), json!("10%")), &kept), [""; 0]);
}

#[test]
fn acceptance_ds_044_a_pod_is_available_after_min_ready_seconds() {
    let set = set_with(json!({ "minReadySeconds": 10 }), json!({}), json!({}));
    assert_eq!(rolled(&set, &["n1: new ready:9", "n2: old ready"]), [""; 0]);
    assert_eq!(rolled(&set, &["n1: new ready:10", "n2: old ready"]), ["-n2-0"]);
}

#[test]
fn acceptance_ds_047_the_number_of_the_template_shows_an_updated_pod() {
    let annotations = json!({ "deprecated.daemonset.template.generation": "3" });
    let set = set_with(json!({}), json!({ "annotations": annotations }), json!({}));
    assert_eq!(rolled(&set, &["n1: other ready template:3"]), [""; 0]);
    assert_eq!(rolled(&set, &["n1: other ready template:2"]), ["-n1-0"]);
}

#[test]
fn acceptance_ds_049_surge_creates_beside_old_pods_and_deletes_them_when_the_new_ones_are_available() {
    let five = rows(5, 0, "old ready");
    assert_eq!(rolled(&surge(2), &texts(&five)), ["+n000", "+n001"]);
    let mut next = rows(2, 0, "old ready / new ready");
    next.extend(rows(3, 2, "old ready"));
    assert_eq!(rolled(&surge(2), &texts(&next)), ["+n002", "+n003", "-n000-0", "-n001-0"]);
    let mut waiting = rows(2, 0, "old ready / new running");
    waiting.extend(rows(3, 2, "old ready"));
    assert_eq!(rolled(&surge(2), &texts(&waiting)), [""; 0]);
}

#[test]
fn acceptance_ds_052_nodes_whose_old_pod_is_not_available_do_not_use_the_surge() {
    let created = ["+n000", "+n001", "+n002", "+n003", "+n004"];
    assert_eq!(rolled(&surge(3), &texts(&rows(5, 0, "old running"))), created);
}

#[test]
fn a_node_that_lost_its_old_pod_does_not_use_the_surge() {
    let rows = ["n1: old ready deleting", "n2: old ready / new running", "n3: old ready"];
    assert_eq!(rolled(&surge(2), &rows), ["+n3"]);
    assert_eq!(rolled(&surge(1), &["n1 nowhere: old running", "n2: old ready"]), ["+n2"], "nor one that is gone");
}

#[test]
fn acceptance_ds_055_a_pod_leaves_a_node_that_takes_no_new_ones_when_enough_others_are_available() {
    assert_eq!(rolled(&surge(1), &["n1 keep: old ready", "n2: new ready"]), ["-n1-0"]);
    assert_eq!(rolled(&surge(1), &["n1 keep: old ready", "n2: new running"]), [""; 0]);
    assert_eq!(rolled(&surge(1), &["n1 keep: old running", "n2: new running"]), ["-n1-0"], "it is not available");
    assert_eq!(rolled(&rolling(json!(1), json!(0)), &["n1 keep: old ready", "n2: new ready"]), ["-n1-0"]);
}

#[test]
fn a_rollout_that_cannot_continue_names_the_pods_for_which_it_waits() {
    let waiting = |set: &DaemonSet, rows: &[&str]| {
        let rows = Rows::new(rows);
        let snapshot = rows.snapshot(set);
        let text = |it: AwaitedPod<'_>| format!("{} {:?}", it.pod.meta.name, it.cause);
        rollout(&snapshot).waiting.into_iter().map(text).collect::<Vec<_>>()
    };
    let one = unavailable(1);
    assert_eq!(waiting(&one, &["n1: new running", "n2: old ready"]), ["n1-0 NotReady"]);
    assert_eq!(waiting(&one, &["n1: old ready deleting", "n2: old ready"]), ["n1-0 Terminating"]);
    assert_eq!(waiting(&one, &["n1: new running", "n2: new ready"]), [""; 0], "nothing is left to do");
    assert_eq!(waiting(&one, &["n1: old ready deleting", "n2: new ready"]), ["n1-0 Terminating"], "the last one");
    assert_eq!(waiting(&unavailable(2), &["n1: new running", "n2: old ready"]), [""; 0], "it continues");
    let rows = ["n1: old ready / new running", "n2: old ready"];
    assert_eq!(waiting(&surge(1), &rows), ["n1-1 NotReady"]);
}

#[test]
fn a_node_that_is_unreachable_for_long_does_not_count_if_the_annotation_is_set() {
    let set = unavailable(1);
    let rolled = |after: Option<i64>, row: &str| {
        let rows = Rows::new(&[row, "n2: old ready"]);
        let mut snapshot = rows.snapshot(&set);
        snapshot.ignore_unreachable_after = after;
        let Rollout { delete, check_after, .. } = rollout(&snapshot);
        (delete.len(), check_after.map(|it| it.as_secs()))
    };
    let row = "n1 unreachable:300: new running";
    assert_eq!(rolled(None, row), (0, None));
    assert_eq!(rolled(Some(300), row), (1, None));
    assert_eq!(rolled(Some(301), row), (0, Some(1)));
    assert_eq!(rolled(Some(0), "n1: new running"), (0, None), "it is reachable");
    assert_eq!(rolled(Some(300), "n1 unreachable:300: new running deleting"), (1, None));
}
