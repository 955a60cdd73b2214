use api::Pod;
use serde_json::{Value, json};

use super::*;
use crate::{
    rules::{
        backoff::PodFailures,
        snapshot::{SnapshotInputs, Unseen},
    },
    testing::{INPUTS, NOW, PodBuilder, deleted, job, pod, pods, snapshot_of, true_condition},
};

fn decide(spec: Value, status: Value, pods: &[Pod], inputs: SnapshotInputs) -> Plan {
    let job = job(spec, status);
    plan(&snapshot_of(&job, pods, inputs))
}

/// A plan in one line: the names of deleted pods, or the indexes or number of created pods.
fn what(plan: &Plan, pods: &[Pod]) -> String {
    let names = |word: &str, positions: &[usize]| {
        let names: Vec<&str> = positions.iter().map(|at| &*pods[*at].meta.name).collect();
        format!("{word} {}", names.join(" "))
    };
    match &plan.pods {
        PodChange::Keep => "keep".to_owned(),
        PodChange::End(positions) => names("end", positions),
        PodChange::Suspend(positions) => names("suspend", positions),
        PodChange::Delete(positions) => names("delete", positions),
        PodChange::Create(Creation { pods, .. }) => match pods[0].index {
            None => format!("create {}", pods.len()),
            Some(_) => {
                let indexes: Vec<String> = pods.iter().filter_map(|it| it.index).map(|it| it.to_string()).collect();
                format!("create {}", indexes.join(" "))
            }
        },
    }
}

fn done(spec: Value, status: Value, pods: &[Pod]) -> String {
    what(&decide(spec, status, pods, INPUTS), pods)
}

fn running(many: usize) -> Vec<Pod> {
    (0..many).map(|it| pod(&format!("r{it}")).ready().build()).collect()
}

#[test]
fn acceptance_job_001_active_pods_are_limited_by_parallelism_and_missing_completions() {
    for (name, succeeded, active, want) in [
        ("no pods", 0, 0, "create 2"),
        ("one pod is active", 0, 1, "create 1"),
        ("all wanted pods are active", 0, 2, "keep"),
        ("some have succeeded", 2, 0, "create 2"),
        ("one is missing", 3, 0, "create 1"),
        ("the last pod is active", 3, 1, "keep"),
        ("all have succeeded", 4, 0, "keep"),
    ] {
        assert_eq!(done(json!({}), json!({ "succeeded": succeeded }), &running(active)), want, "{name}");
    }
}

#[test]
fn acceptance_job_002_without_completions_no_pod_is_created_after_the_first_success() {
    let spec = || json!({ "completions": null, "parallelism": 5 });
    assert_eq!(done(spec(), json!({}), &running(3)), "create 2");
    assert_eq!(done(spec(), json!({ "succeeded": 1 }), &running(3)), "keep");
    assert_eq!(done(spec(), json!({}), &pods([pod("a").succeeded(-1), pod("b").ready()])), "keep");
}

#[test]
fn acceptance_job_004_parallelism_is_followed_up_and_down() {
    let spec = |parallelism: i32| json!({ "parallelism": parallelism });
    let two = || pods([pod("old").ready().created(-50), pod("new").ready().created(-40)]);
    assert_eq!(done(spec(2), json!({}), &two()[..1]), "create 1");
    assert_eq!(done(spec(1), json!({}), &two()), "delete new");
    assert_eq!(done(spec(0), json!({}), &two()), "delete new old");
}

#[test]
fn acceptance_job_005_one_sync_creates_or_deletes_at_most_five_hundred_pods() {
    let many = json!({ "parallelism": 1000, "completions": 5000 });
    assert_eq!(done(many, json!({}), &[]), "create 500");
    let indexed = json!({ "parallelism": 1000, "completions": 5000, "completionMode": "Indexed" });
    let plan = decide(indexed, json!({}), &[], INPUTS);
    let PodChange::Create(creation) = plan.pods else { panic!("{plan:?}") };
    assert_eq!((creation.pods.len(), creation.pods[499].index), (500, Some(499)));
    let plan = decide(json!({ "parallelism": 0 }), json!({}), &running(600), INPUTS);
    assert!(matches!(plan.pods, PodChange::Delete(pods) if pods.len() == 500));
}

