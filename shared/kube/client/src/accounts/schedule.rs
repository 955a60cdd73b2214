use std::time::Duration;

use clock::Instant;

/// The server issues no token with a shorter lifetime, so a shorter one means that the clocks differ.
const MIN_LIFE: Duration = Duration::from_mins(10);
/// The percentage of a token's lifetime that is left when it is renewed.
const LEEWAY: u32 = 20;
/// The pause after the first failure. It is doubled after each further one, for as many attempts as in upstream.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The number of attempts with short pauses between them. After them, requests without a token fail.
const STEPS: u32 = 4;
/// The pause between later attempts.
const LONG_PAUSE: Duration = Duration::from_secs(10);
/// A refused token that is younger than this is not replaced, because another one would not help.
const FRESH: Duration = Duration::from_secs(10);
/// The successor of a refused token is not replaced for this long. If both are refused, the cause is something else,
/// for example an aggregated API server.
const PROVEN: Duration = Duration::from_mins(1);

/// Decides when the token of an account is requested, and which token is used in the meantime.
pub(super) struct Schedule<T> {
    current: Option<CurrentToken<T>>,
    /// The number of attempts since the last success.
    failures: u32,
    /// The error of the last attempt, if it failed.
    failed: Option<String>,
    next: Instant,
    /// True if the next token is requested because of a refusal.
    refused: bool,
    /// True if the present token was requested because of a refusal.
    successor: bool,
}

/// A token and its lifetime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CurrentToken<T> {
    pub(super) token: T,
    /// Distinguishes it from its predecessor.
    pub(super) serial: u64,
    since: Instant,
    expires: Instant,
}

/// What happens to a request that was refused with 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalOutcome {
    /// There is already a newer token.
    Newer,
    /// Another token is requested.
    Renew,
    /// The refusal is final.
    Final,
}

impl<T: Clone> Schedule<T> {
    pub(super) fn new(now: Instant) -> Self {
        Self { current: None, failures: 0, failed: None, next: now, refused: false, successor: false }
    }

    /// When the next token is to be requested.
    pub(super) fn next_deadline(&self) -> Instant {
        self.next
    }

    /// Records a new token with its lifetime, which was requested at `requested`.
    pub(super) fn record_issued(&mut self, token: T, life: Duration, requested: Instant) {
        let life = life.max(MIN_LIFE);
        let serial = self.current.as_ref().map_or(0, |it| it.serial) + 1;
        self.current = Some(CurrentToken { token, serial, since: requested, expires: requested + life });
        self.next = requested + life * (100 - LEEWAY) / 100;
        self.failures = 0;
        self.failed = None;
        self.successor = std::mem::take(&mut self.refused);
    }

    /// Records a failed attempt. The old token is used until it expires.
    pub(super) fn record_failure(&mut self, why: String, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let pause = if self.failures < STEPS { FIRST_PAUSE * (1 << (self.failures - 1)) } else { LONG_PAUSE };
        self.next = now + pause;
        self.failed = Some(why);
    }

    /// The token to use.
    pub(super) fn valid_token(&self, now: Instant) -> Option<CurrentToken<T>> {
        self.current.as_ref().filter(|it| now < it.expires).cloned()
    }

    /// The error for requests that wait for a token, if they must not wait any longer.
    pub(super) fn final_error(&self) -> Option<&str> {
        self.failed.as_deref().filter(|_| self.failures >= STEPS)
    }

