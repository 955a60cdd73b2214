//! The changes of the pods of a set (`updateStatefulSet`).
//!
//! A set with the policy OrderedReady changes one pod at a time: slots in ascending order, then surplus pods in
//! descending order, then outdated pods in descending order. Each step waits until all before it are done.

use std::{collections::HashSet, sync::Arc};

use api::{ClaimRetention, PersistentVolumeClaim, Pod, PodPhase, Uid, UpdateStrategyType};
use workload::{WaitCause, is_available, is_terminal};

use crate::rules::{
    identity::{self, has_identity, pod_name},
    notices::{AwaitedPod, Due, Notice},
    retention::OwnerCheck,
    rollout::{DeleteCause, Rollout, is_created_at_update_revision, rollout},
    snapshot::{SetPod, Slot, Snapshot, is_running_and_ready},
    status::count_current,
};

/// With [`REPLACE_BLOCKED`], a pod that has not been ready for this long is broken, in seconds.
const BROKEN_AFTER: i64 = 60;

/// With this annotation a rollout replaces a pod that blocks it.
pub(crate) const REPLACE_BLOCKED: &str = "mini-kcm.dev/replace-blocked-pods";

/// What to do for a set.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    /// The stages in their order. A stage starts only if all actions of the ones before it succeeded, but see
    /// [`Plan::independent_stage`].
    pub(crate) stages: Vec<Vec<Action<'a>>>,
    /// The stage that starts also after a failure. In a Parallel set: the slots, so that a pod that cannot be deleted
    /// does not prevent a creation. In an OrderedReady set: the claims, so that a pod that cannot be created does not
    /// prevent their correction.
    pub(crate) independent_stage: Option<usize>,
    /// The pod for which the set waits.
    pub(crate) waiting: Option<AwaitedPod<'a>>,
    /// Problems that prevent a creation and are known without a request.
    pub(crate) notices: Vec<Notice>,
    /// The number of unavailable slots, if the rollout stage was reached.
    pub(crate) unavailable: Option<usize>,
    /// The seconds until a broken pod may be replaced.
    pub(crate) check_after: Option<i64>,
    /// The number of slots of a Parallel set for which nothing is done.
    pub(crate) idle_slots: usize,
}

/// The change of one pod or of its claims.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Action<'a> {
    /// Create the claims that are missing, then the pod.
    Create {
        /// Its ordinal.
        ordinal: i32,
        /// The template to use.
        revision: PodRevision,
    },
    /// Delete the pod.
    Delete {
        /// The pod.
        pod: &'a Pod,
        /// Why.
        cause: DeleteCause,
    },
    /// Create the claims that are missing, and correct the owners of the others.
    CompleteClaims {
        /// The pod.
        pod: &'a Pod,
        /// Its ordinal.
        ordinal: i32,
    },
    /// Correct the labels of the pod, its volumes and the owners of its claims.
    Repair {
        /// The pod.
        pod: &'a Pod,
        /// Its ordinal.
        ordinal: i32,
    },
    /// Correct the owners of the claims of the pod.
    CorrectClaims {
        /// The pod.
        pod: &'a Pod,
        /// Its ordinal.
        ordinal: i32,
        /// The pod is not wanted.
        is_condemned: bool,
    },
}

/// Which revision a new pod gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PodRevision {
    /// That of the pods that are not updated yet.
    Current,
    /// That of the present template.
    Update,
}

/// The decision for one slot.
struct SlotDecision<'a> {
    action: Option<Action<'a>>,
    /// Nothing after this slot may be done in this sync.
    stops: bool,
    waits_for: Option<WaitCause>,
}

impl<'a> SlotDecision<'a> {
    const DONE: Self = Self { action: None, stops: false, waits_for: None };

    fn act(action: Action<'a>, stops: bool) -> Self {
        Self { action: Some(action), stops, waits_for: None }
    }

    fn wait(cause: WaitCause) -> Self {
        Self { action: None, stops: true, waits_for: Some(cause) }
    }
}

