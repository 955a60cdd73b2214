//! The layers of a request between [`crate::Api`] and a connection, from the outside to the inside:
//! retry → new token after a 401 → rate limiter → metrics → deadline → User-Agent → auth → fence → transport.
//!
//! They are plain functions in one place instead of nested services, so that their order can be read here. Two checks
//! are made twice, because time passes in between: a reflector takes its rate limiter token before it sends, and a pool
//! checks the fence again when the request has a connection.

mod bearer;
mod deadline;
mod fence;
mod hints;
mod identity;
mod observe;
mod retry;
mod throttle;
mod warnings;

use std::{fmt::Display, sync::Arc};

use clock::Clock;
use http::{HeaderValue, Method, Request, Response, header};
use http_body::Body as _;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, util::BoxCloneSyncService};

use self::bearer::{Refusal, Stop};
use crate::{ApiError, Body, Incoming, NotSent, Stack, Term, Transport, api_client, error::chain};

pub(crate) use self::{
    bearer::{Shown, Tokens, bearer},
    deadline::{DEADLINE, Deadline, Patience, WATCH_OPENS, Within},
    fence::{Create, Fence},
    hints::CreateHints,
    identity::{Authorize, authorize, user_agent},
    observe::Observed,
    retry::Once,
    throttle::{Free, Throttle},
    warnings::Warnings,
};

/// The layers of one client; cheap to clone.
#[derive(Clone)]
pub(crate) struct Layers(Arc<Inner>);

struct Inner {
    clock: Clock,
    stop: CancellationToken,
    observed: Arc<Observed>,
    warnings: Arc<Warnings>,
    throttle: Arc<Throttle>,
    user_agent: HeaderValue,
    retries: bool,
    patience: Patience,
    /// The transport below fence and auth.
    authorized: Transport,
}

/// The differences between clients.
pub(crate) struct Recipe {
    pub(crate) throttle: Arc<Throttle>,
    pub(crate) user_agent: HeaderValue,
    /// Retries a request after a response with `Retry-After`. The clients of reflectors, of the Lease and of reviews
    /// get every response instead.
    pub(crate) retries: bool,
    pub(crate) patience: Patience,
    /// Writes are sent only in this term.
    pub(crate) fence: Option<Term>,
}

/// The state that all clients share.
#[derive(Clone)]
pub(crate) struct Common {
    pub(crate) clock: Clock,
    pub(crate) stop: CancellationToken,
    pub(crate) observed: Arc<Observed>,
    pub(crate) warnings: Arc<Warnings>,
    pub(crate) authorize: Option<Authorize>,
}

impl Layers {
    pub(crate) fn new(common: &Common, transport: &Transport, recipe: Recipe) -> Self {
        let Common { clock, stop, observed, warnings, authorize } = common.clone();
        let Recipe { throttle, user_agent, retries, patience, fence } = recipe;
        let fenced = fence::fenced(transport.clone(), fence);
        let authorized = match authorize {
            Some(authorize) => authorize(fenced),
            None => fenced,
        };
        Self(Arc::new(Inner { clock, stop, observed, warnings, throttle, user_agent, retries, patience, authorized }))
    }

    pub(crate) fn into_stack(self) -> Stack {
        BoxCloneSyncService::new(tower::service_fn(move |request| {
            let layers = self.clone();
            async move { layers.send(request).await }
        }))
    }

    /// Waits until the rate limiter allows another request. Nothing is sent before.
    pub(crate) async fn token(&self, method: &Method, uri: &(dyn Display + Sync)) -> Result<(), ApiError> {
        let Inner { clock, stop, observed, throttle, .. } = &*self.0;
        let waited = throttle.wait(clock, stop, (method, uri)).await?;
        observed.waited(method, waited);
        Ok(())
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, ApiError> {
        if !self.0.retries || request.extensions().get::<Once>().is_some() {
            return self.identified(request).await;
        }
        let begun = self.0.clock.now();
        let mut repeated = 0;
        loop {
            let answer = self.identified(request.clone()).await?;
            let after = api_client::retry_after(&answer);
            let elapsed = self.0.clock.now().saturating_duration_since(begun);
            let Some(wait) = retry::wait(repeated, elapsed, request.method(), answer.status(), after) else {
                return Ok(answer);
            };
            repeated += 1;
            self.0.observed.repeated(answer.status(), request.method());
            tracing::debug!(method = %request.method(), uri = %request.uri(), repeated, ?wait, "asked to come later");
            retry::discard(answer).await;
            retry::pause(wait, &self.0.stop).await?;
        }
    }

    /// Sends a request, and once more if a new token may help. Each attempt takes a rate limiter token and is counted.
    async fn identified(&self, mut request: Request<Body>) -> Result<Response<Incoming>, ApiError> {
        let mut answer = self.attempt(request.clone()).await?;
        let Some(refusal) = answer.extensions_mut().remove::<Refusal>() else { return Ok(answer) };
        if !bearer::may_repeat(request.method(), request.uri().path()) {
            refusal.told();
            return Ok(answer);
        }
        let stop = Stop(self.0.stop.clone());
        let Some(rest) = refusal.renewed(&self.0.clock, &stop).await else { return Ok(answer) };
        retry::discard(answer).await;
        // Both attempts together have the time of one, without the waits for the rate limiter.
        request.extensions_mut().insert(Within(rest));
        self.attempt(request).await
    }

    async fn attempt(&self, mut request: Request<Body>) -> Result<Response<Incoming>, ApiError> {
        let Inner { clock, stop, observed, warnings, user_agent, patience, authorized, .. } = &*self.0;
        if request.extensions().get::<Free>().is_none() {
            self.token(request.method(), request.uri()).await?;
        }
        let begun = clock.now();
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let size = request.body().size_hint().exact().unwrap_or(0);
        request.headers_mut().insert(header::USER_AGENT, user_agent.clone());
        let limit = request.extensions().get::<Within>().map_or(patience.for_head(), |it| it.0);
        let at = begun + limit;
        request.extensions_mut().insert(Deadline { at, limit });
        request.extensions_mut().insert(Stop(stop.clone()));
        let answer = match deadline::head(at, authorized.clone().oneshot(request)).await {
            Some(answer) => answer.map_err(unboxed),
            None => Err(ApiError::unknown(format!("no answer within {:?}", clock.now() - begun))),
        };
        let took = clock.now() - begun;
        observed.attempted(&method, size, took, &answer);
        match &answer {
            Ok(it) => tracing::trace!(verb = %method, url = %uri, status = %it.status(), ?took, "Response"),
            Err(err) => tracing::trace!(%err, verb = %method, url = %uri, ?took, "No response"),
        }
        let answer = answer?;
        warnings.tell(&answer);
        // An open watch has no deadline, but a refused one has.
        let at = match patience {
            Patience::Head(_) if answer.status().is_success() => None,
            Patience::Head(_) => Some(begun + DEADLINE),
            Patience::Whole(_) => Some(at),
        };
        let counter = at.map(|_| observed.answer_size(&method));
        Ok(answer.map(|body| deadline::body(body, at, counter)))
    }
}

/// The error of the fence or the transport. Any other error is from the layer between them, before anything was sent.
fn unboxed(err: crate::BoxError) -> ApiError {
    match err.downcast::<ApiError>() {
        Ok(err) => *err,
        Err(err) => ApiError::NotSent(NotSent::Unreachable(format!("client credentials: {}", chain(&*err)))),
    }
}

#[cfg(test)]
mod tests;
