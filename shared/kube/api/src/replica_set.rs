use serde::{Deserialize, Deserializer, de::MapAccess};
use serde_json::value::RawValue;

use crate::{
    Atom, Cached, Labels, Meta, MetaRef, RawMetadata, Resource, Selector, StatusOwner, Typed, Uid,
    json::{as_json, named, next_or_default},
    labels::{AllLabels, Pairs},
    metadata::{Extra, Metadata},
    time::Seconds,
};

mod status;

pub use status::ReplicaSetStatus;

/// Other annotations are only in the raw metadata.
const ANNOTATION_PREFIXES: [&str; 2] = ["deployment.kubernetes.io/", "mini-kcm.dev/"];

/// The fields of a ReplicaSet that our controllers read, and those that their writes must contain.
#[derive(Debug, Clone)]
pub struct ReplicaSet {
    /// The common metadata.
    pub meta: Meta,
    /// All labels.
    pub labels: Labels,
    /// The annotations that begin with `deployment.kubernetes.io/` or `mini-kcm.dev/`.
    pub annotations: Labels,
    /// creationTimestamp in seconds since the epoch.
    pub creation: Option<i64>,
    /// metadata.generation, which only a change of the spec increases.
    pub generation: i64,
    /// The spec.
    pub spec: ReplicaSetSpec,
    /// The last stored status. A changed copy of it is the body of the next status write.
    pub status: ReplicaSetStatus,
    raw_metadata: RawMetadata,
}

/// `spec` of a ReplicaSet. Missing fields have the server's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSetSpec {
    /// The number of pods.
    pub replicas: i32,
    /// How long a pod must be ready before it is available, in seconds.
    pub min_ready_seconds: i32,
    /// The selector of the pods.
    pub selector: Option<Selector>,
    /// The pod template as unchanged JSON. It is decoded when pods are created.
    pub template: Box<str>,
    /// The labels of the pod template.
    pub template_labels: Labels,
}

/// The indexes that every ReplicaSet has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ReplicaSetIndex {
    /// ReplicaSets by the UID of their controller.
    Owner(Uid),
    /// ReplicaSets of a namespace without a controller.
    Orphans(Atom),
}

impl Cached for ReplicaSet {
    type Index = ReplicaSetIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, add: &mut dyn FnMut(ReplicaSetIndex)) {
        add(match self.meta().controller() {
            Some(owner) => ReplicaSetIndex::Owner(owner.uid.clone()),
            None => ReplicaSetIndex::Orphans(self.meta.namespace.clone()),
        });
    }

    /// An orphan that does not decode has no entry: it cannot be adopted, and it must not fail the sync of any object.
    fn index_meta(meta: MetaRef<'_>, add: &mut dyn FnMut(ReplicaSetIndex)) {
        if let Some(owner) = meta.controller() {
            add(ReplicaSetIndex::Owner(owner.uid.clone()));
        }
    }
}

impl Typed for ReplicaSet {
    fn resource() -> Resource {
        Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet")
    }
}

impl StatusOwner for ReplicaSet {
    fn raw_metadata(&self) -> &RawMetadata {
        &self.raw_metadata
    }
}

impl AsRef<Self> for ReplicaSet {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<'de> Deserialize<'de> for ReplicaSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        decode::<D, Selector>(deserializer)
    }
}

/// Decodes a ReplicaSet or a ReplicationController. `S` is the form of its selector.
pub(crate) fn decode<'de, D, S>(deserializer: D) -> Result<ReplicaSet, D::Error>
where
    D: Deserializer<'de>,
    S: Deserialize<'de> + Into<Selector>,
{
    #[derive(Deserialize)]
    #[serde(bound(deserialize = "S: Deserialize<'de>"))]
    struct Wire<S> {
        metadata: RawMetadata,
        spec: Option<WireSpec<S>>,
        status: Option<ReplicaSetStatus>,
    }
    let Wire { metadata, spec, status } = Wire::<S>::deserialize(deserializer)?;
    let parsed: Metadata<ReplicaSetMetadata> = named("metadata", metadata.get()).map_err(serde::de::Error::custom)?;
    let ReplicaSetMetadata { labels, annotations, creation, generation } = parsed.extra;
    let spec = spec.map_or_else(|| Ok(ReplicaSetSpec::default()), WireSpec::into_spec);
    Ok(ReplicaSet {
        meta: parsed.meta,
        labels,
        annotations,
        creation,
        generation,
        spec: spec.map_err(serde::de::Error::custom)?,
        status: status.unwrap_or_default(),
        raw_metadata: metadata,
    })
}

#[derive(Default)]
struct ReplicaSetMetadata {
    labels: Labels,
    annotations: Labels,
    creation: Option<i64>,
    generation: i64,
}

