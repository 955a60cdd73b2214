//! The guarantees about Deployments: their status, and rollbacks.

use clock::Instant;
use serde_json::Value;

use super::{
    model::{Deployment, DeploymentSpec, Model, ROLLBACK_TO, Set},
    pod_checks::has_template,
};

type Checked = Result<(), String>;

/// The reason of Progressing after a rollout.
const COMPLETE: &str = "NewReplicaSetAvailable";

/// Records a write of a Deployment, and returns the broken guarantee.
pub(super) fn check_deployment(
    model: &mut Model,
    uid: &str,
    write: (Option<&Value>, Option<&Value>),
    by_manager: bool,
    now: Instant,
) -> Checked {
    let (old, new) = write;
    let deployment = model.deployments.entry(uid.to_owned()).or_default();
    let (status, revision) = (deployment.status.clone(), deployment.revision);
    deployment.update_from(new, now);
    if !by_manager {
        return Ok(());
    }
    let (Some(old), Some(new)) = (old, new) else { return Err("creates or deletes a Deployment".to_owned()) };
    let deployment = &model.deployments[uid];
    if DeploymentSpec::of(old) != DeploymentSpec::of(new) {
        check_rollback(model, uid, deployment, old, new, now)?;
    }
    if deployment.revision < revision && !deployment.has_lost_sets {
        return Err(format!("lowers the revision from {revision} to {}", deployment.revision));
    }
    check_status(model, uid, deployment, &status, now)
}

/// The template becomes one of a ReplicaSet, its own or one that was changed lately, because a user wants that. Nothing else of
/// the spec changes.
fn check_rollback(
    model: &Model,
    uid: &str,
    deployment: &Deployment,
    old: &Value,
    new: &Value,
    now: Instant,
) -> Checked {
    let (before, after) = (DeploymentSpec::of(old), DeploymentSpec::of(new));
    let template = after.template.clone();
    let is_all = DeploymentSpec { template: template.clone(), ..before } == after;
    let mut sets = model.sets.values().filter(|it| it.owner.as_deref() == Some(uid) || it.is_changed_lately(now));
    let is_demanded = old["metadata"]["annotations"][ROLLBACK_TO].is_string()
        && new["metadata"]["annotations"][ROLLBACK_TO].is_null()
        && deployment.rollbacks.recent(now).any(|it| *it);
    if !is_all || !is_demanded || !sets.any(|it| has_template(it, &template, now)) {
        return Err("changes the spec, but no rollback to this template is demanded".to_owned());
    }
    Ok(())
}

/// No number is lowered that must not be, and each condition has its reason.
fn check_status(model: &Model, uid: &str, deployment: &Deployment, before: &Value, now: Instant) -> Checked {
    let status = &deployment.status;
    if status == before {
        return Ok(());
    }
    let number = |status: &Value, field: &str| status[field].as_i64().unwrap_or_default();
    for field in ["observedGeneration", "collisionCount"] {
        if number(status, field) < number(before, field) {
            return Err(format!("lowers {field}"));
        }
    }
    let collides = number(status, "collisionCount") > number(before, "collisionCount");
    if collides && !may_collide(model, uid, deployment, now) {
        return Err("counts a collision, but no other ReplicaSet has such a name".to_owned());
    }
    let available = number(status, "availableReplicas");
    let is_available = |it: &DeploymentSpec| available >= it.replicas - it.unavailable;
    let is_complete = |it: &DeploymentSpec| {
        let counters = ["replicas", "updatedReplicas", "availableReplicas"];
        counters.iter().all(|field| number(status, field) == it.replicas)
    };
    let reason = |status: &Value, type_: &str| condition(status, type_)["reason"].as_str().map(str::to_owned);
    let recent = || deployment.recent(now);
    let held = match reason(status, "Available").as_deref() {
        Some("MinimumReplicasAvailable") => recent().any(is_available),
        Some(_) => recent().any(|it| !is_available(it)),
        None => false,
    };
    if !held {
        return Err(format!("the condition Available is wrong: {status}"));
    }
    let was_complete = reason(before, "Progressing").as_deref() == Some(COMPLETE);
    if reason(status, "Progressing").as_deref() == Some(COMPLETE) && !was_complete && !recent().any(is_complete) {
        return Err(format!("the rollout is not complete: {status}"));
    }
    Ok(())
}

/// A ReplicaSet with such a name is, or was lately, not one of the Deployment, or has another template than before.
fn may_collide(model: &Model, uid: &str, deployment: &Deployment, now: Instant) -> bool {
    let prefix = format!("{}-", deployment.name);
    let is_foreign = |it: &Set| it.owner.as_deref() != Some(uid) || it.is_changed_lately(now);
    model.sets.values().any(|it| it.name.starts_with(&prefix) && is_foreign(it))
}

/// The condition of a status; null without one.
pub(super) fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.find(|it| it["type"] == type_).unwrap_or(&Value::Null)
}
