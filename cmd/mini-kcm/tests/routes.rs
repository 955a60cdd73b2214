//! Random requests to all routes of the serving port: no panic, and always a known answer.
//!
//! `CASES=1000000` runs a million cases, `SEED` selects other cases.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test helpers may panic")]

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use client::{Clients, Connection, Environment, Limits, Term, Transport};
use clock::{Clock, Timestamp};
use fastrand::Rng;
use http_body_util::{BodyExt as _, Full};
use metrics::Metrics;
use mini_kcm::{
    config::Config,
    flags::{self, Invocation},
    health::HealthChecks,
    pages::{PageData, router},
    version::VersionInfo,
};
use serde_json::{Value, json};
use tasks::Scope;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const METHODS: &[&str] =
    &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE", "WATCH", "x"];
const PATHS: &[&str] = &[
    "/",
    "*",
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/metrics/slis",
    "/configz",
    "/flagz",
    "/statusz",
    "/version",
    "/debug/controllers",
    "/debug/flags/v",
    "/debug/pprof/",
    "/healthz/leaderElection",
    "/readyz/informer-sync",
    "/debug/controllers/namespace-controller",
    "/debug/controllers/garbage-collector-controller/graph",
];
const QUERIES: &[&str] =
    &["", "verbose", "exclude=leaderElection", "exclude", "pretty=1", "verbose&exclude=a&exclude=b", "%", "a=%ff"];
const HEADERS: &[&str] = &[
    "authorization",
    "accept",
    "accept-encoding",
    "x-remote-user",
    "x-remote-group",
    "x-remote-extra-%zz",
    "content-type",
    "content-length",
    "user-agent",
    "if-none-match",
    "range",
    "expect",
    "connection",
    "upgrade",
    "host",
];
const VALUES: &[&str] = &[
    "Bearer token",
    "Bearer",
    "Basic YTpi",
    "application/json;v=v1beta1;g=config.k8s.io;as=Statusz",
    "application/yaml",
    "*/*",
    "application/openmetrics-text;version=1.0.0",
    "text/plain;q=0.1",
    ";;;,,,=",
    "gzip",
    "18446744073709551616",
    "-1",
    "65537",
    "100-continue",
    "bytes=0-",
    "curl/8",
];
const BODIES: &[&str] = &["", "4", "-1", "99999999999999999999", "{}", "\u{0}", "four"];

/// An API server with random answers from the seed, and sometimes no answer.
fn chance(seed: u64) -> Transport {
    let rng = std::sync::Mutex::new(Rng::with_seed(seed));
    let rng = std::sync::Arc::new(rng);
    Transport::new(tower::service_fn(move |request: http::Request<client::Body>| {
        let (code, status) = {
            let mut rng = rng.lock().expect("no panic while the lock is held");
            let user = json!({ "username": "jane", "groups": ["system:masters"] });
            match rng.u8(0..6) {
                0 => (403, json!({ "code": 403, "message": "no" })),
                1 => (201, json!({ "status": "nonsense" })),
                2 => (
                    201,
                    json!({ "status": { "authenticated": true, "allowed": true, "user": { "username": "joe" } } }),
                ),
                _ => (201, json!({ "status": { "authenticated": true, "allowed": rng.bool(), "user": user } })),
            }
        };
        drop(request);
        async move {
            let body = Full::new(status.to_string().into()).map_err(|never| match never {}).boxed_unsync();
            Ok(http::Response::builder().status(code).body(body).expect("an answer"))
        }
    }))
}

/// All layers except the connection: authentication, authorization, and all pages.
async fn service(seed: u64, scope: &Scope) -> Router {
    let Invocation::Run(typed) = flags::parse(std::iter::empty()) else { panic!("flags") };
    let serving = Config::new(typed).unwrap().serving.unwrap();
    let (clock, metrics) = (Clock::virtual_from(Timestamp::UNIX_EPOCH), Metrics::new());
    let environment = Environment {
        clock: clock.clone(),
        metrics: metrics.clone(),
        term: Term::endless(clock.clone()),
        stop: CancellationToken::new(),
        user_agent: "fuzz".to_owned(),
    };
    let api = Clients::new(Connection::in_memory(chance(seed)), environment).unfenced("fuzz", Limits::NONE);
    let mut options = serving.options;
    options.authentication.tolerate_lookup_failure = true;
    let deps = serving::Deps {
        authenticator: Some(api.clone()),
        authorizer: Some(api),
        clock: clock.clone(),
        seed,
        metrics: metrics.clone(),
        spawner: scope.spawner(),
    };
    let page_data = PageData {
        health: HealthChecks::default(),
        metrics,
        configuration: json!({ "kind": "KubeControllerManagerConfiguration" }),
        flags: [("v".to_owned(), "2".to_owned())].into(),
        disabled: Vec::new(),
        version: VersionInfo { emulation: 36, min_compatibility: 35 },
        absent: vec!["job-controller"],
        log: klog::Handle::detached(),
        profiling: true,
        clock: clock.clone(),
        started: clock.wall(),
    };
    serving::auth_layer(&options, &deps).await.unwrap().protect(router(page_data))
}

