use axum::routing::get;
use http_body_util::BodyExt as _;
use metrics::Metrics;
use serde_json::json;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::*;
use crate::{
    OpenPaths,
    auth_metrics::AuthMetrics,
    authentication::{TOKENS, TokenReviews},
    authorities::Authorities,
    authorization::{self, AccessReviews},
    review::ReviewClient,
    testing::{api, response, text, unresponsive_api},
};

const TTL: Duration = Duration::from_secs(10);

/// The state of the API server.
#[derive(Clone, Copy, PartialEq)]
enum Server {
    Healthy,
    Down,
    Absent,
    /// It never responds.
    Silent,
}

/// A token is the name of its user. The API server allows only `monitor`, and only /metrics and /large.
fn auth_layer(server: Server, open: &[&str]) -> (Arc<AuthLayer>, Metrics) {
    let (clock, metrics) = (Clock::system(), Metrics::new());
    let auth_metrics = Arc::new(AuthMetrics::new(&metrics));
    let api = (server != Server::Absent).then(|| {
        if server == Server::Silent {
            return unresponsive_api();
        }
        api(move |path, question| {
            if server == Server::Down {
                return response(400, &json!({ "code": 400, "message": "it is down" }));
            }
            if path == authorization::PATH {
                let spec = &question["spec"];
                let request = (&spec["user"], &spec["nonResourceAttributes"]);
                let paths = ["/metrics", "/large"].map(|it| json!({ "path": it, "verb": "get" }));
                let allowed = request.0 == "monitor" && paths.contains(request.1);
                return response(201, &json!({ "status": { "allowed": allowed } }));
            }
            let name = question["spec"]["token"].clone();
            let groups = if name == "root" { json!(["system:masters"]) } else { json!([]) };
            let status = json!({ "authenticated": name != "bad", "user": { "username": name, "groups": groups } });
            response(201, &json!({ "status": status }))
        })
    });
    let review_client = |api, path, name| ReviewClient::new(api, path, name, &metrics, clock.clone(), 1);
    let tokens = api.clone().map(|it| {
        TokenReviews::new(review_client(it, TOKENS, "authn"), TTL, clock.clone(), auth_metrics.clone()).unwrap()
    });
    let reviews =
        api.map(|it| AccessReviews::new(review_client(it, authorization::PATH, "authz"), TTL, TTL, clock.clone()));
    let (_, authorities) = watch::channel(Arc::new(Authorities::default()));
    let authentication =
        Authentication { authorities, tokens, clock: clock.clone(), auth_metrics: auth_metrics.clone() };
    let open = OpenPaths::parse(&open.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()).unwrap();
    let authorization = Authorization { open, reviews, clock: clock.clone(), auth_metrics };
    (AuthLayer::new(authentication, authorization, clock), metrics)
}

fn pages() -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/metrics", get(|| async { "numbers" }))
        .route("/panic", get(|| async { if true { panic!("on purpose") } else { "" } }))
        .route("/large", get(|| async { "x".repeat(100_000) }))
        .route("/slow", get(|| async { std::future::pending::<&str>().await }))
        .route("/echo", axum::routing::put(|body: String| async { body }))
        .route("/cached", get(|| async { ([("cache-control", "max-age=1")], "") }))
}

fn request(path: &str, token: Option<&str>) -> Request {
    let request = http::Request::get(path);
    let request = match token {
        Some(token) => request.header("authorization", format!("Bearer {token}")),
        None => request,
    };
    request.body(Body::empty()).unwrap()
}

/// The same request on a connection from 10.0.0.`host`.
fn from(host: u8, mut request: Request) -> Request {
    let peer =
        Peer { address: [10, 0, 0, host].into(), chain: Arc::from([]), graceful_shutdown: CancellationToken::new() };
    request.extensions_mut().insert(peer);
    request
}

async fn code(pages: &Router, path: &str, token: Option<&str>) -> u16 {
    pages.clone().oneshot(request(path, token)).await.unwrap().status().as_u16()
}

const PROBES: &[&str] = &["/healthz", "/readyz", "/livez"];

#[tokio::test]
async fn acceptance_shell_019_probes_are_open_and_other_paths_need_a_permission() {
    let (auth_layer, metrics) = auth_layer(Server::Healthy, PROBES);
    let pages = auth_layer.protect(pages());
    for (path, token, want) in [
        ("/healthz", None, 200),
        ("/metrics", None, 403),
        ("/metrics", Some("monitor"), 200),
        ("/metrics", Some("jane"), 403),
        ("/metrics", Some("bad"), 401),
        ("/healthz", Some("bad"), 401),
        ("/%6detrics", Some("monitor"), 404),
        ("/nothing", Some("root"), 404),
        ("/nothing", None, 403),
    ] {
        assert_eq!(code(&pages, path, token).await, want, "{path} {token:?}");
    }
    // The decision is cached.
    let is_reviewed_once =
        |metrics: &Metrics| metrics.encode().contains("apiserver_delegated_authz_request_total{code=\"201\"} 4");
    assert!(is_reviewed_once(&metrics), "{}", metrics.encode());
    assert_eq!(code(&pages, "/metrics", Some("monitor")).await, 200);
    assert!(is_reviewed_once(&metrics));
}

