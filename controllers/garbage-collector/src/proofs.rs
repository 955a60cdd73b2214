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
    due::Restores,
    evidence::{self, Gone, Judged, Standing, Unproved},
    graph::Coordinates,
    kinds::Unknown,
    requests,
    verdict::Object,
};

/// How long the proof that an owner waits is valid.
const WAITING: Duration = Duration::from_secs(1);
/// Above this number of entries, expired ones are removed.
const QUESTIONS: usize = 64;

/// The reads in flight, and those of the last moment.
#[derive(Default)]
pub(crate) struct Proofs {
    questions: Mutex<HashMap<Coordinates, Question>>,
}

/// The worker that holds the lock sends the read. Workers that arrive meanwhile wait and use its result.
type Question = Arc<tokio::sync::Mutex<Option<Answer>>>;

#[derive(Clone)]
struct Answer {
    /// When the read was sent. It shows nothing of what happened later.
    sent: Instant,
    /// When the response arrived.
    at: Instant,
    /// The restore count of etcd when the read was sent.
    restores: Restores,
    standing: Result<Standing, Unproved>,
}

/// Why the owners of an object cannot be judged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unjudged {
    /// The resource of the owner is unknown.
    #[error("its owner {owner} cannot be looked for")]
    Unknown {
        owner: Box<Coordinates>,
        #[source]
        source: Unknown,
    },
    /// Such an object cannot exist, now or later.
    #[error("its owner {owner} cannot be looked for")]
    Nowhere {
        owner: Box<Coordinates>,
        #[source]
        source: Nowhere,
    },
    /// The read gave no usable result.
    #[error("its owner {owner} cannot be looked for")]
    Unproved {
        owner: Box<Coordinates>,
        #[source]
        source: Unproved,
    },
}

/// Why an object with the name in a reference cannot exist. That is no proof: the reference may be a mistake for an
/// existing object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Nowhere {
    #[error("it is of a namespaced type, and who names it is cluster-scoped")]
    Misplaced,
    /// A server would interpret the path as something else, such as a subresource.
    #[error("no object can have its name")]
    Misnamed,
}

/// Finds the state of each owner of an object, in the order of its references. Stops at the first that cannot be
/// judged.
pub(crate) async fn judge(ctx: &Ctx, object: Object) -> Result<Option<Judged>, Unjudged> {
    let mut standings = Vec::with_capacity(object.meta.owners.len());
    for reference in object.meta.owners.iter() {
        standings.push(standing(ctx, &object.coordinates.namespace, reference).await?);
    }
    Ok(Judged::new(object, standings))
}

async fn standing(ctx: &Ctx, namespace: &Atom, reference: &OwnerRef) -> Result<Standing, Unjudged> {
    let claimed = || Box::new(Coordinates::claimed(reference, namespace));
    let resource = ctx.kinds.resource(&reference.api_version, &reference.kind);
    let found = match kept_proof(ctx, &claimed(), resource.as_ref().ok()) {
        Some(gone) => Standing::Gone(gone),
        None => {
            let resource = resource.map_err(|source| Unjudged::Unknown { owner: claimed(), source })?;
            let asked = locate(&resource, claimed());
            let asked = asked.map_err(|source| Unjudged::Nowhere { owner: claimed(), source })?;
            match ask(ctx, &resource, &asked).await {
                Ok(standing) => {
                    if let Standing::Solid(_) = &standing {
                        ctx.known.lives(&asked);
                    }
                    standing
                }
                Err(source) => return Err(Unjudged::Unproved { owner: asked, source }),
            }
        }
    };
    if let Standing::Waiting(waiting) = &found {
        // It was deleted again in another way, after its dependents were orphaned: the last request counts.
        ctx.known.orphaned.forget(waiting.owner());
    }
    Ok(match found {
        Standing::Gone(gone) if ctx.known.orphaned.has(&reference.uid) => Standing::Orphaned(gone),
        found => found,
    })
}

/// A cached proof that the claimed object is gone; `None` while the monitor of its resource is behind, because etcd may
/// have been restored and no list has shown that yet.
fn kept_proof(ctx: &Ctx, claim: &Coordinates, resource: Option<&Resource>) -> Option<Gone> {
    let gone = ctx.known.gone(claim)?;
    let is_doubtful = resource.is_some_and(|it| ctx.monitors.is_behind(it));
    (!is_doubtful).then_some(gone)
}

