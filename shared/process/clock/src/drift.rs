//! Notices when the time of day jumps: somebody set the clock, or the machine slept. Timers know nothing of either.

use std::time::Duration;

use crate::{Instant, Timestamp};

/// Less is what a clock is adjusted by while it runs.
const JUMP: Duration = Duration::from_secs(1);

/// Both clocks, as they were read last. Whoever waits for times of day looks every [`Drift::EVERY`].
#[derive(Debug, Clone, Copy)]
pub struct Drift {
    wall: Timestamp,
    now: Instant,
}

impl Drift {
    /// How often both clocks are compared.
    pub const EVERY: Duration = Duration::from_secs(10);

    /// What both clocks say now.
    #[must_use]
    pub fn new(wall: Timestamp, now: Instant) -> Self {
        Self { wall, now }
    }

    /// True where the time of day did not go on as time did since the last look.
    pub fn jumped(&mut self, wall: Timestamp, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.now);
        let expected = self.wall.checked_add(passed).unwrap_or(Timestamp::MAX);
        *self = Self { wall, now };
        wall.duration_since(expected).unsigned_abs() > JUMP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_jump_in_either_direction_is_told_once() {
        let clock = crate::Clock::virtual_from(Timestamp::from_second(1_800_000_000).unwrap());
        let (wall, now) = (clock.wall(), clock.now());
        let secs = Duration::from_secs;
        let mut drift = Drift::new(wall, now);
        assert!(!drift.jumped(wall + secs(10), now + secs(10)));
        assert!(!drift.jumped(wall + secs(21), now + secs(20)), "a second is an adjustment");
        assert!(drift.jumped(wall + secs(3600), now + secs(30)));
        assert!(!drift.jumped(wall + secs(3610), now + secs(40)));
        assert!(drift.jumped(wall + secs(60), now + secs(50)), "back");
        assert!(!drift.jumped(wall + secs(70), now + secs(60)));
    }
}
