//! Proves that a cache is fresh enough for a new leader: it must not act on a state older than the last write of the
//! old leader.

use std::time::Duration;

use api::Version;
use client::{Api, ApiError, ListOptions};
use clock::{BootInstant, Clock};
use tokio::{sync::oneshot, time};

use crate::Watched;

/// A watch that is reopened for three seconds ends within this time, with a bookmark for its version.
const REOPENED: Duration = Duration::from_secs(5);
/// How often a reopened watch is tried before the type is listed.
const TRIES: u32 = 2;
/// How long before the end of the old term [`prove`] reopens the watch. Its bookmark comes after one second at the earliest,
/// so after the end of the old term.
pub const AHEAD: Duration = Duration::from_millis(500);
/// The interval between two checks whether the list has arrived.
const LOOK: Duration = Duration::from_millis(50);

/// How an informer was proved fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proved {
    /// By a consistent list that was requested after the old term had ended.
    BySet,
    /// By the version that the cache already had.
    AtOnce,
    /// By its own watch, which was reopened.
    ByWatch,
    /// By a new list, because the watch did not reach the version in time.
    ByList,
}

/// Returns once the informer shows everything that was written before this call. `old_term_ended` is when the last
/// write of the old term was stored, if it is known; a set that was requested after it needs no further proof. If this
/// time is in the future, it is waited for, and writes until then are covered too.
///
/// `reads` must have no rate limit, so that the request does not wait for a token.
///
/// # Errors
/// If the server does not return its version. Nothing is proved then, and the call may be repeated.
pub async fn prove(
    watched: &dyn Watched,
    reads: &Api,
    clock: &Clock,
    old_term_ended: Option<BootInstant>,
) -> Result<Proved, ApiError> {
    watched.synced().await;
    let to_come = old_term_ended.map_or(Duration::ZERO, |ended| ended.saturating_since(clock.boot()));
    let mut is_reopened = !to_come.is_zero();
    if is_reopened {
        time::sleep(to_come.saturating_sub(AHEAD)).await;
        watched.reopen_for_proof();
        time::sleep(to_come.min(AHEAD)).await;
    }
    if old_term_ended.is_some_and(|ended| watched.first_set_was_consistent_after(ended)) {
        return Ok(Proved::BySet);
    }
    let options = ListOptions { limit: 1, ..ListOptions::default() };
    let target = reads.list_metadata(watched.resource(), None, &options).await?.version;
    // Versions that cannot be compared prove nothing.
    if target.number().is_some() {
        if watched.passed(&target) {
            return Ok(Proved::AtOnce);
        }
        for _ in 0..TRIES {
            if !std::mem::take(&mut is_reopened) {
                watched.reopen_for_proof();
            }
            if wait_until_passed(watched, &target, REOPENED).await {
                return Ok(Proved::ByWatch);
            }
        }
    }
    let asked = clock.boot();
    tracing::warn!(resource = %watched.resource(), version = %target, "The watch did not prove its cache: listing");
    watched.relist_consistently();
    while !watched.first_set_was_consistent_after(asked) {
        time::sleep(LOOK).await;
    }
    Ok(Proved::ByList)
}

async fn wait_until_passed(watched: &dyn Watched, target: &Version, within: Duration) -> bool {
    let (tell, told) = oneshot::channel();
    let wake = Box::new(move || {
        // The receiver is gone once the time is over.
        let _ = tell.send(());
    });
    watched.when_passed(target.clone(), wake) || time::timeout(within, told).await.is_ok_and(|told| told.is_ok())
}

#[cfg(test)]
mod tests;
