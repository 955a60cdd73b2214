use serde::{Deserialize, Deserializer};

use crate::{Atom, Cached, Meta, MetaRef, NoIndex, Resource, Typed, json::as_json, metadata::Metadata};

/// The fields of a PersistentVolumeClaim that our controllers read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolumeClaim {
    /// The common metadata.
    pub meta: Meta,
    /// What was requested.
    pub spec: ClaimSpec,
}

/// The fields of the spec of a claim, or of the template of a claim, that our controllers read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClaimSpec {
    /// The requested storage as in the API, for example `10Gi`.
    pub storage: Option<Atom>,
    /// The storage class.
    pub storage_class: Option<Atom>,
    /// All access modes in their order, separated by commas.
    pub access_modes: Option<Atom>,
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
            spec: Option<ClaimSpec>,
        }
        let Wire { metadata, spec } = Wire::deserialize(deserializer)?;
        Ok(Self { meta: metadata.meta, spec: spec.unwrap_or_default() })
    }
}

impl<'de> Deserialize<'de> for ClaimSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            resources: Option<WireResources>,
            storage_class_name: Option<Atom>,
            access_modes: Option<Vec<String>>,
        }
        let Wire { resources, storage_class_name, access_modes } = Wire::deserialize(deserializer)?;
        Ok(Self {
            storage: resources.and_then(|it| it.requests).and_then(|it| it.storage),
            storage_class: storage_class_name,
            access_modes: access_modes.map(|it| it.join(",").into()),
        })
    }
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
        let (storage, modes) = (Some("1Gi".into()), Some("ReadWriteOnce,ReadOnlyMany".into()));
        assert_eq!(read.spec, ClaimSpec { storage, storage_class: Some("fast".into()), access_modes: modes });
        let bare = PersistentVolumeClaim::decode_object(br#"{"metadata":{"name":"c"},"spec":null}"#).unwrap();
        assert_eq!(bare.spec, ClaimSpec::default());
    }
}
