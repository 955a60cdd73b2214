//! One attempt to delete, top to bottom: the state in the graph, live reads of the owners, the verdict, the writes.
//!
//! This file makes no decision: [`verdict`] does, and the only DELETE of this crate needs the [`DeletePermit`] value
//! that only `verdict` creates.

pub(crate) mod delete_limiter;
pub(crate) mod finalizer;
pub(crate) mod patch;
pub(crate) mod pending_writes;

use std::time::Duration;

use api::{Meta, Version};
use client::{ApiError, DeleteOptions};
use controller::Outcome;

use crate::{
    Ctx,
    delete::{delete_limiter::Report, finalizer::Removed, patch::Patched},
    graph::{Coordinates, Item, TypeName},
    metrics::{DetachReason, UnresolvedReason, policy_name},
    owners::{
        kinds::KindError,
        owner_reads::{self, OwnersUnknown},
    },
    requests,
    rules::{
        evidence::{FOREGROUND, Gone, Object, OwnerState, Unproved, evaluate_read},
        verdict::{self, DeletePermit, Dependents, Foreground, NextStep, NonBlockingOwner, RefRemoval, Verdict},
    },
    shared_graph::Restores,
};

/// The limit of attempts. An object that is written all the time is deleted within them, or backs off.
const ATTEMPTS: u32 = 4;
/// The pause between two attempts, multiplied by the attempt number.
const PAUSE: Duration = Duration::from_millis(10);

/// Logs a deletion with its reason and the proofs about the owners.
macro_rules! log_deletion {
    ($level:ident, $permit:expr, $message:literal) => {{
        let permit: &DeletePermit = $permit;
        let owners: Vec<String> = permit.owners().iter().map(describe).collect();
        tracing::$level!(
            object = %permit.object().coordinates,
            uid = %permit.object().coordinates.uid,
            reason = permit.reason().as_str(),
            owners = owners.join("; "),
            policy = policy_name(permit.policy()),
            $message
        );
    }};
}

/// Why an attempt did not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot decide about {object}")]
    OwnersUnknown {
        object: Box<Coordinates>,
        #[source]
        source: OwnersUnknown,
    },
    #[error("cannot look up {object}")]
    Unproved {
        object: Box<Coordinates>,
        #[source]
        source: Unproved,
    },
    #[error("cannot delete {object}")]
    Delete {
        object: Box<Coordinates>,
        #[source]
        source: ApiError,
    },
    #[error("cannot remove owner references of {object}")]
    Detach {
        object: Box<Coordinates>,
        #[source]
        source: ApiError,
    },
    #[error("cannot remove the finalizer of {object}")]
    Finish {
        object: Box<Coordinates>,
        #[source]
        source: finalizer::Error,
    },
}

/// Processes one item of the delete queue, as upstream's `attemptToDeleteItem`.
pub(crate) async fn collect(ctx: &Ctx, item: &Item) -> Result<Outcome, Error> {
    let outcome = attempt(ctx, item).await;
    if let Err(err) = &outcome
        && let Some(wait) = requests::postponed_for(err)
    {
        // The pass had no new result. An item that waits for a slot keeps its position, and others may go first.
        ctx.delete_limiter.lock().suspend(item);
        return Ok(Outcome::Parked(wait));
    }
    if !matches!(outcome, Ok(Outcome::After(_))) {
        ctx.delete_limiter.lock().remove(item);
        ctx.update_held_gauge();
    }
    if matches!(outcome, Ok(Outcome::Done)) {
        ctx.owner_waits.remove(item.uid(), FOREGROUND);
    }
    outcome
}

async fn attempt(ctx: &Ctx, item: &Item) -> Result<Outcome, Error> {
    // Before all reads, because a proof from before a restore of etcd is not valid after it.
    let asked = ctx.graph.restores();
    let Some(node) = ctx.graph.node(item) else {
        ctx.meters.clear_unresolved(item.uid());
        return Ok(Outcome::Done);
    };
    if let Some(meta) = &node.meta
        && let Some(wait) = ctx.pending_writes.remaining_wait(&meta.uid, &meta.version, ctx.clock.now())
    {
        return Ok(Outcome::After(wait));
    }
    let dependents = Dependents { any: node.has_dependents, any_waiting: node.has_waiting_dependent };
    match verdict::next_step(node) {
        NextStep::Nothing => {
            ctx.meters.clear_unresolved(item.uid());
            Ok(Outcome::Done)
        }
        NextStep::LookUp(referenced) => look_up(ctx, item, referenced, asked).await,
        NextStep::Foreground(object) => finish_foreground(ctx, item, &object, asked).await,
        NextStep::CheckOwners(object) => check_and_carry_out(ctx, item, object, dependents, asked).await,
    }
}

