//! What the writes on the API say of owners and of what they own: the book that the collector's work is held against. It is
//! kept from the stored writes alone, and knows nothing of how a collector works. Beside it stands what each process was
//! shown: what nobody was shown nobody can know.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clock::Instant;
use serde_json::Value;
use testing::sim::Write;

use super::{
    kinds::{self, DEFINITIONS, Type},
    shown::Shown,
};

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// From the answer that an owner is in some state until a write that follows from it is stored: no term lasts longer unseen.
pub(super) const PROOF: Duration = Duration::from_secs(15);

/// Every object that ever was, by uid.
#[derive(Default)]
pub(super) struct Book {
    pub(super) objects: BTreeMap<String, Object>,
    /// By apiVersion and kind: since when it is served, and whether it still is. Built-in types are not among them.
    pub(super) served: BTreeMap<(String, String), (Instant, bool)>,
    /// By the uid of an owner that a process let go after it had orphaned what it owned: which process.
    pub(super) orphaned: BTreeMap<String, String>,
    /// Those of them that were deleted again in another way, while others held them: not every process was shown that.
    pub(super) orphaned_once: BTreeSet<String>,
    /// Whose deletion a process began.
    pub(super) collected: BTreeSet<String>,
    /// Whose owners a user changed.
    pub(super) closed: BTreeSet<String>,
    /// When each process began its term, and the version of that.
    pub(super) terms: BTreeMap<String, (Instant, u64)>,
    /// When each process deleted something.
    pub(super) deletions: BTreeMap<String, Vec<Instant>>,
    /// How many it may delete in a minute.
    pub(super) most: Option<usize>,
    pub(super) shown: Shown,
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
    /// By how it stood: until when.
    until: BTreeMap<Stand, Instant>,
    pub(super) made: Option<Instant>,
}

/// What an object says of an owner, and the version since which it says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ref {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) blocks: bool,
    pub(super) since: u64,
}

/// How an owner stands towards what it owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stand {
    /// It holds what it owns.
    Solid,
    /// It is being deleted, and waits for what it owns to go first.
    Waits,
    /// It is being deleted, and what it owns shall stay.
    Orphans,
    Gone,
}

/// What becomes of a reference.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owner<'a> {
    Is(&'a Object),
    /// There is none, and that can be proved.
    None,
    /// Nobody can say: its type is unknown, or not served, or has namespaces while the dependent has none.
    Unprovable,
}

impl Object {
    /// What is written of an object at `version`, after what was known of it.
    pub(super) fn read(known: Option<&Self>, object: &Value, gone: bool, version: u64, now: Instant) -> Self {
        let metadata = &object["metadata"];
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let texts = |it: &Value| it.as_array().into_iter().flatten().map(text).collect();
        let mut until = known.map(|it| it.until.clone()).unwrap_or_default();
        if let Some(known) = known {
            until.insert(known.stand(), now);
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
            if let Some(known) = before.iter().find(|it| it.says_as(&new)) {
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
            until,
            made: known.map_or(Some(now), |it| it.made),
        }
    }

    pub(super) fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|it| it == finalizer)
    }

    pub(super) fn stand(&self) -> Stand {
        match self {
            it if it.gone => Stand::Gone,
            it if it.deleting && it.has(ORPHAN) => Stand::Orphans,
            it if it.deleting && it.has(FOREGROUND) => Stand::Waits,
            _ => Stand::Solid,
        }
    }

    /// Whether it stands so, or did so little ago that whoever acts on it may not know better.
    pub(super) fn stood(&self, so: Stand, now: Instant) -> bool {
        self.stand() == so || self.until.get(&so).is_some_and(|it| *it + PROOF > now)
    }

    /// Whether it stands so, or ever did.
    pub(super) fn stood_once(&self, so: Stand) -> bool {
        self.stand() == so || self.until.contains_key(&so)
    }

    /// Whether it holds what it owns, or did a moment ago.
    pub(super) fn held(&self, now: Instant) -> bool {
        self.stood(Stand::Solid, now) || self.stood(Stand::Orphans, now)
    }

    pub(super) fn names(&self, owner: &str) -> bool {
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
    /// The same, but for since when.
    pub(super) fn says_as(&self, other: &Self) -> bool {
        (&self.uid, self.blocks) == (&other.uid, other.blocks) && self.is_for(other)
    }

    /// It names the same owner at the same place.
    pub(super) fn is_for(&self, other: &Self) -> bool {
        let at = |it: &Self| (it.uid.clone(), it.kind.clone(), it.name.clone(), it.api_version.clone());
        at(self) == at(other)
    }
}

impl Book {
    /// Takes in a write, after it was judged.
    pub(super) fn take(&mut self, write: &Write, now: Instant) {
        let (before, after) = (write.before(), write.after());
        if write.resource() == DEFINITIONS {
            self.define(before.as_ref(), after.as_ref(), now);
        }
        let Some(object) = after.as_ref().or(before.as_ref()) else { return };
        if kinds::named(object["apiVersion"].as_str().unwrap_or_default(), write.kind()).is_none() {
            return;
        }
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let next = Object::read(self.objects.get(&uid), object, after.is_none(), write.version(), now);
        self.objects.insert(uid, next);
    }

