//! The terminated pods above the threshold. Pure.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
};

use api::{Atom, ConditionStatus, ContainerState, Pod};

/// The pods to delete so that at most `threshold` of these remain, in the order of their deletion: first evicted pods,
/// then those of the namespaces with the most pods, and in a namespace those that ended first.
///
/// If it is called again while the cache shows only some of these deletions, it returns the others.
pub(super) fn surplus(terminated: Vec<Arc<Pod>>, threshold: i32) -> Vec<Arc<Pod>> {
    let Some(threshold) = usize::try_from(threshold).ok().filter(|it| *it > 0) else { return Vec::new() };
    let count = terminated.len().saturating_sub(threshold);
    if count == 0 {
        return Vec::new();
    }
    let (evicted, others): (Vec<_>, Vec<_>) = terminated.into_iter().partition(|it| is_evicted(it));
    let of_evicted = count.min(evicted.len());
    let mut chosen = oldest_of_largest(evicted, of_evicted);
    chosen.extend(oldest_of_largest(others, count - of_evicted));
    chosen
}

/// `eviction.PodIsEvicted`
fn is_evicted(pod: &Pod) -> bool {
    pod.phase == api::PodPhase::Failed && &*pod.reason == "Evicted"
}

/// `count` times the pod that ended first in the namespace that then has the most pods. Of equal namespaces the first
/// by name is taken.
fn oldest_of_largest(pods: Vec<Arc<Pod>>, count: usize) -> Vec<Arc<Pod>> {
    let mut namespaces: BTreeMap<Atom, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in pods {
        namespaces.entry(pod.meta.namespace.clone()).or_default().push(pod);
    }
    for pods in namespaces.values_mut() {
        // The last one is taken first.
        pods.sort_by(|a, b| age_key(b).cmp(&age_key(a)));
    }
    let mut largest: BinaryHeap<(usize, Reverse<Atom>)> =
        namespaces.iter().map(|(name, pods)| (pods.len(), Reverse(name.clone()))).collect();
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count {
        let Some((_, Reverse(name))) = largest.pop() else { break };
        let Some(pods) = namespaces.get_mut(&name) else { continue };
        chosen.extend(pods.pop());
        if !pods.is_empty() {
            largest.push((pods.len(), Reverse(name)));
        }
    }
    chosen
}

/// Orders pods by their end, then as upstream.
fn age_key(pod: &Pod) -> (Option<i64>, Option<i64>, &str) {
    (ended(pod), pod.creation, &pod.meta.name)
}

/// When the last container finished; if that is unknown, when the pod stopped being ready, or when it was created. By
/// creation alone, a long Job that has just ended would be deleted first (k/k#75017).
fn ended(pod: &Pod) -> Option<i64> {
    let finished = pod.containers.iter().filter_map(|it| match &it.state {
        ContainerState::Terminated { finished, .. } => *finished,
        ContainerState::Waiting { .. } | ContainerState::Running { .. } => None,
    });
    let not_ready = || pod.condition("Ready").filter(|it| it.status == ConditionStatus::False)?.last_transition;
    finished.max().or_else(not_ready).or(pod.creation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{pod_names, pods};

    fn check(threshold: i32, all: &[&str], want: &[&str]) {
        assert_eq!(pod_names(&surplus(pods(all), threshold)), want, "{all:?}");
    }

    #[test]
    fn acceptance_podgc_007_with_equal_times_the_lower_name_goes_first() {
        check(1, &["c Failed", "a Failed", "b Succeeded"], &["a", "b"]);
    }

    #[test]
    fn the_pod_that_ended_first_goes_first() {
        check(2, &["a Failed created=9", "b Failed created=1 finished=20", "c Failed created=10"], &["a"]);
        check(2, &["a Failed created=1 unready=12", "b Failed created=2 finished=11", "c Failed created=13"], &["b"]);
        check(2, &["a Failed created=5 finished=9 unready=1", "b Failed finished=8", "c Failed finished=7"], &["c"]);
        check(1, &["b Failed created=1 finished=9", "a Failed created=2 finished=9"], &["b"]);
    }

    #[test]
    fn evicted_pods_of_all_namespaces_go_first() {
        check(2, &["a Failed", "b Failed", "z Failed Evicted created=9 in quiet"], &["z"]);
        check(1, &["a Failed", "b Failed", "z Failed Evicted created=9 in quiet"], &["z", "a"]);
        check(1, &["a Failed", "z Succeeded Evicted created=9"], &["a"]);
    }

    #[test]
    fn the_largest_namespaces_lose_their_surplus_first() {
        let noisy = ["a1 Failed created=5", "a2 Failed created=6", "a3 Failed created=7", "a4 Failed created=8"];
        let quiet = ["b1 Failed created=1 in quiet", "b2 Failed created=2 in quiet"];
        let all = [&noisy[..], &quiet[..]].concat();
        check(6, &all, &[]);
        check(4, &all, &["a1", "a2"]);
        check(3, &all, &["a1", "a2", "a3"]);
        check(2, &all, &["a1", "a2", "a3", "b1"]);
        check(1, &all, &["a1", "a2", "a3", "b1", "a4"]);
    }

    #[test]
    fn the_rest_of_a_plan_is_planned_again_while_the_cache_shows_a_part_of_it() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let one = |number: u32, rng: &mut fastrand::Rng| {
                let evicted = if rng.u8(..4) == 0 { "Evicted" } else { "" };
                format!("p{number:02} Failed {evicted} created={} in ns{}", rng.u8(..9), rng.u8(..4))
            };
            let all: Vec<String> = (0..rng.u32(1..40)).map(|it| one(it, &mut rng)).collect();
            let all = pods(&all.iter().map(String::as_str).collect::<Vec<_>>());
            let threshold = rng.i32(1..20);
            let chosen = surplus(all.clone(), threshold);
            let (gone, left): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|_| rng.bool());
            let gone = pod_names(&gone);
            let shown: Vec<_> = all.into_iter().filter(|it| !gone.contains(&it.meta.name.to_string())).collect();
            let (mut again, mut left) = (pod_names(&surplus(shown, threshold)), pod_names(&left));
            again.sort();
            left.sort();
            assert_eq!(again, left);
        }
    }
}