/// Reads an owner that no monitor has shown, or whose type is no longer watched.
async fn look_up(ctx: &Ctx, item: &Item, referenced: Coordinates, asked_at: Restores) -> Result<Outcome, Error> {
    let record = |why| record_unresolved(ctx, item, &referenced, &referenced, why);
    let resource = match ctx.kinds.resource(&referenced.api_version, &referenced.kind) {
        Ok(resource) => resource,
        Err(unknown) => {
            record(UnresolvedReason::UnknownKind);
            return Ok(match unknown {
                KindError::Unserved { .. } => on_unserved_type(ctx, item, &referenced),
                KindError::Ambiguous { .. } => ctx.requeue_later(item),
            });
        }
    };
    let asked = match owner_reads::locate(&resource, Box::new(referenced.clone())) {
        Ok(asked) => asked,
        Err(unlocatable) => {
            record(UnresolvedReason::from(unlocatable));
            // The object was observed, its type was removed, and the type came back with another scope.
            if ctx.graph.unblock_owners(item.uid()) {
                tracing::warn!(
                    object = %referenced,
                    "An owner no longer waits for an object that cannot exist any more"
                );
            }
            // A retry would give the same result.
            return Ok(Outcome::Done);
        }
    };
    match owner_reads::read_owner(ctx, &resource, &asked).await {
        Ok(OwnerState::Gone(gone) | OwnerState::Orphaned(gone)) => {
            ctx.meters.clear_unresolved(item.uid());
            ctx.graph.on_proved_absent(&referenced, gone, asked_at);
            Ok(Outcome::Done)
        }
        Ok(OwnerState::Waiting(_) | OwnerState::Live(_)) => {
            ctx.meters.clear_unresolved(item.uid());
            // Poll until a watch shows it: it may be created and deleted without an event, and its dependents would
            // stay (#56121).
            tracing::debug!(object = %referenced, "An owner exists that no watch has shown");
            Ok(ctx.requeue_later(item))
        }
        Err(source) if requests::postponed_for(&source).is_some() => {
            Err(Error::Unproved { object: Box::new(referenced), source })
        }
        Err(source) => {
            let why = UnresolvedReason::from(&source);
            record(why);
            match why {
                UnresolvedReason::NotServed => Ok(ctx.requeue_later(item)),
                _ => Err(Error::Unproved { object: Box::new(referenced), source }),
            }
        }
    }
}

/// Handles an object whose type is unknown. If a monitor had shown it, it may be gone with its type, and no event will
/// ever show that. So the owners that it blocks wait only for a limited time.
fn on_unserved_type(ctx: &Ctx, item: &Item, referenced: &Coordinates) -> Outcome {
    // Only an object that a monitor has shown can block an owner, so its type was served once.
    if !ctx.graph.read(|graph| graph.is_unwatched_blocker(item.uid())) {
        return ctx.requeue_later(item);
    }
    let of = TypeName { api_version: referenced.api_version.clone(), kind: referenced.kind.clone() };
    let left = ctx.kinds.remaining_block(&of, ctx.clock.now());
    if !left.is_zero() {
        return Outcome::After(left);
    }
    if ctx.graph.unblock_owners(item.uid()) {
        tracing::warn!(
            object = %referenced,
            "An owner no longer waits for an object whose type is not served any more"
        );
    }
    ctx.requeue_later(item)
}

