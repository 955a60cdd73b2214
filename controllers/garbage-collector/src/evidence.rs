//! What is proved of owners. Proofs are made here and nowhere else: whoever holds a [`Gone`] may rely on it.

use std::fmt;

use api::{Details, Meta, OwnerRef, Resource, Uid, Version};
use client::ApiError;

use crate::{graph::Coordinates, verdict::Object};

/// Finalizer of an owner that goes after its dependents.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner whose dependents stay.
pub(crate) const ORPHAN: &str = "orphan";

/// Proof that the object of these coordinates is gone for ever: uids are not given twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gone {
    owner: Coordinates,
    evidence: Evidence,
}

/// How we know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Evidence {
    /// The server, asked for it by name, said that there is no such object.
    NotFound,
    /// The server, asked for it by name, showed another object.
    Replaced(Uid),
    /// A watch told of its end.
    Told,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound => f.write_str("is not found"),
            Self::Replaced(by) => write!(f, "was replaced by uid {by}"),
            Self::Told => f.write_str("was deleted, as a watch told"),
        }
    }
}

/// Proof that an owner waited for its dependents when the server was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waiting {
    owner: Uid,
    version: Version,
}

/// What is proved of one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    Gone(Gone),
    /// Gone too, and its dependents were to stay.
    Orphaned(Gone),
    /// It is deleted, and goes after those that block it.
    Waiting(Waiting),
    /// It lives, or goes in another way.
    Solid(Uid),
}

/// An object, and for each of its owner references what is proved of the owner.
#[derive(Debug)]
pub(crate) struct Judged {
    object: Object,
    owners: Vec<(OwnerRef, Standing)>,
}

/// Why an answer proves nothing.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Unproved {
    /// The resource or its version is not served at this path, which says nothing of the object.
    #[error("its type is not served where it should be")]
    NotServed(#[source] ApiError),
    #[error("the server did not say")]
    Failed(#[source] ApiError),
    /// Neither this object nor another of its name.
    #[error("the answer is not about it")]
    Unrelated,
}

impl Gone {
    /// Of a DELETED event of this object on a watch: never of a list that lacks it, nor of a monitor that ended.
    pub(crate) fn told(owner: Coordinates) -> Self {
        Self { owner, evidence: Evidence::Told }
    }

    /// Of a live read of `asked` that failed, if that says that the object is not there. Never of a write: what is missing
    /// may be its namespace, or whatever a webhook looked for.
    pub(crate) fn not_found(resource: &Resource, asked: &Coordinates, err: &ApiError) -> Option<Self> {
        is_missing(resource, asked, err).then(|| Self { owner: asked.clone(), evidence: Evidence::NotFound })
    }

    /// Of a live read of `asked` that showed an object of this uid.
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

impl Waiting {
    pub(crate) fn owner(&self) -> &Uid {
        &self.owner
    }

    /// The state in which it was seen to wait.
    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// For tables of verdicts.
    #[cfg(test)]
    pub(crate) fn assumed(owner: Uid) -> Self {
        Self { owner, version: Version::default() }
    }
}

impl Standing {
    fn is_of(&self, reference: &OwnerRef) -> bool {
        match self {
            Self::Gone(gone) | Self::Orphaned(gone) => gone.owner.match_ref(reference),
            Self::Waiting(waiting) => waiting.owner == reference.uid,
            Self::Solid(uid) => *uid == reference.uid,
        }
    }
}

impl Judged {
    /// Joins an object with what was proved of its owners, in the order of its references; `None` unless there is one
    /// proof for each.
    pub(crate) fn new(object: Object, standings: Vec<Standing>) -> Option<Self> {
        let references = &object.meta.owners;
        let fits = references.len() == standings.len()
            && references.iter().zip(&standings).all(|(reference, standing)| standing.is_of(reference));
        let owners = references.iter().cloned().zip(standings).collect();
        fits.then_some(Self { object, owners })
    }

    pub(crate) fn into_parts(self) -> (Object, Vec<(OwnerRef, Standing)>) {
        let Self { object, owners } = self;
        (object, owners)
    }
}

/// What a live read of `asked` proves of it.
pub(crate) fn weigh(
    resource: &Resource,
    asked: &Coordinates,
    answer: Result<Meta, ApiError>,
) -> Result<Standing, Unproved> {
    match answer {
        Err(err) => match Gone::not_found(resource, asked, &err) {
            Some(gone) => Ok(Standing::Gone(gone)),
            None if matches!(err, ApiError::NotFound(_)) => Err(Unproved::NotServed(err)),
            None => Err(Unproved::Failed(err)),
        },
        Ok(meta) if *meta.name != *asked.name || meta.uid.is_empty() => Err(Unproved::Unrelated),
        Ok(meta) => Ok(match Gone::replaced(asked, &meta.uid) {
            Some(gone) => Standing::Gone(gone),
            None if deletes_dependents(&meta) => Standing::Waiting(Waiting { owner: meta.uid, version: meta.version }),
            None => Standing::Solid(meta.uid),
        }),
    }
}

/// True for an object that waits until its dependents are gone. One with both finalizers is orphaned first.
fn deletes_dependents(meta: &Meta) -> bool {
    meta.deletion.is_some() && has(meta, FOREGROUND) && !has(meta, ORPHAN)
}

pub(crate) fn has(meta: &Meta, finalizer: &str) -> bool {
    meta.finalizers.iter().any(|it| **it == *finalizer)
}

/// True for a 404 that names this very object. Where a type, a version or a whole group is not served, the same code
/// comes back and names none; where a server looks for something else on its way, that may have the very same name.
fn is_missing(resource: &Resource, asked: &Coordinates, err: &ApiError) -> bool {
    let ApiError::NotFound(status) = err else { return false };
    let Details { name, group, kind, .. } = &status.details;
    // Some say less, and some name the kind and not the resource.
    let is_of_group = group.is_empty() || **group == *resource.group;
    let is_of_kind = kind.is_empty() || **kind == *resource.plural || kind.eq_ignore_ascii_case(&resource.kind);
    !asked.name.is_empty() && **name == *asked.name && is_of_group && is_of_kind
}

#[cfg(test)]
mod tests;
