//! Handlers for changes of Deployments, ReplicaSets and pods: they enqueue keys.

use api::{Deployment, DeploymentStrategy, Entry, Labels, MetaRef, ObjectKey, OwnerRef, Pod, ReplicaSet};
use controller::Lane;
use informer::{Cause, Change};
use workload::is_terminal;

use crate::Ctx;

/// A Deployment was added, updated or deleted.
pub(crate) fn on_deployment(ctx: &Ctx, change: &Change<'_, Deployment>, lane: Lane) {
    if let Some(gone) = change.gone() {
        ctx.remove(gone.meta().uid);
    }
    if let Some(new) = change.new.map(Entry::meta) {
        ctx.queue.add_to(new.key(), lane);
    }
}

/// A ReplicaSet was added, updated or deleted.
pub(crate) fn on_set(ctx: &Ctx, change: &Change<'_, ReplicaSet>, lane: Lane) {
    // Each Deployment is queued at the start and at a resync anyway.
    if matches!(change.cause, Cause::Resync | Cause::Initial) {
        return;
    }
    let (old, new) = (change.old, change.new);
    let controller = |entry: Option<&Entry<ReplicaSet>>| entry.and_then(|it| it.meta().controller().cloned());
    let (before, now) = (controller(old), controller(new));
    if let (Some(old), Some(before)) = (old, &before)
        && Some(before) != now.as_ref()
    {
        enqueue_owner(ctx, &old.meta(), before, lane);
    }
    let Some(new) = new else { return };
    match &now {
        Some(owner) => enqueue_owner(ctx, &new.meta(), owner, lane),
        // Nothing adopts an orphan that is being deleted.
        None if new.meta().deletion.is_some() => {}
        None => {
            let labels = |entry: &Entry<ReplicaSet>| entry.readable().map(|it| it.labels.clone());
            let is_changed = old.is_none_or(|old| before.is_some() || labels(old) != labels(new));
            if let Some(labels) = labels(new).filter(|_| is_changed) {
                enqueue_selecting(ctx, &new.meta(), &labels, lane);
            }
        }
    }
}

/// A pod was added, updated or deleted. With the strategy Recreate the new ReplicaSet waits for the last old pod
/// (k/k#136639).
pub(crate) fn on_pod(ctx: &Ctx, change: &Change<'_, Pod>, lane: Lane) {
    let Some(lost) = lost_pod(change).map(Entry::meta) else { return };
    let Some(owner) = lost.controller().filter(|it| &*it.kind == "ReplicaSet") else { return };
    let Ok(Some(set)) = ctx.sets.store().get_same(lost.namespace, &owner.name, &owner.uid) else { return };
    let meta = set.meta.as_ref();
    let Some(owner) = meta.controller().filter(|it| is_deployment(it)) else { return };
    let deployment = ctx.deployments.store().get_same(meta.namespace, &owner.name, &owner.uid).ok().flatten();
    if deployment.is_some_and(|it| it.spec.strategy == DeploymentStrategy::Recreate) {
        enqueue_owner(ctx, &meta, owner, lane);
    }
}

/// A pod in its state before it was deleted, ended, or got another owner.
fn lost_pod<'a>(change: &Change<'a, Pod>) -> Option<&'a Entry<Pod>> {
    if let Some(gone) = change.gone() {
        return Some(gone);
    }
    let (old, new) = (change.old?, change.new?);
    let owner = |it: &Entry<Pod>| it.meta().controller().map(|it| it.uid.clone());
    let has_ended = |it: &Entry<Pod>| it.readable().is_some_and(|it| is_terminal(it));
    let is_lost = owner(old) != owner(new) || (has_ended(new) && !has_ended(old));
    is_lost.then_some(old)
}

fn is_deployment(owner: &OwnerRef) -> bool {
    &*owner.kind == "Deployment"
}

/// Enqueues the Deployment that controls an object, if it has the uid of the reference.
fn enqueue_owner(ctx: &Ctx, object: &MetaRef<'_>, owner: &OwnerRef, lane: Lane) {
    // If the cache cannot be read, the sync decides when it can.
    if is_deployment(owner) && !ctx.deployments.store().is_gone(object.namespace, &owner.name, &owner.uid) {
        ctx.queue.add_to(ObjectKey { namespace: object.namespace.clone(), name: (*owner.name).into() }, lane);
    }
}

/// Enqueues the Deployments that may adopt a ReplicaSet without a controller. One without labels is not selected.
fn enqueue_selecting(ctx: &Ctx, object: &MetaRef<'_>, labels: &Labels, lane: Lane) {
    if labels.is_empty() {
        return;
    }
    for found in ctx.of_namespace.get(object.namespace).unwrap_or_default() {
        if found.spec.selector.as_ref().is_some_and(|it| !it.is_empty() && it.matches(labels)) {
            ctx.queue.add_to(found.meta.as_ref().key(), lane);
        }
    }
}
