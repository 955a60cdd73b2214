//! Handlers for changes of Jobs and pods: they update memory and enqueue keys. Constant work per event.

use std::time::Duration;

use api::{Atom, Entry, JOB_LABELS, Job, JobIndex, MetaRef, ObjectKey, OwnerRef, Pod, Uid};
use informer::{Cause, Change};
use pod_control::is_terminal;
use workqueue::Lane;

use crate::{
    Ctx,
    memory::{BATCH, Haste},
    orphans::OrphanKey,
    snapshot::FINALIZER,
};

/// A Job was added, updated or deleted.
pub(crate) fn job(ctx: &Ctx, change: &Change<'_, Job>, lane: Lane) {
    let (old, new) = (change.old, change.new);
    let replaced = |old: &&Entry<Job>| new.is_none_or(|new| new.meta().uid != old.meta().uid);
    if let Some(gone) = old.filter(replaced) {
        job_gone(ctx, gone, lane);
    }
    let Some(entry) = new else { return };
    let meta = entry.meta();
    let before = old.filter(|it| !replaced(it));
    if before.is_none() {
        ctx.memory.begin(meta.uid);
        if let Some(job) = entry.readable() {
            tell_external(ctx, job);
        }
    }
    let job = entry.readable();
    if job.is_some_and(|it| it.is_finished()) {
        // The Job is finished, so it is not queued. Its memory is deleted, and the finalizers of its late pods are
        // removed.
        ctx.memory.ends(meta.uid);
        ctx.gate.forget(meta.uid);
        lets_go(ctx, entry, lane);
        return;
    }
    match delay(before, entry, change.cause) {
        Duration::ZERO => ctx.queue.add_to(meta.key(), lane),
        delay => ctx.queue.add_after(meta.key(), delay),
    }
}

/// The delay before a Job is synced after a change. A status update is mostly our own, so it can wait.
fn delay(old: Option<&Entry<Job>>, new: &Entry<Job>, cause: Cause) -> Duration {
    let (Some(old), Some(now)) = (old.and_then(Entry::readable), new.readable()) else { return Duration::ZERO };
    let same_spec = old.generation == now.generation && old.meta.deletion == now.meta.deletion;
    if same_spec && cause != Cause::Resync { BATCH } else { Duration::ZERO }
}

fn job_gone(ctx: &Ctx, job: &Entry<Job>, lane: Lane) {
    let meta = job.meta();
    ctx.memory.forget(meta.uid);
    ctx.gate.forget(meta.uid);
    lets_go(ctx, job, lane);
}

/// Queues the removal of finalizers from the Job's pods, and from orphans that this Job might have adopted.
fn lets_go(ctx: &Ctx, job: &Entry<Job>, lane: Lane) {
    let meta = job.meta();
    ctx.orphans.add_to(OrphanKey::of_job(&meta), lane);
    if job.readable().is_none_or(|it| !it.selects_by_uid()) {
        ctx.orphans.add_to(OrphanKey::Namespace(meta.namespace.clone()), lane);
    }
}

fn tell_external(ctx: &Ctx, job: &Job) {
    if let Some(controller) = job.spec.managed_by.as_deref().filter(|_| !job.is_managed_by_us()) {
        ctx.meters.is_external(controller);
    }
}

/// A pod was added, updated or deleted.
pub(crate) fn pod(ctx: &Ctx, change: &Change<'_, Pod>, lane: Lane) {
    if change.cause == Cause::Resync {
        return;
    }
    let (old, new) = (change.old, change.new);
    ctx.meters.pod_changed(old.and_then(readable), new.and_then(readable));
    let replaced = |old: &&Entry<Pod>| new.is_none_or(|new| new.meta().uid != old.meta().uid);
    if let Some(gone) = old.filter(replaced) {
        pod_gone(ctx, gone);
    }
    let Some(new) = new else { return };
    let place = Place { ctx, new, meta: new.meta(), lane, initial: change.cause == Cause::Initial };
    if !is_held(&place.meta) {
        // Checked for any owner, because the Job that asked for the removal may have lost the pod meanwhile.
        ctx.memory.left(place.meta.uid);
    }
    if place.meta.deletion.is_some() || readable(place.new).is_some_and(is_terminal) {
        frees_slot(ctx, &place.meta, controlling_job(&place.meta));
    }
    match old.filter(|it| !replaced(it)) {
        _ if place.meta.deletion.is_some() => place.deleting(old.filter(|it| !replaced(it))),
        Some(old) => place.changed(old),
        None => {
            place.added();
            ctx.memory.shows(place.meta.uid);
        }
    }
}

