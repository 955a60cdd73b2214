//! Reloads certificates and authorities from files and from the cluster.

use std::{sync::Arc, time::Duration};

use client::Api;
use clock::{Clock, Instant};
use tokio::sync::watch;

use crate::{
    AuthenticationOptions, ServeError,
    files::Files,
    lookup::{self, Said},
    tls::{Sources, Tls},
    trust::{Bundle, Proxies, Trust},
};

/// The interval between two reads of the files.
const FILES: Duration = Duration::from_secs(5);
/// The interval between two lookups in the cluster.
const CLUSTER: Duration = Duration::from_secs(30);
/// The interval after a failed lookup in the cluster.
const CLUSTER_MISSING: Duration = Duration::from_secs(5);

/// The sources of the authorities for client certificates.
pub(crate) struct Truster {
    client_file: Option<Files<Bundle>>,
    proxy_file: Option<Files<Bundle>>,
    cluster: Option<Cluster>,
    /// The configuration from files and cluster, before [`Trust::believable`].
    said: Trust,
    trust: watch::Sender<Arc<Trust>>,
    clock: Clock,
}

struct Cluster {
    api: Api,
    /// The two sets of authorities: true for each set that comes from the cluster.
    clients: bool,
    proxies: bool,
    ask_at: Instant,
    told: Option<String>,
}

impl Truster {
    /// # Errors
    /// If a file cannot be used, or if the lookup in the cluster fails and this is not tolerated.
    pub(crate) async fn open(
        options: &AuthenticationOptions,
        api: Option<Api>,
        clock: Clock,
    ) -> Result<(Self, watch::Receiver<Arc<Trust>>), ServeError> {
        let mut trust = Trust::default();
        let mut client_file = None;
        if let Some(path) = &options.client_authorities {
            let (files, bundle) = Files::open("--client-ca-file", vec![path.clone()], Box::new(bundle)).await?;
            (client_file, trust.clients) = (Some(files), Some(bundle));
        }
        let mut proxy_file = None;
        if let Some(path) = &options.proxy_authorities {
            let flag = "--requestheader-client-ca-file";
            let (files, bundle) = Files::open(flag, vec![path.clone()], Box::new(bundle)).await?;
            let (allowed, headers) = (options.proxy_names.clone(), options.proxy_headers.clone());
            (proxy_file, trust.proxies) = (Some(files), Some(Proxies { authorities: Some(bundle), allowed, headers }));
        }
        let (clients, proxies) = (client_file.is_none(), proxy_file.is_none());
        let mut cluster = None;
        if options.looks_up() {
            match api {
                Some(api) => {
                    let ask_at = clock.now();
                    let mut asked = Cluster { api, clients, proxies, ask_at, told: None };
                    asked.begin(&mut trust, options.tolerate_lookup_failure, &clock).await?;
                    cluster = Some(asked);
                }
                None => tracing::warn!(
                    "no --authentication-kubeconfig was given: the cluster is not asked whose client certificates count"
                ),
            }
        }
        let (sender, seen) = watch::channel(Arc::default());
        let mut truster = Self { client_file, proxy_file, cluster, said: Trust::default(), trust: sender, clock };
        truster.believe(trust);
        Ok((truster, seen))
    }

    /// Reads all sources again. Returns true if the configuration has changed.
    async fn refresh(&mut self) -> bool {
        let mut trust = self.said.clone();
        let mut changed = false;
        if let Some(bundle) = refreshed(&mut self.client_file).await {
            trust.clients = Some(bundle);
            changed = true;
        }
        if let Some(bundle) = refreshed(&mut self.proxy_file).await {
            if let Some(proxies) = &mut trust.proxies {
                proxies.authorities = Some(bundle);
            }
            changed = true;
        }
        if let Some(cluster) = &mut self.cluster {
            changed |= cluster.refresh(&mut trust, &self.clock).await;
        }
        if changed {
            self.believe(trust);
        }
        changed
    }

