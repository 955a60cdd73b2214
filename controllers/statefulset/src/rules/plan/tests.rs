use api::StatefulSet;
use serde_json::{Value, json};

use super::*;
use crate::{
    rules::snapshot::Gates,
    testing::{by_pod, claim, one_claim, pod, pods, set, set_with, snapshot_of, snapshot_with},
};

const OFF: Gates = Gates { max_unavailable: false, recreate: false };
const BUDGET: Gates = Gates { max_unavailable: true, recreate: false };

fn show(plan: &Plan<'_>) -> String {
    let action = |it: &Action<'_>| match it {
        Action::Create { ordinal, revision: PodRevision::Current } => format!("create {ordinal} old"),
        Action::Create { ordinal, revision: PodRevision::Update } => format!("create {ordinal}"),
        Action::Delete { pod, cause } => format!("delete {} {cause:?}", &pod.meta.name[4..]),
        Action::CompleteClaims { ordinal, .. } => format!("complete {ordinal}"),
        Action::Repair { ordinal, .. } => format!("repair {ordinal}"),
        Action::CorrectClaims { ordinal, .. } => format!("correct {ordinal}"),
    };
    let stages = plan.stages.iter().filter(|it| !it.is_empty());
    let stages: Vec<String> = stages.map(|it| it.iter().map(action).collect::<Vec<_>>().join(", ")).collect();
    stages.join("; ")
}

fn decided(set: &StatefulSet, list: &[&str], gates: Gates) -> String {
    let pods = pods(list);
    show(&plan(&snapshot_of(set, &pods, gates)))
}

fn parallel(spec: Value) -> StatefulSet {
    let mut spec = spec;
    spec["podManagementPolicy"] = json!("Parallel");
    set(spec)
}

fn rolling(partition: i32, max_unavailable: Value) -> Value {
    json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": partition, "maxUnavailable": max_unavailable } })
}

#[test]
fn acceptance_sts_001_pods_are_created_in_order_each_after_the_previous_is_ready() {
    let set = set(json!({}));
    assert_eq!(decided(&set, &[], OFF), "create 0");
    assert_eq!(decided(&set, &["0 new running"], OFF), "");
    assert_eq!(decided(&set, &["0 new ready"], OFF), "create 1");
    assert_eq!(decided(&set, &["0 new ready", "1 new ready"], OFF), "create 2");
    assert_eq!(decided(&set, &["0 new ready", "1 new ready", "2 new ready"], OFF), "");
}

#[test]
fn acceptance_sts_002_no_pod_is_created_after_one_that_is_not_ready() {
    for state in ["running", "pending", "ready deleting"] {
        let one = format!("1 new {state}");
        assert_eq!(decided(&set(json!({})), &["0 new ready", &one], OFF), "", "{state}");
    }
}

#[test]
fn acceptance_sts_003_parallel_creates_all_at_once() {
    assert_eq!(decided(&parallel(json!({})), &[], OFF), "create 0, create 1, create 2");
    assert_eq!(decided(&parallel(json!({})), &["1 new running"], OFF), "create 0, create 2");
}

#[test]
fn acceptance_sts_006_a_missing_pod_comes_before_anything_else() {
    let all = ["0 new ready", "2 old ready", "3 old ready"];
    assert_eq!(decided(&set(json!({})), &all, OFF), "create 1");
}

#[test]
fn acceptance_sts_007_surplus_pods_are_deleted_one_by_one_from_the_highest() {
    let set = set(json!({ "replicas": 1 }));
    assert_eq!(decided(&set, &["0 new ready", "1 new ready", "2 new ready"], OFF), "delete 2 Condemned");
    assert_eq!(decided(&set, &["0 new ready", "1 new ready", "2 new ready deleting"], OFF), "");
    assert_eq!(decided(&set, &["0 new ready", "1 new ready"], OFF), "delete 1 Condemned");
}

#[test]
fn acceptance_sts_008_no_surplus_pod_is_deleted_while_a_wanted_one_is_not_healthy() {
    let set = set(json!({ "replicas": 1 }));
    assert_eq!(decided(&set, &["0 new running", "1 new ready", "2 new ready"], OFF), "");
}

#[test]
fn acceptance_sts_009_a_lower_unhealthy_pod_blocks_an_unhealthy_surplus_pod() {
    let set = set(json!({ "replicas": 1 }));
    assert_eq!(decided(&set, &["0 new ready", "1 new running", "2 new running"], OFF), "");
    assert_eq!(decided(&set, &["0 new ready", "1 new ready", "2 new running"], OFF), "delete 2 Condemned");
    assert_eq!(decided(&set, &["0 new ready", "1 new running", "2 new ready"], OFF), "delete 2 Condemned");
}

