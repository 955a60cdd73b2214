//! Handlers for changes of Jobs and pods: they update memory and enqueue keys. Constant work per event.

use std::{fmt, time::Duration};

use api::{Atom, Entry, Job, JobIndex, MetaRef, ObjectKey, OwnerRef, Pod, Uid};
use controller::Lane;
use informer::{Cause, Change};
use workload::is_terminal;

use crate::{
    Ctx,
    memory::{BATCH, Urgency},
    pod_indexes::job_in_labels,
    rules::snapshot::FINALIZER,
};

/// The pods from which finalizers are removed, because no Job will count them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum FinalizerRemovalKey {
    /// A pod without a controller.
    Pod(ObjectKey),
    /// All pods of a namespace without a controller, because a Job was deleted whose selector might match any of them.
    Namespace(Atom),
    /// All pods of a Job that has finished or is gone.
    Job {
        /// The namespace of the Job.
        namespace: Atom,
        /// The name of the Job.
        name: Atom,
        /// The uid of the Job, because a later Job of the same name has its own pods.
        uid: Uid,
    },
}

impl FinalizerRemovalKey {
    pub(crate) fn of_job(job: &MetaRef<'_>) -> Self {
        Self::Job { namespace: job.namespace.clone(), name: job.name.into(), uid: job.uid.clone() }
    }
}

impl fmt::Display for FinalizerRemovalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "{key}"),
            Self::Namespace(namespace) => write!(f, "{namespace}/"),
            Self::Job { namespace, name, uid } => write!(f, "{namespace}/{name} ({uid})"),
        }
    }
}

