//! A kind, a server whose responses the test writes, and informers connected to it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{Cached, DecodeError, Event, Frame, Meta, MetaRef, Page, Resource, Status, Typed, Uid, Version};
use bytes::Bytes;
use client::{BoxError, Clients, Connection, Incoming, Limits, Term, Transport, Watcher};
use clock::Clock;
use futures::channel::mpsc as stream;
use http_body_util::{BodyExt, Full, StreamBody};
use metrics::Metrics;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tasks::Scope;
use tokio::sync::{mpsc, oneshot};

use crate::{Cause, Change, Environment, Informer, Informers};

/// A namespaced kind with an owner and a colour.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Thing {
    pub(crate) meta: Meta,
    pub(crate) color: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum ThingIndex {
    Owner(Uid),
    Color(String),
}

/// A thing as JSON; `color: 7` does not decode.
pub(crate) fn object(name: &str, version: u64, color: impl Into<Value>) -> Value {
    owned(name, version, color, "owner")
}

pub(crate) fn owned(name: &str, version: u64, color: impl Into<Value>, owner: &str) -> Value {
    json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Owner", "name": owner, "uid": owner, "controller": true }],
        },
        "color": color.into(),
    })
}

/// An object of the same name with another uid.
pub(crate) fn successor(name: &str, version: u64) -> Value {
    let mut object = object(name, version, "red");
    object["metadata"]["uid"] = json!(format!("uid-{name}-2"));
    object
}

fn thing(object: &Value) -> Result<Result<Thing, (Meta, String)>, DecodeError> {
    let meta = Meta::decode_object(object.to_string().as_bytes())?;
    Ok(match object["color"].as_str() {
        Some(color) => Ok(Thing { meta, color: color.to_owned() }),
        None => Err((meta, "color: not a string".to_owned())),
    })
}

impl Cached for Thing {
    type Index = ThingIndex;

    fn accept(_watch: bool) -> &'static str {
        "application/json"
    }

    fn decode_frame(bytes: &[u8]) -> Frame<Self> {
        let Ok(frame) = serde_json::from_slice::<Value>(bytes) else { return Frame::Garbage("no JSON".to_owned()) };
        let object = &frame["object"];
        let event = match frame["type"].as_str() {
            Some("ADDED") => Event::Added,
            Some("MODIFIED") => Event::Modified,
            Some("DELETED") => Event::Deleted,
            Some("BOOKMARK") => {
                return Frame::Bookmark {
                    version: Version::new(object["metadata"]["resourceVersion"].as_str().unwrap()),
                    initial_end: object["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true",
                };
            }
            Some("ERROR") => return Frame::Error(status(object)),
            other => return Frame::Garbage(format!("{other:?}")),
        };
        match thing(object) {
            Ok(Ok(it)) => Frame::Object(event, it),
            Ok(Err((meta, why))) => Frame::Unreadable(event, meta, why),
            Err(err) => Frame::Garbage(err.to_string()),
        }
    }

    fn decode_page(bytes: &[u8]) -> Result<Page<Self>, DecodeError> {
        let list: Value = serde_json::from_slice(bytes).map_err(|err| DecodeError(err.to_string()))?;
        let items = list["items"].as_array().ok_or_else(|| DecodeError("no list".to_owned()))?;
        Ok(Page {
            items: items.iter().map(thing).collect::<Result<_, _>>()?,
            version: Version::new(list["metadata"]["resourceVersion"].as_str().unwrap_or_default()),
            next: list["metadata"]["continue"].as_str().unwrap_or_default().to_owned(),
            remaining: None,
        })
    }

    fn decode_object(bytes: &[u8]) -> Result<Self, DecodeError> {
        let object = serde_json::from_slice(bytes).map_err(|err| DecodeError(err.to_string()))?;
        thing(&object)?.map_err(|(_, why)| DecodeError(why))
    }

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, add: &mut dyn FnMut(ThingIndex)) {
        Self::index_meta(self.meta(), add);
        add(ThingIndex::Color(self.color.clone()));
    }

    fn index_meta(meta: MetaRef<'_>, add: &mut dyn FnMut(ThingIndex)) {
        if let Some(owner) = meta.controller() {
            add(ThingIndex::Owner(owner.uid.clone()));
        }
    }
}

