//! The list and watch loop as a state machine without I/O.
//!
//! [`Reflector::next`] returns the next step; the other methods report its result. Only this module decides about
//! versions, paging, fallbacks, back-off, timeouts, and whether a silent stream is frozen.

mod backoff;
mod failure;
mod query;
#[cfg(test)]
mod tests;
mod types;

use std::time::Duration;

use api::{Event, Version};
use clock::Instant;
use fastrand::Rng;

use self::{
    backoff::Backoff,
    query::{is_any_version, list_query, set_query, watch_query},
};
pub(crate) use self::{
    failure::Failure,
    types::{FrameAction, InformerKind, PageOutcome, ReceivedFrame, ReflectorStep, Silence, StreamEnd},
};

/// The most frames that are read at once. A set is read in smaller batches, so that not too much JSON is in memory.
const BATCH: usize = 1_000;
const SET_BATCH: usize = 64;
/// A streamed set without a frame for this long will not arrive: old aggregated servers ignore `sendInitialEvents` and
/// keep the stream open.
const SET_SILENCE: Duration = Duration::from_secs(30);
/// A streamed set that is not complete after this time is given up, even if frames still arrive.
const SET_LIMIT: Duration = Duration::from_secs(300);
/// For how long a type is listed (without WatchList) after a stream brought no set.
const LIST_FALLBACK: Duration = Duration::from_secs(600);
/// After this many streams in a row that end before their set is complete, the type is listed (without WatchList).
const INTERRUPTED_SETS: u32 = 2;
/// The limit for the response to a watch request when the stream before was silent. Together with that silence it is
/// below the 90 s within which a frozen connection must be replaced. Otherwise the client's own limit applies.
const OPENING_AFTER_SILENCE: Duration = Duration::from_secs(10);
/// A stream is frozen when it is silent for this long after its timeout.
const GRACE: Duration = Duration::from_secs(10);
/// After this silence the long stream of a typed set is replaced by a watch with the short timeout of typed watches.
const QUIET: Duration = Duration::from_secs(75);
/// A watch that ends sooner and without a frame is an error and backs off, so that the loop does not spin (client-go's
/// `VeryShortWatchError`).
const VERY_SHORT: Duration = Duration::from_secs(1);
/// `timeoutSeconds` of the watch that proves the cache of a new leader.
const PROOF_SECONDS: u64 = 3;

/// The state of the loop.
#[derive(Debug)]
pub(crate) struct Reflector {
    kind: InformerKind,
    rng: Rng,
    backoff: Backoff,
    phase: Phase,
    /// The last version seen; empty before the first set.
    version: Version,
    /// The server has refused this version: the next set is requested without one, so as the most recent state.
    version_refused: bool,
    /// Until then a set is listed and not streamed.
    list_until: Option<Instant>,
    /// How many streams in a row ended before their set was complete.
    interrupted_sets: u32,
    /// A list with resourceVersion 0 came in pages, so the server has no watch cache. Then every list may be paged.
    always_paged: bool,
    /// Since when a response has been due.
    unanswered_since: Option<Instant>,
    /// When the first request failed after the last watch was open.
    failing_since: Option<Instant>,
    /// A new leader waits for the next request.
    urgent: bool,
}

#[derive(Debug)]
enum Phase {
    OpenSet { seconds: u64 },
    Set { opened: Instant, last_frame: Instant, ends: Instant, frames: u64 },
    List { requested: Version, paged: bool, next: String, version: Option<Version> },
    OpenWatch { seconds: u64, within: Option<Duration> },
    Watch(WatchStream),
    Wait { until: Instant, then: AfterWait },
}

/// An open watch.
#[derive(Debug)]
struct WatchStream {
    opened: Instant,
    /// When the last frame came, or the stream was opened.
    last_frame: Instant,
    /// When the server should end the stream.
    ends: Instant,
    frames: u64,
    /// It is the stream that brought a typed set.
    long: bool,
    /// It was opened without a version, so it replays existing objects. Their versions are in no order and do not move
    /// `version`.
    replaying: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterWait {
    Set,
    Watch,
}

impl Reflector {
    pub(crate) fn new(kind: InformerKind, rng: Rng) -> Self {
        let mut reflector = Self {
            kind,
            rng,
            backoff: Backoff::new(),
            phase: Phase::OpenSet { seconds: 0 },
            version: Version::default(),
            version_refused: false,
            list_until: None,
            interrupted_sets: 0,
            always_paged: false,
            unanswered_since: None,
            failing_since: None,
            urgent: false,
        };
        reflector.phase = Phase::OpenSet { seconds: reflector.long_timeout() };
        reflector
    }

