use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use metrics::{IntCounterVec, Metrics};
use parking_lot::Mutex;

use crate::{ApiError, Term};

/// So long a client does without hints once the server has cut one of its creates.
const PAUSE: Duration = Duration::from_secs(60);

/// Whether one client's creates tell the server how long it may take.
///
/// A create that the server cut inside a living term was cut for nothing: a slow webhook, or a clock that runs ahead.
/// Trying again with the same hint would fail for ever. Without one the server may store a create after a successor has
/// proved its caches, as upstream, whose creates never carry one.
pub(crate) struct CreateHints {
    name: Box<str>,
    clock: Clock,
    term: Term,
    paused_until: Mutex<Option<Instant>>,
    pauses: IntCounterVec,
}

impl CreateHints {
    pub(crate) fn new(name: &str, clock: Clock, term: Term, metrics: &Metrics) -> Arc<Self> {
        let pauses = metrics.counters(
            "mini_kcm_create_timeout_hints_suspended_total",
            "Times that a client stopped to send timeouts with its creates, because the server had cut one for nothing.",
            &["client"],
        );
        Arc::new(Self { name: name.into(), clock, term, paused_until: Mutex::new(None), pauses })
    }

    /// True while creates carry a hint.
    pub(crate) fn wanted(&self) -> bool {
        self.paused_until.lock().is_none_or(|it| self.clock.now() >= it)
    }

    /// Looks at the failure of a create that carried one.
    pub(crate) fn failed(&self, err: &ApiError) {
        let cut = err.status().is_some_and(|it| it.code == 504 && it.reason == "Timeout");
        if cut && self.term.server_timeout().is_some() && self.term.is_valid() {
            tracing::warn!(client = %self.name, %err, "The server cut a create short: no timeouts for a minute");
            *self.paused_until.lock() = Some(self.clock.now() + PAUSE);
            self.pauses.with_label_values(&[&*self.name]).inc();
        }
    }
}
