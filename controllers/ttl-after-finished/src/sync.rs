//! One finished Job, top to bottom: the cache, the live read, and the DELETE.

use api::{Job, ObjectKey, Typed};
use client::{ApiError, DeleteOptions, Propagation};
use controller::Outcome;
use informer::StoreError;

use crate::{
    Ctx,
    rules::expiry::{self, Expiry},
};

/// After this many conflicts the key backs off, because another client keeps writing the Job.
const ATTEMPTS: u32 = 5;

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("error cleaning up Job {key}, will retry")]
    Cache {
        key: ObjectKey,
        #[source]
        source: StoreError,
    },
    #[error("error cleaning up Job {key}, will retry: cannot read it")]
    Read {
        key: ObjectKey,
        #[source]
        source: ApiError,
    },
    #[error("error cleaning up Job {key}, will retry: cannot delete it")]
    Delete {
        key: ObjectKey,
        #[source]
        source: ApiError,
    },
}

/// Deletes a Job that is due.
pub(crate) async fn sync(ctx: &Ctx, key: &ObjectKey) -> Result<Outcome, SyncError> {
    let cached = ctx.jobs.get(&key.namespace, &key.name);
    let cached = cached.map_err(|source| SyncError::Cache { key: key.clone(), source })?;
    let Some(cached) = cached else { return Ok(Outcome::Done) };
    if let Some(outcome) = outcome_unless_due(ctx, &cached) {
        return Ok(outcome);
    }
    let mut attempts = 0;
    loop {
        attempts += 1;
        // The cache may be behind: the TTL may be raised or removed, or another Job may have the name (`processJob`).
        let Some(job) = read(ctx, key).await? else { return Ok(Outcome::Done) };
        if let Some(outcome) = outcome_unless_due(ctx, &job) {
            return Ok(outcome);
        }
        match delete(ctx, &job).await {
            Ok(()) => {
                record_deletion(ctx, &job);
                return Ok(Outcome::Done);
            }
            Err(err) if err.is_absence_of(&key.name) => return Ok(Outcome::Done),
            // The Job was changed or replaced after the read; read it again.
            Err(ApiError::Conflict(_)) if attempts < ATTEMPTS => {}
            Err(source) => return Err(SyncError::Delete { key: key.clone(), source }),
        }
    }
}

/// The outcome for a Job that is not due; `None` for one that is due.
fn outcome_unless_due(ctx: &Ctx, job: &Job) -> Option<Outcome> {
    match expiry::expiry(job, ctx.clock.wall()) {
        Expiry::Due { .. } => None,
        // The event for an unknown finish time was sent by the handler. A retry would change nothing; the next update
        // enqueues the Job.
        Expiry::Keep | Expiry::UnknownFinishTime => Some(Outcome::Done),
        Expiry::Wait { remaining, ahead } => {
            if ahead {
                tracing::info!(
                    job = %job.meta.as_ref().key(),
                    "Warning: Found Job finished in the future. This is likely due to time skew in the cluster. Job \
                     cleanup will be deferred."
                );
            }
            Some(Outcome::After(remaining))
        }
    }
}

async fn read(ctx: &Ctx, key: &ObjectKey) -> Result<Option<Job>, SyncError> {
    let job = ctx.api.get_opt::<Job>(&Job::resource(), &key.namespace, &key.name).await;
    job.map_err(|source| SyncError::Read { key: key.clone(), source })
}

/// Deletes the Job if it has not changed since the read, its pods first.
async fn delete(ctx: &Ctx, job: &Job) -> Result<(), ApiError> {
    let options = DeleteOptions {
        propagation: Some(Propagation::Foreground),
        uid: Some(job.meta.uid.clone()),
        version: Some(job.meta.version.clone()),
        ..DeleteOptions::default()
    };
    ctx.api.delete(&Job::resource(), &job.meta.namespace, &job.meta.name, &options).await
}

fn record_deletion(ctx: &Ctx, job: &Job) {
    let Expiry::Due { late } = expiry::expiry(job, ctx.clock.wall()) else { return };
    ctx.meters.record_deletion(late);
    tracing::info!(
        job = %job.meta.as_ref().key(),
        uid = %job.meta.uid,
        ttl = job.spec.ttl_after_finished,
        ?late,
        "Deleted a finished Job, as its time to live is over"
    );
}
