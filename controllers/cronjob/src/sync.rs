//! One CronJob, top to bottom: history, children, time, run, status.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc, time::Duration};

use api::{ActiveJob, CronJob, JobIndex, ObjectKey};
use client::{Api, ApiError};
use clock::Timestamp;
use events::Type;
use informer::StoreError;
use runner::Outcome;

use crate::{
    Ctx,
    apply::{self, Begun},
    look,
    memory::Edit,
    notice::Notice,
    plan::{Base, Plan, Run, Settled, as_active, plan, settle},
    snapshot::{Child, children, job_name, untold},
    status::Change,
    timing::{Timing, timing},
};

/// Against small differences between clocks: each wake-up is so much later than its time.
const PADDING: Duration = Duration::from_millis(100);

/// Why a sync did not get to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error(transparent)]
    Cache(#[from] StoreError),
    #[error("cannot read what the server has")]
    Read(#[source] ApiError),
    #[error("cannot read the template")]
    Template(#[source] serde_json::Error),
    #[error("cannot create the job")]
    Create(#[source] ApiError),
    #[error("cannot delete a job that is to be replaced")]
    Delete(#[source] ApiError),
    #[error("cannot write the status")]
    Status(#[source] ApiError),
}

/// Brings one CronJob up to its time.
pub(crate) async fn sync(ctx: &Ctx, key: &ObjectKey) -> Result<Outcome, SyncError> {
    let Some(cron_job) = ctx.cron_jobs.store().get(&key.namespace, &key.name)? else {
        ctx.queue.cancel_delay(&look(key.clone()));
        return Ok(Outcome::Done);
    };
    let uid = &cron_job.meta.uid;
    if ctx.memory.is_gone(uid) {
        return Ok(Outcome::Done);
    }
    let (queue, parked) = (ctx.queue.clone(), look(key.clone()));
    if let Some(wait) = ctx.gate.behind(uid, move || queue.add(parked)) {
        return Ok(Outcome::Parked(wait));
    }
    let jobs = ctx.jobs.store().by_index(&JobIndex::Owner(uid.clone()))?;
    let kept = ctx.memory.unwritten(uid);
    let mut change = Change::default();
    let children = children(&cron_job, &jobs);
    let known = present(&cron_job, kept.as_ref());
    let untold = untold(&known, &children, ctx.clock.wall().as_second());
    let outcome = match untold {
        // Before anything else is done: that Job may be deleted, to make room or as surplus, and then nothing would tell that
        // its time has run.
        Some(at) => {
            change.begun = settle(&known, &children, &BTreeSet::new()).change.begun;
            change.last_schedule = Some(at);
            Ok(Outcome::After(Duration::ZERO))
        }
        None => pass(ctx, &cron_job, kept.as_ref(), &children, &mut change).await,
    };
    // Also after an error, and before another CronJob begins: as long as the server stores statuses, a process that is killed
    // leaves one time untold for each worker at most.
    let change = kept.unwrap_or_default().then(change);
    let written = write_or_keep(ctx, &ctx.api, &cron_job, change).await;
    // This sync says when to look again. A timer of an earlier one may be for a schedule that was edited since.
    ctx.queue.cancel_delay(&look(key.clone()));
    let outcome = written.and(outcome);
    // Should it have gone meanwhile, what was just remembered goes too: its event has come already.
    let is_gone = |it: Option<Arc<CronJob>>| it.is_none_or(|it| it.meta.uid != *uid);
    if ctx.cron_jobs.store().get(&key.namespace, &key.name).is_ok_and(is_gone) {
        ctx.forget(uid);
        return outcome;
    }
    if outcome.is_err()
        && let Some(wait) = next(ctx, &cron_job)
    {
        // However long the back-off is, the next time is looked at when it comes.
        ctx.queue.add_after(look(key.clone()), wait);
    }
    outcome
}

/// Writes the status, or keeps in memory what it lacks.
pub(crate) async fn write_or_keep(ctx: &Ctx, api: &Api, cron_job: &CronJob, change: Change) -> Result<(), SyncError> {
    let written = apply::write_status(ctx, api, cron_job, &change).await;
    match &written {
        Ok(()) => ctx.memory.on_written(&cron_job.meta.uid),
        Err(_) => ctx.memory.keep(&cron_job.meta.uid, change),
    }
    written
}

/// A CronJob with another schedule is looked at, unless that is none: then people are told. No time before the edit runs.
///
/// No handler does this: zones may have to be read from files.
pub(crate) fn edited(ctx: &Ctx, key: &ObjectKey) -> Result<Outcome, SyncError> {
    let Some(cron_job) = ctx.cron_jobs.store().get(&key.namespace, &key.name)? else { return Ok(Outcome::Done) };
    if let Timing::Read { schedule: Err(_), .. } = Timing::of(&cron_job.spec, &ctx.zones) {
        let message = format!("unparseable schedule for cronjob: {}", cron_job.spec.schedule);
        ctx.tell(&cron_job, Type::Warning, "UnParseableCronJobSchedule", message);
    } else {
        ctx.queue.add(look(key.clone()));
    }
    Ok(Outcome::Done)
}

/// How long it is until the next time, whatever else there is to do.
fn next(ctx: &Ctx, cron_job: &CronJob) -> Option<Duration> {
    let Timing::Read { schedule: Ok(schedule), .. } = Timing::of(&cron_job.spec, &ctx.zones) else { return None };
    let now = ctx.clock.wall();
    let from = base(ctx, cron_job, now.as_second()).from;
    until(schedule.next_from(from, now.as_second())?, now)
}

/// The CronJob with what has happened to it and the server was not told yet.
fn present<'a>(cron_job: &'a CronJob, kept: Option<&Change>) -> Cow<'a, CronJob> {
    match kept.and_then(|it| it.of(&cron_job.status)) {
        Some(status) => {
            let mut present = cron_job.clone();
            present.status = status;
            Cow::Owned(present)
        }
        None => Cow::Borrowed(cron_job),
    }
}

/// Everything but the status, of which it collects the changes. What happened before, and was not told, is in `kept`.
async fn pass(
    ctx: &Ctx,
    told: &CronJob,
    kept: Option<&Change>,
    children: &[Child<'_>],
    change: &mut Change,
) -> Result<Outcome, SyncError> {
    // First, as Jobs that are too many may stand in the way of a new one's quota.
    let removed = apply::tidy(ctx, told, children).await;
    let cron_job = &*present(told, kept);
    let Settled { change: settled, ended, unexpected, unknown } = settle(cron_job, children, &removed);
    *change = settled;
    for (child, end) in ended {
        apply::ended(ctx, cron_job, child.job, end);
    }
    let Some(mut notices) = strangers(ctx, cron_job, &unexpected).await? else { return Ok(Outcome::Done) };
    // What cannot be asked for stays active, and keeps nothing else from its time.
    let missed = missing(ctx, cron_job, unknown, change).await;
    unanswered(ctx, &ctx.api, cron_job, children, change).await?;

    let now = ctx.clock.wall();
    let base = base(ctx, cron_job, now.as_second());
    let active = change.active(&cron_job.status);
    let timing = Timing::of(&cron_job.spec, &ctx.zones);
    let Plan { run, notices: more, next } = plan(cron_job, children, &active, timing, base, now.as_second());
    notices.extend(more);
    let result = carry_out(ctx, cron_job, run, &mut notices, change).await;
    if change.last_schedule.is_some() {
        change.wrong = base.wrong();
    }
    for notice in ctx.memory.tell(&cron_job.meta.uid, notices) {
        let (type_, reason, message) = notice.event();
        ctx.tell(cron_job, type_, reason, message);
    }
    let wait = next.and_then(|it| until(it, ctx.clock.wall()));
    result.and(missed).map(|()| wait.map_or(Outcome::Done, Outcome::After))
}

/// Asks for the active Jobs of which the cache knows nothing.
async fn missing(ctx: &Ctx, cron_job: &CronJob, unknown: Vec<ActiveJob>, change: &mut Change) -> Result<(), SyncError> {
    let mut result = Ok(());
    for it in unknown {
        match apply::look(ctx, cron_job, &it).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                ctx.tell(cron_job, Type::Normal, "MissingJob", format!("Active job went missing: {}", it.name));
                change.gone.insert(it.uid);
            }
            Err(err) => result = Err(SyncError::Read(err)),
        }
    }
    result
}

/// A Job that was asked for without an answer: before anything else begins it is known whether it is there.
pub(crate) async fn unanswered(
    ctx: &Ctx,
    api: &Api,
    cron_job: &CronJob,
    children: &[Child<'_>],
    change: &mut Change,
) -> Result<(), SyncError> {
    let uid = &cron_job.meta.uid;
    let Some(at) = ctx.memory.asked(uid) else { return Ok(()) };
    let name = job_name(cron_job, at);
    if !children.iter().any(|it| *it.job.meta.name == *name)
        && let Some(Begun::There(active)) = apply::found(ctx, api, cron_job, at).await?
    {
        change.begun.extend(active);
        change.last_schedule = change.last_schedule.max(Some(at));
    }
    ctx.memory.answered(uid);
    Ok(())
}

/// What is to be told of Jobs that nobody expected; `None` where the CronJob itself is gone.
///
/// Before it is told the server is asked, once for all, whether its status knows them.
async fn strangers(ctx: &Ctx, cron_job: &CronJob, unexpected: &[Child<'_>]) -> Result<Option<Vec<Notice>>, SyncError> {
    let notice = |child: &Child<'_>| {
        let meta = &child.job.meta;
        Notice::UnexpectedJob { job: meta.name.clone(), uid: meta.uid.clone() }
    };
    let is_new = |it: &Notice| !ctx.memory.has_told(&cron_job.meta.uid, it);
    let mut notices: Vec<Notice> = unexpected.iter().map(notice).collect();
    if notices.iter().any(is_new) {
        let Some(live) = apply::read(ctx, &ctx.api, cron_job).await? else { return Ok(None) };
        notices.retain(|it| match it {
            Notice::UnexpectedJob { uid, .. } => live.status.active.iter().all(|it| it.uid != *uid),
            _ => true,
        });
    }
    Ok(Some(notices))
}

/// From when on times count: from the last one, or from the creation, but never from a time that is to come.
fn base(ctx: &Ctx, cron_job: &CronJob, now: i64) -> Base {
    let uid = &cron_job.meta.uid;
    let since = |last| ctx.memory.counts_from(uid, last, now);
    let base = Base::of(cron_job.status.last_schedule, cron_job.creation, now, since);
    if base.wrong().is_none() {
        ctx.memory.is_not_ahead(uid);
    }
    let Some(edit) = ctx.memory.edit_after(uid, base.from, now) else { return base };
    let Edit { earlier, at, schedule, zone } = edit;
    let was = match timing(&schedule, zone.as_deref(), &ctx.zones) {
        Timing::Read { schedule, .. } => schedule.ok(),
        Timing::UnknownZone(_) => None,
    };
    base.edited(earlier, at, was.as_ref())
}

/// Makes a run happen, and says in the change what became of it.
async fn carry_out(
    ctx: &Ctx,
    cron_job: &CronJob,
    run: Run<'_>,
    notices: &mut Vec<Notice>,
    change: &mut Change,
) -> Result<(), SyncError> {
    let (at, active) = match run {
        Run::Nothing => return Ok(()),
        Run::Begun { at, child } => (at, as_active(cron_job, &child)),
        Run::Begin { at, replaces, told_in } => {
            apply::replace(ctx, cron_job, &replaces, change).await?;
            match apply::begin(ctx, cron_job, at, &told_in).await? {
                Begun::There(active) => (at, active),
                Begun::NameTaken(notice) => {
                    notices.push(notice);
                    return Ok(());
                }
                Begun::NamespaceGoes => return Ok(()),
            }
        }
    };
    change.begun.extend(active);
    change.last_schedule = change.last_schedule.max(Some(at));
    Ok(())
}

/// How long it is until a time, with the padding; `None` for one that never comes.
pub(crate) fn until(at: i64, now: Timestamp) -> Option<Duration> {
    let wait = Timestamp::from_second(at).ok()?.duration_since(now);
    Some(Duration::try_from(wait).unwrap_or_default() + PADDING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wake_ups_are_a_little_after_their_time() {
        let now = Timestamp::from_millisecond(60_100).unwrap();
        assert_eq!(until(120, now), Some(Duration::from_secs(60)));
        assert_eq!(until(61, now), Some(Duration::from_secs(1)));
        assert_eq!(until(60, now), Some(PADDING), "one that has just come");
        assert_eq!(until(i64::MAX, now), None);
    }
}
