//! The changes of the pods of a set (`updateStatefulSet`).
//!
//! A set with the policy OrderedReady changes one pod at a time: slots in ascending order, then surplus pods in
//! descending order, then outdated pods in descending order. Each step waits until all before it are done.

use std::{collections::HashSet, sync::Arc};

use api::{PersistentVolumeClaim, Pod, PodPhase, Uid, UpdateStrategyType};
use workload::is_available;

use crate::rules::{
    identity::{self, has_identity, pod_name},
    notices::{Notice, WaitCause, Waiting},
    retention::ClaimOwners,
    rollout::{DeleteCause, Rollout, gets_update_revision, rollout},
    snapshot::{SetPod, Slot, Snapshot, has_ended, is_running_and_ready},
};

/// With [`REPLACE_BLOCKED`], a pod that has not been ready for this long is broken, in seconds.
const BROKEN_AFTER: i64 = 60;

/// With this annotation a rollout replaces a pod that blocks it.
pub(crate) const REPLACE_BLOCKED: &str = "mini-kcm.dev/replace-blocked-pods";

/// What to do for a set.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    /// The stages in their order. A stage starts only if all actions of the ones before it succeeded.
    pub(crate) stages: Vec<Vec<Action<'a>>>,
    /// The pod for which the set waits.
    pub(crate) waiting: Option<Waiting<'a>>,
    /// What prevents the creation of a pod without a request.
    pub(crate) notices: Vec<Notice>,
    /// The number of unavailable slots, if the rollout stage was reached.
    pub(crate) unavailable: Option<usize>,
    /// The seconds until a broken pod may be replaced.
    pub(crate) check_after: Option<i64>,
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
struct Step<'a> {
    action: Option<Action<'a>>,
    /// Nothing after this slot may be done in this sync.
    stops: bool,
    waits_for: Option<WaitCause>,
}

impl<'a> Step<'a> {
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
    if snapshot.is_deleting() || (snapshot.uses_recreate() && plan.recreate(snapshot)) {
        return plan;
    }
    if snapshot.is_ordered() {
        plan.ordered(snapshot);
    } else {
        plan.parallel(snapshot);
    }
    plan
}

impl<'a> Plan<'a> {
    /// Deletes all outdated pods. Returns true while any of them exists.
    fn recreate(&mut self, snapshot: &Snapshot<'a>) -> bool {
        let slots = snapshot.slots.iter().filter_map(|it| it.pod);
        let all = slots.chain(snapshot.condemned.iter().map(|it| it.pod));
        let outdated: Vec<&Pod> = all.filter(|it| snapshot.is_outdated(it)).collect();
        let to_delete = outdated.iter().filter(|it| it.meta.deletion.is_none());
        let to_delete: Vec<_> = to_delete.map(|pod| Action::Delete { pod, cause: DeleteCause::Update }).collect();
        if !outdated.is_empty() {
            self.correct_condemned_claims(snapshot);
            let slots = snapshot.slots.iter().filter_map(|slot| claims_to_correct(snapshot, slot));
            self.stages.push(slots.collect());
        }
        self.stages.push(to_delete);
        !outdated.is_empty()
    }

    fn ordered(&mut self, snapshot: &Snapshot<'a>) {
        for slot in &snapshot.slots {
            let Step { action, stops, waits_for } = self.step(snapshot, slot);
            self.stages.push(action.into_iter().collect());
            if !stops {
                continue;
            }
            self.waiting = waits_for.zip(slot.pod).map(|(cause, pod)| Waiting { pod, cause });
            if self.waiting.as_ref().is_some_and(|it| it.cause == WaitCause::NotReady) {
                match blocked_pod(snapshot) {
                    Ok(action) => self.stages.push(vec![action]),
                    Err(left) => self.check_after = left,
                }
            }
            return;
        }
        self.correct_condemned_claims(snapshot);
        if let Some(highest) = snapshot.condemned.first() {
            let first_unavailable = snapshot.first_unavailable();
            let is_first = first_unavailable.is_some_and(|it| it.meta.uid == highest.pod.meta.uid);
            let is_healthy = is_running_and_ready(highest.pod)
                && is_available(highest.pod, snapshot.set.spec.min_ready_seconds, snapshot.now);
            if highest.pod.meta.deletion.is_some() {
                self.waiting = Some(Waiting { pod: highest.pod, cause: WaitCause::Terminating });
            } else if is_healthy || is_first {
                self.stages.push(vec![Action::Delete { pod: highest.pod, cause: DeleteCause::Condemned }]);
            } else {
                self.waiting = first_unavailable.map(|pod| Waiting { pod, cause: cause_of_wait(pod) });
            }
            return;
        }
        self.roll_out(snapshot);
    }

