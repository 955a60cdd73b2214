//! Detects jumps of the wall clock: an operator set it, or the machine was suspended. Timers are not adjusted in either
//! case.

use std::time::Duration;

use crate::{Instant, Timestamp};

/// A smaller difference is normal clock adjustment.
const MIN_JUMP: Duration = Duration::from_secs(1);

/// Both clocks at the last reading. A caller that waits for a wall time must check every [`Drift::EVERY`].
#[derive(Debug, Clone, Copy)]
pub struct Drift {
    wall: Timestamp,
    now: Instant,
}

impl Drift {
    /// How often to compare both clocks.
    pub const EVERY: Duration = Duration::from_secs(10);

    /// The present values of both clocks.
    #[must_use]
    pub fn new(wall: Timestamp, now: Instant) -> Self {
        Self { wall, now }
    }

    /// True when the wall clock and the monotonic clock advanced differently since the last check.
    pub fn detect_jump(&mut self, wall: Timestamp, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.now);
        let expected = self.wall.checked_add(elapsed).unwrap_or(Timestamp::MAX);
        *self = Self { wall, now };
        wall.duration_since(expected).unsigned_abs() > MIN_JUMP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn jump_in_either_direction_is_detected_once() {
        let clock = crate::Clock::virtual_from(Timestamp::from_second(1_800_000_000).unwrap());
        let (wall, now) = (clock.wall(), clock.now());
        let secs = Duration::from_secs;
        let mut drift = Drift::new(wall, now);
        assert!(!drift.detect_jump(wall + secs(10), now + secs(10)));
        assert!(!drift.detect_jump(wall + secs(21), now + secs(20)), "a second is an adjustment");
        assert!(drift.detect_jump(wall + secs(3600), now + secs(30)));
        assert!(!drift.detect_jump(wall + secs(3610), now + secs(40)));
        assert!(drift.detect_jump(wall + secs(60), now + secs(50)), "back");
        assert!(!drift.detect_jump(wall + secs(70), now + secs(60)));
    }
}
