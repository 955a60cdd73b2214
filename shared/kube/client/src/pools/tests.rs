//! Tests with real sockets on loopback. They wait for notifications. If time must pass, they pause the clock and
//! advance it.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clock::Clock;
use futures::{FutureExt, future::join_all};
use http::{Response, header};
use http_body_util::{BodyExt, StreamBody};
use metrics::Metrics;
use serde_json::json;
use tasks::Scope;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{Barrier, Notify},
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use self::server::{HTTP1, HTTP2, Identity, Options, Received, Server, text_response};
use super::*;
use crate::{Api, ApiError, Clients, Connection, Environment, Incoming, Limits, NotSent, Patch, TermLimits};

mod addresses;
mod plugin;
mod server;
mod term;

/// The manager with its pools.
struct Manager {
    scope: Scope,
    clock: Clock,
    term: Term,
    metrics: Metrics,
    pools: crate::Pools,
    clients: Clients,
}

impl Manager {
    fn new(config: kube::Config) -> Self {
        Self::with_term(config, Term::endless)
    }

    fn with_term(config: kube::Config, term: impl FnOnce(Clock) -> Term) -> Self {
        let (scope, clock) = (Scope::new(), Clock::virtual_from(clock::Timestamp::UNIX_EPOCH));
        let (term, metrics) = (term(clock.clone()), Metrics::new());
        let options = options(&scope, &clock, &term, &metrics);
        let environment = Environment {
            clock: clock.clone(),
            metrics: metrics.clone(),
            term: term.clone(),
            stop: CancellationToken::new(),
            user_agent: "test".to_owned(),
        };
        let connection = Connection::open(config, options).unwrap();
        let pools = connection.pools.clone();
        let clients = Clients::new(connection, environment);
        Self { scope, clock, term, metrics, pools, clients }
    }

    /// A manager whose term has just begun.
    fn leading(config: kube::Config) -> Self {
        let limits = TermLimits { renew_deadline: 10 * SECOND, lease_duration: 15 * SECOND };
        let manager = Self::with_term(config, Term::new);
        assert!(manager.term.extend(manager.clock.boot(), limits));
        manager
    }

    /// Advances the term to its last 200 ms.
    fn advance_to_the_end_of_the_term(&self) {
        self.clock.suspend(Duration::from_millis(9_800));
    }

    fn to(server: &Server) -> Self {
        Self::new(config(server))
    }

    fn api(&self) -> Api {
        self.clients.controller("test", Limits::NONE)
    }
}

fn options(scope: &Scope, clock: &Clock, term: &Term, metrics: &Metrics) -> PoolOptions {
    PoolOptions {
        spawner: scope.spawner(),
        term: term.clone(),
        clock: clock.clone(),
        write_timeout: Duration::from_secs(5),
        lease_attempt: Duration::from_secs(5),
        plugins: Plugins::new(metrics),
    }
}

fn config(server: &Server) -> kube::Config {
    let mut config = kube::Config::new(format!("https://127.0.0.1:{}/prefix/", server.port).parse().unwrap());
    config.root_cert = Some(vec![server.authority.der.clone()]);
    config.tls_server_name = Some("kubernetes".to_owned());
    config
}

async fn read(api: &Api) -> Result<String, ApiError> {
    api.read("/api", "*/*").await.map(|it| String::from_utf8(it.to_vec()).unwrap())
}

async fn write(api: &Api, size: usize) -> Result<(), ApiError> {
    let patch = Patch::Merge(json!({ "data": "x".repeat(size) }));
    api.patch(&pods(), "ns", "a", None, &patch).await.map(|_| ())
}

fn pods() -> api::Resource {
    api::Resource::namespaced("", "v1", "pods", "Pod")
}

const SECOND: Duration = Duration::from_secs(1);

const WRITTEN: &str = r#"{"metadata":{"name":"a"}}"#;

/// The response is the number of the connection.
async fn echo(connection: usize, _: Received) -> Response<Incoming> {
    text_response(connection.to_string())
}

