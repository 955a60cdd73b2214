//! Plays by script: files of them, what the upstream manager left behind of each, and where ours does otherwise.
//!
//! `<folder>/<topic>.yaml` holds scripts, `<topic>.recorded.json` what upstream left, `<topic>.ours.json` what ours
//! leaves where it is meant to differ. Reading order: [`Topic`] (a file of scripts), [`Recorded`] (a file of ends),
//! [`Set`] (both), [`differences`].

mod recorded;
mod sets;

pub use recorded::{Recorded, differences};
pub use sets::{Set, Topic};
