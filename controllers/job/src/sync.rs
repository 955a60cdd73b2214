//! One Job, top to bottom: gates, gather, plan, apply, track.

use std::{sync::Arc, time::Duration};

use api::{CompletionMode, Job, JobIndex, ObjectKey, Pod, PodIndex, Selector, SelectorOperator, Typed};
use clock::Instant;
use events::Type;
use informer::StoreError;
use pod_control::{ClaimError, Owner, claim, has_finalizer, is_terminal};
use runner::Outcome;

use crate::{
    Ctx,
    apply::{ApplyError, Carried, apply, doubt, is_closed},
    memory::{BATCH, Sight},
    metrics::Action,
    plan::{Plan, PodChange, Waiting, plan},
    snapshot::{Claimed, FINALIZER, Known, Moment, Unseen, gather},
    track::{self, TrackError},
    tracking,
};

/// Why a sync did not get to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("cannot read the cache")]
    Cache(#[from] StoreError),
    /// Whoever it may mean, no pod is released for it.
    #[error("the selector has an operator that is not known")]
    Selector,
    #[error("cannot tell whose pods are whose")]
    Claim(#[from] ClaimError),
    #[error("cannot count pods")]
    Track(#[from] TrackError),
    #[error("cannot look after pods")]
    Apply(#[from] ApplyError),
}

/// Brings one Job closer to its spec.
pub(crate) async fn sync(ctx: &Ctx, key: &ObjectKey) -> Result<Outcome, SyncError> {
    // The delete handler has dropped its memory, by uid.
    let Some(job) = ctx.jobs.store().get(&key.namespace, &key.name)? else { return Ok(Outcome::Done) };
    if !job.is_managed_by_us() || job.is_finished() {
        return Ok(Outcome::Done);
    }
    let (uid, now) = (&job.meta.uid, ctx.clock.now());
    if let Some(rest) = ctx.memory.rest(uid, &job.meta.version, now) {
        return Ok(again((!rest.is_zero()).then_some(rest)));
    }
    // Woken when the caches show our own last writes.
    if let Some(wait) = ctx.behind(&job) {
        return Ok(Outcome::Parked(wait));
    }
    if ctx.memory.is_to_ask(uid, now) {
        doubt(ctx, &job).await;
    }
    // Both are asked before pods are listed: the other way round a pod can slip in between, and be created or counted twice.
    // And before the Job is read that all rests on: what the caches show and memory forgot by now, it has to show too.
    let unseen = ctx.memory.unseen(uid, |it| ctx.pods.store().passed(it), now);
    let sight = ctx.memory.sees(uid, job.spec.parallelism, now);
    let job = match ctx.jobs.store().get(&key.namespace, &key.name)? {
        Some(now) if now.meta.uid == *uid && !now.is_finished() && !sight.ended => now,
        _ => {
            ctx.forget_if_gone(&job);
            return Ok(Outcome::Done);
        }
    };
    if job.spec.selector.as_ref().is_some_and(has_unknown_operator) {
        ctx.forget_if_gone(&job);
        return Err(SyncError::Selector);
    }
    let owner = Owner::new(Job::resource(), job.meta.as_ref(), Some(FINALIZER));
    if let CompletionMode::Other(_) = job.spec.completion_mode {
        let message = "Skipped Job sync because completion mode is unknown".to_owned();
        ctx.recorder.event(owner.reference(), Type::Warning, "UnknownCompletionMode", message);
        ctx.forget_if_gone(&job);
        return Ok(Outcome::Done);
    }
    let mut action = Action::Reconciling;
    let outcome = reconcile(ctx, &job, &owner, sight, unseen, &mut action).await;
    let took = ctx.clock.now().saturating_duration_since(now);
    ctx.meters.synced(&job, action, outcome.is_ok(), took);
    ctx.forget_if_gone(&job);
    match outcome {
        Err(SyncError::Track(TrackError::Gone)) => Ok(Outcome::Done),
        // Calls that were not made are no failure: the next leader makes them.
        Err(_) if ctx.stopping.is_cancelled() => Ok(Outcome::Done),
        outcome => outcome,
    }
}

async fn reconcile(
    ctx: &Ctx,
    job: &Job,
    owner: &Owner,
    sight: Sight,
    unseen: Unseen,
    action: &mut Action,
) -> Result<Outcome, SyncError> {
    let Sight { changes, backoff, ended: _, leaving, room, more_room } = sight;
    // A Job that is being deleted releases nothing, and may have to wait for its pods: all that are its own go, however they
    // are labelled.
    let goes = job.meta.deletion.is_some();
    let selects = |pod: &Pod| goes || job.spec.selector.as_ref().is_some_and(|it| it.matches(&pod.labels));
    // A back-off that memory does not know is told by pods that were counted long ago, or are in no counter, as their failure
    // was ignored.
    let uncounted = || job.status.uncounted.as_ref().is_some_and(|it| !it.failed.is_empty());
    let failed = || job.status.failed > 0 || uncounted() || job.spec.pod_failure_policy.is_some();
    let all = backoff.is_none() && failed();
    let claimed = claim(&ctx.control, owner, candidates(ctx, job, all)?, selects).await?;
    let pods = &claimed.pods;
    let known = Known {
        now: Moment(ctx.clock.wall().as_millisecond()),
        unseen,
        backoff,
        room,
        more_room,
        clears_start: ctx.clears_start,
    };
    let seen = pods.iter().map(|pod| Claimed { pod, adopted: claimed.adopted.contains(&pod.meta.uid) });
    let snapshot = gather(job, seen, |pod| leaving.contains(pod), known);

    let plan = plan(&snapshot);
    tell_brake(ctx, job, owner, &plan);
    let Carried { mut applied, mut cut, mut failure } = apply(ctx, job, owner, &claimed, &plan.pods).await;
    *action = plan.action;
    if plan.strands {
        applied.closed = is_closed(ctx, job, owner).await;
    }

    // Pods are released only after the status that names them is stored.
    let step = tracking::step(&snapshot, &plan, &applied);
    let mut has_released = false;
    if let Some(step) = step {
        let mut recorded = track::record(ctx, owner, &snapshot, &plan, step).await?;
        let rest = apply(ctx, job, owner, &claimed, &plan.once_stored).await;
        cut |= rest.cut;
        failure = failure.or(rest.failure);
        recorded.release_deleted(&rest.applied.gone);
        has_released = recorded.has_releases();
        let released = track::release(ctx, owner, pods, &recorded).await;
        cut |= released.cut;
        track::settle(ctx, owner, &snapshot, recorded, released).await?;
    } else {
        ctx.memory.records(&job.meta.uid, plan.tally.backoff);
        if plan.pods == PodChange::Keep && unseen == Unseen::Nothing {
            let until = plan.again.map(|it| ctx.clock.now() + it);
            ctx.memory.rests(&job.meta.uid, job.meta.version.clone(), changes, until);
        }
    }
    // Reported last: the status is written even when a creation failed.
    failure.map_or(Ok(()), Err)?;
    if cut {
        // Behind the others that wait.
        return Ok(again(Some(Duration::ZERO)));
    }
    Ok(again(soonest(ctx, job, &plan, unseen, has_released)))
}

/// The Job's own pods and orphans that may become its.
fn candidates(ctx: &Ctx, job: &Job, all: bool) -> Result<Vec<Arc<Pod>>, StoreError> {
    let (store, uid) = (ctx.pods.store(), &job.meta.uid);
    let own = if all { PodIndex::Owner(uid.clone()) } else { PodIndex::JobWork(uid.clone()) };
    let orphans = if job.selects_by_uid() {
        PodIndex::JobOrphans(uid.clone())
    } else {
        PodIndex::Orphans(job.meta.namespace.clone())
    };
    let mut pods = store.by_index(&own)?;
    let orphans = store.by_index(&orphans)?.into_iter();
    // One that bears our mark, has ended and is held no more was counted before it lost its owner: it would be again.
    let counted = |pod: &Pod| job.selects_by_uid() && is_terminal(pod) && !has_finalizer(pod, FINALIZER);
    pods.extend(orphans.filter(|it| !counted(it)));
    Ok(pods)
}

fn has_unknown_operator(selector: &Selector) -> bool {
    selector.requirements.iter().any(|it| matches!(it.operator, SelectorOperator::Other(_)))
}

/// When to look again though nothing happens.
fn soonest(ctx: &Ctx, job: &Job, plan: &Plan, unseen: Unseen, released: bool) -> Option<Duration> {
    // What went is moved to the counters by the next write.
    let settle = released.then_some(BATCH);
    // After a lost event nothing else would wake it.
    let expiry = match unseen {
        Unseen::Nothing => None,
        Unseen::Doubtful | Unseen::Writes => ctx.memory.gives_up_at(&job.meta.uid),
    };
    let expiry = expiry.map(|it: Instant| it.saturating_duration_since(ctx.clock.now()));
    [plan.again, settle, expiry].into_iter().flatten().min()
}

fn again(after: Option<Duration>) -> Outcome {
    after.map_or(Outcome::Done, Outcome::After)
}

/// Tells the user once that creations are held back.
fn tell_brake(ctx: &Ctx, job: &Job, owner: &Owner, plan: &Plan) {
    let is_braked = match plan.waiting {
        Some(Waiting::Brake) => true,
        None => false,
        // It says nothing of the brake.
        Some(_) => return,
    };
    if ctx.memory.brakes(&job.meta.uid, is_braked) {
        ctx.meters.brakes(job);
        let message = "Pods that were created are not seen to end: no more than twice the parallelism are created";
        ctx.recorder.event(owner.reference(), Type::Warning, "CreationHeldBack", message.to_owned());
    }
}

impl Ctx {
    /// What a sync remembers of a Job that went in the meantime is dropped again: its delete handler ran before.
    fn forget_if_gone(&self, job: &Job) {
        let uid = &job.meta.uid;
        let is_there = self.jobs.store().by_index(&JobIndex::Uid(uid.clone()));
        if is_there.is_ok_and(|it| it.is_empty()) {
            self.memory.forget(uid);
            self.gate.forget(uid);
        }
    }
}
