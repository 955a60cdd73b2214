//! `/healthz`, `/livez`, `/readyz`, and the single checks by name.

use axum::{
    Router,
    extract::{Path, RawQuery},
    http::StatusCode,
    response::Response,
    routing::any,
};

use super::{not_found, text};
use crate::health::{HealthChecks, Probe, ProbeQuery, ProbeReport};

pub(super) fn routes(health: HealthChecks) -> Router {
    [Probe::Healthz, Probe::Livez, Probe::Readyz].into_iter().fold(Router::new(), |routes, probe| {
        let (all, one) = (health.clone(), health.clone());
        let all = any(async move |RawQuery(query): RawQuery| {
            response(all.run_checks(probe, &ProbeQuery::parse(query.as_deref().unwrap_or_default())))
        });
        let one = any(async move |Path(name): Path<String>| match one.run_check(probe, &name) {
            Some(report) => response(report),
            None => not_found().await,
        });
        let path = format!("/{}", probe.name());
        routes.route(&path, all).route(&format!("{path}/{{*name}}"), one)
    })
}

fn response(ProbeReport { healthy, text: body }: ProbeReport) -> Response {
    text(if healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, body)
}
