//! Asks the server what stands of owners, once for all that ask at the same time.
//!
//! An owner that is gone is gone for ever, so that one proof serves all its dependents until etcd is restored. One that waits may change its mind:
//! that proof serves for a second, and not beyond a newer state that a monitor shows. That an owner lives is no proof that
//! is kept: each pass that rests on it has asked, or has got the answer to a question that was sent after it began. To wait
//! for the answer to another pass is limited as a request is: a type that answers late holds only some of the workers.

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

/// So long serves the proof that an owner waits.
const WAITING: Duration = Duration::from_secs(1);
/// Beyond so many questions, those whose answers serve nobody any more are cleared away.
const QUESTIONS: usize = 64;

/// What is being asked, and was asked a moment ago.
#[derive(Default)]
pub(crate) struct Proofs {
    questions: Mutex<HashMap<Coordinates, Question>>,
}

/// Whoever holds it asks; those who come meanwhile wait, and get the answer.
type Question = Arc<tokio::sync::Mutex<Option<Answer>>>;

#[derive(Clone)]
struct Answer {
    /// When it was asked for: it tells nothing of what happened since.
    sent: Instant,
    /// When it came.
    at: Instant,
    /// How often etcd had been restored when it was asked for.
    restores: Restores,
    standing: Result<Standing, Unproved>,
}

/// Why nothing can be said of an object's owners.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unjudged {
    /// Nobody knows where to ask.
    #[error("its owner {owner} cannot be looked for")]
    Unknown {
        owner: Box<Coordinates>,
        #[source]
        source: Unknown,
    },
    /// There can be no such object, now or later.
    #[error("its owner {owner} cannot be looked for")]
    Nowhere {
        owner: Box<Coordinates>,
        #[source]
        source: Nowhere,
    },
    /// The server could not tell.
    #[error("its owner {owner} cannot be looked for")]
    Unproved {
        owner: Box<Coordinates>,
        #[source]
        source: Unproved,
    },
}

/// Why an object that a reference names can be nowhere. That proves nothing: whoever wrote the reference meant something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Nowhere {
    #[error("it is of a namespaced type, and who names it is cluster-scoped")]
    Misplaced,
    /// A server would take what is asked for for something else, such as a subresource.
    #[error("no object can have its name")]
    Misnamed,
}

/// Finds out what stands of each owner of an object, in the order of its references. The first that cannot be told ends it.
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
        // Deleted anew, in another way, after its dependents had been orphaned: the last word counts.
        ctx.known.orphaned.forget(waiting.owner());
    }
    Ok(match found {
        Standing::Gone(gone) if ctx.known.orphaned.has(&reference.uid) => Standing::Orphaned(gone),
        found => found,
    })
}

/// The proof from before that what is claimed is gone. Not while the monitor of its resource is behind: etcd may have been
/// restored since, and no set has shown that yet.
fn kept_proof(ctx: &Ctx, claim: &Coordinates, resource: Option<&Resource>) -> Option<Gone> {
    let gone = ctx.known.gone(claim)?;
    let is_doubtful = resource.is_some_and(|it| ctx.monitors.is_behind(it));
    (!is_doubtful).then_some(gone)
}

/// Where what is claimed would be; an error where it cannot be anywhere.
pub(crate) fn locate(resource: &Resource, claimed: Box<Coordinates>) -> Result<Box<Coordinates>, Nowhere> {
    // Of all types alike, as paths are: https://kubernetes.io/docs/concepts/overview/working-with-objects/names
    if matches!(&*claimed.name, "" | "." | "..") || claimed.name.contains(['/', '%']) {
        return Err(Nowhere::Misnamed);
    }
    match (resource.namespaced, claimed.namespace.is_empty()) {
        (true, true) => Err(Nowhere::Misplaced),
        (true, false) => Ok(claimed),
        (false, _) => Ok(Box::new(Coordinates { namespace: Atom::default(), ..*claimed })),
    }
}

/// What the server says of these coordinates, or has said if that was the last word.
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
        // An answer from before etcd was restored tells nothing of what is there now.
        if restores == ctx.known.restores() {
            break (sent, was_proved, restores, live);
        }
    };
    let standing = evidence::weigh(resource, asked, live);
    if let Err(unproved) = &standing
        && requests::put_off(unproved).is_some()
    {
        // Nothing was asked. The next in line asks, if it may.
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

/// True for an owner that was seen to wait a moment ago, and is shown in no newer state. One that is not shown may have gone
/// since.
fn still_waits(ctx: &Ctx, asked: &Coordinates, answer: &Answer) -> bool {
    let Ok(Standing::Waiting(waiting)) = &answer.standing else { return false };
    let is_known = ctx.known.version(&asked.uid).is_some_and(|it| !waiting.version().is_older_than(&it));
    ctx.clock.now().saturating_duration_since(answer.at) <= WAITING && is_known
}

impl Answer {
    /// True if it is an answer to somebody who had a reason to ask at `came`.
    fn serves(&self, came: Instant) -> bool {
        match &self.standing {
            // For ever, unless etcd is restored.
            Ok(Standing::Gone(_) | Standing::Orphaned(_)) => true,
            // It may have been served before what is the reason to ask, though it arrived later; and who takes it may not
            // ask again.
            Ok(Standing::Waiting(_) | Standing::Solid(_)) => self.sent >= came,
            // Whoever gets it asks again, so that another question now helps nobody.
            Err(_) => self.at >= came,
        }
    }
}

impl Proofs {
    /// The question about these coordinates: the one that is under way, or a new one.
    fn question(&self, asked: &Coordinates, now: Instant) -> Question {
        let mut questions = self.questions.lock();
        if questions.len() > QUESTIONS {
            questions.retain(|_, question| match question.try_lock() {
                Ok(answer) => answer.as_ref().is_some_and(|it| now.saturating_duration_since(it.at) <= WAITING),
                // Somebody asks.
                Err(_) => true,
            });
        }
        questions.entry(asked.clone()).or_default().clone()
    }

    /// Those who wait for this question keep it; others ask anew.
    fn close(&self, asked: &Coordinates, question: &Question) {
        let mut questions = self.questions.lock();
        if questions.get(asked).is_some_and(|it| Arc::ptr_eq(it, question)) {
            questions.remove(asked);
        }
    }
}
