use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use metrics::{IntCounterVec, Metrics};
use parking_lot::Mutex;

use crate::{ApiError, Term, fence::MIN_TIMEOUT};

/// How long a client sends creates without a timeout after the server has cut one off.
const PAUSE: Duration = Duration::from_secs(60);

/// Whether the creates of one client have a server-side timeout.
///
/// If the server cuts off a create while the term is valid, the timeout was too short: a webhook is slow, or a clock
/// runs ahead. A retry with the same timeout would never succeed. Without a timeout the server may store a create after
/// a successor has proved its caches. Upstream always has this risk, because it never sets the timeout.
pub(crate) struct CreateTimeouts {
    name: Box<str>,
    clock: Clock,
    term: Term,
    paused_until: Mutex<Option<Instant>>,
    pauses: IntCounterVec,
}

impl CreateTimeouts {
    pub(crate) fn new(name: &str, clock: Clock, term: Term, metrics: &Metrics) -> Arc<Self> {
        let pauses = metrics.counters(
            "mini_kcm_create_timeout_hints_suspended_total",
            "Times that a client stopped sending timeouts with creates, because the server ended one too early.",
            &["client"],
        );
        Arc::new(Self { name: name.into(), clock, term, paused_until: Mutex::new(None), pauses })
    }

    /// True if creates have a timeout now.
    pub(crate) fn are_sent(&self) -> bool {
        self.paused_until.lock().is_none_or(|it| self.clock.now() >= it)
    }

    /// How long the server may still process creates that were sent before now; `None` if some of them may have had no
    /// timeout, so that only the server's own limit applies, one minute by default.
    pub(crate) fn longest_create(&self) -> Option<Duration> {
        let had_timeouts = self.paused_until.lock().is_none_or(|it| self.clock.now() >= it + PAUSE);
        self.term.server_timeout().filter(|_| had_timeouts).map(|it| it.max(MIN_TIMEOUT))
    }

    /// Checks the error of a create that had a timeout.
    pub(crate) fn on_create_failed(&self, err: &ApiError) {
        let timed_out = err.status().is_some_and(|it| it.code == 504 && it.reason == "Timeout");
        if timed_out && self.term.server_timeout().is_some() && self.term.is_valid() {
            tracing::warn!(client = %self.name, %err, "The server ended a create too early: sending creates without timeouts for a minute");
            *self.paused_until.lock() = Some(self.clock.now() + PAUSE);
            self.pauses.with_label_values(&[&*self.name]).inc();
        }
    }
}
