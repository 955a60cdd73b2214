use serde::{Deserialize, Deserializer};

use crate::{Atom, Cached, Meta, MetaRef, NoIndex, Resource, Typed, json::as_json, metadata::Metadata};

/// The fields of a PersistentVolumeClaim that our controllers read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    /// The common metadata.
    pub meta: Meta,
    /// The requested storage as in the API, for example `10Gi`; empty if there is none.
    pub storage: Atom,
    /// The storage class; `None` if there is none.
    pub storage_class: Option<Atom>,
    /// All access modes in their order, separated by commas.
    pub access_modes: Atom,
}

impl Cached for PersistentVolumeClaim {
    type Index = NoIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, _: &mut dyn FnMut(NoIndex)) {}
}

impl Typed for PersistentVolumeClaim {
    fn resource() -> Resource {
        Resource::namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
    }
}

impl<'de> Deserialize<'de> for PersistentVolumeClaim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: Metadata,
            spec: Option<WireSpec>,
        }
        let Wire { metadata, spec } = Wire::deserialize(deserializer)?;
        let WireSpec { resources, storage_class_name, access_modes } = spec.unwrap_or_default();
        let storage = resources.and_then(|it| it.requests).and_then(|it| it.storage);
        Ok(Self {
            meta: metadata.meta,
            storage: storage.unwrap_or_default(),
            storage_class: storage_class_name,
            access_modes: access_modes.unwrap_or_default().join(",").into(),
        })
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    resources: Option<WireResources>,
    storage_class_name: Option<Atom>,
    access_modes: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct WireResources {
    requests: Option<WireRequests>,
}

#[derive(Deserialize)]
struct WireRequests {
    storage: Option<Atom>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_differ_from_a_template_is_read() {
        let text = r#"{"metadata":{"name":"data-web-0","namespace":"n","uid":"u","resourceVersion":"5"},
            "spec":{"accessModes":["ReadWriteOnce","ReadOnlyMany"],"storageClassName":"fast",
                "resources":{"requests":{"storage":"1Gi"}}},"status":{"phase":"Bound"}}"#;
        let read = PersistentVolumeClaim::decode_object(text.as_bytes()).unwrap();
        assert_eq!((&*read.storage, read.storage_class.as_deref()), ("1Gi", Some("fast")));
        assert_eq!(&*read.access_modes, "ReadWriteOnce,ReadOnlyMany");
        let bare = PersistentVolumeClaim::decode_object(br#"{"metadata":{"name":"c"},"spec":null}"#).unwrap();
        assert_eq!((&*bare.storage, bare.storage_class, &*bare.access_modes), ("", None, ""));
    }
}