#[test]
fn acceptance_job_007_unfulfilled_expectations_prevent_creations_and_deletions() {
    let unseen = SnapshotInputs { unseen: Unseen::Writes, ..INPUTS };
    for (spec, pods) in
        [(json!({}), running(0)), (json!({ "parallelism": 0 }), running(2)), (json!({ "suspend": true }), running(2))]
    {
        let plan = decide(spec, json!({}), &pods, unseen);
        assert_eq!(
            (what(&plan, &pods).as_str(), plan.waiting, plan.managed),
            ("keep", Some(CreationWaitCause::Unseen), false)
        );
    }
}

#[test]
fn the_action_label_names_the_main_action_also_while_waiting() {
    let pending = |unseen| SnapshotInputs { unseen, ..INPUTS };
    let per_index = || indexed(json!({ "backoffLimitPerIndex": 0, "completions": 2, "parallelism": 2 }));
    let failed = || pods([pod("a").failed(-3)]);
    let of_index_1 = || pods([pod("a").index(1).ready()]);
    let going = || pods([pod("a").running().deleting(), pod("b").running().deleting()]);
    let ended = json!({ "conditions": [true_condition("FailureTarget", "BackoffLimitExceeded", "m")] });
    let none = || json!({});
    for (name, spec, status, pods, inputs, want) in [
        ("all wanted pods are active", none(), none(), running(2), INPUTS, Action::Tracking),
        ("one is missing", none(), none(), running(1), INPUTS, Action::Created),
        ("a back-off", none(), none(), failed(), INPUTS, Action::Created),
        ("the creation limit", none(), none(), vec![], SnapshotInputs { free_slots: 0, ..INPUTS }, Action::Created),
        ("no index is free", per_index(), json!({ "failedIndexes": "0" }), of_index_1(), INPUTS, Action::Created),
        (
            "pods are terminating",
            json!({ "podReplacementPolicy": "Failed" }),
            none(),
            going(),
            INPUTS,
            Action::Tracking,
        ),
        ("too many", json!({ "parallelism": 0 }), none(), running(1), INPUTS, Action::Deleted),
        ("suspended", json!({ "suspend": true }), none(), running(1), INPUTS, Action::Deleted),
        ("suspended, all are gone", json!({ "suspend": true }), none(), vec![], INPUTS, Action::Deleted),
        ("unseen", none(), none(), running(1), pending(Unseen::Writes), Action::Reconciling),
        ("unknown creates", none(), none(), running(1), pending(Unseen::UnknownCreates), Action::Reconciling),
        ("the Job ends", none(), ended, running(1), INPUTS, Action::Reconciling),
    ] {
        assert_eq!(decide(spec, status, &pods, inputs).action, want, "{name}");
    }
}

#[test]
fn an_unknown_create_delays_only_creations() {
    let unknown = SnapshotInputs { unseen: Unseen::UnknownCreates, ..INPUTS };
    let unseen = Some(CreationWaitCause::Unseen);
    for (spec, active, want, waiting) in [
        (json!({}), 0, "keep", unseen),
        (json!({}), 2, "keep", None),
        (json!({ "parallelism": 1 }), 2, "delete r0", None),
        (json!({ "suspend": true }), 2, "suspend r0 r1", None),
    ] {
        let pods = running(active);
        let plan = decide(spec.clone(), json!({}), &pods, unknown);
        assert_eq!((what(&plan, &pods).as_str(), plan.waiting, plan.managed), (want, waiting, true), "{spec}");
    }
}

#[test]
fn acceptance_job_057_no_pod_is_suspended_with_unfulfilled_expectations() {
    let plan =
        decide(json!({ "suspend": true }), json!({}), &running(2), SnapshotInputs { unseen: Unseen::Writes, ..INPUTS });
    assert!(plan.pods == PodChange::Keep && !plan.managed);
}

