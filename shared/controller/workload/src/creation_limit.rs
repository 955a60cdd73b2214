//! Limits the creations for an owner, such as a Job, if another client changes each new pod so that it must be
//! replaced.
//!
//! If the other client removes the labels or the owner of each new pod, the controller creates another one each time.
//! So the pods that were created for an owner and have not ended are counted, whatever controls them now. If the other
//! client removes our finalizer, the controller itself deletes and replaces the pods; these are counted too.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use api::Uid;
use clock::Instant;

/// An owner may have at most this many pods that have not ended, per unit of its parallelism.
const FACTOR: usize = 2;

/// How long a slot stays occupied after its pod had lost our finalizer and was deleted. It is the longest
/// back-off, because the client that removed the finalizer will probably remove the next one too.
const WITHOUT_FINALIZER_SLOT_TIME: Duration = Duration::from_secs(10 * 60);

/// The pods that this process created and that have not ended, by the uid of their owner. Each event takes constant time.
#[derive(Debug, Default)]
pub struct CreationLimit {
    owners: HashMap<Uid, HashSet<Uid>>,
    pods: HashMap<Uid, CreatedPod>,
    /// When pods were deleted because they had no finalizer, in ascending order, by the uid of their owner.
    without_finalizer: HashMap<Uid, VecDeque<Instant>>,
}

/// A created pod.
#[derive(Debug)]
struct CreatedPod {
    /// The owner that it was created for. The pod's labels and owner may have changed since.
    owner: Uid,
    /// The cache has shown it, so the cache will also show its end.
    is_seen: bool,
}

impl CreationLimit {
    /// A pod was created for `owner`.
    pub fn on_pod_created(&mut self, owner: &Uid, pod: Uid) {
        self.pods.entry(pod.clone()).or_insert_with(|| CreatedPod { owner: owner.clone(), is_seen: false });
        self.owners.entry(owner.clone()).or_default().insert(pod);
    }

    /// The cache shows `pod`.
    pub fn on_pod_seen(&mut self, pod: &Uid) {
        if let Some(created) = self.pods.get_mut(pod) {
            created.is_seen = true;
        }
    }

    /// The cache has passed the creation of `pod`. If it never showed the pod, the pod is gone; then its owner is
    /// returned.
    pub fn on_cache_passed_creation(&mut self, pod: &Uid) -> Option<Uid> {
        self.pods.get(pod).filter(|it| !it.is_seen)?;
        self.on_pod_stopped(pod)
    }

    /// `pod` has ended, is being deleted, or is gone. Returns its owner if the pod was counted here.
    pub fn on_pod_stopped(&mut self, pod: &Uid) -> Option<Uid> {
        let CreatedPod { owner, .. } = self.pods.remove(pod)?;
        if let Some(pods) = self.owners.get_mut(&owner) {
            pods.remove(pod);
            if pods.is_empty() {
                self.owners.remove(&owner);
            }
        }
        Some(owner)
    }

    /// `pod` will be deleted because our finalizer is missing. Its slot stays occupied for ten minutes.
    pub fn on_delete_without_finalizer(&mut self, pod: &Uid, now: Instant) {
        if let Some(owner) = self.on_pod_stopped(pod) {
            self.without_finalizer.entry(owner).or_default().push_back(now);
        }
    }

    /// `owner` is gone or has ended.
    pub fn remove_owner(&mut self, owner: &Uid) {
        self.without_finalizer.remove(owner);
        for pod in self.owners.remove(owner).into_iter().flatten() {
            self.pods.remove(&pod);
        }
    }

    /// How many more pods may be created for `owner`, and when the next slot becomes free even if no pod ends.
    pub fn free_slots(&mut self, owner: &Uid, parallelism: i32, now: Instant) -> (usize, Option<Duration>) {
        let without_finalizer = self.without_finalizer.get_mut(owner);
        let (without_finalizer, next) = without_finalizer.map_or((0, None), |it| {
            while it.front().is_some_and(|it| *it + WITHOUT_FINALIZER_SLOT_TIME <= now) {
                it.pop_front();
            }
            (it.len(), it.front().map(|it| (*it + WITHOUT_FINALIZER_SLOT_TIME).saturating_duration_since(now)))
        });
        if without_finalizer == 0 {
            self.without_finalizer.remove(owner);
        }
        (free_slots(without_finalizer + self.owners.get(owner).map_or(0, HashSet::len), parallelism), next)
    }

