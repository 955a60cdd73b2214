//! A change of a CronJob or a Job → the key to wake. Constant work per event.

use api::{CronJob, Entry, Job, MetaRef, ObjectKey};
use clock::Drift;
use events::Type;
use informer::{Cause, Change};
use workqueue::Lane;

use crate::{
    Ctx, Key,
    snapshot::{End, is_child},
    sync::until,
    timing::{Timing, timing},
};

/// Drops what is remembered of a CronJob that is gone, or has a successor; and that one is gone of which there is news.
pub(crate) fn forget(ctx: &Ctx, change: &Change<'_, CronJob>) {
    let (old, new) = (change.old.map(Entry::meta), change.new.map(Entry::meta));
    if let Some(gone) = old.filter(|old| new.is_none_or(|new| new.uid != old.uid)) {
        ctx.forget(gone.uid);
    }
    if let Some(new) = new.filter(|_| change.cause != Cause::Resync) {
        ctx.memory.may_be_there(new.uid);
    }
}

/// Wakes a CronJob: at its next time where its schedule was edited, else at once.
pub(crate) fn wake(ctx: &Ctx, change: &Change<'_, CronJob>, lane: Lane) {
    let Some(object) = change.new.or(change.old).map(Entry::meta) else { return };
    let key = Key::CronJob(object.key());
    if change.old.is_none() {
        ctx.queue.add_after(Key::Clock, Drift::EVERY);
    }
    match edited(change).map(|it| next_time(ctx, it)) {
        None | Some(Next::Look) => ctx.queue.add_to(key, lane),
        Some(Next::At(at)) => match until(at, ctx.clock.wall()) {
            Some(wait) => ctx.queue.add_after(key, wait),
            None => ctx.queue.add_to(key, lane),
        },
        Some(Next::Unreadable) => {}
    }
}

/// The CronJob with its new schedule, if that is what changed.
fn edited<'a>(change: &Change<'a, CronJob>) -> Option<&'a CronJob> {
    if change.cause == Cause::Resync {
        return None;
    }
    let old = change.old.and_then(Entry::readable)?;
    let new = change.new.and_then(Entry::readable)?;
    let same = old.spec.schedule == new.spec.schedule && old.spec.time_zone == new.spec.time_zone;
    (!same && old.meta.uid == new.meta.uid).then_some(&**new)
}

/// When a new schedule asks for a look.
enum Next {
    At(i64),
    /// At once: the sync says what is wrong.
    Look,
    /// Never: it was said here.
    Unreadable,
}

/// The next time of a new schedule. What it would have run before now is not run for that.
fn next_time(ctx: &Ctx, cron_job: &CronJob) -> Next {
    let Timing::Read { schedule, .. } = timing(&cron_job.spec, &ctx.zones) else { return Next::Look };
    let now = ctx.clock.wall().as_second();
    match schedule {
        Ok(schedule) => {
            let from = cron_job.status.last_schedule.or(cron_job.creation).unwrap_or(now).min(now);
            schedule.next_from(from, now).map_or(Next::Look, Next::At)
        }
        Err(_) => {
            let message = format!("unparseable schedule for cronjob: {}", cron_job.spec.schedule);
            ctx.tell(cron_job, Type::Warning, "UnParseableCronJobSchedule", message);
            Next::Unreadable
        }
    }
}

/// Wakes the CronJobs whose Job this is and was, where the change concerns them.
pub(crate) fn wake_owners(ctx: &Ctx, change: &Change<'_, Job>, lane: Lane) {
    let (old, new) = (change.old.map(Entry::meta), change.new.map(Entry::meta));
    if let (Some(old), Some(new)) = (change.old, change.new)
        && !concerns_owner(old, new)
    {
        return;
    }
    let was = owner(ctx, old);
    let is = owner(ctx, new);
    if was != is {
        was.into_iter().for_each(|it| ctx.queue.add_to(it, lane));
    }
    is.into_iter().for_each(|it| ctx.queue.add_to(it, lane));
}

/// True where a CronJob decides by what is different. Most updates of a Job count its pods.
fn concerns_owner(old: &Entry<Job>, new: &Entry<Job>) -> bool {
    let identity = |it: &Entry<Job>| {
        let meta = it.meta();
        (meta.uid.clone(), meta.deletion.is_some(), meta.controller().map(|it| it.uid.clone()))
    };
    let end = |it: &Entry<Job>| it.readable().map(|it| (End::of(it), it.status.completion));
    identity(old) != identity(new) || end(old) != end(new)
}

/// The CronJob that controls a Job, if it is this very one that the cache has.
fn owner(ctx: &Ctx, job: Option<MetaRef<'_>>) -> Option<Key> {
    let job = job?;
    let owner = job.controller().filter(|it| &*it.kind == "CronJob")?;
    let cron_job = ctx.cron_jobs.store().get(job.namespace, &owner.name).ok()??;
    is_child(job, &cron_job)
        .then(|| Key::CronJob(ObjectKey { namespace: job.namespace.clone(), name: cron_job.meta.name.clone() }))
}
