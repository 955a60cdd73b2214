//! One node, top to bottom.

use api::{Atom, Node, Typed};
use client::{ApiError, Patch};
use controller::Outcome;
use informer::StoreError;
use serde_json::json;

use crate::Ctx;

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("cannot read node {node} from the cache")]
    Cache {
        node: Atom,
        #[source]
        source: StoreError,
    },
    #[error("failed to change ttl annotation for node {node}")]
    Patch {
        node: Atom,
        #[source]
        source: ApiError,
    },
}

/// Annotates the node with the wanted value, unless it already has this value (`updateNodeIfNeeded`).
pub(crate) async fn sync(ctx: &Ctx, name: &Atom) -> Result<Outcome, SyncError> {
    let node = ctx.nodes.get("", name).map_err(|source| SyncError::Cache { node: name.clone(), source })?;
    let Some(node) = node else { return Ok(Outcome::Done) };
    let wanted = ctx.step.lock().seconds();
    match node.ttl.as_deref().map(str::parse::<i64>) {
        Some(Ok(found)) if found == i64::from(wanted) => return Ok(Outcome::Done),
        Some(Err(_)) => tracing::info!(
            annotationValue = node.ttl.as_deref(),
            annotationKey = Node::TTL_ANNOTATION,
            node = &**name,
            "Could not convert the value with annotation key for the node"
        ),
        Some(Ok(_)) | None => {}
    }
    // No precondition: all nodes get the same value, also a new node of this name.
    let annotations = json!({ Node::TTL_ANNOTATION: wanted.to_string() });
    let patch = Patch::Strategic(json!({ "metadata": { "annotations": annotations } }));
    match ctx.api.patch(&Node::resource(), "", name, None, &patch).await {
        Ok(_) => {
            tracing::debug!(target: "v2", node = &**name, ttl = wanted, "Changed ttl annotation");
            Ok(Outcome::Done)
        }
        Err(err) if err.is_absence_of(name) => Ok(Outcome::Done),
        Err(source) => Err(SyncError::Patch { node: name.clone(), source }),
    }
}
