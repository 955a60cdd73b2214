//! Computes when the next pass can find a change.

use std::time::Duration;

/// Assumed for content that waits for its finalizers, because their duration is unknown.
pub(crate) const FINALIZER_ESTIMATE: u64 = 15;

/// Seconds until the grace period of the last pod ends; 0 if it has ended, or if no pod is being deleted.
///
/// The server writes the end of the grace period into the pod's deletionTimestamp. So the pod's spec and the
/// namespace's own deletionTimestamp are not needed.
pub(crate) fn remaining(latest_deletion: Option<i64>, now: i64) -> u64 {
    latest_deletion.map_or(0, |end| u64::try_from(end.saturating_sub(now)).unwrap_or(0))
}

/// When to sync again if the content needs about `estimate` more seconds. This is an upper bound: the deletion of the
/// last pod enqueues the namespace earlier.
pub(crate) fn retry_after(estimate: u64) -> Duration {
    Duration::from_secs(estimate / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_grace_period_follows_from_the_deletion_timestamp_of_the_pods() {
        let cases = [
            ("nothing is being deleted", None, 0),
            ("all of it remains", Some(130), 30),
            ("a part has passed", Some(107), 7),
            ("it ends now", Some(100), 0),
            ("it has passed", Some(42), 0),
        ];
        for (name, latest, want) in cases {
            assert_eq!(remaining(latest, 100), want, "{name}");
        }
    }

    #[test]
    fn a_retry_waits_half_the_estimate_and_a_second() {
        for (estimate, want) in [(30, 16), (FINALIZER_ESTIMATE, 8), (1, 1), (2, 2)] {
            assert_eq!(retry_after(estimate), Duration::from_secs(want), "{estimate}");
        }
    }
}