/// It will never become ready.
#[test]
fn an_ended_surplus_pod_is_deleted_although_a_lower_one_is_not_healthy() {
    let set = set(json!({ "replicas": 1 }));
    for lower in ["1 new failed", "1 new running"] {
        assert_eq!(decided(&set, &["0 new ready", lower, "2 new failed"], OFF), "delete 2 Condemned");
    }
    assert_eq!(decided(&set, &["0 new ready", "1 new failed"], OFF), "delete 1 Condemned");
    assert_eq!(decided(&set, &["0 new ready", "1 new failed", "2 new running"], OFF), "delete 2 Condemned");
    assert_eq!(decided(&set, &["0 new ready", "1 new running", "2 new running"], OFF), "");
    assert_eq!(decided(&set, &["0 new running", "1 new failed"], OFF), "", "a wanted pod comes first");
}

#[test]
fn acceptance_sts_010_parallel_deletes_all_surplus_pods_at_once() {
    let all = ["0 new running", "1 new running", "2 new ready", "3 new ready deleting"];
    assert_eq!(decided(&parallel(json!({ "replicas": 1 })), &all, OFF), "delete 2 Condemned, delete 1 Condemned");
}

#[test]
fn acceptance_sts_012_ordinals_begin_at_the_start() {
    let two = parallel(json!({ "replicas": 2, "ordinals": { "start": 2 } }));
    assert_eq!(decided(&two, &[], OFF), "create 2, create 3");
    let three = parallel(json!({ "replicas": 3, "ordinals": { "start": 2 } }));
    assert_eq!(decided(&three, &["2 new ready", "3 new ready"], OFF), "create 4");
}

#[test]
fn acceptance_sts_013_a_raised_start_creates_first_and_then_deletes_from_the_highest() {
    let set = set(json!({ "replicas": 2, "ordinals": { "start": 2 } }));
    assert_eq!(decided(&set, &["0 new ready", "1 new ready"], OFF), "create 2");
    let both = ["0 new ready", "1 new ready", "2 new ready", "3 new ready"];
    assert_eq!(decided(&set, &both, OFF), "delete 1 Condemned");
    assert_eq!(decided(&set, &["0 new ready", "2 new ready", "3 new ready"], OFF), "delete 0 Condemned");
}

#[test]
fn acceptance_sts_014_a_pod_with_too_large_an_ordinal_is_ignored() {
    let all = ["0 new ready", "99999999999 new ready", "01 new running"];
    assert_eq!(decided(&set(json!({ "replicas": 1 })), &all, OFF), "");
}

#[test]
fn acceptance_sts_015_a_set_that_is_being_deleted_changes_no_pod() {
    let set = set_with(json!({ "replicas": 1 }), json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }), json!({}));
    assert_eq!(decided(&set, &["1 old failed"], OFF), "");
}

#[test]
fn acceptance_sts_016_parallel_deletes_surplus_pods_before_it_creates_missing_ones() {
    let set = parallel(json!({ "replicas": 2 }));
    assert_eq!(decided(&set, &["0 new ready", "5 new ready"], OFF), "delete 5 Condemned; create 1");
}

#[test]
fn acceptance_sts_017_a_pod_that_has_ended_is_deleted_and_not_created_in_the_same_sync() {
    for state in ["failed", "succeeded"] {
        let one = format!("1 new {state}");
        let all = ["0 new ready", one.as_str(), "2 new ready"];
        assert_eq!(decided(&set(json!({})), &all, OFF), "delete 1 Ended", "{state}");
        assert_eq!(decided(&parallel(json!({})), &all, OFF), "delete 1 Ended", "{state}");
    }
}

#[test]
fn acceptance_sts_018_an_ended_pod_that_is_being_deleted_is_waited_for() {
    let all = ["0 new ready", "1 new failed deleting", "2 new ready"];
    assert_eq!(decided(&set(json!({})), &all, OFF), "");
    assert_eq!(decided(&parallel(json!({})), &all, OFF), "");
}

#[test]
fn acceptance_sts_021_a_pod_without_the_label_of_its_name_is_repaired() {
    let all = ["0 new ready unnamed", "1 new ready", "2 new ready"];
    assert_eq!(decided(&set(json!({})), &all, OFF), "repair 0");
    assert_eq!(decided(&set(json!({})), &["0 new running unnamed"], OFF), "", "only healthy pods");
    assert_eq!(decided(&parallel(json!({ "replicas": 1 })), &["0 new running unnamed"], OFF), "repair 0");
}

#[test]
fn acceptance_sts_022_the_missing_claim_of_a_pending_pod_is_created() {
    let set = set(json!({ "replicas": 1, "volumeClaimTemplates": one_claim() }));
    assert_eq!(decided(&set, &["0 new pending"], OFF), "complete 0");
    let (pods, claims) = (pods(&["0 new pending"]), [claim("data-web-0", &[], json!({}))]);
    assert_eq!(show(&plan(&snapshot_with(&set, &pods, &claims, OFF))), "");
}

