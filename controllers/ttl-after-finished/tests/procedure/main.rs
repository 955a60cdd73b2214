//! The real controller, with informer, work queue, workers and client, against an in-memory API server in virtual time.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not there")]

mod world;

mod kept;
mod refused;
mod stale;
mod timing;
mod told;
