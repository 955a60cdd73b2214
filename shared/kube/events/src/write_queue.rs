use std::time::Duration;

use client::{ApiError, NotSent};
use clock::Instant;
use fastrand::Rng;
use k8s_openapi::api::core::v1::Event;

/// The maximum number of attempts for one Event.
const MAX_ATTEMPTS: u32 = 12;
/// The pause between two attempts. The first pause is a random part of it, so that many recorders do not retry at the
/// same time.
const PAUSE: Duration = Duration::from_secs(10);
/// With this number of waiting Events the worker takes no more reports. The channel then fills up and drops reports.
const CAPACITY: usize = 1000;

/// The Events to write, one entry for each. A report for an Event that is waiting is merged into its entry.
///
/// Retries wait here, so that they do not delay other Events.
pub(crate) struct WriteQueue {
    rng: Rng,
    entries: Vec<QueuedEvent>,
    /// Orders the entries of one instant by arrival.
    last_sequence: u64,
}

/// One Event to write.
#[derive(Debug)]
pub(crate) struct QueuedEvent {
    /// The Event to store.
    pub(crate) event: Event,
    pub(crate) verb: Verb,
    attempts: u32,
    due: Instant,
    sequence: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    /// The Event should exist. Its count, last time and message are changed.
    Patch,
}

/// The result of an attempt.
#[derive(Debug)]
pub(crate) enum AttemptOutcome {
    /// The Event is stored.
    Written,
    /// The Event will be tried again.
    Retry,
    /// The Event is dropped without an error: its namespace is terminating, or our term is over.
    Dropped,
    /// The server refused the Event, or could not be reached in any attempt.
    Failed,
}

