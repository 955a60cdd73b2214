//! Executes a plan: creates and deletes pods.

use std::sync::Arc;

use api::{DaemonSet, Node, Pod, Uid};
use client::ApiError;
use clock::Instant;
use events::EventType;
use informer::StoreError;
use revisions::REVISION_LABEL;
use serde_json::{Value, json, value::RawValue};
use workload::{
    Claim, DeletionReader, MAX_REQUEST_TIME, NewestPods, Owner, PodFields, PodTemplate, PreparedTemplate, RETRY_CHECK,
    SlowStart, TemplateError, UnknownDeletion, UnknownOutcomes, claim_decision, is_gone, newest_pods,
};

use crate::{
    Ctx,
    memory::{NewPod, UnknownCreation},
    rules::{
        names::pod_name,
        placement::{TOLERATED, TOLERATED_WITH_HOST_NETWORK},
        plan::{Creation, DeleteCause, Plan, may_repeat_deletion},
        rollout::budget,
        snapshot::{GENERATION_LABEL, Snapshot, node_name},
    },
};

/// Why a plan was not carried out.
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
    #[error("cannot repeat {0} creations")]
    Repeat(usize, #[source] ApiError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("cannot encode a pod")]
    Encode(#[from] serde_json::Error),
    #[error("cannot read the cache of sets")]
    Cache(#[from] StoreError),
}

/// Resolves deletions whose outcome is unknown, and expired expectations. Until all are resolved, no other pods are
/// created or deleted, because the cache may have an old state.
pub(crate) async fn resolve_unknown_writes(ctx: &Ctx, owner: &Owner) {
    let uid = &owner.uid;
    let enqueue = {
        let (queue, key) = (ctx.queue.clone(), owner.key());
        move || queue.add(key.clone())
    };
    let (cache, may_call) = (ctx.pods.store(), !ctx.stopping.is_cancelled());
    let reader = DeletionReader { api: ctx.api(), cache, limit: &ctx.call_limit, may_call, clock: &ctx.clock };
    let (resolved, left) = reader.resolve(ctx.memory.take_unknown_deletions(uid), enqueue.clone()).await;
    resolved.iter().for_each(|it| ctx.memory.expectations.deletion_observed(uid, it));
    left.into_iter().for_each(|it| ctx.memory.add_unknown_deletion(uid, it));
    // A cache that is late by more than the timeout shows pods that are gone, and lacks others (k/k#129795).
    if ctx.memory.expectations.renew_expired(uid, ctx.clock.now()) && may_call {
        if let Some(NewestPods { list, .. }) = newest_pods(ctx.api(), &owner.namespace).await {
            ctx.memory.await_version(uid, list.clone());
            cache.call_when_passed(list, Box::new(enqueue));
        } else {
            ctx.memory.expectations.expire_after(uid, RETRY_CHECK, ctx.clock.now());
        }
    }
    // Unknown deletions are checked at times of their own.
    if !ctx.memory.has_unknown_deletions(uid) {
        ctx.memory.resolve_expired(uid, |it| cache.has_passed(it));
    }
}

/// Repeats the creations whose outcome is unknown and which the cache does not show.
pub(crate) async fn repeat_creations(ctx: &Ctx, set: &DaemonSet, owner: &Owner) -> Result<(), ApplyError> {
    if !ctx.memory.has_unknown_creations(&owner.uid) || !ctx.sets.store().is_alive(&set.meta.as_ref())? {
        return Ok(());
    }
    let creations = ctx.memory.take_unknown_creations(&owner.uid);
    let calls = Calls { ctx, owner, set: None };
    if ctx.memory.expectations.is_fulfilled(&owner.uid) {
        // They were observed, or given up.
        return creations.iter().try_for_each(|it| calls.record_if_own(&it.pod).map(drop)).map_err(ApplyError::from);
    }
    let (mut left, mut unreadable) = (Vec::new(), None);
    for unknown in creations {
        match calls.observe_creation(&unknown.pod) {
            Ok(true) => {}
            Ok(false) => left.push((unknown.pod, Some(unknown.keep_until))),
            Err(err) => {
                ctx.memory.add_unknown_creation(&owner.uid, unknown);
                unreadable = Some(err);
            }
        }
    }
    let failures = calls.make(left).await;
    if !ctx.memory.has_unknown_creations(&owner.uid) && ctx.memory.expectations.is_fulfilled(&owner.uid) {
        // The last creations were given up, so this sync decides anew.
        return Ok(());
    }
    let count = failures.len();
    match to_report(failures) {
        Some(source) => Err(ApplyError::Repeat(count, source)),
        None => unreadable.map_or(Ok(()), |err| Err(err.into())),
    }
}

/// Repeats, for some seconds, deletions whose outcome is unknown, because the first requests may have been lost. Pods
/// that need not be deleted any more are left out.
pub(crate) async fn repeat_deletions(
    ctx: &Ctx,
    set: &DaemonSet,
    owner: &Owner,
    snapshot: &Snapshot<'_>,
) -> Result<(), ApplyError> {
    if !ctx.sets.store().is_alive(&set.meta.as_ref())? {
        return Ok(());
    }
    let now = ctx.clock.now();
    let unknown = ctx.memory.take_unknown_deletions(&owner.uid);
    let expected = ctx.memory.expectations.expected_deletions(&owner.uid);
    let is_repeated = |pod: &Pod| unknown.iter().any(|it| it.repeat_until > now && it.pod.meta.uid == pod.meta.uid);
    // The cache does not show these deletions yet.
    let is_sent = |pod: &Pod| expected.contains(&pod.meta.uid) && !is_repeated(pod);
    let mut budget = budget(snapshot, is_sent);
    let (again, later): (Vec<_>, Vec<_>) = unknown
        .into_iter()
        .partition(|it| it.repeat_until > now && may_repeat_deletion(snapshot, &it.pod, &mut budget));
    later.into_iter().for_each(|it| ctx.memory.add_unknown_deletion(&owner.uid, it));
    let again = again.into_iter().map(|it| Deleting { pod: it.pod.clone(), cause: None, earlier: Some(it) }).collect();
    Calls { ctx, owner, set: Some(set) }.delete_all(again).await
}

/// Creates pods in slow-start batches, then deletes pods (`syncNodes`). What is requested is expected before.
pub(crate) async fn apply(
    ctx: &Ctx,
    set: &DaemonSet,
    owner: &Owner,
    hash: &str,
    plan: &Plan<'_>,
) -> Result<(), ApplyError> {
    let Plan { create, delete, .. } = plan;
    // The pods of a deleted set may be orphans now (`--cascade=orphan`).
    if (create.is_empty() && delete.is_empty()) || !ctx.sets.store().is_alive(&set.meta.as_ref())? {
        return Ok(());
    }
    let creations = creations(ctx, set, owner, hash, create)?;
    let deleted = delete.iter().map(|(pod, _)| pod.meta.uid.clone());
    ctx.memory.clear_awaited(&owner.uid);
    ctx.memory.expectations.expect(&owner.uid, creations.len(), deleted, ctx.clock.now());
    let calls = Calls { ctx, owner, set: Some(set) };
    let created = calls.create_all(creations).await;
    if ctx.stopping.is_cancelled() {
        // The next leader does the rest.
        return created;
    }
    let deleting = |(pod, cause): &(&Pod, DeleteCause)| Deleting {
        pod: Arc::new((*pod).clone()),
        cause: Some(*cause),
        earlier: None,
    };
    let deleted = calls.delete_all(delete.iter().map(deleting).collect()).await;
    created.and(deleted)?;
    // If calls were left out because the cache could not be read, nothing else would enqueue the set.
    Ok(ctx.sets.store().is_alive(&set.meta.as_ref()).map(drop)?)
}

/// The creations of pods (`CreatePodTemplate`).
fn creations(
    ctx: &Ctx,
    set: &DaemonSet,
    owner: &Owner,
    hash: &str,
    create: &[Creation<'_>],
) -> Result<Vec<NewPod>, ApplyError> {
    if create.is_empty() {
        return Ok(Vec::new());
    }
    let mut template = PodTemplate::parse(serde_json::from_str(&set.spec.template)?)?;
    let host_network = set.spec.placement.host_network.then_some(TOLERATED_WITH_HOST_NETWORK);
    for (key, effect) in TOLERATED.into_iter().chain(host_network) {
        template.tolerate(key, effect);
    }
    let affinity = Value::Object(template.take_affinity());
    let template = template.prepare(owner);
    let generation = set.template_generation.map(|it| it.to_string());
    let generation = generation.as_deref().map(|it| (GENERATION_LABEL, it));
    let labels: Vec<(&str, &str)> = [(REVISION_LABEL, hash)].into_iter().chain(generation).collect();
    let write = |creation: &Creation<'_>| {
        let name = free_name(ctx, set, owner, creation)?;
        let body = body(&template, affinity.clone(), &labels, &owner.generate_name(), &name, creation.node)?;
        Ok(NewPod { name: name.into(), node: creation.node.meta.name.clone(), body })
    };
    create.iter().map(write).collect()
}

/// The name of a new pod. A pod that was released from this set may still have the first name. If it is the
/// name of a pod of this set on this node that the plan did not know, it is kept, so that the server refuses a second pod.
fn free_name(ctx: &Ctx, set: &DaemonSet, owner: &Owner, creation: &Creation<'_>) -> Result<String, StoreError> {
    let (namespace, node) = (&set.meta.namespace, &creation.node.meta.name);
    let mut known: Vec<Uid> = creation.known.iter().map(|it| it.meta.uid.clone()).collect();
    loop {
        let name = pod_name(set.meta.as_ref(), node, &known.iter().collect::<Vec<_>>());
        let Some(other) = ctx.pods.store().get(namespace, &name)? else { return Ok(name) };
        let is_selected = set.spec.selector.as_ref().is_some_and(|it| it.matches(&other.labels));
        let is_of_set = claim_decision(owner, other.meta.as_ref(), is_selected) == Claim::Keep;
        if is_of_set && **node_name(&other) == **node && !known.contains(&other.meta.uid) {
            return Ok(name);
        }
        known.push(other.meta.uid.clone());
    }
}

/// One pod. The default scheduler binds it to its node, because the required node affinity names that node
/// (`ReplaceDaemonSetPodNodeNameNodeAffinity`).
fn body(
    template: &PreparedTemplate,
    mut affinity: Value,
    labels: &[(&str, &str)],
    generate_name: &str,
    name: &str,
    node: &Node,
) -> Result<Box<RawValue>, ApplyError> {
    let by_name = json!({ "key": "metadata.name", "operator": "In", "values": [node.meta.name] });
    affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
        json!({ "nodeSelectorTerms": [{ "matchFields": [by_name] }] });
    let fields = PodFields { generate_name, name, labels, affinity: Some(&affinity), ..PodFields::default() };
    Ok(template.pod(fields)?)
}

/// The first error that means something. In a namespace that terminates every creation fails, until the garbage collector
/// deletes the set.
fn to_report(failures: Vec<ApiError>) -> Option<ApiError> {
    failures.into_iter().find(|it| !it.is_namespace_terminating())
}

struct Calls<'a> {
    ctx: &'a Ctx,
    owner: &'a Owner,
    /// The set for which the calls were planned; `None` if they do not depend on its spec.
    set: Option<&'a DaemonSet>,
}

/// A pod to create, and [`UnknownCreation::keep_until`] if it was sent before.
type Creating = (NewPod, Option<Instant>);

/// A pod to delete.
struct Deleting {
    pod: Arc<Pod>,
    /// `None` for a repeated request.
    cause: Option<DeleteCause>,
    /// What is known of earlier requests.
    earlier: Option<UnknownDeletion>,
}

impl Calls<'_> {
    /// After a batch with a failure nothing more is created.
    async fn create_all(&self, creations: Vec<NewPod>) -> Result<(), ApplyError> {
        let wanted = creations.len();
        let (mut batches, mut creations) = (SlowStart::new(wanted, 1), creations.into_iter());
        while let Some(batch) = batches.next_batch() {
            let left = wanted - batch.end;
            if self.ctx.stopping.is_cancelled() {
                self.expect_fewer_creations(wanted - batch.start);
                break;
            }
            let failures = self.make(creations.by_ref().take(batch.len()).map(|it| (it, None)).collect()).await;
            let failed = failures.len();
            if failed > 0 {
                self.expect_fewer_creations(left);
                let reported = to_report(failures);
                return reported.map_or(Ok(()), |source| Err(ApplyError::Create { failed, wanted, source }));
            }
        }
        Ok(())
    }

    /// Creates pods concurrently, and returns the errors.
    async fn make(&self, pods: Vec<Creating>) -> Vec<ApiError> {
        let results = self.ctx.call_limit.call_each(pods, |it| self.create(it)).await;
        results.into_iter().filter_map(Result::err).collect()
    }

    /// Creates a pod. If that certainly failed, it is not expected any more.
    async fn create(&self, (pod, kept_until): Creating) -> Result<(), ApiError> {
        let Self { ctx, owner, .. } = self;
        if !self.is_current() {
            self.expect_fewer_creations(1);
            return Ok(());
        }
        let result = ctx.control.create(owner, &pod.body).await;
        ctx.memory.record_write(&owner.uid, &pod.node, result.is_ok());
        let Err(err) = result else { return Ok(()) };
        let mut outcome = UnknownOutcomes::default();
        outcome.record_error(&err);
        // The pod was created before, and the cache does not show it yet.
        let exists = matches!(err, ApiError::AlreadyExists(_));
        let now = ctx.clock.now();
        let keep_until = match kept_until {
            _ if outcome.pending || exists => Some(now + MAX_REQUEST_TIME),
            // The server may have stored the pod. If not, the same request will end in the same way.
            None => outcome.ended.then_some(now),
            // A refusal does not show what an earlier request has done.
            Some(_) => kept_until.filter(|it| *it > now),
        };
        match keep_until {
            Some(keep_until) => {
                if keep_until > now {
                    // The back-off of the key may be longer.
                    ctx.queue.add_after(owner.key(), keep_until - now);
                }
                ctx.memory.add_unknown_creation(&owner.uid, UnknownCreation { pod, keep_until });
            }
            None => self.expect_fewer_creations(1),
        }
        Err(err)
    }

    /// Deletes pods concurrently.
    async fn delete_all(&self, pods: Vec<Deleting>) -> Result<(), ApplyError> {
        let wanted = pods.len();
        let results = self.ctx.call_limit.call_each(pods, |it| self.delete(it)).await;
        let (changed, failures): (Vec<_>, Vec<_>) =
            results.into_iter().filter_map(Result::err).partition(|it| matches!(it, ApiError::Conflict(_)));
        let failed = failures.len();
        match failures.into_iter().next() {
            Some(source) => Err(ApplyError::Delete { failed, wanted, source }),
            None if changed.is_empty() => Ok(()),
            None => Err(ApplyError::Changed(changed.len())),
        }
    }

    /// Deletes a pod in the state in which the cache shows it: a late cache may show all pods as not available. If that
    /// certainly failed, the deletion is not expected any more.
    async fn delete(&self, Deleting { pod, cause, earlier }: Deleting) -> Result<(), ApiError> {
        let Self { ctx, owner, .. } = self;
        if !self.is_current() {
            match earlier {
                Some(unknown) => ctx.memory.add_unknown_deletion(&owner.uid, unknown),
                None => ctx.memory.expectations.deletion_observed(&owner.uid, &pod.meta.uid),
            }
            return Ok(());
        }
        let outcome = ctx.control.delete_as_seen(owner, &pod).await;
        if let (Some(cause), Some(set)) = (cause, self.set)
            && !matches!(outcome, Err(ApiError::Conflict(_)))
        {
            self.report(set, &pod, cause);
        }
        let is_done = outcome.as_ref().err().is_none_or(|it| is_gone(it, &pod.meta.name));
        // A conflict concerns this state of the pod, not its node.
        if !matches!(outcome, Err(ApiError::Conflict(_))) {
            ctx.memory.record_write(&owner.uid, node_name(&pod), is_done);
        }
        let Err(err) = outcome else { return Ok(()) };
        if is_done {
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

    /// Whether the cached set has the generation for which the plan was made, and is not being deleted. A plan of
    /// hundreds of calls takes a minute, in which a user may correct a mistake. Calls that are left out are decided
    /// anew by the next sync. Always true for calls that do not depend on the spec.
    fn is_current(&self) -> bool {
        self.set.is_none_or(|planned| {
            let meta = &planned.meta;
            let stored = self.ctx.sets.store().get_same(&meta.namespace, &meta.name, &meta.uid);
            stored
                .is_ok_and(|it| it.is_some_and(|it| it.meta.deletion.is_none() && it.generation == planned.generation))
        })
    }

    /// Returns true when the cache shows the created pod. Another pod with its name is not expected.
    fn observe_creation(&self, pod: &NewPod) -> Result<bool, StoreError> {
        let is_own = self.record_if_own(pod)?;
        if is_own == Some(false) {
            self.expect_fewer_creations(1);
        }
        Ok(is_own.is_some())
    }

    /// Records a creation whose pod is in the cache. `None` if there is no pod of this name, false if it is another one.
    fn record_if_own(&self, pod: &NewPod) -> Result<Option<bool>, StoreError> {
        let Self { ctx, owner, .. } = self;
        let Some(shown) = ctx.pods.store().get(&owner.namespace, &pod.name)? else { return Ok(None) };
        let is_own = claim_decision(owner, shown.meta.as_ref(), true) == Claim::Keep;
        if is_own {
            ctx.memory.record_write(&owner.uid, &pod.node, true);
        }
        Ok(Some(is_own))
    }

    fn expect_fewer_creations(&self, count: usize) {
        self.ctx.memory.expectations.lower(&self.owner.uid, i64::try_from(count).unwrap_or(i64::MAX), 0);
    }

    /// Sends the event about a pod that has ended. The next failure on this node must wait longer.
    fn report(&self, set: &DaemonSet, pod: &Pod, cause: DeleteCause) {
        let Self { ctx, owner, .. } = self;
        let (namespace, name, node) = (&pod.meta.namespace, &pod.meta.name, node_name(pod));
        match cause {
            DeleteCause::Failed => {
                ctx.memory.advance_backoff(&owner.uid, node, set.status.observed_generation, ctx.clock.now());
                let message = format!("Found failed daemon pod {namespace}/{name} on node {node}, will try to kill it");
                ctx.send_event(owner, EventType::Warning, "FailedDaemonPod", message);
            }
            DeleteCause::Succeeded => {
                let message =
                    format!("Found succeeded daemon pod {namespace}/{name} on node {node}, will try to delete it");
                ctx.send_event(owner, EventType::Normal, "SucceededDaemonPod", message);
            }
            DeleteCause::Surplus | DeleteCause::Misplaced | DeleteCause::Update => {}
        }
    }
}
