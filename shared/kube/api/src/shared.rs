//! Shares equal sets of labels, owners and finalizers, because many objects have the same ones.

use std::{
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    sync::{Arc, Weak},
};

use hashbrown::{HashTable, hash_table::Entry};
use parking_lot::Mutex;

use crate::{Atom, OwnerRef, Toleration};

/// The element of sets that are shared in the whole process.
pub(crate) trait Shareable: Hash + Eq + Sized + 'static {
    /// The table of all sets of this element.
    fn table() -> &'static Table<Self>;
}

/// Implements [`Shareable`]: one table for each element type.
macro_rules! shareable {
    ($($element:ty),+) => {$(
        impl Shareable for $element {
            fn table() -> &'static Table<Self> {
                static TABLE: Table<$element> = Table::new();
                &TABLE
            }
        }
    )+};
}

shareable!(Atom, (Atom, Atom), OwnerRef, Toleration);

/// Returns the shared set of these elements, in this order.
pub(crate) fn share<T: Shareable>(elements: Vec<T>) -> Arc<[T]> {
    if elements.is_empty() { Arc::default() } else { T::table().share(elements) }
}

/// A table of sets by content. It has weak references, so a set is freed with its last user.
pub(crate) struct Table<T: 'static> {
    shards: [Mutex<Shard<T>>; SHARDS],
}

/// Enough to make lock contention between decoders on a few cores rare.
const SHARDS: usize = 16;

/// Below this number of sets the removal of freed sets is not worth its cost.
const SMALL: usize = 32;

struct Shard<T: 'static> {
    sets: HashTable<SharedSet<T>>,
    /// The number of look-ups since freed sets were last removed.
    lookups: usize,
}

/// The hash is stored, because it cannot be computed for a freed set.
struct SharedSet<T: 'static> {
    hash: u64,
    set: Weak<[T]>,
}

impl<T: Hash + Eq> Table<T> {
    const fn new() -> Self {
        Self { shards: [const { Mutex::new(Shard { sets: HashTable::new(), lookups: 0 }) }; SHARDS] }
    }

    fn share(&self, elements: Vec<T>) -> Arc<[T]> {
        let hash = BuildHasherDefault::<DefaultHasher>::new().hash_one(&elements);
        // The upper half selects the shard, because the hash table uses the lower bits and the top seven.
        let mut shard = self.shards[(hash >> 32) as usize % SHARDS].lock();
        shard.remove_freed();
        // A freed set with this hash is replaced.
        let equal = |it: &SharedSet<T>| it.hash == hash && it.set.upgrade().is_none_or(|set| *set == *elements);
        match shard.sets.entry(hash, equal, |it| it.hash) {
            Entry::Occupied(found) => match found.get().set.upgrade() {
                Some(set) => set,
                None => {
                    let set: Arc<[T]> = elements.into();
                    found.into_mut().set = Arc::downgrade(&set);
                    set
                }
            },
            Entry::Vacant(free) => {
                let set: Arc<[T]> = elements.into();
                free.insert(SharedSet { hash, set: Arc::downgrade(&set) });
                set
            }
        }
    }
}

impl<T> Shard<T> {
    /// Runs once in half as many look-ups as there are sets. So each look-up pays for two sets, and at most half of the
    /// sets are freed ones.
    fn remove_freed(&mut self) {
        self.lookups += 1;
        if 2 * self.lookups > self.sets.len().max(SMALL) {
            self.lookups = 0;
            self.sets.retain(|it| it.set.strong_count() > 0);
            self.sets.shrink_to(2 * self.sets.len(), |it| it.hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T> Table<T> {
        fn stored_sets(&self) -> usize {
            self.shards.iter().map(|it| it.lock().sets.len()).sum()
        }
    }

    #[test]
    fn equal_sets_are_shared_and_others_are_not() {
        let table: Table<u32> = Table::new();
        let (one, same, reversed) = (table.share(vec![1, 2]), table.share(vec![1, 2]), table.share(vec![2, 1]));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &reversed));
        assert_eq!((&*one, &*reversed, table.stored_sets()), (&[1, 2][..], &[2, 1][..], 2));
    }

    #[test]
    fn freed_set_is_created_again() {
        let table: Table<u32> = Table::new();
        drop(table.share(vec![1, 2]));
        assert_eq!((&*table.share(vec![1, 2]), table.stored_sets()), (&[1, 2][..], 1));
    }

    #[test]
    fn table_size_is_bounded_by_the_sets_in_use() {
        let table: Table<u32> = Table::new();
        let kept: Vec<_> = (0..1_000).map(|it| table.share(vec![it])).collect();
        for it in 1_000..200_000 {
            table.share(vec![it]);
        }
        // At most as many freed sets as sets in use in each shard, plus the few below `SMALL`.
        let most = 2 * kept.len() + 2 * SHARDS * SMALL;
        assert!(table.stored_sets() <= most, "{} of at most {most}", table.stored_sets());
        for (it, set) in (0..).zip(&kept) {
            assert!(Arc::ptr_eq(set, &table.share(vec![it])));
        }
        drop(kept);
        for _ in 0..200_000 {
            table.share(vec![7]);
        }
        assert!(table.stored_sets() <= 2 * SHARDS * SMALL + 1_000, "{}", table.stored_sets());
    }
}
