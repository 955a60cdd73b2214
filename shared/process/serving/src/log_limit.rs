//! Limits repeated log lines.

use std::time::Duration;

use clock::{Clock, Instant};
use parking_lot::Mutex;

/// The minimum time between two log lines.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Limits repeated log lines, so that a client with invalid requests does not fill the log.
pub(crate) struct LogLimit {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogLimit {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    /// `None` if no line may be logged now; otherwise the number of lines that were suppressed since the last one.
    pub(crate) fn acquire(&self) -> Option<u64> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.last.is_some_and(|it| now - it < MIN_INTERVAL) {
            state.suppressed += 1;
            return None;
        }
        state.last = Some(now);
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_line_of_many_is_logged_and_the_others_are_counted() {
        let limit = LogLimit::new(Clock::system());
        assert_eq!([limit.acquire(), limit.acquire(), limit.acquire()], [Some(0), None, None]);
        tokio::time::advance(MIN_INTERVAL).await;
        assert_eq!([limit.acquire(), limit.acquire()], [Some(2), None]);
    }
}
