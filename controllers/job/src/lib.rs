//! Runs pods to completion and counts each exactly once.
#![allow(dead_code, reason = "the acting half follows")]

mod snapshot;

mod ending;
mod plan;
mod tally;

mod backoff;
mod delayed;
mod failure_policy;
mod indexes;
mod success_policy;

mod status;
mod tracking;

mod brake;
#[cfg(test)]
mod testing;
