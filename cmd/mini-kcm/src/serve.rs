//! The serving port: probes and metrics over TLS with a self-signed certificate, on loopback.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use hyper::server::conn::{http1, http2};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tasks::Spawner;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A handshake that takes longer is given up.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// A connection lives as long at most; probes and scrapers open another.
const CONNECTION: Duration = Duration::from_secs(120);
/// Connections beyond this wait for one to end.
const MOST_CONNECTIONS: usize = 64;

/// Why nothing can be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not ours.
    #[error("cannot listen on {0} (--bind-address, --secure-port): {1}")]
    Listen(SocketAddr, std::io::Error),
    /// No certificate could be made.
    #[error("cannot make a self-signed certificate: {0}")]
    Certificate(String),
}

/// Listens, and answers until the scope ends.
///
/// # Errors
/// As [`ServeError`].
pub async fn serve(
    (address, port): (IpAddr, u16),
    routes: Router,
    spawner: &Spawner,
) -> Result<SocketAddr, ServeError> {
    let wanted = SocketAddr::new(address, port);
    let listener = TcpListener::bind(wanted).await.map_err(|err| ServeError::Listen(wanted, err))?;
    let bound = listener.local_addr().map_err(|err| ServeError::Listen(wanted, err))?;
    let acceptor = TlsAcceptor::from(Arc::new(self_signed()?));
    let connections = spawner.clone();
    spawner.spawn("serve", async move { accept(listener, acceptor, routes, connections).await });
    tracing::info!(address = %bound, "serving securely");
    Ok(bound)
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, routes: Router, spawner: Spawner) {
    let room = Arc::new(tokio::sync::Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(err) => {
                // Out of file descriptors, most likely: trying at once would only spin.
                tracing::warn!(%err, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (acceptor, routes, streams) = (acceptor.clone(), routes.clone(), spawner.clone());
        spawner.spawn("serve-connection", async move {
            let _place = place;
            let Ok(Ok(tls)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
            let http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
            let (io, routes) = (TokioIo::new(tls), TowerToHyperService::new(routes));
            // A client that goes away mid-request is its own business; one that stays silent keeps no place.
            let _ = tokio::time::timeout(CONNECTION, async {
                if http2 {
                    let mut server = http2::Builder::new(InScope(streams));
                    server.timer(TokioTimer::new()).max_concurrent_streams(100);
                    server.keep_alive_interval(HANDSHAKE).keep_alive_timeout(HANDSHAKE);
                    server.serve_connection(io, routes).await
                } else {
                    let mut server = http1::Builder::new();
                    server.timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
                    server.serve_connection(io, routes).await
                }
            })
            .await;
        });
    }
}

fn self_signed() -> Result<rustls::ServerConfig, ServeError> {
    let failed = |err: &dyn std::fmt::Display| ServeError::Certificate(err.to_string());
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(|err| failed(&err))?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|err| failed(&err))?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(|err| failed(&err))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Runs the streams of an HTTP/2 connection as tasks of the manager.
#[derive(Clone)]
struct InScope(Spawner);

impl<F> hyper::rt::Executor<F> for InScope
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn("serve-stream", async move {
            future.await;
        });
    }
}
