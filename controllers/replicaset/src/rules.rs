//! What to do for a ReplicaSet. Pure.
//!
//! Reading order: `backoff` (pods that fail at once), `plan` (how many pods to create or delete), `victims` (which pods
//! are deleted), `status`, `notices` (events about sets that make no progress).

pub(crate) mod backoff;
pub(crate) mod notices;
pub(crate) mod plan;
pub(crate) mod status;
pub(crate) mod victims;
