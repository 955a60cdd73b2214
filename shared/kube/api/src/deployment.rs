use serde::{Deserialize, Deserializer, de::MapAccess};
use serde_json::value::RawValue;

use crate::{
    Cached, IntOrPercent, Labels, Meta, MetaRef, NoIndex, RawMetadata, Resource, Selector, StatusOwner, Typed,
    json::{as_json, named, next_or_default},
    labels::Pairs,
    metadata::{Extra, Metadata},
    words::words,
};

mod status;

pub use status::{DeploymentCondition, DeploymentStatus};

/// Other annotations are only in the raw metadata.
const ANNOTATION_PREFIXES: [&str; 3] =
    ["deployment.kubernetes.io/", "deprecated.deployment.rollback.to", "mini-kcm.dev/"];

words! {
    /// How pods of an older template are replaced.
    DeploymentStrategy {
        /// Step by step.
        RollingUpdate = "RollingUpdate" | "",
        /// All old pods are gone before the first new one is created.
        Recreate = "Recreate",
    }
}

/// The fields of a Deployment that our controllers read, and those that their writes must contain.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The common metadata.
    pub meta: Meta,
    /// The annotations of the Deployment controller, and those that begin with `mini-kcm.dev/`.
    pub annotations: Labels,
    /// metadata.generation, which a change of the spec or of the annotations increases.
    pub generation: i64,
    /// The spec.
    pub spec: DeploymentSpec,
    /// The last stored status. A changed copy of it is the body of the next status write.
    pub status: DeploymentStatus,
    raw_metadata: RawMetadata,
}

/// `spec` of a Deployment. Missing fields have the server's default, if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentSpec {
    /// The number of pods.
    pub replicas: i32,
    /// The selector of the ReplicaSets and pods.
    pub selector: Option<Selector>,
    /// The pod template as unchanged JSON. It is decoded when a ReplicaSet is created or compared.
    pub template: Box<str>,
    /// How pods of an older template are replaced.
    pub strategy: DeploymentStrategy,
    /// How many pods a rolling update may have in addition.
    pub max_surge: Option<IntOrPercent>,
    /// How many pods may be unavailable in a rolling update.
    pub max_unavailable: Option<IntOrPercent>,
    /// How long a pod must be ready before it is available, in seconds.
    pub min_ready_seconds: i32,
    /// The number of old ReplicaSets to keep; `None` means all.
    pub history_limit: Option<i32>,
    /// How long a rollout may be without progress, in seconds; `None` means without limit.
    pub progress_deadline: Option<i32>,
    /// No rollout begins or continues.
    pub paused: bool,
}

impl Deployment {
    /// The same Deployment with this annotation in the metadata of the next write of its status.
    ///
    /// # Errors
    /// Never for metadata from a server. The JSON is parsed again.
    pub fn with_annotation(&self, key: &str, value: &str) -> Result<Self, serde_json::Error> {
        let raw_metadata = self.raw_metadata.with_annotation(key, value)?;
        Ok(Self { raw_metadata, ..self.clone() })
    }
}

impl Cached for Deployment {
    type Index = NoIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, _: &mut dyn FnMut(NoIndex)) {}
}

impl Typed for Deployment {
    fn resource() -> Resource {
        Resource::namespaced("apps", "v1", "deployments", "Deployment")
    }
}

impl StatusOwner for Deployment {
    fn raw_metadata(&self) -> &RawMetadata {
        &self.raw_metadata
    }
}

impl<'de> Deserialize<'de> for Deployment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: RawMetadata,
            spec: Option<DeploymentSpec>,
            status: Option<DeploymentStatus>,
        }
        let Wire { metadata, spec, status } = Wire::deserialize(deserializer)?;
        let parsed: Metadata<DeploymentMetadata> =
            named("metadata", metadata.get()).map_err(serde::de::Error::custom)?;
        let DeploymentMetadata { annotations, generation } = parsed.extra;
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

#[derive(Default)]
struct DeploymentMetadata {
    annotations: Labels,
    generation: i64,
}