/// Removes the foreground finalizer of a waiting owner when no dependent blocks it any more.
async fn finish_foreground(ctx: &Ctx, item: &Item, owner: &Object, asked: Restores) -> Result<Outcome, Error> {
    ctx.meters.clear_unresolved(item.uid());
    // Another finalizer may have kept it after its dependents were orphaned.
    ctx.graph.orphaned.on_foreground(&owner.coordinates.uid);
    // Read this before the graph: a type that syncs in between may add blocking dependents.
    let unsynced = ctx.monitors.unsynced();
    // Proofs take seconds. Make them while the blocking dependents are being deleted.
    ctx.monitors.request_proofs(&unsynced);
    match verdict::foreground(ctx.graph.blocking(&owner.coordinates.uid)) {
        Foreground::Check(items) => {
            items.into_iter().for_each(|it| ctx.graph.deletes.add(it));
            Ok(Outcome::Done)
        }
        Foreground::Finish => {
            if let Some(pause) = ctx.wait_for_unsynced(&owner.coordinates, FOREGROUND, &unsynced) {
                return Ok(Outcome::After(pause));
            }
            let removed = finalizer::remove(ctx, owner, FOREGROUND).await;
            let object = &owner.coordinates;
            match removed.map_err(|source| Error::Finish { object: Box::new(object.clone()), source })? {
                Removed::ByThisCall(version) => {
                    ctx.pending_writes.record(&object.uid, &owner.meta.version, ctx.clock.now());
                    ctx.graph.on_finalizers_removed(&object.uid, &version);
                    tracing::info!(%object, "Removed the finalizer of an owner, because no dependent blocks it any more");
                }
                Removed::Earlier(meta) => ctx.graph.on_finalizers_removed(&object.uid, &meta.version),
                Removed::Gone(gone) => ctx.graph.on_proved_absent(object, gone, asked),
            }
            Ok(Outcome::Done)
        }
    }
}

/// Checks the owners of an object, and carries out what follows.
async fn check_and_carry_out(
    ctx: &Ctx,
    item: &Item,
    object: Object,
    dependents: Dependents,
    asked: Restores,
) -> Result<Outcome, Error> {
    let coordinates = object.coordinates.clone();
    let checked = match owner_reads::check_owners(ctx, object).await {
        Ok(checked) => checked,
        Err(unknown) => return on_unresolved_owner(ctx, item, &coordinates, unknown),
    };
    ctx.meters.clear_unresolved(item.uid());
    if ctx.graph.restores() != asked {
        // The earlier proofs may be invalid now.
        return Ok(ctx.requeue_later(item));
    }
    match checked.map(|it| verdict::verdict(it, dependents)) {
        None | Some(Verdict::Keep) => Ok(Outcome::Done),
        Some(Verdict::DropRefs(surplus)) => detach(ctx, item, surplus, asked).await,
        Some(Verdict::Delete(permit)) => delete(ctx, item, permit, asked).await,
    }
}

/// Handles an owner that cannot be looked up: the object stays, and is retried with back-off.
fn on_unresolved_owner(ctx: &Ctx, item: &Item, object: &Coordinates, unknown: OwnersUnknown) -> Result<Outcome, Error> {
    let (owner, why) = match &unknown {
        OwnersUnknown::Unknown { owner, .. } => (owner, UnresolvedReason::UnknownKind),
        OwnersUnknown::Unlocatable { owner, source } => (owner, UnresolvedReason::from(*source)),
        OwnersUnknown::Unproved { owner, source } => (owner, UnresolvedReason::from(source)),
    };
    if requests::postponed_for(&unknown).is_some() {
        return Err(Error::OwnersUnknown { object: Box::new(object.clone()), source: unknown });
    }
    record_unresolved(ctx, item, object, owner, why);
    match why {
        UnresolvedReason::UnknownKind | UnresolvedReason::NotServed => Ok(ctx.requeue_later(item)),
        // No retry can help; only a change of the object can.
        UnresolvedReason::Misplaced | UnresolvedReason::Misnamed => Ok(Outcome::Done),
        UnresolvedReason::Failed => Err(Error::OwnersUnknown { object: Box::new(object.clone()), source: unknown }),
    }
}

