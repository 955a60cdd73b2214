//! Deterministic simulation: real processes against the test cluster, in virtual time, with faults from a seed.
//!
//! `docs/simulation.md` says how to write one. Reading order: [`Scenario`] and [`seeds`], [`sweep`] in `run`; [`World`]
//! is the interface of a scenario; `process` runs processes; `plan` (and `script`, for sweeps) decides which faults
//! happen; `network` and `stream` carry them out.

mod network;
mod panics;
mod plan;
mod process;
mod request;
mod run;
mod script;
mod stale;
mod stream;
mod trace;
mod world;

pub use network::LONGEST_DELAY;
pub use process::{MAX_CLOCK_SKEW, Process, controller};
pub use run::{Scenario, seeds, sweep, trace, trace_of};
pub use world::{Delivery, World, Write};