#[test]
fn acceptance_job_028_all_active_pods_are_deleted_when_the_job_fails() {
    let mut all = running(99);
    all.push(pod("bad").failed(-1).build());
    let spec = || json!({ "backoffLimit": 0, "parallelism": 100, "completions": 100 });
    let plan = decide(spec(), json!({}), &all, INPUTS);
    assert!(plan.ending.is_some_and(|it| !it.announced) && plan.pods == PodChange::Keep && !plan.managed);
    assert!(
        matches!(&plan.after_status, PodChange::End(pods) if pods.len() == 99),
        "the interim condition is stored first"
    );
    let announced = json!({ "conditions": [true_condition("FailureTarget", "BackoffLimitExceeded", "m")] });
    let plan = decide(spec(), announced, &all, INPUTS);
    assert!(matches!(&plan.pods, PodChange::End(pods) if pods.len() == 99 && !pods.contains(&99)));
    assert!(plan.ending.is_some() && !plan.managed && plan.after_status == PodChange::Keep);
}

#[test]
fn acceptance_job_032_a_failure_delays_the_next_pod() {
    let failed = pods([pod("a").failed(-3)]);
    let plan = decide(json!({}), json!({}), &failed, INPUTS);
    assert_eq!((what(&plan, &failed), plan.requeue_after), ("keep".to_owned(), Some(Duration::from_secs(7))));
    assert_eq!(plan.waiting, Some(CreationWaitCause::Backoff(Duration::from_secs(7))));
    assert_eq!(done(json!({}), json!({}), &pods([pod("a").failed(-10)])), "create 2");

    let second = SnapshotInputs { backoff: Some(PodFailures { failures: 1, last: NOW - 100 }), ..INPUTS };
    assert_eq!(decide(json!({}), json!({}), &failed, second).requeue_after, Some(Duration::from_secs(17)));
    let nearly = SnapshotInputs { now: crate::rules::moment::Moment((NOW + 7) * 1_000 - 1), ..INPUTS };
    assert_eq!(
        decide(json!({}), json!({}), &failed, nearly).requeue_after,
        Some(Duration::from_secs(1)),
        "at least one second"
    );
}

#[test]
fn acceptance_job_032_the_back_off_is_restored_after_a_restart() {
    let restarted = SnapshotInputs { backoff: None, ..INPUTS };
    let again = |pods: &[Pod], status| decide(json!({}), status, pods, restarted).requeue_after;
    let two = pods([pod("a").failed(-30).without_finalizer(), pod("b").failed(-5).without_finalizer()]);
    assert_eq!(again(&two, json!({ "failed": 2 })), Some(Duration::from_secs(15)));
    // A pod in `uncountedTerminatedPods` and a pod not yet counted are two failures as well; none counts twice.
    let named = pods([pod("a").failed(-30), pod("b").failed(-5)]);
    let status = json!({ "uncountedTerminatedPods": { "failed": ["uid-a"] } });
    assert_eq!(again(&named, status), Some(Duration::from_secs(15)));
    let success = pods([
        pod("a").failed(-30).without_finalizer(),
        pod("b").succeeded(-20).without_finalizer(),
        pod("c").failed(-5).without_finalizer(),
    ]);
    assert_eq!(again(&success, json!({ "failed": 2, "succeeded": 1 })), Some(Duration::from_secs(5)));
}

#[test]
fn acceptance_job_037_an_ignored_failure_also_delays_its_replacement() {
    let rules = json!([{ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }]);
    let evicted = pods([pod("a").failed(-4).condition("DisruptionTarget", "True", -4)]);
    let plan =
        decide(json!({ "podFailurePolicy": { "rules": rules }, "backoffLimit": 0 }), json!({}), &evicted, INPUTS);
    assert_eq!((plan.tally.failed, plan.requeue_after, plan.ending), (0, Some(Duration::from_secs(6)), None));
}

fn indexed(change: Value) -> Value {
    let mut spec = json!({ "completionMode": "Indexed", "completions": 4, "parallelism": 4 });
    spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    spec
}

