//! Which pods are counted, whose finalizers go, and when the Job may be declared ended: the two pure steps of the finalizer
//! protocol. Between them stand the writes.
//!
//! A pod may be forgotten only when its uid, or for a success its index, is stored in the Job's status. So [`step`] says
//! what is stored first and which finalizers may go then; [`settle`], told which of them went, says what is stored last.
//! What a crash between the two leaves behind the next pass finds in the status: a uid there whose finalizer is gone is
//! moved to the counters and never listed again.

use std::collections::HashSet;

use api::{Atom, ConditionStatus, JobStatus, Uid};

use crate::{
    backoff::Backoff,
    ending::{Ending, is_complete},
    failure_policy::verdict,
    plan::Plan,
    snapshot::{Hold, Moment, Place, Snapshot, State, Unseen, Worker},
    status,
    tally::{self, number},
};

/// How many pods may be uncounted, or successes of indexes new, in one status: bounds its size, and how long one Job
/// keeps others waiting.
pub(crate) const MOST_UNCOUNTED: usize = 500;

/// What became of a plan's pods.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// How many pods were created.
    pub(crate) created: usize,
    /// The pods of the plan, by place, that are deleted now; one that was gone already counts.
    pub(crate) gone: Vec<usize>,
    /// The namespace goes: no pod will ever replace another.
    pub(crate) closed: bool,
}

/// What the first stage wants.
#[derive(Debug)]
pub(crate) struct Step {
    /// The status as it should be.
    pub(crate) status: JobStatus,
    /// It has to be stored before anything else happens.
    pub(crate) write: bool,
    /// The pods, by place, whose finalizers go once it is.
    pub(crate) release: Vec<usize>,
    /// The pods that go with the Job: counted by this status as they are now, released once they are deleted as well.
    pub(crate) release_deleted: Vec<usize>,
    /// The Job is suspended, or resumed, with this.
    pub(crate) suspended: Option<bool>,
    /// How often each action of the failure policy decided.
    pub(crate) actions: Vec<&'static str>,
    /// What failed since the last success, as far as this status counts it.
    pub(crate) backoff: Backoff,
    /// How the Job ends, if it does.
    ending: Option<Ending>,
    /// All that may work is deleted, and nothing is unseen.
    quiet: bool,
    /// Pods of uids that the status names and that still carry the finalizer.
    held: HashSet<Uid>,
    /// More ended than one status takes: the Job is not at its end.
    more: bool,
}

/// What the last stage wants.
#[derive(Debug)]
pub(crate) struct Settled {
    /// The status to store; `None` when what is stored is good enough. Uids whose finalizers went are then left to the
    /// next pass, which their going brings about.
    pub(crate) status: Option<JobStatus>,
    /// The Job has ended with it.
    pub(crate) finished: Option<Finished>,
}

/// What is told of a Job that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// It ended well.
    pub(crate) succeeded: bool,
    /// Why, in one word.
    pub(crate) reason: Atom,
    /// Why, for people.
    pub(crate) message: Box<str>,
    /// More succeeded than were wanted.
    pub(crate) too_many: bool,
}

/// The first stage, once the plan's pods were dealt with. `None` when the status is as it should be and no finalizer is
/// to go.
pub(crate) fn step(snapshot: &Snapshot<'_>, plan: &Plan, applied: &Applied) -> Option<Step> {
    let now = snapshot.known.now;
    let active = snapshot.active.saturating_sub(applied.gone.len()) + applied.created;
    let quiet = active == 0 && snapshot.known.unseen == Unseen::Nothing;
    let completes = || quiet && is_complete(snapshot.job, plan.tally.succeeded);
    // Announced by the pass that decides it, whatever becomes of the pods; only its last condition waits.
    let ending = plan.ending.clone().or_else(|| completes().then(Ending::completed));

    let mut next = snapshot.job.status.clone();
    status::count(&mut next, snapshot, applied);
    if next.start.is_none() && !snapshot.job.spec.suspend {
        next.start = Some(now.seconds());
    }
    let is_complete = ending.as_ref().is_some_and(|it| plan.ending.is_none() && it.succeeds());
    let suspended = if plan.managed && !is_complete { status::suspend(&mut next, snapshot) } else { None };

    let held = held(snapshot);
    next.uncounted.get_or_insert_default();
    move_free(&mut next, &held);
    let mut step = Step {
        status: next,
        write: false,
        release: Vec::new(),
        release_deleted: Vec::new(),
        suspended,
        actions: Vec::new(),
        backoff: plan.tally.backoff,
        ending,
        quiet,
        held,
        more: false,
    };
    step.count(snapshot, plan, applied);
    if let Some(indexes) = &plan.tally.indexes {
        let (succeeded, spec) = (i32::try_from(indexes.succeeded.len()).unwrap_or(i32::MAX), &snapshot.job.spec);
        // A counter that shrinks is refused, with all that the status says, unless the Job is as it was when it was made smaller.
        let may_shrink = spec.completions == Some(spec.parallelism);
        step.status.succeeded = if may_shrink { succeeded } else { succeeded.max(snapshot.job.status.succeeded) };
        step.status.completed_indexes = indexes.succeeded.to_string().into();
        step.status.failed_indexes = indexes.failed.as_ref().map(|it| it.to_string().into());
    }
    if let Some(ending) = step.ending.as_ref().filter(|it| !it.announced) {
        let (announcement, _) = ending.conditions();
        status::set(&mut step.status, announcement, ConditionStatus::True, &ending.reason, &ending.message, now);
    }
    step.write = status::differs(&snapshot.job.status, &step.status) && !step.ends_at_once();
    (step.write || !step.release.is_empty() || step.may_end()).then_some(step)
}

