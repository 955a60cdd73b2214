//! The back-off before the next pod after a failure. Pure.

use std::time::Duration;

use api::{ConditionStatus, ContainerRole, ContainerState, Pod};
use workload::deletion_requested;

use crate::rules::moment::Moment;

/// The delay after the first failure. It doubles with each further failure.
const BASE: Duration = Duration::from_secs(10);

/// The longest delay.
const CAP: Duration = Duration::from_secs(600);

/// The failures since the last success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PodFailures {
    /// The number of failed pods.
    pub(crate) failures: u32,
    /// When the last of them finished, in seconds since the epoch.
    pub(crate) last: i64,
}

impl PodFailures {
    /// Adds the finish times of new successes and new failures, which may be in any order.
    pub(crate) fn with(self, succeeded: Option<i64>, failed: &[i64]) -> Self {
        // A success cancels all failures that finished before it or at the same time.
        let (before, after) = match succeeded {
            Some(success) => (Self::default(), failed.iter().filter(|it| **it > success).copied().collect()),
            None => (self, failed.to_vec()),
        };
        let Some(last) = after.iter().max() else { return before };
        let failures = u32::try_from(after.len()).unwrap_or(u32::MAX);
        Self { failures: before.failures.saturating_add(failures), last: *last }
    }

    /// How long no pod may be created; zero when the back-off is over.
    pub(crate) fn remaining(self, now: Moment) -> Duration {
        if self.failures == 0 {
            return Duration::ZERO;
        }
        let factor = 1_u32.checked_shl(self.failures - 1).unwrap_or(u32::MAX);
        now.remaining(self.last, BASE.saturating_mul(factor).min(CAP))
    }
}

/// The finish time of a pod in seconds since the epoch, or the best approximation (`getFinishedTime` in upstream's
/// backoff_utils.go).
pub(crate) fn finish_time(pod: &Pod) -> i64 {
    let not_ready = || {
        let ready = pod.condition("Ready")?;
        if ready.status == ConditionStatus::False { ready.last_transition } else { None }
    };
    let deleted = || deletion_requested(pod);
    containers_ended(pod).or_else(not_ready).or_else(deleted).or(pod.creation).unwrap_or_default()
}

/// When the last container ended. `None` while a container other than an init container has not ended.
fn containers_ended(pod: &Pod) -> Option<i64> {
    let mut last = None;
    for container in pod.containers.iter().filter(|it| it.role != ContainerRole::Init) {
        let ContainerState::Terminated { finished, .. } = container.state else { return None };
        last = last.max(Some(finished?));
    }
    last
}

#[cfg(test)]
mod tests;
