use std::{
    any::Any,
    hash::{BuildHasher, Hash, Hasher},
};

use api::{Cached, Entry, MetaRef};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};

/// A slab of objects with a key table, the indexes of the type, and those that controllers declare. It is a plain value without locks or
/// time.
///
/// The tables store slot numbers and not keys: about 60 bytes per object in total.
pub(crate) struct Slots<T: Cached> {
    entries: Vec<Option<Entry<T>>>,
    free: Vec<u32>,
    keys: HashTable<u32>,
    indexes: Buckets<T::Index>,
    /// The indexes that controllers have declared, in this order.
    declared: Vec<Box<dyn DeclaredIndex<T>>>,
    unreadable: usize,
    hasher: FixedState,
    /// Buffers for the index values of the old and the new object, kept to avoid allocations.
    scratch: (Vec<T::Index>, Vec<T::Index>),
}

/// The slots of each value of an index.
struct Buckets<V>(HashMap<V, Bucket, FixedState>);

/// The slots of one index value, ascending.
#[derive(Debug)]
enum Bucket {
    One(u32),
    Many(Vec<u32>),
}

/// An index without the type of its values.
trait DeclaredIndex<T: Cached>: Send + Sync {
    /// The entry in a slot changes from `old` to `new`.
    fn update(&mut self, slot: u32, old: Option<&Entry<T>>, new: Option<&Entry<T>>);
    fn name(&self) -> &'static str;
    /// The same index without entries.
    fn to_empty(&self) -> Box<dyn DeclaredIndex<T>>;
    fn as_any(&self) -> &dyn Any;
}

/// The value of an entry in a declared index; `None` if the entry is not in the index.
pub(crate) type ValueOf<T, V> = fn(&Entry<T>) -> Option<V>;

/// An index with at most one value for each entry.
struct SingleValueIndex<T: Cached, V> {
    name: &'static str,
    value_of: ValueOf<T, V>,
    buckets: Buckets<V>,
}

