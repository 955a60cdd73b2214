use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::{
    Atom, Cached, IntOrPercent, Labels, Meta, MetaRef, NoIndex, NodeSelector, RawMetadata, Resource, Selector,
    StatusOwner, Toleration, Typed, UpdateStrategyType,
    json::{as_json, named},
    labels::AllLabels,
    metadata::Metadata,
    workload::{HISTORY_LIMIT, TEMPLATE_GENERATION, WorkloadMetadata},
};

mod status;

pub use status::DaemonSetStatus;

/// The fields of a DaemonSet that our controllers read, and those that their writes must contain.
#[derive(Debug, Clone)]
pub struct DaemonSet {
    /// The common metadata.
    pub meta: Meta,
    /// The annotations that begin with `mini-kcm.dev/`.
    pub annotations: Labels,
    /// metadata.generation, which only a change of the spec increases.
    pub generation: i64,
    /// The number of the template, which the server increments and stores in an annotation.
    pub template_generation: Option<i64>,
    /// The spec.
    pub spec: DaemonSetSpec,
    /// The last stored status. A changed copy of it is the body of the next status write.
    pub status: DaemonSetStatus,
    raw_metadata: RawMetadata,
}

/// `spec` of a DaemonSet. Missing fields have the server's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSetSpec {
    /// The selector of the pods.
    pub selector: Option<Selector>,
    /// The pod template as unchanged JSON. It is decoded when pods or a revision are created.
    pub template: Box<str>,
    /// The fields of the template that select nodes.
    pub placement: Placement,
    /// How pods of an older template are replaced.
    pub update_strategy: UpdateStrategyType,
    /// How many nodes may be without an available pod in a rolling update.
    pub max_unavailable: Option<IntOrPercent>,
    /// How many nodes may have a second pod in a rolling update (KEP-1591).
    pub max_surge: Option<IntOrPercent>,
    /// How long a pod must be ready before it is available, in seconds.
    pub min_ready_seconds: i32,
    /// The number of earlier revisions to keep.
    pub history_limit: i32,
}

/// The fields of a pod template that select nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// `nodeName`: the only node; empty if there is no such limit.
    pub node_name: Atom,
    /// `nodeSelector`: labels that a node must have.
    pub node_labels: Labels,
    /// The required node affinity.
    pub affinity: Option<NodeSelector>,
    /// The tolerations of the user.
    pub tolerations: Box<[Toleration]>,
    /// Whether the pods use the network of their node.
    pub host_network: bool,
}

impl Cached for DaemonSet {
    type Index = NoIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, _: &mut dyn FnMut(NoIndex)) {}
}

impl Typed for DaemonSet {
    fn resource() -> Resource {
        Resource::namespaced("apps", "v1", "daemonsets", "DaemonSet")
    }
}

impl StatusOwner for DaemonSet {
    fn raw_metadata(&self) -> &RawMetadata {
        &self.raw_metadata
    }
}

impl<'de> Deserialize<'de> for DaemonSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: RawMetadata,
            spec: Option<DaemonSetSpec>,
            status: Option<DaemonSetStatus>,
        }
        let Wire { metadata, spec, status } = Wire::deserialize(deserializer)?;
        let parsed: Metadata<WorkloadMetadata> = named("metadata", metadata.get()).map_err(serde::de::Error::custom)?;
        let WorkloadMetadata { annotations, generation } = parsed.extra;
        Ok(Self {
            meta: parsed.meta,
            template_generation: annotations.get(TEMPLATE_GENERATION).and_then(|it| it.parse().ok()),
            annotations,
            generation,
            spec: spec.unwrap_or_default(),
            status: status.unwrap_or_default(),
            raw_metadata: metadata,
        })
    }
}

impl Default for DaemonSetSpec {
    fn default() -> Self {
        WireSpec::default().with_placement(Placement::default())
    }
}

