//! `/debug/controllers` and `/debug/flags/v`, only with `--profiling`.
//!
//! Upstream's profiles are absent: this binary has no symbols, so that a profile would be unreadable.

use axum::{
    Router,
    body::Bytes,
    extract::{Path, RawQuery},
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use clock::Clock;
use controller::{PageContent, Query, WorkerStatus};
use serde_json::{Value, json};

use super::{NO_SNIFF, json as page, not_found, text};
use crate::health::{HealthChecks, RunningController};

pub(super) fn routes(health: HealthChecks, log: klog::Handle, clock: Clock) -> Router {
    let (one, other_clock, own) = (health.clone(), clock.clone(), health.clone());
    let all = any(async move || {
        let controllers: Vec<Value> = controller_states(&health, &clock).into_iter().map(|(_, it)| it).collect();
        match controllers.is_empty() {
            true => not_found().await,
            false => page(&json!({ "controllers": controllers })).into_response(),
        }
    });
    let one = any(async move |Path(name): Path<String>| {
        match controller_states(&one, &other_clock).into_iter().find(|(it, _)| *it == name) {
            Some((_, controller)) => page(&controller).into_response(),
            None => not_found().await,
        }
    });
    let own = any(async move |Path((name, page)): Path<(String, String)>, RawQuery(query): RawQuery| {
        match own_page(&own, &name, &page, query.as_deref().unwrap_or_default()) {
            Some(response) => response,
            None => not_found().await,
        }
    });
    Router::new()
        .route("/debug/controllers", all)
        .route("/debug/controllers/{name}", one)
        .route("/debug/controllers/{name}/{page}", own)
        .route("/debug/flags/v", any(async move |method: Method, body: Bytes| change_verbosity(&log, &method, &body)))
}

/// A debug page of a running controller.
fn own_page(health: &HealthChecks, name: &str, page: &str, query: &str) -> Option<Response> {
    let running = health.controllers().into_iter().find(|it| it.name == name)?;
    let page = running.pages.into_iter().find(|it| it.name() == page)?;
    let query = Query::new(form_urlencoded::parse(query.as_bytes()).into_owned());
    Some(match page.render(&query) {
        Ok(PageContent { content_type, text }) => {
            ([(header::CONTENT_TYPE, content_type), NO_SNIFF], text).into_response()
        }
        Err(why) => text(StatusCode::BAD_REQUEST, format!("{why}\n")),
    })
}

/// The state of each running controller; empty on a standby.
fn controller_states(health: &HealthChecks, clock: &Clock) -> Vec<(&'static str, Value)> {
    let state = |RunningController { name, worker_health, .. }: RunningController| {
        let queues: Vec<Value> = worker_health.iter().map(|it| queue(it.read(), clock)).collect();
        (name, json!({ "name": name, "queues": queues }))
    };
    health.controllers().into_iter().map(state).collect()
}

fn queue(status: WorkerStatus, clock: &Clock) -> Value {
    let failure = status.check().err().map(|it| it.to_string());
    let WorkerStatus { queue, depth, oldest, workers, since_progress, active } = status;
    let last = active.and_then(|age| clock.wall().checked_sub(age).ok());
    json!({
        "name": queue,
        "depth": depth,
        "oldestSeconds": oldest.map(|it| it.as_secs_f64()),
        "workers": workers,
        "busy": since_progress.len(),
        "longestSilenceSeconds": since_progress.iter().max().map(|it| it.as_secs_f64()),
        "lastActivity": last.map(|it| it.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        "stuck": failure,
    })
}

/// The answers are those of upstream, except the message for an invalid number.
fn change_verbosity(log: &klog::Handle, method: &Method, body: &[u8]) -> Response {
    let text = |code, text: String| (code, [(header::CONTENT_TYPE, "text/plain"), NO_SNIFF], text).into_response();
    if method != Method::PUT {
        return text(StatusCode::NOT_ACCEPTABLE, "unsupported http method\n".to_owned());
    }
    let asked = String::from_utf8_lossy(body);
    match asked.parse() {
        Ok(verbosity) => {
            log.set_verbosity(verbosity);
            tracing::info!(verbosity, "verbosity of the log changed");
            text(StatusCode::OK, format!("successfully set klog.logging.verbosity to {verbosity}\n"))
        }
        Err(err) => {
            let asked: String = asked.chars().take(40).collect();
            text(StatusCode::BAD_REQUEST, format!("failed to set klog.logging.verbosity to {asked:?}: {err}\n"))
        }
    }
}
