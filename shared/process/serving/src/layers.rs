//! The layers in front of a page, from the outermost to the innermost: catch panics, log the request, enforce limits,
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
    authentication::Authentication,
    authorization::{Authorization, Decision},
    errors::{self, SMALL_RESPONSE},
    log_limit::LogLimit,
    paths,
    request_limit::RequestLimit,
};

/// A request without a response after this time gets 504.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum size of a request body; no page needs more.
const MAX_BODY_SIZE: usize = 64 << 10;
/// The maximum number of concurrent requests in each [`RequestLimit`].
pub(crate) const MAX_REQUESTS: usize = 32;

/// The client of a request, as its connection identifies it.
#[derive(Clone)]
pub(crate) struct Peer {
    /// The address for which its requests are counted in a [`RequestLimit`].
    pub(crate) address: IpAddr,
    /// The certificate chain of the client; the client's own certificate is the first.
    pub(crate) chain: Arc<[CertificateDer<'static>]>,
    /// Closes the connection after the requests in flight.
    pub(crate) graceful_shutdown: CancellationToken,
}

/// Authenticates and authorizes requests. [`AuthLayer::protect`] adds it in front of pages.
pub struct AuthLayer {
    pub(crate) authentication: Authentication,
    pub(crate) authorization: Authorization,
    pub(crate) clock: Clock,
    /// Limits requests that may need a review by the API server. A request is counted here until it is decided, so that
    /// a slow review does not block pages.
    review_limit: Arc<RequestLimit>,
    /// Limits requests for pages that are not open. A response larger than [`SMALL_RESPONSE`] is counted until it is
    /// sent.
    page_limit: Arc<RequestLimit>,
    /// Limits requests for open pages in the same way. A probe without a body is not counted, so that slow readers of
    /// another open page do not block it.
    open_page_limit: Arc<RequestLimit>,
    authentication_log: LogLimit,
    authorization_log: LogLimit,
}

impl AuthLayer {
    pub(crate) fn new(authentication: Authentication, authorization: Authorization, clock: Clock) -> Arc<Self> {
        let limit = || RequestLimit::new(MAX_REQUESTS);
        Arc::new(Self {
            authentication,
            authorization,
            review_limit: limit(),
            page_limit: limit(),
            open_page_limit: limit(),
            authentication_log: LogLimit::new(clock.clone()),
            authorization_log: LogLimit::new(clock.clone()),
            clock,
        })
    }

    /// Adds all layers in front of `pages`; no request can bypass a layer. The layer added last is the outermost.
    pub fn protect(self: Arc<Self>, pages: Router) -> Router {
        pages
            .layer(from_fn_with_state(self.clone(), authorize_and_limit))
            .layer(DefaultBodyLimit::max(MAX_BODY_SIZE))
            .layer(from_fn(disable_caching))
            .layer(from_fn(limit_size_and_time))
            .layer(from_fn_with_state(self, log_request))
            .layer(from_fn(catch_panics))
    }
}

async fn catch_panics(request: Request, next: Next) -> Response {
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(panic) => {
            tracing::error!(panic = %tasks::panic_message(&*panic), "a page panicked");
            errors::text(
                StatusCode::INTERNAL_SERVER_ERROR,
                "This request caused a panic. Look in the logs for details.",
            )
        }
    }
}

/// Logs neither headers nor the query, because they may contain secrets.
async fn log_request(State(auth_layer): State<Arc<AuthLayer>>, request: Request, next: Next) -> Response {
    let begun = auth_layer.clock.now();
    let (verb, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let latency = auth_layer.clock.now() - begun;
    tracing::debug!(target: "v3", %verb, path, ?latency, resp = response.status().as_u16(), "HTTP");
    response
}

async fn limit_size_and_time(request: Request, next: Next) -> Response {
    let version = request.version();
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|it| it > MAX_BODY_SIZE as u64) {
        return closing_response(version, StatusCode::PAYLOAD_TOO_LARGE, "The body is too large.");
    }
    match tokio::time::timeout(REQUEST_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => closing_response(version, StatusCode::GATEWAY_TIMEOUT, "The answer took too long."),
    }
}

