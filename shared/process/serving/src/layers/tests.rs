use axum::routing::get;
use http_body_util::BodyExt as _;
use metrics::Metrics;
use serde_json::json;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::*;
use crate::{
    OpenPaths,
    authentication::{TOKENS, Tokens},
    authorization::{self, Reviews},
    measured::Measured,
    review::Reviewer,
    testing::{answer, api, silent, text},
    trust::Trust,
};

const TTL: Duration = Duration::from_secs(10);

/// The state of the API server.
#[derive(Clone, Copy, PartialEq)]
enum Server {
    Well,
    Down,
    Absent,
    /// It never responds.
    Silent,
}

/// A token is the name of its user. The API server allows only `monitor`, and only /metrics and /large.
fn gate(server: Server, open: &[&str]) -> (Arc<Gate>, Metrics) {
    let (clock, metrics) = (Clock::system(), Metrics::new());
    let measured = Arc::new(Measured::new(&metrics));
    let api = (server != Server::Absent).then(|| {
        if server == Server::Silent {
            return silent();
        }
        api(move |path, question| {
            if server == Server::Down {
                return answer(400, &json!({ "code": 400, "message": "it is down" }));
            }
            if path == authorization::PATH {
                let spec = &question["spec"];
                let asked = (&spec["user"], &spec["nonResourceAttributes"]);
                let paths = ["/metrics", "/large"].map(|it| json!({ "path": it, "verb": "get" }));
                let allowed = asked.0 == "monitor" && paths.contains(asked.1);
                return answer(201, &json!({ "status": { "allowed": allowed } }));
            }
            let name = question["spec"]["token"].clone();
            let groups = if name == "root" { json!(["system:masters"]) } else { json!([]) };
            let status = json!({ "authenticated": name != "bad", "user": { "username": name, "groups": groups } });
            answer(201, &json!({ "status": status }))
        })
    });
    let reviewer = |api, path, name| Reviewer::new(api, path, name, &metrics, clock.clone(), 1);
    let tokens =
        api.clone().map(|it| Tokens::new(reviewer(it, TOKENS, "authn"), TTL, clock.clone(), measured.clone()).unwrap());
    let reviews = api.map(|it| Reviews::new(reviewer(it, authorization::PATH, "authz"), TTL, TTL, clock.clone()));
    let (_, trust) = watch::channel(Arc::new(Trust::default()));
    let authentication = Authentication { trust, tokens, clock: clock.clone(), measured: measured.clone() };
    let open = OpenPaths::parse(&open.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()).unwrap();
    let authorization = Authorization { open, reviews, clock: clock.clone(), measured };
    (Gate::new(authentication, authorization, clock), metrics)
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
    let peer = Peer { address: [10, 0, 0, host].into(), chain: Arc::from([]), retire: CancellationToken::new() };
    request.extensions_mut().insert(peer);
    request
}

async fn code(pages: &Router, path: &str, token: Option<&str>) -> u16 {
    pages.clone().oneshot(request(path, token)).await.unwrap().status().as_u16()
}

const PROBES: &[&str] = &["/healthz", "/readyz", "/livez"];

#[tokio::test]
async fn acceptance_shell_019_probes_are_everybodys_and_the_rest_is_for_whom_the_server_allows() {
    let (gate, metrics) = gate(Server::Well, PROBES);
    let pages = gate.protect(pages());
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
    let asked =
        |metrics: &Metrics| metrics.encode().contains("apiserver_delegated_authz_request_total{code=\"201\"} 4");
    assert!(asked(&metrics), "{}", metrics.encode());
    assert_eq!(code(&pages, "/metrics", Some("monitor")).await, 200);
    assert!(asked(&metrics));
}

#[tokio::test]
async fn acceptance_shell_020_what_is_open_is_everybodys() {
    let pages = gate(Server::Well, &["/healthz", "/metrics"]).0.protect(pages());
    assert_eq!(code(&pages, "/metrics", None).await, 200);
}