    fn define(&mut self, before: Option<&Value>, after: Option<&Value>, now: Instant) {
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

    /// Whether a type is served now; `None` where it never was.
    pub(super) fn serves(&self, api_version: &str, kind: &str) -> Option<bool> {
        match kinds::named(api_version, kind)? {
            it if it.custom => self.served.get(&(api_version.to_owned(), kind.to_owned())).map(|it| it.1),
            it => (it.api_version == api_version).then_some(true),
        }
    }

    /// Since when an object's type is served.
    pub(super) fn served_since(&self, of: &Object) -> Option<Instant> {
        self.served.get(&(of.api_version.clone(), of.kind.clone())).map(|it| it.0)
    }

    /// Who is meant by a reference. Where no type of that name was ever served nobody can have asked.
    pub(super) fn owner(&self, of: &Object, it: &Ref) -> Owner<'_> {
        let known = kinds::named(&it.api_version, &it.kind);
        let misplaced = |it: &Type| it.namespaced && of.namespace.is_empty();
        let found = self.meant(of, it).filter(|it| !it.gone);
        match (found, known) {
            (Some(owner), _) => Owner::Is(owner),
            (None, Some(known)) if misplaced(known) => Owner::Unprovable,
            (None, _) if self.serves(&it.api_version, &it.kind).is_none() => Owner::Unprovable,
            (None, _) => Owner::None,
        }
    }

    /// The object of this uid, there or gone, where it is what the reference says.
    pub(super) fn meant(&self, of: &Object, it: &Ref) -> Option<&Object> {
        self.objects.get(&it.uid).filter(|owner| {
            let place = owner.namespace.is_empty() || owner.namespace == of.namespace;
            let alike = (&*owner.kind, &*owner.name) == (&*it.kind, &*it.name);
            alike && place && owner.group() == kinds::group(&it.api_version)
        })
    }

    /// Whether everything that an object says of its owners can be asked for now.
    pub(super) fn is_provable(&self, of: &Object) -> bool {
        of.refs.iter().all(|it| {
            let misplaced = kinds::named(&it.api_version, &it.kind).is_some_and(|it| it.namespaced);
            self.serves(&it.api_version, &it.kind) == Some(true) && !(misplaced && of.namespace.is_empty())
        })
    }

    /// What names an owner now, but for itself.
    pub(super) fn dependents<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = &'a Object> {
        self.objects.values().filter(move |it| !it.gone && it.uid != owner && it.names(owner))
    }

    /// What names an owner and keeps it from going.
    pub(super) fn blocking<'a>(&'a self, owner: &'a str) -> impl Iterator<Item = (&'a Object, &'a Ref)> {
        let refs =
            move |it: &'a Object| it.refs.iter().filter(move |it| it.uid == owner && it.blocks).map(move |at| (it, at));
        self.objects.values().filter(move |it| !it.gone && it.uid != owner).flat_map(refs)
    }

    /// What is not yet as it must become once nothing goes wrong any more.
    pub(super) fn missing(&self) -> Option<String> {
        let there = || self.objects.values().filter(|it| !it.gone);
        // What nobody can judge stays, and so does what waits for it.
        let mut stuck: BTreeSet<&str> = there().filter(|it| !self.is_provable(it)).map(|it| &*it.uid).collect();
        loop {
            let waits = |it: &&Object| it.stand() == Stand::Waits && !stuck.contains(&*it.uid);
            let held = |it: &&Object| self.blocking(&it.uid).any(|it| stuck.contains(&*it.0.uid));
            let Some(next) = there().filter(waits).find(held) else { break };
            stuck.insert(&next.uid);
        }
        stuck.extend(self.circles());
        there().filter(|it| self.is_provable(it) || it.stand() == Stand::Orphans).find_map(|it| {
            let said = |what: &str| Some(format!("{it} of {} {what}", it.uid));
            match it.stand() {
                Stand::Orphans => return said("still has its finalizer orphan"),
                Stand::Waits if !stuck.contains(&*it.uid) => {
                    let by = |(it, at): (&Object, &Ref)| {
                        format!("{it} as {} {:?} {:?}", at.api_version, it.stand(), it.finalizers)
                    };
                    let by: Vec<String> = self.blocking(&it.uid).map(by).collect();
                    return said(&format!("still waits, and nothing keeps it ({:?}; named by {by:?})", it.finalizers));
                }
                _ => {}
            }
            let refs: Vec<String> = it.refs.iter().map(Ref::to_string).collect();
            let said = |what: &str| Some(format!("{it} of {} {what}: {}", it.uid, refs.join(" and ")));
            let owners: Vec<Owner> = it.refs.iter().map(|at| self.owner(it, at)).collect();
            // One that waits for ever does not look at what comes to it later.
            if owners.iter().any(|it| matches!(it, Owner::Is(it) if it.stand() == Stand::Waits)) {
                return None;
            }
            let held = owners.iter().any(|it| matches!(it, Owner::Is(_)));
            let loose = owners.iter().any(|it| !matches!(it, Owner::Is(_)));
            match (it.deleting, held, loose) {
                (false, false, true) => said("is left though its owners are gone"),
                (false, true, true) => said("still names an owner that is gone beside one that lives"),
                _ => None,
            }
        })
    }

    /// Those that wait for each other because users deleted each of them so, or closed again what a collector had opened, and
    /// what waits for them. A collector has a circle wait for nothing.
    fn circles(&self) -> Vec<&str> {
        let again = self.circles_of(|_| true);
        if again.iter().any(|it| self.closed.contains(*it)) {
            return again;
        }
        self.circles_of(|it| !self.collected.contains(&it.uid))
    }

    fn circles_of(&self, of: impl Fn(&Object) -> bool) -> Vec<&str> {
        let waits = |it: &Object| !it.gone && it.stand() == Stand::Waits && of(it);
        let mut left: BTreeSet<&str> = self.objects.values().filter(|it| waits(it)).map(|it| &*it.uid).collect();
        loop {
            let waits_for_none = |it: &&&str| !self.blocking(it).any(|it| left.contains(&*it.0.uid));
            let Some(next) = left.iter().find(waits_for_none).copied() else { return left.into_iter().collect() };
            left.remove(next);
        }
    }
}
