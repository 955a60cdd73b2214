//! An API server in miniature: in memory for tests, on loopback for end-to-end runs; never part of mini-kcm.
//!
//! It answers as a kube-apiserver 1.36 does, as far as it goes; what a real server has and this one does not is answered
//! with 501, never guessed. Tests speak to it through [`TestCluster::service`] (the seam beneath the client's layers) or
//! [`TestCluster::serve`] (HTTPS on loopback), look behind it with the direct calls of [`TestCluster`], and spoil it with
//! [`TestCluster::intercept`] and its neighbours. Time comes from the clock handed in, randomness from a seed.
//!
//! Some objects are kept and shown, and have no effect: LimitRanges and ResourceQuotas limit nothing, roles and their
//! bindings allow and forbid nothing, and the schemas of custom resources are not held against their objects.
//!
//! Reading order: `kinds` (what is served, as a table), `store` (objects, versions, history) and `stored` (one object as bytes), `rest` (routes and verbs),
//! then one file per concern: `read`, `list`, `watch`, `write`, `validate`, `patch`, `json_patch`, `strategic`, `delete`, `namespace`, `scale`, `binding`, `eviction`, `expiry`,
//! `tokens`, `claims`, `crd`, `apiservice`, `discovery`, `openapi`, `protobuf`, `table` (what kubectl prints); `direct` and `serve` are the other doors, `observe` tells of writes; `answer` is how all of them speak, `cluster` the way of a request through `faults`.

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

mod answer;
mod apiservice;
mod binding;
mod claims;
mod crd;
mod decode;
mod delete;
mod discovery;
mod eviction;
mod expiry;
mod json_patch;
mod label_selector;
mod list;
mod metadata;
mod namespace;
mod negotiate;
mod normal;
mod observe;
mod openapi;
mod options;
mod patch;
mod pod_status;
mod protobuf;
mod qualified;
mod read;
mod reader;
mod reviews;
mod scale;
mod schema;
mod selectors;
mod settle;
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

pub(crate) use answer::Failure;
pub use direct::{Options, Snapshot, TestCluster};
pub use faults::{Call, DiscoveryFault, Recorded, Verdict};
pub use observe::Written;
pub use serve::Served;
pub use stored::Change;

/// Whatever goes wrong on the way to or from the cluster.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// What comes back: a stream of bytes.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;
/// The cluster as a tower service: what the client calls its transport.
pub type Service = BoxCloneSyncService<Request<Full<Bytes>>, Response<ResponseBody>, BoxError>;
