//! One pod, top to bottom: the decision from the cache, live reads, the decision again, and the deletion.

use std::time::Duration;

use api::{Cached, ConditionStatus, Node, ObjectKey, Pod, Typed, Version};
use client::{ApiError, DeleteOptions, READ_TIMEOUT, WRITE_TIMEOUT, within};
use clock::Instant;
use controller::Outcome;
use informer::{Informer, StoreError};
use serde_json::json;
use workload::{DISRUPTION_TARGET, Precondition};

use crate::{
    Ctx,
    memory::{PodTaints, Stage},
    rules::tolerations::{EvictionTime, decide},
};

/// The wait of a pod that is due while the watch of nodes is interrupted.
const RETRY: Duration = Duration::from_secs(1);
/// The longest wait for a cache that is behind; then the sync is retried. A frozen watch is replaced after 90 s.
const STALE_LIMIT: Duration = Duration::from_secs(30);

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("cannot decide about pod {pod}")]
    Cache {
        pod: ObjectKey,
        #[source]
        source: StoreError,
    },
    #[error("cannot evict pod {pod}: cannot read it")]
    ReadPod {
        pod: ObjectKey,
        #[source]
        source: ApiError,
    },
    #[error("cannot evict pod {pod}: cannot read its node {node}")]
    ReadNode {
        pod: ObjectKey,
        node: api::Atom,
        #[source]
        source: ApiError,
    },
    #[error("cannot evict pod {pod}: cannot write its condition {DISRUPTION_TARGET}")]
    Condition {
        pod: ObjectKey,
        #[source]
        source: ApiError,
    },
    #[error("cannot evict pod {pod}: cannot delete it")]
    Delete {
        pod: ObjectKey,
        #[source]
        source: ApiError,
    },
}

/// What to do about a pod now.
enum EvictionStep {
    /// It is due since then.
    Evict { due: Instant },
    /// No eviction now: the sync returns this.
    Return(Outcome),
}

/// Enqueues the pods of a node whose taints have changed. Pods that come later are enqueued by their own events,
/// because the taints are recorded before the node is enqueued.
pub(crate) fn enqueue_pods(ctx: &Ctx, node: &ObjectKey) -> Result<Outcome, StoreError> {
    for pod in ctx.pods_of_node.get(&(*node.name).into())? {
        ctx.pod_queue.add(pod.meta.as_ref().key());
    }
    Ok(Outcome::Done)
}

/// Deletes a pod that is due.
pub(crate) async fn sync(ctx: &Ctx, key: &ObjectKey) -> Result<Outcome, SyncError> {
    let cached = ctx.pods.store().get(&key.namespace, &key.name);
    let cached = cached.map_err(|source| SyncError::Cache { pod: key.clone(), source })?;
    // The handler has ended the timer of a pod that is gone.
    let Some(cached) = cached else { return Ok(Outcome::Done) };
    let outcome = match next_step(ctx, key, &cached) {
        EvictionStep::Evict { due } => evict(ctx, key, &cached, due).await,
        EvictionStep::Return(outcome) => Ok(outcome),
    };
    ctx.clear_memory_of_deleted(&cached);
    outcome
}

/// Decides about a pod, and announces the end of a timer.
fn next_step(ctx: &Ctx, key: &ObjectKey, pod: &Pod) -> EvictionStep {
    let uid = &pod.meta.uid;
    if !workload::is_active(pod) {
        // The pod is being deleted, or it has ended and does not run any more.
        ctx.memory.end_eviction(uid);
        return EvictionStep::Return(Outcome::Done);
    }
    let decision = ctx.memory.taints_of(pod).map_or(EvictionTime::Stay, |PodTaints { taints, arrival, lifted_by }| {
        decide(&pod.tolerations, &taints, arrival, lifted_by, ctx.compare_numbers)
    });
    let now = ctx.clock.now();
    match decision {
        EvictionTime::Stay => {
            if ctx.memory.end_eviction(uid).is_some() {
                ctx.send_cancelled_event(key);
            }
            EvictionStep::Return(Outcome::Done)
        }
        EvictionTime::At(time) if time > now => {
            // The deletion was announced and has failed so far. It is not due any more.
            if let Some(Stage::Marked { .. }) = ctx.memory.set_stage(uid, Stage::Waiting) {
                ctx.send_cancelled_event(key);
            }
            EvictionStep::Return(Outcome::After(time - now))
        }
        // The seconds that it tolerates are longer then.
        EvictionTime::At(_) if ctx.memory.is_interrupted(ctx.clock.boot()) => {
            EvictionStep::Return(Outcome::After(RETRY))
        }
        EvictionTime::At(due) => EvictionStep::Evict { due },
        EvictionTime::Now { since } => {
            // Upstream cancels the timer with an event before it deletes the pod at once (`processPodOnNode`).
            if ctx.memory.stage(uid) == Some(Stage::Waiting) {
                ctx.memory.end_eviction(uid);
                ctx.send_cancelled_event(key);
            }
            EvictionStep::Evict { due: since }
        }
    }
}

