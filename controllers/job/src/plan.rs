//! What is to be done for a Job: the story of one decision. Pure.

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

/// The most pods that one pass creates, or deletes because they are too many.
const MOST: usize = 500;

/// The least that a back-off makes wait.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// How often it is asked whether a namespace goes that a pod holds.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// What is to be done for a Job.
#[derive(Debug)]
pub(crate) struct Plan {
    /// What happens to pods.
    pub(crate) pods: PodChange,
    /// What happens to pods once the status is stored that this pass wants.
    pub(crate) once_stored: PodChange,
    /// How the Job ends, if it does.
    pub(crate) ending: Option<Ending>,
    /// What it rests on, for the status.
    pub(crate) tally: Tally,
    /// Pods were looked after: only then the status may say whether the Job is suspended.
    pub(crate) managed: bool,
    /// What the metrics of this sync say it did: as upstream, also where nothing is left to do of it, or it has to wait.
    pub(crate) action: Action,
    /// Why no pod, or not all that are missing, is created.
    pub(crate) waiting: Option<Waiting>,
    /// A pod that is being deleted remembers for an index that gets no pod now. Should its namespace go, it would hold it for
    /// ever: that has to be asked for.
    pub(crate) strands: bool,
    /// When to look again though nothing happens.
    pub(crate) again: Option<Duration>,
}

/// What happens to pods. Deletion wins over creation, so they cannot meet. Pods are named by their place in the snapshot.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PodChange {
    /// Nothing.
    Keep,
    /// The Job ends, and its status says so: all its active pods are deleted. They keep their finalizers until they are
    /// counted.
    End(Vec<usize>),
    /// The Job is suspended: all its active pods go, finalizer first, so that none of them is counted.
    Suspend(Vec<usize>),
    /// These are too many: they go, finalizer first, so that none of them is counted.
    Delete(Vec<usize>),
    /// These are missing.
    Create(Creation),
}

/// Pods to create.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Creation {
    /// One entry for each.
    pub(crate) pods: Vec<NewPod>,
    /// Why, for the metric.
    pub(crate) reason: &'static str,
}

/// A pod to create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewPod {
    /// Its index, if the Job has indexes.
    pub(crate) index: Option<u32>,
    /// What it has to remember, if failures are counted for each index.
    pub(crate) failures: Option<Failures>,
}

/// Why no pod, or not all that are missing, is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Something that we created or deleted is still unseen.
    Unseen,
    /// A failure is not long enough ago.
    Backoff(Duration),
    /// Pods that are to be replaced have not ended.
    Terminating,
    /// Too many pods were created that never ended.
    Brake,
}

/// Decides.
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
            // It ends when all is seen.
            plan.waiting = Some(Waiting::Unseen);
        }
        // A pod that is deleted looks like a failure, and could change a decision that is not stored.
        let pods = if ending.announced { &mut plan.pods } else { &mut plan.once_stored };
        *pods = non_empty(all_active(snapshot), PodChange::End);
        plan.ending = Some(ending);
    } else if snapshot.is_deleting() {
        // Its pods are the garbage collector's.
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

/// Whether a pod is being deleted that remembers for its index.
fn strands(snapshot: &Snapshot<'_>, tally: &Tally) -> bool {
    let Some(indexes) = &tally.indexes else { return false };
    let mut workers = snapshot.workers.iter().enumerate();
    workers.any(|(at, it)| it.pod.meta.deletion.is_some() && indexes.delayed.holds(it.index(), at))
}

/// Decides about pods, and names what that is, as jobcontroller.manageJob does.
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
    // More may be terminating than are missing.
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

/// How many pods should be active.
fn wanted(snapshot: &Snapshot<'_>, tally: &Tally) -> usize {
    let parallelism = number(snapshot.job.spec.parallelism);
    let wanted = match snapshot.job.spec.completions {
        // After the first success whoever works goes on, and nobody follows.
        None if tally.succeeded > 0 => return snapshot.active,
        None => parallelism,
        Some(completions) => number(completions).saturating_sub(tally.succeeded).min(parallelism),
    };
    wanted as usize
}

/// Creates `missing` pods, as far as nothing holds them back.
fn fill(snapshot: &Snapshot<'_>, missing: usize, plan: &mut Plan) {
    let pods = match &plan.tally.indexes {
        Some(indexes) if snapshot.counts_per_index() => {
            let (pods, wait) = per_index(snapshot, indexes, missing.min(MOST));
            // Others may have taken all places: then the end of one of them is waited for.
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
    /// Whether pods that it deletes lose the finalizer first.
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

    /// Creates these pods, as far as the brake lets it.
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

/// Why pods are created, in the words of the metric.
fn reason(snapshot: &Snapshot<'_>, tally: &Tally) -> &'static str {
    let only_failed = snapshot.job.spec.pod_replacement_policy == api::PodReplacementPolicy::Failed;
    match (tally.failed > 0, snapshot.terminating > 0) {
        (true, _) if only_failed => "recreate_failed",
        (true, _) | (_, true) => "recreate_terminating_or_failed",
        (false, false) => "new",
    }
}

/// The indexes that are settled, or that a pod works for: none of them gets a pod.
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

/// The pods of the lowest free indexes whose back-off is over, at most `wanted`, and the shortest wait of the other free ones.
fn per_index(snapshot: &Snapshot<'_>, indexes: &Outcomes, wanted: usize) -> (Vec<NewPod>, Option<Duration>) {
    let taken = taken(snapshot, indexes);
    let waits: Vec<(u32, Duration)> =
        indexes.delayed.waits(snapshot).filter(|(index, _)| !taken.contains(*index)).collect();
    // An index in back-off must not block the indexes behind it.
    let taken = taken.union(&Indexes::of(waits.iter().map(|(index, _)| *index)));
    let free = taken.lowest_free(snapshot.completions(), wanted).into_iter();
    let failures = |index| Some(indexes.delayed.failures(snapshot, index));
    let pods = free.map(|it| NewPod { index: Some(it), failures: failures(it) }).collect();
    (pods, waits.into_iter().map(|(_, wait)| wait).min())
}

/// The active pods that have to go: those that are of no use, and the least missed ones until `at_least` go.
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

/// Whether an active pod is of no use: its end could not be counted, or it has no index, or one that another works for too.
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

/// Active pods of no use, and the others: of each index all but the best one.
fn useless(snapshot: &Snapshot<'_>) -> (Vec<usize>, Vec<usize>) {
    let worker = |at: usize| &snapshot.workers[at];
    // Nothing holds them, so they would go uncounted: a deletion that was begun and failed leaves them so.
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
