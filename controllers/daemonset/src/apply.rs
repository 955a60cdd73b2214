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
    Claim, Extra, MAX_REQUEST_TIME, Owner, PodTemplate, PreparedTemplate, SlowStart, TemplateError, UnknownOutcomes,
    claim_decision, is_gone,
};

use crate::{
    Ctx,
    memory::{UnknownWrite, Write},
    rules::{
        names::pod_name,
        placement::{TOLERATED, TOLERATED_WITH_HOST_NETWORK},
        plan::{Creation, DeleteCause, Plan},
        snapshot::{GENERATION_LABEL, node_name},
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
    #[error("cannot repeat {0} writes")]
    Repeat(usize, #[source] ApiError),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("cannot encode a pod")]
    Encode(#[from] serde_json::Error),
    #[error("cannot read the cache of sets")]
    Cache(#[from] StoreError),
}

/// Repeats the writes whose outcome is unknown and which the cache does not show. Nothing else is decided before it is
/// known, because it would be decided from an old state.
pub(crate) async fn repeat_unknown(ctx: &Ctx, set: &DaemonSet, owner: &Owner) -> Result<(), ApplyError> {
    if !ctx.memory.has_unknown(&owner.uid) || !ctx.sets.store().is_alive(&set.meta.as_ref())? {
        return Ok(());
    }
    let writes = ctx.memory.take_unknown(&owner.uid);
    if ctx.memory.expectations.is_satisfied(&owner.uid, ctx.clock.now()) {
        return Ok(());
    }
    let calls = Calls { ctx, owner };
    let (mut left, mut unreadable) = (Vec::new(), None);
    for unknown in writes {
        match calls.is_shown(&unknown.write) {
            Ok(true) => {}
            Ok(false) => left.push((unknown.write, Some(unknown.keep_until))),
            Err(err) => {
                ctx.memory.add_unknown(&owner.uid, unknown);
                unreadable = Some(err);
            }
        }
    }
    let failures = calls.make(left).await;
    if !ctx.memory.has_unknown(&owner.uid) && ctx.memory.expectations.is_satisfied(&owner.uid, ctx.clock.now()) {
        // The last writes were given up, so this sync decides anew.
        return Ok(());
    }
    let count = failures.len();
    match to_report(failures) {
        Some(source) => Err(ApplyError::Repeat(count, source)),
        None => unreadable.map_or(Ok(()), |err| Err(err.into())),
    }
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
    ctx.memory.expectations.expect(&owner.uid, creations.len(), deleted, ctx.clock.now());
    let calls = Calls { ctx, owner };
    let created = calls.create_all(creations).await;
    if ctx.stopping.is_cancelled() {
        // The next leader does the rest.
        return created;
    }
    let deletions = delete.iter().map(|(pod, cause)| {
        calls.report(set, pod, *cause);
        (Write::Delete(Arc::new((*pod).clone())), None)
    });
    let failures = calls.make(deletions.collect()).await;
    created?;
    let (failed, wanted) = (failures.len(), delete.len());
    failures.into_iter().next().map_or(Ok(()), |source| Err(ApplyError::Delete { failed, wanted, source }))
}

/// The creations of pods (`CreatePodTemplate`).
fn creations(
    ctx: &Ctx,
    set: &DaemonSet,
    owner: &Owner,
    hash: &str,
    create: &[Creation<'_>],
) -> Result<Vec<Write>, ApplyError> {
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
        Ok(Write::Create { name: name.into(), node: creation.node.meta.name.clone(), body })
    };
    create.iter().map(write).collect()
}

/// The name of a new pod. A pod that was released from this set may still have the first one. But if it is a pod of this
/// set on this node that the plan did not know yet, the server must refuse a second one.
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
    let extra = Extra { generate_name, name, labels, affinity: Some(&affinity), ..Extra::default() };
    Ok(template.pod(extra)?)
}

/// The first error that means something. In a namespace that terminates every creation fails, until the garbage collector
/// deletes the set.
fn to_report(failures: Vec<ApiError>) -> Option<ApiError> {
    failures.into_iter().find(|it| !it.is_namespace_terminating())
}

struct Calls<'a> {
    ctx: &'a Ctx,
    owner: &'a Owner,
}

/// A write, and [`UnknownWrite::keep_until`] if it was sent before.
type Call = (Write, Option<Instant>);

impl Calls<'_> {
    /// After a batch with a failure nothing more is created.
    async fn create_all(&self, creations: Vec<Write>) -> Result<(), ApplyError> {
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

    /// Makes writes concurrently, and returns their errors.
    async fn make(&self, calls: Vec<Call>) -> Vec<ApiError> {
        let results = self.ctx.call_limit.call_each(calls, |it| self.make_one(it)).await;
        results.into_iter().filter_map(Result::err).collect()
    }

    /// Makes a write. If it certainly failed, it is not expected any more.
    async fn make_one(&self, (write, kept_until): Call) -> Result<(), ApiError> {
        let Self { ctx, owner } = self;
        let err = match &write {
            Write::Create { body, .. } => match ctx.control.create(owner, body).await {
                Ok(_) => return Ok(()),
                Err(err) => err,
            },
            Write::Delete(pod) => match ctx.control.delete(owner, pod).await {
                Ok(()) => return Ok(()),
                Err(err) if is_gone(&err, &pod.meta.name) => {
                    ctx.memory.expectations.deletion_observed(&owner.uid, &pod.meta.uid);
                    return Ok(());
                }
                Err(err) => err,
            },
        };
        let node: &str = match &write {
            Write::Create { node, .. } => node,
            Write::Delete(pod) => node_name(pod),
        };
        ctx.memory.set_last_failed_node(&owner.uid, node);
        let mut outcome = UnknownOutcomes::default();
        outcome.record_error(&err);
        // A second creation of the same pod is refused by its name. A second deletion for the same update would be of another
        // pod.
        let is_unknown = outcome.pending || (outcome.ended && matches!(write, Write::Delete(_)));
        // The pod was created before, and the cache does not show it yet.
        let exists = matches!(err, ApiError::AlreadyExists(_));
        let now = ctx.clock.now();
        // A refusal does not show what an earlier request has done.
        let keep_until =
            if is_unknown || exists { Some(now + MAX_REQUEST_TIME) } else { kept_until.filter(|it| *it > now) };
        match (keep_until, write) {
            (Some(keep_until), write) => {
                // The back-off of the key may be longer.
                ctx.queue.add_after(owner.key(), keep_until - now);
                ctx.memory.add_unknown(&owner.uid, UnknownWrite { write, keep_until });
            }
            (None, Write::Create { .. }) => self.expect_fewer_creations(1),
            (None, Write::Delete(pod)) => ctx.memory.expectations.deletion_observed(&owner.uid, &pod.meta.uid),
        }
        Err(err)
    }

    /// Whether the cache shows the result of a write. Another pod with the name of a creation is not expected.
    fn is_shown(&self, write: &Write) -> Result<bool, StoreError> {
        let Self { ctx, owner } = self;
        let get = |name: &str| ctx.pods.store().get(&owner.namespace, name);
        match write {
            Write::Create { name, .. } => {
                let Some(pod) = get(name)? else { return Ok(false) };
                if claim_decision(owner, pod.meta.as_ref(), true) != Claim::Keep {
                    self.expect_fewer_creations(1);
                }
                Ok(true)
            }
            Write::Delete(pod) => {
                let shown = get(&pod.meta.name)?;
                Ok(shown.is_none_or(|it| it.meta.uid != pod.meta.uid || it.meta.deletion.is_some()))
            }
        }
    }

    fn expect_fewer_creations(&self, count: usize) {
        self.ctx.memory.expectations.lower(&self.owner.uid, i64::try_from(count).unwrap_or(i64::MAX), 0);
    }

    /// Sends the event about a pod that has ended. The next failure on this node must wait longer.
    fn report(&self, set: &DaemonSet, pod: &Pod, cause: DeleteCause) {
        let Self { ctx, owner } = self;
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
