//! Carries out what was decided: each write once, in the order in which it must happen.

use std::collections::BTreeSet;

use api::{ActiveJob, CronJob, Job, Typed, Uid};
use client::{ApiError, DeleteOptions, Propagation, Written};
use events::Type;
use jiff::tz::TimeZone;

use crate::{
    Ctx, history, job,
    notice::Notice,
    plan::reference,
    snapshot::{Child, End, is_child, job_name},
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

/// Deletes the ended Jobs that are too many; returns those that are gone. One that stays keeps no other.
pub(crate) async fn tidy(ctx: &Ctx, cron_job: &CronJob, children: &[Child<'_>]) -> BTreeSet<Uid> {
    let spec = &cron_job.spec;
    let mut surplus = history::surplus(children, End::Complete, spec.successful_history);
    surplus.extend(history::surplus(children, End::Failed, spec.failed_history));
    let mut gone = BTreeSet::new();
    for Child { job, .. } in surplus {
        if delete(ctx, cron_job, &job.meta.name, &job.meta.uid).await.is_ok() {
            gone.insert(job.meta.uid.clone());
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
        match look(ctx, cron_job, it).await {
            // One that has ended in the meantime is the history's.
            Ok(Some(live)) if live.meta.deletion.is_none() && End::of(&live).is_none() => {
                delete(ctx, cron_job, &it.name, &it.uid).await.map_err(SyncError::Delete)?;
            }
            Ok(_) => {}
            Err(err) => {
                ctx.trouble(cron_job, "FailedGet", "Get job", &err);
                return Err(SyncError::Read(err));
            }
        }
        change.gone.insert(it.uid.clone());
    }
    Ok(())
}

/// The very Job of a reference, as the server has it; `None` where it is gone, or has another owner.
pub(crate) async fn look(ctx: &Ctx, cron_job: &CronJob, active: &ActiveJob) -> Result<Option<Job>, ApiError> {
    match ctx.api.get::<Job>(&Job::resource(), &cron_job.meta.namespace, &active.name).await {
        Ok(live) => Ok(Some(live).filter(|it| it.meta.uid == active.uid && is_child(it.meta.as_ref(), cron_job))),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(err) => Err(err),
    }
}

/// Deletes one Job, that of this uid and no successor; its pods go by the garbage collector.
async fn delete(ctx: &Ctx, cron_job: &CronJob, name: &str, uid: &Uid) -> Result<(), ApiError> {
    let options = DeleteOptions {
        propagation: Some(Propagation::Background),
        uid: Some(uid.clone()),
        ..DeleteOptions::default()
    };
    match ctx.api.delete(&Job::resource(), &cron_job.meta.namespace, name, &options).await {
        Ok(()) => ctx.tell(cron_job, Type::Normal, "SuccessfulDelete", format!("Deleted job {name}")),
        // Somebody else was faster, and perhaps made another one.
        Err(ApiError::NotFound(_) | ApiError::Conflict(_)) => {}
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
        Err(ApiError::AlreadyExists(_)) => found(ctx, cron_job, &job_name(cron_job, at)).await,
        Err(err) => {
            ctx.trouble(cron_job, "FailedCreate", "Error creating job", &err);
            Err(SyncError::Create(err))
        }
    }
}

/// A Job has the name already: ours, of which the answer or the status was lost, or somebody else's.
async fn found(ctx: &Ctx, cron_job: &CronJob, name: &str) -> Result<Begun, SyncError> {
    let live = ctx.api.get::<Job>(&Job::resource(), &cron_job.meta.namespace, name).await.map_err(SyncError::Read)?;
    if !is_child(live.meta.as_ref(), cron_job) {
        return Ok(Begun::NameTaken(Notice::NameTaken { job: name.to_owned() }));
    }
    ctx.gate.wrote(&cron_job.meta.uid, &ctx.jobs.watched(), &live.meta.version);
    Ok(Begun::There(active(&Child { job: &live, end: End::of(&live) })))
}

/// How a Job that is there stands among the active ones, if it does.
pub(crate) fn active(child: &Child<'_>) -> Option<ActiveJob> {
    (child.end.is_none() && child.job.meta.deletion.is_none()).then(|| reference(child))
}

/// Writes the status with a change, if that says something new: to the status of the cache, and after a conflict to the
/// one that the server has, but never to that of a successor.
pub(crate) async fn write_status(ctx: &Ctx, cron_job: &CronJob, change: &Change) -> Result<(), SyncError> {
    let uid = &cron_job.meta.uid;
    let mut fresh: Option<CronJob> = None;
    for attempt in 1.. {
        let target = fresh.as_ref().unwrap_or(cron_job);
        let Some(status) = change.of(&target.status) else { return Ok(()) };
        match ctx.api.put_status(target, None, &status).await {
            Ok(Written { version, .. }) => {
                ctx.gate.wrote(uid, &ctx.cron_jobs.watched(), &version);
                return Ok(());
            }
            Err(ApiError::NotFound(_)) => {
                ctx.memory.is_gone(uid);
                return Ok(());
            }
            Err(ApiError::Conflict(_)) if attempt < ATTEMPTS => {}
            Err(err) => return Err(SyncError::Status(err)),
        }
        fresh = match read(ctx, cron_job).await? {
            Some(live) => Some(live),
            None => {
                ctx.memory.is_gone(uid);
                return Ok(());
            }
        };
    }
    Ok(())
}

/// The very CronJob, as the server has it; `None` where it is gone.
pub(crate) async fn read(ctx: &Ctx, cron_job: &CronJob) -> Result<Option<CronJob>, SyncError> {
    let meta = cron_job.meta.as_ref();
    match ctx.api.get::<CronJob>(&CronJob::resource(), meta.namespace, meta.name).await {
        Ok(live) => Ok(Some(live).filter(|it| it.meta.uid == *meta.uid)),
        Err(ApiError::NotFound(_)) => Ok(None),
        Err(err) => Err(SyncError::Read(err)),
    }
}
