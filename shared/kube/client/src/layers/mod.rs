//! The layers of a request between [`crate::Api`] and a connection, from the outside to the inside:
//! retry → new token after a 401 → rate limiter → metrics → deadline → User-Agent → auth → fence → transport.
//!
//! They are plain functions in one place instead of nested services, so that their order can be read here. Two checks
//! are made twice, because time passes in between: a reflector takes its rate limiter token before it sends, and a pool
//! checks the fence again when the request has a connection.

mod bearer;
mod create_timeouts;
mod deadline;
mod fence;
mod identity;
mod rate_limiter;
mod request_metrics;
mod retry;
mod warnings;

use std::{fmt::Display, sync::Arc};

use clock::Clock;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, util::BoxCloneSyncService};

use self::bearer::{Refusal, StopSignal};
use crate::{ApiError, Body, Incoming, NotSent, Stack, Term, Transport, error::retry_after, error_chain};

pub(crate) use self::{
    bearer::{Authorize, RequestCredential, TokenSource, bearer},
    create_timeouts::CreateTimeouts,
    deadline::{DEADLINE, Deadline, ResponseTimeout, TimeLimit, WATCH_OPEN_TIMEOUT},
    fence::{Create, Fence},
    identity::{authorize, user_agent},
    rate_limiter::{NoRateLimit, RateLimiter},
    request_metrics::RequestMetrics,
    warnings::Warnings,
};

/// The layers of one client; cheap to clone.
#[derive(Clone)]
pub(crate) struct Layers(Arc<Inner>);

struct Inner {
    clock: Clock,
    stop: CancellationToken,
    metrics: Arc<RequestMetrics>,
    warnings: Arc<Warnings>,
    rate_limiter: Arc<RateLimiter>,
    user_agent: HeaderValue,
    retries: bool,
    time_limit: TimeLimit,
    /// The transport below fence and auth.
    authorized: Transport,
}

/// The differences between clients.
pub(crate) struct LayerOptions {
    pub(crate) rate_limiter: Arc<RateLimiter>,
    pub(crate) user_agent: HeaderValue,
    /// Retries a request after a response with `Retry-After`. The clients of reflectors, of the Lease and of reviews
    /// get every response instead.
    pub(crate) retries: bool,
    pub(crate) time_limit: TimeLimit,
    /// Writes are sent only in this term.
    pub(crate) fence: Option<Term>,
}

/// The state that all clients share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) clock: Clock,
    pub(crate) stop: CancellationToken,
    pub(crate) metrics: Arc<RequestMetrics>,
    pub(crate) warnings: Arc<Warnings>,
    pub(crate) authorize: Option<Authorize>,
}

impl Layers {
    pub(crate) fn new(common: &Common, transport: &Transport, options: LayerOptions) -> Self {
        let Common { clock, stop, metrics, warnings, authorize } = common.clone();
        let LayerOptions { rate_limiter, user_agent, retries, time_limit, fence } = options;
        let fenced = fence::fenced(transport.clone(), fence);
        let authorized = match authorize {
            Some(authorize) => authorize(fenced),
            None => fenced,
        };
        Self(Arc::new(Inner {
            clock,
            stop,
            metrics,
            warnings,
            rate_limiter,
            user_agent,
            retries,
            time_limit,
            authorized,
        }))
    }

    pub(crate) fn into_stack(self) -> Stack {
        BoxCloneSyncService::new(tower::service_fn(move |request| {
            let layers = self.clone();
            async move { layers.send(request).await }
        }))
    }

