use std::{collections::VecDeque, time::Duration};

use api::Uid;
use client::{TermLimits, Written};
use clock::{BootInstant, Timestamp};
use fastrand::Rng;

use crate::{
    Config,
    config::JITTER,
    record::Lease,
    signal::{Signal, Takeover},
};

/// Decides when this process may take the Lease, by the rules of client-go, without I/O and without a clock.
///
/// Times in the Lease are never compared with the local clock. Instead the machine uses the time since it observed the
/// last change of the record. This is measured on the clock that includes suspension. A leader's term counts from the
/// *sending* of a renewal.
pub(crate) struct Machine {
    config: Config,
    rng: Rng,
    phase: Phase,
    stage: Stage,
    /// When the current or the last attempt began.
    began: BootInstant,
    known: Option<Known>,
    /// The previous holder for the record that we tried to write. If the response is lost, a later read may find that
    /// record.
    claim: Takeover,
    /// The holder that was reported last.
    reported: String,
    /// Why the last attempt failed, for the reason in [`Signal::Lost`].
    failure: Option<String>,
    out: VecDeque<Action>,
}

/// The Lease as it was last observed or written.
struct Known {
    lease: Lease,
    /// When the record was observed to change. For our own write: when it was sent.
    since: BootInstant,
    /// True if the Lease was deleted since then.
    gone: bool,
    /// True if [`Signal::ProveAhead`] was sent for this record, or is not needed any more.
    told_ahead: bool,
}

impl Known {
    /// The latest time at which the server stores a write of a holder of ours that does not renew any more.
    fn last_write(&self) -> Option<BootInstant> {
        let limits = TermLimits { renew_deadline: self.lease.fence()?, lease_duration: self.lease.record.duration() };
        // The holder sent its renewal before this process observed it.
        Some(self.since + limits.last_write())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Acquiring,
    Leading {
        /// When the last successful renewal was sent.
        renewed: BootInstant,
    },
    Over,
}

/// The state of the current attempt. It begins with `Quick` if a write without a read is possible. Then follow `Read`,
/// and `Write` or `Create`.
#[derive(Debug)]
enum Stage {
    /// Between two attempts.
    Resting { since: BootInstant, until: BootInstant },
    /// The step must be sent now.
    Due(Step),
    /// The step was sent, with the Lease that it writes.
    Sent { step: Step, body: Option<Box<Lease>>, at: BootInstant },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// PUT on the known version: a renewal, or an acquisition right after a release.
    Quick,
    /// GET.
    Read,
    /// PUT on the version that was just read.
    Write,
    /// POST.
    Create,
}

/// An action for the driver. The driver executes them in the order in which they are returned.
#[derive(Debug)]
pub(crate) enum Action {
    /// Send this request. It replaces the one in flight.
    Send(Request),
    /// Begin or extend the term: the renewal that was sent at this instant was stored.
    Renewed(BootInstant),
    /// A renewal needed a read first.
    SlowPath,
    /// A request failed. Another process as the leader is not a failure.
    Failed(String),
    /// Send this signal to the manager.
    Tell(Signal),
}

#[derive(Debug, Clone)]
pub(crate) enum Request {
    Get,
    Create(Box<Lease>),
    Update(Box<Lease>),
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Read(Box<Lease>),
    Absent,
    Stored(Written),
    Failed(String),
}

/// An event of the watch.
#[derive(Debug)]
pub(crate) enum Notice {
    /// The current Lease.
    Seen(Box<Lease>),
    /// The Lease was deleted; this was its last state.
    Deleted(Box<Lease>),
}

impl Machine {
    pub(crate) fn new(config: Config, rng: Rng, now: BootInstant) -> Self {
        Self {
            config,
            rng,
            phase: Phase::Acquiring,
            stage: Stage::Due(Step::Read),
            began: now,
            known: None,
            claim: Takeover::Other,
            reported: String::new(),
            failure: None,
            out: VecDeque::new(),
        }
    }

    /// The next action. Call it again until it returns `None`.
    pub(crate) fn due(&mut self, now: BootInstant, wall: Timestamp) -> Option<Action> {
        self.lose_when_lapsed(now);
        if let Some(action) = self.out.pop_front() {
            return Some(action);
        }
        if self.phase == Phase::Over {
            return None;
        }
        if let Some(last_write) = self.prove_ahead_at(now) {
            return Some(Action::Tell(Signal::ProveAhead { last_write }));
        }
        if self.try_at().is_some_and(|at| at <= now) {
            let quick = self.is_ours() && !self.has_expired(now);
            self.begin(if quick { Step::Quick } else { Step::Read }, now);
        }
        match self.stage {
            Stage::Due(step) => Some(self.send(step, now, wall)),
            Stage::Resting { .. } | Stage::Sent { .. } => None,
        }
    }

