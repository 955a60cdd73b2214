//! A control plane on loopback, our binary as its manager, and tools to disturb both.
//!
//! The scenarios in `tests/` are written once and run twice: on a real kube-apiserver, and on the embedded one of
//! `test-cluster` in the process of the test. Each prints on which it runs. Scenarios that need a real server's own
//! behaviour run only there. They test Kubernetes behaviour and not only ours: with `E2E_MANAGER=go` the upstream
//! manager passes those of `tests/namespace` too. Without the binaries of a real control plane, the scenarios that need
//! it print a message and do nothing; `MINI_KCM_E2E=required` makes that a failure.
//!
//! Reading order: [`Assets`] (the binaries), [`Site`] (the address of a server), [`ControlPlane`], [`Manager`]; then
//! [`Rest`] and [`eventually`], with which a scenario acts and waits; [`Audit`], the server's audit log; [`Proxy`] and
//! [`Gateway`], which inject faults between a client and the server; [`StandaloneInformers`], informers without a
//! manager; [`NodeFleet`], nodes that run pods; [`namespaces`] and [`objects`], objects to create; [`fields`], which reads
//! them; [`workloads`], Jobs and CronJobs by script; [`graphs`], owner graphs by script; [`equality`], which compares the
//! objects of two managers; [`Playground`] and [`Kubectl`]; [`Prometheus`], which scrapes the manager.

mod assets;
mod audit;
pub mod conformance;
mod control_plane;
pub mod equality;
pub mod fields;
mod gateway;
pub mod graphs;
mod kubectl;
mod manager;
pub mod namespaces;
mod node_fleet;
pub mod objects;
mod pki;
mod playground;
mod process;
mod prometheus;
mod proxy;
mod report;
mod rest;
pub mod script_files;
mod site;
mod standalone_informers;
mod usage;
mod wait;
pub mod workloads;

pub use assets::{Assets, assets_or_skip, go_manager_or_skip};
pub use audit::{Audit, AuditEvent};
pub use control_plane::{ControlPlane, Identity, Options};
pub use gateway::Gateway;
pub use kubectl::{Kubectl, kubectl_or_skip};
pub use manager::{Build, Flavour, Launch, Manager, binary};
pub use node_fleet::NodeFleet;
pub use playground::Playground;
pub use process::{Process, Signal, free_port, host_name};
pub use prometheus::{Programs, Prometheus, Scrape, prometheus_or_skip};
pub use proxy::Proxy;
pub use report::{Figures, report};
pub use rest::{Answer, Rest};
pub use site::Site;
pub use standalone_informers::StandaloneInformers;
pub use usage::Usage;
pub use wait::eventually;
