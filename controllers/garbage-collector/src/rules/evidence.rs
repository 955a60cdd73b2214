//! Proofs about owners. A [`Gone`] is created only here, so every holder of one may rely on it.

use std::fmt;

use api::{Details, Meta, OwnerRef, Resource, Uid, Version};
use client::ApiError;

use crate::graph::Coordinates;

/// The finalizer of an owner that is deleted after its dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an owner whose dependents stay.
pub(crate) const ORPHAN: &str = "orphan";

/// An object in the checked state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) coordinates: Coordinates,
    /// The type as its monitor watches it.
    pub(crate) resource: Resource,
    pub(crate) meta: Meta,
}

/// Proof that the object at these coordinates is gone forever. The server never reuses a uid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gone {
    owner: Coordinates,
    evidence: Evidence,
}

/// The source of a proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// A live read by name returned 404 for this object.
    NotFound,
    /// A live read by name returned an object of another uid.
    Replaced(Uid),
    /// A watch sent its DELETED event.
    DeletedEvent,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("is not found"),
            Self::Replaced(by) => write!(f, "was replaced by uid {by}"),
            Self::DeletedEvent => f.write_str("was deleted, as a watch showed"),
        }
    }
}

/// Proof that an owner was waiting for its dependents at the time of the read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingProof {
    owner: Uid,
    version: Version,
}

/// The proved state of one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnerState {
    Gone(Gone),
    /// It is gone, and its dependents must stay.
    Orphaned(Gone),
    /// It is being deleted in the foreground, and waits for its blocking dependents.
    Waiting(WaitingProof),
    /// It exists, or is deleted in another way.
    Live(Uid),
}

/// An object with the proved state of the owner of each reference.
#[derive(Debug)]
pub(crate) struct CheckedObject {
    object: Object,
    owners: Vec<(OwnerRef, OwnerState)>,
}

/// Why a response proves nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Unproved {
    /// The resource or its version is not served at this path. That proves nothing about the object.
    #[error("its type is not served")]
    NotServed(#[source] ApiError),
    #[error("the server did not return whether it exists")]
    Failed(#[source] ApiError),
    /// The response is about neither this object nor another of its name.
    #[error("the response does not concern it")]
    Unrelated,
}

impl Gone {
    /// From a DELETED event of this object on a watch. Must not be used for a list without the object, or when a
    /// monitor ends.
    pub(crate) fn from_deleted_event(owner: Coordinates) -> Self {
        Self { owner, evidence: Evidence::DeletedEvent }
    }

    /// From a failed live read of `asked`, if the error means that the object does not exist. Must not be used for a
    /// write: the 404 may be about the namespace, or about an object that a webhook looked up.
    pub(crate) fn not_found(resource: &Resource, asked: &Coordinates, err: &ApiError) -> Option<Self> {
        is_missing(resource, asked, err).then(|| Self { owner: asked.clone(), evidence: Evidence::NotFound })
    }

    /// From a live read of `asked` that returned an object of this uid.
    pub(crate) fn replaced(asked: &Coordinates, shown: &Uid) -> Option<Self> {
        let other = *shown != asked.uid && !shown.is_empty();
        other.then(|| Self { owner: asked.clone(), evidence: Evidence::Replaced(shown.clone()) })
    }

    pub(crate) fn owner(&self) -> &Coordinates {
        &self.owner
    }

    pub(crate) fn evidence(&self) -> &Evidence {
        &self.evidence
    }
}

impl WaitingProof {
    pub(crate) fn owner(&self) -> &Uid {
        &self.owner
    }

    /// The resourceVersion in which it was waiting.
    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// For the tables of verdicts in tests.
    #[cfg(test)]
    pub(crate) fn assumed(owner: Uid) -> Self {
        Self { owner, version: Version::default() }
    }
}

impl OwnerState {
    fn is_of(&self, reference: &OwnerRef) -> bool {
        match self {
            Self::Gone(gone) | Self::Orphaned(gone) => gone.owner.match_ref(reference),
            Self::Waiting(waiting) => waiting.owner == reference.uid,
            Self::Live(uid) => *uid == reference.uid,
        }
    }
}

impl CheckedObject {
    /// Joins an object with the states of its owners, in the order of its references; `None` unless there is one state
    /// for each.
    pub(crate) fn new(object: Object, owner_states: Vec<OwnerState>) -> Option<Self> {
        let references = &object.meta.owners;
        let fits = references.len() == owner_states.len()
            && references.iter().zip(&owner_states).all(|(reference, owner_state)| owner_state.is_of(reference));
        let owners = references.iter().cloned().zip(owner_states).collect();
        fits.then_some(Self { object, owners })
    }

    pub(crate) fn into_parts(self) -> (Object, Vec<(OwnerRef, OwnerState)>) {
        let Self { object, owners } = self;
        (object, owners)
    }
}

/// Evaluates the response of a live read of `asked`.
pub(crate) fn evaluate_read(
    resource: &Resource,
    asked: &Coordinates,
    answer: Result<Meta, ApiError>,
) -> Result<OwnerState, Unproved> {
    match answer {
        Err(err) => match Gone::not_found(resource, asked, &err) {
            Some(gone) => Ok(OwnerState::Gone(gone)),
            None if matches!(err, ApiError::NotFound(_)) => Err(Unproved::NotServed(err)),
            None => Err(Unproved::Failed(err)),
        },
        Ok(meta) if *meta.name != *asked.name || meta.uid.is_empty() => Err(Unproved::Unrelated),
        Ok(meta) => Ok(match Gone::replaced(asked, &meta.uid) {
            Some(gone) => OwnerState::Gone(gone),
            None if deletes_dependents(&meta) => {
                OwnerState::Waiting(WaitingProof { owner: meta.uid, version: meta.version })
            }
            None => OwnerState::Live(meta.uid),
        }),
    }
}

/// True if the object waits until its dependents are gone. With both finalizers, its dependents are orphaned first.
fn deletes_dependents(meta: &Meta) -> bool {
    meta.deletion.is_some() && has(meta, FOREGROUND) && !has(meta, ORPHAN)
}

pub(crate) fn has(meta: &Meta, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|it| **it == *finalizer)
}

/// True if a 404 names this very object. If a type, a version or a whole group is not served, the server also returns
/// 404, but names no object. If a webhook fails to find another object, even the name may be the same.
fn is_missing(resource: &Resource, asked: &Coordinates, err: &ApiError) -> bool {
    let ApiError::NotFound(status) = err else { return false };
    let Details { name, group, kind, .. } = &status.details;
    // Some servers omit details, and some send the kind instead of the resource.
    let is_of_group = group.is_empty() || **group == *resource.group;
    let is_of_kind = kind.is_empty() || **kind == *resource.plural || kind.eq_ignore_ascii_case(&resource.kind);
    !asked.name.is_empty() && **name == *asked.name && is_of_group && is_of_kind
}

#[cfg(test)]
mod tests;