/// A response that begins and never ends.
fn open_ended(line: &'static str) -> Response<Incoming> {
    let first = futures::stream::iter([Ok(http_body::Frame::data(bytes::Bytes::from_static(line.as_bytes())))]);
    let body = StreamBody::new(futures::StreamExt::chain(first, futures::stream::pending()));
    Response::new(body.boxed_unsync())
}

#[tokio::test]
async fn requests_of_one_connection_share_one_task() {
    let all = Arc::new(Barrier::new(101));
    let arrived = all.clone();
    let server = Server::start(HTTP2, move |connection, _| {
        let all = all.clone();
        async move {
            all.wait().await;
            all.wait().await;
            text_response(connection.to_string())
        }
    })
    .await;
    let manager = Manager::to(&server);
    let api = manager.api();
    let count = async {
        arrived.wait().await;
        let tasks = manager.scope.len();
        arrived.wait().await;
        tasks
    };
    let (tasks, responses) = tokio::join!(count, join_all((0..100).map(|_| read(&api))));
    assert!(responses.into_iter().all(|it| it.unwrap() == "0"));
    assert_eq!(tasks, 1);
    server.go_away().await;
    while !manager.scope.is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn burst_at_the_start_shares_one_connection() {
    let all = Arc::new(Barrier::new(100));
    let server = Server::start(HTTP2, move |connection, request| {
        let all = all.clone();
        async move {
            assert_eq!(request.uri().path(), "/prefix/api");
            // No request gets a response before all have arrived.
            all.wait().await;
            text_response(connection.to_string())
        }
    })
    .await;
    let api = Manager::to(&server);
    let api = (api.api(), api);
    let responses = join_all((0..100).map(|_| read(&api.0))).await;
    assert!(responses.into_iter().all(|it| it.unwrap() == "0"));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn requests_above_the_stream_limit_of_the_server_wait() {
    let server = Server::start(Options { most_streams: 32, ..HTTP2 }, echo).await;
    let manager = Manager::to(&server);
    let api = manager.api();
    assert!(join_all((0..200).map(|_| read(&api))).await.into_iter().all(|it| it.is_ok()));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn http1_server_gets_a_bounded_number_of_connections() {
    let all = Arc::new(Barrier::new(HTTP1_CONNECTIONS));
    let server = Server::start(HTTP1, move |connection, request| {
        let all = all.clone();
        async move {
            assert_eq!(request.uri(), "/prefix/api");
            assert!(request.headers()[header::HOST].to_str().unwrap().starts_with("127.0.0.1:"));
            all.wait().await;
            text_response(connection.to_string())
        }
    })
    .await;
    let manager = Manager::to(&server);
    let api = manager.api();
    for _ in 0..2 {
        let responses = join_all((0..3 * HTTP1_CONNECTIONS).map(|_| read(&api))).await;
        assert!(responses.into_iter().all(|it| it.is_ok()));
    }
    assert_eq!(server.connections(), HTTP1_CONNECTIONS);
}

#[tokio::test]
async fn http1_watches_get_as_many_connections_as_they_need() {
    let server = Server::start(HTTP1, |_, _| async { open_ended("x\n") }).await;
    let manager = Manager::to(&server);
    let watcher = manager.clients.watcher(Limits::NONE);
    let mut watches = join_all((0..20).map(|_| watcher.watch("/watch", "*/*"))).await;
    for watch in &mut watches {
        assert_eq!(watch.as_mut().unwrap().next_batch(9).await.unwrap().unwrap(), ["x"]);
    }
    assert_eq!(server.connections(), 20);
}

#[tokio::test]
async fn full_watch_connection_is_followed_by_another() {
    for (most_streams, watches, connections) in [(32, 32, 1), (32, 40, 2), (250, 65, 2), (250, 200, 4)] {
        let server = Server::start(Options { most_streams, ..HTTP2 }, |_, _| async { open_ended("x\n") }).await;
        let manager = Manager::to(&server);
        let watcher = manager.clients.watcher(Limits::NONE);
        let open = join_all((0..watches).map(|_| watcher.watch("/watch", "*/*"))).await;
        assert!(open.iter().all(Result::is_ok));
        assert_eq!(server.connections(), connections, "{watches} watches of {most_streams}");
        // An ended watch frees its slot.
        drop(open);
        watcher.watch("/watch", "*/*").await.unwrap();
        assert_eq!(server.connections(), connections);
    }
}

#[tokio::test]
async fn retired_connection_gets_no_new_watch_and_keeps_the_old_one() {
    let server = Server::start(HTTP2, |connection, _| async move {
        open_ended(if connection == 0 { "first\n" } else { "second\n" })
    })
    .await;
    let manager = Manager::to(&server);
    let watcher = manager.clients.watcher(Limits::NONE);
    let mut frozen = watcher.watch("/watch", "*/*").await.unwrap();
    frozen.retire_connection();
    let mut reopened = watcher.watch("/watch", "*/*").await.unwrap();
    assert_eq!(reopened.next_batch(9).await.unwrap().unwrap(), ["second"]);
    assert_eq!(frozen.next_batch(9).await.unwrap().unwrap(), ["first"]);
}

#[tokio::test]
async fn request_after_a_go_away_has_a_new_connection() {
    let server = Server::start(HTTP2, |connection, request| async move {
        request.into_body().collect().await.unwrap();
        if connection < 9 { text_response(WRITTEN) } else { text_response("") }
    })
    .await;
    let manager = Manager::to(&server);
    let api = manager.api();
    for connections in 1..=3 {
        write(&api, 10).await.unwrap();
        assert_eq!(server.connections(), connections);
        server.go_away().await;
    }
}

/// GOAWAY without error; the last processed stream is 0.
const GO_AWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Reads the frames of an HTTP/2 client until the end of its first request.
async fn raw_request(tls: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin)) {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    tls.write_all(&SETTINGS).await.unwrap();
    tls.flush().await.unwrap();
    tls.read_exact(&mut [0; 24]).await.unwrap();
    loop {
        let mut head = [0; 9];
        tls.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        tls.read_exact(&mut vec![0; length as usize]).await.unwrap();
        let (data, end_of_stream) = (head[3] == 0, head[4] & 1 == 1);
        if data && end_of_stream {
            return;
        }
    }
}

#[tokio::test]
async fn write_that_the_server_did_not_process_is_sent_again() {
    let server = Server::start(
        Options {
            raw: Some(Arc::new(|mut tls| {
                async move {
                    raw_request(&mut tls).await;
                    tls.write_all(&GO_AWAY).await.unwrap();
                    tls.flush().await.unwrap();
                    // The connection remains open.
                    let _ = tls.read_to_end(&mut Vec::new()).await;
                }
                .boxed()
            })),
            ..HTTP2
        },
        |_, _| async { text_response(WRITTEN) },
    )
    .await;
    let manager = Manager::to(&server);
    write(&manager.api(), 10).await.unwrap();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn write_whose_connection_breaks_is_not_sent_again() {
    let server = Server::start(
        Options { raw: Some(Arc::new(|mut tls| async move { raw_request(&mut tls).await }.boxed())), ..HTTP2 },
        |_, _| async { text_response(WRITTEN) },
    )
    .await;
    let manager = Manager::to(&server);
    let api = manager.api();
    let err = write(&api, 10).await.unwrap_err();
    assert!(matches!(err, ApiError::Unknown { status: None, .. }), "{err}");
    write(&api, 10).await.unwrap();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn lease_attempt_without_a_response_retires_its_connection() {
    check_retirement(|clients| clients.lease(2 * SECOND)).await;
}

#[tokio::test]
async fn short_read_without_a_response_retires_its_connection() {
    check_retirement(|clients| clients.unfenced_within("polls", Limits::NONE, 2 * SECOND)).await;
}

/// The first connection never responds. A client with a limit of two seconds uses another one after that.
async fn check_retirement(client: impl FnOnce(&Clients) -> Api) {
    let arrived = Arc::new(Notify::new());
    let on_arrival = arrived.clone();
    let server = Server::start(HTTP2, move |connection, _| {
        let on_arrival = on_arrival.clone();
        async move {
            if connection == 0 {
                on_arrival.notify_one();
                std::future::pending::<()>().await;
            }
            text_response(connection.to_string())
        }
    })
    .await;
    let manager = Manager::to(&server);
    let api = client(&manager.clients);
    let pausing = async {
        arrived.notified().await;
        // From here the paused clock advances to the deadline.
        tokio::time::pause();
    };
    let began = manager.clock.now();
    let (hung, ()) = tokio::join!(read(&api), pausing);
    assert!(matches!(hung, Err(ApiError::Unknown { .. })));
    assert!((2 * SECOND..3 * SECOND).contains(&(manager.clock.now() - began)));
    tokio::time::resume();
    assert_eq!(read(&api).await.unwrap(), "1");
}

#[tokio::test]
async fn watch_that_is_not_opened_in_time_retires_its_connection() {
    let arrived = Arc::new(Notify::new());
    let on_arrival = arrived.clone();
    let server = Server::start(HTTP2, move |connection, _| {
        let on_arrival = on_arrival.clone();
        async move {
            if connection == 0 {
                on_arrival.notify_one();
                std::future::pending::<()>().await;
            }
            open_ended("x\n")
        }
    })
    .await;
    let manager = Manager::to(&server);
    let watcher = manager.clients.watcher(Limits::NONE);
    let permit = watcher.permit("/watch").await.unwrap();
    let pausing = async {
        arrived.notified().await;
        tokio::time::pause();
    };
    let began = manager.clock.now();
    let (hung, ()) = tokio::join!(permit.watch("/watch", "*/*", Some(10 * SECOND)), pausing);
    assert!(matches!(hung, Err(ApiError::Unknown { .. })));
    assert!((10 * SECOND..11 * SECOND).contains(&(manager.clock.now() - began)));
    tokio::time::resume();
    watcher.watch("/watch", "*/*").await.unwrap();
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn dropped_request_retires_no_connection() {
    let arrived = Arc::new(Notify::new());
    let on_arrival = arrived.clone();
    let server = Server::start(HTTP2, move |connection, request| {
        let on_arrival = on_arrival.clone();
        async move {
            if request.uri().path().ends_with("slow") {
                on_arrival.notify_one();
                std::future::pending::<()>().await;
            }
            text_response(connection.to_string())
        }
    })
    .await;
    let manager = Manager::to(&server);
    let api = manager.api();
    tokio::select! {
        _ = api.read("/slow", "*/*") => panic!("the server sends no response"),
        () = arrived.notified() => {}
    }
    assert_eq!(read(&api).await.unwrap(), "0");
}

#[tokio::test]
async fn renewed_client_certificate_is_used_by_new_connections() {
    let server = Server::start(Options { clients: true, ..HTTP2 }, echo).await;
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let store = |it: &Identity| {
        std::fs::write(&certificate, it.certificate.pem()).unwrap();
        std::fs::write(&key, it.key.serialize_pem()).unwrap();
    };
    let (old, new) = (server.authority.issue("old"), server.authority.issue("new"));
    store(&old);
    let mut config = config(&server);
    config.auth_info.client_certificate = Some(certificate.display().to_string());
    config.auth_info.client_key = Some(key.display().to_string());
    let manager = Manager::new(config);
    let api = manager.api();
    assert_eq!(read(&api).await.unwrap(), "0");
    store(&new);
    assert_eq!(read(&api).await.unwrap(), "0", "files are checked once a minute");
    advance_a_minute().await;
    // A certificate without its key does not match, so the old pair is used.
    std::fs::write(&key, old.key.serialize_pem()).unwrap();
    assert_eq!(read(&api).await.unwrap(), "0");
    std::fs::write(&key, new.key.serialize_pem()).unwrap();
    advance_a_minute().await;
    assert_eq!(read(&api).await.unwrap(), "1");
    let want = [old, new].map(|it| Some(it.certificate.der().to_vec()));
    assert_eq!(server.certificates(), want);
}

#[tokio::test]
async fn partly_written_authority_is_not_used() {
    let server = Server::start(HTTP2, echo).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.crt");
    let der = BASE64_STANDARD.encode(&server.authority.der);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n");
    std::fs::write(&file, &pem).unwrap();
    let mut config = config(&server);
    config.root_cert_file = Some(file.clone());
    let manager = Manager::new(config);
    let api = manager.api();
    assert_eq!(read(&api).await.unwrap(), "0");
    for half in ["", "-----BEGIN", "some text"] {
        std::fs::write(&file, half).unwrap();
        advance_a_minute().await;
        assert_eq!(read(&api).await.unwrap(), "0", "{half:?}");
    }
    std::fs::write(&file, format!("{pem}\n")).unwrap();
    advance_a_minute().await;
    assert_eq!(read(&api).await.unwrap(), "1");
}

#[tokio::test]
async fn only_connections_of_the_manager_have_a_client_certificate() {
    let server = Server::start(Options { clients: true, ..HTTP2 }, echo).await;
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let ours = server.authority.issue("manager");
    std::fs::write(&certificate, ours.certificate.pem()).unwrap();
    std::fs::write(&key, ours.key.serialize_pem()).unwrap();
    let mut config = config(&server);
    config.auth_info.client_certificate = Some(certificate.display().to_string());
    config.auth_info.client_key = Some(key.display().to_string());
    let manager = Manager::new(config);
    let crate::Pools { watches, reads, writes, lease, account_reads, account_writes } = manager.pools.clone();
    // One after the other, so that the connections have this order.
    for pool in [account_reads, account_writes, watches, reads, writes, lease] {
        pool.oneshot(http::Request::new(crate::Body::default())).await.unwrap();
    }
    // A server prefers a certificate to a token on the same connection.
    let want = Some(ours.certificate.der().to_vec());
    assert_eq!(server.certificates(), [None, None, want.clone(), want.clone(), want.clone(), want]);
}

async fn advance_a_minute() {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn unreachable_or_wrong_server_is_sent_nothing() {
    let server = Server::start(HTTP2, echo).await;
    let unreachable = |result: Result<String, ApiError>, word: &str| match result {
        Err(ApiError::NotSent(NotSent::Unreachable(why))) => assert!(why.contains(word), "{why}"),
        other => panic!("{other:?}"),
    };
    let mut other_name = config(&server);
    other_name.tls_server_name = Some("another-server".to_owned());
    unreachable(read(&Manager::new(other_name).api()).await, "certificate");
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let gone = kube::Config::new(format!("http://{gone}").parse().unwrap());
    unreachable(read(&Manager::new(gone).api()).await, "refused");
}

#[tokio::test]
async fn insecure_configuration_checks_no_name() {
    let server = Server::start(HTTP2, echo).await;
    let mut config = config(&server);
    (config.tls_server_name, config.root_cert, config.accept_invalid_certs) = (None, None, true);
    assert_eq!(read(&Manager::new(config).api()).await.unwrap(), "0");
}

#[tokio::test]
async fn proxy_gets_a_connect_request_with_its_password() {
    let server = Server::start(HTTP2, echo).await;
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = proxy.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut client, _) = proxy.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let server = head.split(' ').nth(1).unwrap();
        // user:pass
        assert!(head.starts_with("CONNECT 127.0.0.1:") && head.contains("Basic dXNlcjpwYXNz"), "{head}");
        let mut server = tokio::net::TcpStream::connect(server).await.unwrap();
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
    });
    let mut config = config(&server);
    config.proxy_url = Some(format!("http://user:pass@{address}").parse().unwrap());
    assert_eq!(read(&Manager::new(config).api()).await.unwrap(), "0");
}

#[tokio::test]
async fn dropping_the_scope_closes_every_connection() {
    let server = Server::start(HTTP2, |_, _| async { open_ended("x\n") }).await;
    let manager = Manager::to(&server);
    let watcher = manager.clients.watcher(Limits::NONE);
    let mut watch = watcher.watch("/watch", "*/*").await.unwrap();
    assert!(watch.next_batch(9).await.unwrap().is_ok());
    drop(manager);
    assert!(watch.next_batch(9).await.unwrap().is_err());
    assert!(watcher.watch("/watch", "*/*").await.is_err());
}
