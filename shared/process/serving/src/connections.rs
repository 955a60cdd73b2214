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
    layers::{Holding, MOST_REQUESTS, Peer, REQUEST},
    places::{Place, Places},
    tls::Tls,
};

/// The timeout of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The timeout for the header of a request, as upstream (`ReadHeaderTimeout`). A connection without requests is closed
/// after the same time.
const HEAD: Duration = Duration::from_secs(32);
/// At this age a connection is closed when it is idle; clients open another one.
const AGE: Duration = Duration::from_secs(600);
/// The interval of the check for responses that a client does not read.
const LOOK: Duration = Duration::from_secs(5);
/// The maximum number of connections.
pub(crate) const MOST: usize = 128;
/// The maximum size of the headers of one request: a token and some reserve.
const HEADERS: usize = 64 << 10;
/// The maximum number of streams of one HTTP/2 connection. More streams than concurrent requests would only be refused.
/// Go's default is 250.
const STREAMS: u32 = MOST_REQUESTS as u32;
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
    /// The maximum number of streams of one HTTP/2 connection; 0 means `STREAMS`.
    pub(crate) streams: u32,
}

impl Server {
    /// Accepts connections until the scope ends.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener) {
        let places = Places::new(MOST, self.clock.clone());
        loop {
            match listener.accept().await {
                Ok((stream, from)) => {
                    let (server, place) = (self.clone(), places.take(from.ip()));
                    self.spawner.spawn("serve-connection", async move { server.connection(stream, from, place).await });
                }
                Err(err) => {
                    // The process probably has no free file descriptor. Without a pause this would be a busy loop.
                    tracing::warn!(%err, "cannot accept a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, from: SocketAddr, place: Arc<Place>) {
        let lost = place.clone();
        tokio::select! {
            biased;
            () = lost.lost() => {}
            () = self.shaken(stream, from, place) => {}
        }
    }

    async fn shaken(&self, stream: TcpStream, from: SocketAddr, place: Arc<Place>) {
        // A response is one or two writes. Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let address = stream.local_addr().ok().map(|it| it.ip());
        let acceptor = TlsAcceptor::from(self.tls.config(address));
        match timeout(HANDSHAKE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => self.serve(stream, place).await,
            Ok(Err(err)) => tracing::debug!(%from, %err, "TLS handshake failed"),
            Err(_) => tracing::debug!(%from, "TLS handshake took too long"),
        }
    }

    async fn serve(&self, stream: TlsStream<TcpStream>, place: Arc<Place>) {
        let session = stream.get_ref().1;
        let chain: Vec<CertificateDer<'static>> = session.peer_certificates().unwrap_or_default().to_vec();
        let http2 = session.alpn_protocol() == Some(b"h2");
        let retire = CancellationToken::new();
        let peer = Peer { address: place.peer, chain: chain.into(), retire: retire.clone() };
        let (pages, doing) = (self.pages.clone(), place.clone());
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let doing = doing.begin();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer.clone());
            let answer = pages.clone().oneshot(request);
            async move {
                let answer = answer.await;
                doing.answered();
                answer.map(|it| it.map(|inner| Holding { inner, _held: doing }))
            }
        });
        let io = TokioIo::new(stream);
        // An error because the client disconnects during a request is ignored.
        if http2 {
            let mut server = http2::Builder::new(InScope(self.spawner.clone()));
            server.timer(TokioTimer::new()).keep_alive_interval(HEAD).keep_alive_timeout(HANDSHAKE);
            server.max_concurrent_streams(if self.streams == 0 { STREAMS } else { self.streams.min(STREAMS) });
            server.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
            server.max_header_list_size(u32::try_from(HEADERS).unwrap_or(u32::MAX)).max_send_buf_size(SEND_BUFFER);
            let mut connection = pin!(server.serve_connection(io, service));
            tokio::select! {
                biased;
                _ = &mut connection => return,
                () = self.ends(&place, &retire) => connection.as_mut().graceful_shutdown(),
            }
            self.last_words(connection, &place).await;
        } else {
            let mut server = http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEADERS);
            // Go sends header names in title case; users and scripts may expect that.
            server.title_case_headers(true);
            let mut connection = pin!(server.serve_connection(io, service));
            tokio::select! {
                biased;
                _ = &mut connection => return,
                () = self.ends(&place, &retire) => connection.as_mut().graceful_shutdown(),
            }
            self.last_words(connection, &place).await;
        }
    }

    /// Waits until the connection must be closed: by `retire`, by an overdue request or by its age.
    async fn ends(&self, place: &Place, retire: &CancellationToken) {
        tokio::select! {
            biased;
            () = retire.cancelled() => {}
            () = self.overdue(place) => {}
            () = sleep(AGE) => {}
        }
    }

    /// Waits for the requests in flight, unless that takes too long.
    async fn last_words<E>(&self, connection: impl Future<Output = Result<(), E>>, place: &Place) {
        tokio::select! {
            biased;
            _ = connection => {}
            () = self.overdue(place) => {}
            () = sleep(REQUEST + HEAD) => {}
        }
    }

    /// Waits until a request is in flight for too long. Its response is ready within [`REQUEST`], so the client does
    /// not read it.
    async fn overdue(&self, place: &Place) {
        loop {
            sleep(LOOK).await;
            if place.oldest().is_some_and(|begun| self.clock.now() - begun > REQUEST + LOOK) {
                return;
            }
        }
    }
}

/// Runs the streams of an HTTP/2 connection as tasks of the scope.
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

#[cfg(test)]
mod tests;