    /// Surplus pods go first, because the quota may not allow a missing pod before (k/k#140858).
    fn parallel(&mut self, snapshot: &Snapshot<'a>) {
        self.correct_condemned_claims(snapshot);
        let surplus = snapshot.condemned.iter().filter(|it| it.pod.meta.deletion.is_none());
        let delete = |it: &SetPod<'a>| Action::Delete { pod: it.pod, cause: DeleteCause::Condemned };
        self.stages.push(surplus.map(delete).collect());
        let steps: Vec<_> = snapshot.slots.iter().filter_map(|it| self.step(snapshot, it).action).collect();
        self.stages.push(steps);
        self.roll_out(snapshot);
    }

    /// Decides for one slot (`processReplica`).
    fn step(&mut self, snapshot: &Snapshot<'a>, slot: &Slot<'a>) -> Step<'a> {
        let Some(pod) = slot.pod else { return self.create(snapshot, slot) };
        let (ordinal, is_terminating) = (slot.ordinal, pod.meta.deletion.is_some());
        let has_claim_owners = || are_claim_owners_right(snapshot, pod, &slot.claims, false);
        if has_ended(pod) {
            return match (is_terminating, has_claim_owners()) {
                (true, _) => Step::wait(WaitCause::Terminating),
                (false, true) => Step::act(Action::Delete { pod, cause: DeleteCause::Ended }, true),
                // A claim that the pod still owns would be deleted with it.
                (false, false) => Step::act(Action::CorrectClaims { pod, ordinal, is_condemned: false }, true),
            };
        }
        let is_usable =
            |it: &Option<Arc<PersistentVolumeClaim>>| it.as_ref().is_some_and(|it| it.meta.deletion.is_none());
        if pod.phase == PodPhase::Pending && !(slot.claims.iter().all(is_usable) && has_claim_owners()) {
            let action = Some(Action::CompleteClaims { pod, ordinal });
            return Step { action, stops: snapshot.is_ordered(), waits_for: Some(WaitCause::NotReady) };
        }
        if snapshot.is_ordered() {
            if is_terminating {
                return Step::wait(WaitCause::Terminating);
            }
            if !is_running_and_ready(pod) {
                return Step::wait(WaitCause::NotReady);
            }
            if !is_available(pod, snapshot.set.spec.min_ready_seconds, snapshot.now) {
                return Step::wait(WaitCause::NotAvailable);
            }
        }
        if has_identity(pod) && has_volumes(snapshot, pod, ordinal) && has_claim_owners() {
            return Step::DONE;
        }
        Step::act(Action::Repair { pod, ordinal }, false)
    }

    fn create(&mut self, snapshot: &Snapshot<'a>, slot: &Slot<'a>) -> Step<'a> {
        let stop = Step { action: None, stops: true, waits_for: None };
        let (name, revision) = (pod_name(&snapshot.set.meta.name, slot.ordinal), new_revision(snapshot, slot.ordinal));
        let revision_name = match revision {
            PodRevision::Current => snapshot.revisions.current,
            PodRevision::Update => snapshot.revisions.update,
        };
        if let Some(why) = identity::label_fault(&name, revision_name) {
            if self.notices.is_empty() {
                self.notices.push(Notice::NameTooLong { pod: name, why });
            }
            return stop;
        }
        let owners = snapshot.owners(&name, None, false);
        // The claim is deleted together with the earlier pod.
        if slot.claims.iter().flatten().any(|it| owners.is_claim_of_earlier_pod(&it.meta.owners)) {
            return stop;
        }
        Step::act(Action::Create { ordinal: slot.ordinal, revision }, true)
    }

    /// Corrects the owners of the claims before the pods are deleted; otherwise the claims would stay (k/k#122400).
    fn correct_condemned_claims(&mut self, snapshot: &Snapshot<'a>) {
        let outdated =
            snapshot.condemned.iter().filter(|it| !are_claim_owners_right(snapshot, it.pod, &it.claims, true));
        self.stages.push(
            outdated.map(|it| Action::CorrectClaims { pod: it.pod, ordinal: it.ordinal, is_condemned: true }).collect(),
        );
    }

    fn roll_out(&mut self, snapshot: &Snapshot<'a>) {
        if snapshot.set.spec.update_strategy == UpdateStrategyType::OnDelete {
            return;
        }
        let ended = self.stages.iter().flatten().filter_map(|it| match it {
            Action::Delete { pod, .. } => Some(pod.meta.uid.clone()),
            _ => None,
        });
        let ended: HashSet<Uid> = ended.collect();
        let Rollout { delete, waiting, unavailable } = rollout(snapshot, |pod| ended.contains(&pod.meta.uid));
        self.stages.push(delete.into_iter().map(|(pod, cause)| Action::Delete { pod, cause }).collect());
        self.waiting = waiting.map(|pod| Waiting { pod, cause: cause_of_wait(pod) });
        self.unavailable = Some(unavailable);
    }
}

