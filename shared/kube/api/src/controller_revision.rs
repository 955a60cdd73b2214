use serde::{Deserialize, Deserializer, de::MapAccess};
use serde_json::value::RawValue;

use crate::{
    Atom, Cached, Labels, Meta, MetaRef, Resource, Typed, Uid,
    json::as_json,
    labels::Pairs,
    metadata::{Extra, Metadata},
    time::Seconds,
};

/// A ControllerRevision: one state of the template of a StatefulSet or DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControllerRevision {
    /// The common metadata.
    pub meta: Meta,
    /// All labels.
    pub labels: Labels,
    /// creationTimestamp in seconds since the epoch.
    pub creation: Option<i64>,
    /// `data` as unchanged JSON; empty if there is none. The server never changes it after the creation.
    pub data: Box<str>,
    /// The number of the revision. A later state has a higher number.
    pub revision: i64,
}

/// The indexes of ControllerRevisions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RevisionIndex {
    /// Revisions by the UID of their controller.
    Owner(Uid),
    /// Revisions of a namespace without a controller.
    Orphans(Atom),
}

impl Cached for ControllerRevision {
    type Index = RevisionIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, add: &mut dyn FnMut(RevisionIndex)) {
        match self.meta().controller() {
            Some(owner) => add(RevisionIndex::Owner(owner.uid.clone())),
            None => add(RevisionIndex::Orphans(self.meta.namespace.clone())),
        }
    }

    /// An orphan that does not decode has no entry: it cannot be adopted, and must not fail the sync of any object.
    fn index_meta(meta: MetaRef<'_>, add: &mut dyn FnMut(RevisionIndex)) {
        if let Some(owner) = meta.controller() {
            add(RevisionIndex::Owner(owner.uid.clone()));
        }
    }
}

impl Typed for ControllerRevision {
    fn resource() -> Resource {
        Resource::namespaced("apps", "v1", "controllerrevisions", "ControllerRevision")
    }
}

impl<'de> Deserialize<'de> for ControllerRevision {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: Metadata<RevisionMetadata>,
            data: Option<Box<RawValue>>,
            revision: Option<i64>,
        }
        let Wire { metadata, data, revision } = Wire::deserialize(deserializer)?;
        let Metadata { meta, extra } = metadata;
        let RevisionMetadata { labels, creation } = extra;
        let data = data.map(|it| it.get().into()).unwrap_or_default();
        Ok(Self { meta, labels, creation, data, revision: revision.unwrap_or_default() })
    }
}

#[derive(Default)]
struct RevisionMetadata {
    labels: Labels,
    creation: Option<i64>,
}

impl Extra for RevisionMetadata {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "labels" => self.labels = Pairs { keep: |_| true }.next(map)?,
            "creationTimestamp" => self.creation = map.next_value::<Option<Seconds>>()?.map(|it| it.0),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_unchanged_and_a_revision_is_found_by_its_owner() {
        let text = r#"{"metadata":{"name":"a-1","namespace":"n","uid":"u","resourceVersion":"5","labels":{"app":"x"},
            "ownerReferences":[{"apiVersion":"apps/v1","kind":"StatefulSet","name":"a","uid":"o","controller":true}]},
            "data":{"spec": {"b":1,"a":[ ]}},"revision":3}"#;
        let read = ControllerRevision::decode_object(text.as_bytes()).unwrap();
        assert_eq!(&*read.data, r#"{"spec": {"b":1,"a":[ ]}}"#);
        assert_eq!((read.revision, read.labels.get("app")), (3, Some("x")));
        let mut indexes = Vec::new();
        read.index(&mut |it| indexes.push(it));
        assert_eq!(indexes, [RevisionIndex::Owner(Uid::new("o"))]);
    }

    #[test]
    fn an_orphan_is_found_by_its_namespace_and_needs_no_data() {
        let text = r#"{"metadata":{"name":"a-1","namespace":"n","uid":"u","resourceVersion":"5"},"data":null}"#;
        let read = ControllerRevision::decode_object(text.as_bytes()).unwrap();
        assert_eq!((&*read.data, read.revision), ("", 0));
        let mut indexes = Vec::new();
        read.index(&mut |it| indexes.push(it));
        assert_eq!(indexes, [RevisionIndex::Orphans("n".into())]);
    }
}
