//! The decisions about a CronJob: functions of values, without I/O.
//!
//! Reading order: `snapshot` (the input), `plan` (what to do), `due` (which time), `history` (which Jobs are surplus),
//! `status` (what to write), `job` (the body of a Job), `notice` (the events); then the times: `schedule`, `timing`.

pub(crate) mod snapshot;

pub(crate) mod due;
pub(crate) mod history;
pub(crate) mod job;
pub(crate) mod notice;
pub(crate) mod plan;
pub(crate) mod status;

pub(crate) mod schedule;
pub(crate) mod timing;
