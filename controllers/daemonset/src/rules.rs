//! What to do for a DaemonSet. Pure.
//!
//! Reading order: `placement` (which nodes), `names` (of pods), `history` (revisions), `backoff` (failed pods),
//! `snapshot` (the input), `plan` (one pod per node), `rollout` (the replacement of outdated pods), `status`, `notices`
//! (events about sets that make no progress).

pub(crate) mod backoff;
pub(crate) mod history;
pub(crate) mod names;
pub(crate) mod notices;
pub(crate) mod placement;
pub(crate) mod plan;
pub(crate) mod rollout;
pub(crate) mod snapshot;
pub(crate) mod status;
