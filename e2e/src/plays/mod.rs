//! Plays, which are runs of scripts: the files of scripts, the recorded results of the upstream manager, and those of
//! ours where they differ.
//!
//! `<folder>/<topic>.yaml` has scripts, `<topic>.recorded.json` upstream's results, `<topic>.ours.json` our results
//! where they differ on purpose. Reading order: [`Topic`] (a file of scripts), [`Recorded`] (a file of results),
//! [`Set`] (both), [`differences`].

mod recorded;
mod sets;

pub use recorded::{Recorded, differences};
pub use sets::{Set, Topic};
