use std::time::Duration;

use client::{Clients, Connection, Environment, Limits, Term};
use clock::Clock;
use leader_election::{Config, Deps, Elector, Health, Signal, Takeover};
use metrics::Metrics;
use tasks::Scope;

use super::{Link, Server, epoch};

/// One manager, but only its leader election. Dropping it is a crash.
pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) elector: Elector,
    pub(crate) term: Term,
    pub(crate) clock: Clock,
    pub(crate) metrics: Metrics,
    pub(crate) health: Health,
    pub(crate) link: Link,
    _scope: Scope,
}

pub(crate) fn config(identity: &str) -> Config {
    Config {
        lease_duration: Duration::from_secs(15),
        renew_deadline: Duration::from_secs(10),
        retry_period: Duration::from_secs(2),
        namespace: "kube-system".into(),
        name: "kube-controller-manager".into(),
        identity: identity.into(),
    }
}

impl Process {
    /// Starts with its own clock, which has the same time as all others.
    pub(crate) fn start(server: &Server, name: &str, seed: u64) -> Self {
        Self::start_at(server, name, seed, epoch(), server.link(name))
    }

    /// Starts with a clock that shows `wall`, and with its own network.
    pub(crate) fn start_at(server: &Server, name: &str, seed: u64, wall: clock::Timestamp, link: Link) -> Self {
        let clock = Clock::virtual_from(wall);
        let (metrics, term, scope) = (Metrics::new(), Term::new(clock.clone()), Scope::new());
        let environment = Environment {
            clock: clock.clone(),
            metrics: metrics.clone(),
            term: term.clone(),
            stop: tokio_util::sync::CancellationToken::new(),
            user_agent: name.to_owned(),
        };
        let clients = Clients::new(Connection::in_memory(server.transport(&link)), environment);
        let config = config(name);
        let deps = Deps {
            api: clients.lease(config.request_timeout()),
            watcher: clients.watcher(Limits::NONE),
            clock: clock.clone(),
            metrics: metrics.clone(),
            term: term.clone(),
            rng: fastrand::Rng::with_seed(seed),
            spawner: scope.spawner(),
        };
        let elector = Elector::new(config, deps).unwrap();
        let health = elector.health();
        Self { name: name.to_owned(), elector, term, clock, metrics, health, link, _scope: scope }
    }

    /// Waits at most `seconds` until it leads, and returns the previous holder.
    #[track_caller]
    pub(crate) fn wait_until_leading(&mut self, seconds: f64) -> impl Future<Output = Takeover> {
        let caller = std::panic::Location::caller();
        async move {
            let found = self.until(seconds, |signal| match signal {
                Signal::Acquired(takeover) => Some(takeover),
                Signal::Lost(why) => panic!("{caller}: lost: {why}"),
                Signal::ProveAhead { .. } | Signal::NewLeader(_) => None,
            });
            found.await.unwrap_or_else(|| panic!("{caller}: does not lead within {seconds} s"))
        }
    }

    /// Waits at most `seconds` until it has lost the Lease, and returns the reason.
    #[track_caller]
    pub(crate) fn wait_until_lost(&mut self, seconds: f64) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        async move {
            let found = self.until(seconds, |signal| match signal {
                Signal::Lost(why) => Some(why),
                _ => None,
            });
            found.await.unwrap_or_else(|| panic!("{caller}: has not lost within {seconds} s"))
        }
    }

    /// Returns all signals within `seconds`.
    pub(crate) async fn signals(&mut self, seconds: f64) -> Vec<Signal> {
        let mut all = Vec::new();
        let none: Option<()> = self
            .until(seconds, |signal| {
                all.push(signal);
                None
            })
            .await;
        assert!(none.is_none());
        all
    }

    async fn until<T>(&mut self, seconds: f64, mut wanted: impl FnMut(Signal) -> Option<T>) -> Option<T> {
        let search = async {
            loop {
                if let Some(found) = wanted(self.elector.next().await) {
                    return found;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs_f64(seconds), search).await.ok()
    }

    /// The value of `leader_election_master_status`.
    pub(crate) fn master_status(&self) -> i64 {
        self.metric("leader_election_master_status")
    }

    pub(crate) fn metric(&self, name: &str) -> i64 {
        let text = self.metrics.encode();
        let line = format!("{name}{{name=\"kube-controller-manager\"}} ");
        let found = text.lines().find_map(|it| it.strip_prefix(&line));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }
}
