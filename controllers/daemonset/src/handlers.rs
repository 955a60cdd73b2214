//! Handlers for changes of sets, pods, nodes and revisions: they count observed writes and enqueue keys.

use std::sync::Arc;

use api::{ControllerRevision, DaemonSet, Entry, Labels, MetaRef, Node, ObjectKey, OwnerRef, Pod};
use controller::Lane;
use informer::{Cause, Change};

use crate::{
    Ctx,
    rules::{
        notices::IGNORE_UNREACHABLE,
        placement::{NodeFit, fit, unreachable_since},
    },
};

/// A set was added, updated or deleted.
pub(crate) fn on_set(ctx: &Ctx, change: &Change<'_, DaemonSet>, lane: Lane) {
    if let Some(gone) = change.gone() {
        ctx.remove(gone.meta().uid);
    }
    if let Some(new) = change.new.map(Entry::meta) {
        ctx.queue.add_to(new.key(), lane);
    }
}

/// A pod was added, updated or deleted.
pub(crate) fn on_pod(ctx: &Ctx, change: &Change<'_, Pod>, lane: Lane) {
    // Each set is queued at the start and at a resync anyway.
    if matches!(change.cause, Cause::Resync | Cause::Initial) {
        return;
    }
    let gone = change.gone();
    let old = change.old.filter(|_| gone.is_none());
    if let Some(gone) = gone {
        observe_deletion(ctx, &gone.meta(), lane);
    }
    let Some(new) = change.new else { return };
    let (meta, before) = (new.meta(), old.and_then(|it| it.meta().controller().cloned()));
    let now = meta.controller();
    if let Some(owner) = now.filter(|it| old.is_none() && is_set(it)) {
        ctx.memory.expectations.creation_observed(&owner.uid);
    }
    if let Some(before) = before.as_ref().filter(|it| Some(*it) != now && is_set(it)) {
        // Later events of the pod do not name this set.
        ctx.memory.expectations.deletion_observed(&before.uid, meta.uid);
        enqueue_owner(ctx, &meta, before, lane);
    }
    if meta.deletion.is_some() {
        observe_deletion(ctx, &meta, lane);
        return;
    }
    match now {
        Some(owner) => enqueue_owner(ctx, &meta, owner, lane),
        None => {
            let labels = |entry: &Entry<Pod>| entry.readable().map(|it| it.labels.clone());
            let is_changed = old.is_none_or(|old| before.is_some() || labels(old) != labels(new));
            if let Some(labels) = labels(new).filter(|_| is_changed) {
                enqueue_selecting(ctx, &meta, &labels, lane);
            }
        }
    }
}

/// A pod is being deleted, or gone.
fn observe_deletion(ctx: &Ctx, pod: &MetaRef<'_>, lane: Lane) {
    if let Some(owner) = pod.controller().filter(|it| is_set(it)) {
        ctx.memory.expectations.deletion_observed(&owner.uid, pod.uid);
        enqueue_owner(ctx, pod, owner, lane);
    }
}

fn is_set(owner: &OwnerRef) -> bool {
    &*owner.kind == "DaemonSet"
}

/// Enqueues the set that controls an object, if it has the uid of the reference.
fn enqueue_owner(ctx: &Ctx, object: &MetaRef<'_>, owner: &OwnerRef, lane: Lane) {
    // If the cache cannot be read, the sync decides when it can.
    if is_set(owner) && !ctx.sets.store().is_gone(object.namespace, &owner.name, &owner.uid) {
        ctx.queue.add_to(ObjectKey { namespace: object.namespace.clone(), name: (*owner.name).into() }, lane);
    }
}

/// Enqueues the sets that may adopt an object without a controller.
fn enqueue_selecting(ctx: &Ctx, object: &MetaRef<'_>, labels: &Labels, lane: Lane) {
    for entry in ctx.sets.store().entries() {
        let Some(set) = entry.readable().filter(|it| it.meta.namespace == *object.namespace) else { continue };
        if set.spec.selector.as_ref().is_some_and(|it| !it.is_empty() && it.matches(labels)) {
            ctx.queue.add_to(set.meta.as_ref().key(), lane);
        }
    }
}

/// A revision was added, updated or deleted. A new one of a set causes no sync: a client may create a second one with the
/// same template, and the conformance tests expect that both exist for a while (k/k#112505).
pub(crate) fn on_revision(ctx: &Ctx, change: &Change<'_, ControllerRevision>, lane: Lane) {
    if matches!(change.cause, Cause::Resync | Cause::Initial) {
        return;
    }
    let (old, new) = (change.old, change.new);
    let controller = |entry: Option<&Entry<ControllerRevision>>| entry.and_then(|it| it.meta().controller().cloned());
    let (before, now) = (controller(old), controller(new));
    if let (Some(old), Some(before)) = (old, &before)
        && Some(before) != now.as_ref()
    {
        enqueue_owner(ctx, &old.meta(), before, lane);
    }
    let Some(new) = new else { return };
    match &now {
        Some(owner) if old.is_some() || new.meta().deletion.is_some() => enqueue_owner(ctx, &new.meta(), owner, lane),
        Some(_) => {}
        None => {
            let labels = |entry: &Entry<ControllerRevision>| entry.readable().map(|it| it.labels.clone());
            let is_changed = old.is_none_or(|old| before.is_some() || labels(old) != labels(new));
            if let Some(labels) = labels(new).filter(|_| is_changed && new.meta().deletion.is_none()) {
                enqueue_selecting(ctx, &new.meta(), &labels, lane);
            }
        }
    }
}

/// A node was added, updated or deleted. Only the sets are queued for which it means something.
pub(crate) fn on_node(ctx: &Ctx, change: &Change<'_, Node>, lane: Lane) {
    if matches!(change.cause, Cause::Resync | Cause::Initial) {
        return;
    }
    let node = |entry: Option<&Entry<Node>>| entry.and_then(|it| it.readable().cloned());
    let (old, new) = (node(change.old), node(change.new));
    if let (Some(old), Some(new)) = (&old, &new)
        && old.labels == new.labels
        && old.taints == new.taints
    {
        return;
    }
    let Some(name) = change.new.or(change.old).map(|it| it.meta().name) else { return };
    // A node that is added or removed concerns its pods, whatever its labels. If the cache cannot be read, it concerns all.
    let has_changed_existence = old.is_some() != new.is_some();
    let pods = if has_changed_existence { ctx.pods_of_node.get(&name.into()).ok() } else { Some(Vec::new()) };
    for entry in ctx.sets.store().entries() {
        let Some(set) = entry.readable() else { continue };
        let fit_of = |node: &Option<Arc<Node>>| {
            node.as_ref().map_or(NodeFit::MustNotRun, |it| fit(it, &set.spec.placement, ctx.compare_numbers))
        };
        let unreachable = |node: &Option<Arc<Node>>| node.as_ref().and_then(|it| unreachable_since(it));
        let is_of_set = |pod: &Arc<Pod>| pod.meta.as_ref().controller().is_some_and(|it| it.uid == set.meta.uid);
        let ignores = set.annotations.get(IGNORE_UNREACHABLE).is_some();
        if fit_of(&old) != fit_of(&new)
            || pods.as_ref().is_none_or(|it| it.iter().any(is_of_set))
            || (ignores && unreachable(&old) != unreachable(&new))
        {
            ctx.queue.add_to(set.meta.as_ref().key(), lane);
        }
    }
}
