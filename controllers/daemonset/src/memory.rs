//! What the process keeps about each set, by uid, so that a new set of the same name inherits nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use api::{ControllerRevision, Uid, Version};
use clock::Instant;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use workload::{Expectations, NoticeLog, UnknownDeletion};

use crate::rules::{backoff::FailedPodBackoff, notices::Notice};

/// The memory of all sets. An entry is removed when its set is deleted.
#[derive(Default)]
pub(crate) struct Memory {
    /// The creations and deletions that the cache does not show yet.
    pub(crate) expectations: Expectations,
    /// The states that were reported.
    pub(crate) notices: NoticeLog<Notice>,
    sets: Mutex<HashMap<Uid, SetMemory>>,
}

#[derive(Default)]
struct SetMemory {
    unknown_creations: Vec<UnknownCreation>,
    unknown_deletions: Vec<UnknownDeletion>,
    /// When the cache has passed this version, expired expectations are removed.
    awaited: Option<Version>,
    /// The last replacements of failed pods, by node.
    backoffs: BTreeMap<Box<str>, FailedPodBackoff>,
    current: Option<KnownRevision>,
    last_failed_node: Option<Box<str>>,
}

/// A creation whose outcome is unknown. It is sent again as it was: the server makes it once, because the pod has a name.
pub(crate) struct UnknownCreation {
    pub(crate) pod: NewPod,
    /// After this time no request for it can be running, and a refusal is final.
    pub(crate) keep_until: Instant,
}

/// A pod to create.
pub(crate) struct NewPod {
    /// Its name.
    pub(crate) name: Box<str>,
    /// The name of its node.
    pub(crate) node: Box<str>,
    /// The whole pod.
    pub(crate) body: Box<RawValue>,
}

/// The revision that has the template of a generation.
struct KnownRevision {
    generation: i64,
    /// All revisions of the set, sorted.
    versions: Vec<Version>,
    /// Its position.
    at: usize,
}

impl SetMemory {
    /// When the outcomes of deletions must be checked.
    fn checks(&self, now: Instant) -> impl Iterator<Item = Instant> {
        self.unknown_deletions.iter().map(move |it| it.next_check(now))
    }
}

impl Memory {
    /// Returns and removes the creations whose outcome is unknown.
    pub(crate) fn take_unknown_creations(&self, set: &Uid) -> Vec<UnknownCreation> {
        self.change_existing(set, |it| std::mem::take(&mut it.unknown_creations)).unwrap_or_default()
    }

    /// Whether the outcome of a creation is unknown.
    pub(crate) fn has_unknown_creations(&self, set: &Uid) -> bool {
        self.change_existing(set, |it| !it.unknown_creations.is_empty()).unwrap_or_default()
    }

    /// Keeps a creation whose outcome is unknown.
    pub(crate) fn add_unknown_creation(&self, set: &Uid, creation: UnknownCreation) {
        self.change(set, |it| it.unknown_creations.push(creation));
    }

    /// Returns and removes the deletions whose outcome is unknown.
    pub(crate) fn take_unknown_deletions(&self, set: &Uid) -> Vec<UnknownDeletion> {
        self.change_existing(set, |it| std::mem::take(&mut it.unknown_deletions)).unwrap_or_default()
    }

    /// Whether the outcome of a deletion is unknown.
    pub(crate) fn has_unknown_deletions(&self, set: &Uid) -> bool {
        self.change_existing(set, |it| !it.unknown_deletions.is_empty()).unwrap_or_default()
    }

    /// Keeps a deletion whose outcome is unknown.
    pub(crate) fn add_unknown_deletion(&self, set: &Uid, deletion: UnknownDeletion) {
        self.change(set, |it| it.unknown_deletions.push(deletion));
    }

    /// A cache that has passed `version` shows everything that was expected for too long.
    pub(crate) fn await_version(&self, set: &Uid, version: Version) {
        self.change(set, |it| {
            // After the restore of an older etcd the earlier one may never come.
            if it.awaited.as_ref().is_none_or(|awaited| version.is_older_than(awaited)) {
                it.awaited = Some(version);
            }
        });
    }

    /// What is expected from now on has nothing to do with the awaited version.
    pub(crate) fn clear_awaited(&self, set: &Uid) {
        self.change_existing(set, |it| it.awaited = None);
    }

