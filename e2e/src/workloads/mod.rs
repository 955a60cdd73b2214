//! Workloads: a Job or CronJob, the fate of its pods, the actions of its user, and what is left in the end.
//!
//! `workloads/<topic>.yaml` has the workloads, `workloads/<topic>.recorded.json` the normalised results of the upstream
//! manager; see `workloads/README.md`. Reading order: [`Workload`] and [`Step`] (a script), [`ObservedObjects`]
//! (observed objects), [`ScriptRunner`] (runs a script), [`comparable`] (the result),
//! [`script_files`](crate::script_files) (the files).

mod comparable;
mod kubelet;
mod observed_objects;
mod runner;
mod script;
mod times;

pub use comparable::comparable;
pub use observed_objects::{Kind, NamespaceObjects, ObservedObjects};
pub use runner::{RunContext, ScriptRunner, create};
pub use script::{Run, Step, Topic, Until, Which, Workload};
pub use times::Zero;
