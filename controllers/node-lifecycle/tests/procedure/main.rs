//! The real controller, with informers, work queues, workers and client, against an in-memory API server in virtual
//! time.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

mod world;

mod disruption;
mod events_and_metrics;
mod failures;
mod handover;
mod health;
mod observation;
mod pace;
mod pods;
mod taints;
