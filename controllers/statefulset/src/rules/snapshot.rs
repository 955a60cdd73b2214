//! The input of a decision.

use std::sync::Arc;

use api::{PersistentVolumeClaim, Pod, PodManagementPolicy, PodPhase, StatefulSet, UpdateStrategyType};
use clock::Timestamp;
use workload::{is_available, is_ready};

use crate::rules::{
    identity::{self, claim_name},
    retention::PossibleOwners,
};

/// There are at most this many slots more than pods. A set that needs more is not updated. With an enormous `replicas`
/// the slots must not use all memory.
const MAX_MISSING: usize = 100_000;

/// What is known of a set at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    /// The set in the cache.
    pub(crate) set: &'a StatefulSet,
    /// All pods of the set, whatever their names.
    pub(crate) members: Vec<&'a Pod>,
    /// The wanted ordinals in ascending order.
    pub(crate) slots: Vec<Slot<'a>>,
    /// Some of the wanted ordinals have no slot, because too many pods are missing.
    pub(crate) is_cut: bool,
    /// The pods whose ordinals are not wanted, highest first.
    pub(crate) condemned: Vec<SetPod<'a>>,
    /// The names of the revisions.
    pub(crate) revisions: Revisions<'a>,
    /// The time at which availability is evaluated.
    pub(crate) now: Timestamp,
    /// The feature gates.
    pub(crate) gates: Gates,
}

/// The names of the revisions of a set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Revisions<'a> {
    /// That of the pods that are not updated yet.
    pub(crate) current: &'a str,
    /// That of the present template.
    pub(crate) update: &'a str,
}

/// The feature gates that rules read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Gates {
    /// MaxUnavailableStatefulSet (KEP-961).
    pub(crate) max_unavailable: bool,
    /// StatefulSetRecreateStrategy (KEP-3541).
    pub(crate) recreate: bool,
}

/// A wanted ordinal.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    /// The ordinal.
    pub(crate) ordinal: i32,
    /// The pod that has it.
    pub(crate) pod: Option<&'a Pod>,
    /// Its claims in the order of the templates.
    pub(crate) claims: Vec<Option<Arc<PersistentVolumeClaim>>>,
}

/// A pod with a valid ordinal.
#[derive(Debug)]
pub(crate) struct SetPod<'a> {
    /// The ordinal.
    pub(crate) ordinal: i32,
    /// The pod.
    pub(crate) pod: &'a Pod,
    /// Its claims in the order of the templates.
    pub(crate) claims: Vec<Option<Arc<PersistentVolumeClaim>>>,
}

/// Sorts the pods of a set by ordinal. `claim` returns the cached claim of a name.
pub(crate) fn gather<'a, E>(
    set: &'a StatefulSet,
    pods: &'a [Arc<Pod>],
    claim: impl Fn(&str) -> Result<Option<Arc<PersistentVolumeClaim>>, E>,
    revisions: Revisions<'a>,
    now: Timestamp,
    gates: Gates,
) -> Result<Snapshot<'a>, E> {
    let (name, spec) = (&*set.meta.name, &set.spec);
    let claims_of = |ordinal: i32| {
        let names = spec.claim_templates.iter().map(|it| claim_name(&it.name, name, ordinal));
        names.map(|it| claim(&it)).collect::<Result<Vec<_>, E>>()
    };
    let wanted = usize::try_from(spec.replicas).unwrap_or_default();
    let count = wanted.min(pods.len().saturating_add(MAX_MISSING));
    let mut by_ordinal: Vec<Option<&Pod>> = vec![None; count];
    let mut condemned = Vec::new();
    for pod in pods.iter().map(|it| &**it) {
        let Some(ordinal) = identity::ordinal(&pod.meta.name, name) else { continue };
        let position = ordinal.checked_sub(spec.start).and_then(|it| usize::try_from(it).ok());
        match position.filter(|it| *it < wanted).map(|it| by_ordinal.get_mut(it)) {
            Some(Some(slot)) => *slot = Some(pod),
            Some(None) => {}
            None => condemned.push(SetPod { ordinal, pod, claims: claims_of(ordinal)? }),
        }
    }
    condemned.sort_by_key(|it| std::cmp::Reverse(it.ordinal));
    // The server accepts a start with which the last ordinals are too large.
    let ordinals = (0..i32::MAX).map_while(|position| spec.start.checked_add(position));
    let slots = by_ordinal.into_iter().zip(ordinals);
    let slots = slots.map(|(pod, ordinal)| Ok(Slot { ordinal, pod, claims: claims_of(ordinal)? }));
    let slots = slots.collect::<Result<_, E>>()?;
    let members = pods.iter().map(|it| &**it).collect();
    Ok(Snapshot { set, members, slots, is_cut: count < wanted, condemned, revisions, now, gates })
}

impl<'a> Snapshot<'a> {
    /// Whether pods are created and deleted one after the other.
    pub(crate) fn is_ordered(&self) -> bool {
        self.set.spec.pod_management != PodManagementPolicy::Parallel
    }

    /// Whether the set is being deleted. The garbage collector deletes its pods.
    pub(crate) fn is_deleting(&self) -> bool {
        self.set.meta.deletion.is_some()
    }

    /// Whether all pods are deleted before the first is created again.
    pub(crate) fn uses_recreate(&self) -> bool {
        self.gates.recreate && self.set.spec.update_strategy == UpdateStrategyType::Recreate
    }

    /// How many slots, from the lowest up, keep the current revision.
    pub(crate) fn partition(&self) -> usize {
        let partition = self.set.spec.rolling_update.as_ref().map_or(0, |it| it.partition);
        usize::try_from(partition).unwrap_or_default()
    }

    /// Whether the pod is of another revision than the present template.
    pub(crate) fn is_outdated(&self, pod: &Pod) -> bool {
        identity::revision(pod) != self.revisions.update
    }

    /// The outdated pods of the slots from this position up, lowest first.
    pub(crate) fn outdated_pods(&self, from: usize) -> impl Iterator<Item = &'a Pod> {
        let slots = self.slots.get(from..).unwrap_or_default();
        slots.iter().filter_map(|it| it.pod).filter(|it| self.is_outdated(it))
    }

    /// Whether the pod is not available, or is being deleted (`isUnavailable`).
    pub(crate) fn is_unavailable(&self, pod: &Pod) -> bool {
        pod.meta.deletion.is_some() || !is_available(pod, self.set.spec.min_ready_seconds, self.now)
    }

    /// The unavailable pod that must be repaired first: the one in the lowest slot, then the condemned one with the
    /// lowest ordinal. `None` also if that slot has no pod.
    pub(crate) fn first_unavailable(&self) -> Option<&'a Pod> {
        let is_unavailable = |slot: &&Slot<'a>| slot.pod.is_none_or(|it| self.is_unavailable(it));
        match self.slots.iter().find(is_unavailable) {
            Some(slot) => slot.pod,
            None => self.condemned.iter().rev().map(|it| it.pod).find(|it| self.is_unavailable(it)),
        }
    }

    /// The owners of the claims of a pod.
    pub(crate) fn owners<'b>(
        &'b self,
        pod_name: &'b str,
        pod: Option<&'b Pod>,
        is_condemned: bool,
    ) -> PossibleOwners<'b> {
        PossibleOwners { set: self.set, pod_name, pod_uid: pod.map(|it| &it.meta.uid), is_condemned }
    }
}

/// Whether the pod runs and is ready (`isRunningAndReady`).
pub(crate) fn is_running_and_ready(pod: &Pod) -> bool {
    pod.phase == PodPhase::Running && is_ready(pod)
}
