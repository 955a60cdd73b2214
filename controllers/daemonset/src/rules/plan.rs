//! The changes of the pods of a set (`manage`, then `rollingUpdate`).
//!
//! First each node gets its pod, and pods that must not be there are deleted. If there is nothing to do, outdated pods are
//! replaced.

use std::{sync::Arc, time::Duration};

use api::{Node, Pod, PodPhase, UpdateStrategyType};
use workload::is_ready;

use crate::rules::{
    placement::NodeFit,
    rollout::{AwaitedPod, Rollout, rollout},
    snapshot::{NodePods, Snapshot},
};

/// The creations, and the deletions, of one sync. The rest follows when the cache shows them.
pub(crate) const BURST: usize = 250;

/// What to do for a set.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    /// The pods to create.
    pub(crate) create: Vec<Creation<'a>>,
    /// The pods to delete.
    pub(crate) delete: Vec<(&'a Pod, DeleteCause)>,
    /// When to decide again without a change.
    pub(crate) check_after: Option<Duration>,
    /// The pods for which a rollout waits; `None` if this plan has no rollout, because something else is to do.
    pub(crate) waiting: Option<Vec<AwaitedPod<'a>>>,
}

/// A pod to create.
#[derive(Debug)]
pub(crate) struct Creation<'a> {
    /// Its node.
    pub(crate) node: &'a Node,
    /// All pods that are known there, also those that have ended.
    pub(crate) known: &'a [Arc<Pod>],
}

/// Why a pod is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteCause {
    /// It has failed.
    Failed,
    /// It has succeeded, but pods of a DaemonSet run without end.
    Succeeded,
    /// Its node has another pod.
    Surplus,
    /// Its node must not run it, or does not exist.
    Misplaced,
    /// It is outdated.
    Update,
}

/// Decides what to do.
pub(crate) fn plan<'a>(snapshot: &Snapshot<'a>) -> Plan<'a> {
    let mut plan = Plan::default();
    for node in &snapshot.nodes {
        plan.manage(snapshot, node);
    }
    plan.delete.extend(snapshot.without_node.iter().map(|it| (*it, DeleteCause::Misplaced)));
    if plan.create.is_empty() && plan.delete.is_empty() {
        plan.update(snapshot);
    }
    plan.create.truncate(BURST);
    plan.delete.truncate(BURST);
    plan
}

/// Whether a deletion that a plan had chosen may be sent again. The pod is in the same state; its node, the other pods and
/// the spec may not be. `budget` is the number of available pods that may still be taken down.
pub(crate) fn may_repeat_deletion(snapshot: &Snapshot<'_>, pod: &Pod, budget: &mut usize) -> bool {
    let is_same = |it: &Pod| it.meta.uid == pod.meta.uid;
    let has_pod = |it: &&NodePods<'_>| it.not_deleting().any(is_same);
    let Some(node) = snapshot.nodes.iter().find(has_pod) else {
        return snapshot.without_node.iter().any(|it| is_same(it));
    };
    let has_ended = |it: &Pod| matches!(it.phase, PodPhase::Failed | PodPhase::Succeeded);
    match node.fit {
        NodeFit::MustNotRun => true,
        _ if has_ended(pod) || cannot_be_bound(node, pod) => true,
        _ if snapshot.may_surge() => {
            let running = node.not_deleting().filter(|it| !has_ended(it)).collect();
            surplus_of_surge(snapshot, running).into_iter().any(is_same)
        }
        // A surplus pod.
        _ if node.not_deleting().filter(|it| !has_ended(it)).skip(1).any(is_same) => true,
        _ => {
            snapshot.set.spec.update_strategy == UpdateStrategyType::RollingUpdate
                && !snapshot.is_updated(pod)
                && (!snapshot.is_available(pod) || take_one(budget))
        }
    }
}

/// The node takes no new pods, and this one was created before the cache showed that. It would use `maxUnavailable` or
/// `maxSurge` as long as the node has its taint.
fn cannot_be_bound(node: &NodePods<'_>, pod: &Pod) -> bool {
    node.fit == NodeFit::ShouldContinueRunning && pod.node.is_empty()
}

