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
    stage: AttemptStage,
    /// When the current or the last attempt began.
    started_at: BootInstant,
    observed: Option<ObservedLease>,
    /// The previous holder for the record that we tried to write. If the response is lost, a later read may find that
    /// record.
    pending_takeover: Takeover,
    /// The holder that was reported last.
    reported: String,
    /// Why the last attempt failed, for the reason in [`Signal::Lost`].
    failure: Option<String>,
    actions: VecDeque<ElectionAction>,
}

/// The Lease as it was last observed or written.
struct ObservedLease {
    lease: Lease,
    /// When the record was observed to change. For our own write: when it was sent.
    since: BootInstant,
    /// True if the Lease was deleted since then.
    gone: bool,
    /// True if [`Signal::ProveAhead`] was sent for this record, or is not needed any more.
    prove_ahead_sent: bool,
}

impl ObservedLease {
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

/// The state of the current attempt. It begins with `Fast` if a write without a read is possible. Then follow `Read`,
/// and `Write` or `Create`.
#[derive(Debug)]
enum AttemptStage {
    /// Between two attempts.
    Waiting { since: BootInstant, until: BootInstant },
    /// The step must be sent now.
    Due(RequestStep),
    /// The step was sent, with the Lease that it writes.
    Sent { step: RequestStep, body: Option<Box<Lease>>, at: BootInstant },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestStep {
    /// PUT on the known version: a renewal, or an acquisition right after a release.
    Fast,
    /// GET.
    Read,
    /// PUT on the version that was just read.
    Write,
    /// POST.
    Create,
}

/// An action for the driver. The driver executes them in the order in which they are returned.
#[derive(Debug)]
pub(crate) enum ElectionAction {
    /// Send this request. It replaces the one in flight.
    Send(LeaseRequest),
    /// Begin or extend the term: the renewal that was sent at this instant was stored.
    Renewed(BootInstant),
    /// A renewal needed a read first.
    SlowPath,
    /// A request failed. Another process as the leader is not a failure.
    Failed(String),
    /// Send this signal to the manager.
    Signal(Signal),
}

#[derive(Debug, Clone)]
pub(crate) enum LeaseRequest {
    Get,
    Create(Box<Lease>),
    Update(Box<Lease>),
}

/// The result of a request.
#[derive(Debug)]
pub(crate) enum RequestOutcome {
    Read(Box<Lease>),
    Absent,
    Stored(Written),
    Failed(String),
}

/// An event of the watch.
#[derive(Debug)]
pub(crate) enum LeaseEvent {
    /// The current Lease.
    Current(Box<Lease>),
    /// The Lease was deleted; this was its last state.
    Deleted(Box<Lease>),
}

impl Machine {
    pub(crate) fn new(config: Config, rng: Rng, now: BootInstant) -> Self {
        Self {
            config,
            rng,
            phase: Phase::Acquiring,
            stage: AttemptStage::Due(RequestStep::Read),
            started_at: now,
            observed: None,
            pending_takeover: Takeover::Other,
            reported: String::new(),
            failure: None,
            actions: VecDeque::new(),
        }
    }

    /// The next action. Call it again until it returns `None`.
    pub(crate) fn next_action(&mut self, now: BootInstant, wall: Timestamp) -> Option<ElectionAction> {
        self.lose_when_lapsed(now);
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        if self.phase == Phase::Over {
            return None;
        }
        if let Some(last_write) = self.prove_ahead_at(now) {
            return Some(ElectionAction::Signal(Signal::ProveAhead { last_write }));
        }
        if self.next_attempt_at().is_some_and(|at| at <= now) {
            let is_fast = self.is_ours() && !self.has_expired(now);
            self.start_attempt(if is_fast { RequestStep::Fast } else { RequestStep::Read }, now);
        }
        match self.stage {
            AttemptStage::Due(step) => Some(self.send(step, now, wall)),
            AttemptStage::Waiting { .. } | AttemptStage::Sent { .. } => None,
        }
    }

    /// The latest time for the next call of [`Machine::next_action`]; `None` if only a response or an event can change
    /// the state.
    pub(crate) fn next_deadline(&self) -> Option<BootInstant> {
        let lapses = match self.phase {
            Phase::Leading { renewed } => Some(renewed + self.config.renew_deadline),
            Phase::Acquiring | Phase::Over => None,
        };
        [lapses, self.next_attempt_at(), self.fence_ends_at()].into_iter().flatten().min()
    }

