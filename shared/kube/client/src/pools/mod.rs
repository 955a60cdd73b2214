//! Connections to a real API server.
//!
//! Six [`Pool`]s, so that one kind of traffic never waits behind another: watches hold streams for minutes, the Lease
//! must get through when everything else is stuck, and writes leave only while a term lasts.
//!
//! Own and small rather than hyper-util's `client::pool`: a connection here can be retired (by a frozen watch, a missed
//! deadline, a renewed certificate) while its streams go on, a watch connection takes a bounded number of streams, and
//! everybody who waits for the first connection waits for the same one. Reading order: `pool`, `connect`, `addresses`,
//! `http2`, `http1`, `guard`.

mod addresses;
mod body;
mod connect;
pub(crate) mod credentials;
mod guard;
mod http1;
mod http2;
mod pool;
mod target;

use std::{sync::Arc, time::Duration};

use clock::Clock;
use tasks::Spawner;
use tokio::sync::Semaphore;
use tower::util::BoxCloneSyncService;

use self::{
    addresses::FailedAddresses,
    connect::{Connector, Resolver, system_resolver},
    credentials::Credentials,
    guard::Guard,
    pool::{Policy, Pool},
    target::Target,
};
use crate::{
    ConfigError, Pools, Term, Transport,
    exec::{Plugin, Plugins},
};

pub(crate) use self::body::Retire;

/// What connections need from the manager.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Where connections are driven.
    pub spawner: Spawner,
    /// While it lasts, bytes of writes may leave.
    pub term: Term,
    /// Time.
    pub clock: Clock,
    /// How long written bytes may stay unacknowledged: lease duration − renew deadline, so that nothing which left
    /// within the term arrives after the lease.
    pub write_timeout: Duration,
    /// How long one request for the Lease may take: a connection for it is made within that time.
    pub lease_attempt: Duration,
    /// Connections of one process share their exec plugins.
    pub plugins: Plugins,
}

/// No connection could be made, so nothing was sent. A transport in memory may say it too.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// A watch connection takes no more, whatever the server allows: a broken one then breaks few watches.
const WATCHES: usize = 64;
/// HTTP/1.1 carries one request at a time.
const HTTP1_CONNECTIONS: usize = 8;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const LEASE_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Of a watch connection that speaks HTTP/2, beneath TLS.
const WATCH_READ_BUFFER: usize = 64 << 10;

/// The pools to the server of a configuration, whose exec plugin is apart. Nothing connects before the first request.
///
/// # Errors
/// When a certificate, key, name or address cannot be used.
pub(crate) fn open(config: &kube::Config, plugin: Option<Plugin>, options: PoolOptions) -> Result<Pools, ConfigError> {
    open_with(config, plugin, options, &system_resolver())
}

fn open_with(
    config: &kube::Config,
    plugin: Option<Plugin>,
    options: PoolOptions,
    resolver: &Resolver,
) -> Result<Pools, ConfigError> {
    let PoolOptions { spawner, term, clock, write_timeout, lease_attempt, plugins: _ } = options;
    let target = Arc::new(Target::of(&config.cluster_url)?);
    let credentials = Arc::new(Credentials::open(config.clone(), target.is_tls(), plugin, clock.clone())?);
    // The server believes a certificate rather than a token that comes on its connection.
    let mut anonymous = config.clone();
    anonymous.auth_info = kube::config::AuthInfo::default();
    let without = Arc::new(Credentials::open(anonymous, target.is_tls(), None, clock.clone())?);
    let failed = FailedAddresses::default();
    let pool = |policy: Policy, guard: Option<Guard>, credentials: &Arc<Credentials>| {
        let addresses = (resolver.clone(), failed.clone());
        let connector = Connector::new(config, target.clone(), guard, addresses, &policy)?;
        let pool = Pool::new(policy, connector, credentials.clone(), spawner.clone(), clock.clone());
        Ok::<Transport, ConfigError>(BoxCloneSyncService::new(tower::service_fn(move |request| {
            let pool = pool.clone();
            async move { pool.send(request).await }
        })))
    };
    let guard = Guard { term, write_timeout };
    let usual = Policy {
        name: "reads",
        streams: None,
        http1: HTTP1_CONNECTIONS,
        connect_timeout: CONNECT_TIMEOUT,
        read_buffer: None,
    };
    Ok(Pools {
        watches: pool(
            Policy {
                name: "watches",
                streams: Some(WATCHES),
                http1: Semaphore::MAX_PERMITS,
                read_buffer: Some(WATCH_READ_BUFFER),
                ..usual
            },
            None,
            &credentials,
        )?,
        writes: pool(Policy { name: "writes", ..usual }, Some(guard.clone()), &credentials)?,
        lease: pool(
            Policy { name: "lease", connect_timeout: LEASE_CONNECT_TIMEOUT.min(lease_attempt), ..usual },
            None,
            &credentials,
        )?,
        reads: pool(usual, None, &credentials)?,
        account_reads: pool(Policy { name: "account reads", ..usual }, None, &without)?,
        account_writes: pool(Policy { name: "account writes", ..usual }, Some(guard), &without)?,
    })
}

#[cfg(test)]
mod tests;
