//! Handlers for changes of sets and pods: they count observed writes and enqueue keys.

use api::{Entry, Labels, MetaRef, ObjectKey, OwnerRef, Pod, ReplicaSet};
use controller::Lane;
use informer::{Cause, Change};
use workload::{is_active, ready_since};

use crate::{Ctx, kind::Kind};

/// A set was added, updated or deleted.
pub(crate) fn on_set<K: Kind>(ctx: &Ctx<K>, change: &Change<'_, K>, lane: Lane) {
    let gone = change.gone();
    if let Some(gone) = gone {
        ctx.remove(gone.meta().uid);
    }
    let Some(new) = change.new else { return };
    // Our own write of the status changes nothing. A sync would only retry what has just failed.
    let old = change.old.filter(|_| gone.is_none());
    if !old.is_some_and(|old| is_own_status_only(ctx, old, new)) {
        ctx.queue.add_to(new.meta().key(), lane);
    }
}

/// Whether the status has changed to that of our last write, and the spec has not changed.
fn is_own_status_only<K: Kind>(ctx: &Ctx<K>, old: &Entry<K>, new: &Entry<K>) -> bool {
    let (Some(old), Some(new)) = (old.readable(), new.readable()) else { return false };
    let (old, new): (&ReplicaSet, &ReplicaSet) = ((**old).as_ref(), (**new).as_ref());
    let has_same_spec = old.generation == new.generation && old.meta.deletion == new.meta.deletion;
    has_same_spec && old.status != new.status && ctx.memory.is_own_status(&new.meta.uid, &new.status)
}

/// A pod was added, updated or deleted.
pub(crate) fn on_pod<K: Kind>(ctx: &Ctx<K>, change: &Change<'_, Pod>, lane: Lane) {
    // Each set is queued at the start and at a resync anyway.
    if matches!(change.cause, Cause::Resync | Cause::Initial) {
        return;
    }
    let gone = change.gone();
    if let Some(gone) = gone {
        observe_loss(ctx, &gone.meta(), lane);
    }
    let Some(new) = change.new else { return };
    let (old, meta) = (change.old.filter(|_| gone.is_none()), new.meta());
    let now = meta.controller();
    if let Some(owner) = now.filter(|it| old.is_none() && is_owner(ctx, &meta, it)) {
        ctx.memory.expectations.creation_observed(&owner.uid);
    }
    // After a broken watch, one event may contain the change of the owner and the deletion.
    let has_same_owner = old.is_none_or(|it| it.meta().controller().map(|it| &it.uid) == now.map(|it| &it.uid));
    if let Some(old) = old.filter(|_| !has_same_owner) {
        // A pod that the set has lost is no pod whose deletion it must wait for.
        observe_loss(ctx, &old.meta(), lane);
    }
    if meta.deletion.is_some() {
        observe_loss(ctx, &meta, lane);
        return;
    }
    match now {
        Some(owner) if !has_same_owner || old.is_none_or(|old| is_relevant(old, new)) => {
            enqueue_owner(ctx, &meta, owner, lane);
        }
        Some(_) => {}
        None => {
            let labels = |entry: &Entry<Pod>| entry.readable().map(|it| it.labels.clone());
            let is_changed = old.is_none_or(|old| !has_same_owner || labels(old) != labels(new));
            if let Some(labels) = labels(new).filter(|_| is_changed) {
                enqueue_selecting(ctx, &meta, &labels, lane);
            }
        }
    }
}

/// A pod is being deleted, is gone, or has lost its owner.
fn observe_loss<K: Kind>(ctx: &Ctx<K>, pod: &MetaRef<'_>, lane: Lane) {
    if let Some(owner) = pod.controller() {
        ctx.memory.expectations.deletion_observed(&owner.uid, pod.uid);
        enqueue_owner(ctx, pod, owner, lane);
    }
}

/// Whether a change of a pod may change the status of its set, or require another pod. All else is read when pods are
/// deleted.
fn is_relevant(old: &Entry<Pod>, new: &Entry<Pod>) -> bool {
    let (Some(old), Some(new)) = (old.readable(), new.readable()) else { return true };
    let state = |it: &Pod| (is_active(it), workload::is_ready(it), ready_since(it));
    old.labels != new.labels || state(old) != state(new)
}

/// Whether the set of a reference exists. Any user may write the uid of a set into pods of other namespaces.
fn is_owner<K: Kind>(ctx: &Ctx<K>, pod: &MetaRef<'_>, owner: &OwnerRef) -> bool {
    // If the cache cannot be read, the sync decides when it can.
    *owner.kind == *K::resource().kind && !ctx.sets.store().is_gone(pod.namespace, &owner.name, &owner.uid)
}

/// Enqueues the set that controls a pod.
fn enqueue_owner<K: Kind>(ctx: &Ctx<K>, pod: &MetaRef<'_>, owner: &OwnerRef, lane: Lane) {
    if is_owner(ctx, pod, owner) {
        ctx.queue.add_to(ObjectKey { namespace: pod.namespace.clone(), name: (*owner.name).into() }, lane);
    }
}

/// Enqueues the sets that may adopt a pod without a controller.
fn enqueue_selecting<K: Kind>(ctx: &Ctx<K>, pod: &MetaRef<'_>, labels: &Labels, lane: Lane) {
    // A pod without labels belongs to no set, whatever the selectors are.
    if labels.is_empty() {
        return;
    }
    let sets = ctx.of_namespace.get(pod.namespace).unwrap_or_default();
    let selects = |it: &ReplicaSet| it.spec.selector.as_ref().is_some_and(|it| !it.is_empty() && it.matches(labels));
    let selecting: Vec<ObjectKey> =
        sets.iter().filter(|it| selects((***it).as_ref())).map(|it| it.meta().key()).collect();
    if selecting.len() > 1 {
        let (kind, count) = (K::resource().kind, selecting.len());
        tracing::error!(pod = %pod.key(), count, "user error! more than one {kind} is selecting pods with labels: {labels:?}");
    }
    for key in selecting {
        ctx.queue.add_to(key, lane);
    }
}
