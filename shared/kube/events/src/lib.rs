//! The event recorder: the reports of controllers about objects, as core/v1 Events.
//!
//! [`Recorder`] accepts a report without blocking: a bounded channel leads to a worker task. There the `correlator`
//! counts repeated events, combines similar ones and drops those above the limit, the `write_queue` contains the Events
//! to write, one entry per Event, and decides about retries, and the `worker` drives both. Correlator and write_queue
//! do no I/O.

mod correlator;
mod name_generator;
mod recorder;
mod report;
mod worker;
mod write_queue;

pub use k8s_openapi::api::core::v1::ObjectReference;
pub use recorder::{Deps, Recorder};
pub use report::{EventType, reference};

#[cfg(test)]
mod tests;
