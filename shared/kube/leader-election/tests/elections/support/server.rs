use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use client::{Body, BoxError, Incoming, Transport};
use clock::{Clock, Instant};
use futures::{StreamExt, channel::mpsc};
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const NAME: &str = "kube-controller-manager";

/// The latency of a request, and also of its response.
const LATENCY: Duration = Duration::from_millis(2);
const LATE: Duration = Duration::from_secs(1);

/// An API server with one Lease.
#[derive(Clone)]
pub(crate) struct Server(Arc<Mutex<State>>);

struct State {
    clock: Clock,
    start: Instant,
    lease: Option<Value>,
    version: u64,
    watches: Vec<(Link, mpsc::UnboundedSender<Bytes>)>,
    log: Vec<Entry>,
}

/// A request and its result.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) at: Duration,
    pub(crate) client: String,
    /// `get`, `create`, `update`, `watch`
    pub(crate) what: &'static str,
    pub(crate) code: u16,
}

impl Entry {
    pub(crate) fn is_stored_write(&self) -> bool {
        matches!(self.what, "create" | "update") && self.code < 300
    }
}

/// The network of one process.
#[derive(Clone)]
pub(crate) struct Link(Arc<(String, Mutex<(Mode, bool)>)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Up,
    /// Requests get neither a response nor an error.
    Hang,
    /// All requests get 500.
    Broken,
    /// Requests are executed, but their responses are lost.
    LosesResponses,
    /// Writes arrive a second after they were sent.
    LateWrites,
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, (Mode, bool)> {
        self.0.1.lock().unwrap()
    }

    pub(crate) fn mode(&self) -> Mode {
        self.lock().0
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.lock().0 = mode;
    }

    /// Watches are answered with 403 from now on.
    pub(crate) fn forbid_watch(&self) {
        self.lock().1 = false;
    }

    fn may_watch(&self) -> bool {
        self.lock().1
    }
}

