//! What tests of several crates need; never part of mini-kcm.

mod log;
mod rig;
pub mod sim;
pub mod tls;

pub use log::{Log, listen};
pub use rig::Rig;
