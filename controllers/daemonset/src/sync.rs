//! One set, top to bottom: checks, revision, pods, plan, apply, status.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use api::{DaemonSet, DaemonSetStatus, Node, ObjectKey, Pod, Selector, Typed};
use controller::Outcome;
use events::EventType;
use revisions::RevisionError;
use workload::{Claimed, Notices, Owner, next_availability_check};

use crate::{
    Ctx,
    apply::{apply, repeat_creations, repeat_deletions, resolve_unknown_writes},
    error::SyncError,
    history,
    pods::claim_pods,
    rules::{
        notices::{IGNORE_UNREACHABLE, Notice, blocked, ignore_unreachable_after},
        plan::{Plan, plan},
        snapshot::{Cluster, Snapshot, gather, sort_nodes},
        status::{is_changed, next_status, transfer},
    },
};

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
    if ctx.consistency.is_enabled() && !ctx.memory.has_unknown_creations(&set.meta.uid) {
        // The cache has passed every creation. One that was not observed is gone again.
        ctx.memory.expectations.drop_creations(&set.meta.uid);
    }
    // The garbage collector deletes or orphans its pods and revisions, in any order. A status would be wrong, so none is
    // written.
    if set.meta.deletion.is_some() {
        return Ok(Outcome::Done);
    }
    let owner = Owner::new(DaemonSet::resource(), set.meta.as_ref(), None);
    let Some(selector) = set.spec.selector.as_ref().filter(|it| !it.is_empty()) else {
        let message = "This daemon set is selecting all pods. A non-empty selector is required.".to_owned();
        ctx.send_event(&owner, EventType::Warning, "SelectingAll", message);
        return Ok(Outcome::Done);
    };
    if !selector.is_valid() {
        // No retry can help, and no pod may be released because its meaning is unknown.
        tracing::error!(daemonset = %key, "The selector of a DaemonSet has a requirement that is not valid");
        return Ok(Outcome::Done);
    }
    let outcome = reconcile(ctx, &set, &owner, selector).await;
    ctx.clear_memory_of_deleted(&set);
    match outcome {
        // The next leader does what was not done because of shutdown.
        Err(_) if ctx.stopping.is_cancelled() => Ok(Outcome::Done),
        outcome => outcome,
    }
}

async fn reconcile(ctx: &Ctx, set: &DaemonSet, owner: &Owner, selector: &Selector) -> Result<Outcome, SyncError> {
    resolve_unknown_writes(ctx, owner).await;
    let mut done = repeat_creations(ctx, set, owner).await.map_err(SyncError::from);
    // Asked before the cache is listed, because events may come in between.
    let may_write = done.is_ok() && ctx.memory.expectations.is_fulfilled(&owner.uid);
    let history = match history::find(ctx, set, owner, selector).await {
        // The changes enqueue the set.
        Ok(history) if history.has_relabelled => return Ok(Outcome::Done),
        Ok(history) => history,
        Err(err) => {
            if let SyncError::Revision(RevisionError::Collisions { collision_count, .. }) = &err {
                // The next sync continues with this counter.
                let mut status = set.status.clone();
                status.collision_count = Some(*collision_count);
                workload::log_further_error(put_status(ctx, set, &status).await);
            }
            return Err(err);
        }
    };
    // Listed after these calls, which may have taken long.
    let Claimed { objects: pods, adopted, .. } = claim_pods(ctx, owner, selector).await?;
    let nodes = nodes(ctx)?;
    let cluster = Cluster { nodes: &nodes, pods: &pods, compares_numbers: ctx.compare_numbers };
    let (now, generation) = (ctx.clock.now(), set.status.observed_generation);
    let backoff = |node: &str| ctx.memory.backoff(&owner.uid, node, generation, now);
    let mut snapshot = gather(set, &history.hash, cluster, backoff, ctx.clock.wall());
    let annotation = ignore_unreachable_after(set.annotations.get(IGNORE_UNREACHABLE));
    snapshot.ignore_unreachable_after = annotation.clone().unwrap_or_default();

    let mut next = None;
    if !may_write && ctx.memory.has_unknown_deletions(&owner.uid) {
        let repeated = repeat_deletions(ctx, set, owner, &snapshot).await;
        done = done.and(repeated.map_err(SyncError::from));
    }
    if may_write {
        if let Some(node) = ctx.memory.last_failed_node(&owner.uid) {
            snapshot.begin_after(&node);
        }
        let mut plan = plan(&snapshot);
        // Pods are deleted only as they were seen. The events of the adopted ones enqueue the set.
        plan.delete.retain(|(pod, _)| !adopted.contains(&pod.meta.uid));
        done = apply(ctx, set, owner, &history.hash, &plan).await.map_err(SyncError::from);
        next = report(ctx, owner, &snapshot, &plan, annotation.err());
        if done.is_ok() {
            done = history::truncate(ctx, set, &history, &pods).await;
        }
    }
    let now = ctx.clock.now();
    if let Some(at) = ctx.memory.next_deadline(&owner.uid, now) {
        // After a lost event nothing else would enqueue the set.
        next = next.into_iter().chain([at.saturating_duration_since(now)]).min();
    }

    // The status is written even after a failure, which has precedence over an error of the status (k/k#113787).
    let status = next_status(&snapshot, history.collision_count, may_write);
    let written = if is_changed(&set.status, &status) { put_status(ctx, set, &status).await } else { Ok(()) };
    let next = next.into_iter().chain(availability_check(ctx, &snapshot, &pods)).min();
    let result = match (done, written) {
        (Err(err), written) => {
            workload::log_further_error(written);
            Err(err)
        }
        (Ok(()), written) => written,
    };
    if let (Err(_), Some(next)) = (&result, next) {
        // The back-off of the key may be longer. A check that is due waits for it.
        ctx.queue.add_after(set.meta.as_ref().key(), next);
    }
    let next = if ctx.memory.is_check_due(&owner.uid, ctx.clock.now()) { Some(Duration::ZERO) } else { next };
    result.map(|()| next.map_or(Outcome::Done, Outcome::After))
}

