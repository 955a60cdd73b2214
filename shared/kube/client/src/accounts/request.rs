use std::time::Duration;

use clock::{Clock, Timestamp};
use http::HeaderValue;
use serde::Deserialize;
use serde_json::json;

use super::ACCOUNT_NAMESPACE as NAMESPACE;
use crate::{Api, ApiError, api_client::METADATA};

/// The lifetime of upstream, in seconds.
const LIFE: u32 = 3_600;

/// A token as a header, and its lifetime.
pub(super) struct Issued {
    pub(super) token: HeaderValue,
    pub(super) life: Duration,
}

/// Why there is no token. Contains no part of one.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoToken {
    #[error("cannot get or create the ServiceAccount: {0}")]
    Account(#[source] ApiError),
    #[error("TokenRequest: {0}")]
    Request(#[source] ApiError),
    #[error("the response to the TokenRequest has no usable {0}")]
    Response(&'static str),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenResponse {
    #[serde(default)]
    metadata: Metadata,
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    creation_timestamp: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    token: String,
    #[serde(default)]
    expiration_timestamp: String,
}

/// Requests a token of an account, and creates the account if it does not exist.
pub(super) async fn token(api: &Api, account: &str, clock: &Clock) -> Result<Issued, NoToken> {
    ensure_account(api, account).await.map_err(NoToken::Account)?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}/token");
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": LIFE },
    });
    let response = api.post(&path, &body).await.map_err(NoToken::Request)?;
    parse_token(&response, clock.wall())
}

/// Parses a response. An error contains no part of it, because it is secret.
fn parse_token(response: &[u8], now: Timestamp) -> Result<Issued, NoToken> {
    let Ok(TokenResponse { metadata, status }) = serde_json::from_slice(response) else {
        return Err(NoToken::Response("status"));
    };
    let mut token = Some(status.token)
        .filter(|it| !it.is_empty())
        .and_then(|it| HeaderValue::try_from(format!("Bearer {it}")).ok())
        .ok_or(NoToken::Response("token"))?;
    token.set_sensitive(true);
    let expires: Timestamp =
        status.expiration_timestamp.parse().map_err(|_| NoToken::Response("expirationTimestamp"))?;
    // Both are times of the server's clock, so the difference to our clock does not matter.
    let begins = metadata.creation_timestamp.parse().unwrap_or(now);
    let life = Duration::try_from(expires.duration_since(begins)).unwrap_or_default();
    Ok(Issued { token, life })
}

/// Creates the account if it does not exist, and also kube-system, as in upstream.
async fn ensure_account(api: &Api, account: &str) -> Result<(), ApiError> {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{account}");
    match get(api, &path).await {
        Err(ApiError::NotFound(_)) => {}
        other => return other,
    }
    let namespace = format!("/api/v1/namespaces/{NAMESPACE}");
    if let Err(ApiError::NotFound(_)) = get(api, &namespace).await {
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        // We may not be allowed to create namespaces. The error of the account then shows the cause.
        match api.post("/api/v1/namespaces", &object).await {
            Ok(_) | Err(ApiError::AlreadyExists(_)) => {}
            Err(err) => tracing::warn!(namespace = NAMESPACE, %err, "cannot create the missing namespace"),
        }
    }
    let object = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "namespace": NAMESPACE, "name": account },
    });
    match api.post(&format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &object).await {
        Ok(_) => {
            tracing::info!(account, namespace = NAMESPACE, "created the ServiceAccount");
            Ok(())
        }
        Err(ApiError::AlreadyExists(_)) => Ok(()),
        Err(err) => Err(err),
    }
}

async fn get(api: &Api, path: &str) -> Result<(), ApiError> {
    api.read(path, METADATA).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn parse(response: &str) -> Result<(String, u64), String> {
        let issued = parse_token(response.as_bytes(), NOW.parse().unwrap()).map_err(|it| it.to_string())?;
        Ok((issued.token.to_str().unwrap().to_owned(), issued.life.as_secs()))
    }

    #[test]
    fn lifetime_of_a_token_is_computed_from_times_of_the_server() {
        let of = |created: &str, expires: &str| {
            let created =
                if created.is_empty() { String::new() } else { format!(r#""creationTimestamp":"{created}""#) };
            parse(&format!(
                r#"{{"metadata":{{{created}}},"status":{{"token":"t","expirationTimestamp":"{expires}"}}}}"#
            ))
            .unwrap()
            .1
        };
        assert_eq!(of("2031-05-05T00:00:00Z", "2031-05-05T01:00:00Z"), 3_600, "our clock is years behind");
        assert_eq!(of("", "2026-01-01T00:30:00Z"), 1_800, "an older server returns only the end");
        assert_eq!(of("", "2025-01-01T00:30:00Z"), 0, "an expired token has no lifetime");
    }

    #[test]
    fn errors_name_the_missing_field_and_contain_no_secret() {
        for (response, word) in [
            (r#"{"status":{"token":["CANARY"]}}"#, "status"),
            (r#"{"status":{"token":"CANARY\n","expirationTimestamp":"2026-01-01T01:00:00Z"}}"#, "token"),
            (r#"{"status":{"token":"","expirationTimestamp":"2026-01-01T01:00:00Z"}}"#, "token"),
            (r#"{"status":{"token":"CANARY"}}"#, "expirationTimestamp"),
            (r#"{"status":{"token":"CANARY","expirationTimestamp":"soon CANARY"}}"#, "expirationTimestamp"),
            ("CANARY", "status"),
        ] {
            let text = parse(response).unwrap_err();
            assert!(text.contains(word) && !text.contains("CANARY"), "{text}");
        }
    }
}
