//! Takes owner references from objects, in the way that each resource understands.

use api::{Resource, Uid, Version};
use client::{ApiError, Patch};
use serde_json::Value;

use crate::{
    Ctx,
    evidence::{Gone, Standing, Unproved, weigh},
    graph::Coordinates,
    refs,
    verdict::Object,
};

/// What became of an object that was to be patched.
pub(crate) enum Patched {
    /// It is as wanted, in this version.
    Done(Version),
    /// It is not there any more.
    Gone(Gone),
}

/// Lets the object of these coordinates name these owners no more, whatever else it is by now.
///
/// # Errors
/// As [`ApiError`]; `Conflict` where somebody else wrote it at the same time.
pub(crate) async fn detach(
    ctx: &Ctx,
    resource: &Resource,
    object: &Coordinates,
    owners: &[Uid],
) -> Result<Patched, ApiError> {
    detach_in(ctx, resource, object, owners, None).await
}

/// Lets the object, in the very state that was judged, name these owners no more: the owner for which it stays may have been
/// taken from it since, and with these gone nobody would own it.
///
/// # Errors
/// As [`ApiError`]; `Conflict` where it is in another state by now.
pub(crate) async fn detach_as_judged(ctx: &Ctx, object: &Object, owners: &[Uid]) -> Result<Patched, ApiError> {
    detach_in(ctx, &object.resource, &object.coordinates, owners, Some(&object.meta.version)).await
}

async fn detach_in(
    ctx: &Ctx,
    resource: &Resource,
    object: &Coordinates,
    owners: &[Uid],
    judged: Option<&Version>,
) -> Result<Patched, ApiError> {
    if !ctx.kinds.is_merge_only(resource) {
        let body = Patch::Strategic(refs::detach(&object.uid, owners, judged));
        match send(ctx, resource, object, &body).await {
            Err(err) if is_unsupported(&err) => ctx.kinds.mark_merge_only(resource),
            done => return done,
        }
    }
    let live = match live(ctx, resource, object).await? {
        Ok(live) => live,
        Err(gone) => return Ok(Patched::Gone(gone)),
    };
    match refs::detach_live(&live, owners) {
        Some(mut body) => {
            if let Some(judged) = judged {
                body["metadata"]["resourceVersion"] = judged.to_string().into();
            }
            send(ctx, resource, object, &Patch::Merge(body)).await
        }
        None => Ok(Patched::Done(version(&live))),
    }
}

/// Lets the object, in the very state that was judged, block its owners no more.
///
/// # Errors
/// As [`ApiError`]; `Conflict` where it is in another state by now.
pub(crate) async fn unblock(ctx: &Ctx, object: &Object) -> Result<Patched, ApiError> {
    let Object { coordinates, resource, meta } = object;
    if !ctx.kinds.is_merge_only(resource) {
        match send(ctx, resource, coordinates, &Patch::Strategic(refs::unblock(meta))).await {
            Err(err) if is_unsupported(&err) => ctx.kinds.mark_merge_only(resource),
            done => return done,
        }
    }
    let live = match live(ctx, resource, coordinates).await? {
        Ok(live) => live,
        Err(gone) => return Ok(Patched::Gone(gone)),
    };
    let mut body = refs::unblock_live(&live);
    // Whatever was written since it was judged is a conflict, as above.
    body["metadata"]["resourceVersion"] = meta.version.to_string().into();
    send(ctx, resource, coordinates, &Patch::Merge(body)).await
}

/// Sends a patch that carries the object's uid. Where that is refused, a read tells whether the object is still there.
pub(crate) async fn send(
    ctx: &Ctx,
    resource: &Resource,
    object: &Coordinates,
    patch: &Patch,
) -> Result<Patched, ApiError> {
    match ctx.requests.patch(resource, &object.namespace, &object.name, patch).await {
        Ok(written) => Ok(Patched::Done(written.version)),
        // A successor's uid cannot be changed to that of the one we meant: 422, or 409 by some. And a 404 may tell of
        // something else that is missing.
        Err(err @ (ApiError::Invalid(_) | ApiError::Conflict(_) | ApiError::NotFound(_))) => {
            gone(ctx, resource, object).await.map(Patched::Gone).ok_or(err)
        }
        Err(err) => Err(err),
    }
}

/// Whether an object is gone by now; `None` also where that cannot be told.
async fn gone(ctx: &Ctx, resource: &Resource, object: &Coordinates) -> Option<Gone> {
    let live = ctx.requests.get_metadata(resource, &object.namespace, &object.name).await;
    match weigh(resource, object, live) {
        Ok(Standing::Gone(gone)) => Some(gone),
        _ => None,
    }
}

/// The object's metadata as the server has it, every field of it.
async fn live(ctx: &Ctx, resource: &Resource, object: &Coordinates) -> Result<Result<Value, Gone>, ApiError> {
    let bytes = match ctx.requests.get_raw_metadata(resource, &object.namespace, &object.name).await {
        Ok(bytes) => bytes,
        Err(err) => return Gone::not_found(resource, object, &err).map(Err).ok_or(err),
    };
    let live: Value = serde_json::from_slice(bytes.as_ref())
        .map_err(|err| ApiError::unknown(format!("{object}: the answer does not decode: {err}")))?;
    let uid = Uid::new(live["metadata"]["uid"].as_str().unwrap_or_default());
    match Gone::replaced(object, &uid) {
        Some(gone) => Ok(Err(gone)),
        None if uid.is_empty() => Err(ApiError::unknown(format!("{object}: {}", Unproved::Unrelated))),
        None => Ok(Ok(live)),
    }
}

fn version(live: &Value) -> Version {
    Version::new(live["metadata"]["resourceVersion"].as_str().unwrap_or_default())
}

fn is_unsupported(err: &ApiError) -> bool {
    err.code() == 415
}
