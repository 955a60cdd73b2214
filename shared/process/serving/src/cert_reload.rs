//! Reloads certificates and authorities from files and from the cluster.

use std::{sync::Arc, time::Duration};

use client::Api;
use clock::{Clock, Instant};
use tokio::sync::watch;

use crate::{
    AuthenticationOptions, ServeError,
    authorities::{Authorities, Bundle, Proxies},
    files::ReloadedFiles,
    lookup::{self, ClusterAuthorities},
    tls::{CertificateSources, Tls},
};

/// The interval between two reads of the files.
const FILE_INTERVAL: Duration = Duration::from_secs(5);
/// The interval between two lookups in the cluster.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(30);
/// The interval after a failed lookup in the cluster.
const LOOKUP_RETRY: Duration = Duration::from_secs(5);

/// The sources of the authorities for client certificates.
pub(crate) struct AuthoritySources {
    client_file: Option<ReloadedFiles<Bundle>>,
    proxy_file: Option<ReloadedFiles<Bundle>>,
    cluster: Option<ClusterLookup>,
    /// The configuration from files and cluster, before [`Authorities::without_ambiguous_proxies`].
    configured: Authorities,
    authorities: watch::Sender<Arc<Authorities>>,
    clock: Clock,
}

struct ClusterLookup {
    api: Api,
    /// The two sets of authorities: true for each set that comes from the cluster.
    clients: bool,
    proxies: bool,
    next_lookup: Instant,
    last_error: Option<String>,
}

impl AuthoritySources {
    /// # Errors
    /// If a file cannot be used, or if the lookup in the cluster fails and this is not tolerated.
    pub(crate) async fn open(
        options: &AuthenticationOptions,
        api: Option<Api>,
        clock: Clock,
    ) -> Result<(Self, watch::Receiver<Arc<Authorities>>), ServeError> {
        let mut authorities = Authorities::default();
        let mut client_file = None;
        if let Some(path) = &options.client_authorities {
            let (files, bundle) = ReloadedFiles::open("--client-ca-file", vec![path.clone()], Box::new(bundle)).await?;
            (client_file, authorities.clients) = (Some(files), Some(bundle));
        }
        let mut proxy_file = None;
        if let Some(path) = &options.proxy_authorities {
            let flag = "--requestheader-client-ca-file";
            let (files, bundle) = ReloadedFiles::open(flag, vec![path.clone()], Box::new(bundle)).await?;
            let (allowed, headers) = (options.proxy_names.clone(), options.proxy_headers.clone());
            (proxy_file, authorities.proxies) =
                (Some(files), Some(Proxies { authorities: Some(bundle), allowed, headers }));
        }
        let (clients, proxies) = (client_file.is_none(), proxy_file.is_none());
        let mut cluster = None;
        if options.needs_lookup() {
            match api {
                Some(api) => {
                    let next_lookup = clock.now();
                    let mut cluster_lookup = ClusterLookup { api, clients, proxies, next_lookup, last_error: None };
                    cluster_lookup.look_up_first(&mut authorities, options.tolerate_lookup_failure, &clock).await?;
                    cluster = Some(cluster_lookup);
                }
                None => tracing::warn!(
                    "no --authentication-kubeconfig was given: authorities for client certificates are not read from the \
                     cluster"
                ),
            }
        }
        let (sender, receiver) = watch::channel(Arc::default());
        let mut authority_sources =
            Self { client_file, proxy_file, cluster, configured: Authorities::default(), authorities: sender, clock };
        authority_sources.publish(authorities);
        Ok((authority_sources, receiver))
    }

    /// Reads all sources again. Returns true if the configuration has changed.
    async fn refresh(&mut self) -> bool {
        let mut authorities = self.configured.clone();
        let mut changed = false;
        if let Some(bundle) = refreshed(&mut self.client_file).await {
            authorities.clients = Some(bundle);
            changed = true;
        }
        if let Some(bundle) = refreshed(&mut self.proxy_file).await {
            if let Some(proxies) = &mut authorities.proxies {
                proxies.authorities = Some(bundle);
            }
            changed = true;
        }
        if let Some(cluster) = &mut self.cluster {
            changed |= cluster.refresh(&mut authorities, &self.clock).await;
        }
        if changed {
            self.publish(authorities);
        }
        changed
    }

