//! Decides what to do for a Job. Pure.

use std::time::Duration;

use workload::deletion_key;

use crate::rules::{
    ending::{self, Ending},
    indexes::Indexes,
    per_index_backoff::Failures,
    snapshot::{Completion, FinalizerState, JobPod, Snapshot, State, Unseen},
    tally::{IndexStates, Tally, number},
};

/// The most pods that one sync creates, or deletes as surplus.
const MAX_PODS_PER_SYNC: usize = 500;

/// The shortest delay of a back-off.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// How often to check whether a pod with a failure count blocks its terminating namespace.
const RECHECK_NAMESPACE: Duration = Duration::from_secs(60);

/// What to do for a Job.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The changes of pods.
    pub(crate) pods: PodChange,
    /// The changes of pods after the new status is stored.
    pub(crate) after_status: PodChange,
    /// How the Job ends, if it ends.
    pub(crate) ending: Option<Ending>,
    /// The counts that the plan is based on, for the status.
    pub(crate) tally: Tally,
    /// Pods were managed in this sync. Only then may the status show whether the Job is suspended.
    pub(crate) managed: bool,
    /// The action label of the sync metric. As in `syncJob`, it is also set when nothing is left to do or the Job
    /// waits.
    pub(crate) action: Action,
    /// Why fewer pods are created than are missing.
    pub(crate) waiting: Option<CreationWaitCause>,
    /// A terminating pod keeps the failure count of an index that gets no pod now. It would block the deletion of its
    /// namespace forever, so the namespace must be checked.
    pub(crate) may_block_namespace_deletion: bool,
    /// When to sync again even without an event.
    pub(crate) requeue_after: Option<Duration>,
}

/// The main action of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// No change, or the sync failed early.
    Reconciling,
    /// It counted pods.
    Tracking,
    /// It created pods.
    Created,
    /// It deleted pods.
    Deleted,
}

impl Action {
    /// The label of the sync metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Reconciling => "reconciling",
            Self::Tracking => "tracking",
            Self::Created => "pods_created",
            Self::Deleted => "pods_deleted",
        }
    }
}

/// The changes of pods. A plan deletes or creates, never both. Pods are given by their position in the snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PodChange {
    /// No change.
    Keep,
    /// The Job ends and the stored status shows it: all active pods are deleted. They keep their finalizers until they
    /// are counted.
    End(Vec<usize>),
    /// The Job is suspended: all active pods lose the finalizer and are deleted, so that none is counted.
    Suspend(Vec<usize>),
    /// Surplus pods lose the finalizer and are deleted, so that none is counted.
    Delete(Vec<usize>),
    /// Missing pods are created.
    Create(Creation),
}

/// The result of a plan's pod changes.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The number of created pods.
    pub(crate) created: usize,
    /// The positions of the deleted pods. A pod that was gone already counts too.
    pub(crate) deleted: Vec<usize>,
    /// The namespace is terminating, so no replacement can be created.
    pub(crate) namespace_terminating: bool,
}

/// Pods to create.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    /// One entry per pod.
    pub(crate) pods: Vec<NewPod>,
    /// The reason label of the metric.
    pub(crate) reason: &'static str,
}

/// A pod to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewPod {
    /// Its index, if the Job is Indexed.
    pub(crate) index: Option<u32>,
    /// The failure counts of its index, if the Job has a `backoffLimitPerIndex`.
    pub(crate) failures: Option<Failures>,
}

/// Why fewer pods are created than are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreationWaitCause {
    /// The caches do not show all of our creations and deletions yet.
    Unseen,
    /// The back-off after a failure is not over.
    Backoff(Duration),
    /// Pods to be replaced are still terminating.
    Terminating,
    /// Too many created pods have not ended.
    CreationLimit,
}

/// Decides what to do for a Job.
pub(crate) fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let tally = Tally::of(snapshot);
    let ending = ending::ending(snapshot, &tally);
    let mut plan = Plan {
        pods: PodChange::Keep,
        after_status: PodChange::Keep,
        ending: None,
        tally,
        managed: false,
        action: Action::Reconciling,
        waiting: None,
        may_block_namespace_deletion: false,
        requeue_after: if ending.is_none() {
            ending::remaining_active_time(snapshot.job, snapshot.inputs.now)
        } else {
            None
        },
    };
    if let Some(ending) = ending {
        if snapshot.inputs.unseen != Unseen::Nothing {
            // The Job ends when the caches show all writes.
            plan.waiting = Some(CreationWaitCause::Unseen);
        }
        // A deleted pod looks like a failed one and could change a decision that is not stored yet.
        let pods = if ending.announced { &mut plan.pods } else { &mut plan.after_status };
        *pods = non_empty(all_active(snapshot), PodChange::End);
        plan.ending = Some(ending);
    } else if snapshot.is_deleting() {
        // The garbage collector deletes the pods of this Job.
    } else if snapshot.inputs.unseen == Unseen::Writes {
        plan.waiting = Some(CreationWaitCause::Unseen);
    } else {
        plan.managed = true;
        plan.action = manage(snapshot, &mut plan);
        plan.may_block_namespace_deletion = plan.pods == PodChange::Keep
            && plan.waiting.is_none()
            && may_block_namespace_deletion(snapshot, &plan.tally);
        if plan.may_block_namespace_deletion {
            plan.requeue_within(RECHECK_NAMESPACE);
        }
    }
    plan
}

