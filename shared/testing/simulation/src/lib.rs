//! Helpers for the tests of several crates; never part of mini-kcm.

mod log;
mod rig;
pub mod sim;
pub mod tls;

pub use log::{Log, listen};
pub use rig::Rig;
