//! The event recorder: what controllers tell people about objects, as core/v1 Events.
//!
//! [`Recorder`] takes a report and never waits: a bounded channel leads to a worker of its own. There the
//! `correlator` counts what repeats, combines what is alike and drops what is too much; the `outbox` holds what is to be
//! written, joined per Event, and decides about retries; the `worker` drives both. Correlator and outbox are machines
//! without I/O.

mod correlator;
mod lru;
mod naming;
mod outbox;
mod recorder;
mod worker;

pub use k8s_openapi::api::core::v1::ObjectReference;
pub use recorder::{Deps, Recorder, Type};

#[cfg(test)]
mod tests;