    /// Waits until the rate limiter allows another request. Nothing is sent before.
    pub(crate) async fn wait_for_token(&self, method: &Method, uri: &(dyn Display + Sync)) -> Result<(), ApiError> {
        let Inner { clock, stop, metrics, rate_limiter, .. } = &*self.0;
        let waited = rate_limiter.wait(clock, stop, (method, uri)).await?;
        metrics.record_wait(method, waited);
        Ok(())
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, ApiError> {
        if !self.0.retries {
            return self.send_identified(request).await;
        }
        // After a 503 the write may have happened. Later responses to the same request do not change that.
        let mut may_have_happened = false;
        match self.send_with_retries(request, &mut may_have_happened).await {
            Err(ApiError::NotSent(why)) if may_have_happened => {
                Err(ApiError::unknown(format!("not repeated after a 503: {why}")))
            }
            Ok(response) if may_have_happened && response.status() == StatusCode::TOO_MANY_REQUESTS => {
                Err(ApiError::unknown("a 503, and then 429"))
            }
            outcome => outcome,
        }
    }

    async fn send_with_retries(
        &self,
        request: Request<Body>,
        may_have_happened: &mut bool,
    ) -> Result<Response<Incoming>, ApiError> {
        let began = self.0.clock.now();
        let mut retries = 0;
        loop {
            let response = self.send_identified(request.clone()).await?;
            let after = retry_after(&response);
            let elapsed = self.0.clock.now().saturating_duration_since(began);
            let Some(wait) = retry::delay_before_retry(retries, elapsed, request.method(), response.status(), after)
            else {
                return Ok(response);
            };
            retries += 1;
            *may_have_happened |= response.status().is_server_error() && !request.method().is_safe();
            self.0.metrics.count_retry(response.status(), request.method());
            tracing::debug!(method = %request.method(), uri = %request.uri(), retries, ?wait, "Retrying after the time that the server requested");
            retry::discard(response).await;
            retry::pause(wait, &self.0.stop).await?;
        }
    }

    /// Sends a request, and once more if a new token may help. Each attempt takes a rate limiter token and is counted.
    async fn send_identified(&self, mut request: Request<Body>) -> Result<Response<Incoming>, ApiError> {
        let mut response = self.attempt(request.clone()).await?;
        let Some(refusal) = response.extensions_mut().remove::<Refusal>() else { return Ok(response) };
        if !bearer::may_retry(request.method(), request.uri().path()) {
            refusal.start_renewal();
            return Ok(response);
        }
        let stop = StopSignal(self.0.stop.clone());
        let Some(remaining) = refusal.wait_for_renewal(&self.0.clock, &stop).await else { return Ok(response) };
        retry::discard(response).await;
        // Both attempts together have the time of one, without the waits for the rate limiter.
        request.extensions_mut().insert(ResponseTimeout(remaining));
        self.attempt(request).await
    }

    async fn attempt(&self, mut request: Request<Body>) -> Result<Response<Incoming>, ApiError> {
        let Inner { clock, stop, metrics, warnings, user_agent, time_limit, authorized, .. } = &*self.0;
        if request.extensions().get::<NoRateLimit>().is_none() {
            self.wait_for_token(request.method(), request.uri()).await?;
        }
        let began = clock.now();
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let size = request.body().size_hint().exact().unwrap_or(0);
        request.headers_mut().insert(header::USER_AGENT, user_agent.clone());
        let limit = request.extensions().get::<ResponseTimeout>().map_or(time_limit.head_limit(), |it| it.0);
        let at = began + limit;
        request.extensions_mut().insert(Deadline { at, limit });
        request.extensions_mut().insert(StopSignal(stop.clone()));
        let response = match deadline::head(at, authorized.clone().oneshot(request)).await {
            Some(response) => response.map_err(api_error),
            None => Err(ApiError::unknown(format!("no answer within {:?}", clock.now() - began))),
        };
        let took = clock.now() - began;
        metrics.record_attempt(&method, size, took, &response);
        match &response {
            Ok(it) => tracing::trace!(verb = %method, url = %uri, status = %it.status(), ?took, "Response"),
            Err(err) => tracing::trace!(%err, verb = %method, url = %uri, ?took, "No response"),
        }
        let response = response?;
        warnings.log_new(&response);
        // An open watch has no deadline, but a refused one has.
        let at = match time_limit {
            TimeLimit::Head(_) if response.status().is_success() => None,
            TimeLimit::Head(_) => Some(began + DEADLINE),
            TimeLimit::Whole(_) => Some(at),
        };
        let counter = at.map(|_| metrics.response_size(&method));
        Ok(response.map(|body| deadline::body(body, at, counter)))
    }
}

/// The error of the fence or the transport. Any other error is from the layer between them, before anything was sent.
fn api_error(err: crate::BoxError) -> ApiError {
    match err.downcast::<ApiError>() {
        Ok(err) => *err,
        Err(err) => ApiError::NotSent(NotSent::Unreachable(format!("client credentials: {}", error_chain(&*err)))),
    }
}

#[cfg(test)]
mod tests;
