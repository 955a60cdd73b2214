//! A model of owners and dependents. The collector's writes are checked against it. It is computed from the stored
//! writes alone and does not depend on the collector's code. It also records what each process was shown, because a
//! process cannot act on an object that it was never shown.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Instant;
use serde_json::Value;
use testing::sim::Write;

use super::{
    kinds::{self, DEFINITIONS, Type},
    shown_objects::ShownObjects,
};

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// The maximum time from a read of an owner's state to the store of a write that depends on it. No term continues
/// longer without a renewal.
pub(super) const PROOF: Duration = Duration::from_secs(15);

/// Every object that ever existed, by uid.
#[derive(Default)]
pub(super) struct Model {
    pub(super) objects: BTreeMap<String, Object>,
    /// By apiVersion and kind: since when it is served, and whether it is still served. Without built-in types.
    pub(super) served: BTreeMap<(String, String), (Instant, bool)>,
    /// By the uid of an owner whose orphan finalizer was removed by a process: that process.
    pub(super) orphaned: BTreeMap<String, String>,
    /// Owners of `orphaned` that other finalizers kept, and that were deleted again with another policy. Not every
    /// process was shown that deletion.
    pub(super) orphaned_then_deleted: BTreeSet<String>,
    /// The objects whose deletion was started by a process.
    pub(super) deleted_by_process: BTreeSet<String>,
    /// The objects whose owner references a user changed, or that a user deleted with Foreground, while another
    /// object waited.
    pub(super) changed_by_user: BTreeSet<String>,
    /// The start of each process's term, and the version of the Lease at that time.
    pub(super) terms: BTreeMap<String, (Instant, u64)>,
    /// The times of each process's deletions.
    pub(super) deletions: BTreeMap<String, Vec<Instant>>,
    /// The maximum number of deletions per minute.
    pub(super) deletion_limit: Option<usize>,
    pub(super) shown: ShownObjects,
}

/// One object.
#[derive(Debug, Clone, Default)]
pub(super) struct Object {
    pub(super) uid: String,
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) refs: Vec<Ref>,
    pub(super) finalizers: Vec<String>,
    pub(super) deleting: bool,
    pub(super) gone: bool,
    /// The earlier states, each with the time until which it lasted.
    state_ends: BTreeMap<OwnerState, Instant>,
    pub(super) created_at: Option<Instant>,
}

/// An owner reference, and the version since which the object has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ref {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) blocks: bool,
    pub(super) since: u64,
}

/// The state of an owner, from the view of its dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OwnerState {
    /// It keeps its dependents: it exists, and is not being deleted with Foreground or Orphan.
    Live,
    /// It is being deleted with Foreground, and waits for its dependents.
    Waiting,
    /// It is being deleted with Orphan.
    Orphaning,
    Gone,
}

/// What an owner reference resolves to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owner<'a> {
    Exists(&'a Object),
    /// The owner does not exist, and this can be proved.
    Absent,
    /// This cannot be determined: the type is unknown or not served, or is namespaced while the dependent is
    /// cluster-scoped.
    Unprovable,
}

impl Object {
    /// The object as stored at `version`, with the history of its known state.
    pub(super) fn read(known: Option<&Self>, object: &Value, gone: bool, version: u64, now: Instant) -> Self {
        let metadata = &object["metadata"];
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let texts = |it: &Value| it.as_array().into_iter().flatten().map(text).collect();
        let mut state_ends = known.map(|it| it.state_ends.clone()).unwrap_or_default();
        if let Some(known) = known {
            state_ends.insert(known.state(), now);
        }
        let before = known.map(|it| &*it.refs).unwrap_or_default();
        let refs = metadata["ownerReferences"].as_array().into_iter().flatten().map(|it| {
            let mut new = Ref {
                api_version: text(&it["apiVersion"]),
                kind: text(&it["kind"]),
                name: text(&it["name"]),
                uid: text(&it["uid"]),
                blocks: it["blockOwnerDeletion"] == true,
                since: version,
            };
            if let Some(known) = before.iter().find(|it| it.is_equal_to(&new)) {
                new.since = known.since;
            }
            new
        });
        Self {
            uid: text(&metadata["uid"]),
            api_version: text(&object["apiVersion"]),
            kind: text(&object["kind"]),
            namespace: text(&metadata["namespace"]),
            name: text(&metadata["name"]),
            refs: refs.collect(),
            finalizers: texts(&metadata["finalizers"]),
            deleting: metadata["deletionTimestamp"].is_string(),
            gone,
            state_ends,
            created_at: known.map_or(Some(now), |it| it.created_at),
        }
    }

