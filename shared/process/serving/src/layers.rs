//! The layers in front of a page, from the outermost to the innermost: contain panics, log the request, enforce limits,
//! disable caching, authenticate, authorize, and limit concurrent requests.

use std::{
    net::{IpAddr, Ipv4Addr},
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, Request, State},
    middleware::{Next, from_fn, from_fn_with_state},
    response::Response,
};
use clock::Clock;
use futures::FutureExt;
use http::{HeaderValue, Method, StatusCode, Version, header, request::Parts};
use http_body::{Body as _, Frame, SizeHint};
use rustls_pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use crate::{
    User,
    answers::{self, SMALL_ANSWER},
    authentication::Authentication,
    authorization::{Authorization, Decision},
    paths,
    room::{Room, Sparing},
};

/// A request without a response after this time gets 504.
pub(crate) const REQUEST: Duration = Duration::from_secs(60);
/// The maximum size of a request body; no page needs more.
const BODY: usize = 64 << 10;
/// The maximum number of concurrent requests in each [`Room`].
pub(crate) const MOST_REQUESTS: usize = 32;

/// The client of a request, as its connection identifies it.
#[derive(Clone)]
pub(crate) struct Peer {
    /// The address for which its requests are counted in a [`Room`].
    pub(crate) address: IpAddr,
    /// The certificate chain of the client; the client's own certificate is the first.
    pub(crate) chain: Arc<[CertificateDer<'static>]>,
    /// Closes the connection after the requests in flight.
    pub(crate) retire: CancellationToken,
}

/// Authenticates and authorizes requests. [`Gate::protect`] adds it in front of pages.
pub struct Gate {
    pub(crate) authentication: Authentication,
    pub(crate) authorization: Authorization,
    pub(crate) clock: Clock,
    /// Limits requests that may need a review by the API server. A request is counted here until it is decided, so that
    /// a slow review does not block pages.
    asking: Arc<Room>,
    /// Limits requests for pages that are not open. A response larger than [`SMALL_ANSWER`] is counted until it is
    /// sent.
    pages: Arc<Room>,
    /// Limits requests for open pages in the same way. A probe without a body is not counted, so that slow readers of
    /// another open page do not block it.
    open_pages: Arc<Room>,
    strangers: Sparing,
    undecided: Sparing,
}

impl Gate {
    pub(crate) fn new(authentication: Authentication, authorization: Authorization, clock: Clock) -> Arc<Self> {
        let room = || Room::new(MOST_REQUESTS);
        Arc::new(Self {
            authentication,
            authorization,
            asking: room(),
            pages: room(),
            open_pages: room(),
            strangers: Sparing::new(clock.clone()),
            undecided: Sparing::new(clock.clone()),
            clock,
        })
    }

    /// Adds all layers in front of `pages`; no request can bypass a layer. The layer added last is the outermost.
    pub fn protect(self: Arc<Self>, pages: Router) -> Router {
        pages
            .layer(from_fn_with_state(self.clone(), admitted))
            .layer(DefaultBodyLimit::max(BODY))
            .layer(from_fn(uncached))
            .layer(from_fn(bounded))
            .layer(from_fn_with_state(self, logged))
            .layer(from_fn(contained))
    }
}

async fn contained(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(answer) => answer,
        Err(panic) => {
            tracing::error!(panic = %tasks::panic_message(&*panic), "a page panicked");
            answers::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "This request caused a panic. Look in the logs for details.",
            )
        }
    }
}

/// Logs neither headers nor the query, because they may contain secrets.
async fn logged(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let begun = gate.clock.now();
    let (verb, path) = (request.method().clone(), request.uri().path().to_owned());
    let answer = next.run(request).await;
    let latency = gate.clock.now() - begun;
    tracing::debug!(target: "v3", %verb, path, ?latency, resp = answer.status().as_u16(), "HTTP");
    answer
}

async fn bounded(request: Request, next: Next) -> Response {
    let version = request.version();
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|it| it > BODY as u64) {
        return refused(version, StatusCode::PAYLOAD_TOO_LARGE, "The body is too large.");
    }
    match tokio::time::timeout(REQUEST, next.run(request)).await {
        Ok(answer) => answer,
        Err(_) => refused(version, StatusCode::GATEWAY_TIMEOUT, "The answer took too long."),
    }
}

