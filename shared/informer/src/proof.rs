//! A new leader acts on nothing older than the old leader's last write.

use std::time::Duration;

use api::Version;
use client::{Api, ApiError, ListOptions};
use clock::{BootInstant, Clock};
use tokio::{sync::oneshot, time};

use crate::Watched;

/// A watch reopened for three seconds tells within this how far it has shown everything, or will not.
const REOPENED: Duration = Duration::from_secs(5);
/// So often it is tried before the type is listed.
const TRIES: u32 = 2;
/// A watch that [`prove`] reopens this long before the end of the old term tells soon after it how far it has shown everything:
/// its bookmark comes after a second at least.
pub const AHEAD: Duration = Duration::from_millis(500);
/// Between two looks whether the list has come.
const LOOK: Duration = Duration::from_millis(50);

/// By what an informer was proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proved {
    /// A whole set read as the most recent state since the old term.
    BySet,
    /// Its version, as it was.
    AtOnce,
    /// Its own watch, reopened.
    ByWatch,
    /// Another list, as the watch had not come so far.
    ByList,
}

/// Returns once the informer shows everything that was written before this call. `old_term_ended`: when the last write
/// of the old term was stored, if it is known; a set asked for since then needs no further proof. If that is still to
/// come, it is waited for: what is written until then is shown too.
///
/// `reads` must not stand in a queue: it is to have no token bucket.
///
/// # Errors
/// If the server does not say how far it is: nothing is proved then, and the call may be repeated.
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
            if passes(watched, &target, REOPENED).await {
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

async fn passes(watched: &dyn Watched, target: &Version, within: Duration) -> bool {
    let (tell, told) = oneshot::channel();
    let wake = Box::new(move || {
        // Nobody listens any more once the time is up.
        let _ = tell.send(());
    });
    watched.when_passed(target.clone(), wake) || time::timeout(within, told).await.is_ok_and(|told| told.is_ok())
}

#[cfg(test)]
mod tests;
