//! What the serving port answers, page by page. Who may ask, and by what means, is not decided here.
//!
//! As upstream's, pages ignore the method unless it has a meaning, and everything else is `404 page not found`.

mod debug;
mod monitoring;
mod negotiate;
mod probes;
mod status;
mod yaml;

use std::collections::BTreeMap;

use axum::{
    Router,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use clock::{Clock, Timestamp};
use metrics::Metrics;
use serde_json::Value;

use crate::{health::Health, version::Version};

/// What the pages tell of.
pub struct Sources {
    /// The checks of probes.
    pub health: Health,
    /// The manager's registry.
    pub metrics: Metrics,
    /// What `/configz` says.
    pub configuration: Value,
    /// Every flag and its value, sensitive ones hidden.
    pub flags: BTreeMap<String, String>,
    /// Pages that a feature gate turned off.
    pub off: Vec<&'static str>,
    /// What we are.
    pub version: Version,
    /// Controllers that were asked for and are not in this binary.
    pub absent: Vec<&'static str>,
    /// The level of the log.
    pub log: klog::Handle,
    /// `--profiling`: serves what is below `/debug`.
    pub profiling: bool,
    /// Time.
    pub clock: Clock,
    /// When the process started.
    pub started: Timestamp,
}

/// All pages.
pub fn router(sources: Sources) -> Router {
    let Sources { health, metrics, configuration, flags, off, version, absent, log, profiling, clock, started } =
        sources;
    let configuration = json(&serde_json::json!({"kubecontrollermanager.config.k8s.io": configuration}));
    let versions = json(&version.page());
    let routes = probes::routes(health.clone())
        .merge(monitoring::routes(&health, metrics))
        .merge(status::routes(flags, status::Status { version, absent, off, clock: clock.clone(), started }))
        .route("/configz", any(async || configuration))
        .route("/version", any(async || versions));
    let routes = if profiling { routes.merge(debug::routes(health, log, clock)) } else { routes };
    routes.fallback(not_found).layer(axum::middleware::map_response(uncached))
}

/// Answers to one question are not kept for the next.
async fn uncached(mut response: Response) -> Response {
    let never = HeaderValue::from_static("no-cache, private");
    response.headers_mut().insert(header::CACHE_CONTROL, never);
    response
}

async fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, "404 page not found\n")
}

const NO_SNIFF: (HeaderName, &str) = (header::X_CONTENT_TYPE_OPTIONS, "nosniff");

fn text(code: StatusCode, text: impl Into<String>) -> Response {
    (code, [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), NO_SNIFF], text.into()).into_response()
}

/// A page that does not change, ready to be sent.
fn json(value: &Value) -> impl IntoResponse + Clone + Send + use<> {
    ([(header::CONTENT_TYPE, "application/json"), NO_SNIFF], value.to_string())
}

#[cfg(test)]
mod tests;
