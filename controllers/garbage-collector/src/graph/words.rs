//! The words of the graph: what names an object, and what workers are told.

use std::{fmt, sync::Arc};

use api::{Atom, Meta, OwnerRef, Resource, Uid, Version};

/// A type as objects and references name it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TypeName {
    pub(crate) api_version: Atom,
    pub(crate) kind: Atom,
}

impl From<&Resource> for TypeName {
    fn from(of: &Resource) -> Self {
        Self { api_version: of.api_version().into(), kind: of.kind.clone() }
    }
}

/// Everything that names an object. The order of the fields is the order in which claimed identities are tried.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Coordinates {
    pub(crate) kind: Atom,
    pub(crate) api_version: Atom,
    /// Empty: cluster-scoped.
    pub(crate) namespace: Atom,
    pub(crate) name: Box<str>,
    pub(crate) uid: Uid,
}

impl Coordinates {
    /// What a reference claims, made by an object of `namespace`.
    pub(crate) fn claimed(by: &OwnerRef, namespace: &Atom) -> Self {
        let OwnerRef { api_version, kind, name, uid, controller: _, block_owner_deletion: _ } = by;
        Self {
            kind: kind.clone(),
            api_version: api_version.clone(),
            namespace: namespace.clone(),
            name: Box::from(&**name),
            uid: uid.clone(),
        }
    }

    /// True if a reference names this very object; whether namespaces fit is another question.
    pub(crate) fn match_ref(&self, of: &OwnerRef) -> bool {
        let OwnerRef { api_version, kind, name, uid, controller: _, block_owner_deletion: _ } = of;
        self.uid == *uid && *self.name == **name && self.kind == *kind && self.api_version == *api_version
    }
}

/// `[apps/v1/ReplicaSet, namespace: ns, name: web, uid: 1-2-3]`, as upstream writes identities.
impl fmt::Display for Coordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, api_version, namespace, name, uid } = self;
        write!(f, "[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]")
    }
}

/// The key of attempts to delete. One of an owner that nobody has observed keeps the coordinates it was queued with: they are
/// one claim among others, and what is found out of one says nothing of the next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    /// An object that a monitor shows.
    Observed(Uid),
    /// An owner that is known only from references, or whose type is watched no more.
    Virtual(Arc<Coordinates>),
}

impl Item {
    pub(crate) fn uid(&self) -> &Uid {
        match self {
            Self::Observed(uid) => uid,
            Self::Virtual(coordinates) => &coordinates.uid,
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observed(uid) => write!(f, "uid {uid}"),
            Self::Virtual(coordinates) => write!(f, "virtual {coordinates}"),
        }
    }
}

/// A monitor of this process; never used again after it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MonitorId(pub(super) u32);

/// What a pass needs to know of its item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeView {
    pub(crate) coordinates: Coordinates,
    /// The type as its monitor watches it; `None`: virtual or unwatched.
    pub(crate) resource: Option<Resource>,
    /// What its monitor shows; `None`: virtual or unwatched.
    pub(crate) meta: Option<Meta>,
    pub(crate) deleting: bool,
    /// It waits for its dependents to go first.
    pub(crate) deleting_dependents: bool,
    pub(crate) has_dependents: bool,
    pub(crate) a_dependent_deletes_its_own: bool,
}

/// An object that names an owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dependent {
    pub(crate) coordinates: Coordinates,
    pub(crate) resource: Resource,
    pub(crate) by: MonitorId,
    pub(crate) version: Version,
    pub(crate) owners: Arc<[OwnerRef]>,
}

impl Dependent {
    /// True if the deletion of this owner in the foreground waits for it.
    pub(crate) fn blocks(&self, owner: &Uid) -> bool {
        self.coordinates.uid != *owner && self.owners.iter().any(|it| it.block_owner_deletion && it.uid == *owner)
    }
}

/// A reference whose owner lives in another namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misplaced {
    pub(crate) dependent: Coordinates,
    pub(crate) owner: OwnerRef,
}

/// What has become due since it was last taken, each once and in the order in which it became due.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Due {
    /// To be attempted at once.
    pub(crate) delete: Vec<Item>,
    /// To be attempted with back-off: another claim for the same owner was just found empty.
    pub(crate) delete_later: Vec<Item>,
    /// Owners whose dependents are to be orphaned.
    pub(crate) orphan: Vec<Uid>,
    /// To be told to users.
    pub(crate) misplaced: Vec<Misplaced>,
}
