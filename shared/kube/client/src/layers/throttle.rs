use std::{fmt::Display, time::Duration};

use clock::{Clock, Instant};
use http::Method;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::retry::pause;
use crate::{ApiError, Limits};

/// Longer waits are logged, at most once within this time, as in upstream.
const LONG: Duration = Duration::from_secs(1);

/// Marks a request that takes no token: it already has one, or a new leader waits for its response.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Free;

/// The rate limiter of one client: a token bucket in FIFO order.
pub(crate) struct Throttle {
    name: Box<str>,
    bucket: Option<Mutex<Bucket>>,
    told: Mutex<Option<Instant>>,
}

/// The available tokens; negative if requests wait.
struct Bucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    at: Option<Instant>,
}

impl Throttle {
    pub(crate) fn new(name: &str, limits: Limits) -> Self {
        let Limits { qps, burst } = limits;
        let burst = f64::from(burst.max(1));
        let bucket = (qps > 0.0).then(|| Mutex::new(Bucket { rate: qps, burst, tokens: burst, at: None }));
        Self { name: name.into(), bucket, told: Mutex::new(None) }
    }

    /// How long a request that starts now would wait.
    pub(crate) fn backlog(&self, now: Instant) -> Duration {
        self.bucket.as_ref().map_or(Duration::ZERO, |it| it.lock().backlog(now))
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
        let returns = Returns(Some(bucket));
        pause(wait, stop).await?;
        returns.keep();
        if wait > LONG && self.may_tell(clock.now()) {
            let (method, uri) = what;
            tracing::info!(client = %self.name, ?wait, %method, %uri, "Waited before sending request due to client-side throttling");
        }
        Ok(wait)
    }

    fn may_tell(&self, now: Instant) -> bool {
        let mut told = self.told.lock();
        let due = told.is_none_or(|it| now.saturating_duration_since(it) >= LONG);
        if due {
            *told = Some(now);
        }
        due
    }
}

impl Bucket {
    /// Takes a token and returns the time until it may be used.
    fn take(&mut self, now: Instant) -> Duration {
        let wait = self.backlog(now);
        self.tokens -= 1.0;
        wait
    }

    /// The time until the next token may be used.
    fn backlog(&mut self, now: Instant) -> Duration {
        let since = self.at.map_or(Duration::ZERO, |it| now.saturating_duration_since(it));
        self.at = Some(now);
        self.tokens = (self.tokens + since.as_secs_f64() * self.rate).min(self.burst);
        // With the smallest possible rate the wait does not fit into a `Duration`.
        Duration::try_from_secs_f64((1.0 - self.tokens).max(0.0) / self.rate).unwrap_or(Duration::MAX)
    }
}

/// Returns the token of a request that was dropped while it waited.
struct Returns<'a>(Option<&'a Mutex<Bucket>>);

impl Returns<'_> {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Returns<'_> {
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
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let clock = Clock::system();
        let mut bucket = bucket(20.0, 3.0);
        let waits: Vec<_> = (0..6).map(|_| bucket.take(clock.now()).as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 50, 100, 150]);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_come_back_with_time_up_to_the_burst() {
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
    async fn the_backlog_is_what_the_next_request_waits() {
        let clock = Clock::system();
        let mut bucket = bucket(20.0, 3.0);
        for want in [0, 0, 0, 50, 100] {
            let seen = [bucket.backlog(clock.now()), bucket.backlog(clock.now()), bucket.take(clock.now())];
            assert_eq!(seen.map(|it| it.as_millis()), [want; 3]);
        }
        assert_eq!(Throttle::new("none", Limits::NONE).backlog(clock.now()), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_returns_its_token() {
        let clock = Clock::system();
        let throttle = Throttle::new("test", Limits { qps: 1.0, burst: 1 });
        let stop = CancellationToken::new();
        let what: (&Method, &(dyn Display + Sync)) = (&Method::GET, &"/");
        throttle.wait(&clock, &stop, what).await.unwrap();
        let waiting = throttle.wait(&clock, &stop, what);
        assert!(tokio::time::timeout(Duration::from_millis(1), waiting).await.is_err());
        let waited = throttle.wait(&clock, &stop, what).await.unwrap();
        assert!(waited <= LONG, "{waited:?}");
    }
}
