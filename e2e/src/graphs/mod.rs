//! Owner graphs: objects that own each other, the actions of a user, and what is left in the end.
//!
//! `graphs/<topic>.yaml` has the graphs, `graphs/<topic>.recorded.json` the normalised results of the upstream
//! collector; see `graphs/README.md`. Reading order: [`Graph`] and [`Step`] (a script), [`Kind`] (the kinds of
//! objects), [`ObservedObjects`] (observed objects), [`ScriptRunner`] (runs a script with one propagation policy),
//! `result`, [`script_files`](crate::script_files) (the files).

mod observed_objects;
mod kinds;
mod result;
mod runner;
mod script;

pub use observed_objects::{ObservedObjects, ObservedObject};
pub use kinds::{Kind, definitions};
pub use runner::{ScriptRunner, RunContext};
pub use script::{Graph, Policy, Step, Topic, Until};
