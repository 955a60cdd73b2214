//! The memory of each Job, by uid, so that a new Job of the same name inherits nothing. Handlers update it in constant
//! time. An entry is removed when its Job is deleted.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use api::{Uid, Version};
use clock::Instant;
use parking_lot::Mutex;
use workload::{CreationLimit, Expectations, UnknownCreates};

use crate::{
    finalizer_removals::FinalizerRemovals,
    rules::{backoff::PodFailures, snapshot::Unseen},
};

/// Events within this time after a sync are handled together in the next one.
pub(crate) const BATCH: Duration = Duration::from_secs(1);

/// The memory of all Jobs.
#[derive(Default)]
pub(crate) struct Memory {
    /// The creations and deletions that the informer has not shown yet.
    pub(crate) expectations: Expectations,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    jobs: HashMap<Uid, Entry>,
    removals: FinalizerRemovals,
    /// The created pods that have not ended.
    creation_limit: CreationLimit,
}

#[derive(Default)]
struct Entry {
    /// The failures since the last success, set when a status that counts them is stored.
    backoff: Option<PodFailures>,
    /// The final status is being stored, or is stored and the cache may not show it.
    finish_pending: bool,
    /// The most creations that succeeded in one sync since the last failed one.
    last_batch_size: usize,
    /// When the last sync began.
    last_sync: Option<Instant>,
    unknown_creates: UnknownCreates,
    /// Incremented with each event of the Job's pods.
    changes: u64,
    /// Set when the last sync left nothing to do.
    idle: Option<Idle>,
    /// The creation limit applies. Reported once.
    creation_limited: bool,
}

/// A Job of this resourceVersion needs no sync until its pods change or the time is reached.
#[derive(Debug, Clone)]
struct Idle {
    version: Version,
    changes: u64,
    until: Option<Instant>,
}

/// What memory contains at the start of a sync.
#[derive(Debug)]
pub(crate) struct SyncInputs {
    /// The argument for [`Memory::mark_idle`].
    pub(crate) changes: u64,
    /// The back-off of the last stored status.
    pub(crate) backoff: Option<PodFailures>,
    /// The final status is being stored, or is stored and the cache may not show it.
    pub(crate) finish_pending: bool,
    /// Pods whose finalizers are being removed; they must not be counted again.
    pub(crate) pending_removals: HashSet<Uid>,
    /// How many more pods `creation_limit` allows.
    pub(crate) free_slots: usize,
    /// When `creation_limit` allows one more pod even if none ends.
    pub(crate) next_slot: Option<Duration>,
}

/// How soon an event needs a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// There may be something to do: sync at once, unless the last sync was just now.
    Immediate,
    /// Only the status changes: the sync can wait.
    Batched,
}

impl Memory {
    /// A Job was added.
    pub(crate) fn on_job_added(&self, job: &Uid) {
        self.inner.lock().jobs.entry(job.clone()).or_default();
    }

    /// A Job was deleted.
    pub(crate) fn on_job_deleted(&self, job: &Uid) {
        let mut inner = self.inner.lock();
        inner.jobs.remove(job);
        inner.removals.remove_all_of(job);
        inner.creation_limit.remove_owner(job);
        drop(inner);
        self.expectations.delete(job);
    }

    /// Called when the cache shows that a Job has finished: no more pods are created or counted, and the creation limit
    /// no longer applies. Pods with a pending removal of the finalizer are kept, because the cache may still show the
    /// finalizer.
    pub(crate) fn clear_finished(&self, job: &Uid) {
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.jobs.get_mut(job) {
            *entry = Entry::default();
        }
        inner.creation_limit.remove_owner(job);
        drop(inner);
        self.expectations.delete(job);
    }

    /// True until the Job is deleted.
    pub(crate) fn contains(&self, job: &Uid) -> bool {
        self.inner.lock().jobs.contains_key(job)
    }

