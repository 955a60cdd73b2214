//! Decides what one sync does: first from the existing Jobs, then from the time.

use std::collections::BTreeSet;

use api::{ActiveJob, ConcurrencyPolicy, CronJob, Uid};
use jiff::tz::TimeZone;

use crate::rules::{
    due::{Base, Due, Latest, MANY_MISSED, NoTimes, due},
    notice::Notice,
    snapshot::{Child, End, job_name, scheduled_time},
    status::Change,
    timing::Timing,
};

/// The result of comparing the Jobs with the status.
#[derive(Debug, Default)]
pub(crate) struct JobComparison<'a> {
    pub(crate) change: Change,
    /// Active Jobs that have finished; each gets an event.
    pub(crate) ended: Vec<(Child<'a>, End)>,
    /// Running Jobs that are not in `status.active`: created by a user, or the cached status is old.
    pub(crate) unexpected: Vec<Child<'a>>,
    /// Jobs in `status.active` that the cache does not have: deleted, or the cache is behind.
    pub(crate) unknown: Vec<ActiveJob>,
}

/// Compares the Jobs with `status.active`. The Jobs in `removed` were deleted in this sync.
pub(crate) fn compare_jobs<'a>(
    cron_job: &CronJob,
    children: &[Child<'a>],
    removed: &BTreeSet<Uid>,
) -> JobComparison<'a> {
    let mut comparison = JobComparison::default();
    comparison.change.gone.clone_from(removed);
    let active: BTreeSet<&Uid> = cron_job.status.active.iter().map(|it| &it.uid).collect();
    for child in children {
        let meta = &child.job.meta;
        let is_active = active.contains(&meta.uid) && !removed.contains(&meta.uid);
        match child.end {
            Some(end) => {
                if is_active {
                    comparison.change.gone.insert(meta.uid.clone());
                    comparison.ended.push((*child, end));
                }
                if end == End::Complete {
                    let latest = &mut comparison.change.last_successful;
                    *latest = (*latest).max(child.job.status.completion);
                }
            }
            None if is_active => {}
            // Created by a manager that did not write the status.
            None if scheduled_time(cron_job, child.job).is_some() => {
                comparison.change.started.extend(as_active(cron_job, child))
            }
            None => comparison.unexpected.push(*child),
        }
    }
    let known: BTreeSet<&Uid> = children.iter().map(|it| &it.job.meta.uid).collect();
    for it in cron_job.status.active.iter().filter(|it| !known.contains(&it.uid)) {
        // This reference cannot be a Job of this CronJob, so it is not requested, above all not in another namespace.
        if it.name.is_empty() || it.uid.is_empty() || it.namespace != cron_job.meta.namespace {
            comparison.change.gone.insert(it.uid.clone());
        } else {
            comparison.unknown.push(it.clone());
        }
    }
    comparison
}

/// The entry of a started Job in `status.active`, if it is active. A terminating Job stays active until its pods have
/// ended, but with `concurrencyPolicy: Replace` it does not count.
pub(crate) fn as_active(cron_job: &CronJob, child: &Child<'_>) -> Option<ActiveJob> {
    let meta = &child.job.meta;
    let replaced = meta.deletion.is_some() && cron_job.spec.concurrency_policy == ConcurrencyPolicy::Replace;
    let runs = child.end.is_none() && !replaced;
    runs.then(|| ActiveJob::new(&meta.namespace, &meta.name, meta.uid.clone(), meta.version.clone()))
}

/// What to do for the time.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    pub(crate) run: Run<'a>,
    /// The notices that hold now.
    pub(crate) notices: Vec<Notice>,
    /// When to sync again, in seconds since the epoch.
    pub(crate) next: Option<i64>,
}

/// A run, or none.
#[derive(Debug, Default)]
pub(crate) enum Run<'a> {
    #[default]
    Nothing,
    /// The Job exists already, but the status does not contain the run.
    Exists { at: i64, child: Child<'a> },
    /// The Job must be created, after the replaced ones are deleted.
    Create { at: i64, replaces: Vec<ActiveJob>, annotation_zone: TimeZone },
}

/// Decides about a run. `active` are the remaining active Jobs; `now` is in whole seconds.
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
    let (schedule, annotation_zone, unsupported) = match timing {
        Timing::UnknownZone(notice) => {
            plan.notices.push(notice);
            return plan;
        }
        Timing::Read { schedule, annotation_zone, unsupported } => (schedule, annotation_zone, unsupported),
    };
    if cron_job.spec.suspend {
        return plan;
    }
    plan.notices.extend(unsupported);
    plan.notices.extend(base.ahead.map(|at| Notice::LastScheduleInFuture { at, counts: base.wrong().is_none() }));
    let found = match schedule.map(|it| due(&it, base, cron_job.spec.starting_deadline, now)) {
        Ok(Ok(found)) => found,
        Ok(Err(NoTimes)) => {
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
        plan.run = run(cron_job, children, active, latest, annotation_zone, &mut plan.notices);
    }
    plan
}

/// Decides about a time that has come.
fn run<'a>(
    cron_job: &CronJob,
    children: &[Child<'a>],
    active: &[ActiveJob],
    latest: Latest,
    annotation_zone: TimeZone,
    notices: &mut Vec<Notice>,
) -> Run<'a> {
    let Latest { at, too_late, missed } = latest;
    let name = job_name(cron_job, at);
    // A minute has one Job, so a second time in the same minute does not run.
    if cron_job.status.last_schedule.is_some_and(|it| job_name(cron_job, it) == name) {
        return Run::Nothing;
    }
    if let Some(child) =
        children.iter().find(|it| *it.job.meta.name == *name && scheduled_time(cron_job, it.job).is_some())
    {
        return Run::Exists { at, child: *child };
    }
    if active.iter().any(|it| *it.name == *name) {
        return Run::Nothing;
    }
    if too_late {
        notices.push(Notice::MissSchedule { at });
        return Run::Nothing;
    }
    if missed > MANY_MISSED {
        notices.push(Notice::TooManyMissedTimes { at });
    }
    match &cron_job.spec.concurrency_policy {
        ConcurrencyPolicy::Forbid if !active.is_empty() => {
            notices.push(Notice::JobAlreadyActive { at });
            Run::Nothing
        }
        ConcurrencyPolicy::Replace => Run::Create { at, replaces: active.to_vec(), annotation_zone },
        // As in upstream's `syncCronJob`, an unknown policy does not prevent a run.
        ConcurrencyPolicy::Allow | ConcurrencyPolicy::Forbid | ConcurrencyPolicy::Other(_) => {
            Run::Create { at, replaces: Vec::new(), annotation_zone }
        }
    }
}

#[cfg(test)]
mod tests;