/// Records that an owner cannot be looked up, and logs a warning if this is new for the type.
fn record_unresolved(ctx: &Ctx, item: &Item, object: &Coordinates, owner: &Coordinates, why: UnresolvedReason) {
    let of = TypeName { api_version: owner.api_version.clone(), kind: owner.kind.clone() };
    if ctx.meters.record_unresolved(item.uid(), of, why) {
        tracing::warn!(
            %object, %owner, why = why.as_str(),
            "An owner cannot be looked up: its dependents are not deleted; \
             further such owners of this type are not logged"
        );
    } else {
        tracing::debug!(%object, %owner, why = why.as_str(), "An owner cannot be looked up");
    }
}

/// Removes references from an object that stays.
async fn detach(ctx: &Ctx, item: &Item, surplus: RefRemoval, asked: Restores) -> Result<Outcome, Error> {
    let RefRemoval { object, owners } = surplus;
    let patched = patch::detach_if_unchanged(ctx, &object, &owners).await;
    let Object { coordinates, meta, .. } = object;
    match patched {
        Ok(Patched::Done(_)) => {
            ctx.pending_writes.record(&coordinates.uid, &meta.version, ctx.clock.now());
            ctx.graph.on_references_removed(&coordinates.uid, &meta.version, &owners);
            let why = if owners.len() < meta.owners.len() { DetachReason::OwnerLives } else { DetachReason::Orphaned };
            ctx.meters.record_detached(why);
            tracing::info!(object = %coordinates, ?owners, ?why, "Removed references to owners from an object that stays");
            Ok(Outcome::Done)
        }
        Ok(Patched::Gone(gone)) => {
            ctx.graph.on_proved_absent(&coordinates, gone, asked);
            Ok(Outcome::Done)
        }
        // As for a delete: the watch will show the newer state.
        Err(ApiError::Conflict(_)) => {
            ctx.graph.await_newer(&coordinates.uid, &meta.version);
            Ok(ctx.requeue_later(item))
        }
        Err(source) => Err(Error::Detach { object: Box::new(coordinates), source }),
    }
}

/// Deletes an object, if the delete limiter allows it.
async fn delete(ctx: &Ctx, item: &Item, mut permit: DeletePermit, asked: Restores) -> Result<Outcome, Error> {
    let Object { coordinates: object, meta: Meta { version: shown, .. }, .. } = permit.object().clone();
    let slot = match Slot::take(ctx, item, &object) {
        Ok(slot) => slot,
        Err(wait) => return Ok(Outcome::After(wait)),
    };
    if permit.unblock_own_refs_first() {
        match patch::unblock(ctx, permit.object()).await {
            Ok(Patched::Done(version)) => permit.on_refs_unblocked(version),
            Ok(Patched::Gone(gone)) => return Ok(slot.on_already_gone(ctx, &object, gone, asked)),
            Err(ApiError::Conflict(_)) => return Ok(slot.on_changed(item, &object, &shown)),
            Err(source) => {
                slot.cancel();
                return Err(Error::Detach { object: Box::new(object), source });
            }
        }
    }
    for attempt in 1..=ATTEMPTS {
        let err = match send(ctx, &permit).await {
            Ok(()) => {
                ctx.pending_writes.record(&object.uid, &shown, ctx.clock.now());
                ctx.meters.record_delete(permit.reason(), permit.policy());
                log_deletion!(info, &permit, "Deleted an object");
                return Ok(Outcome::Done);
            }
            Err(err) => err,
        };
        if !matches!(err, ApiError::Conflict(_) | ApiError::NotFound(_)) {
            if matches!(err, ApiError::Unknown { .. }) {
                // If the next pass finds it gone, nothing else would log the reason.
                log_deletion!(warn, &permit, "A deletion was not answered, so it may have been done");
            }
            return Err(slot.on_failed(object, err));
        }
        let resource = permit.object().resource.clone();
        let live = ctx.requests.get_metadata(&resource, &object.namespace, &object.name).await;
        match check_live(&mut permit, &object, live) {
            LiveCheck::Gone(gone) => return Ok(slot.on_already_gone(ctx, &object, gone, asked)),
            // The object exists, so the 404 is about something else.
            _ if matches!(err, ApiError::NotFound(_)) => return Err(slot.on_failed(object, err)),
            LiveCheck::Unchanged => tokio::time::sleep(PAUSE * attempt).await,
            LiveCheck::Changed => break,
            LiveCheck::Unknown(err) => return Err(slot.on_failed(object, err)),
        }
    }
    // The watch will show the new state, and the object is checked again.
    tracing::debug!(%object, "An object changed while it was to be deleted");
    Ok(slot.on_changed(item, &object, &shown))
}

