//! What was learned of owners that are gone, for as long as there is room.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
};

use api::{Atom, Uid};
use parking_lot::Mutex;

use crate::{evidence::Gone, graph::Coordinates};

/// As upstream.
const ABSENT: usize = 500;
/// Late dependents come within minutes; ten thousand uids are a few hundred kilobytes, and only after as many orphanings.
const ORPHANED: usize = 10_000;

/// Owners that were proved gone, by all that names them: references of equal uid and wrong kind, name or namespace say
/// nothing about the right ones. Nothing expires: the server never gives a uid twice. What dependents name that the graph
/// shows is kept there; here it is for those that are not shown yet, or come later.
pub(crate) struct Absent(Mutex<Lru<Coordinates, Gone>>);

impl Default for Absent {
    fn default() -> Self {
        Self(Mutex::new(Lru::new(ABSENT)))
    }
}

impl Absent {
    /// The proof that what is claimed is gone, be it cluster-scoped or of the namespace where its dependent lives.
    pub(crate) fn of(&self, claim: &Coordinates) -> Option<Gone> {
        let mut lru = self.0.lock();
        if let Some(gone) = lru.get(claim) {
            return Some(gone.clone());
        }
        lru.get(&Coordinates { namespace: Atom::default(), ..claim.clone() }).cloned()
    }

    pub(crate) fn remember(&self, gone: Gone) {
        self.0.lock().insert(gone.owner().clone(), gone);
    }

    /// It is there after all.
    pub(crate) fn forget(&self, shown: &Coordinates) {
        self.0.lock().remove(shown);
    }
}

/// Owners whose dependents this process orphaned: one that shows up late was to stay as well.
pub(crate) struct Orphaned(Mutex<Lru<Uid, ()>>);

impl Default for Orphaned {
    fn default() -> Self {
        Self(Mutex::new(Lru::new(ORPHANED)))
    }
}

impl Orphaned {
    pub(crate) fn has(&self, owner: &Uid) -> bool {
        self.0.lock().get(owner).is_some()
    }

    pub(crate) fn remember(&self, owner: Uid) {
        self.0.lock().insert(owner, ());
    }

    /// It was not orphaned after all.
    pub(crate) fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

/// A table that forgets what was not used for longest once it is full.
struct Lru<K, V> {
    capacity: usize,
    /// Counts uses.
    now: u64,
    entries: HashMap<Arc<K>, (u64, V)>,
    by_use: BTreeMap<u64, Arc<K>>,
}

impl<K: Eq + Hash, V> Lru<K, V> {
    fn new(capacity: usize) -> Self {
        Self { capacity, now: 0, entries: HashMap::new(), by_use: BTreeMap::new() }
    }

    /// The value of `key`, used just now.
    fn get(&mut self, key: &K) -> Option<&V> {
        let (used, value) = self.entries.get_mut(key)?;
        if let Some(key) = self.by_use.remove(used) {
            self.now += 1;
            *used = self.now;
            self.by_use.insert(self.now, key);
        }
        Some(value)
    }

    fn remove(&mut self, key: &K) {
        if let Some((used, _)) = self.entries.remove(key) {
            self.by_use.remove(&used);
        }
    }

    fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        if self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.now += 1;
        let key = Arc::new(key);
        self.by_use.insert(self.now, key.clone());
        self.entries.insert(key, (self.now, value));
    }
}

#[cfg(test)]
mod tests {
    use api::OwnerRef;

    use super::*;

    fn reference(name: &str, kind: &str) -> OwnerRef {
        OwnerRef {
            api_version: "v1".into(),
            kind: kind.into(),
            name: name.into(),
            uid: Uid::new(name),
            controller: false,
            block_owner_deletion: false,
        }
    }

    fn gone(name: &str, namespace: &str) -> Gone {
        Gone::told(Coordinates::claimed(&reference(name, "Pod"), &namespace.into()))
    }

    #[test]
    fn acceptance_gc_008_a_full_table_forgets_what_was_not_used_for_longest() {
        let mut lru = Lru::new(2);
        lru.insert("a", 1);
        lru.insert("b", 2);
        assert_eq!(lru.get(&"a"), Some(&1));
        lru.insert("c", 3); // Forgets b.
        lru.insert("c", 4); // Takes its own place.
        assert_eq!(["a", "b", "c"].map(|it| lru.get(&it).copied()), [Some(1), None, Some(4)]);
        assert_eq!((lru.entries.len(), lru.by_use.len()), (2, 2));
    }

    #[test]
    fn acceptance_gc_008_five_hundred_owners_are_remembered_and_who_is_used_longest() {
        let absent = Absent::default();
        for number in 0..=ABSENT {
            absent.remember(gone(&format!("owner-{number}"), "a"));
        }
        let namespace = Atom::from("a");
        let known = |number: usize| {
            let claim = Coordinates::claimed(&reference(&format!("owner-{number}"), "Pod"), &namespace);
            absent.of(&claim).is_some()
        };
        assert!(!known(0) && known(1));
        absent.remember(gone("one-more", "a"));
        assert!(known(1) && !known(2), "to be asked for is a use");
    }

    #[test]
    fn an_owner_is_known_by_all_that_names_it() {
        let absent = Absent::default();
        absent.remember(gone("x", "a"));
        absent.remember(gone("cluster", ""));
        let known = |name: &str, kind: &str, namespace: &str| {
            absent.of(&Coordinates::claimed(&reference(name, kind), &namespace.into())).is_some()
        };
        assert!(known("x", "Pod", "a"));
        assert!(!known("x", "Pod", "b"), "another namespace");
        assert!(!known("x", "Pod", ""), "no namespace");
        assert!(!known("x", "Secret", "a"), "another kind");
        assert!(known("cluster", "Pod", "a"), "cluster-scoped, for objects of any namespace");
        assert!(known("cluster", "Pod", ""));
    }
}
