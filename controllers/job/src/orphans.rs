//! Removes our finalizer from pods that no Job will count: their Job has finished or is gone, or they have no
//! controller. The second work queue.

use std::{sync::Arc, time::Duration};

use api::{Job, OwnerRef, Pod, PodIndex, Typed, Uid};
use client::ApiError;
use controller::Outcome;
use informer::StoreError;
use workload::{has_finalizer, is_gone};

use crate::{
    Ctx,
    handlers::{FinalizerRemovalKey, matching_jobs},
    rules::snapshot::FINALIZER,
};

/// The delay before a pod is checked again whose finalizer was already being removed when its Job finished.
const RECHECK_DELAY: Duration = Duration::from_secs(1);

/// Why pods still have the finalizer. The key is retried.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OrphanError {
    #[error("cannot read the cache")]
    Cache(#[from] StoreError),
    #[error("cannot read a Job that the cache does not contain")]
    Job(#[source] ApiError),
    #[error("cannot remove the finalizer of {count} pods, the first being {pod}")]
    Pods {
        count: usize,
        pod: Box<str>,
        #[source]
        source: ApiError,
    },
}

/// Removes the finalizer from the pods of a key that no Job will count.
pub(crate) async fn remove_unneeded_finalizers(ctx: &Ctx, key: &FinalizerRemovalKey) -> Result<Outcome, OrphanError> {
    let to_remove = candidates(ctx, key)?.into_iter().filter(|it| needs_removal(ctx, it));
    let is_removal_pending = |pod: &Arc<Pod>| ctx.memory.is_finalizer_removal_pending(&pod.meta.uid);
    let (pending_removals, to_remove): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) = to_remove.partition(is_removal_pending);
    // These removals were requested before the Job finished. If one does not succeed, it is repeated later.
    let outcome = if pending_removals.is_empty() { Outcome::Done } else { Outcome::After(RECHECK_DELAY) };
    if to_remove.is_empty() {
        return Ok(outcome);
    }
    if let FinalizerRemovalKey::Job { namespace, name, uid } = key
        && !is_job_over(ctx, namespace, name, uid).await?
    {
        return Ok(outcome);
    }
    let none = Uid::default();
    let remove = |pod: Arc<Pod>| {
        let none = &none;
        async move {
            // A Job may adopt the pod meanwhile and needs the finalizer, so the patch must fail if the pod has changed.
            let outcome = ctx.control.remove_finalizer_as_seen(none, &pod, FINALIZER).await;
            (pod, outcome.map(drop))
        }
    };
    let outcomes = ctx.call_limit.call_each(to_remove, remove).await;
    let mut failed = outcomes.into_iter().filter_map(|(pod, outcome)| Some((pod, outcome.err()?)));
    let mut failed = failed.by_ref().filter(|(pod, err)| !is_gone(err, &pod.meta.name));
    match failed.next() {
        None => Ok(outcome),
        Some((pod, source)) => Err(OrphanError::Pods { count: 1 + failed.count(), pod: pod.meta.name.clone(), source }),
    }
}

fn candidates(ctx: &Ctx, key: &FinalizerRemovalKey) -> Result<Vec<Arc<Pod>>, StoreError> {
    let store = ctx.pods.store();
    match key {
        FinalizerRemovalKey::Pod(key) => {
            let pod = store.get(&key.namespace, &key.name)?;
            // A pod with a controller is no orphan any more.
            Ok(pod.into_iter().filter(|it| it.meta.as_ref().controller().is_none()).collect())
        }
        FinalizerRemovalKey::Namespace(namespace) => store.by_index(&PodIndex::Orphans(namespace.clone())),
        FinalizerRemovalKey::Job { namespace, name, uid } => {
            let mut pods = ctx.pod_indexes.work.get(uid)?;
            pods.extend(ctx.pod_indexes.orphans.get(uid)?);
            // Only the Job of this namespace and name is checked, so pods whose reference has another name are left out.
            pods.retain(|it| it.meta.namespace == *namespace && is_named(it, name));
            Ok(pods)
        }
    }
}

/// True when the pod's controller has this name, or the pod has no controller.
fn is_named(pod: &Pod, job: &str) -> bool {
    pod.meta.as_ref().controller().is_none_or(|it| *it.name == *job)
}

/// The pod has our finalizer and no Job will count it. An orphan that a Job may adopt keeps its finalizer.
fn needs_removal(ctx: &Ctx, pod: &Pod) -> bool {
    let is_owned = pod.meta.as_ref().controller().is_some();
    has_finalizer(pod, FINALIZER) && may_be_ours(pod) && (is_owned || matching_jobs(ctx, pod).is_empty())
}

/// A controller of another kind may use the same finalizer for its own purpose.
fn may_be_ours(pod: &Pod) -> bool {
    let is_job = |owner: &OwnerRef| &*owner.kind == "Job" && *owner.api_version == *Job::resource().api_version();
    pod.meta.as_ref().controller().is_none_or(is_job)
}

/// True when no Job will count the pods of this Job: it has finished or is gone. A Job that is not in the cache may be
/// newer than the cache, so it is read from the server.
async fn is_job_over(ctx: &Ctx, namespace: &str, name: &str, uid: &Uid) -> Result<bool, OrphanError> {
    let has_finished = |job: &Job| ctx.managed_jobs.contains(job) && job.is_finished();
    if let Some(job) = ctx.jobs.store().get(namespace, name)?
        && job.meta.uid == *uid
    {
        return Ok(has_finished(&job));
    }
    let live = ctx.control.api().get_opt::<Job>(&Job::resource(), namespace, name).await.map_err(OrphanError::Job)?;
    Ok(live.is_none_or(|it| it.meta.uid != *uid || has_finished(&it)))
}
