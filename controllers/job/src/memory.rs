//! The memory of each Job, by uid, so that a new Job of the same name inherits nothing. Handlers update it in constant
//! time. The delete handler removes an entry; so does a sync that finds its Job deleted after it stored something.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use api::{Uid, Version};
use clock::Instant;
use expectations::Expectations;
use parking_lot::Mutex;

use crate::{backoff::Backoff, brake::Brake, leaving::LeavingPods, snapshot::Unseen};

/// Events within this time after a sync are handled together in the next one.
pub(crate) const BATCH: Duration = Duration::from_secs(1);

/// The delay before a failed request to the server is repeated.
const ASK_AGAIN: Duration = Duration::from_secs(10);

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
    leaving: LeavingPods,
    /// The created pods that have not ended.
    brake: Brake,
}

#[derive(Default)]
struct Entry {
    /// The failures since the last success, set when a status that counts them is stored.
    backoff: Option<Backoff>,
    /// The final status is stored, but the cache may not show it yet.
    ended: bool,
    /// The most creations that succeeded in one sync since the last failed one.
    proven: usize,
    /// When the last sync began.
    synced: Option<Instant>,
    /// Set while the outcome of a creation is not known.
    doubt: Option<Doubt>,
    /// Incremented with each event of the Job's pods.
    changes: u64,
    /// Set when the last sync left nothing to do.
    rest: Option<Rest>,
    /// Creations are held back. Reported once.
    braked: bool,
}

/// How the outcome of an unknown creation is determined.
#[derive(Debug)]
enum Doubt {
    /// The request may still be running until this time.
    Ask(Instant),
    /// The outcome is known when the cache has passed this resourceVersion.
    Passed(Version),
}

/// A Job of this resourceVersion needs no sync until its pods change or the time is reached.
#[derive(Debug, Clone)]
struct Rest {
    version: Version,
    changes: u64,
    until: Option<Instant>,
}

/// What memory contains at the start of a sync.
#[derive(Debug)]
pub(crate) struct Sight {
    /// The argument for [`Memory::rests`].
    pub(crate) changes: u64,
    /// The back-off of the last stored status.
    pub(crate) backoff: Option<Backoff>,
    /// The Job has finished, even if the cache does not show it.
    pub(crate) ended: bool,
    /// Pods whose finalizers are being removed; they must not be counted again.
    pub(crate) leaving: HashSet<Uid>,
    /// How many more pods `brake` allows.
    pub(crate) room: usize,
    /// When `brake` allows one more pod even if none ends.
    pub(crate) more_room: Option<Duration>,
}

/// How soon an event needs a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// There may be something to do: sync at once, unless the last sync was just now.
    Progress,
    /// Only the status changes: the sync can wait.
    News,
}

impl Memory {
    /// A Job was added.
    pub(crate) fn begin(&self, job: &Uid) {
        self.inner.lock().jobs.entry(job.clone()).or_default();
    }

    /// A Job was deleted.
    pub(crate) fn forget(&self, job: &Uid) {
        let mut inner = self.inner.lock();
        inner.jobs.remove(job);
        inner.leaving.remove_all_of(job);
        inner.brake.forget(job);
        drop(inner);
        self.expectations.delete(job);
    }

    /// A Job has finished and the cache shows it: no pod will be created, counted or held back any more. Pods with a
    /// pending removal of the finalizer are kept, because the cache may still show the finalizer.
    pub(crate) fn ends(&self, job: &Uid) {
        let mut inner = self.inner.lock();
        if let Some(entry) = inner.jobs.get_mut(job) {
            *entry = Entry::default();
        }
        inner.brake.forget(job);
        drop(inner);
        self.expectations.delete(job);
    }

    /// True until the Job is deleted.
    pub(crate) fn holds(&self, job: &Uid) -> bool {
        self.inner.lock().jobs.contains_key(job)
    }

