//! The finalizer protocol in stages. A finalizer is removed only after the stored status contains the pod: [`release`]
//! needs a [`Recorded`], which only [`record`] returns.

use std::sync::Arc;

use api::{Job, JobStatus, Pod};
use client::{ApiError, Written};
use events::Type;
use pod_control::{Owner, is_gone};

use crate::{
    Ctx,
    indexes::Indexes,
    plan::Plan,
    snapshot::{FINALIZER, Moment, Snapshot},
    status::{self, Broken},
    tracking::{self, Finished, Step},
};

/// Why pods could not be counted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrackError {
    /// The Job is gone, or another Job has its name, so there is nothing to count.
    #[error("the job is gone")]
    Gone,
    #[error("cannot store the status")]
    Status(#[source] ApiError),
    /// A bug of this controller. The server would reject the status on each retry.
    #[error("the status is not sent, as the server would refuse it")]
    Broken(#[source] Broken),
    #[error("cannot take the finalizer off {failed} of {wanted} pods")]
    Release {
        failed: usize,
        wanted: usize,
        #[source]
        source: ApiError,
    },
}

/// A stored status that contains all ended pods.
#[must_use]
pub(crate) struct Recorded {
    step: Step,
    /// Our write, if one was needed.
    written: Option<Written>,
    /// The stored status.
    stored: JobStatus,
}

/// Which finalizers were removed, in the order of the step.
#[must_use]
pub(crate) struct Released {
    went: Vec<bool>,
    /// The rest is left to the next sync, because other Jobs wait.
    pub(crate) cut: bool,
    failure: Option<TrackError>,
}

impl Recorded {
    /// Adds the counted pods that have been deleted since to the pods that lose their finalizer.
    pub(crate) fn release_deleted(&mut self, deleted: &[usize]) {
        self.step.release_deleted(deleted);
    }

    /// Whether any finalizer must be removed.
    pub(crate) fn has_releases(&self) -> bool {
        !self.step.release.is_empty()
    }
}

/// Stores the pods that ended. Memory, metrics and events are updated only after that.
pub(crate) async fn record(
    ctx: &Ctx,
    owner: &Owner,
    snapshot: &Snapshot<'_>,
    plan: &Plan,
    step: Step,
) -> Result<Recorded, TrackError> {
    let job = snapshot.job;
    let written = if step.write { Some(put(ctx, job, None, &job.status, &step.status).await?) } else { None };
    if let Some(written) = &written {
        ctx.wrote_job(&job.meta.uid, &written.version);
    }
    ctx.memory.records(&job.meta.uid, step.backoff);
    let stored = if step.write { step.status.clone() } else { job.status.clone() };
    ctx.counts(job, &job.status, &stored);
    if let Some(suspended) = step.suspended {
        let (reason, message) = if suspended { ("Suspended", "Job suspended") } else { ("Resumed", "Job resumed") };
        ctx.recorder.event(owner.reference(), Type::Normal, reason, message.to_owned());
    }
    for action in &step.actions {
        ctx.meters.handled(action);
    }
    if let Some(indexes) = &plan.tally.indexes
        && written.is_some()
    {
        let before = job.status.failed_indexes.as_deref().unwrap_or_default();
        let lost = indexes.failed.as_ref().map_or(0, Indexes::len);
        let lost = lost.saturating_sub(Indexes::parse(before, snapshot.completions()).len());
        let done = indexes.succeeded.len().saturating_sub(indexes.stored.len());
        ctx.meters.indexes(job, done.into(), lost.into());
    }
    Ok(Recorded { step, written, stored })
}

/// Removes the finalizers from the pods that the stored status counts.
pub(crate) async fn release(ctx: &Ctx, owner: &Owner, pods: &[Arc<Pod>], recorded: &Recorded) -> Released {
    let leaving: Vec<&Arc<Pod>> = recorded.step.release.iter().filter_map(|at| pods.get(*at)).collect();
    let wanted = leaving.len();
    // Recorded before the first removal, because its watch event may come before the response. Until that event the
    // finalizer in the cache must be ignored.
    ctx.memory.asks_to_leave(&owner.uid, leaving.iter().map(|it| &it.meta.uid));
    let turn = ctx.turn();
    let calls = ctx.calls.each_until(
        || ctx.is_over(turn),
        leaving.clone(),
        |pod| async move {
            if ctx.stopping.is_cancelled() {
                return Err(ApiError::NotSent(client::NotSent::Stopping));
            }
            ctx.control.remove_finalizer(&owner.uid, pod, FINALIZER).await.map(drop)
        },
    );
    let (mut went, mut cut, mut failed, mut first) = (Vec::with_capacity(wanted), false, 0, None);
    for (pod, outcome) in leaving.iter().zip(calls.await) {
        let Some(outcome) = outcome else {
            cut = true;
            went.push(false);
            ctx.memory.left(&pod.meta.uid);
            continue;
        };
        match outcome {
            Ok(()) => went.push(true),
            Err(err) if is_gone(&err, &pod.meta.name) => {
                went.push(true);
                ctx.saw_gone(pod);
            }
            Err(err) => {
                went.push(false);
                ctx.memory.left(&pod.meta.uid);
                failed += 1;
                first.get_or_insert(err);
            }
        }
    }
    let failure = first.map(|source| TrackError::Release { failed, wanted, source });
    Released { went, cut, failure }
}

/// Stores the last status: the end of the Job, or the released pods if not all could be released.
pub(crate) async fn settle(
    ctx: &Ctx,
    owner: &Owner,
    snapshot: &Snapshot<'_>,
    recorded: Recorded,
    released: Released,
) -> Result<(), TrackError> {
    let job = snapshot.job;
    let Recorded { step, written, stored } = recorded;
    let Released { went, cut: _, failure } = released;
    let now = Moment(ctx.clock.wall().as_millisecond());
    let settled = tracking::settle(snapshot, step, &went, now);
    let ends = settled.finished.is_some();
    if let Some(status) = settled.status {
        // Set before the write, because the delete handler may clear memory before the response comes.
        ctx.memory.ended(&job.meta.uid, ends);
        let stored_now = put(ctx, job, written.as_ref(), &stored, &status).await;
        let answer = stored_now.inspect_err(|_| ctx.memory.ended(&job.meta.uid, false))?;
        if !ends {
            ctx.wrote_job(&job.meta.uid, &answer.version);
        }
        ctx.counts(job, &stored, &status);
    }
    if let Some(finished) = settled.finished {
        tell(ctx, owner, job, &finished);
    }
    failure.map_or(Ok(()), Err)
}

async fn put(
    ctx: &Ctx,
    job: &Job,
    after: Option<&Written>,
    stored: &JobStatus,
    next: &JobStatus,
) -> Result<Written, TrackError> {
    status::check(&job.spec, stored, next).map_err(TrackError::Broken)?;
    match ctx.control.api().put_status(job, after, next).await {
        Ok(written) => Ok(written),
        Err(err) if is_gone(&err, &job.meta.name) => Err(TrackError::Gone),
        Err(err) => {
            // The status may be stored. Then the failures are not new any more, and the back-off must be computed from
            // the pods.
            if matches!(err, ApiError::Unknown { .. }) {
                ctx.memory.doubts_backoff(&job.meta.uid);
            }
            Err(TrackError::Status(err))
        }
    }
}

fn tell(ctx: &Ctx, owner: &Owner, job: &Job, finished: &Finished) {
    let Finished { succeeded, reason, message, too_many } = finished;
    ctx.meters.finished(job, *succeeded, reason);
    tracing::info!(job = %job.meta.as_ref().key(), succeeded, reason = &**reason, "Job has ended");
    let event = |type_, reason: &str, message: &str| {
        ctx.recorder.event(owner.reference(), type_, reason, message.to_owned());
    };
    if *too_many {
        let message = "Too many succeeded pods running after completion count reached";
        event(Type::Warning, "TooManySucceededPods", message);
    }
    if *succeeded {
        event(Type::Normal, "Completed", "Job completed");
    } else {
        event(Type::Warning, reason, message);
    }
}

impl Ctx {
    /// Counts the increase of the counters in a stored status.
    fn counts(&self, job: &Job, before: &JobStatus, after: &JobStatus) {
        let (succeeded, failed) = status::counted(before, after);
        self.meters.counted(job, succeeded, failed);
    }

    /// The server says that a pod is gone. While the cache still shows it, it must not be counted again.
    fn saw_gone(&self, pod: &Pod) {
        let cached = self.pods.store().get(&pod.meta.namespace, &pod.meta.name).ok().flatten();
        if cached.is_none_or(|it| it.meta.uid != pod.meta.uid) {
            self.memory.left(&pod.meta.uid);
        }
    }
}
