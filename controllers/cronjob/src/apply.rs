//! Executes a decision: each write once, in the required order.

use std::collections::BTreeSet;

use api::{ActiveJob, CronJob, Job, Typed, Uid, Version};
use client::{Api, ApiError, DeleteOptions, Propagation, Written};
use events::EventType;
use jiff::tz::TimeZone;

use crate::{
    Ctx,
    error::SyncError,
    rules::{
        history, job,
        notice::Notice,
        plan::as_active,
        snapshot::{Child, End, is_child, job_name, scheduled_time, unrecorded_time},
        status::Change,
    },
};

/// After this many conflicts another client keeps writing the status, so the key backs off.
const ATTEMPTS: u32 = 5;

/// The result of the creation of a Job.
pub(crate) enum CreateOutcome {
    /// The Job exists. It is active unless it has already finished.
    Exists(Option<ActiveJob>),
    /// Another Job has its name.
    NameTaken(Notice),
    /// The namespace is terminating, so the CronJob will be deleted too.
    NamespaceTerminating,
}

/// How often a Job to be replaced is read again when it has changed. After that the sync fails and is retried.
const MAX_READS: u32 = 4;

/// Deletes finished Jobs over the history limits and returns those that are gone. A Job that cannot be deleted does not
/// prevent the deletion of others. A Job is kept if it is the only record of a run that the stored status does not
/// contain, or if it has changed since it was cached, because a user may want to keep it.
pub(crate) async fn delete_surplus(ctx: &Ctx, cron_job: &CronJob, children: &[Child<'_>]) -> BTreeSet<Uid> {
    let now = ctx.clock.wall().as_second();
    let spec = &cron_job.spec;
    let mut surplus = history::surplus(children, End::Complete, spec.successful_history);
    surplus.extend(history::surplus(children, End::Failed, spec.failed_history));
    // Without this Job the last time would run again, until the stored status contains it.
    let last = unrecorded_time(cron_job, children, now);
    surplus.retain(|it| last.is_none() || scheduled_time(cron_job, it.job) != last);
    let mut gone = BTreeSet::new();
    for Child { job, .. } in surplus {
        let meta = &job.meta;
        if delete(ctx, cron_job, &meta.name, &meta.uid, &meta.version).await.is_ok() {
            gone.insert(meta.uid.clone());
        }
    }
    gone
}

/// Deletes the Jobs that a new one replaces. Each is read first, and left alone if the CronJob is not its owner any
/// more.
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

/// The Job may finish between the GET and the DELETE. The DELETE has a resourceVersion precondition, so a changed Job
/// is read again and its end is not missed.
async fn replace_one(ctx: &Ctx, cron_job: &CronJob, replaced: &ActiveJob) -> Result<(), SyncError> {
    let mut reads = 0;
    loop {
        reads += 1;
        let live = match read_active(ctx, cron_job, replaced).await {
            Ok(Some(live)) => live,
            Ok(None) => return Ok(()),
            Err(err) => {
                ctx.send_error_event(cron_job, "FailedGet", "Get job", &err);
                return Err(SyncError::Read(err));
            }
        };
        match End::of(&live) {
            // A finished Job is kept for the history.
            Some(end) => {
                report_finished(ctx, cron_job, &live, end);
                return Ok(());
            }
            None if live.meta.deletion.is_some() => return Ok(()),
            None => {}
        }
        match delete(ctx, cron_job, &replaced.name, &replaced.uid, &live.meta.version).await {
            Err(ApiError::Conflict(_)) if reads < MAX_READS => {}
            Err(err @ ApiError::Conflict(_)) => {
                ctx.send_error_event(cron_job, "FailedDelete", "Deleted job", &err);
                return Err(SyncError::Delete(err));
            }
            outcome => return outcome.map_err(SyncError::Delete),
        }
    }
}

/// Sends the event for an active Job that has finished.
pub(crate) fn report_finished(ctx: &Ctx, cron_job: &CronJob, job: &Job, end: End) {
    let message = format!("Saw completed job: {}, condition: {}", job.meta.name, end.as_str());
    ctx.send_event(cron_job, EventType::Normal, "SawCompletedJob", message);
}

/// Reads the Job of a reference from the server. `None` if it is gone or has another owner.
pub(crate) async fn read_active(ctx: &Ctx, cron_job: &CronJob, active: &ActiveJob) -> Result<Option<Job>, ApiError> {
    let live = ctx.api.get_opt::<Job>(&Job::resource(), &cron_job.meta.namespace, &active.name).await?;
    Ok(live.filter(|it| it.meta.uid == active.uid && is_child(it.meta.as_ref(), cron_job)))
}

/// Deletes one Job, if it still has this uid and resourceVersion. The garbage collector deletes its pods.
async fn delete(ctx: &Ctx, cron_job: &CronJob, name: &str, uid: &Uid, version: &Version) -> Result<(), ApiError> {
    let options = DeleteOptions {
        propagation: Some(Propagation::Background),
        uid: Some(uid.clone()),
        version: Some(version.clone()),
        ..DeleteOptions::default()
    };
    match ctx.api.delete(&Job::resource(), &cron_job.meta.namespace, name, &options).await {
        Ok(()) => ctx.send_event(cron_job, EventType::Normal, "SuccessfulDelete", format!("Deleted job {name}")),
        // Another client has deleted it.
        Err(err) if err.is_absence_of(name) => {}
        // Another Job has the name, or the Job has changed. The caller must read it again.
        Err(err @ ApiError::Conflict(_)) => return Err(err),
        Err(err) => {
            ctx.send_error_event(cron_job, "FailedDelete", "Deleted job", &err);
            return Err(err);
        }
    }
    Ok(())
}

/// Creates the Job for a time. Its name is made from the time, so a second attempt finds the first Job.
pub(crate) async fn create_job(
    ctx: &Ctx,
    cron_job: &CronJob,
    at: i64,
    annotation_zone: &TimeZone,
) -> Result<CreateOutcome, SyncError> {
    let body = job::body(cron_job, at, annotation_zone).map_err(SyncError::Template)?;
    let meta = &cron_job.meta;
    match ctx.api.create(&Job::resource(), &meta.namespace, &body).await {
        Ok(Written { name, uid, version, creation, .. }) => {
            ctx.consistency.record_write(&meta.uid, &ctx.jobs.watched(), &version);
            ctx.metrics.record_created(creation.unwrap_or_else(|| ctx.clock.wall().as_second()), at);
            ctx.send_event(cron_job, EventType::Normal, "SuccessfulCreate", format!("Created job {name}"));
            Ok(CreateOutcome::Exists(Some(ActiveJob::new(&meta.namespace, &name, uid, version))))
        }
        Err(err) if err.is_namespace_terminating() => Ok(CreateOutcome::NamespaceTerminating),
        Err(err @ ApiError::AlreadyExists(_)) => {
            find_job(ctx, &ctx.api, cron_job, at).await?.ok_or(SyncError::Create(err))
        }
        Err(err) => {
            if let ApiError::Unknown { .. } = err {
                ctx.memory.on_unanswered_create(&meta.uid, at);
            }
            // Without a response the Job may exist, so this is not a failure yet.
            if !matches!(err, ApiError::Unknown { status: None, .. }) {
                ctx.send_error_event(cron_job, "FailedCreate", "Error creating job", &err);
            }
            Err(SyncError::Create(err))
        }
    }
}

/// Finds the Job that has the name for this time. It is ours if the response or the status write was lost; otherwise
/// the name is taken. `None` if there is no such Job.
pub(crate) async fn find_job(
    ctx: &Ctx,
    api: &Api,
    cron_job: &CronJob,
    at: i64,
) -> Result<Option<CreateOutcome>, SyncError> {
    let name = job_name(cron_job, at);
    let live = api.get_opt::<Job>(&Job::resource(), &cron_job.meta.namespace, &name).await;
    let Some(live) = live.map_err(SyncError::Read)? else { return Ok(None) };
    if scheduled_time(cron_job, &live).is_none() {
        return Ok(Some(CreateOutcome::NameTaken(Notice::NameTaken { job: name })));
    }
    ctx.consistency.record_write(&cron_job.meta.uid, &ctx.jobs.watched(), &live.meta.version);
    Ok(Some(CreateOutcome::Exists(as_active(cron_job, &Child { job: &live, end: End::of(&live) }))))
}

/// Writes the status with a change, if it differs. After a conflict the change is applied to the status from the
/// server, but never to another CronJob of the same name.
pub(crate) async fn write_status(ctx: &Ctx, api: &Api, cron_job: &CronJob, change: &Change) -> Result<(), SyncError> {
    let uid = &cron_job.meta.uid;
    let mut fresh: Option<CronJob> = None;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let target = fresh.as_ref().unwrap_or(cron_job);
        let Some(status) = change.apply_to(&target.status) else {
            if let Some(live) = &fresh {
                // A write succeeded but its response was lost. The next sync waits until the cache shows it.
                ctx.consistency.record_write(uid, &ctx.cron_jobs.watched(), &live.meta.version);
            }
            return Ok(());
        };
        match api.put_status(target, None, &status).await {
            Ok(Written { version, .. }) => {
                ctx.consistency.record_write(uid, &ctx.cron_jobs.watched(), &version);
                return Ok(());
            }
            // The CronJob is deleted or has changed; read it again.
            Err(ApiError::NotFound(_) | ApiError::Conflict(_)) if attempts < ATTEMPTS => {}
            Err(err) => return Err(SyncError::Status(err)),
        }
        fresh = match read_cron_job(ctx, api, cron_job).await? {
            Some(live) => Some(live),
            None => return Ok(()),
        };
    }
}

/// Reads the CronJob from the server. `None` if it is gone. The cache will show that too, and until then the CronJob is
/// not synced.
pub(crate) async fn read_cron_job(ctx: &Ctx, api: &Api, cron_job: &CronJob) -> Result<Option<CronJob>, SyncError> {
    let meta = cron_job.meta.as_ref();
    match api.get::<CronJob>(&CronJob::resource(), meta.namespace, meta.name).await {
        Ok(live) if live.meta.uid == *meta.uid => Ok(Some(live)),
        Err(err) if !err.is_absence_of(meta.name) => Err(SyncError::Read(err)),
        Ok(_) | Err(_) => {
            ctx.memory.mark_gone(meta.uid);
            Ok(None)
        }
    }
}