    /// The last version seen.
    pub(crate) fn version(&self) -> &Version {
        &self.version
    }

    /// Since when a response has been due.
    pub(crate) fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered_since
    }

    /// Since when no request has succeeded. `None` while a watch is open, and before the first failure.
    pub(crate) fn failing_since(&self) -> Option<Instant> {
        self.failing_since
    }

    /// True when a new leader waits for the next request: it must not wait for the rate limiter.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// The next step.
    pub(crate) fn next(&mut self, now: Instant) -> ReflectorStep {
        if let Phase::Wait { until, then } = self.phase
            && until <= now
        {
            match then {
                AfterWait::Set => self.start_set(now),
                AfterWait::Watch => self.open_watch(None),
            }
        }
        match &self.phase {
            Phase::OpenSet { seconds } => {
                let query = set_query(&self.set_version(), *seconds);
                ReflectorStep::Open { query, within: None, set: true }
            }
            Phase::Set { opened, last_frame, .. } => {
                ReflectorStep::Read { until: (*last_frame + SET_SILENCE).min(*opened + SET_LIMIT), most: SET_BATCH }
            }
            Phase::List { requested, paged, next, version } => {
                ReflectorStep::List { query: list_query(requested, *paged, next), first: version.is_none() }
            }
            Phase::OpenWatch { seconds, within } => {
                ReflectorStep::Open { query: watch_query(&self.version, *seconds), within: *within, set: false }
            }
            Phase::Watch(stream) => ReflectorStep::Read { until: stream.deadline(), most: BATCH },
            Phase::Wait { until, .. } => ReflectorStep::Wait { until: *until },
        }
    }

    /// The request of the present step has been sent, so a response is due from now on. A wait for the rate limiter
    /// before does not count as a missing response.
    pub(crate) fn on_request_sent(&mut self, now: Instant) {
        self.unanswered_since.get_or_insert(now);
    }

    /// The requested watch is open.
    pub(crate) fn on_opened(&mut self, now: Instant) {
        self.unanswered_since = None;
        match self.phase {
            Phase::OpenSet { seconds } => {
                let ends = now + Duration::from_secs(seconds);
                self.phase = Phase::Set { opened: now, last_frame: now, ends, frames: 0 };
            }
            Phase::OpenWatch { seconds, .. } => {
                self.urgent = false;
                self.failing_since = None;
                let ends = now + Duration::from_secs(seconds);
                let replaying = is_any_version(&self.version);
                self.phase =
                    Phase::Watch(WatchStream { opened: now, last_frame: now, ends, frames: 0, long: false, replaying });
            }
            _ => {}
        }
    }

    /// The requested watch could not be opened. Returns true when this shows that the stream before was frozen: it was
    /// silent, and the server did not answer the new request either.
    pub(crate) fn on_open_failed(&mut self, failure: Failure, now: Instant) -> bool {
        let frozen = self.is_silent_again(failure, now);
        self.record_response(failure);
        match self.phase {
            Phase::OpenSet { .. } => self.on_set_refused(failure, now),
            Phase::OpenWatch { .. } => match failure {
                Failure::Unreachable => self.wait(None, AfterWait::Watch, now),
                Failure::Busy(after) => self.wait(after, AfterWait::Watch, now),
                // The next set is requested as not older than the last version. Only when the server refuses that, the
                // most recent one is requested.
                Failure::Expired | Failure::TooLarge | Failure::Other => self.wait(None, AfterWait::Set, now),
            },
            _ => {}
        }
        frozen
    }

    /// A frame came.
    pub(crate) fn on_frame(&mut self, frame: &ReceivedFrame<'_>, now: Instant) -> FrameAction {
        self.unanswered_since = None;
        match &mut self.phase {
            Phase::Set { last_frame, frames, .. } => {
                *last_frame = now;
                *frames += 1;
                self.on_set_frame(frame, now)
            }
            Phase::Watch(stream) => {
                stream.last_frame = now;
                stream.frames += 1;
                self.on_watch_frame(frame, now)
            }
            _ => FrameAction::Stop { expired: false },
        }
    }

