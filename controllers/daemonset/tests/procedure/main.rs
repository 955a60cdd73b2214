//! The real controller, with informers, work queues, workers and client, against an in-memory API server in virtual
//! time.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

mod world;

mod expectations;
mod failures;
mod history;
mod notices;
mod ownership;
mod placement;
mod pods;
mod rollout;
mod status;
mod unknown;