fn noise(rng: &mut Rng, most: usize) -> Vec<u8> {
    (0..rng.usize(0..most)).map(|_| rng.u8(..)).collect()
}

/// A request that an HTTP parser accepts; `None` when it does not.
fn request(rng: &mut Rng) -> Option<Request<Body>> {
    let path = match rng.u8(0..4) {
        0 => format!("/{}", String::from_utf8_lossy(&noise(rng, 40))),
        1 => format!("{}/{}", rng.choice(PATHS)?, rng.choice(PATHS)?),
        _ => (*rng.choice(PATHS)?).to_owned(),
    };
    let query = *rng.choice(QUERIES)?;
    let uri = if query.is_empty() { path } else { format!("{path}?{query}") };
    let mut request = Request::builder().method(*rng.choice(METHODS)?).uri(uri);
    for _ in 0..rng.usize(0..6) {
        let value = if rng.u8(0..4) == 0 { noise(rng, 60) } else { rng.choice(VALUES)?.as_bytes().to_vec() };
        request = request.header(*rng.choice(HEADERS)?, value);
    }
    let body = match rng.u16(..) {
        0 => vec![b'4'; 70_000],
        1..1000 => noise(rng, 200),
        _ => rng.choice(BODIES)?.as_bytes().to_vec(),
    };
    request.body(Body::from(body)).ok()
}

/// The error in an answer, if there is one.
fn wrong(code: StatusCode, text: &[u8]) -> Option<&'static str> {
    let known = [200, 400, 401, 403, 404, 405, 406, 413, 415, 429, 500, 504].contains(&code.as_u16());
    let panicked = text.windows(8).any(|it| it == b"panicked") || text.starts_with(b"This request caused a panic");
    if panicked {
        Some("a page panicked")
    } else if !known {
        Some("an unexpected code")
    } else if matches!(code.as_u16(), 401 | 403) && serde_json::from_slice::<Value>(text).is_err() {
        Some("a refusal that is not a Status")
    } else {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn unread_health_responses_do_not_block_probes() {
    let scope = Scope::new();
    let service = service(1, &scope).await;
    let ask = async |path: &str| {
        let request = Request::get(path).body(Body::empty()).unwrap();
        service.clone().oneshot(request).await.unwrap()
    };
    let long = format!("/healthz?verbose&exclude={}&exclude={}", "x".repeat(5_000), "%01".repeat(5_000));
    let mut unread = Vec::new();
    // More requests than there are request slots.
    for _ in 0..100 {
        unread.push(ask(&long).await);
    }
    assert_eq!(ask("/healthz").await.status(), 200);
    for response in unread {
        assert_eq!(response.status(), 200);
        let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert!(text.len() <= serving::SMALL_RESPONSE && text.ends_with(b"\nhealthz check passed\n"), "{}", text.len());
    }
}

#[tokio::test(start_paused = true)]
async fn random_requests_get_known_responses_without_panic() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|it| it.parse::<u64>().ok());
    let (cases, seed) = (variable("CASES").unwrap_or(3000), variable("SEED").unwrap_or(1));
    let scope = Scope::new();
    let (service, mut rng) = (service(seed, &scope).await, Rng::with_seed(seed));
    let (mut sent, mut codes) = (0, std::collections::BTreeMap::<u16, u64>::new());
    while sent < cases {
        let Some(request) = request(&mut rng) else { continue };
        sent += 1;
        let shown = format!("case {sent} of seed {seed}: {request:?}");
        let head = request.method() == "HEAD";
        let response = service.clone().oneshot(request).await.unwrap();
        let code = response.status();
        let body = to_bytes(response.into_body(), usize::MAX).await.unwrap_or_else(|err| panic!("{shown}: {err}"));
        *codes.entry(code.as_u16()).or_default() += 1;
        if let Some(wrong) = wrong(code, &body).filter(|_| !head) {
            panic!("{shown}: {wrong}: {code} {}", String::from_utf8_lossy(&body));
        }
    }
    assert!(codes.len() > 4 && codes.contains_key(&200), "{codes:?}");
}