    /// True if the last attempt has failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Handles a refusal of the token of this serial. The account was created again, or the signing key was changed.
    pub(super) fn on_refused(&mut self, serial: u64, now: Instant) -> RefusalOutcome {
        let min_age = if self.successor { PROVEN } else { FRESH };
        match self.valid_token(now) {
            Some(newer) if newer.serial != serial => RefusalOutcome::Newer,
            Some(current) if now.saturating_duration_since(current.since) < min_age => RefusalOutcome::Final,
            // A token is already being requested. A second refusal does not make that faster.
            _ if self.is_failing() => RefusalOutcome::Final,
            _ => {
                self.next = now;
                self.refused = true;
                RefusalOutcome::Renew
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clock::Clock;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[tokio::test(start_paused = true)]
    async fn token_is_renewed_when_a_fifth_of_its_lifetime_is_left() {
        let now = Clock::system().now();
        for (name, life, renewed, expires) in [
            ("an hour", HOUR, secs(48 * 60), HOUR),
            ("the shortest that a server gives", secs(600), secs(480), secs(600)),
            ("our clock is ahead of the server's", secs(5), secs(480), secs(600)),
            ("it has already expired", Duration::ZERO, secs(480), secs(600)),
        ] {
            let mut schedule = Schedule::new(now);
            assert_eq!(schedule.next_deadline(), now, "{name}: the first token is requested at once");
            schedule.record_issued("a", life, now);
            assert_eq!(schedule.next_deadline() - now, renewed, "{name}");
            assert!(schedule.valid_token(now + expires - secs(1)).is_some(), "{name}");
            assert_eq!(schedule.valid_token(now + expires), None, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_retried_with_growing_pauses_while_the_old_token_is_used() {
        let now = Clock::system().now();
        let mut schedule = Schedule::new(now);
        schedule.record_issued("a", HOUR, now);
        let late = now + secs(48 * 60);
        let pauses = [500, 1_000, 2_000, 10_000, 10_000].map(|_| {
            schedule.record_failure("no response".to_owned(), late);
            (schedule.next_deadline() - late).as_millis()
        });
        assert_eq!(pauses, [500, 1_000, 2_000, 10_000, 10_000]);
        assert_eq!(schedule.valid_token(late).map(|it| it.token), Some("a"), "the old one is used until its end");
        schedule.record_issued("b", HOUR, late);
        assert!(!schedule.is_failing());
        assert_eq!(schedule.valid_token(late).map(|it| (it.token, it.serial)), Some(("b", 2)));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_fail_after_four_attempts_without_a_token() {
        let now = Clock::system().now();
        let mut schedule = Schedule::<&str>::new(now);
        for _ in 0..3 {
            schedule.record_failure("forbidden".to_owned(), now);
            assert_eq!(schedule.final_error(), None);
        }
        schedule.record_failure("forbidden".to_owned(), now);
        assert_eq!(schedule.final_error(), Some("forbidden"));
    }

    #[tokio::test(start_paused = true)]
    async fn refused_token_is_replaced_once() {
        let now = Clock::system().now();
        let of = |serial: u64, age: Duration, failing: bool| {
            let mut schedule = Schedule::new(now);
            schedule.record_issued("a", HOUR, now);
            if serial == 2 {
                schedule.record_issued("b", HOUR, now);
            }
            if failing {
                schedule.record_failure("no response".to_owned(), now + age);
            }
            let outcome = schedule.on_refused(1, now + age);
            (outcome, schedule.next_deadline() <= now + age)
        };
        assert_eq!(of(2, secs(0), false), (RefusalOutcome::Newer, false), "another request has led to a newer token");
        assert_eq!(of(1, secs(60), false), (RefusalOutcome::Renew, true), "the account was created again");
        assert_eq!(of(1, secs(9), false), (RefusalOutcome::Final, false), "a new token is not replaced");
        assert_eq!(of(1, secs(60), true), (RefusalOutcome::Final, false), "a token is already being requested");
        assert_eq!(of(1, HOUR, false), (RefusalOutcome::Renew, true), "it has expired");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_successor_is_not_replaced_for_a_minute() {
        let now = Clock::system().now();
        let mut schedule = Schedule::new(now);
        schedule.record_issued("a", HOUR, now);
        let mut renewed_at = Vec::new();
        for second in 0..300 {
            let now = now + secs(second);
            let serial = schedule.valid_token(now).unwrap().serial;
            if schedule.on_refused(serial, now) == RefusalOutcome::Renew {
                renewed_at.push(second);
                schedule.record_issued("b", HOUR, now);
            }
        }
        assert_eq!(renewed_at, [10, 70, 130, 190, 250]);
    }
}
