//! Decides what to do for a Job. Pure.

use std::{cmp::Ordering, time::Duration};

use pod_control::deletion_order;

use crate::{
    delayed::Failures,
    ending::{self, Ending},
    indexes::Indexes,
    metrics::Action,
    snapshot::{Hold, Place, Snapshot, State, Unseen, Worker},
    tally::{Outcomes, Tally, number},
};

/// The most pods that one sync creates, or deletes as surplus.
const MOST: usize = 500;

/// The shortest delay of a back-off.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// How often to check whether a namespace is terminating that a held pod would block.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// What to do for a Job.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The changes of pods.
    pub(crate) pods: PodChange,
    /// The changes of pods after the new status is stored.
    pub(crate) once_stored: PodChange,
    /// How the Job ends, if it ends.
    pub(crate) ending: Option<Ending>,
    /// The counts that the plan is based on, for the status.
    pub(crate) tally: Tally,
    /// Pods were managed in this sync. Only then may the status say whether the Job is suspended.
    pub(crate) managed: bool,
    /// The action label of the sync metric. As in `syncJob`, it is also set when nothing is left to do or the Job
    /// waits.
    pub(crate) action: Action,
    /// Why fewer pods are created than are missing.
    pub(crate) waiting: Option<Waiting>,
    /// A terminating pod keeps the failure count of an index that gets no pod now. It would block the deletion of its
    /// namespace forever, so the namespace must be checked.
    pub(crate) strands: bool,
    /// When to sync again even without an event.
    pub(crate) again: Option<Duration>,
}

/// The changes of pods. Deletion comes before creation, so a plan has only one of them. Pods are given by their
/// position in the snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PodChange {
    /// No change.
    Keep,
    /// The Job ends and the stored status says so: all active pods are deleted. They keep their finalizers until they
    /// are counted.
    End(Vec<usize>),
    /// The Job is suspended: all active pods lose the finalizer and are deleted, so that none is counted.
    Suspend(Vec<usize>),
    /// Surplus pods lose the finalizer and are deleted, so that none is counted.
    Delete(Vec<usize>),
    /// Missing pods are created.
    Create(Creation),
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
pub(crate) enum Waiting {
    /// The caches do not show all of our creations and deletions yet.
    Unseen,
    /// The back-off after a failure is not over.
    Backoff(Duration),
    /// Pods to be replaced are still terminating.
    Terminating,
    /// Too many created pods have not ended.
    Brake,
}

/// Decides what to do for a Job.
pub(crate) fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let tally = Tally::of(snapshot);
    let ending = ending::ending(snapshot, &tally);
    let mut plan = Plan {
        pods: PodChange::Keep,
        once_stored: PodChange::Keep,
        ending: None,
        tally,
        managed: false,
        action: Action::Reconciling,
        waiting: None,
        strands: false,
        again: if ending.is_none() { ending::deadline(snapshot) } else { None },
    };
    if let Some(ending) = ending {
        if snapshot.known.unseen != Unseen::Nothing {
            // The Job ends when the caches show all writes.
            plan.waiting = Some(Waiting::Unseen);
        }
        // A deleted pod looks like a failed one and could change a decision that is not stored yet.
        let pods = if ending.announced { &mut plan.pods } else { &mut plan.once_stored };
        *pods = non_empty(all_active(snapshot), PodChange::End);
        plan.ending = Some(ending);
    } else if snapshot.is_deleting() {
        // The garbage collector deletes the pods of this Job.
    } else if snapshot.known.unseen == Unseen::Writes {
        plan.waiting = Some(Waiting::Unseen);
    } else {
        plan.managed = true;
        plan.action = manage(snapshot, &mut plan);
        plan.strands = plan.pods == PodChange::Keep && plan.waiting.is_none() && strands(snapshot, &plan.tally);
        if plan.strands {
            plan.look_again(ASK_AGAIN);
        }
    }
    plan
}

