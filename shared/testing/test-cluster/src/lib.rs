//! A small API server: in memory for tests, on loopback for end-to-end runs; never part of mini-kcm.
//!
//! It responds like kube-apiserver 1.36 as far as it is implemented; other features of a real server get 501. Tests
//! send requests through [`TestCluster::service`] (below the client's layers) or [`TestCluster::serve`] (HTTPS on
//! loopback), read and change objects with the direct methods of [`TestCluster`], and inject faults with
//! [`TestCluster::intercept`] and the methods next to it. Time comes from a given clock, randomness from a seed.
//!
//! Some objects are stored without an effect: LimitRanges and ResourceQuotas limit nothing, roles and their bindings
//! allow and forbid nothing, and custom objects are not validated against their schemas.
//!
//! Reading order: `kinds` (what is served, as a table), `store` (objects, versions, history) and `stored` (one object
//! as bytes), `rest` (routes and verbs), then one file per topic: `get`, `list`, `watch`, `write`, `validate`, `patch`,
//! `json_patch`, `strategic`, `delete`, `namespace`, `scale`, `binding`, `eviction`, `expiry`, `tokens`,
//! `service_addresses`, `crd`, `apiservice`, `discovery`, `openapi`, `protobuf`, `table` (what kubectl prints).
//! `direct` is the access without requests, `serve` is HTTPS, `observe` reports writes, `response` builds responses,
//! and `cluster` passes each request through `faults`.

mod admission;
mod defaults;
mod kinds;
mod meta;
mod signal;
mod store;
mod stored;
mod versions;

mod cluster;
mod faults;
mod rest;

mod apiservice;
mod binding;
mod canonical;
mod crd;
mod decode;
mod delete;
mod discovery;
mod eviction;
mod expiry;
mod get;
mod json_patch;
mod label_selector;
mod list;
mod metadata;
mod namespace;
mod negotiate;
mod observe;
mod openapi;
mod options;
mod patch;
mod pod_status;
mod protobuf;
mod qualified_names;
mod reader;
mod response;
mod reviews;
mod scale;
mod schema;
mod selectors;
mod server_fields;
mod service_addresses;
mod strategic;
mod table;
mod tokens;
mod validate;
mod validation;
mod watch;
mod write;

mod direct;
mod serve;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Full, combinators::UnsyncBoxBody};
use tower::util::BoxCloneSyncService;

pub use direct::{Options, Snapshot, TestCluster};
pub use faults::{Call, DiscoveryFault, Interception, Recorded};
pub use observe::Written;
pub(crate) use response::Failure;
pub use serve::Served;
pub use stored::Change;

/// Any error on the way to or from the cluster.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// The body of a response: a stream of bytes.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;
/// The cluster as a tower service, which the client uses as its transport.
pub type Service = BoxCloneSyncService<Request<Full<Bytes>>, Response<ResponseBody>, BoxError>;
