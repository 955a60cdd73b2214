//! Client certificates of any X.509 version.
//!
//! rustls parses a certificate first and rejects version 1, which `openssl x509 -req` creates and Go clients and
//! servers accept. The server decides whether the certificate is valid.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::config::AuthInfo;
use rustls::{
    client::ResolvesClientCert,
    crypto::{CryptoProvider, ring},
    sign::{CertifiedKey, SingleCertAndKey},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use secrecy::ExposeSecret;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

/// The certificate and key of the user in a kubeconfig; `None` if it has none.
///
/// # Errors
/// The field, and what is wrong with it. It contains no value, because that may be secret.
pub(crate) fn of(user: &AuthInfo) -> Result<Option<Arc<dyn ResolvesClientCert>>, String> {
    let chain = content(user.client_certificate_data.as_deref(), user.client_certificate.as_deref());
    let key = content(user.client_key_data.as_ref().map(ExposeSecret::expose_secret), user.client_key.as_deref());
    let (chain, key) = match (
        chain.map_err(|err| format!("user.client-certificate: {err}"))?,
        key.map_err(|err| format!("user.client-key: {err}"))?,
    ) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err("user.client-key: is missing beside the certificate".to_owned()),
        (None, Some(_)) => return Err("user.client-certificate: is missing beside the key".to_owned()),
        (Some(chain), Some(key)) => (chain, key),
    };
    let chain = CertificateDer::pem_slice_iter(&chain)
        .collect::<Result<_, _>>()
        .map_err(|_| "user.client-certificate: is not PEM".to_owned())?;
    let key =
        PrivateKeyDer::from_pem_slice(&key).map_err(|_| "user.client-key: is not PEM of a private key".to_owned())?;
    let key = certified_key(chain, key, &ring::default_provider())
        .map_err(|err| format!("user.client-certificate: {err}"))?;
    Ok(Some(Arc::new(SingleCertAndKey::from(key))))
}

/// Inline data are preferred to a file, as in every kubeconfig.
fn content(data: Option<&str>, file: Option<&str>) -> Result<Option<Vec<u8>>, String> {
    match (data, file) {
        (Some(data), _) => BASE64_STANDARD.decode(data).map(Some).map_err(|_| "is not base64".to_owned()),
        (None, Some(file)) => std::fs::read(file).map(Some).map_err(|err| format!("cannot be read: {err}")),
        (None, None) => Ok(None),
    }
}

/// Combines a certificate chain with the key of its first certificate.
///
/// # Errors
/// What is wrong with them.
pub fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let key =
        provider.key_provider.load_private_key(key).map_err(|err| format!("the private key cannot be used: {err}"))?;
    let first = chain.first().ok_or("there is no certificate")?;
    let (_, first) =
        X509Certificate::from_der(first).map_err(|err| format!("the certificate cannot be read: {err}"))?;
    if key.public_key().is_some_and(|it| it.as_ref() != first.public_key().raw) {
        return Err("the certificate is not that of the private key".to_owned());
    }
    Ok(CertifiedKey::new(chain, key))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A certificate of version 1, made by `openssl req -new …`, `openssl x509 -req …`.
    pub(crate) const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBGDCBvwIUGRW+kejsMdZwN/O2GWufWLAeqMowCgYIKoZIzj0EAwIwDjEMMAoG\n\
        A1UEAwwDb2xkMCAXDTI2MTEyMjAzNTU0NFoYDzIxMjYxMDI5MDM1NTQ0WjAOMQww\n\
        CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATaNLP6B5/qQkSU\n\
        2Exhj8LKhdIwngxcTDIZl1/4uGGK56ZQEbv/4eul23U5rOEGND6Hndvk23YS69iO\n\
        l4ksbTfYMAoGCCqGSM49BAMCA0gAMEUCIQCxRLtReI1FusUoO6PoxMHbegKlOpni\n\
        7UcYxRv1hCeYJwIgW30u/SXszYK3yAyOR1mtzCwTXQp7+MW51l35tKzdemc=\n\
        -----END CERTIFICATE-----";
    pub(crate) const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCOOB9wi3uD5bl2tE\n\
        PgEyQ+Qt2nal6Jr6gulqDM3ZhlWhRANCAATaNLP6B5/qQkSU2Exhj8LKhdIwngxc\n\
        TDIZl1/4uGGK56ZQEbv/4eul23U5rOEGND6Hndvk23YS69iOl4ksbTfY\n\
        -----END PRIVATE KEY-----";

    fn user(certificate: &str, key: &str) -> AuthInfo {
        AuthInfo {
            client_certificate_data: Some(BASE64_STANDARD.encode(certificate)),
            client_key_data: Some(BASE64_STANDARD.encode(key).into()),
            ..AuthInfo::default()
        }
    }

    #[test]
    fn certificate_of_version_1_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let in_file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(path.to_str().unwrap().to_owned())
        };
        let files = AuthInfo {
            client_certificate: in_file("crt", CERTIFICATE),
            client_key: in_file("key", KEY),
            ..AuthInfo::default()
        };
        for auth_info in [user(CERTIFICATE, KEY), files] {
            assert!(of(&auth_info).unwrap().is_some_and(|it| it.has_certs()));
            let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
            config.accept_invalid_certs = true;
            config.auth_info = auth_info;
            assert!(crate::pools::credentials::build(&config).unwrap().client_auth_cert_resolver.has_certs());
        }
    }

    #[test]
    fn mismatched_certificate_and_key_are_errors_that_name_the_field() {
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        for (certificate, key, words) in [
            (CERTIFICATE, other.as_str(), "user.client-certificate: the certificate is not that of"),
            (CERTIFICATE, "", "user.client-key: is not PEM of a private key"),
            ("", KEY, "user.client-certificate: there is no certificate"),
            (KEY, KEY, "user.client-certificate: there is no certificate"),
            (CERTIFICATE, CERTIFICATE, "user.client-key: is not PEM of a private key"),
        ] {
            let message = of(&user(certificate, key)).err().unwrap();
            assert!(message.contains(words), "{message}");
        }
        let (without_key, without_certificate) = (
            AuthInfo { client_key_data: None, ..user(CERTIFICATE, KEY) },
            AuthInfo { client_certificate_data: None, ..user(CERTIFICATE, KEY) },
        );
        assert!(of(&without_key).err().unwrap().starts_with("user.client-key: is missing"));
        assert!(of(&without_certificate).err().unwrap().starts_with("user.client-certificate: is missing"));
        let odd = AuthInfo { client_certificate_data: Some("CANARY!".to_owned()), ..user(CERTIFICATE, KEY) };
        assert_eq!(of(&odd).err().unwrap(), "user.client-certificate: is not base64");
        let gone = AuthInfo { client_key: Some("/nowhere/key".to_owned()), ..AuthInfo::default() };
        assert!(of(&gone).err().unwrap().starts_with("user.client-key: cannot be read: "));
        assert!(of(&AuthInfo::default()).unwrap().is_none());
    }
}
