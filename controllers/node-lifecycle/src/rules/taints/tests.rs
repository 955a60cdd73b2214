use serde_json::json;

use super::*;
use crate::testing::{NOW, at, node_with};

/// A taint as `key:effect`, where the prefix of the keys of this controller is omitted.
fn shown(taint: &Taint) -> String {
    let key = taint.key.strip_prefix("node.kubernetes.io/").unwrap_or(&taint.key);
    format!("{key}:{}", taint.effect.as_str())
}

/// A node with these conditions and these taints, written as [`shown`] does.
fn tainted(conditions: &[&str], taints: &[&str]) -> Node {
    spec(conditions, json!({ "taints": taints.iter().map(|it| parsed(it)).collect::<Vec<Value>>() }))
}

fn spec(conditions: &[&str], spec: Value) -> Node {
    node_with(conditions, json!({}), spec)
}

fn parsed(text: &str) -> Value {
    let (key, effect) = text.split_once(':').unwrap();
    let prefix = if key.contains('.') { "" } else { "node.kubernetes.io/" };
    json!({ "key": format!("{prefix}{key}"), "effect": effect, "timeAdded": at(-100) })
}

/// The taints after the edit; `None` if they stay.
fn after(node: &Node, no_execute: NoExecute) -> Option<Vec<String>> {
    let edit = edit(node, no_execute, NOW)?;
    assert_eq!(edit.labels, []);
    Some(edit.taints.unwrap().iter().map(shown).collect())
}

struct Case {
    name: &'static str,
    conditions: &'static [&'static str],
    taints: &'static [&'static str],
    no_execute: NoExecute,
    /// `None` if nothing is written.
    want: Option<&'static [&'static str]>,
}

const BASE: Case = Case { name: "", conditions: &["Ready=True"], taints: &[], no_execute: NoExecute::Keep, want: None };

fn check(table: &[Case]) {
    for Case { name, conditions, taints, no_execute, want } in table {
        let node = tainted(conditions, taints);
        let after = after(&node, *no_execute);
        let want = want.map(|it| it.iter().map(|it| (*it).to_owned()).collect());
        assert_eq!(after, want, "{name}");
    }
}

#[test]
fn acceptance_node_024_no_schedule_taints_follow_the_conditions() {
    check(&[
        Case { name: "a healthy node", ..BASE },
        Case { name: "no condition", conditions: &[], ..BASE },
        Case { name: "not ready", conditions: &["Ready=False"], want: Some(&["not-ready:NoSchedule"]), ..BASE },
        Case { name: "unreachable", conditions: &["Ready=Unknown"], want: Some(&["unreachable:NoSchedule"]), ..BASE },
        Case { name: "a status of a newer server", conditions: &["Ready=Perhaps"], ..BASE },
        Case {
            name: "all pressures",
            conditions: &["Ready=True", "MemoryPressure=True", "DiskPressure=True", "PIDPressure=True"],
            want: Some(&["memory-pressure:NoSchedule", "disk-pressure:NoSchedule", "pid-pressure:NoSchedule"]),
            ..BASE
        },
        Case {
            name: "no network",
            conditions: &["Ready=True", "NetworkUnavailable=True"],
            want: Some(&["network-unavailable:NoSchedule"]),
            ..BASE
        },
        Case {
            name: "the pressure is over",
            conditions: &["Ready=True", "MemoryPressure=False"],
            taints: &["memory-pressure:NoSchedule"],
            want: Some(&[]),
            ..BASE
        },
        Case {
            name: "the pressure is Unknown",
            conditions: &["Ready=Unknown", "MemoryPressure=Unknown"],
            taints: &["memory-pressure:NoSchedule", "unreachable:NoSchedule"],
            want: Some(&["unreachable:NoSchedule"]),
            ..BASE
        },
        Case { name: "Unknown adds none", conditions: &["Ready=True", "DiskPressure=Unknown"], ..BASE },
        Case { name: "the condition is gone", taints: &["pid-pressure:NoSchedule"], want: Some(&[]), ..BASE },
        Case {
            name: "from not ready to unreachable",
            conditions: &["Ready=Unknown"],
            taints: &["not-ready:NoSchedule"],
            want: Some(&["unreachable:NoSchedule"]),
            ..BASE
        },
        Case {
            name: "nothing changes",
            conditions: &["Ready=False", "DiskPressure=True"],
            taints: &["disk-pressure:NoSchedule", "not-ready:NoSchedule"],
            ..BASE
        },
        Case {
            name: "the taint of new nodes is removed when they are ready",
            taints: &["not-ready:NoSchedule"],
            want: Some(&[]),
            ..BASE
        },
    ]);
}

