//! What to do for a ReplicaSet. Pure.
//!
//! Reading order: `backoff` (pods that fail at once), `plan` (how many pods to create or delete), `pods_to_delete`
//! (which pods are deleted), `status`, `notices` (events about sets that make no progress).

pub(crate) mod backoff;
pub(crate) mod notices;
pub(crate) mod plan;
pub(crate) mod pods_to_delete;
pub(crate) mod status;
