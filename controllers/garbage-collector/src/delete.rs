//! One attempt to delete, top to bottom: the state in the graph, live reads of the owners, the verdict, the writes.
//!
//! This file makes no decision: [`verdict`] does, and the only DELETE of this crate needs the [`Doomed`] value that
//! only `verdict` creates.

use std::time::Duration;

use api::{Meta, Version};
use client::{ApiError, DeleteOptions};
use runner::Outcome;

use crate::{
    Ctx,
    breaker::Report,
    evidence::{FOREGROUND, Gone, Standing, Unproved, weigh},
    finalizer::{self, Removed},
    graph::{Coordinates, Item, TypeName},
    kinds::Unknown,
    metrics::{Detached, Why, policy_name},
    patch::{self, Patched},
    proofs::{self, Unjudged},
    requests,
    verdict::{self, Dependents, Detach, Doomed, Foreground, Needless, Object, Step, Verdict},
};

/// The limit of attempts. An object that is written all the time is deleted within them, or backs off.
const ATTEMPTS: u32 = 4;
/// The pause between two attempts, multiplied by the attempt number.
const PAUSE: Duration = Duration::from_millis(10);

/// Logs a deletion with its reason and the proofs about the owners.
macro_rules! tell {
    ($level:ident, $doomed:expr, $message:literal) => {{
        let doomed: &Doomed = $doomed;
        let owners: Vec<String> = doomed.owners().iter().map(words).collect();
        tracing::$level!(
            object = %doomed.object().coordinates,
            uid = %doomed.object().coordinates.uid,
            reason = doomed.reason().as_str(),
            owners = owners.join("; "),
            policy = policy_name(doomed.policy()),
            $message
        );
    }};
}

/// Why an attempt did not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot tell what is to become of {object}")]
    Unjudged {
        object: Box<Coordinates>,
        #[source]
        source: Unjudged,
    },
    #[error("cannot look for {object}")]
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
    #[error("cannot let {object} go")]
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
        && let Some(wait) = requests::put_off(err)
    {
        // The pass learned nothing new. An item that waits for a slot keeps its position, and others may go first.
        ctx.breaker.lock().steps_aside(item);
        return Ok(Outcome::Parked(wait));
    }
    if !matches!(outcome, Ok(Outcome::After(_))) {
        ctx.breaker.lock().forget(item);
        ctx.show_held();
    }
    if matches!(outcome, Ok(Outcome::Done)) {
        ctx.waits.over(item.uid(), FOREGROUND);
    }
    outcome
}

async fn attempt(ctx: &Ctx, item: &Item) -> Result<Outcome, Error> {
    let Some(node) = ctx.known.node(item) else {
        ctx.meters.untroubled(item.uid());
        return Ok(Outcome::Done);
    };
    if let Some(meta) = &node.meta
        && let Some(wait) = ctx.acted.wait(&meta.uid, &meta.version, ctx.clock.now())
    {
        return Ok(Outcome::After(wait));
    }
    let dependents = Dependents { any: node.has_dependents, one_deletes_its_own: node.a_dependent_deletes_its_own };
    match verdict::step(node) {
        Step::Nothing => {
            ctx.meters.untroubled(item.uid());
            Ok(Outcome::Done)
        }
        Step::LookFor(claimed) => look_for(ctx, item, claimed).await,
        Step::Foreground(object) => let_go_last(ctx, item, &object).await,
        Step::AskForOwners(object) => judge(ctx, item, object, dependents).await,
    }
}

