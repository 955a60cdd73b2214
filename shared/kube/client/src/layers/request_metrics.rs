use std::{sync::Arc, time::Duration};

use http::{Method, Response, StatusCode};
use metrics::{Histogram, HistogramVec, IntCounterVec, Metrics};

use crate::{ApiError, NotSent};

const SECONDS_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const BYTES_BUCKETS: &[f64] =
    &[64., 256., 512., 1_024., 4_096., 16_384., 65_536., 262_144., 1_048_576., 4_194_304., 16_777_216.];

/// The `rest_client_*` metrics of upstream. Each attempt is counted.
pub(crate) struct RequestMetrics {
    host: Arc<str>,
    requests: IntCounterVec,
    duration: HistogramVec,
    throttled: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    retries: IntCounterVec,
}

impl RequestMetrics {
    pub(crate) fn new(metrics: &Metrics, host: Arc<str>) -> Self {
        let histograms = |name, help, buckets| metrics.histograms(name, help, &["verb", "host"], buckets);
        Self {
            host,
            requests: metrics.counters(
                "rest_client_requests_total",
                "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
                &["code", "method", "host"],
            ),
            duration: histograms(
                "rest_client_request_duration_seconds",
                "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
                SECONDS_BUCKETS,
            ),
            throttled: histograms(
                "rest_client_rate_limiter_duration_seconds",
                "[ALPHA] Client side rate limiter latency in seconds. Broken down by verb, and host.",
                SECONDS_BUCKETS,
            ),
            request_size: histograms(
                "rest_client_request_size_bytes",
                "[ALPHA] Request size in bytes. Broken down by verb and host.",
                BYTES_BUCKETS,
            ),
            response_size: histograms(
                "rest_client_response_size_bytes",
                "[ALPHA] Response size in bytes. Broken down by verb and host.",
                BYTES_BUCKETS,
            ),
            retries: metrics.counters(
                "rest_client_request_retries_total",
                "[ALPHA] Number of request retries, partitioned by status code, verb, and host.",
                &["code", "verb", "host"],
            ),
        }
    }

    pub(super) fn record_wait(&self, method: &Method, wait: Duration) {
        self.throttled.with_label_values(&[method.as_str(), &self.host]).observe(wait.as_secs_f64());
    }

    /// A request that the fence or a shutdown stopped is not counted.
    pub(super) fn record_attempt<B>(
        &self,
        method: &Method,
        size: u64,
        took: Duration,
        response: &Result<Response<B>, ApiError>,
    ) {
        let code = match response {
            Ok(response) => response.status().as_str().to_owned(),
            Err(ApiError::NotSent(NotSent::TermEnded | NotSent::Stopping)) => return,
            Err(_) => "<error>".to_owned(),
        };
        let labels = [method.as_str(), &*self.host];
        self.requests.with_label_values(&[&*code, method.as_str(), &*self.host]).inc();
        self.duration.with_label_values(&labels).observe(took.as_secs_f64());
        self.request_size.with_label_values(&labels).observe(size as f64);
    }

    pub(super) fn count_retry(&self, status: StatusCode, method: &Method) {
        self.retries.with_label_values(&[status.as_str(), method.as_str(), &*self.host]).inc();
    }

    pub(super) fn response_size(&self, method: &Method) -> Histogram {
        self.response_size.with_label_values(&[method.as_str(), &*self.host])
    }
}
