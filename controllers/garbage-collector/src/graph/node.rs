//! One node: an object, or the claims about it.

use std::sync::Arc;

use api::{Atom, Meta, OwnerRef, Uid, Version};

use super::{
    Coordinates, MonitorId,
    ids::{Id, Ids},
};
use crate::owners::absence_proofs::AbsenceProofs;

/// The names in the API.
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// The node of one uid.
pub(super) struct Node {
    pub(super) uid: Uid,
    pub(super) state: NodeState,
    /// `None` without dependents, which most objects do not have.
    pub(super) below: Option<Box<Below>>,
    pub(super) due: Flags,
}

/// How the object is known.
pub(super) enum NodeState {
    /// A monitor shows it.
    Observed(Observed),
    /// It is known only from references, and is looked up live at these coordinates.
    Referenced { coordinates: Arc<Coordinates>, proofs: AbsenceProofs },
    /// A monitor showed it and has stopped, which proves nothing about the object. It is looked up live too. Until it
    /// is proved gone, the owners whose deletion it blocks wait for it.
    Unwatched { coordinates: Arc<Coordinates>, blocking_refs: Arc<[OwnerRef]> },
    /// It is gone, and its dependents were made due then. The node stays so that dependents that are observed later
    /// become due too, and are linked again if the object appears after all.
    Gone { proofs: AbsenceProofs },
}

pub(super) struct Observed {
    pub(super) by: MonitorId,
    pub(super) name: Box<str>,
    pub(super) namespace: Atom,
    pub(super) version: Version,
    pub(super) owners: Refs,
    /// Fields that most objects do not need.
    pub(super) rare: Option<Box<Rare>>,
}

/// The owner references of the object.
pub(super) enum Refs {
    /// Shared between objects with equal owners, as decoded.
    Full(Arc<[OwnerRef]>),
    /// One reference with exactly the coordinates in the node of the owner, so they are not stored twice.
    Compact { owner: Id, controller: bool, blocks: bool },
}

pub(super) struct Rare {
    finalizers: Arc<[Atom]>,
    deletion: Option<i64>,
    /// The last resourceVersion without a finalizer of ours, while only older ones are shown.
    finalizers_removed_at: Option<Version>,
}

/// The dependents, and counts for fast answers about all of them.
#[derive(Default)]
pub(super) struct Below {
    pub(super) dependents: Ids,
    /// The number of dependents, other than itself, with a reference that blocks its deletion.
    pub(super) blocking: u32,
    /// The number of dependents that wait for their own dependents.
    pub(super) deleting_dependents: u32,
}

/// The states that the graph reacts to. It compares states and not events: an object in a state that is new to the
/// graph is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Lifecycle {
    pub(super) deleting: bool,
    /// Its dependents must be orphaned first.
    pub(super) orphaning: bool,
    /// It waits for its dependents to be deleted first. Orphaning has priority.
    pub(super) foreground: bool,
}

/// What a node is due for; see `due`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Flags(u8);

impl Flags {
    pub(super) const NONE: Self = Self(0);
    pub(super) const DELETE: Self = Self(1);
    pub(super) const DELETE_LATER: Self = Self(2);
    pub(super) const ORPHAN: Self = Self(4);
    /// Set if the node is in a list of due items. The flags below do not put it there yet.
    pub(super) const LISTED: Self = Self(Self::DELETE.0 | Self::DELETE_LATER.0 | Self::ORPHAN.0);
    /// It becomes due for deletion when a newer state is shown.
    pub(super) const DELETE_NEWER: Self = Self(8);
    /// References were removed from it, and no monitor has shown that yet.
    pub(super) const REFERENCES_REMOVED: Self = Self(16);

    /// True if one of the bits in `flag` is set.
    pub(super) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    /// False if it was set already.
    pub(super) fn set(&mut self, flag: Self) -> bool {
        let new = !self.has(flag);
        self.0 |= flag.0;
        new
    }

    /// False if it was not set.
    pub(super) fn clear(&mut self, flag: Self) -> bool {
        let had = self.has(flag);
        self.0 &= !flag.0;
        had
    }
}

impl Node {
    pub(super) fn new(uid: Uid, state: NodeState) -> Self {
        Self { uid, state, below: None, due: Flags::NONE }
    }

    pub(super) fn observed(&self) -> Option<&Observed> {
        match &self.state {
            NodeState::Observed(observed) => Some(observed),
            NodeState::Referenced { .. } | NodeState::Unwatched { .. } | NodeState::Gone { .. } => None,
        }
    }

    /// The coordinates for its live lookup.
    pub(super) fn lookup_coordinates(&self) -> Option<&Arc<Coordinates>> {
        match &self.state {
            NodeState::Referenced { coordinates, .. } | NodeState::Unwatched { coordinates, .. } => Some(coordinates),
            NodeState::Observed(_) | NodeState::Gone { .. } => None,
        }
    }

    /// The references by which an unwatched object blocks owners.
    pub(super) fn blocking_refs(&self) -> &[OwnerRef] {
        match &self.state {
            NodeState::Unwatched { blocking_refs, .. } => blocking_refs,
            NodeState::Observed(_) | NodeState::Referenced { .. } | NodeState::Gone { .. } => &[],
        }
    }

    /// The proofs about it while no monitor shows it.
    pub(super) fn proofs(&self) -> Option<&AbsenceProofs> {
        match &self.state {
            NodeState::Referenced { proofs, .. } | NodeState::Gone { proofs } => Some(proofs),
            NodeState::Observed(_) | NodeState::Unwatched { .. } => None,
        }
    }

