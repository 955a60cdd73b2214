//! The real controller, with informers, work queue, workers and client, against an in-memory API server in virtual
//! time.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

mod world;

mod children;
mod clocks;
mod edits;
mod errors;
mod once;
mod policies;
mod restarts;
mod runs;
mod shutdown;
