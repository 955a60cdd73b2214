use std::sync::Arc;

use serde::{Deserialize, Deserializer, de::MapAccess};

use crate::{
    Atom, Cached, ConditionStatus, ContainerRole, ContainerStatus, Labels, Meta, MetaRef, Resource, Toleration, Typed,
    Uid,
    container::WireContainerStatus,
    json::{as_json, next_or_default},
    labels::Pairs,
    metadata::{Extra, Metadata},
    shared::share,
    time::Seconds,
    words::words,
};

/// Annotations of pods that begin with one of these belong to a controller and are kept. All others are dropped, because
/// some of them are large.
const ANNOTATION_PREFIXES: [&str; 2] = ["batch.kubernetes.io/", "controller.kubernetes.io/"];

words! {
    /// The phase of a pod.
    PodPhase {
        /// Not all containers have started.
        Pending = "Pending",
        /// Bound to a node, and at least one container runs or is starting.
        Running = "Running",
        /// All containers have terminated successfully.
        Succeeded = "Succeeded",
        /// All containers have terminated, at least one of them with a failure.
        Failed = "Failed",
        /// The state cannot be obtained from the node.
        Unknown = "Unknown",
    }
}

/// The fields of a pod that our controllers read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// The common metadata.
    pub meta: Meta,
    /// All labels.
    pub labels: Labels,
    /// The annotations whose prefix belongs to a controller, for example `batch.kubernetes.io/`.
    pub annotations: Labels,
    /// creationTimestamp in seconds since the epoch.
    pub creation: Option<i64>,
    /// deletionGracePeriodSeconds of the present deletion. A value that does not fit is reduced to the maximum.
    pub deletion_grace: Option<i32>,
    /// metadata.generation, for the observedGeneration of conditions.
    pub generation: i64,
    /// spec.nodeName; empty if the pod is not assigned.
    pub node: Atom,
    /// The one node in the required node affinity `metadata.name In [..]`; empty without such a term.
    pub target_node: Atom,
    /// terminationGracePeriodSeconds. A value that does not fit is reduced to the maximum.
    pub termination_grace: Option<i32>,
    /// All tolerations in their order, shared.
    pub tolerations: Arc<[Toleration]>,
    /// The volumes of type PersistentVolumeClaim.
    pub claims: Box<[ClaimVolume]>,
    /// The phase of the pod.
    pub phase: PodPhase,
    /// status.reason, for example `Evicted`.
    pub reason: Atom,
    /// When the kubelet accepted the pod, in seconds since the epoch.
    pub start: Option<i64>,
    /// All conditions.
    pub conditions: Box<[PodCondition]>,
    /// All containers with a status: first the regular ones, then the init containers.
    pub containers: Box<[ContainerStatus]>,
}

/// A volume of type PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimVolume {
    /// The name of the volume.
    pub volume: Atom,
    /// The name of the claim. Not interned, because the claims of StatefulSets do not repeat.
    pub claim: Box<str>,
}

/// The fields of a pod condition that controllers use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCondition {
    /// The type of the condition.
    pub type_: Atom,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When `status` last changed, in seconds since the epoch.
    pub last_transition: Option<i64>,
}

/// The indexes that every pod has. A controller declares the others that it needs, see `informer::Store::declare_index`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodIndex {
    /// Pods by the UID of their controller.
    Owner(Uid),
    /// Pods of a namespace without a controller.
    Orphans(Atom),
    /// All pods of a namespace.
    Namespace(Atom),
}

impl Pod {
    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&PodCondition> {
        self.conditions.iter().find(|it| &*it.type_ == type_)
    }
}

impl Cached for Pod {
    type Index = PodIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, add: &mut dyn FnMut(PodIndex)) {
        add(match self.meta().controller() {
            Some(owner) => PodIndex::Owner(owner.uid.clone()),
            None => PodIndex::Orphans(self.meta.namespace.clone()),
        });
        add(PodIndex::Namespace(self.meta.namespace.clone()));
    }

    /// An orphan that does not decode has no orphan entry: it cannot be adopted, and it must not fail the sync of any
    /// object.
    fn index_meta(meta: MetaRef<'_>, add: &mut dyn FnMut(PodIndex)) {
        if let Some(owner) = meta.controller() {
            add(PodIndex::Owner(owner.uid.clone()));
        }
        add(PodIndex::Namespace(meta.namespace.clone()));
    }
}

impl Typed for Pod {
    fn resource() -> Resource {
        Resource::namespaced("", "v1", "pods", "Pod")
    }
}