/// An error response that closes the connection. Only HTTP/1 has a header for this.
fn closing_response(version: Version, code: StatusCode, text: &str) -> Response {
    let mut response = errors::text(code, text);
    if version <= Version::HTTP_11 {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The response when a limit is reached. It also closes the connection, so that a client with too many requests must
/// reconnect.
fn too_many_requests(version: Version, peer: Option<&Peer>) -> Response {
    if let Some(peer) = peer {
        peer.graceful_shutdown.cancel();
    }
    let mut response =
        closing_response(version, StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.");
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

async fn disable_caching(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let none = HeaderValue::from_static("no-cache, private");
    response.headers_mut().entry(header::CACHE_CONTROL).or_insert(none);
    response
}

fn is_probe(path: &str) -> bool {
    ["/healthz", "/livez", "/readyz"]
        .iter()
        .any(|it| path.strip_prefix(it).is_some_and(|it| it.is_empty() || it.starts_with('/')))
}

async fn authorize_and_limit(State(auth_layer): State<Arc<AuthLayer>>, request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let peer = head.extensions.remove::<Peer>();
    let address = peer.as_ref().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |it| it.address);
    let is_open = auth_layer.authorization.open.contains(head.uri.path());
    // A probe needs no review, so requests that wait for a review do not block it.
    let needs_review = !is_open || head.headers.contains_key(header::AUTHORIZATION);
    let review_permit = if needs_review { auth_layer.review_limit.acquire(address) } else { None };
    if needs_review && review_permit.is_none() {
        return too_many_requests(head.version, peer.as_ref());
    }
    if let Some(refusal) = refusal(&auth_layer, peer.as_ref(), &mut head).await {
        // A refusal is always small, so it is not counted while it is sent.
        return refusal;
    }
    drop(review_permit);
    let version = head.version;
    let limit = if is_open { &auth_layer.open_page_limit } else { &auth_layer.page_limit };
    // The response to a probe is small, so it is not counted. A request with a body is counted, because its body is
    // kept in memory.
    let is_probe = is_open && is_probe(head.uri.path()) && body.is_end_stream();
    let page_permit = if is_probe { None } else { limit.acquire(address) };
    if !is_probe && page_permit.is_none() {
        return too_many_requests(version, peer.as_ref());
    }
    let response = next.run(Request::from_parts(head, body)).await;
    if response.body().size_hint().exact().is_some_and(|it| it <= SMALL_RESPONSE as u64) {
        return response;
    }
    let Some(page_permit) = page_permit.or_else(|| limit.acquire(address)) else {
        return too_many_requests(version, peer.as_ref());
    };
    response.map(|inner| Body::new(GuardedBody { inner, _guard: page_permit }))
}

/// Authenticates and authorizes a request. Returns the response if the request is refused.
async fn refusal(auth_layer: &AuthLayer, peer: Option<&Peer>, head: &mut Parts) -> Option<Response> {
    let chain = peer.map_or(&[][..], |it| &it.chain);
    let user = auth_layer.authentication.authenticate(chain, &head.headers).await;
    // The HTTP/2 connection of a client that is not authenticated is closed, as upstream does
    // (`UnauthenticatedHTTP2DOSMitigation`, CVE-2023-44487).
    let unknown = user.as_ref().ok().is_none_or(User::is_anonymous);
    if head.version == Version::HTTP_2
        && unknown
        && let Some(peer) = peer
    {
        peer.graceful_shutdown.cancel();
    }
    let user = match user {
        Ok(user) => user,
        Err(why) => {
            if let Some(suppressed) = auth_layer.authentication_log.acquire() {
                tracing::warn!(why, suppressed, "unable to authenticate a request");
            }
            return Some(errors::unauthorized(&head.headers, head.uri.query()));
        }
    };
    head.headers.remove(header::AUTHORIZATION);
    let refusal = authorization_refusal(auth_layer, &user, head).await;
    head.extensions.insert(user);
    refusal
}

async fn authorization_refusal(auth_layer: &AuthLayer, user: &User, head: &Parts) -> Option<Response> {
    let path = match head.uri.path() {
        "" => "/".to_owned(),
        path => paths::percent_decoded(path),
    };
    let verb = verb_of(&head.method);
    match auth_layer.authorization.authorize(user, &verb, &path).await {
        Ok(Decision::Allowed) => None,
        Ok(Decision::NoOpinion(reason) | Decision::Denied(reason)) => {
            tracing::debug!(user = user.name, verb, path, reason, "forbidden");
            Some(errors::forbidden(user, (&verb, &path), &reason, &head.headers, head.uri.query()))
        }
        Err(why) => {
            if let Some(suppressed) = auth_layer.authorization_log.acquire() {
                let (user, verb, path) = (&*user.name, errors::shortened(&verb), errors::shortened(&path));
                tracing::warn!(user, verb, path, why, suppressed, "cannot authorize a request");
            }
            Some(errors::internal_error(&path, &why))
        }
    }
}

fn verb_of(method: &Method) -> String {
    method.as_str().to_ascii_lowercase()
}

/// A body that keeps a value until the body is sent.
pub(crate) struct GuardedBody<H> {
    pub(crate) inner: Body,
    pub(crate) _guard: H,
}

impl<H: Unpin> http_body::Body for GuardedBody<H> {
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
