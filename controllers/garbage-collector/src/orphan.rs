//! One attempt to orphan: removes the owner's reference from every dependent, then removes the finalizer of the owner.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicBool, Ordering},
};

use api::{Meta, OwnerRef, Uid, Version};
use client::ApiError;
use controller::Outcome;
use futures::{StreamExt, stream};

use crate::{
    Ctx, PATCHES,
    delete::{
        finalizer::{self, Removed},
        patch::{self, Patched},
    },
    graph::{Coordinates, Dependent, Item},
    metrics::DetachReason,
    requests,
    rules::evidence::{FOREGROUND, ORPHAN, Object, has},
    shared_graph::Restores,
};

/// How often one pass looks up further dependents of an owner. After that the owner backs off.
const ROUNDS: u32 = 10;

/// Why an attempt did not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot orphan {dependent} from {owner} ({failed} failed)")]
    Dependent {
        owner: Box<Coordinates>,
        dependent: Box<Coordinates>,
        failed: usize,
        #[source]
        source: ApiError,
    },
    #[error("cannot orphan the dependents of {0}: there are always more")]
    TooManyRounds(Box<Coordinates>),
    #[error("cannot remove the finalizer of {owner} after its dependents were orphaned")]
    Finish {
        owner: Box<Coordinates>,
        #[source]
        source: finalizer::Error,
    },
}

/// Orphans the dependents of an owner that is deleted with the orphan policy, then removes its finalizer.
pub(crate) async fn orphan(ctx: &Ctx, owner: &Uid) -> Result<Outcome, Error> {
    let outcome = attempt(ctx, owner).await;
    if let Err(err) = &outcome
        && let Some(wait) = requests::postponed_for(err)
    {
        return Ok(Outcome::Parked(wait));
    }
    if matches!(outcome, Ok(Outcome::Done)) {
        ctx.owner_waits.remove(owner, ORPHAN);
    }
    outcome
}

async fn attempt(ctx: &Ctx, owner: &Uid) -> Result<Outcome, Error> {
    // Before all reads, because a proof from before a restore of etcd is not valid after it.
    let asked = ctx.graph.restores();
    let Some(mut owner) = orphaning_owner(ctx, owner) else { return Ok(Outcome::Done) };
    // If the graph does not know all dependents yet, some would keep a reference to a deleted owner, and would be
    // deleted later.
    if let Some(pause) = ctx.wait_for_monitors(&owner.coordinates, ORPHAN) {
        return Ok(Outcome::After(pause));
    }
    let unfinished = |source, owner: &Object| Error::Finish { owner: Box::new(owner.coordinates.clone()), source };
    // A removed reference cannot be restored, and the observed state may be stale. So check with a live read that the
    // owner is still deleted this way.
    owner.meta = match finalizer::read(ctx, &owner).await.map_err(|err| unfinished(err, &owner))? {
        Ok(live) if must_orphan(&live) => live,
        Ok(live) => {
            ctx.graph.on_finalizers_removed(&owner.coordinates.uid, &live.version);
            return Ok(Outcome::Done);
        }
        Err(gone) => {
            ctx.graph.on_proved_absent(&owner.coordinates, gone, asked);
            return Ok(Outcome::Done);
        }
    };
    let detached = detach_dependents(ctx, &owner, asked).await?;
    // A monitor that ended meanwhile removed dependents from the graph that still had their references. Its successor
    // will show them again.
    if let Some(pause) = ctx.wait_for_monitors(&owner.coordinates, ORPHAN) {
        return Ok(Outcome::After(pause));
    }
    // Dependents that are observed from now on must stay too.
    let uid = &owner.coordinates.uid;
    let waits_too = has(&owner.meta, FOREGROUND);
    ctx.graph.orphaned.insert(uid.clone(), waits_too);
    let removed = finalizer::remove(ctx, &owner, ORPHAN).await;
    match removed.map_err(|err| unfinished(err, &owner))? {
        Removed::ByThisCall(version) => {
            ctx.graph.on_finalizers_removed(uid, &version);
            tracing::info!(owner = %owner.coordinates, dependents = detached, "Orphaned the dependents of an owner");
        }
        Removed::Earlier(meta) => {
            // A user requested foreground deletion meanwhile. Without that finalizer, the change may be our own patch
            // whose response was lost.
            if has(&meta, FOREGROUND) {
                ctx.graph.orphaned.on_foreground(uid);
            }
            ctx.graph.on_finalizers_removed(uid, &meta.version);
        }
        Removed::Gone(gone) => ctx.graph.on_proved_absent(&owner.coordinates, gone, asked),
    }
    Ok(Outcome::Done)
}