/// Reads an owner that no monitor has shown, or whose type is no longer watched.
async fn look_for(ctx: &Ctx, item: &Item, claimed: Coordinates) -> Result<Outcome, Error> {
    let trouble = |why| troubled(ctx, item, &claimed, &claimed, why);
    let resource = match ctx.kinds.resource(&claimed.api_version, &claimed.kind) {
        Ok(resource) => resource,
        Err(unknown) => {
            trouble(Why::UnknownKind);
            return Ok(match unknown {
                Unknown::Unserved { .. } => no_longer_served(ctx, item, &claimed),
                Unknown::Ambiguous { .. } => ctx.later(item),
            });
        }
    };
    let asked = match proofs::locate(&resource, Box::new(claimed.clone())) {
        Ok(asked) => asked,
        Err(nowhere) => {
            trouble(Why::from(nowhere));
            // The object was observed, its type was removed, and the type came back with another scope.
            if ctx.known.holds_no_more(item.uid()) {
                tracing::warn!(object = %claimed, "An owner waits no longer for an object that cannot be there any more");
            }
            // A retry would give the same result.
            return Ok(Outcome::Done);
        }
    };
    match proofs::ask(ctx, &resource, &asked).await {
        Ok(Standing::Gone(gone) | Standing::Orphaned(gone)) => {
            ctx.meters.untroubled(item.uid());
            ctx.known.proved_absent(&claimed, gone);
            Ok(Outcome::Done)
        }
        Ok(Standing::Waiting(_) | Standing::Solid(_)) => {
            ctx.meters.untroubled(item.uid());
            // Poll until a watch shows it: it may be created and deleted without an event, and its dependents would
            // stay (#56121).
            tracing::debug!(object = %claimed, "An owner is there that no watch has shown");
            Ok(ctx.later(item))
        }
        Err(source) if requests::put_off(&source).is_some() => {
            Err(Error::Unproved { object: Box::new(claimed), source })
        }
        Err(source) => {
            let why = Why::from(&source);
            trouble(why);
            match why {
                Why::NotServed => Ok(ctx.later(item)),
                _ => Err(Error::Unproved { object: Box::new(claimed), source }),
            }
        }
    }
}

/// Handles an object whose type is unknown. If a monitor had shown it, it may be gone with its type, and no event will
/// ever show that. So the owners that it blocks wait only for a limited time.
fn no_longer_served(ctx: &Ctx, item: &Item, claimed: &Coordinates) -> Outcome {
    // Only an object that a monitor has shown can block an owner, so its type was served once.
    if !ctx.known.ask(|graph| graph.holds(item.uid())) {
        return ctx.later(item);
    }
    let of = TypeName { api_version: claimed.api_version.clone(), kind: claimed.kind.clone() };
    let left = ctx.kinds.blocks_for(&of, ctx.clock.now());
    if !left.is_zero() {
        return Outcome::After(left);
    }
    if ctx.known.holds_no_more(item.uid()) {
        tracing::warn!(object = %claimed, "An owner waits no longer for an object whose type is served no more");
    }
    ctx.later(item)
}

/// Removes the foreground finalizer of a waiting owner when no dependent blocks it any more.
async fn let_go_last(ctx: &Ctx, item: &Item, owner: &Object) -> Result<Outcome, Error> {
    ctx.meters.untroubled(item.uid());
    // Another finalizer kept it after its dependents were orphaned, and it was deleted again: the last request counts.
    ctx.known.orphaned.forget(&owner.coordinates.uid);
    // Read this before the graph: a type that syncs in between may add blocking dependents.
    let unsynced = ctx.monitors.unsynced();
    // Proofs take seconds. Make them while the blocking dependents are being deleted.
    ctx.monitors.prove_soon(&unsynced);
    match verdict::foreground(ctx.known.blocking(&owner.coordinates.uid)) {
        Foreground::LookAt(items) => {
            items.into_iter().for_each(|it| ctx.known.deletes.add(it));
            Ok(Outcome::Done)
        }
        Foreground::Finish => {
            if let Some(pause) = ctx.wait_for(&owner.coordinates, FOREGROUND, &unsynced) {
                return Ok(Outcome::After(pause));
            }
            let removed = finalizer::remove(ctx, owner, FOREGROUND).await;
            let object = &owner.coordinates;
            match removed.map_err(|source| Error::Finish { object: Box::new(object.clone()), source })? {
                Removed::Now(version) => {
                    ctx.acted.remember(&object.uid, &owner.meta.version, ctx.clock.now());
                    ctx.known.let_go(&object.uid, &version);
                    tracing::info!(%object, "Let an owner go, as nobody blocks it any more");
                }
                Removed::Before(meta) => ctx.known.let_go(&object.uid, &meta.version),
                Removed::Gone(gone) => ctx.known.proved_absent(object, gone),
            }
            Ok(Outcome::Done)
        }
    }
}

/// Judges an object by its owners.
async fn judge(ctx: &Ctx, item: &Item, object: Object, dependents: Dependents) -> Result<Outcome, Error> {
    let coordinates = object.coordinates.clone();
    let restores = ctx.known.restores();
    let judged = match proofs::judge(ctx, object).await {
        Ok(judged) => judged,
        Err(unjudged) => return put_off(ctx, item, &coordinates, unjudged),
    };
    ctx.meters.untroubled(item.uid());
    if ctx.known.restores() != restores {
        // The earlier proofs may be invalid now.
        return Ok(ctx.later(item));
    }
    match judged.map(|it| verdict::verdict(it, dependents)) {
        None | Some(Verdict::Keep) => Ok(Outcome::Done),
        Some(Verdict::DropRefs(surplus)) => detach(ctx, item, surplus).await,
        Some(Verdict::Delete(doomed)) => delete(ctx, item, doomed).await,
    }
}

