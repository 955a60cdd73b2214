//! Handlers for changes of nodes, Leases and pods. `observe_node` and `observe_lease` also run on a standby.

use api::{Entry, Lease, MetaRef, Node, Pod};
use clock::Timestamp;
use controller::Lane;
use events::{EventType, ObjectReference};
use informer::{Cause, Change};

use crate::{
    Ctx, Key, LEASES,
    nodes::age,
    rules::taints::{has_no_execute, is_no_execute},
};

/// Records the present state of a node.
pub(crate) fn observe_node(ctx: &Ctx, change: &Change<'_, Node>) {
    let now = ctx.clock.boot();
    let mut state = ctx.state.lock();
    if let Some(gone) = change.gone().map(Entry::meta) {
        let name = gone.name.into();
        if let Some(zone) = state.nodes.remove(gone.name, gone.uid) {
            state.pacing.withdraw(&zone, &name);
        }
    }
    let Some(node) = change.new.and_then(Entry::readable) else { return };
    let name = (&*node.meta.name).into();
    let left = match change.cause {
        Cause::Relist => state.nodes.on_relisted(node, now),
        Cause::Initial | Cause::Watch | Cause::Resync => state.nodes.on_node(node, now),
    };
    if let Some(left) = left {
        state.pacing.withdraw(&left, &name);
    }
    // If one of the two taints only replaces the other one, the node took no turn of its zone.
    let was_tainted = change.old.and_then(Entry::readable).is_some_and(|old| has_no_execute(old));
    let tainted = node.taints.iter().filter(|it| is_no_execute(it) && !was_tainted).filter_map(|it| it.added).max();
    // The time of a taint has no fraction, so it was added up to a second later.
    let tainted = tainted.and_then(|it| Timestamp::from_second(it.saturating_add(1)).ok());
    if let (Some(tainted), Some(zone)) = (tainted, state.nodes.zone(&name).cloned()) {
        state.pacing.on_tainted(&zone, now - age(tainted, ctx.clock.wall()));
    }
}

/// Records that the Lease of a node was renewed. It counts when this process observes the change, because the clock of
/// the node may be wrong. A Lease of the first list is no sign of life: it may be months old. One that a later list does
/// not contain any more may have been renewed before it was deleted.
pub(crate) fn observe_lease(ctx: &Ctx, change: &Change<'_, Lease>) {
    let before = change.old.and_then(Entry::readable).and_then(|it| it.renew_micros);
    let renewed = match change.new.and_then(Entry::readable) {
        Some(lease) => (change.cause != Cause::Initial && lease.renew_micros > before).then_some(&lease.meta),
        None => change.old.and_then(Entry::readable).filter(|_| change.stale).map(|it| &it.meta),
    };
    if let Some(lease) = renewed.filter(|it| &*it.namespace == LEASES) {
        ctx.state.lock().nodes.on_renewal(&lease.name, ctx.clock.boot());
    }
}

/// Enqueues a node, and sends the events of new and deleted ones.
pub(crate) fn on_node(ctx: &Ctx, change: &Change<'_, Node>, lane: Lane) {
    if let Some(gone) = change.gone().map(Entry::meta) {
        send_node_event(ctx, &gone, "RemovingNode", &format!("event: Removing Node {} from Controller", gone.name));
    }
    let Some(meta) = change.new.map(Entry::meta) else { return };
    if change.old.is_none_or(|old| old.meta().uid != meta.uid) && change.cause != Cause::Resync {
        send_node_event(ctx, &meta, "RegisteredNode", &format!("event: Registered Node {} in Controller", meta.name));
    }
    ctx.queue.add_to(Key::Node(meta.name.into()), lane);
}

/// Sends a Normal event about a node, as `RecordNodeEvent` does.
pub(crate) fn send_node_event(ctx: &Ctx, node: &MetaRef<'_>, reason: &str, text: &str) {
    let reference = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: Some(node.name.to_owned()),
        uid: Some(node.uid.to_string()),
        ..ObjectReference::default()
    };
    ctx.recorder.event(&reference, EventType::Normal, reason, format!("Node {} {text}", node.name));
}

/// Enqueues a pod that is new on a node that is not ready. The sync of the node enqueues the pods that are already
/// there.
pub(crate) fn on_pod(ctx: &Ctx, change: &Change<'_, Pod>, lane: Lane) {
    if change.cause == Cause::Initial {
        return;
    }
    let node = |entry: Option<&Entry<Pod>>| entry.and_then(Entry::readable).map(|it| it.node.clone());
    let Some(new) = change.new.and_then(Entry::readable).filter(|it| !it.node.is_empty()) else { return };
    if node(change.old).is_some_and(|old| old == new.node) {
        return;
    }
    let is_ready = {
        let state = ctx.state.lock();
        state.nodes.readiness(&new.node).is_none_or(|it| *it == api::ConditionStatus::True)
    };
    if !is_ready {
        ctx.pod_queue.add_to(new.meta.as_ref().key(), lane);
    }
}
