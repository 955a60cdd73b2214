use std::collections::BTreeMap;

use ring::digest;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::{certificate::X509Certificate, der_parser::oid, prelude::FromDer, x509::X509Name};

use super::User;
use crate::authorities::Bundle;

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// The user in a client certificate; `None` if it has no common name.
///
/// # Errors
/// If the certificate is not valid, with the reason.
pub(super) fn user(authorities: &Bundle, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<Option<User>, String> {
    authorities.verify(chain, now).map_err(|why| format!("client certificate: {why}"))?;
    let Some(own) = chain.first() else { return Ok(None) };
    let (_, certificate) = X509Certificate::from_der(own).map_err(|err| format!("client certificate: {err}"))?;
    let subject = certificate.subject();
    let Some(name) = common_name(subject).filter(|it| !it.is_empty()) else { return Ok(None) };
    let groups = subject.iter_organization().filter_map(|it| it.as_str().ok()).map(str::to_owned).collect();
    let fingerprint = digest::digest(&digest::SHA256, own);
    let fingerprint: String = fingerprint.as_ref().iter().map(|it| format!("{it:02x}")).collect();
    let extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("X509SHA256={fingerprint}")])]);
    Ok(Some(User { name: name.to_owned(), uid: uid(subject)?, groups, extra }))
}

/// The common name; if there are several, the last one, as in Go.
pub(super) fn common_name<'a>(subject: &'a X509Name<'_>) -> Option<&'a str> {
    subject.iter_common_name().filter_map(|it| it.as_str().ok()).last()
}

/// When the client's own certificate expires, in seconds since 1970.
pub(super) fn expiry(chain: &[CertificateDer<'_>]) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(chain.first()?).ok()?;
    Some(certificate.validity().not_after.timestamp())
}

/// The uid of the user, from the attribute that Kubernetes defines (k/k#127897).
fn uid(subject: &X509Name<'_>) -> Result<String, String> {
    let mut values = subject.iter_by_oid(&oid!(1.3.6.1.4.1.57683.2));
    let Some(value) = values.next() else { return Ok(String::new()) };
    if values.next().is_some() {
        return Err("client certificate: more than one uid".to_owned());
    }
    value.as_str().map(str::to_owned).map_err(|_| "client certificate: the uid is no text".to_owned())
}
