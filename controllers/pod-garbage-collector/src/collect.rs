//! Marks pods as failed and deletes them without grace.

use std::sync::Arc;

use api::{Pod, Typed};
use client::{Api, ApiError, DeleteOptions, NotSent, error_chain};
use clock::Timestamp;
use futures::{StreamExt, stream::FuturesUnordered};
use serde_json::json;
use workload::Precondition;

use crate::{
    Ctx,
    rules::steps::{Reason, Steps},
};

/// How many pods of one node or pass are deleted concurrently. More would only wait for the rate limiter.
const MAX_CALLS: usize = 16;

/// The result for several pods.
pub(crate) struct Collected {
    /// The pods that need nothing more.
    pub(crate) done: Vec<Arc<Pod>>,
    /// False if others failed, have changed or were left out.
    pub(crate) is_complete: bool,
}

/// The result for one pod.
enum PodOutcome {
    Done,
    /// The pod has changed since it was cached. A later pass or check uses the newer state.
    Changed,
    /// Nothing was sent, because the manager stops.
    Stopped,
    Failed,
}

#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error("failed to patch status {patch:?} for pod {namespace:?}/{name:?}")]
    Patch {
        patch: String,
        namespace: String,
        name: String,
        #[source]
        source: ApiError,
    },
    #[error("failed to delete it")]
    Delete(#[source] ApiError),
}

/// Deletes these pods in their order, several at once. `may_continue` is called before each of them.
pub(crate) async fn collect_each(
    ctx: &Ctx,
    pods: Vec<Arc<Pod>>,
    reason: Reason,
    may_continue: impl Fn() -> bool,
) -> Collected {
    let (count, mut waiting) = (pods.len(), pods.into_iter());
    let (mut running, mut done) = (FuturesUnordered::new(), Vec::new());
    loop {
        while running.len() < MAX_CALLS && !ctx.stopping.is_cancelled() && may_continue() {
            let Some(pod) = waiting.next() else { break };
            running.push(async move {
                let outcome = collect(ctx, &pod, reason).await;
                (pod, outcome)
            });
        }
        match running.next().await {
            Some((pod, PodOutcome::Done)) => done.push(pod),
            Some((_, PodOutcome::Changed | PodOutcome::Stopped | PodOutcome::Failed)) => {}
            None => return Collected { is_complete: done.len() == count, done },
        }
    }
}

/// True if nothing was sent, because the term ends. The error says nothing about the pod or the node.
pub(crate) fn is_end_of_term(err: &ApiError) -> bool {
    matches!(err, ApiError::NotSent(NotSent::Stopping | NotSent::TermEnded))
}

async fn collect(ctx: &Ctx, pod: &Pod, reason: Reason) -> PodOutcome {
    let (key, node) = (pod.meta.as_ref().key(), &*pod.node);
    match reason {
        Reason::Orphaned => {
            tracing::debug!(target: "v2", pod = %key, node, "Found orphaned Pod assigned to the Node, deleting");
        }
        Reason::Unscheduled => tracing::debug!(
            target: "v2", pod = %key, "Found unscheduled terminating Pod not assigned to any Node, deleting"
        ),
        Reason::OutOfService => {
            tracing::debug!(pod = %key, phase = %pod.phase, "Garbage collecting pod that is terminating");
        }
        Reason::Terminated => {}
    }
    tracing::info!(pod = %key, "PodGC is force deleting Pod");
    let steps = Steps::of(pod);
    let result = take(&ctx.api, pod, reason, steps, ctx.clock.wall()).await;
    match &result {
        Ok(PodOutcome::Stopped) => return PodOutcome::Stopped,
        Ok(PodOutcome::Changed) => tracing::debug!(pod = %key, "The pod has changed since it was cached"),
        Ok(_) if steps.delete && reason == Reason::Orphaned => {
            tracing::info!(pod = %key, "Forced deletion of orphaned Pod succeeded");
        }
        Ok(_) if steps.delete && reason == Reason::Unscheduled => {
            tracing::info!(pod = %key, "Forced deletion of unscheduled terminating Pod succeeded");
        }
        Ok(_) => {}
        Err(err) => {
            ctx.meters.record_error(pod, reason);
            tracing::error!(err = error_chain(err), pod = %key, "{}", failure(reason));
        }
    }
    ctx.meters.record_attempt(pod, reason);
    result.unwrap_or(PodOutcome::Failed)
}

/// Takes these steps with a pod.
///
/// The phase is written first: a pod with a finalizer remains after the DELETE, and its owner must observe that it has
/// failed.
async fn take(api: &Api, pod: &Pod, reason: Reason, steps: Steps, now: Timestamp) -> Result<PodOutcome, CollectError> {
    let Steps { mark_failed, delete } = steps;
    let (namespace, name) = (&pod.meta.namespace, &*pod.meta.name);
    if mark_failed {
        let status = failed_status(pod, reason, now);
        match workload::patch_status(api, pod, Precondition::Version, &status).await {
            Ok(_) => {}
            Err(err) if workload::is_gone(&err, name) => return Ok(PodOutcome::Done),
            Err(err) if is_end_of_term(&err) => return Ok(PodOutcome::Stopped),
            Err(ApiError::Conflict(_)) => return Ok(PodOutcome::Changed),
            Err(source) => {
                let (namespace, name) = (namespace.to_string(), name.to_owned());
                return Err(CollectError::Patch { patch: status.to_string(), namespace, name, source });
            }
        }
    }
    if delete {
        let options = DeleteOptions { grace: Some(0), uid: Some(pod.meta.uid.clone()), ..DeleteOptions::default() };
        match api.delete(&Pod::resource(), namespace, name, &options).await {
            Ok(()) => {}
            Err(err) if workload::is_gone(&err, name) => {}
            Err(err) if is_end_of_term(&err) => return Ok(PodOutcome::Stopped),
            Err(source) => return Err(CollectError::Delete(source)),
        }
    }
    Ok(PodOutcome::Done)
}

/// The status of a failed pod. It is written only to the cached version, because the pod may have succeeded since. It
/// contains only the changed fields, because a pod with duplicate list keys cannot be applied (k/k#113482).
fn failed_status(pod: &Pod, reason: Reason, now: Timestamp) -> serde_json::Value {
    let mut status = json!({ "phase": "Failed", "observedGeneration": pod.generation });
    if reason == Reason::Orphaned {
        let message = "PodGC: node no longer exists";
        status["conditions"] = json!([workload::disruption_target(pod, "DeletionByPodGC", message, now)]);
    }
    status
}

fn failure(reason: Reason) -> &'static str {
    match reason {
        Reason::Terminated => "Failed to delete terminated pod",
        Reason::OutOfService => "Failed to delete terminating pod on out-of-service node",
        Reason::Orphaned => "Failed to delete orphaned pod",
        Reason::Unscheduled => "Failed to delete unscheduled terminating pod",
    }
}