    /// If the cache has passed the awaited version, nothing is expected any more.
    pub(crate) fn resolve_expired(&self, set: &Uid, has_passed: impl Fn(&Version) -> bool) {
        let is_fulfilled = self.expectations.is_fulfilled(set);
        let is_over = |awaited: &mut Version| is_fulfilled || has_passed(awaited);
        if self.change_existing(set, |it| it.awaited.take_if(is_over).is_some()).unwrap_or_default() {
            self.expectations.delete(set);
        }
    }

    /// When expectations expire, or the outcome of a deletion must be checked. A check that is due is not contained.
    pub(crate) fn next_deadline(&self, set: &Uid, now: Instant) -> Option<Instant> {
        let checks = self.change_existing(set, |it| it.checks(now).filter(|it| *it > now).min());
        checks.flatten().into_iter().chain(self.expectations.expires_at(set)).min()
    }

    /// Whether the outcome of a deletion must be checked now.
    pub(crate) fn is_check_due(&self, set: &Uid, now: Instant) -> bool {
        self.change_existing(set, |it| it.checks(now).any(|it| it <= now)).unwrap_or_default()
    }

    fn change_existing<T>(&self, set: &Uid, change: impl FnOnce(&mut SetMemory) -> T) -> Option<T> {
        self.sets.lock().get_mut(set).map(change)
    }

    fn change(&self, set: &Uid, change: impl FnOnce(&mut SetMemory)) {
        change(self.sets.lock().entry(set.clone()).or_default());
    }

    /// How long failed pods must stay on a node.
    pub(crate) fn backoff(&self, set: &Uid, node: &str, generation: i64, now: Instant) -> Option<Duration> {
        self.sets.lock().get(set)?.backoffs.get(node)?.remaining(generation, now)
    }

    /// A failed pod is replaced. Removes the entries of nodes on which none has failed for long.
    pub(crate) fn advance_backoff(&self, set: &Uid, node: &str, generation: i64, now: Instant) {
        let mut sets = self.sets.lock();
        let backoffs = &mut sets.entry(set.clone()).or_default().backoffs;
        backoffs.retain(|_, it| !it.has_expired(now));
        let next = FailedPodBackoff::next(backoffs.get(node).copied(), generation, now);
        backoffs.insert(node.into(), next);
    }

    /// The node of the last write that failed.
    pub(crate) fn last_failed_node(&self, set: &Uid) -> Option<Box<str>> {
        self.sets.lock().get(set)?.last_failed_node.clone()
    }

    /// Records whether a write for this node succeeded.
    pub(crate) fn record_write(&self, set: &Uid, node: &str, is_ok: bool) {
        if !is_ok {
            self.change(set, |it| it.last_failed_node = Some(node.into()));
        } else if self.last_failed_node(set).as_deref() == Some(node) {
            self.change(set, |it| it.last_failed_node = None);
        }
    }

    /// The position of the revision with the template of this generation, if the history has not changed since it was
    /// found.
    pub(crate) fn current(&self, set: &Uid, generation: i64, sorted: &[Arc<ControllerRevision>]) -> Option<usize> {
        let sets = self.sets.lock();
        let known = sets.get(set)?.current.as_ref().filter(|it| it.generation == generation)?;
        known.versions.iter().eq(sorted.iter().map(|it| &it.meta.version)).then_some(known.at)
    }

    /// Records the position of the revision with the template of this generation.
    pub(crate) fn set_current(&self, set: &Uid, generation: i64, sorted: &[Arc<ControllerRevision>], at: usize) {
        let versions = sorted.iter().map(|it| it.meta.version.clone()).collect();
        let known = KnownRevision { generation, versions, at };
        self.change(set, |it| it.current = Some(known));
    }

    /// Removes a deleted set.
    pub(crate) fn remove(&self, set: &Uid) {
        self.expectations.delete(set);
        self.notices.remove(set);
        self.sets.lock().remove(set);
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;

    #[test]
    fn an_awaited_version_does_not_concern_later_expectations() {
        let (memory, set, now) = (Memory::default(), Uid::new("u"), Clock::system().now());
        let expect = |pod: &str| memory.expectations.expect(&set, 0, [Uid::new(pod)], now);
        expect("a");
        memory.await_version(&set, Version::from(20));
        memory.expectations.deletion_observed(&set, &Uid::new("a"));
        memory.resolve_expired(&set, |_| false);
        expect("b");
        memory.resolve_expired(&set, |_| true);
        assert!(!memory.expectations.is_fulfilled(&set));
        memory.await_version(&set, Version::from(20));
        memory.await_version(&set, Version::from(5));
        memory.await_version(&set, Version::from(30));
        memory.resolve_expired(&set, |it| *it == Version::from(5));
        assert!(memory.expectations.is_fulfilled(&set));
    }
}
