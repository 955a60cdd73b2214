use std::{fmt, str::FromStr, time::Duration};

use clock::Instant;

use super::{
    plan::{EventFault, LONG_PAUSE, RequestFault, ServerError},
    request::SimRequest,
};

/// For how long the API server shows no newer state after all processes were killed: until another process is the
/// leader.
const STALE_DURATION: Duration = LONG_PAUSE;
/// For how long watches do not show a create whose sender has crashed: until another process is the leader.
const HIDDEN_DURATION: Duration = Duration::from_secs(5);

/// One fault at one place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Script {
    kind: Kind,
    at: At,
    /// The fault was carried out and had an effect.
    pub(crate) took_effect: bool,
    /// The state of faults with two steps.
    refuse_watch: bool,
    show_old: bool,
    crashed: bool,
    /// From when and until when the server shows no newer state.
    hidden: Option<[Instant; 2]>,
}

/// The number of the request, event or version of a run, and for some kinds the version that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) number: u64,
    pub(crate) view: Option<u64>,
}

/// The faults of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    CrashBefore,
    CrashAfter,
    CrashHeld,
    LoseAnswer,
    FailRequest,
    ErrorAfter,
    Race,
    Pause,
    Stop,
    DelayEvent,
    DropEvent,
    ExpireEvent,
    FreezeEvent,
    RelistOld,
    FirstView,
    RestartInPast,
}

/// What the number of a place counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Request,
    Event,
    /// A version that a first list may show.
    View,
    /// A version at which all processes are killed, and the earlier one that is shown after it.
    Restart,
}

/// Every kind with its name in `SWEEP`.
pub(crate) const KINDS: [(&str, Kind, Place); 16] = [
    ("crash-before-request", Kind::CrashBefore, Place::Request),
    ("crash-after-request", Kind::CrashAfter, Place::Request),
    ("crash-at-held-create", Kind::CrashHeld, Place::Request),
    ("lose-answer", Kind::LoseAnswer, Place::Request),
    ("fail-request", Kind::FailRequest, Place::Request),
    ("error-after-request", Kind::ErrorAfter, Place::Request),
    ("race-before-request", Kind::Race, Place::Request),
    ("pause-at-request", Kind::Pause, Place::Request),
    ("stop-at-request", Kind::Stop, Place::Request),
    ("delay-event", Kind::DelayEvent, Place::Event),
    ("drop-before-event", Kind::DropEvent, Place::Event),
    ("expire-before-event", Kind::ExpireEvent, Place::Event),
    ("freeze-before-event", Kind::FreezeEvent, Place::Event),
    ("relist-old-before-event", Kind::RelistOld, Place::Event),
    ("first-view-at-version", Kind::FirstView, Place::View),
    ("restart-in-past", Kind::RestartInPast, Place::Restart),
];

impl At {
    pub(crate) fn number(number: u64) -> Self {
        Self { number, view: None }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.view {
            None => write!(f, "{}", self.number),
            Some(view) => write!(f, "{}/{view}", self.number),
        }
    }
}

impl FromStr for At {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            None => Ok(Self::number(text.parse()?)),
            Some((number, view)) => Ok(Self { number: number.parse()?, view: Some(view.parse()?) }),
        }
    }
}

impl Kind {
    /// True for kinds that can happen at every place: up to the fault the run equals the one without faults. The other
    /// kinds need an object that can be changed, a process that was not stopped yet, or an older state.
    pub(crate) fn can_always_happen(self) -> bool {
        !matches!(
            self,
            Self::CrashHeld | Self::Race | Self::Stop | Self::RelistOld | Self::FirstView | Self::RestartInPast
        )
    }
}

impl Script {
    pub(crate) fn new(kind: Kind, at: At) -> Self {
        Self { kind, at, took_effect: false, refuse_watch: false, show_old: false, crashed: false, hidden: None }
    }

