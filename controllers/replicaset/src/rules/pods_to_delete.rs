//! Which pods are deleted (`getPodsToDelete`).

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::Arc,
};

use api::{Pod, Uid};
use clock::Timestamp;
use workload::{deletion_keys_around_rank, is_active, is_ready};

/// The number of related active pods on each node. Pods without a node share the empty name.
#[derive(Debug, Default)]
pub(crate) struct NodeRanks<'a>(HashMap<&'a str, usize>);

impl<'a> NodeRanks<'a> {
    /// Counts these pods.
    pub(crate) fn of(related: impl IntoIterator<Item = &'a Arc<Pod>>) -> Self {
        let mut ranks = Self::default();
        for pod in related.into_iter().filter(|it| is_active(it)) {
            *ranks.0.entry(&*pod.node).or_default() += 1;
        }
        ranks
    }

    fn get(&self, node: &str) -> usize {
        self.0.get(node).copied().unwrap_or_default()
    }

    fn remove_one(&mut self, node: &str) {
        if let Some(count) = self.0.get_mut(node) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Returns the `count` pods that are deleted, the first one first. The rank of a node is lower after each pod that is taken
/// from it, so that no node loses all of its pods while another one keeps more (k/k#102948). The `maybe_deleted` pods,
/// which earlier requests may still delete, come before all others.
pub(crate) fn select_pods_to_delete<'a>(
    active: &'a [Arc<Pod>],
    count: usize,
    mut ranks: NodeRanks<'_>,
    maybe_deleted: &HashSet<Uid>,
    min_ready_seconds: i32,
    now: Timestamp,
    compares_cost: bool,
) -> Vec<&'a Arc<Pod>> {
    // No order is needed to delete all of them.
    if count >= active.len() {
        return active.iter().collect();
    }
    let candidate = |pod: &'a Arc<Pod>| {
        let (class, order) = deletion_keys_around_rank(pod, min_ready_seconds, now, compares_cost);
        Candidate { class: (!maybe_deleted.contains(&pod.meta.uid), class), order, pod }
    };
    let mut candidates: Vec<_> = active.iter().map(candidate).collect();
    candidates.sort_by(|a, b| a.class.cmp(&b.class).then_with(|| a.order.cmp(&b.order)));
    let mut chosen = Vec::with_capacity(count);
    for class in candidates.chunk_by(|a, b| a.class == b.class) {
        choose(class, count, &mut ranks, &mut chosen);
    }
    chosen
}

/// A pod, with what is compared before the rank and after it.
struct Candidate<'a, C, O> {
    class: C,
    order: O,
    pod: &'a Arc<Pod>,
}

/// Adds pods of one class, which differ in their ranks, until there are `count`. They are sorted by `order`.
fn choose<'a, C, O: Ord + Clone>(
    class: &[Candidate<'a, C, O>],
    count: usize,
    ranks: &mut NodeRanks<'_>,
    chosen: &mut Vec<&'a Arc<Pod>>,
) {
    let mut by_node: BTreeMap<&'a str, VecDeque<&Candidate<'a, C, O>>> = BTreeMap::new();
    for candidate in class {
        by_node.entry(&*candidate.pod.node).or_default().push_back(candidate);
    }
    let key = |ranks: &NodeRanks<'_>, node: &'a str, first: &Candidate<'a, C, O>| {
        (Reverse(ranks.get(node)), first.order.clone(), node)
    };
    // The first pod of each node. A deletion changes the rank of its own node only.
    let first_keys = by_node.iter().filter_map(|(&node, pods)| pods.front().map(|it| key(ranks, node, it)));
    let mut firsts: BTreeSet<_> = first_keys.collect();
    while chosen.len() < count {
        let Some((_, _, node)) = firsts.pop_first() else { return };
        let Some(pods) = by_node.get_mut(node) else { continue };
        chosen.extend(pods.pop_front().map(|it| it.pod));
        ranks.remove_one(node);
        firsts.extend(pods.front().map(|it| key(ranks, node, it)));
    }
}

/// The age of each ready pod to delete in relation to the youngest ready pod, for the metric; empty if there was no
/// choice. Ages are those of the creation. Upstream divides whole milliseconds without a rest, and by zero for a new
/// pod.
pub(crate) fn age_ratios(active: &[Arc<Pod>], pods_to_delete: &[&Arc<Pod>], now: Timestamp) -> Vec<f64> {
    let age = |pod: &Pod| {
        let created = pod.creation.filter(|_| is_ready(pod))?;
        Some(now.as_millisecond().saturating_sub(created.saturating_mul(1_000)))
    };
    let youngest = active.iter().filter_map(|it| age(it)).min().filter(|it| *it > 0);
    let Some(youngest) = youngest.filter(|_| pods_to_delete.len() < active.len()) else { return Vec::new() };
    let ratio = |age: i64| age as f64 / youngest as f64;
    pods_to_delete.iter().filter_map(|it| age(it)).map(ratio).collect()
}

#[cfg(test)]
mod tests;
