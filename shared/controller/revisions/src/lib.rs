//! ControllerRevisions: the earlier and the present states of the template of a workload (upstream's package
//! `history`).
//!
//! Reading order: [`template_data`] (what a revision contains), [`revision_hash`] and [`revision_name`], [`sort`],
//! [`next_number`], [`find_equal`] and [`surplus`] (pure), [`of_owner`], [`RevisionControl`] (the writes).

mod control;
mod data;
mod hash;
mod history;

pub use control::{HashLabel, NewRevision, RevisionControl, RevisionError, Stored, of_owner};
pub use data::{is_same_data, template_data, template_labels};
pub use hash::{HASH_LABEL, REVISION_LABEL, encode_hash, revision_hash, revision_name};
pub use history::{find_equal, next_number, sort, surplus};
