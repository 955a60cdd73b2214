use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
};

/// A table of limited size that removes the least recently used entry.
pub(crate) struct Lru<K, V> {
    capacity: usize,
    /// A counter of uses.
    uses: u64,
    entries: HashMap<Arc<K>, (u64, V)>,
    by_use: BTreeMap<u64, Arc<K>>,
}

impl<K: Eq + Hash, V> Lru<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, uses: 0, entries: HashMap::new(), by_use: BTreeMap::new() }
    }

    /// The value of `key`, created if absent, and marked as used.
    pub(crate) fn entry(&mut self, key: K, create: impl FnOnce() -> V) -> &mut V {
        self.uses += 1;
        let key = match self.entries.get_key_value(&key) {
            Some((key, (used, _))) => {
                self.by_use.remove(used);
                key.clone()
            }
            None => {
                if self.entries.len() >= self.capacity
                    && let Some((_, oldest)) = self.by_use.pop_first()
                {
                    self.entries.remove(&oldest);
                }
                Arc::new(key)
            }
        };
        self.by_use.insert(self.uses, key.clone());
        let (used, value) = self.entries.entry(key).or_insert_with(|| (0, create()));
        *used = self.uses;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_table_removes_the_least_recently_used_entry() {
        let mut lru = Lru::new(2);
        *lru.entry("a", || 0) = 1;
        *lru.entry("b", || 0) = 2;
        assert_eq!(*lru.entry("a", || 0), 1);
        lru.entry("c", || 3); // Removes b.
        assert_eq!((*lru.entry("a", || 0), *lru.entry("c", || 0), *lru.entry("b", || 0)), (1, 3, 0));
        assert_eq!((lru.entries.len(), lru.by_use.len()), (2, 2));
    }
}