/// What a live read shows of an object whose deletion was refused.
enum LiveCheck {
    /// Nothing relevant changed: the permission to delete is valid for the state that was read.
    Unchanged,
    Changed,
    Gone(Gone),
    Unknown(ApiError),
}

fn check_live(permit: &mut DeletePermit, object: &Coordinates, live: Result<Meta, ApiError>) -> LiveCheck {
    match evaluate_read(&permit.object().resource, object, live.clone()) {
        Ok(OwnerState::Gone(gone) | OwnerState::Orphaned(gone)) => LiveCheck::Gone(gone),
        Ok(OwnerState::Waiting(_) | OwnerState::Live(_)) => match live {
            Ok(live) if permit.revalidate(&live) => LiveCheck::Unchanged,
            Ok(_) => LiveCheck::Changed,
            Err(err) => LiveCheck::Unknown(err),
        },
        Err(Unproved::NotServed(err) | Unproved::Failed(err)) => LiveCheck::Unknown(err),
        Err(err @ Unproved::Unrelated) => LiveCheck::Unknown(ApiError::unknown(err.to_string())),
    }
}

/// Sends the only DELETE of this crate, with the uid and resourceVersion of the checked state.
async fn send(ctx: &Ctx, permit: &DeletePermit) -> Result<(), ApiError> {
    let Object { coordinates, resource, meta } = permit.object();
    let options = DeleteOptions {
        propagation: Some(permit.policy()),
        uid: Some(coordinates.uid.clone()),
        version: Some(meta.version.clone()),
        ..DeleteOptions::default()
    };
    ctx.requests.delete(resource, &coordinates.namespace, &coordinates.name, &options).await
}

fn describe(owner: &NonBlockingOwner) -> String {
    match owner {
        NonBlockingOwner::Gone(gone) => format!("{} {}", gone.owner(), gone.evidence()),
        NonBlockingOwner::Waiting(waiting) => format!("uid {} waits for it", waiting.owner()),
    }
}

/// One delete of the rate limit. Dropping it counts as a delete.
struct Slot<'a> {
    ctx: &'a Ctx,
    used: bool,
}

impl<'a> Slot<'a> {
    fn take(ctx: &'a Ctx, item: &Item, object: &Coordinates) -> Result<Self, Duration> {
        let now = ctx.clock.now();
        let mut limiter = ctx.delete_limiter.lock();
        let taken = limiter.take(item, object, now);
        let report = limiter.report(now);
        drop(limiter);
        ctx.update_held_gauge();
        if let Some(Report { held, examples }) = report {
            tracing::warn!(
                held,
                examples = examples.join(", "),
                "--gc-max-deletes-per-minute delays deletions: more objects must be deleted than the limit allows"
            );
        }
        taken.map(|()| Self { ctx, used: true })
    }

    /// Frees the slot, because nothing was deleted.
    fn cancel(mut self) {
        self.used = false;
        self.ctx.delete_limiter.lock().cancel();
    }

    /// Handles an object that was already gone.
    fn on_already_gone(self, ctx: &Ctx, object: &Coordinates, gone: Gone, asked: Restores) -> Outcome {
        self.cancel();
        ctx.graph.on_proved_absent(object, gone, asked);
        Outcome::Done
    }

    /// Frees the slot of an object that has changed. The object is checked again when the new state is shown, or after
    /// the back-off.
    fn on_changed(self, item: &Item, object: &Coordinates, shown: &Version) -> Outcome {
        let ctx = self.ctx;
        self.cancel();
        ctx.graph.await_newer(&object.uid, shown);
        ctx.requeue_later(item)
    }

    fn on_failed(self, object: Coordinates, source: ApiError) -> Error {
        // For the other errors it is unknown whether the server deleted it.
        if !matches!(source, ApiError::Unknown { .. }) {
            self.cancel();
        }
        Error::Delete { object: Box::new(object), source }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if self.used {
            self.ctx.delete_limiter.lock().record_response(self.ctx.clock.now());
        }
    }
}
