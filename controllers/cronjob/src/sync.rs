//! One CronJob, top to bottom: history, children, time, run, status.

use std::{borrow::Cow, collections::BTreeSet, time::Duration};

use api::{ActiveJob, CronJob, JobIndex, ObjectKey};
use client::Api;
use clock::Timestamp;
use controller::Outcome;
use events::EventType;

use crate::{
    Ctx,
    apply::{self, CreateOutcome},
    error::SyncError,
    memory::Edit,
    rules::{
        due::Base,
        notice::Notice,
        plan::{JobComparison, Plan, Run, as_active, compare_jobs, plan},
        snapshot::{Child, children, job_name, unrecorded_time},
        status::Change,
        timing::{Timing, timing},
    },
    sync_key,
};

/// Each sync is this much later than its time, against small clock differences (upstream's `nextScheduleDelta`).
const PADDING: Duration = Duration::from_millis(100);

/// The pause after a time was recorded. Usually the watch event of that write starts the next sync earlier. A webhook
/// that resets the status would otherwise cause a write without end.
const RECORD_PAUSE: Duration = Duration::from_secs(1);

/// Syncs one CronJob.
pub(crate) async fn sync(ctx: &Ctx, key: &ObjectKey) -> Result<Outcome, SyncError> {
    let Some(cron_job) = ctx.cron_jobs.store().get(&key.namespace, &key.name)? else {
        ctx.queue.cancel_delay(&sync_key(key.clone()));
        return Ok(Outcome::Done);
    };
    let uid = &cron_job.meta.uid;
    if ctx.memory.is_gone(uid) {
        return Ok(Outcome::Done);
    }
    if let Some(wait) = ctx.consistency.park_if_stale(uid, &ctx.queue, &sync_key(key.clone())) {
        return Ok(Outcome::Parked(wait));
    }
    let jobs = ctx.jobs.store().by_index(&JobIndex::Owner(uid.clone()))?;
    let kept = ctx.memory.unwritten(uid);
    let mut change = Change::default();
    let children = children(&cron_job, &jobs);
    let known = with_unwritten(&cron_job, kept.as_ref());
    let unrecorded_time = unrecorded_time(&known, &children, ctx.clock.wall().as_second());
    let outcome = match unrecorded_time {
        // Written before anything else: this Job may be deleted, as replaced or surplus, and then nothing would show
        // that its time has run.
        Some(at) => {
            change.started = compare_jobs(&known, &children, &BTreeSet::new()).change.started;
            change.last_schedule = Some(at);
            Ok(Outcome::After(RECORD_PAUSE))
        }
        None => run_pass(ctx, &cron_job, kept.as_ref(), &children, &mut change).await,
    };
    // Also written after an error, and before the worker syncs another CronJob. So a killed process leaves at most one
    // unwritten time per worker, while the server accepts statuses.
    let change = kept.unwrap_or_default().then(change);
    let written = write_or_keep(ctx, &ctx.api, &cron_job, change).await;
    // This sync decides when to sync again. An earlier timer may belong to the schedule from before an edit.
    ctx.queue.cancel_delay(&sync_key(key.clone()));
    let outcome = written.and(outcome);
    // If the CronJob was deleted meanwhile, its delete event has already come, so its memory must be removed here.
    if ctx.cron_jobs.store().is_gone(&key.namespace, &key.name, uid) {
        ctx.remove(uid);
        return outcome;
    }
    if outcome.is_err()
        && let Some(wait) = time_to_next(ctx, &cron_job)
    {
        // The next time must not wait for a long back-off.
        ctx.queue.add_after(sync_key(key.clone()), wait);
    }
    outcome
}

/// Writes the status, or keeps the change in memory if that fails.
pub(crate) async fn write_or_keep(ctx: &Ctx, api: &Api, cron_job: &CronJob, change: Change) -> Result<(), SyncError> {
    let written = apply::write_status(ctx, api, cron_job, &change).await;
    match &written {
        Ok(()) => ctx.memory.on_written(&cron_job.meta.uid),
        Err(_) => ctx.memory.store_unwritten(&cron_job.meta.uid, change),
    }
    written
}