/// The pod was deleted: all that was expected of it has happened.
fn pod_gone(ctx: &Ctx, gone: &Entry<Pod>) {
    let meta = gone.meta();
    let owner = controlling_job(&meta);
    frees_slot(ctx, &meta, owner);
    ctx.memory.left(meta.uid);
    let Some(owner) = owner else { return };
    ctx.memory.expectations.deletion_observed(&owner.uid, meta.uid);
    if let Owner::Working(key) | Owner::Unknown(key) = resolve(ctx, meta.namespace, owner) {
        // A pod that was already counted leaves nothing to do.
        let counted = readable(gone).is_some_and(|it| is_terminal(it) && !is_held(&meta));
        wake(ctx, key, &owner.uid, if counted { Haste::News } else { Haste::Progress });
    }
}

/// The pod frees its slot. The Job that created it may have lost it and may be waiting for the slot, so it is enqueued.
fn frees_slot(ctx: &Ctx, pod: &MetaRef<'_>, owner: Option<&OwnerRef>) {
    let Some(job) = ctx.memory.stops(pod.uid).filter(|job| owner.is_none_or(|it| it.uid != *job)) else { return };
    for job in ctx.jobs.store().by_index(&JobIndex::Uid(job)).unwrap_or_default() {
        wake(ctx, job.meta.as_ref().key(), &job.meta.uid, Haste::News);
    }
}

/// A pod that exists.
struct Place<'a> {
    ctx: &'a Ctx,
    new: &'a Entry<Pod>,
    meta: MetaRef<'a>,
    lane: Lane,
    /// The event is from the initial list. Every Job is queued then anyway, so the pod enqueues none.
    initial: bool,
}

impl Place<'_> {
    fn added(&self) {
        let Some(owner) = controlling_job(&self.meta) else { return self.orphan(true) };
        let resolved = resolve(self.ctx, self.meta.namespace, owner);
        // Any user may write the uid of a Job into pods of other namespaces. The Job neither expects such pods nor
        // gives them a slot.
        if !matches!(resolved, Owner::Missing) {
            self.ctx.memory.expectations.creation_observed(&owner.uid);
            // A pod from before our start without our finalizer may have lost it to a manager that was about to delete
            // the pod.
            let is_left_over = self.initial && !is_held(&self.meta);
            if readable(self.new).is_some_and(|it| !is_terminal(it)) && !is_left_over {
                // Counted even if another process created it or the response was lost.
                self.ctx.memory.runs(&owner.uid, self.meta.uid.clone());
            }
        }
        match resolved {
            Owner::Working(key) | Owner::Unknown(key) if !self.initial => {
                wake(self.ctx, key, &owner.uid, self.haste(None));
            }
            Owner::Finished if is_held(&self.meta) => self.let_go(owner),
            _ => {}
        }
    }

    /// The pod is being deleted and may still run.
    fn deleting(&self, old: Option<&Entry<Pod>>) {
        if let Some(old) = old {
            // After a broken watch, one event may contain the deletion and the change of the owner.
            self.keeps_owner(old);
        }
        let Some(owner) = controlling_job(&self.meta) else { return self.orphan(old.is_none()) };
        self.ctx.memory.expectations.deletion_observed(&owner.uid, self.meta.uid);
        let resolved = resolve(self.ctx, self.meta.namespace, owner);
        if old.is_none() && !matches!(resolved, Owner::Missing) {
            // The pod was first seen with a deletionTimestamp, so the event also confirms its creation.
            self.ctx.memory.expectations.creation_observed(&owner.uid);
        }
        match resolved {
            Owner::Working(key) if !self.initial => wake(self.ctx, key, &owner.uid, self.haste(old)),
            Owner::Working(_) => {}
            Owner::Unknown(key) => {
                // The Job's sync decides when the cache is readable. The finalizer must also go if no Job will count
                // the pod.
                wake(self.ctx, key, &owner.uid, Haste::Progress);
                if is_held(&self.meta) {
                    self.let_go(owner);
                }
            }
            Owner::Finished | Owner::Missing if is_held(&self.meta) => self.let_go(owner),
            Owner::Finished | Owner::Missing => {}
        }
    }

    /// Whether the pod still has the same controller. If not, the previous controller is enqueued.
    fn keeps_owner(&self, old: &Entry<Pod>) -> bool {
        let (was, is) = (old.meta(), &self.meta);
        let (before, now) = (controlling_job(&was), controlling_job(is));
        let same_owner = before.map(|it| &it.uid) == now.map(|it| &it.uid);
        if let Some(before) = before.filter(|_| !same_owner) {
            // The pod was lost but has not ended, so its slot stays occupied.
            self.ctx.memory.expectations.deletion_observed(&before.uid, is.uid);
            if let Owner::Working(key) | Owner::Unknown(key) = resolve(self.ctx, was.namespace, before) {
                wake(self.ctx, key, &before.uid, Haste::Progress);
            }
        }
        same_owner
    }

    fn changed(&self, old: &Entry<Pod>) {
        let (was, is) = (old.meta(), &self.meta);
        let (now, same_owner) = (controlling_job(is), self.keeps_owner(old));
        let Some(now) = now else {
            let labels = |entry: &Entry<Pod>| readable(entry).map(|it| it.labels.clone());
            return self.orphan(was.controller().is_some() || labels(old) != labels(self.new));
        };
        match resolve(self.ctx, is.namespace, now) {
            Owner::Working(key) | Owner::Unknown(key) => {
                wake(self.ctx, key, &now.uid, if same_owner { self.haste(Some(old)) } else { Haste::Progress });
            }
            Owner::Finished if is_held(is) => self.let_go(now),
            Owner::Finished | Owner::Missing => {}
        }
    }

    /// How soon the Job must be synced. If the pod ended or is being deleted, it may need a replacement soon. Other
    /// changes only update the status.
    fn haste(&self, old: Option<&Entry<Pod>>) -> Haste {
        let leaves = |entry: &Entry<Pod>| {
            let ended = readable(entry).is_none_or(is_terminal);
            (entry.meta().deletion.is_some(), ended)
        };
        let was = old.map_or((false, false), leaves);
        if was == leaves(self.new) { Haste::News } else { Haste::Progress }
    }

    /// The pod has no controller. Its finalizer must be removed, and Jobs that select it may adopt it.
    fn orphan(&self, changed: bool) {
        if self.meta.controller().is_some() {
            return;
        }
        if is_held(&self.meta) {
            self.ctx.orphans.add_to(OrphanKey::Pod(self.meta.key()), self.lane);
        }
        let Some(pod) = readable(self.new).filter(|_| changed && !self.initial) else { return };
        for job in suitors(self.ctx, pod) {
            wake(self.ctx, job.meta.as_ref().key(), &job.meta.uid, Haste::Progress);
        }
    }

    fn let_go(&self, owner: &OwnerRef) {
        let (namespace, name, uid) = (self.meta.namespace.clone(), owner.name.clone(), owner.uid.clone());
        self.ctx.orphans.add_to(OrphanKey::Job { namespace, name, uid }, self.lane);
    }
}

