//! What the process keeps about each set, by uid, so that a new set of the same name inherits nothing.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use api::{ReplicaSetStatus, Uid, Version};
use clock::Instant;
use parking_lot::Mutex;
use workload::{Expectations, NoticeLog, UnknownCreates, UnknownDeletion};

use crate::rules::{notices::Notice, plan::NAMESPACE_CHECK};

/// The memory of all sets. An entry is removed when its set is deleted.
#[derive(Default)]
pub(crate) struct Memory {
    /// The creations and deletions that the cache does not show yet.
    pub(crate) expectations: Expectations,
    /// The states that were reported.
    pub(crate) notices: NoticeLog<Notice>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    sets: HashMap<Uid, SetMemory>,
    /// The sets that wait for expectations.
    waiting: HashSet<Uid>,
}

#[derive(Default)]
struct SetMemory {
    unknown_creates: UnknownCreates,
    /// The deletions whose outcome is unknown.
    unknown_deletions: Vec<UnknownDeletion>,
    /// Those that are no longer needed, for example because `replicas` was raised. Their requests may still succeed.
    obsolete_deletions: Vec<UnknownDeletion>,
    /// The created pods that may not count as pods of the set, with their names.
    created: Vec<(Box<str>, Uid)>,
    /// When a creation was refused because the namespace is terminating.
    namespace_terminating_at: Option<Instant>,
    /// The last status that we wrote, or tried to write.
    status: Option<ReplicaSetStatus>,
    /// When a status was last stored.
    status_at: Option<Instant>,
}

impl SetMemory {
    /// When the outcomes of writes must be checked.
    fn checks(&self, now: Instant) -> impl Iterator<Item = Instant> {
        let deletions = self.unknown_deletions.iter().chain(&self.obsolete_deletions).map(move |it| it.next_check(now));
        deletions.chain(self.unknown_creates.next_check())
    }
}

impl Memory {
    /// Whether the outcome of a creation is unknown.
    pub(crate) fn has_unknown_creates(&self, set: &Uid) -> bool {
        self.change_existing(set, |it| it.unknown_creates.is_any()).unwrap_or_default()
    }

    /// Whether creations whose outcome is unknown may be running.
    pub(crate) fn has_running_creates(&self, set: &Uid) -> bool {
        self.change_existing(set, |it| it.unknown_creates.next_check().is_some()).unwrap_or_default()
    }

    /// The outcome of some creations is unknown, and their requests may be running until `at`.
    pub(crate) fn check_unknown_creates_at(&self, set: &Uid, at: Instant) {
        self.change(set, |it| it.unknown_creates.check_at(at));
    }

    /// Whether to request the version for [`Memory::await_version`] from the server now.
    pub(crate) fn begin_unknown_creates_check(&self, set: &Uid, now: Instant) -> bool {
        self.change_existing(set, |it| it.unknown_creates.begin_check(now)).unwrap_or_default()
    }

    /// A cache that has passed `version` shows the outcome of all requests.
    pub(crate) fn await_version(&self, set: &Uid, version: Version) {
        self.change(set, |it| it.unknown_creates.await_version(version));
    }

    /// If the cache has passed the awaited version, what it does not show did not happen.
    pub(crate) fn resolve_unknown(&self, set: &Uid, passed: impl Fn(&Version) -> bool) {
        if self.change_existing(set, |it| it.unknown_creates.resolve(passed)).unwrap_or_default() {
            self.expectations.delete(set);
        }
    }

    /// Nothing is expected any more, so later creations must not be affected.
    pub(crate) fn clear_unknown(&self, set: &Uid) {
        self.change_existing(set, |it| {
            it.unknown_creates.clear();
            it.unknown_deletions.clear();
        });
    }

    /// Whether the outcome of a deletion is unknown.
    pub(crate) fn has_unknown_deletions(&self, set: &Uid) -> bool {
        self.change_existing(set, |it| !it.unknown_deletions.is_empty()).unwrap_or_default()
    }

    /// Returns and removes the deletions whose outcome is unknown.
    pub(crate) fn take_unknown_deletions(&self, set: &Uid) -> Vec<UnknownDeletion> {
        self.change_existing(set, |it| std::mem::take(&mut it.unknown_deletions)).unwrap_or_default()
    }

    /// Keeps a deletion whose outcome is unknown.
    pub(crate) fn add_unknown_deletion(&self, set: &Uid, deletion: UnknownDeletion) {
        self.change(set, |it| it.unknown_deletions.push(deletion));
    }

    /// Returns and removes the deletions with an unknown outcome whose pods the set wants again.
    pub(crate) fn take_obsolete_deletions(&self, set: &Uid) -> Vec<UnknownDeletion> {
        self.change_existing(set, |it| std::mem::take(&mut it.obsolete_deletions)).unwrap_or_default()
    }

