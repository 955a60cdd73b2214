//! The authorities for client certificates and for front proxies.

use std::sync::Arc;

use rustls::{
    DistinguishedName, RootCertStore,
    crypto::ring,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, Der, UnixTime, pem::PemObject};

/// The current configuration for client certificates.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Authorities {
    /// Signs the certificates of clients. The certificate names the user.
    pub(crate) clients: Option<Bundle>,
    /// Signs the certificates of front proxies. The request headers name the user.
    pub(crate) proxies: Option<Proxies>,
}

/// Front proxies, and the headers in which they send the user.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Proxies {
    /// `None` while the cluster has no authority for them. Then no front proxy is trusted.
    pub(crate) authorities: Option<Bundle>,
    /// The allowed common names; empty means any.
    pub(crate) allowed: Vec<String>,
    pub(crate) headers: ProxyHeaders,
}

/// The configured header names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxyHeaders {
    /// The first value that is not empty is the user's name.
    pub username: Vec<String>,
    /// The first value that is not empty is the user's uid.
    pub uid: Vec<String>,
    /// Every value of these headers is a group.
    pub group: Vec<String>,
    /// The prefixes of extra headers. The rest of a header's name is the key in the extra map.
    pub extra_prefix: Vec<String>,
}

impl ProxyHeaders {
    /// The first name that is not a valid header name.
    #[must_use]
    pub fn invalid(&self) -> Option<&str> {
        let Self { username, uid, group, extra_prefix } = self;
        let mut all = username.iter().chain(uid).chain(group).chain(extra_prefix);
        all.find(|it| http::HeaderName::try_from(it.trim()).is_err()).map(String::as_str)
    }
}

/// Certificate authorities.
#[derive(Clone)]
pub(crate) struct Bundle {
    verifier: Arc<dyn ClientCertVerifier>,
    subjects: Arc<[DistinguishedName]>,
    /// The public keys. An authority is identified by its key, not by its certificate.
    keys: Arc<[Der<'static>]>,
    pem: Arc<[u8]>,
}

impl Bundle {
    /// Parses PEM.
    ///
    /// # Errors
    /// If the PEM has no certificate or an invalid one.
    pub(crate) fn read(pem: &[u8]) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|err| format!("a certificate cannot be read: {err}"))?;
            roots.add(certificate).map_err(|err| format!("a certificate is no authority: {err}"))?;
        }
        if roots.is_empty() {
            return Err("there is no certificate in it".to_owned());
        }
        let subjects = roots.subjects().into();
        let keys = roots.roots.iter().map(|it| it.subject_public_key_info.clone()).collect();
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verifier = verifier.map_err(|err| format!("it cannot be used: {err}"))?;
        Ok(Self { verifier, subjects, keys, pem: pem.into() })
    }

    /// Verifies that one of these authorities signed `chain` for client authentication. The first certificate is the
    /// client's own.
    ///
    /// # Errors
    /// If the chain is not valid, with the reason.
    pub(crate) fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), String> {
        let (own, others) = chain.split_first().ok_or("no certificate")?;
        self.verifier.verify_client_cert(own, others, now).map(|_| ()).map_err(|err| err.to_string())
    }
}

impl PartialEq for Bundle {
    fn eq(&self, other: &Self) -> bool {
        self.pem == other.pem
    }
}

impl std::fmt::Debug for Bundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bundle").field("authorities", &self.subjects.len()).finish_non_exhaustive()
    }
}

impl Authorities {
    /// True if any client could act as a front proxy, and so as any user: one authority signs both clients and front
    /// proxies, and no allowed names separate them.
    pub(crate) fn may_any_client_be_a_proxy(&self) -> bool {
        let (Some(clients), Some(proxies)) = (&self.clients, &self.proxies) else { return false };
        let Proxies { authorities: Some(authorities), allowed, .. } = proxies else { return false };
        allowed.is_empty() && authorities.keys.iter().any(|it| clients.keys.contains(it))
    }

    /// Removes the front proxies if any client could act as one.
    pub(crate) fn without_ambiguous_proxies(mut self) -> Self {
        if self.may_any_client_be_a_proxy() {
            self.proxies = None;
        }
        self
    }

    /// The names of all authorities. The handshake sends them, so that a client selects the right certificate. `None`
    /// if client certificates are not used.
    pub(crate) fn subjects(&self) -> Option<Vec<DistinguishedName>> {
        let Self { clients, proxies } = self;
        let proxies = proxies.as_ref().and_then(|it| it.authorities.as_ref());
        let bundles: Vec<&Bundle> = clients.iter().chain(proxies).collect();
        (!bundles.is_empty()).then(|| bundles.iter().flat_map(|it| it.subjects.iter().cloned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Authority;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))
    }

    #[test]
    fn only_client_certificates_of_an_authority_are_valid() {
        let (ours, other) = (Authority::new("ours"), Authority::new("other"));
        let bundle = Bundle::read(ours.pem().as_bytes()).unwrap();
        let now = at(1_790_000_000);
        assert_eq!(bundle.verify(&[ours.client("a", &[]).certificate], now), Ok(()));
        assert!(bundle.verify(&[other.client("a", &[]).certificate], now).is_err());
        assert!(bundle.verify(&[ours.server("a").certificate], now).is_err(), "not for clients");
        assert!(bundle.verify(&[ours.client("a", &[]).certificate], at(10)).is_err(), "not yet valid");
        assert!(bundle.verify(&[], now).is_err());
    }

    #[test]
    fn invalid_bundle_is_an_error_with_its_reason() {
        assert!(Bundle::read(b"").unwrap_err().contains("no certificate"));
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(Bundle::read(broken.as_bytes()).unwrap_err().contains("no authority"));
    }

    #[test]
    fn subjects_are_those_of_all_authorities() {
        let bundle = |name: &str| Bundle::read(Authority::new(name).pem().as_bytes()).unwrap();
        assert!(Authorities::default().subjects().is_none());
        let proxies = Proxies { authorities: Some(bundle("p")), allowed: vec![], headers: ProxyHeaders::default() };
        let authorities = Authorities { clients: Some(bundle("c")), proxies: Some(proxies) };
        assert_eq!(authorities.subjects().unwrap().len(), 2);
    }

    #[test]
    fn common_authority_without_allowed_names_trusts_no_front_proxy() {
        let (one, other) = (Authority::new("one").pem(), Authority::new("other").pem());
        let both = format!("{one}{other}");
        let bundle = |pem: &str| Bundle::read(pem.as_bytes()).unwrap();
        for (clients, proxies, named, want) in [
            (Some(&one), Some(&other), false, true),
            (Some(&one), Some(&one), false, false),
            (Some(&both), Some(&one), false, false),
            (Some(&one), Some(&both), false, false),
            (Some(&one), Some(&one), true, true),
            (None, Some(&one), false, true),
            (Some(&one), None, false, true),
        ] {
            let allowed = if named { vec!["front".to_owned()] } else { Vec::new() };
            let authorities = proxies.map(|it| bundle(it));
            let proxies = Proxies { authorities, allowed, headers: ProxyHeaders::default() };
            let trusted = Authorities { clients: clients.map(|it| bundle(it)), proxies: Some(proxies) };
            let shown = format!("{trusted:?}");
            assert_eq!(trusted.without_ambiguous_proxies().proxies.is_some(), want, "{shown}");
        }
    }
}
