//! Runs the syncs of work queues.
//!
//! [`Workers`] take keys from a work queue, call a sync for each, and report the outcome to the queue. A panic affects
//! only its key. This crate does not depend on any controller. [`WorkerHealth`] shows whether the workers make
//! progress.

mod outcome;
mod worker_health;
mod workers;

pub use self::{
    outcome::Outcome,
    worker_health::{STALL, Stuck, WorkerHealth, WorkerStatus},
    workers::{Environment, Workers},
};
