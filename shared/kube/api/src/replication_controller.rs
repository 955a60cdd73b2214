use serde::{Deserialize, Deserializer};

use crate::{
    Cached, MetaRef, NoIndex, RawMetadata, ReplicaSet, Resource, Selector, StatusOwner, Typed, json::as_json,
    labels::AllLabels, replica_set::decode,
};

/// A ReplicationController, read as a ReplicaSet: it has the same fields, and its selector is a map of labels.
#[derive(Debug, Clone)]
pub struct ReplicationController(ReplicaSet);

impl AsRef<ReplicaSet> for ReplicationController {
    fn as_ref(&self) -> &ReplicaSet {
        &self.0
    }
}

impl Cached for ReplicationController {
    type Index = NoIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.0.meta.as_ref()
    }

    fn index(&self, _: &mut dyn FnMut(NoIndex)) {}
}

impl Typed for ReplicationController {
    fn resource() -> Resource {
        Resource::namespaced("", "v1", "replicationcontrollers", "ReplicationController")
    }
}

impl StatusOwner for ReplicationController {
    fn raw_metadata(&self) -> &RawMetadata {
        self.0.raw_metadata()
    }
}

impl<'de> Deserialize<'de> for ReplicationController {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        decode::<D, LabelMap>(deserializer).map(Self)
    }
}

/// The selector of a ReplicationController.
#[derive(Deserialize)]
struct LabelMap(AllLabels);

impl From<LabelMap> for Selector {
    fn from(LabelMap(AllLabels(labels)): LabelMap) -> Self {
        Self { labels, requirements: Box::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_selector_is_a_map_of_labels() {
        let text = r#"{"metadata":{"name":"rc","namespace":"n","generation":2},
            "spec":{"replicas":2,"selector":{"app":"x"},"template":{"metadata":{"labels":{"app":"x"}}}},
            "status":{"replicas":2}}"#;
        let read = ReplicationController::decode_object(text.as_bytes()).unwrap();
        let ReplicaSet { generation, spec, status, .. } = read.as_ref();
        let selector = spec.selector.as_ref().unwrap();
        assert_eq!((selector.labels.get("app"), selector.requirements.len(), *generation), (Some("x"), 0, 2));
        assert_eq!((spec.replicas, spec.template_labels.get("app"), status.replicas), (2, Some("x"), 2));
        assert_eq!(serde_json::to_string(status).unwrap(), r#"{"replicas":2}"#);
        let bare = r#"{"metadata":{"name":"rc"},"spec":{"selector":null}}"#;
        assert_eq!(ReplicationController::decode_object(bare.as_bytes()).unwrap().as_ref().spec.selector, None);
    }
}
