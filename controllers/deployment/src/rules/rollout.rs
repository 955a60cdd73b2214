//! The sizes of old ReplicaSets in a rolling update.

use api::ReplicaSet;

use crate::rules::{
    limits::Limits,
    snapshot::{Snapshot, size},
};

/// The next sizes of the old ReplicaSets that are scaled down (`reconcileOldReplicaSets`), oldest first. `new` is the
/// new ReplicaSet as size and available pods; a set that is created in this sync has no pods yet.
pub(crate) fn scaled_down_old_sets(snapshot: &Snapshot<'_>, new: (i64, i64)) -> Vec<(usize, i64)> {
    let limits = snapshot.limits();
    let mut sets: Vec<OldSet> = snapshot.active_old().map(|(at, set)| OldSet::new(at, set)).collect();
    let (new_size, new_available) = new;
    // A new set that was just scaled down may still count pods as available that are being deleted.
    let new_available = new_available.min(new_size);
    let total = sets.iter().map(|it| it.size).sum::<i64>() + new_size;
    let budget = total - limits.min_available() - (new_size - new_available);
    if budget <= 0 || snapshot.active_old().any(|(_, set)| may_count_deleted_pods(set)) {
        return Vec::new();
    }
    scale_down_unhealthy(&mut sets, budget);
    scale_down_available(&mut sets, limits, new_available);
    sets.into_iter().filter(|it| it.next != it.size).map(|it| (it.at, it.next)).collect()
}

/// The available pods of the new ReplicaSet. A status before its last change of size may count pods that were deleted.
pub(crate) fn available_of_new(set: &ReplicaSet) -> i64 {
    if is_observed(set) { i64::from(set.status.available) } else { 0 }
}

/// Pods that are being deleted may count as available. Nothing is decided until the status has caught up, because they
/// would be counted twice.
fn may_count_deleted_pods(set: &ReplicaSet) -> bool {
    !is_observed(set) || i64::from(set.status.available) > size(set)
}

/// The status is of the present size or a later one.
fn is_observed(set: &ReplicaSet) -> bool {
    set.status.observed_generation >= set.generation
}

struct OldSet {
    at: usize,
    size: i64,
    available: i64,
    next: i64,
}

impl OldSet {
    fn new(at: usize, set: &ReplicaSet) -> Self {
        Self { at, size: size(set), available: i64::from(set.status.available), next: size(set) }
    }
}

/// Pods that are not available go first; they would block the rollout (`cleanupUnhealthyReplicas`, k/k#16737). A
/// ReplicaSet deletes such pods before others.
fn scale_down_unhealthy(sets: &mut [OldSet], mut budget: i64) {
    for set in sets {
        let cut = (set.size - set.available).min(budget);
        set.next -= cut;
        budget -= cut;
    }
}

/// Available pods go as long as enough others are available (`scaleDownOldReplicaSetsForRollingUpdate`).
fn scale_down_available(sets: &mut [OldSet], limits: Limits, new_available: i64) {
    let available = sets.iter().map(|it| it.available).sum::<i64>() + new_available;
    let mut surplus = (available - limits.min_available()).max(0);
    for set in sets {
        let cut = set.next.min(surplus);
        set.next -= cut;
        surplus -= cut;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::{World, deployment};

    /// The sizes of all old sets after a step of a Deployment of 10 with surge 3 and 2 unavailable.
    fn sizes(old: &[&str], new: (i64, i64)) -> Vec<i64> {
        let rolling = json!({ "maxSurge": 3, "maxUnavailable": 2 });
        let spec = json!({ "replicas": 10, "strategy": { "type": "RollingUpdate", "rollingUpdate": rolling } });
        let world = World::new(deployment(spec), old);
        let snapshot = world.snapshot();
        let next = scaled_down_old_sets(&snapshot, new);
        let size_of = |(at, set): (usize, &ReplicaSet)| {
            next.iter().find(|(it, _)| *it == at).map_or(i64::from(set.spec.replicas), |it| it.1)
        };
        snapshot.all().map(size_of).collect()
    }

    #[test]
    fn old_sets_are_scaled_down_while_enough_pods_are_available() {
        for (name, old, new, want) in [
            ("the new set was just created", &["a old 10"][..], (3, 0), &[8][..]),
            ("no new pod is available", &["a old 8"], (5, 0), &[8]),
            ("one old pod was lost", &["a old 8/7"], (5, 0), &[8]),
            ("one new pod is available", &["a old 8"], (5, 1), &[7]),
            ("the template was reverted: broken pods go", &["b old 5/0"], (8, 7), &[1]),
            ("a third template: all broken pods go", &["a old 8 age:2", "b old 5/0 age:1"], (0, 0), &[8, 0]),
            ("all new pods are available", &["a old 2"], (10, 10), &[0]),
            ("there is nothing to scale down", &["a old 0"], (10, 10), &[0]),
            ("available pods of the new set that is larger than its size", &["a old 8"], (5, 9), &[3]),
        ] {
            assert_eq!(sizes(old, new), want, "{name}");
        }
    }

    #[test]
    fn acceptance_deploy_030_unhealthy_pods_of_older_sets_go_first() {
        // 11 old pods, 2 + 2 of them not available; 13 - 8 - 2 = 3 may go.
        let old = ["a old 6/4 age:2", "b old 5/3 age:1"];
        assert_eq!(sizes(&old, (2, 0)), [4, 4]);
    }

    #[test]
    fn acceptance_deploy_032_a_late_status_of_an_old_set_stops_all_until_it_has_caught_up() {
        assert_eq!(sizes(&["a old 5/8 age:2", "b old 3 age:1"], (5, 5)), [5, 3]);
        assert_eq!(sizes(&["a old 5 age:2", "b old 3 age:1"], (5, 5)), [0, 3]);
        assert_eq!(sizes(&["a old 5 unobserved age:2", "b old 3 age:1"], (5, 5)), [5, 3], "scaled down and up again");
        assert_eq!(sizes(&["a old 5 age:2", "b old 0 unobserved age:1"], (5, 5)), [3, 0], "has no pods to count");
    }

    #[test]
    fn random_steps_keep_enough_pods_available() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..5_000 {
            let mut pair = || {
                let size = rng.i64(0..12);
                (size, rng.i64(0..=size))
            };
            let (a, b, new) = (pair(), pair(), pair());
            let old = [format!("a old {}/{} age:2", a.0, a.1), format!("b old {}/{} age:1", b.0, b.1)];
            let next = sizes(&[&old[0], &old[1]], new);
            // A ReplicaSet deletes pods that are not available first.
            let still_available = next[0].min(a.1) + next[1].min(b.1) + new.1;
            let before = a.1 + b.1 + new.1;
            assert!(still_available >= before.min(8), "{old:?} {new:?} -> {next:?}");
            assert!(next[0] <= a.0 && next[1] <= b.0 && next.iter().all(|it| *it >= 0));
        }
    }
}
