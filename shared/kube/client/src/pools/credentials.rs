use std::{path::PathBuf, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use parking_lot::Mutex;
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        ResolvesClientCert, Resumption, WantsClientCert,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject};
use rustls_platform_verifier::BuilderVerifierExt;

use super::Unreachable;
use crate::{ConfigError, certificate, exec::Plugin};

/// Certificates are renewed in place, by kubeadm or through a mounted secret.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The number of TLS sessions of a configuration with a plugin's certificate, the default of rustls.
const SESSIONS: usize = 256;

/// The configuration of TLS connections. Its files are checked at most once per minute. A change of the files, or a new
/// certificate of the plugin, begins a new generation. Connections of an older generation get no new requests.
pub(super) struct Credentials {
    config: kube::Config,
    /// False means plain HTTP.
    tls: bool,
    files: Vec<PathBuf>,
    plugin: Option<Plugin>,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    generation: u64,
    /// Without the certificate of the plugin.
    config: Option<Arc<ClientConfig>>,
    last_check: Instant,
    contents: Vec<Option<Vec<u8>>>,
    /// The serial of the plugin's certificate.
    certificate: u64,
}

impl Credentials {
    /// The credentials of a configuration. `plugin` is its exec plugin.
    pub(super) fn open(
        config: kube::Config,
        tls: bool,
        plugin: Option<Plugin>,
        clock: Clock,
    ) -> Result<Self, ConfigError> {
        let files = files(&config);
        let contents = read(&files);
        let built = if tls { Some(build(&config)?) } else { None };
        let state =
            Mutex::new(State { generation: 0, config: built, last_check: clock.now(), contents, certificate: 0 });
        let plugin = plugin.filter(|_| tls);
        Ok(Self { config, tls, files, plugin, clock, state })
    }

    /// The generation of new connections.
    pub(super) fn generation(&self) -> u64 {
        let mut state = self.state.lock();
        let now = self.clock.now();
        if now.saturating_duration_since(state.last_check) >= CHECK_INTERVAL {
            state.last_check = now;
            self.check_files(&mut state);
        }
        if let Some(certificate) = self.plugin.as_ref().map(Plugin::certificate_serial)
            && state.certificate != certificate
        {
            state.certificate = certificate;
            state.generation += 1;
        }
        state.generation
    }

    /// The TLS configuration for a new connection and its generation. No configuration means plain HTTP.
    pub(super) async fn tls(&self) -> Result<(Option<Arc<ClientConfig>>, u64), Unreachable> {
        let Some(plugin) = &self.plugin else {
            let generation = self.generation();
            return Ok((self.state.lock().config.clone(), generation));
        };
        loop {
            let credential =
                plugin.credential().await.map_err(|why| Unreachable(format!("client credentials: {why}")))?;
            let generation = self.generation();
            let state = self.state.lock();
            // The plugin may have returned another certificate in the meantime.
            if state.certificate == credential.certificate_serial {
                let with = |config: Arc<ClientConfig>| match credential.certificate() {
                    Some(certificate) => with_client_certificate(&config, certificate),
                    None => config,
                };
                return Ok((state.config.clone().map(with), generation));
            }
        }
    }

    fn check_files(&self, state: &mut State) {
        let contents = read(&self.files);
        if contents == state.contents || !self.tls {
            return;
        }
        // Certificate and key are two files. Between their renewals they do not match, and the old pair is used.
        match build(&self.config) {
            Ok(config) => {
                tracing::info!("client certificate or authority has changed: new connections use it");
                state.config = Some(config);
                state.contents = contents;
                state.generation += 1;
            }
            Err(err) => tracing::warn!(%err, "changed certificates cannot be used yet"),
        }
    }
}

fn files(config: &kube::Config) -> Vec<PathBuf> {
    let user = &config.auth_info;
    let certificate = user.client_certificate.as_ref().filter(|_| user.client_certificate_data.is_none());
    let key = user.client_key.as_ref().filter(|_| user.client_key_data.is_none());
    config.root_cert_file.iter().cloned().chain([certificate, key].into_iter().flatten().map(PathBuf::from)).collect()
}

fn read(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    files.iter().map(|it| std::fs::read(it).ok()).collect()
}

/// Builds the TLS configuration: the trusted authorities and our client certificate.
///
/// Kube's `rustls_client_config` is not used: it accepts no certificate of version 1, and it has its own plugins and
/// auth providers, which need a JSONPath and a regex engine.
///
/// # Errors
/// The error names the field that cannot be used.
pub(crate) fn build(config: &kube::Config) -> Result<Arc<ClientConfig>, ConfigError> {
    let builder = config_with_authorities(config).map_err(ConfigError::Tls)?;
    let mut built = match certificate::of(&config.auth_info).map_err(ConfigError::Tls)? {
        Some(certificate) => builder.with_client_cert_resolver(certificate),
        None => builder.with_no_client_auth(),
    };
    built.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(built))
}

