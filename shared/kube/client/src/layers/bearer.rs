use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Method, Request, StatusCode, header};
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, util::BoxCloneSyncService};

use super::{deadline::Deadline, identity::Authorize};
use crate::{ApiError, Body, BoxError, NotSent, Transport};

/// Who we are: a token as a header, or something beside it.
#[derive(Debug, Clone)]
pub(crate) struct Shown {
    /// Marked as sensitive; none where a certificate says who we are.
    pub(crate) value: Option<HeaderValue>,
    /// Tells it from its predecessor.
    pub(crate) serial: u64,
}

/// Where tokens come from that end and are renewed.
pub(crate) trait Tokens: Send + Sync + 'static {
    /// What to send. May wait for it.
    fn token(&self) -> BoxFuture<'_, Result<Shown, ApiError>>;

    /// The server has refused the token of this number with 401. Returns whether there is another one now.
    fn refused(&self, serial: u64) -> BoxFuture<'_, bool>;
}

/// Travels with a request: the manager stops. Who waits for a token then has sent nothing, and waits no longer.
#[derive(Clone)]
pub(super) struct Stop(pub(super) CancellationToken);

impl Stop {
    async fn or<T>(&self, waits: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            // What is at hand needs no wait: a manager that stops still writes what it has begun.
            it = waits => Some(it),
            () = self.0.cancelled() => None,
        }
    }
}

/// Travels with a 401: which token was refused, and until when its request must have an answer.
#[derive(Clone)]
pub(super) struct Refusal {
    tokens: Arc<dyn Tokens>,
    serial: u64,
    until: Instant,
}

/// Sends the token with each request.
pub(crate) fn bearer(tokens: Arc<dyn Tokens>) -> Authorize {
    Arc::new(move |inner| {
        let tokens = tokens.clone();
        BoxCloneSyncService::new(tower::service_fn(move |mut request: Request<Body>| {
            let (tokens, inner): (_, Transport) = (tokens.clone(), inner.clone());
            async move {
                let Shown { value, serial } = shown(&*tokens, request.extensions().get::<Stop>()).await?;
                if let Some(value) = value {
                    request.headers_mut().insert(header::AUTHORIZATION, value);
                }
                let deadline = request.extensions().get::<Deadline>().map(|it| it.at);
                let mut answer = inner.oneshot(request).await?;
                if answer.status() == StatusCode::UNAUTHORIZED
                    && let Some(until) = deadline
                {
                    answer.extensions_mut().insert(Refusal { tokens, serial, until });
                }
                Ok::<_, BoxError>(answer)
            }
        }))
    })
}

async fn shown(tokens: &dyn Tokens, stop: Option<&Stop>) -> Result<Shown, ApiError> {
    match stop {
        None => tokens.token().await,
        Some(stop) => stop.or(tokens.token()).await.unwrap_or(Err(ApiError::NotSent(NotSent::Stopping))),
    }
}

impl Refusal {
    /// Waits for another token, as long as the request has time. Returns the time that it has left then; `None` where
    /// the refusal stands.
    pub(super) async fn renewed(self, clock: &Clock, stop: &Stop) -> Option<Duration> {
        let Self { tokens, serial, until } = self;
        let another = stop.or(tokio::time::timeout_at(until, tokens.refused(serial))).await;
        let rest = until.saturating_duration_since(clock.now());
        (another == Some(Ok(true)) && !rest.is_zero()).then_some(rest)
    }

    /// Has another token asked for, for those who come next.
    pub(super) fn told(self) {
        // The first poll begins it; whoever else needs one drives it on.
        let _ = self.tokens.refused(self.serial).now_or_never();
    }
}

/// True for a request that may be sent once more with another token.
///
/// The server itself asks who we are before anything else, and a webhook that says 401 kept a write from being stored:
/// nothing was done. Below `/apis/` another server may answer, for reasons of its own: only reads go there twice.
pub(super) fn may_repeat(method: &Method, path: &str) -> bool {
    method == Method::GET || !path.starts_with("/apis/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_server_may_have_done_is_not_done_twice() {
        for (method, path, want) in [
            (Method::GET, "/api/v1/pods", true),
            (Method::PUT, "/api/v1/namespaces/a/finalize", true),
            (Method::POST, "/api/v1/namespaces/a/pods", true),
            (Method::GET, "/apis/metrics.k8s.io/v1beta1/pods", true),
            (Method::DELETE, "/apis/metrics.k8s.io/v1beta1/pods/a", false),
            (Method::POST, "/apis/apps/v1/namespaces/a/deployments", false),
        ] {
            assert_eq!(may_repeat(&method, path), want, "{method} {path}");
        }
    }
}
