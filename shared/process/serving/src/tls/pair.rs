use std::{net::IpAddr, sync::Arc};

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType};
use rustls::{crypto::CryptoProvider, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

/// A certificate and its key, ready for handshakes.
pub(crate) type CertPair = Arc<CertifiedKey>;

/// Parses a pair from PEM.
///
/// # Errors
/// If the certificate or the key is invalid, or if they do not belong together.
pub(crate) fn read(certificate: &[u8], key: &[u8], provider: &CryptoProvider) -> Result<CertPair, String> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = chain.map_err(|err| format!("the certificate cannot be read: {err}"))?;
    if chain.is_empty() {
        return Err("the certificate file has no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|err| format!("the private key cannot be read: {err}"))?;
    let pair = client::certified_key(chain, key, provider);
    pair.map(Arc::new).map_err(|err| format!("certificate and key cannot be used together: {err}"))
}

/// A self-signed pair in PEM.
pub(crate) struct PemPair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Generates a certificate for `localhost`, 127.0.0.1 and the listen address, as upstream.
///
/// # Errors
/// If the generator fails.
pub(crate) fn self_signed(address: IpAddr) -> Result<PemPair, rcgen::Error> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.subject_alt_names.push(SanType::IpAddress(IpAddr::from([127, 0, 0, 1])));
    if !address.is_unspecified() && address != IpAddr::from([127, 0, 0, 1]) {
        params.subject_alt_names.push(SanType::IpAddress(address));
    }
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "localhost");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(PemPair { certificate: certificate.pem(), key: key.serialize_pem() })
}

/// The names for which a certificate is used if the operator gave no patterns: the common name if it is a host name,
/// and the DNS names. IP addresses are omitted, because SNI cannot contain them.
pub(crate) fn server_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let common = certificate.subject().iter_common_name().filter_map(|it| it.as_str().ok()).last();
    let mut names: Vec<String> = common.filter(|it| is_host(it)).map(str::to_owned).into_iter().collect();
    if let Ok(Some(alternatives)) = certificate.subject_alternative_name() {
        for name in &alternatives.value.general_names {
            if let GeneralName::DNSName(name) = name {
                names.push((*name).to_owned());
            }
        }
    }
    names
}

/// True for a DNS name and for a wildcard.
fn is_host(name: &str) -> bool {
    if name == "*" {
        return true;
    }
    let name = name.strip_prefix("*.").unwrap_or(name);
    let label = |it: &str| {
        !it.is_empty()
            && it.len() <= 63
            && it.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-')
            && !it.starts_with('-')
            && !it.ends_with('-')
    };
    name.len() <= 253 && name.parse::<IpAddr>().is_err() && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use rustls::crypto::ring::default_provider;

    use super::*;

    #[test]
    fn acceptance_shell_017_self_signed_certificate_is_valid_for_localhost() {
        let generated = self_signed("10.1.2.3".parse().unwrap()).unwrap();
        let pair = read(generated.certificate.as_bytes(), generated.key.as_bytes(), &default_provider()).unwrap();
        let (_, certificate) = X509Certificate::from_der(&pair.cert[0]).unwrap();
        let names = certificate.subject_alternative_name().unwrap().unwrap();
        let names: Vec<String> = names.value.general_names.iter().map(ToString::to_string).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names[0].contains("localhost"), "{names:?}");
        assert_eq!(super::server_names(&pair.cert[0]), ["localhost", "localhost"]);
    }

    #[test]
    fn invalid_pair_is_an_error_with_its_reason() {
        let (one, two) = (self_signed([127, 0, 0, 1].into()).unwrap(), self_signed([127, 0, 0, 1].into()).unwrap());
        let half = &one.certificate.as_bytes()[..one.certificate.len() / 2];
        for (certificate, key, want) in [
            (&b""[..], one.key.as_bytes(), "has no certificate"),
            (half, one.key.as_bytes(), "the certificate"),
            (one.certificate.as_bytes(), &b"nonsense"[..], "the private key cannot be read"),
            (one.certificate.as_bytes(), two.key.as_bytes(), "cannot be used together"),
        ] {
            let err = read(certificate, key, &default_provider()).unwrap_err();
            assert!(err.contains(want), "{err}");
        }
    }

    #[test]
    fn common_name_is_used_only_when_it_is_a_host() {
        for (name, host) in
            [("*", true), ("*.foo.com", true), ("foo", true), ("10.0.0.1", false), ("a b", false), ("", false)]
        {
            assert_eq!(is_host(name), host, "{name}");
        }
    }
}
