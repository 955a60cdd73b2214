//! `/metrics` and `/metrics/slis`, always in the text format of Prometheus, as in upstream.

use axum::{
    Router,
    http::{HeaderName, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use metrics::Metrics;

use super::text;
use crate::health::HealthChecks;

const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
/// A scraper detects with this header that the counters were reset.
const STARTED: HeaderName = HeaderName::from_static("process-start-time-unix");

pub(super) fn routes(health: &HealthChecks, metrics: Metrics) -> Router {
    let health = health.clone();
    let slis = async move |method: Method| {
        if method == Method::DELETE {
            health.reset_slis();
            return text(StatusCode::OK, "metrics reset\n");
        }
        page(health.slis())
    };
    Router::new().route("/metrics", any(async move || page(&metrics))).route("/metrics/slis", any(slis))
}

fn page(metrics: &Metrics) -> Response {
    let started = metrics::process::start_time().unwrap_or_default();
    let headers = [(header::CONTENT_TYPE, FORMAT.to_owned()), (STARTED, format!("{started:.0}"))];
    (headers, metrics.encode()).into_response()
}
