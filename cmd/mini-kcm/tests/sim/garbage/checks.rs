//! The guarantees of the garbage collector.

use std::time::Duration;

use clock::Instant;
use serde_json::Value;
use test_cluster::Change;
use testing::sim::Write;

use super::{
    kinds,
    model::{FOREGROUND, Model, ORPHAN, Object, Owner, OwnerState, Ref},
    shown_objects::HiddenGroups,
};

type Checked = Result<(), String>;

/// The User-Agent suffix of the collector.
pub(super) const AGENT: &str = "/generic-garbage-collector";
/// For this long after its term began, a process must not remove the finalizer of an owner whose dependents it may not
/// have observed, even with monitors that have not synced.
const TERM_START: Duration = Duration::from_secs(30);
/// A minute, less the time for which the network may delay a write.
const MINUTE: Duration = Duration::from_secs(55);
/// After this time a process has read the discovery document.
const DISCOVERY_DELAY: Duration = Duration::from_secs(10);

/// A write and its context.
struct CollectorWrite<'a> {
    model: &'a Model,
    by: &'a str,
    before: &'a Object,
    after: &'a Object,
    now: Instant,
}

/// Checks a write, and records it in the model.
pub(super) fn check_write(model: &mut Model, write: &Write, now: Instant) -> Checked {
    if write.by != "world" {
        model.shown.record_start(write.by, now);
        if write.resource() == "leases.coordination.k8s.io" {
            model.terms.entry(write.by.to_owned()).or_insert((now, write.version()));
        }
    }
    let collects = write.by != "world" && write.user_agent().is_some_and(|it| it.ends_with(AGENT));
    let held = if collects { check_collector_write(model, write, now) } else { Ok(()) };
    model.record(write, now);
    record_user_change(model, write);
    record_second_deletion(model, write);
    held.map_err(|why| format!("{} on {} {}: {why}", write.by, write.kind(), write.name()))
}

fn check_collector_write(model: &mut Model, write: &Write, now: Instant) -> Checked {
    let resource = write.resource();
    // The deletion of the last instance of a type has follow-up writes by the server, which are recorded with the name
    // of the same process.
    let follows = resource == kinds::DEFINITIONS || resource.starts_with("apiservices.");
    if follows || resource.starts_with("events") {
        return Ok(());
    }
    let Some(before) = write.before() else { return Err("creates an object".to_owned()) };
    let uid = before["metadata"]["uid"].as_str().unwrap_or_default();
    let Some(known) = model.objects.get(uid).cloned() else {
        return Err("writes an object of an unknown type".to_owned());
    };
    let after = write.after();
    let shown = after.as_ref().unwrap_or(&before);
    let mut next = Object::read(Some(&known), shown, after.is_none(), write.version(), now);
    if after.is_none() {
        // The write that removes the last finalizer still shows that finalizer.
        next.finalizers.clear();
    }
    let checked = CollectorWrite { model, by: write.by, before: &known, after: &next, now };
    let deletes = !known.deleting && (next.gone || next.deleting);
    let held =
        if deletes { checked.check_deletion() } else { checked.check_change(&before, after.as_ref(), write.change()) };
    if deletes {
        model.deleted_by_process.insert(known.uid.clone());
        model.deletions.entry(write.by.to_owned()).or_default().push(now);
    }
    if known.deleting && known.has(ORPHAN) && !next.has(ORPHAN) {
        model.orphaned.insert(known.uid.clone(), write.by.to_owned());
    }
    held.and_then(|()| check_deletion_limit(model, write.by, now))
}

/// A user who changes the owners of an object, or deletes it with Foreground, may close a cycle that a collector
/// opened or is about to open. A collector opens the cycles that are closed when it processes them, and it does so
/// only when an object of the cycle waits. So the object is recorded only when another one waits.
fn record_user_change(model: &mut Model, write: &Write) {
    let (before, after) = (write.before().unwrap_or_default(), write.after().unwrap_or_default());
    let owners = |it: &Value| it["metadata"]["ownerReferences"].clone();
    let waits = |it: &Value| {
        let finalizers = it["metadata"]["finalizers"].as_array().into_iter().flatten();
        !it["metadata"]["deletionTimestamp"].is_null() && finalizers.into_iter().any(|it| it == FOREGROUND)
    };
    let closes = owners(&before) != owners(&after) || (!waits(&before) && waits(&after));
    let uid = after["metadata"]["uid"].as_str().unwrap_or_default();
    let another_waits = || model.objects.values().any(|it| it.state() == OwnerState::Waiting && it.uid != uid);
    if write.by == "world" && write.before().is_some() && closes && another_waits() {
        model.changed_by_user.insert(uid.to_owned());
    }
}

/// An owner may be kept by other finalizers after its orphan finalizer was removed. When it is deleted again with
/// Foreground, its dependents are deleted.
fn record_second_deletion(model: &mut Model, write: &Write) {
    let after = write.after().unwrap_or_default();
    let uid = after["metadata"]["uid"].as_str().unwrap_or_default();
    let waits = model.objects.get(uid).is_some_and(|it| it.state() == OwnerState::Waiting);
    if waits && model.orphaned.remove(uid).is_some() {
        model.orphaned_then_deleted.insert(uid.to_owned());
    }
}

