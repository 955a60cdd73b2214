use std::{collections::VecDeque, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use client::{BoxError, Clients, Connection, Environment, Incoming, Limits, Term, Transport};
use clock::{Clock, Timestamp};
use fastrand::Rng;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use metrics::Metrics;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tasks::Scope;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;

/// The reaction of the server to one request.
#[derive(Debug, Clone)]
enum ScriptedResponse {
    Stored,
    Refused(u16, Value),
    /// The connection breaks.
    Broken,
    /// There is no response.
    Silence,
}

/// A request that the server received.
#[derive(Debug, Clone)]
struct ReceivedRequest {
    at: Duration,
    method: String,
    path: String,
    media_type: String,
    body: Value,
}

struct Rig {
    scope: Scope,
    clock: Clock,
    metrics: Metrics,
    recorder: Recorder,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    log: harness::Log,
}

/// A recorder and a server that responds by the script, and then always with `fallback`.
fn rig(script: impl IntoIterator<Item = ScriptedResponse>, fallback: ScriptedResponse) -> Rig {
    let script: Arc<Mutex<VecDeque<ScriptedResponse>>> = Arc::new(Mutex::new(script.into_iter().collect()));
    let clock = Clock::virtual_from(Timestamp::from_second(1_800_000_000).unwrap());
    let (requests, start) = (Arc::new(Mutex::new(Vec::new())), clock.now());
    let service = {
        let (requests, clock) = (requests.clone(), clock.clone());
        tower::service_fn(move |request: Request<client::Body>| {
            let (requests, at, script, fallback) =
                (requests.clone(), clock.now() - start, script.clone(), fallback.clone());
            let response = async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                requests.lock().push(ReceivedRequest {
                    at,
                    method: head.method.to_string(),
                    path: head.uri.path().to_owned(),
                    media_type: head.headers["content-type"].to_str()?.to_owned(),
                    body: serde_json::from_slice(&body)?,
                });
                let next = script.lock().pop_front();
                respond(next.unwrap_or(fallback)).await
            };
            let response: Pin<Box<dyn Future<Output = Result<Response<Incoming>, BoxError>> + Send>> =
                Box::pin(response);
            response
        })
    };
    let (scope, metrics) = (Scope::new(), Metrics::new());
    let environment = Environment {
        clock: clock.clone(),
        metrics: metrics.clone(),
        term: Term::endless(clock.clone()),
        stop: CancellationToken::new(),
        user_agent: "test".to_owned(),
    };
    let clients = Clients::new(Connection::in_memory(Transport::new(service)), environment);
    let recorder = Recorder::new(Deps {
        api: clients.controller("test", Limits { qps: 0.0, burst: 0 }),
        clock: clock.clone(),
        rng: Rng::with_seed(3),
        spawner: scope.spawner(),
        metrics: metrics.clone(),
        component: "job-controller".to_owned(),
        host: "host-1".to_owned(),
    });
    Rig { scope, clock, metrics, recorder, requests, log: harness::listen() }
}

async fn respond(response: ScriptedResponse) -> Result<Response<Incoming>, BoxError> {
    let (code, body) = match response {
        ScriptedResponse::Stored => (201, json!({ "metadata": { "name": "a.1", "uid": "u", "resourceVersion": "7" } })),
        ScriptedResponse::Refused(code, status) => (code, status),
        ScriptedResponse::Broken => return Err("connection reset".into()),
        ScriptedResponse::Silence => std::future::pending().await,
    };
    let body = Full::new(Bytes::from(body.to_string())).map_err(Into::into).boxed_unsync();
    Ok(Response::builder().status(code).header("content-type", "application/json").body(body)?)
}

