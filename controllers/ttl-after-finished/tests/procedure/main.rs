//! The real controller, with informer, queue, workers and client, against the API server in miniature, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not there")]

mod world;

mod kept;
mod refused;
mod stale;
mod timing;
mod told;