#[test]
fn acceptance_node_025_a_cordoned_node_is_tainted() {
    let cordoned = |taints: Value| spec(&["Ready=True"], json!({ "unschedulable": true, "taints": taints }));
    assert_eq!(after(&cordoned(json!([])), NoExecute::Keep).unwrap(), ["unschedulable:NoSchedule"]);
    assert_eq!(after(&cordoned(json!([parsed("unschedulable:NoSchedule")])), NoExecute::Keep), None);
    let uncordoned = tainted(&["Ready=True"], &["unschedulable:NoSchedule"]);
    assert_eq!(after(&uncordoned, NoExecute::Keep), Some(vec![]));
}

#[test]
fn acceptance_node_026_taints_of_users_are_kept_with_their_values_and_order() {
    check(&[
        Case { name: "another key", taints: &["example.com/foo:NoSchedule"], no_execute: NoExecute::Remove, ..BASE },
        Case {
            name: "our key with another effect",
            taints: &["disk-pressure:NoExecute", "not-ready:PreferNoSchedule"],
            no_execute: NoExecute::Remove,
            ..BASE
        },
        Case {
            name: "taints of other controllers",
            taints: &["out-of-service:NoExecute", "node.cloudprovider.kubernetes.io/uninitialized:NoSchedule"],
            no_execute: NoExecute::Remove,
            ..BASE
        },
        Case {
            name: "between ours",
            conditions: &["Ready=Unknown"],
            taints: &["example.com/a:NoSchedule", "not-ready:NoSchedule", "example.com/b:NoExecute"],
            no_execute: NoExecute::Set,
            want: Some(&[
                "example.com/a:NoSchedule",
                "example.com/b:NoExecute",
                "unreachable:NoSchedule",
                "unreachable:NoExecute",
            ]),
        },
    ]);
    let foo = json!({ "key": "foo", "value": "bar", "effect": "NoSchedule" });
    let node = spec(&["Ready=False"], json!({ "taints": [foo] }));
    let body = patch(&node, &edit(&node, NoExecute::Keep, NOW).unwrap());
    let added = json!({ "key": NOT_READY, "effect": "NoSchedule", "timeAdded": at(0) });
    assert_eq!(body["spec"]["taints"], json!([foo, added]));
}

#[test]
fn no_execute_taints_are_kept_set_or_removed() {
    check(&[
        Case {
            name: "set for Unknown",
            conditions: &["Ready=Unknown"],
            taints: &["unreachable:NoSchedule"],
            no_execute: NoExecute::Set,
            want: Some(&["unreachable:NoSchedule", "unreachable:NoExecute"]),
        },
        Case {
            name: "set for False",
            conditions: &["Ready=False"],
            taints: &["not-ready:NoSchedule"],
            no_execute: NoExecute::Set,
            want: Some(&["not-ready:NoSchedule", "not-ready:NoExecute"]),
        },
        Case {
            name: "the other one is replaced",
            conditions: &["Ready=False"],
            taints: &["unreachable:NoExecute", "not-ready:NoSchedule"],
            no_execute: NoExecute::Set,
            want: Some(&["not-ready:NoSchedule", "not-ready:NoExecute"]),
        },
        Case {
            name: "both become one",
            conditions: &["Ready=Unknown"],
            taints: &["not-ready:NoExecute", "unreachable:NoExecute", "unreachable:NoSchedule"],
            no_execute: NoExecute::Set,
            want: Some(&["unreachable:NoExecute", "unreachable:NoSchedule"]),
        },
        Case {
            name: "it is set already",
            conditions: &["Ready=Unknown"],
            taints: &["unreachable:NoExecute", "unreachable:NoSchedule"],
            no_execute: NoExecute::Set,
            ..BASE
        },
        Case {
            name: "both are removed",
            taints: &["not-ready:NoExecute", "unreachable:NoExecute"],
            no_execute: NoExecute::Remove,
            want: Some(&[]),
            ..BASE
        },
        Case {
            name: "removed in full disruption, while the NoSchedule taint stays",
            conditions: &["Ready=Unknown"],
            taints: &["unreachable:NoSchedule", "unreachable:NoExecute"],
            no_execute: NoExecute::Remove,
            want: Some(&["unreachable:NoSchedule"]),
        },
        Case {
            name: "kept while it must wait",
            conditions: &["Ready=Unknown"],
            taints: &["not-ready:NoExecute", "unreachable:NoSchedule"],
            ..BASE
        },
        Case {
            name: "Set without a status of Ready removes both",
            conditions: &[],
            no_execute: NoExecute::Set,
            ..BASE
        },
    ]);
}