impl Extra for DeploymentMetadata {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "annotations" => self.annotations = Pairs { keep: is_read }.next(map)?,
            "generation" => self.generation = next_or_default(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn is_read(annotation: &str) -> bool {
    ANNOTATION_PREFIXES.iter().any(|prefix| annotation.starts_with(prefix))
}

impl Default for DeploymentSpec {
    fn default() -> Self {
        WireSpec::default().into()
    }
}

impl<'de> Deserialize<'de> for DeploymentSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WireSpec::deserialize(deserializer).map(Self::from)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    replicas: Option<i32>,
    selector: Option<Selector>,
    template: Option<Box<RawValue>>,
    strategy: Option<WireStrategy>,
    min_ready_seconds: Option<i32>,
    revision_history_limit: Option<i32>,
    progress_deadline_seconds: Option<i32>,
    paused: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireStrategy {
    r#type: Option<DeploymentStrategy>,
    rolling_update: Option<WireRollingUpdate>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireRollingUpdate {
    max_surge: Option<IntOrPercent>,
    max_unavailable: Option<IntOrPercent>,
}

/// The value of `revisionHistoryLimit` and `progressDeadlineSeconds` that means no limit, as if it were absent.
fn limit(value: Option<i32>) -> Option<i32> {
    value.filter(|it| *it != i32::MAX)
}

impl From<WireSpec> for DeploymentSpec {
    fn from(wire: WireSpec) -> Self {
        let WireSpec { replicas, selector, template, strategy, min_ready_seconds, paused, .. } = wire;
        let WireStrategy { r#type, rolling_update } = strategy.unwrap_or_default();
        let WireRollingUpdate { max_surge, max_unavailable } = rolling_update.unwrap_or_default();
        Self {
            replicas: replicas.unwrap_or(1),
            selector,
            template: template.map(Box::<str>::from).unwrap_or_default(),
            strategy: r#type.unwrap_or_default(),
            max_surge,
            max_unavailable,
            min_ready_seconds: min_ready_seconds.unwrap_or_default(),
            history_limit: limit(wire.revision_history_limit),
            progress_deadline: limit(wire.progress_deadline_seconds),
            paused: paused.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(text: &str) -> Deployment {
        Deployment::decode_object(text.as_bytes()).unwrap()
    }

    #[test]
    fn missing_fields_have_defaults_and_no_limits() {
        let deployment = decode(r#"{"metadata":{"name":"d","namespace":"n"},"spec":{}}"#);
        let spec = &deployment.spec;
        assert_eq!((spec.replicas, spec.min_ready_seconds, spec.paused), (1, 0, false));
        assert_eq!((spec.history_limit, spec.progress_deadline), (None, None));
        assert_eq!((&spec.strategy, &spec.max_surge), (&DeploymentStrategy::RollingUpdate, &None));
        assert_eq!(deployment.status, DeploymentStatus::default());
        let unlimited = r#"{"metadata":{"name":"d"},"spec":{"revisionHistoryLimit":2147483647,
            "progressDeadlineSeconds":2147483647}}"#;
        let spec = decode(unlimited).spec;
        assert_eq!((spec.history_limit, spec.progress_deadline), (None, None));
    }

    #[test]
    fn a_whole_deployment_is_read() {
        let deployment = decode(
            r#"{"metadata":{"name":"d","namespace":"n","generation":3,
                "annotations":{"a":"b","deployment.kubernetes.io/revision":"2","deprecated.deployment.rollback.to":"1"}},
            "spec":{"replicas":3,"selector":{"matchLabels":{"app":"d"}},"template":{"spec": {"x":1}},"paused":true,
                "strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":"25%"}},
                "minReadySeconds":5,"revisionHistoryLimit":0,"progressDeadlineSeconds":600},
            "status":{"replicas":3,"terminatingReplicas":0,"newField":[1],
                "conditions":[{"type":"Progressing","status":"True","reason":"R","newField":1,
                    "lastUpdateTime":"2026-01-02T03:04:05Z"}]}}"#,
        );
        let spec = &deployment.spec;
        assert_eq!((spec.replicas, spec.min_ready_seconds, spec.paused), (3, 5, true));
        assert_eq!((spec.history_limit, spec.progress_deadline), (Some(0), Some(600)));
        assert_eq!(&*spec.template, r#"{"spec": {"x":1}}"#);
        assert_eq!(spec.max_surge, Some(IntOrPercent::Int(1)));
        assert_eq!(spec.max_unavailable, Some(IntOrPercent::Text("25%".into())));
        let annotation = |key: &str| deployment.annotations.get(key);
        assert_eq!((annotation("a"), annotation("deployment.kubernetes.io/revision")), (None, Some("2")));
        assert_eq!(annotation("deprecated.deployment.rollback.to"), Some("1"));
        let condition = deployment.status.condition("Progressing").unwrap();
        assert_eq!((condition.last_update, condition.last_transition), (Some(1_767_323_045), None));
        assert_eq!(
            serde_json::to_string(&deployment.status).unwrap(),
            r#"{"replicas":3,"terminatingReplicas":0,"conditions":[{"type":"Progressing","status":"True","lastUpdateTime":"2026-01-02T03:04:05Z","reason":"R","newField":1}],"newField":[1]}"#
        );
    }

    #[test]
    fn an_annotation_is_set_in_the_raw_metadata() {
        let deployment = decode(r#"{"metadata":{"name":"d","resourceVersion":"7"}}"#);
        let changed = deployment.with_annotation("a", "1").unwrap().with_annotation("b", "2").unwrap();
        assert_eq!(
            changed.raw_metadata().get(),
            r#"{"annotations":{"a":"1","b":"2"},"name":"d","resourceVersion":"7"}"#
        );
        assert_eq!(deployment.raw_metadata().get(), r#"{"name":"d","resourceVersion":"7"}"#);
    }
}
