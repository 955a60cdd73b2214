use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::{
    Cached, ClaimSpec, IntOrPercent, Labels, Meta, MetaRef, NoIndex, RawMetadata, Resource, Selector, StatusOwner,
    Typed, UpdateStrategyType,
    json::{as_json, named},
    metadata::Metadata,
    words::words,
    workload::{HISTORY_LIMIT, WorkloadMetadata},
};

mod status;

pub use status::StatefulSetStatus;

words! {
    /// Whether pods are created and deleted one after the other.
    PodManagementPolicy {
        /// One after the other, each after the previous one is ready.
        OrderedReady = "OrderedReady" | "",
        /// All together.
        Parallel = "Parallel",
    }
}

words! {
    /// What happens to the claims of a pod that is not needed any more.
    ClaimRetention {
        /// They are kept.
        Retain = "Retain" | "",
        /// They are deleted.
        Delete = "Delete",
    }
}

/// The fields of a StatefulSet that our controllers read, and those that their writes must contain.
#[derive(Debug, Clone)]
pub struct StatefulSet {
    /// The common metadata.
    pub meta: Meta,
    /// The annotations that begin with `mini-kcm.dev/`.
    pub annotations: Labels,
    /// metadata.generation, which only a change of the spec increases.
    pub generation: i64,
    /// The spec.
    pub spec: StatefulSetSpec,
    /// The last stored status. A changed copy of it is the body of the next status write.
    pub status: StatefulSetStatus,
    raw_metadata: RawMetadata,
}

/// `spec` of a StatefulSet. Missing fields have the server's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatefulSetSpec {
    /// The number of pods.
    pub replicas: i32,
    /// The lowest ordinal (KEP-3335).
    pub start: i32,
    /// The selector of the pods.
    pub selector: Option<Selector>,
    /// The pod template as unchanged JSON. It is decoded when a pod or a revision is created.
    pub template: Box<str>,
    /// The templates of the claims of each pod.
    pub claim_templates: Box<[ClaimTemplate]>,
    /// The service that gives the pods their domain names.
    pub service_name: Box<str>,
    /// Whether pods are created and deleted one after the other.
    pub pod_management: PodManagementPolicy,
    /// How pods of an older template are replaced.
    pub update_strategy: UpdateStrategyType,
    /// The parameters of a rolling update; `None` if the block is absent.
    pub rolling_update: Option<RollingUpdate>,
    /// The number of unused revisions to keep; negative means all.
    pub history_limit: i32,
    /// How long a pod must be ready before it is available, in seconds.
    pub min_ready_seconds: i32,
    /// What happens to the claims when the StatefulSet is deleted (KEP-1847).
    pub when_deleted: ClaimRetention,
    /// What happens to the claims of a pod that is scaled down (KEP-1847).
    pub when_scaled: ClaimRetention,
}

/// `spec.updateStrategy.rollingUpdate`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RollingUpdate {
    /// Pods below this position keep the current revision.
    pub partition: i32,
    /// How many pods may be unavailable (KEP-961).
    pub max_unavailable: Option<IntOrPercent>,
}

/// One entry of `spec.volumeClaimTemplates`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimTemplate {
    /// The name of the volume, and the first part of the names of the claims.
    pub name: Box<str>,
    /// The fields that are compared with those of existing claims.
    pub spec: ClaimSpec,
    /// The whole template as unchanged JSON.
    pub raw: Box<str>,
}

impl Cached for StatefulSet {
    type Index = NoIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, _: &mut dyn FnMut(NoIndex)) {}
}

impl Typed for StatefulSet {
    fn resource() -> Resource {
        Resource::namespaced("apps", "v1", "statefulsets", "StatefulSet")
    }
}

impl StatusOwner for StatefulSet {
    fn raw_metadata(&self) -> &RawMetadata {
        &self.raw_metadata
    }
}

impl<'de> Deserialize<'de> for StatefulSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: RawMetadata,
            spec: Option<StatefulSetSpec>,
            status: Option<StatefulSetStatus>,
        }
        let Wire { metadata, spec, status } = Wire::deserialize(deserializer)?;
        let parsed: Metadata<WorkloadMetadata> = named("metadata", metadata.get()).map_err(serde::de::Error::custom)?;
        let WorkloadMetadata { annotations, generation } = parsed.extra;
        Ok(Self {
            meta: parsed.meta,
            annotations,
            generation,
            spec: spec.unwrap_or_default(),
            status: status.unwrap_or_default(),
            raw_metadata: metadata,
        })
    }
}

impl Default for StatefulSetSpec {
    fn default() -> Self {
        WireSpec::default().into()
    }
}

impl<'de> Deserialize<'de> for StatefulSetSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WireSpec::deserialize(deserializer).map(Self::from)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    replicas: Option<i32>,
    ordinals: Option<WireOrdinals>,
    selector: Option<Selector>,
    template: Option<Box<RawValue>>,
    volume_claim_templates: Option<Vec<ClaimTemplate>>,
    service_name: Option<Box<str>>,
    pod_management_policy: Option<PodManagementPolicy>,
    update_strategy: Option<WireStrategy>,
    revision_history_limit: Option<i32>,
    min_ready_seconds: Option<i32>,
    persistent_volume_claim_retention_policy: Option<WireRetention>,
}