fn pod(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        namespace: Some("ns".to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

fn gone() -> ScriptedResponse {
    ScriptedResponse::Refused(404, json!({ "reason": "NotFound", "details": { "name": "a.1" } }))
}

impl Rig {
    fn event(&self, object: &ObjectReference, reason: &str, message: &str) {
        self.recorder.event(object, EventType::Normal, reason, message.to_owned());
    }

    /// The requests so far, one line each.
    fn request_lines(&self) -> Vec<String> {
        let line = |it: &ReceivedRequest| format!("{} {} {}", it.method, it.body["count"], it.body["message"]);
        self.requests.lock().iter().map(line).collect()
    }

    fn dropped(&self, cause: &str) -> u64 {
        let line = format!("mini_kcm_events_dropped_total{{cause=\"{cause}\",component=\"job-controller\"}} ");
        let text = self.metrics.encode();
        text.lines().find_map(|it| it.strip_prefix(&line)).map_or(0, |it| it.parse().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_036_an_event_that_comes_five_times_is_one_object_with_count_five() {
    let rig = rig([], ScriptedResponse::Stored);
    for _ in 0..5 {
        rig.event(&pod("a"), "Created", "m");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(
        rig.request_lines(),
        ["POST 1 \"m\"", "PATCH 2 \"m\"", "PATCH 3 \"m\"", "PATCH 4 \"m\"", "PATCH 5 \"m\""]
    );
    let requests = rig.requests.lock();
    let name = requests[0].body["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        (requests[0].path.as_str(), requests[0].media_type.as_str()),
        ("/api/v1/namespaces/ns/events", "application/json")
    );
    assert_eq!(requests[4].path, format!("/api/v1/namespaces/ns/events/{name}"));
    assert_eq!(requests[4].media_type, "application/strategic-merge-patch+json");
    let first = Timestamp::from_second(1_800_000_000).unwrap();
    assert_eq!(requests[0].body["firstTimestamp"], first.to_string());
    let last = first + Duration::from_secs(4);
    assert_eq!(requests[4].body, json!({ "count": 5, "lastTimestamp": last.to_string(), "message": "m" }));
}

#[tokio::test(start_paused = true)]
async fn waiting_repetitions_are_merged_into_one_write() {
    let rig = rig([], ScriptedResponse::Stored);
    for _ in 0..5 {
        rig.event(&pod("a"), "Created", "m");
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.request_lines(), ["POST 5 \"m\""]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_037_ten_messages_of_one_reason_end_in_a_combined_event() {
    let rig = rig([], ScriptedResponse::Stored);
    for at in 0..11 {
        rig.event(&pod("a"), "Created", &format!("m{at}"));
        sleep(Duration::from_secs(1)).await;
    }
    let lines = rig.request_lines();
    assert_eq!(lines[8], "POST 1 \"m8\"");
    assert_eq!(
        lines[9..],
        ["POST 1 \"(combined from similar events): m9\"", "PATCH 2 \"(combined from similar events): m10\""]
    );
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_038_of_thirty_events_25_are_written_and_the_rest_is_counted() {
    let rig = rig([], ScriptedResponse::Stored);
    for at in 0..30 {
        rig.event(&pod("a"), &format!("Reason{at}"), "m");
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!((rig.requests.lock().len(), rig.dropped("spam")), (25, 5));
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_039_a_terminating_namespace_gets_one_try_without_error_noise() {
    let terminating = json!({
        "reason": "Forbidden",
        "details": { "causes": [{ "reason": "NamespaceTerminating", "message": "being terminated" }] },
    });
    let rig = rig([ScriptedResponse::Refused(403, terminating)], ScriptedResponse::Stored);
    rig.event(&pod("a"), "Created", "m");
    sleep(Duration::from_secs(600)).await;
    assert_eq!((rig.requests.lock().len(), rig.dropped("failed")), (1, 1));
    assert_eq!(rig.log.lines(), [""; 0]);

    // Any other refusal also ends the attempts, and is logged as an error.
    let rig = self::rig(
        [ScriptedResponse::Refused(403, json!({ "reason": "Forbidden", "message": "no" }))],
        ScriptedResponse::Stored,
    );
    rig.event(&pod("a"), "Created", "m");
    sleep(Duration::from_secs(600)).await;
    assert_eq!((rig.requests.lock().len(), rig.dropped("failed")), (1, 1));
    let lines = rig.log.lines();
    assert!(lines.len() == 1 && lines[0].contains("ERROR"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_040_without_an_api_server_a_write_is_tried_twelve_times_ten_seconds_apart() {
    let rig = rig([], ScriptedResponse::Broken);
    rig.event(&pod("a"), "Created", "m");
    sleep(Duration::from_secs(600)).await;
    let requests = rig.requests.lock();
    let waits: Vec<_> = requests.windows(2).map(|it| it[1].at - it[0].at).collect();
    assert_eq!(waits.len(), 11);
    assert!(waits[0] < Duration::from_secs(10), "{waits:?}");
    // Timers have a resolution of one millisecond.
    let ten = Duration::from_secs(10)..=Duration::from_millis(10_002);
    assert!(waits[1..].iter().all(|it| ten.contains(it)), "{waits:?}");
    assert_eq!(rig.dropped("failed"), 1);
}

#[tokio::test(start_paused = true)]
async fn retry_delays_no_other_event_and_includes_later_reports() {
    let rig = rig([ScriptedResponse::Broken], ScriptedResponse::Stored);
    rig.event(&pod("a"), "Created", "m");
    sleep(Duration::from_millis(1)).await;
    rig.event(&pod("b"), "Created", "n");
    rig.event(&pod("a"), "Created", "m");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.request_lines(), ["POST 1 \"m\"", "POST 1 \"n\""]);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.request_lines()[2..], ["POST 2 \"m\""]);
}

#[tokio::test(start_paused = true)]
async fn expired_event_is_created_again() {
    let rig = rig([ScriptedResponse::Stored, gone()], ScriptedResponse::Stored);
    for _ in 0..2 {
        rig.event(&pod("a"), "Created", "m");
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(rig.request_lines(), ["POST 1 \"m\"", "PATCH 2 \"m\"", "POST 2 \"m\""]);
    let requests = rig.requests.lock();
    assert_eq!(requests[2].body["metadata"], requests[0].body["metadata"], "the same name, without a resourceVersion");
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_041_events_about_nodes_are_in_default() {
    let rig = rig([], ScriptedResponse::Stored);
    rig.event(&ObjectReference { namespace: None, ..pod("n1") }, "NotReady", "m");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.requests.lock()[0].path, "/api/v1/namespaces/default/events");
}

#[tokio::test(start_paused = true)]
async fn full_channel_drops_and_counts_reports_without_blocking() {
    let rig = rig([], ScriptedResponse::Stored);
    for at in 0..1_005 {
        rig.event(&pod(&format!("p{at}")), "Created", "m");
    }
    assert_eq!(rig.dropped("full"), 5);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.requests.lock().len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn full_write_queue_fills_the_channel_and_both_are_bounded() {
    let rig = rig([], ScriptedResponse::Broken);
    for round in 0..3 {
        for at in 0..1_000 {
            rig.event(&pod(&format!("p{round}-{at}")), "Created", "m");
        }
        sleep(Duration::from_millis(1)).await;
    }
    assert!(rig.dropped("full") > 0, "one thousand waits for retry, another in the channel");
}

#[tokio::test(start_paused = true)]
async fn flush_writes_waiting_events_and_accepts_no_more() {
    let rig = rig([], ScriptedResponse::Stored);
    rig.event(&pod("a"), "Created", "m");
    rig.event(&pod("b"), "Created", "m");
    rig.recorder.flush(Duration::from_millis(500)).await;
    assert_eq!(rig.requests.lock().len(), 2);
    rig.event(&pod("c"), "Created", "m");
    sleep(Duration::from_secs(1)).await;
    assert_eq!((rig.requests.lock().len(), rig.dropped("full"), rig.scope.len()), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn flush_ends_in_time_without_a_response_and_drops_waiting_retries() {
    for (response, want) in
        [(ScriptedResponse::Silence, Duration::from_millis(500)), (ScriptedResponse::Broken, Duration::ZERO)]
    {
        let rig = rig([], response.clone());
        rig.event(&pod("a"), "Created", "m");
        sleep(Duration::from_millis(1)).await;
        let start = rig.clock.now();
        rig.recorder.flush(Duration::from_millis(500)).await;
        assert_eq!(rig.clock.now() - start, want, "{response:?}");
        sleep(Duration::from_secs(60)).await;
        assert_eq!((rig.requests.lock().len(), rig.scope.len()), (1, 0), "{response:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_a_flush_does_not_write_are_counted() {
    // One write without a response, and two Events behind it.
    let rig = rig([], ScriptedResponse::Silence);
    for name in ["a", "b", "c"] {
        rig.event(&pod(name), "Created", "m");
    }
    rig.recorder.flush(Duration::from_millis(500)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!((rig.requests.lock().len(), rig.dropped("stopped"), rig.scope.len()), (1, 3, 0));

    // A thousand retries wait, and further reports wait in the channel.
    let rig = self::rig([], ScriptedResponse::Broken);
    for round in 0..2 {
        for at in 0..700 {
            rig.event(&pod(&format!("p{round}-{at}")), "Created", "m");
        }
        sleep(Duration::from_millis(1)).await;
    }
    rig.recorder.flush(Duration::from_millis(500)).await;
    assert_eq!((rig.dropped("full"), rig.dropped("stopped"), rig.scope.len()), (0, 1_400, 0));

    let rig = self::rig([], ScriptedResponse::Stored);
    rig.event(&pod("a"), "Created", "m");
    rig.recorder.flush(Duration::from_millis(500)).await;
    assert_eq!((rig.requests.lock().len(), rig.dropped("stopped")), (1, 0), "what was written is not counted");
}

#[tokio::test(start_paused = true)]
async fn recorder_of_a_dropped_scope_is_flushed_at_once() {
    let rig = rig([], ScriptedResponse::Stored);
    drop(rig.scope);
    sleep(Duration::from_millis(1)).await;
    let start = rig.clock.now();
    rig.recorder.flush(Duration::from_secs(9)).await;
    assert_eq!(rig.clock.now(), start);
}
