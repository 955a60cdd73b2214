//! Keys waiting for a worker.
//!
//! A key that is added many times is worked on once; one that is added while a worker has it comes out once more, after
//! `done`. No key is ever with two workers at once, and no wake-up is lost.
//!
//! Reading order: [`Core`] decides everything and knows neither tasks nor clocks; its delayed keys are in `delayed`, its
//! back-off in [`Backoff`]. [`Queue`] is the front that workers await, and `meters` is what it tells Prometheus.

mod backoff;
mod core;
mod delayed;
mod meters;
mod queue;

pub use crate::{
    backoff::Backoff,
    core::{Added, Core, Lane, Taken},
    queue::Queue,
};
