use std::{
    collections::HashMap,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Context;
use bytes::Bytes;
use futures::{StreamExt, stream};
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, client::conn::http2::SendRequest, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Mutex, watch},
    task::JoinHandle,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::Site;

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

/// The response of an overloaded API server.
const BUSY: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Too many requests, please try again later.","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#;

/// A reverse proxy for HTTP on both sides. Other than a TCP proxy it can answer 429 instead of the API server, and
/// silence watches while their connection works and answers pings.
#[derive(Debug)]
pub struct Gateway {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    target: u16,
    tls: Arc<ClientConfig>,
    /// One HTTP/2 connection to the API server, opened again when it has ended.
    upstream: Mutex<Option<SendRequest<Incoming>>>,
    /// How many more requests for each path are refused. A path that is not in the map has the full number left.
    refusals: std::sync::Mutex<Refusals>,
    refused: AtomicU64,
    watches: AtomicU64,
    /// Watches with a smaller number are silent.
    silent_below: watch::Sender<u64>,
}

/// The next requests for each path are refused.
#[derive(Debug, Default)]
struct Refusals {
    each: u32,
    code: StatusCode,
    refused: HashMap<String, u32>,
}

impl Refusals {
    /// The status code of the refusal, if the request is refused.
    fn next_refusal(&mut self, path: &str) -> Option<StatusCode> {
        let refused = self.refused.entry(path.to_owned()).or_default();
        let refuses = *refused < self.each;
        *refused += u32::from(refuses);
        refuses.then_some(self.code)
    }
}

impl Gateway {
    /// Listens on a free port and forwards to the API server.
    ///
    /// # Errors
    /// If it cannot listen, or the certificates cannot be used.
    pub async fn start(site: &Site) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let acceptor = acceptor(site)?;
        let shared = Arc::new(Shared {
            target: site.port(),
            tls: trust(site)?,
            upstream: Mutex::new(None),
            refusals: std::sync::Mutex::default(),
            refused: AtomicU64::new(0),
            watches: AtomicU64::new(0),
            silent_below: watch::Sender::new(0),
        });
        let task = tokio::spawn(serve(listener, acceptor, shared.clone()));
        Ok(Self { port, shared, task })
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Refuses the next `each` requests for each path with 429 and `Retry-After: 1`.
    pub fn refuse_next(&self, each: u32) {
        self.refuse_next_with(each, StatusCode::TOO_MANY_REQUESTS);
    }

    /// The same with another status code and without a body.
    pub fn refuse_next_with(&self, each: u32, code: StatusCode) {
        *self.shared.refusals() = Refusals { each, code, refused: HashMap::new() };
    }

    /// How many requests were refused.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }

    /// How many watches were opened so far.
    #[must_use]
    pub fn watch_count(&self) -> u64 {
        self.shared.watches.load(Ordering::Relaxed)
    }

    /// Silences the existing watches: they send no more events and do not end. New ones work.
    pub fn silence_watches(&self) {
        self.shared.silent_below.send_replace(self.watch_count());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let (acceptor, shared) = (acceptor.clone(), shared.clone());
        tokio::spawn(async move {
            let Ok(socket) = acceptor.accept(socket).await else { return };
            let service = service_fn(move |request| respond(shared.clone(), request));
            let server = auto::Builder::new(TokioExecutor::new());
            // An error of the connection concerns only the client.
            let _ = server.serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

async fn respond(shared: Arc<Shared>, request: Request<Incoming>) -> anyhow::Result<Response<Body>> {
    let refused = shared.refusals().next_refusal(request.uri().path());
    if let Some(code) = refused {
        shared.refused.fetch_add(1, Ordering::Relaxed);
        return if code == StatusCode::TOO_MANY_REQUESTS { too_many_requests() } else { empty_response(code) };
    }
    let is_watch = request.uri().query().is_some_and(|it| it.contains("watch=true") || it.contains("watch=1"));
    let answer = shared.forward(request).await?;
    if !is_watch {
        return Ok(answer.map(BodyExt::boxed_unsync));
    }
    let number = shared.watches.fetch_add(1, Ordering::Relaxed);
    let silent = shared.silent_below.subscribe();
    Ok(answer.map(|body| frames_until_silenced(body, number, silent)))
}

fn too_many_requests() -> anyhow::Result<Response<Body>> {
    let body = Full::new(Bytes::from_static(BUSY.as_bytes())).map_err(|never| match never {}).boxed_unsync();
    Ok(Response::builder()
        .status(StatusCode::TOO_MANY_REQUESTS)
        .header(header::RETRY_AFTER, "1")
        .header(header::CONTENT_TYPE, "application/json")
        .body(body)?)
}

fn empty_response(code: StatusCode) -> anyhow::Result<Response<Body>> {
    let nothing = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
    Ok(Response::builder().status(code).body(nothing)?)
}

/// The frames of `body` until watch `number` is silenced; then nothing for ever.
fn frames_until_silenced(body: Incoming, number: u64, silent: watch::Receiver<u64>) -> Body {
    let frames = stream::unfold((BodyStream::new(body), silent), move |(mut body, mut silent)| async move {
        let silenced = async {
            // The sender exists as long as the gateway.
            let _ = silent.wait_for(|&below| number < below).await;
        };
        let frame = tokio::select! {
            biased;
            () = silenced => std::future::pending().await,
            frame = body.next() => frame,
        };
        frame.map(|frame| (frame, (body, silent)))
    });
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

impl Shared {
    fn refusals(&self) -> std::sync::MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    async fn forward(&self, request: Request<Incoming>) -> anyhow::Result<Response<Incoming>> {
        let mut upstream = self.upstream().await?;
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |it| it.as_str());
        parts.uri = format!("https://127.0.0.1:{}{path}", self.target).parse()?;
        parts.version = http::Version::HTTP_2;
        for hop in [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING] {
            parts.headers.remove(hop);
        }
        Ok(upstream.send_request(Request::from_parts(parts, body)).await?)
    }

    async fn upstream(&self) -> anyhow::Result<SendRequest<Incoming>> {
        let mut upstream = self.upstream.lock().await;
        if let Some(sender) = upstream.as_mut()
            && sender.ready().await.is_ok()
        {
            return Ok(sender.clone());
        }
        let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, self.target)).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
        let socket = TlsConnector::from(self.tls.clone()).connect(name, socket).await?;
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket));
        let (sender, connection) = handshake.await?;
        tokio::spawn(connection);
        Ok(upstream.insert(sender).clone())
    }
}

fn acceptor(site: &Site) -> anyhow::Result<TlsAcceptor> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_file_iter(site.certificate("server.crt"))?.collect();
    let key = PrivateKeyDer::from_pem_file(site.certificate("server.key"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates?, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn trust(site: &Site) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_file_iter(site.authorities()).context("the authorities")? {
        roots.add(authority?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}