impl Server {
    pub(crate) fn new() -> Self {
        let clock = Clock::virtual_from(super::epoch());
        let start = clock.now();
        Self(Arc::new(Mutex::new(State { clock, start, lease: None, version: 100, watches: vec![], log: vec![] })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub(crate) fn link(&self, client: &str) -> Link {
        Link(Arc::new((client.to_owned(), Mutex::new((Mode::Up, true)))))
    }

    /// A transport to the server in memory, over this link.
    pub(crate) fn transport(&self, link: &Link) -> Transport {
        let (server, link) = (self.clone(), link.clone());
        Transport::new(tower::service_fn(move |request: Request<Body>| {
            let (server, link) = (server.clone(), link.clone());
            // The request is executed even if its sender was dropped meanwhile.
            let response = tokio::spawn(async move { server.respond_to(&link, request).await });
            async move { response.await.map_err(BoxError::from) }
        }))
    }

    /// The time since the server was started.
    pub(crate) fn elapsed(&self) -> Duration {
        let state = self.lock();
        state.clock.now() - state.start
    }

    pub(crate) fn lease(&self) -> Value {
        self.lock().lease.clone().unwrap_or(Value::Null)
    }

    pub(crate) fn spec(&self) -> Value {
        self.lease()["spec"].clone()
    }

    pub(crate) fn holder(&self) -> String {
        self.spec()["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn transitions(&self) -> i64 {
        self.spec()["leaseTransitions"].as_i64().unwrap_or_default()
    }

    pub(crate) fn log(&self) -> Vec<Entry> {
        self.lock().log.clone()
    }

    /// The stored writes of one process.
    pub(crate) fn writes(&self, client: &str) -> Vec<Entry> {
        self.log().into_iter().filter(|it| it.client == client && it.is_stored_write()).collect()
    }

    /// Changes the Lease as another client, without a version check.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut state = self.lock();
        let mut lease = state.lease.clone().unwrap_or_else(|| json!({ "metadata": { "name": NAME, "uid": "uid-1" } }));
        change(&mut lease);
        state.store(lease);
    }

    /// Stores a record as a Go manager writes it.
    pub(crate) fn store_go_record(&self, holder: &str, seconds: u32, transitions: i64, renewed: &str) {
        self.edit(|it| {
            it["spec"] = json!({
                "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": transitions,
                "acquireTime": renewed, "renewTime": renewed,
            });
        });
    }

    pub(crate) fn delete(&self) {
        let mut state = self.lock();
        if let Some(mut lease) = state.lease.take() {
            state.version += 1;
            lease["metadata"]["resourceVersion"] = json!(state.version.to_string());
            state.send_event("DELETED", &lease);
        }
    }

    async fn respond_to(&self, link: &Link, request: Request<Body>) -> Response<Incoming> {
        tokio::time::sleep(LATENCY).await;
        let (parts, body) = request.into_parts();
        let body: Value = match body.collect().await {
            Ok(body) => serde_json::from_slice(&body.to_bytes()).unwrap_or_default(),
            Err(never) => match never {},
        };
        let mode = link.mode();
        if mode == Mode::Hang {
            return std::future::pending().await;
        }
        if mode == Mode::LateWrites && parts.method != Method::GET {
            tokio::time::sleep(LATE).await;
        }
        let is_watch = parts.uri.query().is_some_and(|it| it.contains("watch=true"));
        let response = match mode {
            Mode::Broken => status(500, "InternalError"),
            _ if is_watch => self.lock().watch(link, parts.uri.query().unwrap_or_default()),
            _ => self.lock().serve(link, &parts.method, parts.uri.path(), body),
        };
        tokio::time::sleep(LATENCY).await;
        if link.mode() == Mode::LosesResponses && !is_watch {
            return std::future::pending().await;
        }
        response
    }
}

impl State {
    fn serve(&mut self, link: &Link, method: &Method, path: &str, body: Value) -> Response<Incoming> {
        let sent_version = body["metadata"]["resourceVersion"].as_str().map(ToOwned::to_owned);
        let (what, response) = match (method, path.strip_prefix(PATH)) {
            (&Method::GET, Some(_)) => ("get", self.lease.clone().ok_or((404, "NotFound"))),
            (&Method::POST, Some("")) if self.lease.is_some() => ("create", Err((409, "AlreadyExists"))),
            (&Method::POST, Some("")) => {
                let mut body = body;
                body["metadata"]["uid"] = json!(format!("uid-{}", self.version));
                ("create", Ok(self.store(body)))
            }
            (&Method::PUT, Some(_)) => {
                let current =
                    self.lease.as_ref().map(|it| it["metadata"]["resourceVersion"].as_str().map(ToOwned::to_owned));
                match current {
                    None => ("update", Err((404, "NotFound"))),
                    Some(current) if current == sent_version => ("update", Ok(self.store(body))),
                    Some(_) => ("update", Err((409, "Conflict"))),
                }
            }
            _ => panic!("unexpected request {method} {path}"),
        };
        let code = response.as_ref().map_or_else(|it| it.0, |_| 200);
        self.log.push(Entry { at: self.clock.now() - self.start, client: link.0.0.clone(), what, code });
        match response {
            Ok(lease) => respond(200, lease.to_string()),
            Err((code, reason)) => status(code, reason),
        }
    }

    fn watch(&mut self, link: &Link, query: &str) -> Response<Incoming> {
        assert!(query.contains("fieldSelector=metadata.name%3Dkube-controller-manager"), "{query}");
        let code = if link.may_watch() { 200 } else { 403 };
        let at = self.clock.now() - self.start;
        self.log.push(Entry { at, client: link.0.0.clone(), what: "watch", code });
        if code == 403 {
            return status(403, "Forbidden");
        }
        let (sender, receiver) = mpsc::unbounded();
        if let Some(lease) = &self.lease {
            sender.unbounded_send(frame("ADDED", lease)).unwrap();
        }
        self.watches.push((link.clone(), sender));
        let body = StreamBody::new(receiver.map(|it| Ok::<_, BoxError>(Frame::data(it))));
        Response::new(body.boxed_unsync())
    }

    fn store(&mut self, mut lease: Value) -> Value {
        let event = if self.lease.is_some() { "MODIFIED" } else { "ADDED" };
        if let Some(before) = &self.lease {
            lease["metadata"]["uid"] = before["metadata"]["uid"].clone();
        }
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.lease = Some(lease.clone());
        self.send_event(event, &lease);
        lease
    }

    /// Sends an event to all watches. A watch whose link is not up misses the event, so it ends.
    fn send_event(&mut self, event: &str, lease: &Value) {
        self.watches.retain(|(link, sender)| match link.mode() {
            Mode::Up | Mode::LateWrites => sender.unbounded_send(frame(event, lease)).is_ok(),
            Mode::Hang | Mode::Broken | Mode::LosesResponses => false,
        });
    }
}

fn frame(event: &str, lease: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({ "type": event, "object": lease })))
}

fn status(code: u16, reason: &str) -> Response<Incoming> {
    respond(code, json!({ "kind": "Status", "code": code, "reason": reason, "message": reason }).to_string())
}

fn respond(code: u16, body: String) -> Response<Incoming> {
    let body = Full::new(Bytes::from(body)).map_err(|never: Infallible| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}
