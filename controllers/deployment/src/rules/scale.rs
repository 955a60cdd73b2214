//! Proportional scaling: a changed number of replicas in mid-rollout must not hasten the rollout.

use api::ReplicaSet;

use crate::rules::{
    annotations::{self, MAX_REPLICAS},
    limits::Limits,
    snapshot::size,
};

/// The next sizes of active ReplicaSets, which are given oldest first (`scale`). `present` is the number of pods in the
/// status of the Deployment. The results are in the order in which the sets are written.
pub(crate) fn proportional<'a>(
    active: impl Iterator<Item = (usize, &'a ReplicaSet)>,
    limits: Limits,
    present: i32,
) -> Vec<(usize, i64)> {
    let mut sets: Vec<(usize, &ReplicaSet)> = active.collect();
    let allowed = if limits.replicas > 0 { limits.max_total() } else { 0 };
    let missing = allowed - sets.iter().map(|(_, set)| size(set)).sum::<i64>();
    // Equal sizes: a newer set is scaled up first, and an older one is scaled down first.
    if missing > 0 {
        sets.reverse();
    }
    if missing != 0 {
        sets.sort_by_key(|(_, set)| std::cmp::Reverse(size(set)));
    }
    let mut left = missing;
    let mut sizes: Vec<(usize, i64)> = Vec::with_capacity(sets.len());
    for (at, set) in sets {
        let fraction = fraction(set, limits, present);
        let share = if missing > 0 { fraction.min(left) } else { fraction.max(left) };
        let share = if left == 0 { 0 } else { share };
        left -= share;
        sizes.push((at, size(set) + share));
    }
    // The rest goes to the largest one.
    if let Some((_, largest)) = sizes.first_mut() {
        *largest = (*largest + left).max(0);
    }
    sizes
}

/// By how much the size of a ReplicaSet must change to keep its part of all pods (`getReplicaSetFraction`).
fn fraction(set: &ReplicaSet, limits: Limits, present: i32) -> i64 {
    let size = size(set);
    if limits.replicas == 0 {
        return -size;
    }
    // If the annotation was removed or is not valid, the number of pods is the best estimate.
    let before = annotations::replicas(&set.annotations, MAX_REPLICAS).filter(|it| *it > 0).unwrap_or(present);
    if before <= 0 {
        return 0;
    }
    rounded(size * limits.max_total(), i64::from(before)) - size
}

/// The quotient of two numbers that are not negative; a half is rounded up.
fn rounded(dividend: i64, divisor: i64) -> i64 {
    (dividend * 2 + divisor) / (divisor * 2)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{World, deployment};

    /// The sizes after a change of the replicas, oldest first. Each set has the annotation `max` if it is not empty.
    fn scaled(replicas: i64, surge: Value, max: &str, sizes: &[i64]) -> Vec<i64> {
        let rolling = json!({ "maxSurge": surge, "maxUnavailable": 1 });
        let spec = json!({ "replicas": replicas, "strategy": { "type": "RollingUpdate", "rollingUpdate": rolling } });
        let words = |(at, size): (usize, &i64)| {
            let max = if max.is_empty() { String::new() } else { format!(" max:{max}") };
            format!("s{at} old {size} age:{}{max}", 100 - at)
        };
        let rows: Vec<String> = sizes.iter().enumerate().map(words).collect();
        let world = World::new(deployment(spec), &rows.iter().map(String::as_str).collect::<Vec<_>>());
        let snapshot = world.snapshot();
        let mut sizes = proportional(snapshot.active(), snapshot.limits(), 13);
        sizes.sort();
        sizes.into_iter().map(|(_, size)| size).collect()
    }

    #[test]
    fn acceptance_deploy_042_043_sizes_stay_in_proportion() {
        let rows = [
            (30, 3, 13, &[8, 5][..], &[20, 13][..]),
            (15, 3, 13, &[8, 5], &[11, 7]),
            (5, 3, 13, &[8, 5], &[5, 3]),
            (120, 20, 120, &[100, 20], &[117, 23]),
            (10, 0, 5, &[3, 2], &[6, 4]),
            (3, 0, 5, &[3, 2], &[2, 1]),
            (4, 0, 9, &[1, 8], &[0, 4]),
            (4, 0, 3, &[1, 1, 1], &[1, 1, 2]),
            (2, 0, 3, &[1, 1, 1], &[0, 1, 1]),
            (10, 0, 7, &[2, 3, 2], &[3, 4, 3]),
            (8, 0, 13, &[3, 8, 2], &[2, 5, 1]),
            (4, 1, 11, &[5, 4, 2], &[2, 2, 1]),
            (120, 10, 110, &[60, 30, 20], &[71, 35, 24]),
            (50, 6, 13, &[8, 5], &[34, 22]),
            (0, 3, 13, &[8, 5], &[0, 0]),
        ];
        for (replicas, surge, max, sizes, want) in rows {
            assert_eq!(scaled(replicas, json!(surge), &max.to_string(), sizes), want, "{sizes:?} -> {replicas}");
        }
        assert_eq!(scaled(8, json!("25%"), "5", &[4, 1]), [8, 2]);
        assert_eq!(scaled(12, json!("25%"), "13", &[8, 5]), [9, 6]);
        assert_eq!(scaled(10, json!(3), "13", &[8, 5]), [8, 5], "nothing is missing");
    }

    #[test]
    fn acceptance_deploy_047_without_a_valid_annotation_the_present_pods_are_the_base() {
        for max in ["", "abc", "0", "-1"] {
            assert_eq!(scaled(30, json!(3), max, &[8, 5]), [20, 13], "{max}");
        }
        let world = World::new(deployment(json!({ "replicas": 30 })), &["a old 8 age:2", "b old 5 age:1"]);
        let snapshot = world.snapshot();
        let limits = Limits { replicas: 30, surge: 3, unavailable: 0 };
        assert_eq!(proportional(snapshot.active(), limits, 0), [(0, 28), (1, 5)], "the largest one gets the rest");
    }

    #[test]
    fn acceptance_deploy_048_large_sizes_do_not_overflow() {
        assert_eq!(scaled(60_000, json!(0), "50000", &[40_000, 10_000]), [48_000, 12_000]);
        assert_eq!(
            scaled(i64::from(i32::MAX), json!(0), "1000000000", &[700_000_000, 300_000_000]),
            [1_503_238_553, 644_245_094]
        );
    }

    #[test]
    fn random_sizes_never_exceed_the_limit_and_use_it_up() {
        let mut rng = fastrand::Rng::with_seed(22);
        for _ in 0..2_000 {
            let sizes: Vec<i64> = (0..rng.usize(1..5)).map(|_| rng.i64(1..60)).collect();
            let before = sizes.iter().sum::<i64>() + rng.i64(0..5);
            let (replicas, surge) = (rng.i64(0..200), rng.i64(0..20));
            let next = scaled(replicas, json!(surge), &before.to_string(), &sizes);
            let allowed = if replicas == 0 { 0 } else { replicas + surge };
            assert_eq!(next.iter().sum::<i64>(), allowed, "{sizes:?} {before} -> {replicas}+{surge}: {next:?}");
            assert!(next.iter().all(|it| *it >= 0), "{next:?}");
            let total: i64 = sizes.iter().sum();
            let is_opposite = |(old, new): &(&i64, &i64)| if allowed > total { new < old } else { new > old };
            let opposite = sizes.iter().zip(&next).find(is_opposite).filter(|_| before == total);
            assert_eq!(opposite, None, "{sizes:?} -> {replicas}+{surge}: {next:?}");
        }
    }
}
