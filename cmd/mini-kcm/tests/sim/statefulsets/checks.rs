//! The guarantees of the StatefulSet controller.

use std::collections::BTreeSet;

use clock::Instant;
use serde_json::Value;
use test_cluster::Change;
use testing::sim::Write;

use super::{
    CLAIMS, PODS, REVISIONS, SETS,
    model::{Model, Pod, Revision, Set, Spec, text},
};
use crate::history::LAG;

type Checked = Result<(), String>;

/// Records a write in the model, and returns the broken guarantee.
pub(super) fn check_write(model: &mut Model, write: &Write, now: Instant) -> Checked {
    let (before, after) = (write.before(), write.after());
    let object = after.clone().or_else(|| before.clone()).unwrap_or_default();
    let uid = text(&object["metadata"]["uid"]);
    let by_manager = write.by != "world";
    let held = match &*write.resource() {
        SETS => {
            let before = model.sets.get(&uid).map(|it| it.status.clone()).unwrap_or_default();
            model.sets.entry(uid.clone()).or_default().update_from(after.as_ref(), now);
            if by_manager { check_status(model, &uid, &before, now) } else { Ok(()) }
        }
        PODS => check_pod(model, &uid, after.as_ref(), write.change() == Change::Added, by_manager, now),
        REVISIONS => check_revision(model, &uid, &object, after.is_none(), by_manager, now),
        CLAIMS if by_manager => check_claim(model, &uid, before.as_ref(), after.as_ref(), now),
        CLAIMS => {
            let is_left = |it: &Value| owners(after.as_ref()).contains(it);
            let removed = owners(before.as_ref()).into_iter().filter(|it| !is_left(it));
            model.orphaned_claims.extend(removed.map(|it| (uid.clone(), text(&it["uid"]))));
            Ok(())
        }
        _ => Ok(()),
    };
    held.map_err(|why| format!("{} on {} {}: {why}", write.by, write.resource(), write.name()))
}

fn check_pod(
    model: &mut Model,
    uid: &str,
    after: Option<&Value>,
    is_new: bool,
    by_manager: bool,
    now: Instant,
) -> Checked {
    let before = model.pods.get(uid).cloned().unwrap_or_default();
    let mut next = before.clone();
    next.update_from(after, now);
    let held = match () {
        () if !by_manager => Ok(()),
        () if is_new => check_created(model, &next, now),
        () if !before.deleting && (next.deleting || next.gone) => check_deleted(model, &before, now),
        () => Ok(()),
    };
    if next.is_ready
        && let (Some(set), Some(ordinal)) = (next.set.as_ref().and_then(|it| model.sets.get_mut(it)), next.ordinal())
        && !next.deleting
    {
        set.taken_down.remove(&ordinal);
    }
    model.pods.insert(uid.to_owned(), next);
    held
}

/// A pod is created only for a wanted ordinal, at the right revision, and in order: each lower one was ready.
fn check_created(model: &Model, pod: &Pod, now: Instant) -> Checked {
    let (uid, set) = set_of(model, pod, now)?;
    let ordinal = pod.ordinal().filter(|it| pod.name == format!("{}-{it}", set.name)).ok_or("has a wrong name")?;
    if !set.recent(now).any(|it| it.wants(ordinal)) {
        return Err("creates a pod for an ordinal that is not wanted".to_owned());
    }
    if !model.revisions.values().any(|it| it.name == pod.revision && it.image == pod.image) {
        return Err("has not the template of its revision".to_owned());
    }
    let is_below_partition = |it: &Spec| !it.is_on_delete && ordinal < it.start + it.partition;
    let may_be_current = set.current_revisions.contains(&pod.revision) || set.first_images.contains(&pod.image);
    // If the current revision is gone, the new one takes its place.
    let has_current = model.has_revision(uid, &text(&set.status["currentRevision"]));
    if set.recent(now).all(is_below_partition) && !may_be_current && has_current {
        return Err("creates a pod below the partition at the update revision".to_owned());
    }
    let was_ready = |ordinal: i64| {
        let name = format!("{}-{ordinal}", set.name);
        model.pods.values().any(|it| it.name == name && it.owned_by.contains(uid) && it.may_seem_ready(now))
    };
    let is_in_order = |it: &Spec| !it.is_ordered || (it.start..ordinal).all(was_ready);
    if !set.recent(now).filter(|it| it.wants(ordinal)).any(is_in_order) {
        return Err("creates a pod before a lower one is ready".to_owned());
    }
    Ok(())
}

/// A pod is deleted only if it has ended, is not wanted, or is outdated; in order, and within the budget of the update.
fn check_deleted(model: &mut Model, pod: &Pod, now: Instant) -> Checked {
    let (uid, set) = set_of(model, pod, now)?;
    let uid = uid.to_owned();
    let Some(ordinal) = pod.ordinal() else { return Err("deletes a pod without an ordinal".to_owned()) };
    if pod.has_ended {
        return Ok(());
    }
    let is_condemned_in_order = |spec: &Spec| {
        let is_higher = |it: &Pod| it.ordinal().is_some_and(|it| it > ordinal && !spec.wants(it));
        !spec.wants(ordinal) && (!spec.is_ordered || !model.pods_of(&uid).any(is_higher))
    };
    if set.recent(now).any(is_condemned_in_order) {
        return Ok(());
    }
    let replaces = |it: &&Spec| !it.is_on_delete && it.image != pod.image && ordinal >= it.start + it.partition;
    let budget = set.recent(now).filter(replaces).map(|it| it.max_unavailable.max(1)).max();
    let Some(budget) = budget else {
        if set.recent(now).any(|it| !it.wants(ordinal)) {
            return Err("deletes a surplus pod before a higher one is gone".to_owned());
        }
        return Err("deletes a pod that is wanted, has not ended and is not outdated above the partition".to_owned());
    };
    if !pod.is_ready {
        return if pod.may_seem_ready(now) || set.recent(now).any(|it| !it.is_ordered || it.replaces_blocked_pods) {
            Ok(())
        } else {
            Err("deletes a pod of an ordered set that was never ready".to_owned())
        };
    }
    let set = model.sets.get_mut(&uid).ok_or("a set that never existed")?;
    set.taken_down.insert(ordinal);
    let wanted: Vec<bool> = set.taken_down.iter().map(|ordinal| set.recent(now).all(|it| it.wants(*ordinal))).collect();
    let down = i64::try_from(wanted.iter().filter(|it| **it).count()).unwrap_or(i64::MAX);
    if down > budget {
        return Err(format!("takes down {down} pods for an update, and {budget} may be unavailable"));
    }
    Ok(())
}