/// A Job was added, updated or deleted.
pub(crate) fn on_job(ctx: &Ctx, change: &Change<'_, Job>, lane: Lane) {
    let (old, new) = (change.old, change.new);
    let gone = change.gone();
    if let Some(gone) = gone {
        on_job_deleted(ctx, gone, lane);
    }
    let Some(entry) = new else { return };
    let (meta, job) = (entry.meta(), entry.readable());
    let before = old.filter(|_| gone.is_none());
    if let Some(job) = job.filter(|_| before.is_none()) {
        count_external_job(ctx, job);
    }
    if job.is_some_and(|it| !ctx.managed_jobs.contains(it)) {
        return;
    }
    if before.is_none() {
        ctx.memory.on_job_added(meta.uid);
    }
    if job.is_some_and(|it| it.is_finished()) {
        // The Job is finished, so it is not queued. Its memory is deleted, and the finalizers of its late pods are
        // removed.
        ctx.memory.clear_finished(meta.uid);
        ctx.consistency.remove(meta.uid);
        enqueue_finalizer_removals(ctx, entry, lane);
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

fn on_job_deleted(ctx: &Ctx, job: &Entry<Job>, lane: Lane) {
    let meta = job.meta();
    ctx.memory.on_job_deleted(meta.uid);
    ctx.consistency.remove(meta.uid);
    enqueue_finalizer_removals(ctx, job, lane);
}

/// Queues the removal of finalizers from the Job's pods, and from orphans that this Job might have adopted.
fn enqueue_finalizer_removals(ctx: &Ctx, job: &Entry<Job>, lane: Lane) {
    let meta = job.meta();
    let all = ctx.managed_jobs.includes_unknown_jobs();
    if all || job.readable().is_some_and(|it| ctx.managed_jobs.contains(it)) {
        ctx.finalizer_removals.add_to(FinalizerRemovalKey::of_job(&meta), lane);
    }
    if all && job.readable().is_none_or(|it| !it.has_generated_selector()) {
        ctx.finalizer_removals.add_to(FinalizerRemovalKey::Namespace(meta.namespace.clone()), lane);
    }
}

fn count_external_job(ctx: &Ctx, job: &Job) {
    if let Some(controller) = ctx.managed_jobs.external_controller(job) {
        ctx.meters.record_external_job(controller);
    }
}

/// A pod was added, updated or deleted.
pub(crate) fn on_pod(ctx: &Ctx, change: &Change<'_, Pod>, lane: Lane) {
    if change.cause == Cause::Resync {
        return;
    }
    let (old, new) = (change.old, change.new);
    ctx.meters.on_pod_changed(old.and_then(readable), new.and_then(readable), |pod| is_counted_by_us(ctx, pod));
    let gone = change.gone();
    if let Some(gone) = gone {
        on_pod_deleted(ctx, gone);
    }
    let Some(new) = new else { return };
    let event = PodEvent { ctx, new, meta: new.meta(), lane, initial: change.cause == Cause::Initial };
    if !has_our_finalizer(&event.meta) {
        // Checked for any owner, because the Job that requested the removal may have lost the pod meanwhile.
        ctx.memory.end_finalizer_removal(event.meta.uid);
    }
    if event.meta.deletion.is_some() || readable(event.new).is_some_and(is_terminal) {
        free_slot(ctx, &event.meta, controlling_job(&event.meta));
    }
    match old.filter(|_| gone.is_none()) {
        old if event.meta.deletion.is_some() => event.on_deleting(old),
        Some(old) => event.on_changed(old),
        None => {
            event.on_added();
            ctx.memory.on_pod_seen(event.meta.uid);
        }
    }
}

/// The pod is gone: its expected deletion and finalizer removal are observed.
fn on_pod_deleted(ctx: &Ctx, gone: &Entry<Pod>) {
    let meta = gone.meta();
    let owner = controlling_job(&meta);
    free_slot(ctx, &meta, owner);
    ctx.memory.end_finalizer_removal(meta.uid);
    let Some(owner) = owner else { return };
    ctx.memory.expectations.deletion_observed(&owner.uid, meta.uid);
    if let OwnerJob::Unfinished(key) | OwnerJob::Unknown(key) = owner_job(ctx, meta.namespace, owner) {
        // A pod that was already counted leaves nothing to do.
        let counted = readable(gone).is_some_and(|it| is_terminal(it) && !has_our_finalizer(&meta));
        enqueue(ctx, key, &owner.uid, if counted { Urgency::Batched } else { Urgency::Immediate });
    }
}

/// Frees the slot of the pod, and enqueues the Job for which the pod was created.
fn free_slot(ctx: &Ctx, pod: &MetaRef<'_>, owner: Option<&OwnerRef>) {
    let Some(job) = ctx.memory.on_pod_stopped(pod.uid).filter(|job| owner.is_none_or(|it| it.uid != *job)) else {
        return;
    };
    for job in ctx.jobs.store().by_index(&JobIndex::Uid(job)).unwrap_or_default() {
        enqueue(ctx, job.meta.as_ref().key(), &job.meta.uid, Urgency::Batched);
    }
}

/// A pod that exists.
struct PodEvent<'a> {
    ctx: &'a Ctx,
    new: &'a Entry<Pod>,
    meta: MetaRef<'a>,
    lane: Lane,
    /// The event is from the initial list. Every Job is queued then anyway, so the pod enqueues none.
    initial: bool,
}

impl PodEvent<'_> {
    fn on_added(&self) {
        let Some(owner) = controlling_job(&self.meta) else { return self.on_orphan(true) };
        let resolved = owner_job(self.ctx, self.meta.namespace, owner);
        // Any user may write the uid of a Job into pods of other namespaces. The Job neither expects such pods nor
        // gives them a slot.
        if !matches!(resolved, OwnerJob::Missing | OwnerJob::Foreign) {
            self.ctx.memory.expectations.creation_observed(&owner.uid);
            // An older pod without our finalizer may be one that the last leader was about to delete.
            let was_losing_finalizer = self.initial && !has_our_finalizer(&self.meta);
            if readable(self.new).is_some_and(|it| !is_terminal(it)) && !was_losing_finalizer {
                // Counted even if another process created it or the response was lost.
                self.ctx.memory.on_pod_created(&owner.uid, self.meta.uid.clone());
            }
        }
        match resolved {
            OwnerJob::Unfinished(key) | OwnerJob::Unknown(key) if !self.initial => {
                enqueue(self.ctx, key, &owner.uid, self.urgency(None));
            }
            OwnerJob::Finished if has_our_finalizer(&self.meta) => self.enqueue_owner_finalizer_removals(owner),
            _ => {}
        }
    }

    /// The pod is being deleted and may still run.
    fn on_deleting(&self, old: Option<&Entry<Pod>>) {
        if let Some(old) = old {
            // After a broken watch, one event may contain the deletion and the change of the owner.
            self.enqueue_previous_owner(old);
        }
        let Some(owner) = controlling_job(&self.meta) else { return self.on_orphan(old.is_none()) };
        self.ctx.memory.expectations.deletion_observed(&owner.uid, self.meta.uid);
        let resolved = owner_job(self.ctx, self.meta.namespace, owner);
        if old.is_none() && !matches!(resolved, OwnerJob::Missing | OwnerJob::Foreign) {
            // The pod was first seen with a deletionTimestamp, so the event also confirms its creation.
            self.ctx.memory.expectations.creation_observed(&owner.uid);
        }
        match resolved {
            OwnerJob::Unfinished(key) if !self.initial => enqueue(self.ctx, key, &owner.uid, self.urgency(old)),
            OwnerJob::Unfinished(_) => {}
            OwnerJob::Unknown(key) => {
                // The sync decides when the cache can be read. If no Job counts the pod, its finalizer must be removed.
                enqueue(self.ctx, key, &owner.uid, Urgency::Immediate);
                if has_our_finalizer(&self.meta) && self.ctx.managed_jobs.includes_unknown_jobs() {
                    self.enqueue_owner_finalizer_removals(owner);
                }
            }
            OwnerJob::Finished | OwnerJob::Missing if has_our_finalizer(&self.meta) => {
                self.enqueue_owner_finalizer_removals(owner)
            }
            OwnerJob::Finished | OwnerJob::Missing | OwnerJob::Foreign => {}
        }
    }

    /// Enqueues the previous controller if the pod has another controller now or none. Returns true if it has the same.
    fn enqueue_previous_owner(&self, old: &Entry<Pod>) -> bool {
        let (was, is) = (old.meta(), &self.meta);
        let (before, now) = (controlling_job(&was), controlling_job(is));
        let same_owner = before.map(|it| &it.uid) == now.map(|it| &it.uid);
        if let Some(before) = before.filter(|_| !same_owner) {
            // The pod was lost but has not ended, so its slot stays occupied.
            self.ctx.memory.expectations.deletion_observed(&before.uid, is.uid);
            if let OwnerJob::Unfinished(key) | OwnerJob::Unknown(key) = owner_job(self.ctx, was.namespace, before) {
                enqueue(self.ctx, key, &before.uid, Urgency::Immediate);
            }
        }
        same_owner
    }

    fn on_changed(&self, old: &Entry<Pod>) {
        let (was, is) = (old.meta(), &self.meta);
        let (now, same_owner) = (controlling_job(is), self.enqueue_previous_owner(old));
        let Some(now) = now else {
            let labels = |entry: &Entry<Pod>| readable(entry).map(|it| it.labels.clone());
            return self.on_orphan(was.controller().is_some() || labels(old) != labels(self.new));
        };
        match owner_job(self.ctx, is.namespace, now) {
            OwnerJob::Unfinished(key) | OwnerJob::Unknown(key) => {
                enqueue(self.ctx, key, &now.uid, if same_owner { self.urgency(Some(old)) } else { Urgency::Immediate });
            }
            OwnerJob::Finished if has_our_finalizer(is) => self.enqueue_owner_finalizer_removals(now),
            OwnerJob::Finished | OwnerJob::Missing | OwnerJob::Foreign => {}
        }
    }

    /// How soon the Job must be synced. If the pod ended or is being deleted, it may need a replacement soon. Other
    /// changes only update the status.
    fn urgency(&self, old: Option<&Entry<Pod>>) -> Urgency {
        let state = |entry: &Entry<Pod>| {
            let ended = readable(entry).is_none_or(is_terminal);
            (entry.meta().deletion.is_some(), ended)
        };
        let was = old.map_or((false, false), state);
        if was == state(self.new) { Urgency::Batched } else { Urgency::Immediate }
    }

    /// The pod has no controller. Its finalizer must be removed, and Jobs that select it may adopt it.
    fn on_orphan(&self, changed: bool) {
        if self.meta.controller().is_some() {
            return;
        }
        if has_our_finalizer(&self.meta) && self.ctx.managed_jobs.includes_unknown_jobs() {
            self.ctx.finalizer_removals.add_to(FinalizerRemovalKey::Pod(self.meta.key()), self.lane);
        }
        let Some(pod) = readable(self.new).filter(|_| changed && !self.initial) else { return };
        for job in matching_jobs(self.ctx, pod) {
            enqueue(self.ctx, job.meta.as_ref().key(), &job.meta.uid, Urgency::Immediate);
        }
    }

    fn enqueue_owner_finalizer_removals(&self, owner: &OwnerRef) {
        let (namespace, name, uid) = (self.meta.namespace.clone(), owner.name.clone(), owner.uid.clone());
        self.ctx.finalizer_removals.add_to(FinalizerRemovalKey::Job { namespace, name, uid }, self.lane);
    }
}

