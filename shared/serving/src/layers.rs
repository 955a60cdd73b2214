//! What happens to a request before a page sees it, outside in: panics are contained, the request is logged, bounds are
//! kept, nothing may be cached, who asks is found out, whether they may is decided.

use std::{
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
use http::{HeaderValue, Method, StatusCode, Version, header};
use http_body::{Frame, SizeHint};
use rustls_pki_types::CertificateDer;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    User, answers,
    authentication::Authentication,
    authorization::{Authorization, Decision},
    paths,
};

/// An answer that is not there by then will not be waited for.
pub(crate) const REQUEST: Duration = Duration::from_secs(60);
/// No page takes a larger body.
const BODY: usize = 64 << 10;
/// Requests under way, bodies of answers included.
const MOST_REQUESTS: usize = 32;
/// The same for what everybody may see, so that nothing else keeps probes out.
const MOST_OPEN_REQUESTS: usize = 32;

/// Who sent a request, as far as its connection tells.
#[derive(Clone)]
pub(crate) struct Peer {
    /// The client's certificates, its own first.
    pub(crate) chain: Arc<[CertificateDer<'static>]>,
    /// Ends the connection after what is under way.
    pub(crate) retire: CancellationToken,
}

/// What decides about requests; [`Gate::protect`] puts it in front of pages.
pub struct Gate {
    pub(crate) authentication: Authentication,
    pub(crate) authorization: Authorization,
    pub(crate) clock: Clock,
    requests: Arc<Semaphore>,
    open_requests: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new(authentication: Authentication, authorization: Authorization, clock: Clock) -> Arc<Self> {
        let requests = Arc::new(Semaphore::new(MOST_REQUESTS));
        let open_requests = Arc::new(Semaphore::new(MOST_OPEN_REQUESTS));
        Arc::new(Self { authentication, authorization, clock, requests, open_requests })
    }

    /// Nobody reaches these pages but through every layer. The last one added is the outermost.
    pub fn protect(self: Arc<Self>, pages: Router) -> Router {
        pages
            .layer(from_fn_with_state(self.clone(), authorized))
            .layer(from_fn_with_state(self.clone(), authenticated))
            .layer(DefaultBodyLimit::max(BODY))
            .layer(from_fn(uncached))
            .layer(from_fn_with_state(self.clone(), bounded))
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

/// Neither headers nor the query: they may hold secrets.
async fn logged(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let begun = gate.clock.now();
    let (verb, path) = (request.method().clone(), request.uri().path().to_owned());
    let answer = next.run(request).await;
    let latency = gate.clock.now() - begun;
    tracing::debug!(target: "v3", %verb, path, ?latency, resp = answer.status().as_u16(), "HTTP");
    answer
}

async fn bounded(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let closes = request.version() <= Version::HTTP_11;
    let refused = |code, text| {
        let mut answer = answers::text(code, text);
        if closes {
            answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    };
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|it| it > BODY as u64) {
        return refused(StatusCode::PAYLOAD_TOO_LARGE, "The body is too large.");
    }
    let open = gate.authorization.open.contains(request.uri().path());
    let room = if open { &gate.open_requests } else { &gate.requests };
    let Ok(place) = room.clone().try_acquire_owned() else {
        let mut answer = refused(StatusCode::TOO_MANY_REQUESTS, "Too many requests, please try again later.");
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        return answer;
    };
    match tokio::time::timeout(REQUEST, next.run(request)).await {
        Ok(answer) => answer.map(|inner| Body::new(Holding { inner, _held: place })),
        Err(_) => refused(StatusCode::GATEWAY_TIMEOUT, "The answer took too long."),
    }
}

async fn uncached(request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let none = HeaderValue::from_static("no-cache, private");
    answer.headers_mut().entry(header::CACHE_CONTROL).or_insert(none);
    answer
}

async fn authenticated(State(gate): State<Arc<Gate>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions_mut().remove::<Peer>();
    let chain = peer.as_ref().map_or(&[][..], |it| &it.chain);
    let user = gate.authentication.who(chain, request.headers()).await;
    // Whoever opened an HTTP/2 connection without saying who they are shall not keep it, as upstream.
    let unknown = user.as_ref().ok().is_none_or(User::is_anonymous);
    if request.version() == Version::HTTP_2
        && unknown
        && let Some(peer) = &peer
    {
        peer.retire.cancel();
    }
    match user {
        Ok(user) => {
            request.headers_mut().remove(header::AUTHORIZATION);
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        Err(why) => {
            tracing::warn!(why, "unable to authenticate a request");
            answers::unauthorized(request.headers(), request.uri().query())
        }
    }
}

async fn authorized(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let user = request.extensions().get::<User>().cloned().unwrap_or_else(User::anonymous);
    let path = match request.uri().path() {
        "" => "/".to_owned(),
        path => paths::decoded(path),
    };
    let verb = verb_of(request.method());
    match gate.authorization.decide(&user, &verb, &path).await {
        Ok(Decision::Allowed) => next.run(request).await,
        Ok(Decision::NoOpinion(reason) | Decision::Denied(reason)) => {
            tracing::debug!(user = user.name, verb, path, reason, "forbidden");
            answers::forbidden(&user, (&verb, &path), &reason, request.headers(), request.uri().query())
        }
        Err(why) => {
            tracing::warn!(user = user.name, verb, path, why, "cannot find out who may see a page");
            answers::undecided(&path, &why)
        }
    }
}

fn verb_of(method: &Method) -> String {
    method.as_str().to_ascii_lowercase()
}

/// A body that holds something until it was sent.
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
