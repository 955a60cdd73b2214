//! Runs the syncs of work queues.
//!
//! [`Workers`] take keys from a work queue, call a sync for each, and report the outcome to the queue. A panic affects
//! only its key. This crate does not depend on any controller. The [`Pulse`] shows whether the workers make progress.

mod outcome;
mod pulse;
mod workers;

pub use crate::{
    outcome::{Outcome, error_chain},
    pulse::{Pulse, Reading, STALL, Stuck},
    workers::{Environment, Workers},
};
