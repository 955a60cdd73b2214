mod walk;

use api::{Job, Pod};
use serde_json::json;

use super::*;
use crate::{
    rules::{
        plan::{PodChange, plan},
        snapshot::{ClaimedPod, SnapshotInputs, gather},
    },
    testing::{INPUTS, NOW, at, deleted, job, pod, pods, snapshot_of, true_condition},
};

/// One sync in which every deletion and creation succeeds.
fn pass<'a>(job: &'a Job, pods: &'a [Pod], inputs: SnapshotInputs) -> (Snapshot<'a>, Option<FirstStep>) {
    pass_with(snapshot_of(job, pods, inputs), |it| it)
}

fn pass_with<'a>(snapshot: Snapshot<'a>, spoil: impl FnOnce(Applied) -> Applied) -> (Snapshot<'a>, Option<FirstStep>) {
    let plan = plan(&snapshot);
    let applied = match &plan.pods {
        PodChange::Keep => Applied::default(),
        PodChange::End(gone) | PodChange::Suspend(gone) | PodChange::Delete(gone) => {
            Applied { deleted: gone.clone(), ..Applied::default() }
        }
        PodChange::Create(creation) => Applied { created: creation.pods.len(), ..Applied::default() },
    };
    let step = first_step(&snapshot, &plan, &spoil(applied));
    (snapshot, step)
}

fn names(snapshot: &Snapshot<'_>, positions: &[usize]) -> String {
    let names: Vec<&str> = positions.iter().map(|at| &*snapshot.job_pods[*at].pod.meta.name).collect();
    names.join(" ")
}

fn uids(list: &[Uid]) -> String {
    let names: Vec<String> = list.iter().map(|it| it.to_string().replace("uid-", "")).collect();
    names.join(" ")
}

/// Uncounted succeeded, uncounted failed, and the two counters.
fn counts(status: &JobStatus) -> (String, String, i32, i32) {
    let uncounted = status.uncounted.clone().unwrap_or_default();
    (uids(&uncounted.succeeded), uids(&uncounted.failed), status.succeeded, status.failed)
}

fn counted(succeeded: &str, failed: &str, more: (i32, i32)) -> (String, String, i32, i32) {
    (succeeded.to_owned(), failed.to_owned(), more.0, more.1)
}

/// The Job with the status of this step.
fn with_status(job: &Job, step: &FirstStep) -> Job {
    let mut job = job.clone();
    job.status = step.status.clone();
    job
}

/// The last step when all finalizers were removed.
fn last_step_of(snapshot: &Snapshot<'_>, step: FirstStep) -> LastStep {
    let removed = vec![true; step.finalizers_to_remove.len()];
    last_step(snapshot, step, &removed, INPUTS.now)
}