    /// True when no owner has an entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self { owners, pods, without_finalizer } = self;
        owners.is_empty() && pods.is_empty() && without_finalizer.is_empty()
    }
}

/// How many more pods may be created when `not_ended` pods have not ended.
fn free_slots(not_ended: usize, parallelism: i32) -> usize {
    let most = FACTOR.saturating_mul(usize::try_from(parallelism).unwrap_or_default());
    most.saturating_sub(not_ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uid(name: &str) -> Uid {
        Uid::new(name)
    }

    fn now() -> Instant {
        clock::Clock::system().now()
    }

    fn free_slots(limit: &mut CreationLimit, owner: &Uid, parallelism: i32) -> usize {
        limit.free_slots(owner, parallelism, now()).0
    }

    #[test]
    fn pods_that_never_end_limit_creations_to_twice_the_parallelism() {
        let mut limit = CreationLimit::default();
        let (owner, other) = (uid("owner"), uid("other"));
        for pod in ["a", "b", "c", "d"] {
            limit.on_pod_created(&owner, uid(pod));
        }
        assert_eq!(
            [free_slots(&mut limit, &owner, 2), free_slots(&mut limit, &owner, 3), free_slots(&mut limit, &other, 2)],
            [0, 2, 4]
        );
        // A repeated creation counts once.
        limit.on_pod_created(&owner, uid("d"));
        assert_eq!(free_slots(&mut limit, &owner, 3), 2);
        // With a lower parallelism the number is zero, not negative.
        assert_eq!(free_slots(&mut limit, &owner, 1), 0);
    }

    #[test]
    fn an_ended_pod_frees_its_slot_once() {
        let mut limit = CreationLimit::default();
        let owner = uid("owner");
        limit.on_pod_created(&owner, uid("a"));
        limit.on_pod_created(&owner, uid("b"));
        assert_eq!(limit.on_pod_stopped(&uid("a")), Some(owner.clone()));
        assert_eq!((limit.on_pod_stopped(&uid("a")), limit.on_pod_stopped(&uid("stranger"))), (None, None));
        assert_eq!(free_slots(&mut limit, &owner, 1), 1);
    }

    #[test]
    fn a_pod_deleted_before_the_cache_shows_it_frees_its_slot() {
        let (mut limit, owner) = (CreationLimit::default(), uid("owner"));
        for pod in ["a", "b"] {
            limit.on_pod_created(&owner, uid(pod));
        }
        limit.on_pod_seen(&uid("a"));
        limit.on_pod_created(&owner, uid("a"));
        assert_eq!(
            [limit.on_cache_passed_creation(&uid("a")), limit.on_cache_passed_creation(&uid("b"))],
            [None, Some(owner.clone())]
        );
        assert_eq!((limit.on_cache_passed_creation(&uid("b")), free_slots(&mut limit, &owner, 1)), (None, 1));
    }

    #[test]
    fn removed_jobs_and_pods_leave_no_entry() {
        let mut limit = CreationLimit::default();
        let owner = uid("owner");
        for pod in ["a", "b"] {
            limit.on_pod_created(&owner, uid(pod));
        }
        limit.on_delete_without_finalizer(&uid("b"), now());
        limit.remove_owner(&owner);
        assert!(limit.is_empty());
        limit.on_pod_created(&owner, uid("c"));
        limit.on_pod_stopped(&uid("c"));
        assert!(limit.is_empty());
    }

    #[test]
    fn an_untracked_pod_frees_its_slot_some_time_after_its_deletion() {
        let (mut limit, owner, now) = (CreationLimit::default(), uid("owner"), now());
        let later = |secs: u64| now + Duration::from_secs(secs);
        for (pod, at) in [("a", 0), ("b", 60)] {
            limit.on_pod_created(&owner, uid(pod));
            limit.on_delete_without_finalizer(&uid(pod), later(at));
            assert_eq!(limit.on_pod_stopped(&uid(pod)), None, "its deletion event changes nothing");
        }
        assert_eq!(limit.free_slots(&owner, 1, later(60)), (0, Some(Duration::from_secs(540))));
        assert_eq!(limit.free_slots(&owner, 1, later(600)), (1, Some(Duration::from_secs(60))));
        assert_eq!(limit.free_slots(&owner, 1, later(660)), (2, None));
        assert!(limit.is_empty());
    }
}
