//! Handlers for changes of CronJobs and Jobs: they enqueue keys. Constant work per event.

use api::{CronJob, Entry, Job, MetaRef, ObjectKey};
use clock::Drift;
use controller::{Lane, TimedKey};
use informer::{Cause, Change};

use crate::{
    Ctx, Key, SyncKey,
    rules::snapshot::{End, is_child},
    sync_key,
};

/// Updates the memory after a change of a CronJob: removes the entry of a deleted or replaced CronJob, clears the mark
/// that the server has no such CronJob, and records edits of the schedule, also on a standby. No sync runs between the
/// update of the store and this handler, because both run on one thread without an await.
pub(crate) fn record(ctx: &Ctx, change: &Change<'_, CronJob>) {
    if let Some(gone) = change.gone() {
        ctx.remove(gone.meta().uid);
    }
    if let Some(new) = change.new.map(Entry::meta).filter(|_| change.cause != Cause::Resync) {
        ctx.memory.clear_gone(new.uid);
    }
    if let Some(was) = edited_from(change) {
        ctx.memory.on_edit(was, ctx.clock.wall().as_second());
    }
}

/// Enqueues a CronJob.
pub(crate) fn enqueue(ctx: &Ctx, change: &Change<'_, CronJob>, lane: Lane) {
    let Some(object) = change.new.or(change.old).map(Entry::meta) else { return };
    if change.old.is_none() {
        ctx.queue.add_after(TimedKey::Clock, Drift::EVERY);
    }
    let key = object.key();
    ctx.queue.add_to(
        if edited_from(change).is_some() { TimedKey::Object(SyncKey::ScheduleEdited(key)) } else { sync_key(key) },
        lane,
    );
}

/// Returns the old CronJob if this change edited its schedule or time zone.
fn edited_from<'a>(change: &Change<'a, CronJob>) -> Option<&'a CronJob> {
    if change.cause == Cause::Resync {
        return None;
    }
    let (old, new) = (change.old.and_then(Entry::readable)?, change.new.and_then(Entry::readable)?);
    let same = old.spec.schedule == new.spec.schedule && old.spec.time_zone == new.spec.time_zone;
    (!same && old.meta.uid == new.meta.uid).then_some(old)
}

/// Enqueues the CronJobs that own or owned this Job, if the change concerns them.
pub(crate) fn enqueue_owners(ctx: &Ctx, change: &Change<'_, Job>, lane: Lane) {
    let (old, new) = (change.old.map(Entry::meta), change.new.map(Entry::meta));
    if let (Some(old), Some(new)) = (change.old, change.new)
        && !affects_owner(old, new)
    {
        return;
    }
    let was = owner_key(ctx, old);
    let is = owner_key(ctx, new);
    if was != is {
        was.into_iter().for_each(|it| ctx.queue.add_to(it, lane));
    }
    is.into_iter().for_each(|it| ctx.queue.add_to(it, lane));
}

/// True if the change affects the decisions of a CronJob. Most updates of a Job only change its counters.
fn affects_owner(old: &Entry<Job>, new: &Entry<Job>) -> bool {
    let identity = |it: &Entry<Job>| {
        let meta = it.meta();
        (meta.uid.clone(), meta.deletion.is_some(), meta.controller().map(|it| it.uid.clone()))
    };
    let end = |it: &Entry<Job>| it.readable().map(|it| (End::of(it), it.status.completion));
    identity(old) != identity(new) || end(old) != end(new)
}

/// The key of the CronJob that controls a Job, if the cache has the CronJob with the same uid.
fn owner_key(ctx: &Ctx, job: Option<MetaRef<'_>>) -> Option<Key> {
    let job = job?;
    let owner = job.controller().filter(|it| &*it.kind == "CronJob")?;
    let cron_job = ctx.cron_jobs.store().get(job.namespace, &owner.name).ok()??;
    is_child(job, &cron_job)
        .then(|| sync_key(ObjectKey { namespace: job.namespace.clone(), name: cron_job.meta.name.clone() }))
}
