use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use api::{ObjectKey, Resource, Uid, Version};
use clock::{Clock, Instant};
use parking_lot::Mutex;

use crate::{ApiError, Written};

/// After this time a write is in every cache whose server responds, because a frozen watch is replaced within 90 s. If
/// no watch gets a response, a cache may be older than this memory. A caller of [`RecentWrites::writes`] must exclude
/// such caches (`informer::Watched::unanswered`).
const RETENTION: Duration = Duration::from_secs(100);
/// The maximum number of deletions of one type that are kept individually.
const MAX_DELETIONS: usize = 10_000;

/// The recent writes of this manager, by type. A leader that stops waits until its own caches contain them, so that it
/// can report to its successor up to which version to read.
#[derive(Clone)]
pub struct RecentWrites(Arc<Inner>);

struct Inner {
    clock: Clock,
    types: Mutex<BTreeMap<Resource, TypeWrites>>,
}

#[derive(Default)]
struct TypeWrites {
    newest: Option<Version>,
    deleted: VecDeque<(Instant, DeletedObject)>,
    /// When a write with an unknown result was last sent.
    untracked: Option<Instant>,
}

/// An object for which a DELETE was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedObject {
    /// Its namespace and name.
    pub key: ObjectKey,
    /// The uid that the DELETE named. A cached object with another one counts as created later.
    pub uid: Option<Uid>,
}

/// The writes of one type that the caches must contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writes {
    /// The highest resourceVersion that a write returned.
    pub newest: Option<Version>,
    /// The objects that we deleted. They are gone or have a deletionTimestamp.
    pub deleted: Vec<DeletedObject>,
    /// True if there was a write with an unknown result.
    pub untracked: bool,
}

impl RecentWrites {
    /// No writes.
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Arc::new(Inner { clock, types: Mutex::default() }))
    }

    /// Records the resourceVersion that a write returned.
    pub(crate) fn record_write(&self, resource: &Resource, version: &Version) {
        let mut types = self.0.types.lock();
        let newest = &mut types.entry(resource.clone()).or_default().newest;
        if newest.as_ref().is_none_or(|it| it.is_older_than(version)) {
            *newest = Some(version.clone());
        }
    }

    /// Records that a DELETE of one object was sent. Its response contains no resourceVersion.
    pub(crate) fn record_deletion(&self, resource: &Resource, deleted: DeletedObject) {
        let now = self.0.clock.now();
        let mut types = self.0.types.lock();
        let it = types.entry(resource.clone()).or_default();
        it.remove_old(now);
        if it.deleted.len() == MAX_DELETIONS {
            it.deleted.pop_front();
            it.untracked = Some(now);
        }
        it.deleted.push_back((now, deleted));
    }

    /// Records a write with an unknown result: a collection was deleted, or a response was lost.
    pub(crate) fn record_unknown_outcome(&self, resource: &Resource) {
        let now = self.0.clock.now();
        self.0.types.lock().entry(resource.clone()).or_default().untracked = Some(now);
    }

    /// Records that a write is sent whose response will contain the stored object. Without a response its result is
    /// unknown.
    pub(crate) fn begin_write(&self, resource: &Resource) -> WriteInFlight<'_> {
        WriteInFlight { recent_writes: self, resource: Some(resource.clone()) }
    }

    /// All types with writes, and what the caches must contain. Writes older than 100 s count as contained in them,
    /// which is true only if the server responds to our watches.
    #[must_use]
    pub fn writes(&self) -> Vec<(Resource, Writes)> {
        let now = self.0.clock.now();
        let mut types = self.0.types.lock();
        let written = types.iter_mut().map(|(resource, it)| {
            it.remove_old(now);
            let writes = Writes {
                newest: it.newest.clone(),
                deleted: it.deleted.iter().map(|(_, it)| it.clone()).collect(),
                untracked: it.untracked.is_some(),
            };
            (resource.clone(), writes)
        });
        written.collect()
    }
}

/// A write in flight. If the caller drops it, the server may store it all the same.
pub(crate) struct WriteInFlight<'a> {
    recent_writes: &'a RecentWrites,
    /// `None` when the outcome is known.
    resource: Option<Resource>,
}

impl WriteInFlight<'_> {
    /// Records the outcome.
    pub(crate) fn record_outcome(mut self, outcome: &Result<Written, ApiError>) {
        let Some(resource) = self.resource.take() else { return };
        match outcome {
            Ok(written) => self.recent_writes.record_write(&resource, &written.version),
            Err(ApiError::Unknown { .. }) => self.recent_writes.record_unknown_outcome(&resource),
            Err(_) => {}
        }
    }
}

impl Drop for WriteInFlight<'_> {
    fn drop(&mut self) {
        if let Some(resource) = &self.resource {
            self.recent_writes.record_unknown_outcome(resource);
        }
    }
}

impl TypeWrites {
    fn remove_old(&mut self, now: Instant) {
        let old = |at: Instant| now.saturating_duration_since(at) > RETENTION;
        while self.deleted.front().is_some_and(|(at, _)| old(*at)) {
            self.deleted.pop_front();
        }
        if self.untracked.is_some_and(old) {
            self.untracked = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn newest_write_and_recent_deletions_are_kept() {
        let recent_writes = RecentWrites::new(Clock::virtual_from(clock::Timestamp::UNIX_EPOCH));
        let pods = Resource::namespaced("", "v1", "pods", "Pod");
        for version in [9, 10, 7] {
            recent_writes.record_write(&pods, &Version::from(version));
        }
        let deleted = DeletedObject { key: ObjectKey::new("a", "b"), uid: Some(Uid::new("u")) };
        recent_writes.record_deletion(&pods, deleted.clone());
        recent_writes.record_unknown_outcome(&pods);
        let all = Writes { newest: Some(Version::from(10)), deleted: vec![deleted], untracked: true };
        assert_eq!(recent_writes.writes(), [(pods.clone(), all)]);
        tokio::time::advance(RETENTION + Duration::from_secs(1)).await;
        let rest = Writes { newest: Some(Version::from(10)), ..Writes::default() };
        assert_eq!(recent_writes.writes(), [(pods, rest)]);
    }

    #[tokio::test(start_paused = true)]
    async fn each_outcome_of_a_write_is_recorded() {
        let seven = || {
            Ok(Written {
                name: "a".into(),
                uid: Uid::default(),
                version: Version::from(7),
                creation: None,
                controller: None,
            })
        };
        let term_ended = || Err(ApiError::NotSent(crate::NotSent::TermEnded));
        let busy = || ApiError::from_status(api::Status { code: 429, ..api::Status::default() }, None);
        let stored = Writes { newest: Some(Version::from(7)), ..Writes::default() };
        let unknown = Writes { untracked: true, ..Writes::default() };
        for (name, outcome, want) in [
            ("stored", Some(seven()), Some(stored)),
            ("no response", Some(Err(ApiError::unknown("reset"))), Some(unknown.clone())),
            ("stopped by the fence", Some(term_ended()), None),
            ("server busy", Some(Err(busy())), None),
            ("dropped by its caller", None, Some(unknown)),
        ] {
            let recent_writes = RecentWrites::new(Clock::virtual_from(clock::Timestamp::UNIX_EPOCH));
            let pods = Resource::namespaced("", "v1", "pods", "Pod");
            let write = recent_writes.begin_write(&pods);
            match outcome {
                Some(outcome) => write.record_outcome(&outcome),
                None => drop(write),
            }
            let want: Vec<_> = want.map(|it| (pods, it)).into_iter().collect();
            assert_eq!(recent_writes.writes(), want, "{name}");
        }
    }
}
