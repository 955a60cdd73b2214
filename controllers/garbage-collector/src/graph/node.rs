//! One node: an object, or the claims about it.

use std::sync::Arc;

use api::{Atom, Meta, OwnerRef, Uid, Version};

use super::{
    Coordinates, MonitorId,
    ids::{Id, Ids},
};
use crate::absent::Absences;

/// The names in the API.
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// The node of one uid.
pub(super) struct Node {
    pub(super) uid: Uid,
    pub(super) known: Known,
    /// `None` without dependents, which most objects do not have.
    pub(super) below: Option<Box<Below>>,
    pub(super) due: Flags,
}

/// How the object is known.
pub(super) enum Known {
    /// A monitor shows it.
    Observed(Observed),
    /// It is known only from references, and is looked up live at these coordinates.
    Claimed { coordinates: Arc<Coordinates>, absent: Absences },
    /// A monitor showed it and has stopped, which proves nothing about the object. It is looked up live too. Until it
    /// is proved gone, the owners whose deletion it blocks wait for it.
    Unwatched { coordinates: Arc<Coordinates>, holds: Arc<[OwnerRef]> },
    /// It is gone, and its dependents were made due then. The node stays so that dependents that are observed later
    /// become due too, and are linked again if the object appears after all.
    Gone { absent: Absences },
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
    Given(Arc<[OwnerRef]>),
    /// One reference with exactly the coordinates in the node of the owner, so they are not stored twice.
    Plain { owner: Id, controller: bool, blocks: bool },
}

pub(super) struct Rare {
    finalizers: Arc<[Atom]>,
    deletion: Option<i64>,
    /// The last resourceVersion without a finalizer of ours, while only older ones are shown.
    let_go: Option<Version>,
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
    pub(super) const IN_A_LINE: Self = Self(Self::DELETE.0 | Self::DELETE_LATER.0 | Self::ORPHAN.0);
    /// It becomes due for deletion when a newer state is shown.
    pub(super) const DELETE_NEWER: Self = Self(8);
    /// References were removed from it, and no monitor has shown that yet.
    pub(super) const DETACHED: Self = Self(16);

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
    pub(super) fn new(uid: Uid, known: Known) -> Self {
        Self { uid, known, below: None, due: Flags::NONE }
    }

    pub(super) fn observed(&self) -> Option<&Observed> {
        match &self.known {
            Known::Observed(observed) => Some(observed),
            Known::Claimed { .. } | Known::Unwatched { .. } | Known::Gone { .. } => None,
        }
    }

    /// The coordinates for its live lookup.
    pub(super) fn looked_for(&self) -> Option<&Arc<Coordinates>> {
        match &self.known {
            Known::Claimed { coordinates, .. } | Known::Unwatched { coordinates, .. } => Some(coordinates),
            Known::Observed(_) | Known::Gone { .. } => None,
        }
    }

    /// The references by which an unwatched object blocks owners.
    pub(super) fn holds(&self) -> &[OwnerRef] {
        match &self.known {
            Known::Unwatched { holds, .. } => holds,
            Known::Observed(_) | Known::Claimed { .. } | Known::Gone { .. } => &[],
        }
    }

    /// The proofs about it while no monitor shows it.
    pub(super) fn absent(&self) -> Option<&Absences> {
        match &self.known {
            Known::Claimed { absent, .. } | Known::Gone { absent } => Some(absent),
            Known::Observed(_) | Known::Unwatched { .. } => None,
        }
    }

    /// Takes these proofs out of it.
    pub(super) fn take_absent(&mut self) -> Absences {
        match &mut self.known {
            Known::Claimed { absent, .. } | Known::Gone { absent } => std::mem::take(absent),
            Known::Observed(_) | Known::Unwatched { .. } => Absences::default(),
        }
    }

    /// True if the node still has an edge to or from it. A node that is not observed is removed with its last edge.
    pub(super) fn is_needed(&self) -> bool {
        self.has_dependents() || !self.holds().is_empty()
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
            .then(|| Box::new(Rare { finalizers, deletion, let_go: None }));
        Self { by, name, namespace, version, owners: Refs::Given(owners), rare }
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
        let Some(Rare { finalizers, deletion: Some(_), let_go: _ }) = self.rare.as_deref() else {
            return Lifecycle::default();
        };
        let has = |finalizer: &str| finalizers.iter().any(|it| **it == *finalizer);
        let orphaning = has(ORPHAN);
        Lifecycle { deleting: true, orphaning, foreground: !orphaning && has(FOREGROUND) }
    }

    /// The last resourceVersion, not shown yet, without a finalizer of ours.
    pub(super) fn let_go(&self) -> Option<&Version> {
        self.rare.as_ref()?.let_go.as_ref()
    }

    /// Sets the mark. An object without our finalizers needs none, because each one that is added is new. Workers may
    /// report two such resourceVersions in any order: the newer one counts.
    pub(super) fn mark_let_go(&mut self, at: Version) {
        if let Some(rare) = &mut self.rare
            && !rare.let_go.as_ref().is_some_and(|it| at.is_older_than(it))
        {
            rare.let_go = Some(at);
        }
    }

    pub(super) fn names_somebody(&self) -> bool {
        match &self.owners {
            Refs::Given(refs) => !refs.is_empty(),
            Refs::Plain { .. } => true,
        }
    }

    /// True if one of its references blocks the deletion of this owner.
    pub(super) fn blocks(&self, owner: &Uid, id: Id) -> bool {
        match &self.owners {
            Refs::Given(refs) => blocks(refs, owner),
            Refs::Plain { owner, controller: _, blocks } => *blocks && *owner == id,
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
pub(super) fn names(refs: &[OwnerRef], owner: &Uid) -> bool {
    refs.iter().any(|it| it.uid == *owner)
}

/// True if one of the references to this owner blocks its deletion.
pub(super) fn blocks(refs: &[OwnerRef], owner: &Uid) -> bool {
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