/// An error response that closes the connection. Only HTTP/1 has a header for this.
fn refused(version: Version, code: StatusCode, text: &str) -> Response {
    let mut answer = answers::text(code, text);
    if version <= Version::HTTP_11 {
        answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answer
}

/// The response when a limit is reached. It also closes the connection, so that a client with too many requests must
/// reconnect.
fn crowded(version: Version, peer: Option<&Peer>) -> Response {
    if let Some(peer) = peer {
        peer.retire.cancel();
    }
    let mut answer = refused(version, StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.");
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

async fn uncached(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let none = HeaderValue::from_static("no-cache, private");
    answer.headers_mut().entry(header::CACHE_CONTROL).or_insert(none);
    answer
}

fn is_probe(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"]
        .iter()
        .any(|it| path.strip_prefix(it).is_some_and(|it| it.is_empty() || it.starts_with('/')))
}

async fn admitted(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let peer = head.extensions.remove::<Peer>();
    let address = peer.as_ref().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |it| it.address);
    let open = gate.authorization.open.contains(head.uri.path());
    // A probe needs no review, so requests that wait for a review do not block it.
    let asks = !open || head.headers.contains_key(header::AUTHORIZATION);
    let asking = if asks { gate.asking.enter(address) } else { None };
    if asks && asking.is_none() {
        return crowded(head.version, peer.as_ref());
    }
    if let Some(refusal) = refusal(&gate, peer.as_ref(), &mut head).await {
        // A refusal is always small, so it is not counted while it is sent.
        return refusal;
    }
    drop(asking);
    let version = head.version;
    let room = if open { &gate.open_pages } else { &gate.pages };
    // The response to a probe is small, so it is not counted. A request with a body is counted, because its body is
    // kept in memory.
    let is_probe = open && is_probe(head.uri.path()) && body.is_end_stream();
    let place = if is_probe { None } else { room.enter(address) };
    if !is_probe && place.is_none() {
        return crowded(version, peer.as_ref());
    }
    let answer = next.run(Request::from_parts(head, body)).await;
    if answer.body().size_hint().exact().is_some_and(|it| it <= SMALL_ANSWER as u64) {
        return answer;
    }
    let Some(place) = place.or_else(|| room.enter(address)) else { return crowded(version, peer.as_ref()) };
    answer.map(|inner| Body::new(Holding { inner, _held: place }))
}

/// Authenticates and authorizes a request. Returns the response if the request is refused.
async fn refusal(gate: &Gate, peer: Option<&Peer>, head: &mut Parts) -> Option<Response> {
    let chain = peer.map_or(&[][..], |it| &it.chain);
    let user = gate.authentication.who(chain, &head.headers).await;
    // The HTTP/2 connection of a client that is not authenticated is closed, as upstream does
    // (`UnauthenticatedHTTP2DOSMitigation`, CVE-2023-44487).
    let unknown = user.as_ref().ok().is_none_or(User::is_anonymous);
    if head.version == Version::HTTP_2
        && unknown
        && let Some(peer) = peer
    {
        peer.retire.cancel();
    }
    let user = match user {
        Ok(user) => user,
        Err(why) => {
            if let Some(withheld) = gate.strangers.tell() {
                tracing::warn!(why, withheld, "unable to authenticate a request");
            }
            return Some(answers::unauthorized(&head.headers, head.uri.query()));
        }
    };
    head.headers.remove(header::AUTHORIZATION);
    let refusal = forbidden(gate, &user, head).await;
    head.extensions.insert(user);
    refusal
}

async fn forbidden(gate: &Gate, user: &User, head: &Parts) -> Option<Response> {
    let path = match head.uri.path() {
        "" => "/".to_owned(),
        path => paths::decoded(path),
    };
    let verb = verb_of(&head.method);
    match gate.authorization.decide(user, &verb, &path).await {
        Ok(Decision::Allowed) => None,
        Ok(Decision::NoOpinion(reason) | Decision::Denied(reason)) => {
            tracing::debug!(user = user.name, verb, path, reason, "forbidden");
            Some(answers::forbidden(user, (&verb, &path), &reason, &head.headers, head.uri.query()))
        }
        Err(why) => {
            if let Some(withheld) = gate.undecided.tell() {
                let (user, verb, path) = (&*user.name, answers::shortened(&verb), answers::shortened(&path));
                tracing::warn!(user, verb, path, why, withheld, "cannot find out who may see a page");
            }
            Some(answers::undecided(&path, &why))
        }
    }
}

fn verb_of(method: &Method) -> String {
    method.as_str().to_ascii_lowercase()
}

/// A body that keeps a value until the body is sent.
pub(crate) struct Holding<H> {
    pub(crate) inner: Body,
    pub(crate) _held: H,
}

impl<H: Unpin> http_body::Body for Holding<H> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests;
