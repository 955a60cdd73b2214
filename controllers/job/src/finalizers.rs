//! The finalizer protocol in stages. A finalizer is removed only after the stored status contains the pod:
//! [`remove_finalizers`] needs a [`Recorded`], which only [`record`] returns.

use std::sync::Arc;

use api::{Job, JobStatus, Pod};
use client::{ApiError, Written};
use events::EventType;
use workload::{Owner, is_gone};

use crate::{
    Ctx,
    rules::{
        accounting::{self, Finished, FirstStep},
        indexes::Indexes,
        plan::Plan,
        snapshot::{FINALIZER, Snapshot},
        status::{self, InvalidStatus},
    },
};

/// Why pods could not be counted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrackError {
    /// The Job is gone, or another Job has its name, so there is nothing to count.
    #[error("the Job is gone")]
    Gone,
    #[error("cannot store the status")]
    Status(#[source] ApiError),
    /// A bug of this controller. The server would reject the status on each retry.
    #[error("the status is not sent, because the server would refuse it: {0}")]
    InvalidStatus(InvalidStatus),
    #[error("cannot remove the finalizer of {failed} of {wanted} pods")]
    RemoveFinalizers {
        failed: usize,
        wanted: usize,
        #[source]
        source: ApiError,
    },
}

/// A stored status that contains all ended pods.
#[must_use]
pub(crate) struct Recorded {
    step: FirstStep,
    /// Our write, if one was needed.
    written: Option<Written>,
    /// The stored status.
    stored: JobStatus,
}

/// Which finalizers were removed, in the order of the step.
#[must_use]
pub(crate) struct RemovedFinalizers {
    removed: Vec<bool>,
    /// The rest is left to the next sync, because other Jobs wait.
    pub(crate) cut_short: bool,
    failure: Option<TrackError>,
}

impl Recorded {
    /// Selects counted pods that are now deleted for the removal of the finalizer.
    pub(crate) fn select_deleted(&mut self, deleted: &[usize]) {
        self.step.select_deleted(deleted);
    }

    /// Whether any finalizer must be removed.
    pub(crate) fn has_removals(&self) -> bool {
        !self.step.finalizers_to_remove.is_empty()
    }
}

/// Stores the pods that ended. Memory, metrics and events are updated only after that.
pub(crate) async fn record(
    ctx: &Ctx,
    owner: &Owner,
    snapshot: &Snapshot<'_>,
    plan: &Plan,
    step: FirstStep,
) -> Result<Recorded, TrackError> {
    let job = snapshot.job;
    let written = if step.write { Some(put(ctx, job, None, &job.status, &step.status).await?) } else { None };
    if let Some(written) = &written {
        ctx.record_job_write(&job.meta.uid, &written.version);
    }
    ctx.memory.record_backoff(&job.meta.uid, step.backoff);
    let stored = if step.write { step.status.clone() } else { job.status.clone() };
    ctx.count_finished_pods(job, &job.status, &stored);
    if let Some(suspended) = step.suspended {
        let (reason, message) = if suspended { ("Suspended", "Job suspended") } else { ("Resumed", "Job resumed") };
        ctx.recorder.event(owner.reference(), EventType::Normal, reason, message.to_owned());
    }
    for action in &step.actions {
        ctx.meters.record_policy_action(action);
    }
    if let Some(indexes) = &plan.tally.indexes
        && written.is_some()
    {
        let before = job.status.failed_indexes.as_deref().unwrap_or_default();
        let lost = indexes.failed.as_ref().map_or(0, Indexes::len);
        let lost = lost.saturating_sub(Indexes::parse(before, snapshot.completions()).len());
        let done = indexes.succeeded.len().saturating_sub(indexes.stored.len());
        ctx.meters.record_finished_indexes(job, done.into(), lost.into());
    }
    Ok(Recorded { step, written, stored })
}

