//! The guarantees about pods.

use clock::Instant;
use serde_json::Value;

use super::model::{Model, Pod, Set, selects, without_hash};
use crate::history::is_recent;

type Checked = Result<(), String>;

/// Records a write of a pod, and returns the broken guarantee.
pub(super) fn check_pod(
    model: &mut Model,
    uid: &str,
    after: Option<&Value>,
    is_new: bool,
    by_manager: bool,
    now: Instant,
) -> Checked {
    let before = model.pods.get(uid).cloned().unwrap_or_default();
    let mut next = before.clone();
    next.update_from(after, by_manager, now);
    let is_moved = before.owner() != next.owner() || before.labels.last() != next.labels.last();
    if !is_new && (is_moved || (!by_manager && before.is_ready && !next.is_ready)) {
        model.disturbed_at = Some(now);
    }
    let held = match () {
        () if !by_manager => Ok(()),
        () if is_new => check_created(model, &next, now),
        () if !before.deleting && (next.deleting || next.gone) => check_deleted(model, &before, now),
        () if before.labels.last() != next.labels.last() => Err("changes the labels of a pod".to_owned()),
        () => check_owner(model, &before, &next, now),
    };
    model.pods.insert(uid.to_owned(), next);
    held
}

/// A pod is created of a template of its set, and its set has never more pods of its own than it wants.
fn check_created(model: &Model, pod: &Pod, now: Instant) -> Checked {
    let owner = pod.owner().ok_or("the pod has no set")?;
    let set = model.living_set(owner, now)?;
    let is_of_template = |template: &Value| {
        template["spec"]["containers"][0]["image"] == pod.image
            && pod.labels.last().is_some_and(|it| *it == template["metadata"]["labels"])
    };
    if !pod.name.starts_with(&format!("{}-", set.name)) || !set.recent(now).any(|it| is_of_template(&it.template)) {
        return Err(format!("is created with a wrong name or template for {}", set.name));
    }
    let count = 1 + model.pods_of(owner).filter(|it| it.is_active() && !it.is_foreign).count();
    let most = set.recent(now).map(|it| it.replicas).max().unwrap_or(0);
    if i64::try_from(count).unwrap_or(i64::MAX) > most {
        return Err(format!("creates {count} pods for {}, which wants {most}", set.name));
    }
    check_recreate(model, owner, set, now)
}

/// With the strategy Recreate no pod is created while one of another template exists.
fn check_recreate(model: &Model, owner: &str, set: &Set, now: Instant) -> Checked {
    let Some(uid) = &set.owner else { return Ok(()) };
    let Some(deployment) = model.deployments.get(uid) else { return Ok(()) };
    if !deployment.recent(now).all(|it| it.is_recreate) || set.is_changed_lately(now) {
        return Ok(());
    }
    let is_old = |other: &Set| !other.is_changed_lately(now) && other.template() != set.template();
    let old = model.sets_of(uid).filter(|it| it.0 != owner && is_old(it.1));
    let mut pods = old.flat_map(|it| model.pods_of(it.0));
    match pods.find(|it| !it.has_ended && !it.is_foreign) {
        Some(pod) => Err(format!("creates a pod while the old pod {} exists, but the strategy is Recreate", pod.name)),
        None => Ok(()),
    }
}

/// A pod is deleted only if it is surplus. The request names its version, so its owner and its labels are as decided.
fn check_deleted(model: &Model, pod: &Pod, now: Instant) -> Checked {
    let owner = pod.owner().ok_or("deletes a pod without a set")?;
    let set = model.living_set(owner, now)?;
    if pod.has_ended {
        return Err("deletes a pod that has ended".to_owned());
    }
    if !set.recent(now).any(|it| pod.labels.last().is_some_and(|labels| selects(&it.selector, labels))) {
        return Err(format!("deletes a pod that {} does not select", set.name));
    }
    let count = model.pods.values().filter(|it| it.may_count(owner, now)).count();
    let least = set.recent(now).map(|it| it.replicas).min().unwrap_or(0);
    if i64::try_from(count).unwrap_or(i64::MAX) <= least {
        return Err(format!("deletes one of {count} pods of {}, which wants {least}", set.name));
    }
    check_availability(model, pod, set, now)
}

/// When nothing but a rollout goes on, enough pods stay ready.
fn check_availability(model: &Model, pod: &Pod, set: &Set, now: Instant) -> Checked {
    let Some(uid) = set.owner.as_ref().filter(|_| pod.is_ready && !set.is_changed_lately(now)) else { return Ok(()) };
    let Some(deployment) = model.deployments.get(uid) else { return Ok(()) };
    let Some(last) = deployment.specs.last() else { return Ok(()) };
    let is_steady = deployment.recent(now).all(|it| it.replicas == last.replicas && !it.is_recreate);
    if !is_steady || is_recent(model.disturbed_at, now) {
        return Ok(());
    }
    let least = deployment.recent(now).map(|it| it.replicas - it.unavailable).min().unwrap_or(0);
    let ready = model.sets_of(uid).flat_map(|it| model.pods_of(it.0)).filter(|it| it.is_ready).count();
    let left = i64::try_from(ready).unwrap_or(i64::MAX) - 1;
    if left < least {
        return Err(format!("leaves {left} ready pods of {}, and {least} must be available", deployment.name));
    }
    Ok(())
}

/// A set adopts pods that it selects, and releases those that it does not select.
fn check_owner(model: &Model, before: &Pod, next: &Pod, now: Instant) -> Checked {
    let selected = |owner: &str, wanted: bool| {
        let set = model.living_set(owner, now)?;
        let is_as_wanted =
            set.recent(now).any(|spec| before.labels.recent(now).any(|it| selects(&spec.selector, it) == wanted));
        let verb = if wanted { "adopts a pod that it never selected" } else { "releases a pod that it selects" };
        if is_as_wanted { Ok(()) } else { Err(format!("{} {verb}", set.name)) }
    };
    match (before.owner(), next.owner()) {
        (None, Some(owner)) => selected(owner, true),
        (Some(owner), None) => selected(owner, false),
        (was, is) if was == is => Ok(()),
        _ => Err("takes a pod from another owner".to_owned()),
    }
}

/// Whether a set has a template, apart from the hash.
pub(super) fn has_template(set: &Set, template: &Value, now: Instant) -> bool {
    set.recent(now).any(|it| without_hash(&it.template) == *template)
}