impl Extra for ReplicaSetMetadata {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "labels" => self.labels = Pairs { keep: |_| true }.next(map)?,
            "annotations" => self.annotations = Pairs { keep: is_read }.next(map)?,
            "creationTimestamp" => self.creation = map.next_value::<Option<Seconds>>()?.map(|it| it.0),
            "generation" => self.generation = next_or_default(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn is_read(annotation: &str) -> bool {
    ANNOTATION_PREFIXES.iter().any(|prefix| annotation.starts_with(prefix))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "S: Deserialize<'de>"))]
struct WireSpec<S> {
    replicas: Option<i32>,
    min_ready_seconds: Option<i32>,
    selector: Option<S>,
    template: Option<Box<RawValue>>,
}

#[derive(Deserialize, Default)]
struct WireTemplate {
    metadata: Option<WireTemplateMetadata>,
}

#[derive(Deserialize, Default)]
struct WireTemplateMetadata {
    labels: Option<AllLabels>,
}

impl<S: Into<Selector>> WireSpec<S> {
    fn into_spec(self) -> Result<ReplicaSetSpec, String> {
        let Self { replicas, min_ready_seconds, selector, template } = self;
        let parsed = template.as_ref().map(|it| named::<WireTemplate>("spec.template", it.get())).transpose()?;
        let labels = parsed.and_then(|it| it.metadata).and_then(|it| it.labels);
        Ok(ReplicaSetSpec {
            replicas: replicas.unwrap_or(1),
            min_ready_seconds: min_ready_seconds.unwrap_or_default(),
            selector: selector.map(Into::into),
            template: template.map(Box::<str>::from).unwrap_or_default(),
            template_labels: labels.map(|it| it.0).unwrap_or_default(),
        })
    }
}

impl Default for ReplicaSetSpec {
    fn default() -> Self {
        Self {
            replicas: 1,
            min_ready_seconds: 0,
            selector: None,
            template: Box::default(),
            template_labels: Labels::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> ReplicaSet {
        ReplicaSet::decode_object(text.as_bytes()).unwrap()
    }

    #[test]
    fn missing_fields_have_the_servers_defaults() {
        let set = decoded(r#"{"metadata":{"name":"rs","namespace":"n"},"spec":{"template":{"metadata":null}}}"#);
        assert_eq!((set.spec.replicas, set.spec.min_ready_seconds, &set.spec.selector), (1, 0, &None));
        assert!(set.spec.template_labels.is_empty() && set.labels.is_empty());
        assert_eq!(set.status, ReplicaSetStatus::default());
        let bare = decoded(r#"{"metadata":{"name":"rs","namespace":"n"}}"#);
        assert_eq!((bare.spec, bare.creation), (ReplicaSetSpec::default(), None));
    }

    #[test]
    fn a_whole_replica_set_is_read_and_its_status_is_written_back() {
        let set = decoded(
            r#"{"metadata":{"name":"rs","namespace":"n","generation":3,"creationTimestamp":"2026-01-02T03:04:05Z",
                "labels":{"pod-template-hash":"h"},
                "annotations":{"a":"b","deployment.kubernetes.io/revision":"2","mini-kcm.dev/x":"y"}},
            "spec":{"replicas":3,"minReadySeconds":5,"selector":{"matchLabels":{"app":"rs"}},
                "template":{"metadata": {"labels":{"app":"rs"}},"spec":{"x":1}}},
            "status":{"replicas":2,"readyReplicas":1,"terminatingReplicas":0,"observedGeneration":2,"newer":[1],
                "conditions":[{"type":"T","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}"#,
        );
        assert_eq!((set.spec.replicas, set.spec.min_ready_seconds, set.generation), (3, 5, 3));
        assert!(set.spec.template.starts_with(r#"{"metadata": {"labels""#));
        assert_eq!((set.spec.template_labels.get("app"), set.labels.get("pod-template-hash")), (Some("rs"), Some("h")));
        let annotations =
            ["a", "deployment.kubernetes.io/revision", "mini-kcm.dev/x"].map(|it| set.annotations.get(it));
        assert_eq!((annotations, set.creation), ([None, Some("2"), Some("y")], Some(1_767_323_045)));
        assert_eq!(set.status.terminating, Some(0));
        assert_eq!(
            serde_json::to_string(&set.status).unwrap(),
            r#"{"replicas":2,"readyReplicas":1,"terminatingReplicas":0,"observedGeneration":2,"conditions":[{"type":"T","status":"True","reason":"","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}],"newer":[1]}"#
        );
    }

    #[test]
    fn a_replica_set_is_indexed_by_its_controller() {
        let index = |owners: &str| {
            let text = format!(r#"{{"metadata":{{"name":"rs","namespace":"n","ownerReferences":{owners}}}}}"#);
            let mut found = Vec::new();
            decoded(&text).index(&mut |it| found.push(it));
            found
        };
        assert_eq!(index("[]"), [ReplicaSetIndex::Orphans("n".into())]);
        assert_eq!(index(r#"[{"uid":"u"}]"#), [ReplicaSetIndex::Orphans("n".into())]);
        assert_eq!(index(r#"[{"uid":"u","controller":true}]"#), [ReplicaSetIndex::Owner(Uid::new("u"))]);
    }
}
