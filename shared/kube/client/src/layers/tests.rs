use std::future::Future;

use api::Resource;
use std::time::Duration;

use clock::Timestamp;
use http::Method;
use http_body_util::{BodyExt, Full, StreamBody};
use metrics::Metrics;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::{
    Api, BoxError, Clients, Connection, DeleteOptions, Environment, Limits, ListOptions, Patch, TermLimits,
    Unreachable, Watcher,
};

mod accounts;

const LIMITS: Limits = Limits { qps: 20.0, burst: 30 };
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const TERM: TermLimits =
    TermLimits { renew_deadline: Duration::from_secs(10), lease_duration: Duration::from_secs(15) };

/// A request that reached the transport.
#[derive(Debug, Clone)]
struct ReceivedRequest {
    at: Duration,
    method: Method,
    uri: String,
    agent: String,
}

/// Clients on a simulated transport, with virtual time.
struct Bench {
    clock: Clock,
    metrics: Metrics,
    term: Term,
    stop: CancellationToken,
    received: Arc<Mutex<Vec<ReceivedRequest>>>,
    clients: Clients,
}

impl Bench {
    /// `respond` gets the number of the request, from 0.
    fn new<F>(
        term: impl FnOnce(Clock) -> Term,
        respond: impl Fn(usize, &Request<Body>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Response<Incoming>, BoxError>> + Send + 'static,
    {
        let clock = Clock::virtual_from(Timestamp::UNIX_EPOCH);
        let (metrics, stop) = (Metrics::new(), CancellationToken::new());
        let term = term(clock.clone());
        let received = Arc::<Mutex<Vec<ReceivedRequest>>>::default();
        let (began, log, now) = (clock.now(), received.clone(), clock.clone());
        let respond = Arc::new(respond);
        let transport = BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            let mut log = log.lock();
            let agent = request.headers()[header::USER_AGENT].to_str().unwrap().to_owned();
            let (method, uri) = (request.method().clone(), request.uri().to_string());
            log.push(ReceivedRequest { at: now.now() - began, method, uri, agent });
            respond(log.len() - 1, &request)
        }));
        let clients = Clients::new(
            Connection::in_memory(transport),
            Environment {
                clock: clock.clone(),
                metrics: metrics.clone(),
                term: term.clone(),
                stop: stop.clone(),
                user_agent: "mini-kcm/v1".to_owned(),
            },
        );
        Self { clock, metrics, term, stop, received, clients }
    }

    /// The responses by request number: status, `Retry-After`, body.
    fn scripted(script: &'static [(u16, Option<&'static str>, &'static str)]) -> Self {
        Self::new(Term::endless, move |number, _| {
            let (code, after, body) = script[number.min(script.len() - 1)];
            async move { Ok(response(code, after, body)) }
        })
    }

    fn requests(&self) -> Vec<ReceivedRequest> {
        self.received.lock().clone()
    }

    fn controller(&self) -> Api {
        self.clients.controller("job-controller", Limits::NONE)
    }

    fn watcher(&self) -> Watcher {
        self.clients.watcher(Limits::NONE)
    }
}

fn response(code: u16, after: Option<&str>, body: &'static str) -> Response<Incoming> {
    let mut response = Response::builder().status(code);
    if let Some(after) = after {
        response = response.header(header::RETRY_AFTER, after);
    }
    response.body(Full::from(body).map_err(|never| match never {}).boxed_unsync()).unwrap()
}

const WRITTEN: &str = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"7"}}"#;

fn pods() -> Resource {
    Resource::namespaced("", "v1", "pods", "Pod")
}

async fn create(api: &Api) -> Result<(), ApiError> {
    api.create(&pods(), "ns", &json!({ "kind": "Pod" })).await.map(|_| ())
}

