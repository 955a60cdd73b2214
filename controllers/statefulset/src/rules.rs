//! What to do for a StatefulSet. Pure.
//!
//! Reading order: `identity` (names and ordinals), `history` (revisions), `retention` (the owners of claims),
//! `snapshot` (the input), `plan` (pods), `rollout` (the last stage of a plan), `status`, `notices` (events about sets
//! that make no progress).

pub(crate) mod history;
pub(crate) mod identity;
pub(crate) mod notices;
pub(crate) mod plan;
pub(crate) mod retention;
pub(crate) mod rollout;
pub(crate) mod snapshot;
pub(crate) mod status;
