use std::time::Duration;

use clock::Instant;
use fastrand::Rng;

/// First delay after a failure. All values are those of client-go's reflector.
const FIRST: Duration = Duration::from_millis(800);
/// Delays double up to this, before jitter.
const CAP: Duration = Duration::from_secs(30);
/// After this long without a failure the delay starts again from the first.
const RESET: Duration = Duration::from_secs(120);

/// Delays between failing attempts: from 0.8 s, doubling to 30 s, each extended by a random part of its own length.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
    last_failure: Option<Instant>,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { next: FIRST, last_failure: None }
    }

    /// The delay after an attempt that failed at `now`.
    pub(super) fn delay(&mut self, now: Instant, rng: &mut Rng) -> Duration {
        let quiet = self.last_failure.is_none_or(|last_failure| now.saturating_duration_since(last_failure) >= RESET);
        let base = if quiet { FIRST } else { self.next };
        self.last_failure = Some(now);
        self.next = (base * 2).min(CAP);
        base.mul_f64(1.0 + rng.f64())
    }
}
