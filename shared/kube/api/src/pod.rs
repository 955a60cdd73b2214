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

/// The annotations of a pod that our controllers read; no other is kept.
const ANNOTATIONS: [&str; 4] = [
    "batch.kubernetes.io/job-completion-index",
    "batch.kubernetes.io/job-index-failure-count",
    "batch.kubernetes.io/job-index-ignored-failure-count",
    "controller.kubernetes.io/pod-deletion-cost",
];

/// The kind of owner that counts its pods.
const JOB: &str = "Job";

/// What holds a pod until its Job has counted it.
const JOB_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// Where the server writes the uid of a Job on its pods; the second one is older.
pub const JOB_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];

words! {
    /// Where a pod is in its life.
    PodPhase {
        /// Not all containers have started.
        Pending = "Pending",
        /// Bound, and at least one container runs or will.
        Running = "Running",
        /// All containers ended well.
        Succeeded = "Succeeded",
        /// All containers ended, one of them badly.
        Failed = "Failed",
        /// The node cannot be asked.
        Unknown = "Unknown",
    }
}

/// What our controllers read of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// What every object has.
    pub meta: Meta,
    /// All labels.
    pub labels: Labels,
    /// The few annotations that controllers read.
    pub annotations: Labels,
    /// creationTimestamp in seconds since the epoch.
    pub creation: Option<i64>,
    /// deletionGracePeriodSeconds: what the deletion under way granted; a longer time than fits is the longest that does.
    pub deletion_grace: Option<i32>,
    /// metadata.generation, which conditions name as observed.
    pub generation: i64,
    /// spec.nodeName; empty while unassigned.
    pub node: Atom,
    /// The one node that required node affinity names by `metadata.name In [..]`; empty without such a term.
    pub target_node: Atom,
    /// terminationGracePeriodSeconds; a longer time than fits is the longest that does.
    pub termination_grace: Option<i32>,
    /// All tolerations in their order, shared.
    pub tolerations: Arc<[Toleration]>,
    /// Volumes that are claims.
    pub claims: Box<[ClaimVolume]>,
    /// Where the pod is in its life.
    pub phase: PodPhase,
    /// status.reason, such as `Evicted`.
    pub reason: Atom,
    /// When the kubelet took it, in seconds since the epoch.
    pub start: Option<i64>,
    /// All conditions.
    pub conditions: Box<[PodCondition]>,
    /// All containers that have a status: regular ones first, then init containers.
    pub containers: Box<[ContainerStatus]>,
}

/// A volume that is a PersistentVolumeClaim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimVolume {
    /// The volume's name.
    pub volume: Atom,
    /// The claim's name. Not interned: claims of StatefulSets do not repeat.
    pub claim: Box<str>,
}

/// The part of a pod condition that controllers use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodCondition {
    /// What it is about.
    pub type_: Atom,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When `status` last changed, in seconds since the epoch.
    pub last_transition: Option<i64>,
}

/// How pods are found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PodIndex {
    /// Pods by the uid of their controller.
    Owner(Uid),
    /// Pods of a namespace without a controller.
    Orphans(Atom),
    /// Pods by the node they are assigned to.
    Node(Atom),
    /// All pods of a namespace.
    Namespace(Atom),
    /// Pods by the uid of the Job that controls them, without those that ended and are held by nothing of the Job's any
    /// more: a Job of a hundred thousand completions, or failures, has its last ones to look at, not all.
    JobWork(Uid),
    /// Pods without a controller by the uid of the Job that their labels name, as the server labels the pods of a Job.
    JobOrphans(Uid),
}

impl Pod {
    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&PodCondition> {
        self.conditions.iter().find(|it| &*it.type_ == type_)
    }

    fn is_done_for_its_job(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
            && !self.meta.finalizers.iter().any(|it| &**it == JOB_FINALIZER)
    }
}

impl Cached for Pod {
    type Index = PodIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, add: &mut dyn FnMut(PodIndex)) {
        match self.meta().controller() {
            Some(owner) => {
                add(PodIndex::Owner(owner.uid.clone()));
                if &*owner.kind == JOB && !self.is_done_for_its_job() {
                    add(PodIndex::JobWork(owner.uid.clone()));
                }
            }
            None => {
                add(PodIndex::Orphans(self.meta.namespace.clone()));
                if let Some(job) = JOB_LABELS.iter().find_map(|label| self.labels.get(label)) {
                    add(PodIndex::JobOrphans(Uid::new(job)));
                }
            }
        }
        if !self.node.is_empty() {
            add(PodIndex::Node(self.node.clone()));
        }
        add(PodIndex::Namespace(self.meta.namespace.clone()));
    }

    /// An unreadable orphan is nobody's candidate and blocks nobody.
    fn index_meta(meta: MetaRef<'_>, add: &mut dyn FnMut(PodIndex)) {
        if let Some(owner) = meta.controller() {
            add(PodIndex::Owner(owner.uid.clone()));
            if &*owner.kind == JOB {
                add(PodIndex::JobWork(owner.uid.clone()));
            }
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

/// Eight bytes less for each of two times that nobody sets to 68 years.
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
            "annotations" => self.annotations = Pairs { keep: |key| ANNOTATIONS.contains(&key) }.next(map)?,
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
    /// The node of a daemon's pod: the first requirement `metadata.name In [one]`, whatever term it stands in.
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
