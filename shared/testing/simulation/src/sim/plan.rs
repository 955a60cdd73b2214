use std::time::Duration;

use clock::Instant;
use fastrand::Rng;

use super::{request::SimRequest, script::Script};

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
/// Longer than the duration of the election Lease.
pub(crate) const LONG_PAUSE: Duration = Duration::from_secs(25);
/// The longest delay of a write in milliseconds. With a longer one a write could be applied in the term of the next
/// leader. No fence helps against that, and a real network with a working connection does not do it.
const MAX_WRITE_DELAY: u64 = 4_000;

/// What happens to one request. A healthy client must expect all of this from a real API server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RequestFault {
    Served,
    /// Served after this time, unless the client gives up before.
    Slow(Duration),
    /// Served after this time, even if the client has given up.
    ServedLate(Duration),
    /// The connection is refused.
    Refused,
    /// The connection breaks before the request is served.
    Reset,
    /// Served, but the connection breaks before the answer.
    AnswerLost,
    /// Served, and answered after this time.
    AnswerLate(Duration),
    /// Not served and not answered.
    Hung,
    /// Not served, but answered with this error.
    Answered(ServerError),
    /// Served, but answered with this error.
    ServedBut(ServerError),
    /// Another client changes or creates the same object just before.
    Raced,
    CrashBefore,
    CrashAfter,
    /// The process crashes, and the request is served after this time.
    CrashDuring(Duration),
    /// The process is paused at its next await, after this request was sent.
    Paused(Duration),
    /// The process gets SIGTERM.
    Stopped,
}

/// Error responses of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerError {
    /// 429 in plain text, with `Retry-After`.
    Busy,
    /// 500, because the storage did not answer.
    Storage,
    /// 503 in plain text.
    Unavailable,
    /// 504: not served in time.
    Timeout,
    /// 422 of a server that does not stream sets.
    NoStreamedList,
}

/// What happens to one event of a watch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum EventFault {
    Delivered,
    /// Sent after this time; later events come after it.
    Delayed(Duration),
    /// The connection breaks before it.
    Reset,
    /// The watch ends before it, as at its timeout.
    End,
    /// The connection breaks, and the last version is too old to resume from.
    Expired,
    /// The watch stays open but sends nothing from here on.
    Frozen,
    /// The connection breaks; the next watch is refused, and the set that follows is not newer than the broken watch.
    Refused,
}

/// What happens to a whole process, independent of its requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum ProcessFault {
    Crash,
    Pause(Duration),
    Stop,
}

/// Decides which faults happen.
pub(crate) enum FaultPlan {
    Calm,
    Random(Random),
    Script(Script),
}

/// How frequent faults are, drawn from the seed.
pub(crate) struct Random {
    rng: Rng,
    /// Faults per thousand requests.
    requests: u32,
    events: u32,
    latency: u64,
    process_faults: Option<Duration>,
    stale: bool,
    streams: bool,
    /// Outages per ten thousand requests.
    outages: u32,
    outage: Option<Outage>,
}

/// A failure of one connection for a while. Each kind of traffic has its own connection; the others keep working.
struct Outage {
    of: Traffic,
    until: Instant,
}

/// The kinds of traffic; each shares one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Traffic {
    Watches,
    Reads,
    Writes,
    Lease,
}

impl FaultPlan {
    pub(crate) fn random(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ 0x5eed_0fa1);
        let mut of = |choices: &[u32]| choices[rng.usize(..choices.len())];
        let (requests, events) = (of(&[0, 10, 40, 120]), of(&[0, 20, 100, 300]));
        let latency = of(&[0, 3, 20, 150]).into();
        let process_faults = Some(of(&[0, 0, 20, 8])).filter(|it| *it > 0).map(|it| SEC * it);
        let (stale, streams) = (of(&[0, 1]) == 1, of(&[0, 1, 1, 1]) == 1);
        let outages = of(&[0, 0, 50, 200]);
        Self::Random(Random { rng, requests, events, latency, process_faults, stale, streams, outages, outage: None })
    }

    /// What happens to a request; the first has number 0.
    pub(crate) fn request_fault(&mut self, asked: &SimRequest, number: u64, now: Instant) -> RequestFault {
        match self {
            Self::Calm => RequestFault::Served,
            Self::Random(it) => it.outage_fault(asked, now).unwrap_or_else(|| it.request_fault(asked)),
            Self::Script(it) => it.request_fault(asked, number, now),
        }
    }

    pub(crate) fn event_fault(&mut self, number: u64, now: Instant) -> EventFault {
        match self {
            Self::Calm => EventFault::Delivered,
            Self::Random(it) => it.event_fault(),
            Self::Script(it) => it.event_fault(number, now),
        }
    }

    /// Which version to show, between the oldest that is allowed and the newest.
    pub(crate) fn old_version(&mut self, oldest: u64, newest: u64) -> Option<u64> {
        match self {
            Self::Calm => None,
            Self::Random(it) => (it.stale && it.rng.bool()).then(|| it.rng.u64(oldest..=newest)),
            Self::Script(it) => it.old_version(oldest, newest),
        }
    }

    /// An older state was shown, as `old_version` had planned.
    pub(crate) fn on_old_state_shown(&mut self, now: Instant) {
        if let Self::Script(it) = self {
            it.on_old_state_shown(now);
        }
    }

    /// The last planned fault could not be carried out, because it would have had no effect.
    pub(crate) fn on_no_effect(&mut self) {
        if let Self::Script(it) = self {
            it.took_effect = false;
        }
    }

    /// Returns true when every process crashes now that this version is stored.
    pub(crate) fn take_crash_at(&mut self, version: u64) -> bool {
        let Self::Script(it) = self else { return false };
        it.take_crash_at(version)
    }

    /// Returns the next event of a whole process with the time until then.
    pub(crate) fn next_process_fault(&mut self) -> Option<(Duration, ProcessFault)> {
        let Self::Random(it) = self else { return None };
        let mean = it.process_faults?;
        let wait = mean.mul_f64(it.rng.f64() * 2.0);
        let process_fault = match it.rng.u8(0..5) {
            0 | 1 => ProcessFault::Crash,
            2 => ProcessFault::Pause(SEC * it.rng.u32(1..12)),
            3 => ProcessFault::Pause(LONG_PAUSE.mul_f64(0.5 + it.rng.f64())),
            _ => ProcessFault::Stop,
        };
        Some((wait, process_fault))
    }

    /// A random choice of the plan.
    pub(crate) fn choice(&mut self, count: usize) -> usize {
        match self {
            Self::Random(it) => it.rng.usize(..count),
            Self::Calm | Self::Script(_) => 0,
        }
    }

    /// After which time a process that has ended starts again.
    pub(crate) fn restart_delay(&mut self) -> Duration {
        match self {
            Self::Random(it) => MS * it.rng.u32(100..4_000),
            Self::Calm | Self::Script(_) => SEC,
        }
    }
}