/// The owner, while it is being deleted with the orphan finalizer.
fn orphaning_owner(ctx: &Ctx, owner: &Uid) -> Option<Object> {
    let node = ctx.graph.node(&Item::Observed(owner.clone()))?;
    let (resource, meta) = (node.resource?, node.meta?);
    must_orphan(&meta).then_some(Object { coordinates: node.coordinates, resource, meta })
}

fn must_orphan(owner: &Meta) -> bool {
    owner.deletion.is_some() && has(owner, ORPHAN)
}

/// Removes the owner from each of its dependents, and from those that appear meanwhile, until there are none. Returns
/// their number.
async fn detach_dependents(ctx: &Ctx, owner: &Object, asked: Restores) -> Result<usize, Error> {
    // The results of our patches, which the watch may not show yet.
    let mut detached: HashMap<Uid, Version> = HashMap::new();
    for _ in 0..ROUNDS {
        let mut remaining = ctx.graph.dependents(&owner.coordinates.uid);
        remaining.retain(|it| has_reference(it, &owner.coordinates.uid, detached.get(&it.coordinates.uid)));
        if remaining.is_empty() {
            return Ok(detached.len());
        }
        detach_all(ctx, owner, remaining, &mut detached, asked).await?;
    }
    Err(Error::TooManyRounds(Box::new(owner.coordinates.clone())))
}

/// True if a dependent names the owner, unless the graph shows a state from before our own patch.
fn has_reference(dependent: &Dependent, owner: &Uid, written: Option<&Version>) -> bool {
    let names = |it: &OwnerRef| it.uid == *owner;
    let is_newer = |written: &Version| written.is_older_than(&dependent.version);
    dependent.owners.iter().any(names) && written.is_none_or(is_newer)
}

/// Removes the owner from all of these, even if some of them fail.
async fn detach_all(
    ctx: &Ctx,
    owner: &Object,
    remaining: Vec<Dependent>,
    detached: &mut HashMap<Uid, Version>,
    asked: Restores,
) -> Result<(), Error> {
    // After one postponed patch, no further ones are sent: each would postpone the next pass again.
    let is_postponed = AtomicBool::new(false);
    let continues = |_: &Dependent| std::future::ready(!is_postponed.load(Ordering::Relaxed));
    let remaining = stream::iter(remaining).take_while(continues);
    let mut done = remaining.map(|it| detach_one(ctx, &owner.coordinates.uid, it)).buffer_unordered(PATCHES);
    let mut failures: Option<(Coordinates, usize, ApiError)> = None;
    let mut postponed: Option<(Coordinates, usize, ApiError)> = None;
    while let Some((dependent, patched)) = done.next().await {
        match patched {
            Ok(Patched::Done(version)) => {
                ctx.meters.record_detached(DetachReason::Orphaned);
                tracing::debug!(object = %dependent, owner = %owner.coordinates, "Orphaned an object");
                detached.insert(dependent.uid, version);
            }
            Ok(Patched::Gone(gone)) => ctx.graph.on_proved_absent(&dependent, gone, asked),
            Err(err) if requests::postponed_for(&err).is_some() => {
                is_postponed.store(true, Ordering::Relaxed);
                postponed.get_or_insert((dependent, 1, err));
            }
            Err(err) => match &mut failures {
                Some((_, count, _)) => *count += 1,
                None => failures = Some((dependent, 1, err)),
            },
        }
    }
    let Some((dependent, failed, source)) = failures.or(postponed) else { return Ok(()) };
    let (owner, dependent) = (Box::new(owner.coordinates.clone()), Box::new(dependent));
    Err(Error::Dependent { owner, dependent, failed, source })
}

async fn detach_one(ctx: &Ctx, owner: &Uid, dependent: Dependent) -> (Coordinates, Result<Patched, ApiError>) {
    let Dependent { coordinates, resource, .. } = dependent;
    // The semaphore is never closed.
    let _permit = ctx.patches.acquire().await;
    let patched = patch::detach(ctx, &resource, &coordinates, std::slice::from_ref(owner)).await;
    (coordinates, patched)
}
