//! What the serving port answers, page by page. Who may ask, and by what means, is not decided here.

use axum::{Router, extract::RawQuery, http::StatusCode, response::IntoResponse, routing::get};
use metrics::Metrics;

use crate::health::{Health, Query, Report};

/// What the pages tell of.
pub struct Sources {
    /// The checks of probes.
    pub health: Health,
    /// The manager's registry.
    pub metrics: Metrics,
}

/// All pages.
pub fn router(sources: Sources) -> Router {
    let Sources { health, metrics } = sources;
    let live = health.clone();
    let live = get(move |RawQuery(query)| async move { answer(live.live(&parse(query))) });
    let ready = get(move |RawQuery(query)| async move { answer(health.ready(&parse(query))) });
    let text = [("content-type", "text/plain; version=0.0.4; charset=utf-8"), ("cache-control", "no-cache, private")];
    Router::new()
        .route("/healthz", live.clone())
        .route("/livez", live)
        .route("/readyz", ready)
        .route("/metrics", get(move || async move { (text, metrics.encode()) }))
}

fn parse(query: Option<String>) -> Query {
    Query::parse(query.as_deref().unwrap_or_default())
}

fn answer(report: Report) -> impl IntoResponse {
    let code = if report.healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    (code, [("cache-control", "no-cache, private"), ("x-content-type-options", "nosniff")], report.text)
}