    /// Takes these proofs out of it.
    pub(super) fn take_proofs(&mut self) -> AbsenceProofs {
        match &mut self.state {
            NodeState::Referenced { proofs, .. } | NodeState::Gone { proofs } => std::mem::take(proofs),
            NodeState::Observed(_) | NodeState::Unwatched { .. } => AbsenceProofs::default(),
        }
    }

    /// True if the node still has an edge to or from it. A node that is not observed is removed with its last edge.
    pub(super) fn is_needed(&self) -> bool {
        self.has_dependents() || !self.blocking_refs().is_empty()
    }

    pub(super) fn lifecycle(&self) -> Lifecycle {
        self.observed().map(Observed::lifecycle).unwrap_or_default()
    }

    pub(super) fn has_dependents(&self) -> bool {
        self.below.is_some()
    }

    pub(super) fn blocking(&self) -> u32 {
        self.below.as_ref().map_or(0, |it| it.blocking)
    }
}

impl Observed {
    pub(super) fn new(by: MonitorId, meta: Meta) -> Self {
        let Meta { name, namespace, uid: _, version, owners, finalizers, deletion } = meta;
        let rare = (deletion.is_some() || !finalizers.is_empty())
            .then(|| Box::new(Rare { finalizers, deletion, finalizers_removed_at: None }));
        Self { by, name, namespace, version, owners: Refs::Full(owners), rare }
    }

    /// The metadata as it was observed, with these references.
    pub(super) fn meta(&self, uid: &Uid, owners: Arc<[OwnerRef]>) -> Meta {
        let Self { by: _, name, namespace, version, owners: _, rare } = self;
        let (finalizers, deletion) =
            rare.as_ref().map_or_else(Default::default, |it| (it.finalizers.clone(), it.deletion));
        Meta {
            name: name.clone(),
            namespace: namespace.clone(),
            uid: uid.clone(),
            version: version.clone(),
            owners,
            finalizers,
            deletion,
        }
    }

    pub(super) fn lifecycle(&self) -> Lifecycle {
        let Some(Rare { finalizers, deletion: Some(_), finalizers_removed_at: _ }) = self.rare.as_deref() else {
            return Lifecycle::default();
        };
        let has = |finalizer: &str| finalizers.iter().any(|it| **it == *finalizer);
        let orphaning = has(ORPHAN);
        Lifecycle { deleting: true, orphaning, foreground: !orphaning && has(FOREGROUND) }
    }

    /// The last resourceVersion, not shown yet, without a finalizer of ours.
    pub(super) fn finalizers_removed_at(&self) -> Option<&Version> {
        self.rare.as_ref()?.finalizers_removed_at.as_ref()
    }

    /// Sets the mark. An object without our finalizers needs none, because each one that is added is new. Workers may
    /// report two such resourceVersions in any order: the newer one counts.
    pub(super) fn mark_finalizers_removed(&mut self, at: Version) {
        if let Some(rare) = &mut self.rare
            && !rare.finalizers_removed_at.as_ref().is_some_and(|it| at.is_older_than(it))
        {
            rare.finalizers_removed_at = Some(at);
        }
    }

    pub(super) fn has_owner_refs(&self) -> bool {
        match &self.owners {
            Refs::Full(refs) => !refs.is_empty(),
            Refs::Compact { .. } => true,
        }
    }

    /// True if one of its references blocks the deletion of this owner.
    pub(super) fn is_blocking(&self, owner: &Uid, id: Id) -> bool {
        match &self.owners {
            Refs::Full(refs) => is_blocking(refs, owner),
            Refs::Compact { owner, controller: _, blocks } => *blocks && *owner == id,
        }
    }
}

/// The references to one owner: usually one, but the same uid may occur twice.
pub(super) fn refs_to<'a>(refs: &'a [OwnerRef], owner: &'a Uid) -> impl Iterator<Item = &'a OwnerRef> {
    refs.iter().filter(move |it| it.uid == *owner)
}

/// Each owner once, in order. A reference without a uid names no object, so it is skipped.
pub(super) fn owners_of(refs: &[OwnerRef]) -> impl Iterator<Item = &Uid> {
    let first = |at: usize, uid: &Uid| refs.iter().take(at).all(|it| it.uid != *uid);
    refs.iter().enumerate().filter(move |(at, it)| !it.uid.is_empty() && first(*at, &it.uid)).map(|(_, it)| &it.uid)
}

/// True if one of the references names this owner.
pub(super) fn has_reference(refs: &[OwnerRef], owner: &Uid) -> bool {
    refs.iter().any(|it| it.uid == *owner)
}

/// True if one of the references to this owner blocks its deletion.
pub(super) fn is_blocking(refs: &[OwnerRef], owner: &Uid) -> bool {
    refs.iter().any(|it| it.block_owner_deletion && it.uid == *owner)
}

/// True if both name this owner by the same coordinates; flags may differ.
pub(super) fn same_claims(one: &[OwnerRef], other: &[OwnerRef], owner: &Uid) -> bool {
    let claims = |refs: &'_ [OwnerRef]| -> Vec<_> {
        let of_it = refs.iter().filter(|it| it.uid == *owner);
        of_it.map(|it| (it.api_version.clone(), it.kind.clone(), it.name.clone())).collect()
    };
    claims(one) == claims(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes matter, because each of these exists for every object in the cluster.
    #[test]
    fn a_node_is_small() {
        assert!(size_of::<Option<Node>>() <= 112, "{}", size_of::<Option<Node>>());
        assert!(size_of::<Below>() <= 24, "{}", size_of::<Below>());
    }
}
