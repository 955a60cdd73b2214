//! The guarantees of the garbage collector.

use std::time::Duration;

use clock::Instant;
use serde_json::Value;
use test_cluster::Change;
use testing::sim::Write;

use super::{
    book::{Book, FOREGROUND, ORPHAN, Object, Owner, Ref, Stand},
    kinds,
    shown::Hidden,
};

type Held = Result<(), String>;

/// The User-Agent suffix of the collector.
pub(super) const AGENT: &str = "/generic-garbage-collector";
/// For this long after its term began, a process must not remove the finalizer of an owner whose dependents it may not
/// have observed, even with monitors that have not synced.
const PATIENCE: Duration = Duration::from_secs(30);
/// A minute, less the time for which the network may delay a write.
const MINUTE: Duration = Duration::from_secs(55);
/// After this time a process has read the discovery document.
const SETTLED: Duration = Duration::from_secs(10);

/// A write and its context.
struct Deed<'a> {
    book: &'a Book,
    by: &'a str,
    before: &'a Object,
    after: &'a Object,
    now: Instant,
}

/// Checks a write, and records it in the book.
pub(super) fn look(book: &mut Book, write: &Write, now: Instant) -> Held {
    if write.by != "world" {
        book.shown.begins(write.by, now);
        if write.resource() == "leases.coordination.k8s.io" {
            book.terms.entry(write.by.to_owned()).or_insert((now, write.version()));
        }
    }
    let collects = write.by != "world" && write.user_agent().is_some_and(|it| it.ends_with(AGENT));
    let held = if collects { judge(book, write, now) } else { Ok(()) };
    book.take(write, now);
    closes_a_circle(book, write);
    changes_its_mind(book, write);
    held.map_err(|why| format!("{} on {} {}: {why}", write.by, write.kind(), write.name()))
}

fn judge(book: &mut Book, write: &Write, now: Instant) -> Held {
    let resource = write.resource();
    // The deletion of the last instance of a type has follow-up writes by the server, which are recorded with the name
    // of the same process.
    let follows = resource == kinds::DEFINITIONS || resource.starts_with("apiservices.");
    if follows || resource.starts_with("events") {
        return Ok(());
    }
    let Some(before) = write.before() else { return Err("it makes it".to_owned()) };
    let uid = before["metadata"]["uid"].as_str().unwrap_or_default();
    let Some(known) = book.objects.get(uid).cloned() else { return Err("it is no business of its".to_owned()) };
    let after = write.after();
    let shown = after.as_ref().unwrap_or(&before);
    let mut next = Object::read(Some(&known), shown, after.is_none(), write.version(), now);
    if after.is_none() {
        // The write that removes the last finalizer still shows that finalizer.
        next.finalizers.clear();
    }
    let deed = Deed { book, by: write.by, before: &known, after: &next, now };
    let deletes = !known.deleting && (next.gone || next.deleting);
    let held = if deletes { deed.deletes() } else { deed.changes(&before, after.as_ref(), write.change()) };
    if deletes {
        book.collected.insert(known.uid.clone());
        book.deletions.entry(write.by.to_owned()).or_default().push(now);
    }
    if known.deleting && known.has(ORPHAN) && !next.has(ORPHAN) {
        book.orphaned.insert(known.uid.clone(), write.by.to_owned());
    }
    held.and_then(|()| breaker(book, write.by, now))
}

/// A user who changes the owners of an object, or deletes it with Foreground, may close a circle that a collector
/// opened or is about to open. A collector opens the circles that are closed when it processes them, and it does so
/// only when an object of the circle waits. So the object is recorded only when another one waits.
fn closes_a_circle(book: &mut Book, write: &Write) {
    let (before, after) = (write.before().unwrap_or_default(), write.after().unwrap_or_default());
    let owners = |it: &Value| it["metadata"]["ownerReferences"].clone();
    let waits = |it: &Value| {
        let finalizers = it["metadata"]["finalizers"].as_array().into_iter().flatten();
        !it["metadata"]["deletionTimestamp"].is_null() && finalizers.into_iter().any(|it| it == FOREGROUND)
    };
    let closes = owners(&before) != owners(&after) || (!waits(&before) && waits(&after));
    let uid = after["metadata"]["uid"].as_str().unwrap_or_default();
    let somebody_waits = || book.objects.values().any(|it| it.stand() == Stand::Waits && it.uid != uid);
    if write.by == "world" && write.before().is_some() && closes && somebody_waits() {
        book.closed.insert(uid.to_owned());
    }
}

