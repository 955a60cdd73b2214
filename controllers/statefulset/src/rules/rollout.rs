//! The last stage of a plan: which outdated pods are replaced (`updateStatefulSetAfterInvariantEstablished`).

use api::{Pod, UpdateStrategyType};

use crate::rules::{
    snapshot::{Slot, Snapshot, is_running_and_ready},
    status::count_current,
};

/// Why a pod is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteCause {
    /// It has ended.
    Ended,
    /// Its ordinal is not wanted any more.
    Condemned,
    /// It is outdated.
    Update,
    /// It is outdated and broken. If it has become ready meanwhile, it must wait as the others do.
    Broken,
}

/// The result.
#[derive(Debug, PartialEq)]
pub(crate) struct Rollout<'a> {
    /// The pods to delete, and why.
    pub(crate) delete: Vec<(&'a Pod, DeleteCause)>,
    /// The pod that must become available first.
    pub(crate) waiting: Option<&'a Pod>,
    /// The number of slots without an available pod.
    pub(crate) unavailable: usize,
}

/// A slot as this stage needs it.
#[derive(Clone, Copy)]
struct Target<'a> {
    ordinal: i32,
    pod: Option<&'a Pod>,
    is_outdated: bool,
    is_unavailable: bool,
    is_ready: bool,
    is_terminating: bool,
}

/// Selects the outdated pods that are deleted now. `is_deleted_now`: an earlier stage of this plan deletes the pod.
pub(crate) fn rollout<'a>(snapshot: &Snapshot<'a>, is_deleted_now: impl Fn(&Pod) -> bool) -> Rollout<'a> {
    let target = |slot: &Slot<'a>| {
        let pod = slot.pod;
        let is_terminating = pod.is_some_and(|it| it.meta.deletion.is_some() || is_deleted_now(it));
        Target {
            ordinal: slot.ordinal,
            pod,
            is_outdated: pod.is_some_and(|it| snapshot.is_outdated(it)),
            is_unavailable: is_terminating || pod.is_none_or(|it| snapshot.is_unavailable(it)),
            is_ready: pod.is_some_and(is_running_and_ready),
            is_terminating,
        }
    };
    let targets: Vec<Target<'a>> = snapshot.slots.iter().map(target).collect();
    let unavailable = targets.iter().filter(|it| it.is_unavailable).count();
    // At or above the partition.
    let above = targets.get(snapshot.partition()..).unwrap_or_default();
    let (delete, waiting) = if snapshot.gates.max_unavailable {
        let delete = within_budget(snapshot, above, unavailable);
        // A pod below the partition uses the budget too.
        let broken = targets.iter().rev().find(|it| it.is_unavailable).and_then(|it| it.pod);
        let waiting = broken.filter(|_| delete.is_empty());
        (delete, waiting)
    } else {
        one_by_one(above)
    };
    Rollout { delete, waiting, unavailable }
}

/// One pod, from the highest ordinal down, after all higher ones are available.
fn one_by_one<'a>(above: &[Target<'a>]) -> (Vec<(&'a Pod, DeleteCause)>, Option<&'a Pod>) {
    for it in above.iter().rev() {
        match it.pod {
            Some(pod) if it.is_outdated && !it.is_terminating => return (vec![(pod, DeleteCause::Update)], None),
            _ if it.is_unavailable => return (Vec::new(), it.pod),
            _ => {}
        }
    }
    (Vec::new(), None)
}

/// As many pods as `maxUnavailable` allows (KEP-961), from the highest ordinal down. With the policy Parallel, outdated
/// pods that are not ready are replaced without using the budget (k/k#137666). Upstream includes ready pods that are
/// not available yet; here they use the budget and are replaced before available ones. A broken pod that would be
/// created again at the current revision uses no budget: it is replaced only after enough higher pods.
fn within_budget<'a>(snapshot: &Snapshot<'_>, above: &[Target<'a>], unavailable: usize) -> Vec<(&'a Pod, DeleteCause)> {
    let limit = max_unavailable(snapshot);
    let is_replaceable = |it: &&Target<'a>| it.is_outdated && !it.is_terminating;
    let update = |it: &Target<'a>| Some((it.pod?, DeleteCause::Update));
    if snapshot.is_ordered() {
        let budget = limit.saturating_sub(unavailable);
        return above.iter().rev().filter(is_replaceable).filter_map(update).take(budget).collect();
    }
    let outdated = || above.iter().rev().filter(is_replaceable);
    let broken = outdated().filter(|it| it.is_unavailable && !it.is_ready).zip(1..);
    let current = count_current(snapshot);
    let (broken, too_low): (Vec<_>, Vec<_>) =
        broken.partition(|(it, deleted)| is_created_at_update_revision(snapshot, it.ordinal, current - *deleted));
    let next = i32::try_from(broken.len()).unwrap_or(i32::MAX).saturating_add(1);
    let is_updated =
        |it: &&Target<'a>| is_created_at_update_revision(snapshot, it.ordinal, current.saturating_sub(next));
    let not_yet_available: Vec<_> =
        outdated().filter(|it| it.is_unavailable && it.is_ready).filter(is_updated).collect();
    let available = outdated().filter(|it| !it.is_unavailable);
    let budget = limit.saturating_sub(unavailable - too_low.len() - not_yet_available.len());
    let broken = broken.into_iter().filter_map(|(it, _)| Some((it.pod?, DeleteCause::Broken)));
    broken.chain(not_yet_available.into_iter().chain(available).filter_map(update).take(budget)).collect()
}

/// Whether a new pod of this ordinal gets the update revision. With the strategy RollingUpdate and without a
/// `rollingUpdate` block the first `current` ordinals get the current revision. For a missing pod `current` is the
/// number in the status, so that it is not updated early. For a pod to delete it is the number of current pods after
/// its deletion, so that a broken lower pod is not created again and again at the current revision.
pub(crate) fn is_created_at_update_revision(snapshot: &Snapshot<'_>, ordinal: i32, current: i32) -> bool {
    let spec = &snapshot.set.spec;
    let kept = match &spec.rolling_update {
        Some(rolling_update) => rolling_update.partition,
        None if spec.update_strategy == UpdateStrategyType::RollingUpdate => current,
        None => 0,
    };
    ordinal >= spec.start.saturating_add(kept)
}

/// How many pods may be unavailable: at least one, and percentages are rounded down (`getStatefulSetMaxUnavailable`).
pub(crate) fn max_unavailable(snapshot: &Snapshot<'_>) -> usize {
    let replicas = usize::try_from(snapshot.set.spec.replicas).unwrap_or_default();
    let value = snapshot.set.spec.rolling_update.as_ref().and_then(|it| it.max_unavailable.as_ref());
    // The server accepts only numbers and percentages.
    value.and_then(|it| it.scaled_down(replicas)).unwrap_or(1).max(1)
}