fn take_one(budget: &mut usize) -> bool {
    let left = budget.checked_sub(1);
    *budget = left.unwrap_or_default();
    left.is_some()
}

impl<'a> Plan<'a> {
    /// One node (`podsShouldBeOnNode`).
    fn manage(&mut self, snapshot: &Snapshot<'a>, node: &NodePods<'a>) {
        match node.fit {
            NodeFit::ShouldRun if node.is_empty() => self.create(node),
            NodeFit::ShouldRun | NodeFit::ShouldContinueRunning => self.manage_pods(snapshot, node),
            NodeFit::MustNotRun => self.delete.extend(node.not_deleting().map(|it| (it, DeleteCause::Misplaced))),
        }
    }

    fn manage_pods(&mut self, snapshot: &Snapshot<'a>, node: &NodePods<'a>) {
        let mut running = Vec::new();
        // One failed pod is replaced; others wait for the delay that begins then.
        let mut may_replace = node.backoff.is_none();
        let mut current_stays = false;
        for pod in node.not_deleting() {
            match pod.phase {
                _ if cannot_be_bound(node, pod) => self.delete.push((pod, DeleteCause::Misplaced)),
                PodPhase::Failed if may_replace => {
                    may_replace = false;
                    self.delete.push((pod, DeleteCause::Failed));
                }
                PodPhase::Failed => {
                    current_stays |= snapshot.has_hash(pod);
                    self.check_in(node.backoff);
                }
                PodPhase::Succeeded => self.delete.push((pod, DeleteCause::Succeeded)),
                _ => running.push(pod),
            }
        }
        if !snapshot.may_surge() {
            self.delete_surplus(running.into_iter().skip(1));
        } else if running.is_empty() {
            // A node that refuses pods must not get another one in each sync (k/k#124388).
            if node.fit == NodeFit::ShouldRun && !current_stays {
                self.create(node);
            }
        } else {
            self.delete_surplus(surplus_of_surge(snapshot, running).into_iter());
        }
    }

    /// Replaces outdated pods.
    fn update(&mut self, snapshot: &Snapshot<'a>) {
        if snapshot.set.spec.update_strategy != UpdateStrategyType::RollingUpdate {
            self.waiting = Some(Vec::new());
            return;
        }
        let Rollout { create, delete, waiting, check_after } = rollout(snapshot);
        for node in create {
            self.create(node);
        }
        self.delete.extend(delete.into_iter().map(|it| (it, DeleteCause::Update)));
        self.waiting = Some(waiting);
        self.check_in(check_after);
    }

    fn create(&mut self, NodePods { node, all, .. }: &NodePods<'a>) {
        self.create.push(Creation { node, known: all });
    }

    fn delete_surplus(&mut self, pods: impl Iterator<Item = &'a Pod>) {
        self.delete.extend(pods.map(|it| (it, DeleteCause::Surplus)));
    }

    fn check_in(&mut self, delay: Option<Duration>) {
        self.check_after = self.check_after.into_iter().chain(delay).min();
    }
}

/// With surge a node may keep two pods: the oldest of the present template and the oldest of another one. The outdated
/// one goes when it is not ready, or when the other one is available.
fn surplus_of_surge<'a>(snapshot: &Snapshot<'a>, running: Vec<&'a Pod>) -> Vec<&'a Pod> {
    let (mut new, mut old, mut surplus) = (None, None, Vec::new());
    for pod in running {
        let kept = if snapshot.has_hash(pod) { &mut new } else { &mut old };
        match kept {
            None => *kept = Some(pod),
            Some(_) => surplus.push(pod),
        }
    }
    if let (Some(new), Some(old)) = (new, old)
        && (!is_ready(old) || snapshot.is_available(new))
    {
        surplus.push(old);
    }
    surplus
}

#[cfg(test)]
mod tests;
