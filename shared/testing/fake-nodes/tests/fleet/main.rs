//! Whole pod lifecycles on the embedded API server, in virtual time.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

mod nodes;
mod pods;
mod scheduling;
mod world;
