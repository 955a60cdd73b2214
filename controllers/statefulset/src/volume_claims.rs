//! The writes of claims: creation, and the correction of owner references.

use std::sync::Arc;

use api::{PersistentVolumeClaim, StatefulSet, Typed, Version};
use client::ApiError;
use events::EventType;
use informer::StoreError;
use serde_json::{Value, json};
use workload::{Owner, is_from_server, is_gone, server_message};

use crate::{
    Ctx,
    rules::{
        identity::claim_name,
        retention::{OwnerCheck, PossibleOwners},
    },
};

const JSON: &str = "application/json";

/// Why the claims of a pod are not as they must be. The messages are those of upstream's events.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VolumeClaimError {
    #[error("cannot read the cache of claims")]
    Cache(#[from] StoreError),
    #[error("failed to create PVC {name}: {}", server_message(source))]
    Create {
        name: String,
        #[source]
        source: ApiError,
    },
    #[error("pvc {0} is being deleted")]
    Terminating(String),
    #[error("could not update claim {name} for delete policy ownerRefs: {}", server_message(source))]
    Owners {
        name: String,
        #[source]
        source: ApiError,
    },
    #[error("claim {0} has changed since it was cached")]
    Changed(String),
    #[error("cannot read the set from the server")]
    Set(#[source] ApiError),
    #[error("the set has changed since it was cached")]
    SetChanged,
    #[error("claim {name} does not decode")]
    Claim {
        name: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("the template of claim {name} does not decode")]
    Template {
        name: String,
        #[source]
        source: serde_json::Error,
    },
    /// More than one claim failed.
    #[error("[{}]", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))]
    Many(Vec<VolumeClaimError>),
}

impl VolumeClaimError {
    /// Whether a quota prevents the creation of a claim.
    pub(crate) fn is_quota(&self) -> bool {
        match self {
            Self::Create { source, .. } => is_quota(source),
            Self::Many(all) => all.iter().any(Self::is_quota),
            _ => false,
        }
    }

    /// False if no request failed on the server, so that no event is sent.
    pub(crate) fn is_from_server(&self) -> bool {
        match self {
            Self::Create { source, .. } | Self::Owners { source, .. } => is_from_server(source),
            Self::Many(all) => all.iter().any(Self::is_from_server),
            Self::Changed(_) | Self::Set(_) | Self::SetChanged => false,
            Self::Cache(_) | Self::Terminating(_) | Self::Claim { .. } | Self::Template { .. } => true,
        }
    }

    fn into_result(mut failures: Vec<Self>) -> Result<(), Self> {
        match failures.len() {
            0 => Ok(()),
            1 => failures.pop().map_or(Ok(()), Err),
            _ => Err(Self::Many(failures)),
        }
    }
}

/// Whether a request is refused because a quota is used up. The server has no code of its own for it.
pub(crate) fn is_quota(err: &ApiError) -> bool {
    err.code() == 403 && err.status().is_some_and(|it| it.message.contains("exceeded quota"))
}

/// Creates the claims of an ordinal that do not exist, with the references that the policy demands. All are tried. One that
/// is being deleted prevents a new pod.
pub(crate) async fn create_missing(
    ctx: &Ctx,
    owner: &Owner,
    owners: &PossibleOwners<'_>,
    ordinal: i32,
    is_for_new_pod: bool,
) -> Result<(), VolumeClaimError> {
    let set = owners.set;
    let mut failures = Vec::new();
    for template in &set.spec.claim_templates {
        let name = claim_name(&template.name, &set.meta.name, ordinal);
        match ctx.claims.store().get(&set.meta.namespace, &name)? {
            None => {
                if let Err(err) = create(ctx, owner, owners, &name, &template.raw).await {
                    failures.push(err);
                }
            }
            Some(claim) if is_for_new_pod && claim.meta.deletion.is_some() => {
                failures.push(VolumeClaimError::Terminating(name))
            }
            Some(_) => {}
        }
    }
    VolumeClaimError::into_result(failures)
}

async fn create(
    ctx: &Ctx,
    owner: &Owner,
    owners: &PossibleOwners<'_>,
    name: &str,
    template: &str,
) -> Result<(), VolumeClaimError> {
    let set = owners.set;
    let body =
        body(owners, name, template).map_err(|source| VolumeClaimError::Template { name: name.to_owned(), source })?;
    let created = ctx.api().create(&PersistentVolumeClaim::resource(), &set.meta.namespace, &body).await;
    let pod = owners.pod_name;
    match created {
        Ok(written) => {
            ctx.consistency.record_write(&set.meta.uid, &ctx.claims.watched(), &written.version);
            let message = format!("Create Claim {name} Pod {pod} in StatefulSet {} success", set.meta.name);
            ctx.send_event(owner, EventType::Normal, "SuccessfulCreate", message);
            Ok(())
        }
        Err(source) => {
            let message = format!(
                "Create Claim {name} for Pod {pod} in StatefulSet {} failed error: {}",
                set.meta.name,
                server_message(&source)
            );
            if is_from_server(&source) && !matches!(source, ApiError::AlreadyExists(_)) {
                ctx.send_event(owner, EventType::Warning, "FailedCreate", message);
            }
            Err(VolumeClaimError::Create { name: name.to_owned(), source })
        }
    }
}

/// The request body of a claim (`getPersistentVolumeClaims`). Labels of the selector replace those of the template.
fn body(owners: &PossibleOwners<'_>, name: &str, template: &str) -> Result<Value, serde_json::Error> {
    let set = owners.set;
    let mut claim: Value = serde_json::from_str(template)?;
    let metadata = &mut claim["metadata"];
    metadata["name"] = name.into();
    metadata["namespace"] = (*set.meta.namespace).into();
    for (key, value) in set.spec.selector.iter().flat_map(|it| it.labels.iter()) {
        metadata["labels"][&**key] = (**value).into();
    }
    let references = owners.references();
    let of_template = metadata.get("ownerReferences").and_then(Value::as_array).cloned().unwrap_or_default();
    // The server refuses a second controller. The correction of the references reports it.
    if !of_template.iter().any(|it| it["controller"] == true) && !references.is_empty() {
        metadata["ownerReferences"] = of_template.into_iter().chain(references).collect();
    }
    claim["apiVersion"] = "v1".into();
    claim["kind"] = "PersistentVolumeClaim".into();
    Ok(claim)
}

/// Corrects the references of the claims of an ordinal that exist (`UpdatePodClaimForRetentionPolicy`).
pub(crate) async fn correct_owners(
    ctx: &Ctx,
    owner: &Owner,
    owners: &PossibleOwners<'_>,
    ordinal: i32,
) -> Result<(), VolumeClaimError> {
    let set = owners.set;
    for template in &set.spec.claim_templates {
        let name = claim_name(&template.name, &set.meta.name, ordinal);
        let Some(claim) = ctx.claims.store().get(&set.meta.namespace, &name)? else { continue };
        let has_conflict = owners.has_conflict(&claim.meta.owners);
        if has_conflict {
            // As in upstream, with its spelling.
            let message = format!(
                "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, the \
                 retention policy is ignored for this claim"
            );
            ctx.send_event(owner, EventType::Warning, "ConflictingController", message);
        }
        if owners.check(&claim.meta.owners) == OwnerCheck::UpToDate {
            continue;
        }
        let version = replace_owners(ctx, owners, &claim, has_conflict).await?;
        ctx.consistency.record_write(&set.meta.uid, &ctx.claims.watched(), &version);
    }
    Ok(())
}

/// Sends the whole claim with other references: upstream's role has no right to patch claims. The body is from a live
/// read, and its resourceVersion is the precondition.
async fn replace_owners(
    ctx: &Ctx,
    owners: &PossibleOwners<'_>,
    claim: &Arc<PersistentVolumeClaim>,
    has_conflict: bool,
) -> Result<Version, VolumeClaimError> {
    let (resource, meta) = (PersistentVolumeClaim::resource(), &claim.meta);
    let name = || meta.name.to_string();
    let failed = |source| VolumeClaimError::Owners { name: name(), source };
    let bytes = ctx.api().read(&resource.object(&meta.namespace, &meta.name), JSON).await.map_err(failed)?;
    let mut live: Value =
        serde_json::from_slice(&bytes).map_err(|source| VolumeClaimError::Claim { name: name(), source })?;
    let metadata = &mut live["metadata"];
    if metadata["uid"] != json!(meta.uid) || metadata["resourceVersion"] != json!(meta.version) {
        return Err(VolumeClaimError::Changed(name()));
    }
    // A claim that is orphaned together with the set must not get an owner again: it would be deleted with that owner.
    // The set is read after the claim, so that a later removal of the reference conflicts.
    if !has_conflict
        && !owners.references().is_empty()
        && !is_current_on_server(ctx, owners.set).await.map_err(VolumeClaimError::Set)?
    {
        return Err(VolumeClaimError::SetChanged);
    }
    let references = metadata["ownerReferences"].as_array().cloned().unwrap_or_default();
    metadata["ownerReferences"] = owners.corrected(&references, has_conflict).into();
    live["apiVersion"] = "v1".into();
    live["kind"] = "PersistentVolumeClaim".into();
    let written = ctx.api().replace(&resource, &meta.namespace, &meta.name, &live).await.map_err(failed)?;
    Ok(written.version)
}

/// Whether the set on the server has the same spec and is not being deleted. What leads to the deletion of a claim must not
/// be decided from a late cache.
pub(crate) async fn is_current_on_server(ctx: &Ctx, set: &StatefulSet) -> Result<bool, ApiError> {
    let meta = &set.meta;
    match ctx.api().get::<StatefulSet>(&StatefulSet::resource(), &meta.namespace, &meta.name).await {
        Ok(it) => Ok(it.meta.uid == meta.uid && it.meta.deletion.is_none() && it.generation == set.generation),
        Err(err) if is_gone(&err, &meta.name) => Ok(false),
        Err(err) => Err(err),
    }
}
