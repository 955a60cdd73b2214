use std::{collections::HashMap, hash::Hash, time::Duration};

use clock::Instant;

/// The back-off of failed keys: an exponential delay for each key, and one token bucket for all keys of the queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The delay after the first failure. Each further failure doubles it.
    pub base: Duration,
    /// The longest delay of one key, without the token bucket.
    pub cap: Duration,
    /// Retries per second and burst, over all keys. `None` or a rate of zero means no such limit.
    pub bucket: Option<(f64, u32)>,
}

impl Backoff {
    /// An exponential delay for each key, without a limit over all keys.
    #[must_use]
    pub const fn per_key(base: Duration, cap: Duration) -> Self {
        Self { base, cap, bucket: None }
    }

    /// The delay after one more failure, when the key has failed `failures` times before.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let factor = 1u32.checked_shl(failures).unwrap_or(u32::MAX);
        // From 2^31 on the factor no longer doubles; any sensible cap is reached by then.
        self.base.saturating_mul(factor).min(self.cap)
    }
}

/// The rate limiter of the upstream controllers (`DefaultTypedControllerRateLimiter`): 5 ms to 1,000 s for each key,
/// and 10 retries per second with a burst of 100 over all keys.
impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_millis(5), cap: Duration::from_secs(1000), bucket: Some((10.0, 100)) }
    }
}

/// The failures of each key, and the token bucket.
pub(crate) struct Limiter<K> {
    backoff: Backoff,
    bucket: Option<Bucket>,
    failures: HashMap<K, u32>,
}

impl<K: Eq + Hash + Clone> Limiter<K> {
    pub(crate) fn new(backoff: Backoff) -> Self {
        let bucket = backoff.bucket.and_then(|(rate, burst)| Bucket::new(rate, burst));
        Self { backoff, bucket, failures: HashMap::new() }
    }

    /// Counts one more failure of `key` and returns its delay. Takes a token of the bucket even when the key's own
    /// delay is longer.
    pub(crate) fn count_failure(&mut self, key: &K, now: Instant) -> Duration {
        let own = self.count_attempt(key);
        let shared = self.bucket.as_mut().map_or(Duration::ZERO, |it| it.reserve(now));
        own.max(shared)
    }

    /// Counts one more attempt without progress and returns the delay of `key`. It takes no token of the bucket, so it
    /// does not delay other keys.
    pub(crate) fn count_attempt(&mut self, key: &K) -> Duration {
        match self.failures.get_mut(key) {
            Some(failures) => {
                let own = self.backoff.delay(*failures);
                *failures = failures.saturating_add(1);
                own
            }
            None => {
                self.failures.insert(key.clone(), 1);
                self.backoff.delay(0)
            }
        }
    }

    pub(crate) fn forget(&mut self, key: &K) {
        self.failures.remove(key);
    }

    pub(crate) fn failures(&self, key: &K) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }

    pub(crate) fn clear(&mut self) {
        self.failures.clear();
    }
}

/// A token bucket that reserves future tokens: it never refuses, it returns the delay until the reserved token exists.
struct Bucket {
    /// The time in which one token is refilled.
    interval: Duration,
    /// The time in which an empty bucket is refilled completely.
    whole: Duration,
    /// When the bucket will be full.
    full_at: Option<Instant>,
}

impl Bucket {
    fn new(rate: f64, burst: u32) -> Option<Self> {
        let interval = Duration::try_from_secs_f64(1.0 / rate).ok()?;
        Some(Self { interval, whole: interval.saturating_mul(burst), full_at: None })
    }

    fn reserve(&mut self, now: Instant) -> Duration {
        let full_at = self.full_at.map_or(now, |it| it.max(now));
        // With a very low rate the sum overflows; the last instant that can be represented stays.
        let full_at = full_at.checked_add(self.interval).unwrap_or(full_at);
        self.full_at = Some(full_at);
        full_at.saturating_duration_since(now).saturating_sub(self.whole)
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn acceptance_machinery_029_030_delays_double_up_to_the_cap_and_restart_after_forget() {
        let now = Clock::system().now();
        let mut limiter = Limiter::new(Backoff { bucket: None, ..Backoff::default() });
        let waits: Vec<_> = (0..4).map(|_| limiter.count_failure(&"a", now)).collect();
        assert_eq!(waits, [5 * MS, 10 * MS, 20 * MS, 40 * MS]);
        assert_eq!(limiter.count_failure(&"b", now), 5 * MS, "each key has its own count");
        for _ in 4..200 {
            assert!(limiter.count_failure(&"a", now) <= Duration::from_secs(1000));
        }
        assert_eq!(limiter.count_failure(&"a", now), Duration::from_secs(1000));
        assert_eq!(limiter.failures(&"a"), 201);

        limiter.forget(&"a");
        assert_eq!(limiter.failures(&"a"), 0);
        assert_eq!(limiter.count_failure(&"a", now), 5 * MS);
    }

    #[test]
    fn acceptance_machinery_031_a_hundred_retries_are_immediate_and_then_ten_per_second() {
        let now = Clock::system().now();
        let mut limiter = Limiter::new(Backoff::default());
        let waits: Vec<_> = (0..200).map(|key| limiter.count_failure(&key, now)).collect();
        assert!(waits[..100].iter().all(|it| *it == 5 * MS), "{waits:?}");
        for (at, wait) in waits[100..].iter().enumerate() {
            assert_eq!(*wait, 100 * MS * (u32::try_from(at).unwrap() + 1), "retry {at} after the burst");
        }
        // After 20 s all 200 tokens are refilled; then the whole burst is available again.
        let later = now + Duration::from_secs(20);
        assert!((200..300).all(|key| limiter.count_failure(&key, later) == 5 * MS));
        assert_eq!(limiter.count_failure(&300, later), 100 * MS);
    }

    #[test]
    fn attempts_without_progress_back_off_and_take_no_tokens() {
        let now = Clock::system().now();
        let mut limiter = Limiter::new(Backoff::default());
        assert!((0..5_000).all(|key| limiter.count_attempt(&key) == 5 * MS));
        assert_eq!((limiter.count_attempt(&0), limiter.count_attempt(&0), limiter.failures(&0)), (10 * MS, 20 * MS, 3));
        assert_eq!(limiter.count_failure(&5_000, now), 5 * MS);
        assert_eq!(limiter.count_failure(&0, now), 40 * MS, "both kinds of attempt count");
        // The reverse holds too: failed keys have reserved all tokens, and this key still waits for its own delay only.
        assert!((0..1_000).any(|key| limiter.count_failure(&key, now) > 60_000 * MS));
        assert_eq!(limiter.count_attempt(&5_001), 5 * MS);
    }

    #[test]
    fn a_bucket_without_a_rate_does_not_limit() {
        for rate in [0.0, -1.0, f64::NAN] {
            let mut limiter = Limiter::new(Backoff { bucket: Some((rate, 0)), ..Backoff::default() });
            let now = Clock::system().now();
            assert!((0..1000).all(|key| limiter.count_failure(&key, now) == 5 * MS), "{rate}");
        }
    }
}
