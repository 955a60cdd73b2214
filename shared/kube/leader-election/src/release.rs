use std::time::Duration;

use client::{Api, ApiError};
use clock::Clock;

use crate::{Config, Notes, driver};

/// The pause after an attempt that failed for another reason than a conflict.
const PAUSE: Duration = Duration::from_millis(500);

/// Why the Lease could not be released. Then standbys wait until it expires.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// Another process holds it already.
    #[error("{0} holds the lease")]
    TakenBy(String),
    /// No attempt succeeded in time.
    #[error("no release succeeded within {limit:?}: {last}")]
    TimedOut {
        /// The renew deadline.
        limit: Duration,
        /// Why the last attempt failed.
        last: String,
    },
}

/// Clears the holder and writes the notes for the next one. The caller has ended the driver, so no renewal happens
/// meanwhile.
pub(crate) async fn release(
    api: &Api,
    config: &Config,
    clock: &Clock,
    notes: Option<Notes>,
) -> Result<(), ReleaseError> {
    let mut last = String::from("no response");
    let mut written = false;
    let attempts = async {
        loop {
            match attempt(api, config, clock, notes.as_ref(), &mut written).await {
                Ok(done) => return done,
                // For example with a renewal that was in flight when the driver ended.
                Err(err @ ApiError::Conflict(_)) => last = err.to_string(),
                Err(err) => {
                    last = err.to_string();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    };
    match tokio::time::timeout(config.renew_deadline, attempts).await {
        Ok(done) => done,
        Err(_) => Err(ReleaseError::TimedOut { limit: config.renew_deadline, last }),
    }
}

/// One attempt; the client limits the time of its requests. `written` is set when a write was sent whose result is
/// unknown: a later read may then show the result of this write.
async fn attempt(
    api: &Api,
    config: &Config,
    clock: &Clock,
    notes: Option<&Notes>,
    written: &mut bool,
) -> Result<Result<(), ReleaseError>, ApiError> {
    let Some(lease) = driver::read(api, config).await? else { return Ok(Ok(())) };
    let holder = lease.record.holder();
    if holder != config.identity {
        let ok = holder.is_empty() || *written;
        return Ok(if ok { Ok(()) } else { Err(ReleaseError::TakenBy(holder.to_owned())) });
    }
    let released = lease.released(notes.cloned(), clock.wall());
    let result = driver::replace(api, config, &released).await;
    *written |= !matches!(result, Err(ApiError::Conflict(_)));
    result.map(|_| Ok(()))
}
