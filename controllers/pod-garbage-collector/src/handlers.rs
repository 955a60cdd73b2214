//! The handlers for changes of pods and nodes: they decide which node is checked, and when. Constant work per event.

use api::{Entry, Node, Pod};
use informer::{Change, StoreError};

use crate::{Ctx, QUARANTINE};

/// The quarantine of a node begins with its deletion.
pub(crate) fn on_node(ctx: &Ctx, change: &Change<'_, Node>) {
    match (change.old, change.new) {
        (None, Some(added)) => {
            let name = added.meta().name.into();
            // If the node is deleted again, a whole quarantine begins.
            ctx.node_queue.cancel_delay(&name);
            ctx.recreations.lock().on_node_added(&name);
        }
        (Some(deleted), None) => {
            let name: api::Atom = deleted.meta().name.into();
            // A check that was set before the node was in the cache must not shorten the quarantine.
            ctx.node_queue.cancel_delay(&name);
            ctx.node_queue.add_after(name, QUARANTINE);
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
}

/// The quarantine of a node that was never in the cache begins with its first pod. A further pod does not prolong it.
pub(crate) fn on_pod(ctx: &Ctx, change: &Change<'_, Pod>) {
    let Some(pod) = change.new.and_then(Entry::readable) else { return };
    if pod.node.is_empty() {
        return;
    }
    match ctx.nodes.get("", &pod.node) {
        Ok(None) => ctx.node_queue.add_after(pod.node.clone(), QUARANTINE),
        Ok(Some(_)) | Err(StoreError::Unreadable { .. }) => {}
        // Whether the node exists is not known yet. A later pass begins the quarantine.
        Err(StoreError::NotSynced { .. } | StoreError::Broken { .. }) => {}
    }
}
