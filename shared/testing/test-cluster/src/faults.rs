use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use clock::Instant;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// One request as the server received it, with the status code of its response.
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
    /// The bearer token of the `Authorization` header; empty when missing.
    pub token: String,
    /// The ServiceAccount of that token, as a user name; empty if the token is not from this server.
    pub user: String,
    /// The whole body.
    pub body: Bytes,
    /// The time of arrival, on the monotonic clock.
    pub at: Instant,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`; empty for paths that are
    /// not resources.
    pub verb: &'static str,
    /// API group; empty for core.
    pub group: String,
    /// Plural name of the resource; empty for paths that are not resources.
    pub resource: String,
    /// Such as `status`; usually empty.
    pub subresource: String,
    /// Namespace of the URL; empty for cluster scope.
    pub namespace: String,
    /// Name of the URL; empty for collections.
    pub name: String,
    /// Status code of the response; 0 while there is none, and when none reached the client.
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

    /// The body as JSON; null if it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Interception {
    /// It is served.
    Pass,
    /// It is not served; the client gets this response. A text body is sent as plain text.
    Answer {
        /// HTTP status code.
        status: u16,
        /// Additional headers, such as `Retry-After`.
        headers: Vec<(&'static str, String)>,
        /// The body.
        body: Value,
    },
    /// It is served, but the connection breaks before the response.
    LoseAnswer,
    /// The connection breaks before it is served.
    Fail,
    /// It is never served or answered.
    Hang,
    /// It is served after this time.
    Delay(Duration),
    /// It is served at once, and the response is sent after this time.
    DelayAnswer(Duration),
}

impl Interception {
    /// A failure as a Status; an empty reason is omitted.
    #[must_use]
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        let body = crate::Failure::new(code, reason, message, Some(json!({}))).into_status();
        Self::Answer { status: code, headers: Vec::new(), body }
    }

    /// The answer to a SelfSubjectAccessReview.
    #[must_use]
    pub fn access(is_allowed: bool) -> Self {
        let body = json!({ "kind": "SelfSubjectAccessReview", "status": { "allowed": is_allowed } });
        Self::Answer { status: 201, headers: Vec::new(), body }
    }

    /// A failure in plain text, as from an overloaded server or an unavailable group.
    #[must_use]
    pub fn text(code: u16, text: &str) -> Self {
        Self::Answer { status: code, headers: Vec::new(), body: text.into() }
    }

    /// Adds `Retry-After` in seconds to a response; other verdicts stay unchanged.
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
    /// Aggregated discovery marks its versions as stale and has no resources; the legacy document is 503.
    Stale,
    /// No discovery document contains it.
    Missing,
}

type Interceptor = Box<dyn FnMut(&Call) -> Interception + Send>;
type ResponseCallback = Box<dyn FnMut(&Call) + Send>;

/// Recorded requests and injected faults of a test.
#[derive(Default)]
pub(crate) struct Faults {
    recorded: Mutex<Recorder>,
    /// In a lock of its own, because an interceptor may read the recorded requests.
    interceptor: Mutex<Option<Interceptor>>,
    groups: Mutex<Groups>,
    response_callback: Mutex<Option<ResponseCallback>>,
}

#[derive(Default)]
struct Recorder {
    off: bool,
    /// How many recorded requests were deleted.
    cleared: usize,
    calls: Vec<Call>,
}

/// Faults by API group.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) broken: BTreeSet<String>,
    pub(crate) discovery: BTreeMap<String, DiscoveryFault>,
}

impl Groups {
    /// The discovery fault of this group, if any.
    pub(crate) fn discovery_fault(&self, group: &str) -> Option<DiscoveryFault> {
        if self.broken.contains(group) { Some(DiscoveryFault::Stale) } else { self.discovery.get(group).copied() }
    }
}

impl Faults {
    /// Records a request and returns its number.
    pub(crate) fn record(&self, call: &Call) -> Option<usize> {
        let mut recorder = self.recorded.lock();
        if recorder.off {
            return None;
        }
        recorder.calls.push(call.clone());
        Some(recorder.cleared + recorder.calls.len() - 1)
    }

    pub(crate) fn on_answered(&self, number: Option<usize>, status: u16) {
        let mut recorder = self.recorded.lock();
        let at = number.and_then(|it| it.checked_sub(recorder.cleared));
        if let Some(call) = at.and_then(|it| recorder.calls.get_mut(it)) {
            call.status = status;
        }
    }

    /// Calls the response callback with an answered request.
    pub(crate) fn call_response_callback(&self, mut call: Call, status: u16) {
        if let Some(response_callback) = self.response_callback.lock().as_mut() {
            call.status = status;
            response_callback(&call);
        }
    }

    pub(crate) fn set_response_callback(&self, response_callback: ResponseCallback) {
        *self.response_callback.lock() = Some(response_callback);
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

    pub(crate) fn intercept(&self, call: &Call) -> Interception {
        self.interceptor.lock().as_mut().map_or(Interception::Pass, |it| it(call))
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
