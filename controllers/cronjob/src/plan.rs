//! What one sync is to do: first with what is there, then with the time.

use std::collections::BTreeSet;

use api::{ActiveJob, ConcurrencyPolicy, CronJob, Uid};
use jiff::tz::TimeZone;

use crate::{
    due::{Due, Latest, MANY, Never, due},
    notice::Notice,
    schedule::Schedule,
    snapshot::{Child, End, job_name, made_for},
    status::Change,
    timing::Timing,
};

/// What follows from the children and the status alone.
#[derive(Debug, Default)]
pub(crate) struct Settled<'a> {
    pub(crate) change: Change,
    /// Were active and have ended: people are told.
    pub(crate) ended: Vec<(Child<'a>, End)>,
    /// Run, and were never active: made by hand, or the status is not what the server has.
    pub(crate) unexpected: Vec<Child<'a>>,
    /// Are active, and the cache knows of none: gone, or the cache is late.
    pub(crate) unknown: Vec<ActiveJob>,
}

/// Compares the children with the active Jobs of the status. Those in `removed` were deleted in this sync.
pub(crate) fn settle<'a>(cron_job: &CronJob, children: &[Child<'a>], removed: &BTreeSet<Uid>) -> Settled<'a> {
    let mut settled = Settled::default();
    settled.change.gone.clone_from(removed);
    let active: BTreeSet<&Uid> = cron_job.status.active.iter().map(|it| &it.uid).collect();
    for child in children {
        let meta = &child.job.meta;
        let is_active = active.contains(&meta.uid) && !removed.contains(&meta.uid);
        match child.end {
            Some(end) => {
                if is_active {
                    settled.change.gone.insert(meta.uid.clone());
                    settled.ended.push((*child, end));
                }
                if end == End::Complete {
                    let latest = &mut settled.change.last_successful;
                    *latest = (*latest).max(child.job.status.completion);
                }
            }
            None if is_active => {}
            // Made by us, by a manager that did not come to tell the status.
            None if made_for(cron_job, child.job).is_some() => settled.change.begun.extend(as_active(cron_job, child)),
            None => settled.unexpected.push(*child),
        }
    }
    let known: BTreeSet<&Uid> = children.iter().map(|it| &it.job.meta.uid).collect();
    for it in cron_job.status.active.iter().filter(|it| !known.contains(&it.uid)) {
        // No Job of ours: not even asked for, least of all in another namespace.
        if it.name.is_empty() || it.uid.is_empty() || it.namespace != cron_job.meta.namespace {
            settled.change.gone.insert(it.uid.clone());
        } else {
            settled.unknown.push(it.clone());
        }
    }
    settled
}

/// How a Job that began stands among the active ones, if it does. One that is being deleted runs on until its pods have
/// ended, and is not waited for where it was replaced.
pub(crate) fn as_active(cron_job: &CronJob, child: &Child<'_>) -> Option<ActiveJob> {
    let meta = &child.job.meta;
    let replaced = meta.deletion.is_some() && cron_job.spec.concurrency_policy == ConcurrencyPolicy::Replace;
    let runs = child.end.is_none() && !replaced;
    runs.then(|| ActiveJob::new(&meta.namespace, &meta.name, meta.uid.clone(), meta.version.clone()))
}

/// What the time asks for.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    pub(crate) run: Run<'a>,
    /// What holds now.
    pub(crate) notices: Vec<Notice>,
    /// When to look again, in seconds since the epoch.
    pub(crate) next: Option<i64>,
}

/// A run, or none.
#[derive(Debug, Default)]
pub(crate) enum Run<'a> {
    #[default]
    Nothing,
    /// Its Job is there already, and the status does not tell.
    Begun { at: i64, child: Child<'a> },
    /// Its Job is to be made, when those were deleted.
    Begin { at: i64, replaces: Vec<ActiveJob>, told_in: TimeZone },
}

/// So far apart, in seconds, the clocks of two managers may be.
pub(crate) const AHEAD: i64 = 3600;
/// A last time that is to come by no more, in seconds, comes soon enough, and nobody is told.
const A_LITTLE: i64 = 60;

/// From when on times count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    /// This time itself is over.
    pub(crate) from: i64,
    /// The time in the status, where that is to come by more than a little.
    pub(crate) ahead: Option<i64>,
    /// Only times after this one run: `from`, or the moment of a later edit of the schedule (k/k#130838).
    pub(crate) after: i64,
    /// The latest time of the schedule before the edit, where it had come by then and had not run. It runs if it is a time
    /// of the present schedule too.
    pub(crate) waiting: Option<i64>,
}

