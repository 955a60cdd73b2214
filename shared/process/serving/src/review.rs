//! Sends a review to the API server, with retries.

use std::time::Duration;

use axum::body::Bytes;
use client::{Api, ApiError};
use clock::{Clock, Instant};
use metrics::{HistogramVec, IntCounterVec, Metrics};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout_at;

/// Upstream's `DefaultAuthWebhookRetryBackoff`: 500 ms × 1.5 with a jitter of 0.2, at most five attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const FACTOR: f64 = 1.5;
const JITTER: f64 = 0.2;
const MAX_ATTEMPTS: u32 = 5;
/// The timeout for all attempts of one review.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
const BUCKETS: &[f64] = &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];

/// Sends reviews of one kind.
pub(crate) struct ReviewClient {
    api: Api,
    path: &'static str,
    clock: Clock,
    rng: Mutex<fastrand::Rng>,
    total: IntCounterVec,
    duration: HistogramVec,
}

impl ReviewClient {
    /// `name` is `authn` or `authz`, as in the metrics' names.
    pub(crate) fn new(api: Api, path: &'static str, name: &str, metrics: &Metrics, clock: Clock, seed: u64) -> Self {
        let prefix = format!("apiserver_delegated_{name}_request");
        Self {
            api,
            path,
            clock,
            rng: Mutex::new(fastrand::Rng::with_seed(seed)),
            total: metrics.counters(
                &format!("{prefix}_total"),
                "[ALPHA] Number of HTTP requests partitioned by status code.",
                &["code"],
            ),
            duration: metrics.histograms(
                &format!("{prefix}_duration_seconds"),
                "[ALPHA] Request latency in seconds. Broken down by status code.",
                &["code"],
                BUCKETS,
            ),
        }
    }

    /// # Errors
    /// The error of the last attempt.
    pub(crate) async fn send<A: DeserializeOwned>(&self, question: &impl Serialize) -> Result<A, String> {
        let end = self.clock.now() + REVIEW_TIMEOUT;
        let mut pause = FIRST_PAUSE;
        for attempts_left in (0..MAX_ATTEMPTS).rev() {
            match self.attempt(question, end).await {
                Ok(response) => {
                    return serde_json::from_slice(&response).map_err(|err| format!("answer to {}: {err}", self.path));
                }
                Err(err) if attempts_left == 0 || !is_retryable(&err) || self.clock.now() + pause >= end => {
                    return Err(format!("{}: {err}", self.path));
                }
                Err(_) => {}
            }
            let jitter = self.rng.lock().f64() * JITTER;
            tokio::time::sleep(pause.mul_f64(1.0 + jitter)).await;
            pause = pause.mul_f64(FACTOR);
        }
        Err(format!("{}: no answer", self.path))
    }

    async fn attempt(&self, question: &impl Serialize, end: Instant) -> Result<Bytes, ApiError> {
        let begun = self.clock.now();
        let late = |_| Err(ApiError::unknown(format!("no answer within {REVIEW_TIMEOUT:?}")));
        let response = timeout_at(end, self.api.post(self.path, question)).await.unwrap_or_else(late);
        let code = match &response {
            // The server returns 201 to a review, although it does not store it.
            Ok(_) => "201".to_owned(),
            Err(err) => err.status().map_or_else(|| "<error>".to_owned(), |it| it.code.to_string()),
        };
        self.total.with_label_values(&[&code]).inc();
        self.duration.with_label_values(&[&code]).observe((self.clock.now() - begun).as_secs_f64());
        response
    }
}

/// True if a retry may succeed. If no connection to the server can be made, the caller gets the error at once, without
/// a retry.
fn is_retryable(err: &ApiError) -> bool {
    match err {
        ApiError::Busy { .. } => true,
        ApiError::Unknown { status: Some(status), .. } => matches!(status.code, 500 | 504),
        // The connection was interrupted.
        ApiError::Unknown { status: None, .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{api, response, unresponsive_api};

    async fn send_review(code: u16) -> (u32, Result<Value, String>, String) {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let api = api(move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            response(code, &json!({ "code": code, "message": "message" }))
        });
        let metrics = Metrics::new();
        let review_client = ReviewClient::new(api, "/apis/x/v1/reviews", "authz", &metrics, Clock::system(), 1);
        let result = review_client.send(&json!({})).await;
        (calls.load(Ordering::SeqCst), result, metrics.encode())
    }

    #[tokio::test(start_paused = true)]
    async fn only_transient_errors_are_retried() {
        for (code, want) in [(201, 1), (403, 1), (422, 1), (429, 5), (500, 5), (504, 5), (503, 1)] {
            let (calls, result, metrics) = send_review(code).await;
            assert_eq!(calls, want, "{code}");
            assert_eq!(result.is_ok(), code == 201, "{code}");
            let line = format!("apiserver_delegated_authz_request_total{{code=\"{code}\"}} {want}");
            assert!(metrics.contains(&line), "{metrics}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn retry_pauses_grow_like_upstreams() {
        let clock = Clock::system();
        let begun = clock.now();
        let _ = send_review(500).await;
        let took = (clock.now() - begun).as_secs_f64();
        let least = 0.5 * (1.0 + 1.5 + 2.25 + 3.375);
        assert!(took > least && took < least * 1.21, "{took}");
    }

    #[tokio::test(start_paused = true)]
    async fn review_without_response_fails_after_ten_seconds() {
        let (clock, metrics) = (Clock::system(), Metrics::new());
        let review_client =
            ReviewClient::new(unresponsive_api(), "/apis/x/v1/reviews", "authz", &metrics, clock.clone(), 1);
        let begun = clock.now();
        let err = review_client.send::<Value>(&json!({})).await.unwrap_err();
        assert!(err.contains("no answer within 10s"), "{err}");
        assert_eq!((clock.now() - begun).as_secs(), 10);
        assert!(metrics.encode().contains("apiserver_delegated_authz_request_total{code=\"<error>\"} 1"));
    }
}