/// Whether a terminating pod keeps the failure count of its index.
fn may_block_namespace_deletion(snapshot: &Snapshot<'_>, tally: &Tally) -> bool {
    let Some(indexes) = &tally.indexes else { return false };
    let mut job_pods = snapshot.job_pods.iter().enumerate();
    job_pods
        .any(|(at, it)| it.pod.meta.deletion.is_some() && indexes.last_failed_pods.has_failure_count(it.index(), at))
}

/// Decides about pods and returns the action for the metric, like `jobcontroller.manageJob`.
fn manage(snapshot: &Snapshot<'_>, plan: &mut Plan) -> Action {
    if snapshot.job.spec.suspend {
        plan.pods = non_empty(all_active(snapshot), PodChange::Suspend);
        return Action::Deleted;
    }
    let wanted = wanted(snapshot, &plan.tally);
    let surplus = surplus(snapshot, snapshot.active.saturating_sub(wanted));
    if !surplus.is_empty() {
        plan.pods = PodChange::Delete(surplus);
        return Action::Deleted;
    }
    let missing = wanted.saturating_sub(snapshot.active);
    // More pods may be terminating than are missing.
    let still_terminating = if snapshot.is_replacing_only_failed() { snapshot.terminating } else { 0 };
    let create = missing.saturating_sub(still_terminating);
    if create == 0 {
        plan.waiting = (missing > 0).then_some(CreationWaitCause::Terminating);
        return Action::Tracking;
    }
    if snapshot.inputs.unseen != Unseen::Nothing {
        plan.waiting = Some(CreationWaitCause::Unseen);
        return Action::Reconciling;
    }
    plan_creations(snapshot, create, plan);
    Action::Created
}

/// The number of pods that should be active.
fn wanted(snapshot: &Snapshot<'_>, tally: &Tally) -> usize {
    let parallelism = number(snapshot.job.spec.parallelism);
    let wanted = match snapshot.job.spec.completions {
        // Without `completions`, after the first success the active pods continue and are not replaced.
        None if tally.succeeded > 0 => return snapshot.active,
        None => parallelism,
        Some(completions) => number(completions).saturating_sub(tally.succeeded).min(parallelism),
    };
    wanted as usize
}

/// Plans the creation of `missing` pods, as far as back-off and `creation_limit` allow.
fn plan_creations(snapshot: &Snapshot<'_>, missing: usize, plan: &mut Plan) {
    let pods = match &plan.tally.indexes {
        Some(indexes) if snapshot.is_counted_per_index() => {
            let (pods, wait) = per_index(snapshot, indexes, missing.min(MAX_PODS_PER_SYNC));
            // When other indexes take all pods, the end of one of their pods triggers the next sync.
            if let Some(wait) = wait.filter(|_| pods.len() < missing) {
                plan.waiting = Some(CreationWaitCause::Backoff(wait));
                plan.requeue_within(wait.max(MIN_DELAY));
            }
            pods
        }
        indexes => {
            let wait = plan.tally.backoff.remaining(snapshot.inputs.now);
            if !wait.is_zero() {
                plan.waiting = Some(CreationWaitCause::Backoff(wait));
                plan.requeue_within(wait.max(MIN_DELAY));
                return;
            }
            let wanted = missing.min(MAX_PODS_PER_SYNC);
            match indexes {
                Some(indexes) => {
                    let free = unavailable(snapshot, indexes).lowest_free(snapshot.completions(), wanted);
                    free.into_iter().map(|it| NewPod { index: Some(it), failures: None }).collect()
                }
                None => vec![NewPod { index: None, failures: None }; wanted],
            }
        }
    };
    plan.create(snapshot, pods);
}

impl Plan {
    /// Whether the deleted pods lose the finalizer first.
    pub(crate) fn removes_finalizers_first(&self) -> bool {
        matches!(self.pods, PodChange::Suspend(_) | PodChange::Delete(_))
    }

    /// The pods that are deleted once the status is stored.
    pub(crate) fn deletions_after_status(&self) -> &[usize] {
        if let PodChange::End(positions) = &self.after_status { positions } else { &[] }
    }

    fn requeue_within(&mut self, after: Duration) {
        self.requeue_after = Some(self.requeue_after.map_or(after, |it| it.min(after)));
    }

    /// Plans the creation of these pods, as far as `creation_limit` allows.
    fn create(&mut self, snapshot: &Snapshot<'_>, mut pods: Vec<NewPod>) {
        if pods.len() > snapshot.inputs.free_slots {
            pods.truncate(snapshot.inputs.free_slots);
            self.waiting = Some(CreationWaitCause::CreationLimit);
            if let Some(wait) = snapshot.inputs.next_slot {
                self.requeue_within(wait);
            }
        }
        if !pods.is_empty() {
            self.pods = PodChange::Create(Creation { pods, reason: reason(snapshot, &self.tally) });
        }
    }
}