#[test]
fn a_pod_with_other_volumes_is_repaired() {
    let mut templates = one_claim();
    templates[0]["metadata"]["name"] = json!("other");
    let set = set(json!({ "replicas": 1, "volumeClaimTemplates": templates }));
    assert_eq!(decided(&set, &["0 new ready"], OFF), "repair 0");
}

#[test]
fn acceptance_sts_028_an_update_replaces_one_pod_at_a_time_from_the_highest() {
    for set in [set(json!({})), parallel(json!({}))] {
        assert_eq!(decided(&set, &["0 old ready", "1 old ready", "2 old ready"], OFF), "delete 2 Update");
        assert_eq!(decided(&set, &["0 old ready", "1 old ready", "2 old ready deleting"], OFF), "");
        assert_eq!(decided(&set, &["0 old ready", "1 old ready"], OFF), "create 2");
        assert_eq!(decided(&set, &["0 old ready", "1 old ready", "2 new ready"], OFF), "delete 1 Update");
        assert_eq!(decided(&set, &["0 old ready", "1 new ready", "2 new ready"], OFF), "delete 0 Update");
        assert_eq!(decided(&set, &["0 new ready", "1 new ready", "2 new ready"], OFF), "");
    }
}

#[test]
fn acceptance_sts_029_an_update_waits_until_the_last_pod_is_ready() {
    let all = ["0 old ready", "1 old ready", "2 new running"];
    assert_eq!(decided(&set(json!({})), &all, OFF), "");
    assert_eq!(decided(&parallel(json!({})), &all, OFF), "");
    let broken = ["0 old ready", "1 old ready", "2 old running"];
    assert_eq!(decided(&parallel(json!({})), &broken, OFF), "delete 2 Update", "an outdated pod need not be healthy");
}

#[test]
fn acceptance_sts_031_pods_below_the_partition_keep_the_current_revision() {
    let set = set(json!({ "replicas": 4, "updateStrategy": rolling(2, json!(null)) }));
    assert_eq!(decided(&set, &["0 old ready", "1 old ready", "2 old ready", "3 old ready"], OFF), "delete 3 Update");
    assert_eq!(decided(&set, &["0 old ready", "1 old ready", "2 new ready", "3 new ready"], OFF), "");
    assert_eq!(decided(&set, &["1 old ready", "2 new ready", "3 new ready"], OFF), "create 0 old");
    assert_eq!(decided(&set, &["0 old ready", "1 old ready", "2 new ready"], OFF), "create 3");
}

#[test]
fn acceptance_sts_032_a_partition_counts_from_the_start() {
    let spec = json!({ "replicas": 4, "ordinals": { "start": 10 }, "updateStrategy": rolling(2, json!(null)) });
    let set = parallel(spec);
    let all = ["10 old ready", "11 old ready", "12 old ready", "13 new ready"];
    assert_eq!(decided(&set, &all, OFF), "delete 12 Update");
    assert_eq!(decided(&set, &["12 new ready", "13 new ready"], OFF), "create 10 old, create 11 old");
}

#[test]
fn acceptance_sts_033_a_partition_of_all_replicas_replaces_none() {
    for gates in [OFF, BUDGET] {
        let set = set(json!({ "updateStrategy": rolling(7, json!(null)) }));
        assert_eq!(decided(&set, &["0 old ready", "1 old ready", "2 old ready"], gates), "");
    }
}

#[test]
fn acceptance_sts_034_on_delete_replaces_only_what_the_user_deletes() {
    let set = set(json!({ "updateStrategy": { "type": "OnDelete" } }));
    assert_eq!(decided(&set, &["0 old ready", "1 old ready", "2 old ready"], OFF), "");
    assert_eq!(decided(&set, &["0 old ready", "2 old ready"], OFF), "create 1");
}

#[test]
fn acceptance_sts_040_scaling_comes_before_an_update() {
    let up = set(json!({ "replicas": 4 }));
    assert_eq!(decided(&up, &["0 old ready", "1 old ready", "2 old ready"], OFF), "create 3");
    for (partition, created) in [(3, "create 3"), (4, "create 3 old")] {
        let up = set(json!({ "replicas": 4, "updateStrategy": rolling(partition, json!(null)) }));
        assert_eq!(decided(&up, &["0 old ready", "1 old ready", "2 old ready"], OFF), created, "{partition}");
    }
    let down = set(json!({ "replicas": 2 }));
    assert_eq!(decided(&down, &["0 old ready", "1 old ready", "2 old ready"], OFF), "delete 2 Condemned");
}

#[test]
fn without_the_block_the_stored_status_decides_the_revision_of_a_new_pod() {
    let spec = json!({ "updateStrategy": { "type": "RollingUpdate" } });
    let set = set_with(spec, json!({}), json!({ "currentReplicas": 2 }));
    assert_eq!(decided(&set, &["0 old ready", "2 new ready"], OFF), "create 1 old");
    assert_eq!(decided(&set, &["0 old ready", "1 old ready"], OFF), "create 2");
}