impl<T: Cached> Slots<T> {
    /// An empty slab. Equal seeds give equal hashes, so that equal runs have equal results.
    pub(crate) fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            keys: HashTable::new(),
            indexes: Buckets::new(&hasher),
            declared: Vec::new(),
            unreadable: 0,
            hasher,
            scratch: (Vec::new(), Vec::new()),
        }
    }

    /// An empty slab with the same indexes.
    pub(crate) fn to_empty(&self, seed: u64) -> Self {
        Self { declared: self.declared.iter().map(|it| it.to_empty()).collect(), ..Self::new(seed) }
    }

    /// Adds an index with the present entries, unless there is one of this name, and returns its number.
    pub(crate) fn declare_index<V>(&mut self, name: &'static str, value_of: ValueOf<T, V>) -> usize
    where
        V: Eq + Hash + Send + Sync + 'static,
    {
        if let Some(number) = self.declared.iter().position(|it| it.name() == name) {
            return number;
        }
        self.fill(Box::new(SingleValueIndex { name, value_of, buckets: Buckets::new(&self.hasher) }));
        self.declared.len() - 1
    }

    /// Adds the indexes that `other` has and this one has not: those declared since this one was made.
    pub(crate) fn declare_missing(&mut self, other: &Self) {
        for index in other.declared.iter().skip(self.declared.len()) {
            self.fill(index.to_empty());
        }
    }

    fn fill(&mut self, mut index: Box<dyn DeclaredIndex<T>>) {
        for (slot, entry) in (0..).zip(&self.entries) {
            index.update(slot, None, entry.as_ref());
        }
        self.declared.push(index);
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// How many entries have metadata only.
    pub(crate) fn unreadable(&self) -> usize {
        self.unreadable
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Entry<T>> {
        let slot = *self.keys.find(self.hash(namespace, name), |&slot| self.is_at(slot, namespace, name))?;
        self.at(slot)
    }

    /// All entries with one index value.
    pub(crate) fn by_index(&self, value: &T::Index) -> impl Iterator<Item = &Entry<T>> {
        self.indexes.get(value).iter().filter_map(|&slot| self.at(slot))
    }

    /// All entries with one value of a declared index.
    pub(crate) fn by_declared_index<V>(&self, number: usize, value: &V) -> impl Iterator<Item = &Entry<T>>
    where
        V: Eq + Hash + Send + Sync + 'static,
    {
        let index = self.declared.get(number).and_then(|it| it.as_any().downcast_ref::<SingleValueIndex<T, V>>());
        let slots = index.map_or(&[][..], |it| it.buckets.get(value));
        slots.iter().filter_map(|&slot| self.at(slot))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry<T>> {
        self.entries.iter().flatten()
    }

    /// Stores an entry under its key and returns the previous one.
    pub(crate) fn upsert(&mut self, entry: Entry<T>) -> Option<Entry<T>> {
        let MetaRef { namespace, name, .. } = entry.meta();
        let hash = self.hash(namespace, name);
        let existing = self.keys.find(hash, |&slot| self.is_at(slot, namespace, name)).copied();
        let slot = existing.unwrap_or_else(|| self.take_slot());
        let old = self.entries.get_mut(slot as usize).and_then(Option::take);
        self.reindex(slot, old.as_ref(), Some(&entry));
        if let Some(stored) = self.entries.get_mut(slot as usize) {
            *stored = Some(entry);
        }
        if existing.is_none() {
            let (entries, hasher) = (&self.entries, &self.hasher);
            self.keys.insert_unique(hash, slot, |&slot| hash_at(entries, hasher, slot));
        }
        old
    }

    /// Removes the entry of a key.
    pub(crate) fn remove(&mut self, namespace: &str, name: &str) -> Option<Entry<T>> {
        let hash = self.hash(namespace, name);
        let entries = &self.entries;
        let key = self.keys.find_entry(hash, |&slot| has_key(entries, slot, namespace, name)).ok()?;
        let (slot, _) = key.remove();
        let old = self.entries.get_mut(slot as usize).and_then(Option::take);
        self.reindex(slot, old.as_ref(), None);
        self.free.push(slot);
        old
    }

    fn at(&self, slot: u32) -> Option<&Entry<T>> {
        self.entries.get(slot as usize)?.as_ref()
    }

    fn is_at(&self, slot: u32, namespace: &str, name: &str) -> bool {
        has_key(&self.entries, slot, namespace, name)
    }

    fn hash(&self, namespace: &str, name: &str) -> u64 {
        hash_key(&self.hasher, namespace, name)
    }

    fn take_slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            // A slab of 2³² objects would not fit into memory.
            u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn reindex(&mut self, slot: u32, old: Option<&Entry<T>>, new: Option<&Entry<T>>) {
        let is_unreadable = |entry: Option<&Entry<T>>| usize::from(matches!(entry, Some(Entry::Unreadable(_))));
        self.unreadable = self.unreadable + is_unreadable(new) - is_unreadable(old);
        let (mut old_values, mut new_values) = std::mem::take(&mut self.scratch);
        index_values(old, &mut old_values);
        index_values(new, &mut new_values);
        // Most updates do not change the index values.
        if old_values != new_values {
            for value in old_values.iter().filter(|it| !new_values.contains(it)) {
                self.indexes.remove(value, slot);
            }
            for value in new_values.iter().filter(|it| !old_values.contains(it)) {
                self.indexes.insert(value.clone(), slot);
            }
        }
        self.declared.iter_mut().for_each(|it| it.update(slot, old, new));
        old_values.clear();
        new_values.clear();
        self.scratch = (old_values, new_values);
    }
}

impl<T: Cached, V: Eq + Hash + Send + Sync + 'static> DeclaredIndex<T> for SingleValueIndex<T, V> {
    fn update(&mut self, slot: u32, old: Option<&Entry<T>>, new: Option<&Entry<T>>) {
        let [old, new] = [old, new].map(|it| it.and_then(self.value_of));
        // Most updates do not change the value.
        if old == new {
            return;
        }
        if let Some(value) = &old {
            self.buckets.remove(value, slot);
        }
        if let Some(value) = new {
            self.buckets.insert(value, slot);
        }
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn to_empty(&self) -> Box<dyn DeclaredIndex<T>> {
        Box::new(Self { name: self.name, value_of: self.value_of, buckets: Buckets::new(self.buckets.0.hasher()) })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<V: Eq + Hash> Buckets<V> {
    fn new(hasher: &FixedState) -> Self {
        Self(HashMap::with_hasher(hasher.clone()))
    }

    fn get(&self, value: &V) -> &[u32] {
        self.0.get(value).map_or(&[], Bucket::slots)
    }

    fn insert(&mut self, value: V, slot: u32) {
        match self.0.get_mut(&value) {
            Some(bucket) => bucket.insert(slot),
            None => drop(self.0.insert(value, Bucket::One(slot))),
        }
    }

    fn remove(&mut self, value: &V, slot: u32) {
        if self.0.get_mut(value).is_some_and(|bucket| bucket.remove(slot)) {
            self.0.remove(value);
        }
    }
}

/// The index values of an entry: all of them, or those that the metadata alone determines.
fn index_values<T: Cached>(entry: Option<&Entry<T>>, values: &mut Vec<T::Index>) {
    let mut add = |value| values.push(value);
    match entry {
        Some(Entry::Readable(object)) => object.index(&mut add),
        Some(Entry::Unreadable(it)) => T::index_meta(it.meta.as_ref(), &mut add),
        None => {}
    }
}

fn has_key<T: Cached>(entries: &[Option<Entry<T>>], slot: u32, namespace: &str, name: &str) -> bool {
    entries.get(slot as usize).and_then(Option::as_ref).is_some_and(|entry| {
        let meta = entry.meta();
        meta.name == name && **meta.namespace == *namespace
    })
}

fn hash_at<T: Cached>(entries: &[Option<Entry<T>>], hasher: &FixedState, slot: u32) -> u64 {
    let entry = entries.get(slot as usize).and_then(Option::as_ref);
    entry.map_or(0, |entry| hash_key(hasher, entry.meta().namespace, entry.meta().name))
}

fn hash_key(hasher: &FixedState, namespace: &str, name: &str) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(namespace.as_bytes());
    // A separator: no namespace and no name contains this byte.
    hasher.write_u8(0xff);
    hasher.write(name.as_bytes());
    hasher.finish()
}

impl Bucket {
    fn slots(&self) -> &[u32] {
        match self {
            Self::One(slot) => std::slice::from_ref(slot),
            Self::Many(slots) => slots,
        }
    }

    fn insert(&mut self, slot: u32) {
        match self {
            Self::One(one) if *one == slot => {}
            Self::One(one) => *self = Self::Many(vec![(*one).min(slot), (*one).max(slot)]),
            Self::Many(slots) => {
                if let Err(position) = slots.binary_search(&slot) {
                    slots.insert(position, slot);
                }
            }
        }
    }

    /// Returns true when the bucket is empty now.
    fn remove(&mut self, slot: u32) -> bool {
        match self {
            Self::One(one) => *one == slot,
            Self::Many(slots) => {
                if let Ok(position) = slots.binary_search(&slot) {
                    slots.remove(position);
                }
                slots.is_empty()
            }
        }
    }
}
