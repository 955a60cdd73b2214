//! One Deployment, top to bottom: checks, ReplicaSets, plan, apply, status.

use std::{collections::BTreeSet, sync::Arc};

use api::{
    ConditionStatus, Deployment, DeploymentStatus, DeploymentStrategy, ObjectKey, Pod, PodIndex, ReplicaSet,
    ReplicaSetIndex, Selector, StatusOwner, Typed,
};
use client::ApiError;
use controller::Outcome;
use events::EventType;
use informer::StoreError;
use workload::{ClaimError, Claimed, Notices, Owner, StatusWrite, claim, is_terminal};

use crate::{
    Ctx,
    apply::{Applied, ApplyError, apply, check_template, resolve_unknown, roll_back},
    memory::TEMPLATE_CHECK,
    rules::{
        annotations::{self, REVISION},
        conditions::{PROGRESSING, TEMPLATE_CHANGED, template_changed},
        hash::template_hash,
        new_set,
        plan::{Plan, Problem, plan},
        progress,
        snapshot::{Snapshot, new_set as find_new_set, sort},
        status::{Created, next_status, status_change},
        template,
    },
};

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("cannot read the cache")]
    Cache(#[from] StoreError),
    #[error("cannot claim ReplicaSets")]
    Claim(#[from] ClaimError),
    #[error("a template or annotations do not decode")]
    Decode(#[from] serde_json::Error),
    #[error("cannot manage ReplicaSets")]
    Apply(#[from] ApplyError),
    #[error("cannot store the status")]
    Status(#[source] ApiError),
}

/// Brings one Deployment closer to its spec.
pub(crate) async fn sync(ctx: &Ctx, key: &ObjectKey) -> Result<Outcome, SyncError> {
    // The delete handler has cleared the memory of this Deployment.
    let Some(deployment) = ctx.deployments.store().get(&key.namespace, &key.name)? else { return Ok(Outcome::Done) };
    if let Some(wait) = ctx.consistency.park_if_stale(&deployment.meta.uid, &ctx.queue, key) {
        return Ok(Outcome::Parked(wait));
    }
    // The cache may have a newer state of the Deployment than the one that was read before the consistency check.
    let Some(deployment) = ctx.deployments.store().get_same(&key.namespace, &key.name, &deployment.meta.uid)? else {
        return Ok(Outcome::Done);
    };
    let owner = Owner::new(Deployment::resource(), deployment.meta.as_ref(), None);
    let outcome = match deployment.spec.selector.as_ref() {
        Some(selector) if selector.is_empty() => report_empty_selector(ctx, &deployment, &owner).await,
        Some(selector) if selector.is_valid() => reconcile(ctx, &deployment, &owner, selector).await,
        _ => {
            // No retry can help, and no ReplicaSet may be released because its meaning is unknown.
            tracing::error!(deployment = %key, "The selector of a Deployment is missing or has a requirement that is not valid");
            Ok(Outcome::Done)
        }
    };
    ctx.clear_memory_of_deleted(&deployment);
    match outcome {
        // The next leader does what was not done because of shutdown.
        Err(_) if ctx.stopping.is_cancelled() => Ok(Outcome::Done),
        outcome => outcome,
    }
}

/// A user's mistake. The next edit enqueues the Deployment.
async fn report_empty_selector(ctx: &Ctx, deployment: &Deployment, owner: &Owner) -> Result<Outcome, SyncError> {
    let message = "This deployment is selecting all pods. A non-empty selector is required.".to_owned();
    ctx.send_event(owner, EventType::Warning, "SelectingAll", message);
    if deployment.status.observed_generation < deployment.generation {
        let mut status = deployment.status.clone();
        status.observed_generation = deployment.generation;
        workload::log_further_error(put_status(ctx, deployment, None, &status).await);
    }
    Ok(Outcome::Done)
}

async fn reconcile(
    ctx: &Ctx,
    deployment: &Deployment,
    owner: &Owner,
    selector: &Selector,
) -> Result<Outcome, SyncError> {
    if let Some(wait) = resolve_unknown(ctx, deployment, owner).await? {
        return Ok(Outcome::Parked(wait));
    }
    let Claimed { objects: mut sets, is_adoption_stored, .. } = claim_sets(ctx, owner, selector).await?;
    if is_adoption_stored {
        // They have another resourceVersion now than in the cache, so that each change would be a conflict.
        return Ok(await_cache(ctx, deployment));
    }
    sort(&mut sets);
    let new = find_new(ctx, deployment, &sets)?;
    // It is needed only for the name of a new ReplicaSet.
    let hash = if new.is_none() { hash_of_new(deployment)? } else { String::new() };
    let snapshot = gather(ctx, deployment, &sets, new, &hash)?;
    let mut plan = plan(&snapshot);
    let mut applied = apply(ctx, owner, &hash, &snapshot, &plan).await;
    if applied.failure.is_none() {
        check_template(ctx, owner, &hash, &snapshot, &mut plan, &mut applied).await;
    }
    let Applied { created, failure, is_outdated, is_namespace_terminating } = applied;
    if is_outdated {
        return Ok(await_cache(ctx, deployment));
    }
    if is_namespace_terminating {
        return Ok(Outcome::Done);
    }
    if let Some(rollback) = plan.rollback.as_ref().filter(|_| failure.is_none()) {
        roll_back(ctx, owner, &snapshot, rollback).await?;
        return Ok(Outcome::Done);
    }
    let has_revision = plan.revision.as_ref() == snapshot.new_annotations.get(REVISION);
    if failure.is_some() && !has_revision && !matches!(created, Created::Set { .. }) {
        // The rollout has not begun, so its deadline has not either.
        plan.revision = deployment.annotations.get(REVISION).map(str::to_owned);
    }
    report_problem(ctx, owner, &snapshot, &plan);

    // The status is written even after a failure, which has precedence over an error of the status.
    let status = next_status(&snapshot, &plan, &created);
    let revision = plan.revision.as_deref().filter(|it| deployment.annotations.get(REVISION) != Some(*it));
    let since_last = ctx.memory.since_status(&owner.uid, ctx.clock.now());
    let write = status_change(deployment, revision, &status).write(since_last);
    let written = write_status(ctx, owner, deployment, revision, &status, write).await;
    let next = match write {
        StatusWrite::After(left) => Some(left),
        _ if matches!(plan.problem, Some(Problem::TemplateChanged(_))) => Some(TEMPLATE_CHECK),
        // If the creation was refused, the condition Progressing shows that, and the deadline is not checked.
        StatusWrite::Never
            if plan.reports_progress && plan.problem.is_none() && !matches!(created, Created::Refused(_)) =>
        {
            progress::next_check(deployment, &status, ctx.clock.wall())
        }
        // After a change the event of the update brings the next sync.
        _ => None,
    };
    let result = match (failure, written) {
        (Some(failure), written) => {
            workload::log_further_error(written);
            Err(failure.into())
        }
        (None, written) => written,
    };
    if let (Err(_), Some(next)) = (&result, next) {
        // The back-off of the key may be longer.
        ctx.queue.add_after(owner.key(), next);
    }
    result.map(|()| next.map_or(Outcome::Done, Outcome::After))
}

/// Waits until the cache shows our last writes; what was read of it may be older.
fn await_cache(ctx: &Ctx, deployment: &Deployment) -> Outcome {
    let key = deployment.meta.as_ref().key();
    match ctx.consistency.park_if_stale(&deployment.meta.uid, &ctx.queue, &key) {
        Some(wait) => Outcome::Parked(wait),
        None => {
            ctx.queue.add(key);
            Outcome::Done
        }
    }
}

/// The ReplicaSets of the Deployment. Orphans that match are adopted; own ones that are not selected any more are
/// released.
async fn claim_sets(ctx: &Ctx, owner: &Owner, selector: &Selector) -> Result<Claimed<ReplicaSet>, SyncError> {
    let store = ctx.sets.store();
    let mut candidates = store.by_index(&ReplicaSetIndex::Owner(owner.uid.clone()))?;
    candidates.extend(store.by_index(&ReplicaSetIndex::Orphans(owner.namespace.clone()))?);
    Ok(claim(&ctx.writer, owner, candidates, |it| selector.matches(&it.labels)).await?)
}

/// The position of the ReplicaSet with the template of the Deployment.
fn find_new(ctx: &Ctx, deployment: &Deployment, sets: &[Arc<ReplicaSet>]) -> Result<Option<usize>, SyncError> {
    let found = find_new_set(sets, |set| {
        let compare = || template::is_equal(&set.spec.template, &deployment.spec.template);
        ctx.memory.has_template(deployment, set, compare)
    });
    Ok(found?)
}

/// The hash in the name of the new ReplicaSet.
fn hash_of_new(deployment: &Deployment) -> Result<String, SyncError> {
    let template = serde_json::from_str(&deployment.spec.template)?;
    Ok(revisions::encode_hash(template_hash(&template, deployment.status.collision_count)))
}

fn gather<'a>(
    ctx: &Ctx,
    deployment: &'a Deployment,
    sets: &'a [Arc<ReplicaSet>],
    new: Option<usize>,
    hash: &str,
) -> Result<Snapshot<'a>, SyncError> {
    let new_set = new.and_then(|at| sets.get(at));
    let new_annotations = new_set.map(|it| annotations::all(it.raw_metadata())).transpose()?;
    let recreates = deployment.spec.strategy == DeploymentStrategy::Recreate;
    Ok(Snapshot {
        deployment,
        annotations: annotations::all(deployment.raw_metadata())?,
        sets,
        new,
        new_annotations: new_annotations.unwrap_or_default(),
        name_of_new: new_set::name(&deployment.meta.name, hash),
        has_old_pods: recreates && has_old_pods(ctx, sets, new)?,
        reports_terminating: ctx.reports_terminating,
        now: ctx.clock.wall(),
    })
}

/// Whether a pod of an old ReplicaSet has not ended, whatever else its state (`oldPodsRunning`).
fn has_old_pods(ctx: &Ctx, sets: &[Arc<ReplicaSet>], new: Option<usize>) -> Result<bool, SyncError> {
    for (_, set) in sets.iter().enumerate().filter(|(at, _)| Some(*at) != new) {
        let pods = ctx.pods.store().by_index(&PodIndex::Owner(set.meta.uid.clone()))?;
        // Any user may write the uid of the set into pods of other namespaces.
        let is_old = |it: &Pod| it.meta.namespace == set.meta.namespace;
        if pods.iter().any(|it| is_old(it) && !is_terminal(it)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Sends one event about a problem until it is over.
fn report_problem(ctx: &Ctx, owner: &Owner, snapshot: &Snapshot<'_>, plan: &Plan) {
    let message = match &plan.problem {
        Some(Problem::TemplateChanged(at)) => snapshot.sets.get(*at).map(|it| template_changed(it)),
        Some(Problem::Strategy(strategy)) => {
            tracing::error!(deployment = %snapshot.deployment.meta.as_ref().key(), strategy, "unexpected deployment strategy type");
            None
        }
        None => None,
    };
    let notices: BTreeSet<String> = message.into_iter().collect();
    let Notices { new, .. } = ctx.memory.notices.replace(&owner.uid, notices, snapshot.now.as_second());
    for message in new {
        ctx.send_event(owner, EventType::Warning, TEMPLATE_CHANGED, message);
    }
}

/// Stores the status and the revision, if it is time.
async fn write_status(
    ctx: &Ctx,
    owner: &Owner,
    deployment: &Deployment,
    revision: Option<&str>,
    status: &DeploymentStatus,
    write: StatusWrite,
) -> Result<(), SyncError> {
    let progressing = status.condition(PROGRESSING).filter(|it| it.status == ConditionStatus::False);
    ctx.meters.set_blocked_since(deployment, progressing.and_then(|it| it.last_transition));
    if write != StatusWrite::Now {
        return Ok(());
    }
    put_status(ctx, deployment, revision, status).await?;
    if let Some((type_, reason, message)) = progress::event(deployment, status) {
        ctx.send_event(owner, type_, reason, message);
    }
    Ok(())
}

/// Stores the status, and the revision with it: the server takes annotations from a write of the status.
async fn put_status(
    ctx: &Ctx,
    deployment: &Deployment,
    revision: Option<&str>,
    status: &DeploymentStatus,
) -> Result<(), SyncError> {
    let stored = match revision {
        Some(revision) => {
            let annotated = deployment.with_annotation(REVISION, revision)?;
            ctx.api().put_status(&annotated, None, status).await
        }
        None => ctx.api().put_status(deployment, None, status).await,
    };
    match stored {
        Ok(written) => {
            ctx.consistency.record_write(&deployment.meta.uid, &ctx.deployments.watched(), &written.version);
            ctx.memory.record_status_at(&deployment.meta.uid, ctx.clock.now());
            Ok(())
        }
        Err(err) if workload::is_gone(&err, &deployment.meta.name) => Ok(()),
        Err(err) => Err(SyncError::Status(err)),
    }
}
