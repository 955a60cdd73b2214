use api::DaemonSet;
use serde_json::json;

use super::*;
use crate::{
    rules::rollout::budget,
    testing::{Rows, rolling, set},
};

/// The plan as text: `+n1` creates a pod on n1, `-n1-0 Failed` deletes it.
fn planned(set: &DaemonSet, rows: &[&str]) -> Vec<String> {
    let rows = Rows::new(rows);
    let snapshot = rows.snapshot(set);
    let Plan { create, delete, .. } = plan(&snapshot);
    let created = create.iter().map(|it| format!("+{}", it.node.meta.name));
    created.chain(delete.iter().map(|(pod, cause)| format!("-{} {cause:?}", pod.meta.name))).collect()
}

fn check(set: &DaemonSet, table: &[(&str, &[&str])]) {
    for (row, want) in table {
        assert_eq!(planned(set, &[row]), *want, "{row}");
    }
}

#[test]
fn each_node_gets_one_pod_and_others_are_deleted() {
    check(
        &set(json!({})),
        &[
            ("n1:", &["+n1"]),
            ("n1: new ready", &[]),
            ("n1: new pending unbound", &[]),
            ("n1 keep:", &[]),
            ("n1 keep: new ready", &[]),
            ("n1 no:", &[]),
            ("n1 no: new ready / new running deleting", &["-n1-0 Misplaced"]),
            ("n1: new ready / new ready / new ready", &["-n1-1 Surplus", "-n1-2 Surplus"]),
            ("n1 keep: new ready / new ready", &["-n1-1 Surplus"]),
            ("n1: new succeeded", &["-n1-0 Succeeded"]),
            ("n1 no: new succeeded", &["-n1-0 Misplaced"]),
        ],
    );
}

#[test]
fn acceptance_ds_018_a_bound_pod_is_kept_also_if_it_is_younger() {
    check(&set(json!({})), &[("n1: new pending unbound age:50 / new running age:9", &["-n1-0 Surplus"])]);
}

#[test]
fn acceptance_ds_019_missing_pods_are_created_and_younger_ones_are_surplus() {
    let rows = ["n1:", "n2: new ready", "n3: new ready / new ready", "n4: new ready / new ready / new ready", "n5:"];
    let want = ["+n1", "+n5", "-n3-1 Surplus", "-n4-1 Surplus", "-n4-2 Surplus"];
    assert_eq!(planned(&set(json!({})), &rows), want);
}

#[test]
fn acceptance_ds_022_a_failed_pod_and_the_surplus_are_deleted() {
    let want = ["-n1-0 Failed", "-n1-2 Surplus", "-n1-3 Surplus"];
    check(&set(json!({})), &[("n1: new failed / new ready / new ready / new ready", &want)]);
}

#[test]
fn a_failed_pod_waits_for_its_delay_and_only_one_is_replaced_at_once() {
    check(
        &set(json!({})),
        &[
            ("n1: new failed", &["-n1-0 Failed"]),
            ("n1 backoff: new failed", &[]),
            ("n1: new failed / new failed", &["-n1-0 Failed"]),
            ("n1 no backoff: new failed", &["-n1-0 Misplaced"]),
        ],
    );
    let (set, rows) = (set(json!({})), Rows::new(&["n1 backoff: new failed"]));
    assert_eq!(plan(&rows.snapshot(&set)).check_after, Some(Duration::from_secs(7)));
}

#[test]
fn acceptance_ds_026_027_a_terminating_pod_prevents_a_creation_unless_it_has_ended() {
    check(
        &set(json!({})),
        &[
            ("n1: new running deleting", &[]),
            ("n1: new failed deleting", &["+n1"]),
            ("n1: new succeeded deleting", &["+n1"]),
        ],
    );
}

#[test]
fn acceptance_ds_017_pods_that_wait_for_a_node_that_is_gone_are_deleted() {
    let rows = ["n0 nowhere: new pending unbound", "n1: new ready", "n2 nowhere: new running / new pending unbound"];
    let want = ["-n0-0 Misplaced", "-n2-1 Misplaced"];
    assert_eq!(planned(&set(json!({})), &rows), want);
    check(&set(json!({})), &[("n1 nowhere: new pending unbound deleting", &[])]);
}

#[test]
fn acceptance_ds_028_a_sync_creates_and_deletes_at_most_250() {
    let names: Vec<String> = (0..300).map(|it| format!("a{it:03}:")).collect();
    let surplus: Vec<String> = (0..300).map(|it| format!("b{it:03} no: new ready")).collect();
    let rows = Rows::new(&names.iter().chain(&surplus).map(String::as_str).collect::<Vec<_>>());
    let set = set(json!({}));
    let snapshot = rows.snapshot(&set);
    let Plan { create, delete, .. } = plan(&snapshot);
    assert_eq!((create.len(), delete.len()), (250, 250));
    assert_eq!((&*create[249].node.meta.name, &*delete[0].0.meta.name), ("a249", "b000-0"));
}

