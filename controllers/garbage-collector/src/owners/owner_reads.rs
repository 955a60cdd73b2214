//! Reads owners live, with one request for all items that need the same owner at the same time.
//!
//! An owner that is gone is gone forever, so one proof serves all its dependents until etcd is restored. An owner that
//! waits can change: that proof serves for a second, and not after a monitor shows a newer state. The result that an
//! owner exists is not kept: each pass needs a read that was sent after the pass began. The wait for the read of
//! another worker has the same limits as a request: a type that responds late uses only some of the workers.

use std::{collections::HashMap, sync::Arc, time::Duration};

use api::{Atom, OwnerRef, Resource};
use clock::Instant;
use parking_lot::Mutex;

use crate::{
    Ctx,
    graph::Coordinates,
    owners::kinds::KindError,
    requests,
    rules::evidence::{self, CheckedObject, Gone, Object, OwnerState, Unproved},
    shared_graph::Restores,
};

/// How long the proof that an owner waits is valid.
const WAITING_VALID_FOR: Duration = Duration::from_secs(1);
/// Above this number of entries, expired ones are removed.
const MAX_ENTRIES: usize = 64;

/// The reads in flight, and those of the last moment.
#[derive(Default)]
pub(crate) struct OwnerReads {
    reads: Mutex<HashMap<Coordinates, SharedRead>>,
}

/// The worker that holds the lock sends the read. Workers that arrive meanwhile wait and use its result.
type SharedRead = Arc<tokio::sync::Mutex<Option<ReadResult>>>;

#[derive(Clone)]
struct ReadResult {
    /// When the read was sent. It shows nothing of what happened later.
    sent: Instant,
    /// When the response arrived.
    at: Instant,
    /// The restore count of etcd when the read was sent.
    restores: Restores,
    owner_state: Result<OwnerState, Unproved>,
}

/// Why the owners of an object cannot be checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnersUnknown {
    /// The resource of the owner is unknown.
    #[error("its owner {owner} cannot be looked up")]
    Unknown {
        owner: Box<Coordinates>,
        #[source]
        source: KindError,
    },
    /// Such an object cannot exist, now or later.
    #[error("its owner {owner} cannot be looked up")]
    Unlocatable {
        owner: Box<Coordinates>,
        #[source]
        source: Unlocatable,
    },
    /// The read gave no usable result.
    #[error("its owner {owner} cannot be looked up")]
    Unproved {
        owner: Box<Coordinates>,
        #[source]
        source: Unproved,
    },
}

/// Why an object with the name in a reference cannot exist. That is no proof: the reference may be a mistake for an
/// existing object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unlocatable {
    #[error("its type is namespaced, and its dependent is cluster-scoped")]
    Misplaced,
    /// A server would interpret the path as something else, such as a subresource.
    #[error("its name is not valid")]
    Misnamed,
}

/// Finds the state of each owner of an object, in the order of its references. Stops at the first that cannot be
/// checked.
pub(crate) async fn check_owners(ctx: &Ctx, object: Object) -> Result<Option<CheckedObject>, OwnersUnknown> {
    let mut owner_states = Vec::with_capacity(object.meta.owners.len());
    for reference in object.meta.owners.iter() {
        owner_states.push(owner_state(ctx, &object.coordinates.namespace, reference).await?);
    }
    Ok(CheckedObject::new(object, owner_states))
}

async fn owner_state(ctx: &Ctx, namespace: &Atom, reference: &OwnerRef) -> Result<OwnerState, OwnersUnknown> {
    let referenced = || Box::new(Coordinates::referenced(reference, namespace));
    let resource = ctx.kinds.resource(&reference.api_version, &reference.kind);
    let found = match cached_proof(ctx, &referenced(), resource.as_ref().ok()) {
        Some(gone) => OwnerState::Gone(gone),
        None => {
            let resource = resource.map_err(|source| OwnersUnknown::Unknown { owner: referenced(), source })?;
            let asked = locate(&resource, referenced());
            let asked = asked.map_err(|source| OwnersUnknown::Unlocatable { owner: referenced(), source })?;
            match read_owner(ctx, &resource, &asked).await {
                Ok(owner_state) => {
                    if let OwnerState::Live(_) = &owner_state {
                        ctx.graph.on_live_owner(&asked);
                    }
                    owner_state
                }
                Err(source) => return Err(OwnersUnknown::Unproved { owner: asked, source }),
            }
        }
    };
    if let OwnerState::Waiting(waiting) = &found {
        ctx.graph.orphaned.on_foreground(waiting.owner());
    }
    Ok(match found {
        OwnerState::Gone(gone) if ctx.graph.orphaned.contains(&reference.uid) => OwnerState::Orphaned(gone),
        found => found,
    })
}

/// A cached proof that the referenced object is gone; `None` while the monitor of its resource is behind, because etcd
/// may have been restored and no list has shown that yet.
fn cached_proof(ctx: &Ctx, claim: &Coordinates, resource: Option<&Resource>) -> Option<Gone> {
    let gone = ctx.graph.absence_proof(claim)?;
    let is_doubtful = resource.is_some_and(|it| ctx.monitors.is_behind(it));
    (!is_doubtful).then_some(gone)
}

