//! The writes of a controller that its cache does not show yet.
//!
//! A sync creates and deletes pods from a cache that may be slightly behind. To prevent that the next sync repeats
//! this, a sync first records its writes ([`Expectations::expect`]) and handlers count the observed ones. No sync of
//! that owner writes until all are observed or five minutes have passed.
//!
//! The order matters. Expectations are recorded *before* the requests are sent, because the watch event may come before
//! the response. They are checked *before* the cache is listed.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use api::Uid;
use clock::Instant;
use parking_lot::Mutex;

/// The timeout of an expectation (client-go's `ExpectationsTimeout`). Limits a stall after a lost watch event.
const TTL: Duration = Duration::from_secs(5 * 60);

/// The resolution of timers.
const TICK: Duration = Duration::from_millis(1);

/// The expectations of all owners of one controller, by the owner's uid, so that a new owner of the same name inherits
/// none.
///
/// The delete handler of the owner must call [`Expectations::delete`].
#[derive(Debug, Default)]
pub struct Expectations(Mutex<HashMap<Uid, Record>>);

/// The outstanding expectations. A counter below zero counts as fulfilled: more was observed than was expected.
#[derive(Debug)]
struct Record {
    creations: i64,
    deletions: i64,
    /// The pods whose deletion is expected; each counts once.
    pods: HashSet<Uid>,
    since: Instant,
}

impl Record {
    fn is_fulfilled(&self) -> bool {
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

    /// Replaces the expectations of `owner` by `creations` new pods and the deletion of exactly these `pods`.
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

    /// Expects the deletion of exactly these pods, in addition to outstanding creations. The timeout starts again.
    pub fn add_deletions(&self, owner: &Uid, pods: impl IntoIterator<Item = Uid>, now: Instant) {
        let pods: HashSet<Uid> = pods.into_iter().collect();
        let mut records = self.0.lock();
        let unseen = |it: &Record| if it.has_expired(now) { 0 } else { it.creations.max(0) };
        let creations = records.get(owner).map_or(0, unseen);
        let before = records.insert(owner.clone(), Record { creations, deletions: size(&pods), pods, since: now });
        drop(records);
        report_overwritten(owner, before);
    }

    /// Expects no creation any more, because creations that were not observed did not happen.
    pub fn drop_creations(&self, owner: &Uid) {
        if let Some(record) = self.0.lock().get_mut(owner) {
            record.creations = 0;
        }
    }

    /// Adds to the expectations of `owner`, if there are any. The timeout does not change.
    pub fn raise(&self, owner: &Uid, creations: i64, deletions: i64) {
        self.lower(owner, creations.saturating_neg(), deletions.saturating_neg());
    }

    /// Subtracts from the expectations of `owner`, if there are any, because a creation failed or was not tried. The
    /// timeout does not change.
    pub fn lower(&self, owner: &Uid, creations: i64, deletions: i64) {
        if let Some(record) = self.0.lock().get_mut(owner) {
            record.creations = record.creations.saturating_sub(creations);
            record.deletions = record.deletions.saturating_sub(deletions);
        }
    }

    /// A pod of `owner` was observed, or its creation has certainly failed.
    pub fn creation_observed(&self, owner: &Uid) {
        self.lower(owner, 1, 0);
    }

    /// `pod` is being deleted or gone, or its deletion has certainly failed. Also called after "not found", because no
    /// event may follow. Counts once, and only for a pod whose deletion is expected.
    pub fn deletion_observed(&self, owner: &Uid, pod: &Uid) {
        if let Some(record) = self.0.lock().get_mut(owner)
            && record.pods.remove(pod)
        {
            record.deletions = record.deletions.saturating_sub(1);
        }
    }

    /// Whether a sync of `owner` may create and delete: nothing is expected, all was observed, or the timeout is over.
    #[must_use]
    pub fn is_satisfied(&self, owner: &Uid, now: Instant) -> bool {
        let records = self.0.lock();
        records.get(owner).is_none_or(|it| it.is_fulfilled() || it.has_expired(now))
    }

    /// Whether nothing is outstanding, whatever the time. For a caller that reads the server when the timeout is over.
    #[must_use]
    pub fn is_fulfilled(&self, owner: &Uid) -> bool {
        self.0.lock().get(owner).is_none_or(Record::is_fulfilled)
    }

    /// Whether all expected deletions were observed, regardless of creations.
    #[must_use]
    pub fn has_observed_deletions(&self, owner: &Uid, now: Instant) -> bool {
        let records = self.0.lock();
        records.get(owner).is_none_or(|it| it.deletions <= 0 || it.has_expired(now))
    }

    /// The pods whose expected deletion was not observed.
    #[must_use]
    pub fn expected_deletions(&self, owner: &Uid) -> HashSet<Uid> {
        self.0.lock().get(owner).map(|it| it.pods.clone()).unwrap_or_default()
    }

    /// If the timeout of `owner` is over and something is outstanding, starts the timeout again and returns true. For a
    /// caller that reads the server when the timeout is over.
    #[must_use]
    pub fn renew_expired(&self, owner: &Uid, now: Instant) -> bool {
        let mut records = self.0.lock();
        let expired = records.get_mut(owner).filter(|it| !it.is_fulfilled() && it.has_expired(now));
        expired.map(|it| it.since = now).is_some()
    }

    /// Sets the timeout of `owner` to end after this delay, because the read of the server failed.
    pub fn expire_after(&self, owner: &Uid, delay: Duration, now: Instant) {
        if let (Some(record), Some(since)) = (self.0.lock().get_mut(owner), (now + delay).checked_sub(TTL)) {
            record.since = since;
        }
    }

    /// When the timeout of `owner` is over; `None` if nothing is outstanding. A sync that must not write is requeued
    /// for this time, because after a lost event nothing else would enqueue the key.
    #[must_use]
    pub fn expires_at(&self, owner: &Uid) -> Option<Instant> {
        let records = self.0.lock();
        let record = records.get(owner)?;
        (!record.is_fulfilled()).then(|| record.since + TTL + TICK)
    }

    /// Removes the expectations of a deleted `owner`.
    pub fn delete(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

fn size(pods: &HashSet<Uid>) -> i64 {
    i64::try_from(pods.len()).unwrap_or(i64::MAX)
}

/// Reports a sync that wrote although expectations were outstanding: the timeout was over, or there is a bug.
fn report_overwritten(owner: &Uid, before: Option<Record>) {
    if let Some(before) = before.filter(|it| !it.pods.is_empty() && !it.is_fulfilled()) {
        tracing::error!(%owner, unseen = before.deletions, "Expected deletions were overwritten before all were observed");
    }
}

#[cfg(test)]
mod tests;
