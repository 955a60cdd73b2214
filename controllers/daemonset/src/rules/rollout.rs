//! Which outdated pods are replaced now (`rollingUpdate`).

use std::time::Duration;

use api::Pod;
use workload::{WaitCause, is_ready};

use crate::rules::{
    placement::NodeFit,
    snapshot::{NodePods, Snapshot},
};

/// The result.
#[derive(Debug, Default)]
pub(crate) struct Rollout<'s, 'a> {
    /// The nodes that get a second pod.
    pub(crate) create: Vec<&'s NodePods<'a>>,
    /// The outdated pods to delete.
    pub(crate) delete: Vec<&'a Pod>,
    /// The pods for which the rollout waits.
    pub(crate) waiting: Vec<AwaitedPod<'a>>,
    /// When a node stops counting, because it is unreachable.
    pub(crate) check_after: Option<Duration>,
}

/// A pod that must become available, or be gone, before the rollout continues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AwaitedPod<'a> {
    /// The pod.
    pub(crate) pod: &'a Pod,
    /// Why it is waited for.
    pub(crate) cause: WaitCause,
}

/// The pods of a node that are not being deleted.
enum Pair<'a> {
    /// More than one of a kind. The next plan deletes some of them.
    Excess,
    /// At most one of each.
    Pods { new: Option<&'a Pod>, old: Option<&'a Pod> },
}

/// Selects the outdated pods to replace. Nodes that must not run a pod do not count, and the pods of nodes that do not
/// exist are not in the snapshot.
pub(crate) fn rollout<'s, 'a>(snapshot: &'s Snapshot<'a>) -> Rollout<'s, 'a> {
    let desired = snapshot.desired();
    match snapshot.max_surge(desired) {
        0 => without_surge(snapshot, desired),
        max_surge => with_surge(snapshot, desired, max_surge),
    }
}

/// The nodes that count.
fn counted<'s, 'a>(snapshot: &'s Snapshot<'a>) -> impl Iterator<Item = &'s NodePods<'a>> {
    let counts = |it: &&NodePods<'a>| {
        it.fit == NodeFit::ShouldRun || (it.fit == NodeFit::ShouldContinueRunning && !it.is_empty())
    };
    snapshot.nodes.iter().filter(counts)
}

/// How many available pods may be taken down without surge. The deletions that were sent use it too.
pub(crate) fn budget(snapshot: &Snapshot<'_>, is_sent: impl Fn(&Pod) -> bool) -> usize {
    let stays = |pod: &Pod| snapshot.is_available(pod) && !is_sent(pod);
    let is_available = |it: &&NodePods<'_>| it.not_deleting().any(stays);
    let is_ignored = |it: &&NodePods<'_>| snapshot.ignored_in(it.node).is_some_and(|it| it <= 0);
    let unavailable = counted(snapshot).filter(|it| !is_available(it) && !is_ignored(it)).count();
    max_unavailable(snapshot, snapshot.desired()).saturating_sub(unavailable)
}

fn max_unavailable(snapshot: &Snapshot<'_>, desired: usize) -> usize {
    let max_unavailable = snapshot.set.spec.max_unavailable.as_ref();
    let max_unavailable = max_unavailable.and_then(|it| it.scaled_up(desired)).unwrap_or_default();
    // Both limits zero is no valid configuration, and means one.
    max_unavailable.max(usize::from(desired > 0))
}

/// Deletes the outdated pods that are not available, and as many available ones as `maxUnavailable` leaves.
fn without_surge<'s, 'a>(snapshot: &'s Snapshot<'a>, desired: usize) -> Rollout<'s, 'a> {
    let max_unavailable = max_unavailable(snapshot, desired);
    let (mut result, mut unavailable, mut candidates) = (Rollout::default(), 0, Vec::new());
    for node in counted(snapshot) {
        let is_unavailable = match pair(snapshot, node) {
            Pair::Pods { new: Some(new), old: None } => !snapshot.is_available(new),
            Pair::Pods { new: None, old: Some(old) } if snapshot.is_available(old) => {
                candidates.push(old);
                false
            }
            Pair::Pods { new: None, old: Some(old) } => {
                result.delete.push(old);
                true
            }
            Pair::Excess | Pair::Pods { .. } => true,
        };
        if is_unavailable && result.record_waiting(snapshot, node) {
            unavailable += 1;
        }
    }
    let budget = max_unavailable.saturating_sub(unavailable);
    let is_left = !candidates.is_empty();
    result.delete.extend(candidates.into_iter().take(budget));
    result.keep_blocking(snapshot, is_left);
    result
}

