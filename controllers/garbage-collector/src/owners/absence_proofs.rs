//! Caches proofs that owners are gone, up to a fixed number of entries.

use std::num::NonZeroUsize;

use api::{Atom, Uid};
use lru::LruCache;
use parking_lot::Mutex;

use crate::{graph::Coordinates, rules::evidence::Gone};

/// The size of upstream's `absentOwnerCache`.
const ABSENCE_CACHE_SIZE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(499);
/// Dependents that appear late do so within minutes. Ten thousand uids need a few hundred kilobytes.
const ORPHANED_OWNERS_SIZE: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

/// Proofs kept for one uid. If dependents claim more coordinates than this, only the last are kept, and the others are
/// requested again.
const MAX_PROOFS_PER_UID: usize = 16;

/// Owners that are proved gone, by uid, and for each the coordinates of the proof. A reference with the right uid but a
/// wrong kind, name or namespace proves nothing about the right coordinates. If dependents in the graph name the owner,
/// the graph keeps the proof; this cache serves dependents that are not observed yet. Entries do not expire, because
/// the server never reuses a uid. Only a restore of etcd can bring an object back: all proofs of a uid are removed when
/// the object is observed.
pub(crate) struct AbsenceCache(Mutex<LruCache<Uid, AbsenceProofs>>);

impl Default for AbsenceCache {
    fn default() -> Self {
        Self(Mutex::new(empty_cache(ABSENCE_CACHE_SIZE)))
    }
}

impl AbsenceCache {
    /// The proof that the referenced object is gone, either as a cluster-scoped object or in the namespace of its
    /// dependent.
    pub(crate) fn get(&self, claim: &Coordinates) -> Option<Gone> {
        self.0.lock().get(&claim.uid)?.get(claim).cloned()
    }

    pub(crate) fn insert(&self, gone: Gone) {
        let uid = gone.owner().uid.clone();
        let mut lru = self.0.lock();
        match lru.get_mut(&uid) {
            Some(proofs) if proofs.0.len() < MAX_PROOFS_PER_UID => proofs.insert(gone),
            _ => drop(lru.put(uid, AbsenceProofs(vec![gone]))),
        }
    }

    /// Removes all proofs of a uid, because the object was observed.
    pub(crate) fn remove(&self, shown: &Uid) {
        self.0.lock().pop(shown);
    }

    /// Removes everything, because every object may exist again.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

/// The proofs of one uid, sorted by coordinates: at these coordinates, which dependents claim, no such object exists.
#[derive(Default)]
pub(crate) struct AbsenceProofs(Vec<Gone>);

impl AbsenceProofs {
    /// The proof that the referenced object is gone, whether its type is namespaced or not.
    pub(crate) fn get(&self, claim: &Coordinates) -> Option<&Gone> {
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
        for gone in claims.into_iter().filter_map(|it| self.get(it)) {
            kept.insert(gone.clone());
        }
        *self = kept;
    }
}

/// Owners whose dependents this process orphaned, and whether the owner also had the foreground finalizer then. A
/// dependent that is observed late must stay too.
pub(crate) struct OrphanedOwners(Mutex<LruCache<Uid, bool>>);

impl Default for OrphanedOwners {
    fn default() -> Self {
        Self(Mutex::new(empty_cache(ORPHANED_OWNERS_SIZE)))
    }
}

impl OrphanedOwners {
    pub(crate) fn contains(&self, owner: &Uid) -> bool {
        self.0.lock().get(owner).is_some()
    }

    pub(crate) fn insert(&self, owner: Uid, had_foreground: bool) {
        self.0.lock().put(owner, had_foreground);
    }

    /// Removes everything after a restore of etcd, because the owners may exist again.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// The owner waits for its dependents. Unless it did so already when they were orphaned, it was deleted again in
    /// another way, and the last request counts.
    pub(crate) fn on_foreground(&self, owner: &Uid) {
        let mut owners = self.0.lock();
        if owners.peek(owner) == Some(&false) {
            owners.pop(owner);
        }
    }
}

/// `LruCache::new` would allocate the memory of all entries now.
fn empty_cache<V>(size: NonZeroUsize) -> LruCache<Uid, V> {
    let mut cache = LruCache::unbounded();
    cache.resize(size);
    cache
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
        Gone::from_deleted_event(Coordinates::referenced(&reference(name, "Pod"), &namespace.into()))
    }

    #[test]
    fn acceptance_gc_008_five_hundred_owners_are_cached_and_recently_used_ones_stay() {
        let cache = AbsenceCache::default();
        for number in 0..=ABSENCE_CACHE_SIZE.get() {
            cache.insert(gone(&format!("owner-{number}"), "a"));
        }
        let namespace = Atom::from("a");
        let known = |number: usize| {
            let claim = Coordinates::referenced(&reference(&format!("owner-{number}"), "Pod"), &namespace);
            cache.get(&claim).is_some()
        };
        assert!(!known(0) && known(1));
        cache.insert(gone("one-more", "a"));
        assert!(known(1) && !known(2), "a lookup counts as a use");
    }

    #[test]
    fn a_proof_is_found_only_by_matching_coordinates() {
        let cache = AbsenceCache::default();
        cache.insert(gone("x", "a"));
        cache.insert(gone("cluster", ""));
        let known = |name: &str, kind: &str, namespace: &str| {
            cache.get(&Coordinates::referenced(&reference(name, kind), &namespace.into())).is_some()
        };
        assert!(known("x", "Pod", "a"));
        assert!(!known("x", "Pod", "b"), "another namespace");
        assert!(!known("x", "Pod", ""), "no namespace");
        assert!(!known("x", "Secret", "a"), "another kind");
        assert!(known("cluster", "Pod", "a"), "cluster-scoped, for objects of any namespace");
        assert!(known("cluster", "Pod", ""));
    }

    #[test]
    fn an_observed_object_loses_all_its_absence_proofs() {
        let cache = AbsenceCache::default();
        let claims = [("v1", "x", "a"), ("v1beta1", "x", "a"), ("v1", "wrong", "a"), ("v1", "x", "")];
        let claims = claims.map(|(version, name, namespace)| {
            let by = OwnerRef { api_version: version.into(), uid: Uid::new("x"), ..reference(name, "Pod") };
            Coordinates::referenced(&by, &namespace.into())
        });
        claims.iter().for_each(|it| cache.insert(Gone::from_deleted_event(it.clone())));
        cache.insert(gone("y", "a"));
        assert!(claims.iter().all(|it| cache.get(it).is_some()));
        cache.remove(&Uid::new("x"));
        assert!(claims.iter().all(|it| cache.get(it).is_none()));
        assert!(cache.get(gone("y", "a").owner()).is_some(), "another uid");
        cache.clear();
        assert!(cache.get(gone("y", "a").owner()).is_none());
    }

    #[test]
    fn the_number_of_proofs_per_owner_is_limited() {
        let cache = AbsenceCache::default();
        let claim = |number: usize| {
            let by = OwnerRef { uid: Uid::new("x"), ..reference(&format!("name-{number}"), "Pod") };
            Coordinates::referenced(&by, &"a".into())
        };
        for number in 0..10 * MAX_PROOFS_PER_UID + 3 {
            cache.insert(Gone::from_deleted_event(claim(number)));
            assert!(cache.get(&claim(number)).is_some());
            assert!(cache.0.lock().get(&Uid::new("x")).unwrap().0.len() <= MAX_PROOFS_PER_UID);
        }
    }
}
