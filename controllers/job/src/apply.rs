//! Executes a plan: creates or deletes pods and reports the real outcome.

use std::{ops::Range, sync::Arc};

use api::{Job, Pod, Typed};
use client::{ApiError, NotSent, Written};
use serde_json::value::RawValue;
use workload::{
    Claimed, Owner, PodControl, PodFields, PodTemplate, PreparedTemplate, SlowStart, StageStart, TemplateError,
    UnknownOutcomes, is_gone, longest_create, newest_pods,
};

use crate::{
    Ctx,
    memory::Urgency,
    rules::{
        per_index_backoff::{FAILURE_COUNT_ANNOTATION, Failures, IGNORED},
        plan::{Applied, Creation, NewPod, PodChange},
        snapshot::{FINALIZER, INDEX},
    },
};

/// The environment variable that gives a container its completion index.
const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";

/// The longest prefix of a generated pod name. With five random characters the name still fits into a label value.
const MAX_PREFIX: usize = 58;

/// The outcome of a plan.
#[derive(Debug, Default)]
pub(crate) struct ApplyResult {
    /// The changes that were made.
    pub(crate) applied: Applied,
    /// The stage ended early, because other Jobs wait. The next sync makes the remaining calls.
    pub(crate) cut_short: bool,
    /// The first failure.
    pub(crate) failure: Option<ApplyError>,
}

/// Why a plan was not executed in full.
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
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error("cannot encode a pod")]
    Encode(#[source] serde_json::Error),
}

/// Applies the planned change to the Job's pods. `claimed` holds the pods of the snapshot.
pub(crate) async fn apply(
    ctx: &Ctx,
    job: &Job,
    owner: &Owner,
    claimed: &Claimed<Pod>,
    change: &PodChange,
) -> ApplyResult {
    let (pods, now) = (&*claimed.objects, ctx.clock.now());
    match change {
        PodChange::Keep => ApplyResult::default(),
        // These deletions are not added to the expectations, because a Job that ends creates no pods.
        PodChange::End(positions) => delete(ctx, owner, pods, positions, Finalizer::Keep).await,
        PodChange::Suspend(positions) | PodChange::Delete(positions) => {
            // The cache still shows an adopted pod as it was before the adoption, so its finalizers are not known now.
            // The next sync deletes it.
            let positions: Vec<usize> = positions.iter().copied().filter(|at| !is_adopted(claimed, *at)).collect();
            let to_delete = || positions.iter().filter_map(|at| pods.get(*at));
            ctx.memory.expectations.add_deletions(&owner.uid, to_delete().map(|it| it.meta.uid.clone()), now);
            if let PodChange::Delete(_) = change {
                // Recorded before the deletion, because the watch event may come before the response.
                to_delete()
                    .filter(|it| has_no_finalizer(it))
                    .for_each(|it| ctx.memory.on_delete_without_finalizer(&it.meta.uid, now));
            }
            delete(ctx, owner, pods, &positions, Finalizer::Remove).await
        }
        PodChange::Create(creation) => create(ctx, job, owner, creation).await,
    }
}

/// Whether our finalizer is removed when a pod is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finalizer {
    /// The finalizer stays, because the pod must be counted.
    Keep,
    /// The finalizer is removed first, because the pod must not be counted.
    Remove,
}

async fn delete(ctx: &Ctx, owner: &Owner, pods: &[Arc<Pod>], positions: &[usize], finalizer: Finalizer) -> ApplyResult {
    let to_delete: Vec<(usize, &Arc<Pod>)> = positions.iter().filter_map(|at| Some((*at, pods.get(*at)?))).collect();
    let stage_start = ctx.begin_stage();
    let calls = ctx.call_limit.call_each_until(
        || ctx.is_stage_over(stage_start),
        to_delete.clone(),
        |(_, pod)| async move {
            // Not checked between the two calls: a running pod without its finalizer would never be counted.
            check_not_stopping(ctx)?;
            if finalizer == Finalizer::Keep {
                return delete_one(ctx, &ctx.control, owner, pod).await;
            }
            remove_finalizer(ctx, owner, pod).await?;
            match delete_one(ctx, &ctx.control, owner, pod).await {
                // The manager began to stop while this call waited for the client's rate limiter.
                Err(ApiError::NotSent(NotSent::Stopping)) => {
                    delete_one(ctx, &ctx.control_without_limit, owner, pod).await
                }
                outcome => outcome,
            }
        },
    );
    let (mut deleted, mut cut_short, mut failed, mut first) = (Vec::new(), false, 0, None);
    for ((at, pod), outcome) in to_delete.iter().copied().zip(calls.await) {
        match outcome {
            None => {
                cut_short = true;
                ctx.memory.expectations.deletion_observed(&owner.uid, &pod.meta.uid);
            }
            Some(Ok(())) => {
                ctx.memory.on_pod_stopped(&pod.meta.uid);
                deleted.push(at);
            }
            Some(Err(err)) => {
                failed += 1;
                first.get_or_insert(err);
                // The deletion may be sent again, so it is not expected until then.
                ctx.memory.expectations.deletion_observed(&owner.uid, &pod.meta.uid);
            }
        }
    }
    let failure = first.map(|source| ApplyError::Delete { failed, wanted: positions.len(), source });
    ApplyResult { applied: Applied { deleted, ..Applied::default() }, cut_short, failure }
}