/// Creates a second pod on nodes whose outdated pod is not available, and on as many others as `maxSurge` leaves (KEP-1591).
/// The outdated pod goes when the new one is available.
fn with_surge<'s, 'a>(snapshot: &'s Snapshot<'a>, desired: usize, max_surge: usize) -> Rollout<'s, 'a> {
    let (mut result, mut surge, mut available) = (Rollout::default(), 0, 0_usize);
    let (mut candidates, mut misplaced) = (Vec::new(), Vec::new());
    for node in counted(snapshot) {
        let Pair::Pods { new, old } = pair(snapshot, node) else {
            surge += usize::from(result.record_waiting(snapshot, node));
            continue;
        };
        let first = old.or(new);
        available += usize::from(first.is_some_and(|it| snapshot.is_available(it)));
        match (new, old) {
            (_, None) => {}
            (None, Some(old)) => match (snapshot.is_available(old), node.fit) {
                (false, NodeFit::ShouldRun) => result.create.push(node),
                (true, NodeFit::ShouldRun) => candidates.push(node),
                (false, _) => result.delete.push(old),
                (true, _) => misplaced.push(old),
            },
            (Some(new), Some(old)) if snapshot.is_available(new) => result.delete.push(old),
            (Some(_), Some(_)) => {
                surge += usize::from(result.record_waiting(snapshot, node));
            }
        }
    }
    // A pod leaves a node that takes no new ones only when enough others are available (k/k#118823).
    result.delete.extend(misplaced.into_iter().take(available.saturating_sub(desired)));
    let budget = max_surge.saturating_sub(surge);
    let is_left = !candidates.is_empty();
    result.create.extend(candidates.into_iter().take(budget));
    result.keep_blocking(snapshot, is_left);
    result
}

impl<'a> Rollout<'_, 'a> {
    /// Records the pods of a node for which the rollout waits. Returns false if it does not wait for this node.
    fn record_waiting(&mut self, snapshot: &Snapshot<'a>, node: &NodePods<'a>) -> bool {
        match snapshot.ignored_in(node.node).map(u64::try_from) {
            Some(Err(_) | Ok(0)) => return false,
            Some(Ok(seconds)) => {
                self.check_after = self.check_after.into_iter().chain([Duration::from_secs(seconds)]).min();
            }
            None => {}
        }
        self.waiting.extend(node.pods().filter_map(|pod| {
            let cause = match pod.meta.deletion {
                Some(_) => WaitCause::Terminating,
                None if snapshot.is_available(pod) => return None,
                None if is_ready(pod) => WaitCause::NotAvailable,
                None => WaitCause::NotReady,
            };
            Some(AwaitedPod { pod, cause })
        }));
        true
    }

    /// Keeps in `waiting` only the pods that block the rollout. While there is something to do, that is none. While outdated
    /// pods are left, it is all that use the budget. Otherwise it is the outdated ones that are being deleted.
    fn keep_blocking(&mut self, snapshot: &Snapshot<'a>, is_left: bool) {
        if !self.create.is_empty() || !self.delete.is_empty() {
            self.waiting.clear();
        } else if !is_left {
            self.waiting.retain(|it| it.cause == WaitCause::Terminating && !snapshot.is_updated(it.pod));
        }
        if self.waiting.is_empty() {
            self.check_after = None;
        }
    }
}

/// Sorts the pods of a node by template (`findUpdatedPodsOnNode`).
fn pair<'a>(snapshot: &Snapshot<'a>, node: &NodePods<'a>) -> Pair<'a> {
    let (mut new, mut old) = (None, None);
    for pod in node.not_deleting() {
        let kept = if snapshot.is_updated(pod) { &mut new } else { &mut old };
        if kept.replace(pod).is_some() {
            return Pair::Excess;
        }
    }
    Pair::Pods { new, old }
}

#[cfg(test)]
mod tests;