    /// True when there is no entry of any Job or pod.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        let Inner { jobs, leaving, brake } = &*self.inner.lock();
        jobs.is_empty() && leaving.is_empty() && brake.is_empty()
    }

    /// How long a Job of this resourceVersion needs no sync; zero means without limit. `None` when it may need one.
    pub(crate) fn rest(&self, job: &Uid, version: &Version, now: Instant) -> Option<Duration> {
        let inner = self.inner.lock();
        let entry = inner.jobs.get(job)?;
        let rest = entry.rest.as_ref().filter(|it| it.version == *version && it.changes == entry.changes)?;
        match rest.until {
            None => Some(Duration::ZERO),
            Some(until) => (until > now).then(|| until - now),
        }
    }

    /// A sync begins. Must be called before pods are listed: a pod whose finalizer disappears in between would be
    /// counted twice.
    pub(crate) fn sees(&self, job: &Uid, parallelism: i32, now: Instant) -> Sight {
        let mut inner = self.inner.lock();
        let (room, more_room) = inner.brake.room(job, parallelism, now);
        let leaving = inner.leaving.of(job);
        let entry = inner.jobs.entry(job.clone()).or_default();
        entry.synced = Some(now);
        entry.rest = None;
        let Entry { backoff, ended, changes, .. } = entry;
        Sight { changes: *changes, backoff: *backoff, ended: *ended, leaving, room, more_room }
    }

    /// A sync found nothing to do. Has no effect if a pod event came since the sync began, because `changes` differs
    /// then.
    pub(crate) fn rests(&self, job: &Uid, version: Version, changes: u64, until: Option<Instant>) {
        self.with(job, |it| it.rest = Some(Rest { version, changes, until }));
    }

    /// A pod of the Job changed. Returns the delay of the next sync; events in quick succession share one sync.
    pub(crate) fn changes(&self, job: &Uid, haste: Haste, now: Instant) -> Duration {
        let mut inner = self.inner.lock();
        let Some(entry) = inner.jobs.get_mut(job) else { return BATCH };
        entry.changes += 1;
        match (haste, entry.synced) {
            (Haste::News, _) => BATCH,
            (Haste::Progress, None) => Duration::ZERO,
            (Haste::Progress, Some(synced)) => (synced + BATCH).saturating_duration_since(now),
        }
    }

    /// The finalizers of these pods are about to be removed.
    pub(crate) fn asks_to_leave<'a>(&self, job: &Uid, pods: impl IntoIterator<Item = &'a Uid>) {
        let Inner { jobs, leaving, .. } = &mut *self.inner.lock();
        if jobs.contains_key(job) {
            pods.into_iter().for_each(|it| leaving.add(job, it));
        }
    }

    /// The finalizer or the pod is gone, or the removal failed.
    pub(crate) fn left(&self, pod: &Uid) {
        self.inner.lock().leaving.remove(pod);
    }

    /// Whether the finalizer of this pod is being removed and the cache still shows it.
    pub(crate) fn is_leaving(&self, pod: &Uid) -> bool {
        self.inner.lock().leaving.contains(pod)
    }

    /// Stores the back-off of a stored status.
    pub(crate) fn records(&self, job: &Uid, backoff: Backoff) {
        self.with(job, |it| it.backoff = Some(backoff));
    }

    /// The outcome of a status write is unknown, so the back-off must be computed from the pods again.
    pub(crate) fn doubts_backoff(&self, job: &Uid) {
        self.with(job, |it| it.backoff = None);
    }

    /// The final status is being stored. `false` reverts this after a failed write.
    pub(crate) fn ended(&self, job: &Uid, ended: bool) {
        self.with(job, |it| it.ended = ended);
    }

    /// The most creations that succeeded in one sync since the last failed one.
    pub(crate) fn proven(&self, job: &Uid) -> usize {
        self.inner.lock().jobs.get(job).map_or(0, |it| it.proven)
    }

    /// The number of creations that succeeded in a sync; zero if one failed.
    pub(crate) fn proves(&self, job: &Uid, creations: usize) {
        self.with(job, |it| it.proven = if creations == 0 { 0 } else { it.proven.max(creations) });
    }

    /// A pod was created for the Job. It occupies a slot until it ends.
    pub(crate) fn runs(&self, job: &Uid, pod: Uid) {
        let mut inner = self.inner.lock();
        if inner.jobs.contains_key(job) {
            inner.brake.created(job, pod);
        }
    }

    /// The cache shows a pod.
    pub(crate) fn shows(&self, pod: &Uid) {
        self.inner.lock().brake.shown(pod);
    }

    /// The cache has passed the creation of a pod. If it never showed the pod, the pod is gone and its slot is free;
    /// then the Job that it was created for is returned.
    pub(crate) fn passes(&self, pod: &Uid) -> Option<Uid> {
        self.inner.lock().brake.passed(pod)
    }

    /// A pod has ended, is being deleted, or is gone, so its slot is free. Returns the Job that it was created for,
    /// which may not be its owner any more.
    pub(crate) fn stops(&self, pod: &Uid) -> Option<Uid> {
        self.inner.lock().brake.ended(pod)
    }

    /// A pod will be deleted because our finalizer is missing. Its slot is not free when it is deleted.
    pub(crate) fn loses(&self, pod: &Uid, now: Instant) {
        self.inner.lock().brake.loses(pod, now);
    }

    /// The outcome of some creations is unknown. A cache that has passed `version` shows every pod that was created.
    pub(crate) fn doubts(&self, job: &Uid, version: Version) {
        self.with(job, |it| it.doubt = Some(Doubt::Passed(version)));
    }

    /// The same, but the requests may still be running until `at`.
    pub(crate) fn asks_at(&self, job: &Uid, at: Instant) {
        self.with(job, |it| it.doubt = Some(Doubt::Ask(at)));
    }

    /// Whether to request the version for [`Memory::doubts`] from the server now. If the request fails, it is repeated
    /// later.
    pub(crate) fn is_to_ask(&self, job: &Uid, now: Instant) -> bool {
        let mut is_time = false;
        self.with(job, |it| {
            if let Some(Doubt::Ask(at)) = &mut it.doubt
                && *at <= now
            {
                (*at, is_time) = (now + ASK_AGAIN, true);
            }
        });
        is_time
    }

    /// When an expectation expires or the server must be asked about a creation.
    pub(crate) fn gives_up_at(&self, job: &Uid) -> Option<Instant> {
        let asked = self.inner.lock().jobs.get(job).and_then(|it| match it.doubt {
            Some(Doubt::Ask(at)) => Some(at),
            Some(Doubt::Passed(_)) | None => None,
        });
        asked.into_iter().chain(self.expectations.expires_at(job)).min()
    }

    /// Which writes for the Job the caches do not show yet. Must be called before pods are listed.
    pub(crate) fn unseen(&self, job: &Uid, passed: impl Fn(&Version) -> bool, now: Instant) -> Unseen {
        let (mut is_settled, mut is_doubted) = (false, false);
        self.with(job, |it| {
            is_settled = matches!(&it.doubt, Some(Doubt::Passed(version)) if passed(version));
            if is_settled {
                it.doubt = None;
            }
            is_doubted = it.doubt.is_some();
        });
        if is_settled {
            // A creation that the cache does not show did not happen.
            self.expectations.drop_creations(job);
        }
        if self.expectations.satisfied(job, now) {
            // The unknown creations are resolved; later ones must not be affected.
            self.with(job, |it| it.doubt = None);
            return Unseen::Nothing;
        }
        let is_safe = is_doubted && self.expectations.has_seen_deletions(job, now);
        if is_safe { Unseen::Doubtful } else { Unseen::Writes }
    }

    /// Records whether creations are held back. Returns true when that has just begun.
    pub(crate) fn brakes(&self, job: &Uid, braked: bool) -> bool {
        let mut news = false;
        self.with(job, |it| news = std::mem::replace(&mut it.braked, braked) != braked && braked);
        news
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
        memory.begin(&job);
        (memory, job, Clock::system().now())
    }

    #[test]
    fn acceptance_job_011_nothing_is_left_of_a_job_that_is_gone() {
        let (memory, job, now) = memory();
        memory.sees(&job, 1, now);
        memory.records(&job, Backoff { failures: 3, last: 7 });
        memory.ended(&job, true);
        memory.runs(&job, Uid::new("pod"));
        memory.asks_to_leave(&job, [&Uid::new("pod")]);
        memory.expectations.expect_creations(&job, 5, now);
        memory.forget(&job);
        assert!(memory.is_empty() && memory.expectations.satisfied(&job, now));
        memory.asks_to_leave(&job, [&Uid::new("pod")]);
        memory.runs(&job, Uid::new("pod"));
        memory.changes(&job, Haste::Progress, now);
        assert!(memory.is_empty(), "what comes late begins nothing anew");
    }

    #[test]
    fn the_first_event_of_a_quiet_time_is_worth_a_sync_at_once_and_later_ones_share_one() {
        let (memory, job, now) = memory();
        let ms = Duration::from_millis;
        assert_eq!(memory.changes(&job, Haste::Progress, now), Duration::ZERO, "never looked at");
        memory.sees(&job, 1, now);
        assert_eq!(memory.changes(&job, Haste::Progress, now + ms(300)), ms(700));
        assert_eq!(memory.changes(&job, Haste::Progress, now + ms(1000)), Duration::ZERO);
        assert_eq!(memory.changes(&job, Haste::Progress, now + ms(9000)), Duration::ZERO);
        assert_eq!(memory.changes(&job, Haste::News, now + ms(9000)), ms(1000), "what only is to be told can wait");
    }

    #[test]
    fn a_job_rests_until_it_changes_or_its_pods_do_or_its_time_has_come() {
        let (memory, job, now) = memory();
        let (one, two) = (Version::new("1"), Version::new("2"));
        let sec = Duration::from_secs(1);
        assert_eq!(memory.rest(&job, &one, now), None);
        let changes = memory.sees(&job, 1, now).changes;
        memory.rests(&job, one.clone(), changes, None);
        assert_eq!(memory.rest(&job, &one, now + 99 * sec), Some(Duration::ZERO));
        assert_eq!(memory.rest(&job, &two, now), None, "the Job changed");
        memory.changes(&job, Haste::News, now);
        assert_eq!(memory.rest(&job, &one, now), None, "a pod changed");
        let changes = memory.sees(&job, 1, now).changes;
        memory.changes(&job, Haste::News, now);
        memory.rests(&job, one.clone(), changes, None);
        assert_eq!(memory.rest(&job, &one, now), None, "a pod changed while it was looked at");
        let changes = memory.sees(&job, 1, now).changes;
        memory.rests(&job, one.clone(), changes, Some(now + 5 * sec));
        assert_eq!(memory.rest(&job, &one, now + 2 * sec), Some(3 * sec));
        assert_eq!(memory.rest(&job, &one, now + 5 * sec), None, "its time has come");
    }

    #[test]
    fn what_nobody_knows_is_settled_by_a_cache_that_is_new_enough() {
        let (memory, job, now) = memory();
        let (none, seven) = (|_: &Version| false, |it: &Version| *it == Version::new("7"));
        memory.expectations.expect_creations(&job, 3, now);
        memory.doubts(&job, Version::new("7"));
        assert_eq!(memory.unseen(&job, none, now), Unseen::Doubtful);
        assert_eq!(memory.unseen(&job, seven, now), Unseen::Nothing);
        memory.expectations.expect_creations(&job, 3, now);
        assert_eq!(memory.unseen(&job, seven, now), Unseen::Writes, "the doubt was about those before");
    }

    #[test]
    fn what_is_deleted_beside_a_doubt_is_waited_for() {
        let (memory, job, now) = memory();
        let (none, seven) = (|_: &Version| false, |it: &Version| *it == Version::new("7"));
        let pod = Uid::new("pod");
        memory.expectations.expect_creations(&job, 1, now);
        memory.doubts(&job, Version::new("7"));
        memory.expectations.add_deletions(&job, [pod.clone()], now);
        assert_eq!(memory.unseen(&job, none, now), Unseen::Writes);
        assert_eq!(memory.unseen(&job, seven, now), Unseen::Writes, "only creations are settled");
        memory.expectations.deletion_observed(&job, &pod);
        assert_eq!(memory.unseen(&job, none, now), Unseen::Nothing);
    }

    #[test]
    fn a_doubt_that_came_into_sight_says_nothing_of_what_is_created_after_it() {
        let (memory, job, now) = memory();
        memory.expectations.expect_creations(&job, 1, now);
        memory.doubts(&job, Version::new("7"));
        memory.expectations.creation_observed(&job);
        assert_eq!(memory.unseen(&job, |_| false, now), Unseen::Nothing);
        memory.expectations.expect_creations(&job, 1, now);
        assert_eq!(memory.unseen(&job, |_| true, now), Unseen::Writes);
    }

    #[test]
    fn what_may_be_on_its_way_is_asked_for_when_it_cannot_be_any_more() {
        let (memory, job, now) = memory();
        let sec = Duration::from_secs(1);
        memory.expectations.expect_creations(&job, 1, now);
        memory.asks_at(&job, now + 90 * sec);
        assert_eq!(memory.gives_up_at(&job), Some(now + 90 * sec));
        assert!(!memory.is_to_ask(&job, now + 89 * sec));
        assert!(memory.is_to_ask(&job, now + 90 * sec));
        assert!(!memory.is_to_ask(&job, now + 91 * sec) && memory.is_to_ask(&job, now + 100 * sec), "it got no answer");
        assert_eq!(memory.unseen(&job, |_| true, now + 100 * sec), Unseen::Doubtful, "nothing is known yet");
        memory.doubts(&job, Version::new("7"));
        assert!(!memory.is_to_ask(&job, now + 200 * sec));
        assert_eq!(memory.unseen(&job, |_| true, now + 200 * sec), Unseen::Nothing);
    }

    #[test]
    fn a_job_whose_end_is_seen_leaves_nothing_to_remember() {
        let (memory, job, now) = memory();
        memory.records(&job, Backoff { failures: 3, last: 7 });
        memory.ended(&job, true);
        memory.runs(&job, Uid::new("pod"));
        memory.asks_to_leave(&job, [&Uid::new("pod")]);
        memory.expectations.expect_creations(&job, 5, now);
        memory.ends(&job);
        let Sight { changes, backoff, ended, leaving, room, more_room: _ } = memory.sees(&job, 1, now);
        assert_eq!((changes, backoff, ended, leaving.len(), room), (0, None, false, 1, 2), "but what is on its way");
        assert!(memory.expectations.satisfied(&job, now) && memory.stops(&Uid::new("pod")).is_none());
    }

    #[test]
    fn a_brake_is_news_when_it_begins_to_hold() {
        let (memory, job, _) = memory();
        assert!(memory.brakes(&job, true));
        assert!(!memory.brakes(&job, true));
        assert!(!memory.brakes(&job, false));
        assert!(memory.brakes(&job, true));
    }
}
