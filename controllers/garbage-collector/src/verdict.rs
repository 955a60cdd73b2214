//! What becomes of one object. Pure: what is known of it and what was proved of its owners go in, a verdict comes out.
//!
//! Leave to delete is a value, [`Doomed`], that is made nowhere else: it holds for each owner the proof that it is gone, or
//! that it waits for this object.

use api::{Meta, OwnerRef, Resource, Uid, Version};
use client::Propagation;

use crate::{
    evidence::{FOREGROUND, Gone, Judged, ORPHAN, Standing, Waiting, has},
    graph::{Coordinates, Item, NodeView},
};

/// An object in the state in which it was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) coordinates: Coordinates,
    /// The type as its monitor watches it.
    pub(crate) resource: Resource,
    pub(crate) meta: Meta,
}

/// What to do about an item before anything is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: it goes already, or has no owners.
    Nothing,
    /// Nobody has seen it: ask for it.
    LookFor(Coordinates),
    /// It goes after those that block it.
    Foreground(Object),
    /// What is its owners' state?
    AskForOwners(Object),
}

/// What is known of an object's dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Dependents {
    pub(crate) any: bool,
    /// One of them waits for its own dependents: perhaps they are each other's.
    pub(crate) one_deletes_its_own: bool,
}

/// What becomes of an object that blocks nothing by itself.
#[derive(Debug)]
pub(crate) enum Verdict {
    Keep,
    /// It lives, and references of it are to go.
    DropRefs(Detach),
    Delete(Doomed),
}

/// References that are to go from an object that stays.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Detach {
    pub(crate) object: Object,
    /// The owners that are named no more.
    pub(crate) owners: Vec<Uid>,
}

/// Leave to delete one object, in one state of it.
#[derive(Debug)]
pub(crate) struct Doomed {
    object: Object,
    /// One for each reference, and at least one.
    owners: Vec<Needless>,
    policy: Propagation,
    unblock_own_refs_first: bool,
}

/// An owner that does not keep its dependent.
#[derive(Debug)]
pub(crate) enum Needless {
    Gone(Gone),
    Waiting(Waiting),
}

/// Why an object is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// None of its owners is there.
    OwnersGone,
    /// Those that are there wait for it.
    OwnerWaits,
}

/// What becomes of an object that waits for its dependents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Foreground {
    /// Nobody blocks it any more.
    Finish,
    /// These do. Those of them that wait themselves need nobody to look at them.
    LookAt(Vec<Item>),
}

impl Doomed {
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) fn owners(&self) -> &[Needless] {
        &self.owners
    }

    pub(crate) fn policy(&self) -> Propagation {
        self.policy
    }

    /// The object's own references block its owners, one of which may wait for the other: they are to stop that first.
    pub(crate) fn unblock_own_refs_first(&self) -> bool {
        self.unblock_own_refs_first
    }

    pub(crate) fn reason(&self) -> Reason {
        if self.owners.iter().any(|it| matches!(it, Needless::Waiting(_))) {
            Reason::OwnerWaits
        } else {
            Reason::OwnersGone
        }
    }

    /// Looks at the object as the server has it by now: where nothing of what was judged has changed, the leave is for that
    /// state too. An object that is written all the time must not live for ever because of that.
    pub(crate) fn holds_for(&mut self, live: &Meta) -> bool {
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

    /// Its own references block nobody any more: that write, made of the very state that was judged, is the state now.
    pub(crate) fn has_unblocked(&mut self, version: Version) {
        let meta = &mut self.object.meta;
        let freed = meta.owners.iter().map(|it| OwnerRef { block_owner_deletion: false, ..it.clone() });
        meta.owners = freed.collect();
        meta.version = version;
        self.unblock_own_refs_first = false;
    }
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::OwnersGone => "owners_gone",
            Self::OwnerWaits => "owner_waits",
        }
    }
}

/// What to do about an item, by what is known of it.
pub(crate) fn step(node: NodeView) -> Step {
    let NodeView { coordinates, resource, meta, deleting, deleting_dependents, .. } = node;
    let (Some(resource), Some(meta)) = (resource, meta) else { return Step::LookFor(coordinates) };
    let has_owners = !meta.owners.is_empty();
    let object = Object { coordinates, resource, meta };
    match (deleting, deleting_dependents) {
        (_, true) => Step::Foreground(object),
        (true, false) => Step::Nothing,
        (false, false) if has_owners => Step::AskForOwners(object),
        (false, false) => Step::Nothing,
    }
}

/// What becomes of an object that waits, by those that block it and whether they wait themselves.
pub(crate) fn foreground(blocking: Vec<(Item, bool)>) -> Foreground {
    if blocking.is_empty() {
        return Foreground::Finish;
    }
    Foreground::LookAt(blocking.into_iter().filter(|(_, waits)| !waits).map(|(item, _)| item).collect())
}

/// What becomes of an object, by what was proved of its owners.
pub(crate) fn verdict(judged: Judged, dependents: Dependents) -> Verdict {
    let (object, owners) = judged.into_parts();
    let solid: Vec<Uid> = owners.iter().filter(|(_, it)| is_solid(it)).map(|(of, _)| of.uid.clone()).collect();
    // References to owners whose dependents were to stay count as if they were removed already.
    let counts = |(_, standing): &&(OwnerRef, Standing)| !matches!(standing, Standing::Orphaned(_));
    let stays = !solid.is_empty() || owners.iter().filter(counts).count() == 0;
    if !stays {
        return Verdict::Delete(doom(object, owners, dependents));
    }
    // Waiting owners are dropped as well: they would wait for an object that stays. Patches name owners by uid alone, so a
    // wrong reference beside a right one of equal uid cannot be dropped without it.
    let mut needless: Vec<Uid> =
        owners.iter().filter(|(of, _)| !solid.contains(&of.uid)).map(|(of, _)| of.uid.clone()).collect();
    needless.dedup();
    if needless.is_empty() { Verdict::Keep } else { Verdict::DropRefs(Detach { object, owners: needless }) }
}

fn doom(object: Object, owners: Vec<(OwnerRef, Standing)>, dependents: Dependents) -> Doomed {
    let owners: Vec<Needless> = owners.into_iter().filter_map(|(_, standing)| needless(standing)).collect();
    let waits = owners.iter().any(|it| matches!(it, Needless::Waiting(_)));
    let in_foreground = waits && dependents.any;
    let policy = if in_foreground { Propagation::Foreground } else { own_policy(&object.meta) };
    let blocks = object.meta.owners.iter().any(|it| it.block_owner_deletion);
    let unblock_own_refs_first = in_foreground && dependents.one_deletes_its_own && blocks;
    Doomed { object, owners, policy, unblock_own_refs_first }
}

fn needless(standing: Standing) -> Option<Needless> {
    match standing {
        Standing::Gone(gone) | Standing::Orphaned(gone) => Some(Needless::Gone(gone)),
        Standing::Waiting(waiting) => Some(Needless::Waiting(waiting)),
        // There is none: the object would stay.
        Standing::Solid(_) => None,
    }
}

fn is_solid(standing: &Standing) -> bool {
    matches!(standing, Standing::Solid(_))
}

/// How an object goes by its own finalizers, which somebody put there for its dependents.
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