/// Trusts the authority in the file, as it is now, or in the configuration. If there is none, trusts those of the
/// system, as in client-go.
fn config_with_authorities(config: &kube::Config) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let unusable = |why: &str| format!("cluster.certificate-authority: {why}");
    let builder = ClientConfig::builder();
    let authorities: Vec<_> = match (&config.root_cert_file, &config.root_cert) {
        // Client-go has the same rule: a certificate authority and no verification contradict each other.
        (Some(_), _) | (_, Some(_)) if config.accept_invalid_certs => {
            return Err("cluster.insecure-skip-tls-verify: is not allowed beside a certificate-authority".to_owned());
        }
        (None, None) if config.accept_invalid_certs => {
            return Ok(builder.dangerous().with_custom_certificate_verifier(accept_any_certificate()));
        }
        (None, None) => return builder.with_platform_verifier().map_err(|err| unusable(&err.to_string())),
        (Some(file), _) => {
            let pem = std::fs::read(file).map_err(|err| unusable(&format!("cannot be read: {err}")))?;
            CertificateDer::pem_slice_iter(&pem).collect::<Result<_, _>>().map_err(|_| unusable("is not PEM"))?
        }
        (None, Some(given)) => given.iter().map(|it| CertificateDer::from(it.as_slice()).into_owned()).collect(),
    };
    // One unusable certificate does not exclude the others. Without any, no server could be trusted.
    let mut roots = RootCertStore::empty();
    let (_, ignored) = roots.add_parsable_certificates(authorities);
    if roots.is_empty() {
        return Err(unusable("has no certificate that can be used"));
    }
    if ignored > 0 {
        tracing::warn!(ignored, "Certificates of the cluster's authority cannot be used, others can");
    }
    Ok(builder.with_root_certificates(roots))
}

/// `insecure-skip-tls-verify`: every server certificate is accepted.
#[must_use]
pub fn accept_any_certificate() -> Arc<dyn ServerCertVerifier> {
    Arc::new(Unverified)
}

#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        // All schemes that a server may use, because nothing is verified.
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ECDSA_NISTP521_SHA512,
            SignatureScheme::ED25519,
            SignatureScheme::ED448,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
            SignatureScheme::RSA_PKCS1_SHA1,
            SignatureScheme::ECDSA_SHA1_Legacy,
        ]
    }
}

fn with_client_certificate(config: &ClientConfig, certificate: Arc<dyn ResolvesClientCert>) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.client_auth_cert_resolver = certificate;
    // A resumed session keeps the identity of the first one, so sessions are not shared between certificates.
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Arc::new(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusable_authority_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let good = rcgen::generate_simple_self_signed(vec!["kubernetes".to_owned()]).unwrap().cert;
        let broken = "-----BEGIN CERTIFICATE-----\nCANARY\n";
        let odd = "-----BEGIN CERTIFICATE-----\nQ0FOQVJZ\n-----END CERTIFICATE-----\n";
        let both = format!("{odd}{}", good.pem());
        let authority = |why: &str| Err(format!("cluster.certificate-authority: {why}"));
        let unusable = "has no certificate that can be used";
        for (root_cert_file, root_cert, insecure, want) in [
            (None, None, true, Ok(())),
            (None, Some(vec![good.der().to_vec()]), false, Ok(())),
            (None, Some(Vec::new()), false, authority(unusable)),
            (file("good", &good.pem()), None, false, Ok(())),
            (file("both", &both), None, false, Ok(())),
            (Some("/nowhere/ca".into()), None, false, authority("cannot be read: ")),
            (file("broken", broken), None, false, authority("is not PEM")),
            (file("odd", odd), None, false, authority(unusable)),
            (file("empty", ""), None, false, authority(unusable)),
            (file("no-pem", "CANARY"), None, false, authority(unusable)),
            (file("too", &good.pem()), None, true, Err("cluster.insecure-skip-tls-verify: is not allowed".to_owned())),
        ] {
            let mut config = kube::Config::new("https://127.0.0.1:1".parse().unwrap());
            (config.root_cert_file, config.root_cert, config.accept_invalid_certs) =
                (root_cert_file.clone(), root_cert, insecure);
            let got = build(&config).map(drop).map_err(|err| err.to_string());
            match (&got, &want) {
                (Ok(()), Ok(())) => {}
                (Err(message), Err(words)) if message.contains(&**words) && !message.contains("CANARY") => {}
                _ => panic!("{root_cert_file:?}: {got:?}, not {want:?}"),
            }
        }
    }
}
