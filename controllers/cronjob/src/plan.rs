//! What one sync is to do: first with what is there, then with the time.

use std::collections::BTreeSet;

use api::{ActiveJob, ConcurrencyPolicy, CronJob, Uid};
use jiff::tz::TimeZone;

use crate::{
    due::{Due, Latest, MANY, Never, due},
    notice::Notice,
    snapshot::{Child, End, is_named_by_us, job_name, minute_of},
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
        // By whom and when it was begun does not matter, nor that our clock may not have come so far: that time ran.
        let ran =
            minute_of(cron_job, &meta.name).map(|it| it * 60).filter(|it| cron_job.status.last_schedule < Some(*it));
        settled.change.last_schedule = settled.change.last_schedule.max(ran);
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
            None if is_active || meta.deletion.is_some() => {}
            // Made by us, by a manager that did not come to tell the status. The name says so, and the uid of the owner.
            None if is_named_by_us(cron_job, &meta.name) => settled.change.begun.push(reference(child)),
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

/// An entry of the active Jobs.
pub(crate) fn reference(child: &Child<'_>) -> ActiveJob {
    let meta = &child.job.meta;
    ActiveJob::new(&meta.namespace, &meta.name, meta.uid.clone(), meta.version.clone())
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

/// From when on times count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    /// This time itself is over.
    pub(crate) from: i64,
    /// The time in the status, where that is to come.
    pub(crate) ahead: Option<i64>,
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
    plan.notices.extend(base.ahead.map(|at| Notice::LastScheduleInFuture { at }));
    let found = match schedule.map(|it| due(&it, base.from, cron_job.spec.starting_deadline, now)) {
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
    if let Some(child) = children.iter().find(|it| *it.job.meta.name == *name) {
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
