//! Removes one of our finalizers from an owner.

use std::time::Duration;

use api::{Meta, Version};
use client::{ApiError, Patch};

use crate::{
    Ctx,
    rules::{
        evidence::{Gone, Object, Unproved, has},
        refs,
    },
};

/// As in upstream's `removeFinalizer`: the steps of `retry.DefaultBackoff`.
const ATTEMPTS: usize = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const FACTOR: u32 = 5;
const JITTER: f64 = 0.1;

/// The result of the removal.
#[derive(Debug)]
pub(crate) enum Removed {
    /// This call removed it, and this is the new resourceVersion.
    ByThisCall(Version),
    /// It was removed before, by another client, or by us if the response was lost. The owner may still exist, in this
    /// state.
    Earlier(Meta),
    /// The owner is gone. A new object of its name is not changed.
    Gone(Gone),
}

/// Why the finalizer was not removed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the finalizer cannot be removed")]
    Patch(#[source] ApiError),
    #[error("the owner cannot be read")]
    Read(#[source] ApiError),
    #[error("the owner cannot be read: {0}")]
    Unrelated(Unproved),
    /// The message of upstream's `removeFinalizer`.
    #[error("updateMaxRetries({ATTEMPTS}) has reached. The garbage collector will retry later for owner {0}")]
    Conflicts(String),
}

/// Removes a finalizer from this owner. The first patch uses the observed state without a read; after a conflict, the
/// owner is read again.
pub(crate) async fn remove(ctx: &Ctx, owner: &Object, finalizer: &str) -> Result<Removed, Error> {
    let Object { coordinates, resource, meta } = owner;
    let mut meta = meta.clone();
    let mut refusal = None;
    for pause in pauses(ctx) {
        if let Some(refusal) = refusal {
            tokio::time::sleep(pause).await;
            meta = match read(ctx, owner).await? {
                Ok(meta) => meta,
                Err(gone) => return Ok(Removed::Gone(gone)),
            };
            if let ApiError::Invalid(_) | ApiError::NotFound(_) = refusal {
                // The owner exists with the same uid, so the refusal has another reason.
                return Err(Error::Patch(refusal));
            }
        }
        if !has(&meta, finalizer) {
            return Ok(Removed::Earlier(meta));
        }
        let left = meta.finalizers.iter().map(|it| &**it).filter(|it| *it != finalizer);
        let body = Patch::Merge(refs::finalizers(&meta, left));
        match ctx.requests.patch(resource, &coordinates.namespace, &coordinates.name, &body).await {
            Ok(written) => return Ok(Removed::ByThisCall(written.version)),
            // The resourceVersion changed; or the object has another uid, and a patch cannot change a uid; or it does
            // not exist, or the server did not find something else.
            Err(err @ (ApiError::Conflict(_) | ApiError::Invalid(_) | ApiError::NotFound(_))) => refusal = Some(err),
            Err(err) => return Err(Error::Patch(err)),
        }
    }
    Err(Error::Conflicts(coordinates.to_string()))
}

/// The pauses before each attempt; the first is not used.
fn pauses(ctx: &Ctx) -> impl Iterator<Item = Duration> {
    let pauses = std::iter::successors(Some(FIRST_PAUSE / FACTOR), |it| Some(it.saturating_mul(FACTOR)));
    pauses.take(ATTEMPTS).map(|it| it.mul_f64(1.0 + JITTER * ctx.rng.lock().f64()))
}

/// Reads the present state of the owner. An object of another uid is not the owner, and its finalizers must not be
/// changed.
pub(crate) async fn read(ctx: &Ctx, owner: &Object) -> Result<Result<Meta, Gone>, Error> {
    let Object { coordinates, resource, meta: _ } = owner;
    let meta = match ctx.requests.get_metadata(resource, &coordinates.namespace, &coordinates.name).await {
        Ok(meta) => meta,
        Err(err) => return Gone::not_found(resource, coordinates, &err).map(Err).ok_or(Error::Read(err)),
    };
    match Gone::replaced(coordinates, &meta.uid) {
        Some(gone) => Ok(Err(gone)),
        None if meta.uid.is_empty() => Err(Error::Unrelated(Unproved::Unrelated)),
        None => Ok(Ok(meta)),
    }
}
