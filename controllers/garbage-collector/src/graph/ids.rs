//! A set of node ids. A few are stored inline, many in a hash table. So memory is small for one object and for an owner
//! of a hundred thousand.

use hashbrown::HashTable;

/// The place of a node in the slab. It is reused after the node is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id(pub(super) u32);

/// This many ids fit in the space of the pointer to a table, next to the length.
const FEW: usize = 3;

/// Lookup, insertion and removal take constant time.
#[derive(Debug)]
pub(super) enum Ids {
    Few { len: u8, ids: [Id; FEW] },
    Many(Box<HashTable<Id>>),
}

impl Default for Ids {
    fn default() -> Self {
        Self::Few { len: 0, ids: [Id(0); FEW] }
    }
}

impl Ids {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few { len, .. } => usize::from(*len),
            Self::Many(table) => table.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn contains(&self, id: Id) -> bool {
        match self {
            Self::Few { .. } => self.few().contains(&id),
            Self::Many(table) => table.find(hash(id), |it| is(*it, id)).is_some(),
        }
    }

    /// False if it was in the set already.
    pub(super) fn insert(&mut self, id: Id) -> bool {
        if self.contains(id) {
            return false;
        }
        match self {
            Self::Few { len, ids } => match ids.get_mut(usize::from(*len)) {
                Some(place) => {
                    *place = id;
                    *len += 1;
                }
                None => {
                    let mut table = HashTable::with_capacity(2 * FEW);
                    for it in ids.iter().copied().chain([id]) {
                        table.insert_unique(hash(it), it, |it| hash(*it));
                    }
                    *self = Self::Many(Box::new(table));
                }
            },
            Self::Many(table) => {
                table.insert_unique(hash(id), id, |it| hash(*it));
            }
        }
        true
    }

    /// False if it was not in the set.
    pub(super) fn remove(&mut self, id: Id) -> bool {
        match self {
            Self::Few { len, ids } => {
                let used = usize::from(*len);
                let Some(at) = ids.iter().take(used).position(|it| is(*it, id)) else { return false };
                // The last id takes its place.
                ids.swap(at, used - 1);
                *len -= 1;
            }
            Self::Many(table) => {
                let Ok(found) = table.find_entry(hash(id), |it| is(*it, id)) else { return false };
                found.remove();
                if table.is_empty() {
                    *self = Self::default();
                } else if table.capacity() > 32 && 8 * table.len() < table.capacity() {
                    // Otherwise iteration over the rest would take as long as over the former content.
                    table.shrink_to(2 * table.len(), |it| hash(*it));
                }
            }
        }
        true
    }

    /// All ids. The order is unspecified, but equal after equal histories.
    pub(super) fn iter(&self) -> impl Iterator<Item = Id> {
        let many = match self {
            Self::Few { .. } => None,
            Self::Many(table) => Some(table.iter().copied()),
        };
        self.few().iter().copied().chain(many.into_iter().flatten())
    }

    /// The size of the heap memory.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        use super::tests::given;
        match self {
            Self::Few { .. } => 0,
            Self::Many(table) => given(size_of_val(&**table)) + given(table.allocation_size()),
        }
    }

    fn few(&self) -> &[Id] {
        match self {
            Self::Few { len, ids } => ids.get(..usize::from(*len)).unwrap_or_default(),
            Self::Many(_) => &[],
        }
    }
}

fn is(one: Id, other: Id) -> bool {
    steps::count();
    one == other
}

/// Ids are assigned in sequence. The multiplication spreads them over the upper bits, which the table also uses, and
/// keeps them distinct in the lower bits.
fn hash(id: Id) -> u64 {
    u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Counts the lookups, for tests. A measured time would depend on the machine.
pub(super) mod steps {
    #[cfg(test)]
    thread_local! {
        static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    pub(in super::super) fn count() {
        #[cfg(test)]
        TAKEN.set(TAKEN.get() + 1);
    }

    #[cfg(test)]
    pub(in super::super) fn taken() -> u64 {
        TAKEN.get()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_behave_like_a_set(changes in proptest::collection::vec((any::<bool>(), 0u32..40), 0..200)) {
            let (mut ids, mut naive) = (Ids::default(), BTreeSet::new());
            for (add, id) in changes {
                if add {
                    prop_assert_eq!(ids.insert(Id(id)), naive.insert(id));
                } else {
                    prop_assert_eq!(ids.remove(Id(id)), naive.remove(&id));
                }
                prop_assert_eq!(ids.contains(Id(id)), naive.contains(&id));
                prop_assert_eq!((ids.len(), ids.is_empty()), (naive.len(), naive.is_empty()));
                let all: BTreeSet<u32> = ids.iter().map(|it| it.0).collect();
                prop_assert_eq!((ids.iter().count(), &all), (naive.len(), &naive));
            }
        }
    }

    #[test]
    fn a_shrunken_set_uses_little_memory() {
        let mut ids = Ids::default();
        for id in 0..10_000 {
            ids.insert(Id(id));
        }
        for id in 10..10_000 {
            ids.remove(Id(id));
        }
        let Ids::Many(table) = &ids else { panic!("ten are many") };
        assert!(table.capacity() <= 32 || table.capacity() <= 8 * 10, "{}", table.capacity());
        assert_eq!(ids.len(), 10);
        assert_eq!(size_of::<Ids>(), 16);
    }
}
