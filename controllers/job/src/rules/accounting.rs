//! Decides which pods are counted, which finalizers are removed and when the Job has ended: the two pure steps of the
//! finalizer protocol (KEP-2307). The writes are between the steps.
//!
//! A finalizer may be removed only when the pod's uid, or for a success its index, is stored in the Job's status. So
//! [`first_step`] returns the status to store first and the finalizers to remove after that. [`last_step`] gets the
//! removed finalizers and returns the last status. After a crash in between, the next sync continues from the status: a
//! listed uid whose finalizer is gone moves to the counters and is never listed again.

use std::collections::HashSet;

use api::{Atom, ConditionStatus, JobStatus, Uid};

use crate::rules::{
    backoff::PodFailures,
    ending::{Ending, is_complete},
    failure_policy::policy_result,
    moment::Moment,
    plan::{Applied, Plan},
    snapshot::{Completion, FinalizerState, JobPod, Snapshot, State, Unseen},
    status,
    tally::{self, number},
};

/// The most uncounted pods plus new succeeded indexes in one status. Limits the size of the status and the duration of
/// a sync.
pub(crate) const MAX_UNCOUNTED: usize = 500;

/// The result of the first step.
#[derive(Debug)]
pub(crate) struct FirstStep {
    /// The status to store.
    pub(crate) status: JobStatus,
    /// The status has changed and must be stored before anything else.
    pub(crate) write: bool,
    /// The positions of the pods that lose their finalizer after that.
    pub(crate) finalizers_to_remove: Vec<usize>,
    /// The positions of the pods that are deleted because the Job ends. This status counts them in their present state;
    /// they lose the finalizer after the deletion.
    pub(crate) finalizers_of_deleted: Vec<usize>,
    /// The new value of the `Suspended` condition, if it has changed.
    pub(crate) suspended: Option<bool>,
    /// The failure policy actions, one entry per pod to which one applied.
    pub(crate) actions: Vec<&'static str>,
    /// The back-off, including the pods that this status counts.
    pub(crate) backoff: PodFailures,
    /// How the Job ends, if it ends.
    ending: Option<Ending>,
    /// No pod is active, and the caches show all writes.
    all_ended: bool,
    /// Pods that the status lists and that still have the finalizer.
    with_finalizer: HashSet<Uid>,
    /// More pods have ended than one status can take, so the Job must not end yet.
    has_more: bool,
}

/// The result of the last step.
#[derive(Debug)]
pub(crate) struct LastStep {
    /// The status to store; `None` if the stored one is sufficient. Then the next sync counts the uids.
    pub(crate) status: Option<JobStatus>,
    /// Set when the Job ends with this status.
    pub(crate) finished: Option<Finished>,
}

/// How a Job has ended, for the event and the metrics.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// Whether it has succeeded.
    pub(crate) succeeded: bool,
    /// The reason of the condition.
    pub(crate) reason: Atom,
    /// The message of the condition.
    pub(crate) message: Box<str>,
    /// More pods have succeeded than `completions`.
    pub(crate) too_many: bool,
}

/// The first step, after the plan's pod changes. `None` when neither the status nor a finalizer must change.
pub(crate) fn first_step(snapshot: &Snapshot<'_>, plan: &Plan, applied: &Applied) -> Option<FirstStep> {
    let now = snapshot.inputs.now;
    let active = snapshot.active.saturating_sub(applied.deleted.len()) + applied.created;
    let all_ended = active == 0 && snapshot.inputs.unseen == Unseen::Nothing;
    // A creation with unknown outcome is not waited for, because the deadline could be over meanwhile.
    let none_active = active == 0 && snapshot.inputs.unseen != Unseen::Writes;
    let is_completed = || none_active && is_complete(snapshot.job, plan.tally.succeeded);
    // Announced in the same sync, whatever happens to the pods. Only the final condition waits.
    let ending = plan.ending.clone().or_else(|| is_completed().then(Ending::completed));

    let mut next = snapshot.job.status.clone();
    status::set_counts(&mut next, snapshot, applied);
    if next.start.is_none() && !snapshot.job.spec.suspend {
        next.start = Some(now.seconds());
    }
    let is_complete = ending.as_ref().is_some_and(|it| plan.ending.is_none() && it.is_success());
    let suspended = if plan.managed && !is_complete { status::set_suspended(&mut next, snapshot) } else { None };

    let with_finalizer = with_finalizer(snapshot);
    next.uncounted.get_or_insert_default();
    move_to_counters(&mut next, &with_finalizer);
    let mut step = FirstStep {
        status: next,
        write: false,
        finalizers_to_remove: Vec::new(),
        finalizers_of_deleted: Vec::new(),
        suspended,
        actions: Vec::new(),
        backoff: plan.tally.backoff,
        ending,
        all_ended,
        with_finalizer,
        has_more: false,
    };
    step.count(snapshot, plan, applied);
    if let Some(indexes) = &plan.tally.indexes {
        let (succeeded, spec) = (i32::try_from(indexes.succeeded.len()).unwrap_or(i32::MAX), &snapshot.job.spec);
        // The API server rejects a smaller `succeeded`, except for an elastic Indexed Job (`completions` equal to
        // `parallelism`).
        let may_shrink = spec.completions == Some(spec.parallelism);
        step.status.succeeded = if may_shrink { succeeded } else { succeeded.max(snapshot.job.status.succeeded) };
        step.status.completed_indexes = indexes.succeeded.to_string().into();
        step.status.failed_indexes = indexes.failed.as_ref().map(|it| it.to_string().into());
    }
    if let Some(ending) = step.ending.as_ref().filter(|it| !it.announced) {
        let (announcement, _) = ending.conditions();
        status::set(&mut step.status, announcement, ConditionStatus::True, &ending.reason, &ending.message, now);
    }
    step.write = status::needs_write(&snapshot.job.status, &step.status) && !step.may_finish_in_one_write();
    (step.write || !step.finalizers_to_remove.is_empty() || step.may_end()).then_some(step)
}

