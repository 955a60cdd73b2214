//! A set of nodes: few lie in the set itself, many in a table, so that neither an object alone nor an owner of a hundred
//! thousand costs more than it must.

use hashbrown::HashTable;

/// A node's place in the slab, free for another once the node is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id(pub(super) u32);

/// As many as lie beside the length in the place that the pointer to a table would take anyway.
const FEW: usize = 3;

/// Looking up, adding and removing take the same time however many there are.
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

    /// False if it was there already.
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

    /// False if it was not there.
    pub(super) fn remove(&mut self, id: Id) -> bool {
        match self {
            Self::Few { len, ids } => {
                let used = usize::from(*len);
                let Some(at) = ids.iter().take(used).position(|it| is(*it, id)) else { return false };
                // The last takes its place.
                ids.swap(at, used - 1);
                *len -= 1;
            }
            Self::Many(table) => {
                let Ok(found) = table.find_entry(hash(id), |it| is(*it, id)) else { return false };
                found.remove();
                if table.is_empty() {
                    *self = Self::default();
                } else if table.capacity() > 32 && 8 * table.len() < table.capacity() {
                    // Else walking through what is left would take as long as through what there was.
                    table.shrink_to(2 * table.len(), |it| hash(*it));
                }
            }
        }
        true
    }

    /// All of them, in no promised order, but equal after equal histories.
    pub(super) fn iter(&self) -> impl Iterator<Item = Id> {
        let many = match self {
            Self::Few { .. } => None,
            Self::Many(table) => Some(table.iter().copied()),
        };
        self.few().iter().copied().chain(many.into_iter().flatten())
    }

    /// What lies outside of the set itself.
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

/// Places are given out in sequence: multiplying spreads them over the upper bits, which the table uses too, and keeps them
/// apart in the lower ones.
fn hash(id: Id) -> u64 {
    u64::from(id.0).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What looking things up took, counted in tests: time would depend on the machine.
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
        fn a_set_is_a_set(changes in proptest::collection::vec((any::<bool>(), 0u32..40), 0..200)) {
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
    fn what_is_left_of_many_does_not_take_their_room() {
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