    /// Publishes a new configuration without the part that is not safe.
    fn publish(&mut self, configured: Authorities) {
        if configured.may_any_client_be_a_proxy() && !self.configured.may_any_client_be_a_proxy() {
            tracing::warn!(
                "client certificates and front proxies have an authority in common, and --requestheader-allowed-names does \
                 not separate them: no front proxy is trusted"
            );
        }
        self.authorities.send_replace(Arc::new(configured.clone().without_ambiguous_proxies()));
        self.configured = configured;
    }
}

impl ClusterLookup {
    /// The first lookup. If it fails, the start fails too, unless this is tolerated.
    async fn look_up_first(
        &mut self,
        authorities: &mut Authorities,
        tolerate: bool,
        clock: &Clock,
    ) -> Result<(), ServeError> {
        match lookup::fetch(&self.api).await {
            Ok(found) => {
                self.apply(found, authorities);
                self.next_lookup = clock.now() + LOOKUP_INTERVAL;
            }
            Err(why) if tolerate => {
                tracing::warn!(
                    why,
                    "cannot read the authorities for client certificates from the cluster; clients may be anonymous until \
                     the next attempt succeeds"
                );
                self.last_error = Some(why);
                self.next_lookup = clock.now() + LOOKUP_RETRY;
            }
            Err(why) => return Err(ServeError::Lookup(why)),
        }
        Ok(())
    }

    async fn refresh(&mut self, authorities: &mut Authorities, clock: &Clock) -> bool {
        if clock.now() < self.next_lookup {
            return false;
        }
        let response = lookup::fetch(&self.api).await;
        self.next_lookup = clock.now() + if response.is_ok() { LOOKUP_INTERVAL } else { LOOKUP_RETRY };
        match response {
            Ok(found) => {
                self.last_error = None;
                self.apply(found, authorities)
            }
            Err(why) => {
                if self.last_error.as_ref() != Some(&why) {
                    tracing::warn!(
                        why,
                        "cannot read the authorities for client certificates from the cluster; the previous ones stay \
                         in use"
                    );
                    self.last_error = Some(why);
                }
                false
            }
        }
    }

    fn apply(&self, found: ClusterAuthorities, authorities: &mut Authorities) -> bool {
        let ClusterAuthorities { clients, proxies } = found;
        let before = authorities.clone();
        if self.clients {
            authorities.clients = clients;
        }
        if self.proxies {
            authorities.proxies = proxies;
        }
        before != *authorities
    }
}

/// Reloads certificates and authorities as long as the port is served.
pub(crate) struct CertReloader {
    pub(crate) certificates: CertificateSources,
    pub(crate) authority_sources: AuthoritySources,
    pub(crate) tls: Arc<Tls>,
    pub(crate) clock: Clock,
}

impl CertReloader {
    pub(crate) async fn run(mut self) {
        let mut next = self.clock.now();
        loop {
            next += FILE_INTERVAL;
            tokio::time::sleep_until(next).await;
            let certificates = self.certificates.refresh().await;
            if self.authority_sources.refresh().await || certificates {
                let subjects = self.authority_sources.authorities.borrow().subjects();
                self.tls.replace(self.certificates.certificates(), subjects);
            }
            next = next.max(self.clock.now());
        }
    }
}

fn bundle(contents: &[Vec<u8>]) -> Result<Bundle, String> {
    Bundle::read(contents.first().map(Vec::as_slice).unwrap_or_default())
}

