//! A real control plane on loopback, our release binary beside it, and the tools to disturb both.
//!
//! The scenarios in `tests/` describe Kubernetes, not us: with `E2E_MANAGER=go` the upstream manager passes those of
//! `tests/namespace.rs` too. Where the binaries of a control plane are missing, every scenario says so loudly and does
//! nothing; `MINI_KCM_E2E=required` makes that a failure.
//!
//! Reading order: [`Assets`] (which binaries), [`ControlPlane`], [`Manager`]; then [`Rest`] and [`eventually`], with
//! which a scenario acts and waits; [`Audit`], what the server says was done; [`Proxy`] and [`Gateway`], which stand
//! between a client and the server and misbehave; [`View`], informers without a manager; [`namespaces`] and [`objects`],
//! what is created.

mod assets;
mod audit;
pub mod conformance;
mod control_plane;
mod gateway;
mod manager;
pub mod namespaces;
pub mod objects;
mod pki;
mod process;
mod proxy;
mod rest;
mod say;
mod usage;
mod view;
mod wait;

pub use assets::{Assets, assets_or_skip};
pub use audit::{Audit, AuditEvent};
pub use control_plane::{ControlPlane, Identity, Options};
pub use gateway::Gateway;
pub use manager::{Flavour, Launch, Manager, binary};
pub use process::{Process, Signal, free_port};
pub use proxy::Proxy;
pub use rest::{Answer, Rest};
pub use say::{Figures, say};
pub use usage::Usage;
pub use view::View;
pub use wait::eventually;