/// Handles an owner that cannot be looked up: the object stays, and is retried with back-off.
fn put_off(ctx: &Ctx, item: &Item, object: &Coordinates, unjudged: Unjudged) -> Result<Outcome, Error> {
    let (owner, why) = match &unjudged {
        Unjudged::Unknown { owner, .. } => (owner, Why::UnknownKind),
        Unjudged::Nowhere { owner, source } => (owner, Why::from(*source)),
        Unjudged::Unproved { owner, source } => (owner, Why::from(source)),
    };
    if requests::put_off(&unjudged).is_some() {
        return Err(Error::Unjudged { object: Box::new(object.clone()), source: unjudged });
    }
    troubled(ctx, item, object, owner, why);
    match why {
        Why::UnknownKind | Why::NotServed => Ok(ctx.later(item)),
        // No retry can help; only a change of the object can.
        Why::Misplaced | Why::Misnamed => Ok(Outcome::Done),
        Why::Failed => Err(Error::Unjudged { object: Box::new(object.clone()), source: unjudged }),
    }
}

/// Records that an owner cannot be looked up, and logs a warning if this is new for the type.
fn troubled(ctx: &Ctx, item: &Item, object: &Coordinates, owner: &Coordinates, why: Why) {
    let of = TypeName { api_version: owner.api_version.clone(), kind: owner.kind.clone() };
    if ctx.meters.troubled(item.uid(), of, why) {
        tracing::warn!(
            %object, %owner, why = why.as_str(),
            "An owner cannot be looked for: what depends on it stays (further ones of the type are only counted)"
        );
    } else {
        tracing::debug!(%object, %owner, why = why.as_str(), "An owner cannot be looked for");
    }
}

/// Removes references from an object that stays.
async fn detach(ctx: &Ctx, item: &Item, surplus: Detach) -> Result<Outcome, Error> {
    let Detach { object, owners } = surplus;
    let patched = patch::detach_as_judged(ctx, &object, &owners).await;
    let Object { coordinates, meta, .. } = object;
    match patched {
        Ok(Patched::Done(_)) => {
            ctx.acted.remember(&coordinates.uid, &meta.version, ctx.clock.now());
            ctx.known.detached(&coordinates.uid, &meta.version, &owners);
            let why = if owners.len() < meta.owners.len() { Detached::OwnerLives } else { Detached::Orphaned };
            ctx.meters.detached(why);
            tracing::info!(object = %coordinates, ?owners, ?why, "Removed references to owners from an object that stays");
            Ok(Outcome::Done)
        }
        Ok(Patched::Gone(gone)) => {
            ctx.known.proved_absent(&coordinates, gone);
            Ok(Outcome::Done)
        }
        // As for a delete: the watch will show the newer state.
        Err(ApiError::Conflict(_)) => {
            ctx.known.await_newer(&coordinates.uid, &meta.version);
            Ok(ctx.later(item))
        }
        Err(source) => Err(Error::Detach { object: Box::new(coordinates), source }),
    }
}

/// Deletes an object, if the breaker allows it.
async fn delete(ctx: &Ctx, item: &Item, mut doomed: Doomed) -> Result<Outcome, Error> {
    let Object { coordinates: object, meta: Meta { version: shown, .. }, .. } = doomed.object().clone();
    let slot = match Slot::take(ctx, item, &object) {
        Ok(slot) => slot,
        Err(wait) => return Ok(Outcome::After(wait)),
    };
    if doomed.unblock_own_refs_first() {
        match patch::unblock(ctx, doomed.object()).await {
            Ok(Patched::Done(version)) => doomed.has_unblocked(version),
            Ok(Patched::Gone(gone)) => return Ok(slot.was_for_nothing(ctx, &object, gone)),
            Err(ApiError::Conflict(_)) => return Ok(slot.comes_again(item, &object, &shown)),
            Err(source) => {
                slot.give_back();
                return Err(Error::Detach { object: Box::new(object), source });
            }
        }
    }
    for attempt in 1..=ATTEMPTS {
        let err = match send(ctx, &doomed).await {
            Ok(()) => {
                ctx.acted.remember(&object.uid, &shown, ctx.clock.now());
                ctx.meters.deleted(doomed.reason(), doomed.policy());
                tell!(info, &doomed, "Deleted an object");
                return Ok(Outcome::Done);
            }
            Err(err) => err,
        };
        if !matches!(err, ApiError::Conflict(_) | ApiError::NotFound(_)) {
            if matches!(err, ApiError::Unknown { .. }) {
                // If the next pass finds it gone, nothing else would log the reason.
                tell!(warn, &doomed, "A deletion was not answered, so it may have been done");
            }
            return Err(slot.failed(object, err));
        }
        let resource = doomed.object().resource.clone();
        let live = ctx.requests.get_metadata(&resource, &object.namespace, &object.name).await;
        match still(&mut doomed, &object, live) {
            Still::Gone(gone) => return Ok(slot.was_for_nothing(ctx, &object, gone)),
            // The object exists, so the 404 is about something else.
            _ if matches!(err, ApiError::NotFound(_)) => return Err(slot.failed(object, err)),
            Still::Holds => tokio::time::sleep(PAUSE * attempt).await,
            Still::Changed => break,
            Still::Unknown(err) => return Err(slot.failed(object, err)),
        }
    }
    // The watch will show the new state, and the object is judged again.
    tracing::debug!(%object, "An object changed while it was to be deleted");
    Ok(slot.comes_again(item, &object, &shown))
}

