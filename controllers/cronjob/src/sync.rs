//! One CronJob, top to bottom: history, children, time, run, status.

use std::{borrow::Cow, sync::Arc, time::Duration};

use api::{CronJob, JobIndex, ObjectKey};
use client::ApiError;
use clock::Timestamp;
use events::Type;
use informer::StoreError;
use runner::Outcome;

use crate::{
    Ctx, Key,
    apply::{self, Begun},
    notice::Notice,
    plan::{Base, Plan, Run, Settled, plan, settle},
    snapshot::{Child, children},
    status::Change,
    timing::timing,
};

/// Against small differences between clocks: each wake-up is so much later than its time.
const PADDING: Duration = Duration::from_millis(100);
/// A last time that is to come by no more, in seconds, is one of a manager whose clock is ahead: it comes soon enough.
const AHEAD: i64 = 60;

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
    let Some(cron_job) = ctx.cron_jobs.store().get(&key.namespace, &key.name)? else { return Ok(Outcome::Done) };
    let uid = &cron_job.meta.uid;
    if ctx.memory.has_gone(uid) {
        return Ok(Outcome::Done);
    }
    let (queue, parked) = (ctx.queue.clone(), Key::CronJob(key.clone()));
    if let Some(wait) = ctx.gate.behind(uid, move || queue.add(parked)) {
        return Ok(Outcome::Parked(wait));
    }
    let jobs = ctx.jobs.store().by_index(&JobIndex::Owner(uid.clone()))?;
    let kept = ctx.memory.take(uid);
    let present = present(&cron_job, kept.as_ref());
    let mut change = Change::default();
    let outcome = pass(ctx, key, &present, &children(&present, &jobs), &mut change).await;
    let written = if kept.is_none() && change.is_a_beginning() && !ctx.queue.is_empty() {
        // Others wait, many of them for the same minute. First all of them begin, then it is told of each.
        ctx.memory.keep(uid, change);
        ctx.queue.add(Key::CronJob(key.clone()));
        Ok(())
    } else {
        // Also after an error: what has happened is told.
        let change = kept.unwrap_or_default().then(change);
        let written = apply::write_status(ctx, &cron_job, &change).await;
        if written.is_err() {
            ctx.memory.keep(uid, change);
        }
        written
    };
    if let (Err(_), Ok(Outcome::After(wait))) = (&written, &outcome) {
        ctx.queue.add_after(Key::CronJob(key.clone()), *wait);
    }
    // Should it have gone meanwhile, what was just remembered goes too: its event has come already.
    let is_here = |it: Arc<CronJob>| it.meta.uid == *uid;
    if !ctx.cron_jobs.store().get(&key.namespace, &key.name).ok().flatten().is_some_and(is_here) {
        ctx.forget(uid);
    }
    written.and(outcome)
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

/// Everything but the status, of which it collects the changes.
async fn pass(
    ctx: &Ctx,
    key: &ObjectKey,
    cron_job: &CronJob,
    children: &[Child<'_>],
    change: &mut Change,
) -> Result<Outcome, SyncError> {
    // First, as Jobs that are too many may stand in the way of a new one's quota.
    let removed = apply::tidy(ctx, cron_job, children).await;
    let Settled { change: settled, ended, unexpected, unknown } = settle(cron_job, children, &removed);
    *change = settled;
    // A name may claim any time: what is far ahead of our clock is none of ours.
    let soon = ctx.clock.wall().as_second() + AHEAD;
    change.last_schedule = change.last_schedule.filter(|it| *it <= soon);
    for (child, end) in ended {
        let message = format!("Saw completed job: {}, condition: {}", child.job.meta.name, end.as_str());
        ctx.tell(cron_job, Type::Normal, "SawCompletedJob", message);
    }
    let Some(mut notices) = strangers(ctx, cron_job, &unexpected).await? else { return Ok(Outcome::Done) };
    for it in unknown {
        if apply::look(ctx, cron_job, &it).await.map_err(SyncError::Read)?.is_none() {
            ctx.tell(cron_job, Type::Normal, "MissingJob", format!("Active job went missing: {}", it.name));
            change.gone.insert(it.uid);
        }
    }

    let now = ctx.clock.wall();
    let base = base(ctx, cron_job, now.as_second());
    let active = change.active(&cron_job.status);
    let timing = timing(&cron_job.spec, &ctx.zones);
    let plan = plan(cron_job, children, &active, timing, base, now.as_second());
    let Plan { run, notices: more, next } = plan;
    notices.extend(more);
    let result = carry_out(ctx, cron_job, run, &mut notices, change).await;
    for notice in ctx.memory.tell(&cron_job.meta.uid, notices) {
        let (type_, reason, message) = notice.event();
        ctx.tell(cron_job, type_, reason, message);
    }
    let wait = next.and_then(|it| until(it, ctx.clock.wall()));
    if result.is_err()
        && let Some(wait) = wait
    {
        // However long the back-off is, the next time is looked at when it comes.
        ctx.queue.add_after(Key::CronJob(key.clone()), wait);
    }
    result.map(|()| wait.map_or(Outcome::Done, Outcome::After))
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
        let Some(live) = apply::read(ctx, cron_job).await? else { return Ok(None) };
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
    match cron_job.status.last_schedule {
        Some(last) if last > now + AHEAD => Base { from: ctx.memory.counts_from(uid, last, now), ahead: Some(last) },
        last => {
            ctx.memory.is_not_ahead(uid);
            Base { from: last.or(cron_job.creation).unwrap_or(now), ahead: None }
        }
    }
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
        Run::Begun { at, child } => (at, apply::active(&child)),
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
    // A Job of a later time may have been found, which is not due yet by this clock.
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
