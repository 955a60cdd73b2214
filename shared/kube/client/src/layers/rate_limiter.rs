use std::{fmt::Display, time::Duration};

use clock::{Clock, Instant};
use http::Method;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::retry::pause;
use crate::{ApiError, Limits};

/// Longer waits are logged, at most once within this time, as in upstream.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// Marks a request that takes no token: it already has one, or a new leader waits for its response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoRateLimit;

/// The rate limiter of one client: a token bucket in FIFO order.
pub(crate) struct RateLimiter {
    name: Box<str>,
    bucket: Option<Mutex<Bucket>>,
    last_log: Mutex<Option<Instant>>,
}

/// The available tokens; negative if requests wait.
struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Option<Instant>,
}

impl RateLimiter {
    pub(crate) fn new(name: &str, limits: Limits) -> Self {
        let Limits { qps, burst } = limits;
        let burst = f64::from(burst.max(1));
        let bucket = (qps > 0.0).then(|| Mutex::new(Bucket { rate: qps, burst, tokens: burst, at: None }));
        Self { name: name.into(), bucket, last_log: Mutex::new(None) }
    }

    /// How long a request that starts now would wait.
    pub(crate) fn delay(&self, now: Instant) -> Duration {
        self.bucket.as_ref().map_or(Duration::ZERO, |it| it.lock().delay(now))
    }

    /// Takes a token and waits until it is due. Returns the time of the wait. A long wait is logged with `what`.
    pub(super) async fn wait(
        &self,
        clock: &Clock,
        stop: &CancellationToken,
        what: (&Method, &(dyn Display + Sync)),
    ) -> Result<Duration, ApiError> {
        let Some(bucket) = &self.bucket else { return Ok(Duration::ZERO) };
        let wait = bucket.lock().take(clock.now());
        if wait.is_zero() {
            return Ok(wait);
        }
        let guard = TokenGuard(Some(bucket));
        pause(wait, stop).await?;
        guard.disarm();
        if wait > LONG_WAIT && self.mark_logged(clock.now()) {
            let (method, uri) = what;
            tracing::info!(client = %self.name, ?wait, %method, %uri, "Waited before sending request due to client-side throttling");
        }
        Ok(wait)
    }

    /// Records a log line now. Returns false if the last one is less than a second ago.
    fn mark_logged(&self, now: Instant) -> bool {
        let mut last_log = self.last_log.lock();
        let is_due = last_log.is_none_or(|it| now.saturating_duration_since(it) >= LONG_WAIT);
        if is_due {
            *last_log = Some(now);
        }
        is_due
    }
}

impl Bucket {
    /// Takes a token and returns the time until it may be used.
    fn take(&mut self, now: Instant) -> Duration {
        let wait = self.delay(now);
        self.tokens -= 1.0;
        wait
    }

    /// The time until the next token may be used.
    fn delay(&mut self, now: Instant) -> Duration {
        let elapsed = self.at.map_or(Duration::ZERO, |it| now.saturating_duration_since(it));
        self.at = Some(now);
        self.tokens = (self.tokens + elapsed.as_secs_f64() * self.rate).min(self.burst);
        // With the smallest possible rate the wait does not fit into a `Duration`.
        Duration::try_from_secs_f64((1.0 - self.tokens).max(0.0) / self.rate).unwrap_or(Duration::MAX)
    }
}

/// Returns the token of a request that was dropped while it waited.
struct TokenGuard<'a>(Option<&'a Mutex<Bucket>>);

impl TokenGuard<'_> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for TokenGuard<'_> {
    fn drop(&mut self) {
        if let Some(bucket) = self.0 {
            bucket.lock().tokens += 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(rate: f64, burst: f64) -> Bucket {
        Bucket { rate, burst, tokens: burst, at: None }
    }

    #[tokio::test(start_paused = true)]
    async fn burst_is_sent_at_once_and_the_rest_at_the_rate() {
        let clock = Clock::system();
        let mut bucket = bucket(20.0, 3.0);
        let waits: Vec<_> = (0..6).map(|_| bucket.take(clock.now()).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 50, 100, 150]);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_are_refilled_up_to_the_burst() {
        let clock = Clock::system();
        let mut bucket = bucket(20.0, 3.0);
        for _ in 0..3 {
            bucket.take(clock.now());
        }
        tokio::time::advance(Duration::from_millis(100)).await;
        assert_eq!([(); 3].map(|()| bucket.take(clock.now()).as_millis()), [0, 0, 50]);
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert_eq!([(); 4].map(|()| bucket.take(clock.now()).as_millis()), [0, 0, 0, 50]);
    }

    #[tokio::test(start_paused = true)]
    async fn delay_is_the_wait_of_the_next_request() {
        let clock = Clock::system();
        let mut bucket = bucket(20.0, 3.0);
        for want in [0, 0, 0, 50, 100] {
            let delays = [bucket.delay(clock.now()), bucket.delay(clock.now()), bucket.take(clock.now())];
            assert_eq!(delays.map(|it| it.as_millis()), [want; 3]);
        }
        assert_eq!(RateLimiter::new("none", Limits::NONE).delay(clock.now()), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_request_returns_its_token() {
        let clock = Clock::system();
        let limiter = RateLimiter::new("test", Limits { qps: 1.0, burst: 1 });
        let stop = CancellationToken::new();
        let what: (&Method, &(dyn Display + Sync)) = (&Method::GET, &"/");
        limiter.wait(&clock, &stop, what).await.unwrap();
        let waiting = limiter.wait(&clock, &stop, what);
        assert!(tokio::time::timeout(Duration::from_millis(1), waiting).await.is_err());
        let waited = limiter.wait(&clock, &stop, what).await.unwrap();
        assert!(waited <= LONG_WAIT, "{waited:?}");
    }
}