async fn refreshed(files: &mut Option<ReloadedFiles<Bundle>>) -> Option<Bundle> {
    files.as_mut()?.refresh().await
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::testing::{Authority, api, authentication, response};

    /// A cluster that returns `*client_ca` as its client CA, or is down if that is `None`.
    fn cluster(client_ca: &Arc<Mutex<Option<String>>>) -> Api {
        let client_ca = client_ca.clone();
        api(move |_, _| match &*client_ca.lock() {
            Some(pem) => response(200, &json!({ "data": { "client-ca-file": pem } })),
            None => response(500, &json!({ "code": 500, "message": "down" })),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn failed_lookup_ends_the_start_unless_it_is_tolerated() {
        let client_ca = Arc::new(Mutex::new(None));
        let mut options = authentication();
        options.skip_lookup = false;
        let open =
            async |options: &_| AuthoritySources::open(options, Some(cluster(&client_ca)), Clock::system()).await;
        let err = open(&options).await.err().unwrap().to_string();
        assert!(err.contains("extension-apiserver-authentication") && err.contains("tolerate"), "{err}");

        options.tolerate_lookup_failure = true;
        let (mut authority_sources, authorities) = open(&options).await.unwrap();
        assert!(authorities.borrow().subjects().is_none());
        // The lookup is repeated until it succeeds, and later because its result may have changed.
        for name in ["first", "second"] {
            *client_ca.lock() = Some(Authority::new(name).pem());
            assert!(!authority_sources.refresh().await, "before the next lookup");
            tokio::time::advance(LOOKUP_INTERVAL).await;
            assert!(authority_sources.refresh().await);
            let subjects = authorities.borrow().subjects().unwrap();
            assert!(String::from_utf8_lossy(subjects[0].as_ref()).contains(name));
        }
        // A failed lookup keeps the previous result.
        *client_ca.lock() = None;
        tokio::time::advance(LOOKUP_INTERVAL).await;
        assert!(!authority_sources.refresh().await && authorities.borrow().subjects().is_some());
    }

    #[tokio::test]
    async fn file_has_priority_over_the_cluster_and_is_reloaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.crt");
        std::fs::write(&path, Authority::new("file").pem()).unwrap();
        let client_ca = Arc::new(Mutex::new(Some(Authority::new("cluster").pem())));
        let mut options = authentication();
        (options.skip_lookup, options.client_authorities) = (false, Some(path.clone()));
        let (mut authority_sources, authorities) =
            AuthoritySources::open(&options, Some(cluster(&client_ca)), Clock::system()).await.unwrap();
        assert_eq!(authorities.borrow().subjects().unwrap().len(), 1);
        std::fs::write(&path, "half").unwrap();
        assert!(!authority_sources.refresh().await);
        std::fs::write(&path, Authority::new("renewed").pem()).unwrap();
        assert!(authority_sources.refresh().await);
        let subjects = authorities.borrow().subjects().unwrap();
        assert!(String::from_utf8_lossy(subjects[0].as_ref()).contains("renewed"));
    }

    #[tokio::test]
    async fn unreadable_file_is_an_error_with_its_flag() {
        let mut options = authentication();
        options.client_authorities = Some("/gone/ca.crt".into());
        let err = AuthoritySources::open(&options, None, Clock::system()).await.err().unwrap().to_string();
        assert!(err.contains("--client-ca-file") && err.contains("/gone/ca.crt"), "{err}");
    }

    #[tokio::test(start_paused = true)]
    async fn common_authority_needs_allowed_names_from_flags_or_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let (path, authority) = (folder.path().join("ca.crt"), Authority::new("common").pem());
        std::fs::write(&path, &authority).unwrap();
        let mut options = authentication();
        (options.client_authorities, options.proxy_authorities) = (Some(path.clone()), Some(path.clone()));
        let log = harness::listen();
        let (_, authorities) = AuthoritySources::open(&options, None, Clock::system()).await.unwrap();
        assert!(authorities.borrow().clients.is_some() && authorities.borrow().proxies.is_none());
        let lines = log.lines();
        assert!(
            lines.len() == 1 && lines[0].contains("WARN") && lines[0].contains("no front proxy is trusted"),
            "{lines:?}"
        );
        options.proxy_names = vec!["front".to_owned()];
        let (_, authorities) = AuthoritySources::open(&options, None, Clock::system()).await.unwrap();
        assert!(authorities.borrow().clients.is_some() && authorities.borrow().proxies.is_some());
        assert_eq!(log.lines(), lines);

        let data = Arc::new(Mutex::new(json!({ "requestheader-client-ca-file": authority })));
        let served = data.clone();
        let cluster = api(move |_, _| response(200, &json!({ "data": *served.lock() })));
        (options.skip_lookup, options.proxy_authorities) = (false, None);
        let (mut authority_sources, authorities) =
            AuthoritySources::open(&options, Some(cluster), Clock::system()).await.unwrap();
        for (name, trusted) in [("front", true), ("", false)] {
            assert!(
                authorities.borrow().proxies.is_some() != trusted && authorities.borrow().clients.is_some(),
                "{name:?}"
            );
            let names = if name.is_empty() { json!("") } else { json!(format!("[{name:?}]")) };
            data.lock()["requestheader-allowed-names"] = names;
            tokio::time::advance(LOOKUP_INTERVAL).await;
            assert!(authority_sources.refresh().await);
            assert_eq!(authorities.borrow().proxies.is_some(), trusted, "{name:?}");
        }
    }
}