    /// The latest time for the next call of [`Machine::due`]; `None` if only a response or an event can change the
    /// state.
    pub(crate) fn next_deadline(&self) -> Option<BootInstant> {
        let lapses = match self.phase {
            Phase::Leading { renewed } => Some(renewed + self.config.renew_deadline),
            Phase::Acquiring | Phase::Over => None,
        };
        [lapses, self.try_at(), self.fence_ends_at()].into_iter().flatten().min()
    }

    /// Handles the response to the last request.
    pub(crate) fn answered(&mut self, answer: Answer, now: BootInstant) {
        self.lose_when_lapsed(now);
        if self.phase == Phase::Over {
            return;
        }
        let Stage::Sent { step, body, at } = &mut self.stage else { return };
        let (step, body, at) = (*step, body.take(), *at);
        match (answer, body) {
            (Answer::Read(lease), _) => {
                self.learn(*lease, now);
                if self.phase != Phase::Over {
                    self.decide(now);
                }
            }
            (Answer::Absent, _) => self.decide_absent(now),
            (Answer::Stored(written), Some(body)) => {
                self.stored(body.stored(written.uid, written.version), at, now);
            }
            (Answer::Failed(why), _) if step != Step::Quick => self.fail_for(why, now),
            // The known Lease may be stale: read it, then write.
            (Answer::Failed(why), _) => {
                self.failure = Some(why.clone());
                self.out.push_back(Action::Failed(why));
                self.stage = Stage::Due(Step::Read);
            }
            (Answer::Stored(_), None) => self.stage = Stage::Due(Step::Read),
        }
    }

    /// Handles an event of the watch. An event that is not newer than the known Lease is ignored.
    pub(crate) fn noticed(&mut self, notice: Notice, now: BootInstant) {
        self.lose_when_lapsed(now);
        let (Notice::Seen(lease) | Notice::Deleted(lease)) = &notice;
        let is_news = self.known.as_ref().is_none_or(|it| it.lease.version.is_older_than(&lease.version));
        if !is_news || self.phase == Phase::Over {
            return;
        }
        match notice {
            Notice::Seen(lease) => {
                self.learn(*lease, now);
                self.take_if_released(now);
            }
            Notice::Deleted(lease) => {
                self.learn(*lease, now);
                if let Some(known) = &mut self.known {
                    known.gone = true;
                }
                // The leader creates it again at once. A standby waits until the lease has expired.
                if matches!((self.phase, &self.stage), (Phase::Leading { .. }, Stage::Resting { .. })) {
                    self.begin(Step::Read, now);
                }
            }
        }
    }

    /// Handles a renewal that the term did not accept: the term has ended meanwhile.
    pub(crate) fn term_ended(&mut self) {
        self.lose("the term has ended".to_owned());
    }

    /// Since when the Lease names this process, on its own clock.
    pub(crate) fn held_since(&self) -> Option<BootInstant> {
        self.known.as_ref().filter(|_| self.is_ours()).map(|it| it.since)
    }

    /// The uid of the Lease, if it is known.
    pub(crate) fn uid(&self) -> Option<&Uid> {
        self.known.as_ref().map(|it| &it.lease.uid)
    }

    /// True after this process has lost the Lease and all actions were returned.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over && self.out.is_empty()
    }

    fn is_leading(&self) -> bool {
        matches!(self.phase, Phase::Leading { .. })
    }

    /// True if the Lease is known to exist and names this process.
    fn is_ours(&self) -> bool {
        self.known.as_ref().is_some_and(|it| !it.gone && it.lease.record.holder() == self.config.identity)
    }

    /// When the known record expires and may be overwritten.
    fn expires_at(&self) -> Option<BootInstant> {
        self.known.as_ref().map(|it| it.since + it.lease.record.duration())
    }

    fn has_expired(&self, now: BootInstant) -> bool {
        self.expires_at().is_none_or(|at| at <= now)
    }