/// Whether the pod does not have our finalizer.
fn has_no_finalizer(pod: &Pod) -> bool {
    !workload::has_finalizer(pod, FINALIZER)
}

fn is_adopted(claimed: &Claimed<Pod>, at: usize) -> bool {
    claimed.objects.get(at).is_some_and(|it| claimed.adopted.contains(&it.meta.uid))
}

/// Removes our finalizer from a pod that is deleted without being counted.
async fn remove_finalizer(ctx: &Ctx, owner: &Owner, pod: &Pod) -> Result<(), ApiError> {
    if has_no_finalizer(pod) {
        return Ok(());
    }
    // The pod may have ended meanwhile. Then it must be counted, so the patch must fail.
    let outcome = ctx.control.remove_finalizer_as_seen(&owner.uid, pod, FINALIZER).await;
    if matches!(outcome, Ok(_) | Err(ApiError::Unknown { .. })) {
        // If the deletion fails now, a later sync deletes the pod because it has no finalizer. Its slot is freed here,
        // because this controller removed the finalizer.
        ctx.memory.on_pod_stopped(&pod.meta.uid);
    }
    outcome.map(drop).or_else(|err| ignore_gone(pod, err))
}

async fn delete_one(ctx: &Ctx, control: &PodControl, owner: &Owner, pod: &Pod) -> Result<(), ApiError> {
    let outcome = control.delete(owner, pod).await;
    if outcome.as_ref().is_err_and(|err| is_gone(err, &pod.meta.name)) {
        // The pod is gone. Its watch event has come, or will never come.
        ctx.memory.expectations.deletion_observed(&owner.uid, &pod.meta.uid);
    }
    outcome.or_else(|err| ignore_gone(pod, err))
}

fn ignore_gone(pod: &Pod, err: ApiError) -> Result<(), ApiError> {
    if is_gone(&err, &pod.meta.name) { Ok(()) } else { Err(err) }
}

/// Fails when the manager has begun to stop. Called between the calls of a long sync.
fn check_not_stopping(ctx: &Ctx) -> Result<(), ApiError> {
    if ctx.stopping.is_cancelled() { Err(ApiError::NotSent(NotSent::Stopping)) } else { Ok(()) }
}

async fn create(ctx: &Ctx, job: &Job, owner: &Owner, creation: &Creation) -> ApplyResult {
    let Creation { pods, reason } = creation;
    let bodies = match BodyBuilder::new(job, owner) {
        Ok(bodies) => bodies,
        Err(failure) => return ApplyResult { failure: Some(failure), ..ApplyResult::default() },
    };
    ctx.memory.expectations.expect_creations(&owner.uid, pods.len(), ctx.clock.now());
    let mut batches = SlowStart::new(pods.len(), ctx.memory.last_batch_size(&owner.uid));
    let (stage_start, mut results) = (ctx.begin_stage(), CreateResults::default());
    while let Some(batch) = batches.next_batch() {
        let end = batch.end;
        let calls = CreateCalls { ctx, job, owner, stage_start, bodies: &bodies, reason };
        calls.create(pods.get(batch).unwrap_or_default(), &mut results).await;
        if results.failed > 0 || results.cut_short {
            // Creations that were not tried must not be expected.
            let skipped = i64::try_from(pods.len() - end).unwrap_or(i64::MAX);
            ctx.memory.expectations.lower(&owner.uid, skipped, 0);
            break;
        }
    }
    let CreateResults { created, cut_short, failed, namespace_terminating, outcomes, failure } = results;
    match outcomes {
        UnknownOutcomes { pending: true, .. } => {
            ctx.memory.check_unknown_creates_at(&owner.uid, ctx.clock.now() + longest_create(ctx.control.api()))
        }
        UnknownOutcomes { ended: true, .. } => {
            // If the next request fails, the next sync repeats it.
            ctx.memory.check_unknown_creates_at(&owner.uid, ctx.clock.now());
            resolve_unknown_creates(ctx, job).await;
        }
        UnknownOutcomes { .. } => {}
    }
    ctx.memory.record_batch(&owner.uid, if failed == 0 { created } else { 0 });
    let failure = failure.map(|it| match it {
        CreateError::Api(source) => ApplyError::Create { failed, wanted: pods.len(), source },
        CreateError::Encode(err) => ApplyError::Encode(err),
    });
    ApplyResult { applied: Applied { created, namespace_terminating, ..Applied::default() }, cut_short, failure }
}