/// What a live read shows of an object whose deletion was refused.
enum Still {
    /// Nothing relevant changed: the permission to delete is valid for the state that was read.
    Holds,
    Changed,
    Gone(Gone),
    Unknown(ApiError),
}

fn still(doomed: &mut Doomed, object: &Coordinates, live: Result<Meta, ApiError>) -> Still {
    match weigh(&doomed.object().resource, object, live.clone()) {
        Ok(Standing::Gone(gone) | Standing::Orphaned(gone)) => Still::Gone(gone),
        Ok(Standing::Waiting(_) | Standing::Solid(_)) => match live {
            Ok(live) if doomed.holds_for(&live) => Still::Holds,
            Ok(_) => Still::Changed,
            Err(err) => Still::Unknown(err),
        },
        Err(Unproved::NotServed(err) | Unproved::Failed(err)) => Still::Unknown(err),
        Err(err @ Unproved::Unrelated) => Still::Unknown(ApiError::unknown(err.to_string())),
    }
}

/// Sends the only DELETE of this crate, with the uid and resourceVersion of the judged state.
async fn send(ctx: &Ctx, doomed: &Doomed) -> Result<(), ApiError> {
    let Object { coordinates, resource, meta } = doomed.object();
    let options = DeleteOptions {
        propagation: Some(doomed.policy()),
        uid: Some(coordinates.uid.clone()),
        version: Some(meta.version.clone()),
        ..DeleteOptions::default()
    };
    ctx.requests.delete(resource, &coordinates.namespace, &coordinates.name, &options).await
}

fn words(owner: &Needless) -> String {
    match owner {
        Needless::Gone(gone) => format!("{} {}", gone.owner(), gone.evidence()),
        Needless::Waiting(waiting) => format!("uid {} waits for it", waiting.owner()),
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
        let mut breaker = ctx.breaker.lock();
        let taken = breaker.take(item, object, now);
        let report = breaker.report(now);
        drop(breaker);
        ctx.show_held();
        if let Some(Report { held, examples }) = report {
            tracing::warn!(
                held,
                examples = examples.join(", "),
                "--gc-max-deletes-per-minute holds back deletions: more objects than that are to go"
            );
        }
        taken.map(|()| Self { ctx, used: true })
    }

    /// Frees the slot, because nothing was deleted.
    fn give_back(mut self) {
        self.used = false;
        self.ctx.breaker.lock().not_done();
    }

    /// Handles an object that was already gone.
    fn was_for_nothing(self, ctx: &Ctx, object: &Coordinates, gone: Gone) -> Outcome {
        self.give_back();
        ctx.known.proved_absent(object, gone);
        Outcome::Done
    }

    /// Frees the slot of an object that has changed. The object is judged again when the new state is shown, or after
    /// the back-off.
    fn comes_again(self, item: &Item, object: &Coordinates, shown: &Version) -> Outcome {
        let ctx = self.ctx;
        self.give_back();
        ctx.known.await_newer(&object.uid, shown);
        ctx.later(item)
    }

    fn failed(self, object: Coordinates, source: ApiError) -> Error {
        // For the other errors it is unknown whether the server deleted it.
        if !matches!(source, ApiError::Unknown { .. }) {
            self.give_back();
        }
        Error::Delete { object: Box::new(object), source }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if self.used {
            self.ctx.breaker.lock().answered(self.ctx.clock.now());
        }
    }
}
