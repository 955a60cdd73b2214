//! Why a sync failed.

use client::ApiError;
use informer::StoreError;

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error(transparent)]
    Cache(#[from] StoreError),
    #[error("cannot read what the server has")]
    Read(#[source] ApiError),
    #[error("cannot read the template")]
    Template(#[source] serde_json::Error),
    #[error("cannot create the job")]
    Create(#[source] ApiError),
    #[error("cannot delete a job that is to be replaced")]
    Delete(#[source] ApiError),
    #[error("cannot write the status")]
    Status(#[source] ApiError),
}
