use serde::{Deserialize, Deserializer, de::MapAccess};
use serde_json::value::RawValue;

use crate::{
    Atom, Cached, ConditionStatus, Meta, MetaRef, RawMetadata, Resource, Selector, StatusOwner, Typed, Uid,
    json::{as_json, named, next_or_default},
    metadata::{Extra, Metadata},
    time::Seconds,
    words::words,
};

mod status;

pub use status::{JobCondition, JobStatus, UncountedPods};

/// The value of `spec.managedBy` that means the built-in controller.
const BUILT_IN: &str = "kubernetes.io/job-controller";

/// The label of the generated selector and of the pods of a Job, whose value is the UID of the Job, and the same label
/// from servers before 1.27.
pub const CONTROLLER_UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];

words! {
    /// How completions are distinguished.
    CompletionMode {
        /// They are not distinguished. A number of pods must succeed.
        NonIndexed = "NonIndexed" | "",
        /// Each completion has an index, and one pod must succeed for each index.
        Indexed = "Indexed",
    }
}

words! {
    /// When a pod is replaced.
    PodReplacementPolicy {
        /// When it is being deleted or has failed.
        TerminatingOrFailed = "TerminatingOrFailed" | "",
        /// Only when it has reached its final phase.
        Failed = "Failed",
    }
}

words! {
    /// Whether the containers of a pod are restarted.
    RestartPolicy {
        /// Always.
        Always = "Always",
        /// If they failed.
        OnFailure = "OnFailure",
        /// Never.
        Never = "Never",
    }
}

words! {
    /// The action of a rule of a pod failure policy.
    PodFailureAction {
        /// The failure is not counted.
        Ignore = "Ignore",
        /// The failure is counted, as it is without a rule.
        Count = "Count",
        /// The index of the pod fails.
        FailIndex = "FailIndex",
        /// The Job fails.
        FailJob = "FailJob",
    }
}

words! {
    /// How exit codes are compared.
    ExitCodeOperator {
        /// The exit code is one of the values.
        In = "In",
        /// The exit code is none of the values.
        NotIn = "NotIn",
    }
}

/// The fields of a Job that our controllers read, and those that their writes must contain.
#[derive(Debug, Clone)]
pub struct Job {
    /// The common metadata.
    pub meta: Meta,
    /// creationTimestamp in seconds since the epoch.
    pub creation: Option<i64>,
    /// metadata.generation, which only a change of the spec increases.
    pub generation: i64,
    /// The spec.
    pub spec: JobSpec,
    /// The last stored status. A changed copy of it is the body of the next status write.
    pub status: JobStatus,
    raw_metadata: RawMetadata,
}

/// `spec` of a Job. Missing fields have the server's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSpec {
    /// The maximum number of active pods.
    pub parallelism: i32,
    /// The number of pods that must succeed. `None` means that the success of any pod completes the Job.
    pub completions: Option<i32>,
    /// How completions are distinguished.
    pub completion_mode: CompletionMode,
    /// The number of failures that are tolerated before the Job fails.
    pub backoff_limit: i32,
    /// The number of failures that are tolerated before an index fails.
    pub backoff_limit_per_index: Option<i32>,
    /// The number of indexes that may fail before the Job fails.
    pub max_failed_indexes: Option<i32>,
    /// The rules for failed pods.
    pub pod_failure_policy: Option<Box<[PodFailureRule]>>,
    /// The rules by which the Job succeeds before all indexes have succeeded.
    pub success_policy: Option<Box<[SuccessRule]>>,
    /// When a pod is replaced.
    pub pod_replacement_policy: PodReplacementPolicy,
    /// True if no pod must run.
    pub suspend: bool,
    /// How long the Job may be active, in seconds.
    pub active_deadline: Option<i64>,
    /// The selector of the Job's pods.
    pub selector: Option<Selector>,
    /// True if the user has set the selector.
    pub manual_selector: bool,
    /// The responsible controller; see [`Job::is_managed_by_built_in`].
    pub managed_by: Option<Atom>,
    /// How long a finished Job is kept, in seconds.
    pub ttl_after_finished: Option<i32>,
    /// Whether the containers of a pod are restarted.
    pub restart_policy: RestartPolicy,
    /// The pod template as unchanged JSON. It is decoded when a pod is created.
    pub template: Box<str>,
}

/// One rule of `spec.podFailurePolicy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFailureRule {
    /// The action.
    pub action: PodFailureAction,
    /// The exit codes that match.
    pub on_exit_codes: Option<ExitCodes>,
    /// The pod conditions that match, as type and status. Any of them is enough.
    pub on_pod_conditions: Box<[(Atom, ConditionStatus)]>,
}

