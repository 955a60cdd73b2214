//! The real controller, with informers, work queues, workers and client, against an in-memory API server in virtual
//! time.

#![expect(clippy::unwrap_used, reason = "a test ends where something is not there")]

mod world;

mod announcements;
mod basics;
mod calls;
mod endings;
mod memory;
mod orphans;
mod strangers;
mod suspension;
mod tracking;
mod trouble;
