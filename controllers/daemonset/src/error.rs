//! The errors of syncs.

use client::ApiError;
use informer::StoreError;
use revisions::RevisionError;
use workload::ClaimError;

use crate::apply::ApplyError;

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("cannot read the cache")]
    Cache(#[from] StoreError),
    #[error("cannot claim pods")]
    Pods(#[source] ClaimError),
    #[error("cannot claim revisions")]
    Revisions(#[source] ClaimError),
    #[error("cannot store a revision")]
    Revision(#[from] RevisionError),
    #[error("cannot change the revision in a label")]
    Label(#[source] ApiError),
    #[error("the template does not decode")]
    Template(#[source] serde_json::Error),
    #[error("cannot manage pods")]
    Apply(#[from] ApplyError),
    #[error("cannot store the status")]
    Status(#[source] ApiError),
}