/// The last stage: `released` tells of each pod of `step.release` whether its finalizer is gone.
pub(crate) fn settle(snapshot: &Snapshot<'_>, step: Step, released: &[bool], now: Moment) -> Settled {
    let may_end = step.may_end();
    let Step { mut status, release, ending, mut held, .. } = step;
    let all_went = release.len() == released.len() && released.iter().all(|it| *it);
    for (at, _) in release.iter().zip(released).filter(|(_, went)| **went) {
        held.remove(&snapshot.workers[*at].pod.meta.uid);
    }
    let moved = move_free(&mut status, &held);
    let is_counted = status.uncounted.as_ref().is_none_or(api::UncountedPods::is_empty);
    match ending {
        Some(ending) if may_end && all_went && is_counted => {
            status::finish(&mut status, &snapshot.job.spec, &ending, now);
            let wanted = snapshot.job.spec.completions.map(number);
            let finished = Finished {
                succeeded: ending.succeeds(),
                too_many: ending.succeeds() && wanted.is_some_and(|it| number(status.succeeded) > it),
                reason: ending.reason,
                message: ending.message,
            };
            Settled { status: Some(status), finished: Some(finished) }
        }
        // What is left will be tried again: until then it is worth knowing what went.
        _ if moved && !all_went => Settled { status: Some(status), finished: None },
        _ => Settled { status: None, finished: None },
    }
}

/// The pods that the status names and that still carry the finalizer.
fn held(snapshot: &Snapshot<'_>) -> HashSet<Uid> {
    let is_named = |it: &&Worker<'_>| it.hold == Hold::Held && snapshot.uncounted.names(&it.pod.meta.uid);
    snapshot.workers.iter().filter(is_named).map(|it| it.pod.meta.uid.clone()).collect()
}

/// Moves the uids of pods that nothing holds any more to the counters. True if there are such.
fn move_free(status: &mut JobStatus, held: &HashSet<Uid>) -> bool {
    let JobStatus { uncounted: Some(uncounted), succeeded, failed, .. } = status else { return false };
    let keep_held = |list: &mut Vec<Uid>, counter: &mut i32| {
        let before = list.len();
        list.retain(|it| held.contains(it));
        let gone = before - list.len();
        *counter = counter.saturating_add(i32::try_from(gone).unwrap_or(i32::MAX));
        gone > 0
    };
    // Both, whatever the first one says.
    let (one, two) = (keep_held(&mut uncounted.succeeded, succeeded), keep_held(&mut uncounted.failed, failed));
    one || two
}

/// What a pod whose finalizer goes is counted as.
enum Count {
    Nothing,
    Success(Uid),
    Index,
    Failure(Uid),
}

impl Step {
    /// Has the finalizers go of the pods that go with the Job and are deleted now.
    pub(crate) fn release_deleted(&mut self, deleted: &[usize]) {
        let deleted: HashSet<usize> = deleted.iter().copied().collect();
        self.release.extend(self.release_deleted.drain(..).filter(|at| deleted.contains(at)));
    }

