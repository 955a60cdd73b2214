//! A server with one Lease, and processes that compete for it.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod process;
mod server;

use std::time::Duration;

pub(crate) use process::Process;
pub(crate) use server::{Link, Mode, Server};

/// The time on the clocks of all processes, in 2027.
pub(crate) fn epoch() -> clock::Timestamp {
    clock::Timestamp::from_second(1_800_000_000).unwrap()
}

pub(crate) fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

pub(crate) async fn sleep(seconds: f64) {
    tokio::time::sleep(secs(seconds)).await;
}
