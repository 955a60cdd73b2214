//! Creates and deletes pods.

use std::{collections::HashSet, sync::Arc, time::Duration};

use api::{Pod, ReplicaSet, Uid, Version};
use client::ApiError;
use informer::StoreError;
use serde_json::value::RawValue;
use workload::{
    DeletionReader, NewestPods, Owner, PodFields, PodTemplate, RETRY_CHECK, SlowStart, TemplateError, UnknownDeletion,
    UnknownOutcomes, is_from_server, is_gone, longest_create, newest_pods, server_message,
};

use crate::{
    Ctx,
    kind::Kind,
    rules::{plan::wanted, status::Managed},
};

/// Why pods were not created or deleted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("cannot create {failed} of {wanted} pods")]
    Create {
        failed: usize,
        wanted: usize,
        #[source]
        source: ApiError,
    },
    #[error("cannot delete {failed} of {wanted} pods")]
    Delete {
        failed: usize,
        wanted: usize,
        #[source]
        source: ApiError,
    },
    #[error("{0} pods have changed and are not deleted before the cache shows that")]
    Changed(usize),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("cannot encode a pod")]
    Encode(#[from] serde_json::Error),
    #[error("cannot read the cache")]
    Cache(#[from] StoreError),
}

impl ApplyError {
    /// What the status shows.
    pub(crate) fn managed(&self) -> Managed {
        match self {
            // No request was sent, so the pods are not the cause.
            Self::Create { source, .. } | Self::Delete { source, .. } if !is_from_server(source) => Managed::Skipped,
            Self::Create { source, .. } => Managed::Failed(server_message(source)),
            // As in upstream's `DeletePod`.
            Self::Delete { source, .. } => {
                Managed::Failed(format!("unable to delete pods: {}", server_message(source)))
            }
            Self::Template(err) => Managed::Failed(err.to_string()),
            Self::Encode(err) => Managed::Failed(err.to_string()),
            Self::Changed(_) | Self::Cache(_) => Managed::Skipped,
        }
    }
}

/// Resolves creations and deletions whose outcome is unknown, and expired expectations. Until all are resolved, no
/// other pods are created or deleted, because the cache may have an old state.
pub(crate) async fn resolve_unknown_writes<K: Kind>(ctx: &Ctx<K>, owner: &Owner) {
    resolve_deletions(ctx, owner).await;
    let now = ctx.clock.now();
    // A cache that is late by more than the timeout shows pods that are gone, and lacks others (k/k#129795). Requests that
    // may be running are checked at times of their own.
    let has_expired = ctx.memory.expectations.renew_expired(&owner.uid, now)
        && !ctx.memory.has_unknown_deletions(&owner.uid)
        && !ctx.memory.has_running_creates(&owner.uid);
    let is_due = ctx.memory.begin_unknown_creates_check(&owner.uid, now) || has_expired;
    if is_due && !ctx.stopping.is_cancelled() {
        if let Some(NewestPods { pod, list }) = newest_pods(ctx.api(), &owner.namespace).await {
            let awaited = if has_expired { list } else { pod };
            ctx.memory.await_version(&owner.uid, awaited.clone());
            ctx.control.writer().enqueue_when_passed(owner, awaited);
        } else if has_expired {
            ctx.memory.expectations.expire_after(&owner.uid, RETRY_CHECK, ctx.clock.now());
        }
    }
    ctx.memory.resolve_unknown(&owner.uid, |it| ctx.pods.store().has_passed(it));
}

/// Resolves deletions. One whose outcome is known is not expected any more.
async fn resolve_deletions<K: Kind>(ctx: &Ctx<K>, owner: &Owner) {
    let (queue, key) = (ctx.queue.clone(), owner.key());
    let reader = DeletionReader {
        api: ctx.api(),
        cache: ctx.pods.store(),
        limit: &ctx.call_limit,
        may_call: !ctx.stopping.is_cancelled(),
        clock: &ctx.clock,
    };
    let unknown = ctx.memory.take_unknown_deletions(&owner.uid);
    let enqueue = move || queue.add(key.clone());
    let (resolved, left) = reader.resolve(unknown, enqueue.clone()).await;
    resolved.iter().for_each(|it| ctx.memory.expectations.deletion_observed(&owner.uid, it));
    left.into_iter().for_each(|it| ctx.memory.add_unknown_deletion(&owner.uid, it));
    let (_, left) = reader.resolve(ctx.memory.take_obsolete_deletions(&owner.uid), enqueue).await;
    left.into_iter().for_each(|it| ctx.memory.add_obsolete_deletion(&owner.uid, it));
}

/// Repeats, for some seconds, deletions whose outcome is unknown, because the first requests may have been lost, as
/// long as their pods are surplus. `active` are the pods in the cache. `expected` are the pods whose deletion was not
/// observed before the cache was read.
pub(crate) async fn repeat_deletions<K: Kind>(
    ctx: &Ctx<K>,
    set: &ReplicaSet,
    owner: &Owner,
    active: &[Arc<Pod>],
    expected: &HashSet<Uid>,
) -> Result<(), ApplyError> {
    if owner.deleting
        || !ctx.memory.has_unknown_deletions(&owner.uid)
        || !ctx.sets.store().is_alive(&set.meta.as_ref())?
    {
        return Ok(());
    }
    let unknown = ctx.memory.take_unknown_deletions(&owner.uid);
    let is_unknown = |it: &Pod| unknown.iter().any(|deletion| deletion.pod.meta.uid == it.meta.uid);
    // The cache still shows these.
    let deleted = active.iter().filter(|it| expected.contains(&it.meta.uid) && !is_unknown(it)).count();
    let now = ctx.clock.now();
    let repeated = unknown.iter().filter(|it| it.repeat_until <= now).count();
    let surplus = active.len().saturating_sub(wanted(set));
    let (mut again, mut later) = (Vec::new(), Vec::new());
    for deletion in unknown {
        if surplus == 0 {
            // The set wants the pod again, and replaces it if it is deleted after all. Until that is known the pod does
            // not count as ready, because a Deployment would delete another one.
            ctx.memory.expectations.deletion_observed(&owner.uid, &deletion.pod.meta.uid);
            ctx.memory.add_obsolete_deletion(&owner.uid, deletion);
        } else if deletion.repeat_until > now && again.len() < surplus.saturating_sub(deleted + repeated) {
            again.push(deletion);
        } else {
            later.push(deletion);
        }
    }
    if ctx.memory.expectations.is_satisfied(&owner.uid, ctx.clock.now()) {
        ctx.queue.add(owner.key());
    }
    let again = again.into_iter().map(|it| (it.pod.clone(), Some(it))).collect();
    let outcome = Deletions { ctx, owner, set }.delete_all(again).await;
    // Added last, so that those that were just sent come first next time.
    later.into_iter().for_each(|it| ctx.memory.add_unknown_deletion(&owner.uid, it));
    outcome
}

/// Creates pods in slow-start batches. They are expected before the first request. After a batch with a failure no further
/// batch starts.
pub(crate) async fn create<K: Kind>(
    ctx: &Ctx<K>,
    set: &ReplicaSet,
    owner: &Owner,
    count: usize,
) -> Result<(), ApplyError> {
    // The pods of a deleted set may be orphans now (`--cascade=orphan`).
    if !ctx.sets.store().is_alive(&set.meta.as_ref())? {
        return Ok(());
    }
    let body = body(set, owner)?;
    ctx.memory.expectations.expect_creations(&owner.uid, count, ctx.clock.now());
    let (mut batches, mut results) = (SlowStart::new(count, 1), CreateResults::default());
    while let Some(batch) = batches.next_batch() {
        if ctx.stopping.is_cancelled() || results.failed > 0 {
            // Creations that were not tried must not be expected.
            expect_fewer(ctx, owner, count.saturating_sub(batch.start));
            break;
        }
        let bodies: Vec<&RawValue> = batch.map(|_| &*body).collect();
        let create = async |body: &RawValue| match is_current(ctx, set) {
            true => Some(ctx.control.create(owner, body).await),
            false => None,
        };
        for outcome in ctx.call_limit.call_each(bodies, create).await {
            let Some(outcome) = outcome else {
                expect_fewer(ctx, owner, 1);
                continue;
            };
            match outcome {
                Ok(written) => {
                    ctx.memory.on_pod_created(&owner.uid, written.name, written.uid);
                    results.versions.push(written.version);
                }
                Err(err) => results.add(ctx, owner, err),
            }
        }
    }
    let CreateResults { failed, versions, outcomes, failure } = results;
    let newest = versions.into_iter().max_by_key(Version::number);
    let has_passed = newest.is_some_and(|it| ctx.control.writer().enqueue_when_passed(owner, it));
    if has_passed && !ctx.memory.expectations.is_satisfied(&owner.uid, ctx.clock.now()) {
        ctx.queue.add(owner.key());
    }
    if outcomes.pending || outcomes.ended {
        // If all requests have ended, the next sync reads the server, after the back-off.
        let longest = if outcomes.pending { longest_create(ctx.api()) } else { Duration::ZERO };
        ctx.memory.check_unknown_creates_at(&owner.uid, ctx.clock.now() + longest);
    }
    match failure {
        Some(source) => Err(ApplyError::Create { failed, wanted: count, source }),
        None => check_cache(ctx, set),
    }
}

/// Deletes these pods, in the state in which the cache shows them. They are expected before the first request.
pub(crate) async fn delete<K: Kind>(
    ctx: &Ctx<K>,
    set: &ReplicaSet,
    owner: &Owner,
    pods: Vec<Arc<Pod>>,
) -> Result<(), ApplyError> {
    if !ctx.sets.store().is_alive(&set.meta.as_ref())? {
        return Ok(());
    }
    ctx.memory.expectations.expect_deletions(&owner.uid, pods.iter().map(|it| it.meta.uid.clone()), ctx.clock.now());
    Deletions { ctx, owner, set }.delete_all(pods.into_iter().map(|it| (it, None)).collect()).await?;
    check_cache(ctx, set)
}

/// Fails if calls may have been left out because the cache could not be read: nothing else would enqueue the set.
fn check_cache<K: Kind>(ctx: &Ctx<K>, set: &ReplicaSet) -> Result<(), ApplyError> {
    Ok(ctx.sets.store().is_alive(&set.meta.as_ref()).map(drop)?)
}

/// The request body of each pod. The server generates the names.
fn body(set: &ReplicaSet, owner: &Owner) -> Result<Box<RawValue>, ApplyError> {
    let template: &RawValue = serde_json::from_str(&set.spec.template).map_err(TemplateError::Decode)?;
    let template = PodTemplate::parse(template)?.prepare(owner);
    Ok(template.pod(PodFields { generate_name: &owner.generate_name(), ..PodFields::default() })?)
}

/// Whether the cached set has the generation for which the plan was made, and is not being deleted. Hundreds of calls
/// take a minute, in which a user may correct a mistake. Calls that are left out are decided anew by the next sync.
pub(crate) fn is_current<K: Kind>(ctx: &Ctx<K>, set: &ReplicaSet) -> bool {
    let stored = ctx.sets.store().get_same(&set.meta.namespace, &set.meta.name, &set.meta.uid);
    let is_same = |it: &ReplicaSet| it.meta.deletion.is_none() && it.generation == set.generation;
    stored.is_ok_and(|it| it.is_some_and(|it| is_same((*it).as_ref())))
}

fn expect_fewer<K: Kind>(ctx: &Ctx<K>, owner: &Owner, count: usize) {
    ctx.memory.expectations.lower(&owner.uid, i64::try_from(count).unwrap_or(i64::MAX), 0);
}

#[derive(Default)]
struct CreateResults {
    failed: usize,
    /// Of the created pods.
    versions: Vec<Version>,
    outcomes: UnknownOutcomes,
    /// The first error that means something to users.
    failure: Option<ApiError>,
}

impl CreateResults {
    fn add<K: Kind>(&mut self, ctx: &Ctx<K>, owner: &Owner, err: ApiError) {
        self.failed += 1;
        // A pod whose creation has an unknown outcome stays expected.
        if self.outcomes.record_error(&err) {
            expect_fewer(ctx, owner, 1);
        }
        if err.is_namespace_terminating() {
            // No further creation can succeed.
            ctx.memory.mark_namespace_terminating(&owner.uid, ctx.clock.now());
        } else {
            self.failure.get_or_insert(err);
        }
    }
}

/// A pod to delete, and what is known of earlier requests for that.
type Deletion = (Arc<Pod>, Option<UnknownDeletion>);

struct Deletions<'a, K: Kind> {
    ctx: &'a Ctx<K>,
    owner: &'a Owner,
    set: &'a ReplicaSet,
}