/// Whether a terminating pod keeps the failure count of its index.
fn strands(snapshot: &Snapshot<'_>, tally: &Tally) -> bool {
    let Some(indexes) = &tally.indexes else { return false };
    let mut workers = snapshot.workers.iter().enumerate();
    workers.any(|(at, it)| it.pod.meta.deletion.is_some() && indexes.delayed.holds(it.index(), at))
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
    let held_back = if snapshot.replaces_only_failed() { snapshot.terminating } else { 0 };
    let create = missing.saturating_sub(held_back);
    if create == 0 {
        plan.waiting = (missing > 0).then_some(Waiting::Terminating);
        return Action::Tracking;
    }
    if snapshot.known.unseen != Unseen::Nothing {
        plan.waiting = Some(Waiting::Unseen);
        return Action::Reconciling;
    }
    fill(snapshot, create, plan);
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

/// Creates `missing` pods, as far as back-off and `brake` allow.
fn fill(snapshot: &Snapshot<'_>, missing: usize, plan: &mut Plan) {
    let pods = match &plan.tally.indexes {
        Some(indexes) if snapshot.counts_per_index() => {
            let (pods, wait) = per_index(snapshot, indexes, missing.min(MOST));
            // When other indexes take all places, the end of one of their pods triggers the next sync.
            if let Some(wait) = wait.filter(|_| pods.len() < missing) {
                plan.waiting = Some(Waiting::Backoff(wait));
                plan.look_again(wait.max(LEAST_WAIT));
            }
            pods
        }
        indexes => {
            let wait = plan.tally.backoff.remaining(snapshot.known.now);
            if !wait.is_zero() {
                plan.waiting = Some(Waiting::Backoff(wait));
                plan.look_again(wait.max(LEAST_WAIT));
                return;
            }
            let wanted = missing.min(MOST);
            match indexes {
                Some(indexes) => {
                    let free = taken(snapshot, indexes).lowest_free(snapshot.completions(), wanted);
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
    pub(crate) fn frees(&self) -> bool {
        matches!(self.pods, PodChange::Suspend(_) | PodChange::Delete(_))
    }

    /// The pods that are deleted once the status is stored.
    pub(crate) fn deletes_once_stored(&self) -> &[usize] {
        if let PodChange::End(places) = &self.once_stored { places } else { &[] }
    }

    fn look_again(&mut self, after: Duration) {
        self.again = Some(self.again.map_or(after, |it| it.min(after)));
    }

    /// Plans the creation of these pods, as far as `brake` allows.
    fn create(&mut self, snapshot: &Snapshot<'_>, mut pods: Vec<NewPod>) {
        if pods.len() > snapshot.known.room {
            pods.truncate(snapshot.known.room);
            self.waiting = Some(Waiting::Brake);
            if let Some(wait) = snapshot.known.more_room {
                self.look_again(wait);
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
fn taken(snapshot: &Snapshot<'_>, indexes: &Outcomes) -> Indexes {
    let mut taken = indexes.succeeded.union(&indexes.active);
    if let Some(failed) = &indexes.failed {
        taken = taken.union(failed);
    }
    if snapshot.replaces_only_failed() {
        let is_terminating = |it: &&Worker<'_>| it.state == State::Terminating;
        let mut ending: Vec<u32> = snapshot.workers.iter().filter(is_terminating).filter_map(Worker::index).collect();
        ending.sort_unstable();
        taken = taken.union(&Indexes::of(ending));
    }
    taken
}

/// The new pods for the lowest free indexes that are not in back-off, at most `wanted`, and the shortest remaining
/// back-off.
fn per_index(snapshot: &Snapshot<'_>, indexes: &Outcomes, wanted: usize) -> (Vec<NewPod>, Option<Duration>) {
    let taken = taken(snapshot, indexes);
    let waits: Vec<(u32, Duration)> =
        indexes.delayed.waits(snapshot).filter(|(index, _)| !taken.contains(*index)).collect();
    // An index in back-off must not block the indexes after it.
    let taken = taken.union(&Indexes::of(waits.iter().map(|(index, _)| *index)));
    let free = taken.lowest_free(snapshot.completions(), wanted).into_iter();
    let failures = |index| Some(indexes.delayed.failures(snapshot, index));
    let pods = free.map(|it| NewPod { index: Some(it), failures: failures(it) }).collect();
    (pods, waits.into_iter().map(|(_, wait)| wait).min())
}

/// The active pods to delete: all useless ones, and more in the order of `deletion_order` until there are `at_least`.
fn surplus(snapshot: &Snapshot<'_>, at_least: usize) -> Vec<usize> {
    let by_rank = |a: &usize, b: &usize| deletion_order(snapshot.workers[*a].pod, snapshot.workers[*b].pod);
    let (mut surplus, mut left) = match has_useless(snapshot) {
        true => useless(snapshot),
        false => (Vec::new(), Vec::new()),
    };
    if surplus.len() < at_least {
        if left.is_empty() && surplus.is_empty() {
            left = all_active(snapshot);
        }
        left.sort_by(by_rank);
        let more = at_least - surplus.len();
        surplus.extend(left.into_iter().take(more));
    }
    surplus.truncate(MOST);
    surplus
}

/// Whether an active pod is useless: it has no finalizer, has no valid index, or shares its index with another pod.
fn has_useless(snapshot: &Snapshot<'_>) -> bool {
    if snapshot.active().any(|(_, it)| it.hold == Hold::Free) {
        return true;
    }
    if !snapshot.job.is_indexed() {
        return false;
    }
    let mut indexes: Vec<Option<u32>> = snapshot.active().map(|(_, it)| it.index()).collect();
    indexes.sort_unstable();
    let is_stray = indexes.first() == Some(&None);
    is_stray || !indexes.is_sorted_by(|a, b| a < b)
}

/// The useless active pods, and the others. Of each index only the best pod is kept.
fn useless(snapshot: &Snapshot<'_>) -> (Vec<usize>, Vec<usize>) {
    let worker = |at: usize| &snapshot.workers[at];
    // These have no finalizer and would never be counted. A deletion that failed halfway leaves such pods.
    let (mut surplus, mut active): (Vec<usize>, Vec<usize>) =
        all_active(snapshot).into_iter().partition(|at| worker(*at).hold == Hold::Free);
    if !snapshot.job.is_indexed() {
        return (surplus, active);
    }
    let rank = |a: usize, b: usize| deletion_order(worker(a).pod, worker(b).pod);
    active.sort_by(|a, b| match worker(*a).index().cmp(&worker(*b).index()) {
        Ordering::Equal => rank(*a, *b),
        other => other,
    });
    let mut left = Vec::new();
    for (nth, at) in active.iter().enumerate() {
        let next = active.get(nth + 1).map(|it| worker(*it).place);
        let is_best = worker(*at).place != Place::Stray && next != Some(worker(*at).place);
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