impl Typed for Thing {
    fn resource() -> Resource {
        Resource::namespaced("test.io", "v1", "things", "Thing")
    }
}

pub(crate) fn status(object: &Value) -> Status {
    serde_json::from_value(object.clone()).unwrap()
}

pub(crate) fn refusal(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "code": code, "reason": reason, "message": reason })
}

pub(crate) fn event(word: &str, object: &Value) -> Value {
    json!({ "type": word, "object": object })
}

pub(crate) fn bookmark(version: u64) -> Value {
    event("BOOKMARK", &json!({ "metadata": { "resourceVersion": version.to_string() } }))
}

pub(crate) fn set_end(version: u64) -> Value {
    let annotations = json!({ "k8s.io/initial-events-end": "true" });
    event("BOOKMARK", &json!({ "metadata": { "resourceVersion": version.to_string(), "annotations": annotations } }))
}

/// Requests arrive here and wait for the response of the test.
pub(crate) struct Server(mpsc::UnboundedReceiver<Call>);

pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) accept: String,
    response: oneshot::Sender<Result<http::Response<Incoming>, BoxError>>,
}

/// The server's end of an open watch.
pub(crate) struct Stream(stream::UnboundedSender<Result<http_body::Frame<Bytes>, BoxError>>);

impl Server {
    fn new() -> (Self, Transport) {
        let (send, calls) = mpsc::unbounded_channel();
        let transport = Transport::new(tower::service_fn(move |request: http::Request<client::Body>| {
            let send = send.clone();
            async move {
                let query = request.uri().query().unwrap_or_default();
                let query = query.split('&').filter_map(|pair| pair.split_once('='));
                let query = query.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
                let accept = request.headers().get(http::header::ACCEPT).and_then(|it| it.to_str().ok());
                let accept = accept.unwrap_or_default().to_owned();
                let (response, answered) = oneshot::channel();
                let _ = send.send(Call { path: request.uri().path().to_owned(), query, accept, response });
                match answered.await {
                    Ok(response) => response,
                    Err(_) => std::future::pending().await,
                }
            }
        }));
        (Self(calls), transport)
    }

    pub(crate) async fn next(&mut self) -> Call {
        self.0.recv().await.unwrap()
    }

    /// The next request, which must be a watch; opens it.
    pub(crate) async fn watch(&mut self) -> (Call, Stream) {
        let call = self.next().await;
        assert_eq!(call.query.get("watch").map(String::as_str), Some("true"), "{call:?}");
        call.open()
    }

    /// Asserts that no request arrives for this long.
    pub(crate) async fn expect_no_request_for(&mut self, time: Duration) {
        if let Ok(call) = tokio::time::timeout(time, self.0.recv()).await {
            panic!("unexpected {call:?}");
        }
    }
}

impl Call {
    pub(crate) fn parameter(&self, key: &str) -> &str {
        self.query.get(key).map_or("", String::as_str)
    }

    pub(crate) fn is_set(&self) -> bool {
        self.parameter("sendInitialEvents") == "true"
    }

    pub(crate) fn open(self) -> (Self, Stream) {
        let (send, frames) = stream::unbounded();
        let (response, _) = oneshot::channel();
        let call = Self { response, path: self.path, query: self.query, accept: self.accept };
        let body = StreamBody::new(frames).boxed_unsync();
        let _ = self.response.send(Ok(http::Response::new(body)));
        (call, Stream(send))
    }

    pub(crate) fn respond(self, code: u16, body: &Value) {
        let body = Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync();
        let _ = self.response.send(Ok(http::Response::builder().status(code).body(body).unwrap()));
    }

    pub(crate) fn list(self, version: u64, items: &[Value]) {
        self.respond(200, &json!({ "metadata": { "resourceVersion": version.to_string() }, "items": items }));
    }

