//! One object, or what is claimed of one.

use std::sync::Arc;

use api::{Atom, Meta, OwnerRef, Uid, Version};

use super::{
    Coordinates, MonitorId,
    ids::{Id, Ids},
};
use crate::absent::Absences;

/// As the API names them.
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What there is under one uid.
pub(super) struct Node {
    pub(super) uid: Uid,
    pub(super) known: Known,
    /// `None` while nothing depends on it, as nothing does on most.
    pub(super) below: Option<Box<Below>>,
    pub(super) due: Flags,
}

/// How it is known.
pub(super) enum Known {
    /// A monitor shows it.
    Observed(Observed),
    /// Only references tell of it. It is looked for live, under these coordinates.
    Claimed { coordinates: Arc<Coordinates>, absent: Absences },
    /// A monitor showed it that has stopped, which says nothing of the object: it is looked for live too, and until it is
    /// proved gone the owners whose deletion it blocks wait for it.
    Unwatched { coordinates: Arc<Coordinates>, holds: Arc<[OwnerRef]> },
    /// It went; what depends on it was made due then. Kept, so that dependents that are seen later are made due too, and
    /// linked again should it show up after all.
    Gone { absent: Absences },
}

pub(super) struct Observed {
    pub(super) by: MonitorId,
    pub(super) name: Box<str>,
    pub(super) namespace: Atom,
    pub(super) version: Version,
    pub(super) owners: Refs,
    /// What most objects lack.
    pub(super) rare: Option<Box<Rare>>,
}

/// Whom it names as its owners.
pub(super) enum Refs {
    /// Shared between objects of equal owners, as they were decoded.
    Given(Arc<[OwnerRef]>),
    /// One, by the very words by which the node of that owner is known: those are not held twice.
    Plain { owner: Id, controller: bool, blocks: bool },
}

pub(super) struct Rare {
    finalizers: Arc<[Atom]>,
    deletion: Option<i64>,
    /// The last version in which it bore no finalizer of ours, while only older ones are shown.
    let_go: Option<Version>,
}

/// Who depends on it, and the sums that make questions about all of them cheap.
#[derive(Default)]
pub(super) struct Below {
    pub(super) dependents: Ids,
    /// How many of them, without itself, hold a reference that blocks its deletion.
    pub(super) blocking: u32,
    /// How many of them wait for their own dependents.
    pub(super) deleting_dependents: u32,
}

/// What the graph reacts to. States, not edges: whatever is in a state that is new to the graph is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Lifecycle {
    pub(super) deleting: bool,
    /// Its dependents are to be orphaned first.
    pub(super) orphaning: bool,
    /// It waits for its dependents to go first. Orphaning beats that.
    pub(super) foreground: bool,
}

/// For what a node is due; see `due`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Flags(u8);

impl Flags {
    pub(super) const NONE: Self = Self(0);
    pub(super) const DELETE: Self = Self(1);
    pub(super) const DELETE_LATER: Self = Self(2);
    pub(super) const ORPHAN: Self = Self(4);
    /// In some line, so that somebody is to look at it: what is below is no such reason yet.
    pub(super) const IN_A_LINE: Self = Self(Self::DELETE.0 | Self::DELETE_LATER.0 | Self::ORPHAN.0);
    /// It becomes due to be deleted once it is shown in a newer state.
    pub(super) const DELETE_NEWER: Self = Self(8);
    /// References were removed from it, and no monitor has shown that yet.
    pub(super) const DETACHED: Self = Self(16);

    /// True of several if it has one of them.
    pub(super) fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }

    /// False if it was set.
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

    /// Under which coordinates it is looked for live.
    pub(super) fn looked_for(&self) -> Option<&Arc<Coordinates>> {
        match &self.known {
            Known::Claimed { coordinates, .. } | Known::Unwatched { coordinates, .. } => Some(coordinates),
            Known::Observed(_) | Known::Gone { .. } => None,
        }
    }

    /// The references by which it blocks owners though nobody watches it.
    pub(super) fn holds(&self) -> &[OwnerRef] {
        match &self.known {
            Known::Unwatched { holds, .. } => holds,
            Known::Observed(_) | Known::Claimed { .. } | Known::Gone { .. } => &[],
        }
    }

    /// What is proved of it while no monitor shows it.
    pub(super) fn absent(&self) -> Option<&Absences> {
        match &self.known {
            Known::Claimed { absent, .. } | Known::Gone { absent } => Some(absent),
            Known::Observed(_) | Known::Unwatched { .. } => None,
        }
    }

    /// Takes that away from it.
    pub(super) fn take_absent(&mut self) -> Absences {
        match &mut self.known {
            Known::Claimed { absent, .. } | Known::Gone { absent } => std::mem::take(absent),
            Known::Observed(_) | Known::Unwatched { .. } => Absences::default(),
        }
    }

    /// True if anything still leads to it or from it: a node that is not observed goes with the last of that.
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

    /// As it was given, with the references that it names.
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

    /// The last version, not shown yet, in which it bore no finalizer of ours.
    pub(super) fn let_go(&self) -> Option<&Version> {
        self.rare.as_ref()?.let_go.as_ref()
    }

    /// What bears none of our finalizers needs no such mark: whichever it gets is new. Workers may tell of two such versions
    /// in any order: the last one counts.
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

    /// True if a reference of its blocks the deletion of this owner.
    pub(super) fn blocks(&self, owner: &Uid, id: Id) -> bool {
        match &self.owners {
            Refs::Given(refs) => blocks(refs, owner),
            Refs::Plain { owner, controller: _, blocks } => *blocks && *owner == id,
        }
    }
}

/// The references to one owner: one, unless somebody wrote the same uid twice.
pub(super) fn refs_to<'a>(refs: &'a [OwnerRef], owner: &'a Uid) -> impl Iterator<Item = &'a OwnerRef> {
    refs.iter().filter(move |it| it.uid == *owner)
}

/// Each owner once, in the order given. Without a uid nobody can be told apart: such a reference leads nowhere.
pub(super) fn owners_of(refs: &[OwnerRef]) -> impl Iterator<Item = &Uid> {
    let first = |at: usize, uid: &Uid| refs.iter().take(at).all(|it| it.uid != *uid);
    refs.iter().enumerate().filter(move |(at, it)| !it.uid.is_empty() && first(*at, &it.uid)).map(|(_, it)| &it.uid)
}

/// True if one of the references leads to this owner.
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

    /// Of each there are as many as objects in the cluster.
    #[test]
    fn a_node_is_small() {
        assert!(size_of::<Option<Node>>() <= 112, "{}", size_of::<Option<Node>>());
        assert!(size_of::<Below>() <= 24, "{}", size_of::<Below>());
    }
}