/// The state of the Job that a pod names as its controller.
enum OwnerJob {
    /// It exists and has not finished.
    Unfinished(ObjectKey),
    /// It has finished.
    Finished,
    /// It does not exist, or another Job has its name.
    Missing,
    /// Another controller manages it, or it is missing and another controller may have managed it. Its pods are not changed.
    Foreign,
    /// The cache cannot be read now.
    Unknown(ObjectKey),
}

fn owner_job(ctx: &Ctx, namespace: &Atom, owner: &OwnerRef) -> OwnerJob {
    let key = || ObjectKey { namespace: namespace.clone(), name: (*owner.name).into() };
    match ctx.jobs.store().get(namespace, &owner.name) {
        Ok(Some(job)) if job.meta.uid == owner.uid && !ctx.managed_jobs.contains(&job) => OwnerJob::Foreign,
        Ok(Some(job)) if job.meta.uid != owner.uid => missing(ctx),
        Ok(Some(job)) if job.is_finished() => OwnerJob::Finished,
        Ok(Some(_)) => OwnerJob::Unfinished(key()),
        Err(_) => OwnerJob::Unknown(key()),
        Ok(None) => missing(ctx),
    }
}

fn missing(ctx: &Ctx) -> OwnerJob {
    if ctx.managed_jobs.includes_unknown_jobs() { OwnerJob::Missing } else { OwnerJob::Foreign }
}

