//! The real controllers, with informers, work queues, workers and client, against an in-memory API server in virtual
//! time.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

mod world;

mod backoff;
mod creation;
mod deletion;
mod expectations;
mod ownership;
mod replication_controller;
mod status;
mod term;
mod unknown;