/// One process must not delete more objects per minute than allowed.
fn check_deletion_limit(model: &Model, by: &str, now: Instant) -> Checked {
    let Some(limit) = model.deletion_limit else { return Ok(()) };
    let recent = model.deletions.get(by).into_iter().flatten().filter(|it| **it + MINUTE > now).count();
    if recent > limit { Err(format!("{recent} deletions in a minute, but {limit} are allowed")) } else { Ok(()) }
}

impl CollectorWrite<'_> {
    /// Checks the start of a deletion.
    fn check_deletion(&self) -> Checked {
        let Self { model, by, before, after, now } = self;
        if before.refs.is_empty() {
            return Err("deletes an object without owners".to_owned());
        }
        // A dependent with other owners may be deleted with those.
        let left_by = |it: &Ref| {
            model.orphaned.get(&it.uid).is_some_and(|process| process == by) && model.referenced(before, it).is_some()
        };
        if before.refs.iter().all(left_by) {
            let names: Vec<&str> = before.refs.iter().map(|it| &*it.name).collect();
            return Err(format!("deletes an object that was orphaned by {}", names.join(" and ")));
        }
        for it in &before.refs {
            match model.owner(before, it) {
                Owner::Exists(owner) if !owner.is_or_was_recently(OwnerState::Waiting, *now) => {
                    return Err(format!("deletes an object with the living owner {owner}"));
                }
                Owner::Unprovable => {
                    return Err(format!(
                        "deletes an object with an owner of kind {} that no process can read",
                        it.kind
                    ));
                }
                Owner::Exists(_) | Owner::Absent => {}
            }
        }
        if after.refs != before.refs || (after.has(ORPHAN) && !before.has(ORPHAN)) {
            return Err("writes more than the deletion".to_owned());
        }
        self.check_order()
    }

    /// A dependent of an owner that waits must be deleted with Foreground when it has dependents of its own.
    fn check_order(&self) -> Checked {
        let Self { model, by: _, before, after, now } = self;
        let waits = |it: &Ref| matches!(model.owner(before, it), Owner::Exists(owner) if owner.state() == OwnerState::Waiting && !owner.may_keep_dependents(*now));
        if after.has(FOREGROUND) || after.has(ORPHAN) || !before.refs.iter().any(waits) {
            return Ok(());
        }
        match self.observed_dependent(|_| true, HiddenGroups::Ignored) {
            Some(it) => Err(format!("its owner waits for it, but it is deleted before its own dependent {it}")),
            None => Ok(()),
        }
    }

    /// Checks a change of an object, or the removal of its last finalizer.
    fn check_change(&self, old: &Value, new: Option<&Value>, change: Change) -> Checked {
        let Self { before, after, .. } = self;
        if let Some(it) = before.finalizers.iter().find(|it| !after.has(it) && *it != ORPHAN && *it != FOREGROUND) {
            return Err(format!("removes the foreign finalizer {it}"));
        }
        if let Some(it) = after.finalizers.iter().find(|it| !before.has(it)) {
            return Err(format!("adds the finalizer {it}"));
        }
        if change != Change::Removed && new.is_some_and(|new| other_fields(old) != other_fields(new)) {
            return Err("changes more than owner references and finalizers".to_owned());
        }
        let lost = |finalizer: &str| before.has(finalizer) && !after.has(finalizer);
        if (lost(ORPHAN) || lost(FOREGROUND)) && !before.deleting {
            return Err("removes a finalizer of an object that is not being deleted".to_owned());
        }
        if lost(ORPHAN) {
            self.check_orphaned()?;
        }
        if lost(FOREGROUND) {
            self.check_finished()?;
        }
        self.check_references()
    }

    /// Checks the removal of the finalizer `orphan` from an owner.
    fn check_orphaned(&self) -> Checked {
        if let Some(it) = self.observed_dependent(|_| true, HiddenGroups::Ignored) {
            return Err(format!("removes the finalizer orphan, but {it} still references the owner"));
        }
        self.check_observed(|_| true)
    }

    /// Checks the removal of the finalizer `foregroundDeletion` from an owner.
    fn check_finished(&self) -> Checked {
        // A dependent that is no longer watched still blocks the owner.
        if let Some(it) = self.observed_dependent(|it| it.blocks, HiddenGroups::Counted) {
            return Err(format!("removes the finalizer foregroundDeletion before {it}, which blocks the owner"));
        }
        self.check_observed(|it| it.blocks)
    }

    /// Checks the removal of references, and the change of references to non-blocking ones.
    fn check_references(&self) -> Checked {
        let Self { model, before, after, now, .. } = self;
        if let Some(it) = after.refs.iter().find(|new| !before.refs.iter().any(|it| it.is_to_same_owner(new))) {
            return Err(format!("adds a reference to the owner {}", it.name));
        }
        let removed = before.refs.iter().filter(|old| !after.refs.iter().any(|it| it.is_to_same_owner(old)));
        let mut needs_owner = false;
        for it in removed {
            // Removing a reference to an orphaning owner is always safe, also when the process observed the orphaning
            // long ago.
            let orphans = model.objects.get(&it.uid).is_some_and(|it| it.is_or_ever_was(OwnerState::Orphaning));
            match model.owner(before, it) {
                _ if orphans
                    || model.orphaned.contains_key(&it.uid)
                    || model.orphaned_then_deleted.contains(&it.uid) => {}
                Owner::Exists(owner) if owner.is_or_was_recently(OwnerState::Waiting, *now) => needs_owner = true,
                Owner::Exists(owner) => return Err(format!("removes the reference to the living owner {owner}")),
                Owner::Unprovable => {
                    return Err(format!(
                        "removes a reference to an owner of kind {} that no process can read",
                        it.kind
                    ));
                }
                Owner::Absent => needs_owner = true,
            }
        }
        // One reference to a real owner must remain. That owner may be deleted by now, because a frozen process may
        // have a stale view of it. The collector then checks the object again for this reference.
        let is_valid = |it: &Ref| model.referenced(before, it).is_some();
        if needs_owner && !after.refs.iter().any(is_valid) {
            let name = |it: &Ref| format!("{} {}", it.kind, it.name);
            let names = |refs: &[Ref]| refs.iter().map(name).collect::<Vec<_>>().join(" and ");
            let (had, has) = (names(&before.refs), names(&after.refs));
            return Err(format!("the object had the owners {had} and keeps [{has}], none of which is an owner of it"));
        }
        self.check_blocking()
    }

    fn check_blocking(&self) -> Checked {
        let Self { model, before, after, now, .. } = self;
        let flipped = |old: &&Ref| after.refs.iter().any(|new| new.is_to_same_owner(old) && new.blocks != old.blocks);
        if !before.refs.iter().any(|it| flipped(&it)) {
            return Ok(());
        }
        for it in &before.refs {
            if let Owner::Exists(owner) = model.owner(before, it)
                && !owner.is_or_was_recently(OwnerState::Waiting, *now)
            {
                return Err(format!("stops blocking the living owner {owner}"));
            }
        }
        Ok(())
    }

    /// A dependent with such a reference that the acting process has observed.
    fn observed_dependent(&self, how: impl Fn(&Ref) -> bool, hidden: HiddenGroups) -> Option<&Object> {
        let Self { model, by, before, now, .. } = self;
        model.dependents(&before.uid).find(|it| {
            let named = it.refs.iter().filter(|at| at.uid == before.uid && how(at));
            let referenced = |at: &Ref| matches!(model.owner(it, at), Owner::Exists(owner) if owner.uid == before.uid);
            let mut known = named
                .filter(|at| referenced(at))
                .map(|at| model.shown.has_observed(by, it.group(), &it.uid, at.since, *now, hidden));
            known.any(|it| it)
        })
    }

    /// Soon after the start of its term a process must not remove the finalizer of an owner before two conditions hold.
    /// It has listed every type that may have dependents. And it was shown every dependent that existed when the term
    /// began, because a watch from before the term may have failed silently.
    fn check_observed(&self, how: impl Fn(&Ref) -> bool) -> Checked {
        let Self { model, by, before, now, .. } = self;
        let (Some((term, version)), Some(began)) = (model.terms.get(*by), model.shown.started_at(by)) else {
            return Ok(());
        };
        if *term + TERM_START <= *now || !model.shown.is_discovery_complete_since(began) {
            return Ok(());
        }
        let old = |at: Option<Instant>| at.is_none_or(|it| it + DISCOVERY_DELAY <= began);
        let unseen = model.dependents(&before.uid).find(|it| {
            let referenced = |at: &&Ref| {
                let is_owner = matches!(model.owner(it, at), Owner::Exists(owner) if owner.uid == before.uid);
                at.uid == before.uid && how(at) && is_owner
            };
            let is_unseen = |at: &Ref| {
                let unlisted = old(it.created_at) && !model.shown.has_complete_list(by, it.resource());
                unlisted || (at.since <= *version && !model.shown.was_shown(by, &it.uid, at.since))
            };
            old(model.served_since(it)) && it.refs.iter().filter(referenced).any(is_unseen)
        });
        match unseen {
            Some(it) => {
                Err(format!("removes a finalizer {:?} after the term began, but {it} was not observed", *now - *term))
            }
            None => Ok(()),
        }
    }
}

/// The object without the fields that the collector may change, and without those that the server sets.
fn other_fields(object: &Value) -> Value {
    let mut fields = object.clone();
    let ignored = ["ownerReferences", "finalizers", "resourceVersion", "generation", "managedFields"];
    if let Some(metadata) = fields["metadata"].as_object_mut() {
        metadata.retain(|it, _| !ignored.contains(&it.as_str()));
    }
    fields
}
