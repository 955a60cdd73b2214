//! How long a failed pod stays on its node before it is replaced, so that a node that refuses pods does not get one in
//! each sync (`failedPodsBackoff`, a `flowcontrol.Backoff` of client-go).

use std::time::Duration;

use clock::Instant;

/// The delay after the first replacement.
const FIRST: Duration = Duration::from_secs(1);

/// The longest delay.
const MAX: Duration = Duration::from_secs(15 * 60);

/// The last replacement of a failed pod on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FailedPodBackoff {
    /// The observed generation of the set. A change of the spec starts anew.
    generation: i64,
    delay: Duration,
    at: Instant,
}

impl FailedPodBackoff {
    /// A failed pod is replaced now.
    pub(crate) fn next(before: Option<Self>, generation: i64, now: Instant) -> Self {
        let before = before.filter(|it| it.generation == generation && !it.has_expired(now));
        let delay = before.map_or(FIRST, |it| (it.delay * 2).min(MAX));
        Self { generation, delay, at: now }
    }

    /// How long the next failed pod must still wait; `None` if it may be replaced.
    pub(crate) fn remaining(self, generation: i64, now: Instant) -> Option<Duration> {
        let until = self.at + self.delay;
        (self.generation == generation && until > now).then(|| until.saturating_duration_since(now))
    }

    /// No pod has failed for twice the longest delay.
    pub(crate) fn has_expired(self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) > 2 * MAX
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    #[test]
    fn acceptance_ds_023_the_delay_doubles_up_to_fifteen_minutes() {
        let mut now = Clock::system().now();
        let mut backoff = FailedPodBackoff::next(None, 1, now);
        let mut delays = Vec::new();
        for _ in 0..12 {
            let delay = backoff.remaining(1, now).unwrap();
            assert_eq!(backoff.remaining(1, now + delay / 4), Some(delay - delay / 4));
            delays.push(delay.as_secs());
            now += delay;
            assert_eq!(backoff.remaining(1, now), None);
            backoff = FailedPodBackoff::next(Some(backoff), 1, now);
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
    }

    #[test]
    fn acceptance_ds_024_a_new_generation_and_a_long_pause_start_anew() {
        let now = Clock::system().now();
        let second = FailedPodBackoff::next(Some(FailedPodBackoff::next(None, 1, now)), 1, now + SEC);
        assert_eq!(second.remaining(1, now + SEC), Some(2 * SEC));
        assert_eq!(second.remaining(2, now + SEC), None, "another generation");
        assert_eq!(FailedPodBackoff::next(Some(second), 2, now + SEC).remaining(2, now + SEC), Some(SEC));
        let later = now + SEC + 2 * MAX + SEC;
        assert!(second.has_expired(later) && !second.has_expired(later - SEC));
        assert_eq!(FailedPodBackoff::next(Some(second), 1, later).remaining(1, later), Some(SEC));
    }
}