/// An owner may be kept by other finalizers after its orphan finalizer was removed. When it is deleted again with
/// Foreground, its dependents are deleted.
fn changes_its_mind(book: &mut Book, write: &Write) {
    let after = write.after().unwrap_or_default();
    let uid = after["metadata"]["uid"].as_str().unwrap_or_default();
    let waits = book.objects.get(uid).is_some_and(|it| it.stand() == Stand::Waits);
    if waits && book.orphaned.remove(uid).is_some() {
        book.orphaned_once.insert(uid.to_owned());
    }
}

/// One process must not delete more objects per minute than allowed.
fn breaker(book: &Book, by: &str, now: Instant) -> Held {
    let Some(most) = book.most else { return Ok(()) };
    let lately = book.deletions.get(by).into_iter().flatten().filter(|it| **it + MINUTE > now).count();
    if lately > most { Err(format!("{lately} deletions in a minute, and {most} are allowed")) } else { Ok(()) }
}

impl Deed<'_> {
    /// Checks the start of a deletion.
    fn deletes(&self) -> Held {
        let Self { book, by, before, after, now } = self;
        if before.refs.is_empty() {
            return Err("it has no owners, and is deleted".to_owned());
        }
        // A dependent with other owners may be deleted with those.
        let left_by =
            |it: &Ref| book.orphaned.get(&it.uid).is_some_and(|who| who == by) && book.meant(before, it).is_some();
        if before.refs.iter().all(left_by) {
            let names: Vec<&str> = before.refs.iter().map(|it| &*it.name).collect();
            return Err(format!("it was left on purpose by its owners, {}, and is deleted", names.join(" and ")));
        }
        for it in &before.refs {
            match book.owner(before, it) {
                Owner::Is(owner) if !owner.stood(Stand::Waits, *now) => {
                    return Err(format!("it has an owner that lives, {owner}, and is deleted"));
                }
                Owner::Unprovable => {
                    return Err(format!("nobody can know of its owner {}, and it is deleted", it.kind));
                }
                Owner::Is(_) | Owner::None => {}
            }
        }
        if after.refs != before.refs || (after.has(ORPHAN) && !before.has(ORPHAN)) {
            return Err("more than its deletion is written".to_owned());
        }
        self.keeps_order()
    }

    /// A dependent of an owner that waits must be deleted with Foreground when it has dependents of its own.
    fn keeps_order(&self) -> Held {
        let Self { book, by: _, before, after, now } = self;
        let waits = |it: &Ref| matches!(book.owner(before, it), Owner::Is(owner) if owner.stand() == Stand::Waits && !owner.held(*now));
        if after.has(FOREGROUND) || after.has(ORPHAN) || !before.refs.iter().any(waits) {
            return Ok(());
        }
        match self.known_dependents(|_| true, Hidden::Forgotten) {
            Some(it) => Err(format!("its owner waits, and it goes before {it}, which it owns")),
            None => Ok(()),
        }
    }

    /// Checks a change of an object, or the removal of its last finalizer.
    fn changes(&self, old: &Value, new: Option<&Value>, change: Change) -> Held {
        let Self { before, after, .. } = self;
        if let Some(it) = before.finalizers.iter().find(|it| !after.has(it) && *it != ORPHAN && *it != FOREGROUND) {
            return Err(format!("{it} is no finalizer of its own, and is taken"));
        }
        if let Some(it) = after.finalizers.iter().find(|it| !before.has(it)) {
            return Err(format!("{it} is put on it"));
        }
        if change != Change::Removed && new.is_some_and(|new| rest(old) != rest(new)) {
            return Err("more than its owners and finalizers is changed".to_owned());
        }
        let lost = |finalizer: &str| before.has(finalizer) && !after.has(finalizer);
        if (lost(ORPHAN) || lost(FOREGROUND)) && !before.deleting {
            return Err("it loses a finalizer, and is not being deleted".to_owned());
        }
        if lost(ORPHAN) {
            self.orphans()?;
        }
        if lost(FOREGROUND) {
            self.finishes()?;
        }
        self.frees()
    }

    /// Checks the removal of the finalizer `orphan` from an owner.
    fn orphans(&self) -> Held {
        if let Some(it) = self.known_dependents(|_| true, Hidden::Forgotten) {
            return Err(format!("it is let go as if orphaned, and {it} still names it"));
        }
        self.has_looked(|_| true)
    }

    /// Checks the removal of the finalizer `foregroundDeletion` from an owner.
    fn finishes(&self) -> Held {
        // A dependent that is no longer watched still blocks the owner.
        if let Some(it) = self.known_dependents(|it| it.blocks, Hidden::Kept) {
            return Err(format!("it is let go before {it}, which keeps it"));
        }
        self.has_looked(|it| it.blocks)
    }

    /// Checks the removal of references, and the change of references to non-blocking ones.
    fn frees(&self) -> Held {
        let Self { book, before, after, now, .. } = self;
        if let Some(it) = after.refs.iter().find(|new| !before.refs.iter().any(|it| it.is_for(new))) {
            return Err(format!("an owner is put on it, {}", it.name));
        }
        let taken = before.refs.iter().filter(|old| !after.refs.iter().any(|it| it.is_for(old)));
        let mut must_stay = false;
        for it in taken {
            // Removing a reference to an orphaning owner is always safe, also when the process observed the orphaning
            // long ago.
            let orphans = book.objects.get(&it.uid).is_some_and(|it| it.stood_once(Stand::Orphans));
            match book.owner(before, it) {
                _ if orphans || book.orphaned.contains_key(&it.uid) || book.orphaned_once.contains(&it.uid) => {}
                Owner::Is(owner) if owner.stood(Stand::Waits, *now) => must_stay = true,
                Owner::Is(owner) => return Err(format!("{owner} lives, and is taken from its owners")),
                Owner::Unprovable => return Err(format!("nobody can know of its owner {}, and it is taken", it.kind)),
                Owner::None => must_stay = true,
            }
        }
        // One reference to a real owner must remain. That owner may be deleted by now, because a frozen process may
        // have a stale view of it. The collector then checks the object again for this reference.
        let holds = |it: &Ref| book.meant(before, it).is_some();
        if must_stay && !after.refs.iter().any(holds) {
            let name = |it: &Ref| format!("{} {}", it.kind, it.name);
            let names = |refs: &[Ref]| refs.iter().map(name).collect::<Vec<_>>().join(" and ");
            let (had, has) = (names(&before.refs), names(&after.refs));
            return Err(format!("it had {had}, and is left with [{has}], none of whom holds it"));
        }
        self.unblocks()
    }

    fn unblocks(&self) -> Held {
        let Self { book, before, after, now, .. } = self;
        let flipped = |old: &&Ref| after.refs.iter().any(|new| new.is_for(old) && new.blocks != old.blocks);
        if !before.refs.iter().any(|it| flipped(&it)) {
            return Ok(());
        }
        for it in &before.refs {
            if let Owner::Is(owner) = book.owner(before, it)
                && !owner.stood(Stand::Waits, *now)
            {
                return Err(format!("{owner} lives, and it keeps it no more"));
            }
        }
        Ok(())
    }

    /// A dependent with such a reference that the acting process has observed.
    fn known_dependents(&self, how: impl Fn(&Ref) -> bool, hidden: Hidden) -> Option<&Object> {
        let Self { book, by, before, now, .. } = self;
        book.dependents(&before.uid).find(|it| {
            let named = it.refs.iter().filter(|at| at.uid == before.uid && how(at));
            let meant = |at: &Ref| matches!(book.owner(it, at), Owner::Is(owner) if owner.uid == before.uid);
            let mut known = named
                .filter(|at| meant(at))
                .map(|at| book.shown.knows(by, it.group(), &it.uid, at.since, *now, hidden));
            known.any(|it| it)
        })
    }

    /// Soon after the start of its term a process must not remove the finalizer of an owner before two conditions hold.
    /// It has listed every type that may have dependents. And it was shown every dependent that existed when the term
    /// began, because a watch from before the term may have failed silently.
    fn has_looked(&self, how: impl Fn(&Ref) -> bool) -> Held {
        let Self { book, by, before, now, .. } = self;
        let (Some((term, version)), Some(began)) = (book.terms.get(*by), book.shown.began(by)) else { return Ok(()) };
        if *term + PATIENCE <= *now || !book.shown.discovery_was_sure(began) {
            return Ok(());
        }
        let old = |at: Option<Instant>| at.is_none_or(|it| it + SETTLED <= began);
        let unseen = book.dependents(&before.uid).find(|it| {
            let meant = |at: &&Ref| {
                let is_owner = matches!(book.owner(it, at), Owner::Is(owner) if owner.uid == before.uid);
                at.uid == before.uid && how(at) && is_owner
            };
            let is_unseen = |at: &Ref| {
                let unlisted = old(it.made) && !book.shown.is_whole(by, it.resource());
                unlisted || (at.since <= *version && !book.shown.was_shown(by, &it.uid, at.since))
            };
            old(book.served_since(it)) && it.refs.iter().filter(meant).any(is_unseen)
        });
        match unseen {
            Some(it) => Err(format!("it is let go {:?} into the term, and {it} was not looked at", *now - *term)),
            None => Ok(()),
        }
    }
}

/// The object without the fields that the collector may change, and without those that the server sets.
fn rest(object: &Value) -> Value {
    let mut rest = object.clone();
    let taken = ["ownerReferences", "finalizers", "resourceVersion", "generation", "managedFields"];
    if let Some(metadata) = rest["metadata"].as_object_mut() {
        metadata.retain(|it, _| !taken.contains(&it.as_str()));
    }
    rest
}
