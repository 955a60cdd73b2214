//! Typed keys, slim cached types and the door through which bytes become objects.
//!
//! Reading order: [`Atom`], [`Uid`], [`Version`] and [`Resource`] are the words; [`Meta`] is what every object has;
//! [`Cached`] is the door, behind which `json.rs` decodes; the kinds follow, one file each. k8s-openapi types are for what we *write* and are never
//! cached; the types here hold only what our controllers read.

mod condition;
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
mod rest;
mod status;

mod container;
mod cron_job;
mod job;
mod lease;
mod namespace;
mod node;
mod pod;

pub mod duration;
mod json;
mod metadata;
mod shared;
mod time;
pub mod uri;

pub use cached::{Cached, Entry, NoIndex, Typed, Unreadable};
pub use condition::{Condition, ConditionStatus};
pub use container::{ContainerRole, ContainerState, ContainerStatus};
pub use cron_job::{ActiveJob, ConcurrencyPolicy, CronJob, CronJobSpec, CronJobStatus};
pub use frame::{DecodeError, Event, Frame, Page};
pub use job::{
    CompletionMode, ExitCodeOperator, ExitCodes, Job, JobCondition, JobIndex, JobSpec, JobStatus, PodFailureAction,
    PodFailureRule, PodReplacementPolicy, RestartPolicy, SuccessRule, UncountedPods,
};
pub use key::ObjectKey;
pub use labels::Labels;
pub use lease::Lease;
pub use meta::{Meta, MetaRef, OwnerRef};
pub use namespace::{Namespace, NamespacePhase};
pub use node::{Node, NodeCondition};
pub use pod::{ClaimVolume, JOB_LABELS, Pod, PodCondition, PodIndex, PodPhase};
pub use raw::{RawMetadata, StatusOwner};
pub use resource::Resource;
pub use selector::{Requirement, Selector, SelectorOperator};
pub use status::{Cause, Details, Status};
pub use taint::{Taint, TaintEffect, Toleration, TolerationOperator};
pub use uid::Uid;
pub use version::Version;

/// An interned string: eight bytes to hold, shared by all equal ones, freed with the last.
///
/// For words that repeat: namespaces, node names, label keys and values, reasons, condition types. Never for pod names,
/// uids or versions, which do not.
pub type Atom = string_cache::DefaultAtom;
