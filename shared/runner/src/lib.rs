//! Key in, sync, outcome out.
//!
//! [`Workers`] take keys from a queue, call a sync for each, and tell the queue what became of it. They contain a panic
//! of one key, and know no controller.

mod outcome;
mod workers;

pub use crate::{
    outcome::{Outcome, error_chain},
    workers::{Environment, Workers},
};