/// Deletes a pod that is due according to the cache, if live reads confirm it.
async fn evict(ctx: &Ctx, key: &ObjectKey, cached: &Pod, due: Instant) -> Result<Outcome, SyncError> {
    let Some(pod) = read_pod(ctx, key).await? else { return Ok(Outcome::Done) };
    if pod.meta.uid != cached.meta.uid {
        // The new pod is enqueued by its own event.
        return Ok(Outcome::Done);
    }
    let node = ctx.live_nodes.get(&pod.node, due).await;
    let node = node.map_err(|source| SyncError::ReadNode { pod: key.clone(), node: pod.node.clone(), source })?;
    if let Some(wait) = wait_unless_confirmed(ctx, key, cached, node.as_deref()) {
        return Ok(wait);
    }
    // The live pod may have other tolerations, and the taints may have changed during the reads.
    let due = match next_step(ctx, key, &pod) {
        EvictionStep::Evict { due } => due,
        EvictionStep::Return(outcome) => return Ok(outcome),
    };
    announce(ctx, key, &pod);
    match mark_and_delete(ctx, key, &pod).await {
        Ok(None) => {
            ctx.memory.end_eviction(&pod.meta.uid);
            ctx.meters.record_deletion(ctx.clock.now().saturating_duration_since(due));
            Ok(Outcome::Done)
        }
        Ok(Some(outcome)) => Ok(outcome),
        Err(SyncError::Condition { source, .. } | SyncError::Delete { source, .. })
            if workload::is_gone(&source, &key.name) =>
        {
            Ok(Outcome::Done)
        }
        Err(err) => Err(err),
    }
}

async fn read_pod(ctx: &Ctx, key: &ObjectKey) -> Result<Option<Pod>, SyncError> {
    let pod = within(READ_TIMEOUT, ctx.api.get_opt::<Pod>(&Pod::resource(), &key.namespace, &key.name)).await;
    pod.map_err(|source| SyncError::ReadPod { pod: key.clone(), source })
}

/// Returns no wait if the live node has exactly the observed taints and the cache of nodes has passed the version of
/// the live node. Otherwise a taint may have been lifted and added again, so it is not known since when it is there.
fn wait_unless_confirmed(ctx: &Ctx, key: &ObjectKey, cached: &Pod, node: Option<&Node>) -> Option<Outcome> {
    let is_confirmed = node.is_some_and(|node| {
        // When the cache has passed the version of the cached pod, the arrival of the pod is recorded.
        has_passed(ctx, key, &ctx.pods, &cached.meta.version)
            && has_passed(ctx, key, &ctx.nodes, &node.meta.version)
            && ctx.memory.has_taints_of(node)
    });
    if is_confirmed {
        return None;
    }
    tracing::debug!(pod = %key, "The pod is not evicted yet, because its node has changed or the caches are behind");
    // The pod is enqueued when the cache has passed the version, or by an event of the node.
    Some(Outcome::Parked(STALE_LIMIT))
}

/// Whether a cache has passed this version. If not, the pod is enqueued when it has.
fn has_passed<T: Cached>(ctx: &Ctx, key: &ObjectKey, informer: &Informer<T>, version: &Version) -> bool {
    let (queue, key) = (ctx.pod_queue.clone(), key.clone());
    informer.store().call_when_passed(version.clone(), Box::new(move || queue.add(key)))
}

/// Announces a deletion, once for all its attempts.
fn announce(ctx: &Ctx, key: &ObjectKey, pod: &Pod) {
    if ctx.memory.stage(&pod.meta.uid).is_none_or(|it| it == Stage::Waiting) {
        ctx.memory.set_stage(&pod.meta.uid, Stage::Marked { has_condition: false });
        let (uid, node) = (&pod.meta.uid, &pod.node);
        tracing::info!(pod = %key, %uid, %node, "Deleting a pod because of a NoExecute taint");
        ctx.send_marked_event(key);
    }
}

/// Sets the condition, and deletes the pod with its own grace period. PodDisruptionBudgets do not apply. Returns an
/// outcome if the pod is not due any more when the condition is set.
async fn mark_and_delete(ctx: &Ctx, key: &ObjectKey, pod: &Pod) -> Result<Option<Outcome>, SyncError> {
    let uid = &pod.meta.uid;
    let is_written = ctx.memory.stage(uid) == Some(Stage::Marked { has_condition: true })
        && pod.condition(DISRUPTION_TARGET).is_some_and(|it| it.status == ConditionStatus::True);
    if !is_written {
        let message = "Taint manager: deleting due to NoExecute taint";
        let condition = workload::disruption_target(pod, "DeletionByTaintManager", message, ctx.clock.wall());
        let status = json!({ "conditions": [condition] });
        let call = workload::patch_status(&ctx.api, pod, Precondition::Uid, &status);
        within(WRITE_TIMEOUT, call).await.map_err(|source| SyncError::Condition { pod: key.clone(), source })?;
        ctx.memory.set_stage(uid, Stage::Marked { has_condition: true });
    }
    // The taint may have been lifted meanwhile, or the pod may have other tolerations.
    let newer = ctx.pods.store().get_same(&key.namespace, &key.name, uid);
    let newer = newer.ok().flatten().filter(|it| pod.meta.version.is_older_than(&it.meta.version));
    if let EvictionStep::Return(outcome) = next_step(ctx, key, newer.as_deref().unwrap_or(pod)) {
        return Ok(Some(outcome));
    }
    let options = DeleteOptions { uid: Some(uid.clone()), ..DeleteOptions::default() };
    let resource = Pod::resource();
    let call = ctx.api.delete(&resource, &key.namespace, &key.name, &options);
    within(WRITE_TIMEOUT, call).await.map_err(|source| SyncError::Delete { pod: key.clone(), source })?;
    Ok(None)
}
