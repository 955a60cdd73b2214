//! The guarantees of the DaemonSet controller.

use clock::Instant;
use serde_json::Value;
use test_cluster::Change;
use testing::sim::Write;

use super::{
    NODES, PODS, REVISIONS, SETS,
    model::{Model, Pod, Revision, Set, Spec, text},
};
use crate::history::LAG;

type Checked = Result<(), String>;

/// Records a write in the model, and returns the broken guarantee.
pub(super) fn check_write(model: &mut Model, write: &Write, now: Instant) -> Checked {
    let (before, after) = (write.before(), write.after());
    let object = after.clone().or(before).unwrap_or_default();
    let uid = text(&object["metadata"]["uid"]);
    let by_manager = write.by != "world";
    let held = match &*write.resource() {
        SETS => {
            model.sets.entry(uid).or_default().update_from(after.as_ref(), now);
            Ok(())
        }
        NODES => {
            model.record_node(write.name().to_owned(), after.as_ref(), now);
            Ok(())
        }
        PODS => check_pod(model, &uid, after.as_ref(), write.change() == Change::Added, by_manager, now),
        REVISIONS => check_revision(model, &uid, Revision::of(&object, after.is_none()), by_manager, now),
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
        // Only the manager creates pods. In a race the world stores exactly what the manager has requested.
        () if is_new => check_created(model, uid, &next, now),
        () if !by_manager => Ok(()),
        () if !before.deleting && (next.deleting || next.gone) => check_deleted(model, uid, &before, now),
        () if before.set != next.set => next.set.iter().try_for_each(|it| living_set(model, it, now).map(|_| ())),
        () if before.hash != next.hash => check_hash(model, &next),
        () => Ok(()),
    };
    if next.is_ready
        && let Some(set) = next.set.as_ref().and_then(|it| model.sets.get_mut(it))
    {
        set.taken_down.remove(&next.node);
    }
    model.pods.insert(uid.to_owned(), next);
    held
}

/// A pod is created for a node that wants it. Beside it the node has at most an old pod, and only with a surge.
fn check_created(model: &mut Model, uid: &str, pod: &Pod, now: Instant) -> Checked {
    let owner = pod.set.as_deref().ok_or("the pod has no set")?;
    let set = living_set(model, owner, now)?;
    if !pod.name.starts_with(&format!("{}-", set.name)) || pod.node.is_empty() || pod.bound_at.is_some() {
        return Err(format!("has a wrong name, or no affinity to one node, or a node already: {}", pod.node));
    }
    check_hash(model, pod)?;
    let is_wanted = |spec: &Spec| {
        let mut states = model.recent_states(&pod.node, now);
        spec.template == pod.template && states.any(|it| spec.template.is_wanted_on(it))
    };
    if !set.recent(now).any(is_wanted) {
        return Err(format!("creates a pod on {}, which does not want it, or of an old template", pod.node));
    }
    // An adopted pod may appear while the creation is on its way.
    let is_own = |it: &&Pod| it.node == pod.node && it.created_for.as_deref() == Some(owner);
    let others: Vec<&Pod> = model.pods_of(owner).filter(is_own).collect();
    let live: Vec<&&Pod> = others.iter().filter(|it| it.is_live()).collect();
    let surge = set.recent(now).map(Spec::surge).max().unwrap_or(0);
    if surge == 0 && others.iter().any(|it| !(it.deleting && it.has_ended)) {
        return Err(format!("creates a second pod on {}", pod.node));
    }
    if live.len() > 1 {
        return Err(format!("creates a third pod on {}", pod.node));
    }
    if live.iter().any(|it| it.hash == pod.hash) {
        return Err(format!("creates a second pod of the same revision on {}", pod.node));
    }
    let is_beside_available = live.iter().any(|it| it.is_surely_ready(now));
    if surge == 0 || !is_beside_available || !model.is_surely_wanted(set, &pod.node, now) {
        return Ok(());
    }
    let surged = 1 + surged_nodes(model, owner, set, pod, now);
    if let Some(set) = model.sets.get_mut(owner) {
        set.surged.insert(pod.node.clone(), uid.to_owned());
    }
    if surged > surge {
        return Err(format!("has {surged} nodes with a second pod, and the surge is {surge}"));
    }
    Ok(())
}

/// The number of other nodes on which a pod of the same template does not yet replace an old one.
fn surged_nodes(model: &Model, owner: &str, set: &Set, pod: &Pod, now: Instant) -> i64 {
    let is_surged = |node: &str, new: &Pod| {
        let has_old = model.pods_of(owner).any(|it| it.node == node && it.is_live() && it.template != new.template);
        let waits = new.is_live() && new.ready_at.is_none() && new.template == pod.template;
        waits && has_old && model.is_surely_wanted(set, node, now)
    };
    let others = set.surged.iter().filter(|it| *it.0 != pod.node);
    let surged = others.filter(|(node, new)| model.pods.get(*new).is_some_and(|it| is_surged(node, it)));
    i64::try_from(surged.count()).unwrap_or(i64::MAX)
}