#[test]
fn acceptance_job_041_the_lowest_free_indexes_are_created_first() {
    for (name, change, status, pods, want) in [
        ("no pods", json!({}), json!({}), vec![], "create 0 1 2 3"),
        ("parallelism two", json!({ "parallelism": 2 }), json!({}), vec![], "create 0 1"),
        ("some are active", json!({}), json!({}), vec![pod("a").index(1)], "create 0 2 3"),
        ("some have succeeded", json!({}), json!({ "completedIndexes": "0,2" }), vec![], "create 1 3"),
        ("one has just succeeded", json!({}), json!({}), vec![pod("a").index(0).succeeded(-1)], "create 1 2 3"),
        ("one has failed", json!({}), json!({}), vec![pod("a").index(0).failed(-11)], "create 0 1 2 3"),
        (
            "one is terminating",
            json!({}),
            json!({}),
            vec![pod("a").index(0).deleting().without_finalizer()],
            "create 0 1 2 3",
        ),
    ] {
        let pods: Vec<Pod> = pods.into_iter().map(PodBuilder::build).collect();
        assert_eq!(done(indexed(change), status, &pods), want, "{name}");
    }
}

#[test]
fn acceptance_job_042_useless_pods_are_deleted_before_any_creation() {
    for (name, change, pods, want) in [
        ("the less ready of two", json!({}), vec![pod("a").index(0), pod("b").index(0).ready()], "delete a"),
        (
            "the newer of two",
            json!({}),
            vec![pod("a").index(0).created(-20), pod("b").index(0).created(-30)],
            "delete a",
        ),
        ("no index", json!({}), vec![pod("a").ready(), pod("b").index(0)], "delete a"),
        ("no number", json!({}), vec![pod("a").annotation(crate::rules::snapshot::INDEX, "x")], "delete a"),
        ("out of range", json!({}), vec![pod("a").index(4), pod("b").index(3)], "delete a"),
        ("no surplus", json!({}), (0..4).map(|it| pod("p").index(it)).collect(), "keep"),
        (
            "more than parallelism, useless pods first",
            json!({ "parallelism": 1 }),
            vec![pod("a").index(0).ready(), pod("b").index(1), pod("c").index(0)],
            "delete c b",
        ),
    ] {
        let pods: Vec<Pod> = pods.into_iter().map(PodBuilder::build).collect();
        assert_eq!(done(indexed(change), json!({}), &pods), want, "{name}");
    }
}

#[test]
fn acceptance_job_045_an_index_is_retried_up_to_its_limit() {
    let spec = || indexed(json!({ "backoffLimitPerIndex": 1 }));
    let once = pods([pod("a").index(0).failures(0).failed(-30)]);
    let plan = decide(spec(), json!({}), &once, INPUTS);
    let PodChange::Create(Creation { pods: new, reason }) = &plan.pods else { panic!("{plan:?}") };
    let told: Vec<_> = new.iter().map(|it| (it.index.unwrap(), it.failures.unwrap().counted)).collect();
    assert_eq!((told, *reason), (vec![(0, 1), (1, 0), (2, 0), (3, 0)], "recreate_terminating_or_failed"));

    let twice = pods([pod("a").index(0).failures(1).failed(-30)]);
    assert_eq!(done(spec(), json!({}), &twice), "create 1 2 3");
    assert_eq!(done(spec(), json!({ "failedIndexes": "0,2" }), &[]), "create 1 3");
}

#[test]
fn acceptance_job_049_each_index_has_its_own_back_off() {
    let spec = || indexed(json!({ "backoffLimitPerIndex": 5, "completions": 3, "parallelism": 3 }));
    let failed = |name: &str, index, failures, at| pod(name).index(index).failures(failures).failed(at);
    let some = pods([failed("a", 0, 0, -12), failed("b", 1, 1, -12), failed("c", 2, 2, -12)]);
    let plan = decide(spec(), json!({}), &some, INPUTS);
    assert_eq!((what(&plan, &some).as_str(), plan.requeue_after), ("create 0", Some(Duration::from_secs(8))));
    let all = pods([failed("a", 0, 0, -2), failed("b", 1, 1, -2), failed("c", 2, 2, -2)]);
    let plan = decide(spec(), json!({}), &all, INPUTS);
    assert_eq!((what(&plan, &all).as_str(), plan.requeue_after), ("keep", Some(Duration::from_secs(8))));
}

