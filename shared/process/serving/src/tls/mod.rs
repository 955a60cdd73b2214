//! TLS handshakes: the serving certificate, the policy, and the authorities that are sent to clients.

mod pair;
mod policy;
mod sni;
mod source;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use parking_lot::RwLock;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use rustls_pki_types::{CertificateDer, UnixTime};

use self::sni::Resolver;
pub use self::{
    policy::{Diagnostics, Policy},
    sni::SniPair,
    source::CertificateSource,
};
pub(crate) use self::{sni::Certificates, source::CertificateSources};

/// The configuration for new handshakes; it is replaced as a whole.
pub(crate) struct Tls {
    policy: Policy,
    provider: Arc<CryptoProvider>,
    http2: bool,
    current: RwLock<Arc<Configs>>,
}

struct Configs {
    default: Arc<ServerConfig>,
    by_address: BTreeMap<IpAddr, Arc<ServerConfig>>,
}

impl Tls {
    /// # Errors
    /// If the policy does not give a valid configuration.
    pub(crate) fn new(
        policy: Policy,
        http2: bool,
        certificates: Certificates,
        subjects: Subjects,
    ) -> Result<Self, Error> {
        let provider = Arc::new(policy.provider.clone());
        let configs = Configs::new(&policy, &provider, http2, certificates, subjects)?;
        Ok(Self { policy, provider, http2, current: RwLock::new(Arc::new(configs)) })
    }

    /// The configuration for a handshake on one of our addresses.
    pub(crate) fn config(&self, address: Option<IpAddr>) -> Arc<ServerConfig> {
        let current = self.current.read().clone();
        let own = address.and_then(|it| current.by_address.get(&it.to_canonical()));
        own.unwrap_or(&current.default).clone()
    }

    /// Replaces the certificates and authorities for new handshakes.
    pub(crate) fn replace(&self, certificates: Certificates, subjects: Subjects) {
        match Configs::new(&self.policy, &self.provider, self.http2, certificates, subjects) {
            Ok(configs) => *self.current.write() = Arc::new(configs),
            // Only the policy can cause an error, and it was valid at the start.
            Err(err) => tracing::error!(%err, "cannot use the new certificates"),
        }
    }
}

/// The authorities that are sent to clients when their certificate is requested; `None` requests no certificate.
pub(crate) type Subjects = Option<Vec<DistinguishedName>>;

impl Configs {
    fn new(
        policy: &Policy,
        provider: &Arc<CryptoProvider>,
        http2: bool,
        certificates: Certificates,
        subjects: Subjects,
    ) -> Result<Self, Error> {
        let request_client_cert = Arc::new(RequestClientCert { subjects, provider: provider.clone() });
        let certificates = Arc::new(certificates);
        let config = |without_name: &pair::CertPair| -> Result<Arc<ServerConfig>, Error> {
            let resolver = Resolver { certificates: certificates.clone(), without_name: without_name.clone() };
            let mut config = ServerConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&policy.versions)?
                .with_client_cert_verifier(request_client_cert.clone())
                .with_cert_resolver(Arc::new(resolver));
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
            if http2 {
                config.alpn_protocols.insert(0, b"h2".to_vec());
            }
            Ok(Arc::new(config))
        };
        let by_address = certificates.by_address().map(|(address, pair)| Ok((address, config(pair)?)));
        Ok(Self { by_address: by_address.collect::<Result<_, Error>>()?, default: config(&certificates.default)? })
    }
}

/// Requests a certificate and accepts any or none, as Go's `RequestClientCert`. The certificate is verified with each
/// request instead. So a client with an unknown certificate and a valid token gets a response, and authorities can
/// change.
#[derive(Debug)]
struct RequestClientCert {
    subjects: Subjects,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for RequestClientCert {
    fn offer_client_auth(&self) -> bool {
        self.subjects.is_some()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.subjects.as_deref().unwrap_or_default()
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    // Only this function verifies that the client has the key.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
