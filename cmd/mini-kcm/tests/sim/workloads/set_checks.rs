//! The guarantees about sets: what the Deployment controller writes, and their status.

use clock::Instant;
use serde_json::Value;

use super::model::{Deployment, DeploymentSpec, Model, Set, selects};
use crate::history::is_recent;

type Checked = Result<(), String>;

/// Records a write of a set, and returns the broken guarantee. A second client that repeats the creation of a manager
/// stores exactly what the manager has requested.
pub(super) fn check_set(
    model: &mut Model,
    uid: &str,
    write: (Option<&Value>, Option<&Value>),
    by_manager: bool,
    now: Instant,
) -> Checked {
    let (old, new) = write;
    let before = model.sets.get(uid).cloned().unwrap_or_default();
    let mut next = before.clone();
    next.update_from(new, by_manager, now);
    let is_moved = old.is_some() && (before.owner != next.owner || before.labels.last() != next.labels.last());
    if is_moved || (!by_manager && next.gone) {
        model.disturbed_at = Some(now);
        let owner = before.owner.as_ref().and_then(|it| model.deployments.get_mut(it));
        if let Some(owner) = owner {
            owner.has_lost_sets = true;
        }
    }
    model.sets.insert(uid.to_owned(), next.clone());
    let (Some(old), Some(new)) = (old, new) else {
        return match (old, new) {
            (None, _) if next.owner.is_some() => check_created(model, uid, &next, now),
            (None, _) if by_manager => Err("creates a set without an owner".to_owned()),
            (Some(_), None) if by_manager => check_deleted(model, uid, &before, now),
            _ => Ok(()),
        };
    };
    if !by_manager {
        return Ok(());
    }
    if next.observed < before.observed {
        return Err(format!("observes the generation {} after {}", next.observed, before.observed));
    }
    if old["spec"] == new["spec"] && old["metadata"] == with_version(&new["metadata"], &old["metadata"]) {
        return Ok(());
    }
    check_changed(model, uid, &before, &next, now)?;
    check_spec(old, new)
}

/// The same metadata with the version of another one.
fn with_version(metadata: &Value, other: &Value) -> Value {
    let mut metadata = metadata.clone();
    metadata["resourceVersion"] = other["resourceVersion"].clone();
    metadata
}

/// A ReplicaSet is created once for a template of its Deployment, with the highest revision.
fn check_created(model: &Model, uid: &str, set: &Set, now: Instant) -> Checked {
    let owner = set.owner.as_deref().ok_or("it has no owner")?;
    let deployment = model.living_deployment(owner, now)?;
    let template = set.template();
    if !deployment.recent(now).any(|it| it.template == template && !it.is_paused) {
        return Err(format!("creates a ReplicaSet for {}, which is paused or has another template", deployment.name));
    }
    let hash = set.labels.last().map(|it| it["pod-template-hash"].clone()).unwrap_or_default();
    let spec = set.specs.last().ok_or("it has no spec")?;
    let hashes = [&spec.selector["pod-template-hash"], &spec.template["metadata"]["labels"]["pod-template-hash"]];
    if set.name != format!("{}-{}", deployment.name, hash.as_str().unwrap_or_default())
        || hashes.iter().any(|it| **it != hash)
    {
        return Err(format!("its name, labels and selector have not the same hash {hash}"));
    }
    let mut others = model.sets_of(owner).filter(|it| it.0 != uid && !it.1.is_changed_lately(now));
    if let Some((_, twin)) = others.find(|it| it.1.template() == template && it.1.deleted_since.is_none()) {
        return Err(format!("creates a second ReplicaSet for the template of {}", twin.name));
    }
    check_revision(model, uid, set, owner, now)?;
    check_total(model, owner, deployment, now)
}

/// A new revision is above those of all other ReplicaSets.
fn check_revision(model: &Model, uid: &str, set: &Set, owner: &str, now: Instant) -> Checked {
    let others = model.sets_of(owner).filter(|it| it.0 != uid && !it.1.is_changed_lately(now));
    match others.map(|it| it.1.revision).max() {
        Some(highest) if highest >= set.revision => {
            Err(format!("gets the revision {}, and another ReplicaSet has {highest}", set.revision))
        }
        _ if set.revision < 1 => Err("gets no revision".to_owned()),
        _ => Ok(()),
    }
}

