//! The real controller, with informers, work queues, workers and client, against an in-memory API server in virtual
//! time.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

mod world;

mod creation;
mod history;
mod ownership;
mod recreate;
mod rollout;
mod scale;
mod status;