/// `onExitCodes` of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitCodes {
    /// The name of the container; `None` means all containers.
    pub container: Option<Atom>,
    /// How to compare.
    pub operator: ExitCodeOperator,
    /// The exit codes to compare with.
    pub values: Box<[i32]>,
}

/// One rule of `spec.successPolicy`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuccessRule {
    /// The indexes, as intervals; `None` means all.
    pub indexes: Option<Box<str>>,
    /// The number of them that must succeed; `None` means all.
    pub count: Option<i32>,
}

/// The indexes of Jobs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum JobIndex {
    /// Jobs by the UID of their controller, for example a CronJob.
    Owner(Uid),
    /// The Job with this UID.
    Uid(Uid),
    /// Jobs of a namespace whose selector is not the generated one. They may select any orphan there. All other Jobs
    /// select by their UID.
    Manual(Atom),
}

impl Job {
    /// The condition of this type.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&JobCondition> {
        self.status.condition(type_)
    }

    /// The condition Complete or Failed that finished the Job.
    #[must_use]
    pub fn finished_condition(&self) -> Option<&JobCondition> {
        self.status.finished_condition()
    }

    /// True if the Job is finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished_condition().is_some()
    }

    /// When the Job finished, in seconds since the epoch; `None` also if the condition has no time.
    #[must_use]
    pub fn finished_at(&self) -> Option<i64> {
        self.finished_condition()?.last_transition
    }

    /// True if `spec.managedBy` names no controller or the built-in one.
    #[must_use]
    pub fn is_managed_by_built_in(&self) -> bool {
        self.spec.managed_by.as_deref().is_none_or(|it| it == BUILT_IN)
    }

    /// True if each pod of this Job has an index.
    #[must_use]
    pub fn is_indexed(&self) -> bool {
        self.spec.completion_mode == CompletionMode::Indexed
    }

    /// True if the selector is the generated one: the UID of the Job and nothing else.
    #[must_use]
    pub fn has_generated_selector(&self) -> bool {
        let Some(Selector { labels, requirements }) = &self.spec.selector else { return false };
        let mut labels = labels.iter();
        let (Some((key, value)), None, []) = (labels.next(), labels.next(), &**requirements) else { return false };
        CONTROLLER_UID_LABELS.contains(&&**key) && Uid::new(value) == self.meta.uid
    }
}

impl Cached for Job {
    type Index = JobIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, add: &mut dyn FnMut(JobIndex)) {
        Self::index_meta(self.meta.as_ref(), add);
        if !self.has_generated_selector() {
            add(JobIndex::Manual(self.meta.namespace.clone()));
        }
    }

    fn index_meta(meta: MetaRef<'_>, add: &mut dyn FnMut(JobIndex)) {
        if let Some(owner) = meta.controller() {
            add(JobIndex::Owner(owner.uid.clone()));
        }
        add(JobIndex::Uid(meta.uid.clone()));
    }
}

impl Typed for Job {
    fn resource() -> Resource {
        Resource::namespaced("batch", "v1", "jobs", "Job")
    }
}

impl StatusOwner for Job {
    fn raw_metadata(&self) -> &RawMetadata {
        &self.raw_metadata
    }
}

impl<'de> Deserialize<'de> for Job {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: RawMetadata,
            spec: Option<JobSpec>,
            status: Option<JobStatus>,
        }
        let Wire { metadata, spec, status } = Wire::deserialize(deserializer)?;
        let parsed: Metadata<JobMetadata> = named("metadata", metadata.get()).map_err(serde::de::Error::custom)?;
        Ok(Self {
            meta: parsed.meta,
            creation: parsed.extra.creation,
            generation: parsed.extra.generation,
            spec: spec.unwrap_or_default(),
            status: status.unwrap_or_default(),
            raw_metadata: metadata,
        })
    }
}

#[derive(Default)]
struct JobMetadata {
    creation: Option<i64>,
    generation: i64,
}

