//! The door to the API server.
//!
//! [`Connection`] is where bytes go: six pools of connections, or a service in memory. [`Clients`] puts the layers on
//! top and hands out what the rest of the manager speaks with: [`Api`] (the only door for writes), [`Watcher`] for
//! reflectors, the lease's own client. Nobody above this crate knows HTTP.
//!
//! Kube gives the kubeconfig ([`load`]) and the layer of extra headers. Its `Client` is not used: its buffer is a detached
//! task for each client, and queues requests above the fence.
//!
//! Reading order: [`Api`] and [`ApiError`], then [`Term`] (the fence), [`Watcher`], [`Clients`], [`Accounts`] (identities of
//! controllers), the layers, the pools.

mod accounts;
mod api_client;
mod certificate;
mod clients;
mod config;
mod error;
mod exec;
mod fence;
mod in_cluster;
mod kubeconfig;
mod layers;
mod ledger;
mod pools;
mod watch;

pub use accounts::{ACCOUNT_NAMESPACE, Account, Accounts, account_user};
pub use api_client::{Api, DeleteOptions, ListOptions, Patch, Propagation, Written};
pub use certificate::certified;
pub use clients::{Clients, Connection, Environment, Limits, Pools};
pub use config::{ConfigError, load, redacted};
pub use error::{ApiError, NotSent};
pub use exec::Plugins;
pub use fence::{Term, TermLimits};
pub use in_cluster::InClusterError;
pub use ledger::{Ledger, Writes};
pub use pools::{PoolOptions, Unreachable};
pub use watch::{Lines, LinesError, Token, Watcher};

/// What travels with a request: bytes that can be sent again.
pub type Body = http_body_util::Full<bytes::Bytes>;
/// What comes back: a stream of bytes.
pub type Incoming = http_body_util::combinators::UnsyncBoxBody<bytes::Bytes, BoxError>;
/// Whatever a transport says went wrong.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The seam beneath every layer: real connections, or a server in memory. Simulation sits here.
pub type Transport = tower::util::BoxCloneSyncService<http::Request<Body>, http::Response<Incoming>, BoxError>;
/// A transport with all layers on top.
pub(crate) type Stack = tower::util::BoxCloneSyncService<http::Request<Body>, http::Response<Incoming>, ApiError>;
