//! The pages of the serving port. Authentication and authorization are not part of this module.
//!
//! As in upstream, a page ignores the HTTP method unless the method has a meaning. Every other path is `404 page not
//! found`.

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

use crate::{health::HealthChecks, version::VersionInfo};

/// The data behind the pages.
pub struct PageData {
    /// The health checks.
    pub health: HealthChecks,
    /// The metrics registry of the manager.
    pub metrics: Metrics,
    /// The content of `/configz`.
    pub configuration: Value,
    /// Every flag and its value. Sensitive values are hidden.
    pub flags: BTreeMap<String, String>,
    /// Pages that are off because of their feature gate.
    pub disabled: Vec<&'static str>,
    /// The version.
    pub version: VersionInfo,
    /// Enabled controllers that are not in this binary.
    pub absent: Vec<&'static str>,
    /// The log handle.
    pub log: klog::Handle,
    /// `--profiling`: serves the pages below `/debug`.
    pub profiling: bool,
    /// The clock.
    pub clock: Clock,
    /// The start time of the process.
    pub started: Timestamp,
}

/// All pages.
pub fn router(page_data: PageData) -> Router {
    let PageData { health, metrics, configuration, flags, disabled, version, absent, log, profiling, clock, started } =
        page_data;
    let configuration = json(&serde_json::json!({"kubecontrollermanager.config.k8s.io": configuration}));
    let versions = json(&version.page());
    let routes = probes::routes(health.clone())
        .merge(monitoring::routes(&health, metrics))
        .merge(status::routes(flags, status::StatuszPage { version, absent, disabled, clock: clock.clone(), started }))
        .route("/configz", any(async || configuration))
        .route("/version", any(async || versions));
    let routes = if profiling { routes.merge(debug::routes(health, log, clock)) } else { routes };
    routes.fallback(not_found).layer(axum::middleware::map_response(disable_caching))
}

/// No answer may be cached.
async fn disable_caching(mut response: Response) -> Response {
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

/// A static page, already serialized.
fn json(value: &Value) -> impl IntoResponse + Clone + Send + use<> {
    ([(header::CONTENT_TYPE, "application/json"), NO_SNIFF], value.to_string())
}

#[cfg(test)]
mod tests;
