use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use futures::{FutureExt, future::BoxFuture};
use http::{HeaderValue, Method, Request, StatusCode, header};
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, util::BoxCloneSyncService};

use super::deadline::Deadline;
use crate::{ApiError, Body, BoxError, NotSent, Transport};

/// Adds our identity to the requests of a transport.
pub(crate) type Authorize = Arc<dyn Fn(Transport) -> Transport + Send + Sync>;

/// The credential of a request: a header with a token, or a certificate and no header.
#[derive(Debug, Clone)]
pub(crate) struct RequestCredential {
    /// Marked as sensitive. `None` if a certificate identifies us.
    pub(crate) value: Option<HeaderValue>,
    /// Distinguishes it from its predecessor.
    pub(crate) serial: u64,
}

/// A source of tokens that expire and are renewed.
pub(crate) trait TokenSource: Send + Sync + 'static {
    /// The token to send. The caller may have to wait for it.
    fn token(&self) -> BoxFuture<'_, Result<RequestCredential, ApiError>>;

    /// Called when the server has refused the token of this serial with 401. Returns whether there is another token
    /// now.
    fn on_refused(&self, serial: u64) -> BoxFuture<'_, bool>;
}

/// An extension of a request: cancelled when the manager stops. A request that waits for a token has sent nothing and
/// then ends.
#[derive(Clone)]
pub(super) struct StopSignal(pub(super) CancellationToken);

impl StopSignal {
    async fn unless_stopped<T>(&self, wait: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            // Polled first: a token that is available needs no wait, so that a stopping manager can complete its
            // writes.
            it = wait => Some(it),
            () = self.0.cancelled() => None,
        }
    }
}

/// An extension of a 401 response: the source of the refused token, its serial, and the deadline of the request.
#[derive(Clone)]
pub(super) struct Refusal {
    tokens: Arc<dyn TokenSource>,
    serial: u64,
    until: Instant,
}

/// Adds a token to each request.
pub(crate) fn bearer(tokens: Arc<dyn TokenSource>) -> Authorize {
    Arc::new(move |inner| {
        let tokens = tokens.clone();
        BoxCloneSyncService::new(tower::service_fn(move |mut request: Request<Body>| {
            let (tokens, inner): (_, Transport) = (tokens.clone(), inner.clone());
            async move {
                let RequestCredential { value, serial } =
                    token_or_stop(&*tokens, request.extensions().get::<StopSignal>()).await?;
                if let Some(value) = value {
                    request.headers_mut().insert(header::AUTHORIZATION, value);
                }
                let deadline = request.extensions().get::<Deadline>().map(|it| it.at);
                let mut response = inner.oneshot(request).await?;
                if response.status() == StatusCode::UNAUTHORIZED
                    && let Some(until) = deadline
                {
                    response.extensions_mut().insert(Refusal { tokens, serial, until });
                }
                Ok::<_, BoxError>(response)
            }
        }))
    })
}

async fn token_or_stop(tokens: &dyn TokenSource, stop: Option<&StopSignal>) -> Result<RequestCredential, ApiError> {
    match stop {
        None => tokens.token().await,
        Some(stop) => stop.unless_stopped(tokens.token()).await.unwrap_or(Err(ApiError::NotSent(NotSent::Stopping))),
    }
}

impl Refusal {
    /// Waits for another token until the deadline of the request. Returns the time that remains then; `None` if the
    /// refusal is final.
    pub(super) async fn wait_for_renewal(self, clock: &Clock, stop: &StopSignal) -> Option<Duration> {
        let Self { tokens, serial, until } = self;
        let renewed = stop.unless_stopped(tokio::time::timeout_at(until, tokens.on_refused(serial))).await;
        let remaining = until.saturating_duration_since(clock.now());
        (renewed == Some(Ok(true)) && !remaining.is_zero()).then_some(remaining)
    }

    /// Starts the request of another token, for later requests.
    pub(super) fn start_renewal(self) {
        // The first poll starts it. Later callers complete it.
        let _ = self.tokens.on_refused(self.serial).now_or_never();
    }
}

/// True for a request that may be sent again with another token.
///
/// The API server authenticates before it does anything else, and after a 401 from a webhook a write is not stored. So
/// nothing was done. Below `/apis/` an aggregated API server may respond with 401 for other reasons, so only reads are
/// sent again there.
pub(super) fn may_retry(method: &Method, path: &str) -> bool {
    method == Method::GET || !path.starts_with("/apis/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn write_that_another_server_may_have_executed_is_not_retried() {
        for (method, path, want) in [
            (Method::GET, "/api/v1/pods", true),
            (Method::PUT, "/api/v1/namespaces/a/finalize", true),
            (Method::POST, "/api/v1/namespaces/a/pods", true),
            (Method::GET, "/apis/metrics.k8s.io/v1beta1/pods", true),
            (Method::DELETE, "/apis/metrics.k8s.io/v1beta1/pods/a", false),
            (Method::POST, "/apis/apps/v1/namespaces/a/deployments", false),
        ] {
            assert_eq!(may_retry(&method, path), want, "{method} {path}");
        }
    }
}
