//! Caches proofs that owners are gone, up to a fixed number of entries.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
};

use api::{Atom, Uid};
use parking_lot::Mutex;

use crate::{evidence::Gone, graph::Coordinates};

/// The size of upstream's `absentOwnerCache`.
const ABSENT: usize = 500;
/// Dependents that appear late do so within minutes. Ten thousand uids need a few hundred kilobytes.
const ORPHANED: usize = 10_000;

/// Proofs kept for one uid. If dependents claim more coordinates than this, only the last are kept, and the others are
/// requested again.
const CLAIMS: usize = 16;

/// Owners that are proved gone, by uid, and for each the coordinates of the proof. A reference with the right uid but a
/// wrong kind, name or namespace proves nothing about the right coordinates. If dependents in the graph name the owner,
/// the graph keeps the proof; this cache serves dependents that are not observed yet. Entries do not expire, because
/// the server never reuses a uid. Only a restore of etcd can bring an object back: all proofs of a uid are removed when
/// the object is observed.
pub(crate) struct Absent(Mutex<Lru<Uid, Absences>>);

impl Default for Absent {
    fn default() -> Self {
        Self(Mutex::new(Lru::new(ABSENT)))
    }
}

impl Absent {
    /// The proof that the claimed object is gone, either as a cluster-scoped object or in the namespace of its
    /// dependent.
    pub(crate) fn of(&self, claim: &Coordinates) -> Option<Gone> {
        self.0.lock().get(&claim.uid)?.of(claim).cloned()
    }

    pub(crate) fn remember(&self, gone: Gone) {
        let uid = gone.owner().uid.clone();
        let mut lru = self.0.lock();
        match lru.get_mut(&uid) {
            Some(absences) if absences.0.len() < CLAIMS => absences.insert(gone),
            _ => lru.insert(uid, Absences(vec![gone])),
        }
    }

    /// Removes all proofs of a uid, because the object was observed.
    pub(crate) fn forget(&self, shown: &Uid) {
        self.0.lock().remove(shown);
    }

    /// Removes everything, because every object may exist again.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Lru::new(ABSENT);
    }
}

/// The proofs of one uid, sorted by coordinates: at these coordinates, which dependents claim, no such object exists.
#[derive(Default)]
pub(crate) struct Absences(Vec<Gone>);

impl Absences {
    /// The proof that the claimed object is gone, whether its type is namespaced or not.
    pub(crate) fn of(&self, claim: &Coordinates) -> Option<&Gone> {
        let at = |it: &Coordinates| self.0.binary_search_by(|gone| gone.owner().cmp(it)).ok();
        let found = at(claim).or_else(|| at(&Coordinates { namespace: Atom::default(), ..claim.clone() }));
        self.0.get(found?)
    }

    pub(crate) fn insert(&mut self, gone: Gone) {
        if let Err(place) = self.0.binary_search_by(|it| it.owner().cmp(gone.owner())) {
            // Usually there is only one proof, so reserve no spare capacity.
            self.0.reserve_exact(usize::from(self.0.is_empty()));
            self.0.insert(place, gone);
        }
    }

    /// Keeps only the proofs that these claims need.
    pub(crate) fn retain<'a>(&mut self, claims: impl IntoIterator<Item = &'a Coordinates>) {
        let mut kept = Self::default();
        for gone in claims.into_iter().filter_map(|it| self.of(it)) {
            kept.insert(gone.clone());
        }
        *self = kept;
    }
}

/// Owners whose dependents this process orphaned. A dependent that is observed late must stay too.
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

    /// Removes everything after a restore of etcd, because the owners may exist again.
    pub(crate) fn clear(&self) {
        *self.0.lock() = Lru::new(ORPHANED);
    }

    /// Removes an owner, because it is deleted in another way after all.
    pub(crate) fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

/// A table that removes the least recently used entry when it is full.
struct Lru<K, V> {
    capacity: usize,
    /// The counter of uses.
    now: u64,
    entries: HashMap<Arc<K>, (u64, V)>,
    by_use: BTreeMap<u64, Arc<K>>,
}

impl<K: Eq + Hash, V> Lru<K, V> {
    fn new(capacity: usize) -> Self {
        Self { capacity, now: 0, entries: HashMap::new(), by_use: BTreeMap::new() }
    }

    /// Returns the value of `key` and marks it as used.
    fn get(&mut self, key: &K) -> Option<&V> {
        self.get_mut(key).map(|it| &*it)
    }

    fn get_mut(&mut self, key: &K) -> Option<&mut V> {
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
        lru.insert("c", 3); // Evicts b.
        lru.insert("c", 4); // Replaces its own entry.
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

    #[test]
    fn what_is_seen_is_gone_by_none_of_its_names() {
        let absent = Absent::default();
        let claims = [("v1", "x", "a"), ("v1beta1", "x", "a"), ("v1", "wrong", "a"), ("v1", "x", "")];
        let claims = claims.map(|(version, name, namespace)| {
            let by = OwnerRef { api_version: version.into(), uid: Uid::new("x"), ..reference(name, "Pod") };
            Coordinates::claimed(&by, &namespace.into())
        });
        claims.iter().for_each(|it| absent.remember(Gone::told(it.clone())));
        absent.remember(gone("y", "a"));
        assert!(claims.iter().all(|it| absent.of(it).is_some()));
        absent.forget(&Uid::new("x"));
        assert!(claims.iter().all(|it| absent.of(it).is_none()));
        assert!(absent.of(gone("y", "a").owner()).is_some(), "another uid");
        absent.clear();
        assert!(absent.of(gone("y", "a").owner()).is_none());
    }

    #[test]
    fn an_owner_that_is_claimed_in_countless_ways_takes_no_more_room_than_others() {
        let absent = Absent::default();
        let claim = |number: usize| {
            let by = OwnerRef { uid: Uid::new("x"), ..reference(&format!("name-{number}"), "Pod") };
            Coordinates::claimed(&by, &"a".into())
        };
        for number in 0..10 * CLAIMS + 3 {
            absent.remember(Gone::told(claim(number)));
            assert!(absent.of(&claim(number)).is_some());
            assert!(absent.0.lock().get(&Uid::new("x")).unwrap().0.len() <= CLAIMS);
        }
    }
}
