//! Workloads: a Job or CronJob, the fate of its pods, the actions of its user, and what is left in the end.
//!
//! `workloads/<topic>.yaml` has the workloads, `workloads/<topic>.recorded.json` the normalised results of the upstream
//! manager; see `workloads/README.md`. Reading order: [`Workload`] and [`Step`] (a script), [`Board`] (observed
//! objects), [`Player`] (runs a script), [`comparable`] (the result), [`plays`](crate::plays) (the files).

mod board;
mod comparable;
mod kubelet;
mod play;
mod script;
mod times;

pub use board::{Board, Folder, Kind};
pub use comparable::comparable;
pub use play::{Player, Stage, create};
pub use script::{Run, Step, Topic, Until, Which, Workload};
pub use times::Zero;