/// The update revision becomes the current one only after all pods of it were ready.
fn check_status(model: &Model, uid: &str, before: &Value, now: Instant) -> Checked {
    let Some(set) = model.sets.get(uid) else { return Ok(()) };
    let (was, is) = (text(&before["currentRevision"]), text(&set.status["currentRevision"]));
    if was.is_empty() || was == is {
        return Ok(());
    }
    // The garbage collector may have removed it with an earlier set of the same name. Its template is lost then.
    if !model.has_revision(uid, &was) {
        return Ok(());
    }
    let of_set = model.pods.values().filter(|it| it.owned_by.contains(uid) && it.revision == is);
    let was_ready = of_set.filter(|it| it.may_seem_ready(now));
    let ordinals: BTreeSet<i64> = was_ready.filter_map(Pod::ordinal).collect();
    let are_ready = |it: &Spec| (it.start..it.start + it.replicas).all(|it| ordinals.contains(&it));
    if set.recent(now).any(are_ready) { Ok(()) } else { Err(format!("{is} is the current revision too early")) }
}

fn set_of<'a>(model: &'a Model, pod: &'a Pod, now: Instant) -> Result<(&'a str, &'a Set), String> {
    let uid = pod.set.as_deref().ok_or("the pod has no set")?;
    let set = model.sets.get(uid).ok_or("its set never existed")?;
    if set.deleted_since.is_some_and(|it| it + LAG < now) {
        return Err(format!("{} was deleted long ago", set.name));
    }
    Ok((uid, set))
}

/// A revision that a pod or the status names is not deleted.
fn check_revision(
    model: &mut Model,
    uid: &str,
    object: &Value,
    is_gone: bool,
    by_manager: bool,
    now: Instant,
) -> Checked {
    let revision = Revision::of(object, is_gone);
    let mut held = Ok(());
    if by_manager
        && is_gone
        && let Some(owner) = &revision.set
    {
        let name = &revision.name;
        if model.pods_of(owner).any(|it| it.revision == *name) {
            held = Err("deletes the revision of a pod".to_owned());
        }
        if let Some(set) = model.sets.get(owner).filter(|it| !it.gone) {
            let is_live = |name: &str| set.status["currentRevision"] == *name || set.status["updateRevision"] == *name;
            if is_live(name) {
                held = Err("deletes the revision of the status".to_owned());
            }
            let is_unused =
                |it: &&Revision| !model.pods_of(owner).any(|pod| pod.revision == it.name) && !is_live(&it.name);
            let others = model.revisions.iter().filter(|it| it.0 != uid).map(|it| it.1);
            let others = others.filter(|it| !it.gone && it.set.as_deref() == Some(owner));
            let left = others.filter(is_unused).count();
            if set.recent(now).all(|it| left < it.history_limit) {
                held = Err("deletes a revision that the limit keeps".to_owned());
            }
        }
    }
    model.revisions.insert(uid.to_owned(), revision);
    held
}

/// A claim is never deleted, and it gets an owner only if the policy says so.
fn check_claim(model: &Model, claim: &str, before: Option<&Value>, after: Option<&Value>, now: Instant) -> Checked {
    let Some(after) = after else { return Err("deletes a claim".to_owned()) };
    let had = owners(before);
    for owner in owners(Some(after)).into_iter().filter(|it| !had.contains(it)) {
        let uid = text(&owner["uid"]);
        if model.orphaned_claims.contains(&(claim.to_owned(), uid.clone())) {
            return Err("gets an owner again that the garbage collector has removed".to_owned());
        }
        match owner["kind"].as_str() {
            Some("StatefulSet") => {
                let set = model.sets.get(&uid).ok_or("is owned by a set that never existed")?;
                if !set.recent(now).any(|it| it.owns_claims) {
                    return Err("is owned by its set, but the policy keeps it".to_owned());
                }
            }
            Some("Pod") => {
                let pod = model.pods.get(&uid).ok_or("is owned by a pod that never existed")?;
                let (_, set) = set_of(model, pod, now)?;
                let ordinal = pod.ordinal().unwrap_or(-1);
                if !set.recent(now).any(|it| it.deletes_claims_of_scaled_pods)
                    || !set.recent(now).any(|it| !it.wants(ordinal))
                {
                    return Err("is owned by a pod that is wanted, or the policy keeps it".to_owned());
                }
            }
            _ => return Err(format!("is owned by {owner}")),
        }
    }
    Ok(())
}

fn owners(object: Option<&Value>) -> Vec<Value> {
    object.and_then(|it| it["metadata"]["ownerReferences"].as_array().cloned()).unwrap_or_default()
}