    /// Handles the response to the last request.
    pub(crate) fn on_response(&mut self, outcome: RequestOutcome, now: BootInstant) {
        self.lose_when_lapsed(now);
        if self.phase == Phase::Over {
            return;
        }
        let AttemptStage::Sent { step, body, at } = &mut self.stage else { return };
        let (step, body, at) = (*step, body.take(), *at);
        match (outcome, body) {
            (RequestOutcome::Read(lease), _) => {
                self.observe(*lease, now);
                if self.phase != Phase::Over {
                    self.decide(now);
                }
            }
            (RequestOutcome::Absent, _) => self.decide_absent(now),
            (RequestOutcome::Stored(written), Some(body)) => {
                self.on_stored(body.with_stored_version(written.uid, written.version), at, now);
            }
            (RequestOutcome::Failed(why), _) if step != RequestStep::Fast => self.fail_with_log(why, now),
            // The observed Lease may be stale: read it, then write.
            (RequestOutcome::Failed(why), _) => {
                self.failure = Some(why.clone());
                self.actions.push_back(ElectionAction::Failed(why));
                self.stage = AttemptStage::Due(RequestStep::Read);
            }
            (RequestOutcome::Stored(_), None) => self.stage = AttemptStage::Due(RequestStep::Read),
        }
    }

    /// Handles an event of the watch. An event that is not newer than the observed Lease is ignored.
    pub(crate) fn on_lease_event(&mut self, event: LeaseEvent, now: BootInstant) {
        self.lose_when_lapsed(now);
        let (LeaseEvent::Current(lease) | LeaseEvent::Deleted(lease)) = &event;
        let is_newer = self.observed.as_ref().is_none_or(|it| it.lease.version.is_older_than(&lease.version));
        if !is_newer || self.phase == Phase::Over {
            return;
        }
        match event {
            LeaseEvent::Current(lease) => {
                self.observe(*lease, now);
                self.take_if_released(now);
            }
            LeaseEvent::Deleted(lease) => {
                self.observe(*lease, now);
                if let Some(observed) = &mut self.observed {
                    observed.gone = true;
                }
                // The leader creates it again at once. A standby waits until the lease has expired.
                if matches!((self.phase, &self.stage), (Phase::Leading { .. }, AttemptStage::Waiting { .. })) {
                    self.start_attempt(RequestStep::Read, now);
                }
            }
        }
    }

    /// Handles a renewal that the term did not accept: the term has ended meanwhile.
    pub(crate) fn on_term_ended(&mut self) {
        self.lose("the term has ended".to_owned());
    }

    /// Since when the Lease names this process, on its own clock.
    pub(crate) fn held_since(&self) -> Option<BootInstant> {
        self.observed.as_ref().filter(|_| self.is_ours()).map(|it| it.since)
    }

    /// The uid of the Lease, if it is observed.
    pub(crate) fn uid(&self) -> Option<&Uid> {
        self.observed.as_ref().map(|it| &it.lease.uid)
    }

    /// True after this process has lost the Lease and all actions were returned.
    pub(crate) fn is_over(&self) -> bool {
        self.phase == Phase::Over && self.actions.is_empty()
    }

    fn is_leading(&self) -> bool {
        matches!(self.phase, Phase::Leading { .. })
    }

    /// True if the Lease is known to exist and names this process.
    fn is_ours(&self) -> bool {
        self.observed.as_ref().is_some_and(|it| !it.gone && it.lease.record.holder() == self.config.identity)
    }

    /// When the known record expires and may be overwritten.
    fn expires_at(&self) -> Option<BootInstant> {
        self.observed.as_ref().map(|it| it.since + it.lease.record.duration())
    }

    fn has_expired(&self, now: BootInstant) -> bool {
        self.expires_at().is_none_or(|at| at <= now)
    }

    /// True while another process holds a lease that has not expired.
    fn is_held_by_other(&self, now: BootInstant) -> bool {
        let holder = self.observed.as_ref().map_or("", |it| it.lease.record.holder());
        !holder.is_empty() && holder != self.config.identity && !self.has_expired(now)
    }

    /// When the next attempt begins: after the wait, or earlier when the lease of another holder expires.
    fn next_attempt_at(&self) -> Option<BootInstant> {
        let AttemptStage::Waiting { since, until } = self.stage else { return None };
        let expiry = self.expires_at().filter(|&at| self.phase == Phase::Acquiring && !self.is_ours() && at > since);
        Some(expiry.map_or(until, |at| at.min(until)))
    }