#[test]
fn acceptance_sts_041_max_unavailable_pods_are_deleted_together() {
    let set = set(json!({ "replicas": 5, "updateStrategy": rolling(0, json!(2)) }));
    let all = ["0 old ready", "1 old ready", "2 old ready", "3 old ready", "4 old ready"];
    assert_eq!(decided(&set, &all, BUDGET), "delete 4 Update, delete 3 Update");
    let parallel = parallel(json!({ "replicas": 5, "updateStrategy": rolling(0, json!(2)) }));
    let one_back = ["0 old ready", "1 old ready", "2 old ready", "3 new running", "4 new ready"];
    assert_eq!(decided(&parallel, &one_back, BUDGET), "delete 2 Update");
}

#[test]
fn acceptance_sts_042_percentages_are_rounded_down_and_at_least_one() {
    let all = ["0 old ready", "1 old ready", "2 old ready", "3 old ready", "4 old ready"];
    for (max, deleted) in [("30%", 1), ("50%", 2), ("10%", 1), ("100%", 5), ("x", 1)] {
        let set = set(json!({ "replicas": 5, "updateStrategy": rolling(0, json!(max)) }));
        assert_eq!(decided(&set, &all, BUDGET).matches("delete").count(), deleted, "{max}");
    }
    let set = set(json!({ "replicas": 5, "updateStrategy": { "type": "RollingUpdate" } }));
    assert_eq!(decided(&set, &all, BUDGET), "delete 4 Update", "without the block");
}

#[test]
fn acceptance_sts_043_parallel_replaces_a_pod_that_crashes_at_the_old_revision() {
    let set = parallel(json!({ "replicas": 1, "updateStrategy": rolling(0, json!(1)) }));
    assert_eq!(decided(&set, &["0 old running"], BUDGET), "delete 0 Broken");
}

#[test]
fn acceptance_sts_044_a_terminating_pod_uses_the_budget() {
    let set = parallel(json!({ "updateStrategy": rolling(0, json!(1)) }));
    assert_eq!(decided(&set, &["0 old ready", "1 old ready", "2 old ready deleting"], BUDGET), "");
}

#[test]
fn acceptance_sts_045_broken_outdated_pods_use_no_budget() {
    let set = parallel(json!({ "replicas": 5, "updateStrategy": rolling(0, json!(3)) }));
    let all = ["0 old ready", "1 old ready", "2 old ready", "3 old running", "4 old ready deleting"];
    assert_eq!(decided(&set, &all, BUDGET), "delete 3 Broken, delete 2 Update");
}

/// With a clock that is late, all pods of a healthy set look like this, so they use the budget.
#[test]
fn a_ready_pod_that_is_not_available_yet_is_not_broken() {
    let spec = json!({ "minReadySeconds": 60, "updateStrategy": rolling(0, json!(1)) });
    let young = ["0 old ready:30", "1 old ready:30", "2 old ready:30"];
    assert_eq!(decided(&parallel(spec.clone()), &young, BUDGET), "delete 2 Update");
    for last in ["2 old ready:30 deleting", "2 new ready:30"] {
        assert_eq!(decided(&parallel(spec.clone()), &["0 old ready:30", "1 old ready:30", last], BUDGET), "", "{last}");
    }
    let mixed = ["0 old ready:90", "1 old ready:30", "2 old ready:90"];
    assert_eq!(decided(&parallel(spec.clone()), &mixed, BUDGET), "delete 1 Update");
    let one = ["0 old ready:90", "1 old ready:90", "2 old running"];
    assert_eq!(decided(&parallel(spec), &one, BUDGET), "delete 2 Broken");
}

#[test]
fn acceptance_sts_046_exactly_the_broken_pods_are_replaced_when_they_are_the_budget() {
    let set = parallel(json!({ "replicas": 4, "updateStrategy": rolling(0, json!(2)) }));
    let all = ["0 old running", "1 old running", "2 old ready", "3 old ready"];
    assert_eq!(decided(&set, &all, BUDGET), "delete 1 Broken, delete 0 Broken");
}

#[test]
fn acceptance_sts_047_healthy_pods_follow_within_the_rest_of_the_budget() {
    let set = parallel(json!({ "replicas": 5, "updateStrategy": rolling(0, json!(3)) }));
    let all = ["0 old running", "1 old running", "2 old ready", "3 old ready", "4 old ready"];
    assert_eq!(decided(&set, &all, BUDGET), "delete 1 Broken, delete 0 Broken, delete 4 Update");
}

#[test]
fn acceptance_sts_048_a_broken_pod_below_the_partition_stays_and_uses_the_budget() {
    let set = parallel(json!({ "replicas": 4, "updateStrategy": rolling(2, json!(1)) }));
    let all = ["0 old ready", "1 old running", "2 old ready", "3 old ready"];
    assert_eq!(decided(&set, &all, BUDGET), "");
}

