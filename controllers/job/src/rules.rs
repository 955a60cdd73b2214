//! The decisions about a Job: functions of values, without I/O.
//!
//! Reading order: `managed_jobs` (which Jobs are ours), `snapshot` (the input of a decision), `plan` (what to do), with `tally`, `ending`, `backoff`,
//! `per_index_backoff`, `failure_policy`, `success_policy` and `indexes`; `accounting` and `status`
//! (what the status contains).

pub(crate) mod managed_jobs;

pub(crate) mod moment;
pub(crate) mod snapshot;

pub(crate) mod ending;
pub(crate) mod plan;
pub(crate) mod tally;

pub(crate) mod backoff;
pub(crate) mod failure_policy;
pub(crate) mod indexes;
pub(crate) mod per_index_backoff;
pub(crate) mod success_policy;

pub(crate) mod accounting;
pub(crate) mod status;
