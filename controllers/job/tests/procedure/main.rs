//! The real controller, with informers, work queues, workers and client, against an in-memory API server in virtual
//! time.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

mod world;

mod basics;
mod call_cost;
mod endings;
mod failures;
mod finalizers;
mod forged_owners;
mod interim_conditions;
mod managed_by;
mod memory;
mod orphans;
mod suspension;
