//! Executes a plan: creates, repairs and deletes pods.

use api::{ClaimRetention, Pod, StatefulSet, Typed};
use client::{ApiError, DeleteOptions, Patch};
use events::EventType;
use informer::StoreError;
use revisions::REVISION_LABEL;
use serde_json::{Map, Value, json, value::RawValue};
use workload::{Owner, PodFields, PodTemplate, RETRY_CHECK, SlowStart, end_of_request, is_gone, server_message};

use crate::{
    Ctx,
    memory::LONGEST_LAG,
    rules::{
        history,
        identity::{NAME_LABEL, ORDINAL_LABEL, claim_name, has_identity, pod_name},
        notices::Notice,
        plan::{Action, Plan, PodRevision},
        retention::PossibleOwners,
        rollout::DeleteCause,
    },
    volume_claims::{self, VolumeClaimError, is_quota},
};

/// The most actions of the first batch of a stage. With a used-up quota all of them are refused.
const FIRST_BATCH: usize = 16;

/// A revision of the set.
#[derive(Debug, Clone)]
pub(crate) struct Revision {
    /// Its name.
    pub(crate) name: Box<str>,
    /// Its data.
    pub(crate) data: Box<str>,
}

/// The revisions of the set.
#[derive(Debug, Clone)]
pub(crate) struct SetRevisions {
    /// That of the pods that are not updated yet.
    pub(crate) current: Revision,
    /// That of the present template.
    pub(crate) update: Revision,
}

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The number of outdated pods that were deleted.
    pub(crate) deleted_for_update: i32,
    /// A quota that prevents the creation of a pod.
    pub(crate) quota: Option<Notice>,
    /// The first failure.
    pub(crate) failure: Option<ApplyError>,
}

