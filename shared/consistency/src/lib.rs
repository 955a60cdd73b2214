//! What a controller wrote and its cache must show before it acts again (read your writes, KEP-5647).
//!
//! Each write that the server answers is told to the [`Gate`] with the version that came back. Before its next sync of
//! that owner the controller asks [`Gate::behind`]: either the caches show all of it, or the key is parked and woken by
//! the informer that was late. Only versions that our own writes returned are waited for.
//!
//! After etcd was restored to an older state the caches may never show those versions. So what is written counts as shown too
//! once a cache took a whole set, read as the most recent state and asked for after the write.
//!
//! What cannot be compared blocks nobody: a version that is empty or no number, be it of a write or of a store. A store
//! before its first set shows nothing yet; workers start when their caches have synced, so no key is parked for that.

use std::{
    collections::HashMap,
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

/// A parked key looks again after this time even if no informer wakes it.
const PARKED: Duration = Duration::from_secs(30);

/// Own writes not yet seen, by the owner's uid: a successor of the same name has a record of its own.
///
/// The check and the writes of one owner never run at once, as a key has one worker.
pub struct Gate {
    records: Mutex<HashMap<Uid, Vec<Wrote>>>,
    clock: Clock,
    skips: IntCounterVec,
}

/// The newest of our writes of one type.
#[derive(Clone)]
struct Wrote {
    cache: Arc<dyn Watched>,
    version: Version,
    /// When the last of them was answered.
    at: BootInstant,
    /// The cache holds a wake for this owner and this version.
    is_awaited: Arc<AtomicBool>,
}

impl Gate {
    /// A gate whose skips are counted as upstream does: `subsystem` such as `daemonset_controller`, `kind` such as
    /// `DaemonSet`.
    #[must_use]
    pub fn new(subsystem: &str, kind: &str, metrics: &Metrics, clock: Clock) -> Self {
        let name = format!("{subsystem}_stale_sync_skips_total");
        let help = format!("[ALPHA] Total number of {kind} syncs skipped due to a stale watch cache.");
        let skips = metrics.counters(&name, &help, &["group", "resource"]);
        Self { records: Mutex::default(), clock, skips }
    }

    /// Remembers that a write for `owner` was stored at `version`, as `client::Written` tells it, which `cache`, the
    /// informer of the written type, is to show. Deletions, which return no version, are not told.
    pub fn wrote(&self, owner: &Uid, cache: &Arc<dyn Watched>, version: &Version) {
        // It could never be waited for, and would hide a later one that can.
        if version.number().is_none() {
            return;
        }
        let at = self.clock.boot();
        let mut records = self.records.lock();
        let record = records.entry(owner.clone()).or_default();
        match record.iter_mut().find(|it| it.cache.resource() == cache.resource()) {
            Some(known) if known.version.is_older_than(version) => *known = Wrote::new(cache, version, at),
            // A set that was asked for before this write may lack it.
            Some(known) => known.at = at,
            None => record.push(Wrote::new(cache, version, at)),
        }
    }

    /// `None` when the caches show every write for `owner`, whose record is then dropped. Otherwise how long the key is
    /// to be parked at most; `wake` is called earlier, when the cache that was found late has caught up.
    pub fn behind(&self, owner: &Uid, wake: impl FnOnce() + Send + 'static) -> Option<Duration> {
        // Caches are asked outside our lock: theirs may be held by whoever calls us.
        let record = self.records.lock().get(owner).cloned()?;
        let wake = Arc::new(Mutex::new(Some(wake)));
        let late = record.iter().find(|it| !it.wake_when_passed(&wake));
        let Some(Wrote { cache, .. }) = late else {
            self.forget(owner);
            return None;
        };
        let resource = cache.resource();
        self.skips.with_label_values(&[&*resource.group, &*resource.plural]).inc();
        Some(PARKED)
    }

    /// Drops the record of `owner`, which is gone.
    pub fn forget(&self, owner: &Uid) {
        self.records.lock().remove(owner);
    }
}

impl Wrote {
    fn new(cache: &Arc<dyn Watched>, version: &Version, at: BootInstant) -> Self {
        Self { cache: cache.clone(), version: version.clone(), at, is_awaited: Arc::default() }
    }

    /// True when the cache shows it, and `wake` is still there for another. Otherwise the cache holds `wake`, or the one
    /// of an earlier look; it decides both under one lock.
    fn wake_when_passed(&self, wake: &Arc<Mutex<Option<impl FnOnce() + Send + 'static>>>) -> bool {
        // Later than the write, not at one time with it.
        if self.cache.first_set_was_consistent_after(self.at + Duration::from_nanos(1)) {
            return true;
        }
        // A key is looked at again and again while its cache is late: each look would leave one more wake.
        if self.is_awaited.swap(true, Ordering::AcqRel) {
            return self.cache.passed(&self.version);
        }
        let (wake, is_awaited) = (wake.clone(), self.is_awaited.clone());
        let call = move || {
            is_awaited.store(false, Ordering::Release);
            let wake = wake.lock().take();
            if let Some(wake) = wake {
                wake();
            }
        };
        let has_passed = self.cache.when_passed(self.version.clone(), Box::new(call));
        if has_passed {
            self.is_awaited.store(false, Ordering::Release);
        }
        has_passed
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("owners", &self.records.lock().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