/// All sizes together are not raised above the replicas with the surge.
fn check_total(model: &Model, owner: &str, deployment: &Deployment, now: Instant) -> Checked {
    let total: i64 = model.sets_of(owner).filter(|it| !it.1.is_changed_lately(now)).map(|it| it.1.replicas()).sum();
    let most = deployment.recent(now).map(|it| it.replicas + it.surge).max().unwrap_or(0);
    if total > most {
        return Err(format!("raises the sizes of {} to {total}, and {most} are allowed", deployment.name));
    }
    Ok(())
}

fn check_changed(model: &Model, uid: &str, before: &Set, next: &Set, now: Instant) -> Checked {
    if before.labels.last() != next.labels.last() {
        return Err("changes the labels of a set".to_owned());
    }
    match (before.owner.as_deref(), next.owner.as_deref()) {
        (None, Some(owner)) => check_selected(model, next, owner, true, now),
        (Some(owner), None) => check_selected(model, next, owner, false, now),
        (Some(was), Some(is)) if was == is => check_scaled(model, uid, before, next, now),
        _ => Err("changes a set of another owner".to_owned()),
    }
}

/// A Deployment adopts ReplicaSets that it selects, and releases those that it does not select.
fn check_selected(model: &Model, set: &Set, owner: &str, wanted: bool, now: Instant) -> Checked {
    let deployment = model.living_deployment(owner, now)?;
    let is_as_wanted =
        deployment.recent(now).any(|spec| set.labels.recent(now).any(|it| selects(&spec.selector, it) == wanted));
    if is_as_wanted {
        return Ok(());
    }
    let verb =
        if wanted { "adopts a ReplicaSet that it never selected" } else { "releases a ReplicaSet that it selects" };
    Err(format!("{} {verb}", deployment.name))
}

fn check_scaled(model: &Model, uid: &str, before: &Set, next: &Set, now: Instant) -> Checked {
    let owner = next.owner.as_deref().unwrap_or_default();
    let deployment = model.living_deployment(owner, now)?;
    if next.revision < before.revision {
        return Err(format!("lowers the revision from {} to {}", before.revision, next.revision));
    }
    if next.revision > before.revision {
        check_revision(model, uid, next, owner, now)?;
    }
    if next.replicas() > before.replicas() { check_total(model, owner, deployment, now) } else { Ok(()) }
}

/// Only the size and `minReadySeconds` of a spec are changed.
fn check_spec(old: &Value, new: &Value) -> Checked {
    let rest = |it: &Value| {
        let mut spec = it["spec"].clone();
        for field in ["replicas", "minReadySeconds"] {
            spec[field] = Value::Null;
        }
        spec
    };
    if rest(old) == rest(new) { Ok(()) } else { Err("changes the selector or the template of a set".to_owned()) }
}

/// Only an old ReplicaSet without pods is deleted, and only over the limit of the history.
fn check_deleted(model: &Model, uid: &str, set: &Set, now: Instant) -> Checked {
    let owner = set.owner.as_deref().ok_or("deletes a set without an owner")?;
    let deployment = model.living_deployment(owner, now)?;
    if set.replicas() > 0 {
        return Err(format!("deletes a ReplicaSet with the size {}", set.replicas()));
    }
    if model.pods_of(uid).any(|it| it.is_active() && !it.is_foreign) {
        return Err("deletes a ReplicaSet with pods".to_owned());
    }
    // A process knows which ones were deleted by a manager.
    let may_count = |it: &Set| {
        let may_exist = !it.gone || (!it.deleted_by_manager && is_recent(it.deleted_since, now));
        may_exist && (it.owner.as_deref() == Some(owner) || (it.is_replica_set && it.is_changed_lately(now)))
    };
    let others = model.sets.iter().filter(|it| it.0 != uid && may_count(it.1));
    let others: Vec<Value> = others.map(|it| it.1.template()).collect();
    let template = set.template();
    let is_kept = |spec: &DeploymentSpec| {
        let has_new = others.contains(&spec.template);
        let older = others.len() - usize::from(has_new);
        (template == spec.template && !has_new) || older < spec.history_limit
    };
    if deployment.recent(now).all(is_kept) {
        return Err("deletes the present ReplicaSet, or one that the limit keeps".to_owned());
    }
    Ok(())
}
