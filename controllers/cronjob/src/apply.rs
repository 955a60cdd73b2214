//! Carries out what was decided: each write once, in the order in which it must happen.

use std::collections::BTreeSet;

use api::{ActiveJob, CronJob, Job, Typed, Uid, Version};
use client::{Api, ApiError, DeleteOptions, Propagation, Written};
use events::Type;
use jiff::tz::TimeZone;

use crate::{
    Ctx, history, job,
    notice::Notice,
    plan::as_active,
    snapshot::{Child, End, is_child, job_name, made_for, untold},
    status::Change,
    sync::SyncError,
};

/// A status that conflicts so often has a rival that does not rest: the key backs off instead.
const ATTEMPTS: u32 = 5;

/// What became of a new Job.
pub(crate) enum Begun {
    /// It is there, and active unless it has ended already.
    There(Option<ActiveJob>),
    /// Another Job has its name.
    NameTaken(Notice),
    /// The namespace goes, and the CronJob with it.
    NamespaceGoes,
}

/// So often is a Job looked at whose place is to be taken and that changes all the time; then the pass is repeated later.
const LOOKS: u32 = 4;

/// Deletes the ended Jobs that are too many; returns those that are gone. One that stays keeps no other: the lock of a time
/// that `cron_job`, as the server has it, does not tell of, and what somebody changed since we saw it, perhaps to keep it.
pub(crate) async fn tidy(ctx: &Ctx, cron_job: &CronJob, children: &[Child<'_>]) -> BTreeSet<Uid> {
    let now = ctx.clock.wall().as_second();
    let spec = &cron_job.spec;
    let mut surplus = history::surplus(children, End::Complete, spec.successful_history);
    surplus.extend(history::surplus(children, End::Failed, spec.failed_history));
    // Its Job alone keeps the last time from running again, as long as the stored status does not name it.
    let last = untold(cron_job, children, now);
    surplus.retain(|it| last.is_none() || made_for(cron_job, it.job) != last);
    let mut gone = BTreeSet::new();
    for Child { job, .. } in surplus {
        let meta = &job.meta;
        if delete(ctx, cron_job, &meta.name, &meta.uid, &meta.version).await.is_ok() {
            gone.insert(meta.uid.clone());
        }
    }
    gone
}

/// Deletes those whose place a new one takes. Each is looked at first: what is no longer ours is left alone.
pub(crate) async fn replace(
    ctx: &Ctx,
    cron_job: &CronJob,
    replaced: &[ActiveJob],
    change: &mut Change,
) -> Result<(), SyncError> {
    for it in replaced {
        replace_one(ctx, cron_job, it).await?;
        change.gone.insert(it.uid.clone());
    }
    Ok(())
}

/// It may end between the look and the deletion, and its end is not lost then: what changed is looked at again.
async fn replace_one(ctx: &Ctx, cron_job: &CronJob, replaced: &ActiveJob) -> Result<(), SyncError> {
    let mut looks = 0;
    loop {
        looks += 1;
        let live = match look(ctx, cron_job, replaced).await {
            Ok(Some(live)) => live,
            Ok(None) => return Ok(()),
            Err(err) => {
                ctx.trouble(cron_job, "FailedGet", "Get job", &err);
                return Err(SyncError::Read(err));
            }
        };
        match End::of(&live) {
            // It takes its place in the history.
            Some(end) => {
                ended(ctx, cron_job, &live, end);
                return Ok(());
            }
            None if live.meta.deletion.is_some() => return Ok(()),
            None => {}
        }
        match delete(ctx, cron_job, &replaced.name, &replaced.uid, &live.meta.version).await {
            Err(ApiError::Conflict(_)) if looks < LOOKS => {}
            Err(err @ ApiError::Conflict(_)) => {
                ctx.trouble(cron_job, "FailedDelete", "Deleted job", &err);
                return Err(SyncError::Delete(err));
            }
            outcome => return outcome.map_err(SyncError::Delete),
        }
    }
}

/// Says that a Job that was active has ended.
pub(crate) fn ended(ctx: &Ctx, cron_job: &CronJob, job: &Job, end: End) {
    let message = format!("Saw completed job: {}, condition: {}", job.meta.name, end.as_str());
    ctx.tell(cron_job, Type::Normal, "SawCompletedJob", message);
}

/// The very Job of a reference, as the server has it; `None` where it is gone, or has another owner.
pub(crate) async fn look(ctx: &Ctx, cron_job: &CronJob, active: &ActiveJob) -> Result<Option<Job>, ApiError> {
    match ctx.api.get::<Job>(&Job::resource(), &cron_job.meta.namespace, &active.name).await {
        Ok(live) => Ok(Some(live).filter(|it| it.meta.uid == active.uid && is_child(it.meta.as_ref(), cron_job))),
        Err(err) if err.is_absence_of(&active.name) => Ok(None),
        Err(err) => Err(err),
    }
}

/// Deletes one Job, that of this uid and no successor, in the state that was seen; its pods go by the garbage collector.
async fn delete(ctx: &Ctx, cron_job: &CronJob, name: &str, uid: &Uid, version: &Version) -> Result<(), ApiError> {
    let options = DeleteOptions {
        propagation: Some(Propagation::Background),
        uid: Some(uid.clone()),
        version: Some(version.clone()),
        ..DeleteOptions::default()
    };
    match ctx.api.delete(&Job::resource(), &cron_job.meta.namespace, name, &options).await {
        Ok(()) => ctx.tell(cron_job, Type::Normal, "SuccessfulDelete", format!("Deleted job {name}")),
        // Somebody else was faster.
        Err(err) if err.is_absence_of(name) => {}
        // Another one bears the name, or it is not what we saw. Whoever looks again knows.
        Err(err @ ApiError::Conflict(_)) => return Err(err),
        Err(err) => {
            ctx.trouble(cron_job, "FailedDelete", "Deleted job", &err);
            return Err(err);
        }
    }
    Ok(())
}

/// Makes the Job of a time. Its name is that of the time, so that whoever tries twice finds the first.
pub(crate) async fn begin(ctx: &Ctx, cron_job: &CronJob, at: i64, told_in: &TimeZone) -> Result<Begun, SyncError> {
    let body = job::body(cron_job, at, told_in).map_err(SyncError::Template)?;
    let meta = &cron_job.meta;
    match ctx.api.create(&Job::resource(), &meta.namespace, &body).await {
        Ok(Written { name, uid, version, creation }) => {
            ctx.gate.wrote(&meta.uid, &ctx.jobs.watched(), &version);
            ctx.numbers.made(creation.unwrap_or_else(|| ctx.clock.wall().as_second()), at);
            ctx.tell(cron_job, Type::Normal, "SuccessfulCreate", format!("Created job {name}"));
            Ok(Begun::There(Some(ActiveJob::new(&meta.namespace, &name, uid, version))))
        }
        Err(err) if err.is_namespace_terminating() => Ok(Begun::NamespaceGoes),
        Err(err @ ApiError::AlreadyExists(_)) => {
            found(ctx, &ctx.api, cron_job, at).await?.ok_or(SyncError::Create(err))
        }
        Err(err) => {
            if let ApiError::Unknown { .. } = err {
                ctx.memory.no_answer(&meta.uid, at);
            }
            // Where nobody answered it may be there: that is no failure yet.
            if !matches!(err, ApiError::Unknown { status: None, .. }) {
                ctx.trouble(cron_job, "FailedCreate", "Error creating job", &err);
            }
            Err(SyncError::Create(err))
        }
    }
}

/// The Job that has the name of a time already: ours, of which the answer or the status was lost, or somebody else's; `None`
/// where there is none.
pub(crate) async fn found(ctx: &Ctx, api: &Api, cron_job: &CronJob, at: i64) -> Result<Option<Begun>, SyncError> {
    let name = job_name(cron_job, at);
    let live = match api.get::<Job>(&Job::resource(), &cron_job.meta.namespace, &name).await {
        Ok(live) => live,
        Err(err) if err.is_absence_of(&name) => return Ok(None),
        Err(err) => return Err(SyncError::Read(err)),
    };
    if made_for(cron_job, &live).is_none() {
        return Ok(Some(Begun::NameTaken(Notice::NameTaken { job: name })));
    }
    ctx.gate.wrote(&cron_job.meta.uid, &ctx.jobs.watched(), &live.meta.version);
    Ok(Some(Begun::There(as_active(cron_job, &Child { job: &live, end: End::of(&live) }))))
}

/// Writes the status with a change, if that says something new: to the status of the cache, and after a conflict to the
/// one that the server has, but never to that of a successor.
pub(crate) async fn write_status(ctx: &Ctx, api: &Api, cron_job: &CronJob, change: &Change) -> Result<(), SyncError> {
    let uid = &cron_job.meta.uid;
    let mut fresh: Option<CronJob> = None;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let target = fresh.as_ref().unwrap_or(cron_job);
        let Some(status) = change.of(&target.status) else {
            if let Some(live) = &fresh {
                // It was written, and the answer lost. The cache shows it before anything else begins.
                ctx.gate.wrote(uid, &ctx.cron_jobs.watched(), &live.meta.version);
            }
            return Ok(());
        };
        match api.put_status(target, None, &status).await {
            Ok(Written { version, .. }) => {
                ctx.gate.wrote(uid, &ctx.cron_jobs.watched(), &version);
                return Ok(());
            }
            // Gone, or only replaced: that is read.
            Err(ApiError::NotFound(_) | ApiError::Conflict(_)) if attempts < ATTEMPTS => {}
            Err(err) => return Err(SyncError::Status(err)),
        }
        fresh = match read(ctx, api, cron_job).await? {
            Some(live) => Some(live),
            None => return Ok(()),
        };
    }
}

/// The very CronJob, as the server has it; `None` where it is gone: the cache will say so too, and until then nothing more
/// is done for it.
pub(crate) async fn read(ctx: &Ctx, api: &Api, cron_job: &CronJob) -> Result<Option<CronJob>, SyncError> {
    let meta = cron_job.meta.as_ref();
    match api.get::<CronJob>(&CronJob::resource(), meta.namespace, meta.name).await {
        Ok(live) if live.meta.uid == *meta.uid => Ok(Some(live)),
        Err(err) if !err.is_absence_of(meta.name) => Err(SyncError::Read(err)),
        Ok(_) | Err(_) => {
            ctx.memory.gone(meta.uid);
            Ok(None)
        }
    }
}