#[derive(Deserialize)]
struct WireOrdinals {
    start: Option<i32>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireStrategy {
    r#type: Option<UpdateStrategyType>,
    rolling_update: Option<WireRollingUpdate>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRollingUpdate {
    partition: Option<i32>,
    max_unavailable: Option<IntOrPercent>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireRetention {
    when_deleted: Option<ClaimRetention>,
    when_scaled: Option<ClaimRetention>,
}

/// The API server accepts several templates of one name; the last one counts (`getPersistentVolumeClaims`).
fn unique_claims(templates: Vec<ClaimTemplate>) -> Box<[ClaimTemplate]> {
    let mut unique: Vec<ClaimTemplate> = Vec::new();
    for template in templates {
        match unique.iter_mut().find(|it| it.name == template.name) {
            Some(earlier) => *earlier = template,
            None => unique.push(template),
        }
    }
    unique.into()
}

impl From<WireSpec> for StatefulSetSpec {
    fn from(wire: WireSpec) -> Self {
        let WireStrategy { r#type, rolling_update } = wire.update_strategy.unwrap_or_default();
        let WireRetention { when_deleted, when_scaled } =
            wire.persistent_volume_claim_retention_policy.unwrap_or_default();
        let rolling_update = rolling_update.map(|it| RollingUpdate {
            partition: it.partition.unwrap_or_default(),
            max_unavailable: it.max_unavailable,
        });
        Self {
            replicas: wire.replicas.unwrap_or(1),
            start: wire.ordinals.and_then(|it| it.start).unwrap_or_default(),
            selector: wire.selector,
            template: wire.template.map(Box::<str>::from).unwrap_or_default(),
            claim_templates: unique_claims(wire.volume_claim_templates.unwrap_or_default()),
            service_name: wire.service_name.unwrap_or_default(),
            pod_management: wire.pod_management_policy.unwrap_or_default(),
            update_strategy: r#type.unwrap_or_default(),
            rolling_update,
            history_limit: wire.revision_history_limit.unwrap_or(HISTORY_LIMIT),
            min_ready_seconds: wire.min_ready_seconds.unwrap_or_default(),
            when_deleted: when_deleted.unwrap_or_default(),
            when_scaled: when_scaled.unwrap_or_default(),
        }
    }
}

impl<'de> Deserialize<'de> for ClaimTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: Option<WireName>,
            spec: Option<ClaimSpec>,
        }
        #[derive(Deserialize)]
        struct WireName {
            name: Option<Box<str>>,
        }
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let Wire { metadata, spec } = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
        let name = metadata.and_then(|it| it.name).unwrap_or_default();
        Ok(Self { name, spec: spec.unwrap_or_default(), raw: raw.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str) -> StatefulSet {
        StatefulSet::decode_object(text.as_bytes()).unwrap()
    }

    #[test]
    fn missing_fields_have_the_servers_defaults() {
        let set = decode(r#"{"metadata":{"name":"web","namespace":"n"},"spec":{}}"#);
        let spec = &set.spec;
        assert_eq!((spec.replicas, spec.start, spec.history_limit, spec.min_ready_seconds), (1, 0, 10, 0));
        assert_eq!(spec.pod_management, PodManagementPolicy::OrderedReady);
        assert_eq!((&spec.update_strategy, &spec.rolling_update), (&UpdateStrategyType::RollingUpdate, &None));
        assert_eq!((&spec.when_deleted, &spec.when_scaled), (&ClaimRetention::Retain, &ClaimRetention::Retain));
        assert_eq!(set.status, StatefulSetStatus::default());
    }

    #[test]
    fn of_claim_templates_of_one_name_the_last_one_counts() {
        let set = decode(
            r#"{"metadata":{"name":"web","namespace":"n"},"spec":{"volumeClaimTemplates":[
                {"metadata":{"name":"data"},"spec":{"a":1}},{"metadata":{"name":"log"}},
                {"metadata":{"name":"data"},"spec":{"a":2}}]}}"#,
        );
        let [data, log] = &*set.spec.claim_templates else { panic!("{:?}", set.spec.claim_templates) };
        assert_eq!((&*data.name, &*log.name), ("data", "log"));
        assert!(data.raw.contains(r#""a":2"#), "{}", data.raw);
    }

    #[test]
    fn a_whole_spec_is_read() {
        let set = decode(
            r#"{"metadata":{"name":"web","namespace":"n","generation":3,"annotations":{"a":"b","mini-kcm.dev/x":"y"}},
            "spec":{"replicas":3,"ordinals":{"start":2},"selector":{"matchLabels":{"app":"web"}},
                "template":{"spec": {"x":1}},"serviceName":"svc","podManagementPolicy":"Parallel",
                "volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"a": 1}}],
                "updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":1,"maxUnavailable":"30%"}},
                "revisionHistoryLimit":0,"minReadySeconds":5,
                "persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Retain"}},
            "status":{"replicas":2,"currentRevision":"web-1","collisionCount":1,"conditions":[{"type":"T"}]}}"#,
        );
        let spec = &set.spec;
        assert_eq!((spec.replicas, spec.start, spec.history_limit, spec.min_ready_seconds), (3, 2, 0, 5));
        assert_eq!(&*spec.template, r#"{"spec": {"x":1}}"#);
        assert_eq!((&*spec.claim_templates[0].name, &*spec.service_name), ("data", "svc"));
        assert_eq!(&*spec.claim_templates[0].raw, r#"{"metadata":{"name":"data"},"spec":{"a": 1}}"#);
        let rolling = RollingUpdate { partition: 1, max_unavailable: Some(IntOrPercent::Text("30%".into())) };
        assert_eq!(spec.rolling_update, Some(rolling));
        assert_eq!((&spec.when_deleted, &spec.when_scaled), (&ClaimRetention::Delete, &ClaimRetention::Retain));
        assert_eq!(
            (set.generation, set.annotations.get("a"), set.annotations.get("mini-kcm.dev/x")),
            (3, None, Some("y"))
        );
        let written = serde_json::to_string(&set.status).unwrap();
        assert_eq!(
            written,
            r#"{"replicas":2,"currentRevision":"web-1","collisionCount":1,"availableReplicas":0,"conditions":[{"type":"T"}]}"#
        );
    }
}
