//! The client for the API server.
//!
//! [`Connection`] is the transport: six pools of connections, or a service in memory. [`Clients`] adds the layers and
//! creates the clients: [`Api`] (all writes go through it), [`Watcher`] for reflectors, and the client of the Lease.
//! Crates above this one do not use HTTP.
//!
//! Kube provides the kubeconfig ([`load`]) and the layer of extra headers. Its `Client` is not used, because its buffer
//! is a detached task for each client and queues requests above the fence.
//!
//! Reading order: [`Api`] and [`ApiError`], then [`Term`] (the fence), [`Watcher`], [`Clients`], [`Accounts`] (the
//! identities of controllers), the layers, the pools.

mod accounts;
mod api_client;
mod certificate;
mod clients;
mod config;
pub mod discovery;
mod error;
mod exec;
mod fence;
mod in_cluster;
mod kubeconfig;
mod layers;
mod pools;
mod recent_writes;
mod watch;

pub use accounts::{ACCOUNT_NAMESPACE, Account, Accounts, account_user};
pub use api_client::{Api, DeleteOptions, ListOptions, Patch, Propagation, Written};
pub use certificate::certified_key;
pub use clients::{Clients, Connection, Environment, Limits, Pools};
pub use config::{ConfigError, load, redacted};
pub use error::{ApiError, NotSent, READ_TIMEOUT, WRITE_TIMEOUT, error_chain, within};
pub use exec::Plugins;
pub use fence::{Term, TermLimits};
pub use in_cluster::InClusterError;
pub use pools::{PoolOptions, Unreachable, credentials::accept_any_certificate};
pub use recent_writes::{DeletedObject, RecentWrites, Writes};
pub use watch::{Lines, LinesError, Permit, Watcher};

/// The body of a request: bytes that can be sent again.
pub type Body = http_body_util::Full<bytes::Bytes>;
/// The body of a response: a stream of bytes.
pub type Incoming = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, BoxError>;
/// Any error of a transport.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The service below all layers: real connections, or a server in memory. A simulation replaces it.
pub type Transport = tower::util::BoxCloneSyncService<http::Request<Body>, http::Response<Incoming>, BoxError>;
/// A transport with all layers.
pub(crate) type Stack = tower::util::BoxCloneSyncService<http::Request<Body>, http::Response<Incoming>, ApiError>;