impl Extra for JobMetadata {
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        match key {
            "creationTimestamp" => self.creation = map.next_value::<Option<Seconds>>()?.map(|it| it.0),
            "generation" => self.generation = next_or_default(map)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// The default of the server.
const BACKOFF_LIMIT: i32 = 6;

impl Default for JobSpec {
    fn default() -> Self {
        WireSpec::default().into()
    }
}

impl<'de> Deserialize<'de> for JobSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut wire = WireSpec::deserialize(deserializer)?;
        if let Some(template) = &wire.template {
            let WireTemplate { spec } = named("template", template.get()).map_err(serde::de::Error::custom)?;
            wire.restart_policy = spec.and_then(|it| it.restart_policy);
        }
        Ok(wire.into())
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireSpec {
    parallelism: Option<i32>,
    completions: Option<i32>,
    completion_mode: Option<CompletionMode>,
    backoff_limit: Option<i32>,
    backoff_limit_per_index: Option<i32>,
    max_failed_indexes: Option<i32>,
    pod_failure_policy: Option<WireRules<WireFailureRule>>,
    success_policy: Option<WireRules<WireSuccessRule>>,
    pod_replacement_policy: Option<PodReplacementPolicy>,
    suspend: Option<bool>,
    active_deadline_seconds: Option<i64>,
    selector: Option<Selector>,
    manual_selector: Option<bool>,
    managed_by: Option<Atom>,
    ttl_seconds_after_finished: Option<i32>,
    template: Option<Box<RawValue>>,
    /// Read from the template.
    #[serde(skip)]
    restart_policy: Option<RestartPolicy>,
}

#[derive(Deserialize, Default)]
struct WireTemplate {
    spec: Option<WirePodSpec>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WirePodSpec {
    restart_policy: Option<RestartPolicy>,
}

impl From<WireSpec> for JobSpec {
    fn from(wire: WireSpec) -> Self {
        let without_limit = if wire.backoff_limit_per_index.is_some() { i32::MAX } else { BACKOFF_LIMIT };
        let replacement = match wire.pod_replacement_policy {
            Some(policy) => policy,
            None if wire.pod_failure_policy.is_some() => PodReplacementPolicy::Failed,
            None => PodReplacementPolicy::TerminatingOrFailed,
        };
        Self {
            parallelism: wire.parallelism.unwrap_or(1),
            completions: wire.completions,
            completion_mode: wire.completion_mode.unwrap_or_default(),
            backoff_limit: wire.backoff_limit.unwrap_or(without_limit),
            backoff_limit_per_index: wire.backoff_limit_per_index,
            max_failed_indexes: wire.max_failed_indexes,
            pod_failure_policy: wire.pod_failure_policy.map(WireRules::into),
            success_policy: wire.success_policy.map(WireRules::into),
            pod_replacement_policy: replacement,
            suspend: wire.suspend.unwrap_or_default(),
            active_deadline: wire.active_deadline_seconds,
            selector: wire.selector,
            manual_selector: wire.manual_selector.unwrap_or_default(),
            managed_by: wire.managed_by,
            ttl_after_finished: wire.ttl_seconds_after_finished,
            restart_policy: wire.restart_policy.unwrap_or_default(),
            template: wire.template.map(Box::<str>::from).unwrap_or_default(),
        }
    }
}

#[derive(Deserialize)]
struct WireRules<R> {
    rules: Option<Vec<R>>,
}

impl<R> WireRules<R> {
    fn into<T: From<R>>(self) -> Box<[T]> {
        self.rules.into_iter().flatten().map(T::from).collect()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireFailureRule {
    action: Option<PodFailureAction>,
    on_exit_codes: Option<WireExitCodes>,
    on_pod_conditions: Option<Vec<WirePattern>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireExitCodes {
    container_name: Option<Atom>,
    operator: Option<ExitCodeOperator>,
    values: Option<Box<[i32]>>,
}

#[derive(Deserialize)]
struct WirePattern {
    r#type: Option<Atom>,
    status: Option<ConditionStatus>,
}

impl From<WireFailureRule> for PodFailureRule {
    fn from(wire: WireFailureRule) -> Self {
        let WireFailureRule { action, on_exit_codes, on_pod_conditions } = wire;
        let codes = |WireExitCodes { container_name, operator, values }| ExitCodes {
            container: container_name,
            operator: operator.unwrap_or_default(),
            values: values.unwrap_or_default(),
        };
        let pattern = |WirePattern { r#type, status }| (r#type.unwrap_or_default(), status.unwrap_or_default());
        Self {
            action: action.unwrap_or_default(),
            on_exit_codes: on_exit_codes.map(codes),
            on_pod_conditions: on_pod_conditions.into_iter().flatten().map(pattern).collect(),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireSuccessRule {
    succeeded_indexes: Option<Box<str>>,
    succeeded_count: Option<i32>,
}

impl From<WireSuccessRule> for SuccessRule {
    fn from(wire: WireSuccessRule) -> Self {
        let WireSuccessRule { succeeded_indexes, succeeded_count } = wire;
        Self { indexes: succeeded_indexes, count: succeeded_count }
    }
}

#[cfg(test)]
mod tests;