impl WriteQueue {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, entries: Vec::new(), last_sequence: 0 }
    }

    pub(crate) fn has_capacity(&self) -> bool {
        self.entries.len() < CAPACITY
    }

    /// The number of waiting Events.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an Event, or replaces the waiting one of the same name. `name_generator` never uses a name twice for
    /// different Events.
    pub(crate) fn add(&mut self, event: Event, now: Instant) {
        if let Some(waiting) = self.entries.iter_mut().find(|it| it.event.metadata.name == event.metadata.name) {
            waiting.event = event;
            return;
        }
        let verb = if event.count > Some(1) { Verb::Patch } else { Verb::Create };
        self.last_sequence += 1;
        self.entries.push(QueuedEvent { event, verb, attempts: 0, due: now, sequence: self.last_sequence });
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.entries.iter().map(|it| it.due).min()
    }

    /// Takes the next Event that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<QueuedEvent> {
        let (at, next) = self.entries.iter().enumerate().min_by_key(|(_, it)| (it.due, it.sequence))?;
        (next.due <= now).then(|| self.entries.swap_remove(at))
    }

    /// Decides what follows an attempt.
    pub(crate) fn finish_attempt(
        &mut self,
        queued: QueuedEvent,
        result: &Result<(), ApiError>,
        now: Instant,
    ) -> AttemptOutcome {
        let attempts = queued.attempts + 1;
        let queued = QueuedEvent { attempts, ..queued };
        let err = match result {
            Ok(()) => return AttemptOutcome::Written,
            Err(err) => err,
        };
        match err {
            // Events have a short time to live, so the Event to patch may have expired.
            ApiError::NotFound(_) if queued.verb == Verb::Patch => self.requeue(queued, Verb::Create, now),
            // Only we use this name. So an earlier attempt was stored with its content of that time, and its response
            // was lost.
            ApiError::AlreadyExists(_) if queued.event.count > Some(1) => self.requeue(queued, Verb::Patch, now),
            ApiError::AlreadyExists(_) => AttemptOutcome::Written,
            ApiError::NotSent(NotSent::TermEnded | NotSent::Stopping) => AttemptOutcome::Dropped,
            err if err.is_namespace_terminating() => AttemptOutcome::Dropped,
            // A response of the server is final. Only an attempt without a response is repeated.
            err if err.status().is_none() => {
                let wait = if attempts == 1 { PAUSE.mul_f64(self.rng.f64()) } else { PAUSE };
                let verb = queued.verb;
                self.requeue(queued, verb, now + wait)
            }
            _ => AttemptOutcome::Failed,
        }
    }

    fn requeue(&mut self, queued: QueuedEvent, verb: Verb, due: Instant) -> AttemptOutcome {
        if queued.attempts >= MAX_ATTEMPTS {
            return AttemptOutcome::Failed;
        }
        self.entries.push(QueuedEvent { verb, due, ..queued });
        AttemptOutcome::Retry
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

    fn rig() -> (WriteQueue, Instant) {
        (WriteQueue::new(Rng::with_seed(1)), Clock::system().now())
    }

    fn status(code: u16, reason: &str) -> Result<(), ApiError> {
        Err(ApiError::from_status(Status { code, reason: reason.to_owned(), ..Status::default() }, None))
    }

    #[test]
    fn waiting_writes_of_one_event_are_merged() {
        let (mut write_queue, now) = rig();
        write_queue.add(event("a", 1), now);
        write_queue.add(event("b", 7), now);
        write_queue.add(event("a", 2), now);
        let queued = write_queue.take_due(now).unwrap();
        assert_eq!((queued.verb, queued.event.count), (Verb::Create, Some(2)), "still to be created");
        let queued = write_queue.take_due(now).unwrap();
        assert_eq!((queued.verb, queued.event.count), (Verb::Patch, Some(7)));
        assert!(write_queue.take_due(now).is_none());
    }

    #[test]
    fn patch_of_an_expired_event_becomes_a_create() {
        let (mut write_queue, now) = rig();
        write_queue.add(event("a", 2), now);
        let queued = write_queue.take_due(now).unwrap();
        assert!(matches!(write_queue.finish_attempt(queued, &status(404, "NotFound"), now), AttemptOutcome::Retry));
        let queued = write_queue.take_due(now).unwrap();
        assert_eq!((queued.verb, queued.event.count), (Verb::Create, Some(2)));
        assert!(
            matches!(write_queue.finish_attempt(queued, &status(404, "NotFound"), now), AttemptOutcome::Failed),
            "the namespace is gone"
        );
    }

    #[test]
    fn event_whose_create_response_was_lost_gets_its_count() {
        let (mut write_queue, now) = rig();
        write_queue.add(event("a", 1), now);
        let queued = write_queue.take_due(now).unwrap();
        write_queue.finish_attempt(queued, &Err(ApiError::unknown("connection reset")), now);
        write_queue.add(event("a", 5), now);
        let later = now + PAUSE;
        let queued = write_queue.take_due(later).unwrap();
        assert_eq!(queued.verb, Verb::Create);
        assert!(matches!(
            write_queue.finish_attempt(queued, &status(409, "AlreadyExists"), later),
            AttemptOutcome::Retry
        ));
        let queued = write_queue.take_due(later).unwrap();
        assert_eq!((queued.verb, queued.event.count), (Verb::Patch, Some(5)));
        assert!(matches!(write_queue.finish_attempt(queued, &Ok(()), later), AttemptOutcome::Written));
    }

    #[test]
    fn only_an_attempt_without_a_response_is_retried() {
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
            ("term over", Err(ApiError::NotSent(NotSent::TermEnded)), "Dropped"),
            ("stopping", Err(ApiError::NotSent(NotSent::Stopping)), "Dropped"),
            ("forbidden", status(403, "Forbidden"), "Failed"),
            ("internal error", status(500, "InternalError"), "Failed"),
            ("overload", status(429, "TooManyRequests"), "Failed"),
            ("no connection", Err(ApiError::NotSent(unreachable)), "Retry"),
            ("no answer", Err(ApiError::unknown("connection reset")), "Retry"),
        ] {
            let (mut write_queue, now) = rig();
            write_queue.add(event("a", 1), now);
            let queued = write_queue.take_due(now).unwrap();
            assert_eq!(format!("{:?}", write_queue.finish_attempt(queued, &result, now)), want, "{name}");
            assert_eq!(write_queue.next_deadline().is_some(), want == "Retry", "{name}");
        }
    }
}
