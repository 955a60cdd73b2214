//! The types of the graph's interface: coordinates of objects, and items for workers.

use std::{fmt, sync::Arc};

use api::{Atom, Meta, OwnerRef, Resource, Uid, Version};

/// A type by the names in objects and references.
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

/// The identity of an object. The order of the fields is the order in which claims are tried.
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
    /// The coordinates that a reference names if an object of `namespace` has it.
    pub(crate) fn referenced(by: &OwnerRef, namespace: &Atom) -> Self {
        let OwnerRef { api_version, kind, name, uid, controller: _, block_owner_deletion: _ } = by;
        Self {
            kind: kind.clone(),
            api_version: api_version.clone(),
            namespace: namespace.clone(),
            name: Box::from(&**name),
            uid: uid.clone(),
        }
    }

    /// True if a reference names this object. Namespaces are not compared.
    pub(crate) fn match_ref(&self, of: &OwnerRef) -> bool {
        let OwnerRef { api_version, kind, name, uid, controller: _, block_owner_deletion: _ } = of;
        self.uid == *uid && *self.name == **name && self.kind == *kind && self.api_version == *api_version
    }
}

/// `[apps/v1/ReplicaSet, namespace: ns, name: web, uid: 1-2-3]`, as upstream's `objectReference.String`.
impl fmt::Display for Coordinates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, api_version, namespace, name, uid } = self;
        write!(f, "[{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}]")
    }
}

/// The key of attempts to delete. An owner that was not observed keeps the coordinates that it was queued with: they
/// are one claim among others, and a result for one claim proves nothing for the next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Item {
    /// An object that a monitor shows.
    Observed(Uid),
    /// An owner that is known only from references, or whose type is no longer watched.
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

/// A monitor of this process. Ids are not reused.
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
    /// It waits for its dependents to be deleted first.
    pub(crate) deleting_dependents: bool,
    pub(crate) has_dependents: bool,
    pub(crate) has_waiting_dependent: bool,
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
    /// True if the foreground deletion of this owner waits for it.
    pub(crate) fn is_blocking(&self, owner: &Uid) -> bool {
        self.coordinates.uid != *owner && self.owners.iter().any(|it| it.block_owner_deletion && it.uid == *owner)
    }
}

/// A reference whose owner is in another namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misplaced {
    pub(crate) dependent: Coordinates,
    pub(crate) owner: OwnerRef,
}

/// The items that have become due since the last call, each once and in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Due {
    /// To attempt at once.
    pub(crate) delete: Vec<Item>,
    /// To attempt with back-off, because another claim for the same owner was just proved absent.
    pub(crate) delete_later: Vec<Item>,
    /// Owners whose dependents must be orphaned.
    pub(crate) orphan: Vec<Uid>,
    /// References to report to users.
    pub(crate) misplaced: Vec<Misplaced>,
}
