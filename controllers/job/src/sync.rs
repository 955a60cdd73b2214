//! One Job, top to bottom: checks, snapshot, plan, apply, finalizers.

use std::{sync::Arc, time::Duration};

use api::{CompletionMode, Job, JobIndex, ObjectKey, Pod, PodIndex, Selector, SelectorOperator, Typed};
use clock::Instant;
use controller::Outcome;
use events::EventType;
use informer::StoreError;
use workload::{ClaimError, Owner, claim, has_finalizer, is_terminal};

use crate::{
    Ctx,
    apply::{ApplyError, ApplyResult, apply, check_namespace_by_dry_run, resolve_unknown_creates},
    finalizers::{self, TrackError},
    memory::{BATCH, SyncInputs},
    rules::{
        accounting, ending,
        plan::{Action, CreationWaitCause, Plan, PodChange, plan},
        snapshot::{ClaimedPod, FINALIZER, SnapshotInputs, Unseen, gather},
    },
};

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("cannot read the cache")]
    Cache(#[from] StoreError),
    /// The meaning of the selector is unknown, so no pod is released.
    #[error("the selector has an unknown operator")]
    Selector,
    #[error("cannot claim pods")]
    Claim(#[from] ClaimError),
    #[error("cannot count pods")]
    Track(#[from] TrackError),
    #[error("cannot manage pods")]
    Apply(#[from] ApplyError),
}

/// Brings one Job closer to its spec.
pub(crate) async fn sync(ctx: &Ctx, key: &ObjectKey) -> Result<Outcome, SyncError> {
    // The delete handler has cleared the memory of this Job.
    let Some(job) = ctx.jobs.store().get(&key.namespace, &key.name)? else { return Ok(Outcome::Done) };
    if !ctx.managed_jobs.contains(&job) || job.is_finished() {
        return Ok(Outcome::Done);
    }
    let (uid, now) = (&job.meta.uid, ctx.clock.now());
    if let Some(idle) = ctx.memory.idle_for(uid, &job.meta.version, now) {
        return Ok(requeue(idle));
    }
    if let Some(wait) = ctx.consistency.park_if_stale(uid, &ctx.queue, key) {
        return Ok(Outcome::Parked(wait));
    }
    if ctx.memory.begin_unknown_creates_check(uid, now) {
        resolve_unknown_creates(ctx, &job).await;
    }
    // Both are read before the pods and the Job are. In another order, an event in between could lead to a second
    // creation or a second count.
    let unseen = ctx.memory.unseen_writes(uid, |it| ctx.pods.store().has_passed(it), now);
    let inputs = ctx.memory.begin_sync(uid, job.spec.parallelism, now);
    let job = match ctx.jobs.store().get(&key.namespace, &key.name)? {
        Some(now) if now.meta.uid == *uid && !now.is_finished() && !inputs.finish_pending => now,
        _ => {
            ctx.clear_memory_of_deleted(&job);
            return Ok(Outcome::Done);
        }
    };
    if job.spec.selector.as_ref().is_some_and(has_unknown_operator) {
        ctx.clear_memory_of_deleted(&job);
        return Err(SyncError::Selector);
    }
    let owner = Owner::new(Job::resource(), job.meta.as_ref(), Some(FINALIZER));
    if let CompletionMode::Other(_) = job.spec.completion_mode {
        let message = "Skipped Job sync because completion mode is unknown".to_owned();
        ctx.recorder.event(owner.reference(), EventType::Warning, "UnknownCompletionMode", message);
        ctx.clear_memory_of_deleted(&job);
        return Ok(Outcome::Done);
    }
    let mut action = Action::Reconciling;
    let outcome = reconcile(ctx, &job, &owner, inputs, unseen, &mut action).await;
    let took = ctx.clock.now().saturating_duration_since(now);
    ctx.meters.record_sync(&job, action, outcome.is_ok(), took);
    ctx.clear_memory_of_deleted(&job);
    match outcome {
        Err(SyncError::Track(TrackError::Gone)) => Ok(Outcome::Done),
        // Calls that were not made because of shutdown are no failure. The next leader makes them.
        Err(_) if ctx.stopping.is_cancelled() => Ok(Outcome::Done),
        Err(err) => {
            // The deadline must not wait for a longer back-off of the key.
            let deadline = ending::remaining_active_time(&job, ctx.moment());
            if let Some(deadline) = deadline.filter(|it| !it.is_zero()) {
                ctx.queue.add_after(key.clone(), deadline);
            }
            Err(err)
        }
        outcome => outcome,
    }
}

async fn reconcile(
    ctx: &Ctx,
    job: &Job,
    owner: &Owner,
    inputs: SyncInputs,
    unseen: Unseen,
    action: &mut Action,
) -> Result<Outcome, SyncError> {
    let SyncInputs { changes, backoff, finish_pending: _, pending_removals, free_slots, next_slot } = inputs;
    // A Job that is being deleted releases no pods, whatever their labels. With foreground deletion it may have to wait
    // for all of its pods.
    let is_deleting = job.meta.deletion.is_some();
    let selects = |pod: &Pod| is_deleting || job.spec.selector.as_ref().is_some_and(|it| it.matches(&pod.labels));
    // If memory has no back-off, it is computed from pods that were counted before. Failures may be missing in the
    // counters, because a podFailurePolicy ignored them.
    let uncounted = || job.status.uncounted.as_ref().is_some_and(|it| !it.failed.is_empty());
    let failed = || job.status.failed > 0 || uncounted() || job.spec.pod_failure_policy.is_some();
    let all = backoff.is_none() && failed();
    let claimed = claim(ctx.control.writer(), owner, candidates(ctx, job, all)?, selects).await?;
    let pods = &claimed.objects;
    let inputs = SnapshotInputs {
        now: ctx.moment(),
        unseen,
        backoff,
        free_slots,
        next_slot,
        clear_start_time: ctx.clear_start_time,
    };
    let claimed_pods = pods.iter().map(|pod| ClaimedPod { pod, adopted: claimed.adopted.contains(&pod.meta.uid) });
    let snapshot = gather(job, claimed_pods, |pod| pending_removals.contains(pod), inputs);

    let plan = plan(&snapshot);
    report_creation_limit(ctx, job, owner, &plan);
    let ApplyResult { mut applied, mut cut_short, mut failure } = apply(ctx, job, owner, &claimed, &plan.pods).await;
    *action = plan.action;
    if plan.may_block_namespace_deletion {
        applied.namespace_terminating = check_namespace_by_dry_run(ctx, job, owner).await;
    }

    // Finalizers are removed only after the status that counts the pods is stored.
    let step = accounting::first_step(&snapshot, &plan, &applied);
    let mut has_removals = false;
    if let Some(step) = step {
        let mut recorded = finalizers::record(ctx, owner, &snapshot, &plan, step).await?;
        let late = apply(ctx, job, owner, &claimed, &plan.after_status).await;
        cut_short |= late.cut_short;
        failure = failure.or(late.failure);
        recorded.select_deleted(&late.applied.deleted);
        has_removals = recorded.has_removals();
        let removed = finalizers::remove_finalizers(ctx, owner, pods, &recorded).await;
        cut_short |= removed.cut_short;
        finalizers::store_last_status(ctx, owner, &snapshot, recorded, removed).await?;
    } else {
        ctx.memory.record_backoff(&job.meta.uid, plan.tally.backoff);
        if plan.pods == PodChange::Keep && unseen == Unseen::Nothing {
            let until = plan.requeue_after.map(|it| ctx.clock.now() + it);
            ctx.memory.mark_idle(&job.meta.uid, job.meta.version.clone(), changes, until);
        }
    }
    // Returned last, because the status must be written even when a creation failed.
    failure.map_or(Ok(()), Err)?;
    if cut_short {
        // Requeued behind the keys that wait.
        return Ok(requeue(Some(Duration::ZERO)));
    }
    Ok(requeue(requeue_delay(ctx, job, &plan, unseen, has_removals)))
}

/// The Job's own pods, and orphans that it may adopt.
fn candidates(ctx: &Ctx, job: &Job, all: bool) -> Result<Vec<Arc<Pod>>, StoreError> {
    let (store, uid) = (ctx.pods.store(), &job.meta.uid);
    let own = if all { store.by_index(&PodIndex::Owner(uid.clone())) } else { ctx.pod_indexes.work.get(uid) };
    let orphans = if job.has_generated_selector() {
        ctx.pod_indexes.orphans.get(uid)
    } else {
        store.by_index(&PodIndex::Orphans(job.meta.namespace.clone()))
    };
    let mut pods = own?;
    // An ended orphan with our label and without the finalizer was counted before it lost its owner; adopting it would
    // count it again.
    let counted = |pod: &Pod| job.has_generated_selector() && is_terminal(pod) && !has_finalizer(pod, FINALIZER);
    pods.extend(orphans?.into_iter().filter(|it| !counted(it)));
    Ok(pods)
}

fn has_unknown_operator(selector: &Selector) -> bool {
    selector.requirements.iter().any(|it| matches!(it.operator, SelectorOperator::Other(_)))
}

/// When to sync again even without an event.
fn requeue_delay(ctx: &Ctx, job: &Job, plan: &Plan, unseen: Unseen, has_removals: bool) -> Option<Duration> {
    // The next status write moves pods without the finalizer to the counters.
    let until_status_write = has_removals.then_some(BATCH);
    // After a lost event nothing else would enqueue the Job.
    let expiry = match unseen {
        Unseen::Nothing => None,
        Unseen::UnknownCreates | Unseen::Writes => ctx.memory.next_deadline(&job.meta.uid),
    };
    let expiry = expiry.map(|it: Instant| it.saturating_duration_since(ctx.clock.now()));
    [plan.requeue_after, until_status_write, expiry].into_iter().flatten().min()
}

fn requeue(after: Option<Duration>) -> Outcome {
    after.map_or(Outcome::Done, Outcome::After)
}

/// Sends an event once when the creation limit applies.
fn report_creation_limit(ctx: &Ctx, job: &Job, owner: &Owner, plan: &Plan) {
    let is_limited = match plan.waiting {
        Some(CreationWaitCause::CreationLimit) => true,
        None => false,
        // Other reasons do not change the state of `creation_limit`.
        Some(_) => return,
    };
    if ctx.memory.set_creation_limited(&job.meta.uid, is_limited) {
        ctx.meters.record_creation_limited(job);
        let message = "Created pods have not ended; at most twice the parallelism may exist";
        ctx.recorder.event(owner.reference(), EventType::Warning, "CreationLimited", message.to_owned());
    }
}

impl Ctx {
    /// Clears the memory of a Job that was deleted during the sync. Its delete handler may have run before the sync
    /// stored something.
    fn clear_memory_of_deleted(&self, job: &Job) {
        let uid = &job.meta.uid;
        let is_there = self.jobs.store().by_index(&JobIndex::Uid(uid.clone()));
        if is_there.is_ok_and(|it| it.is_empty()) {
            self.memory.on_job_deleted(uid);
            self.consistency.remove(uid);
        }
    }
}