/// Decides what to do. Pure.
pub(crate) fn plan<'a>(snapshot: &Snapshot<'a>) -> Plan<'a> {
    let mut plan = Plan::default();
    if snapshot.is_deleting() || (snapshot.uses_recreate() && plan.add_recreate_stages(snapshot)) {
        return plan;
    }
    if snapshot.is_ordered() {
        plan.add_ordered_stages(snapshot);
    } else {
        plan.add_parallel_stages(snapshot);
    }
    // A pod that is not ready blocks nothing if all others are as they must be.
    plan.waiting = plan.waiting.filter(|it| it.cause == WaitCause::Terminating || is_incomplete(snapshot));
    plan
}

/// Whether pods must still be created, deleted or replaced, or become ready for an update to end.
fn is_incomplete(snapshot: &Snapshot<'_>) -> bool {
    let is_updating = snapshot.set.spec.update_strategy != UpdateStrategyType::OnDelete
        && snapshot.revisions.current != snapshot.revisions.update;
    is_updating || !snapshot.condemned.is_empty() || snapshot.slots.iter().any(|it| it.pod.is_none())
}

impl<'a> Plan<'a> {
    /// Deletes all outdated pods. Returns true while any of them exists.
    fn add_recreate_stages(&mut self, snapshot: &Snapshot<'a>) -> bool {
        let of_slots: Vec<(&Pod, DeleteCause)> =
            snapshot.outdated_pods(0).map(|it| (it, DeleteCause::Update)).collect();
        let of_condemned = snapshot.condemned.iter().map(|it| it.pod).filter(|it| snapshot.is_outdated(it));
        let of_condemned = of_condemned.map(|it| (it, DeleteCause::Condemned));
        let outdated: Vec<(&Pod, DeleteCause)> = of_slots.iter().copied().chain(of_condemned).collect();
        if outdated.is_empty() {
            return false;
        }
        let terminating = outdated.iter().find(|(pod, _)| pod.meta.deletion.is_some());
        self.waiting = terminating.map(|(pod, _)| AwaitedPod { pod, cause: WaitCause::Terminating });
        self.add_claim_corrections(snapshot);
        self.stages.push(snapshot.slots.iter().filter_map(claims_to_correct).collect());
        let kept = if self.add_name_notice(snapshot) { of_slots.len() } else { 0 };
        let to_delete = outdated.into_iter().skip(kept).filter(|(pod, _)| pod.meta.deletion.is_none());
        self.stages.push(to_delete.map(|(pod, cause)| Action::Delete { pod, cause }).collect());
        true
    }

    fn add_ordered_stages(&mut self, snapshot: &Snapshot<'a>) {
        for (at, slot) in snapshot.slots.iter().enumerate() {
            let SlotDecision { action, stops, waits_for } = self.decide_slot(snapshot, slot);
            let first_left = at + usize::from(action.is_some());
            self.stages.push(action.into_iter().collect());
            if !stops {
                continue;
            }
            self.waiting = waits_for.zip(slot.pod).map(|(cause, pod)| AwaitedPod { pod, cause });
            if self.waiting.as_ref().is_some_and(|it| it.cause == WaitCause::NotReady) {
                match replacement_of_blocked_pod(snapshot) {
                    Due::Now((slot, pod)) => {
                        let action = self.delete_or_correct_claims(snapshot, slot, pod, DeleteCause::Broken);
                        self.stages.push(vec![action]);
                        return;
                    }
                    Due::After(left) => self.check_after = Some(left),
                    Due::Never => {}
                }
            }
            // A pod that is wanted again must not own its claim, which would be deleted with it.
            let has_outdated_claims =
                |it: &&Slot<'a>| it.pod.is_some_and(|pod| !are_claim_owners_right(snapshot, pod, &it.claims, false));
            let left = snapshot.slots.iter().skip(first_left).filter(has_outdated_claims).filter_map(claims_to_correct);
            // A surplus pod must not own its claim either, if the policy keeps claims now.
            let are_kept = snapshot.set.spec.when_scaled == ClaimRetention::Retain;
            let surplus = are_kept.then(|| claim_corrections(snapshot)).into_iter().flatten();
            self.independent_stage = Some(self.stages.len());
            self.stages.push(left.chain(surplus).collect());
            return;
        }
        self.add_claim_corrections(snapshot);
        if let Some(highest) = snapshot.condemned.first() {
            let first_unavailable = snapshot.first_unavailable();
            let is_first = first_unavailable.is_some_and(|it| it.meta.uid == highest.pod.meta.uid);
            let is_healthy = is_running_and_ready(highest.pod)
                && is_available(highest.pod, snapshot.set.spec.min_ready_seconds, snapshot.now);
            if highest.pod.meta.deletion.is_some() {
                self.waiting = Some(AwaitedPod { pod: highest.pod, cause: WaitCause::Terminating });
            } else if is_healthy || is_first || is_terminal(highest.pod) || first_unavailable.is_some_and(is_terminal) {
                self.stages.push(vec![Action::Delete { pod: highest.pod, cause: DeleteCause::Condemned }]);
            } else {
                self.waiting = first_unavailable.map(|pod| AwaitedPod { pod, cause: cause_of_wait(pod) });
            }
            return;
        }
        self.add_rollout_stage(snapshot);
    }