    pub(super) fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|it| it == finalizer)
    }

    pub(super) fn state(&self) -> OwnerState {
        match self {
            it if it.gone => OwnerState::Gone,
            it if it.deleting && it.has(ORPHAN) => OwnerState::Orphaning,
            it if it.deleting && it.has(FOREGROUND) => OwnerState::Waiting,
            _ => OwnerState::Live,
        }
    }

    /// True when the owner has this state, or had it so recently that a process may not have observed the change.
    pub(super) fn is_or_was_recently(&self, state: OwnerState, now: Instant) -> bool {
        self.state() == state || self.state_ends.get(&state).is_some_and(|it| *it + PROOF > now)
    }

    /// True when the owner has or ever had this state.
    pub(super) fn is_or_ever_was(&self, state: OwnerState) -> bool {
        self.state() == state || self.state_ends.contains_key(&state)
    }

    /// True when the owner keeps its dependents, or did so recently.
    pub(super) fn may_keep_dependents(&self, now: Instant) -> bool {
        self.is_or_was_recently(OwnerState::Live, now) || self.is_or_was_recently(OwnerState::Orphaning, now)
    }

    pub(super) fn has_owner(&self, owner: &str) -> bool {
        self.refs.iter().any(|it| it.uid == owner)
    }

    pub(super) fn group(&self) -> &str {
        kinds::group(&self.api_version)
    }

    pub(super) fn resource(&self) -> &'static str {
        kinds::named(&self.api_version, &self.kind).map_or("", |it| it.resource)
    }
}

impl std::fmt::Display for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) };
        write!(f, "{} {place}{}", self.kind, self.name)
    }
}

impl std::fmt::Display for Ref {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {} of {}", self.api_version, self.kind, self.name, self.uid)
    }
}

impl Ref {
    /// True for the same reference, apart from `since`.
    pub(super) fn is_equal_to(&self, other: &Self) -> bool {
        (&self.uid, self.blocks) == (&other.uid, other.blocks) && self.is_to_same_owner(other)
    }

    /// True when both references name the same owner with the same type and name.
    pub(super) fn is_to_same_owner(&self, other: &Self) -> bool {
        let at = |it: &Self| (it.uid.clone(), it.kind.clone(), it.name.clone(), it.api_version.clone());
        at(self) == at(other)
    }
}

impl Model {
    /// Records a write, after it was checked.
    pub(super) fn record(&mut self, write: &Write, now: Instant) {
        let (before, after) = (write.before(), write.after());
        if write.resource() == DEFINITIONS {
            self.record_definition(before.as_ref(), after.as_ref(), now);
        }
        let Some(object) = after.as_ref().or(before.as_ref()) else { return };
        if kinds::named(object["apiVersion"].as_str().unwrap_or_default(), write.kind()).is_none() {
            return;
        }
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let next = Object::read(self.objects.get(&uid), object, after.is_none(), write.version(), now);
        self.objects.insert(uid, next);
    }

    fn record_definition(&mut self, before: Option<&Value>, after: Option<&Value>, now: Instant) {
        let Some(definition) = after.or(before) else { return };
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let (group, kind) = (text(&definition["spec"]["group"]), text(&definition["spec"]["names"]["kind"]));
        let conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
        let established =
            after.is_some() && conditions.into_iter().any(|it| it["type"] == "Established" && it["status"] == "True");
        for version in definition["spec"]["versions"].as_array().into_iter().flatten() {
            let key = (format!("{group}/{}", text(&version["name"])), kind.clone());
            let serves = established && version["served"] == true;
            match self.served.get_mut(&key) {
                Some(it) if it.1 == serves => {}
                Some(it) => *it = (now, serves),
                None if serves => drop(self.served.insert(key, (now, true))),
                None => {}
            }
        }
    }

    /// True when a type is served now; `None` when it was never served.
    pub(super) fn is_served(&self, api_version: &str, kind: &str) -> Option<bool> {
        match kinds::named(api_version, kind)? {
            it if it.custom => self.served.get(&(api_version.to_owned(), kind.to_owned())).map(|it| it.1),
            it => (it.api_version == api_version).then_some(true),
        }
    }

    /// The time since which the object's type is served.
    pub(super) fn served_since(&self, of: &Object) -> Option<Instant> {
        self.served.get(&(of.api_version.clone(), of.kind.clone())).map(|it| it.0)
    }