/// The coordinates for the live read; an error if no such object can exist.
pub(crate) fn locate(resource: &Resource, claimed: Box<Coordinates>) -> Result<Box<Coordinates>, Nowhere> {
    // The same rule as for URL path segments, for all types:
    // https://kubernetes.io/docs/concepts/overview/working-with-objects/names
    if matches!(&*claimed.name, "" | "." | "..") || claimed.name.contains(['/', '%']) {
        return Err(Nowhere::Misnamed);
    }
    match (resource.namespaced, claimed.namespace.is_empty()) {
        (true, true) => Err(Nowhere::Misplaced),
        (true, false) => Ok(claimed),
        (false, _) => Ok(Box::new(Coordinates { namespace: Atom::default(), ..*claimed })),
    }
}

/// Reads an owner live, or returns an earlier result that is still valid.
pub(crate) async fn ask(ctx: &Ctx, resource: &Resource, asked: &Coordinates) -> Result<Standing, Unproved> {
    if let Some(gone) = kept_proof(ctx, asked, Some(resource)) {
        return Ok(Standing::Gone(gone));
    }
    let came = ctx.clock.now();
    let question = ctx.proofs.question(asked, came);
    let mut last = match question.try_lock() {
        Ok(last) => last,
        Err(_) => ctx.requests.read(resource, question.lock()).await.map_err(Unproved::Failed)?,
    };
    if let Some(answer) = &*last
        && answer.restores == ctx.known.restores()
        && (answer.serves(came) || still_waits(ctx, asked, answer))
    {
        return answer.standing.clone();
    }
    let (sent, was_proved, restores, live) = loop {
        let (sent, restores) = (ctx.clock.now(), ctx.known.restores());
        let was_proved = ctx.known.gone(asked).is_some();
        let live = ctx.requests.get_metadata(resource, &asked.namespace, &asked.name).await;
        // A response from before a restore of etcd shows nothing about the present state.
        if restores == ctx.known.restores() {
            break (sent, was_proved, restores, live);
        }
    };
    let standing = evidence::weigh(resource, asked, live);
    if let Err(unproved) = &standing
        && requests::put_off(unproved).is_some()
    {
        // There is no result. The next worker that waits may send the read.
        return standing;
    }
    ctx.meters.asked(&standing);
    match &standing {
        Ok(Standing::Gone(gone) | Standing::Orphaned(gone)) => ctx.known.remember(gone.clone(), restores),
        Ok(Standing::Waiting(_) | Standing::Solid(_)) => ctx.known.found(asked, was_proved),
        Err(_) => {}
    }
    *last = Some(Answer { sent, at: ctx.clock.now(), restores, standing: standing.clone() });
    drop(last);
    if !matches!(standing, Ok(Standing::Waiting(_))) {
        ctx.proofs.close(asked, &question);
    }
    standing
}

/// True if the owner was waiting a moment ago and no newer state is shown. An owner that is not shown may be gone
/// since.
fn still_waits(ctx: &Ctx, asked: &Coordinates, answer: &Answer) -> bool {
    let Ok(Standing::Waiting(waiting)) = &answer.standing else { return false };
    let is_known = ctx.known.version(&asked.uid).is_some_and(|it| !waiting.version().is_older_than(&it));
    ctx.clock.now().saturating_duration_since(answer.at) <= WAITING && is_known
}

impl Answer {
    /// True if the answer is valid for a pass that needs it since `came`.
    fn serves(&self, came: Instant) -> bool {
        match &self.standing {
            // Valid forever, unless etcd is restored.
            Ok(Standing::Gone(_) | Standing::Orphaned(_)) => true,
            // It may be from before the event that caused the pass, even if it arrived later; and the pass may be the
            // last.
            Ok(Standing::Waiting(_) | Standing::Solid(_)) => self.sent >= came,
            // The pass will be retried, so another read now would not help.
            Err(_) => self.at >= came,
        }
    }
}

impl Proofs {
    /// The entry for these coordinates: the read in flight, or a new one.
    fn question(&self, asked: &Coordinates, now: Instant) -> Question {
        let mut questions = self.questions.lock();
        if questions.len() > QUESTIONS {
            questions.retain(|_, question| match question.try_lock() {
                Ok(answer) => answer.as_ref().is_some_and(|it| now.saturating_duration_since(it.at) <= WAITING),
                // A read is in flight.
                Err(_) => true,
            });
        }
        questions.entry(asked.clone()).or_default().clone()
    }

    /// Removes the entry. Workers that wait for it keep it; later ones send a new read.
    fn close(&self, asked: &Coordinates, question: &Question) {
        let mut questions = self.questions.lock();
        if questions.get(asked).is_some_and(|it| Arc::ptr_eq(it, question)) {
            questions.remove(asked);
        }
    }
}
