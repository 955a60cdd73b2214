use std::{sync::Arc, time::Duration};

use clock::Clock;
use metrics::Metrics;
use tasks::Spawner;
use tokio_util::sync::CancellationToken;

use crate::{
    Account, Accounts, Api, ConfigError, PoolOptions, RecentWrites, Stack, Term, Transport, Watcher,
    layers::{
        Authorize, Common, CreateTimeouts, DEADLINE, LayerOptions, Layers, RateLimiter, RequestMetrics, TimeLimit,
        WATCH_OPEN_TIMEOUT, authorize, user_agent,
    },
    pools,
};

/// All informers use one client, as in upstream.
const INFORMERS: &str = "shared-informers";
/// The client name of upstream.
const LEADER_ELECTION: &str = "leader-election";
/// The client that requests the tokens of controllers.
const ACCOUNTS: &str = "service-account-tokens";

/// One transport for each pool, so that one kind of traffic does not wait behind another.
#[derive(Clone)]
pub struct Pools {
    /// Only watches, which hold their streams for minutes.
    pub watches: Transport,
    /// Reads, reviews and tokens.
    pub reads: Transport,
    /// The writes of controllers, fenced by the term.
    pub writes: Transport,
    /// The requests for the Lease.
    pub lease: Transport,
    /// Reads of controllers with their own identity, on connections without our client certificate.
    pub account_reads: Transport,
    /// The writes of these controllers, fenced by the term.
    pub account_writes: Transport,
}

/// The pools, and our identity.
#[derive(Clone)]
pub struct Connection {
    /// The transports.
    pub pools: Pools,
    host: Arc<str>,
    authorize: Option<Authorize>,
}

impl Connection {
    /// Opens pools to the server of a configuration. No connection is made before the first request.
    ///
    /// # Errors
    /// When an address, certificate, key, token or plugin of the configuration cannot be used.
    pub fn open(mut config: kube::Config, options: PoolOptions) -> Result<Self, ConfigError> {
        let host = config.cluster_url.authority().map_or("", |it| it.as_str().rsplit('@').next().unwrap_or_default());
        let host = Arc::from(host);
        let PoolOptions { clock, spawner, plugins, .. } = &options;
        // Taken out, because kube would run the plugin too.
        let exec = config.auth_info.exec.take().filter(|_| !has_other_credentials(&config.auth_info));
        let plugin = exec.map(|it| plugins.plugin(&it, clock, spawner)).transpose()?;
        let authorize = authorize(&config, plugin.clone(), clock)?;
        let pools = pools::open(&config, plugin, options)?;
        Ok(Self { pools, host, authorize })
    }

    /// All pools use one service, a server in memory.
    #[must_use]
    pub fn in_memory(service: Transport) -> Self {
        let pools = Pools {
            watches: service.clone(),
            reads: service.clone(),
            writes: service.clone(),
            lease: service.clone(),
            account_reads: service.clone(),
            account_writes: service,
        };
        Self { pools, host: Arc::from("in-memory"), authorize: None }
    }
}

/// True if the configuration identifies us without a plugin. A plugin is used only if this is false, as in client-go. A
/// certificate counts too.
fn has_other_credentials(user: &kube::config::AuthInfo) -> bool {
    let password = user.username.is_some() && user.password.is_some();
    let certificate = (user.client_certificate.is_some() || user.client_certificate_data.is_some())
        && (user.client_key.is_some() || user.client_key_data.is_some());
    password || certificate || user.token.is_some() || user.token_file.is_some() || user.auth_provider.is_some()
}

/// The dependencies of the layers.
#[derive(Clone)]
pub struct Environment {
    /// The clock.
    pub clock: Clock,
    /// The registry of the `rest_client_*` metrics.
    pub metrics: Metrics,
    /// The term in which controllers may write.
    pub term: Term,
    /// Cancels waits for tokens and for `Retry-After`. Requests in flight are completed.
    pub stop: CancellationToken,
    /// The User-Agent, to which `/<name>` is added.
    pub user_agent: String,
}

/// `--kube-api-qps` and `--kube-api-burst`. A qps of zero or less means no limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Requests per second.
    pub qps: f64,
    /// Requests in a burst.
    pub burst: u32,
}

impl Limits {
    /// No limit.
    pub const NONE: Self = Self { qps: 0.0, burst: 0 };
}

/// Creates the clients: one per controller, each with its own rate limiter.
#[derive(Clone)]
pub struct Clients {
    pools: Pools,
    environment: Environment,
    common: Common,
    recent_writes: RecentWrites,
}

impl Clients {
    /// Adds the layers to a connection.
    #[must_use]
    pub fn new(connection: Connection, environment: Environment) -> Self {
        let Connection { pools, host, authorize } = connection;
        let Environment { clock, metrics, stop, .. } = &environment;
        let common = Common {
            clock: clock.clone(),
            stop: stop.clone(),
            metrics: Arc::new(RequestMetrics::new(metrics, host)),
            warnings: Arc::default(),
            authorize,
        };
        let recent_writes = RecentWrites::new(clock.clone());
        Self { pools, environment, common, recent_writes }
    }

    /// The same clients for one controller: fenced by its part of the term, and stopped with `stop`.
    #[must_use]
    pub fn for_part(&self, term: Term, stop: CancellationToken) -> Self {
        let common = Common { stop: stop.clone(), ..self.common.clone() };
        Self { environment: Environment { term, stop, ..self.environment.clone() }, common, ..self.clone() }
    }

    /// The recent writes of the fenced clients.
    #[must_use]
    pub fn recent_writes(&self) -> &RecentWrites {
        &self.recent_writes
    }

