use std::time::Duration;

use client::{Clients, Connection, Limits, Term, Transport};
use clock::Clock;
use controller::Deps;
use informer::Informers;
use metrics::Metrics;
use tasks::Scope;
use tokio_util::sync::CancellationToken;

/// What a manager gives to its controllers, for a server in memory: a term without end, no resync, fixed seeds.
pub struct Rig {
    /// For the builders of controllers.
    pub deps: Deps,
    /// Owns every task. Dropping it simulates a crash.
    pub scope: Scope,
    /// Cancelled when the manager stops.
    pub stop: CancellationToken,
}

impl Rig {
    /// All requests to `server` have these limits.
    #[must_use]
    pub fn new(server: Transport, clock: Clock, limits: Limits) -> Self {
        Self::within(Scope::new(), CancellationToken::new(), server, clock, limits, 7)
    }

    /// The same in an existing scope, with its own seed.
    #[must_use]
    pub fn within(
        scope: Scope,
        stop: CancellationToken,
        server: Transport,
        clock: Clock,
        limits: Limits,
        seed: u64,
    ) -> Self {
        let metrics = Metrics::new();
        let environment = client::Environment {
            clock: clock.clone(),
            metrics: metrics.clone(),
            term: Term::endless(clock.clone()),
            stop: stop.clone(),
            user_agent: "test".to_owned(),
        };
        let clients = Clients::new(Connection::in_memory(server), environment);
        let informers = Informers::new(informer::Environment {
            watcher: clients.watcher(limits),
            clock: clock.clone(),
            metrics: metrics.clone(),
            spawner: scope.spawner(),
            rng_seed: seed,
        });
        let deps = Deps {
            informers,
            clients,
            clock,
            metrics,
            spawner: scope.spawner(),
            limits,
            seed,
            resync: Duration::ZERO,
            host: "host".to_owned(),
            stopping: stop.clone(),
        };
        Self { deps, scope, stop }
    }
}