/// The state of the Job that a pod names as its controller.
enum Owner {
    /// It exists and has not finished, whatever manages it.
    Working(ObjectKey),
    /// It has finished.
    Finished,
    /// It does not exist, or another Job has its name.
    Missing,
    /// The cache cannot be read now.
    Unknown(ObjectKey),
}

fn resolve(ctx: &Ctx, namespace: &Atom, owner: &OwnerRef) -> Owner {
    let key = || ObjectKey { namespace: namespace.clone(), name: (*owner.name).into() };
    match ctx.jobs.store().get(namespace, &owner.name) {
        Ok(Some(job)) if job.meta.uid != owner.uid => Owner::Missing,
        Ok(Some(job)) if job.is_finished() => Owner::Finished,
        Ok(Some(_)) => Owner::Working(key()),
        Err(_) => Owner::Unknown(key()),
        Ok(None) => Owner::Missing,
    }
}

/// The Jobs that may adopt this orphan.
pub(crate) fn suitors(ctx: &Ctx, pod: &Pod) -> Vec<std::sync::Arc<Job>> {
    let store = ctx.jobs.store();
    let named = JOB_LABELS.iter().find_map(|label| pod.labels.get(label)).map(|it| JobIndex::Uid(Uid::new(it)));
    let indexes = named.into_iter().chain([JobIndex::Manual(pod.meta.namespace.clone())]);
    let jobs = indexes.filter_map(|it| store.by_index(&it).ok()).flatten();
    let selects = |job: &std::sync::Arc<Job>| {
        job.meta.namespace == pod.meta.namespace
            && !job.is_finished()
            && job.is_managed_by_us()
            && job.meta.deletion.is_none()
            && pod.meta.deletion.is_none()
            && job.spec.selector.as_ref().is_some_and(|it| !it.is_empty() && it.matches(&pod.labels))
    };
    jobs.filter(selects).collect()
}

fn wake(ctx: &Ctx, key: ObjectKey, job: &Uid, haste: Haste) {
    let delay = ctx.memory.changes(job, haste, ctx.clock.now());
    ctx.queue.add_after(key, delay);
}

/// The pod's controller, if its kind is Job. The apiVersion is not compared, as in the pod index.
fn controlling_job<'a>(pod: &MetaRef<'a>) -> Option<&'a OwnerRef> {
    pod.controller().filter(|it| &*it.kind == "Job")
}

fn is_held(pod: &MetaRef<'_>) -> bool {
    pod.finalizers.iter().any(|it| &**it == FINALIZER)
}

fn readable(entry: &Entry<Pod>) -> Option<&Pod> {
    entry.readable().map(|it| &**it)
}