    /// When the fence of the current holder ends: a holder of ours sends no writes after that. `None` if it is not one
    /// of ours, or if [`Signal::ProveAhead`] is not needed.
    fn fence_ends_at(&self) -> Option<BootInstant> {
        let observed = self.observed.as_ref()?;
        let is_needed =
            self.phase == Phase::Acquiring && !observed.prove_ahead_sent && !observed.gone && !self.is_ours();
        let fence = observed.lease.fence().filter(|_| is_needed)?;
        (fence < observed.lease.record.duration()).then(|| observed.since + fence)
    }

    /// The last write of a holder of ours whose fence has ended, if [`Signal::ProveAhead`] must be sent for it now.
    fn prove_ahead_at(&mut self, now: BootInstant) -> Option<BootInstant> {
        self.fence_ends_at().filter(|&at| at <= now)?;
        let has_expired = self.has_expired(now);
        let observed = self.observed.as_mut()?;
        observed.prove_ahead_sent = true;
        if has_expired { None } else { observed.last_write() }
    }

    fn start_attempt(&mut self, step: RequestStep, now: BootInstant) {
        self.started_at = now;
        self.stage = AttemptStage::Due(step);
    }

    fn send(&mut self, step: RequestStep, now: BootInstant, wall: Timestamp) -> ElectionAction {
        let observed = self.observed.as_ref().map(|it| &it.lease);
        let body = match (step, observed) {
            (RequestStep::Fast | RequestStep::Write, Some(lease)) if self.is_ours() => {
                Some(lease.renewed(&self.config, wall))
            }
            (RequestStep::Fast | RequestStep::Write, Some(lease)) => Some(lease.taken(&self.config, wall)),
            (RequestStep::Create, _) => Some(Lease::new(&self.config, wall)),
            (RequestStep::Read, _) | (RequestStep::Fast | RequestStep::Write, None) => None,
        };
        let is_acquisition = self.phase == Phase::Acquiring && !self.is_ours() && body.is_some();
        if is_acquisition {
            self.pending_takeover = self.takeover(step);
        }
        let body = body.map(Box::new);
        self.stage = AttemptStage::Sent { step, body: body.clone(), at: now };
        ElectionAction::Send(match (step, body) {
            (RequestStep::Create, Some(body)) => LeaseRequest::Create(body),
            (_, Some(body)) => LeaseRequest::Update(body),
            (_, None) => LeaseRequest::Get,
        })
    }

    /// The holder that our write would replace now.
    fn takeover(&self, step: RequestStep) -> Takeover {
        let Some(observed) = &self.observed else { return Takeover::First };
        if step == RequestStep::Create {
            // The Lease was deleted while a known holder still held it.
            return Takeover::Other;
        }
        let lease = &observed.lease;
        if let Some(notes) = lease.notes() {
            return Takeover::ReleasedByOurs(notes.clone());
        }
        if lease.fence().is_some_and(|it| it < lease.record.duration()) {
            let last_change = observed.since;
            return Takeover::CrashOfOurs { last_change, last_write: observed.last_write().unwrap_or(last_change) };
        }
        if lease.is_untouched() { Takeover::First } else { Takeover::Other }
    }

    /// The decision after a successful read (the slow path of `leaderelection.tryAcquireOrRenew`).
    fn decide(&mut self, now: BootInstant) {
        let holder = self.observed.as_ref().map_or("", |it| it.lease.record.holder()).to_owned();
        if self.is_ours() {
            self.actions.push_back(ElectionAction::SlowPath);
            self.stage = AttemptStage::Due(RequestStep::Write);
        } else if self.is_leading() {
            // The Lease was released or has expired: another process has led, or may lead now. So the term must not be
            // extended. Each attempt fails until a read shows this process as the holder again.
            let why = if holder.is_empty() {
                "the lease has no holder".to_owned()
            } else {
                format!("{holder} holds the lease")
            };
            self.fail_with_log(why, now);
        } else if self.is_held_by_other(now) {
            self.fail(format!("{holder} holds the lease"), now);
        } else {
            self.stage = AttemptStage::Due(RequestStep::Write);
        }
    }

