use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// One request as the server got it, and the code it was answered with.
#[derive(Debug, Clone)]
pub struct Call {
    /// HTTP method.
    pub method: Method,
    /// Path without the query, as sent.
    pub path: String,
    /// Query without the question mark, as sent.
    pub query: String,
    /// Header `User-Agent`; empty when missing.
    pub user_agent: String,
    /// What the `Authorization` header bears; empty when missing.
    pub token: String,
    /// The ServiceAccount of that token, as a user; empty where the token is none of this server's.
    pub user: String,
    /// The whole body.
    pub body: Bytes,
    /// When it came, on the monotonic clock.
    pub at: Instant,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; empty off the resources.
    pub verb: &'static str,
    /// API group; empty for core.
    pub group: String,
    /// Plural name of the resource; empty off the resources.
    pub resource: String,
    /// Such as `status`; mostly empty.
    pub subresource: String,
    /// Namespace of the URL; empty for cluster scope.
    pub namespace: String,
    /// Name of the URL; empty for collections.
    pub name: String,
    /// Code of the answer; 0 while there is none, and when none reached the client.
    pub status: u16,
}

/// A [`Call`] that has been answered.
pub type Recorded = Call;

impl Call {
    /// One parameter of the query, decoded; empty when missing.
    #[must_use]
    pub fn parameter(&self, key: &str) -> String {
        crate::rest::Query::parse(&self.query).get(key).to_owned()
    }

    /// The body as JSON; null when it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// What becomes of a request.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// It is served.
    Pass,
    /// It is answered with this and not served. A text body goes out as plain text.
    Answer {
        /// HTTP code.
        status: u16,
        /// Further headers, such as `Retry-After`.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: Value,
    },
    /// It is served, but the connection breaks before the answer.
    LoseAnswer,
    /// The connection breaks before it is served.
    Fail,
    /// Nothing ever happens.
    Hang,
    /// It is served after this time.
    Delay(Duration),
    /// It is served at once and answered after this time.
    DelayAnswer(Duration),
}

impl Verdict {
    /// A failure as Status; an empty reason is left out.
    #[must_use]
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        let body = crate::Failure::new(code, reason, message, Some(json!({}))).into_status();
        Self::Answer { status: code, headers: Vec::new(), body }
    }

    /// A failure in plain text, as overload and unavailable groups answer.
    #[must_use]
    pub fn text(code: u16, text: &str) -> Self {
        Self::Answer { status: code, headers: Vec::new(), body: text.into() }
    }

    /// The same answer with `Retry-After`, in seconds; other verdicts stay as they are.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        match self {
            Self::Answer { status, mut headers, mut body } => {
                headers.push(("retry-after", seconds.to_string()));
                if body["details"].is_object() {
                    body["details"]["retryAfterSeconds"] = seconds.into();
                }
                Self::Answer { status, headers, body }
            }
            other => other,
        }
    }
}

/// How discovery of one group fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscoveryFault {
    /// Aggregated discovery calls its versions stale and shows no resources; the legacy document answers 503.
    Stale,
    /// No document mentions it.
    Missing,
}

type Interceptor = Box<dyn FnMut(&Call) -> Verdict + Send>;
type Witness = Box<dyn FnMut(&Call) + Send>;

/// What the test wants to see and to spoil.
#[derive(Default)]
pub(crate) struct Faults {
    recorded: Mutex<Recorder>,
    /// Apart from the rest: an interceptor may look at what was recorded.
    interceptor: Mutex<Option<Interceptor>>,
    groups: Mutex<Groups>,
    witness: Mutex<Option<Witness>>,
}

#[derive(Default)]
struct Recorder {
    off: bool,
    /// How many were cleared away.
    cleared: usize,
    calls: Vec<Call>,
}

/// Trouble by API group.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) broken: BTreeSet<String>,
    pub(crate) discovery: BTreeMap<String, DiscoveryFault>,
}

impl Groups {
    /// How discovery of this group fails now, if it does.
    pub(crate) fn discovery_fault(&self, group: &str) -> Option<DiscoveryFault> {
        if self.broken.contains(group) { Some(DiscoveryFault::Stale) } else { self.discovery.get(group).copied() }
    }
}

impl Faults {
    /// Records a call and returns its number.
    pub(crate) fn record(&self, call: &Call) -> Option<usize> {
        let mut recorder = self.recorded.lock();
        if recorder.off {
            return None;
        }
        recorder.calls.push(call.clone());
        Some(recorder.cleared + recorder.calls.len() - 1)
    }

    pub(crate) fn answered(&self, number: Option<usize>, status: u16) {
        let mut recorder = self.recorded.lock();
        let at = number.and_then(|it| it.checked_sub(recorder.cleared));
        if let Some(call) = at.and_then(|it| recorder.calls.get_mut(it)) {
            call.status = status;
        }
    }

    /// Tells the witness of an answered call.
    pub(crate) fn tell(&self, mut call: Call, status: u16) {
        if let Some(witness) = self.witness.lock().as_mut() {
            call.status = status;
            witness(&call);
        }
    }

    pub(crate) fn set_witness(&self, witness: Witness) {
        *self.witness.lock() = Some(witness);
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.recorded.lock().calls.clone()
    }

    pub(crate) fn clear_calls(&self) {
        let mut recorder = self.recorded.lock();
        recorder.cleared += recorder.calls.len();
        recorder.calls.clear();
    }

    pub(crate) fn set_recording(&self, on: bool) {
        self.recorded.lock().off = !on;
    }

    pub(crate) fn set_interceptor(&self, interceptor: Option<Interceptor>) {
        *self.interceptor.lock() = interceptor;
    }

    pub(crate) fn judge(&self, call: &Call) -> Verdict {
        self.interceptor.lock().as_mut().map_or(Verdict::Pass, |it| it(call))
    }

    pub(crate) fn groups(&self) -> Groups {
        self.groups.lock().clone()
    }

    pub(crate) fn change_groups(&self, change: impl FnOnce(&mut Groups)) {
        change(&mut self.groups.lock());
    }

    pub(crate) fn is_broken(&self, group: &str) -> bool {
        self.groups.lock().broken.contains(group)
    }
}