    /// The stream has ended.
    pub(crate) fn on_ended(&mut self, end: StreamEnd, now: Instant) {
        if end == StreamEnd::Clean {
            self.unanswered_since = None;
        }
        match &self.phase {
            Phase::Set { .. } => {
                self.interrupted_sets += 1;
                if self.interrupted_sets >= INTERRUPTED_SETS {
                    self.list_until = Some(now + LIST_FALLBACK);
                }
                self.wait(None, AfterWait::Set, now);
            }
            Phase::Watch(stream) => {
                let very_short = stream.frames == 0 && now.saturating_duration_since(stream.opened) < VERY_SHORT;
                match end {
                    _ if !very_short => self.open_watch(None),
                    StreamEnd::Clean => self.wait(None, AfterWait::Set, now),
                    // Cut and not ended by the server: the version is still valid.
                    StreamEnd::Broken => self.wait(None, AfterWait::Watch, now),
                }
            }
            _ => {}
        }
    }

    /// No frame came until the time in [`ReflectorStep::Read`].
    pub(crate) fn on_silent(&mut self, now: Instant) -> Silence {
        match &self.phase {
            Phase::Watch(stream) if stream.long && now < stream.overdue() => {
                self.open_watch(Some(OPENING_AFTER_SILENCE));
                Silence::Quiet
            }
            Phase::Watch(stream) => {
                let due = stream.ends.max(stream.last_frame);
                self.unanswered_since.get_or_insert(due);
                self.open_watch(None);
                Silence::Frozen
            }
            _ => {
                self.list_until = Some(now + LIST_FALLBACK);
                self.start_set(now);
                Silence::NoSet
            }
        }
    }

    /// A page came, with the list's version and the continue token.
    pub(crate) fn on_page(&mut self, page: &Version, token: String) -> PageOutcome {
        self.unanswered_since = None;
        let Phase::List { requested, next, version, .. } = &mut self.phase else { return PageOutcome::More };
        // All pages show the state of the first page.
        let version = version.get_or_insert_with(|| page.clone());
        if !token.is_empty() {
            self.always_paged |= requested.to_string() == "0";
            *next = token;
            return PageOutcome::More;
        }
        let consistent = requested.is_empty();
        let version = version.clone();
        self.on_set_complete(version);
        self.open_watch(None);
        PageOutcome::Complete { consistent }
    }

    /// A page could not be read.
    pub(crate) fn on_list_failed(&mut self, failure: Failure, now: Instant) {
        self.record_response(failure);
        let Phase::List { requested, version, .. } = &self.phase else { return };
        let in_the_middle = version.is_some();
        match failure {
            // The continue token has expired: list again without pages, which cannot expire halfway.
            Failure::Expired if in_the_middle => {
                let requested = requested.clone();
                self.phase = Phase::List { requested, paged: false, next: String::new(), version: None };
            }
            Failure::Expired | Failure::TooLarge if !requested.is_empty() => {
                self.version_refused = true;
                self.start_list();
            }
            Failure::Busy(after) => self.wait(after, AfterWait::Set, now),
            Failure::Unreachable | Failure::Expired | Failure::TooLarge | Failure::Other => {
                self.wait(None, AfterWait::Set, now);
            }
        }
    }

    /// Reopens the watch for a short time, so that the server soon sends a bookmark. Returns false and does nothing
    /// when no watch is open or will be opened from the last version.
    pub(crate) fn reopen_for_proof(&mut self) -> bool {
        let watches = matches!(
            self.phase,
            Phase::OpenWatch { .. } | Phase::Watch(_) | Phase::Wait { then: AfterWait::Watch, .. }
        );
        if watches {
            self.urgent = true;
            self.phase = Phase::OpenWatch { seconds: PROOF_SECONDS, within: None };
        }
        watches
    }

    /// Requests the most recent set now.
    pub(crate) fn relist_consistently(&mut self, now: Instant) {
        self.version_refused = true;
        self.urgent = true;
        self.start_set(now);
    }

    fn on_set_frame(&mut self, frame: &ReceivedFrame<'_>, now: Instant) -> FrameAction {
        match frame {
            ReceivedFrame::Object(..) => FrameAction::Collect,
            ReceivedFrame::Bookmark { initial_end: false, .. } => FrameAction::Progress,
            ReceivedFrame::Bookmark { version, initial_end: true } => {
                let consistent = self.set_version().is_empty();
                self.on_set_complete((*version).clone());
                if let Phase::Set { opened, last_frame, ends, frames } = self.phase {
                    let long = self.kind == InformerKind::Typed;
                    self.phase = Phase::Watch(WatchStream { opened, last_frame, ends, frames, long, replaying: false });
                }
                FrameAction::Complete { consistent }
            }
            ReceivedFrame::Error(status) => {
                let failure = Failure::of_status(status);
                self.on_set_refused(failure, now);
                FrameAction::Stop { expired: failure == Failure::Expired }
            }
            ReceivedFrame::Garbage => {
                self.on_set_refused(Failure::Other, now);
                FrameAction::Stop { expired: false }
            }
        }
    }

