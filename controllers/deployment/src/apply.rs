//! Executes a plan: creates, patches and deletes ReplicaSets, and rolls a Deployment back.

use std::time::Duration;

use api::{Cached, DecodeError, Deployment, ReplicaSet, Typed, Version};
use client::{ApiError, DeleteOptions, Patch};
use events::EventType;
use informer::StoreError;
use serde_json::{Value, json};
use workload::{
    Claim, Owner, REPEAT_FOR, RETRY_CHECK, claim_decision, end_of_request, is_from_server, is_gone, server_message,
};

use crate::{
    Ctx,
    memory::{UnknownWrite, Write},
    rules::{
        annotations::{self, ROLLBACK_TO},
        conditions::CREATE_ERROR,
        new_set,
        plan::{Creation, Plan, Problem},
        rollback::Rollback,
        snapshot::Snapshot,
        status::Created,
        template,
    },
};

const JSON: &str = "application/json";

/// Why a plan was not carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyError {
    #[error("cannot create ReplicaSet {name}")]
    Create {
        name: String,
        #[source]
        source: ApiError,
    },
    #[error("the name {name} of the new ReplicaSet is in use by another one")]
    Collision { name: String },
    #[error("ReplicaSet {name} exists, but the cache does not show it yet")]
    NotCached { name: String },
    #[error("cannot change ReplicaSet {name}")]
    Patch {
        name: String,
        #[source]
        source: ApiError,
    },
    #[error("cannot delete ReplicaSet {name}")]
    Delete {
        name: String,
        #[source]
        source: ApiError,
    },
    #[error("cannot create a ReplicaSet in a dry run")]
    DryRun(#[source] ApiError),
    #[error("cannot decode the answer of a dry run")]
    Decode(#[from] DecodeError),
    #[error("cannot roll the Deployment back")]
    Rollback(#[source] ApiError),
    #[error("the Deployment has changed since it was cached")]
    Changed,
    #[error("cannot encode a ReplicaSet, or decode a Deployment")]
    Encode(#[from] serde_json::Error),
    #[error("cannot read the cache")]
    Cache(#[from] StoreError),
    #[error("the manager is stopping")]
    Stopping,
}

impl Write {
    fn error_of(&self, source: ApiError) -> ApplyError {
        match self {
            Self::Create { name, .. } => ApplyError::Create { name: name.to_string(), source },
            Self::Patch { set, .. } => ApplyError::Patch { name: set.meta.name.to_string(), source },
        }
    }
}

/// What a plan has changed.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The new ReplicaSet.
    pub(crate) created: Created,
    /// The first error. Nothing was written after it.
    pub(crate) failure: Option<ApplyError>,
    /// The new ReplicaSet exists, and the cache shows it now. The sync must begin again.
    pub(crate) is_outdated: bool,
    /// The namespace terminates, so that nothing can be created any more. That is no error.
    pub(crate) is_namespace_terminating: bool,
}

/// Finds out whether an unanswered write happened. Until then nothing else is decided: a decision from an older
/// state could exceed the surge. Returns how long to wait before that is tried again.
pub(crate) async fn resolve_unknown(
    ctx: &Ctx,
    deployment: &Deployment,
    owner: &Owner,
) -> Result<Option<Duration>, ApplyError> {
    let Some(unknown) = ctx.memory.unknown_write(&owner.uid) else { return Ok(None) };
    // The ReplicaSets of a deleted Deployment may be orphans now.
    if ctx.deployments.store().is_alive(&deployment.meta.as_ref())?
        && let Some(left) = resolve(ctx, deployment, owner, &unknown).await?
    {
        return Ok(Some(left));
    }
    ctx.memory.set_unknown_write(&owner.uid, None);
    Ok(ctx.consistency.park_if_stale(&owner.uid, &ctx.queue, &owner.key()))
}

/// Reads the ReplicaSet of a write from the server. A write that has not happened and may still happen is sent again for
/// some seconds, because its first request may have been lost. It is not sent again if the Deployment was changed: the user
/// may have reversed or paused what it was sent for.
async fn resolve(
    ctx: &Ctx,
    deployment: &Deployment,
    owner: &Owner,
    unknown: &UnknownWrite,
) -> Result<Option<Duration>, ApplyError> {
    let UnknownWrite { write, ends_at, repeat_until, generation } = unknown;
    let (name, before): (&str, Option<&Version>) = match write {
        Write::Create { name, .. } => (name, None),
        Write::Patch { set, .. } => (&set.meta.name, Some(&set.meta.version)),
    };
    // The read shows the outcome only if all requests had ended before it began.
    let now = ctx.clock.now();
    let live = match ctx.api().get_metadata(&ReplicaSet::resource(), &owner.namespace, name).await {
        Ok(live) => Some(live.version),
        Err(err) if err.is_absence_of(name) => None,
        Err(err) => {
            // No failure of a sync: the back-off would grow as long as the server is away.
            tracing::warn!(deployment = %owner.key(), %err, "Cannot read ReplicaSet {name}: the outcome of a write stays unknown");
            return Ok(Some(RETRY_CHECK));
        }
    };
    if live.as_ref() != before {
        // It was written, or another client has changed it. The cache must show that before the next decision. For one that
        // was deleted there is no version; its next patch fails.
        live.iter().for_each(|it| ctx.consistency.record_write(&owner.uid, &ctx.sets.watched(), it));
        return Ok(None);
    }
    if *ends_at <= now {
        return Ok(None);
    }
    if *repeat_until <= now || deployment.generation != *generation {
        return Ok(Some(*ends_at - now));
    }
    let Err(source) = send(ctx, owner, write).await else { return Ok(None) };
    // Even a refusal does not show what the first request has done.
    let ends_at = end_of_request(&source, ctx.clock.now()).map_or(*ends_at, |it| it.max(*ends_at));
    Err(record_unknown(ctx, owner, UnknownWrite { ends_at, ..unknown.clone() }, source))
}

/// Records a write whose outcome is unknown. Returns the error of the sync.
fn record_unknown(ctx: &Ctx, owner: &Owner, unknown: UnknownWrite, source: ApiError) -> ApplyError {
    let failure = unknown.write.error_of(source);
    let left = unknown.ends_at.saturating_duration_since(ctx.clock.now());
    if !left.is_zero() {
        // The back-off of the key may be longer.
        ctx.queue.add_after(owner.key(), left);
    }
    ctx.memory.set_unknown_write(&owner.uid, Some(unknown));
    failure
}

/// Creates the new ReplicaSet, changes and deletes others. Ends with the first error.
pub(crate) async fn apply(ctx: &Ctx, owner: &Owner, hash: &str, snapshot: &Snapshot<'_>, plan: &Plan) -> Applied {
    let mut applied = Applied::default();
    if let Err(failure) = apply_all(ctx, owner, hash, snapshot, plan, &mut applied).await {
        applied.failure = Some(failure);
    }
    applied
}

async fn apply_all(
    ctx: &Ctx,
    owner: &Owner,
    hash: &str,
    snapshot: &Snapshot<'_>,
    plan: &Plan,
    applied: &mut Applied,
) -> Result<(), ApplyError> {
    let Plan { create, changes, delete, .. } = plan;
    if create.is_none() && changes.is_empty() && delete.is_empty() {
        return Ok(());
    }
    // The ReplicaSets of a deleted Deployment may be orphans now.
    if !ctx.deployments.store().is_alive(&snapshot.deployment.meta.as_ref())? {
        return Ok(());
    }
    if let Some(creation) = create {
        let reference = owner.controller_reference();
        let body = new_set::body(snapshot.deployment, &snapshot.annotations, &reference, hash, *creation)?;
        let name = snapshot.name_of_new.as_str().into();
        create_set(ctx, owner, snapshot, Write::Create { name, replicas: creation.replicas, body }, applied).await?;
        if applied.is_outdated || applied.is_namespace_terminating {
            return Ok(());
        }
    }
    for change in changes {
        check_stop(ctx)?;
        let Some(set) = snapshot.sets.get(change.at) else { continue };
        let write = Write::Patch { set: set.clone(), replicas: change.replicas, body: new_set::patch(set, change) };
        if let Err(source) = send(ctx, owner, &write).await {
            return Err(record_if_unknown(ctx, owner, snapshot.deployment.generation, write, source));
        }
    }
    for set in delete.iter().filter_map(|at| snapshot.sets.get(*at)) {
        check_stop(ctx)?;
        delete_set(ctx, set).await?;
    }
    Ok(())
}

/// Records a failed write if it may have happened. Returns the error of the sync.
fn record_if_unknown(ctx: &Ctx, owner: &Owner, generation: i64, write: Write, source: ApiError) -> ApplyError {
    let now = ctx.clock.now();
    match end_of_request(&source, now) {
        Some(ends_at) => {
            let repeat_until = now + REPEAT_FOR;
            record_unknown(ctx, owner, UnknownWrite { write, ends_at, repeat_until, generation }, source)
        }
        None => write.error_of(source),
    }
}

/// The next leader does the rest.
fn check_stop(ctx: &Ctx) -> Result<(), ApplyError> {
    if ctx.stopping.is_cancelled() { Err(ApplyError::Stopping) } else { Ok(()) }
}

/// Creates the new ReplicaSet (`getNewReplicaSet`).
async fn create_set(
    ctx: &Ctx,
    owner: &Owner,
    snapshot: &Snapshot<'_>,
    write: Write,
    applied: &mut Applied,
) -> Result<(), ApplyError> {
    let Write::Create { name, replicas, .. } = &write else { return Ok(()) };
    let (name, replicas) = (name.clone(), *replicas);
    match send(ctx, owner, &write).await {
        Ok(()) => {
            applied.created = Created::Set { name, replicas };
            Ok(())
        }
        Err(err) if err.is_namespace_terminating() => {
            applied.is_namespace_terminating = true;
            Ok(())
        }
        Err(ApiError::AlreadyExists(_)) => {
            let name = name.to_string();
            let Some(found) = ctx.sets.store().get(&owner.namespace, &name)? else {
                return Err(ApplyError::NotCached { name });
            };
            // A reference with our uid and another kind or name makes it no set of ours.
            let is_ours = claim_decision(owner, found.meta.as_ref(), true) == Claim::Keep;
            if is_ours && template::is_equal(&found.spec.template, &snapshot.deployment.spec.template)? {
                applied.is_outdated = true;
                return Ok(());
            }
            applied.created = Created::Collision;
            Err(ApplyError::Collision { name })
        }
        Err(source) => {
            if is_from_server(&source) {
                let message = format!("Failed to create new replica set {name:?}: {}", server_message(&source));
                ctx.send_event(owner, EventType::Warning, CREATE_ERROR, message.clone());
                applied.created = Created::Refused(message);
            }
            Err(record_if_unknown(ctx, owner, snapshot.deployment.generation, write, source))
        }
    }
}

/// Checks from time to time whether the server still changes the templates of new ReplicaSets. If it does not, the name
/// of the new ReplicaSet is in use by another one, and the next one gets another name.
pub(crate) async fn check_template(
    ctx: &Ctx,
    owner: &Owner,
    hash: &str,
    snapshot: &Snapshot<'_>,
    plan: &mut Plan,
    applied: &mut Applied,
) {
    let is_changed = matches!(plan.problem, Some(Problem::TemplateChanged(_))) && plan.rollback.is_none();
    if !is_changed {
        return;
    }
    let count = snapshot.deployment.status.collision_count;
    let is_equal = if ctx.memory.is_collision(&owner.uid, count) {
        Ok(true)
    } else if ctx.memory.begin_template_check(&owner.uid, ctx.clock.now()) {
        would_be_equal(ctx, owner, hash, snapshot).await
    } else {
        return;
    };
    match is_equal {
        Ok(true) => {
            ctx.memory.record_collision(&owner.uid, count);
            plan.problem = None;
            applied.created = Created::Collision;
            applied.failure = Some(ApplyError::Collision { name: snapshot.name_of_new.clone() });
        }
        Ok(false) => {}
        // A webhook may refuse dry runs. The next check tries it again.
        Err(err) => {
            let (key, err) = (owner.key(), client::error_chain(&err));
            tracing::error!(deployment = %key, err, "Cannot check whether the server changes templates");
        }
    }
}

/// Whether the server would store a new ReplicaSet with the template that was sent. A dry run stores nothing.
async fn would_be_equal(ctx: &Ctx, owner: &Owner, hash: &str, snapshot: &Snapshot<'_>) -> Result<bool, ApplyError> {
    let (deployment, reference) = (snapshot.deployment, owner.controller_reference());
    let creation = Creation { replicas: 0, revision: snapshot.next_revision() };
    let mut body = new_set::body(deployment, &snapshot.annotations, &reference, hash, creation)?;
    // The name of the new ReplicaSet is in use.
    body["metadata"]["name"] = new_set::name(&deployment.meta.name, "dry-run").into();
    let path = format!("{}?dryRun=All", ReplicaSet::resource().collection(Some(&owner.namespace)));
    let stored = ctx.api().post(&path, &body).await.map_err(ApplyError::DryRun)?;
    let stored = ReplicaSet::decode_object(&stored)?;
    Ok(template::is_equal(&stored.spec.template, &deployment.spec.template)?)
}

/// Sends a write, with the event about a changed size.
async fn send(ctx: &Ctx, owner: &Owner, write: &Write) -> Result<(), ApiError> {
    let resource = ReplicaSet::resource();
    let (written, scaled) = match write {
        Write::Create { name, replicas, body } => {
            let written = ctx.api().create(&resource, &owner.namespace, body).await?;
            (written, (*replicas > 0).then_some((name, 0, *replicas)))
        }
        Write::Patch { set, replicas, body } => {
            let (namespace, name) = (&set.meta.namespace, &set.meta.name);
            let written = ctx.api().patch(&resource, namespace, name, None, &Patch::Merge(body.clone())).await?;
            (written, replicas.map(|to| (name, set.spec.replicas, to)))
        }
    };
    ctx.consistency.record_write(&owner.uid, &ctx.sets.watched(), &written.version);
    if let Some((name, from, to)) = scaled {
        let direction = if from < to { "up" } else { "down" };
        let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
        ctx.send_event(owner, EventType::Normal, "ScalingReplicaSet", message);
    }
    Ok(())
}

/// Deletes a ReplicaSet if it is unchanged.
async fn delete_set(ctx: &Ctx, set: &ReplicaSet) -> Result<(), ApplyError> {
    let (namespace, name) = (&set.meta.namespace, &set.meta.name);
    let (uid, version) = (Some(set.meta.uid.clone()), Some(set.meta.version.clone()));
    let options = DeleteOptions { uid, version, ..DeleteOptions::default() };
    match ctx.api().delete(&ReplicaSet::resource(), namespace, name, &options).await {
        Err(err) if !is_gone(&err, name) => Err(ApplyError::Delete { name: name.to_string(), source: err }),
        _ => Ok(()),
    }
}

/// Sets the template and the annotations of a revision, and removes the annotation that demands it
/// (`updateDeploymentAndClearRollbackTo`). The whole Deployment is sent, because upstream's role has no right to patch
/// Deployments; the body is from a live read.
pub(crate) async fn roll_back(
    ctx: &Ctx,
    owner: &Owner,
    snapshot: &Snapshot<'_>,
    rollback: &Rollback,
) -> Result<(), ApplyError> {
    let (deployment, resource) = (snapshot.deployment, Deployment::resource());
    let (namespace, name) = (&deployment.meta.namespace, &deployment.meta.name);
    let bytes = ctx.api().read(&resource.object(namespace, name), JSON).await.map_err(ApplyError::Rollback)?;
    let mut live: Value = serde_json::from_slice(&bytes)?;
    let metadata = &live["metadata"];
    if metadata["uid"] != json!(deployment.meta.uid) || metadata["resourceVersion"] != json!(deployment.meta.version) {
        return Err(ApplyError::Changed);
    }
    let (type_, reason, message) = match rollback {
        Rollback::To { at, revision } => {
            let Some(set) = snapshot.sets.get(*at) else { return Ok(()) };
            live["spec"]["template"] = template::without_hash(&set.spec.template)?;
            replace_annotations(&mut live, set)?;
            let message = format!("Rolled back deployment {name:?} to revision {revision}");
            (EventType::Normal, "DeploymentRollback", message)
        }
        Rollback::Unchanged => {
            let message = format!("The rollback revision contains the same template as current deployment {name:?}");
            (EventType::Warning, "DeploymentRollbackTemplateUnchanged", message)
        }
        Rollback::NotFound(message) => {
            (EventType::Warning, "DeploymentRollbackRevisionNotFound", (*message).to_owned())
        }
    };
    if let Some(annotations) = live["metadata"]["annotations"].as_object_mut() {
        annotations.remove(ROLLBACK_TO);
    }
    let written = ctx.api().replace(&resource, namespace, name, &live).await.map_err(ApplyError::Rollback)?;
    ctx.consistency.record_write(&owner.uid, &ctx.deployments.watched(), &written.version);
    ctx.send_event(owner, type_, reason, message);
    Ok(())
}

/// The annotations of users become those of the ReplicaSet, such as the cause of the change
/// (`SetDeploymentAnnotationsTo`).
fn replace_annotations(live: &mut Value, set: &ReplicaSet) -> Result<(), serde_json::Error> {
    let present = live["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    let kept = present.into_iter().filter(|(key, _)| !annotations::is_copied(key));
    let of_set = annotations::all(api::StatusOwner::raw_metadata(set))?.into_iter();
    let of_set = of_set.filter(|(key, _)| annotations::is_copied(key)).map(|(key, value)| (key, Value::from(value)));
    live["metadata"]["annotations"] = Value::Object(kept.chain(of_set).collect());
    Ok(())
}