/// Handles an edited schedule: enqueues the CronJob, or sends an event if the schedule is invalid. No time before the
/// edit runs.
///
/// This is not done in the handler, because time zones may have to be read from files.
pub(crate) fn on_edited(ctx: &Ctx, key: &ObjectKey) -> Result<Outcome, SyncError> {
    let Some(cron_job) = ctx.cron_jobs.store().get(&key.namespace, &key.name)? else { return Ok(Outcome::Done) };
    if let Timing::Read { schedule: Err(_), .. } = Timing::of(&cron_job.spec, &ctx.zones) {
        let message = format!("unparseable schedule for cronjob: {}", cron_job.spec.schedule);
        ctx.send_event(&cron_job, EventType::Warning, "UnParseableCronJobSchedule", message);
    } else {
        ctx.queue.add(sync_key(key.clone()));
    }
    Ok(Outcome::Done)
}

/// How long it is until the next time.
fn time_to_next(ctx: &Ctx, cron_job: &CronJob) -> Option<Duration> {
    let Timing::Read { schedule: Ok(schedule), .. } = Timing::of(&cron_job.spec, &ctx.zones) else { return None };
    let now = ctx.clock.wall();
    let from = base(ctx, cron_job, now.as_second()).from;
    delay_until(schedule.next_from(from, now.as_second())?, now)
}

/// The CronJob with the changes that are not in the stored status yet.
fn with_unwritten<'a>(cron_job: &'a CronJob, kept: Option<&Change>) -> Cow<'a, CronJob> {
    match kept.and_then(|it| it.apply_to(&cron_job.status)) {
        Some(status) => {
            let mut present = cron_job.clone();
            present.status = status;
            Cow::Owned(present)
        }
        None => Cow::Borrowed(cron_job),
    }
}

/// Does everything but the status write. Collects the changes of the status; earlier unwritten changes are in `kept`.
async fn run_pass(
    ctx: &Ctx,
    stored: &CronJob,
    kept: Option<&Change>,
    children: &[Child<'_>],
    change: &mut Change,
) -> Result<Outcome, SyncError> {
    // First, because surplus Jobs may use the quota that a new one needs.
    let removed = apply::delete_surplus(ctx, stored, children).await;
    let cron_job = &*with_unwritten(stored, kept);
    let JobComparison { change: job_change, ended, unexpected, unknown } = compare_jobs(cron_job, children, &removed);
    *change = job_change;
    for (child, end) in ended {
        apply::report_finished(ctx, cron_job, child.job, end);
    }
    let Some(mut notices) = unexpected_notices(ctx, cron_job, &unexpected).await? else { return Ok(Outcome::Done) };
    // A Job that cannot be read stays active and does not prevent anything else.
    let missed = resolve_missing(ctx, cron_job, unknown, change).await;
    resolve_unanswered_create(ctx, &ctx.api, cron_job, children, change).await?;

    let now = ctx.clock.wall();
    let base = base(ctx, cron_job, now.as_second());
    let active = change.active(&cron_job.status);
    let timing = Timing::of(&cron_job.spec, &ctx.zones);
    let Plan { run, notices: more, next } = plan(cron_job, children, &active, timing, base, now.as_second());
    notices.extend(more);
    let result = execute(ctx, cron_job, run, &mut notices, change).await;
    if change.last_schedule.is_some() {
        change.wrong = base.wrong();
    }
    for notice in ctx.memory.update_notices(&cron_job.meta.uid, notices) {
        let (type_, reason, message) = notice.event();
        ctx.send_event(cron_job, type_, reason, message);
    }
    let wait = next.and_then(|it| delay_until(it, ctx.clock.wall()));
    result.and(missed).map(|()| wait.map_or(Outcome::Done, Outcome::After))
}

/// Reads the active Jobs that the cache does not have from the server.
async fn resolve_missing(
    ctx: &Ctx,
    cron_job: &CronJob,
    unknown: Vec<ActiveJob>,
    change: &mut Change,
) -> Result<(), SyncError> {
    let mut result = Ok(());
    for it in unknown {
        match apply::read_active(ctx, cron_job, &it).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                ctx.send_event(
                    cron_job,
                    EventType::Normal,
                    "MissingJob",
                    format!("Active job went missing: {}", it.name),
                );
                change.gone.insert(it.uid);
            }
            Err(err) => result = Err(SyncError::Read(err)),
        }
    }
    result
}

