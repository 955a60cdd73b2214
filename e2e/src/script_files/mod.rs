//! Runs of scripts: the files of scripts, the recorded results of the upstream manager, and those of
//! ours where they differ.
//!
//! `<folder>/<topic>.yaml` has scripts, `<topic>.recorded.json` upstream's results, `<topic>.ours.json` our results
//! where they differ on purpose. Reading order: [`Topic`] (a file of scripts), [`RecordedResults`] (a file of results),
//! [`ScriptFile`] (both), [`differences`].

mod results;
mod script_file;

pub use results::{RecordedResults, differences};
pub use script_file::{ScriptFile, Topic};