    /// Keeps a deletion with an unknown outcome whose pod the set wants again.
    pub(crate) fn add_obsolete_deletion(&self, set: &Uid, deletion: UnknownDeletion) {
        self.change(set, |it| it.obsolete_deletions.push(deletion));
    }

    /// The pods that the set wants again and that may still be deleted.
    pub(crate) fn maybe_deleted_pods(&self, set: &Uid) -> Vec<Uid> {
        self.change_existing(set, |it| it.obsolete_deletions.iter().map(|it| it.pod.meta.uid.clone()).collect())
            .unwrap_or_default()
    }

    /// When an expectation expires, or the outcome of a write must be checked. A check that is due is not contained.
    pub(crate) fn next_deadline(&self, set: &Uid, now: Instant) -> Option<Instant> {
        let checks = self.change_existing(set, |it| it.checks(now).filter(|it| *it > now).min());
        checks.flatten().into_iter().chain(self.expectations.expires_at(set)).min()
    }

    /// Whether the outcome of a write must be checked now.
    pub(crate) fn is_check_due(&self, set: &Uid, now: Instant) -> bool {
        self.change_existing(set, |it| it.checks(now).any(|it| it <= now)).unwrap_or_default()
    }

    /// A creation was refused because the namespace is terminating.
    pub(crate) fn mark_namespace_terminating(&self, set: &Uid, now: Instant) {
        self.change(set, |it| it.namespace_terminating_at = Some(now));
    }

    /// Whether a creation was refused lately because the namespace is terminating.
    pub(crate) fn is_namespace_terminating(&self, set: &Uid, now: Instant) -> bool {
        let refused = self.change_existing(set, |it| it.namespace_terminating_at).flatten();
        refused.is_some_and(|it| now < it + NAMESPACE_CHECK)
    }

    /// A status is about to be written. Recorded before, because the watch event may come before the response.
    pub(crate) fn begin_status(&self, set: &Uid, status: ReplicaSetStatus) {
        self.change(set, |it| it.status = Some(status));
    }

    /// The cached status is right. If another one was sent, it may still be stored, and its event must cause a sync.
    pub(crate) fn clear_status(&self, set: &Uid) {
        self.change_existing(set, |it| it.status = None);
    }

    /// Whether this is the last status that we wrote.
    pub(crate) fn is_own_status(&self, set: &Uid, status: &ReplicaSetStatus) -> bool {
        self.change_existing(set, |it| it.status.as_ref() == Some(status)).unwrap_or_default()
    }

    /// A status was stored.
    pub(crate) fn record_status_at(&self, set: &Uid, now: Instant) {
        self.change(set, |it| it.status_at = Some(now));
    }

    /// The time since our last write of the status.
    pub(crate) fn since_status(&self, set: &Uid, now: Instant) -> Option<Duration> {
        self.change_existing(set, |it| it.status_at.map(|at| now.saturating_duration_since(at))).flatten()
    }

    /// A pod was created.
    pub(crate) fn on_pod_created(&self, set: &Uid, name: Box<str>, pod: Uid) {
        self.change(set, |it| it.created.push((name, pod)));
    }

    /// How many of the created pods do not count as pods of the set. Those that `is_uncounted` does not accept are
    /// forgotten, so each is asked about until it has counted once.
    pub(crate) fn uncounted(&self, set: &Uid, is_uncounted: impl Fn(&str, &Uid) -> bool) -> usize {
        // The cache is read without our lock.
        let mut created = self.change_existing(set, |it| std::mem::take(&mut it.created)).unwrap_or_default();
        created.retain(|(name, pod)| is_uncounted(name, pod));
        let count = created.len();
        if count > 0 {
            self.change(set, |it| it.created = created);
        }
        count
    }

    /// Records whether a set waits for expectations, and reports the number of sets that do.
    pub(crate) fn set_waiting(&self, set: &Uid, is_waiting: bool, report: impl FnOnce(usize)) {
        let waiting = &mut self.inner.lock().waiting;
        if is_waiting {
            waiting.insert(set.clone());
        } else {
            waiting.remove(set);
        }
        report(waiting.len());
    }

    /// Removes a deleted set.
    pub(crate) fn remove(&self, set: &Uid) {
        self.expectations.delete(set);
        self.notices.remove(set);
        self.inner.lock().sets.remove(set);
    }

    fn change(&self, set: &Uid, change: impl FnOnce(&mut SetMemory)) {
        change(self.inner.lock().sets.entry(set.clone()).or_default());
    }

    /// The same for a set that has an entry.
    fn change_existing<R>(&self, set: &Uid, change: impl FnOnce(&mut SetMemory) -> R) -> Option<R> {
        self.inner.lock().sets.get_mut(set).map(change)
    }
}
