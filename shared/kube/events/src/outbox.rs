use std::time::Duration;

use client::{ApiError, NotSent};
use clock::Instant;
use fastrand::Rng;
use k8s_openapi::api::core::v1::Event;

/// Tries of one Event.
const TRIES: u32 = 12;
/// Between two tries. The first wait is a random part of it, so that many recorders do not come back at once.
const PAUSE: Duration = Duration::from_secs(10);
/// With as many Events waiting the worker takes no more reports, so that the channel fills and drops.
const ROOM: usize = 1000;

/// Events on their way to the server, one entry for each: reports that come while an Event waits are joined to it.
///
/// Retries wait here, so that one Event never holds up the others.
pub(crate) struct Outbox {
    rng: Rng,
    entries: Vec<Letter>,
    /// Orders letters of one instant by their coming.
    tickets: u64,
}

/// One write to come.
#[derive(Debug)]
pub(crate) struct Letter {
    /// What the server shall hold.
    pub(crate) event: Event,
    pub(crate) verb: Verb,
    tries: u32,
    due: Instant,
    ticket: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    /// The Event should be there: its count, last time and message change.
    Patch,
}

/// What became of a try.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The server holds it.
    Written,
    /// It comes again.
    Again,
    /// It is not wanted, and that is no news: its namespace goes, or our term is over.
    Dropped,
    /// The server refused, or could not be reached often enough.
    Failed,
}

impl Outbox {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, entries: Vec::new(), tickets: 0 }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.entries.len() < ROOM
    }

    /// How many Events wait.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Takes what the server shall hold, in place of what waits for the same Event: `naming` gives no name twice.
    pub(crate) fn observe(&mut self, event: Event, now: Instant) {
        if let Some(waiting) = self.entries.iter_mut().find(|it| it.event.metadata.name == event.metadata.name) {
            waiting.event = event;
            return;
        }
        let verb = if event.count > Some(1) { Verb::Patch } else { Verb::Create };
        self.tickets += 1;
        self.entries.push(Letter { event, verb, tries: 0, due: now, ticket: self.tickets });
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.entries.iter().map(|it| it.due).min()
    }

    /// Takes the next letter whose time has come.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Letter> {
        let (at, next) = self.entries.iter().enumerate().min_by_key(|(_, it)| (it.due, it.ticket))?;
        (next.due <= now).then(|| self.entries.swap_remove(at))
    }

    /// Decides what follows a try.
    pub(crate) fn settle(&mut self, letter: Letter, result: &Result<(), ApiError>, now: Instant) -> Settled {
        let tries = letter.tries + 1;
        let letter = Letter { tries, ..letter };
        let err = match result {
            Ok(()) => return Settled::Written,
            Err(err) => err,
        };
        match err {
            // The time to live of Events is short: what we would count on is gone.
            ApiError::NotFound(_) if letter.verb == Verb::Patch => self.again(letter, Verb::Create, now),
            // Names are ours alone, so an earlier try was stored whose answer was lost, with what was known then.
            ApiError::AlreadyExists(_) if letter.event.count > Some(1) => self.again(letter, Verb::Patch, now),
            ApiError::AlreadyExists(_) => Settled::Written,
            ApiError::NotSent(NotSent::TermOver | NotSent::Stopping) => Settled::Dropped,
            err if err.is_namespace_terminating() => Settled::Dropped,
            // What the server has said is final; only what never got an answer is tried again.
            err if err.status().is_none() => {
                let wait = if tries == 1 { PAUSE.mul_f64(self.rng.f64()) } else { PAUSE };
                let verb = letter.verb;
                self.again(letter, verb, now + wait)
            }
            _ => Settled::Failed,
        }
    }

    fn again(&mut self, letter: Letter, verb: Verb, due: Instant) -> Settled {
        if letter.tries >= TRIES {
            return Settled::Failed;
        }
        self.entries.push(Letter { verb, due, ..letter });
        Settled::Again
    }
}