    /// A client for a controller or its recorder. Its writes are fenced by the term.
    #[must_use]
    pub fn controller(&self, name: &str, limits: Limits) -> Api {
        self.fenced(name, limits, &self.common, [&self.pools.reads, &self.pools.writes])
    }

    /// The same with a controller's own identity. A request contains its token and no other identity. Impersonation and
    /// extra headers of the kubeconfig belong to the identity of the manager and are not sent, as in upstream.
    #[must_use]
    pub fn controller_as(&self, account: &Account, name: &str, limits: Limits) -> Api {
        let common = Common { authorize: Some(account.authorize()), ..self.common.clone() };
        self.fenced(name, limits, &common, [&self.pools.account_reads, &self.pools.account_writes])
    }

    /// The identities for controllers. Their tokens are requested with the identity of the manager, in tasks of
    /// `spawner`.
    #[must_use]
    pub fn accounts(&self, limits: Limits, spawner: Spawner) -> Accounts {
        let Environment { clock, metrics, .. } = &self.environment;
        let api = self.unfenced(ACCOUNTS, limits);
        Accounts::new(api, clock.clone(), spawner, metrics)
    }

    fn fenced(&self, name: &str, limits: Limits, common: &Common, [reads, writes]: [&Transport; 2]) -> Api {
        let rate_limiter = Arc::new(RateLimiter::new(name, limits));
        let Environment { clock, metrics, term, .. } = &self.environment;
        let read = LayerOptions { retries: true, ..self.layer_options(name, &rate_limiter) };
        let write =
            LayerOptions { retries: true, fence: Some(term.clone()), ..self.layer_options(name, &rate_limiter) };
        Api {
            reads: Layers::new(common, reads, read).into_stack(),
            writes: Layers::new(common, writes, write).into_stack(),
            create_timeouts: Some(CreateTimeouts::new(name, clock.clone(), term.clone(), metrics)),
            recent_writes: Some(self.recent_writes.clone()),
            rate_limiter,
        }
    }

    /// A client for reviews, tokens and preflight. It has no fence and retries nothing.
    #[must_use]
    pub fn unfenced(&self, name: &str, limits: Limits) -> Api {
        self.unfenced_within(name, limits, DEADLINE)
    }

    /// The same for requests that take no longer than `attempt`. A connection without a response by then is not used
    /// again.
    #[must_use]
    pub fn unfenced_within(&self, name: &str, limits: Limits, attempt: Duration) -> Api {
        let rate_limiter = Arc::new(RateLimiter::new(name, limits));
        let options = LayerOptions { time_limit: TimeLimit::Whole(attempt), ..self.layer_options(name, &rate_limiter) };
        let reads = self.stack(&self.pools.reads, options);
        Api { reads: reads.clone(), writes: reads, create_timeouts: None, recent_writes: None, rate_limiter }
    }

    /// A client for reflectors, which share one rate limiter. Opening a watch takes a token too. Nothing is retried.
    #[must_use]
    pub fn watcher(&self, limits: Limits) -> Watcher {
        let rate_limiter = Arc::new(RateLimiter::new(INFORMERS, limits));
        let watches = LayerOptions {
            time_limit: TimeLimit::Head(WATCH_OPEN_TIMEOUT),
            ..self.layer_options(INFORMERS, &rate_limiter)
        };
        let lists = Layers::new(&self.common, &self.pools.reads, self.layer_options(INFORMERS, &rate_limiter));
        Watcher {
            rate_limiter: lists.clone(),
            lists: lists.into_stack(),
            watches: self.stack(&self.pools.watches, watches),
            urgent: false,
        }
    }

    /// A client for the Lease only, with its own connection, without rate limit and retries. A request takes no longer
    /// than `attempt`. A connection without a response by then is not used again, so that a hanging renewal leaves time
    /// for the next attempt.
    #[must_use]
    pub fn lease(&self, attempt: Duration) -> Api {
        let rate_limiter = Arc::new(RateLimiter::new(LEADER_ELECTION, Limits::NONE));
        let options = LayerOptions {
            time_limit: TimeLimit::Whole(attempt),
            ..self.layer_options(LEADER_ELECTION, &rate_limiter)
        };
        let lease = self.stack(&self.pools.lease, options);
        Api { reads: lease.clone(), writes: lease, create_timeouts: None, recent_writes: None, rate_limiter }
    }

    fn layer_options(&self, name: &str, rate_limiter: &Arc<RateLimiter>) -> LayerOptions {
        LayerOptions {
            rate_limiter: rate_limiter.clone(),
            user_agent: user_agent(&self.environment.user_agent, name),
            retries: false,
            time_limit: TimeLimit::Whole(DEADLINE),
            fence: None,
        }
    }

    fn stack(&self, transport: &Transport, options: LayerOptions) -> Stack {
        Layers::new(&self.common, transport, options).into_stack()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plugin_is_used_only_without_other_credentials() {
        for (name, user, want) in [
            ("nothing", json!({}), false),
            ("a token", json!({ "token": "t" }), true),
            ("a token in a file", json!({ "tokenFile": "/t" }), true),
            ("a password", json!({ "username": "u", "password": "p" }), true),
            ("a certificate", json!({ "client-certificate": "/c", "client-key": "/k" }), true),
            ("a certificate inline", json!({ "client-certificate-data": "Yw==", "client-key-data": "aw==" }), true),
            ("half a certificate", json!({ "client-certificate": "/c" }), false),
        ] {
            assert_eq!(has_other_credentials(&serde_json::from_value(user).unwrap()), want, "{name}");
        }
    }
}