    /// Counts what ended, and chooses whose finalizers go.
    fn count(&mut self, snapshot: &Snapshot<'_>, plan: &Plan, applied: &Applied) {
        // How a pod exits after our DELETE must not count (jobcontroller.trackJobStatusAndRemoveFinalizers).
        let to_delete: HashSet<usize> = plan.deletes_once_stored().iter().copied().collect();
        let deleted: HashSet<usize> = applied.gone.iter().chain(&to_delete).copied().collect();
        // The plan took the finalizers of these already.
        let is_freed = |at: &usize| plan.frees() && deleted.contains(at);
        let mut candidates: Vec<usize> = (0..snapshot.workers.len())
            .filter(|at| !is_freed(at) && self.may_go(snapshot, plan, applied, &deleted, *at))
            .collect();
        if snapshot.job.is_indexed() {
            // Completed indexes appear in their order.
            candidates.sort_by_key(|at| snapshot.workers[*at].index());
        }
        let (mut new_indexes, mut put_off) = (0, HashSet::new());
        for at in candidates {
            let actions = self.actions.len();
            let count = self.what(snapshot, plan, at);
            let uncounted = self.status.uncounted.get_or_insert_default();
            // Pods that are named already are released however many there are, or they would block all others.
            if !matches!(count, Count::Nothing) && new_indexes + uncounted.len() >= MOST_UNCOUNTED {
                put_off.insert(&snapshot.workers[at].pod.meta.uid);
                self.actions.truncate(actions);
                continue;
            }
            let list = if to_delete.contains(&at) { &mut self.release_deleted } else { &mut self.release };
            list.push(at);
            match count {
                Count::Nothing => {}
                Count::Index => new_indexes += 1,
                Count::Success(uid) => {
                    self.held.insert(uid.clone());
                    uncounted.succeeded.push(uid);
                }
                Count::Failure(uid) => {
                    self.held.insert(uid.clone());
                    uncounted.failed.push(uid);
                }
            }
        }
        self.more = !put_off.is_empty();
        if self.more {
            self.backoff = tally::backoff_without(snapshot, &put_off);
        }
    }

    /// Whether the finalizer of this pod may go, once the pod is counted.
    fn may_go(
        &self,
        snapshot: &Snapshot<'_>,
        plan: &Plan,
        applied: &Applied,
        deleted: &HashSet<usize>,
        at: usize,
    ) -> bool {
        let worker = &snapshot.workers[at];
        if worker.hold != Hold::Held {
            return false;
        }
        if snapshot.is_deleting() || worker.state == State::Succeeded {
            return true;
        }
        if self.ending.is_some() {
            // Where it still works it is not known how it ends.
            return !worker.is_active() || deleted.contains(&at);
        }
        // Who remembers for a successor that cannot come would hold its namespace for ever: pods go before Jobs there.
        let is_needed = !applied.closed && remembers(plan, worker, at);
        snapshot.is_failed(worker) && !is_needed
    }

    /// What this pod is counted as. Pods that the status names are counted.
    fn what(&mut self, snapshot: &Snapshot<'_>, plan: &Plan, at: usize) -> Count {
        let worker = &snapshot.workers[at];
        let uid = &worker.pod.meta.uid;
        if worker.place == Place::Stray || snapshot.uncounted.names(uid) || snapshot.is_deleted_by_success(worker) {
            return Count::Nothing;
        }
        if worker.state == State::Succeeded {
            return match (&plan.tally.indexes, worker.index()) {
                (Some(indexes), Some(index)) if indexes.stored.contains(index) => Count::Nothing,
                (Some(_), _) => Count::Index,
                (None, _) => Count::Success(uid.clone()),
            };
        }
        // When the Job fails, whoever still worked failed with it; when it succeeds they are counted neither way: it was we
        // who deleted them.
        let fails_with_job = self.ending.as_ref().is_some_and(|it| !it.succeeds());
        if !snapshot.is_failed(worker) && !fails_with_job {
            return Count::Nothing;
        }
        let verdict = verdict(snapshot.job, worker.pod);
        self.actions.extend(verdict.action());
        if verdict.counts() { Count::Failure(uid.clone()) } else { Count::Nothing }
    }

    /// Whether the Job may be declared ended once all of this is done and nothing is uncounted.
    fn may_end(&self) -> bool {
        self.ending.is_some() && self.quiet && !self.more && self.status.terminating.unwrap_or_default() == 0
    }

    /// Whether the last write follows without any other: what it announces stands already, and no pod waits for it.
    fn ends_at_once(&self) -> bool {
        let is_counted = self.status.uncounted.as_ref().is_none_or(api::UncountedPods::is_empty);
        let is_announced = self.ending.as_ref().is_some_and(|it| it.announced);
        is_announced && self.may_end() && self.release.is_empty() && is_counted
    }
}

/// Whether the pod is the one that remembers for its index.
fn remembers(plan: &Plan, worker: &Worker<'_>, at: usize) -> bool {
    plan.tally.indexes.as_ref().is_some_and(|it| it.delayed.holds(worker.index(), at))
}

#[cfg(test)]
mod tests;
