use api::{Atom, MetaRef, ObjectKey, Resource, Uid};
use k8s_openapi::api::core::v1::ObjectReference;
use serde_json::{Value, json};

/// The object for which pods are created, claimed and deleted.
#[derive(Debug, Clone)]
pub struct Owner {
    /// Its type.
    pub resource: Resource,
    /// Its namespace; empty for a cluster-scoped owner, which may claim pods in any namespace.
    pub namespace: Atom,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Uid,
    /// It is being deleted, so it neither adopts nor releases pods.
    pub deleting: bool,
    /// Added to each adopted object and removed from each released one.
    pub finalizer: Option<&'static str>,
    reference: ObjectReference,
}

impl Owner {
    /// The owner for an object of this type.
    #[must_use]
    pub fn new(resource: Resource, meta: MetaRef<'_>, finalizer: Option<&'static str>) -> Self {
        let reference = events::reference(&resource, &meta);
        Self {
            resource,
            namespace: meta.namespace.clone(),
            name: meta.name.into(),
            uid: meta.uid.clone(),
            deleting: meta.deletion.is_some(),
            finalizer,
            reference,
        }
    }

    /// Its namespace and name.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey { namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// The object reference for events about the owner.
    #[must_use]
    pub fn reference(&self) -> &ObjectReference {
        &self.reference
    }

    /// The entry of `metadata.ownerReferences` that makes it the controller of a pod. If the server checks
    /// `blockOwnerDeletion`, this needs permission to update the owner's `finalizers`.
    #[must_use]
    pub fn controller_reference(&self) -> Value {
        json!({
            "apiVersion": self.resource.api_version(),
            "kind": &*self.resource.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })
    }
}