    /// Publishes a new configuration without the part that is not safe.
    fn believe(&mut self, said: Trust) {
        if said.any_client_is_a_proxy() && !self.said.any_client_is_a_proxy() {
            tracing::warn!(
                "client certificates and front proxies have an authority in common, and no allowed names tell which of \
                 its clients are front proxies (--requestheader-allowed-names): no front proxy is believed"
            );
        }
        self.trust.send_replace(Arc::new(said.clone().believable()));
        self.said = said;
    }
}

impl Cluster {
    /// The first lookup. If it fails, the start fails too, unless this is tolerated.
    async fn begin(&mut self, trust: &mut Trust, tolerate: bool, clock: &Clock) -> Result<(), ServeError> {
        match lookup::ask(&self.api).await {
            Ok(said) => {
                self.apply(said, trust);
                self.ask_at = clock.now() + CLUSTER;
            }
            Err(why) if tolerate => {
                tracing::warn!(
                    why,
                    "the cluster does not say whose client certificates count; all may be anonymous until it does"
                );
                self.told = Some(why);
                self.ask_at = clock.now() + CLUSTER_MISSING;
            }
            Err(why) => return Err(ServeError::Lookup(why)),
        }
        Ok(())
    }

    async fn refresh(&mut self, trust: &mut Trust, clock: &Clock) -> bool {
        if clock.now() < self.ask_at {
            return false;
        }
        let answer = lookup::ask(&self.api).await;
        self.ask_at = clock.now() + if answer.is_ok() { CLUSTER } else { CLUSTER_MISSING };
        match answer {
            Ok(said) => {
                self.told = None;
                self.apply(said, trust)
            }
            Err(why) => {
                if self.told.as_ref() != Some(&why) {
                    tracing::warn!(
                        why,
                        "cannot ask the cluster whose client certificates count; what it said before stays"
                    );
                    self.told = Some(why);
                }
                false
            }
        }
    }

    fn apply(&self, said: Said, trust: &mut Trust) -> bool {
        let Said { clients, proxies } = said;
        let before = trust.clone();
        if self.clients {
            trust.clients = clients;
        }
        if self.proxies {
            trust.proxies = proxies;
        }
        before != *trust
    }
}

/// Reloads certificates and authorities as long as the port is served.
pub(crate) struct Keeper {
    pub(crate) certificates: Sources,
    pub(crate) truster: Truster,
    pub(crate) tls: Arc<Tls>,
    pub(crate) clock: Clock,
}

impl Keeper {
    pub(crate) async fn keep(mut self) {
        let mut next = self.clock.now();
        loop {
            next += FILES;
            tokio::time::sleep_until(next).await;
            let certificates = self.certificates.refresh().await;
            if self.truster.refresh().await || certificates {
                let subjects = self.truster.trust.borrow().subjects();
                self.tls.replace(self.certificates.certificates(), subjects);
            }
            next = next.max(self.clock.now());
        }
    }
}

fn bundle(contents: &[Vec<u8>]) -> Result<Bundle, String> {
    Bundle::read(contents.first().map(Vec::as_slice).unwrap_or_default())
}

