use std::{path::Path, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use kube::config::AuthInfo;
use rustls::{
    client::ResolvesClientCert,
    sign::{CertifiedKey, SingleCertAndKey},
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use secrecy::ExposeSecret;
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

/// The certificate and key of a kubeconfig's user, as they are shown to a server; `None` if they do not belong together.
///
/// rustls wants to read the certificate first, and reads none of X.509 version 1, such as `openssl x509 -req` makes and
/// Go's managers and servers take. Whether it is any good is the server's business.
pub(super) fn of(who: &AuthInfo) -> Option<Arc<dyn ResolvesClientCert>> {
    let chain = content(who.client_certificate_data.as_deref(), who.client_certificate.as_deref())?;
    let key = content(who.client_key_data.as_ref().map(ExposeSecret::expose_secret), who.client_key.as_deref())?;
    Some(Arc::new(SingleCertAndKey::from(certified(&chain, &key)?)))
}

/// Data go before a file, as in every kubeconfig.
fn content(data: Option<&str>, file: Option<&str>) -> Option<Vec<u8>> {
    match data {
        Some(data) => BASE64_STANDARD.decode(data).ok(),
        None => std::fs::read(Path::new(file?)).ok(),
    }
}

fn certified(chain: &[u8], key: &[u8]) -> Option<CertifiedKey> {
    let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>().ok()?;
    let key = PrivateKeyDer::from_pem_slice(key).ok()?;
    let key = rustls::crypto::ring::default_provider().key_provider.load_private_key(key).ok()?;
    let (_, first) = X509Certificate::from_der(chain.first()?).ok()?;
    let fits = key.public_key().is_none_or(|it| it.as_ref() == first.public_key().raw);
    fits.then(|| CertifiedKey::new(chain.clone(), key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of version 1: `openssl req -new …`, `openssl x509 -req …`.
    const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\n\
        MIIBGDCBvwIUGRW+kejsMdZwN/O2GWufWLAeqMowCgYIKoZIzj0EAwIwDjEMMAoG\n\
        A1UEAwwDb2xkMCAXDTI2MTEyMjAzNTU0NFoYDzIxMjYxMDI5MDM1NTQ0WjAOMQww\n\
        CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATaNLP6B5/qQkSU\n\
        2Exhj8LKhdIwngxcTDIZl1/4uGGK56ZQEbv/4eul23U5rOEGND6Hndvk23YS69iO\n\
        l4ksbTfYMAoGCCqGSM49BAMCA0gAMEUCIQCxRLtReI1FusUoO6PoxMHbegKlOpni\n\
        7UcYxRv1hCeYJwIgW30u/SXszYK3yAyOR1mtzCwTXQp7+MW51l35tKzdemc=\n\
        -----END CERTIFICATE-----";
    const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
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
    fn a_certificate_of_version_1_is_shown() {
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
        for who in [user(CERTIFICATE, KEY), files] {
            assert!(of(&who).is_some_and(|it| it.has_certs()));
            let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
            config.root_cert = Some(Vec::new());
            config.auth_info = who;
            assert!(super::super::credentials::build(&config).unwrap().client_auth_cert_resolver.has_certs());
        }
    }

    #[test]
    fn what_does_not_belong_together_is_not() {
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        for (certificate, key) in [(CERTIFICATE, other.as_str()), (CERTIFICATE, ""), ("", KEY), (KEY, KEY)] {
            assert!(of(&user(certificate, key)).is_none(), "{certificate} {key}");
        }
        assert!(of(&AuthInfo::default()).is_none());
    }
}