/// Whether the Job's namespace is terminating and rejects new pods. Checked with a dry run of a pod creation, for which
/// the controller has permission.
pub(crate) async fn check_namespace_by_dry_run(ctx: &Ctx, job: &Job, owner: &Owner) -> bool {
    let Ok(body) = BodyBuilder::new(job, owner)
        .and_then(|it| it.body(NewPod { index: Some(0), failures: None }).map_err(ApplyError::Encode))
    else {
        return false;
    };
    let path = format!("{}?dryRun=All", Pod::resource().collection(Some(&owner.namespace)));
    // Any other error does not concern the namespace.
    ctx.control.api().post(&path, &body).await.is_err_and(|err| err.is_namespace_terminating())
}

#[derive(Default)]
struct CreateResults {
    created: usize,
    cut_short: bool,
    failed: usize,
    /// The namespace is terminating.
    namespace_terminating: bool,
    outcomes: UnknownOutcomes,
    failure: Option<CreateError>,
}

enum CreateError {
    Api(ApiError),
    Encode(serde_json::Error),
}

/// The creations of one sync.
struct CreateCalls<'a> {
    ctx: &'a Ctx,
    job: &'a Job,
    owner: &'a Owner,
    stage_start: StageStart,
    bodies: &'a BodyBuilder,
    /// The reason label of the metric.
    reason: &'a str,
}

impl CreateCalls<'_> {
    async fn create(&self, pods: &[NewPod], results: &mut CreateResults) {
        let Self { ctx, job, owner, stage_start, bodies, reason } = self;
        let outcomes = ctx.call_limit.call_each_until(
            || ctx.is_stage_over(*stage_start),
            pods.to_vec(),
            |pod| async move {
                let body = bodies.body(pod).map_err(CreateError::Encode)?;
                check_not_stopping(ctx).map_err(CreateError::Api)?;
                ctx.control.create(owner, &body).await.map_err(CreateError::Api)
            },
        );
        for outcome in outcomes.await {
            let Some(outcome) = outcome else {
                results.cut_short = true;
                ctx.memory.expectations.creation_observed(&owner.uid);
                continue;
            };
            ctx.meters.record_creation(reason, outcome.is_ok());
            match outcome {
                Ok(written) => {
                    results.created += 1;
                    ctx.occupy_slot(job, written);
                }
                Err(err) => self.on_failure(err, results),
            }
        }
    }

    fn on_failure(&self, err: CreateError, results: &mut CreateResults) {
        results.failed += 1;
        let is_not_created = match &err {
            CreateError::Api(err) => results.outcomes.record_error(err),
            CreateError::Encode(_) => true,
        };
        if is_not_created {
            self.ctx.memory.expectations.creation_observed(&self.owner.uid);
        }
        // A retry cannot succeed in a terminating namespace.
        if matches!(&err, CreateError::Api(err) if err.is_namespace_terminating()) {
            results.namespace_terminating = true;
        } else {
            results.failure.get_or_insert(err);
        }
    }
}

/// Handles creations with unknown outcome: each pod stays expected until the cache has passed the newest resourceVersion
/// of the server. After a creation without a response, this is called when its request must have ended.
pub(crate) async fn resolve_unknown_creates(ctx: &Ctx, job: &Job) {
    if ctx.stopping.is_cancelled() {
        return;
    }
    // On failure the request is repeated later, or the expectation expires.
    let Some(newest) = newest_pods(ctx.control.api(), &job.meta.namespace).await.map(|it| it.pod) else { return };
    ctx.memory.await_unknown_creates(&job.meta.uid, newest.clone());
    let (queue, key) = (ctx.queue.clone(), job.meta.as_ref().key());
    ctx.pods.store().call_when_passed(newest, Box::new(move || queue.add(key)));
}

