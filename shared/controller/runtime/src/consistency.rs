//! Makes a controller wait until its cache shows its own writes (read your writes, KEP-5647).
//!
//! After each write the controller calls [`ConsistencyStore::record_write`] with the returned resourceVersion. Before
//! the next sync of that owner it calls [`ConsistencyStore::park_if_stale`]. If a cache does not show all writes, the
//! key is parked, and the informer enqueues it when it has caught up. Only resourceVersions of our own writes are
//! awaited.
//!
//! After etcd was restored to an older state, the caches may never show those versions. So a write also counts as shown
//! when the cache has received a complete list that was read as the most recent state and requested after the write.
//!
//! A resourceVersion that is empty or not a number, of a write or of a store, cannot be compared and blocks nothing. A
//! store before its first list shows no write. Workers start only when their caches have synced, so no key is parked
//! for that.

use std::{
    collections::HashMap,
    fmt,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use api::{Uid, Version};
use clock::{BootInstant, Clock};
use informer::Watched;
use metrics::{IntCounterVec, Metrics};
use parking_lot::Mutex;

use crate::Queue;

/// A parked key is synced after this time even if no informer enqueues it.
const PARKED: Duration = Duration::from_secs(30);

/// Own writes that the caches do not show yet, by the owner's uid, so that a new owner of the same name has its own
/// record.
///
/// The check and the writes of one owner never run concurrently, because a key has only one worker.
pub struct ConsistencyStore {
    is_enabled: bool,
    records: Mutex<HashMap<Uid, Vec<LastWrite>>>,
    clock: Clock,
    skips: IntCounterVec,
}

/// The newest write of one type.
#[derive(Clone)]
struct LastWrite {
    cache: Arc<dyn Watched>,
    version: Version,
    /// When the response of the last write came.
    at: BootInstant,
    /// The cache holds a callback for this owner and version.
    is_awaited: Arc<AtomicBool>,
}

impl ConsistencyStore {
    /// A store with the skip counter of upstream; `subsystem` is for example `daemonset_controller`, and `kind`
    /// `DaemonSet`. If it is not enabled, no write is recorded, so no key is parked.
    #[must_use]
    pub fn new(subsystem: &str, kind: &str, is_enabled: bool, metrics: &Metrics, clock: Clock) -> Self {
        let name = format!("{subsystem}_stale_sync_skips_total");
        let help = format!("[ALPHA] Total number of {kind} syncs skipped due to a stale watch cache.");
        let skips = metrics.counters(&name, &help, &["group", "resource"]);
        Self { is_enabled, records: Mutex::default(), clock, skips }
    }

    /// Whether writes are recorded. If true, and the key is not parked, the caches show all recorded writes for its
    /// owner.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.is_enabled
    }

    /// Records that a write for `owner` was stored with `version`, from `client::Written`. `cache` is the informer of
    /// the written type. Deletions are not recorded, because they return no resourceVersion.
    pub fn record_write(&self, owner: &Uid, cache: &Arc<dyn Watched>, version: &Version) {
        // Such a version cannot be compared, and would replace an earlier one that can.
        if !self.is_enabled || version.number().is_none() {
            return;
        }
        let at = self.clock.boot();
        let mut records = self.records.lock();
        let record = records.entry(owner.clone()).or_default();
        match record.iter_mut().find(|it| it.cache.resource() == cache.resource()) {
            Some(known) if known.version.is_older_than(version) => *known = LastWrite::new(cache, version, at),
            // A list that was requested before this write may not contain it.
            Some(known) => known.at = at,
            None => record.push(LastWrite::new(cache, version, at)),
        }
    }

    /// `None` if the caches show every write for `owner`; then its record is removed. Otherwise the longest time to
    /// park the key. It is enqueued earlier when the late cache has caught up.
    pub fn park_if_stale<K>(&self, owner: &Uid, queue: &Queue<K>, key: &K) -> Option<Duration>
    where
        K: Clone + Eq + Hash + Send + fmt::Debug + 'static,
    {
        let (queue, key) = (queue.clone(), key.clone());
        self.park_or_wake(owner, move || queue.add(key))
    }

    fn park_or_wake(&self, owner: &Uid, wake: impl FnOnce() + Send + 'static) -> Option<Duration> {
        // Caches are called without our lock, because a caller may hold the lock of a cache.
        let record = self.records.lock().get(owner).cloned()?;
        let wake = Arc::new(Mutex::new(Some(wake)));
        let late = record.iter().find(|it| !it.call_when_passed(&wake));
        let Some(LastWrite { cache, .. }) = late else {
            self.remove(owner);
            return None;
        };
        let resource = cache.resource();
        self.skips.with_label_values(&[&*resource.group, &*resource.plural]).inc();
        Some(PARKED)
    }

    /// Removes the record of a deleted `owner`.
    pub fn remove(&self, owner: &Uid) {
        self.records.lock().remove(owner);
    }
}

impl LastWrite {
    fn new(cache: &Arc<dyn Watched>, version: &Version, at: BootInstant) -> Self {
        Self { cache: cache.clone(), version: version.clone(), at, is_awaited: Arc::default() }
    }

    /// Returns true when the cache shows the write; then `wake` is not used. Otherwise the cache holds `wake`, or the
    /// callback of an earlier call. The cache decides both under one lock.
    fn call_when_passed(&self, wake: &Arc<Mutex<Option<impl FnOnce() + Send + 'static>>>) -> bool {
        // The list must be requested after the write, not at the same instant.
        if self.cache.has_consistent_list_since(self.at + Duration::from_nanos(1)) {
            return true;
        }
        // A key may be checked many times while its cache is behind. Only the first check adds a callback.
        if self.is_awaited.swap(true, Ordering::AcqRel) {
            return self.cache.has_passed(&self.version);
        }
        let (wake, is_awaited) = (wake.clone(), self.is_awaited.clone());
        let call = move || {
            is_awaited.store(false, Ordering::Release);
            let wake = wake.lock().take();
            if let Some(wake) = wake {
                wake();
            }
        };
        let has_passed = self.cache.call_when_passed(self.version.clone(), Box::new(call));
        if has_passed {
            self.is_awaited.store(false, Ordering::Release);
        }
        has_passed
    }
}

impl std::fmt::Debug for ConsistencyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsistencyStore").field("owners", &self.records.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