#[test]
fn acceptance_sts_049_ordered_updates_count_all_unavailable_pods() {
    let delete = |max: i32, all: &[&str]| {
        let set = set(json!({ "replicas": 5, "updateStrategy": rolling(0, json!(max)) }));
        let pods = pods(all);
        let snapshot = snapshot_of(&set, &pods, BUDGET);
        rollout(&snapshot, |_| false).delete.iter().map(|it| it.0.meta.name.to_string()).collect::<Vec<_>>()
    };
    let all = ["0 old ready", "1 old ready", "2 old ready", "3 old running", "4 old ready deleting"];
    assert_eq!(delete(3, &all), ["web-3"]);
    assert_eq!(delete(1, &all[..4]), [""; 0]);
}

#[test]
fn acceptance_sts_050_recreate_deletes_all_outdated_pods_and_creates_none_until_they_are_gone() {
    let gates = Gates { recreate: true, ..OFF };
    let recreate = set(json!({ "updateStrategy": { "type": "Recreate" } }));
    let all = ["0 old ready", "1 old running", "2 old ready", "3 old ready"];
    let wanted = "delete 0 Update, delete 1 Update, delete 2 Update, delete 3 Condemned";
    assert_eq!(decided(&recreate, &all, gates), wanted);
    assert_eq!(decided(&recreate, &["0 old ready deleting"], gates), "");
    assert_eq!(decided(&recreate, &[], gates), "create 0");
    assert_eq!(decided(&recreate, &["0 new ready", "1 new ready", "2 new ready"], gates), "");
    let off = ["0 old ready", "1 old ready", "2 old ready"];
    assert_eq!(decided(&recreate, &off, OFF), "delete 2 Update", "without the gate as RollingUpdate");
}

#[test]
fn acceptance_sts_051_a_pod_that_is_not_available_yet_blocks_the_next() {
    let set = set(json!({ "minReadySeconds": 10 }));
    assert_eq!(decided(&set, &["0 new ready:5"], OFF), "");
    assert_eq!(decided(&set, &["0 new ready:10"], OFF), "create 1");
}

#[test]
fn acceptance_sts_053_a_lower_pod_that_is_not_available_yet_blocks_scaling_down() {
    let set = set(json!({ "replicas": 1, "minReadySeconds": 10 }));
    assert_eq!(decided(&set, &["0 new ready", "1 new ready:5", "2 new ready:5"], OFF), "");
    assert_eq!(decided(&set, &["0 new ready:5", "1 new ready"], OFF), "");
    assert_eq!(decided(&set, &["0 new ready", "1 new ready:5"], OFF), "delete 1 Condemned");
}

#[test]
fn acceptance_sts_060_the_owner_of_a_claim_changes_before_its_pod_is_deleted() {
    let policy = json!({ "whenScaled": "Delete" });
    let spec = json!({ "replicas": 1, "volumeClaimTemplates": one_claim(),
        "persistentVolumeClaimRetentionPolicy": policy });
    for set in [set(spec.clone()), parallel(spec)] {
        let pods = pods(&["0 new ready", "1 new ready"]);
        let claims = [claim("data-web-0", &[], json!({})), claim("data-web-1", &[], json!({}))];
        let decided = show(&plan(&snapshot_with(&set, &pods, &claims, OFF)));
        assert_eq!(decided, "correct 1; delete 1 Condemned");
        let claims = [claims[0].clone(), claim("data-web-1", &[by_pod(1, "uid-1")], json!({}))];
        assert_eq!(show(&plan(&snapshot_with(&set, &pods, &claims, OFF))), "delete 1 Condemned");
    }
}

#[test]
fn acceptance_sts_063_a_pod_is_not_created_while_its_claim_belongs_to_the_earlier_one() {
    let policy = json!({ "whenScaled": "Delete" });
    let spec = json!({ "replicas": 2, "volumeClaimTemplates": one_claim(),
        "persistentVolumeClaimRetentionPolicy": policy });
    let set = set(spec);
    let pods = pods(&["0 new ready"]);
    let zero = claim("data-web-0", &[], json!({}));
    let stale = [zero.clone(), claim("data-web-1", &[by_pod(1, "earlier")], json!({}))];
    assert_eq!(show(&plan(&snapshot_with(&set, &pods, &stale, OFF))), "");
    assert_eq!(show(&plan(&snapshot_with(&set, &pods, &[zero], OFF))), "create 1");
}

#[test]
fn acceptance_sts_064_all_claims_lose_our_references_when_the_policy_is_retain_again() {
    let set = set(json!({ "replicas": 1, "volumeClaimTemplates": one_claim() }));
    let of_set =
        json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "set-uid", "controller": true });
    let (pods, claims) = (pods(&["0 new ready"]), [claim("data-web-0", &[of_set], json!({}))]);
    assert_eq!(show(&plan(&snapshot_with(&set, &pods, &claims, OFF))), "repair 0");
}

