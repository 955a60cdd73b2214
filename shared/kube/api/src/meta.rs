use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use crate::{Atom, Cached, DecodeError, Frame, NoIndex, ObjectKey, Page, Uid, Version, json, metadata::Metadata};

/// The common metadata of an object, and all that is kept of an object that is cached as metadata only.
///
/// It has no labels and no annotations. Kinds that need them have their own types, see [`crate::Cached`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meta {
    /// The name. Not interned, because names do not repeat.
    pub name: Box<str>,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Atom,
    /// The UID.
    pub uid: Uid,
    /// resourceVersion.
    pub version: Version,
    /// Owner references. Objects with equal owners share them.
    pub owners: Arc<[OwnerRef]>,
    /// Finalizers in their order, shared.
    pub finalizers: Arc<[Atom]>,
    /// deletionTimestamp in seconds since the epoch.
    pub deletion: Option<i64>,
}

/// One entry of `metadata.ownerReferences`, with all fields.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OwnerRef {
    /// `group/version` of the owner.
    pub api_version: Atom,
    /// Kind of the owner.
    pub kind: Atom,
    /// Name of the owner. Shared, because all dependents of an owner repeat it.
    pub name: Atom,
    /// UID of the owner.
    pub uid: Uid,
    /// True for the managing controller.
    pub controller: bool,
    /// True if foreground deletion of the owner waits for this object.
    pub block_owner_deletion: bool,
}

/// The same fields, borrowed from a typed object.
#[derive(Debug, Clone, Copy)]
pub struct MetaRef<'a> {
    /// The object's name.
    pub name: &'a str,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: &'a Atom,
    /// The UID.
    pub uid: &'a Uid,
    /// resourceVersion.
    pub version: &'a Version,
    /// Owner references.
    pub owners: &'a Arc<[OwnerRef]>,
    /// Finalizers.
    pub finalizers: &'a Arc<[Atom]>,
    /// deletionTimestamp in seconds since the epoch.
    pub deletion: Option<i64>,
}

impl Meta {
    /// The borrowed form.
    #[must_use]
    pub fn as_ref(&self) -> MetaRef<'_> {
        let Self { name, namespace, uid, version, owners, finalizers, deletion } = self;
        MetaRef { name, namespace, uid, version, owners, finalizers, deletion: *deletion }
    }
}

impl<'a> MetaRef<'a> {
    /// Namespace and name.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone(), name: self.name.into() }
    }

    /// The managing controller. Validation allows at most one.
    #[must_use]
    pub fn controller(&self) -> Option<&'a OwnerRef> {
        self.owners.iter().find(|it| it.controller)
    }

    /// An owned copy.
    #[must_use]
    pub fn to_meta(&self) -> Meta {
        Meta {
            name: self.name.into(),
            namespace: self.namespace.clone(),
            uid: self.uid.clone(),
            version: self.version.clone(),
            owners: self.owners.clone(),
            finalizers: self.finalizers.clone(),
            deletion: self.deletion,
        }
    }
}

impl<'de> Deserialize<'de> for Meta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Metadata,
        }
        Object::deserialize(deserializer).map(|it| it.metadata.meta)
    }
}

impl Cached for Meta {
    type Index = NoIndex;

    fn accept(watch: bool) -> &'static str {
        // Aggregated API servers without PartialObjectMetadata would respond with 406. With the second media type they
        // return whole objects.
        if watch {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
        } else {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
        }
    }

    fn decode_frame(bytes: &[u8]) -> Frame<Self> {
        json::frame(bytes)
    }

    fn decode_page(bytes: &[u8]) -> Result<Page<Self>, DecodeError> {
        json::page(bytes)
    }

    fn decode_object(bytes: &[u8]) -> Result<Self, DecodeError> {
        json::object(bytes)
    }

    fn meta(&self) -> MetaRef<'_> {
        self.as_ref()
    }

    fn index(&self, _: &mut dyn FnMut(NoIndex)) {}
}
