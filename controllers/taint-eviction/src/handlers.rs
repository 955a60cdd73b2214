//! Handlers for changes of nodes and pods: they record observations, and enqueue keys. Constant work per event.

use api::{Entry, Node, ObjectKey, Pod, Taint, Uid};
use controller::Lane;
use informer::{Cause, Change};

use crate::{Ctx, rules::taints::no_execute};

/// Records the taints of a node, also on a standby.
pub(crate) fn record_node(ctx: &Ctx, change: &Change<'_, Node>) {
    let Some(name) = change.new.or(change.old).map(|it| it.meta().name) else { return };
    match (change.old, change.new) {
        (old, Some(Entry::Readable(node))) => {
            // States of the node may be missing after a relist, and after a state that does not decode.
            let is_gapless = change.cause == Cause::Watch && old.is_some_and(|it| it.readable().is_some());
            ctx.memory.record_node(node, is_gapless, ctx.now());
        }
        // The taints of a node that does not decode are not known. Its pods are not evicted, because the live read
        // fails too.
        (_, Some(Entry::Unreadable(_))) => {}
        (_, None) => ctx.memory.remove_node(name),
    }
    ctx.live_nodes.end_sharing(name);
}

/// Records when a pod comes to its node, also on a standby.
pub(crate) fn record_pod(ctx: &Ctx, change: &Change<'_, Pod>) {
    if let Some(gone) = change.gone().map(Entry::meta) {
        ctx.memory.remove_arrival(gone.uid);
    }
    if change.cause == Cause::Initial {
        // One time for all of them, because tainted nodes may have very many pods.
        ctx.memory.record_first_pods(ctx.clock.now());
        return;
    }
    let Some(pod) = change.new.and_then(Entry::readable).filter(|it| !it.node.is_empty()) else { return };
    if same_before(change, &pod.meta.uid).is_none_or(|old| old.node.is_empty()) {
        ctx.memory.record_arrival(pod, ctx.clock.now());
    }
}

/// Enqueues a node whose `NoExecute` taints have changed.
pub(crate) fn enqueue_node(ctx: &Ctx, change: &Change<'_, Node>, lane: Lane) {
    let (old, new) = (TaintsOfEntry::of(change.old), TaintsOfEntry::of(change.new));
    let Some(name) = change.new.or(change.old).map(|it| it.meta().name) else { return };
    if change.cause != Cause::Resync && old != new && !(old.is_empty() && new.is_empty()) {
        ctx.node_queue.add_to(ObjectKey::new("", name), lane);
    }
}

/// The node of an entry with its `NoExecute` taints.
#[derive(PartialEq)]
enum TaintsOfEntry<'a> {
    Absent,
    Unknown,
    Known(&'a Uid, Vec<&'a Taint>),
}

impl<'a> TaintsOfEntry<'a> {
    fn of(entry: Option<&'a Entry<Node>>) -> Self {
        match entry {
            None => Self::Absent,
            Some(Entry::Unreadable(_)) => Self::Unknown,
            Some(Entry::Readable(node)) => Self::Known(&node.meta.uid, no_execute(node).collect()),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Unknown => false,
            Self::Known(_, taints) => taints.is_empty(),
        }
    }
}

/// Enqueues a pod on a tainted node, if it is new there or has other tolerations now. Ends the timer of a pod that is
/// gone.
pub(crate) fn enqueue_pod(ctx: &Ctx, change: &Change<'_, Pod>, lane: Lane) {
    // At the start each tainted node is enqueued, and its sync enqueues all its pods.
    if matches!(change.cause, Cause::Initial | Cause::Resync) {
        return;
    }
    if let Some(gone) = change.gone().map(Entry::meta) {
        ctx.on_pod_gone(gone.uid, &gone.key());
    }
    let Some(pod) = change.new.and_then(Entry::readable) else { return };
    let is_unchanged = same_before(change, &pod.meta.uid)
        .is_some_and(|old| old.node == pod.node && old.tolerations == pod.tolerations);
    if !is_unchanged && ctx.memory.is_tainted(&pod.node) {
        ctx.pod_queue.add_to(pod.meta.as_ref().key(), lane);
    }
}

/// The pod of this uid before the change.
fn same_before<'a>(change: &Change<'a, Pod>, uid: &Uid) -> Option<&'a Pod> {
    change.old.and_then(Entry::readable).filter(|it| it.meta.uid == *uid).map(|it| &**it)
}
