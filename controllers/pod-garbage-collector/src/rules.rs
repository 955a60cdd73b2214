//! Which pods are deleted. Pure.
//!
//! Reading order: `steps` (what one pod still needs), `plan` (the pods of a pass), `terminated` (the terminated pods
//! above the threshold).

pub(crate) mod plan;
pub(crate) mod steps;
mod terminated;
