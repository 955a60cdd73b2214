//! The time of a decision.

use std::time::Duration;

/// A time in milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) i64);

impl Moment {
    /// In whole seconds, like times of the API.
    pub(crate) fn seconds(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// The remaining time of a `wait` that began at `since` (in seconds); zero when it is over.
    pub(crate) fn remaining(self, since: i64, wait: Duration) -> Duration {
        let wait = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        let end = since.saturating_mul(1_000).saturating_add(wait);
        Duration::from_millis(u64::try_from(end.saturating_sub(self.0)).unwrap_or_default())
    }
}
