//! Key in, sync, outcome out.
//!
//! [`Workers`] take keys from a queue, call a sync for each, and tell the queue what became of it. They contain a panic
//! of one key, and know no controller. Their [`Pulse`] tells whether they still move.

mod outcome;
mod pulse;
mod workers;

pub use crate::{
    outcome::{Outcome, error_chain},
    pulse::{Pulse, Reading, STALL, Stuck},
    workers::{Environment, Workers},
};
