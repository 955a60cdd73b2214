use std::{path::Path, time::Duration};

use client::{Clients, Connection, Environment, Limits, Plugins, PoolOptions, Term};
use clock::Clock;
use informer::Informers;
use metrics::Metrics;
use tasks::Scope;
use tokio_util::sync::CancellationToken;

/// The manager's informers without a manager, in this process. Dropping it simulates a crash.
pub struct StandaloneInformers {
    /// The registry: an informer starts at its first use.
    pub informers: Informers,
    metrics: Metrics,
    _scope: Scope,
}

impl StandaloneInformers {
    /// Creates the informers for the cluster of a kubeconfig. No request is sent before the first informer is used.
    ///
    /// # Errors
    /// If the kubeconfig cannot be used.
    pub fn open(kubeconfig: &Path, seed: u64) -> anyhow::Result<Self> {
        let (clock, metrics, scope) = (Clock::system(), Metrics::new(), Scope::new());
        let term = Term::endless(clock.clone());
        let options = PoolOptions {
            spawner: scope.spawner(),
            term: term.clone(),
            clock: clock.clone(),
            write_timeout: Duration::from_secs(30),
            lease_attempt: Duration::from_secs(5),
            plugins: Plugins::new(&metrics),
        };
        let connection = Connection::open(client::load(Some(kubeconfig), None)?, options)?;
        let environment = Environment {
            clock: clock.clone(),
            metrics: metrics.clone(),
            term,
            stop: CancellationToken::new(),
            user_agent: "mini-kcm-e2e".to_owned(),
        };
        let informers = Informers::new(informer::Environment {
            watcher: Clients::new(connection, environment).watcher(Limits::NONE),
            clock,
            metrics: metrics.clone(),
            spawner: scope.spawner(),
            rng_seed: seed,
        });
        Ok(Self { informers, metrics, _scope: scope })
    }

    /// The sum of all series of a metric.
    #[must_use]
    pub fn sum(&self, family: &str) -> u64 {
        let text = self.metrics.encode();
        let samples = text.lines().filter_map(|line| {
            let (name, rest) = line.split_once(['{', ' '])?;
            (name == family).then(|| rest.rsplit(' ').next()?.parse::<u64>().ok())?
        });
        samples.sum()
    }
}
