use std::net::Ipv4Addr;

use axum::{body::Bytes, routing::get};
use h2::client::{ResponseFuture, SendRequest};
use metrics::Metrics;
use rustls_pki_types::ServerName;
use tasks::Scope;
use tokio_rustls::TlsConnector;

use super::*;
use crate::{
    AuthorizationOptions, CertificateSource, Deps, ListenOptions, OpenPaths, Options, Policy,
    testing::{authentication, client_config},
};

/// A server on loopback with one open page.
struct Port {
    scope: Scope,
    address: SocketAddr,
}

async fn port(http2: bool, http2_streams: u32) -> Port {
    let scope = Scope::new();
    let ttl = Duration::from_secs(10);
    let open = OpenPaths::parse(&["/healthz".to_owned()]).unwrap();
    let options = Options {
        listen: ListenOptions { address: Ipv4Addr::LOCALHOST.into(), port: 0, share_port: false },
        certificate: CertificateSource::Memory,
        sni: Vec::new(),
        policy: Policy::default(),
        http2,
        http2_streams,
        authentication: authentication(),
        authorization: AuthorizationOptions { open, allowed_ttl: ttl, refused_ttl: ttl },
    };
    let deps = Deps {
        authenticator: None,
        authorizer: None,
        clock: Clock::system(),
        seed: 1,
        metrics: Metrics::new(),
        spawner: scope.spawner(),
    };
    let pages = Router::new().route("/healthz", get(|| async { "ok" }));
    let address = crate::serve(options, pages, deps).await.unwrap();
    Port { scope, address }
}

impl Port {
    async fn connected(&self, protocols: &[&str]) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut config = client_config(rustls::ALL_VERSIONS, None);
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
    }

    /// A client that accepts at most `window` bytes of each response.
    async fn http2(&self, window: u32) -> SendRequest<Bytes> {
        let stream = self.connected(&["h2"]).await;
        let mut client = h2::client::Builder::new();
        client.initial_window_size(window);
        let (client, connection) = client.handshake::<_, Bytes>(stream).await.unwrap();
        self.scope.spawner().spawn("client", async move {
            // The result of the connection is not tested.
            let _ = connection.await;
        });
        client
    }
}

async fn ask(client: &SendRequest<Bytes>) -> (SendRequest<Bytes>, ResponseFuture) {
    let mut client = client.clone().ready().await.unwrap();
    let request = Request::get("https://localhost/healthz").body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    (client, response)
}

#[tokio::test]
async fn http2_is_offered_unless_disabled() {
    for (http2, want) in [(true, &b"h2"[..]), (false, &b"http/1.1"[..])] {
        let port = port(http2, 0).await;
        let stream = port.connected(&["h2", "http/1.1"]).await;
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(want));
    }
}

#[tokio::test]
async fn streams_of_a_connection_are_limited_by_the_flag_and_by_the_request_limit() {
    for (flag, want) in [(0, 32), (3, 3), (1000, 32)] {
        let port = port(true, flag).await;
        let (client, response) = ask(&port.http2(1024).await).await;
        // The server's settings arrive before the first response.
        assert_eq!(response.await.unwrap().status(), 200);
        assert_eq!(client.current_max_send_streams(), want, "{flag}");
    }
}

#[tokio::test]
async fn unread_responses_do_not_block_probes() {
    let port = port(true, 0).await;
    // This client does its handshake, and sends its request much later.
    let slow = port.http2(1024).await;
    let mut unread = Vec::new();
    // From the same address as the probes, and more connections than there are slots.
    for _ in 0..MAX_CONNECTIONS + 40 {
        let client = port.http2(0).await;
        let (client, response) = ask(&client).await;
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        unread.push((client, response));
    }
    for probe in [slow, port.http2(1024).await] {
        let (_client, response) = ask(&probe).await;
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.into_body().data().await.unwrap().unwrap(), "ok");
    }
}
