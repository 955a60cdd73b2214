//! What a controller did and has not yet seen.
//!
//! A sync creates and deletes by a cache that is a little late. So that the next sync does not do the same again, it
//! says beforehand what it is going to do ([`Expectations::expect`]), handlers count what they see, and no sync of that
//! owner acts before all has been seen, or five minutes are over.
//!
//! The order matters: expectations are recorded *before* the writes are sent, because the watch event can come before
//! the answer; and they are asked for *before* the cache is listed.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use api::Uid;
use clock::Instant;
use parking_lot::Mutex;

/// Bounds a stall after a lost watch event: what was not seen for longer than this is not waited for.
const TTL: Duration = Duration::from_secs(5 * 60);

/// The least that timers tell apart.
const TICK: Duration = Duration::from_millis(1);

/// Expectations of all owners of one controller, by the owner's uid: a successor of the same name inherits nothing.
///
/// The delete handler of the owner calls [`Expectations::delete`].
#[derive(Debug, Default)]
pub struct Expectations(Mutex<HashMap<Uid, Record>>);

/// What is still to come. Counters may fall below zero, which counts as fulfilled: more was seen than was waited for.
#[derive(Debug)]
struct Record {
    creations: i64,
    deletions: i64,
    /// Pods whose deletion counts, each once.
    pods: HashSet<Uid>,
    since: Instant,
}

impl Record {
    fn fulfilled(&self) -> bool {
        self.creations <= 0 && self.deletions <= 0
    }

    fn has_expired(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > TTL
    }
}

impl Expectations {
    /// No expectations.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces what is expected for `owner` by `creations` new pods and the deletion of exactly these `pods`.
    pub fn expect(&self, owner: &Uid, creations: usize, pods: impl IntoIterator<Item = Uid>, now: Instant) {
        let pods: HashSet<Uid> = pods.into_iter().collect();
        let creations = i64::try_from(creations).unwrap_or(i64::MAX);
        let record = Record { creations, deletions: size(&pods), pods, since: now };
        let before = self.0.lock().insert(owner.clone(), record);
        report_overwritten(owner, before);
    }

    /// Expects `creations` new pods and nothing else.
    pub fn expect_creations(&self, owner: &Uid, creations: usize, now: Instant) {
        self.expect(owner, creations, [], now);
    }

    /// Expects the deletion of exactly these pods and nothing else.
    pub fn expect_deletions(&self, owner: &Uid, pods: impl IntoIterator<Item = Uid>, now: Instant) {
        self.expect(owner, 0, pods, now);
    }

    /// Expects the deletion of exactly these pods, beside creations that are still unseen. The expiry starts anew.
    pub fn add_deletions(&self, owner: &Uid, pods: impl IntoIterator<Item = Uid>, now: Instant) {
        let pods: HashSet<Uid> = pods.into_iter().collect();
        let mut records = self.0.lock();
        let unseen = |it: &Record| if it.has_expired(now) { 0 } else { it.creations.max(0) };
        let creations = records.get(owner).map_or(0, unseen);
        let before = records.insert(owner.clone(), Record { creations, deletions: size(&pods), pods, since: now });
        drop(records);
        report_overwritten(owner, before);
    }

    /// Expects no creation any more: what was not seen did not happen.
    pub fn drop_creations(&self, owner: &Uid) {
        if let Some(record) = self.0.lock().get_mut(owner) {
            record.creations = 0;
        }
    }

    /// Expects more, if anything is on record. The expiry stays.
    pub fn raise(&self, owner: &Uid, creations: i64, deletions: i64) {
        self.lower(owner, creations.saturating_neg(), deletions.saturating_neg());
    }

    /// Expects less, if anything is on record: a creation failed or was never tried. The expiry stays.
    pub fn lower(&self, owner: &Uid, creations: i64, deletions: i64) {
        if let Some(record) = self.0.lock().get_mut(owner) {
            record.creations = record.creations.saturating_sub(creations);
            record.deletions = record.deletions.saturating_sub(deletions);
        }
    }

    /// A pod of `owner` came into sight, or its creation failed for certain.
    pub fn creation_observed(&self, owner: &Uid) {
        self.lower(owner, 1, 0);
    }

    /// `pod` goes or is gone, or its deletion failed for certain (with "not found" too: no event will follow).
    /// Counts once, and only for a pod whose deletion is expected.
    pub fn deletion_observed(&self, owner: &Uid, pod: &Uid) {
        if let Some(record) = self.0.lock().get_mut(owner)
            && record.pods.remove(pod)
        {
            record.deletions = record.deletions.saturating_sub(1);
        }
    }

    /// True when a sync of `owner` may create and delete: nothing is on record, all of it was seen, or it has expired.
    #[must_use]
    pub fn satisfied(&self, owner: &Uid, now: Instant) -> bool {
        let records = self.0.lock();
        records.get(owner).is_none_or(|it| it.fulfilled() || it.has_expired(now))
    }

    /// True when no deletion is unseen, whatever is of creations.
    #[must_use]
    pub fn has_seen_deletions(&self, owner: &Uid, now: Instant) -> bool {
        let records = self.0.lock();
        records.get(owner).is_none_or(|it| it.deletions <= 0 || it.has_expired(now))
    }

    /// When `owner` is satisfied even if nothing more is seen; `None` when there is nothing to wait for. A sync that must
    /// not act comes again then: after a lost event nothing else would wake it.
    #[must_use]
    pub fn expires_at(&self, owner: &Uid) -> Option<Instant> {
        let records = self.0.lock();
        let record = records.get(owner)?;
        (!record.fulfilled()).then(|| record.since + TTL + TICK)
    }

    /// Forgets `owner`, which is gone.
    pub fn delete(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

fn size(pods: &HashSet<Uid>) -> i64 {
    i64::try_from(pods.len()).unwrap_or(i64::MAX)
}

/// A sync that acted without being satisfied: after an expiry, or by mistake.
fn report_overwritten(owner: &Uid, before: Option<Record>) {
    if let Some(before) = before.filter(|it| !it.pods.is_empty() && !it.fulfilled()) {
        tracing::error!(%owner, unseen = before.deletions, "Expected deletions were overwritten before all were seen");
    }
}

#[cfg(test)]
mod tests;
