//! Deterministic simulation: real processes against the test cluster, in virtual time, with faults from a seed.
//!
//! How to write one stands in `docs/simulation.md`. Reading order: [`Scenario`] and [`seeds`], [`sweep`] in `run`;
//! [`World`] is what a scenario acts on, `process` what runs in it, `plan` (and `script`, for sweeps) who decides what goes wrong, `network` and
//! `stream` where it goes wrong.

mod asked;
mod network;
mod panics;
mod plan;
mod process;
mod run;
mod script;
mod stale;
mod stream;
mod trace;
mod world;

pub use network::LONGEST_DELAY;
pub use process::{Process, controller};
pub use run::{Scenario, seeds, sweep, trace, trace_of};
pub use world::{Seen, World, Write};