#[tokio::test(start_paused = true)]
async fn request_is_retried_after_the_time_in_retry_after() {
    let bench = Bench::scripted(&[(429, Some("2"), ""), (503, Some("1"), ""), (200, None, "fine")]);
    assert_eq!(bench.controller().read("/version", "*/*").await.unwrap(), "fine");
    let times: Vec<_> = bench.requests().iter().map(|it| it.at.as_secs()).collect();
    assert_eq!(times, [0, 2, 3]);
    let text = bench.metrics.encode();
    for line in [
        r#"rest_client_request_retries_total{code="429",host="in-memory",verb="GET"} 1"#,
        r#"rest_client_requests_total{code="503",host="in-memory",method="GET"} 1"#,
        r#"rest_client_requests_total{code="200",host="in-memory",method="GET"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn request_is_retried_ten_times_at_most() {
    let bench = Bench::scripted(&[(429, Some("1"), "Too many requests")]);
    let err = create(&bench.controller()).await.unwrap_err();
    assert!(matches!(&err, ApiError::Busy { after: Some(_), .. }), "{err}");
    assert_eq!(bench.requests().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn write_that_was_answered_with_503_has_an_unknown_outcome_if_it_cannot_be_repeated() {
    let deletes = async |bench: &Bench| {
        bench.controller().delete(&pods(), "ns", "a", &DeleteOptions::default()).await.unwrap_err()
    };
    let busy = Bench::scripted(&[(503, Some("1"), ""), (429, Some("60"), "")]);
    assert!(matches!(deletes(&busy).await, ApiError::Unknown { .. }));
    let refused = |number, _: &Request<Body>| async move {
        if number == 0 { Ok(response(503, Some("1"), "")) } else { Err(BoxError::from(Unreachable("refused".into()))) }
    };
    assert!(matches!(deletes(&Bench::new(Term::endless, refused)).await, ApiError::Unknown { .. }));
    let stopped = Bench::scripted(&[(503, Some("30"), "")]);
    let stop = stopped.stop.clone();
    let stopping = async move {
        tokio::time::sleep(SECOND).await;
        stop.cancel();
    };
    let (outcome, ()) = tokio::join!(deletes(&stopped), stopping);
    assert!(matches!(outcome, ApiError::Unknown { .. }), "{outcome}");
    let without_503 = Bench::scripted(&[(429, Some("1"), "")]);
    assert!(matches!(deletes(&without_503).await, ApiError::Busy { .. }));
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_one_minute_at_most() {
    const IN_THE_BODY: &str = r#"{"kind":"Status","details":{"retryAfterSeconds":4294967295}}"#;
    const NO_TIME: &str = "18446744073709551615";
    for (after, body) in [(Some("3600"), ""), (Some(NO_TIME), ""), (None, IN_THE_BODY), (Some(NO_TIME), IN_THE_BODY)] {
        let respond = move || async move { Ok(response(429, after, body)) };
        let err = Bench::new(Term::endless, move |_, _| respond()).watcher().list("/api/v1/pods", "*/*").await;
        assert!(matches!(&err, Err(ApiError::Busy { after: Some(MINUTE), .. })), "{after:?} {body}: {err:?}");
    }
    for (after, body) in [(Some(NO_TIME), ""), (None, IN_THE_BODY)] {
        let respond = move || async move { Ok(response(429, after, body)) };
        let refused = Bench::new(Term::endless, move |_, _| respond()).watcher().watch("/watch", "*/*").await.err();
        assert!(matches!(&refused, Some(ApiError::Busy { after: Some(MINUTE), .. })), "{after:?} {body}: {refused:?}");
    }
    let bench = Bench::scripted(&[(429, Some(NO_TIME), ""), (200, None, WRITTEN)]);
    create(&bench.controller()).await.unwrap();
    assert_eq!(bench.requests()[1].at, MINUTE);
}

#[tokio::test(start_paused = true)]
async fn waiting_request_wakes_its_worker_each_minute() {
    let bench = Bench::scripted(&[(200, None, WRITTEN)]);
    let api = bench.clients.controller("slow", Limits { qps: 0.001, burst: 1 });
    create(&api).await.unwrap();
    let mut request = std::pin::pin!(create(&api));
    let (mut moved, mut longest) = (bench.clock.now(), Duration::ZERO);
    std::future::poll_fn(|cx| {
        longest = longest.max(bench.clock.now() - moved);
        moved = bench.clock.now();
        request.as_mut().poll(cx)
    })
    .await
    .unwrap();
    assert!(longest <= MINUTE, "{longest:?}");
    assert!(bench.requests()[1].at >= 16 * MINUTE);
}

#[tokio::test(start_paused = true)]
async fn reflectors_reviews_and_the_lease_are_not_retried() {
    let bench = Bench::scripted(&[(429, Some("1"), "")]);
    assert!(bench.watcher().list("/api/v1/pods", "*/*").await.is_err());
    assert!(bench.watcher().watch("/api/v1/pods?watch=1", "*/*").await.is_err());
    assert!(bench.clients.unfenced("reviews", LIMITS).post("/apis/x", &json!({})).await.is_err());
    assert!(bench.clients.lease(SECOND).read("/lease", "*/*").await.is_err());
    assert_eq!(bench.requests().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn stop_ends_waits_at_once_and_nothing_is_sent() {
    let bench = Bench::scripted(&[(429, Some("3600"), ""), (200, None, WRITTEN)]);
    let (controller, limited) = (bench.controller(), bench.clients.controller("b", Limits { qps: 0.001, burst: 1 }));
    let stop = bench.stop.clone();
    let stopping = async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        stop.cancel();
    };
    let requests = async {
        let retried = create(&controller).await.unwrap_err();
        assert!(matches!(retried, ApiError::NotSent(NotSent::Stopping)), "{retried}");
        create(&limited).await.expect("an available token needs no wait");
        let throttled = create(&limited).await.unwrap_err();
        assert!(matches!(throttled, ApiError::NotSent(NotSent::Stopping)), "{throttled}");
    };
    let began = bench.clock.now();
    tokio::join!(stopping, requests);
    assert_eq!(bench.clock.now() - began, Duration::from_secs(1));
    assert_eq!(bench.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_042_each_controller_has_its_own_rate_limit() {
    let bench = Bench::scripted(&[(200, None, WRITTEN)]);
    let (one, other) = (bench.clients.controller("one", LIMITS), bench.clients.controller("other", LIMITS));
    // 30 requests at once, then ten more at 20 per second. Reads and writes of one controller share the limit.
    for number in 0..40 {
        match number % 2 {
            0 => create(&one).await.unwrap(),
            _ => drop(one.read("/api", "*/*").await.unwrap()),
        }
    }
    let last = bench.requests().last().unwrap().at;
    assert_eq!(last, Duration::from_millis(500));
    create(&other).await.unwrap();
    assert_eq!(bench.requests().last().unwrap().at, last, "the rate limit of the other controller is not used");
}

#[tokio::test(start_paused = true)]
async fn acceptance_shell_041_user_agent_is_the_manager_and_the_client() {
    let bench = Bench::scripted(&[(200, None, WRITTEN)]);
    create(&bench.controller()).await.unwrap();
    bench.watcher().list("/api", "*/*").await.unwrap();
    bench.clients.lease(SECOND).read("/lease", "*/*").await.unwrap();
    let agents: Vec<_> = bench.requests().into_iter().map(|it| it.agent).collect();
    assert_eq!(agents, ["mini-kcm/v1/job-controller", "mini-kcm/v1/shared-informers", "mini-kcm/v1/leader-election"]);
}

#[tokio::test(start_paused = true)]
async fn opening_a_watch_takes_a_token_and_a_proof_does_not() {
    let bench = Bench::scripted(&[(200, None, "")]);
    let watcher = bench.clients.watcher(Limits { qps: 1.0, burst: 1 });
    for _ in 0..2 {
        watcher.watch("/watch", "*/*").await.unwrap();
    }
    for _ in 0..3 {
        watcher.urgent().list("/proof", "*/*").await.unwrap();
    }
    let times: Vec<_> = bench.requests().iter().map(|it| it.at.as_secs()).collect();
    assert_eq!(times, [0, 1, 1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn attempt_has_a_deadline_and_a_watch_has_one_for_its_opening() {
    let bench = Bench::new(Term::endless, |_, _| std::future::pending());
    let took = |api: Api| {
        let clock = bench.clock.clone();
        async move {
            let began = clock.now();
            let err = api.read("/slow", "*/*").await.unwrap_err();
            assert!(matches!(err, ApiError::Unknown { status: None, .. }), "{err}");
            (clock.now() - began).as_secs()
        }
    };
    assert_eq!(took(bench.controller()).await, 70);
    assert_eq!(took(bench.clients.lease(5 * SECOND)).await, 5);
    assert_eq!(took(bench.clients.lease(2 * SECOND)).await, 2);
    let began = bench.clock.now();
    assert!(bench.watcher().watch("/watch", "*/*").await.is_err());
    assert_eq!((bench.clock.now() - began).as_secs(), 30);
    assert!(bench.metrics.encode().contains(r#"code="<error>""#));
}

#[tokio::test(start_paused = true)]
async fn time_limit_for_opening_a_watch_begins_with_its_token() {
    let bench = Bench::new(Term::endless, |number, _| async move {
        if number > 0 {
            std::future::pending::<()>().await;
        }
        Ok(response(200, None, ""))
    });
    let watcher = bench.clients.watcher(Limits { qps: 0.01, burst: 1 });
    watcher.watch("/watch", "*/*").await.unwrap();
    let began = bench.clock.now();
    let permit = watcher.permit("/watch").await.unwrap();
    assert_eq!(
        ((bench.clock.now() - began).as_secs(), bench.requests().len()),
        (100, 1),
        "nothing is sent while it waits"
    );
    assert!(permit.watch("/watch", "*/*", Some(10 * SECOND)).await.is_err());
    assert_eq!((bench.clock.now() - began).as_secs(), 110);
    assert_eq!(bench.requests().len(), 2);
    let line = r#"rest_client_rate_limiter_duration_seconds_sum{host="in-memory",verb="GET"} 100"#;
    assert!(bench.metrics.encode().contains(line), "the wait for a token is counted once");
}

#[tokio::test(start_paused = true)]
async fn write_answered_with_503_has_an_unknown_outcome() {
    let bench = Bench::scripted(&[(503, Some("1"), "")]);
    let api = bench.controller();
    let patch = Patch::Merge(json!({}));
    type Write<'a> = futures::future::BoxFuture<'a, Result<(), ApiError>>;
    let writes: [(&str, usize, Write<'_>); 2] = [
        ("a create is not retried", 1, Box::pin(create(&api))),
        (
            "a patch is retried ten times",
            11,
            Box::pin(async { api.patch(&pods(), "ns", "a", None, &patch).await.map(drop) }),
        ),
    ];
    for (name, requests, write) in writes {
        let before = bench.requests().len();
        let err = write.await.unwrap_err();
        assert!(matches!(&err, ApiError::Unknown { status: Some(_), .. }), "{name}: {err:?}");
        assert_eq!(bench.requests().len() - before, requests, "{name}");
        assert!(bench.clients.recent_writes().writes()[0].1.untracked, "{name}");
    }
    let err = api.read("/api", "*/*").await.unwrap_err();
    assert!(matches!(&err, ApiError::Busy { after: Some(_), .. }), "a read changes nothing: {err:?}");
}

#[tokio::test(start_paused = true)]
async fn dropped_write_has_an_unknown_outcome() {
    let bench = Bench::new(Term::endless, |_, _| std::future::pending());
    let api = bench.controller();
    assert!(tokio::time::timeout(SECOND, create(&api)).await.is_err());
    assert_eq!(bench.requests().len(), 1);
    let written = bench.clients.recent_writes().writes();
    assert_eq!(written.len(), 1);
    assert!(written[0].0 == pods() && written[0].1.untracked);
}

#[tokio::test(start_paused = true)]
async fn body_that_never_ends_is_an_error_at_the_deadline() {
    let endless = |code: u16| {
        let never = StreamBody::new(futures::stream::pending::<Result<http_body::Frame<bytes::Bytes>, BoxError>>());
        Response::builder().status(code).body(never.boxed_unsync()).unwrap()
    };
    let bench =
        Bench::new(Term::endless, move |number, _| async move { Ok(endless(if number < 2 { 200 } else { 410 })) });
    let began = bench.clock.now();
    assert!(bench.controller().read("/list", "*/*").await.is_err());
    assert_eq!((bench.clock.now() - began).as_secs(), 70);
    let mut watch = bench.watcher().watch("/watch", "*/*").await.unwrap();
    assert!(
        tokio::time::timeout(Duration::from_secs(600), watch.next_batch(1)).await.is_err(),
        "an open watch has no deadline"
    );
    let began = bench.clock.now();
    assert!(bench.watcher().watch("/refused", "*/*").await.is_err());
    assert_eq!((bench.clock.now() - began).as_secs(), 70, "a refused watch has a deadline");
}

#[tokio::test(start_paused = true)]
async fn controller_writes_only_in_its_term_and_reads_always() {
    let bench = Bench::new(Term::new, |_, _| async { Ok(response(200, None, WRITTEN)) });
    let (controller, unfenced) = (bench.controller(), bench.clients.unfenced("preflight", LIMITS));
    let refused = |result: Result<(), ApiError>| matches!(result, Err(ApiError::NotSent(NotSent::TermEnded)));
    assert!(refused(create(&controller).await), "before the term");
    controller.read("/api", "*/*").await.unwrap();
    create(&unfenced).await.unwrap();
    assert!(bench.term.extend(bench.clock.boot(), TERM));
    create(&controller).await.unwrap();
    tokio::time::advance(Duration::from_millis(9_701)).await;
    assert!(refused(create(&controller).await), "too late to start");
    assert_eq!(bench.requests().len(), 3);
    assert!(!bench.metrics.encode().contains("<error>"), "a write that the fence stopped is not counted");
}

#[tokio::test(start_paused = true)]
async fn term_is_checked_for_every_attempt() {
    let bench = Bench::new(Term::new, |_, _| async { Ok(response(429, Some("9"), "")) });
    assert!(bench.term.extend(bench.clock.boot(), TERM));
    bench.clock.suspend(Duration::from_millis(800));
    let err = create(&bench.controller()).await.unwrap_err();
    assert!(matches!(err, ApiError::NotSent(NotSent::TermEnded)), "{err}");
    assert_eq!(bench.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn only_creates_have_a_server_side_timeout() {
    let bench = Bench::new(Term::new, |_, _| async { Ok(response(200, None, WRITTEN)) });
    let api = bench.controller();
    assert!(bench.term.extend(bench.clock.boot(), TERM));
    tokio::time::advance(Duration::from_millis(2_500)).await;
    create(&api).await.unwrap();
    api.patch(&pods(), "ns", "a", None, &Patch::Merge(json!({}))).await.unwrap();
    api.delete(&pods(), "ns", "a", &DeleteOptions::default()).await.unwrap();
    let _ = api.list_metadata(&pods(), None, &ListOptions::default()).await;
    let hinted: Vec<_> = bench.requests().iter().map(|it| it.uri.contains("timeout=")).collect();
    assert_eq!(hinted, [true, false, false, false]);
    // 15 s − 1 s − 2.5 s, in whole seconds.
    assert_eq!(bench.requests()[0].uri, "/api/v1/namespaces/ns/pods?fieldValidation=Ignore&timeout=11s");
    assert_eq!(bench.requests()[0].method, Method::POST);
    let endless = Bench::scripted(&[(200, None, WRITTEN)]);
    create(&endless.controller()).await.unwrap();
    assert!(!endless.requests()[0].uri.contains("timeout="));
}

#[tokio::test(start_paused = true)]
async fn only_writes_of_objects_skip_field_validation() {
    let bench = Bench::scripted(&[(200, None, WRITTEN)]);
    let (api, pods) = (bench.controller(), pods());
    let job: api::Job = api::Cached::decode_object(br#"{"metadata":{"namespace":"ns","name":"a"}}"#).unwrap();
    api.create(&pods, "ns", &json!({})).await.unwrap();
    api.replace(&pods, "ns", "a", &json!({})).await.unwrap();
    api.patch(&pods, "ns", "a", Some("status"), &Patch::Merge(json!({}))).await.unwrap();
    api.put_status(&job, None, &json!({})).await.unwrap();
    api.finalize("ns", api::StatusOwner::raw_metadata(&job), None, None, &[]).await.unwrap();
    let writes = bench.requests().len();
    api.delete(&pods, "ns", "a", &DeleteOptions::default()).await.unwrap();
    api.delete_collection(&pods, "ns", crate::Propagation::Background).await.unwrap();
    api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", &json!({})).await.unwrap();
    api.get::<api::Pod>(&pods, "ns", "a").await.unwrap();
    let requests = bench.requests();
    assert_eq!((writes, requests.len()), (5, 9));
    for (index, it) in requests.iter().enumerate() {
        assert_eq!(it.uri.ends_with("?fieldValidation=Ignore"), index < writes, "{} {}", it.method, it.uri);
    }
}

#[tokio::test(start_paused = true)]
async fn create_ended_too_early_pauses_timeouts_of_that_client_for_a_minute() {
    const CUT: &str = r#"{"kind":"Status","reason":"Timeout","code":504}"#;
    let bench = Bench::new(Term::new, |number, _| async move {
        Ok(if number == 0 { response(504, None, CUT) } else { response(201, None, WRITTEN) })
    });
    let (api, other) = (bench.controller(), bench.clients.controller("other", Limits::NONE));
    let renew = || assert!(bench.term.extend(bench.clock.boot(), TERM));
    renew();
    let longest = Some(TERM.lease_duration - Duration::from_secs(1));
    assert_eq!(api.longest_create(), longest);
    assert!(matches!(create(&api).await, Err(ApiError::Unknown { status: Some(_), .. })));
    create(&api).await.unwrap();
    assert_eq!((api.longest_create(), other.longest_create()), (None, longest));
    create(&other).await.unwrap();
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(6)).await;
        renew();
    }
    create(&api).await.unwrap();
    assert_eq!(api.longest_create(), None, "an earlier create may still be processed");
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(6)).await;
        renew();
    }
    assert_eq!(api.longest_create(), longest);
    let hinted: Vec<_> = bench.requests().iter().map(|it| it.uri.contains("timeout=")).collect();
    assert_eq!(hinted, [true, false, true, true]);
    let line = r#"mini_kcm_create_timeout_hints_suspended_total{client="job-controller"} 1"#;
    assert!(bench.metrics.encode().contains(line));
}

#[tokio::test(start_paused = true)]
async fn request_that_was_not_sent_is_distinguished_from_one_with_unknown_outcome() {
    let bench = Bench::new(Term::endless, |number, _| async move {
        Err(if number == 0 { Unreachable("refused".to_owned()).into() } else { BoxError::from("reset") })
    });
    let api = bench.controller();
    let not_sent = create(&api).await.unwrap_err();
    assert!(matches!(&not_sent, ApiError::NotSent(NotSent::Unreachable(why)) if why == "refused"), "{not_sent}");
    assert!(matches!(create(&api).await, Err(ApiError::Unknown { status: None, .. })));
    let line = r#"rest_client_requests_total{code="<error>",host="in-memory",method="POST"} 2"#;
    assert!(bench.metrics.encode().contains(line));
}

#[tokio::test(start_paused = true)]
async fn sizes_and_waits_are_counted() {
    let bench = Bench::scripted(&[(200, None, WRITTEN)]);
    let api = bench.clients.controller("a", Limits { qps: 1.0, burst: 1 });
    create(&api).await.unwrap();
    create(&api).await.unwrap();
    let text = bench.metrics.encode();
    let body = json!({ "kind": "Pod" }).to_string().len();
    for line in [
        format!(r#"rest_client_request_size_bytes_sum{{host="in-memory",verb="POST"}} {}"#, 2 * body),
        format!(r#"rest_client_response_size_bytes_sum{{host="in-memory",verb="POST"}} {}"#, 2 * WRITTEN.len()),
        r#"rest_client_rate_limiter_duration_seconds_sum{host="in-memory",verb="POST"} 1"#.to_owned(),
        r#"rest_client_request_duration_seconds_count{host="in-memory",verb="POST"} 2"#.to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn token_file_is_trimmed_and_read_again_after_a_minute() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "one\n").unwrap();
    let mut config = kube::Config::new(http::Uri::from_static("https://kubernetes"));
    config.auth_info.token_file = Some(file.path().display().to_string());
    let authorize = authorize(&config, None, &Clock::system()).unwrap().unwrap();
    let echo = BoxCloneSyncService::new(tower::service_fn(|request: Request<Body>| async move {
        let mut response = response(200, None, "");
        *response.headers_mut() = request.headers().clone();
        Ok(response)
    }));
    let service = authorize(echo);
    let authorization_header = || async {
        let response = service.clone().oneshot(Request::new(Body::default())).await.unwrap();
        response.headers()[header::AUTHORIZATION].to_str().unwrap().to_owned()
    };
    assert_eq!(authorization_header().await, "Bearer one");
    std::fs::write(file.path(), "two").unwrap();
    assert_eq!(authorization_header().await, "Bearer one");
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(authorization_header().await, "Bearer two");
    std::fs::remove_file(file.path()).unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(authorization_header().await, "Bearer two", "the last token that was read");
    std::fs::write(file.path(), "\n").unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(authorization_header().await, "Bearer two", "an empty file contains no token");
    config.auth_info.token_file = Some("/nowhere/token".to_owned());
    assert!(matches!(super::authorize(&config, None, &Clock::system()), Err(crate::ConfigError::TokenFile { .. })));
}

#[tokio::test(start_paused = true)]
async fn authentication_is_above_the_fence() {
    let mut config = kube::Config::new(http::Uri::from_static("https://kubernetes"));
    config.auth_info = serde_json::from_value(json!({ "token": "t", "as": "someone" })).unwrap();
    let authorize = authorize(&config, None, &Clock::system()).unwrap().unwrap();
    let transport = BoxCloneSyncService::new(tower::service_fn(|request: Request<Body>| async move {
        assert_eq!(request.headers()[header::AUTHORIZATION], "Bearer t");
        assert_eq!(request.headers()["impersonate-user"], "someone");
        Err(BoxError::from("reset"))
    }));
    let fenced = fence::fenced(transport, Some(Term::endless(Clock::system())));
    let err = authorize(fenced).oneshot(Request::new(Body::default())).await.unwrap_err();
    assert!(matches!(api_error(err), ApiError::Unknown { .. }), "the error of the transport is kept");
    assert!(matches!(api_error("no token".into()), ApiError::NotSent(NotSent::Unreachable(_))));
}