/// Determines whether a Job exists whose creation had no response. Must be known before anything else runs.
pub(crate) async fn resolve_unanswered_create(
    ctx: &Ctx,
    api: &Api,
    cron_job: &CronJob,
    children: &[Child<'_>],
    change: &mut Change,
) -> Result<(), SyncError> {
    let uid = &cron_job.meta.uid;
    let Some(at) = ctx.memory.unanswered_create(uid) else { return Ok(()) };
    let name = job_name(cron_job, at);
    if !children.iter().any(|it| *it.job.meta.name == *name)
        && let Some(CreateOutcome::Exists(active)) = apply::find_job(ctx, api, cron_job, at).await?
    {
        change.started.extend(active);
        change.last_schedule = change.last_schedule.max(Some(at));
    }
    ctx.memory.clear_unanswered_create(uid);
    Ok(())
}

/// The notices for Jobs that are active but not in the status; `None` if the CronJob is gone.
///
/// Before an event is sent, the status is read once from the server, because the cached one may be old.
async fn unexpected_notices(
    ctx: &Ctx,
    cron_job: &CronJob,
    unexpected: &[Child<'_>],
) -> Result<Option<Vec<Notice>>, SyncError> {
    let notice = |child: &Child<'_>| {
        let meta = &child.job.meta;
        Notice::UnexpectedJob { job: meta.name.clone(), uid: meta.uid.clone() }
    };
    let is_new = |it: &Notice| !ctx.memory.has_sent(&cron_job.meta.uid, it);
    let mut notices: Vec<Notice> = unexpected.iter().map(notice).collect();
    if notices.iter().any(is_new) {
        let Some(live) = apply::read_cron_job(ctx, &ctx.api, cron_job).await? else { return Ok(None) };
        notices.retain(|it| match it {
            Notice::UnexpectedJob { uid, .. } => live.status.active.iter().all(|it| it.uid != *uid),
            _ => true,
        });
    }
    Ok(Some(notices))
}

/// From when times count: from the last time or the creation, but not from a wrong time in the future.
fn base(ctx: &Ctx, cron_job: &CronJob, now: i64) -> Base {
    let uid = &cron_job.meta.uid;
    let since = |last| ctx.memory.record_future_time(uid, last, now);
    let base = Base::of(cron_job.status.last_schedule, cron_job.creation, now, since);
    if base.wrong().is_none() {
        ctx.memory.clear_future_time(uid);
    }
    let Some(edit) = ctx.memory.edit_after(uid, base.from, now) else { return base };
    let Edit { earlier, at, schedule, zone } = edit;
    let was = match timing(&schedule, zone.as_deref(), &ctx.zones) {
        Timing::Read { schedule, .. } => schedule.ok(),
        Timing::UnknownZone(_) => None,
    };
    base.with_edit(earlier, at, was.as_ref())
}

/// Executes a run and adds the result to the change.
async fn execute(
    ctx: &Ctx,
    cron_job: &CronJob,
    run: Run<'_>,
    notices: &mut Vec<Notice>,
    change: &mut Change,
) -> Result<(), SyncError> {
    let (at, active) = match run {
        Run::Nothing => return Ok(()),
        Run::Exists { at, child } => (at, as_active(cron_job, &child)),
        Run::Create { at, replaces, annotation_zone } => {
            apply::replace(ctx, cron_job, &replaces, change).await?;
            match apply::create_job(ctx, cron_job, at, &annotation_zone).await? {
                CreateOutcome::Exists(active) => (at, active),
                CreateOutcome::NameTaken(notice) => {
                    notices.push(notice);
                    return Ok(());
                }
                CreateOutcome::NamespaceTerminating => return Ok(()),
            }
        }
    };
    change.started.extend(active);
    change.last_schedule = change.last_schedule.max(Some(at));
    Ok(())
}

/// How long it is until a time, with the padding; `None` if the time is out of range.
pub(crate) fn delay_until(at: i64, now: Timestamp) -> Option<Duration> {
    let wait = Timestamp::from_second(at).ok()?.duration_since(now);
    Some(Duration::try_from(wait).unwrap_or_default() + PADDING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syncs_are_slightly_after_their_time() {
        let now = Timestamp::from_millisecond(60_100).unwrap();
        assert_eq!(delay_until(120, now), Some(Duration::from_secs(60)));
        assert_eq!(delay_until(61, now), Some(Duration::from_secs(1)));
        assert_eq!(delay_until(60, now), Some(PADDING), "a time that is now");
        assert_eq!(delay_until(i64::MAX, now), None);
    }
}
