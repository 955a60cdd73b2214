//! Owner graphs: objects that own each other, the actions of a user, and what is left in the end.
//!
//! `graphs/<topic>.yaml` has the graphs, `graphs/<topic>.recorded.json` the normalised results of the upstream
//! collector; see `graphs/README.md`. Reading order: [`Graph`] and [`Step`] (a script), [`Kind`] (the kinds of
//! objects), [`ObservedObjects`] (observed objects), [`ScriptRunner`] (runs a script with one propagation policy),
//! `result`, [`script_files`](crate::script_files) (the files).

mod kinds;
mod observed_objects;
mod result;
mod runner;
mod script;

pub use kinds::{Kind, definitions};
pub use observed_objects::{ObservedObject, ObservedObjects};
pub use runner::{RunContext, ScriptRunner};
pub use script::{Graph, Policy, Step, Topic, Until};
