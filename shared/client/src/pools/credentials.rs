use std::{path::PathBuf, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use kube::client::ConfigExt;
use parking_lot::Mutex;
use rustls::ClientConfig;

use super::Unreachable;
use crate::{ConfigError, error::chain};

/// Certificates are renewed in place, by kubeadm or a mounted secret.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What a TLS connection is made with. Files are looked at again at most once a minute; a change begins a new
/// generation, and connections of an older one take no new requests.
pub(super) struct Credentials {
    config: kube::Config,
    /// Speaks plain HTTP when false.
    tls: bool,
    files: Vec<PathBuf>,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    generation: u64,
    /// `None` until a plugin has been asked again.
    config: Option<Arc<ClientConfig>>,
    looked: Instant,
    /// When a plugin was asked last.
    asked: Instant,
    contents: Vec<Option<Vec<u8>>>,
}

impl Credentials {
    pub(super) fn open(config: kube::Config, tls: bool, clock: Clock) -> Result<Self, ConfigError> {
        let files = files(&config);
        let contents = read(&files);
        let built =
            if tls { Some(build(&config).map_err(|err| ConfigError::Credentials(Box::new(err)))?) } else { None };
        let state =
            Mutex::new(State { generation: 0, config: built, looked: clock.now(), asked: clock.now(), contents });
        Ok(Self { config, tls, files, clock, state })
    }

    /// Of what connects now.
    pub(super) fn generation(&self) -> u64 {
        let mut state = self.state.lock();
        let now = self.clock.now();
        if now.saturating_duration_since(state.looked) >= LOOK_AGAIN {
            state.looked = now;
            self.look(&mut state);
        }
        state.generation
    }

    /// The server does not know us any more: a plugin may have a newer certificate. Files are looked at anyway.
    pub(super) fn refused(&self) {
        if self.config.auth_info.exec.is_none() {
            return;
        }
        let mut state = self.state.lock();
        let now = self.clock.now();
        if self.tls && now.saturating_duration_since(state.asked) >= LOOK_AGAIN {
            state.asked = now;
            state.generation += 1;
            state.config = None;
        }
    }

    /// What to connect with, and its generation; no configuration means plain HTTP.
    pub(super) async fn tls(&self) -> Result<(Option<Arc<ClientConfig>>, u64), Unreachable> {
        let generation = {
            let state = self.state.lock();
            if !self.tls || state.config.is_some() {
                return Ok((state.config.clone(), state.generation));
            }
            state.generation
        };
        let config = self.config.clone();
        // The plugin is a program that may take its time.
        let built = tokio::task::spawn_blocking(move || build(&config)).await;
        let built = built.map_err(|err| Unreachable(err.to_string()))?;
        let built = built.map_err(|err| Unreachable(format!("client credentials: {}", chain(&err))))?;
        self.state.lock().config = Some(built.clone());
        Ok((Some(built), generation))
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

fn build(config: &kube::Config) -> kube::Result<Arc<ClientConfig>> {
    let mut built = config.rustls_client_config()?;
    built.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(built))
}