/// Removes the finalizers from the pods that the stored status counts.
pub(crate) async fn remove_finalizers(
    ctx: &Ctx,
    owner: &Owner,
    pods: &[Arc<Pod>],
    recorded: &Recorded,
) -> RemovedFinalizers {
    let to_remove: Vec<&Arc<Pod>> = recorded.step.finalizers_to_remove.iter().filter_map(|at| pods.get(*at)).collect();
    let wanted = to_remove.len();
    // Recorded before the first removal, because its watch event may come before the response. Until that event the
    // finalizer in the cache must be ignored.
    ctx.memory.begin_finalizer_removals(&owner.uid, to_remove.iter().map(|it| &it.meta.uid));
    let stage_start = ctx.begin_stage();
    let calls = ctx.call_limit.call_each_until(
        || ctx.is_stage_over(stage_start),
        to_remove.clone(),
        |pod| async move {
            if ctx.stopping.is_cancelled() {
                return Err(ApiError::NotSent(client::NotSent::Stopping));
            }
            ctx.control.remove_finalizer(&owner.uid, pod, FINALIZER).await.map(drop)
        },
    );
    let (mut removed, mut cut_short, mut failed, mut first) = (Vec::with_capacity(wanted), false, 0, None);
    for (pod, outcome) in to_remove.iter().zip(calls.await) {
        let Some(outcome) = outcome else {
            cut_short = true;
            removed.push(false);
            ctx.memory.end_finalizer_removal(&pod.meta.uid);
            continue;
        };
        match outcome {
            Ok(()) => removed.push(true),
            Err(err) if is_gone(&err, &pod.meta.name) => {
                removed.push(true);
                ctx.on_pod_gone(pod);
            }
            Err(err) => {
                removed.push(false);
                ctx.memory.end_finalizer_removal(&pod.meta.uid);
                failed += 1;
                first.get_or_insert(err);
            }
        }
    }
    let failure = first.map(|source| TrackError::RemoveFinalizers { failed, wanted, source });
    RemovedFinalizers { removed, cut_short, failure }
}

/// Stores the end of the Job, or the pods whose finalizers were removed.
pub(crate) async fn store_last_status(
    ctx: &Ctx,
    owner: &Owner,
    snapshot: &Snapshot<'_>,
    recorded: Recorded,
    removed: RemovedFinalizers,
) -> Result<(), TrackError> {
    let job = snapshot.job;
    let Recorded { step, written, stored } = recorded;
    let RemovedFinalizers { removed, cut_short: _, failure } = removed;
    let now = ctx.moment();
    let last = accounting::last_step(snapshot, step, &removed, now);
    let is_final = last.finished.is_some();
    if let Some(status) = last.status {
        // Set before the write, because the delete handler may clear memory before the response comes.
        ctx.memory.set_finish_pending(&job.meta.uid, is_final);
        let stored_now = put(ctx, job, written.as_ref(), &stored, &status).await;
        let response = stored_now.inspect_err(|_| ctx.memory.set_finish_pending(&job.meta.uid, false))?;
        if !is_final {
            ctx.record_job_write(&job.meta.uid, &response.version);
        }
        ctx.count_finished_pods(job, &stored, &status);
    }
    if let Some(finished) = last.finished {
        report_finished(ctx, owner, job, &finished);
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
    status::check(&job.spec, stored, next).map_err(TrackError::InvalidStatus)?;
    match ctx.control.api().put_status(job, after, next).await {
        Ok(written) => Ok(written),
        Err(err) if is_gone(&err, &job.meta.name) => Err(TrackError::Gone),
        Err(err) => {
            // The status may be stored. Then the failures are not new any more, and the back-off must be computed from
            // the pods.
            if matches!(err, ApiError::Unknown { .. }) {
                ctx.memory.clear_backoff(&job.meta.uid);
            }
            Err(TrackError::Status(err))
        }
    }
}

fn report_finished(ctx: &Ctx, owner: &Owner, job: &Job, finished: &Finished) {
    let Finished { succeeded, reason, message, too_many } = finished;
    ctx.meters.record_finished_job(job, *succeeded, reason);
    tracing::info!(job = %job.meta.as_ref().key(), succeeded, reason = &**reason, "Job has ended");
    let event = |type_, reason: &str, message: &str| {
        ctx.recorder.event(owner.reference(), type_, reason, message.to_owned());
    };
    if *too_many {
        let message = "Too many succeeded pods running after completion count reached";
        event(EventType::Warning, "TooManySucceededPods", message);
    }
    if *succeeded {
        event(EventType::Normal, "Completed", "Job completed");
    } else {
        event(EventType::Warning, reason, message);
    }
}

impl Ctx {
    /// Counts the increase of the counters in a stored status.
    fn count_finished_pods(&self, job: &Job, before: &JobStatus, after: &JobStatus) {
        let (succeeded, failed) = status::counter_increases(before, after);
        self.meters.record_finished_pods(job, succeeded, failed);
    }

    /// The server responded that a pod is gone. While the cache still shows it, it must not be counted again.
    fn on_pod_gone(&self, pod: &Pod) {
        let cached = self.pods.store().get(&pod.meta.namespace, &pod.meta.name).ok().flatten();
        if cached.is_none_or(|it| it.meta.uid != pod.meta.uid) {
            self.memory.end_finalizer_removal(&pod.meta.uid);
        }
    }
}