    /// Surplus pods go first, because the quota may not allow a missing pod before (k/k#140858).
    fn add_parallel_stages(&mut self, snapshot: &Snapshot<'a>) {
        self.add_claim_corrections(snapshot);
        let surplus = snapshot.condemned.iter().filter(|it| it.pod.meta.deletion.is_none());
        let delete = |it: &SetPod<'a>| Action::Delete { pod: it.pod, cause: DeleteCause::Condemned };
        self.stages.push(surplus.map(delete).collect());
        let actions: Vec<_> = snapshot.slots.iter().filter_map(|it| self.decide_slot(snapshot, it).action).collect();
        self.idle_slots = snapshot.slots.len() - actions.len();
        self.independent_stage = Some(self.stages.len());
        self.stages.push(actions);
        self.add_rollout_stage(snapshot);
    }

    /// Decides for one slot (`processReplica`).
    fn decide_slot(&mut self, snapshot: &Snapshot<'a>, slot: &Slot<'a>) -> SlotDecision<'a> {
        let Some(pod) = slot.pod else { return self.decide_creation(snapshot, slot) };
        let (ordinal, is_terminating) = (slot.ordinal, pod.meta.deletion.is_some());
        let has_claim_owners = || are_claim_owners_right(snapshot, pod, &slot.claims, false);
        if is_terminal(pod) {
            if is_terminating {
                // A pod that is wanted again must not own its claim.
                let action = claims_to_correct(slot).filter(|_| !has_claim_owners());
                return SlotDecision { action, stops: true, waits_for: Some(WaitCause::Terminating) };
            }
            return SlotDecision::act(self.delete_or_correct_claims(snapshot, slot, pod, DeleteCause::Ended), true);
        }
        // A claim that is being deleted is gone only after the pod, so it must not keep the pod.
        if pod.phase == PodPhase::Pending && !(slot.claims.iter().all(Option::is_some) && has_claim_owners()) {
            let action = Some(Action::CompleteClaims { pod, ordinal });
            return SlotDecision { action, stops: snapshot.is_ordered(), waits_for: Some(WaitCause::NotReady) };
        }
        if snapshot.is_ordered() {
            if is_terminating {
                return SlotDecision::wait(WaitCause::Terminating);
            }
            if !is_running_and_ready(pod) {
                return SlotDecision::wait(WaitCause::NotReady);
            }
            if !is_available(pod, snapshot.set.spec.min_ready_seconds, snapshot.now) {
                return SlotDecision::wait(WaitCause::NotAvailable);
            }
        }
        if has_identity(pod) && has_volumes(snapshot, pod, slot) && has_claim_owners() {
            return SlotDecision::DONE;
        }
        SlotDecision::act(Action::Repair { pod, ordinal }, false)
    }

    fn decide_creation(&mut self, snapshot: &Snapshot<'a>, slot: &Slot<'a>) -> SlotDecision<'a> {
        let stop = SlotDecision { action: None, stops: true, waits_for: None };
        let (name, revision) = (pod_name(&snapshot.set.meta.name, slot.ordinal), new_revision(snapshot, slot.ordinal));
        let revision_name = match revision {
            PodRevision::Current => snapshot.revisions.current,
            PodRevision::Update => snapshot.revisions.update,
        };
        if let Some(why) = identity::label_length_error(&name, revision_name) {
            if self.notices.is_empty() {
                self.notices.push(Notice::NameTooLong { pod: name, why });
            }
            return stop;
        }
        let owners = snapshot.owners(&name, None, false);
        // The claim is deleted together with the earlier pod or set.
        if slot.claims.iter().flatten().any(|it| owners.is_claim_of_earlier_owner(&it.meta.owners)) {
            return stop;
        }
        SlotDecision::act(Action::Create { ordinal: slot.ordinal, revision }, true)
    }

    /// Corrects the owners of the claims before the pods are deleted; otherwise the claims would stay (k/k#122400).
    fn add_claim_corrections(&mut self, snapshot: &Snapshot<'a>) {
        self.stages.push(claim_corrections(snapshot).collect());
    }

    /// Deletes a pod. If it still owns one of its claims, which would be deleted with it, only the claims are corrected
    /// now, and the next sync follows at once.
    fn delete_or_correct_claims(
        &mut self,
        snapshot: &Snapshot<'a>,
        slot: &Slot<'a>,
        pod: &'a Pod,
        cause: DeleteCause,
    ) -> Action<'a> {
        let Some(correction) = claims_to_correct(slot) else { return Action::Delete { pod, cause } };
        // If they are not right, the garbage collector must remove a reference first, which enqueues the set.
        if !are_claim_owners_right(snapshot, pod, &slot.claims, false) {
            self.check_after = Some(0);
        }
        correction
    }

    /// Adds a notice if the name of the update revision is too long for a label, so that the pods of an update could
    /// not be created. Returns whether it is.
    fn add_name_notice(&mut self, snapshot: &Snapshot<'a>) -> bool {
        let lowest = snapshot.outdated_pods(snapshot.partition()).next();
        let error =
            lowest.and_then(|it| Some((it, identity::label_length_error(&it.meta.name, snapshot.revisions.update)?)));
        let Some((pod, why)) = error else { return false };
        if self.notices.is_empty() {
            self.notices.push(Notice::NameTooLong { pod: pod.meta.name.to_string(), why });
        }
        true
    }

    fn add_rollout_stage(&mut self, snapshot: &Snapshot<'a>) {
        if snapshot.is_cut || snapshot.set.spec.update_strategy == UpdateStrategyType::OnDelete {
            return;
        }
        let ended = self.stages.iter().flatten().filter_map(|it| match it {
            Action::Delete { pod, .. } => Some(pod.meta.uid.clone()),
            _ => None,
        });
        let ended: HashSet<Uid> = ended.collect();
        let Rollout { delete, waiting, unavailable } = rollout(snapshot, |pod| ended.contains(&pod.meta.uid));
        if !self.add_name_notice(snapshot) {
            self.stages.push(delete.into_iter().map(|(pod, cause)| Action::Delete { pod, cause }).collect());
        }
        self.waiting = waiting.map(|pod| AwaitedPod { pod, cause: cause_of_wait(pod) });
        self.unavailable = Some(unavailable);
    }
}