    /// True while another process holds a lease that has not expired.
    fn is_held_by_other(&self, now: BootInstant) -> bool {
        let holder = self.known.as_ref().map_or("", |it| it.lease.record.holder());
        !holder.is_empty() && holder != self.config.identity && !self.has_expired(now)
    }

    /// When the next attempt begins: after the wait, or earlier when the lease of another holder expires.
    fn try_at(&self) -> Option<BootInstant> {
        let Stage::Resting { since, until } = self.stage else { return None };
        let expiry = self.expires_at().filter(|&at| self.phase == Phase::Acquiring && !self.is_ours() && at > since);
        Some(expiry.map_or(until, |at| at.min(until)))
    }

    /// When the fence of the current holder ends: a holder of ours sends no writes after that. `None` if it is not one
    /// of ours, or if [`Signal::ProveAhead`] is not needed.
    fn fence_ends_at(&self) -> Option<BootInstant> {
        let known = self.known.as_ref()?;
        let waiting = self.phase == Phase::Acquiring && !known.told_ahead && !known.gone && !self.is_ours();
        let fence = known.lease.fence().filter(|_| waiting)?;
        (fence < known.lease.record.duration()).then(|| known.since + fence)
    }

    /// The last write of a holder of ours whose fence has ended, if [`Signal::ProveAhead`] must be sent for it now.
    fn prove_ahead_at(&mut self, now: BootInstant) -> Option<BootInstant> {
        self.fence_ends_at().filter(|&at| at <= now)?;
        let has_expired = self.has_expired(now);
        let known = self.known.as_mut()?;
        known.told_ahead = true;
        if has_expired { None } else { known.last_write() }
    }

    fn begin(&mut self, step: Step, now: BootInstant) {
        self.began = now;
        self.stage = Stage::Due(step);
    }

    fn send(&mut self, step: Step, now: BootInstant, wall: Timestamp) -> Action {
        let known = self.known.as_ref().map(|it| &it.lease);
        let body = match (step, known) {
            (Step::Quick | Step::Write, Some(lease)) if self.is_ours() => Some(lease.renewed(&self.config, wall)),
            (Step::Quick | Step::Write, Some(lease)) => Some(lease.taken(&self.config, wall)),
            (Step::Create, _) => Some(Lease::new(&self.config, wall)),
            (Step::Read, _) | (Step::Quick | Step::Write, None) => None,
        };
        let writes_to_nobody = self.phase == Phase::Acquiring && !self.is_ours() && body.is_some();
        if writes_to_nobody {
            self.claim = self.takeover(step);
        }
        let body = body.map(Box::new);
        self.stage = Stage::Sent { step, body: body.clone(), at: now };
        Action::Send(match (step, body) {
            (Step::Create, Some(body)) => Request::Create(body),
            (_, Some(body)) => Request::Update(body),
            (_, None) => Request::Get,
        })
    }

    /// The holder that our write would replace now.
    fn takeover(&self, step: Step) -> Takeover {
        let Some(known) = &self.known else { return Takeover::First };
        if step == Step::Create {
            // The Lease was deleted while a known holder still held it.
            return Takeover::Other;
        }
        let lease = &known.lease;
        if let Some(notes) = lease.notes() {
            return Takeover::ReleasedByOurs(notes.clone());
        }
        if lease.fence().is_some_and(|it| it < lease.record.duration()) {
            let last_change = known.since;
            return Takeover::CrashOfOurs { last_change, last_write: known.last_write().unwrap_or(last_change) };
        }
        if lease.is_untouched() { Takeover::First } else { Takeover::Other }
    }

    /// The decision after a successful read (the slow path of `leaderelection.tryAcquireOrRenew`).
    fn decide(&mut self, now: BootInstant) {
        let holder = self.known.as_ref().map_or("", |it| it.lease.record.holder()).to_owned();
        if self.is_ours() {
            self.out.push_back(Action::SlowPath);
            self.stage = Stage::Due(Step::Write);
        } else if self.is_leading() {
            // The Lease was released or has expired: another process has led, or may lead now. So the term must not be
            // extended. Each attempt fails until a read shows this process as the holder again.
            let why = if holder.is_empty() {
                "nobody holds the lease".to_owned()
            } else {
                format!("{holder} holds the lease")
            };
            self.fail_for(why, now);
        } else if self.is_held_by_other(now) {
            self.fail(format!("{holder} holds the lease"), now);
        } else {
            self.stage = Stage::Due(Step::Write);
        }
    }