#[test]
fn acceptance_job_012_an_ended_pod_is_in_the_status_before_its_finalizer_is_removed() {
    let job = job(json!({}), json!({}));
    let some = pods([pod("a").succeeded(-1), pod("b").failed(-20), pod("c").ready()]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert!(step.write);
    assert_eq!(counts(&step.status), counted("a", "b", (0, 0)));
    assert_eq!(names(&snapshot, &step.finalizers_to_remove), "a b");
    let last = last_step_of(&snapshot, step);
    assert!(last.status.is_none() && last.finished.is_none(), "the next sync does the rest");
}

#[test]
fn acceptance_job_014_a_removed_finalizer_moves_its_pod_to_the_counter() {
    let job =
        job(json!({}), json!({ "uncountedTerminatedPods": { "succeeded": ["uid-a"], "failed": ["uid-b", "uid-c"] } }));
    let some = pods([
        pod("a").succeeded(-1).without_finalizer(),
        pod("b").failed(-20).without_finalizer(),
        pod("c").failed(-20),
        pod("d").ready(),
    ]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert!(step.write);
    assert_eq!(counts(&step.status), counted("", "c", (1, 1)));
    assert_eq!(names(&snapshot, &step.finalizers_to_remove), "c", "counted once, and its finalizer removed again");
}

#[test]
fn acceptance_job_015_an_uncounted_pod_that_is_gone_is_counted() {
    let job = job(json!({}), json!({ "uncountedTerminatedPods": { "succeeded": ["uid-a"], "failed": ["uid-b"] } }));
    let (_, step) = pass(&job, &[], INPUTS);
    assert_eq!(counts(&step.unwrap().status), counted("", "", (1, 1)));
}

#[test]
fn acceptance_job_013_a_crash_before_the_finalizer_removal_counts_nothing_twice() {
    let job = job(json!({}), json!({ "active": 2, "uncountedTerminatedPods": { "succeeded": ["uid-a"] } }));
    let some = pods([pod("a").succeeded(-1), pod("b"), pod("c")]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert!(!step.write, "the status already lists it");
    assert_eq!(names(&snapshot, &step.finalizers_to_remove), "a");
    assert_eq!(counts(&step.status), counted("a", "", (0, 0)));
}

#[test]
fn acceptance_job_017_removed_finalizers_are_counted_though_others_remain() {
    let job = job(json!({ "completions": 3 }), json!({}));
    let some = pods([pod("a").succeeded(-1), pod("b").succeeded(-1), pod("c").succeeded(-1)]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert_eq!(counts(&step.status), counted("a b c", "", (0, 0)));
    let last = last_step(&snapshot, step, &[true, false, true], INPUTS.now);
    assert_eq!(counts(&last.status.unwrap()), counted("b", "", (2, 0)));
    assert!(last.finished.is_none());
}

#[test]
fn a_succeeded_index_with_a_remaining_finalizer_does_not_end_the_job() {
    let job = job(json!({ "completionMode": "Indexed", "completions": 1 }), json!({}));
    let some = pods([pod("a").index(0).succeeded(-1)]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    assert!(last_step(&snapshot, step.unwrap(), &[false], INPUTS.now).finished.is_none());
    let (snapshot, step) = pass(&job, &some, INPUTS);
    assert!(last_step_of(&snapshot, step.unwrap()).finished.is_some());
}

#[test]
fn acceptance_job_018_one_status_lists_five_hundred_pods_and_the_rest_later() {
    let many: Vec<Pod> = (0..501).map(|it| pod(&it.to_string()).succeeded(-1).build()).collect();
    let job = job(json!({ "completions": 501 }), json!({}));
    let (snapshot, step) = pass(&job, &many, INPUTS);
    let step = step.unwrap();
    assert_eq!((step.status.uncounted.as_ref().unwrap().len(), step.finalizers_to_remove.len()), (500, 500));
    assert!(last_step_of(&snapshot, step).finished.is_none());

    let indexed: Vec<Pod> = (0..501).rev().map(|it| pod(&it.to_string()).index(it).succeeded(-1).build()).collect();
    let job = self::job(json!({ "completions": 501, "completionMode": "Indexed" }), json!({}));
    let (snapshot, step) = pass(&job, &indexed, INPUTS);
    let step = step.unwrap();
    assert_eq!((&*step.status.completed_indexes, step.finalizers_to_remove.len()), ("0-500", 500));
    assert_eq!(snapshot.job_pods[step.finalizers_to_remove[0]].index(), Some(0), "in their order");
    assert!(last_step_of(&snapshot, step).finished.is_none());
}

#[test]
fn postponed_failures_are_reported_and_backed_off_once() {
    let rules = json!([{ "action": "Count", "onExitCodes": { "operator": "In", "values": [1] } }]);
    let spec = json!({ "completions": 900, "backoffLimit": 9_000, "podFailurePolicy": { "rules": rules } });
    let job = job(spec, json!({}));
    let many: Vec<Pod> = (0..600).map(|it| pod(&it.to_string()).failed(-1).build()).collect();
    let (_, step) = pass(&job, &many, INPUTS);
    let step = step.unwrap();
    assert_eq!((step.finalizers_to_remove.len(), step.actions.len(), step.backoff.failures), (500, 500, 500));
}

#[test]
fn pods_listed_in_a_full_status_still_lose_their_finalizer() {
    let named: Vec<String> = (0..500).map(|it| format!("uid-{it}")).collect();
    let job = job(json!({ "completions": 900 }), json!({ "uncountedTerminatedPods": { "succeeded": named } }));
    let many: Vec<Pod> = (0..501).map(|it| pod(&it.to_string()).succeeded(-1).build()).collect();
    let (_, step) = pass(&job, &many, INPUTS);
    assert_eq!(step.unwrap().finalizers_to_remove.len(), 500);
}

#[test]
fn acceptance_job_019_a_pod_with_a_pending_finalizer_removal_is_not_counted_again() {
    let job = job(json!({ "parallelism": 1 }), json!({ "succeeded": 1, "active": 1, "failed": 1 }));
    let some = pods([pod("a").succeeded(-1), pod("b").failed(-1), pod("c")]);
    let is_removal_pending = |uid: &Uid| *uid != Uid::new("uid-c");
    let snapshot = gather(&job, some.iter().map(|pod| ClaimedPod { pod, adopted: false }), is_removal_pending, INPUTS);
    let plan = plan(&snapshot);
    assert_eq!((plan.tally.succeeded, plan.tally.failed), (1, 1));
    let (_, step) = pass_with(snapshot, |it| it);
    assert!(step.is_none(), "{step:?}");
}

#[test]
fn acceptance_job_020_a_pod_listed_as_failed_stays_failed() {
    let job =
        job(json!({ "parallelism": 1 }), json!({ "active": 1, "uncountedTerminatedPods": { "failed": ["uid-a"] } }));
    let some = pods([pod("a").succeeded(-1), pod("b")]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert_eq!(counts(&step.status), counted("", "a", (0, 0)));
    assert_eq!(names(&snapshot, &step.finalizers_to_remove), "a");

    let job = self::job(
        json!({ "completionMode": "Indexed", "parallelism": 1 }),
        json!({ "active": 1, "uncountedTerminatedPods": { "failed": ["uid-a"] } }),
    );
    let some = pods([pod("a").index(0).succeeded(-1), pod("b").index(1)]);
    let (_, step) = pass(&job, &some, INPUTS);
    assert_eq!(&*step.unwrap().status.completed_indexes, "");
}

#[test]
fn acceptance_job_021_a_deleted_pod_counts_as_failed_at_once() {
    let job = job(json!({}), json!({}));
    let some = pods([pod("a").running().deleting(), pod("b")]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert_eq!(counts(&step.status), counted("", "a", (0, 0)));
    assert_eq!((names(&snapshot, &step.finalizers_to_remove).as_str(), step.status.terminating), ("a", Some(1)));
}

#[test]
fn acceptance_job_023_no_pod_of_a_deleted_job_keeps_the_finalizer() {
    let job = deleted(&job(json!({}), json!({})));
    let some = pods([pod("a").ready(), pod("b").failed(-1), pod("c").running().deleting(), pod("d").succeeded(-1)]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert_eq!(names(&snapshot, &step.finalizers_to_remove), "a b c d");
    assert_eq!(counts(&step.status), counted("d", "b c", (0, 0)), "active pods are not counted");
    let many: Vec<Pod> = (0..600).map(|it| pod(&it.to_string()).ready().build()).collect();
    assert_eq!(pass(&job, &many, INPUTS).1.unwrap().finalizers_to_remove.len(), 600, "all in one sync");
}

#[test]
fn acceptance_job_062_a_suspended_deleted_job_gets_no_condition() {
    let job = deleted(&job(json!({ "suspend": true }), json!({})));
    let some = pods([pod("a").ready()]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert!(step.status.conditions.is_empty() && step.suspended.is_none());
    assert_eq!(names(&snapshot, &step.finalizers_to_remove), "a");
}

#[test]
fn acceptance_job_007_ended_pods_are_counted_with_unfulfilled_expectations() {
    let job = job(json!({}), json!({}));
    let some = pods([pod("a").succeeded(-1)]);
    let (snapshot, step) = pass(&job, &some, SnapshotInputs { unseen: Unseen::Writes, ..INPUTS });
    let step = step.unwrap();
    assert_eq!(
        (counts(&step.status), names(&snapshot, &step.finalizers_to_remove)),
        (counted("a", "", (0, 0)), "a".to_owned())
    );
}

#[test]
fn acceptance_job_003_a_job_starts_once() {
    let fresh = job(json!({}), json!({ "startTime": null, "ready": null, "terminating": null }));
    assert_eq!(pass(&fresh, &[], INPUTS).1.unwrap().status.start, Some(NOW));
    let started = job(json!({}), json!({}));
    assert_eq!(pass(&started, &[], INPUTS).1.unwrap().status.start, Some(NOW - 60));
    let suspended = job(json!({ "suspend": true }), json!({ "startTime": null, "ready": null }));
    assert_eq!(pass(&suspended, &[], INPUTS).1.unwrap().status.start, None);
}

#[test]
fn acceptance_job_028_failed_is_set_after_failure_target_and_when_no_pod_remains() {
    let spec = || json!({ "backoffLimit": 0, "parallelism": 3 });
    let job = self::job(spec(), json!({ "active": 3 }));
    let some = pods([pod("a").failed(-1), pod("b").ready(), pod("c")]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert!(step.write && step.status.is_condition_true("FailureTarget") && !step.status.is_condition_true("Failed"));
    assert_eq!(
        (counts(&step.status), step.status.active),
        (counted("", "a b c", (0, 0)), 2),
        "all fail because the Job fails"
    );
    assert_eq!(
        (names(&snapshot, &step.finalizers_to_remove), names(&snapshot, &step.finalizers_of_deleted)),
        ("a".into(), "b c".into())
    );
    let stored = with_status(&job, &step);
    assert!(last_step_of(&snapshot, step).finished.is_none());

    // The deletions were rejected.
    let (snapshot, step) = pass(&stored, &some[1..], INPUTS);
    let step = step.unwrap();
    assert_eq!(counts(&step.status), counted("", "b c", (0, 1)), "counted once");
    let JobStatus { active, ready, terminating, .. } = &step.status;
    assert_eq!((*active, *ready, *terminating), (0, Some(0), Some(2)));
    assert_eq!(names(&snapshot, &step.finalizers_to_remove), "b c");
    assert!(last_step_of(&snapshot, step).status.is_none());

    let announced =
        json!({ "failed": 3, "conditions": [true_condition("FailureTarget", "BackoffLimitExceeded", "m")] });
    let job = self::job(spec(), announced);
    let going = pods([pod("b").running().without_finalizer().deleting()]);
    let (_, step) = pass(&job, &going, INPUTS);
    assert_eq!(step.unwrap().status.terminating, Some(1));
    let (snapshot, step) = pass(&job, &[], INPUTS);
    let step = step.unwrap();
    assert!(!step.write, "the last write contains everything");
    let LastStep { status, finished } = last_step_of(&snapshot, step);
    let (status, finished) = (status.unwrap(), finished.unwrap());
    assert!(
        status.is_condition_true("Failed") && status.is_condition_true("FailureTarget") && status.completion.is_none()
    );
    assert_eq!((&*finished.reason, &*finished.message, finished.succeeded), ("BackoffLimitExceeded", "m", false));
}

#[test]
fn the_interim_condition_is_set_at_once_and_the_end_when_all_is_deleted_and_observed() {
    let spec = || json!({ "backoffLimit": 0, "completionMode": "Indexed" });
    let unseen = SnapshotInputs { unseen: Unseen::Writes, ..INPUTS };
    let fresh = job(spec(), json!({ "active": 1 }));
    let some = pods([pod("a").index(0).failed(-1), pod("b").index(1).ready()]);
    assert!(pass(&fresh, &some, unseen).1.unwrap().status.is_condition_true("FailureTarget"));

    let announced = json!({ "active": 1, "failed": 1, "conditions": [true_condition("FailureTarget", "R", "m")] });
    let job = self::job(spec(), announced);
    let (snapshot, step) = pass_with(snapshot_of(&job, &some[1..], INPUTS), |_| Applied::default());
    assert!(
        step.is_none_or(|it| it.finalizers_to_remove.is_empty() && last_step_of(&snapshot, it).finished.is_none()),
        "the deleted pod still runs"
    );
    let ends = |inputs| {
        pass(&job, &[], inputs).1.is_some_and(|it| last_step_of(&snapshot_of(&job, &[], inputs), it).finished.is_some())
    };
    assert!(ends(INPUTS) && !ends(unseen));
}

#[test]
fn pods_deleted_with_the_job_do_not_fail_their_index() {
    let announced = || {
        json!({ "active": 2, "failedIndexes": "0",
        "conditions": [true_condition("FailureTarget", "MaxFailedIndexesExceeded", "m")] })
    };
    let job = job(json!({ "completionMode": "Indexed", "backoffLimitPerIndex": 0 }), announced());
    let some = pods([
        pod("a").index(1).failures(0).running().deleting(),
        pod("b").index(2).failures(0).failed(-1).deleting(),
        pod("c").index(3).failures(0).failed(-1),
    ]);
    let step = pass(&job, &some, INPUTS).1.unwrap();
    assert_eq!(step.status.failed_indexes.as_deref(), Some("0,3"), "the last pod was not deleted by the Job");
    assert_eq!(counts(&step.status), counted("", "a b c", (0, 0)));
}

#[test]
fn acceptance_job_035_the_pod_that_fails_the_job_keeps_its_finalizer_until_the_reason_is_stored() {
    let rules = json!([{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [1] } }]);
    let job = job(json!({ "podFailurePolicy": { "rules": rules } }), json!({}));
    let some = pods([pod("a").failed(-1), pod("b").ready()]);
    let (snapshot, step) = pass(&job, &some, SnapshotInputs { unseen: Unseen::Writes, ..INPUTS });
    let step = step.unwrap();
    assert_eq!((names(&snapshot, &step.finalizers_to_remove).as_str(), &*step.actions), ("a", &["FailJob"][..]));
    assert_eq!(
        &*step.status.condition("FailureTarget").unwrap().reason,
        "PodFailurePolicy",
        "its finalizer is removed once it is stored"
    );
}

#[test]
fn acceptance_job_001_a_job_completes_with_time_reason_and_both_conditions() {
    let job = job(json!({}), json!({ "succeeded": 3, "active": 1 }));
    let some = pods([pod("a").succeeded(-1)]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    let announced = step.status.condition("SuccessCriteriaMet").unwrap();
    assert_eq!((&*announced.reason, announced.last_transition), ("CompletionsReached", Some(NOW)));
    assert!(!step.status.is_condition_true("Complete"));
    let LastStep { status, finished } = last_step_of(&snapshot, step);
    let (status, finished) = (status.unwrap(), finished.unwrap());
    let complete = status.condition("Complete").unwrap();
    assert_eq!(&*complete.message, "Reached expected number of succeeded pods");
    assert_eq!((status.completion, complete.last_transition), (Some(NOW), Some(NOW)));
    assert_eq!(counts(&status), counted("", "", (4, 0)));
    assert_eq!((finished.succeeded, finished.too_many), (true, false));
}

#[test]
fn acceptance_job_002_a_job_without_completions_completes_when_none_is_active() {
    let job = job(json!({ "completions": null, "parallelism": 5 }), json!({ "active": 2 }));
    let some = pods([pod("a").succeeded(-1), pod("b").running()]);
    assert!(!pass(&job, &some, INPUTS).1.unwrap().status.is_condition_true("SuccessCriteriaMet"));
    assert!(pass(&job, &some[..1], INPUTS).1.unwrap().status.is_condition_true("SuccessCriteriaMet"));
    let unseen = SnapshotInputs { unseen: Unseen::Writes, ..INPUTS };
    let step = pass(&job, &some[..1], unseen).1.unwrap();
    assert!(!step.status.is_condition_true("SuccessCriteriaMet"), "an unobserved pod may be active");
}

#[test]
fn a_creation_with_unknown_outcome_delays_only_the_terminal_condition() {
    let job =
        job(json!({ "completions": null, "parallelism": 3, "activeDeadlineSeconds": 60 }), json!({ "active": 1 }));
    let some = pods([pod("a").succeeded(-1)]);
    let before = SnapshotInputs { now: Moment((NOW - 10) * 1_000), unseen: Unseen::UnknownCreates, ..INPUTS };
    let (snapshot, step) = pass(&job, &some, before);
    let step = step.unwrap();
    let stored = with_status(&job, &step);
    assert!(stored.status.is_condition_true("SuccessCriteriaMet"));
    assert!(last_step_of(&snapshot, step).finished.is_none(), "the unknown pod may exist");
    let after = SnapshotInputs { now: Moment((NOW + 100) * 1_000), ..INPUTS };
    let (snapshot, step) = pass(&stored, &some, after);
    let finished = last_step_of(&snapshot, step.unwrap()).finished.unwrap();
    assert!(finished.succeeded, "the deadline is over, but the Job had succeeded before: {finished:?}");
}

#[test]
fn a_pod_that_a_user_deletes_after_it_has_ended_is_counted_after_the_announcement() {
    let announced =
        true_condition("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods");
    let job = job(json!({ "completions": 1 }), json!({ "conditions": [announced] }));
    // `deleting` means that the deletion was requested at -5 s.
    for (one, want) in [
        (pod("a").succeeded(-6).deleting(), counted("a", "", (0, 0))),
        (pod("a").failed(-6).deleting(), counted("", "a", (0, 0))),
        (pod("a").succeeded(-5).deleting(), counted("", "", (0, 0))),
        (pod("a").failed(-4).deleting(), counted("", "", (0, 0))),
    ] {
        let one = pods([one]);
        let step = pass(&job, &one, INPUTS).1.unwrap();
        assert_eq!((counts(&step.status), step.finalizers_to_remove.len()), (want, 1), "{one:?}");
    }
}

#[test]
fn acceptance_job_069_more_successes_than_completions_are_reported() {
    let job = job(json!({ "completions": 1 }), json!({}));
    let some = pods([pod("a").succeeded(-1), pod("b").succeeded(-1)]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    assert!(last_step_of(&snapshot, step.unwrap()).finished.unwrap().too_many);
}

#[test]
fn acceptance_job_051_active_pods_are_not_counted_when_a_success_policy_is_fulfilled() {
    let spec = json!({ "completionMode": "Indexed", "successPolicy": { "rules": [{ "succeededIndexes": "1" }] } });
    let job = job(spec, json!({ "active": 2 }));
    let some = pods([pod("a").index(0).running(), pod("b").index(1).succeeded(-1), pod("c").index(2).failed(-1)]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert_eq!(counts(&step.status), counted("", "c", (1, 0)));
    assert_eq!(&*step.status.condition("SuccessCriteriaMet").unwrap().reason, "SuccessPolicy");
    assert_eq!(names(&snapshot, &step.finalizers_to_remove), "b c");
    let stored = with_status(&job, &step);
    assert!(last_step_of(&snapshot, step).finished.is_none(), "one pod is active");
    let (snapshot, step) = pass(&stored, &some[..1], INPUTS);
    let step = step.unwrap();
    assert_eq!(
        (counts(&step.status), names(&snapshot, &step.finalizers_to_remove)),
        (counted("", "", (1, 1)), "a".to_owned())
    );
    assert!(last_step_of(&snapshot, step).finished.is_none(), "one is terminating");

    // The manager crashed before it removed the finalizer of the active pod.
    let announced = json!({ "succeeded": 1, "completedIndexes": "1",
        "conditions": [true_condition("SuccessCriteriaMet", "SuccessPolicy", "m")] });
    let job = self::job(json!({ "completionMode": "Indexed" }), announced);
    let left = pods([pod("a").index(0).running().deleting()]);
    let (snapshot, step) = pass(&job, &left, INPUTS);
    let step = step.unwrap();
    assert_eq!(
        (counts(&step.status), names(&snapshot, &step.finalizers_to_remove)),
        (counted("", "", (1, 0)), "a".to_owned())
    );
}

#[test]
fn acceptance_job_047_a_failed_pod_keeps_its_finalizer_until_its_replacement_is_active() {
    let spec = || json!({ "completionMode": "Indexed", "backoffLimitPerIndex": 5, "completions": 1 });
    let job = self::job(spec(), json!({ "active": 1, "failedIndexes": "" }));
    let alone = pods([pod("a").index(0).failures(0).failed(-60).deleting()]);
    let (snapshot, step) = pass(&job, &alone, INPUTS);
    assert!(step.is_none_or(|it| names(&snapshot, &it.finalizers_to_remove).is_empty()));
    let replaced = pods([pod("a").index(0).failures(0).failed(-60).deleting(), pod("b").index(0).failures(1)]);
    let (snapshot, step) = pass(&job, &replaced, INPUTS);
    let step = step.unwrap();
    assert_eq!(
        (names(&snapshot, &step.finalizers_to_remove).as_str(), counts(&step.status)),
        ("a", counted("", "a", (0, 0)))
    );
    let two = pods([pod("a").index(0).failures(0).failed(-60), pod("b").index(0).failures(1).failed(-60)]);
    let (snapshot, step) = pass(&job, &two, INPUTS);
    assert_eq!(
        names(&snapshot, &step.unwrap().finalizers_to_remove),
        "a",
        "only the pod with the highest failure count keeps its finalizer"
    );
}

#[test]
fn acceptance_job_045_the_pod_of_a_failed_index_loses_its_finalizer() {
    let spec = json!({ "completionMode": "Indexed", "backoffLimitPerIndex": 1, "completions": 2 });
    let job = job(spec, json!({}));
    let some = pods([pod("a").index(0).failures(1).failed(-60), pod("b").index(1)]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert_eq!(
        (step.status.failed_indexes.as_deref(), names(&snapshot, &step.finalizers_to_remove).as_str()),
        (Some("0"), "a")
    );
}

#[test]
fn acceptance_job_037_an_ignored_failure_loses_its_finalizer_without_being_counted() {
    let rules = json!([{ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }]);
    let job = job(json!({ "podFailurePolicy": { "rules": rules }, "parallelism": 1 }), json!({ "active": 1 }));
    let some = pods([pod("a").failed(-60).condition("DisruptionTarget", "True", -60), pod("b")]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert_eq!(
        (counts(&step.status), names(&snapshot, &step.finalizers_to_remove)),
        (counted("", "", (0, 0)), "a".to_owned())
    );
    assert_eq!(step.actions, ["Ignore"]);
}

#[test]
fn acceptance_job_054_a_deleted_pod_is_terminating_until_it_has_ended() {
    let job = job(json!({ "podReplacementPolicy": "Failed", "parallelism": 1 }), json!({ "active": 1 }));
    let going = pods([pod("a").running().deleting()]);
    let (snapshot, step) = pass(&job, &going, INPUTS);
    let step = step.unwrap();
    assert_eq!(
        (step.status.active, step.status.terminating, names(&snapshot, &step.finalizers_to_remove).as_str()),
        (0, Some(1), "")
    );
    assert_eq!(counts(&step.status), counted("", "", (0, 0)));
    let ended = pods([pod("a").failed(-60).deleting()]);
    let step = pass(&job, &ended, INPUTS).1.unwrap();
    assert_eq!((counts(&step.status), step.status.active), (counted("", "a", (0, 0)), 1));
}

#[test]
fn acceptance_job_056_pods_of_a_suspended_job_are_not_counted_and_the_start_time_is_cleared() {
    let job = job(json!({ "suspend": true }), json!({ "active": 2, "ready": 1 }));
    let some = pods([pod("a").ready(), pod("b")]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert_eq!((step.suspended, step.status.start, step.status.active), (Some(true), None, 0));
    assert_eq!((step.status.ready, step.status.terminating), (Some(0), Some(2)));
    assert_eq!(&*step.status.condition("Suspended").unwrap().message, "Job suspended");
    assert_eq!(
        (counts(&step.status), names(&snapshot, &step.finalizers_to_remove)),
        (counted("", "", (0, 0)), String::new())
    );
}

#[test]
fn acceptance_job_058_a_resumed_job_gets_a_new_start_time() {
    let suspended =
        json!({ "startTime": null, "conditions": [true_condition("Suspended", "JobSuspended", "Job suspended")] });
    let (_, step) = pass(&job(json!({}), suspended), &[], INPUTS);
    let step = step.unwrap();
    assert_eq!((step.suspended, step.status.start, step.status.active), (Some(false), Some(NOW), 2));
    let condition = step.status.condition("Suspended").unwrap();
    assert_eq!((condition.status.as_str(), &*condition.reason), ("False", "JobResumed"));
    assert_eq!(condition.last_transition, Some(NOW));
    let never = pass(&job(json!({}), json!({})), &[], INPUTS).1.unwrap();
    assert!(never.status.conditions.is_empty(), "the condition is not created as false");
}

#[test]
fn acceptance_job_060_a_suspended_job_with_zero_completions_completes() {
    let job = job(json!({ "suspend": true, "completions": 0 }), json!({ "startTime": null }));
    let (snapshot, step) = pass(&job, &[], INPUTS);
    let step = step.unwrap();
    assert!(step.status.condition("Suspended").is_none(), "the end takes precedence");
    let status = last_step_of(&snapshot, step).status.unwrap();
    assert_eq!((status.is_condition_true("Complete"), status.start), (true, None));
}

#[test]
fn acceptance_job_050_a_job_reduced_to_zero_completions_completes_with_the_remaining_counts() {
    let spec = |size: i32| json!({ "completionMode": "Indexed", "completions": size, "parallelism": size });
    let stored = json!({ "completedIndexes": "0-2", "succeeded": 3, "failed": 2 });
    let small = job(spec(1), stored.clone());
    let step = pass(&small, &[], INPUTS).1.unwrap();
    assert_eq!((&*step.status.completed_indexes, counts(&step.status)), ("0", counted("", "", (1, 2))));
    assert!(step.status.is_condition_true("SuccessCriteriaMet"));
    let none = job(spec(0), stored);
    assert!(pass(&none, &[], INPUTS).1.unwrap().status.is_condition_true("SuccessCriteriaMet"));
}

#[test]
fn a_job_with_reduced_completions_and_then_parallelism_has_a_valid_status() {
    let spec = json!({ "completionMode": "Indexed", "completions": 2, "parallelism": 1 });
    let job = job(spec, json!({ "completedIndexes": "0,2-4", "succeeded": 4 }));
    let some = pods([pod("a").index(1).failed(-20)]);
    let step = pass(&job, &some, INPUTS).1.unwrap();
    assert_eq!((&*step.status.completed_indexes, counts(&step.status)), ("0", counted("", "a", (4, 0))));
    assert!(step.ending.is_none());
    status::check(&job.spec, &job.status, &step.status).unwrap();
}

#[test]
fn acceptance_job_070_pods_that_this_sync_deletes_are_neither_active_nor_ready() {
    let job = job(json!({ "parallelism": 1 }), json!({ "active": 2, "ready": 2 }));
    let some = pods([pod("a").ready().created(-9), pod("b").ready().created(-8)]);
    let step = pass(&job, &some, INPUTS).1.unwrap();
    assert_eq!((step.status.active, step.status.ready, step.status.terminating), (1, Some(1), Some(1)));
    assert!(step.finalizers_to_remove.is_empty(), "the deletion removed its finalizer");
}

#[test]
fn acceptance_job_033_a_job_in_back_off_reports_its_active_pods() {
    let job = job(json!({}), json!({ "active": 2, "ready": 1 }));
    let some = pods([pod("a").failed(-1), pod("b").ready()]);
    let (snapshot, step) = pass(&job, &some, INPUTS);
    let step = step.unwrap();
    assert_eq!((step.status.active, step.status.ready), (1, Some(1)));
    assert_eq!(names(&snapshot, &step.finalizers_to_remove), "a");
    status::check(&job.spec, &job.status, &step.status).unwrap();
}

#[test]
fn a_job_without_changes_gets_no_write() {
    let job = job(json!({}), json!({ "active": 2, "ready": 2 }));
    let some = pods([pod("a").ready(), pod("b").ready()]);
    assert!(pass(&job, &some, INPUTS).1.is_none());
    let without = self::job(json!({}), json!({ "active": 2, "ready": 2, "uncountedTerminatedPods": null }));
    assert!(pass(&without, &some, INPUTS).1.is_none(), "an empty list is equal to a missing one");
}

#[test]
fn an_adopted_pod_counts_as_if_it_had_the_finalizer() {
    let job = job(json!({}), json!({}));
    let some = pods([pod("a").succeeded(-1).without_finalizer()]);
    let claimed = || some.iter().map(|pod| ClaimedPod { pod, adopted: true });
    let (snapshot, step) = pass_with(gather(&job, claimed(), |_| false, INPUTS), |it| it);
    assert_eq!(names(&snapshot, &step.unwrap().finalizers_to_remove), "a");
}

#[test]
fn a_finished_job_gets_a_start_time_not_after_its_completion_time() {
    let spec = || json!({ "suspend": true, "backoffLimit": 0 });
    let failed = json!({ "startTime": null, "failed": 1, "conditions": [true_condition("FailureTarget", "R", "m")] });
    let job = self::job(spec(), failed);
    let (snapshot, step) = pass(&job, &[], INPUTS);
    let first = step.unwrap();
    let stored = first.status.clone();
    let status = last_step_of(&snapshot, first).status.unwrap();
    assert_eq!(status.start, Some(NOW));
    status::check(&job.spec, &stored, &status).unwrap();

    let late = self::job(json!({ "completions": 1 }), json!({ "succeeded": 1, "startTime": at(30) }));
    let (snapshot, step) = pass(&late, &[], INPUTS);
    let status = last_step_of(&snapshot, step.unwrap()).status.unwrap();
    assert_eq!((status.completion, status.start), (Some(NOW + 30), Some(NOW + 30)));
}

/// The cost for a Job with ninety thousand completions does not depend on that number.
#[test]
fn the_cost_of_a_large_job_depends_on_its_pods_and_ranges() {
    let spec = json!({ "completionMode": "Indexed", "completions": 100_000, "parallelism": 500 });
    let job = job(spec, json!({ "completedIndexes": "0-89999", "succeeded": 90_000, "active": 500, "ready": 0 }));
    let some: Vec<Pod> = (90_000..90_500).map(|it| pod(&it.to_string()).index(it).build()).collect();
    let (snapshot, step) = pass(&job, &some, INPUTS);
    assert!(step.is_none() && snapshot.job_pods.len() == 500);
}