/// The last step. `removed` has one entry per pod of `step.finalizers_to_remove`: whether its finalizer is gone.
pub(crate) fn last_step(snapshot: &Snapshot<'_>, step: FirstStep, removed: &[bool], now: Moment) -> LastStep {
    let may_end = step.may_end();
    let FirstStep { mut status, finalizers_to_remove, ending, mut with_finalizer, .. } = step;
    let all_removed = finalizers_to_remove.len() == removed.len() && removed.iter().all(|it| *it);
    for (at, _) in finalizers_to_remove.iter().zip(removed).filter(|(_, removed)| **removed) {
        with_finalizer.remove(&snapshot.job_pods[*at].pod.meta.uid);
    }
    let moved = move_to_counters(&mut status, &with_finalizer);
    let is_counted = status.uncounted.as_ref().is_none_or(api::UncountedPods::is_empty);
    match ending {
        Some(ending) if may_end && all_removed && is_counted => {
            status::set_finished(&mut status, &snapshot.job.spec, &ending, now);
            let wanted = snapshot.job.spec.completions.map(number);
            let finished = Finished {
                succeeded: ending.is_success(),
                too_many: ending.is_success() && wanted.is_some_and(|it| number(status.succeeded) > it),
                reason: ending.reason,
                message: ending.message,
            };
            LastStep { status: Some(status), finished: Some(finished) }
        }
        // The other removals will be retried, so the completed ones are stored now.
        _ if moved && !all_removed => LastStep { status: Some(status), finished: None },
        _ => LastStep { status: None, finished: None },
    }
}

/// Pods that the status lists and that still have the finalizer.
fn with_finalizer(snapshot: &Snapshot<'_>) -> HashSet<Uid> {
    let is_named =
        |it: &&JobPod<'_>| it.finalizer == FinalizerState::Present && snapshot.uncounted.contains(&it.pod.meta.uid);
    snapshot.job_pods.iter().filter(is_named).map(|it| it.pod.meta.uid.clone()).collect()
}

/// Moves the uids of pods without the finalizer to the counters. Returns true if there were any.
fn move_to_counters(status: &mut JobStatus, with_finalizer: &HashSet<Uid>) -> bool {
    let JobStatus { uncounted: Some(uncounted), succeeded, failed, .. } = status else { return false };
    let keep_with_finalizer = |list: &mut Vec<Uid>, counter: &mut i32| {
        let before = list.len();
        list.retain(|it| with_finalizer.contains(it));
        let gone = before - list.len();
        *counter = counter.saturating_add(i32::try_from(gone).unwrap_or(i32::MAX));
        gone > 0
    };
    // Both lists must be processed, so `||` must not skip the second.
    let (one, two) =
        (keep_with_finalizer(&mut uncounted.succeeded, succeeded), keep_with_finalizer(&mut uncounted.failed, failed));
    one || two
}

/// How a pod is counted when its finalizer is removed.
enum Count {
    Nothing,
    Success(Uid),
    Index,
    Failure(Uid),
}

impl FirstStep {
    /// Adds the pods that were deleted because the Job ends to the pods that lose their finalizer.
    pub(crate) fn select_deleted(&mut self, deleted: &[usize]) {
        let deleted: HashSet<usize> = deleted.iter().copied().collect();
        self.finalizers_to_remove.extend(self.finalizers_of_deleted.drain(..).filter(|at| deleted.contains(at)));
    }