/// The revision of a new pod (`newVersionedStatefulSetPod`).
fn new_revision(snapshot: &Snapshot<'_>, ordinal: i32) -> PodRevision {
    if is_created_at_update_revision(snapshot, ordinal, snapshot.set.status.current) {
        PodRevision::Update
    } else {
        PodRevision::Current
    }
}

/// The pod to replace: the highest outdated one that is broken, if the user allows it and nothing else changes.
fn replacement_of_blocked_pod<'b, 'a>(snapshot: &'b Snapshot<'a>) -> Due<(&'b Slot<'a>, &'a Pod)> {
    let spec = &snapshot.set.spec;
    let is_allowed = snapshot.set.annotations.get(REPLACE_BLOCKED) == Some("true");
    if !is_allowed || spec.update_strategy != UpdateStrategyType::RollingUpdate {
        return Due::Never;
    }
    // A pod that is being deleted, or an updated one that starts.
    let is_changing = |it: &Pod| it.meta.deletion.is_some() || (!snapshot.is_outdated(it) && !is_running_and_ready(it));
    if snapshot.slots.iter().filter_map(|it| it.pod).any(is_changing) {
        return Due::Never;
    }
    let mut above = snapshot.slots.iter().skip(snapshot.partition()).rev();
    let is_broken = |it: &&Slot<'a>| it.pod.is_some_and(|it| snapshot.is_outdated(it) && !is_running_and_ready(it));
    let Some((slot, pod)) = above.find(is_broken).and_then(|it| Some((it, it.pod?))) else { return Due::Never };
    let can_be_created = identity::label_length_error(&pod.meta.name, snapshot.revisions.update).is_none();
    if !can_be_created || !is_created_at_update_revision(snapshot, slot.ordinal, count_current(snapshot) - 1) {
        return Due::Never;
    }
    let Some(since) = WaitCause::NotReady.since(pod) else { return Due::Never };
    let left = since.saturating_add(BROKEN_AFTER).saturating_sub(snapshot.now.as_second());
    if left > 0 {
        return Due::After(left);
    }
    Due::Now((slot, pod))
}

