//! Proves that a cache is fresh enough for a new leader: it must not act on a state older than the last write of the
//! old leader.

use std::time::Duration;

use api::Version;
use client::{Api, ApiError, ListOptions};
use clock::{BootInstant, Clock};
use tokio::{sync::oneshot, time};

use crate::Watched;

/// A watch that is reopened for three seconds ends within this time, with a bookmark for its version.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a reopened watch is tried before the type is listed.
const TRIES: u32 = 2;
/// How long before the end of the old term [`prove`] reopens the watch. Its bookmark comes after one second at the
/// earliest, so after the end of the old term.
pub const REOPEN_AHEAD: Duration = Duration::from_millis(500);
/// The interval between two checks whether the list has arrived.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// How an informer was proved fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proved {
    /// By a consistent list that was requested after the old term had ended.
    ByEarlierList,
    /// By the version that the cache already had.
    AtOnce,
    /// By its own watch, which was reopened.
    ByWatch,
    /// By a new list, because the watch did not reach the version in time.
    ByNewList,
}

/// Returns once the informer shows everything that was written before this call. `old_term_ended` is when the last
/// write of the old term was stored, if it is known; a list that was requested after it needs no further proof. If this
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
    watched.wait_for_sync().await;
    let to_come = old_term_ended.map_or(Duration::ZERO, |ended| ended.saturating_since(clock.boot()));
    let mut is_reopened = !to_come.is_zero();
    if is_reopened {
        time::sleep(to_come.saturating_sub(REOPEN_AHEAD)).await;
        watched.reopen_for_proof();
        time::sleep(to_come.min(REOPEN_AHEAD)).await;
    }
    if old_term_ended.is_some_and(|ended| watched.has_consistent_list_since(ended)) {
        return Ok(Proved::ByEarlierList);
    }
    let options = ListOptions { limit: 1, ..ListOptions::default() };
    let target = reads.list_metadata(watched.resource(), None, &options).await?.version;
    // Versions that cannot be compared prove nothing.
    if target.number().is_some() {
        if watched.has_passed(&target) {
            return Ok(Proved::AtOnce);
        }
        for _ in 0..TRIES {
            if !std::mem::take(&mut is_reopened) {
                watched.reopen_for_proof();
            }
            if wait_until_passed(watched, &target, REOPEN_TIMEOUT).await {
                return Ok(Proved::ByWatch);
            }
        }
    }
    let requested_at = clock.boot();
    tracing::warn!(resource = %watched.resource(), version = %target, "The watch did not prove its cache: listing");
    watched.relist_consistently();
    while !watched.has_consistent_list_since(requested_at) {
        time::sleep(CHECK_INTERVAL).await;
    }
    Ok(Proved::ByNewList)
}

async fn wait_until_passed(watched: &dyn Watched, target: &Version, within: Duration) -> bool {
    let (sender, receiver) = oneshot::channel();
    let wake = Box::new(move || {
        // The receiver is gone once the time is over.
        let _ = sender.send(());
    });
    watched.call_when_passed(target.clone(), wake) || time::timeout(within, receiver).await.is_ok_and(|it| it.is_ok())
}

#[cfg(test)]
mod tests;
