//! Decides what happens to one object. Pure: the known state and the proved states of its owners are the input, a
//! verdict is the output.
//!
//! The permission to delete is a value, [`DeletePermit`], that is created only here. For each owner it contains the
//! proof that the owner is gone, or that it waits for this object.

use api::{Meta, OwnerRef, Uid, Version};
use client::Propagation;

use crate::{
    graph::{Coordinates, Item, NodeView},
    rules::evidence::{CheckedObject, FOREGROUND, Gone, ORPHAN, Object, OwnerState, WaitingProof, has},
};

/// The next step for an item, before any request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Nothing: it is being deleted already, or has no owners.
    Nothing,
    /// No monitor shows it: read it live.
    LookUp(Coordinates),
    /// It waits for its blocking dependents.
    Foreground(Object),
    /// The states of its owners are needed.
    CheckOwners(Object),
}

/// What is known of an object's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Dependents {
    pub(crate) any: bool,
    /// One of them waits for its own dependents, so there may be a cycle.
    pub(crate) any_waiting: bool,
}

/// The verdict on an object that does not wait for its dependents.
#[derive(Debug)]
pub(crate) enum Verdict {
    Keep,
    /// It stays, and some of its references must be removed.
    DropRefs(RefRemoval),
    Delete(DeletePermit),
}

/// References to remove from an object that stays.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RefRemoval {
    pub(crate) object: Object,
    /// The owners to remove.
    pub(crate) owners: Vec<Uid>,
}

/// The permission to delete one object, in one state.
#[derive(Debug)]
pub(crate) struct DeletePermit {
    object: Object,
    /// One for each reference, and at least one.
    owners: Vec<NonBlockingOwner>,
    policy: Propagation,
    unblock_own_refs_first: bool,
}

/// An owner that does not keep its dependent.
#[derive(Debug)]
pub(crate) enum NonBlockingOwner {
    Gone(Gone),
    Waiting(WaitingProof),
}

/// Why an object is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeleteReason {
    /// All its owners are gone.
    OwnersGone,
    /// Its remaining owners wait for it.
    OwnerWaits,
}

/// The next step for an object that waits for its dependents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Foreground {
    /// No dependent blocks it any more.
    Finish,
    /// These dependents block it and must be checked. Dependents that wait for their own dependents are not in the
    /// list.
    Check(Vec<Item>),
}

impl DeletePermit {
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn owners(&self) -> &[NonBlockingOwner] {
        &self.owners
    }

    pub(crate) fn policy(&self) -> Propagation {
        self.policy
    }

    /// True if the object's own references must first be set to not block: it and an owner may wait for each other.
    pub(crate) fn unblock_own_refs_first(&self) -> bool {
        self.unblock_own_refs_first
    }

    pub(crate) fn reason(&self) -> DeleteReason {
        if self.owners.iter().any(|it| matches!(it, NonBlockingOwner::Waiting(_))) {
            DeleteReason::OwnerWaits
        } else {
            DeleteReason::OwnersGone
        }
    }

    /// Compares with the live state of the object. If nothing relevant changed, the permission is valid for that state
    /// too. Otherwise an object that is written all the time would never be deleted.
    pub(crate) fn revalidate(&mut self, live: &Meta) -> bool {
        let seen = &self.object.meta;
        let same = live.uid == seen.uid
            && live.owners == seen.owners
            && live.deletion.is_some() == seen.deletion.is_some()
            && [FOREGROUND, ORPHAN].iter().all(|it| has(live, it) == has(seen, it));
        if same {
            self.object.meta = live.clone();
        }
        same
    }

    /// Records that its own references no longer block. That patch was based on the checked state, so its result is the
    /// state now.
    pub(crate) fn on_refs_unblocked(&mut self, version: Version) {
        let meta = &mut self.object.meta;
        let unblocked = meta.owners.iter().map(|it| OwnerRef { block_owner_deletion: false, ..it.clone() });
        meta.owners = unblocked.collect();
        meta.version = version;
        self.unblock_own_refs_first = false;
    }
}