/// The corrections of the claims of surplus pods.
fn claim_corrections<'a>(snapshot: &Snapshot<'a>) -> impl Iterator<Item = Action<'a>> {
    let outdated = snapshot.condemned.iter().filter(|it| !are_claim_owners_right(snapshot, it.pod, &it.claims, true));
    outdated.map(|it| Action::CorrectClaims { pod: it.pod, ordinal: it.ordinal, is_condemned: true })
}

/// The correction of the claims of a slot, if the pod still owns one of them.
fn claims_to_correct<'a>(slot: &Slot<'a>) -> Option<Action<'a>> {
    let pod = slot.pod?;
    let is_owner = slot.claims.iter().flatten().any(|it| it.meta.owners.iter().any(|it| it.uid == pod.meta.uid));
    is_owner.then_some(Action::CorrectClaims { pod, ordinal: slot.ordinal, is_condemned: false })
}

/// Whether the pod has a volume for each claim (`storageMatches`).
fn has_volumes(snapshot: &Snapshot<'_>, pod: &Pod, slot: &Slot<'_>) -> bool {
    snapshot.set.spec.claim_templates.iter().zip(&slot.claims).all(|(template, claim)| {
        let mut of_template = pod.claims.iter().filter(|it| *it.volume == *template.name);
        of_template.any(|it| match claim {
            Some(claim) => it.claim == claim.meta.name,
            None => *it.claim == *identity::claim_name(&template.name, &snapshot.set.meta.name, slot.ordinal),
        })
    })
}

fn are_claim_owners_right(
    snapshot: &Snapshot<'_>,
    pod: &Pod,
    claims: &[Option<Arc<PersistentVolumeClaim>>],
    is_condemned: bool,
) -> bool {
    let owners = snapshot.owners(&pod.meta.name, Some(pod), is_condemned);
    claims.iter().flatten().all(|it| owners.check(&it.meta.owners) == OwnerCheck::UpToDate)
}

fn cause_of_wait(pod: &Pod) -> WaitCause {
    match pod.meta.deletion {
        Some(_) => WaitCause::Terminating,
        None if is_running_and_ready(pod) => WaitCause::NotAvailable,
        None => WaitCause::NotReady,
    }
}

#[cfg(test)]
mod tests;
