//! When a pod must leave its node. Pure.
//!
//! Reading order: `taints` (since when a taint is observed), `tolerations` (the decision about one pod).

pub(crate) mod taints;
pub(crate) mod tolerations;
