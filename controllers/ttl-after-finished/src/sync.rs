//! One finished Job, top to bottom: what the cache says, what the server says, and the DELETE.

use api::{Job, ObjectKey, Typed};
use client::{ApiError, DeleteOptions, Propagation};
use informer::StoreError;
use runner::Outcome;

use crate::{
    Ctx,
    expiry::{self, Verdict},
};

/// A Job that is written so often while we try to delete it backs off instead.
const ATTEMPTS: u32 = 5;

/// Why a sync did not get to its end.
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
    if let Some(outcome) = not_now(ctx, &cached) {
        return Ok(outcome);
    }
    let mut attempts = 0;
    loop {
        attempts += 1;
        // The cache may be behind: the time to live was raised or removed, or another Job bears the name.
        let Some(job) = read(ctx, key).await? else { return Ok(Outcome::Done) };
        if let Some(outcome) = not_now(ctx, &job) {
            return Ok(outcome);
        }
        match delete(ctx, &job).await {
            Ok(()) => {
                told(ctx, &job);
                return Ok(Outcome::Done);
            }
            Err(err) if err.is_absence_of(&key.name) => return Ok(Outcome::Done),
            // Changed or replaced since we read it: look again.
            Err(ApiError::Conflict(_)) if attempts < ATTEMPTS => {}
            Err(source) => return Err(SyncError::Delete { key: key.clone(), source }),
        }
    }
}

/// How the sync of a Job ends that is not due; `None` for one that is.
fn not_now(ctx: &Ctx, job: &Job) -> Option<Outcome> {
    match expiry::verdict(job, ctx.clock.wall()) {
        Verdict::Due { .. } => None,
        // What is unclear was told when it became so. To ask again would change nothing; the next update wakes it.
        Verdict::Keep | Verdict::Unclear => Some(Outcome::Done),
        Verdict::Wait { remaining, ahead } => {
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
    match ctx.api.get::<Job>(&Job::resource(), &key.namespace, &key.name).await {
        Ok(job) => Ok(Some(job)),
        Err(err) if err.is_absence_of(&key.name) => Ok(None),
        Err(source) => Err(SyncError::Read { key: key.clone(), source }),
    }
}

/// Deletes this very Job in this very state, its pods first.
async fn delete(ctx: &Ctx, job: &Job) -> Result<(), ApiError> {
    let options = DeleteOptions {
        propagation: Some(Propagation::Foreground),
        uid: Some(job.meta.uid.clone()),
        version: Some(job.meta.version.clone()),
        ..DeleteOptions::default()
    };
    ctx.api.delete(&Job::resource(), &job.meta.namespace, &job.meta.name, &options).await
}

fn told(ctx: &Ctx, job: &Job) {
    let Verdict::Due { late } = expiry::verdict(job, ctx.clock.wall()) else { return };
    ctx.meters.deleted(late);
    tracing::info!(
        job = %job.meta.as_ref().key(),
        uid = %job.meta.uid,
        ttl = job.spec.ttl_after_finished,
        ?late,
        "Deleted a finished Job, as its time to live is over"
    );
}
