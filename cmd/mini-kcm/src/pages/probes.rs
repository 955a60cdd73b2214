//! `/healthz`, `/livez`, `/readyz`, and the single checks by name.

use axum::{
    Router,
    extract::{Path, RawQuery},
    http::StatusCode,
    response::Response,
    routing::any,
};

use super::{not_found, text};
use crate::health::{Health, Probe, Query, Report};

pub(super) fn routes(health: Health) -> Router {
    [Probe::Healthz, Probe::Livez, Probe::Readyz].into_iter().fold(Router::new(), |routes, probe| {
        let (all, one) = (health.clone(), health.clone());
        let all = any(async move |RawQuery(query): RawQuery| {
            answer(all.answer(probe, &Query::parse(query.as_deref().unwrap_or_default())))
        });
        let one = any(async move |Path(name): Path<String>| match one.answer_one(probe, &name) {
            Some(report) => answer(report),
            None => not_found().await,
        });
        let path = format!("/{}", probe.name());
        routes.route(&path, all).route(&format!("{path}/{{*name}}"), one)
    })
}

fn answer(Report { healthy, text: body }: Report) -> Response {
    text(if healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR }, body)
}
