//! What to do for a Deployment. Pure.
//!
//! Reading order: `limits` (surge and unavailable), `annotations`, `api_types` and `quantity`, `template` (comparison),
//! `dump` and `hash` (`pod-template-hash`), `new_set` (the body of a new ReplicaSet), `snapshot` (the input), `plan` (one
//! decision), with `rollout`, `scale`, `history` and `rollback` for its parts. Then `conditions`, `progress`, `status`.

pub(crate) mod annotations;
pub(crate) mod api_types;
pub(crate) mod conditions;
pub(crate) mod dump;
pub(crate) mod hash;
pub(crate) mod history;
pub(crate) mod limits;
pub(crate) mod new_set;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod quantity;
pub(crate) mod rollback;
pub(crate) mod rollout;
pub(crate) mod scale;
pub(crate) mod snapshot;
pub(crate) mod status;
pub(crate) mod template;