impl Random {
    /// What a present outage does to this request.
    fn outage_fault(&mut self, asked: &SimRequest, now: Instant) -> Option<RequestFault> {
        let rng = &mut self.rng;
        let of = Traffic::of(asked);
        if self.outage.as_ref().is_some_and(|it| it.until <= now) {
            self.outage = None;
        }
        if self.outage.is_none() && rng.u32(..10_000) < self.outages {
            self.outage = Some(Outage { of, until: now + SEC * rng.u32(3..25) });
        }
        self.outage.as_ref().filter(|it| it.of == of)?;
        Some(match rng.u8(..6) {
            0 | 1 => RequestFault::Hung,
            2 | 3 => RequestFault::AnswerLate(MS * rng.u32(500..6_000)),
            4 => RequestFault::Reset,
            _ => RequestFault::AnswerLost,
        })
    }

    fn request_fault(&mut self, asked: &SimRequest) -> RequestFault {
        let rng = &mut self.rng;
        if !self.streams && asked.is_streamed_list() {
            return RequestFault::Answered(ServerError::NoStreamedList);
        }
        if rng.u32(..1_000) >= self.requests {
            let latency = if self.latency == 0 { 0 } else { rng.u64(..self.latency) };
            // Most requests are fast on any network.
            return if latency == 0 || rng.u8(..3) > 0 {
                RequestFault::Served
            } else {
                RequestFault::Slow(MS * latency as u32)
            };
        }
        let within = |rng: &mut Rng, most: u64| Duration::from_millis(rng.u64(..most));
        match rng.u8(..24) {
            0 | 1 => RequestFault::Refused,
            2 => RequestFault::Reset,
            3 | 4 => RequestFault::AnswerLost,
            5 | 6 => RequestFault::AnswerLate(within(rng, 30_000)),
            7 => RequestFault::Hung,
            8..=10 => RequestFault::ServedLate(within(rng, max_delay_ms(asked))),
            11 => RequestFault::Answered(ServerError::Busy),
            12 => RequestFault::Answered(ServerError::Storage),
            13 => RequestFault::Answered(ServerError::Unavailable),
            14 => RequestFault::Answered(ServerError::Timeout),
            15 => RequestFault::ServedBut(ServerError::Storage),
            16 => RequestFault::ServedBut(ServerError::Timeout),
            17..=19 if asked.is_raceable() => RequestFault::Raced,
            17..=19 => RequestFault::Served,
            20 if rng.bool() => RequestFault::CrashBefore,
            20 => RequestFault::CrashDuring(within(rng, max_delay_ms(asked))),
            21 => RequestFault::CrashAfter,
            22 => RequestFault::Paused(SEC * rng.u32(1..30)),
            _ => RequestFault::Stopped,
        }
    }

    fn event_fault(&mut self) -> EventFault {
        let rng = &mut self.rng;
        if rng.u32(..1_000) >= self.events {
            return EventFault::Delivered;
        }
        match rng.u8(..12) {
            0..=4 => EventFault::Delayed(MS * rng.u32(..2_000)),
            5 | 6 => EventFault::Delayed(MS * rng.u32(..40_000)),
            7 => EventFault::Reset,
            8 => EventFault::End,
            9 | 10 => EventFault::Expired,
            _ => EventFault::Frozen,
        }
    }
}

impl Traffic {
    fn of(asked: &SimRequest) -> Self {
        match asked {
            it if it.is_watch() => Self::Watches,
            it if it.is_lease() => Self::Lease,
            it if it.is_write() => Self::Writes,
            _ => Self::Reads,
        }
    }
}

/// For how long the network or the server may delay a request whose sender has given up.
fn max_delay_ms(asked: &SimRequest) -> u64 {
    match asked.is_write() {
        true if asked.is_lease() => 12_000,
        // A server may process a create, for example in a slow webhook, for as long as the request's `timeout` allows.
        true => asked.server_timeout().map_or(MAX_WRITE_DELAY, |seconds| seconds * 1_000),
        false => 40_000,
    }
}
