//! One set, top to bottom: checks, revisions, pods, plan, apply, status, history.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use api::{
    ControllerRevision, ObjectKey, Pod, PodIndex, RevisionIndex, Selector, StatefulSet, StatefulSetStatus, StatusOwner,
    Typed,
};
use client::ApiError;
use controller::Outcome;
use informer::StoreError;
use revisions::{NewRevision, RevisionError, Stored};
use serde_json::{Map, Value, value::RawValue};
use workload::{Claim, ClaimError, Notices, Owner, claim, claim_decision, next_availability_check};

use crate::{
    Ctx,
    apply::{Applied, ApplyError, Revision, SetRevisions, apply},
    rules::{
        history::{UpdateRevision, update_revision},
        identity::{is_member_name, revision},
        notices::{Due, Notice, differing_claims},
        plan::{Plan, plan},
        rollout::max_unavailable,
        snapshot::{self, Snapshot, gather},
        status::{is_changed, next_status},
    },
};

/// After a sync that failed, a pod that has become available meanwhile is counted this much later.
const RETRY: Duration = Duration::from_secs(1);

/// Why a sync failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SyncError {
    #[error("cannot read the cache")]
    Cache(#[from] StoreError),
    #[error("cannot claim pods")]
    Pods(#[source] ClaimError),
    #[error("can't adopt ControllerRevisions")]
    Adopt(#[source] ClaimError),
    #[error("cannot store a revision")]
    Revision(#[from] RevisionError),
    #[error("cannot read the current revision")]
    CurrentRevision(#[source] ApiError),
    #[error("the template does not decode")]
    Template(#[source] serde_json::Error),
    #[error("cannot manage pods")]
    Apply(#[from] ApplyError),
    #[error("cannot store the status")]
    Status(#[source] ApiError),
}

/// Brings one set closer to its spec.
pub(crate) async fn sync(ctx: &Ctx, key: &ObjectKey) -> Result<Outcome, SyncError> {
    // The delete handler has cleared the memory of this set.
    let Some(set) = ctx.sets.store().get(&key.namespace, &key.name)? else { return Ok(Outcome::Done) };
    if let Some(wait) = ctx.consistency.park_if_stale(&set.meta.uid, &ctx.queue, key) {
        return Ok(Outcome::Parked(wait));
    }
    // The cache may have a newer state of the set than the one that was read before the consistency check.
    let Some(set) = ctx.sets.store().get_same(&key.namespace, &key.name, &set.meta.uid)? else {
        return Ok(Outcome::Done);
    };
    let Some(selector) = set.spec.selector.as_ref().filter(|it| !it.is_empty() && it.is_valid()) else {
        // No retry can help, and no pod may be released because its meaning is unknown.
        tracing::error!(statefulset = %key, "The selector of a StatefulSet is empty or has a requirement that is not valid");
        return Ok(Outcome::Done);
    };
    let outcome = reconcile(ctx, &set, selector).await;
    ctx.clear_memory_of_deleted(&set);
    match outcome {
        // The next leader does what was not done because of shutdown.
        Err(_) if ctx.stopping.is_cancelled() => Ok(Outcome::Done),
        outcome => outcome,
    }
}

async fn reconcile(ctx: &Ctx, set: &StatefulSet, selector: &Selector) -> Result<Outcome, SyncError> {
    let owner = Owner::new(StatefulSet::resource(), set.meta.as_ref(), None);
    let history = claim_revisions(ctx, &owner, selector).await?;
    let found = find_revisions(ctx, set, &owner, &history).await;
    // Listed after these calls, which may have taken long.
    let mut pods = claim_pods(ctx, set, &owner, selector).await?;
    mark_deleted_pods(ctx, set, &mut pods).await;
    let (revisions, collision_count) = match found {
        Ok(found) => found,
        Err(err) => {
            if let SyncError::Revision(RevisionError::Collisions { collision_count, .. }) = &err {
                // The next sync continues with this counter.
                let mut status = set.status.clone();
                status.collision_count = Some(*collision_count);
                workload::log_further_error(put_status(ctx, set, &status).await);
            }
            workload::log_further_error(truncate(ctx, set, &history, &pods, None).await);
            return Err(err);
        }
    };
    // One time for all decisions about availability.
    let now = ctx.clock.wall();
    let names = snapshot::Revisions { current: &revisions.current.name, update: &revisions.update.name };
    let cached_claim = |name: &str| ctx.claims.store().get(&set.meta.namespace, name);
    let snapshot = gather(set, &pods, cached_claim, names, now, ctx.gates)?;
    let plan = plan(&snapshot);
    let Applied { deleted_for_update, quota, failure } = apply(ctx, set, &owner, &revisions, &plan).await;
    let until_check = report(ctx, &owner, &snapshot, &plan, quota);

    // The status is written even after a failure, which has precedence over an error of the status.
    let status = next_status(&snapshot, collision_count, deleted_for_update);
    let written = write_status(ctx, set, &status).await;
    let truncated = truncate(ctx, set, &history, &pods, Some(&revisions)).await;
    let until_available = availability_check(ctx, set, &pods, &status, now);
    let reads = ctx.memory.next_checks(&set.meta.uid, ctx.clock.now());
    let result = match failure {
        Some(failure) => {
            workload::log_further_error(written);
            workload::log_further_error(truncated);
            Err(failure.into())
        }
        None if written.is_err() => {
            workload::log_further_error(truncated);
            written
        }
        None => truncated,
    };
    if let Err(err) = result {
        // The back-off of the key may be longer. What is to be done at once waits for it.
        let checks = reads.into_iter().chain(until_check).filter(|it| !it.is_zero());
        if let Some(next) = checks.chain(until_available.map(|it| it.max(RETRY))).min() {
            ctx.queue.add_after(set.meta.as_ref().key(), next);
        }
        return Err(err);
    }
    let next = reads.into_iter().chain(until_available).chain(until_check).min();
    Ok(next.map_or(Outcome::Done, Outcome::After))
}

/// The revisions of the set, sorted. Orphans are adopted.
async fn claim_revisions(
    ctx: &Ctx,
    owner: &Owner,
    selector: &Selector,
) -> Result<Vec<Arc<ControllerRevision>>, SyncError> {
    let store = ctx.revisions.store();
    let mut candidates = store.by_index(&RevisionIndex::Owner(owner.uid.clone()))?;
    candidates.extend(store.by_index(&RevisionIndex::Orphans(owner.namespace.clone()))?);
    let ours = revisions::of_owner(owner, selector, candidates);
    let claimed = claim(&ctx.revision_writer, owner, ours, |_| true).await.map_err(SyncError::Adopt)?;
    let mut history = claimed.objects;
    revisions::sort(&mut history);
    Ok(history)
}

/// The pods of the set. Orphans whose names are of this set are adopted; own pods that are not selected any more are
/// released.
async fn claim_pods(
    ctx: &Ctx,
    set: &StatefulSet,
    owner: &Owner,
    selector: &Selector,
) -> Result<Vec<Arc<Pod>>, SyncError> {
    let store = ctx.pods.store();
    let mut candidates = store.by_index(&PodIndex::Owner(owner.uid.clone()))?;
    let is_member = |pod: &Pod| is_member_name(&pod.meta.name, &set.meta.name);
    candidates.extend(ctx.orphans.get(&set.meta.as_ref().key())?);
    let claimed = claim(&ctx.writer, owner, candidates, |pod| selector.matches(&pod.labels) && is_member(pod)).await;
    Ok(claimed.map_err(SyncError::Pods)?.objects)
}

/// Marks deleted pods as terminating in `pods`, also if the cache does not show it yet. Those whose check is due are
/// read from the server first.
async fn mark_deleted_pods(ctx: &Ctx, set: &StatefulSet, pods: &mut [Arc<Pod>]) {
    let uid = &set.meta.uid;
    let due = ctx.memory.due_deletions(uid, pods, ctx.clock.now());
    ctx.call_limit.call_each(due, async |pod| ctx.resolve_deletion(set, &pod).await).await;
    ctx.memory.mark_deleted(uid, pods);
}

/// Finds the current and the update revision, and the number of collisions (`getStatefulSetRevisions`). Creates or
/// renumbers a revision if the template was changed.
async fn find_revisions(
    ctx: &Ctx,
    set: &StatefulSet,
    owner: &Owner,
    history: &[Arc<ControllerRevision>],
) -> Result<(SetRevisions, i32), SyncError> {
    let collision_count = set.status.collision_count.unwrap_or_default();
    // The garbage collector deletes or orphans the revisions of a set that is being deleted. An orphaned one is not in the
    // history, and would be created again.
    if owner.deleting {
        let of_status = |name: &str| Revision { name: name.into(), data: Box::default() };
        let current = of_status(&set.status.current_revision);
        return Ok((SetRevisions { current, update: of_status(&set.status.update_revision) }, collision_count));
    }
    let as_is = |it: &ControllerRevision| Revision { name: it.meta.name.clone(), data: it.data.clone() };
    let newest = history.last();
    let is_known = newest.is_some_and(|it| ctx.memory.is_newest(&set.meta.uid, set.generation, &it.meta.version));
    let (update, collision_count) = match newest {
        Some(newest) if is_known => (as_is(newest), collision_count),
        _ => {
            let template: &RawValue = serde_json::from_str(&set.spec.template).map_err(SyncError::Template)?;
            let data = revisions::template_data(template).map_err(SyncError::Template)?;
            match update_revision(history, &data, ctx.compare_semantically) {
                UpdateRevision::Newest { at } => {
                    let newest = &history[at];
                    ctx.memory.set_newest(&set.meta.uid, set.generation, newest.meta.version.clone());
                    (as_is(newest), collision_count)
                }
                UpdateRevision::Renumber { at, number } => {
                    let equal = &history[at];
                    ctx.history.set_number(owner, equal, number).await?;
                    (as_is(equal), collision_count)
                }
                UpdateRevision::Create { number } => {
                    let raw_metadata: Map<String, Value> =
                        serde_json::from_str(set.raw_metadata().get()).map_err(SyncError::Template)?;
                    let annotations = raw_metadata.get("annotations").and_then(Value::as_object);
                    let annotations = annotations.into_iter().flatten();
                    let annotations = annotations.filter_map(|(key, value)| Some((&**key, value.as_str()?))).collect();
                    let labels = revisions::template_labels(template).map_err(SyncError::Template)?;
                    let new = NewRevision { data: &data, revision: number, labels: &labels, annotations };
                    let Stored { name, collision_count, .. } = ctx.history.create(owner, &new, collision_count).await?;
                    (Revision { name, data }, collision_count)
                }
            }
        }
    };
    let name = &set.status.current_revision;
    let current = match history.iter().find(|it| it.meta.name == *name) {
        Some(it) => Some(as_is(it)),
        None if name.is_empty() || *name == update.name => None,
        // The cache may be late, so the revision is read. If it does not exist, or is not one of the set, the update
        // revision is used. If it were used earlier, a pod below the partition would be created again with the new
        // template.
        None => {
            let resource = ControllerRevision::resource();
            match ctx.api().get::<ControllerRevision>(&resource, &owner.namespace, name).await {
                Ok(it) if claim_decision(owner, it.meta.as_ref(), true) == Claim::Keep => Some(as_is(&it)),
                Ok(_) => None,
                Err(err) if workload::is_gone(&err, name) => None,
                Err(err) => return Err(SyncError::CurrentRevision(err)),
            }
        }
    };
    let current = current.unwrap_or_else(|| update.clone());
    Ok((SetRevisions { current, update }, collision_count))
}

/// Sends events about what users must know, and sets the metrics. Returns the time until the set must be checked again.
fn report(
    ctx: &Ctx,
    owner: &Owner,
    snapshot: &Snapshot<'_>,
    plan: &Plan<'_>,
    quota: Option<Notice>,
) -> Option<Duration> {
    let set = snapshot.set;
    let mut notices: BTreeSet<Notice> = plan.notices.iter().cloned().chain(quota).collect();
    notices.extend(differing_claims(snapshot));
    let mut next_check = seconds(plan.check_after);
    match plan.waiting.map_or(Due::Never, |it| it.notice(snapshot.now.as_second())) {
        Due::Now(blocked) => drop(notices.insert(blocked)),
        Due::After(left) => next_check = next_check.or(seconds(Some(left))),
        Due::Never => {}
    }
    let Notices { new, all } = ctx.memory.notices.replace(&set.meta.uid, notices, snapshot.now.as_second());
    let blocked_since = all.iter().filter_map(|(notice, first_seen)| notice.blocked_since(*first_seen)).min();
    ctx.meters.set_blocked_since(set, blocked_since);
    for notice in new {
        ctx.send_event(owner, events::EventType::Warning, notice.reason(), notice.message());
    }
    if ctx.gates.max_unavailable {
        ctx.meters.set_max_unavailable(set, max_unavailable(snapshot));
        if let Some(unavailable) = plan.unavailable {
            ctx.meters.set_unavailable(set, unavailable);
        }
    }
    next_check
}

fn seconds(left: Option<i64>) -> Option<Duration> {
    left.and_then(|it| u64::try_from(it).ok()).map(Duration::from_secs)
}

async fn write_status(ctx: &Ctx, set: &StatefulSet, status: &StatefulSetStatus) -> Result<(), SyncError> {
    if is_changed(&set.status, status) { put_status(ctx, set, status).await } else { Ok(()) }
}

async fn put_status(ctx: &Ctx, set: &StatefulSet, status: &StatefulSetStatus) -> Result<(), SyncError> {
    match ctx.api().put_status(set, None, status).await {
        Ok(written) => {
            ctx.consistency.record_write(&set.meta.uid, &ctx.sets.watched(), &written.version);
            Ok(())
        }
        Err(err) if workload::is_gone(&err, &set.meta.name) => Ok(()),
        Err(err) => Err(SyncError::Status(err)),
    }
}

/// Deletes the oldest revisions that are over the limit and not in use.
async fn truncate(
    ctx: &Ctx,
    set: &StatefulSet,
    history: &[Arc<ControllerRevision>],
    pods: &[Arc<Pod>],
    revisions: Option<&SetRevisions>,
) -> Result<(), SyncError> {
    if set.meta.deletion.is_some() {
        return Ok(());
    }
    // If the new status was not stored, the next sync begins from the old one.
    let of_status = [&set.status.current_revision, &set.status.update_revision];
    let found = revisions.into_iter().flat_map(|it| [&it.current.name, &it.update.name]);
    let in_use: BTreeSet<&str> =
        of_status.into_iter().chain(found).map(|it| &**it).chain(pods.iter().map(|it| revision(it))).collect();
    let is_in_use = |it: &ControllerRevision| in_use.contains(&*it.meta.name);
    for surplus in revisions::surplus(history, set.spec.history_limit, is_in_use) {
        if ctx.stopping.is_cancelled() {
            break;
        }
        ctx.history.delete(&surplus).await?;
    }
    Ok(())
}

/// When the next pod becomes available, so that `availableReplicas` is counted again (k/k#135428).
fn availability_check(
    ctx: &Ctx,
    set: &StatefulSet,
    pods: &[Arc<Pod>],
    status: &StatefulSetStatus,
    evaluated: clock::Timestamp,
) -> Option<Duration> {
    let min_ready_seconds = set.spec.min_ready_seconds;
    if min_ready_seconds <= 0 || status.ready == status.available {
        return None;
    }
    let pods = pods.iter().map(|it| &**it);
    let next = next_availability_check(pods, min_ready_seconds, evaluated, ctx.clock.wall());
    Some(next.unwrap_or(Duration::from_secs(u64::from(min_ready_seconds.unsigned_abs()))))
}
