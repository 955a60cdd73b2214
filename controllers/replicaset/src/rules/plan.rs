//! How many pods to create or delete (`manageReplicas`).

use std::{cmp::Ordering, sync::Arc, time::Duration};

use api::{Pod, ReplicaSet};
use clock::Timestamp;

use crate::rules::backoff::Streak;

/// The creations, or the deletions, of one sync (`BurstReplicas`). The rest follows when the cache shows them.
pub(crate) const BURST: usize = 500;

/// At most this many pods may exist, per replica, that were created and do not count as pods of the set.
const UNCOUNTED_PER_REPLICA: usize = 2;

/// How often it is checked whether more pods may be created, because no event of an uncounted pod enqueues the set.
const LIMIT_CHECK: Duration = Duration::from_secs(60);

/// After this time a creation is tried again in a namespace that was terminating. The namespace may exist again, and an
/// API server may have had an old state of it.
pub(crate) const NAMESPACE_CHECK: Duration = Duration::from_secs(300);

/// What is known of a set at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    /// The set in the cache.
    pub(crate) set: &'a ReplicaSet,
    /// Its pods that have not ended and are not being deleted.
    pub(crate) active: &'a [Arc<Pod>],
    /// The number of its pods that are being deleted; `None` if they are not counted.
    pub(crate) terminating: Option<usize>,
    /// Its pods that failed at once.
    pub(crate) streak: Streak,
    /// The pods that were created and have not ended, but do not count as pods of the set.
    pub(crate) uncounted: usize,
    /// The namespace refuses new pods, because it is terminating.
    pub(crate) namespace_terminates: bool,
    /// The time at which everything is evaluated.
    pub(crate) now: Timestamp,
}

/// What to do for a set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The change of its pods.
    pub(crate) pods: PodChange,
    /// Why pods are missing that are not created.
    pub(crate) waiting: Option<CreationWaitCause>,
}

/// A change of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodChange {
    /// Nothing.
    Keep,
    /// Creates this many.
    Create(usize),
    /// Deletes this many.
    Delete(usize),
}

/// Why pods are not created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CreationWaitCause {
    /// Pods fail at once. They are replaced after this time.
    Backoff(Duration),
    /// Pods that were created do not count as pods of the set.
    CreationLimit,
    /// The namespace is terminating.
    Namespace,
}

/// Decides what to do. Pods that are being deleted do not count, so each is replaced at once.
pub(crate) fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let (wanted, active) = (wanted(snapshot.set), snapshot.active.len());
    match active.cmp(&wanted) {
        Ordering::Equal => Plan { pods: PodChange::Keep, waiting: None },
        Ordering::Greater => Plan { pods: PodChange::Delete((active - wanted).min(BURST)), waiting: None },
        Ordering::Less if snapshot.namespace_terminates => {
            Plan { pods: PodChange::Keep, waiting: Some(CreationWaitCause::Namespace) }
        }
        Ordering::Less => create(snapshot, wanted, wanted - active),
    }
}

fn create(snapshot: &Snapshot<'_>, wanted: usize, missing: usize) -> Plan {
    let Streak { waiting, remaining, .. } = snapshot.streak;
    let due = missing.saturating_sub(waiting);
    let allowed = due.min(wanted.saturating_mul(UNCOUNTED_PER_REPLICA).saturating_sub(snapshot.uncounted));
    let backoff = remaining.filter(|_| due < missing).map(CreationWaitCause::Backoff);
    let waiting = if allowed < due { Some(CreationWaitCause::CreationLimit) } else { backoff };
    let pods = if allowed == 0 { PodChange::Keep } else { PodChange::Create(allowed.min(BURST)) };
    Plan { pods, waiting }
}

/// The number of pods that the spec wants.
pub(crate) fn wanted(set: &ReplicaSet) -> usize {
    usize::try_from(set.spec.replicas).unwrap_or_default()
}

impl Plan {
    /// When to decide again without a change.
    pub(crate) fn check_after(&self) -> Option<Duration> {
        match self.waiting {
            Some(CreationWaitCause::Backoff(delay)) => Some(delay),
            Some(CreationWaitCause::CreationLimit) => Some(LIMIT_CHECK),
            Some(CreationWaitCause::Namespace) | None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{BASE, now, pods, set};

    /// The plan for a set of this many pods, of which some are active.
    fn check(replicas: i32, active: usize, change: impl FnOnce(&mut Snapshot<'_>)) -> Plan {
        let set = set(json!({ "replicas": replicas }));
        let active = pods(&vec!["ready"; active]);
        let mut snapshot = Snapshot { set: &set, active: &active, now: now(), ..BASE.snapshot() };
        change(&mut snapshot);
        plan(&snapshot)
    }

    fn change(replicas: i32, active: usize) -> PodChange {
        check(replicas, active, |_| {}).pods
    }

    #[test]
    fn missing_pods_are_created_and_surplus_ones_deleted() {
        assert_eq!([change(3, 3), change(0, 0)], [PodChange::Keep; 2]);
        assert_eq!([change(3, 0), change(3, 2)], [PodChange::Create(3), PodChange::Create(1)]);
        assert_eq!([change(3, 5), change(0, 1)], [PodChange::Delete(2), PodChange::Delete(1)]);
        assert_eq!(change(-1, 1), PodChange::Delete(1), "an object that no server validated");
    }

    #[test]
    fn a_sync_creates_or_deletes_at_most_500() {
        assert_eq!([change(1_000, 0), change(1_000, 600)], [PodChange::Create(500), PodChange::Create(400)]);
        assert_eq!([change(0, 1_200), change(0, 200)], [PodChange::Delete(500), PodChange::Delete(200)]);
        assert_eq!(change(i32::MAX, 1), PodChange::Create(500));
    }

    #[test]
    fn only_the_replacements_of_failed_pods_wait() {
        let second = Duration::from_secs(1);
        let streak = |waiting| Streak { rounds: 2, waiting, remaining: Some(second) };
        let plan = |waiting| check(5, 2, |it| it.streak = streak(waiting));
        let held = Some(CreationWaitCause::Backoff(second));
        assert_eq!(plan(3), Plan { pods: PodChange::Keep, waiting: held });
        assert_eq!(plan(9), Plan { pods: PodChange::Keep, waiting: held });
        assert_eq!(plan(1), Plan { pods: PodChange::Create(2), waiting: held });
        assert_eq!(plan(1).check_after(), Some(second));
        assert_eq!(check(1, 3, |it| it.streak = streak(3)), Plan { pods: PodChange::Delete(2), waiting: None });
    }

    #[test]
    fn the_creation_limit_and_a_terminating_namespace_prevent_creations() {
        let limited = |uncounted| check(5, 2, |it| it.uncounted = uncounted);
        assert_eq!(limited(7), Plan { pods: PodChange::Create(3), waiting: None });
        assert_eq!(limited(8), Plan { pods: PodChange::Create(2), waiting: Some(CreationWaitCause::CreationLimit) });
        for uncounted in [10, 11] {
            let plan = limited(uncounted);
            assert_eq!(plan, Plan { pods: PodChange::Keep, waiting: Some(CreationWaitCause::CreationLimit) });
            assert_eq!(plan.check_after(), Some(LIMIT_CHECK), "no event may come");
        }
        let terminating = |replicas| check(replicas, 2, |it| it.namespace_terminates = true);
        assert_eq!(terminating(3), Plan { pods: PodChange::Keep, waiting: Some(CreationWaitCause::Namespace) });
        assert_eq!(terminating(1).pods, PodChange::Delete(1));
    }
}
