use std::time::Duration;

use clock::Instant;

/// The server issues no token with a shorter lifetime, so a shorter one means that the clocks differ.
const SHORTEST_LIFE: Duration = Duration::from_mins(10);
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
    held: Option<Held<T>>,
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
pub(super) struct Held<T> {
    pub(super) token: T,
    /// Distinguishes it from its predecessor.
    pub(super) serial: u64,
    since: Instant,
    ends: Instant,
}

/// What happens to a request that was refused with 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// There is already a newer token.
    Newer,
    /// Another token is requested.
    Renew,
    /// The refusal is final.
    Stands,
}

impl<T: Clone> Schedule<T> {
    pub(super) fn new(now: Instant) -> Self {
        Self { held: None, failures: 0, failed: None, next: now, refused: false, successor: false }
    }

    /// When the next token is to be requested.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Records a new token with its lifetime, which was requested at `asked`.
    pub(super) fn issued(&mut self, token: T, life: Duration, asked: Instant) {
        let life = life.max(SHORTEST_LIFE);
        let serial = self.held.as_ref().map_or(0, |it| it.serial) + 1;
        self.held = Some(Held { token, serial, since: asked, ends: asked + life });
        self.next = asked + life * (100 - LEEWAY) / 100;
        self.failures = 0;
        self.failed = None;
        self.successor = std::mem::take(&mut self.refused);
    }

    /// Records a failed attempt. The old token is used until it expires.
    pub(super) fn failed(&mut self, why: String, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        let pause = if self.failures < STEPS { FIRST_PAUSE * (1 << (self.failures - 1)) } else { LONG_PAUSE };
        self.next = now + pause;
        self.failed = Some(why);
    }

    /// The token to use.
    pub(super) fn usable(&self, now: Instant) -> Option<Held<T>> {
        self.held.as_ref().filter(|it| now < it.ends).cloned()
    }

    /// The error for requests that wait for a token, if they must not wait any longer.
    pub(super) fn gives_up(&self) -> Option<&str> {
        self.failed.as_deref().filter(|_| self.failures >= STEPS)
    }

    /// True if the last attempt has failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Handles a refusal of the token of this serial. The account was created again, or the signing key was changed.
    pub(super) fn refused(&mut self, serial: u64, now: Instant) -> Refused {
        let young = if self.successor { PROVEN } else { FRESH };
        match self.usable(now) {
            Some(newer) if newer.serial != serial => Refused::Newer,
            Some(held) if now.saturating_duration_since(held.since) < young => Refused::Stands,
            // A token is already being requested. A second refusal does not make that faster.
            _ if self.is_failing() => Refused::Stands,
            _ => {
                self.next = now;
                self.refused = true;
                Refused::Renew
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
    async fn a_token_is_renewed_with_a_fifth_of_its_life_to_spare() {
        let now = Clock::system().now();
        for (name, life, renewed, ends) in [
            ("an hour", HOUR, secs(48 * 60), HOUR),
            ("the shortest that a server gives", secs(600), secs(480), secs(600)),
            ("our clock is ahead of the server's", secs(5), secs(480), secs(600)),
            ("nothing is left of it", Duration::ZERO, secs(480), secs(600)),
        ] {
            let mut schedule = Schedule::new(now);
            assert_eq!(schedule.next(), now, "{name}: the first is asked for at once");
            schedule.issued("a", life, now);
            assert_eq!(schedule.next() - now, renewed, "{name}");
            assert!(schedule.usable(now + ends - secs(1)).is_some(), "{name}");
            assert_eq!(schedule.usable(now + ends), None, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_tried_again_in_four_steps_and_then_calmly_with_the_old_token_in_use() {
        let now = Clock::system().now();
        let mut schedule = Schedule::new(now);
        schedule.issued("a", HOUR, now);
        let late = now + secs(48 * 60);
        let pauses = [500, 1_000, 2_000, 10_000, 10_000].map(|_| {
            schedule.failed("no answer".to_owned(), late);
            (schedule.next() - late).as_millis()
        });
        assert_eq!(pauses, [500, 1_000, 2_000, 10_000, 10_000]);
        assert_eq!(schedule.usable(late).map(|it| it.token), Some("a"), "the old one is used until its end");
        schedule.issued("b", HOUR, late);
        assert!(!schedule.is_failing());
        assert_eq!(schedule.usable(late).map(|it| (it.token, it.serial)), Some(("b", 2)));
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_first_token_is_told_after_four_tries() {
        let now = Clock::system().now();
        let mut schedule = Schedule::<&str>::new(now);
        for _ in 0..3 {
            schedule.failed("forbidden".to_owned(), now);
            assert_eq!(schedule.gives_up(), None);
        }
        schedule.failed("forbidden".to_owned(), now);
        assert_eq!(schedule.gives_up(), Some("forbidden"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_leads_to_one_new_token() {
        let now = Clock::system().now();
        let of = |serial: u64, age: Duration, failing: bool| {
            let mut schedule = Schedule::new(now);
            schedule.issued("a", HOUR, now);
            if serial == 2 {
                schedule.issued("b", HOUR, now);
            }
            if failing {
                schedule.failed("no answer".to_owned(), now + age);
            }
            let answer = schedule.refused(1, now + age);
            (answer, schedule.next() <= now + age)
        };
        assert_eq!(of(2, secs(0), false), (Refused::Newer, false), "another request has brought a newer one");
        assert_eq!(of(1, secs(60), false), (Refused::Renew, true), "the account was made anew");
        assert_eq!(of(1, secs(9), false), (Refused::Stands, false), "a fresh one is not helped by another");
        assert_eq!(of(1, secs(60), true), (Refused::Stands, false), "it is being asked for already");
        assert_eq!(of(1, HOUR, false), (Refused::Renew, true), "it has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn who_refuses_the_successor_too_means_something_else() {
        let now = Clock::system().now();
        let mut schedule = Schedule::new(now);
        schedule.issued("a", HOUR, now);
        let mut asked = Vec::new();
        for second in 0..300 {
            let now = now + secs(second);
            let serial = schedule.usable(now).unwrap().serial;
            if schedule.refused(serial, now) == Refused::Renew {
                asked.push(second);
                schedule.issued("b", HOUR, now);
            }
        }
        assert_eq!(asked, [10, 70, 130, 190, 250]);
    }
}