#[test]
fn indexes_in_back_off_do_not_block_later_indexes() {
    let spec = || indexed(json!({ "backoffLimitPerIndex": 5, "parallelism": 2 }));
    let failed = |index, at| pod("a").index(index).failures(0).failed(at);
    let sec = Duration::from_secs;
    for (name, completed, first, want, again) in [
        ("free indexes replace those in back-off", "", -4, "create 2 3", None),
        ("too few are free", "2", -4, "create 3", Some(sec(6))),
        ("the back-off of one index is over", "2-3", -12, "create 0", Some(sec(8))),
        ("all are in back-off", "2-3", -4, "keep", Some(sec(6))),
    ] {
        let all = pods([failed(0, first), failed(1, -2)]);
        let plan = decide(spec(), json!({ "completedIndexes": completed }), &all, INPUTS);
        assert_eq!((what(&plan, &all).as_str(), plan.requeue_after), (want, again), "{name}");
    }
}

#[test]
fn acceptance_job_047_the_replacement_of_a_deleted_pod_has_its_failure_count() {
    let spec = indexed(json!({ "backoffLimitPerIndex": 5, "completions": 1 }));
    let deleted = pods([pod("a").index(0).failures(2).failed(-60).deleting()]);
    let plan = decide(spec, json!({}), &deleted, INPUTS);
    let PodChange::Create(creation) = &plan.pods else { panic!("{plan:?}") };
    assert_eq!(creation.pods, [NewPod { index: Some(0), failures: Some(Failures { counted: 3, ignored: 0 }) }]);
}

#[test]
fn failure_counts_have_a_maximum() {
    let spec = indexed(json!({ "backoffLimitPerIndex": i32::MAX, "completions": 1, "backoffLimit": i32::MAX }));
    let most = i32::MAX.unsigned_abs();
    let failed = pods([pod("a").index(0).failures(most).failed(-700)]);
    // Such an index has failed; the function is called directly here.
    let job = job(spec, json!({}));
    let snapshot = snapshot_of(&job, &failed, INPUTS);
    let none = crate::rules::indexes::Indexes::default();
    let last_failed_pods = crate::rules::per_index_backoff::LastFailedPods::of(&snapshot, &none, &none);
    assert_eq!(
        last_failed_pods.failures(&snapshot, 0),
        Failures { counted: most, ignored: 0 },
        "the maximum that can be decoded again"
    );
}

#[test]
fn an_ignored_failure_of_an_index_is_counted_as_ignored() {
    let rules = json!([{ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }]);
    let spec = indexed(json!({ "backoffLimitPerIndex": 0, "completions": 1, "podFailurePolicy": { "rules": rules } }));
    let evicted = pod("a").index(0).failures(0).failed(-60).condition("DisruptionTarget", "True", -60);
    let plan = decide(spec, json!({}), &pods([evicted]), INPUTS);
    let PodChange::Create(creation) = &plan.pods else { panic!("{plan:?}") };
    assert_eq!(creation.pods[0].failures, Some(Failures { counted: 0, ignored: 1 }));
}

#[test]
fn acceptance_job_050_a_smaller_job_drops_indexes_out_of_range_and_a_larger_one_runs_them_again() {
    let sized = |size: u32| indexed(json!({ "completions": size, "parallelism": size }));
    let stored = || json!({ "completedIndexes": "0-2", "succeeded": 3 });
    let small = decide(sized(1), stored(), &[], INPUTS);
    assert_eq!((small.tally.succeeded, what(&small, &[]).as_str()), (1, "keep"));
    assert_eq!(done(sized(3), json!({ "completedIndexes": "0", "succeeded": 1 }), &[]), "create 1 2");
    assert_eq!(done(sized(1), stored(), &pods([pod("a").index(2)])), "delete a");
}