impl<'de> Deserialize<'de> for DaemonSetSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = WireSpec::deserialize(deserializer)?;
        let template = wire.template.as_ref().map(|it| named::<WireTemplate>("spec.template", it.get()));
        let template = template.transpose().map_err(serde::de::Error::custom)?.unwrap_or_default();
        Ok(wire.with_placement(template.spec.unwrap_or_default().into()))
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    selector: Option<Selector>,
    template: Option<Box<RawValue>>,
    update_strategy: Option<WireStrategy>,
    min_ready_seconds: Option<i32>,
    revision_history_limit: Option<i32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireStrategy {
    r#type: Option<UpdateStrategyType>,
    rolling_update: Option<WireRollingUpdate>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireRollingUpdate {
    max_unavailable: Option<IntOrPercent>,
    max_surge: Option<IntOrPercent>,
}

#[derive(Deserialize, Default)]
struct WireTemplate {
    spec: Option<WirePodSpec>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WirePodSpec {
    node_name: Option<Atom>,
    node_selector: Option<AllLabels>,
    affinity: Option<WireAffinity>,
    tolerations: Option<Box<[Toleration]>>,
    host_network: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireAffinity {
    node_affinity: Option<WireNodeAffinity>,
}

#[derive(Deserialize)]
struct WireNodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<NodeSelector>,
}

impl WireSpec {
    fn with_placement(self, placement: Placement) -> DaemonSetSpec {
        let Self { selector, template, update_strategy, min_ready_seconds, revision_history_limit } = self;
        let WireStrategy { r#type, rolling_update } = update_strategy.unwrap_or_default();
        let WireRollingUpdate { max_unavailable, max_surge } = rolling_update.unwrap_or_default();
        DaemonSetSpec {
            selector,
            template: template.map(Box::<str>::from).unwrap_or_default(),
            placement,
            update_strategy: r#type.unwrap_or_default(),
            max_unavailable,
            max_surge,
            min_ready_seconds: min_ready_seconds.unwrap_or_default(),
            history_limit: revision_history_limit.unwrap_or(HISTORY_LIMIT),
        }
    }
}

impl From<WirePodSpec> for Placement {
    fn from(wire: WirePodSpec) -> Self {
        let WirePodSpec { node_name, node_selector, affinity, tolerations, host_network } = wire;
        Self {
            node_name: node_name.unwrap_or_default(),
            node_labels: node_selector.map(|it| it.0).unwrap_or_default(),
            affinity: affinity.and_then(|it| it.node_affinity).and_then(|it| it.required),
            tolerations: tolerations.unwrap_or_default(),
            host_network: host_network.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str) -> DaemonSet {
        DaemonSet::decode_object(text.as_bytes()).unwrap()
    }

    #[test]
    fn missing_fields_have_the_servers_defaults() {
        let set = decode(r#"{"metadata":{"name":"ds","namespace":"n"},"spec":{"template":{"spec":null}}}"#);
        let spec = &set.spec;
        assert_eq!((spec.history_limit, spec.min_ready_seconds), (10, 0));
        assert_eq!((&spec.update_strategy, &spec.max_unavailable), (&UpdateStrategyType::RollingUpdate, &None));
        assert_eq!((&spec.placement, set.template_generation), (&Placement::default(), None));
        assert_eq!(set.status, DaemonSetStatus::default());
        assert_eq!(decode(r#"{"metadata":{"name":"ds","namespace":"n"}}"#).spec, DaemonSetSpec::default());
    }

    #[test]
    fn a_whole_set_is_read() {
        let set = decode(
            r#"{"metadata":{"name":"ds","namespace":"n","generation":3,
                "annotations":{"a":"b","mini-kcm.dev/x":"y","deprecated.daemonset.template.generation":"2"}},
            "spec":{"selector":{"matchLabels":{"app":"ds"}},"minReadySeconds":5,"revisionHistoryLimit":0,
                "updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"30%","maxSurge":0}},
                "template":{"spec": {"nodeName":"n1","nodeSelector":{"zone":"a"},"hostNetwork":true,
                    "tolerations":[{"key":"k","operator":"Exists"}],
                    "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{}]}}}}}},
            "status":{"numberReady":2,"collisionCount":1,"conditions":[{"type":"T"}]}}"#,
        );
        let spec = &set.spec;
        assert_eq!((spec.history_limit, spec.min_ready_seconds, set.template_generation), (0, 5, Some(2)));
        assert!(spec.template.starts_with(r#"{"spec": {"nodeName""#));
        assert_eq!(spec.max_unavailable, Some(IntOrPercent::Text("30%".into())));
        let placement = &spec.placement;
        assert_eq!((&*placement.node_name, placement.node_labels.get("zone")), ("n1", Some("a")));
        assert_eq!((placement.tolerations.len(), placement.host_network), (1, true));
        assert_eq!(placement.affinity.as_ref().map(|it| it.0.len()), Some(1));
        assert_eq!((set.annotations.get("a"), set.annotations.get("mini-kcm.dev/x")), (None, Some("y")));
        let written = serde_json::to_string(&set.status).unwrap();
        assert_eq!(
            written,
            r#"{"currentNumberScheduled":0,"numberMisscheduled":0,"desiredNumberScheduled":0,"numberReady":2,"collisionCount":1,"conditions":[{"type":"T"}]}"#
        );
    }
}
