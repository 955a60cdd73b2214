//! The pods of one missing node, top to bottom: the caches, the live read of the node, the deletions.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use api::{Atom, Node, Typed};
use client::error_chain;
use controller::Outcome;
use informer::StoreError;

use crate::{
    Ctx, PERIOD, QUARANTINE,
    collect::{self, Collected},
    rules::steps::{Reason, Steps, sort_by_priority},
};

/// Deletes the pods of a node if it does not exist (`gcOrphaned`).
pub(crate) async fn sync(ctx: &Ctx, node: &Atom) -> Outcome {
    match ctx.nodes.get("", node) {
        Ok(None) => {}
        // When the node is deleted, it is enqueued again.
        Ok(Some(_)) | Err(StoreError::Unreadable { .. }) => return Outcome::Done,
        Err(StoreError::NotSynced { .. } | StoreError::Broken { .. }) => return Outcome::After(QUARANTINE),
    }
    // Listed before the node is read, so that each of these pods was bound before the node was proved missing. A pod
    // that is bound later may belong to a new node of the same name.
    let Ok(mut pods) = ctx.pods_of_node.get(node) else { return Outcome::After(QUARANTINE) };
    pods.retain(|it| !Steps::of(it).are_done());
    let backed_off = {
        let (recreations, now) = (ctx.recreations.lock(), ctx.clock.now());
        let backed_off = pods.iter().filter_map(|it| recreations.wait(it, now)).min();
        pods.retain(|it| recreations.wait(it, now).is_none());
        backed_off
    };
    let outcome = backed_off.map_or(Outcome::Done, Outcome::After);
    if pods.is_empty() {
        return outcome;
    }

    let _working = ctx.idle_node_workers.try_acquire();
    match ctx.api.get_metadata(&Node::resource(), "", node).await {
        Err(err) if err.is_absence_of(node) => {}
        Ok(_) => return Outcome::After(QUARANTINE),
        Err(err) => {
            if !collect::is_end_of_term(&err) {
                tracing::error!(err = error_chain(&err), %node, "Error while getting node");
            }
            return Outcome::After(QUARANTINE);
        }
    }
    sort_by_priority(&mut pods);
    // With many pods this takes minutes. Once the node is back, the rest of its pods must stay.
    let may_have_returned = AtomicBool::new(false);
    let is_missing = || {
        may_have_returned.fetch_or(!matches!(ctx.nodes.get("", node), Ok(None)), Relaxed);
        !may_have_returned.load(Relaxed)
    };
    let Collected { done, is_complete } = collect::collect_each(ctx, pods, Reason::Orphaned, is_missing).await;
    let now = ctx.clock.now();
    done.iter().for_each(|it| ctx.recreations.lock().on_deleted(it, now));
    match ctx.nodes.get("", node) {
        Ok(Some(_)) => Outcome::Done,
        _ if may_have_returned.into_inner() => Outcome::After(QUARANTINE),
        _ if is_complete => outcome,
        _ => Outcome::After(PERIOD),
    }
}