    /// True when there is no entry of any Job or pod.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let Inner { jobs, removals, creation_limit } = &*self.inner.lock();
        jobs.is_empty() && removals.is_empty() && creation_limit.is_empty()
    }

    /// If a Job of this resourceVersion needs no sync now: the time until it needs one, or `Some(None)` if only a
    /// change can require one. `None` if it needs a sync.
    pub(crate) fn idle_for(&self, job: &Uid, version: &Version, now: Instant) -> Option<Option<Duration>> {
        let inner = self.inner.lock();
        let entry = inner.jobs.get(job)?;
        let idle = entry.idle.as_ref().filter(|it| it.version == *version && it.changes == entry.changes)?;
        match idle.until {
            None => Some(None),
            Some(until) => (until > now).then(|| Some(until - now)),
        }
    }

    /// A sync begins. Must be called before pods are listed: a pod whose finalizer disappears in between would be
    /// counted twice.
    pub(crate) fn begin_sync(&self, job: &Uid, parallelism: i32, now: Instant) -> SyncInputs {
        let mut inner = self.inner.lock();
        let (free_slots, next_slot) = inner.creation_limit.free_slots(job, parallelism, now);
        let pending_removals = inner.removals.of(job);
        let entry = inner.jobs.entry(job.clone()).or_default();
        entry.last_sync = Some(now);
        entry.idle = None;
        let Entry { backoff, finish_pending, changes, .. } = entry;
        SyncInputs {
            changes: *changes,
            backoff: *backoff,
            finish_pending: *finish_pending,
            pending_removals,
            free_slots,
            next_slot,
        }
    }

    /// A sync found nothing to do. Has no effect if a pod event came since the sync began, because `changes` differs
    /// then.
    pub(crate) fn mark_idle(&self, job: &Uid, version: Version, changes: u64, until: Option<Instant>) {
        self.with(job, |it| it.idle = Some(Idle { version, changes, until }));
    }

    /// A pod of the Job changed. Returns the delay of the next sync; events in quick succession share one sync.
    pub(crate) fn on_pod_changed(&self, job: &Uid, urgency: Urgency, now: Instant) -> Duration {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.jobs.get_mut(job) else { return BATCH };
        entry.changes += 1;
        match (urgency, entry.last_sync) {
            (Urgency::Batched, _) => BATCH,
            (Urgency::Immediate, None) => Duration::ZERO,
            (Urgency::Immediate, Some(last_sync)) => (last_sync + BATCH).saturating_duration_since(now),
        }
    }

    /// The finalizers of these pods are about to be removed.
    pub(crate) fn begin_finalizer_removals<'a>(&self, job: &Uid, pods: impl IntoIterator<Item = &'a Uid>) {
        let Inner { jobs, removals, .. } = &mut *self.inner.lock();
        if jobs.contains_key(job) {
            pods.into_iter().for_each(|it| removals.add(job, it));
        }
    }

    /// The finalizer or the pod is gone, or the removal failed.
    pub(crate) fn end_finalizer_removal(&self, pod: &Uid) {
        self.inner.lock().removals.remove(pod);
    }

    /// Whether the finalizer of this pod is being removed and the cache still shows it.
    pub(crate) fn is_finalizer_removal_pending(&self, pod: &Uid) -> bool {
        self.inner.lock().removals.contains(pod)
    }

    /// Stores the back-off of a stored status.
    pub(crate) fn record_backoff(&self, job: &Uid, backoff: PodFailures) {
        self.with(job, |it| it.backoff = Some(backoff));
    }

    /// The outcome of a status write is unknown, so the back-off must be computed from the pods again.
    pub(crate) fn clear_backoff(&self, job: &Uid) {
        self.with(job, |it| it.backoff = None);
    }

    /// The final status is being stored. `false` reverts this after a failed write.
    pub(crate) fn set_finish_pending(&self, job: &Uid, finish_pending: bool) {
        self.with(job, |it| it.finish_pending = finish_pending);
    }

    /// The most creations that succeeded in one sync since the last failed one.
    pub(crate) fn last_batch_size(&self, job: &Uid) -> usize {
        self.inner.lock().jobs.get(job).map_or(0, |it| it.last_batch_size)
    }

    /// The number of creations that succeeded in a sync; zero if one failed.
    pub(crate) fn record_batch(&self, job: &Uid, creations: usize) {
        self.with(job, |it| it.last_batch_size = if creations == 0 { 0 } else { it.last_batch_size.max(creations) });
    }

    /// A pod was created for the Job. It occupies a slot until it ends.
    pub(crate) fn on_pod_created(&self, job: &Uid, pod: Uid) {
        let mut inner = self.inner.lock();
        if inner.jobs.contains_key(job) {
            inner.creation_limit.on_pod_created(job, pod);
        }
    }

    /// The cache shows a pod.
    pub(crate) fn on_pod_seen(&self, pod: &Uid) {
        self.inner.lock().creation_limit.on_pod_seen(pod);
    }

    /// The cache has passed the creation of a pod. If it never showed the pod, the pod is gone and its slot is free;
    /// then the Job that it was created for is returned.
    pub(crate) fn on_cache_passed_creation(&self, pod: &Uid) -> Option<Uid> {
        self.inner.lock().creation_limit.on_cache_passed_creation(pod)
    }

    /// A pod has ended, is being deleted, or is gone, so its slot is free. Returns the Job that it was created for,
    /// which may not be its owner any more.
    pub(crate) fn on_pod_stopped(&self, pod: &Uid) -> Option<Uid> {
        self.inner.lock().creation_limit.on_pod_stopped(pod)
    }

    /// A pod will be deleted because our finalizer is missing. Its slot is not free when it is deleted.
    pub(crate) fn on_delete_without_finalizer(&self, pod: &Uid, now: Instant) {
        self.inner.lock().creation_limit.on_delete_without_finalizer(pod, now);
    }

    /// The outcome of some creations is unknown. A cache that has passed `version` shows every pod that was created.
    pub(crate) fn await_unknown_creates(&self, job: &Uid, version: Version) {
        self.with(job, |it| it.unknown_creates.await_version(version));
    }

    /// Checks unknown creations on the server at `at`, when their requests have ended.
    pub(crate) fn check_unknown_creates_at(&self, job: &Uid, at: Instant) {
        self.with(job, |it| it.unknown_creates.check_at(at));
    }

    /// Whether to request the version for [`Memory::await_unknown_creates`] from the server now. If the request fails,
    /// it is repeated later.
    pub(crate) fn begin_unknown_creates_check(&self, job: &Uid, now: Instant) -> bool {
        let mut is_time = false;
        self.with(job, |it| is_time = it.unknown_creates.begin_check(now));
        is_time
    }

    /// When an expectation expires or a creation must be checked on the server.
    pub(crate) fn next_deadline(&self, job: &Uid) -> Option<Instant> {
        let check = self.inner.lock().jobs.get(job).and_then(|it| it.unknown_creates.next_check());
        check.into_iter().chain(self.expectations.expires_at(job)).min()
    }

    /// Which writes for the Job the caches do not show yet. Must be called before pods are listed.
    pub(crate) fn unseen_writes(&self, job: &Uid, passed: impl Fn(&Version) -> bool, now: Instant) -> Unseen {
        let (mut is_resolved, mut is_unknown) = (false, false);
        self.with(job, |it| {
            is_resolved = it.unknown_creates.resolve(passed);
            is_unknown = it.unknown_creates.is_any();
        });
        if is_resolved {
            // A creation that the cache does not show did not happen.
            self.expectations.drop_creations(job);
        }
        if self.expectations.is_satisfied(job, now) {
            // The unknown creations are resolved; later ones must not be affected.
            self.with(job, |it| it.unknown_creates.clear());
            return Unseen::Nothing;
        }
        let is_safe = is_unknown && self.expectations.has_observed_deletions(job, now);
        if is_safe { Unseen::UnknownCreates } else { Unseen::Writes }
    }

    /// Records whether the creation limit applies. Returns true when that has just begun.
    pub(crate) fn set_creation_limited(&self, job: &Uid, creation_limited: bool) -> bool {
        let mut has_begun = false;
        self.with(job, |it| {
            has_begun =
                std::mem::replace(&mut it.creation_limited, creation_limited) != creation_limited && creation_limited
        });
        has_begun
    }

    fn with(&self, job: &Uid, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.inner.lock().jobs.get_mut(job) {
            change(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;

    fn memory() -> (Memory, Uid, Instant) {
        let (memory, job) = (Memory::default(), Uid::new("job"));
        memory.on_job_added(&job);
        (memory, job, Clock::system().now())
    }

    #[test]
    fn acceptance_job_011_a_deleted_job_has_no_memory() {
        let (memory, job, now) = memory();
        memory.begin_sync(&job, 1, now);
        memory.record_backoff(&job, PodFailures { failures: 3, last: 7 });
        memory.set_finish_pending(&job, true);
        memory.on_pod_created(&job, Uid::new("pod"));
        memory.begin_finalizer_removals(&job, [&Uid::new("pod")]);
        memory.expectations.expect_creations(&job, 5, now);
        memory.on_job_deleted(&job);
        assert!(memory.is_empty() && memory.expectations.is_satisfied(&job, now));
        memory.begin_finalizer_removals(&job, [&Uid::new("pod")]);
        memory.on_pod_created(&job, Uid::new("pod"));
        memory.on_pod_changed(&job, Urgency::Immediate, now);
        assert!(memory.is_empty(), "a late event creates no entry");
    }

    #[test]
    fn the_first_event_after_a_pause_is_synced_at_once_and_later_ones_are_batched() {
        let (memory, job, now) = memory();
        let ms = Duration::from_millis;
        assert_eq!(memory.on_pod_changed(&job, Urgency::Immediate, now), Duration::ZERO, "no sync before");
        memory.begin_sync(&job, 1, now);
        assert_eq!(memory.on_pod_changed(&job, Urgency::Immediate, now + ms(300)), ms(700));
        assert_eq!(memory.on_pod_changed(&job, Urgency::Immediate, now + ms(1000)), Duration::ZERO);
        assert_eq!(memory.on_pod_changed(&job, Urgency::Immediate, now + ms(9000)), Duration::ZERO);
        assert_eq!(
            memory.on_pod_changed(&job, Urgency::Batched, now + ms(9000)),
            ms(1000),
            "a batched change waits for the batch"
        );
    }

    #[test]
    fn an_idle_job_is_synced_when_it_or_a_pod_changes_or_its_deadline_is_reached() {
        let (memory, job, now) = memory();
        let (one, two) = (Version::new("1"), Version::new("2"));
        let sec = Duration::from_secs(1);
        assert_eq!(memory.idle_for(&job, &one, now), None);
        let changes = memory.begin_sync(&job, 1, now).changes;
        memory.mark_idle(&job, one.clone(), changes, None);
        assert_eq!(memory.idle_for(&job, &one, now + 99 * sec), Some(None));
        assert_eq!(memory.idle_for(&job, &two, now), None, "the Job changed");
        memory.on_pod_changed(&job, Urgency::Batched, now);
        assert_eq!(memory.idle_for(&job, &one, now), None, "a pod changed");
        let changes = memory.begin_sync(&job, 1, now).changes;
        memory.on_pod_changed(&job, Urgency::Batched, now);
        memory.mark_idle(&job, one.clone(), changes, None);
        assert_eq!(memory.idle_for(&job, &one, now), None, "a pod changed during the sync");
        let changes = memory.begin_sync(&job, 1, now).changes;
        memory.mark_idle(&job, one.clone(), changes, Some(now + 5 * sec));
        assert_eq!(memory.idle_for(&job, &one, now + 2 * sec), Some(Some(3 * sec)));
        assert_eq!(memory.idle_for(&job, &one, now + 5 * sec), None, "the deadline is reached");
    }

    #[test]
    fn an_unknown_create_is_resolved_by_a_cache_that_has_passed_it() {
        let (memory, job, now) = memory();
        let (none, seven) = (|_: &Version| false, |it: &Version| *it == Version::new("7"));
        memory.expectations.expect_creations(&job, 3, now);
        memory.await_unknown_creates(&job, Version::new("7"));
        assert_eq!(memory.unseen_writes(&job, none, now), Unseen::UnknownCreates);
        assert_eq!(memory.unseen_writes(&job, seven, now), Unseen::Nothing);
        memory.expectations.expect_creations(&job, 3, now);
        assert_eq!(memory.unseen_writes(&job, seven, now), Unseen::Writes, "only the earlier creations were unknown");
    }

    #[test]
    fn deletions_are_awaited_besides_an_unknown_create() {
        let (memory, job, now) = memory();
        let (none, seven) = (|_: &Version| false, |it: &Version| *it == Version::new("7"));
        let pod = Uid::new("pod");
        memory.expectations.expect_creations(&job, 1, now);
        memory.await_unknown_creates(&job, Version::new("7"));
        memory.expectations.add_deletions(&job, [pod.clone()], now);
        assert_eq!(memory.unseen_writes(&job, none, now), Unseen::Writes);
        assert_eq!(memory.unseen_writes(&job, seven, now), Unseen::Writes, "the cache resolves creations only");
        memory.expectations.deletion_observed(&job, &pod);
        assert_eq!(memory.unseen_writes(&job, none, now), Unseen::Nothing);
    }

    #[test]
    fn an_observed_unknown_create_does_not_affect_later_creations() {
        let (memory, job, now) = memory();
        memory.expectations.expect_creations(&job, 1, now);
        memory.await_unknown_creates(&job, Version::new("7"));
        memory.expectations.creation_observed(&job);
        assert_eq!(memory.unseen_writes(&job, |_| false, now), Unseen::Nothing);
        memory.expectations.expect_creations(&job, 1, now);
        assert_eq!(memory.unseen_writes(&job, |_| true, now), Unseen::Writes);
    }

    #[test]
    fn an_unknown_create_is_checked_after_the_longest_request_time() {
        let (memory, job, now) = memory();
        let sec = Duration::from_secs(1);
        memory.expectations.expect_creations(&job, 1, now);
        memory.check_unknown_creates_at(&job, now + 90 * sec);
        assert_eq!(memory.next_deadline(&job), Some(now + 90 * sec));
        assert!(!memory.begin_unknown_creates_check(&job, now + 89 * sec));
        assert!(memory.begin_unknown_creates_check(&job, now + 90 * sec));
        assert!(
            !memory.begin_unknown_creates_check(&job, now + 91 * sec)
                && memory.begin_unknown_creates_check(&job, now + 100 * sec),
            "a check without a response is repeated"
        );
        assert_eq!(
            memory.unseen_writes(&job, |_| true, now + 100 * sec),
            Unseen::UnknownCreates,
            "the outcome is still unknown"
        );
        memory.await_unknown_creates(&job, Version::new("7"));
        assert!(!memory.begin_unknown_creates_check(&job, now + 200 * sec));
        assert_eq!(memory.unseen_writes(&job, |_| true, now + 200 * sec), Unseen::Nothing);
    }

    #[test]
    fn an_observed_end_clears_the_memory_of_a_job() {
        let (memory, job, now) = memory();
        memory.record_backoff(&job, PodFailures { failures: 3, last: 7 });
        memory.set_finish_pending(&job, true);
        memory.on_pod_created(&job, Uid::new("pod"));
        memory.begin_finalizer_removals(&job, [&Uid::new("pod")]);
        memory.expectations.expect_creations(&job, 5, now);
        memory.clear_finished(&job);
        let SyncInputs { changes, backoff, finish_pending, pending_removals, free_slots, next_slot: _ } =
            memory.begin_sync(&job, 1, now);
        assert_eq!(
            (changes, backoff, finish_pending, pending_removals.len(), free_slots),
            (0, None, false, 1, 2),
            "except the removal in flight"
        );
        assert!(memory.expectations.is_satisfied(&job, now) && memory.on_pod_stopped(&Uid::new("pod")).is_none());
    }

    #[test]
    fn creation_limit_is_reported_once_when_it_begins() {
        let (memory, job, _) = memory();
        assert!(memory.set_creation_limited(&job, true));
        assert!(!memory.set_creation_limited(&job, true));
        assert!(!memory.set_creation_limited(&job, false));
        assert!(memory.set_creation_limited(&job, true));
    }
}
