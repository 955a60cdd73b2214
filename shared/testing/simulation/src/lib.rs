//! The seeded simulation of whole processes (`docs/simulation.md`); never part of mini-kcm.

pub mod sim;