#[test]
fn taint_that_stays_keeps_its_time_and_a_new_one_gets_the_present_time() {
    let node = tainted(&["Ready=Unknown"], &["unreachable:NoSchedule"]);
    let taints = edit(&node, NoExecute::Set, NOW).unwrap().taints.unwrap();
    let times: Vec<Option<i64>> = taints.iter().map(|it| it.added).collect();
    assert_eq!(times, [Some(NOW - 100), Some(NOW)]);
    assert!(taints.iter().all(|it| it.value.is_empty()));
}

fn labels_after(labels: Value) -> Vec<(&'static str, String)> {
    let edit = edit(&node_with(&["Ready=True"], labels, json!({})), NoExecute::Keep, NOW).unwrap_or_default();
    assert_eq!(edit.taints, None);
    edit.labels.into_iter().map(|(key, value)| (key, value.to_string())).collect()
}

#[test]
fn acceptance_node_028_the_older_labels_get_the_values_of_the_present_ones() {
    let os = ("beta.kubernetes.io/os", "linux".to_owned());
    let arch = ("beta.kubernetes.io/arch", "amd64".to_owned());
    let (linux, amd64) = ("kubernetes.io/os", "kubernetes.io/arch");
    assert_eq!(labels_after(json!({})), []);
    assert_eq!(labels_after(json!({ "topology.kubernetes.io/region": "r" })), []);
    assert_eq!(labels_after(json!({ linux: "linux", amd64: "amd64" })), [os.clone(), arch.clone()]);
    let different = json!({ linux: "linux", amd64: "amd64", os.0: "windows", arch.0: "arm" });
    assert_eq!(labels_after(different), [os.clone(), arch.clone()]);
    assert_eq!(labels_after(json!({ linux: "linux", os.0: "linux", amd64: "amd64" })), [arch]);
    assert_eq!(labels_after(json!({ os.0: "windows" })), [], "without the present label nothing is known");
    assert_eq!(labels_after(json!({ linux: "", os.0: "linux" })), [("beta.kubernetes.io/os", String::new())]);
}

#[test]
fn patch_has_the_read_version_and_only_what_changes() {
    let cordoned = json!({ "unschedulable": true });
    let node = node_with(&["Ready=True"], json!({ "kubernetes.io/os": "linux" }), cordoned);
    let both = edit(&node, NoExecute::Keep, NOW).unwrap();
    let taint = json!({ "key": UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": at(0) });
    let metadata = json!({ "resourceVersion": "7", "labels": { "beta.kubernetes.io/os": "linux" } });
    assert_eq!(patch(&node, &both), json!({ "metadata": metadata, "spec": { "taints": [taint] } }));
    let only_labels = Edit { taints: None, ..both.clone() };
    assert_eq!(patch(&node, &only_labels), json!({ "metadata": metadata }));
    let only_taints = Edit { labels: Vec::new(), ..both };
    let metadata = json!({ "resourceVersion": "7" });
    assert_eq!(patch(&node, &only_taints), json!({ "metadata": metadata, "spec": { "taints": [taint] } }));
}

#[test]
fn both_no_execute_taints_are_ours() {
    for (taint, is_ours) in [
        ("not-ready:NoExecute", true),
        ("unreachable:NoExecute", true),
        ("not-ready:NoSchedule", false),
        ("out-of-service:NoExecute", false),
        ("example.com/unreachable:NoExecute", false),
    ] {
        assert_eq!(has_no_execute(&tainted(&["Ready=True"], &[taint])), is_ours, "{taint}");
    }
}
