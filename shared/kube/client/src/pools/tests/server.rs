//! A small TLS server on loopback. It records the connection of each request.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{FutureExt, future::BoxFuture};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{RootCertStore, ServerConfig, server::WebPkiClientVerifier};
use rustls_pki_types::PrivateKeyDer;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{BoxError, Incoming};

pub(super) type Received = Request<hyper::body::Incoming>;
type Handler = Arc<dyn Fn(usize, Received) -> BoxFuture<'static, Response<Incoming>> + Send + Sync>;
/// Handles the first connection instead of hyper.
pub(super) type Raw = Arc<dyn Fn(TlsStream<TcpStream>) -> BoxFuture<'static, ()> + Send + Sync>;

pub(super) struct Authority {
    params: rcgen::CertificateParams,
    key: rcgen::KeyPair,
    pub(super) der: Vec<u8>,
}

/// A certificate and its key in PEM.
pub(super) struct Identity {
    pub(super) certificate: rcgen::Certificate,
    pub(super) key: rcgen::KeyPair,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().to_vec();
        Self { params, key, der }
    }

    pub(super) fn issue(&self, name: &str) -> Identity {
        let key = rcgen::KeyPair::generate().unwrap();
        let issuer = rcgen::Issuer::from_params(&self.params, &self.key);
        let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        Identity { certificate, key }
    }
}

pub(super) struct Options {
    pub(super) alpn: &'static [&'static str],
    pub(super) most_streams: u32,
    pub(super) stream_window: u32,
    /// Requests a client certificate and also accepts a client without one, as an API server does.
    pub(super) clients: bool,
    pub(super) raw: Option<Raw>,
}

pub(super) const HTTP2: Options =
    Options { alpn: &["h2", "http/1.1"], most_streams: 250, stream_window: 1 << 20, clients: false, raw: None };
pub(super) const HTTP1: Options =
    Options { alpn: &["http/1.1"], most_streams: 1, stream_window: 1 << 20, clients: false, raw: None };

pub(super) struct Server {
    pub(super) authority: Authority,
    pub(super) port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    tls: TlsAcceptor,
    handler: Handler,
    most_streams: u32,
    stream_window: u32,
    raw: Option<Raw>,
    connections: AtomicUsize,
    /// The client certificates, by connection.
    certificates: parking_lot::Mutex<Vec<Option<Vec<u8>>>>,
    leave: Notify,
    left: Notify,
}

impl Server {
    pub(super) async fn start<F>(
        options: Options,
        handler: impl Fn(usize, Received) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Response<Incoming>> + Send + 'static,
    {
        let Options { alpn, most_streams, stream_window, clients, raw } = options;
        let authority = Authority::new();
        let Identity { certificate, key } = authority.issue("kubernetes");
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = if clients {
            let mut roots = RootCertStore::empty();
            roots.add(authority.der.clone().into()).unwrap();
            let verifier = WebPkiClientVerifier::builder(roots.into()).allow_unauthenticated();
            ServerConfig::builder().with_client_cert_verifier(verifier.build().unwrap())
        } else {
            ServerConfig::builder().with_no_client_auth()
        };
        let mut config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
        let shared = Arc::new(Shared {
            tls: TlsAcceptor::from(Arc::new(config)),
            handler: Arc::new(move |connection, request| handler(connection, request).boxed()),
            most_streams,
            stream_window,
            raw,
            connections: AtomicUsize::new(0),
            certificates: parking_lot::Mutex::default(),
            leave: Notify::new(),
            left: Notify::new(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepting = shared.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let number = accepting.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(accepting.clone().serve(number, socket));
            }
        });
        Self { authority, port, shared }
    }

    pub(super) fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    pub(super) fn certificates(&self) -> Vec<Option<Vec<u8>>> {
        self.shared.certificates.lock().clone()
    }

    /// Sends GOAWAY on the connection that has waited longest for one, and waits until it is closed.
    pub(super) async fn go_away(&self) {
        let left = self.shared.left.notified();
        self.shared.leave.notify_one();
        left.await;
    }
}

impl Shared {
    async fn serve(self: Arc<Self>, number: usize, socket: TcpStream) {
        let Ok(tls) = self.tls.accept(socket).await else { return };
        let session = tls.get_ref().1;
        let http2 = session.alpn_protocol() == Some(b"h2");
        self.certificates.lock().push(session.peer_certificates().map(|it| it[0].to_vec()));
        if let Some(raw) = self.raw.as_ref().filter(|_| number == 0) {
            return raw(tls).await;
        }
        let handler = self.handler.clone();
        let service = hyper::service::service_fn(move |request| {
            let response = handler(number, request);
            async move { Ok::<_, std::convert::Infallible>(response.await) }
        });
        if http2 {
            let mut connection = pin!(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .max_concurrent_streams(self.most_streams)
                    .initial_stream_window_size(self.stream_window)
                    .serve_connection(TokioIo::new(tls), service)
            );
            tokio::select! {
                _ = &mut connection => return,
                () = self.leave.notified() => connection.as_mut().graceful_shutdown(),
            }
            let _ = connection.await;
            self.left.notify_waiters();
        } else {
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tls), service).await;
        }
    }
}

pub(super) fn text_response(text: impl Into<bytes::Bytes>) -> Response<Incoming> {
    let body = Full::new(text.into()).map_err(|never| -> BoxError { match never {} });
    Response::new(body.boxed_unsync())
}
