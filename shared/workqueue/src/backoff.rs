use std::{collections::HashMap, hash::Hash, time::Duration};

use clock::Instant;

/// How long a failed key waits: per key an exponential, and for all keys of the queue together a token bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// The wait after a first failure; doubles with each further one.
    pub base: Duration,
    /// No wait of one key is longer.
    pub cap: Duration,
    /// Retries a second and at once, over all keys; `None` or a rate of zero for no such limit.
    pub bucket: Option<(f64, u32)>,
}

impl Backoff {
    /// An exponential per key, no limit over all.
    #[must_use]
    pub const fn per_key(base: Duration, cap: Duration) -> Self {
        Self { base, cap, bucket: None }
    }

    /// The wait after the failure that follows `failures` others.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let factor = 1u32.checked_shl(failures).unwrap_or(u32::MAX);
        // From 2^31 on the factor no longer doubles; any sensible cap is reached by then.
        self.base.saturating_mul(factor).min(self.cap)
    }
}

/// What upstream's controllers use: 5 ms to 1,000 s per key, 10 retries a second and 100 at once over all.
impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_millis(5), cap: Duration::from_secs(1000), bucket: Some((10.0, 100)) }
    }
}

/// Failures by key, and the bucket.
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

    /// Counts one more failure of `key` and says how long it waits. Charges the bucket even where the key waits longer.
    pub(crate) fn failed(&mut self, key: &K, now: Instant) -> Duration {
        let own = self.in_vain(key);
        let shared = self.bucket.as_mut().map_or(Duration::ZERO, |it| it.reserve(now));
        own.max(shared)
    }

    /// Counts one more attempt that led nowhere and says how long `key` waits, whatever the others do: the bucket is not
    /// charged.
    pub(crate) fn in_vain(&mut self, key: &K) -> Duration {
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

/// A token bucket that hands out tokens of the future: it never refuses, it says how long to wait.
struct Bucket {
    /// One token comes back in this time.
    interval: Duration,
    /// A full bucket comes back in this time.
    whole: Duration,
    /// When the bucket is full again.
    full_at: Option<Instant>,
}

impl Bucket {
    fn new(rate: f64, burst: u32) -> Option<Self> {
        let interval = Duration::try_from_secs_f64(1.0 / rate).ok()?;
        Some(Self { interval, whole: interval.saturating_mul(burst), full_at: None })
    }

    fn reserve(&mut self, now: Instant) -> Duration {
        let full_at = self.full_at.map_or(now, |it| it.max(now));
        // A rate so low that the sum overflows keeps the last instant that time can express.
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
    fn acceptance_machinery_029_030_waits_double_up_to_the_cap_and_start_anew_after_forget() {
        let now = Clock::system().now();
        let mut limiter = Limiter::new(Backoff { bucket: None, ..Backoff::default() });
        let waits: Vec<_> = (0..4).map(|_| limiter.failed(&"a", now)).collect();
        assert_eq!(waits, [5 * MS, 10 * MS, 20 * MS, 40 * MS]);
        assert_eq!(limiter.failed(&"b", now), 5 * MS, "keys fail apart");
        for _ in 4..200 {
            assert!(limiter.failed(&"a", now) <= Duration::from_secs(1000));
        }
        assert_eq!(limiter.failed(&"a", now), Duration::from_secs(1000));
        assert_eq!(limiter.failures(&"a"), 201);

        limiter.forget(&"a");
        assert_eq!(limiter.failures(&"a"), 0);
        assert_eq!(limiter.failed(&"a", now), 5 * MS);
    }

    #[test]
    fn acceptance_machinery_031_a_hundred_retries_pass_at_once_and_ten_a_second_after_them() {
        let now = Clock::system().now();
        let mut limiter = Limiter::new(Backoff::default());
        let waits: Vec<_> = (0..200).map(|key| limiter.failed(&key, now)).collect();
        assert!(waits[..100].iter().all(|it| *it == 5 * MS), "{waits:?}");
        for (at, wait) in waits[100..].iter().enumerate() {
            assert_eq!(*wait, 100 * MS * (u32::try_from(at).unwrap() + 1), "retry {at} after the burst");
        }
        // 200 tokens take 20 s to come back; then the burst is whole again.
        let later = now + Duration::from_secs(20);
        assert!((200..300).all(|key| limiter.failed(&key, later) == 5 * MS));
        assert_eq!(limiter.failed(&300, later), 100 * MS);
    }

    #[test]
    fn who_only_looked_in_vain_waits_as_long_and_leaves_the_tokens_to_those_who_failed() {
        let now = Clock::system().now();
        let mut limiter = Limiter::new(Backoff::default());
        assert!((0..5_000).all(|key| limiter.in_vain(&key) == 5 * MS));
        assert_eq!((limiter.in_vain(&0), limiter.in_vain(&0), limiter.failures(&0)), (10 * MS, 20 * MS, 3));
        assert_eq!(limiter.failed(&5_000, now), 5 * MS);
        assert_eq!(limiter.failed(&0, now), 40 * MS, "both count");
        // And the other way round: whose own wait is over need not wait for tokens.
        assert!((0..1_000).any(|key| limiter.failed(&key, now) > 60_000 * MS));
        assert_eq!(limiter.in_vain(&5_001), 5 * MS);
    }

    #[test]
    fn a_bucket_without_a_rate_is_none() {
        for rate in [0.0, -1.0, f64::NAN] {
            let mut limiter = Limiter::new(Backoff { bucket: Some((rate, 0)), ..Backoff::default() });
            let now = Clock::system().now();
            assert!((0..1000).all(|key| limiter.failed(&key, now) == 5 * MS), "{rate}");
        }
    }
}
