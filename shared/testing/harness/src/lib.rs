//! What the tests of several crates share; never part of mini-kcm.
//!
//! [`World`]: one controller against the in-memory API server, in virtual time. [`Rig`]: what a controller gets from its
//! manager. [`Log`]: the lines that a test has logged. [`mod@bench`]: one controller in real time, whose syncs are measured.

#![expect(clippy::unwrap_used, reason = "tests panic on missing values")]

pub mod bench;
mod log;
mod manager;
mod pods;
mod rig;
mod world;

pub use log::{Log, listen};
pub use manager::{Manager, Standby};
pub use rig::Rig;
pub use world::{NAMESPACE, START, World, failure, line, merge, name, pass};
