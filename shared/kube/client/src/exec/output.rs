use clock::Timestamp;
use http::HeaderValue;
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use serde::Deserialize;

use super::validity::Validity;
use crate::certificate;

/// The credential that a plugin returned. It has no `Debug`, because all of it is secret.
pub(super) struct Credential {
    pub(super) token: Option<HeaderValue>,
    pub(super) certificate: Option<Certificate>,
    /// `None` means valid until it is refused.
    pub(super) expires: Option<Timestamp>,
}

/// A client certificate with its key.
pub(super) struct Certificate {
    pub(super) key: CertifiedKey,
    pub(super) validity: Validity,
}

/// The output: an ExecCredential.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    expiration_timestamp: Option<String>,
    #[serde(default)]
    token: Option<String>,
    #[serde(default)]
    client_certificate_data: Option<String>,
    #[serde(default)]
    client_key_data: Option<String>,
}

/// Parses the output of a plugin. An error contains no part of it, because all of it is secret.
///
/// # Errors
/// The error names the field.
pub(super) fn parse(version: &str, written: &[u8]) -> Result<Credential, String> {
    // JSON is also YAML, and some plugins write YAML.
    let output: ExecCredential = serde_saphyr::from_slice(written).map_err(|err| match err.location() {
        Some(at) => format!("is no ExecCredential in JSON or YAML: line {}, column {}", at.line(), at.column()),
        None => "is no ExecCredential in JSON or YAML".to_owned(),
    })?;
    if output.kind != "ExecCredential" {
        return Err("is no ExecCredential: kind is another".to_owned());
    }
    if output.api_version != version {
        return Err(format!("has not the apiVersion {version} that was requested"));
    }
    let status = output.status.ok_or("has no status")?;
    let filled = |text: Option<String>| text.filter(|it| !it.is_empty());
    let token = filled(status.token).map(|it| bearer(&it)).transpose()?;
    let certificate = match (filled(status.client_certificate_data), filled(status.client_key_data)) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(certificate_of(&certificate, &key)?),
        (Some(_), None) => return Err("has status.clientCertificateData without clientKeyData".to_owned()),
        (None, Some(_)) => return Err("has status.clientKeyData without clientCertificateData".to_owned()),
    };
    if token.is_none() && certificate.is_none() {
        return Err("has neither status.token nor a certificate with its key".to_owned());
    }
    let expires = status.expiration_timestamp.map(|it| it.parse()).transpose();
    let expires = expires.map_err(|_| "has a status.expirationTimestamp that is no time")?;
    Ok(Credential { token, certificate, expires })
}

fn bearer(token: &str) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim()))
        .map_err(|_| "has a status.token that is not allowed in a header".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

fn certificate_of(chain: &str, key: &str) -> Result<Certificate, String> {
    let wrong = |what: &str| format!("has a status.{what} that is not PEM of the right kind");
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| wrong("clientCertificateData"))?;
    let first = chain.first().ok_or_else(|| wrong("clientCertificateData"))?;
    let validity = Validity::of(first).ok_or_else(|| wrong("clientCertificateData"))?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_| wrong("clientKeyData"))?;
    let key = certificate::certified_key(chain, key, &rustls::crypto::ring::default_provider())
        .map_err(|err| format!("has a certificate and key that cannot be used together: {err}"))?;
    Ok(Certificate { key, validity })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const V1: &str = "client.authentication.k8s.io/v1";

    fn output(status: &serde_json::Value) -> String {
        json!({ "apiVersion": V1, "kind": "ExecCredential", "status": status }).to_string()
    }

    fn pair() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn certificate_of_version_1_is_accepted() {
        let text = output(&json!({
            "clientCertificateData": certificate::tests::CERTIFICATE, "clientKeyData": certificate::tests::KEY,
        }));
        assert!(parse(V1, text.as_bytes()).is_ok_and(|it| it.certificate.is_some()));
    }

    #[test]
    fn credential_is_a_token_a_certificate_or_both() {
        let (certificate, key) = pair();
        let both = json!({
            "token": "t\n", "clientCertificateData": certificate, "clientKeyData": key,
            "expirationTimestamp": "2026-01-01T00:00:00Z",
        });
        let credential = parse(V1, output(&both).as_bytes()).unwrap();
        assert_eq!(credential.token.unwrap(), "Bearer t");
        assert!(credential.certificate.is_some() && credential.expires.is_some());
        let yaml = format!("apiVersion: {V1}\nkind: ExecCredential\nstatus:\n  token: t\n");
        let token = parse(V1, yaml.as_bytes()).unwrap();
        assert!(token.certificate.is_none() && token.expires.is_none() && token.token.is_some());
    }

    #[test]
    fn errors_name_the_field_and_contain_no_value() {
        let (certificate, key) = pair();
        let (_, other) = pair();
        for (written, word) in [
            ("CANARY".to_owned(), "ExecCredential"),
            ("{\"status\": [\"CANARY\"".to_owned(), "JSON or YAML"),
            (output(&json!("CANARY")), "JSON or YAML"),
            (json!({ "apiVersion": "CANARY", "kind": "ExecCredential" }).to_string(), "apiVersion"),
            (json!({ "apiVersion": V1, "kind": "CANARY" }).to_string(), "kind"),
            (json!({ "apiVersion": V1, "kind": "ExecCredential" }).to_string(), "status"),
            (output(&json!({})), "neither"),
            (output(&json!({ "token": { "a": "CANARY" } })), "JSON or YAML"),
            (output(&json!({ "token": "CANARY\u{7}" })), "status.token"),
            (output(&json!({ "token": "t", "expirationTimestamp": "CANARY" })), "expirationTimestamp"),
            (output(&json!({ "clientCertificateData": "CANARY" })), "clientKeyData"),
            (output(&json!({ "clientKeyData": "CANARY" })), "clientCertificateData"),
            (output(&json!({ "clientCertificateData": "CANARY", "clientKeyData": key })), "clientCertificateData"),
            (output(&json!({ "clientCertificateData": certificate, "clientKeyData": "CANARY" })), "clientKeyData"),
            (output(&json!({ "clientCertificateData": certificate, "clientKeyData": other })), "together"),
        ] {
            let text = parse(V1, written.as_bytes()).err().unwrap();
            assert!(text.contains(word) && !text.contains("CANARY"), "{word} in {text}");
        }
    }
}
