//! What the process keeps about each set, by uid, so that a new set of the same name inherits nothing.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use api::{ControllerRevision, Pod, Uid, Version};
use clock::Instant;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use workload::{Expectations, NoticeLog};

use crate::rules::{backoff::Backoff, notices::Notice};

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
    unknown: Vec<UnknownWrite>,
    /// The last replacements of failed pods, by node.
    backoffs: BTreeMap<Box<str>, Backoff>,
    current: Option<KnownRevision>,
    last_failed_node: Option<Box<str>>,
}

/// A write whose outcome is unknown. It is sent again as it was: the server makes it once, because a creation has a
/// name and a deletion a uid.
pub(crate) struct UnknownWrite {
    pub(crate) write: Write,
    /// No earlier request can be running then, so that a refusal ends the wait.
    pub(crate) keep_until: Instant,
}

/// A creation or deletion of a pod.
pub(crate) enum Write {
    /// The creation of a pod.
    Create {
        /// Its name.
        name: Box<str>,
        /// The name of its node.
        node: Box<str>,
        /// The whole pod.
        body: Box<RawValue>,
    },
    /// The deletion of a pod.
    Delete(Arc<Pod>),
}

/// The revision that has the template of a generation.
struct KnownRevision {
    generation: i64,
    /// All revisions of the set, sorted.
    versions: Vec<Version>,
    /// Its position.
    at: usize,
}

impl Memory {
    /// Returns and removes the writes of a set whose outcome is unknown.
    pub(crate) fn take_unknown(&self, set: &Uid) -> Vec<UnknownWrite> {
        self.sets.lock().get_mut(set).map(|it| std::mem::take(&mut it.unknown)).unwrap_or_default()
    }

    /// Whether the outcome of a write is unknown.
    pub(crate) fn has_unknown(&self, set: &Uid) -> bool {
        self.sets.lock().get(set).is_some_and(|it| !it.unknown.is_empty())
    }

    /// Keeps a write whose outcome is unknown.
    pub(crate) fn add_unknown(&self, set: &Uid, write: UnknownWrite) {
        self.sets.lock().entry(set.clone()).or_default().unknown.push(write);
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
        let next = Backoff::next(backoffs.get(node).copied(), generation, now);
        backoffs.insert(node.into(), next);
    }

    /// The node of the last write that failed.
    pub(crate) fn last_failed_node(&self, set: &Uid) -> Option<Box<str>> {
        self.sets.lock().get(set)?.last_failed_node.clone()
    }

    /// Records that a write for this node failed.
    pub(crate) fn set_last_failed_node(&self, set: &Uid, node: &str) {
        self.sets.lock().entry(set.clone()).or_default().last_failed_node = Some(node.into());
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
        self.sets.lock().entry(set.clone()).or_default().current = Some(known);
    }

    /// Removes a deleted set.
    pub(crate) fn remove(&self, set: &Uid) {
        self.expectations.delete(set);
        self.notices.remove(set);
        self.sets.lock().remove(set);
    }
}
