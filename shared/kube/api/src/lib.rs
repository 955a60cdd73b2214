//! Typed keys, the small types of cached objects, and their decoding.
//!
//! Reading order: [`Atom`], [`Uid`], [`Version`] and [`Resource`] are the basic types, [`Meta`] is the metadata of
//! every object, and [`Cached`] is the trait of all cached kinds, decoded by `json.rs`. The kinds follow, one file
//! each. The k8s-openapi types are for objects that we *write*, and they are never cached. The types here contain only
//! what our controllers read.

mod condition;
mod int_or_percent;
mod key;
mod labels;
mod resource;
mod selector;
mod taint;
mod uid;
mod version;
mod words;

mod cached;
mod frame;
mod meta;
mod raw;
mod status;
mod unknown_fields;

mod claim;
mod container;
mod controller_revision;
mod cron_job;
mod daemon_set;
mod deployment;
mod job;
mod lease;
mod namespace;
mod node;
mod node_selector;
mod pod;
mod replica_set;
mod replication_controller;
mod stateful_set;
mod workload;

pub mod duration;
mod json;
mod metadata;
mod shared;
mod time;
pub mod uri;

pub use cached::{Cached, Entry, NoIndex, Typed, Unreadable};
pub use claim::{ClaimSpec, PersistentVolumeClaim};
pub use condition::{Condition, ConditionStatus};
pub use container::{ContainerRole, ContainerState, ContainerStatus};
pub use controller_revision::{ControllerRevision, RevisionIndex};
pub use cron_job::{ActiveJob, ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus};
pub use daemon_set::{DaemonSet, DaemonSetSpec, DaemonSetStatus, Placement};
pub use deployment::{Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, DeploymentStrategy};
pub use frame::{DecodeError, Event, Frame, Page};
pub use int_or_percent::IntOrPercent;
pub use job::{
    CONTROLLER_UID_LABELS, CompletionMode, ExitCodeOperator, ExitCodes, Job, JobCondition, JobIndex, JobSpec,
    JobStatus, PodFailureAction, PodFailureRule, PodReplacementPolicy, RestartPolicy, SuccessRule, UncountedPods,
};
pub use key::ObjectKey;
pub use labels::Labels;
pub use lease::Lease;
pub use meta::{Meta, MetaRef, OwnerRef};
pub use namespace::{Namespace, NamespacePhase};
pub use node::{Node, NodeCondition};
pub use node_selector::{NodeRequirement, NodeSelector, NodeSelectorOperator, NodeSelectorTerm};
pub use pod::{ClaimVolume, Pod, PodCondition, PodIndex, PodPhase};
pub use raw::{RawMetadata, StatusOwner};
pub use replica_set::{ReplicaSet, ReplicaSetIndex, ReplicaSetSpec, ReplicaSetStatus};
pub use replication_controller::ReplicationController;
pub use resource::Resource;
pub use selector::{Requirement, Selector, SelectorOperator};
pub use stateful_set::{
    ClaimRetention, ClaimTemplate, PodManagementPolicy, RollingUpdate, StatefulSet, StatefulSetSpec, StatefulSetStatus,
};
pub use status::{Cause, Details, Status};
pub use taint::{Taint, TaintEffect, Toleration, TolerationOperator};
pub use time::rfc3339;
pub use uid::Uid;
pub use version::Version;
pub use workload::UpdateStrategyType;

/// An interned string. It takes eight bytes; all equal ones share one text, which is freed with the last of them.
///
/// For texts that repeat: namespaces, node names, label keys and values, reasons, condition types. Not for pod names,
/// UIDs or versions, which do not repeat.
pub type Atom = string_cache::DefaultAtom;
