use std::collections::BTreeMap;

use http::HeaderMap;
use rustls_pki_types::{CertificateDer, UnixTime};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use super::{User, certificates::common_name};
use crate::authorities::{Proxies, ProxyHeaders};

/// The user in the headers of a front proxy; `None` if there is none.
///
/// # Errors
/// If the certificate is not that of an allowed front proxy, with the reason.
pub(super) fn user(
    proxies: &Proxies,
    chain: &[CertificateDer<'_>],
    headers: &HeaderMap,
    now: UnixTime,
) -> Result<Option<User>, String> {
    let Proxies { authorities, allowed, headers: names } = proxies;
    let Some(authorities) = authorities else { return Ok(None) };
    authorities.verify(chain, now).map_err(|why| format!("front proxy: {why}"))?;
    if !allowed.is_empty() {
        let Some(own) = chain.first() else { return Ok(None) };
        let (_, certificate) = X509Certificate::from_der(own).map_err(|err| format!("front proxy: {err}"))?;
        let name = common_name(certificate.subject()).unwrap_or_default();
        if !allowed.iter().any(|it| it == name) {
            return Err(format!("front proxy: common name {name:?} is not in the allowed list"));
        }
    }
    Ok(user_from_headers(names, headers))
}

fn user_from_headers(names: &ProxyHeaders, headers: &HeaderMap) -> Option<User> {
    let first = |names: &[String]| names.iter().flat_map(|it| values(headers, it)).next();
    let name = first(&names.username)?;
    let groups = names.group.iter().flat_map(|it| values(headers, it)).collect();
    Some(User { name, uid: first(&names.uid).unwrap_or_default(), groups, extra: extra(&names.extra_prefix, headers) })
}

/// The values of a header that are not empty.
fn values(headers: &HeaderMap, name: &str) -> impl Iterator<Item = String> {
    let values = headers.get_all(name.trim()).into_iter().map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
    values.filter(|it| !it.is_empty()).collect::<Vec<_>>().into_iter()
}

fn extra(prefixes: &[String], headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for prefix in prefixes {
        let prefix = prefix.trim().to_ascii_lowercase();
        for (name, value) in headers {
            // Header names are in lower case here.
            let Some(key) = name.as_str().strip_prefix(&prefix) else { continue };
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            extra.entry(crate::paths::percent_decoded(key)).or_default().push(value);
        }
    }
    extra
}