    fn on_watch_frame(&mut self, frame: &ReceivedFrame<'_>, now: Instant) -> FrameAction {
        match frame {
            ReceivedFrame::Object(event, version) => {
                let Phase::Watch(stream) = &mut self.phase else { return FrameAction::Progress };
                stream.replaying &= *event == Event::Added;
                if !stream.replaying {
                    self.version = (*version).clone();
                }
                FrameAction::Apply
            }
            ReceivedFrame::Bookmark { version, .. } => {
                let Phase::Watch(stream) = &mut self.phase else { return FrameAction::Progress };
                stream.replaying = false;
                self.version = (*version).clone();
                FrameAction::Progress
            }
            ReceivedFrame::Error(status) => {
                let failure = Failure::of_status(status);
                match failure {
                    Failure::Busy(after) => self.wait(after, AfterWait::Watch, now),
                    _ => self.wait(None, AfterWait::Set, now),
                }
                FrameAction::Stop { expired: failure == Failure::Expired }
            }
            ReceivedFrame::Garbage => {
                self.wait(None, AfterWait::Set, now);
                FrameAction::Stop { expired: false }
            }
        }
    }

    /// A streamed set was refused, when it was opened or later.
    fn on_set_refused(&mut self, failure: Failure, now: Instant) {
        match failure {
            Failure::Unreachable => self.wait(None, AfterWait::Set, now),
            Failure::Busy(after) => self.wait(after, AfterWait::Set, now),
            Failure::Expired | Failure::TooLarge if !self.set_version().is_empty() => {
                self.version_refused = true;
                self.start_set(now);
            }
            // For this attempt only, because the server may be upgraded.
            Failure::Expired | Failure::TooLarge | Failure::Other => self.start_list(),
        }
    }

    fn on_set_complete(&mut self, version: Version) {
        self.version = version;
        self.version_refused = false;
        self.failing_since = None;
        self.interrupted_sets = 0;
        self.urgent = false;
    }

    fn start_set(&mut self, now: Instant) {
        if self.list_until.is_some_and(|until| now < until) {
            self.start_list();
        } else {
            self.phase = Phase::OpenSet { seconds: self.long_timeout() };
        }
    }

    fn start_list(&mut self) {
        let requested = match self.set_version() {
            // For the first set any cached state is good enough.
            version if version.is_empty() && !self.version_refused => Version::new("0"),
            version => version,
        };
        // With any other version the watch cache ignores `limit`, and a server without a watch cache may answer that
        // the version is too old.
        let paged = is_any_version(&requested) || self.always_paged;
        self.phase = Phase::List { requested, paged, next: String::new(), version: None };
    }

    fn open_watch(&mut self, within: Option<Duration>) {
        let seconds = match self.kind {
            InformerKind::Typed => self.rng.u64(60..75),
            InformerKind::Dynamic => self.long_timeout(),
        };
        self.phase = Phase::OpenWatch { seconds, within };
    }

    /// The oldest version that the next set may have; empty for the most recent state.
    fn set_version(&self) -> Version {
        if self.version_refused { Version::default() } else { self.version.clone() }
    }

    fn long_timeout(&mut self) -> u64 {
        self.rng.u64(300..600)
    }

    fn wait(&mut self, at_least: Option<Duration>, then: AfterWait, now: Instant) {
        self.failing_since.get_or_insert(now);
        let delay = self.backoff.delay(now, &mut self.rng).max(at_least.unwrap_or_default());
        self.phase = Phase::Wait { until: now + delay, then };
    }

    /// True when the stream before was silent and the server did not answer the new watch request in time.
    fn is_silent_again(&self, failure: Failure, now: Instant) -> bool {
        let Phase::OpenWatch { within: Some(within), .. } = self.phase else { return false };
        let no_response = self.unanswered_since.is_some_and(|since| now.saturating_duration_since(since) >= within);
        failure == Failure::Unreachable && no_response
    }

    fn record_response(&mut self, failure: Failure) {
        if failure != Failure::Unreachable {
            self.unanswered_since = None;
        }
    }
}

impl WatchStream {
    /// When the stream counts as frozen.
    fn overdue(&self) -> Instant {
        self.ends.max(self.last_frame) + GRACE
    }

    fn deadline(&self) -> Instant {
        if self.long { self.overdue().min(self.last_frame + QUIET) } else { self.overdue() }
    }
}
