//! The pod operations that all owning controllers share. The rules of a particular controller are not here.
//!
//! Reading order: [`Owner`] (the owner of objects), [`ObjectWriter`] (the patches of owner references), [`PodControl`]
//! (the writes of pods with their events), `claim` (adoption and release of any kind), [`PodTemplate`] and
//! [`PreparedTemplate`] (from a template to a request body), `predicates` and `ranking` (pure), [`SlowStart`],
//! [`StatusWrite`], `pod_status`, `pods_of_node` and [`Observation`] (for controllers of nodes), [`CallLimit`], [`CreationLimit`], [`Expectations`], [`UnknownCreates`], [`UnknownDeletion`], [`NoticeLog`], [`OwnerGauge`].

mod call_limit;
mod claim;
mod control;
mod creation_limit;
mod expectations;
mod notices;
mod observation;
mod owner;
mod owner_gauge;
mod pod_status;
mod pods_of_node;
mod predicates;
mod ranking;
mod slow_start;
mod status_write;
mod template;
mod unknown_creates;
mod unknown_deletions;
mod waiting;
mod writer;

pub use call_limit::{CallLimit, StageStart};
pub use claim::{Claim, ClaimError, Claimed, claim, claim_decision};
pub use control::{PodControl, is_from_server, is_gone, log_further_error, server_message};
pub use creation_limit::CreationLimit;
pub use expectations::Expectations;
pub use notices::{NoticeLog, Notices};
pub use observation::{Missed, Observation, observe};
pub use owner::Owner;
pub use owner_gauge::OwnerGauge;
pub use pod_status::{DISRUPTION_TARGET, Precondition, disruption_target, patch_status};
pub use pods_of_node::pods_of_node;
pub use predicates::{
    deletion_requested, has_finalizer, is_active, is_available, is_ready, is_terminal, is_terminating,
    next_availability_check, ready_since,
};
pub use ranking::{deletion_key, deletion_keys_around_rank};
pub use slow_start::SlowStart;
pub use status_write::{StatusChange, StatusWrite};
pub use template::{PodFields, PodTemplate, PreparedTemplate, TemplateError};
pub use unknown_creates::{
    MAX_REQUEST_TIME, NewestPods, REPEAT_FOR, RETRY_CHECK, UnknownCreates, UnknownOutcomes, end_of_request,
    longest_create, newest_pods,
};
pub use unknown_deletions::{DeletionReader, UnknownDeletion};
pub use waiting::{BLOCKED_AFTER, WaitCause};
pub use writer::ObjectWriter;
