//! The responses to refused requests, with upstream's wording.

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::User;

/// A complete response up to this size is not counted while it is sent. The number of connections limits the memory for
/// such responses.
pub const SMALL_RESPONSE: usize = 4 << 10;
/// The maximum number of bytes, including escapes, that a response repeats of one text. So a response with all its
/// texts is not larger than [`SMALL_RESPONSE`].
const MAX_REPEATED: usize = 256;
const ELLIPSIS: &str = "…";

/// The beginning of `text`, as much as a response repeats. A client may send a very long text.
#[must_use]
pub fn shortened(text: &str) -> String {
    if text.len() <= MAX_REPEATED {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_REPEATED - ELLIPSIS.len());
    text.get(..end).unwrap_or_default().to_owned() + ELLIPSIS
}

#[derive(Serialize)]
struct Status<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Empty,
    status: &'static str,
    message: &'a str,
    reason: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Empty>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

/// The 401 response.
pub(crate) fn unauthorized(headers: &HeaderMap, query: Option<&str>) -> Response {
    status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", None, is_pretty(headers, query))
}

/// The 403 response.
pub(crate) fn forbidden(
    user: &User,
    request: (&str, &str),
    reason: &str,
    headers: &HeaderMap,
    query: Option<&str>,
) -> Response {
    let (verb, path) = request;
    let (name, verb, path) = (quoted(&user.name), escaped(verb), quoted(path));
    let reason = if reason.is_empty() { String::new() } else { format!(": {}", shortened(reason)) };
    let message = format!("forbidden: User {name} cannot {verb} path {path}{reason}");
    let mut response = status(StatusCode::FORBIDDEN, "Forbidden", &message, Some(Empty {}), is_pretty(headers, query));
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// The 500 response when authorization failed with an error.
pub(crate) fn internal_error(path: &str, why: &str) -> Response {
    text(StatusCode::INTERNAL_SERVER_ERROR, &format!("Internal Server Error: {}: {}", quoted(path), shortened(why)))
}

/// A plain text response, as from Go's `http.Error`.
pub(crate) fn text(code: StatusCode, text: &str) -> Response {
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (code, headers, format!("{text}\n")).into_response()
}

fn status(code: StatusCode, reason: &'static str, message: &str, details: Option<Empty>, pretty: bool) -> Response {
    let status = Status {
        kind: "Status",
        api_version: "v1",
        metadata: Empty {},
        status: "Failure",
        message,
        reason,
        details,
        code: code.as_u16(),
    };
    let json = if pretty { serde_json::to_string_pretty(&status) } else { serde_json::to_string(&status) };
    // Encoding a struct of strings does not fail.
    let json = go_escaped(&json.unwrap_or_default());
    let json = if pretty { json } else { json + "\n" };
    (code, [(header::CONTENT_TYPE, "application/json")], Body::from(json)).into_response()
}

/// Escapes `&`, `<` and `>`, as Go's `encoding/json` does.
fn go_escaped(json: &str) -> String {
    json.replace('&', "\\u0026").replace('<', "\\u003c").replace('>', "\\u003e")
}

/// Shortens a text, quotes it as Go does, and escapes it for HTML.
fn quoted(text: &str) -> String {
    escaped(&format!("{:?}", shortened(text)))
}

/// Escapes a text for HTML. It is shortened before, because escaping a long text costs time, and after, because escapes
/// make it longer.
fn escaped(text: &str) -> String {
    shortened(&shortened(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

/// True if the JSON is indented: by the `pretty` parameter or by the user agent (upstream `negotiation.isPrettyPrint`).
fn is_pretty(headers: &HeaderMap, query: Option<&str>) -> bool {
    let parameter = query.unwrap_or_default().split('&').find_map(|it| it.strip_prefix("pretty"));
    match parameter {
        Some(value) => !matches!(value, "=0" | "=false"),
        None => {
            let agent = headers.get(header::USER_AGENT).and_then(|it| it.to_str().ok()).unwrap_or_default();
            ["curl", "Wget", "Mozilla/5.0"].iter().any(|it| agent.starts_with(it))
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn body(response: Response) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    fn from(agent: &str) -> HeaderMap {
        [(header::USER_AGENT, agent.parse().unwrap())].into_iter().collect()
    }

    #[tokio::test]
    async fn refused_requests_get_upstreams_response_byte_for_byte() {
        let anonymous = User::anonymous();
        let response = forbidden(&anonymous, ("get", "/metrics"), "", &from("curl/8"), None);
        assert_eq!(response.headers()["content-type"], "application/json");
        let recorded = "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \"status\": \"Failure\",\n  \
            \"message\": \"forbidden: User \\\"system:anonymous\\\" cannot get path \\\"/metrics\\\"\",\n  \
            \"reason\": \"Forbidden\",\n  \"details\": {},\n  \"code\": 403\n}";
        assert_eq!((body(response).await.as_str(), recorded.len()), (recorded, 224));

        let response = body(unauthorized(&from("curl/8"), None)).await;
        assert_eq!(response.len(), 157);
        let response = body(unauthorized(&from("Prometheus/3"), None)).await;
        assert_eq!(response.lines().count(), 1);

        let response = body(forbidden(&anonymous, ("get", "/foo b<a>"), "", &from("curl/8"), None)).await;
        assert!(response.contains(r#"path \"/foo b\u0026lt;a\u0026gt;\"""#), "{response}");
    }

    #[tokio::test]
    async fn response_with_long_texts_stays_small() {
        let pretty = from("curl/8");
        for long in ["&", "<", "\"", "\\", "\u{1}", "\u{200b}", "é", "a"] {
            let long = long.repeat(60_000);
            let user = User { name: long.clone(), ..User::anonymous() };
            let response = body(forbidden(&user, (&long, &long), &long, &pretty, None)).await;
            assert!(response.len() <= SMALL_RESPONSE && response.contains('…'), "{} {response}", response.len());
            let status: serde_json::Value = serde_json::from_str(&response).unwrap();
            assert!(status["message"].as_str().unwrap().starts_with("forbidden: User \""), "{status}");
            let response = body(internal_error(&long, &long)).await;
            assert!(response.len() <= SMALL_RESPONSE && response.contains('…'), "{} {response}", response.len());
        }
    }

    #[test]
    fn long_text_is_shortened_at_a_character_boundary() {
        for (text, want) in [
            (String::new(), String::new()),
            ("a".repeat(256), "a".repeat(256)),
            ("a".repeat(257), "a".repeat(253) + "…"),
            ("é".repeat(129), "é".repeat(126) + "…"),
        ] {
            assert_eq!(shortened(&text), want);
        }
    }

    #[tokio::test]
    async fn response_contains_the_reason() {
        let response =
            forbidden(&User::anonymous(), ("get", "/x"), "no such user", &HeaderMap::new(), Some("pretty=1"));
        assert!(body(response).await.contains("cannot get path \\\"/x\\\": no such user\""));
        let response = internal_error("/metrics", "cannot connect");
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
        assert_eq!(body(response).await, "Internal Server Error: \"/metrics\": cannot connect\n");
    }
}
