//! Accepts connections, limits them, and serves each one until it ends.

use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use clock::Clock;
use hyper::{
    Request,
    body::Incoming,
    server::conn::{http1, http2},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls_pki_types::CertificateDer;
use tasks::Spawner;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::{
    connection_limit::{ConnectionLimit, ConnectionSlot},
    layers::{GuardedBody, MAX_REQUESTS, Peer, REQUEST_TIMEOUT},
    tls::Tls,
};

/// The timeout of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for the header of a request, as upstream (`ReadHeaderTimeout`). A connection without requests is closed
/// after the same time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(32);
/// At this age a connection is closed when it is idle; clients open another one.
const MAX_AGE: Duration = Duration::from_secs(600);
/// The interval of the check for responses that a client does not read.
const OVERDUE_CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum number of connections.
pub(crate) const MAX_CONNECTIONS: usize = 128;
/// The maximum size of the headers of one request: a token and some reserve.
const MAX_HEADERS_SIZE: usize = 64 << 10;
/// The maximum number of streams of one HTTP/2 connection. More streams than concurrent requests would only be refused.
/// Go's default is 250.
const MAX_STREAMS: u32 = MAX_REQUESTS as u32;
/// The send buffer of one HTTP/2 stream, for a client that does not read.
const SEND_BUFFER: usize = 64 << 10;
/// The flow-control window of one HTTP/2 stream: the maximum size of a body.
const STREAM_WINDOW: u32 = 64 << 10;
/// The flow-control window of all streams of a connection.
const CONNECTION_WINDOW: u32 = 128 << 10;

/// The state that all connections share.
pub(crate) struct Server {
    pub(crate) tls: Arc<Tls>,
    pub(crate) pages: Router,
    pub(crate) spawner: Spawner,
    pub(crate) clock: Clock,
    /// The maximum number of streams of one HTTP/2 connection; 0 means `MAX_STREAMS`.
    pub(crate) streams: u32,
}

impl Server {
    /// Accepts connections until the scope ends.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener) {
        let limit = ConnectionLimit::new(MAX_CONNECTIONS, self.clock.clone());
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let (server, slot) = (self.clone(), limit.acquire(from.ip()));
                    self.spawner
                        .spawn("serve-connection", async move { server.serve_until_closed(stream, from, slot).await });
                }
                Err(err) => {
                    // The process probably has no free file descriptor. Without a pause this would be a busy loop.
                    tracing::warn!(%err, "cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn serve_until_closed(self: Arc<Self>, stream: TcpStream, from: SocketAddr, slot: Arc<ConnectionSlot>) {
        let closing = slot.clone();
        tokio::select! {
            biased;
            () = closing.closed() => {}
            () = self.handshake_and_serve(stream, from, slot) => {}
        }
    }

    async fn handshake_and_serve(&self, stream: TcpStream, from: SocketAddr, slot: Arc<ConnectionSlot>) {
        // A response is one or two writes. Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let address = stream.local_addr().ok().map(|it| it.ip());
        let acceptor = TlsAcceptor::from(self.tls.config(address));
        match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => self.serve(stream, slot).await,
            Ok(Err(err)) => tracing::debug!(%from, %err, "TLS handshake failed"),
            Err(_) => tracing::debug!(%from, "TLS handshake took too long"),
        }
    }

    async fn serve(&self, stream: TlsStream<TcpStream>, slot: Arc<ConnectionSlot>) {
        let session = stream.get_ref().1;
        let chain: Vec<CertificateDer<'static>> = session.peer_certificates().unwrap_or_default().to_vec();
        let http2 = session.alpn_protocol() == Some(b"h2");
        let graceful_shutdown = CancellationToken::new();
        let peer = Peer { address: slot.peer, chain: chain.into(), graceful_shutdown: graceful_shutdown.clone() };
        let (pages, request_slot) = (self.pages.clone(), slot.clone());
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let active = request_slot.begin_request();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            let response = pages.clone().oneshot(request);
            async move {
                let response = response.await;
                active.mark_answered();
                response.map(|it| it.map(|inner| GuardedBody { inner, _guard: active }))
            }
        });
        let io = TokioIo::new(stream);
        // An error because the client disconnects during a request is ignored.
        if http2 {
            let mut server = http2::Builder::new(ScopeExecutor(self.spawner.clone()));
            server.timer(TokioTimer::new()).keep_alive_interval(HEADER_TIMEOUT).keep_alive_timeout(HANDSHAKE_TIMEOUT);
            server.max_concurrent_streams(if self.streams == 0 { MAX_STREAMS } else { self.streams.min(MAX_STREAMS) });
            server.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
            server
                .max_header_list_size(u32::try_from(MAX_HEADERS_SIZE).unwrap_or(u32::MAX))
                .max_send_buf_size(SEND_BUFFER);
            let mut connection = pin!(server.serve_connection(io, service));
            tokio::select! {
                biased;
                _ = &mut connection => return,
                () = self.wait_until_close_is_due(&slot, &graceful_shutdown) => connection.as_mut().graceful_shutdown(),
            }
            self.drain(connection, &slot).await;
        } else {
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADERS_SIZE);
            // Go sends header names in title case; users and scripts may expect that.
            server.title_case_headers(true);
            let mut connection = pin!(server.serve_connection(io, service));
            tokio::select! {
                biased;
                _ = &mut connection => return,
                () = self.wait_until_close_is_due(&slot, &graceful_shutdown) => connection.as_mut().graceful_shutdown(),
            }
            self.drain(connection, &slot).await;
        }
    }

    /// Waits until the connection must be closed: by `graceful_shutdown`, by an overdue request or by its age.
    async fn wait_until_close_is_due(&self, slot: &ConnectionSlot, graceful_shutdown: &CancellationToken) {
        tokio::select! {
            biased;
            () = graceful_shutdown.cancelled() => {}
            () = self.wait_for_overdue_request(slot) => {}
            () = sleep(MAX_AGE) => {}
        }
    }

    /// Waits for the requests in flight, unless that takes too long.
    async fn drain<E>(&self, connection: impl Future<Output = Result<(), E>>, slot: &ConnectionSlot) {
        tokio::select! {
            biased;
            _ = connection => {}
            () = self.wait_for_overdue_request(slot) => {}
            () = sleep(REQUEST_TIMEOUT + HEADER_TIMEOUT) => {}
        }
    }

    /// Waits until a request is in flight for too long. Its response is ready within [`REQUEST_TIMEOUT`], so the client
    /// does not read it.
    async fn wait_for_overdue_request(&self, slot: &ConnectionSlot) {
        loop {
            sleep(OVERDUE_CHECK_INTERVAL).await;
            if slot
                .oldest_request()
                .is_some_and(|begun_at| self.clock.now() - begun_at > REQUEST_TIMEOUT + OVERDUE_CHECK_INTERVAL)
            {
                return;
            }
        }
    }
}

/// Runs the streams of an HTTP/2 connection as tasks of the scope.
#[derive(Clone)]
struct ScopeExecutor(Spawner);

impl<F> hyper::rt::Executor<F> for ScopeExecutor
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn("serve-stream", async move {
            future.await;
        });
    }
}

#[cfg(test)]
mod tests;
