//! One pod on a node that is not ready: it is marked as not ready, so that no Service uses it.

use std::time::Duration;

use api::{ConditionStatus, ObjectKey, Pod, Typed};
use client::ApiError;
use controller::Outcome;
use events::EventType;
use informer::StoreError;
use serde_json::json;
use workload::{Precondition, is_gone};

use crate::{Ctx, rules::conditions::READY};

/// The wait for a cache that is behind.
const RETRY: Duration = Duration::from_secs(1);

/// Why a pod could not be marked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodError {
    #[error("cannot read the pod from the cache")]
    Cache(#[source] StoreError),
    #[error("cannot mark the pod as not ready")]
    Patch(#[source] ApiError),
}

/// Marks the pod as not ready if its node is not ready (`MarkPodsNotReady`). Reason and message are kept.
pub(crate) async fn sync(ctx: &Ctx, key: &ObjectKey) -> Result<Outcome, PodError> {
    let pod = ctx.pods.store().get(&key.namespace, &key.name).map_err(PodError::Cache)?;
    let Some(pod) = pod else { return Ok(Outcome::Done) };
    let is_node_ready = {
        let state = ctx.state.lock();
        state.nodes.readiness(&pod.node).is_none_or(|it| *it == ConditionStatus::True)
    };
    let is_marked = pod.condition(READY).is_none_or(|it| it.status == ConditionStatus::False);
    if is_node_ready || is_marked {
        return Ok(Outcome::Done);
    }
    let now = api::rfc3339(ctx.clock.wall().as_second()).ok();
    let condition = json!({ "type": READY, "status": "False", "lastTransitionTime": now });
    // The resourceVersion prevents that a newer status of the kubelet is overwritten. After a conflict, the next
    // attempt uses the newer pod from the cache.
    let status = json!({ "conditions": [condition] });
    match workload::patch_status(&ctx.api, &pod, Precondition::Version, &status).await {
        Ok(_) => {
            tracing::debug!(pod = %key, node = %pod.node, "Updating ready status of pod to false");
            let pod = events::reference(&Pod::resource(), &pod.meta.as_ref());
            ctx.recorder.event(&pod, EventType::Warning, "NodeNotReady", "Node is not ready".to_owned());
            Ok(Outcome::Done)
        }
        Err(err) if is_gone(&err, &key.name) => Ok(Outcome::Done),
        // The cache is behind.
        Err(ApiError::Conflict(_)) => Ok(Outcome::After(RETRY)),
        Err(err) => Err(PodError::Patch(err)),
    }
}
