//! The real controller, with informers, work queues, workers and client, against an in-memory API server in virtual
//! time.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

mod world;

mod metrics_and_stop;
mod orphans;
mod recreated;
mod stale_cache;
mod terminated;
mod terminating;
