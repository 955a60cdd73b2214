use std::{path::PathBuf, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use kube::{client::ConfigExt, config::AuthInfo};
use parking_lot::Mutex;
use rustls::{
    ClientConfig,
    client::{ResolvesClientCert, Resumption},
};

use super::Unreachable;
use crate::{ConfigError, certificate, error::chain, exec::Plugin};

/// Certificates are renewed in place, by kubeadm or a mounted secret.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Of a configuration with a plugin's certificate: as rustls has it by default.
const SESSIONS: usize = 256;

/// What a TLS connection is made with. Files are looked at again at most once a minute; a change of them, or another
/// certificate of the plugin, begins a new generation, and connections of an older one take no new requests.
pub(super) struct Credentials {
    config: kube::Config,
    /// Speaks plain HTTP when false.
    tls: bool,
    files: Vec<PathBuf>,
    plugin: Option<Plugin>,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    generation: u64,
    /// Without the plugin's certificate.
    config: Option<Arc<ClientConfig>>,
    looked: Instant,
    contents: Vec<Option<Vec<u8>>>,
    /// The number of the plugin's certificate.
    certificate: u64,
}

impl Credentials {
    /// The credentials of a configuration that has no plugin beside this one.
    pub(super) fn open(
        config: kube::Config,
        tls: bool,
        plugin: Option<Plugin>,
        clock: Clock,
    ) -> Result<Self, ConfigError> {
        let files = files(&config);
        let contents = read(&files);
        let built =
            if tls { Some(build(&config).map_err(|err| ConfigError::Credentials(Box::new(err)))?) } else { None };
        let state = Mutex::new(State { generation: 0, config: built, looked: clock.now(), contents, certificate: 0 });
        let plugin = plugin.filter(|_| tls);
        Ok(Self { config, tls, files, plugin, clock, state })
    }

    /// Of what connects now.
    pub(super) fn generation(&self) -> u64 {
        let mut state = self.state.lock();
        let now = self.clock.now();
        if now.saturating_duration_since(state.looked) >= LOOK_AGAIN {
            state.looked = now;
            self.look(&mut state);
        }
        if let Some(certificate) = self.plugin.as_ref().map(Plugin::certificate_serial)
            && state.certificate != certificate
        {
            state.certificate = certificate;
            state.generation += 1;
        }
        state.generation
    }

    /// What to connect with, and its generation; no configuration means plain HTTP.
    pub(super) async fn tls(&self) -> Result<(Option<Arc<ClientConfig>>, u64), Unreachable> {
        let Some(plugin) = &self.plugin else {
            let generation = self.generation();
            return Ok((self.state.lock().config.clone(), generation));
        };
        loop {
            let held = plugin.credential().await.map_err(|why| Unreachable(format!("client credentials: {why}")))?;
            let generation = self.generation();
            let state = self.state.lock();
            // Another one may have come between these lines.
            if state.certificate == held.certificate_serial {
                let with = |config: Arc<ClientConfig>| match held.certificate() {
                    Some(certificate) => showing(&config, certificate),
                    None => config,
                };
                return Ok((state.config.clone().map(with), generation));
            }
        }
    }

    fn look(&self, state: &mut State) {
        let contents = read(&self.files);
        if contents == state.contents || !self.tls {
            return;
        }
        // Certificate and key are two files: between their renewals they do not fit, and the old pair serves on.
        match build(&self.config) {
            Ok(config) => {
                tracing::info!("client certificate or authority has changed: new connections use it");
                state.config = Some(config);
                state.contents = contents;
                state.generation += 1;
            }
            Err(err) => tracing::warn!(err = %chain(&err), "changed certificates cannot be used yet"),
        }
    }
}

fn files(config: &kube::Config) -> Vec<PathBuf> {
    let who = &config.auth_info;
    let certificate = who.client_certificate.as_ref().filter(|_| who.client_certificate_data.is_none());
    let key = who.client_key.as_ref().filter(|_| who.client_key_data.is_none());
    config.root_cert_file.iter().cloned().chain([certificate, key].into_iter().flatten().map(PathBuf::from)).collect()
}

fn read(files: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    files.iter().map(|it| std::fs::read(it).ok()).collect()
}

pub(crate) fn build(config: &kube::Config) -> kube::Result<Arc<ClientConfig>> {
    let mut built = config.rustls_client_config().or_else(|err| {
        // Perhaps rustls only could not read the certificate.
        let Some(certificate) = certificate::of(&config.auth_info) else { return Err(err) };
        let mut nobody = config.clone();
        nobody.auth_info = AuthInfo::default();
        let mut built = nobody.rustls_client_config()?;
        built.client_auth_cert_resolver = certificate;
        Ok(built)
    })?;
    built.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(built))
}

fn showing(config: &ClientConfig, certificate: Arc<dyn ResolvesClientCert>) -> Arc<ClientConfig> {
    let mut config = config.clone();
    config.client_auth_cert_resolver = certificate;
    // A session that is resumed speaks as whoever began it.
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    Arc::new(config)
}