/// The coordinates for the live read; an error if no such object can exist.
pub(crate) fn locate(resource: &Resource, referenced: Box<Coordinates>) -> Result<Box<Coordinates>, Unlocatable> {
    // The same rule as for URL path segments, for all types:
    // https://kubernetes.io/docs/concepts/overview/working-with-objects/names
    if matches!(&*referenced.name, "" | "." | "..") || referenced.name.contains(['/', '%']) {
        return Err(Unlocatable::Misnamed);
    }
    match (resource.namespaced, referenced.namespace.is_empty()) {
        (true, true) => Err(Unlocatable::Misplaced),
        (true, false) => Ok(referenced),
        (false, _) => Ok(Box::new(Coordinates { namespace: Atom::default(), ..*referenced })),
    }
}

/// Reads an owner live, or returns an earlier result that is still valid.
pub(crate) async fn read_owner(ctx: &Ctx, resource: &Resource, asked: &Coordinates) -> Result<OwnerState, Unproved> {
    if let Some(gone) = cached_proof(ctx, asked, Some(resource)) {
        return Ok(OwnerState::Gone(gone));
    }
    let needed_since = ctx.clock.now();
    let shared_read = ctx.owner_reads.entry(asked, needed_since);
    let mut last = match shared_read.try_lock() {
        Ok(last) => last,
        Err(_) => ctx.requests.read(resource, shared_read.lock()).await.map_err(Unproved::Failed)?,
    };
    if let Some(result) = &*last
        && result.restores == ctx.graph.restores()
        && (result.is_valid_for(needed_since) || is_still_waiting(ctx, asked, result))
    {
        return result.owner_state.clone();
    }
    let (sent, was_proved, restores, live) = loop {
        let (sent, restores) = (ctx.clock.now(), ctx.graph.restores());
        let was_proved = ctx.graph.absence_proof(asked).is_some();
        let live = ctx.requests.get_metadata(resource, &asked.namespace, &asked.name).await;
        // A response from before a restore of etcd shows nothing about the present state.
        if restores == ctx.graph.restores() {
            break (sent, was_proved, restores, live);
        }
    };
    let owner_state = evidence::evaluate_read(resource, asked, live);
    if let Err(unproved) = &owner_state
        && requests::postponed_for(unproved).is_some()
    {
        // There is no result. The next worker that waits may send the read.
        return owner_state;
    }
    ctx.meters.record_owner_read(&owner_state);
    match &owner_state {
        Ok(OwnerState::Gone(gone) | OwnerState::Orphaned(gone)) => ctx.graph.cache_proof(gone.clone(), restores),
        Ok(OwnerState::Waiting(_) | OwnerState::Live(_)) => ctx.graph.drop_refuted_proofs(asked, was_proved),
        Err(_) => {}
    }
    *last = Some(ReadResult { sent, at: ctx.clock.now(), restores, owner_state: owner_state.clone() });
    drop(last);
    if !matches!(owner_state, Ok(OwnerState::Waiting(_))) {
        ctx.owner_reads.remove_entry(asked, &shared_read);
    }
    owner_state
}

/// True if the owner was waiting a moment ago and no newer state is shown. An owner that is not shown may be gone
/// since.
fn is_still_waiting(ctx: &Ctx, asked: &Coordinates, result: &ReadResult) -> bool {
    let Ok(OwnerState::Waiting(waiting)) = &result.owner_state else { return false };
    let is_known = ctx.graph.version(&asked.uid).is_some_and(|it| !waiting.version().is_older_than(&it));
    ctx.clock.now().saturating_duration_since(result.at) <= WAITING_VALID_FOR && is_known
}

impl ReadResult {
    /// True if the answer is valid for a pass that needs it since `needed_since`.
    fn is_valid_for(&self, needed_since: Instant) -> bool {
        match &self.owner_state {
            // Valid forever, unless etcd is restored.
            Ok(OwnerState::Gone(_) | OwnerState::Orphaned(_)) => true,
            // It may be from before the event that caused the pass, even if it arrived later; and the pass may be the
            // last.
            Ok(OwnerState::Waiting(_) | OwnerState::Live(_)) => self.sent >= needed_since,
            // The pass will be retried, so another read now would not help.
            Err(_) => self.at >= needed_since,
        }
    }
}

impl OwnerReads {
    /// The entry for these coordinates: the read in flight, or a new one.
    fn entry(&self, asked: &Coordinates, now: Instant) -> SharedRead {
        let mut reads = self.reads.lock();
        if reads.len() > MAX_ENTRIES {
            reads.retain(|_, shared_read| match shared_read.try_lock() {
                Ok(result) => {
                    result.as_ref().is_some_and(|it| now.saturating_duration_since(it.at) <= WAITING_VALID_FOR)
                }
                // A read is in flight.
                Err(_) => true,
            });
        }
        reads.entry(asked.clone()).or_default().clone()
    }

    /// Removes the entry. Workers that wait for it keep it; later ones send a new read.
    fn remove_entry(&self, asked: &Coordinates, shared_read: &SharedRead) {
        let mut reads = self.reads.lock();
        if reads.get(asked).is_some_and(|it| Arc::ptr_eq(it, shared_read)) {
            reads.remove(asked);
        }
    }
}