#[cfg(test)]
mod tests {
    use api::Status;
    use clock::Clock;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn event(name: &str, count: i32) -> Event {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        Event { metadata, count: Some(count), ..Event::default() }
    }

    fn rig() -> (Outbox, Instant) {
        (Outbox::new(Rng::with_seed(1)), Clock::system().now())
    }

    fn status(code: u16, reason: &str) -> Result<(), ApiError> {
        Err(ApiError::from_status(Status { code, reason: reason.to_owned(), ..Status::default() }, None))
    }

    #[test]
    fn what_waits_for_one_event_is_joined() {
        let (mut outbox, now) = rig();
        outbox.observe(event("a", 1), now);
        outbox.observe(event("b", 7), now);
        outbox.observe(event("a", 2), now);
        let letter = outbox.due(now).unwrap();
        assert_eq!((letter.verb, letter.event.count), (Verb::Create, Some(2)), "still to be created");
        let letter = outbox.due(now).unwrap();
        assert_eq!((letter.verb, letter.event.count), (Verb::Patch, Some(7)));
        assert!(outbox.due(now).is_none());
    }

    #[test]
    fn a_patch_of_an_event_that_is_gone_becomes_a_create() {
        let (mut outbox, now) = rig();
        outbox.observe(event("a", 2), now);
        let letter = outbox.due(now).unwrap();
        assert!(matches!(outbox.settle(letter, &status(404, "NotFound"), now), Settled::Again));
        let letter = outbox.due(now).unwrap();
        assert_eq!((letter.verb, letter.event.count), (Verb::Create, Some(2)));
        assert!(
            matches!(outbox.settle(letter, &status(404, "NotFound"), now), Settled::Failed),
            "the namespace is gone"
        );
    }

    #[test]
    fn an_event_whose_creation_was_stored_unseen_still_gets_its_count() {
        let (mut outbox, now) = rig();
        outbox.observe(event("a", 1), now);
        let letter = outbox.due(now).unwrap();
        outbox.settle(letter, &Err(ApiError::unknown("connection reset")), now);
        outbox.observe(event("a", 5), now);
        let later = now + PAUSE;
        let letter = outbox.due(later).unwrap();
        assert_eq!(letter.verb, Verb::Create);
        assert!(matches!(outbox.settle(letter, &status(409, "AlreadyExists"), later), Settled::Again));
        let letter = outbox.due(later).unwrap();
        assert_eq!((letter.verb, letter.event.count), (Verb::Patch, Some(5)));
        assert!(matches!(outbox.settle(letter, &Ok(()), later), Settled::Written));
    }

    #[test]
    fn only_what_got_no_answer_is_tried_again() {
        let terminating = Status {
            code: 403,
            details: api::Details {
                causes: vec![api::Cause { reason: "NamespaceTerminating".to_owned(), ..api::Cause::default() }],
                ..api::Details::default()
            },
            ..Status::default()
        };
        let unreachable = NotSent::Unreachable("refused".to_owned());
        for (name, result, want) in [
            ("stored", Ok(()), "Written"),
            ("stored by an earlier try", status(409, "AlreadyExists"), "Written"),
            ("namespace terminating", Err(ApiError::from_status(terminating, None)), "Dropped"),
            ("term over", Err(ApiError::NotSent(NotSent::TermOver)), "Dropped"),
            ("stopping", Err(ApiError::NotSent(NotSent::Stopping)), "Dropped"),
            ("forbidden", status(403, "Forbidden"), "Failed"),
            ("internal error", status(500, "InternalError"), "Failed"),
            ("overload", status(429, "TooManyRequests"), "Failed"),
            ("no connection", Err(ApiError::NotSent(unreachable)), "Again"),
            ("no answer", Err(ApiError::unknown("connection reset")), "Again"),
        ] {
            let (mut outbox, now) = rig();
            outbox.observe(event("a", 1), now);
            let letter = outbox.due(now).unwrap();
            assert_eq!(format!("{:?}", outbox.settle(letter, &result, now)), want, "{name}");
            assert_eq!(outbox.next_deadline().is_some(), want == "Again", "{name}");
        }
    }
}
