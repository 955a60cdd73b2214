//! The work queue: keys that wait for a worker.
//!
//! A key that is added several times is processed once. A key that is added while a worker has it is queued again after
//! `done`. Two workers never have the same key at once, and no add is lost.
//!
//! Reading order: [`Core`] makes all decisions and uses no task and no clock; its delayed keys are in `delayed`, its
//! back-off is in [`Backoff`]. [`Queue`] is the async interface for workers, and `meters` has its Prometheus metrics.

mod backoff;
mod core;
mod delayed;
mod meters;
mod queue;

pub use self::{backoff::Backoff, core::Lane, queue::Queue};