    pub(crate) fn request_fault(&mut self, asked: &SimRequest, number: u64, now: Instant) -> RequestFault {
        if asked.is_streamed_list() && (self.kind == Kind::FirstView || self.crashed) {
            return RequestFault::Answered(ServerError::NoStreamedList);
        }
        if self.refuse_watch && asked.is_watch() && !asked.is_streamed_list() {
            self.refuse_watch = false;
            self.show_old = true;
            return RequestFault::Answered(ServerError::Storage);
        }
        if number != self.at.number {
            return RequestFault::Served;
        }
        let fault = match self.kind {
            Kind::CrashBefore => RequestFault::CrashBefore,
            Kind::CrashAfter => RequestFault::CrashAfter,
            Kind::CrashHeld if let Some(allowed) = asked.server_timeout() => {
                // Stored in the last second that its sender allowed, and shown late.
                let held = Duration::from_millis(allowed * 1_000 - 500);
                self.hidden = Some([now + held, now + held + HIDDEN_DURATION]);
                RequestFault::CrashDuring(held)
            }
            Kind::LoseAnswer => RequestFault::AnswerLost,
            Kind::FailRequest => RequestFault::Reset,
            Kind::ErrorAfter => RequestFault::ServedBut(ServerError::Timeout),
            Kind::Race if asked.is_raceable() => RequestFault::Raced,
            Kind::Pause => RequestFault::Paused(LONG_PAUSE),
            Kind::Stop => RequestFault::Stopped,
            Kind::CrashHeld
            | Kind::Race
            | Kind::DelayEvent
            | Kind::DropEvent
            | Kind::ExpireEvent
            | Kind::FreezeEvent
            | Kind::RelistOld
            | Kind::FirstView
            | Kind::RestartInPast => RequestFault::Served,
        };
        self.took_effect |= fault != RequestFault::Served;
        fault
    }

    pub(crate) fn event_fault(&mut self, number: u64, now: Instant) -> EventFault {
        if let Some([_, until]) = self.hidden.filter(|[from, until]| (*from..*until).contains(&now)) {
            return EventFault::Delayed(until.saturating_duration_since(now));
        }
        if number != self.at.number {
            return EventFault::Delivered;
        }
        let shown = match self.kind {
            Kind::DelayEvent => EventFault::Delayed(LONG_PAUSE),
            Kind::DropEvent => EventFault::Reset,
            Kind::ExpireEvent => EventFault::Expired,
            Kind::FreezeEvent => EventFault::Frozen,
            Kind::RelistOld => {
                self.refuse_watch = true;
                // The fault counts once a list shows less than this event.
                return EventFault::Refused;
            }
            Kind::CrashBefore
            | Kind::CrashAfter
            | Kind::CrashHeld
            | Kind::LoseAnswer
            | Kind::FailRequest
            | Kind::ErrorAfter
            | Kind::Race
            | Kind::Pause
            | Kind::Stop
            | Kind::FirstView
            | Kind::RestartInPast => EventFault::Delivered,
        };
        self.took_effect |= shown != EventFault::Delivered;
        shown
    }

    pub(crate) fn old_version(&mut self, oldest: u64, newest: u64) -> Option<u64> {
        match self.kind {
            Kind::FirstView if oldest == 0 => Some(self.at.number.min(newest)),
            Kind::RestartInPast if oldest == 0 && self.crashed => self.at.view.map(|it| it.min(newest)),
            _ => std::mem::take(&mut self.show_old).then_some(oldest),
        }
    }

    pub(crate) fn on_old_state_shown(&mut self, now: Instant) {
        self.took_effect = true;
        if self.kind == Kind::RestartInPast {
            self.hidden.get_or_insert([now, now + STALE_DURATION]);
        }
    }

    pub(crate) fn take_crash_at(&mut self, version: u64) -> bool {
        let now = self.kind == Kind::RestartInPast && !self.crashed && version == self.at.number;
        self.crashed |= now;
        now
    }
}