async fn refreshed(files: &mut Option<Files<Bundle>>) -> Option<Bundle> {
    files.as_mut()?.refresh().await
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::testing::{Authority, answer, api, authentication};

    /// A cluster that returns `*said` as its client CA, or is down if that is `None`.
    fn cluster(said: &Arc<Mutex<Option<String>>>) -> Api {
        let said = said.clone();
        api(move |_, _| match &*said.lock() {
            Some(pem) => answer(200, &json!({ "data": { "client-ca-file": pem } })),
            None => answer(500, &json!({ "code": 500, "message": "down" })),
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_does_not_answer_ends_the_start_unless_that_is_tolerated() {
        let said = Arc::new(Mutex::new(None));
        let mut options = authentication();
        options.skip_lookup = false;
        let open = async |options: &_| Truster::open(options, Some(cluster(&said)), Clock::system()).await;
        let err = open(&options).await.err().unwrap().to_string();
        assert!(err.contains("extension-apiserver-authentication") && err.contains("tolerate"), "{err}");

        options.tolerate_lookup_failure = true;
        let (mut truster, trust) = open(&options).await.unwrap();
        assert!(trust.borrow().subjects().is_none());
        // The lookup is repeated until it succeeds, and later because its result may have changed.
        for name in ["first", "second"] {
            *said.lock() = Some(Authority::new(name).pem());
            assert!(!truster.refresh().await, "not so soon");
            tokio::time::advance(CLUSTER).await;
            assert!(truster.refresh().await);
            let subjects = trust.borrow().subjects().unwrap();
            assert!(String::from_utf8_lossy(subjects[0].as_ref()).contains(name));
        }
        // A failed lookup keeps the previous result.
        *said.lock() = None;
        tokio::time::advance(CLUSTER).await;
        assert!(!truster.refresh().await && trust.borrow().subjects().is_some());
    }

    #[tokio::test]
    async fn a_file_comes_before_the_cluster_and_is_read_again() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("ca.crt");
        std::fs::write(&path, Authority::new("file").pem()).unwrap();
        let said = Arc::new(Mutex::new(Some(Authority::new("cluster").pem())));
        let mut options = authentication();
        (options.skip_lookup, options.client_authorities) = (false, Some(path.clone()));
        let (mut truster, trust) = Truster::open(&options, Some(cluster(&said)), Clock::system()).await.unwrap();
        assert_eq!(trust.borrow().subjects().unwrap().len(), 1);
        std::fs::write(&path, "half").unwrap();
        assert!(!truster.refresh().await);
        std::fs::write(&path, Authority::new("renewed").pem()).unwrap();
        assert!(truster.refresh().await);
        let subjects = trust.borrow().subjects().unwrap();
        assert!(String::from_utf8_lossy(subjects[0].as_ref()).contains("renewed"));
    }

    #[tokio::test]
    async fn a_file_without_authorities_is_an_error_with_its_flag() {
        let mut options = authentication();
        options.client_authorities = Some("/gone/ca.crt".into());
        let err = Truster::open(&options, None, Clock::system()).await.err().unwrap().to_string();
        assert!(err.contains("--client-ca-file") && err.contains("/gone/ca.crt"), "{err}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_common_authority_makes_no_front_proxies_unless_they_are_named_by_flags_or_cluster() {
        let place = tempfile::tempdir().unwrap();
        let (path, authority) = (place.path().join("ca.crt"), Authority::new("common").pem());
        std::fs::write(&path, &authority).unwrap();
        let mut options = authentication();
        (options.client_authorities, options.proxy_authorities) = (Some(path.clone()), Some(path.clone()));
        let log = ::testing::listen();
        let (_, trust) = Truster::open(&options, None, Clock::system()).await.unwrap();
        assert!(trust.borrow().clients.is_some() && trust.borrow().proxies.is_none());
        let told = log.lines();
        assert!(
            told.len() == 1 && told[0].contains("WARN") && told[0].contains("no front proxy is believed"),
            "{told:?}"
        );
        options.proxy_names = vec!["front".to_owned()];
        let (_, trust) = Truster::open(&options, None, Clock::system()).await.unwrap();
        assert!(trust.borrow().clients.is_some() && trust.borrow().proxies.is_some());
        assert_eq!(log.lines(), told);

        let said = Arc::new(Mutex::new(json!({ "requestheader-client-ca-file": authority })));
        let server = said.clone();
        let cluster = api(move |_, _| answer(200, &json!({ "data": *server.lock() })));
        (options.skip_lookup, options.proxy_authorities) = (false, None);
        let (mut truster, trust) = Truster::open(&options, Some(cluster), Clock::system()).await.unwrap();
        for (name, believed) in [("front", true), ("", false)] {
            assert!(trust.borrow().proxies.is_some() != believed && trust.borrow().clients.is_some(), "{name:?}");
            let names = if name.is_empty() { json!("") } else { json!(format!("[{name:?}]")) };
            said.lock()["requestheader-allowed-names"] = names;
            tokio::time::advance(CLUSTER).await;
            assert!(truster.refresh().await);
            assert_eq!(trust.borrow().proxies.is_some(), believed, "{name:?}");
        }
    }
}