    /// Counts ended pods and selects the finalizers to remove.
    fn count(&mut self, snapshot: &Snapshot<'_>, plan: &Plan, applied: &Applied) {
        // How a pod exits after our DELETE must not count (jobcontroller.trackJobStatusAndRemoveFinalizers).
        let to_delete: HashSet<usize> = plan.deletions_after_status().iter().copied().collect();
        let deleted: HashSet<usize> = applied.deleted.iter().chain(&to_delete).copied().collect();
        // The plan has already removed the finalizers of these pods.
        let has_lost_finalizer = |at: &usize| plan.removes_finalizers_first() && deleted.contains(at);
        let mut candidates: Vec<usize> = (0..snapshot.job_pods.len())
            .filter(|at| !has_lost_finalizer(at) && self.may_remove_finalizer(snapshot, plan, applied, &deleted, *at))
            .collect();
        if snapshot.job.is_indexed() {
            // Sorted, because `completedIndexes` is sorted.
            candidates.sort_by_key(|at| snapshot.job_pods[*at].index());
        }
        let (mut new_indexes, mut postponed) = (0, HashSet::new());
        for at in candidates {
            let actions = self.actions.len();
            let count = self.count_of(snapshot, plan, at);
            let uncounted = self.status.uncounted.get_or_insert_default();
            // Pods that the status lists already always lose the finalizer; otherwise they would block all others.
            if !matches!(count, Count::Nothing) && new_indexes + uncounted.len() >= MAX_UNCOUNTED {
                postponed.insert(&snapshot.job_pods[at].pod.meta.uid);
                self.actions.truncate(actions);
                continue;
            }
            let list =
                if to_delete.contains(&at) { &mut self.finalizers_of_deleted } else { &mut self.finalizers_to_remove };
            list.push(at);
            match count {
                Count::Nothing => {}
                Count::Index => new_indexes += 1,
                Count::Success(uid) => {
                    self.with_finalizer.insert(uid.clone());
                    uncounted.succeeded.push(uid);
                }
                Count::Failure(uid) => {
                    self.with_finalizer.insert(uid.clone());
                    uncounted.failed.push(uid);
                }
            }
        }
        self.has_more = !postponed.is_empty();
        if self.has_more {
            self.backoff = tally::backoff_without(snapshot, &postponed);
        }
    }

    /// Whether the finalizer of this pod may be removed once the pod is counted.
    fn may_remove_finalizer(
        &self,
        snapshot: &Snapshot<'_>,
        plan: &Plan,
        applied: &Applied,
        deleted: &HashSet<usize>,
        at: usize,
    ) -> bool {
        let job_pod = &snapshot.job_pods[at];
        if job_pod.finalizer != FinalizerState::Present {
            return false;
        }
        if snapshot.is_deleting() || job_pod.state == State::Succeeded {
            return true;
        }
        if self.ending.is_some() {
            // It is not known yet how an active pod ends.
            return !job_pod.is_active() || deleted.contains(&at);
        }
        // In a terminating namespace the failure count is not kept: no replacement can be created, and the pod would
        // block the deletion of the namespace.
        let is_needed = !applied.namespace_terminating && has_failure_count(plan, job_pod, at);
        snapshot.is_failed(job_pod) && !is_needed
    }

    /// How this pod must be counted. Pods that the status lists are counted already.
    fn count_of(&mut self, snapshot: &Snapshot<'_>, plan: &Plan, at: usize) -> Count {
        let job_pod = &snapshot.job_pods[at];
        let uid = &job_pod.pod.meta.uid;
        if job_pod.completion == Completion::Invalid
            || snapshot.uncounted.contains(uid)
            || snapshot.is_deleted_after_success(job_pod)
        {
            return Count::Nothing;
        }
        if job_pod.state == State::Succeeded {
            return match (&plan.tally.indexes, job_pod.index()) {
                (Some(indexes), Some(index)) if indexes.stored.contains(index) => Count::Nothing,
                (Some(_), _) => Count::Index,
                (None, _) => Count::Success(uid.clone()),
            };
        }
        // When the Job fails, active pods count as failed. When it succeeds, active pods are not counted, because the
        // controller deleted them.
        let job_fails = self.ending.as_ref().is_some_and(|it| !it.is_success());
        if !snapshot.is_failed(job_pod) && !job_fails {
            return Count::Nothing;
        }
        let policy_result = policy_result(snapshot.job, job_pod.pod);
        self.actions.extend(policy_result.action());
        if policy_result.is_counted() { Count::Failure(uid.clone()) } else { Count::Nothing }
    }

    /// Whether the Job may end once this step is done and no pod is uncounted.
    fn may_end(&self) -> bool {
        self.ending.is_some() && self.all_ended && !self.has_more && self.status.terminating.unwrap_or_default() == 0
    }

    /// Whether the final status can be the only write: the interim condition is stored and no finalizer must be removed
    /// first.
    fn may_finish_in_one_write(&self) -> bool {
        let is_counted = self.status.uncounted.as_ref().is_none_or(api::UncountedPods::is_empty);
        let is_announced = self.ending.as_ref().is_some_and(|it| it.announced);
        is_announced && self.may_end() && self.finalizers_to_remove.is_empty() && is_counted
    }
}

/// Whether the pod keeps the failure count of its index.
fn has_failure_count(plan: &Plan, job_pod: &JobPod<'_>, at: usize) -> bool {
    plan.tally.indexes.as_ref().is_some_and(|it| it.last_failed_pods.has_failure_count(job_pod.index(), at))
}

#[cfg(test)]
mod tests;
