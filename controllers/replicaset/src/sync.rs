//! One set, top to bottom: checks, pods, plan, apply, status.

use std::{collections::HashSet, sync::Arc, time::Duration};

use api::{ObjectKey, Pod, PodIndex, ReplicaSet, ReplicaSetStatus, Selector, Uid};
use client::ApiError;
use controller::Outcome;
use events::EventType;
use informer::StoreError;
use workload::{
    Claim, ClaimError, Claimed, Notices, Owner, StatusWrite, claim, claim_decision, is_active, is_terminating,
    next_availability_check,
};

use crate::{
    Ctx,
    apply::{ApplyError, create, delete, is_current, repeat_deletions, resolve_unknown_writes},
    kind::Kind,
    rules::{
        backoff::streak,
        notices::notices,
        plan::{NAMESPACE_CHECK, Plan, PodChange, Snapshot, plan, wanted},
        pods_to_delete::{NodeRanks, age_ratios, select_pods_to_delete},
        status::{Managed, next_status, status_write, transfer},
    },
};

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("cannot read the cache")]
    Cache(#[from] StoreError),
    #[error("cannot claim pods")]
    Claim(#[from] ClaimError),
    #[error("cannot manage pods")]
    Apply(#[from] ApplyError),
    #[error("cannot store the status")]
    Status(#[source] ApiError),
}

/// Brings one set closer to its spec.
pub(crate) async fn sync<K: Kind>(ctx: &Ctx<K>, key: &ObjectKey) -> Result<Outcome, SyncError> {
    // The delete handler has cleared the memory of this set.
    let Some(cached) = ctx.sets.store().get(&key.namespace, &key.name)? else { return Ok(Outcome::Done) };
    if let Some(wait) = ctx.consistency.park_if_stale(cached.meta().uid, &ctx.queue, key) {
        return Ok(Outcome::Parked(wait));
    }
    // The cache may have a newer state of the set than the one that was read before the consistency check.
    let Some(object) = ctx.sets.store().get_same(&key.namespace, &key.name, cached.meta().uid)? else {
        return Ok(Outcome::Done);
    };
    let set: &ReplicaSet = (*object).as_ref();
    let Some(selector) = set.spec.selector.as_ref().filter(|it| !it.is_empty() && it.is_valid()) else {
        // No retry can help, and no pod may be released because its meaning is unknown.
        tracing::error!(key = %key, "The selector of a {} is empty or has a requirement that is not valid", K::resource().kind);
        return Ok(Outcome::Done);
    };
    let outcome = reconcile(ctx, &object, selector).await;
    let is_waiting = !ctx.memory.expectations.is_satisfied(&set.meta.uid, ctx.clock.now());
    ctx.set_waiting(&set.meta.uid, is_waiting);
    ctx.clear_memory_of_deleted(set);
    match outcome {
        // The next leader does what was not done because of shutdown.
        Err(_) if ctx.stopping.is_cancelled() => Ok(Outcome::Done),
        outcome => outcome,
    }
}

async fn reconcile<K: Kind>(ctx: &Ctx<K>, object: &K, selector: &Selector) -> Result<Outcome, SyncError> {
    let set: &ReplicaSet = object.as_ref();
    let owner = Owner::new(K::resource(), set.meta.as_ref(), None);
    if ctx.consistency.is_enabled() && !ctx.memory.has_unknown_creates(&owner.uid) {
        // The cache has passed every creation. One that was not observed is gone again.
        ctx.memory.expectations.drop_creations(&owner.uid);
    }
    resolve_unknown_writes(ctx, &owner).await;
    // Asked before the cache is listed, because events may come in between (k/k#8138).
    let is_fulfilled = ctx.memory.expectations.is_fulfilled(&owner.uid);
    let expected_deletions = ctx.memory.expectations.expected_deletions(&owner.uid);
    if is_fulfilled {
        ctx.memory.clear_unknown(&owner.uid);
    }
    let may_change = is_fulfilled && !owner.deleting;

    let mut own = ctx.pods.store().by_index(&PodIndex::Owner(owner.uid.clone()))?;
    // Any user may write the uid of the set into pods of other namespaces.
    own.retain(|it| claim_decision(&owner, it.meta.as_ref(), true) == Claim::Keep);
    let orphans = ctx.pods.store().by_index(&PodIndex::Orphans(owner.namespace.clone()))?;
    // A pod that has ended or is being deleted is neither adopted nor released.
    let candidates: Vec<Arc<Pod>> = own.iter().chain(&orphans).filter(|it| is_active(it)).cloned().collect();
    let Claimed { objects: active, adopted, is_adoption_stored } =
        claim(ctx.control.writer(), &owner, candidates, |it| selector.matches(&it.labels)).await?;

    // One time for all decisions about availability.
    let now = ctx.clock.wall();
    let terminating = || own.iter().filter(|it| is_terminating(it) && selector.matches(&it.labels)).count();
    let snapshot = Snapshot {
        set,
        active: &active,
        terminating: ctx.counts_terminating.then(terminating),
        streak: streak(&own, wanted(set), now),
        uncounted: if may_change { uncounted(ctx, &owner, selector) } else { 0 },
        namespace_terminates: ctx.memory.is_namespace_terminating(&owner.uid, ctx.clock.now()),
        now,
    };
    let mut next = None;
    let (done, managed, mut deleted) = if may_change {
        let plan = plan(&snapshot);
        report(ctx, &owner, &snapshot, &plan, &own);
        next = plan.check_after();
        // The next sync sees the present state of the adopted pods.
        let mut pods_to_delete = if is_adoption_stored { Vec::new() } else { planned_deletions(ctx, &snapshot, &plan) };
        pods_to_delete.retain(|it| !adopted.contains(&it.meta.uid));
        let deleted = pods_to_delete.iter().map(|it| it.meta.uid.clone()).collect();
        let done = apply(ctx, &owner, &snapshot, &plan, pods_to_delete).await;
        if ctx.memory.is_namespace_terminating(&owner.uid, ctx.clock.now()) {
            next = earliest(next, Some(NAMESPACE_CHECK));
        }
        (done, Managed::Done, deleted)
    } else {
        let done = repeat_deletions(ctx, set, &owner, &active, &expected_deletions).await;
        (done, Managed::Skipped, expected_deletions)
    };
    let is_current = is_current(ctx, set);
    if done.is_err() || !is_current {
        // Not all calls were made.
        deleted = ctx.memory.expectations.expected_deletions(&owner.uid);
    }
    deleted.extend(ctx.memory.maybe_deleted_pods(&owner.uid));
    let managed = if is_current { managed } else { Managed::Skipped };
    let managed = done.as_ref().err().map_or(managed, ApplyError::managed);
    // After a lost event nothing else would enqueue the set.
    let at = ctx.clock.now();
    let deadline = ctx.memory.next_deadline(&owner.uid, at);
    next = earliest(next, deadline.map(|it| it.saturating_duration_since(at)));

    // The status is written even after a failure, which has precedence over an error of the status.
    let status = next_status(&snapshot, &deleted, &managed, &owner.generate_name());
    let written = match status_write(&set.status, &status, set.spec.replicas, since_status(ctx, &owner.uid)) {
        StatusWrite::Never => {
            ctx.memory.clear_status(&owner.uid);
            Ok(())
        }
        StatusWrite::Now => put_status(ctx, object, &status).await,
        StatusWrite::After(delay) => {
            next = earliest(next, Some(delay));
            Ok(())
        }
    };
    // Counted from now on, because the writes took time.
    next = earliest(next, availability_check(ctx, &snapshot));
    let result = match (done, written) {
        (Err(failure), written) => {
            workload::log_further_error(written);
            Err(failure.into())
        }
        (Ok(()), written) => written,
    };
    if let (Err(_), Some(next)) = (&result, next) {
        // The back-off of the key may be longer. A check that is due waits for it.
        ctx.queue.add_after(owner.key(), next);
    }
    if ctx.memory.is_check_due(&owner.uid, ctx.clock.now()) {
        next = Some(Duration::ZERO);
    }
    result.map(|()| match next {
        // Not a success: if the next write fails too, its back-off must be longer.
        Some(next) if !ctx.memory.expectations.is_fulfilled(&owner.uid) => Outcome::Parked(next),
        next => next.map_or(Outcome::Done, Outcome::After),
    })
}

fn earliest(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    a.into_iter().chain(b).min()
}

fn since_status<K: Kind>(ctx: &Ctx<K>, set: &Uid) -> Option<Duration> {
    ctx.memory.since_status(set, ctx.clock.now())
}

/// How many pods that were created for the set are active and not its pods, for example because a webhook changes their
/// labels or their owner.
fn uncounted<K: Kind>(ctx: &Ctx<K>, owner: &Owner, selector: &Selector) -> usize {
    ctx.memory.uncounted(&owner.uid, |name, uid| match ctx.pods.store().get(&owner.namespace, name) {
        Ok(Some(pod)) if pod.meta.uid == *uid && is_active(&pod) => {
            let decision = claim_decision(owner, pod.meta.as_ref(), selector.matches(&pod.labels));
            !matches!(decision, Claim::Keep | Claim::Adopt)
        }
        Ok(_) => false,
        // It may be one.
        Err(_) => true,
    })
}

/// Sends events about what users must know.
fn report<K: Kind>(ctx: &Ctx<K>, owner: &Owner, snapshot: &Snapshot<'_>, plan: &Plan, own: &[Arc<Pod>]) {
    let now = snapshot.now.as_second();
    let Notices { new, .. } = ctx.memory.notices.replace(&owner.uid, notices(snapshot, plan), now);
    for notice in new {
        ctx.send_event(owner, EventType::Warning, notice.reason(), notice.message(own));
    }
}

fn planned_deletions<K: Kind>(ctx: &Ctx<K>, snapshot: &Snapshot<'_>, plan: &Plan) -> Vec<Arc<Pod>> {
    match plan.pods {
        PodChange::Delete(count) => select_pods(ctx, snapshot, count),
        PodChange::Keep | PodChange::Create(_) => Vec::new(),
    }
}

async fn apply<K: Kind>(
    ctx: &Ctx<K>,
    owner: &Owner,
    snapshot: &Snapshot<'_>,
    plan: &Plan,
    pods_to_delete: Vec<Arc<Pod>>,
) -> Result<(), ApplyError> {
    match plan.pods {
        PodChange::Keep => Ok(()),
        PodChange::Create(count) => create(ctx, snapshot.set, owner, count).await,
        PodChange::Delete(_) => delete(ctx, snapshot.set, owner, pods_to_delete).await,
    }
}

/// The pods to delete. Those on nodes with many pods of the same Deployment are deleted first. A set without a controller
/// is spread by its own pods (k/k#102442).
fn select_pods<K: Kind>(ctx: &Ctx<K>, snapshot: &Snapshot<'_>, count: usize) -> Vec<Arc<Pod>> {
    let Snapshot { set, active, now, .. } = snapshot;
    let mut related: Vec<Arc<Pod>> = Vec::new();
    if let Some(controller) = set.meta.as_ref().controller().filter(|_| count < active.len()) {
        // Pods of siblings that cannot be decoded are left out. Then the deleted pods are only spread less evenly.
        for sibling in ctx.of_controller.get(&controller.uid).unwrap_or_default() {
            let uid = sibling.meta().uid;
            if *uid != set.meta.uid {
                let pods = ctx.pods.store().by_index(&PodIndex::Owner(uid.clone())).unwrap_or_default();
                related.extend(pods.into_iter().filter(|it| it.meta.namespace == set.meta.namespace));
            }
        }
    }
    let ranks = NodeRanks::of(active.iter().chain(&related));
    let maybe_deleted: HashSet<Uid> = ctx.memory.maybe_deleted_pods(&set.meta.uid).into_iter().collect();
    let pods_to_delete = select_pods_to_delete(
        active,
        count,
        ranks,
        &maybe_deleted,
        set.spec.min_ready_seconds,
        *now,
        ctx.compares_cost,
    );
    age_ratios(active, &pods_to_delete, *now).into_iter().for_each(|it| ctx.meters.observe_age_ratio(it));
    pods_to_delete.into_iter().cloned().collect()
}

/// Stores the status. If the set was changed in the meantime, it is tried once more with its newest state
/// (`updateReplicaSetStatus`). Upstream does that after any error, and also for another set of the same name.
async fn put_status<K: Kind>(ctx: &Ctx<K>, object: &K, status: &ReplicaSetStatus) -> Result<(), SyncError> {
    let meta = object.meta();
    ctx.memory.begin_status(meta.uid, status.clone());
    let stored = match ctx.api().put_status(object, None, status).await {
        Err(ApiError::Conflict(_)) => match ctx.api().get::<K>(&K::resource(), meta.namespace, meta.name).await {
            Ok(newest) if newest.meta().uid != meta.uid => return Ok(()),
            Ok(newest) => {
                let status = transfer(status, newest.as_ref().status.clone());
                ctx.memory.begin_status(meta.uid, status.clone());
                ctx.api().put_status(&newest, None, &status).await
            }
            Err(err) => Err(err),
        },
        stored => stored,
    };
    match stored {
        Ok(written) => {
            ctx.record_status(meta.uid, &written.version);
            Ok(())
        }
        Err(err) if workload::is_gone(&err, meta.name) => Ok(()),
        Err(err) => Err(SyncError::Status(err)),
    }
}

/// When the next pod becomes available, which changes the status.
fn availability_check<K: Kind>(ctx: &Ctx<K>, snapshot: &Snapshot<'_>) -> Option<Duration> {
    let active = snapshot.active.iter().map(|it| &**it);
    next_availability_check(active, snapshot.set.spec.min_ready_seconds, snapshot.now, ctx.clock.wall())
}
