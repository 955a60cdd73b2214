//! Handlers for changes of sets, pods and claims: they enqueue keys.

use std::time::Duration;

use api::{Entry, MetaRef, ObjectKey, OwnerRef, PersistentVolumeClaim, Pod, StatefulSet};
use controller::Lane;
use informer::{Cause, Change};
use workload::is_ready;

use crate::{
    Ctx,
    rules::identity::{possible_sets, set_name},
};

/// How long a change of the owners of a claim may wait. Another client that removes our references again and again must
/// not cause a sync each time.
const OWNERS_DELAY: Duration = Duration::from_secs(5);

/// A set was added, updated or deleted.
pub(crate) fn on_set(ctx: &Ctx, change: &Change<'_, StatefulSet>, lane: Lane) {
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
    let (old, new) = (change.old, change.new);
    let controller = |entry: Option<&Entry<Pod>>| entry.and_then(|it| it.meta().controller().cloned());
    let (before, now) = (controller(old), controller(new));
    if let (Some(old), Some(before)) = (old, &before)
        && Some(before) != now.as_ref()
    {
        enqueue_owner(ctx, &old.meta(), before, lane);
    }
    let Some(new) = new else {
        // A pod of another owner may have occupied the name.
        if let Some(gone) = old.map(Entry::meta)
            && let Some(set) = set_name(gone.name)
            // If the cache cannot be read, the key is queued and the sync decides.
            && ctx.sets.store().get(gone.namespace, set).map_or(true, |it| it.is_some())
        {
            ctx.queue.add_to(ObjectKey { namespace: gone.namespace.clone(), name: set.into() }, lane);
        }
        return;
    };
    match &now {
        Some(owner) => {
            if let Some(set) = enqueue_owner(ctx, &new.meta(), owner, lane) {
                check_when_available(ctx, &set, old, new);
            }
        }
        None => on_orphan(ctx, old, new, before.is_some(), lane),
    }
}

/// Enqueues the set that controls a pod, if it has the uid of the reference.
fn enqueue_owner(ctx: &Ctx, pod: &MetaRef<'_>, owner: &OwnerRef, lane: Lane) -> Option<std::sync::Arc<StatefulSet>> {
    if &*owner.kind != "StatefulSet" {
        return None;
    }
    let key = ObjectKey { namespace: pod.namespace.clone(), name: (*owner.name).into() };
    match ctx.sets.store().get_same(pod.namespace, &owner.name, &owner.uid) {
        Ok(Some(set)) => {
            ctx.queue.add_to(key, lane);
            Some(set)
        }
        Ok(None) => None,
        Err(_) => {
            ctx.queue.add_to(key, lane);
            None
        }
    }
}

/// A pod that has just become ready is available after `minReadySeconds`.
fn check_when_available(ctx: &Ctx, set: &StatefulSet, old: Option<&Entry<Pod>>, new: &Entry<Pod>) {
    let is_pod_ready = |entry: &Entry<Pod>| entry.readable().is_some_and(|it| is_ready(it));
    if let Ok(seconds @ 1..) = u64::try_from(set.spec.min_ready_seconds)
        && is_pod_ready(new)
        && !old.is_some_and(is_pod_ready)
    {
        ctx.queue.add_after(set.meta.as_ref().key(), Duration::from_secs(seconds));
    }
}

/// A pod without a controller: the set of its name may adopt it.
fn on_orphan(ctx: &Ctx, old: Option<&Entry<Pod>>, new: &Entry<Pod>, lost_controller: bool, lane: Lane) {
    let Some(pod) = new.readable().filter(|it| it.meta.deletion.is_none()) else { return };
    let labels = |entry: &Entry<Pod>| entry.readable().map(|it| it.labels.clone());
    let is_changed = old.is_none_or(|old| lost_controller || labels(old) != labels(new));
    if !is_changed {
        return;
    }
    let Some(name) = set_name(&pod.meta.name) else { return };
    let selects =
        |set: &StatefulSet| set.spec.selector.as_ref().is_some_and(|it| !it.is_empty() && it.matches(&pod.labels));
    let set = ctx.sets.store().get(&pod.meta.namespace, name);
    if set.map_or(true, |it| it.is_some_and(|it| selects(&it))) {
        ctx.queue.add_to(ObjectKey { namespace: pod.meta.namespace.clone(), name: name.into() }, lane);
    }
}

/// A claim was added, updated or deleted. Its set may wait for it.
pub(crate) fn on_claim(ctx: &Ctx, change: &Change<'_, PersistentVolumeClaim>, lane: Lane) {
    if matches!(change.cause, Cause::Resync | Cause::Initial) {
        return;
    }
    // Other changes, such as of the phase, do not concern a set.
    let relevant = |entry: &Entry<PersistentVolumeClaim>| {
        let spec = entry.readable().map(|it| it.spec.clone());
        (entry.meta().uid.clone(), entry.meta().deletion.is_some(), spec)
    };
    let owners = |entry: &Entry<PersistentVolumeClaim>| entry.meta().owners.clone();
    let is_other = change.old.map(relevant) != change.new.map(relevant);
    if !is_other && change.old.map(owners) == change.new.map(owners) {
        return;
    }
    let Some(claim) = change.new.or(change.old).map(Entry::meta) else { return };
    for (name, template) in possible_sets(claim.name) {
        let has_template = |set: &StatefulSet| set.spec.claim_templates.iter().any(|it| &*it.name == template);
        let set = ctx.sets.store().get(claim.namespace, name);
        if !set.map_or(true, |it| it.is_some_and(|it| has_template(&it))) {
            continue;
        }
        let key = ObjectKey { namespace: claim.namespace.clone(), name: name.into() };
        if is_other {
            ctx.queue.add_to(key, lane);
        } else {
            ctx.queue.add_after(key, OWNERS_DELAY);
        }
    }
}