impl Ctx {
    /// A created pod occupies a slot until the informer shows that it has ended. The informer may have shown the pod
    /// before the response came. It may also never show it, if the pod was deleted while no watch was open.
    fn occupy_slot(&self, job: &Job, written: Written) {
        let Written { name, uid, version, .. } = written;
        self.memory.on_pod_created(&job.meta.uid, uid.clone());
        let (memory, queue, clock) = (self.memory.clone(), self.queue.clone(), self.clock.clone());
        let (key, pod) = (job.meta.as_ref().key(), uid.clone());
        let on_passed = move || {
            if let Some(job) = memory.on_cache_passed_creation(&pod) {
                queue.add_after(key, memory.on_pod_changed(&job, Urgency::Immediate, clock.now()));
            }
        };
        // Called before the store is read: if the store has passed this version and has no such pod, the pod was
        // deleted.
        let passed = self.pods.store().call_when_passed(version, Box::new(on_passed));
        let cached = self.pods.store().get_same(&job.meta.namespace, &name, &uid).ok().flatten();
        if cached.is_some() {
            self.memory.on_pod_seen(&uid);
        }
        let has_ended = cached.map_or(passed, |it| !workload::is_active(&it));
        if has_ended {
            self.memory.on_pod_stopped(&uid);
        }
    }
}

/// Builds the request bodies of a Job's pods.
struct BodyBuilder {
    template: PreparedTemplate,
    name: Box<str>,
    /// Without indexes all pods of the Job have the same body.
    plain: Option<Box<RawValue>>,
}

impl BodyBuilder {
    fn new(job: &Job, owner: &Owner) -> Result<Self, ApplyError> {
        let raw: &RawValue = serde_json::from_str(&job.spec.template).map_err(TemplateError::Decode)?;
        let mut template = PodTemplate::parse(raw)?;
        if job.is_indexed() {
            template.set_env_from_label(INDEX_VARIABLE, INDEX);
        }
        let template = template.prepare(owner);
        let generate_name = owner.generate_name();
        let fields = PodFields { generate_name: &generate_name, ..PodFields::default() };
        let plain = if job.is_indexed() { None } else { Some(template.pod(fields).map_err(ApplyError::Encode)?) };
        Ok(Self { template, name: owner.name.clone(), plain })
    }

    fn body(&self, pod: NewPod) -> Result<Box<RawValue>, serde_json::Error> {
        let NewPod { index, failures } = pod;
        if let (None, Some(plain)) = (index, &self.plain) {
            return Ok(plain.clone());
        }
        let index = index.unwrap_or_default().to_string();
        let Failures { counted, ignored } = failures.unwrap_or_default();
        let (counted, ignored_text) = (counted.to_string(), ignored.to_string());
        let mut annotations = vec![(INDEX, index.as_str())];
        if failures.is_some() {
            annotations.push((FAILURE_COUNT_ANNOTATION, &counted));
        }
        if ignored > 0 {
            annotations.push((IGNORED, &ignored_text));
        }
        self.template.pod(PodFields {
            generate_name: &prefix(&self.name, &index),
            labels: &[(INDEX, &index)],
            annotations: &annotations,
            hostname: Some(&format!("{}-{index}", self.name)),
            ..PodFields::default()
        })
    }
}

/// `<job>-<index>-`. The Job's name is cut so that the index is complete.
fn prefix(job: &str, index: &str) -> String {
    let tail = format!("-{index}-");
    let kept: Range<usize> = 0..job.len().min(MAX_PREFIX.saturating_sub(tail.len()));
    // Object names are ASCII, so any cut is at a character boundary.
    format!("{}{tail}", job.get(kept).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_job_044_a_long_name_is_truncated_before_the_index() {
        assert_eq!(prefix("job", "7"), "job-7-");
        let long = "a".repeat(63);
        assert_eq!(prefix(&long, "12345"), format!("{}-12345-", "a".repeat(51)));
        assert_eq!(prefix(&long, "0").len(), MAX_PREFIX);
        assert_eq!(prefix(&"a".repeat(55), "0"), format!("{}-0-", "a".repeat(55)));
    }
}
