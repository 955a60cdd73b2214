//! `/flagz` and `/statusz`.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc, time::Duration};

use axum::{
    Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use clock::{Clock, Timestamp};
use serde_json::{Value, json};

use super::{
    negotiate::{ConfigApiVersion, Form, form},
    text, yaml,
};
use crate::version::VersionInfo;

/// The component that this binary replaces.
const COMPONENT: &str = "kube-controller-manager";
/// The annotation with the absent controllers, for which upstream's object has no field.
const ABSENT: &str = "mini-kcm.io/absent-controllers";
const PATHS: [&str; 7] = ["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/version"];

/// The data of `/statusz`.
pub(super) struct StatuszPage {
    pub(super) version: VersionInfo,
    pub(super) absent: Vec<&'static str>,
    /// Pages that are not served.
    pub(super) disabled: Vec<&'static str>,
    pub(super) clock: Clock,
    pub(super) started: Timestamp,
}

/// A page with text and structured forms.
trait StructuredPage {
    fn kind(&self) -> &'static str;
    /// The text below the heading.
    fn lines(&self) -> String;
    /// The fields besides kind, version and metadata.
    fn fields(&self) -> Value;
    fn annotations(&self) -> BTreeMap<&'static str, String> {
        BTreeMap::new()
    }
}

/// The routes of the pages that are not off.
pub(super) fn routes(flags: BTreeMap<String, String>, status: StatuszPage) -> Router {
    let (flags, status) = (Arc::new(FlagzPage(flags)), Arc::new(status));
    let mut routes = Router::new();
    if !status.disabled.contains(&"/flagz") {
        routes = routes.route("/flagz", any(async move |headers: HeaderMap| respond(&*flags, &headers)));
    }
    if !status.disabled.contains(&"/statusz") {
        routes = routes.route("/statusz", any(async move |headers: HeaderMap| respond(&*status, &headers)));
    }
    routes
}

struct FlagzPage(BTreeMap<String, String>);

impl StructuredPage for FlagzPage {
    fn kind(&self) -> &'static str {
        "Flagz"
    }

    fn lines(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}:{value}\n")).collect()
    }

    fn fields(&self) -> Value {
        json!({ "flags": self.0 })
    }
}

impl StatuszPage {
    fn uptime(&self) -> Duration {
        Duration::try_from(self.clock.wall() - self.started).unwrap_or_default()
    }

    fn paths(&self) -> Vec<&'static str> {
        PATHS.into_iter().filter(|it| !self.disabled.contains(it)).collect()
    }
}

impl StructuredPage for StatuszPage {
    fn kind(&self) -> &'static str {
        "Statusz"
    }

    fn lines(&self) -> String {
        let up = self.uptime().as_secs();
        let (binary, emulation) = (self.version.binary(), self.version.emulation());
        let mut lines = format!("\nStarted: {}\n", self.started.strftime("%a %b %e %H:%M:%S UTC %Y"));
        // Writing into a string cannot fail.
        let _ = writeln!(lines, "Up: {} hr {:02} min {:02} sec", up / 3600, up / 60 % 60, up % 60);
        let _ = writeln!(lines, "Go version: none, this is {}", self.version.product());
        let _ = writeln!(lines, "Binary version: {binary}\nEmulation version: {emulation}");
        let _ = writeln!(lines, "Paths: {}", self.paths().join(" "));
        if !self.absent.is_empty() {
            let _ = writeln!(lines, "Controllers that are not in this binary: {}", self.absent.join(" "));
        }
        lines
    }

    fn fields(&self) -> Value {
        json!({
            "startTime": self.started.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            "uptimeSeconds": self.uptime().as_secs(),
            "goVersion": "",
            "binaryVersion": self.version.binary(),
            "emulationVersion": self.version.emulation(),
            "paths": self.paths(),
        })
    }

    fn annotations(&self) -> BTreeMap<&'static str, String> {
        let absent = (!self.absent.is_empty()).then(|| (ABSENT, self.absent.join(",")));
        absent.into_iter().collect()
    }
}

fn respond(page: &dyn StructuredPage, headers: &HeaderMap) -> Response {
    // A header that is not text matches no form.
    let accept = headers.get_all(header::ACCEPT).iter().map(|it| it.to_str().unwrap_or("-"));
    let accept = accept.collect::<Vec<_>>().join(",");
    match form(&accept, page.kind()) {
        None => not_acceptable(),
        Some(Form::Text) => text(StatusCode::OK, heading(page) + &page.lines()),
        Some(Form::Json(api_version)) => {
            // Pretty printing cannot fail for a JSON value.
            let body = serde_json::to_string_pretty(&object(page, api_version)).unwrap_or_default();
            structured(page, "application/json", api_version, body + "\n")
        }
        Some(Form::Yaml(api_version)) => {
            structured(page, "application/yaml", api_version, yaml::block(&object(page, api_version)))
        }
    }
}

fn heading(page: &dyn StructuredPage) -> String {
    format!(
        "\n{COMPONENT} {}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
         guarantees and is for debugging purposes only.\n",
        page.kind().to_ascii_lowercase()
    )
}

fn object(page: &dyn StructuredPage, api_version: ConfigApiVersion) -> Value {
    let mut object = page.fields();
    object["kind"] = json!(page.kind());
    object["apiVersion"] = json!(format!("config.k8s.io/{}", api_version.name()));
    object["metadata"] = json!({ "name": COMPONENT });
    let annotations = page.annotations();
    if !annotations.is_empty() {
        object["metadata"]["annotations"] = json!(annotations);
    }
    object
}

fn structured(page: &dyn StructuredPage, media: &str, api_version: ConfigApiVersion, body: String) -> Response {
    let media = format!("{media};g=config.k8s.io;v={};as={}", api_version.name(), page.kind());
    let mut response = ([(header::CONTENT_TYPE, media)], body).into_response();
    if api_version == ConfigApiVersion::V1Alpha1 {
        let deprecated = format!(
            "299 - \"This version of the {} endpoint is deprecated. Please use a newer version.\"",
            page.kind().to_ascii_lowercase()
        );
        // The text is a valid header value.
        if let Ok(deprecated) = deprecated.parse() {
            response.headers_mut().insert(header::WARNING, deprecated);
        }
    }
    response
}

fn not_acceptable() -> Response {
    let status = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "only the following media types are accepted: application/json, application/yaml, text/plain",
        "reason": "NotAcceptable",
        "code": 406,
    });
    (StatusCode::NOT_ACCEPTABLE, [(header::CONTENT_TYPE, "application/json")], status.to_string()).into_response()
}
