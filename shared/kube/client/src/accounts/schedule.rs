use std::time::Duration;

use clock::Instant;

/// The server gives no token for less, so a shorter life means that our clocks differ.
const SHORTEST_LIFE: Duration = Duration::from_mins(10);
/// Of a token's life that is left when it is renewed, in percent.
const LEEWAY: u32 = 20;
/// After a failure: doubled each time, as often as upstream tries.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// So many tries follow each other closely; who waits for a first token is told of the failure then.
const STEPS: u32 = 4;
/// Between tries after that.
const LONG_PAUSE: Duration = Duration::from_secs(10);
/// A token younger than this that is refused is not helped by another one.
const FRESH: Duration = Duration::from_secs(10);
/// So long the successor of a refused token is not held responsible: whoever refuses both means something else, such as
/// another server behind the API server.
const PROVEN: Duration = Duration::from_mins(1);

/// When an account's token is asked for, and which one is used meanwhile.
pub(super) struct Schedule<T> {
    held: Option<Held<T>>,
    /// Tries since the last success.
    failures: u32,
    /// What the last try said, if it failed.
    failed: Option<String>,
    next: Instant,
    /// A refusal had the next token asked for.
    refused: bool,
    /// The token that is held came for one that was refused.
    successor: bool,
}

/// A token and its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held<T> {
    pub(super) token: T,
    /// Tells it from its predecessor.
    pub(super) serial: u64,
    since: Instant,
    ends: Instant,
}

/// What becomes of a request that was refused with 401.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// A newer token is there already.
    Newer,
    /// Another one is asked for.
    Renew,
    /// The refusal stands.
    Stands,
}

impl<T: Clone> Schedule<T> {
    pub(super) fn new(now: Instant) -> Self {
        Self { held: None, failures: 0, failed: None, next: now, refused: false, successor: false }
    }

    /// When the next token is to be asked for.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// A token came, which was `asked` for then and lives so long.
    pub(super) fn issued(&mut self, token: T, life: Duration, asked: Instant) {
        let life = life.max(SHORTEST_LIFE);
        let serial = self.held.as_ref().map_or(0, |it| it.serial) + 1;
        self.held = Some(Held { token, serial, since: asked, ends: asked + life });
        self.next = asked + life * (100 - LEEWAY) / 100;
        self.failures = 0;
        self.failed = None;
        self.successor = std::mem::take(&mut self.refused);
    }

    /// No token came. The old one is used on, until its end.
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

    /// Why who waits for a token waits no longer.
    pub(super) fn gives_up(&self) -> Option<&str> {
        self.failed.as_deref().filter(|_| self.failures >= STEPS)
    }

    /// True while the last try has failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// The server does not know the token of this number any more: its account was made anew, or its key was changed.
    pub(super) fn refused(&mut self, serial: u64, now: Instant) -> Refused {
        let young = if self.successor { PROVEN } else { FRESH };
        match self.usable(now) {
            Some(newer) if newer.serial != serial => Refused::Newer,
            Some(held) if now.saturating_duration_since(held.since) < young => Refused::Stands,
            // It is being asked for, and not faster for being refused once more.
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
