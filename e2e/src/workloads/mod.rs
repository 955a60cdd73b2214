//! Workloads: a Job or CronJob, what becomes of its pods, what its user does meanwhile, and what is left in the end.
//!
//! `workloads/<topic>.yaml` holds them, `workloads/<topic>.recorded.json` what the upstream manager left behind, made
//! comparable; see `workloads/README.md`. Reading order: [`Workload`] and [`Step`] (a script), [`Board`] (what has been
//! seen), [`Player`] (plays a script), [`comparable`] (what is compared), [`plays`](crate::plays) (the files).

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