    fn decide_absent(&mut self, now: BootInstant) {
        if let Some(known) = &mut self.known {
            known.gone = true;
        }
        // Deleting the Lease does not stop its holder: it may lead until its last renewal expires.
        if !self.is_leading() && self.is_held_by_other(now) {
            self.fail("the lease was deleted, its holder may still lead".to_owned(), now);
        } else {
            self.stage = Stage::Due(Step::Create);
        }
    }

    /// Handles a write of ours that was stored.
    fn stored(&mut self, lease: Lease, sent: BootInstant, now: BootInstant) {
        // The watch may have shown this write already, or even a newer version.
        let overtaken =
            self.known.as_ref().is_some_and(|it| !it.gone && lease.version.is_older_than(&it.lease.version));
        if !overtaken {
            self.learn(lease, sent);
        }
        if !self.is_ours() {
            // Another holder has replaced our write already.
            return self.decide(now);
        }
        if now >= sent + self.config.renew_deadline {
            // The write was stored, but its response arrived too late to lead with it.
            return self.fail_for("the answer to a write came too late to lead by it".to_owned(), now);
        }
        self.out.push_back(Action::Renewed(sent));
        if self.phase == Phase::Acquiring {
            self.out.push_back(Action::Tell(Signal::Acquired(self.claim.clone())));
        }
        self.phase = Phase::Leading { renewed: sent };
        self.failure = None;
        self.stage = Stage::Resting { since: now, until: sent + self.config.retry_period };
    }

    /// Updates the known Lease, which was observed or written at `now`.
    fn learn(&mut self, lease: Lease, now: BootInstant) {
        let holder = lease.record.holder().to_owned();
        match &mut self.known {
            Some(known) if known.lease.record == lease.record && !known.gone => known.lease = lease,
            known => *known = Some(Known { lease, since: now, gone: false, told_ahead: false }),
        }
        if self.is_leading() && self.is_held_by_other(now) {
            // Otherwise both write until our deadline; `leaderelection.tryAcquireOrRenew` only retries until then.
            return self.lose(format!("{holder} holds the lease"));
        }
        if holder != self.reported {
            self.reported.clone_from(&holder);
            if !holder.is_empty() {
                self.out.push_back(Action::Tell(Signal::NewLeader(holder)));
            }
        }
    }

    /// Takes a released Lease at once, without reading again what the watch has shown.
    fn take_if_released(&mut self, now: BootInstant) {
        let released = self.known.as_ref().is_some_and(|it| it.lease.record.holder().is_empty());
        let writing = matches!(&self.stage, Stage::Sent { body: Some(_), .. });
        if released && self.phase == Phase::Acquiring && !writing {
            self.begin(Step::Quick, now);
        }
    }

    /// Ends the attempt with a failure that is logged.
    fn fail_for(&mut self, why: String, now: BootInstant) {
        self.out.push_back(Action::Failed(why.clone()));
        self.fail(why, now);
    }

    /// Ends the attempt and waits for the next one.
    fn fail(&mut self, why: String, now: BootInstant) {
        self.failure = Some(why);
        let until = match self.phase {
            // After an attempt without a response the next one begins at once, because the term ends soon.
            Phase::Leading { .. } => now.max(self.began + self.config.retry_period),
            Phase::Acquiring | Phase::Over => now + self.config.retry_period.mul_f64(1.0 + self.rng.f64() * JITTER),
        };
        self.stage = Stage::Resting { since: now, until };
    }

    fn lose_when_lapsed(&mut self, now: BootInstant) {
        let Phase::Leading { renewed } = self.phase else { return };
        let deadline = self.config.renew_deadline;
        let silent = now.saturating_since(renewed);
        if silent < deadline {
            return;
        }
        let why = match self.failure.take() {
            Some(failure) => format!("no renewal succeeded for {}: {failure}", seconds(silent)),
            None => format!("no renewal succeeded for {}", seconds(silent)),
        };
        self.lose(why);
    }

    /// Ends leadership for good. A response in flight has no effect any more.
    fn lose(&mut self, why: String) {
        self.phase = Phase::Over;
        self.out.clear();
        self.out.push_back(Action::Tell(Signal::Lost(why)));
    }
}

fn seconds(it: Duration) -> String {
    format!("{:.1}s", it.as_secs_f64())
}

#[cfg(test)]
mod tests;