/// A pod is deleted only if one of its sets has a reason.
fn check_deleted(model: &mut Model, uid: &str, pod: &Pod, now: Instant) -> Checked {
    if pod.has_ended {
        return Ok(());
    }
    let mut held = Err("deletes a pod that never had a set".to_owned());
    for owner in &pod.owned_by {
        held = check_deleted_of(model, owner, uid, pod, now);
        if held.is_ok() {
            break;
        }
    }
    held
}

/// The node must not run the pod, or has a second one, or the pod is outdated and within the budget of the update.
fn check_deleted_of(model: &mut Model, owner: &str, uid: &str, pod: &Pod, now: Instant) -> Checked {
    let set = living_set(model, owner, now)?;
    let was_unscheduled = pod.bound_at.is_none_or(|it| it + LAG >= now);
    let must_go = |spec: &Spec| {
        let mut states = model.recent_states(&pod.node, now);
        states.any(|it| match it.exists {
            // A pod that is not bound yet cannot be bound to a node that takes no new ones.
            true => !spec.template.may_stay_on(it) || (was_unscheduled && !spec.template.is_wanted_on(it)),
            false => was_unscheduled,
        })
    };
    if set.recent(now).any(must_go) {
        return Ok(());
    }
    let is_beside = |it: &Pod| it.node == pod.node && it.owned_by.contains(owner) && pod.overlaps(it, now);
    let others = model.pods.iter().filter(|it| it.0 != uid && is_beside(it.1));
    let others: Vec<&Pod> = others.map(|it| it.1).collect();
    let takes_down = pod.is_surely_ready(now) && !others.iter().any(|it| it.was_ready_lately(now));
    let is_surplus = match &*others {
        [] => false,
        // With a surge, an available pod goes only when the other one is available.
        [other] => !takes_down || other.hash == pod.hash || set.recent(now).any(|it| it.surge() == 0),
        _ => true,
    };
    if is_surplus {
        return Ok(());
    }
    let replaces = |it: &&Spec| !it.is_on_delete && it.template != pod.template;
    let Some(budget) = set.recent(now).filter(replaces).map(|it| it.max_unavailable).max() else {
        return Err(format!("deletes the only pod of {}, which is not outdated and may stay", pod.node));
    };
    if !takes_down {
        return Ok(());
    }
    if let Some(set) = model.sets.get_mut(owner) {
        set.taken_down.insert(pod.node.clone());
    }
    let set = living_set(model, owner, now)?;
    let down = set.taken_down.iter().filter(|it| model.is_surely_wanted(set, it, now)).count();
    if i64::try_from(down).unwrap_or(i64::MAX) > budget {
        return Err(format!("takes down {down} pods for an update, and {budget} may be unavailable"));
    }
    Ok(())
}

/// The label of a pod is the hash of a revision with the pod's template.
fn check_hash(model: &Model, pod: &Pod) -> Checked {
    let is_of_pod = |it: &Revision| it.hash == pod.hash && it.template == pod.template;
    if model.revisions.values().any(is_of_pod) {
        return Ok(());
    }
    Err(format!("has the hash {:?}, and no revision with it has this template", pod.hash))
}

fn living_set<'a>(model: &'a Model, owner: &str, now: Instant) -> Result<&'a Set, String> {
    let set = model.sets.get(owner).ok_or("its set never existed")?;
    if set.deleted_since.is_some_and(|it| it + LAG < now) {
        return Err(format!("{} was deleted long ago", set.name));
    }
    Ok(set)
}

/// A revision that a pod or the present template needs is not deleted, nor one that the limit keeps.
fn check_revision(model: &mut Model, uid: &str, revision: Revision, by_manager: bool, now: Instant) -> Checked {
    let mut held = Ok(());
    if by_manager
        && revision.gone
        && let Some(owner) = revision.set.as_deref()
        && let Some(set) = model.sets.get(owner)
    {
        let others = model.revisions.iter().filter(|it| it.0 != uid && it.1.set.as_deref() == Some(owner));
        let others: Vec<&Revision> = others.map(|it| it.1).filter(|it| !it.gone).collect();
        let is_duplicate = others.iter().any(|it| it.template == revision.template);
        let is_unused = |it: &Revision| !model.pods_of(owner).any(|pod| pod.hash == it.hash);
        let is_kept = |spec: &Spec| {
            // Revisions that pods have count too.
            let older = others.iter().filter(|it| it.template != spec.template);
            spec.template == revision.template || older.count() < spec.history_limit
        };
        if !is_unused(&revision) {
            held = Err("deletes the revision of a pod".to_owned());
        } else if !is_duplicate && !set.gone && set.recent(now).all(is_kept) {
            held = Err("deletes the present revision, or one that the limit keeps".to_owned());
        }
    }
    model.revisions.insert(uid.to_owned(), revision);
    held
}