#[tokio::test]
async fn acceptance_shell_021_without_an_authorizer_only_open_paths_are_served() {
    let pages = gate(Server::Absent, PROBES).0.protect(pages());
    for (path, want) in [("/healthz", 200), ("/metrics", 403)] {
        assert_eq!(code(&pages, path, None).await, want);
        // Without an authenticator a client with a token is anonymous, as upstream.
        assert_eq!(code(&pages, path, Some("monitor")).await, want);
    }
}

#[tokio::test]
async fn acceptance_shell_022_with_the_authorizer_down_probes_go_on_and_the_rest_is_an_error() {
    let pages = gate(Server::Down, PROBES).0.protect(pages());
    assert_eq!(code(&pages, "/healthz", None).await, 200);
    let answer = pages.oneshot(request("/metrics", None)).await.unwrap();
    assert_eq!(answer.status(), 500);
    let text = text(answer).await;
    assert!(text.starts_with("Internal Server Error: \"/metrics\": ") && text.contains("it is down"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_a_late_answer_and_a_large_body_are_answered() {
    let pages = gate(Server::Well, &["/*"]).0.protect(pages());
    assert_eq!(code(&pages, "/panic", None).await, 500);
    let late = pages.clone().oneshot(request("/slow", None)).await.unwrap();
    assert_eq!((late.status().as_u16(), &late.headers()["connection"]), (504, &HeaderValue::from_static("close")));
    for (size, want) in [(BODY, 200), (BODY + 1, 413)] {
        let put = |announced| {
            let request = http::Request::put("/echo");
            let request = if announced { request.header("content-length", size) } else { request };
            request.body(Body::from("x".repeat(size))).unwrap()
        };
        for announced in [true, false] {
            let answer = pages.clone().oneshot(put(announced)).await.unwrap();
            assert_eq!(answer.status(), want, "{size} {announced}");
        }
    }
}

#[tokio::test]
async fn nothing_is_cached_unless_a_page_says_so() {
    let pages = gate(Server::Well, &["/*"]).0.protect(pages());
    for (path, want) in [("/healthz", "no-cache, private"), ("/nothing", "no-cache, private"), ("/cached", "max-age=1")]
    {
        let answer = pages.clone().oneshot(request(path, None)).await.unwrap();
        assert_eq!(answer.headers()["cache-control"], want, "{path}");
    }
}

#[tokio::test]
async fn who_keeps_every_place_busy_does_not_keep_probes_out() {
    let (gate, _) = gate(Server::Well, PROBES);
    let pages = gate.clone().protect(pages());
    let large = async |host| pages.clone().oneshot(from(host, request("/large", Some("monitor")))).await.unwrap();
    // Responses that are not read. One host gets at most half of the limit.
    let mut unread = Vec::new();
    for host in [1, 2] {
        for _ in 0..MOST_REQUESTS / 2 {
            unread.push(large(host).await);
        }
        assert_eq!(large(host).await.status(), 429);
    }
    assert!(unread.iter().all(|it| it.status() == 200));
    assert_eq!(large(3).await.status(), 429);
    assert_eq!(code(&pages, "/healthz", None).await, 200);
    for answer in unread {
        answer.into_body().collect().await.unwrap();
    }
    assert_eq!(large(3).await.status(), 200);
}

#[tokio::test]
async fn large_open_answers_that_are_read_slowly_keep_no_probe_out() {
    let pages = gate(Server::Well, &["/healthz", "/large"]).0.protect(pages());
    let open = async |path, host| pages.clone().oneshot(from(host, request(path, None))).await.unwrap();
    let mut unread = Vec::new();
    for host in [1, 2] {
        for _ in 0..MOST_REQUESTS / 2 {
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
async fn bodies_for_open_pages_take_room_and_keep_no_probe_out() {
    let pages = gate(Server::Well, &["/healthz", "/echo"]).0.protect(pages());
    let put = |host| {
        let endless = futures::stream::pending::<Result<Bytes, std::convert::Infallible>>();
        let request = http::Request::put("/echo").body(Body::from_stream(endless)).unwrap();
        Box::pin(pages.clone().oneshot(from(host, request)))
    };
    let mut sent = Vec::new();
    for number in 0..MOST_REQUESTS {
        let mut put = put(u8::try_from(number % 2).unwrap());
        assert!(futures::poll!(put.as_mut()).is_pending());
        sent.push(put);
    }
    assert_eq!(put(3).await.unwrap().status(), 429);
    assert_eq!(code(&pages, "/healthz", None).await, 200);
}

#[tokio::test]
async fn small_answers_that_nobody_reads_take_no_room() {
    let pages = gate(Server::Well, PROBES).0.protect(pages());
    let mut unread = Vec::new();
    for _ in 0..3 * MOST_REQUESTS {
        unread.push(pages.clone().oneshot(request("/healthz", None)).await.unwrap());
    }
    assert!(unread.iter().all(|it| it.status() == 200));
}

/// A client may send as many of these as there are streams, and not read the responses.
#[tokio::test]
async fn refusals_of_long_paths_and_methods_are_small() {
    let long = "&".repeat(60_000);
    for server in [Server::Well, Server::Absent, Server::Down] {
        let pages = gate(server, PROBES).0.protect(pages());
        for method in ["GET", &long] {
            let request = http::Request::builder().method(method).uri(format!("/{long}"));
            let answer = pages.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            let (code, size) = (answer.status(), text(answer).await.len());
            assert_eq!(code, if server == Server::Down { 500 } else { 403 });
            assert!(size <= SMALL_ANSWER, "{code} to {} bytes of method: {size}", method.len());
        }
    }
}

#[tokio::test]
async fn an_undecided_request_is_logged_without_the_whole_of_a_long_path_or_method() {
    let log = ::testing::listen();
    let pages = gate(Server::Down, PROBES).0.protect(pages());
    let long = "A".repeat(10_000);
    let request = http::Request::builder().method(&*long).uri(format!("/{long}")).body(Body::empty()).unwrap();
    assert_eq!(pages.oneshot(request).await.unwrap().status(), 500);
    let lines: Vec<_> = log.lines().into_iter().filter(|it| it.contains("cannot find out who may see")).collect();
    assert!(lines.len() == 1 && lines[0].len() < 1_000, "{:?}", lines.iter().map(String::len).collect::<Vec<_>>());
}

#[tokio::test]
async fn who_is_refused_for_lack_of_room_loses_the_connection() {
    let pages = gate(Server::Well, &["/*"]).0.protect(pages());
    let mut unread = Vec::new();
    for _ in 0..MOST_REQUESTS / 2 {
        unread.push(pages.clone().oneshot(from(1, request("/large", None))).await.unwrap());
    }
    let answer = pages.clone().oneshot(from(1, request("/large", None))).await.unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["connection"]), (429, &HeaderValue::from_static("close")));
    let mut request = from(1, request("/large", Some("monitor")));
    *request.version_mut() = Version::HTTP_2;
    let retire = request.extensions().get::<Peer>().unwrap().retire.clone();
    let answer = pages.oneshot(request).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().get("connection")), (429, None));
    assert!(retire.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn tokens_that_nobody_tells_about_keep_no_probe_out() {
    let pages = gate(Server::Silent, PROBES).0.protect(pages());
    let mut asked = Vec::new();
    for number in 0..4 * MOST_REQUESTS {
        let host = u8::try_from(number % 4).unwrap();
        let request = from(host, request("/healthz", Some(&format!("token-{number}"))));
        asked.push(Box::pin(pages.clone().oneshot(request)));
    }
    let mut refused = 0;
    for asked in &mut asked {
        if let std::task::Poll::Ready(answer) = futures::poll!(asked.as_mut()) {
            assert_eq!(answer.unwrap().status(), 429);
            refused += 1;
        }
    }
    assert_eq!(refused, 3 * MOST_REQUESTS);
    let begun = Clock::system().now();
    assert_eq!(code(&pages, "/healthz", None).await, 200);
    assert_eq!(Clock::system().now(), begun, "at once");
}

#[tokio::test(start_paused = true)]
async fn an_authorizer_that_never_answers_is_an_error_after_ten_seconds() {
    let pages = gate(Server::Silent, PROBES).0.protect(pages());
    let begun = Clock::system().now();
    assert_eq!(code(&pages, "/metrics", None).await, 500);
    assert_eq!((Clock::system().now() - begun).as_secs(), 10);
}