impl<'de> Deserialize<'de> for Pod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Wire { metadata, spec, status } = Wire::deserialize(deserializer)?;
        let Metadata { meta, extra } = metadata;
        let WireSpec { node_name, affinity, termination_grace_period_seconds, tolerations, volumes, init_containers } =
            spec.unwrap_or_default();
        let WireStatus { phase, reason, start_time, conditions, container_statuses, init_container_statuses } =
            status.unwrap_or_default();

        let role_of_init = |name: &Atom| {
            let sidecar = init_containers.iter().flatten().any(|it| it.is_sidecar() && it.name.as_ref() == Some(name));
            if sidecar { ContainerRole::Sidecar } else { ContainerRole::Init }
        };
        let regular = container_statuses.into_iter().flatten().map(|it| it.with_role(|_| ContainerRole::Regular));
        let init = init_container_statuses.into_iter().flatten().map(|it| it.with_role(role_of_init));
        Ok(Self {
            meta,
            labels: extra.labels,
            annotations: extra.annotations,
            creation: extra.creation,
            deletion_grace: extra.deletion_grace,
            generation: extra.generation,
            node: node_name.unwrap_or_default(),
            target_node: affinity.and_then(WireAffinity::target_node).unwrap_or_default(),
            termination_grace: termination_grace_period_seconds.map(saturated),
            tolerations: share(tolerations.unwrap_or_default()),
            claims: volumes.into_iter().flatten().filter_map(WireVolume::claim).collect(),
            phase: phase.unwrap_or_default(),
            reason: reason.unwrap_or_default(),
            start: start_time.map(|it| it.0),
            conditions: conditions.into_iter().flatten().map(PodCondition::from).collect(),
            containers: regular.chain(init).collect(),
        })
    }
}

fn is_of_a_controller(annotation: &str) -> bool {
    ANNOTATION_PREFIXES.iter().any(|prefix| annotation.starts_with(prefix))
}

/// Saves eight bytes for each of two durations. No user sets them to 68 years.
fn saturated(seconds: i64) -> i32 {
    i32::try_from(seconds).unwrap_or(if seconds < 0 { i32::MIN } else { i32::MAX })
}

#[derive(Deserialize)]
struct Wire {
    metadata: Metadata<PodMetadata>,
    spec: Option<WireSpec>,
    status: Option<WireStatus>,
}

#[derive(Default)]
struct PodMetadata {
    labels: Labels,
    annotations: Labels,
    creation: Option<i64>,
    deletion_grace: Option<i32>,
    generation: i64,
}

impl Extra for PodMetadata {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "labels" => self.labels = Pairs { keep: |_| true }.next(map)?,
            "annotations" => self.annotations = Pairs { keep: is_of_a_controller }.next(map)?,
            "creationTimestamp" => self.creation = map.next_value::<Option<Seconds>>()?.map(|it| it.0),
            "deletionGracePeriodSeconds" => self.deletion_grace = map.next_value::<Option<i64>>()?.map(saturated),
            "generation" => self.generation = next_or_default(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    node_name: Option<Atom>,
    affinity: Option<WireAffinity>,
    termination_grace_period_seconds: Option<i64>,
    tolerations: Option<Vec<Toleration>>,
    volumes: Option<Vec<WireVolume>>,
    init_containers: Option<Vec<WireInitContainer>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireAffinity {
    node_affinity: Option<WireNodeAffinity>,
}

#[derive(Deserialize)]
struct WireNodeAffinity {
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    required: Option<WireNodeSelector>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireNodeSelector {
    node_selector_terms: Option<Vec<WireTerm>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTerm {
    match_fields: Option<Vec<WireRequirement>>,
}

#[derive(Deserialize)]
struct WireRequirement {
    key: Option<Atom>,
    operator: Option<Atom>,
    values: Option<Vec<Atom>>,
}

impl WireAffinity {
    /// The node of a DaemonSet pod: the first requirement `metadata.name In [one]` of any term.
    fn target_node(self) -> Option<Atom> {
        let terms = self.node_affinity?.required?.node_selector_terms?;
        terms.into_iter().filter_map(|it| it.match_fields).flatten().find_map(
            |WireRequirement { key, operator, values }| {
                let by_name = key.as_deref() == Some("metadata.name") && operator.as_deref() == Some("In");
                let mut values = values?;
                if by_name && values.len() == 1 { values.pop() } else { None }
            },
        )
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireVolume {
    name: Option<Atom>,
    persistent_volume_claim: Option<WireClaim>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireClaim {
    claim_name: Option<Box<str>>,
}

impl WireVolume {
    fn claim(self) -> Option<ClaimVolume> {
        let claim = self.persistent_volume_claim?.claim_name.unwrap_or_default();
        Some(ClaimVolume { volume: self.name.unwrap_or_default(), claim })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireInitContainer {
    name: Option<Atom>,
    restart_policy: Option<Atom>,
}

impl WireInitContainer {
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireStatus {
    phase: Option<PodPhase>,
    reason: Option<Atom>,
    start_time: Option<Seconds>,
    conditions: Option<Vec<WireCondition>>,
    container_statuses: Option<Vec<WireContainerStatus>>,
    init_container_statuses: Option<Vec<WireContainerStatus>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCondition {
    r#type: Option<Atom>,
    status: Option<ConditionStatus>,
    last_transition_time: Option<Seconds>,
}

impl From<WireCondition> for PodCondition {
    fn from(wire: WireCondition) -> Self {
        let WireCondition { r#type, status, last_transition_time } = wire;
        Self {
            type_: r#type.unwrap_or_default(),
            status: status.unwrap_or_default(),
            last_transition: last_transition_time.map(|it| it.0),
        }
    }
}

#[cfg(test)]
mod tests;
