//! The real controller, with informer, work queue, workers and client, against an in-memory API server in virtual time.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

mod world;

mod failed_requests;
mod metrics_and_events;
mod not_deleted;
mod stale_cache;
mod timing;