    /// The connection fails.
    pub(crate) fn fail(self) {
        let _ = self.response.send(Err("connection refused".into()));
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}?{:?}", self.path, self.query)
    }
}

impl Stream {
    pub(crate) fn send_event(&self, frame: &Value) {
        self.send_text(&format!("{frame}\n"));
    }

    pub(crate) fn send_text(&self, text: &str) {
        assert!(self.send(Bytes::from(text.to_owned())));
    }

    /// False when the informer has closed the stream.
    pub(crate) fn send(&self, bytes: Bytes) -> bool {
        self.0.unbounded_send(Ok(http_body::Frame::data(bytes))).is_ok()
    }

    pub(crate) fn added(&self, name: &str, version: u64) {
        self.send_event(&event("ADDED", &object(name, version, "red")));
    }

    /// True when the informer has closed the stream.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

/// The informers of a manager and their server.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) informers: Informers,
    pub(crate) clients: Clients,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    pub(crate) scope: Scope,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::limited(Limits::NONE)
    }

    /// With a rate limit for all informers together.
    pub(crate) fn limited(limits: Limits) -> Self {
        let (server, transport) = Server::new();
        let clock = Clock::virtual_from(clock::Timestamp::UNIX_EPOCH);
        let (metrics, scope) = (Metrics::new(), Scope::new());
        let environment = client::Environment {
            clock: clock.clone(),
            metrics: metrics.clone(),
            term: Term::endless(clock.clone()),
            stop: tokio_util::sync::CancellationToken::new(),
            user_agent: "test".to_owned(),
        };
        let clients = Clients::new(Connection::in_memory(transport), environment);
        let watcher: Watcher = clients.watcher(limits);
        let informers = Informers::new(Environment {
            watcher,
            clock: clock.clone(),
            metrics: metrics.clone(),
            spawner: scope.spawner(),
            rng_seed: 7,
        });
        Self { server, informers, clients, clock, metrics, scope }
    }

    /// A synced informer with this first set, and its stream.
    pub(crate) async fn synced(set: &[Value], version: u64) -> (Self, Informer<Thing>, Stream) {
        let mut world = Self::new();
        let informer = world.informers.typed::<Thing>();
        let (_, stream) = world.server.watch().await;
        for object in set {
            stream.send_event(&event("ADDED", object));
        }
        stream.send_event(&set_end(version));
        informer.watched().wait_for_sync().await;
        (world, informer, stream)
    }

    /// The value of a series.
    pub(crate) fn metric(&self, series: &str) -> Option<f64> {
        let text = self.metrics.encode();
        text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse().ok())
    }
}

/// Records the calls of a handler.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn handler(&self) -> impl Fn(Change<'_, Thing>) + Send + Sync + 'static {
        let log = self.clone();
        move |change| log.0.lock().push(line(&change))
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }

    /// Waits for this many calls and returns them.
    pub(crate) async fn next(&self, count: usize) -> Vec<String> {
        for _ in 0..10_000 {
            if self.0.lock().len() >= count {
                return self.take();
            }
            tokio::task::yield_now().await;
        }
        panic!("only {:?}", self.take());
    }
}

/// `Watch a@1 -> a@2`
fn line(change: &Change<'_, Thing>) -> String {
    let Change { old, new, cause, stale } = *change;
    let side = |entry: Option<&api::Entry<Thing>>| {
        entry.map_or_else(String::new, |it| {
            let unreadable = if it.readable().is_some() { "" } else { "?" };
            format!("{}@{}{unreadable}", it.meta().name, it.meta().version)
        })
    };
    let same = cause == Cause::Resync && old.zip(new).is_some_and(|(old, new)| std::ptr::eq(old, new));
    let note = match (stale, same) {
        (true, _) => " stale",
        (_, true) => " same",
        _ => "",
    };
    format!("{cause:?} {} -> {}{note}", side(old), side(new))
}

/// Runs every task that can run, without advancing time.
pub(crate) async fn run_ready_tasks() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}