#[test]
fn a_pod_with_a_name_that_is_no_label_is_not_created_and_that_is_reported() {
    let long = set_with(json!({ "replicas": 2 }), json!({ "name": "a".repeat(62) }), json!({}));
    let decided = plan(&snapshot_of(&long, &[], OFF));
    assert_eq!((show(&decided), decided.notices.len()), (String::new(), 1));
    assert!(decided.notices[0].message().contains("more than 63 characters"), "{}", decided.notices[0].message());
}

#[test]
fn a_blocked_rollout_replaces_the_highest_broken_outdated_pod_only_if_the_user_allows_it() {
    let allowed = json!({ "annotations": { REPLACE_BLOCKED: "true" } });
    let spec = json!({ "updateStrategy": rolling(1, json!(null)) });
    let (with, without) = (set_with(spec.clone(), allowed, json!({})), set(spec));
    for (all, want) in [
        (&["0 new ready", "1 old running", "2 old running"][..], "delete 2 Broken"),
        (&["0 new ready", "1 old running", "2 new ready"], "delete 1 Broken"),
        (&["0 old running", "1 old ready", "2 old ready"], ""),
        (&["0 new ready", "1 new running", "2 old running"], ""),
        (&["0 old ready", "1 old running", "2 new running"], ""),
        (&["0 new ready", "1 old running", "2 old ready deleting"], ""),
        (&["0 new ready", "1 new running", "2 new ready"], ""),
    ] {
        assert_eq!(decided(&with, all, OFF), want, "{all:?}");
        assert_eq!(decided(&without, all, OFF), "", "{all:?}");
    }
}

#[test]
fn a_broken_pod_is_replaced_only_after_a_minute_and_only_if_the_new_one_is_updated() {
    let allowed = json!({ "annotations": { REPLACE_BLOCKED: "true" } });
    let decide = |spec: Value, status: Value, list: &[&str]| {
        let (set, pods) = (set_with(spec, allowed.clone(), status), pods(list));
        let plan = plan(&snapshot_of(&set, &pods, OFF));
        (show(&plan), plan.check_after)
    };
    let recent = ["0 new ready", "1 old unready:20", "2 new ready"];
    assert_eq!(decide(json!({}), json!({}), &recent), (String::new(), Some(40)));
    let broken = ["0 old ready", "1 old running", "2 old ready"];
    assert_eq!(decide(json!({}), json!({}), &broken).0, "delete 1 Broken");
    let without_block = json!({ "updateStrategy": { "type": "RollingUpdate" } });
    let three = json!({ "currentReplicas": 3 });
    assert_eq!(decide(without_block.clone(), three.clone(), &broken).0, "", "it would be created at the old revision");
    let highest = ["0 old ready", "1 old ready", "2 old running"];
    assert_eq!(decide(without_block, three, &highest).0, "delete 2 Broken");
}

#[test]
fn a_parallel_set_without_the_block_replaces_a_broken_pod_only_if_the_new_one_is_updated() {
    let spec = json!({ "podManagementPolicy": "Parallel", "updateStrategy": { "type": "RollingUpdate" } });
    let set = set_with(spec.clone(), json!({}), json!({ "currentReplicas": 3 }));
    let highest_first = decided(&set, &["0 old running", "1 old ready", "2 old ready"], BUDGET);
    assert_eq!(highest_first, "delete 2 Update", "the broken one never becomes ready without the update");
    let two_left = set_with(spec.clone(), json!({}), json!({ "currentReplicas": 2 }));
    assert_eq!(decided(&two_left, &["0 old running", "1 old ready", "2 new ready"], BUDGET), "delete 1 Update");
    assert_eq!(decided(&two_left, &["0 old running", "1 old ready", "2 new running"], BUDGET), "");
    // The status was written before the lowest pod was created.
    let late = set_with(spec.clone(), json!({}), json!({ "currentReplicas": 1 }));
    assert_eq!(decided(&late, &["0 old running", "1 old ready", "2 new ready"], BUDGET), "delete 1 Update");
    let mut young = spec.clone();
    young["minReadySeconds"] = json!(60);
    let young = set_with(young, json!({}), json!({ "currentReplicas": 3 }));
    let rows = ["0 old ready:90", "1 old ready:30", "2 old ready:90"];
    assert_eq!(decided(&young, &rows, BUDGET), "", "it would be created again at the old revision");
    assert_eq!(decided(&young, &["0 old ready:90", "1 old ready:90", "2 old ready:30"], BUDGET), "delete 2 Update");
    let one_left = set_with(spec, json!({}), json!({ "currentReplicas": 1 }));
    assert_eq!(decided(&one_left, &["0 old running", "1 new ready", "2 new ready"], BUDGET), "delete 0 Broken");
    assert_eq!(
        decided(&set, &["0 old ready", "1 old running", "2 old running"], BUDGET),
        "delete 2 Broken, delete 1 Broken"
    );
}

