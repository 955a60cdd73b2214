//! The real controller, with informer, queue, workers and client, against the miniature API server, in virtual time.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

mod world;

mod content;
mod finalize;
mod groups;
mod many;
mod pods;