#[test]
fn acceptance_ds_050_051_053_with_surge_a_node_keeps_an_old_and_a_new_pod() {
    check(
        &rolling(json!(0), json!(1)),
        &[
            ("n1: old ready / new running", &[]),
            ("n1: old running / new running", &["-n1-0 Surplus"]),
            ("n1: old ready / new ready", &["-n1-0 Surplus"]),
            ("n1: old ready / old ready / new running", &["-n1-1 Surplus"]),
            ("n1: new ready / new ready", &["-n1-1 Surplus"]),
            ("n1: new running deleting", &["+n1"]),
            ("n1 keep: new running deleting", &[]),
            ("n1: new failed", &["+n1", "-n1-0 Failed"]),
            ("n1 backoff: new failed", &[]),
            ("n1 backoff: old failed", &["+n1"]),
        ],
    );
}

#[test]
fn acceptance_ds_054_a_node_that_lost_its_old_pod_gets_another_one_although_the_surge_is_used_up() {
    let rows = ["n1: old ready deleting", "n2: old ready / new running", "n3: old ready"];
    assert_eq!(planned(&rolling(json!(0), json!(1)), &rows), ["+n1"]);
}

#[test]
fn a_creation_knows_the_pods_on_its_node() {
    let set = set(json!({}));
    for (row, known) in [("n1:", 0), ("n1: new failed deleting", 1)] {
        let rows = Rows::new(&[row]);
        assert_eq!(plan(&rows.snapshot(&set)).create[0].known.len(), known, "{row}");
    }
}

#[test]
fn outdated_pods_wait_until_each_node_has_its_pod() {
    let set = set(json!({}));
    assert_eq!(planned(&set, &["n1: old ready", "n2:"]), ["+n2"]);
    assert_eq!(planned(&set, &["n1: old ready", "n2: new ready"]), ["-n1-0 Update"]);
}

#[test]
fn acceptance_ds_045_on_delete_replaces_nothing() {
    let on_delete = set(json!({ "updateStrategy": { "type": "OnDelete" } }));
    check(&on_delete, &[("n1: old ready", &[]), ("n1: old running", &[]), ("n1:", &["+n1"])]);
}

#[test]
fn a_pod_that_cannot_be_bound_is_deleted() {
    for set in [set(json!({})), rolling(json!(0), json!(1))] {
        check(
            &set,
            &[
                ("n1 keep: new pending unbound", &["-n1-0 Misplaced"]),
                ("n1 keep: old ready / new pending unbound", &["-n1-1 Misplaced"]),
                ("n1 keep: new pending", &[]),
                ("n1: new pending unbound", &[]),
            ],
        );
    }
}

#[test]
fn a_deletion_is_repeated_only_while_it_is_right() {
    let (plain, surge) = (set(json!({})), rolling(json!(0), json!(1)));
    let on_delete = set(json!({ "updateStrategy": { "type": "OnDelete" } }));
    for (set, rows, want) in [
        (&plain, &["n1 no: new ready"][..], true),
        (&plain, &["n1 keep: new ready"], false),
        (&plain, &["n1 keep: new pending unbound"], true),
        (&plain, &["n1: new ready"], false),
        (&plain, &["n1: new failed"], true),
        (&plain, &["n1: new succeeded"], true),
        (&plain, &["n1: new ready / new ready"], true),
        (&plain, &["n1: new failed / new ready"], false),
        (&plain, &["n1: new ready deleting / new ready"], false),
        (&plain, &["n1: old ready"], true),
        (&plain, &["n1: old ready", "n2: new running"], false),
        (&plain, &["n1: old running", "n2: new running"], true),
        (&on_delete, &["n1: old ready"], false),
        (&surge, &["n1: new ready / old ready"], true),
        (&surge, &["n1: new running / old ready"], false),
        (&surge, &["n1: old ready"], false),
        (&surge, &["n1 no: old ready"], true),
    ] {
        let rows = Rows::new(rows);
        let snapshot = rows.snapshot(set);
        let last = snapshot.nodes[0].all.last().unwrap();
        assert_eq!(
            may_repeat_deletion(&snapshot, last, &mut budget(&snapshot, |_| false)),
            want,
            "{:?}",
            last.meta.name
        );
    }
}

#[test]
fn no_more_deletions_are_repeated_than_pods_may_be_unavailable() {
    let rows = Rows::new(&["n1: old ready", "n2: old running", "n3: old ready", "n4: old ready"]);
    for (max_unavailable, sent, want) in [
        (1, None, [false, true, false, false]),
        (2, None, [true, true, false, false]),
        (2, Some("n4-0"), [false, true, false, false]),
        (3, Some("n4-0"), [true, true, false, false]),
        // It is not available anyway.
        (2, Some("n2-0"), [true, true, false, false]),
    ] {
        let set = rolling(json!(max_unavailable), json!(0));
        let snapshot = rows.snapshot(&set);
        let mut budget = budget(&snapshot, |it| sent == Some(&*it.meta.name));
        let repeated: Vec<bool> =
            snapshot.nodes.iter().map(|it| may_repeat_deletion(&snapshot, &it.all[0], &mut budget)).collect();
        assert_eq!(repeated, want, "{max_unavailable} {sent:?}");
    }
}