impl Base {
    /// From the time that the status names. Somebody whose clock is ahead of ours may have run times that are to come for
    /// us: by [`AHEAD`] at most, more than that is an error of a clock, and times count from `since`, when it was seen.
    pub(crate) fn of(last: Option<i64>, creation: Option<i64>, now: i64, since: impl FnOnce(i64) -> i64) -> Self {
        let (from, ahead) = match last {
            Some(last) if last > now + AHEAD => (since(last), Some(last)),
            _ => (last.or(creation).unwrap_or(now), last.filter(|it| *it > now + A_LITTLE)),
        };
        Self { from, ahead, after: from, waiting: None }
    }

    /// The same when the schedule was edited at `at`, and before that at `earlier`; `was` is the schedule in between.
    pub(crate) fn edited(self, earlier: i64, at: i64, was: Option<&Schedule>) -> Self {
        let waiting = was.and_then(|it| it.last(self.from, at)).filter(|it| *it > earlier);
        Self { after: self.from.max(at), waiting, ..self }
    }

    /// The time in the status that does not count.
    pub(crate) fn wrong(&self) -> Option<i64> {
        self.ahead.filter(|it| self.from < *it)
    }
}

/// Decides about a run. `active` is what is left of the active Jobs, `now` is cut to seconds.
pub(crate) fn plan<'a>(
    cron_job: &CronJob,
    children: &[Child<'a>],
    active: &[ActiveJob],
    timing: Timing,
    base: Base,
    now: i64,
) -> Plan<'a> {
    let mut plan = Plan::default();
    if cron_job.meta.deletion.is_some() {
        return plan;
    }
    let (schedule, told_in, unsupported) = match timing {
        Timing::UnknownZone(notice) => {
            plan.notices.push(notice);
            return plan;
        }
        Timing::Read { schedule, told_in, unsupported } => (schedule, told_in, unsupported),
    };
    if cron_job.spec.suspend {
        return plan;
    }
    plan.notices.extend(unsupported);
    plan.notices.extend(base.ahead.map(|at| Notice::LastScheduleInFuture { at, counts: base.wrong().is_none() }));
    let found = match schedule.map(|it| due(&it, base, cron_job.spec.starting_deadline, now)) {
        Ok(Ok(found)) => found,
        Ok(Err(Never)) => {
            plan.notices.push(Notice::InvalidSchedule { schedule: cron_job.spec.schedule.clone() });
            return plan;
        }
        Err(notice) => {
            plan.notices.push(notice);
            return plan;
        }
    };
    let Due { latest, next } = found;
    plan.next = next;
    if let Some(latest) = latest {
        plan.run = run(cron_job, children, active, latest, told_in, &mut plan.notices);
    }
    plan
}

/// Decides about a time that has come.
fn run<'a>(
    cron_job: &CronJob,
    children: &[Child<'a>],
    active: &[ActiveJob],
    latest: Latest,
    told_in: TimeZone,
    notices: &mut Vec<Notice>,
) -> Run<'a> {
    let Latest { at, too_late, missed } = latest;
    let name = job_name(cron_job, at);
    // A minute has one Job: the second of two times in it has had its own.
    if cron_job.status.last_schedule.is_some_and(|it| job_name(cron_job, it) == name) {
        return Run::Nothing;
    }
    if let Some(child) = children.iter().find(|it| *it.job.meta.name == *name && made_for(cron_job, it.job).is_some()) {
        return Run::Begun { at, child: *child };
    }
    if active.iter().any(|it| *it.name == *name) {
        return Run::Nothing;
    }
    if too_late {
        notices.push(Notice::MissSchedule { at });
        return Run::Nothing;
    }
    if missed > MANY {
        notices.push(Notice::TooManyMissedTimes { at });
    }
    match &cron_job.spec.concurrency_policy {
        ConcurrencyPolicy::Forbid if !active.is_empty() => {
            notices.push(Notice::JobAlreadyActive { at });
            Run::Nothing
        }
        ConcurrencyPolicy::Replace => Run::Begin { at, replaces: active.to_vec(), told_in },
        // A word that we do not know forbids nothing, as upstream.
        ConcurrencyPolicy::Allow | ConcurrencyPolicy::Forbid | ConcurrencyPolicy::Other(_) => {
            Run::Begin { at, replaces: Vec::new(), told_in }
        }
    }
}

#[cfg(test)]
mod tests;