fn nodes(ctx: &Ctx) -> Result<Vec<Arc<Node>>, SyncError> {
    let mut nodes = ctx.nodes.store().list()?;
    sort_nodes(&mut nodes);
    Ok(nodes)
}

/// Sends events about what users must know, and sets the metric. Returns when to decide again without a change.
fn report(
    ctx: &Ctx,
    owner: &Owner,
    snapshot: &Snapshot<'_>,
    plan: &Plan<'_>,
    invalid: Option<Notice>,
) -> Option<Duration> {
    let (set, now) = (snapshot.set, snapshot.now.as_second());
    // Without a rollout it is not known what blocks it.
    let Some(waiting) = &plan.waiting else { return plan.check_after };
    let (blocked, until_blocked) = blocked(waiting, now);
    let notices: BTreeSet<Notice> = blocked.into_iter().chain(invalid).collect();
    let Notices { new, all } = ctx.memory.notices.replace(&owner.uid, notices, now);
    ctx.meters.set_blocked_since(set, all.keys().filter_map(Notice::blocked_since).min());
    for notice in new {
        ctx.send_event(owner, EventType::Warning, notice.reason(), notice.message());
    }
    plan.check_after.into_iter().chain(until_blocked).min()
}

/// Stores the status. If the server refuses it, or does not answer, it is tried once more with the newest state of the set
/// (`storeDaemonSetStatus`).
async fn put_status(ctx: &Ctx, set: &DaemonSet, status: &DaemonSetStatus) -> Result<(), SyncError> {
    let (uid, name) = (&set.meta.uid, &set.meta.name);
    let stored = match ctx.api().put_status(set, None, status).await {
        Err(err) if workload::is_gone(&err, name) || !workload::is_from_server(&err) => Err(err),
        Err(_) => {
            let newest = ctx.api().get::<DaemonSet>(&DaemonSet::resource(), &set.meta.namespace, name).await;
            match newest {
                Ok(newest) if newest.meta.uid != *uid => return Ok(()),
                Ok(newest) => {
                    let status = transfer(status, newest.status.clone());
                    ctx.api().put_status(&newest, None, &status).await
                }
                Err(err) => Err(err),
            }
        }
        stored => stored,
    };
    match stored {
        Ok(written) => {
            ctx.consistency.record_write(uid, &ctx.sets.watched(), &written.version);
            Ok(())
        }
        Err(err) if workload::is_gone(&err, name) => Ok(()),
        Err(err) => Err(SyncError::Status(err)),
    }
}

/// When the next pod becomes available, which is counted, and lets a rollout continue.
fn availability_check(ctx: &Ctx, snapshot: &Snapshot<'_>, pods: &[Arc<Pod>]) -> Option<Duration> {
    let pods = pods.iter().map(|it| &**it);
    next_availability_check(pods, snapshot.set.spec.min_ready_seconds, snapshot.now, ctx.clock.wall())
}