impl DeleteReason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::OwnersGone => "owners_gone",
            Self::OwnerWaits => "owner_waits",
        }
    }
}

/// The next step for an item, by its known state.
pub(crate) fn next_step(node: NodeView) -> NextStep {
    let NodeView { coordinates, resource, meta, deleting, deleting_dependents, .. } = node;
    let (Some(resource), Some(meta)) = (resource, meta) else { return NextStep::LookUp(coordinates) };
    let has_owners = !meta.owners.is_empty();
    let object = Object { coordinates, resource, meta };
    match (deleting, deleting_dependents) {
        (_, true) => NextStep::Foreground(object),
        (true, false) => NextStep::Nothing,
        (false, false) if has_owners => NextStep::CheckOwners(object),
        (false, false) => NextStep::Nothing,
    }
}

/// The next step for a waiting object, by its blocking dependents and whether they are waiting too.
pub(crate) fn foreground(blocking: Vec<(Item, bool)>) -> Foreground {
    if blocking.is_empty() {
        return Foreground::Finish;
    }
    Foreground::Check(blocking.into_iter().filter(|(_, waits)| !waits).map(|(item, _)| item).collect())
}

/// The verdict on an object, by the proved states of its owners.
pub(crate) fn verdict(checked: CheckedObject, dependents: Dependents) -> Verdict {
    let (object, owners) = checked.into_parts();
    let live_owners: Vec<Uid> = owners.iter().filter(|(_, it)| is_live(it)).map(|(of, _)| of.uid.clone()).collect();
    // References to orphaned owners count as already removed.
    let counts = |(_, owner_state): &&(OwnerRef, OwnerState)| !matches!(owner_state, OwnerState::Orphaned(_));
    let stays = !live_owners.is_empty() || owners.iter().filter(counts).count() == 0;
    if !stays {
        return Verdict::Delete(delete_permit(object, owners, dependents));
    }
    // References to waiting owners are removed too: those owners would wait for an object that stays. Patches name
    // owners by uid only, so a wrong reference cannot be removed without a right one of the same uid.
    let mut removable: Vec<Uid> =
        owners.iter().filter(|(of, _)| !live_owners.contains(&of.uid)).map(|(of, _)| of.uid.clone()).collect();
    removable.dedup();
    if removable.is_empty() { Verdict::Keep } else { Verdict::DropRefs(RefRemoval { object, owners: removable }) }
}

fn delete_permit(object: Object, owners: Vec<(OwnerRef, OwnerState)>, dependents: Dependents) -> DeletePermit {
    let owners: Vec<NonBlockingOwner> =
        owners.into_iter().filter_map(|(_, owner_state)| non_blocking_owner(owner_state)).collect();
    let waits = owners.iter().any(|it| matches!(it, NonBlockingOwner::Waiting(_)));
    let in_foreground = waits && dependents.any;
    let policy = if in_foreground { Propagation::Foreground } else { own_policy(&object.meta) };
    let blocks = object.meta.owners.iter().any(|it| it.block_owner_deletion);
    let unblock_own_refs_first = in_foreground && dependents.any_waiting && blocks;
    DeletePermit { object, owners, policy, unblock_own_refs_first }
}

fn non_blocking_owner(owner_state: OwnerState) -> Option<NonBlockingOwner> {
    match owner_state {
        OwnerState::Gone(gone) | OwnerState::Orphaned(gone) => Some(NonBlockingOwner::Gone(gone)),
        OwnerState::Waiting(waiting) => Some(NonBlockingOwner::Waiting(waiting)),
        // Not reachable: the object would stay.
        OwnerState::Live(_) => None,
    }
}

fn is_live(owner_state: &OwnerState) -> bool {
    matches!(owner_state, OwnerState::Live(_))
}

/// The propagation policy that the object's own finalizers request.
fn own_policy(meta: &Meta) -> Propagation {
    if has(meta, ORPHAN) {
        Propagation::Orphan
    } else if has(meta, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    }
}

#[cfg(test)]
mod tests;