#[test]
fn acceptance_job_054_with_replacement_policy_failed_a_pod_is_replaced_when_it_has_ended() {
    let spec = || json!({ "podReplacementPolicy": "Failed", "parallelism": 1 });
    let going = pods([pod("a").running().deleting()]);
    let plan = decide(spec(), json!({}), &going, INPUTS);
    assert_eq!((what(&plan, &going).as_str(), plan.tally.failed), ("keep", 0));
    assert_eq!(plan.waiting, Some(CreationWaitCause::Terminating));
    let ended = pods([pod("a").failed(-11).deleting()]);
    let plan = decide(spec(), json!({}), &ended, INPUTS);
    let PodChange::Create(creation) = &plan.pods else { panic!("{plan:?}") };
    assert_eq!((creation.pods.len(), creation.reason, plan.tally.failed), (1, "recreate_failed", 1));
}

#[test]
fn acceptance_job_055_more_may_be_terminating_than_are_wanted() {
    let going = pods([pod("a").running().deleting(), pod("b").running().deleting(), pod("c").running().deleting()]);
    assert_eq!(done(json!({ "podReplacementPolicy": "Failed", "parallelism": 1 }), json!({}), &going), "keep");
}

#[test]
fn an_index_with_a_terminating_pod_is_not_free_with_replacement_policy_failed() {
    let spec = indexed(json!({ "podReplacementPolicy": "Failed", "parallelism": 3 }));
    assert_eq!(done(spec, json!({}), &pods([pod("a").index(0).running().deleting()])), "create 1 2");
}

#[test]
fn acceptance_job_021_a_pod_that_a_user_deletes_has_failed_and_is_replaced() {
    let going = pods([pod("a").running().deleting(), pod("b").ready()]);
    let inputs = SnapshotInputs { now: crate::rules::moment::Moment((NOW + 10) * 1_000), ..INPUTS };
    let plan = decide(json!({}), json!({}), &going, inputs);
    assert_eq!((what(&plan, &going).as_str(), plan.tally.failed), ("create 1", 1));
}

#[test]
fn an_active_pod_without_finalizer_is_replaced() {
    for (name, spec, some, want) in [
        ("as many as wanted", json!({}), vec![pod("a").ready().without_finalizer(), pod("b")], "delete a"),
        ("fewer than wanted", json!({}), vec![pod("a").ready().without_finalizer()], "delete a"),
        (
            "more than wanted",
            json!({}),
            vec![pod("a"), pod("b").ready().without_finalizer(), pod("c").ready()],
            "delete b",
        ),
        ("it is already being deleted", json!({}), vec![pod("a").without_finalizer().deleting(), pod("b")], "create 1"),
        (
            "of an index",
            indexed(json!({ "parallelism": 2 })),
            vec![pod("a").index(0).without_finalizer(), pod("b").index(1)],
            "delete a",
        ),
        (
            "of an index with another active pod",
            indexed(json!({ "parallelism": 2 })),
            vec![pod("a").index(0).ready().without_finalizer(), pod("b").index(0)],
            "delete a",
        ),
    ] {
        let some: Vec<Pod> = some.into_iter().map(PodBuilder::build).collect();
        assert_eq!(done(spec, json!({}), &some), want, "{name}");
    }
}

#[test]
fn an_untracked_replacement_does_not_take_over_the_failure_count() {
    let spec = indexed(json!({ "backoffLimitPerIndex": 1, "completions": 1, "parallelism": 1 }));
    let some = pods([pod("a").index(0).failures(0).failed(-30), pod("b").index(0).failures(1).without_finalizer()]);
    let plan = decide(spec, json!({}), &some, INPUTS);
    let indexes = plan.tally.indexes.as_ref().unwrap();
    assert!(indexes.last_failed_pods.has_failure_count(Some(0), 0));
    assert_eq!(what(&plan, &some), "delete b");
}