#[test]
fn a_claim_that_a_wanted_pod_still_owns_changes_its_owner_before_the_pod_is_deleted() {
    let spec = json!({ "replicas": 1, "volumeClaimTemplates": one_claim(),
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete" } });
    let allowed = json!({ "annotations": { REPLACE_BLOCKED: "true" } });
    let set = set_with(spec, allowed, json!({}));
    for (state, deleted) in [("failed", "delete 0 Ended"), ("running", "delete 0 Broken")] {
        let pods = pods(&[&format!("0 old {state}")]);
        let owned = [claim("data-web-0", &[by_pod(0, "uid-0")], json!({}))];
        assert_eq!(show(&plan(&snapshot_with(&set, &pods, &owned, OFF))), "correct 0", "{state}");
        let free = [claim("data-web-0", &[], json!({}))];
        assert_eq!(show(&plan(&snapshot_with(&set, &pods, &free, OFF))), deleted, "{state}");
    }
}

/// A scale-down made the pod the owner, and was taken back.
#[test]
fn a_wanted_pod_of_an_ordered_set_loses_its_claim_although_another_one_is_not_ready() {
    let claims = [
        claim("data-web-0", &[], json!({})),
        claim("data-web-1", &[by_pod(1, "earlier")], json!({})),
        claim("data-web-2", &[by_pod(2, "uid-2")], json!({})),
    ];
    for (when_scaled, last) in [("Delete", "ready"), ("Delete", "ready deleting"), ("Retain", "ready deleting")] {
        let set = set(json!({ "volumeClaimTemplates": one_claim(),
            "persistentVolumeClaimRetentionPolicy": { "whenScaled": when_scaled } }));
        let pods = pods(&["0 new running", "1 new ready", &format!("2 new {last}")]);
        let decided = plan(&snapshot_with(&set, &pods, &claims, OFF));
        assert_eq!(show(&decided), "correct 2", "{when_scaled} {last}");
    }
}

/// The policy was changed after the scale-down had made the pod the owner.
#[test]
fn a_surplus_pod_of_an_ordered_set_loses_its_claim_although_another_one_is_not_ready() {
    let claims = [claim("data-web-0", &[], json!({})), claim("data-web-1", &[by_pod(1, "uid-1")], json!({}))];
    for (when_scaled, decided) in [("Retain", "correct 1"), ("Delete", "")] {
        let set = set(json!({ "replicas": 1, "volumeClaimTemplates": one_claim(),
            "persistentVolumeClaimRetentionPolicy": { "whenScaled": when_scaled } }));
        let pods = pods(&["0 new running", "1 new ready"]);
        assert_eq!(show(&plan(&snapshot_with(&set, &pods, &claims, OFF))), decided, "{when_scaled}");
    }
}

/// The kubelet removes a pod only some time after its containers have ended.
#[test]
fn a_wanted_pod_that_ends_loses_its_claim() {
    let claims = [claim("data-web-0", &[by_pod(0, "uid-0")], json!({}))];
    for management in ["OrderedReady", "Parallel"] {
        let set = set(json!({ "replicas": 1, "volumeClaimTemplates": one_claim(), "podManagementPolicy": management }));
        let pods = pods(&["0 new failed deleting"]);
        assert_eq!(show(&plan(&snapshot_with(&set, &pods, &claims, OFF))), "correct 0", "{management}");
    }
}

#[test]
fn a_set_waits_for_the_pod_that_blocks_it() {
    let waits_with = |gates: Gates, spec: Value, all: &[&str]| {
        let (set, pods) = (set(spec), pods(all));
        let plan = plan(&snapshot_of(&set, &pods, gates));
        plan.waiting.map(|it| format!("{} {:?}", it.pod.meta.name, it.cause))
    };
    let waits = |spec: Value, all: &[&str]| waits_with(OFF, spec, all);
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(waits(json!({}), &["0 new running"]), some("web-0 NotReady"));
    assert_eq!(waits(json!({}), &["0 new ready", "1 new ready deleting"]), some("web-1 Terminating"));
    assert_eq!(waits(json!({ "minReadySeconds": 10 }), &["0 new ready:5"]), some("web-0 NotAvailable"));
    assert_eq!(waits(json!({ "replicas": 1 }), &["0 new ready", "1 new ready deleting"]), some("web-1 Terminating"));
    let two = ["0 new ready", "1 new running", "2 new running"];
    assert_eq!(waits(json!({ "replicas": 1 }), &two), some("web-1 NotReady"));
    assert_eq!(waits(json!({ "replicas": 1 }), &["0 new ready"]), None);
    let parallel = json!({ "podManagementPolicy": "Parallel" });
    assert_eq!(waits(parallel.clone(), &["0 old ready", "1 old ready", "2 new running"]), some("web-2 NotReady"));
    let last = ["0 new ready", "1 new ready", "2 new running"];
    for spec in [json!({}), parallel] {
        assert_eq!(waits(spec.clone(), &last), some("web-2 NotReady"), "the update has not ended");
        let (set, pods) = (set(spec), pods(&last));
        let mut snapshot = snapshot_of(&set, &pods, OFF);
        snapshot.revisions.current = snapshot.revisions.update;
        assert_eq!(plan(&snapshot).waiting, None, "nothing else is to be done");
    }
    let below = ["0 old ready", "1 old running", "2 old ready"];
    let canary = json!({ "podManagementPolicy": "Parallel", "updateStrategy": rolling(2, json!(1)) });
    assert_eq!(waits_with(BUDGET, canary, &below), some("web-1 NotReady"), "it uses the budget");
    let recreate = json!({ "updateStrategy": { "type": "Recreate" } });
    let gates = Gates { recreate: true, ..OFF };
    assert_eq!(waits_with(gates, recreate, &["0 old ready deleting"]), some("web-0 Terminating"));
}

#[test]
fn an_ended_pod_is_deleted_once_although_it_is_outdated() {
    let all = ["0 old ready", "1 old ready", "2 old failed"];
    assert_eq!(decided(&parallel(json!({})), &all, OFF), "delete 2 Ended");
    let budget = parallel(json!({ "updateStrategy": rolling(0, json!(1)) }));
    assert_eq!(decided(&budget, &all, BUDGET), "delete 2 Ended");
    assert_eq!(pod("2 old failed").meta.name, "web-2".into());
}

#[test]
fn no_pod_is_deleted_for_a_revision_with_a_name_that_is_no_label() {
    let revision = "r".repeat(64);
    let decide = |spec: Value, gates: Gates| {
        let allowed = json!({ "annotations": { REPLACE_BLOCKED: "true" } });
        let (set, pods) = (set_with(spec, allowed, json!({})), pods(&["0 old ready", "1 old ready", "2 old running"]));
        let mut snapshot = snapshot_of(&set, &pods, gates);
        snapshot.revisions.update = &revision;
        let plan = plan(&snapshot);
        (show(&plan), plan.notices.iter().map(Notice::reason).collect::<Vec<_>>())
    };
    let reported = (String::new(), vec!["NameTooLong"]);
    let surplus = json!({ "replicas": 2, "updateStrategy": { "type": "Recreate" } });
    let deleted = ("delete 2 Condemned".to_owned(), vec!["NameTooLong"]);
    assert_eq!(decide(surplus, Gates { recreate: true, ..OFF }), deleted, "a surplus pod is not created again");
    let none = json!({ "replicas": 0, "updateStrategy": { "type": "Recreate" } });
    assert_eq!(decide(none, Gates { recreate: true, ..OFF }).1, [""; 0]);
    let parallel = json!({ "podManagementPolicy": "Parallel" });
    assert_eq!(decide(parallel.clone(), OFF), reported);
    assert_eq!(decide(parallel, BUDGET), reported);
    let recreate = json!({ "updateStrategy": { "type": "Recreate" } });
    assert_eq!(decide(recreate, Gates { recreate: true, ..OFF }), reported);
    assert_eq!(decide(json!({}), OFF).0, "");
}

#[test]
fn an_ended_pod_is_deleted_although_its_claim_lacks_the_reference_of_the_set() {
    let spec = json!({ "replicas": 1, "volumeClaimTemplates": one_claim(),
        "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Delete" } });
    let (set, pods) = (set(spec), pods(&["0 new failed"]));
    let claims = [claim("data-web-0", &[], json!({}))];
    assert_eq!(show(&plan(&snapshot_with(&set, &pods, &claims, OFF))), "delete 0 Ended");
}

#[test]
fn a_set_with_an_enormous_number_of_missing_pods_is_not_updated() {
    let huge = parallel(json!({ "replicas": i32::MAX, "updateStrategy": rolling(0, json!("100%")) }));
    let pods = pods(&["0 old ready", "200000 old ready"]);
    let plan = plan(&snapshot_of(&huge, &pods, BUDGET));
    let is_creation = |it: &&Action<'_>| matches!(it, Action::Create { .. });
    assert_eq!(plan.stages.iter().flatten().filter(is_creation).count(), 100_001);
    assert_eq!(plan.stages.iter().map(Vec::len).sum::<usize>(), 100_001, "nothing else, though all may be unavailable");
    let last = parallel(json!({ "replicas": 3, "ordinals": { "start": i32::MAX - 1 } }));
    assert_eq!(decided(&last, &[], OFF), "create 2147483646, create 2147483647");
}