    fn decide_absent(&mut self, now: BootInstant) {
        if let Some(observed) = &mut self.observed {
            observed.gone = true;
        }
        // Deleting the Lease does not stop its holder: it may lead until its last renewal expires.
        if !self.is_leading() && self.is_held_by_other(now) {
            self.fail("the lease was deleted, its holder may still lead".to_owned(), now);
        } else {
            self.stage = AttemptStage::Due(RequestStep::Create);
        }
    }

    /// Handles a write of ours that was stored.
    fn on_stored(&mut self, lease: Lease, sent: BootInstant, now: BootInstant) {
        // The watch may have shown this write already, or even a newer version.
        let is_stale =
            self.observed.as_ref().is_some_and(|it| !it.gone && lease.version.is_older_than(&it.lease.version));
        if !is_stale {
            self.observe(lease, sent);
        }
        if !self.is_ours() {
            // Another holder has replaced our write already.
            return self.decide(now);
        }
        if now >= sent + self.config.renew_deadline {
            // The write was stored, but its response arrived too late to lead with it.
            return self.fail_with_log("the response to a write arrived too late".to_owned(), now);
        }
        self.actions.push_back(ElectionAction::Renewed(sent));
        if self.phase == Phase::Acquiring {
            self.actions.push_back(ElectionAction::Signal(Signal::Acquired(self.pending_takeover.clone())));
        }
        self.phase = Phase::Leading { renewed: sent };
        self.failure = None;
        self.stage = AttemptStage::Waiting { since: now, until: sent + self.config.retry_period };
    }

    /// Updates the observed Lease, which was observed or written at `now`.
    fn observe(&mut self, lease: Lease, now: BootInstant) {
        let holder = lease.record.holder().to_owned();
        match &mut self.observed {
            Some(observed) if observed.lease.record == lease.record && !observed.gone => observed.lease = lease,
            observed => *observed = Some(ObservedLease { lease, since: now, gone: false, prove_ahead_sent: false }),
        }
        if self.is_leading() && self.is_held_by_other(now) {
            // Otherwise both write until our deadline; `leaderelection.tryAcquireOrRenew` only retries until then.
            return self.lose(format!("{holder} holds the lease"));
        }
        if holder != self.reported {
            self.reported.clone_from(&holder);
            if !holder.is_empty() {
                self.actions.push_back(ElectionAction::Signal(Signal::NewLeader(holder)));
            }
        }
    }

    /// Takes a released Lease at once, without reading again what the watch has shown.
    fn take_if_released(&mut self, now: BootInstant) {
        let is_released = self.observed.as_ref().is_some_and(|it| it.lease.record.holder().is_empty());
        let is_write_in_flight = matches!(&self.stage, AttemptStage::Sent { body: Some(_), .. });
        if is_released && self.phase == Phase::Acquiring && !is_write_in_flight {
            self.start_attempt(RequestStep::Fast, now);
        }
    }

    /// Ends the attempt with a failure that is logged.
    fn fail_with_log(&mut self, why: String, now: BootInstant) {
        self.actions.push_back(ElectionAction::Failed(why.clone()));
        self.fail(why, now);
    }

    /// Ends the attempt and waits for the next one.
    fn fail(&mut self, why: String, now: BootInstant) {
        self.failure = Some(why);
        let until = match self.phase {
            // After an attempt without a response the next one begins at once, because the term ends soon.
            Phase::Leading { .. } => now.max(self.started_at + self.config.retry_period),
            Phase::Acquiring | Phase::Over => now + self.config.retry_period.mul_f64(1.0 + self.rng.f64() * JITTER),
        };
        self.stage = AttemptStage::Waiting { since: now, until };
    }

    fn lose_when_lapsed(&mut self, now: BootInstant) {
        let Phase::Leading { renewed } = self.phase else { return };
        let deadline = self.config.renew_deadline;
        let since_renewal = now.saturating_since(renewed);
        if since_renewal < deadline {
            return;
        }
        let why = match self.failure.take() {
            Some(failure) => format!("no renewal succeeded for {}: {failure}", seconds(since_renewal)),
            None => format!("no renewal succeeded for {}", seconds(since_renewal)),
        };
        self.lose(why);
    }

    /// Ends leadership for good. A response in flight has no effect any more.
    fn lose(&mut self, why: String) {
        self.phase = Phase::Over;
        self.actions.clear();
        self.actions.push_back(ElectionAction::Signal(Signal::Lost(why)));
    }
}

fn seconds(it: Duration) -> String {
    format!("{:.1}s", it.as_secs_f64())
}

#[cfg(test)]
mod tests;