/// True if the ended pod counts in our metric. With `--job-managed-by` only the pods of our Jobs do.
fn is_counted_by_us(ctx: &Ctx, pod: &Pod) -> bool {
    ctx.managed_jobs.includes_unknown_jobs()
        || controlling_job(&pod.meta.as_ref()).is_some_and(|owner| {
            !matches!(owner_job(ctx, &pod.meta.namespace, owner), OwnerJob::Foreign | OwnerJob::Unknown(_))
        })
}

/// The Jobs that may adopt this orphan.
pub(crate) fn matching_jobs(ctx: &Ctx, pod: &Pod) -> Vec<std::sync::Arc<Job>> {
    let store = ctx.jobs.store();
    let named = job_in_labels(pod).map(JobIndex::Uid);
    let indexes = named.into_iter().chain([JobIndex::Manual(pod.meta.namespace.clone())]);
    let jobs = indexes.filter_map(|it| store.by_index(&it).ok()).flatten();
    let selects = |job: &std::sync::Arc<Job>| {
        job.meta.namespace == pod.meta.namespace
            && !job.is_finished()
            && ctx.managed_jobs.contains(job)
            && job.meta.deletion.is_none()
            && pod.meta.deletion.is_none()
            && job.spec.selector.as_ref().is_some_and(|it| !it.is_empty() && it.matches(&pod.labels))
    };
    jobs.filter(selects).collect()
}

fn enqueue(ctx: &Ctx, key: ObjectKey, job: &Uid, urgency: Urgency) {
    let delay = ctx.memory.on_pod_changed(job, urgency, ctx.clock.now());
    ctx.queue.add_after(key, delay);
}

/// The pod's controller, if its kind is Job. The apiVersion is not compared, as in the pod index.
fn controlling_job<'a>(pod: &MetaRef<'a>) -> Option<&'a OwnerRef> {
    pod.controller().filter(|it| &*it.kind == "Job")
}

fn has_our_finalizer(pod: &MetaRef<'_>) -> bool {
    pod.finalizers.iter().any(|it| &**it == FINALIZER)
}

fn readable(entry: &Entry<Pod>) -> Option<&Pod> {
    entry.readable().map(|it| &**it)
}
