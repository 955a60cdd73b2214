use std::time::Duration;

use client::{ApiError, NotSent};
use clock::Instant;
use fastrand::Rng;
use k8s_openapi::api::core::v1::Event;

/// The maximum number of attempts for one Event.
const TRIES: u32 = 12;
/// The pause between two attempts. The first pause is a random part of it, so that many recorders do not retry at the
/// same time.
const PAUSE: Duration = Duration::from_secs(10);
/// With this number of waiting Events the worker takes no more reports. The channel then fills up and drops reports.
const ROOM: usize = 1000;

/// The Events to write, one entry for each. A report for an Event that is waiting is merged into its entry.
///
/// Retries wait here, so that they do not delay other Events.
pub(crate) struct Outbox {
    rng: Rng,
    entries: Vec<Letter>,
    /// Orders the entries of one instant by arrival.
    tickets: u64,
}

/// One Event to write.
#[derive(Debug)]
pub(crate) struct Letter {
    /// The Event to store.
    pub(crate) event: Event,
    pub(crate) verb: Verb,
    tries: u32,
    due: Instant,
    ticket: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    /// The Event should exist. Its count, last time and message are changed.
    Patch,
}

/// The result of an attempt.
#[derive(Debug)]
pub(crate) enum Settled {
    /// The Event is stored.
    Written,
    /// The Event will be tried again.
    Again,
    /// The Event is dropped without an error: its namespace is terminating, or our term is over.
    Dropped,
    /// The server refused the Event, or could not be reached in any attempt.
    Failed,
}

impl Outbox {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, entries: Vec::new(), tickets: 0 }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.entries.len() < ROOM
    }

    /// The number of waiting Events.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an Event, or replaces the waiting one of the same name. `naming` never uses a name twice for different
    /// Events.
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

    /// Takes the next Event that is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Letter> {
        let (at, next) = self.entries.iter().enumerate().min_by_key(|(_, it)| (it.due, it.ticket))?;
        (next.due <= now).then(|| self.entries.swap_remove(at))
    }

    /// Decides what follows an attempt.
    pub(crate) fn settle(&mut self, letter: Letter, result: &Result<(), ApiError>, now: Instant) -> Settled {
        let tries = letter.tries + 1;
        let letter = Letter { tries, ..letter };
        let err = match result {
            Ok(()) => return Settled::Written,
            Err(err) => err,
        };
        match err {
            // Events have a short time to live, so the Event to patch may have expired.
            ApiError::NotFound(_) if letter.verb == Verb::Patch => self.again(letter, Verb::Create, now),
            // Only we use this name. So an earlier attempt was stored with its content of that time, and its response
            // was lost.
            ApiError::AlreadyExists(_) if letter.event.count > Some(1) => self.again(letter, Verb::Patch, now),
            ApiError::AlreadyExists(_) => Settled::Written,
            ApiError::NotSent(NotSent::TermOver | NotSent::Stopping) => Settled::Dropped,
            err if err.is_namespace_terminating() => Settled::Dropped,
            // A response of the server is final. Only an attempt without a response is repeated.
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