/// Why a plan was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("cannot create pod {pod}")]
    Create {
        pod: String,
        #[source]
        source: ApiError,
    },
    #[error("cannot delete pod {pod}")]
    Delete {
        pod: Box<str>,
        #[source]
        source: ApiError,
    },
    #[error("cannot repair pod {pod}")]
    Repair {
        pod: Box<str>,
        #[source]
        source: ApiError,
    },
    #[error("the claims of pod {pod} are not complete: {source}")]
    Claims {
        pod: String,
        #[source]
        source: VolumeClaimError,
    },
    /// Other data than a patch that replaces the template.
    #[error("the data of the revision {0} has no template")]
    Revision(Box<str>),
    #[error("cannot read the cache of sets")]
    Cache(#[from] StoreError),
    #[error("cannot encode a pod")]
    Encode(#[from] serde_json::Error),
}

impl ApplyError {
    /// Whether the plan may be outdated, so that nothing more of it may be done.
    fn requires_new_plan(&self) -> bool {
        matches!(self, Self::Claims { source: VolumeClaimError::Set(_) | VolumeClaimError::SetChanged, .. })
    }

    fn is_quota(&self) -> bool {
        match self {
            Self::Create { source, .. } => is_quota(source),
            Self::Claims { source, .. } => source.is_quota(),
            _ => false,
        }
    }
}

/// Executes the stages of a plan. The actions of a stage are executed in slow-start batches (upstream's `slowStartBatch`).
/// After a batch with a failure nothing more is done, but see [`Plan::independent_stage`]. Slots for which nothing is done count as
/// successes, up to [`FIRST_BATCH`], so that a slot that always fails does not prevent the actions for the others.
pub(crate) async fn apply(
    ctx: &Ctx,
    set: &StatefulSet,
    owner: &Owner,
    revisions: &SetRevisions,
    plan: &Plan<'_>,
) -> Applied {
    let call = Calls { ctx, set, owner, revisions };
    let mut applied = Applied::default();
    for (at, stage) in plan.stages.iter().enumerate() {
        if applied.failure.as_ref().is_some_and(|it| it.requires_new_plan() || plan.independent_stage != Some(at)) {
            continue;
        }
        let mut batches = SlowStart::new(stage.len(), first_batch(stage, plan));
        while let Some(batch) = batches.next_batch() {
            // The next leader does the rest.
            if ctx.stopping.is_cancelled() {
                return applied;
            }
            let actions: Vec<Action<'_>> = stage.get(batch).unwrap_or_default().to_vec();
            let results = ctx.call_limit.call_each(actions.clone(), |action| call.execute(action)).await;
            let has_failed = results.iter().any(Result::is_err);
            for (action, result) in actions.iter().zip(results) {
                call.record(&mut applied, action, result);
            }
            if has_failed {
                break;
            }
        }
    }
    applied
}

/// The size of the first batch of a stage.
fn first_batch(stage: &[Action<'_>], plan: &Plan<'_>) -> usize {
    let is_of_slots = stage.iter().any(|it| match it {
        Action::Create { .. } | Action::CompleteClaims { .. } | Action::Repair { .. } => true,
        Action::Delete { cause, .. } => *cause == DeleteCause::Ended,
        Action::CorrectClaims { .. } => false,
    });
    if is_of_slots { (plan.idle_slots + 1).min(FIRST_BATCH) } else { 1 }
}

struct Calls<'a> {
    ctx: &'a Ctx,
    set: &'a StatefulSet,
    owner: &'a Owner,
    revisions: &'a SetRevisions,
}

impl Calls<'_> {
    /// Returns false if the action was not needed any more.
    async fn execute(&self, action: Action<'_>) -> Result<bool, ApplyError> {
        // A deleted set may have orphaned its pods (`--cascade=orphan`). With another spec the next sync decides anew: a
        // plan of hundreds of actions takes a minute, in which a user may correct a mistake.
        let set = &self.set.meta;
        let stored = self.ctx.sets.store().get_same(&set.namespace, &set.name, &set.uid)?;
        if stored.is_none_or(|it| it.meta.deletion.is_some() || it.generation != self.set.generation) {
            return Ok(false);
        }
        let done = match action {
            Action::Delete { pod, cause } => return self.delete(pod, cause).await,
            Action::Create { ordinal, revision } => self.create(ordinal, revision).await,
            Action::CompleteClaims { pod, ordinal } => self.complete_claims(pod, ordinal).await,
            Action::Repair { pod, ordinal } => self.repair(pod, ordinal).await,
            Action::CorrectClaims { pod, ordinal, is_condemned } => {
                let owners = self.owners(&pod.meta.name, Some(pod), is_condemned);
                let corrected = volume_claims::correct_owners(self.ctx, self.owner, &owners, ordinal).await;
                self.on_claims_changed(&pod.meta.name, corrected)
            }
        };
        done.map(|()| true)
    }

    fn record(&self, applied: &mut Applied, action: &Action<'_>, result: Result<bool, ApplyError>) {
        match (result, action) {
            (Ok(true), Action::Delete { cause: DeleteCause::Update | DeleteCause::Broken, .. }) => {
                applied.deleted_for_update += 1;
            }
            (Ok(_), _) => {}
            (Err(err), Action::Create { ordinal, .. } | Action::CompleteClaims { ordinal, .. }) if err.is_quota() => {
                let pod = pod_name(&self.set.meta.name, *ordinal);
                applied.quota.get_or_insert(Notice::QuotaExceeded { pod });
                applied.failure.get_or_insert(err);
            }
            (Err(err), _) => {
                applied.failure.get_or_insert(err);
            }
        }
    }

    fn owners<'b>(&'b self, pod_name: &'b str, pod: Option<&'b Pod>, is_condemned: bool) -> PossibleOwners<'b> {
        PossibleOwners { set: self.set, pod_name, pod_uid: pod.map(|it| &it.meta.uid), is_condemned }
    }

    /// Creates the claims, then the pod (`CreateStatefulPod`). Claims that exist get their references too.
    async fn create(&self, ordinal: i32, revision: PodRevision) -> Result<(), ApplyError> {
        let name = pod_name(&self.set.meta.name, ordinal);
        let body = self.body(&name, ordinal, revision)?;
        let owners = self.owners(&name, None, false);
        if let Err(source) = volume_claims::create_missing(self.ctx, self.owner, &owners, ordinal, true).await {
            if source.is_from_server() {
                self.send_pod_event("Create", &name, Some(source.to_string()));
            }
            return Err(ApplyError::Claims { pod: name, source });
        }
        match self.ctx.api().create(&Pod::resource(), &self.owner.namespace, &body).await {
            Ok(written) => {
                self.ctx.writer.on_written(&self.set.meta.uid, &written.version);
                if self.ctx.writer.enqueue_when_passed(self.owner, written.version) {
                    self.ctx.queue.add(self.owner.key());
                }
            }
            Err(source) => {
                // If the pod exists, the cache lags, or the name is in use by a pod of another owner.
                if workload::is_from_server(&source) && !matches!(source, ApiError::AlreadyExists(_)) {
                    self.send_pod_event("Create", &name, Some(server_message(&source)));
                }
                return Err(ApplyError::Create { pod: name, source });
            }
        }
        let corrected = volume_claims::correct_owners(self.ctx, self.owner, &owners, ordinal).await;
        self.on_claims_changed(&name, corrected)?;
        self.send_pod_event("Create", &name, None);
        Ok(())
    }

    /// Deletes a pod in the state in which the cache shows it: a late cache may show ready pods as broken, and orphans as
    /// pods of the set. A pod that is gone already is no failure.
    async fn delete(&self, pod: &Pod, cause: DeleteCause) -> Result<bool, ApplyError> {
        let (namespace, name) = (&*pod.meta.namespace, &*pod.meta.name);
        // A surplus pod may own its claims, which are deleted after it. That must not be decided from a late cache.
        let spec = &self.set.spec;
        if cause == DeleteCause::Condemned
            && spec.when_scaled == ClaimRetention::Delete
            && !spec.claim_templates.is_empty()
        {
            let is_current = volume_claims::is_current_on_server(self.ctx, self.set).await;
            if !is_current.map_err(|source| ApplyError::Delete { pod: name.into(), source })? {
                return Ok(false);
            }
        }
        let (uid, version) = (Some(pod.meta.uid.clone()), Some(pod.meta.version.clone()));
        let options = DeleteOptions { uid, version, ..DeleteOptions::default() };
        match self.ctx.api().delete(&Pod::resource(), namespace, name, &options).await {
            Err(source) if !is_gone(&source, name) => {
                if matches!(source, ApiError::Conflict(_)) {
                    // The client may have repeated the request, so that the first one has deleted the pod.
                    self.ctx.resolve_deletion(self.set, pod).await;
                    // Usually the event of the change enqueues the set before.
                    self.ctx.queue.add_after(self.owner.key(), RETRY_CHECK);
                    return Ok(false);
                }
                if workload::is_from_server(&source) {
                    self.send_pod_event("Delete", name, Some(server_message(&source)));
                }
                if let Some(end) = end_of_request(&source, self.ctx.clock.now()) {
                    self.ctx.record_deletion(self.set, pod, end);
                }
                Err(ApplyError::Delete { pod: name.into(), source })
            }
            _ => {
                self.ctx.record_deletion(self.set, pod, self.ctx.clock.now() + LONGEST_LAG);
                self.send_pod_event("Delete", name, None);
                Ok(true)
            }
        }
    }

    async fn complete_claims(&self, pod: &Pod, ordinal: i32) -> Result<(), ApplyError> {
        let name = &*pod.meta.name;
        let owners = self.owners(name, Some(pod), false);
        let completed = volume_claims::create_missing(self.ctx, self.owner, &owners, ordinal, false).await;
        completed.map_err(|source| ApplyError::Claims { pod: name.to_owned(), source })?;
        let corrected = volume_claims::correct_owners(self.ctx, self.owner, &owners, ordinal).await;
        self.on_claims_changed(name, corrected)
    }

    /// Restores the labels and volumes of a pod and the owners of its claims (`UpdateStatefulPod`). The server refuses
    /// other volumes for a pod that exists.
    async fn repair(&self, pod: &Pod, ordinal: i32) -> Result<(), ApplyError> {
        let mut patch = json!({ "metadata": { "uid": pod.meta.uid } });
        if !has_identity(pod) {
            patch["metadata"]["labels"] = json!({ NAME_LABEL: pod.meta.name, ORDINAL_LABEL: ordinal.to_string() });
        }
        let has_volume = |volume: &Value| {
            let claim = &volume["persistentVolumeClaim"]["claimName"];
            pod.claims.iter().any(|it| volume["name"] == *it.volume && *claim == *it.claim)
        };
        let volumes: Vec<Value> = self.volumes(ordinal).into_iter().filter(|it| !has_volume(it)).collect();
        let name = &pod.meta.name;
        let owners = self.owners(name, Some(pod), false);
        let is_pod_right = volumes.is_empty() && has_identity(pod);
        if !volumes.is_empty() {
            patch["spec"] = json!({ "volumes": volumes });
            let created = volume_claims::create_missing(self.ctx, self.owner, &owners, ordinal, false).await;
            self.on_claims_changed(name, created)?;
        }
        let corrected = volume_claims::correct_owners(self.ctx, self.owner, &owners, ordinal).await;
        self.on_claims_changed(name, corrected)?;
        if is_pod_right {
            self.send_pod_event("Update", name, None);
            return Ok(());
        }
        let patch = Patch::Strategic(patch);
        match self.ctx.api().patch(&Pod::resource(), &pod.meta.namespace, name, None, &patch).await {
            Ok(written) => {
                self.ctx.writer.on_written(&self.set.meta.uid, &written.version);
                self.send_pod_event("Update", name, None);
                Ok(())
            }
            Err(source) => {
                // After a conflict the next sync repeats it.
                if workload::is_from_server(&source) && !matches!(source, ApiError::Conflict(_)) {
                    self.send_pod_event("Update", name, Some(server_message(&source)));
                }
                Err(ApplyError::Repair { pod: name.clone(), source })
            }
        }
    }

    fn on_claims_changed(&self, pod: &str, changed: Result<(), VolumeClaimError>) -> Result<(), ApplyError> {
        changed.map_err(|source| {
            if source.is_from_server() {
                self.send_pod_event("Update", pod, Some(source.to_string()));
            }
            ApplyError::Claims { pod: pod.to_owned(), source }
        })
    }

    /// `Create Pod web-0 in StatefulSet web successful`, as upstream.
    fn send_pod_event(&self, verb: &str, pod: &str, error: Option<String>) {
        let set = &self.set.meta.name;
        let (type_, result, message) = match error {
            None => (EventType::Normal, "Successful", format!("{verb} Pod {pod} in StatefulSet {set} successful")),
            Some(err) => {
                (EventType::Warning, "Failed", format!("{verb} Pod {pod} in StatefulSet {set} failed error: {err}"))
            }
        };
        self.ctx.send_event(self.owner, type_, &format!("{result}{verb}"), message);
    }

    fn volumes(&self, ordinal: i32) -> Vec<Value> {
        let volume = |template: &api::ClaimTemplate| {
            let claim = claim_name(&template.name, &self.set.meta.name, ordinal);
            json!({ "name": template.name, "persistentVolumeClaim": { "claimName": claim } })
        };
        self.set.spec.claim_templates.iter().map(volume).collect()
    }

    /// The request body of a pod (`newStatefulSetPod`).
    fn body(&self, name: &str, ordinal: i32, revision: PodRevision) -> Result<Box<RawValue>, ApplyError> {
        let Revision { name: revision, data } = match revision {
            PodRevision::Current => &self.revisions.current,
            PodRevision::Update => &self.revisions.update,
        };
        let fields: Map<String, Value> =
            history::template(data).ok_or_else(|| ApplyError::Revision(revision.clone()))?;
        let mut template = PodTemplate::from_fields(fields);
        template.put_volumes(self.volumes(ordinal));
        template.set_subdomain(&self.set.spec.service_name);
        let ordinal = ordinal.to_string();
        let labels = [(NAME_LABEL, name), (ORDINAL_LABEL, &*ordinal), (REVISION_LABEL, &**revision)];
        let generate_name = self.owner.generate_name();
        let pod_fields = PodFields {
            generate_name: &generate_name,
            name,
            labels: &labels,
            hostname: Some(name),
            ..PodFields::default()
        };
        Ok(template.prepare(self.owner).pod(pod_fields)?)
    }
}