    /// Resolves a reference. If no type of that name was ever served, no process can have read the owner.
    pub(super) fn owner(&self, of: &Object, it: &Ref) -> Owner<'_> {
        let known = kinds::named(&it.api_version, &it.kind);
        let misplaced = |it: &Type| it.namespaced && of.namespace.is_empty();
        let found = self.referenced(of, it).filter(|it| !it.gone);
        match (found, known) {
            (Some(owner), _) => Owner::Exists(owner),
            (None, Some(known)) if misplaced(known) => Owner::Unprovable,
            (None, _) if self.is_served(&it.api_version, &it.kind).is_none() => Owner::Unprovable,
            (None, _) => Owner::Absent,
        }
    }

    /// The object with this uid, existing or deleted, if its kind, name, group and namespace match the reference.
    pub(super) fn referenced(&self, of: &Object, it: &Ref) -> Option<&Object> {
        self.objects.get(&it.uid).filter(|owner| {
            let place = owner.namespace.is_empty() || owner.namespace == of.namespace;
            let alike = (&*owner.kind, &*owner.name) == (&*it.kind, &*it.name);
            alike && place && owner.group() == kinds::group(&it.api_version)
        })
    }

    /// True when every owner of the object can be read now.
    pub(super) fn is_provable(&self, of: &Object) -> bool {
        of.refs.iter().all(|it| {
            let misplaced = kinds::named(&it.api_version, &it.kind).is_some_and(|it| it.namespaced);
            self.is_served(&it.api_version, &it.kind) == Some(true) && !(misplaced && of.namespace.is_empty())
        })
    }

    /// The existing dependents of an owner, without the owner itself.
    pub(super) fn dependents<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = &'a Object> {
        self.objects.values().filter(move |it| !it.gone && it.uid != owner && it.has_owner(owner))
    }

    /// The existing dependents that block the deletion of an owner, with their references.
    pub(super) fn blocking_dependents<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = (&'a Object, &'a Ref)> {
        let refs =
            move |it: &'a Object| it.refs.iter().filter(move |it| it.uid == owner && it.blocks).map(move |at| (it, at));
        self.objects.values().filter(move |it| !it.gone && it.uid != owner).flat_map(refs)
    }

    /// The first object that is not in its final state, as a text. Called when the faults have ended.
    pub(super) fn first_unfinished(&self) -> Option<String> {
        let there = || self.objects.values().filter(|it| !it.gone);
        // An object whose owners cannot be read stays, and so does every owner that waits for it.
        let mut stuck: BTreeSet<&str> = there().filter(|it| !self.is_provable(it)).map(|it| &*it.uid).collect();
        loop {
            let waits = |it: &&Object| it.state() == OwnerState::Waiting && !stuck.contains(&*it.uid);
            let held = |it: &&Object| self.blocking_dependents(&it.uid).any(|it| stuck.contains(&*it.0.uid));
            let Some(next) = there().filter(waits).find(held) else { break };
            stuck.insert(&next.uid);
        }
        stuck.extend(self.waiting_cycles());
        there().filter(|it| self.is_provable(it) || it.state() == OwnerState::Orphaning).find_map(|it| {
            let text_of = |what: &str| Some(format!("{it} of {} {what}", it.uid));
            match it.state() {
                OwnerState::Orphaning => return text_of("still has its finalizer orphan"),
                OwnerState::Waiting if !stuck.contains(&*it.uid) => {
                    let by = |(it, at): (&Object, &Ref)| {
                        format!("{it} as {} {:?} {:?}", at.api_version, it.state(), it.finalizers)
                    };
                    let by: Vec<String> = self.blocking_dependents(&it.uid).map(by).collect();
                    return text_of(&format!(
                        "still waits, but nothing blocks it ({:?}; referenced by {by:?})",
                        it.finalizers
                    ));
                }
                _ => {}
            }
            let refs: Vec<String> = it.refs.iter().map(Ref::to_string).collect();
            let text_of = |what: &str| Some(format!("{it} of {} {what}: {}", it.uid, refs.join(" and ")));
            let owners: Vec<Owner> = it.refs.iter().map(|at| self.owner(it, at)).collect();
            // An object that waits for ever ignores an owner that is added later.
            if owners.iter().any(|it| matches!(it, Owner::Exists(it) if it.state() == OwnerState::Waiting)) {
                return None;
            }
            let held = owners.iter().any(|it| matches!(it, Owner::Exists(_)));
            let loose = owners.iter().any(|it| !matches!(it, Owner::Exists(_)));
            match (it.deleting, held, loose) {
                (false, false, true) => text_of("still exists although its owners are gone"),
                (false, true, true) => text_of("still references a deleted owner beside a living one"),
                _ => None,
            }
        })
    }

    /// Objects that wait for each other, and the owners that wait for them. The users deleted each of them with
    /// Foreground, or closed again a cycle that a collector had opened. A collector opens any other cycle.
    fn waiting_cycles(&self) -> Vec<&str> {
        let again = self.cycles_of(|_| true);
        if again.iter().any(|it| self.changed_by_user.contains(*it)) {
            return again;
        }
        self.cycles_of(|it| !self.deleted_by_process.contains(&it.uid))
    }

    fn cycles_of(&self, of: impl Fn(&Object) -> bool) -> Vec<&str> {
        let waits = |it: &Object| !it.gone && it.state() == OwnerState::Waiting && of(it);
        let mut left: BTreeSet<&str> = self.objects.values().filter(|it| waits(it)).map(|it| &*it.uid).collect();
        loop {
            let waits_for_none = |it: &&&str| !self.blocking_dependents(it).any(|it| left.contains(&*it.0.uid));
            let Some(next) = left.iter().find(waits_for_none).copied() else { return left.into_iter().collect() };
            left.remove(next);
        }
    }
}