/// The revision of a new pod (`newVersionedStatefulSetPod`).
fn new_revision(snapshot: &Snapshot<'_>, ordinal: i32) -> PodRevision {
    if gets_update_revision(snapshot, ordinal, 0) { PodRevision::Update } else { PodRevision::Current }
}

/// Replaces the highest outdated pod that is broken, if the user allows it and nothing else changes. Returns the time
/// until the pod counts as broken, if that is the only obstacle.
fn blocked_pod<'a>(snapshot: &Snapshot<'a>) -> Result<Action<'a>, Option<i64>> {
    let spec = &snapshot.set.spec;
    let is_allowed = snapshot.set.annotations.get(REPLACE_BLOCKED) == Some("true");
    if !is_allowed || spec.update_strategy != UpdateStrategyType::RollingUpdate {
        return Err(None);
    }
    // A pod that is being deleted, or an updated one that starts.
    let is_changing = |it: &Pod| it.meta.deletion.is_some() || (!snapshot.is_outdated(it) && !is_running_and_ready(it));
    if snapshot.slots.iter().filter_map(|it| it.pod).any(is_changing) {
        return Err(None);
    }
    let above = snapshot.slots.iter().skip(snapshot.partition()).rev();
    let is_broken = |it: &&Slot<'a>| it.pod.is_some_and(|it| snapshot.is_outdated(it) && !is_running_and_ready(it));
    let slot = above.into_iter().find(is_broken).ok_or(None)?;
    let Some(pod) = slot.pod.filter(|_| gets_update_revision(snapshot, slot.ordinal, 1)) else { return Err(None) };
    let since = Waiting { pod, cause: WaitCause::NotReady }.since().ok_or(None)?;
    let left = since.saturating_add(BROKEN_AFTER).saturating_sub(snapshot.now.as_second());
    if left > 0 {
        return Err(Some(left));
    }
    Ok(claims_to_correct(snapshot, slot).unwrap_or(Action::Delete { pod, cause: DeleteCause::Broken }))
}

/// The correction of the claims of a slot before its pod is deleted: a claim that the pod still owns would be deleted
/// with it.
fn claims_to_correct<'a>(snapshot: &Snapshot<'a>, slot: &Slot<'a>) -> Option<Action<'a>> {
    let pod = slot.pod.filter(|it| !are_claim_owners_right(snapshot, it, &slot.claims, false))?;
    Some(Action::CorrectClaims { pod, ordinal: slot.ordinal, is_condemned: false })
}

/// Whether the pod has a volume for each claim (`storageMatches`).
fn has_volumes(snapshot: &Snapshot<'_>, pod: &Pod, ordinal: i32) -> bool {
    snapshot.set.spec.claim_templates.iter().all(|template| {
        let name = identity::claim_name(&template.name, &snapshot.set.meta.name, ordinal);
        pod.claims.iter().any(|it| *it.volume == *template.name && *it.claim == *name)
    })
}

fn are_claim_owners_right(
    snapshot: &Snapshot<'_>,
    pod: &Pod,
    claims: &[Option<Arc<PersistentVolumeClaim>>],
    is_condemned: bool,
) -> bool {
    let owners = snapshot.owners(&pod.meta.name, Some(pod), is_condemned);
    claims.iter().flatten().all(|it| owners.check(&it.meta.owners) == ClaimOwners::UpToDate)
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
