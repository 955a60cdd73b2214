//! Removes owner references from objects, with the patch type that each resource supports.

use api::{Resource, Uid, Version};
use client::{ApiError, Patch};
use serde_json::Value;

use crate::{
    Ctx,
    graph::Coordinates,
    rules::{
        evidence::{Gone, Object, OwnerState, Unproved, evaluate_read},
        refs,
    },
};

/// The result of a patch.
pub(crate) enum Patched {
    /// The object has the requested content, at this resourceVersion.
    Done(Version),
    /// The object is gone.
    Gone(Gone),
}

/// Removes references to these owners from the object at these coordinates, in any state of it.
///
/// # Errors As [`ApiError`]; `Conflict` if another client wrote it at the same time.
pub(crate) async fn detach(
    ctx: &Ctx,
    resource: &Resource,
    object: &Coordinates,
    owners: &[Uid],
) -> Result<Patched, ApiError> {
    detach_in(ctx, resource, object, owners, None).await
}

/// Removes references to these owners from the object, only in the checked state: if another client has removed its
/// existing owner since, the object would have no owner left.
///
/// # Errors As [`ApiError`]; `Conflict` if the state has changed.
pub(crate) async fn detach_if_unchanged(ctx: &Ctx, object: &Object, owners: &[Uid]) -> Result<Patched, ApiError> {
    detach_in(ctx, &object.resource, &object.coordinates, owners, Some(&object.meta.version)).await
}

async fn detach_in(
    ctx: &Ctx,
    resource: &Resource,
    object: &Coordinates,
    owners: &[Uid],
    checked: Option<&Version>,
) -> Result<Patched, ApiError> {
    if !ctx.kinds.is_merge_only(resource) {
        let body = Patch::Strategic(refs::detach(&object.uid, owners, checked));
        match send(ctx, resource, object, &body).await {
            Err(err) if is_unsupported(&err) => ctx.kinds.mark_merge_only(resource),
            done => return done,
        }
    }
    let live = match read_live(ctx, resource, object).await? {
        Ok(live) => live,
        Err(gone) => return Ok(Patched::Gone(gone)),
    };
    match refs::detach_live(&live, owners) {
        Some(mut body) => {
            if let Some(checked) = checked {
                body["metadata"]["resourceVersion"] = checked.to_string().into();
            }
            send(ctx, resource, object, &Patch::Merge(body)).await
        }
        None => Ok(Patched::Done(version(&live))),
    }
}

/// Sets blockOwnerDeletion to false on the object's references, only in the checked state.
///
/// # Errors As [`ApiError`]; `Conflict` if the state has changed.
pub(crate) async fn unblock(ctx: &Ctx, object: &Object) -> Result<Patched, ApiError> {
    let Object { coordinates, resource, meta } = object;
    if !ctx.kinds.is_merge_only(resource) {
        match send(ctx, resource, coordinates, &Patch::Strategic(refs::unblock(meta))).await {
            Err(err) if is_unsupported(&err) => ctx.kinds.mark_merge_only(resource),
            done => return done,
        }
    }
    let live = match read_live(ctx, resource, coordinates).await? {
        Ok(live) => live,
        Err(gone) => return Ok(Patched::Gone(gone)),
    };
    let mut body = refs::unblock_live(&live);
    // Any write since the verdict is a conflict, as above.
    body["metadata"]["resourceVersion"] = meta.version.to_string().into();
    send(ctx, resource, coordinates, &Patch::Merge(body)).await
}

/// Sends a patch with the object's uid. After a refusal, a live read shows whether the object still exists.
pub(crate) async fn send(
    ctx: &Ctx,
    resource: &Resource,
    object: &Coordinates,
    patch: &Patch,
) -> Result<Patched, ApiError> {
    match ctx.requests.patch(resource, &object.namespace, &object.name, patch).await {
        Ok(written) => Ok(Patched::Done(written.version)),
        // A patch cannot change the uid of a new object of the same name: 422, or 409 from some servers. A 404 may be
        // about something else.
        Err(err @ (ApiError::Invalid(_) | ApiError::Conflict(_) | ApiError::NotFound(_))) => {
            absence_proof(ctx, resource, object).await.map(Patched::Gone).ok_or(err)
        }
        Err(err) => Err(err),
    }
}

/// Checks if an object is gone; `None` also if that is unknown.
async fn absence_proof(ctx: &Ctx, resource: &Resource, object: &Coordinates) -> Option<Gone> {
    let live = ctx.requests.get_metadata(resource, &object.namespace, &object.name).await;
    match evaluate_read(resource, object, live) {
        Ok(OwnerState::Gone(gone)) => Some(gone),
        _ => None,
    }
}

/// The object's metadata from a live read, with all its fields.
async fn read_live(ctx: &Ctx, resource: &Resource, object: &Coordinates) -> Result<Result<Value, Gone>, ApiError> {
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
