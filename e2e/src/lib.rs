//! A control plane on loopback, our binary beside it, and the tools to disturb both.
//!
//! The scenarios in `tests/` are written once and run twice: on a real kube-apiserver, and on the embedded one of
//! `test-cluster`, served in the test's process. Each says on which it runs. What needs a real server's own behaviour runs
//! there only. They describe Kubernetes, not us: with `E2E_MANAGER=go` the upstream manager passes those of
//! `tests/namespace` too. Where the binaries of a real control plane are missing, what would run there says so loudly
//! and does nothing; `MINI_KCM_E2E=required` makes that a failure.
//!
//! Reading order: [`Assets`] (which binaries), [`Site`] (where a server is), [`ControlPlane`], [`Manager`]; then [`Rest`] and [`eventually`], with
//! which a scenario acts and waits; [`Audit`], what the server says was done; [`Proxy`] and [`Gateway`], which stand
//! between a client and the server and misbehave; [`View`], informers without a manager; [`namespaces`] and [`objects`],
//! what is created; [`workloads`], Jobs and what becomes of them; [`graphs`], objects that own each other; [`Playground`]
//! and [`Kubectl`], what a newcomer uses; [`Prometheus`], who looks at the manager.

mod assets;
mod audit;
pub mod conformance;
mod control_plane;
mod gateway;
pub mod graphs;
mod kubectl;
mod manager;
pub mod namespaces;
pub mod objects;
mod pki;
mod playground;
pub mod plays;
mod process;
mod prometheus;
mod proxy;
mod rest;
mod say;
mod site;
mod usage;
mod view;
mod wait;
pub mod workloads;

pub use assets::{Assets, assets_or_skip};
pub use audit::{Audit, AuditEvent};
pub use control_plane::{ControlPlane, Identity, Options};
pub use gateway::Gateway;
pub use kubectl::{Kubectl, kubectl_or_skip};
pub use manager::{Build, Flavour, Launch, Manager, binary};
pub use playground::Playground;
pub use process::{Process, Signal, free_port};
pub use prometheus::{Programs, Prometheus, Scrape, prometheus_or_skip};
pub use proxy::Proxy;
pub use rest::{Answer, Rest};
pub use say::{Figures, say};
pub use site::Site;
pub use usage::Usage;
pub use view::View;
pub use wait::eventually;