#[tokio::test]
async fn acceptance_shell_020_open_path_needs_no_permission() {
    let pages = auth_layer(Server::Healthy, &["/healthz", "/metrics"]).0.protect(pages());
    assert_eq!(code(&pages, "/metrics", None).await, 200);
}

#[tokio::test]
async fn acceptance_shell_021_without_an_authorizer_only_open_paths_are_served() {
    let pages = auth_layer(Server::Absent, PROBES).0.protect(pages());
    for (path, want) in [("/healthz", 200), ("/metrics", 403)] {
        assert_eq!(code(&pages, path, None).await, want);
        // Without an authenticator a client with a token is anonymous, as upstream.
        assert_eq!(code(&pages, path, Some("monitor")).await, want);
    }
}

#[tokio::test]
async fn acceptance_shell_022_with_the_authorizer_down_probes_succeed_and_other_paths_fail() {
    let pages = auth_layer(Server::Down, PROBES).0.protect(pages());
    assert_eq!(code(&pages, "/healthz", None).await, 200);
    let response = pages.oneshot(request("/metrics", None)).await.unwrap();
    assert_eq!(response.status(), 500);
    let text = text(response).await;
    assert!(text.starts_with("Internal Server Error: \"/metrics\": ") && text.contains("it is down"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn panic_timeout_and_large_body_get_error_responses() {
    let pages = auth_layer(Server::Healthy, &["/*"]).0.protect(pages());
    assert_eq!(code(&pages, "/panic", None).await, 500);
    let late = pages.clone().oneshot(request("/slow", None)).await.unwrap();
    assert_eq!((late.status().as_u16(), &late.headers()["connection"]), (504, &HeaderValue::from_static("close")));
    for (size, want) in [(MAX_BODY_SIZE, 200), (MAX_BODY_SIZE + 1, 413)] {
        let put = |announced| {
            let request = http::Request::put("/echo");
            let request = if announced { request.header("content-length", size) } else { request };
            request.body(Body::from("x".repeat(size))).unwrap()
        };
        for announced in [true, false] {
            let response = pages.clone().oneshot(put(announced)).await.unwrap();
            assert_eq!(response.status(), want, "{size} {announced}");
        }
    }
}

#[tokio::test]
async fn response_is_not_cacheable_unless_the_page_sets_the_header() {
    let pages = auth_layer(Server::Healthy, &["/*"]).0.protect(pages());
    for (path, want) in [("/healthz", "no-cache, private"), ("/nothing", "no-cache, private"), ("/cached", "max-age=1")]
    {
        let response = pages.clone().oneshot(request(path, None)).await.unwrap();
        assert_eq!(response.headers()["cache-control"], want, "{path}");
    }
}

#[tokio::test]
async fn full_page_limit_does_not_block_probes() {
    let (auth_layer, _) = auth_layer(Server::Healthy, PROBES);
    let pages = auth_layer.clone().protect(pages());
    let large = async |host| pages.clone().oneshot(from(host, request("/large", Some("monitor")))).await.unwrap();
    // Responses that are not read. One host gets at most half of the limit.
    let mut unread = Vec::new();
    for host in [1, 2] {
        for _ in 0..MAX_REQUESTS / 2 {
            unread.push(large(host).await);
        }
        assert_eq!(large(host).await.status(), 429);
    }
    assert!(unread.iter().all(|it| it.status() == 200));
    assert_eq!(large(3).await.status(), 429);
    assert_eq!(code(&pages, "/healthz", None).await, 200);
    for response in unread {
        response.into_body().collect().await.unwrap();
    }
    assert_eq!(large(3).await.status(), 200);
}

#[tokio::test]
async fn unread_responses_of_open_pages_do_not_block_probes() {
    let pages = auth_layer(Server::Healthy, &["/healthz", "/large"]).0.protect(pages());
    let open = async |path, host| pages.clone().oneshot(from(host, request(path, None))).await.unwrap();
    let mut unread = Vec::new();
    for host in [1, 2] {
        for _ in 0..MAX_REQUESTS / 2 {
            unread.push(open("/large", host).await);
        }
    }
    assert!(unread.iter().all(|it| it.status() == 200));
    assert_eq!(open("/large", 3).await.status(), 429);
    for host in [1, 3] {
        assert_eq!(open("/healthz", host).await.status(), 200, "host {host}");
    }
    drop(unread);
    assert_eq!(open("/large", 3).await.status(), 200);
}

#[tokio::test]
async fn request_bodies_of_open_pages_are_limited_and_do_not_block_probes() {
    let pages = auth_layer(Server::Healthy, &["/healthz", "/echo"]).0.protect(pages());
    let put = |host| {
        let endless = futures::stream::pending::<Result<Bytes, std::convert::Infallible>>();
        let request = http::Request::put("/echo").body(Body::from_stream(endless)).unwrap();
        Box::pin(pages.clone().oneshot(from(host, request)))
    };
    let mut sent = Vec::new();
    for number in 0..MAX_REQUESTS {
        let mut put = put(u8::try_from(number % 2).unwrap());
        assert!(futures::poll!(put.as_mut()).is_pending());
        sent.push(put);
    }
    assert_eq!(put(3).await.unwrap().status(), 429);
    assert_eq!(code(&pages, "/healthz", None).await, 200);
}

#[tokio::test]
async fn unread_small_responses_are_not_limited() {
    let pages = auth_layer(Server::Healthy, PROBES).0.protect(pages());
    let mut unread = Vec::new();
    for _ in 0..3 * MAX_REQUESTS {
        unread.push(pages.clone().oneshot(request("/healthz", None)).await.unwrap());
    }
    assert!(unread.iter().all(|it| it.status() == 200));
}

/// A client may send as many of these as there are streams, and not read the responses.
#[tokio::test]
async fn response_to_long_path_or_method_is_small() {
    let long = "&".repeat(60_000);
    for server in [Server::Healthy, Server::Absent, Server::Down] {
        let pages = auth_layer(server, PROBES).0.protect(pages());
        for method in ["GET", &long] {
            let request = http::Request::builder().method(method).uri(format!("/{long}"));
            let response = pages.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            let (code, size) = (response.status(), text(response).await.len());
            assert_eq!(code, if server == Server::Down { 500 } else { 403 });
            assert!(size <= SMALL_RESPONSE, "{code} to {} bytes of method: {size}", method.len());
        }
    }
}

#[tokio::test]
async fn long_path_and_method_are_shortened_in_the_log() {
    let log = harness::listen();
    let pages = auth_layer(Server::Down, PROBES).0.protect(pages());
    let long = "A".repeat(10_000);
    let request = http::Request::builder().method(&*long).uri(format!("/{long}")).body(Body::empty()).unwrap();
    assert_eq!(pages.oneshot(request).await.unwrap().status(), 500);
    let lines: Vec<_> = log.lines().into_iter().filter(|it| it.contains("cannot authorize a request")).collect();
    assert!(lines.len() == 1 && lines[0].len() < 1_000, "{:?}", lines.iter().map(String::len).collect::<Vec<_>>());
}

#[tokio::test]
async fn request_over_the_limit_closes_its_connection() {
    let pages = auth_layer(Server::Healthy, &["/*"]).0.protect(pages());
    let mut unread = Vec::new();
    for _ in 0..MAX_REQUESTS / 2 {
        unread.push(pages.clone().oneshot(from(1, request("/large", None))).await.unwrap());
    }
    let response = pages.clone().oneshot(from(1, request("/large", None))).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["connection"]),
        (429, &HeaderValue::from_static("close"))
    );
    let mut request = from(1, request("/large", Some("monitor")));
    *request.version_mut() = Version::HTTP_2;
    let graceful_shutdown = request.extensions().get::<Peer>().unwrap().graceful_shutdown.clone();
    let response = pages.oneshot(request).await.unwrap();
    assert_eq!((response.status().as_u16(), response.headers().get("connection")), (429, None));
    assert!(graceful_shutdown.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn tokens_without_a_review_response_do_not_block_probes() {
    let pages = auth_layer(Server::Silent, PROBES).0.protect(pages());
    let mut pending = Vec::new();
    for number in 0..4 * MAX_REQUESTS {
        let host = u8::try_from(number % 4).unwrap();
        let request = from(host, request("/healthz", Some(&format!("token-{number}"))));
        pending.push(Box::pin(pages.clone().oneshot(request)));
    }
    let mut refused = 0;
    for request in &mut pending {
        if let std::task::Poll::Ready(response) = futures::poll!(request.as_mut()) {
            assert_eq!(response.unwrap().status(), 429);
            refused += 1;
        }
    }
    assert_eq!(refused, 3 * MAX_REQUESTS);
    let begun = Clock::system().now();
    assert_eq!(code(&pages, "/healthz", None).await, 200);
    assert_eq!(Clock::system().now(), begun, "at once");
}

#[tokio::test(start_paused = true)]
async fn authorizer_without_response_is_an_error_after_ten_seconds() {
    let pages = auth_layer(Server::Silent, PROBES).0.protect(pages());
    let begun = Clock::system().now();
    assert_eq!(code(&pages, "/metrics", None).await, 500);
    assert_eq!((Clock::system().now() - begun).as_secs(), 10);
}
