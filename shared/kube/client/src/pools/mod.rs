//! Connections to a real API server.
//!
//! There are six [`Pool`]s, so that one kind of traffic does not wait behind another: watches hold streams for minutes,
//! requests for the Lease must succeed when all other traffic is blocked, and writes are sent only in a term.
//!
//! hyper-util's `client::pool` is not used: here a connection can be retired (by a frozen watch, a missed deadline, a
//! renewed certificate) while its streams continue, a watch connection has a limited number of streams, and all
//! requests that wait for the first connection share one attempt to connect.
//!
//! Reading order: `pool`, `connect`, `addresses`, `http2`, `http1`, `guard`.

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
    pool::Pool,
    target::Target,
};
use crate::{
    ConfigError, Pools, Term, Transport,
    exec::{Plugin, Plugins},
};

pub(crate) use self::body::RetireHandle;

/// The dependencies and options of the pools.
#[derive(Debug, Clone)]
pub struct PoolOptions {
    /// Starts the tasks that drive connections.
    pub spawner: Spawner,
    /// The bytes of writes are sent only in this term.
    pub term: Term,
    /// The clock.
    pub clock: Clock,
    /// How long written bytes may be unacknowledged: lease duration − renew deadline, so that no bytes that were sent
    /// in the term arrive after the end of the lease.
    pub write_timeout: Duration,
    /// The time limit of one request for the Lease. A connection for it must be established within this time.
    pub lease_attempt: Duration,
    /// The exec plugins, which all connections of a process share.
    pub plugins: Plugins,
}

/// No connection could be established, so nothing was sent. A transport in memory may return it too.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Unreachable(pub String);

/// How one kind of traffic uses connections.
#[derive(Debug, Clone, Copy)]
struct PoolPolicy {
    name: &'static str,
    /// The maximum number of streams on an HTTP/2 connection; more streams need another connection. `None` means one
    /// connection with the server's own limit. Other requests wait in this pool, where the fence can still stop a
    /// write. Inside the connection it could not.
    streams: Option<usize>,
    /// The maximum number of connections if the server supports only HTTP/1.1.
    http1: usize,
    connect_timeout: Duration,
    /// The read buffer below TLS and HTTP/2, for connections with much incoming data.
    read_buffer: Option<usize>,
}

/// The maximum number of streams on a watch connection, even if the server allows more. A broken connection then ends
/// only a few watches.
const WATCHES: usize = 64;
/// A connection with HTTP/1.1 has one request at a time.
const HTTP1_CONNECTIONS: usize = 8;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const LEASE_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The read buffer of a watch connection with HTTP/2, below TLS.
const WATCH_READ_BUFFER: usize = 64 << 10;

/// Opens the pools to the server of a configuration, whose exec plugin is separate. No connection is made before the
/// first request.
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
    // A server prefers the client certificate of a connection to a token, so these connections have no certificate.
    let mut anonymous = config.clone();
    anonymous.auth_info = kube::config::AuthInfo::default();
    let without = Arc::new(Credentials::open(anonymous, target.is_tls(), None, clock.clone())?);
    let failed = FailedAddresses::default();
    let pool = |policy: PoolPolicy, guard: Option<Guard>, credentials: &Arc<Credentials>| {
        let addresses = (resolver.clone(), failed.clone());
        let connector = Connector::new(config, target.clone(), guard, addresses, &policy)?;
        let pool = Pool::new(policy, connector, credentials.clone(), spawner.clone(), clock.clone());
        Ok::<Transport, ConfigError>(BoxCloneSyncService::new(tower::service_fn(move |request| {
            let pool = pool.clone();
            async move { pool.send(request).await }
        })))
    };
    let guard = Guard { term, write_timeout };
    let usual = PoolPolicy {
        name: "reads",
        streams: None,
        http1: HTTP1_CONNECTIONS,
        connect_timeout: CONNECT_TIMEOUT,
        read_buffer: None,
    };
    Ok(Pools {
        watches: pool(
            PoolPolicy {
                name: "watches",
                streams: Some(WATCHES),
                http1: Semaphore::MAX_PERMITS,
                read_buffer: Some(WATCH_READ_BUFFER),
                ..usual
            },
            None,
            &credentials,
        )?,
        writes: pool(PoolPolicy { name: "writes", ..usual }, Some(guard.clone()), &credentials)?,
        lease: pool(
            PoolPolicy { name: "lease", connect_timeout: LEASE_CONNECT_TIMEOUT.min(lease_attempt), ..usual },
            None,
            &credentials,
        )?,
        reads: pool(usual, None, &credentials)?,
        account_reads: pool(PoolPolicy { name: "account reads", ..usual }, None, &without)?,
        account_writes: pool(PoolPolicy { name: "account writes", ..usual }, Some(guard), &without)?,
    })
}

#[cfg(test)]
mod tests;
