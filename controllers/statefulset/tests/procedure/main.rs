//! The real controller, with informers, work queues, workers and client, against an in-memory API server in virtual
//! time.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

mod world;

mod deletions;
mod notices;
mod ownership;
mod pods;
mod revisions;
mod status;
mod volume_claims;
