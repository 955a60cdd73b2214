use super::*;
use crate::testing::{now, pods};

/// The names of the deleted pods, first to last. Related pods are the candidates and `others`.
fn deleted(rows: &[&str], others: &[&str], count: usize) -> Vec<String> {
    deleted_with(rows, others, count, true)
}

fn deleted_with(rows: &[&str], others: &[&str], count: usize, compares_cost: bool) -> Vec<String> {
    let (active, others) = (pods(rows), pods(others));
    let ranks = NodeRanks::of(active.iter().chain(&others));
    let pods_to_delete = select_pods_to_delete(&active, count, ranks, &HashSet::new(), 0, now(), compares_cost);
    pods_to_delete.iter().map(|it| it.meta.name.to_string()).collect()
}

#[test]
fn acceptance_rs_017_pods_with_less_progress_are_deleted_first() {
    let rows = ["ready", "running not-ready", "pending", "pending unassigned"];
    assert_eq!(deleted(&rows, &[], 3), ["p3", "p2", "p1"], "to 1");
    assert_eq!(deleted(&rows, &[], 2), ["p3", "p2"], "to 2");
}

/// An earlier request may still delete it.
#[test]
fn a_pod_that_may_be_deleted_anyway_is_deleted_first() {
    let active = pods(&["pending", "ready cost:1000", "ready"]);
    let maybe_deleted = HashSet::from([active[1].meta.uid.clone()]);
    let names = |count| {
        let ranks = NodeRanks::of(&active);
        let pods_to_delete = select_pods_to_delete(&active, count, ranks, &maybe_deleted, 0, now(), true);
        pods_to_delete.iter().map(|it| it.meta.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((names(1), names(2)), (vec!["p1".to_owned()], vec!["p1".to_owned(), "p0".to_owned()]));
}

/// A Deployment relies on it when it reduces old ReplicaSets by the pods that are not available (k/k#22065).
#[test]
fn a_pod_that_is_not_available_yet_is_deleted_before_an_available_one() {
    let active = pods(&["ready:70 cost:-5 on:full", "ready:9 cost:5", "ready:70 on:full", "running not-ready cost:9"]);
    let names = |min_ready_seconds: i32, count: usize| {
        let (ranks, none) = (NodeRanks::of(&active), HashSet::new());
        let pods_to_delete = select_pods_to_delete(&active, count, ranks, &none, min_ready_seconds, now(), true);
        pods_to_delete.iter().map(|it| it.meta.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(60, 2), ["p3", "p1"]);
    assert_eq!(names(0, 2), ["p3", "p0"]);
}

#[test]
fn acceptance_rs_018_a_pod_with_a_higher_cost_survives() {
    assert_eq!(deleted(&["ready cost:1000 restarts:5", "ready cost:100"], &[], 1), ["p1"]);
    assert_eq!(deleted(&["ready", "ready cost:-1"], &[], 1), ["p1"]);
}

#[test]
fn acceptance_rs_019_with_equal_costs_the_pod_with_fewer_restarts_survives() {
    for (costs, compares_cost) in [(["", ""], true), ([" cost:7", " cost:7"], true), ([" cost:9", " cost:7"], false)] {
        let rows = [format!("ready restarts:1{}", costs[1]), format!("ready restarts:5{}", costs[0])];
        assert_eq!(deleted_with(&[&rows[0], &rows[1]], &[], 1, compares_cost), ["p1"], "{costs:?}");
    }
}

#[test]
fn acceptance_rs_020_a_cost_that_is_not_valid_counts_as_zero() {
    for cost in ["abc", "+10"] {
        let invalid = format!("ready cost:{cost}");
        assert_eq!(deleted(&["ready cost:1", &invalid], &[], 1), ["p1"], "{cost}");
        assert_eq!(deleted(&["ready cost:-1", &invalid], &[], 1), ["p0"], "{cost}");
    }
}

#[test]
fn acceptance_rs_021_the_pod_on_the_node_with_more_related_pods_is_deleted() {
    // The other pod of node a belongs to another revision of the Deployment.
    assert_eq!(deleted(&["ready on:b", "ready on:a"], &["ready on:a"], 1), ["p1"]);
    assert_eq!(deleted(&["ready on:b", "ready on:a"], &["failed:3 on:a", "ready on:b"], 1), ["p0"]);
}

#[test]
fn acceptance_rs_022_ages_are_compared_by_magnitude_and_then_by_uid() {
    // The first pod has the lower uid.
    assert_eq!(deleted(&["ready:600 age:720", "ready:720 age:720"], &[], 1), ["p0"]);
    assert_eq!(deleted(&["ready:720 age:720", "ready:600 age:720"], &[], 1), ["p0"]);
    assert_eq!(deleted(&["ready:1200 age:1200", "ready:600 age:1200"], &[], 1), ["p1"]);
}

#[test]
fn acceptance_rs_023_a_pod_that_was_just_added_is_deleted() {
    assert_eq!(deleted(&["ready:11 age:12", "ready:11 age:12", "ready:1 age:2"], &[], 1), ["p2"]);
}

#[test]
fn acceptance_rs_024_all_pods_are_deleted_without_an_order_or_an_observation() {
    let rows = ["ready", "pending unassigned", "running"];
    assert_eq!(deleted(&rows, &[], 3), ["p0", "p1", "p2"]);
    let active = pods(&rows);
    assert_eq!(age_ratios(&active, &active.iter().collect::<Vec<_>>(), now()), [0.0; 0]);
}

#[test]
fn acceptance_rs_030_057_each_node_keeps_a_pod() {
    let rows = ["ready on:a", "ready on:a", "ready on:a", "ready on:a", "ready on:b", "ready on:b", "ready on:b"];
    let active = pods(&rows);
    for count in [4, 5] {
        let left: Vec<&str> = {
            let deleted = deleted(&rows, &[], count);
            active.iter().filter(|it| !deleted.contains(&it.meta.name.to_string())).map(|it| &*it.node).collect()
        };
        assert!(left.contains(&"a") && left.contains(&"b"), "{left:?}");
    }
    let six = ["ready on:a", "ready on:a", "ready on:a", "ready on:a", "ready on:a", "ready on:a", "ready on:b"];
    assert_eq!(deleted(&six, &[], 3), ["p0", "p1", "p2"], "as long as the node has more");
}

/// The worked example of the spec.
#[test]
fn the_classes_are_taken_in_their_order() {
    let rows =
        ["ready on:b", "ready on:a", "ready cost:-5", "running not-ready", "pending on:n1", "pending unassigned on:"];
    let related = ["ready on:a", "ready on:a"];
    assert_eq!(deleted(&rows, &related, 5), ["p5", "p4", "p3", "p2", "p1"]);
}

/// The same as a search for the best pod to delete after each deletion.
#[test]
fn pods_to_delete_are_those_of_a_naive_search() {
    let mut rng = 7_u64;
    let mut next = |limit: u64| {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (rng >> 33) % limit
    };
    for _ in 0..200 {
        let rows: Vec<String> = (0..1 + next(12))
            .map(|_| {
                let phase = ["ready:9", "ready:70", "running", "pending"][usize::try_from(next(4)).unwrap()];
                let node = ["a", "b", "c"][usize::try_from(next(3)).unwrap()];
                format!("{phase} on:{node} cost:{} restarts:{}", next(2), next(2))
            })
            .collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let (active, count) = (pods(&rows), usize::try_from(next(rows.len() as u64)).unwrap());
        let mut left: Vec<&Arc<Pod>> = active.iter().collect();
        let mut want = Vec::new();
        for _ in 0..count {
            let rank = |pod: &Pod| left.iter().filter(|it| it.node == pod.node).count();
            let key = |pod: &Pod| {
                let (class, order) = deletion_keys_around_rank(pod, 0, now(), true);
                (class, Reverse(rank(pod)), order)
            };
            let at = (0..left.len()).min_by_key(|at| key(left[*at])).unwrap();
            want.push(left.remove(at).meta.name.to_string());
        }
        assert_eq!(deleted(&rows, &[], count), want, "{rows:?}");
    }
}

#[test]
fn the_metric_compares_ages_with_that_of_the_youngest_ready_pod() {
    let ratios = |rows: &[&str], pods_to_delete: &[usize]| {
        let active = pods(rows);
        let pods_to_delete: Vec<&Arc<Pod>> = pods_to_delete.iter().map(|it| &active[*it]).collect();
        age_ratios(&active, &pods_to_delete, now())
    };
    assert_eq!(ratios(&["ready age:10", "ready age:19", "running age:5"], &[1, 2]), [1.9]);
    assert_eq!(ratios(&["ready age:10", "ready age:20"], &[0]), [1.0]);
    assert_eq!(ratios(&["ready age:0", "ready age:20"], &[1]), [0.0; 0], "no division by zero");
    assert_eq!(ratios(&["running", "running"], &[1]), [0.0; 0]);
}