impl<K: Kind> Deletions<'_, K> {
    async fn delete_all(&self, pods: Vec<Deletion>) -> Result<(), ApplyError> {
        let wanted = pods.len();
        let results = self.ctx.call_limit.call_each(pods, |it| self.delete_one(it)).await;
        let (mut changed, mut failed, mut failure) = (0, 0, None);
        for err in results.into_iter().filter_map(Result::err) {
            match err {
                ApiError::Conflict(_) => changed += 1,
                err => {
                    failed += 1;
                    failure.get_or_insert(err);
                }
            }
        }
        match failure {
            Some(source) => Err(ApplyError::Delete { failed, wanted, source }),
            None if changed > 0 => Err(ApplyError::Changed(changed)),
            None => Ok(()),
        }
    }

    /// Deletes a pod. If that certainly failed, the deletion is not expected any more.
    async fn delete_one(&self, (pod, earlier): Deletion) -> Result<(), ApiError> {
        let Self { ctx, owner, set } = self;
        if !is_current(ctx, set) {
            match earlier {
                Some(unknown) => ctx.memory.add_unknown_deletion(&owner.uid, unknown),
                None => ctx.memory.expectations.deletion_observed(&owner.uid, &pod.meta.uid),
            }
            return Ok(());
        }
        let Err(err) = ctx.control.delete_as_seen(owner, &pod).await else { return Ok(()) };
        if is_gone(&err, &pod.meta.name) {
            // Otherwise its watch event will come. Until then it would count as a pod of the set.
            if ctx.pods.store().is_gone(&pod.meta.namespace, &pod.meta.name, &pod.meta.uid) {
                ctx.memory.expectations.deletion_observed(&owner.uid, &pod.meta.uid);
            }
            return Ok(());
        }
        match UnknownDeletion::after(&err, pod.clone(), earlier.as_ref(), ctx.clock.now()) {
            Some(unknown) => ctx.memory.add_unknown_deletion(&owner.uid, unknown),
            None => ctx.memory.expectations.deletion_observed(&owner.uid, &pod.meta.uid),
        }
        Err(err)
    }
}

#[cfg(test)]
mod tests {
    use client::NotSent;

    use super::*;

    #[test]
    fn a_request_that_was_not_sent_is_no_condition() {
        let managed = |source: ApiError| ApplyError::Delete { failed: 1, wanted: 1, source }.managed();
        assert_eq!(managed(ApiError::NotSent(NotSent::Stopping)), Managed::Skipped);
        assert_eq!(managed(ApiError::NotSent(NotSent::TermEnded)), Managed::Skipped);
        assert_eq!(
            managed(ApiError::unknown("no answer".to_owned())),
            Managed::Failed("unable to delete pods: outcome unknown: no answer".to_owned())
        );
    }
}