#[test]
fn acceptance_job_056_all_active_pods_are_deleted_when_the_job_is_suspended() {
    let some = pods([pod("a").ready(), pod("b"), pod("c").failed(-1), pod("d").deleting()]);
    assert_eq!(done(json!({ "suspend": true }), json!({}), &some), "suspend a b");
    let many =
        decide(json!({ "suspend": true, "parallelism": 600, "completions": 600 }), json!({}), &running(600), INPUTS);
    assert!(matches!(many.pods, PodChange::Suspend(pods) if pods.len() == 600), "without a limit");
}

#[test]
fn acceptance_job_059_a_job_created_suspended_gets_no_pods() {
    assert_eq!(done(json!({ "suspend": true }), json!({ "startTime": null }), &[]), "keep");
}

#[test]
fn acceptance_job_062_a_deleting_job_creates_and_deletes_no_pods() {
    for spec in [json!({}), json!({ "suspend": true }), json!({ "parallelism": 0 })] {
        let job = deleted(&job(spec, json!({})));
        let pods = running(1);
        let plan = plan(&snapshot_of(&job, &pods, INPUTS));
        assert_eq!((what(&plan, &pods).as_str(), plan.managed), ("keep", false));
    }
}

#[test]
fn a_job_is_requeued_for_its_deadline() {
    let again = |spec, pods: &[Pod]| decide(spec, json!({}), pods, INPUTS).requeue_after;
    assert_eq!(again(json!({ "activeDeadlineSeconds": 100 }), &running(2)), Some(Duration::from_secs(40)));
    let failed = pods([pod("a").failed(-3)]);
    assert_eq!(
        again(json!({ "activeDeadlineSeconds": 100 }), &failed),
        Some(Duration::from_secs(7)),
        "the earlier of both"
    );
    assert_eq!(again(json!({ "activeDeadlineSeconds": 100, "suspend": true }), &[]), None);
    assert_eq!(again(json!({}), &running(2)), None);
}

#[test]
fn the_creation_limit_stops_creations_and_is_the_waiting_reason() {
    let with_slots = |free_slots| SnapshotInputs { free_slots, ..INPUTS };
    let spec = || json!({ "parallelism": 3 });
    let plan = decide(spec(), json!({}), &[], with_slots(2));
    assert_eq!((what(&plan, &[]).as_str(), plan.waiting), ("create 2", Some(CreationWaitCause::CreationLimit)));
    let plan = decide(spec(), json!({}), &[], with_slots(0));
    assert_eq!((what(&plan, &[]).as_str(), plan.waiting), ("keep", Some(CreationWaitCause::CreationLimit)));
    let plan = decide(spec(), json!({}), &[], with_slots(3));
    assert_eq!((what(&plan, &[]).as_str(), plan.waiting), ("create 3", None));
    let later = SnapshotInputs { free_slots: 0, next_slot: Some(Duration::from_secs(7)), ..INPUTS };
    assert_eq!(decide(spec(), json!({}), &[], later).requeue_after, later.next_slot, "no other event will come");
}

#[test]
fn an_index_has_never_both_succeeded_and_failed() {
    let spec = || indexed(json!({ "backoffLimitPerIndex": 0 }));
    let outcome = |status, pods: &[Pod]| {
        let indexes = decide(spec(), status, pods, INPUTS).tally.indexes.unwrap();
        (indexes.succeeded.to_string(), indexes.failed.unwrap().to_string())
    };
    let both = pods([pod("a").index(0).failures(0).failed(-1), pod("b").index(0).succeeded(-1)]);
    assert_eq!(outcome(json!({}), &both), ("0".to_owned(), String::new()));
    assert_eq!(
        outcome(json!({ "failedIndexes": "0" }), &both),
        (String::new(), "0".to_owned()),
        "the stored index does not change"
    );
    assert_eq!(outcome(json!({ "completedIndexes": "0" }), &both), ("0".to_owned(), String::new()));
}

#[test]
fn a_job_suspended_before_its_deadline_does_not_fail_on_resume() {
    let suspended = json!({ "conditions": [true_condition("Suspended", "JobSuspended", "Job suspended")] });
    let plan = decide(json!({ "activeDeadlineSeconds": 30 }), suspended, &[], INPUTS);
    assert_eq!((plan.ending, plan.requeue_after), (None, Some(Duration::from_secs(30))));
}