/// The reason label of the creation metric.
fn reason(snapshot: &Snapshot<'_>, tally: &Tally) -> &'static str {
    let only_failed = snapshot.job.spec.pod_replacement_policy == api::PodReplacementPolicy::Failed;
    match (tally.failed > 0, snapshot.terminating > 0) {
        (true, _) if only_failed => "recreate_failed",
        (true, _) | (_, true) => "recreate_terminating_or_failed",
        (false, false) => "new",
    }
}

/// The indexes that must not get a pod: they have succeeded or failed, or already have a pod.
fn unavailable(snapshot: &Snapshot<'_>, indexes: &IndexStates) -> Indexes {
    let mut unavailable = indexes.succeeded.union(&indexes.active);
    if let Some(failed) = &indexes.failed {
        unavailable = unavailable.union(failed);
    }
    if snapshot.is_replacing_only_failed() {
        let is_terminating = |it: &&JobPod<'_>| it.state == State::Terminating;
        let mut ending: Vec<u32> = snapshot.job_pods.iter().filter(is_terminating).filter_map(JobPod::index).collect();
        ending.sort_unstable();
        unavailable = unavailable.union(&Indexes::of(ending));
    }
    unavailable
}

/// The new pods for the lowest free indexes that are not in back-off, at most `wanted`, and the shortest remaining
/// back-off.
fn per_index(snapshot: &Snapshot<'_>, indexes: &IndexStates, wanted: usize) -> (Vec<NewPod>, Option<Duration>) {
    let unavailable = unavailable(snapshot, indexes);
    let waits: Vec<(u32, Duration)> = indexes
        .last_failed_pods
        .remaining_delays(snapshot)
        .filter(|(index, _)| !unavailable.contains(*index))
        .collect();
    // An index in back-off must not block the indexes after it.
    let unavailable = unavailable.union(&Indexes::of(waits.iter().map(|(index, _)| *index)));
    let free = unavailable.lowest_free(snapshot.completions(), wanted).into_iter();
    let failures = |index| Some(indexes.last_failed_pods.failures(snapshot, index));
    let pods = free.map(|it| NewPod { index: Some(it), failures: failures(it) }).collect();
    (pods, waits.into_iter().map(|(_, wait)| wait).min())
}

/// The active pods to delete: all useless ones, and more in the order of `deletion_key` until there are `at_least`.
fn surplus(snapshot: &Snapshot<'_>, at_least: usize) -> Vec<usize> {
    let (mut surplus, mut left) = match has_useless(snapshot) {
        true => useless(snapshot),
        false => (Vec::new(), Vec::new()),
    };
    if surplus.len() < at_least {
        if left.is_empty() && surplus.is_empty() {
            left = all_active(snapshot);
        }
        left.sort_by_cached_key(|at| deletion_key(snapshot.job_pods[*at].pod));
        let more = at_least - surplus.len();
        surplus.extend(left.into_iter().take(more));
    }
    surplus.truncate(MAX_PODS_PER_SYNC);
    surplus
}

/// Whether an active pod is useless: it has no finalizer, has no valid index, or shares its index with another pod.
fn has_useless(snapshot: &Snapshot<'_>) -> bool {
    if snapshot.active().any(|(_, it)| it.finalizer == FinalizerState::Absent) {
        return true;
    }
    if !snapshot.job.is_indexed() {
        return false;
    }
    let mut indexes: Vec<Option<u32>> = snapshot.active().map(|(_, it)| it.index()).collect();
    indexes.sort_unstable();
    let has_invalid = indexes.first() == Some(&None);
    has_invalid || !indexes.is_sorted_by(|a, b| a < b)
}

/// The useless active pods, and the others. Of each index only the best pod is kept.
fn useless(snapshot: &Snapshot<'_>) -> (Vec<usize>, Vec<usize>) {
    let job_pod = |at: usize| &snapshot.job_pods[at];
    // These have no finalizer and would never be counted. A deletion that failed halfway leaves such pods.
    let (mut surplus, mut active): (Vec<usize>, Vec<usize>) =
        all_active(snapshot).into_iter().partition(|at| job_pod(*at).finalizer == FinalizerState::Absent);
    if !snapshot.job.is_indexed() {
        return (surplus, active);
    }
    active.sort_by_cached_key(|at| (job_pod(*at).index(), deletion_key(job_pod(*at).pod)));
    let mut left = Vec::new();
    for (nth, at) in active.iter().enumerate() {
        let next = active.get(nth + 1).map(|it| job_pod(*it).completion);
        let is_best = job_pod(*at).completion != Completion::Invalid && next != Some(job_pod(*at).completion);
        if is_best { left.push(*at) } else { surplus.push(*at) }
    }
    (surplus, left)
}

fn all_active(snapshot: &Snapshot<'_>) -> Vec<usize> {
    snapshot.active().map(|(at, _)| at).collect()
}

fn non_empty(pods: Vec<usize>, change: fn(Vec<usize>) -> PodChange) -> PodChange {
    if pods.is_empty() { PodChange::Keep } else { change(pods) }
}

#[cfg(test)]
mod tests;
