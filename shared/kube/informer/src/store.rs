//! The store: the cached objects of one type.

mod progress;
mod slots;
#[cfg(test)]
mod tests;

use std::{hash::Hash, marker::PhantomData, sync::Arc};

use api::{Cached, Entry, Event, MetaRef, ObjectKey, Resource, Uid, Version};
use parking_lot::RwLock;

pub(crate) use self::{progress::Progress, slots::Slots};
use crate::Wake;

/// The objects of one type, by key, by the indexes of the type, and by those that controllers declare. Cheap to clone.
/// Readers get `Arc`s and never see a partial batch or relist. A read that might miss an object returns an error.
pub struct Store<T: Cached>(Arc<Inner<T>>);

struct Inner<T: Cached> {
    resource: Resource,
    progress: Arc<Progress>,
    seed: u64,
    content: RwLock<Content<T>>,
}

struct Content<T: Cached> {
    slots: Slots<T>,
    trust: Trust,
}

enum Trust {
    /// No set has arrived yet: a missing object does not mean that it does not exist.
    NotSynced,
    Synced,
    /// An event came of which not even the metadata decodes: until the next list, a missing object may exist.
    Broken(Arc<str>),
}

/// An index of a store that a controller declared ([`Store::declare_index`]).
pub struct Index<T: Cached, V> {
    store: Store<T>,
    number: usize,
    values: PhantomData<fn() -> V>,
}

/// A read that might miss an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The first set has not arrived.
    #[error("the cache of {resource} has not synced")]
    NotSynced {
        /// The resource.
        resource: Resource,
    },
    /// An object exists but does not decode.
    #[error("{resource} {key} does not decode: {why}")]
    Unreadable {
        /// The resource.
        resource: Resource,
        /// Namespace and name.
        key: ObjectKey,
        /// The decoder's message, with the field.
        why: String,
    },
    /// An event came of which not even the metadata decodes; the type is being listed again.
    #[error("the cache of {resource} is not to be trusted until it is listed again: {why}")]
    Broken {
        /// The resource.
        resource: Resource,
        /// The decoding error.
        why: Arc<str>,
    },
}

/// One change that was applied. Without `old` it is an addition, without `new` a deletion.
pub(crate) struct Delta<T> {
    pub(crate) old: Option<Entry<T>>,
    pub(crate) new: Option<Entry<T>>,
}

impl<T: Cached> Store<T> {
    pub(crate) fn new(resource: Resource, progress: Arc<Progress>, seed: u64) -> Self {
        let content = RwLock::new(Content { slots: Slots::new(seed), trust: Trust::NotSynced });
        Self(Arc::new(Inner { resource, progress, seed, content }))
    }

    /// The object of a key, if it exists.
    ///
    /// # Errors
    /// If the object exists but does not decode, or the store is not trusted.
    pub fn get(&self, namespace: &str, name: &str) -> Result<Option<Arc<T>>, StoreError> {
        let content = self.0.content.read();
        self.trusted(&content)?;
        content.slots.get(namespace, name).map(|entry| self.readable(entry)).transpose()
    }

    /// The object of a key, if it exists and is not another one of the same name.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn get_same(&self, namespace: &str, name: &str, uid: &Uid) -> Result<Option<Arc<T>>, StoreError> {
        Ok(self.get(namespace, name)?.filter(|it| it.meta().uid == uid))
    }

    /// False if this object is gone or being deleted, or if another one has its name.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn is_alive(&self, object: &MetaRef<'_>) -> Result<bool, StoreError> {
        let same = self.get_same(object.namespace, object.name, object.uid)?;
        Ok(same.is_some_and(|it| it.meta().deletion.is_none()))
    }

    /// Whether this object is certainly gone, or replaced by another one of its name.
    #[must_use]
    pub fn is_gone(&self, namespace: &str, name: &str, uid: &Uid) -> bool {
        self.get_same(namespace, name, uid).is_ok_and(|it| it.is_none())
    }

    /// All objects, in no particular order.
    ///
    /// # Errors
    /// If one of them does not decode, or the store is not trusted.
    pub fn list(&self) -> Result<Vec<Arc<T>>, StoreError> {
        let content = self.0.content.read();
        self.trusted(&content)?;
        content.slots.iter().map(|entry| self.readable(entry)).collect()
    }

    /// All objects with an index value, in no particular order.
    ///
    /// # Errors
    /// If one of them does not decode, as far as its metadata shows that it belongs to the index value, or if the store
    /// is not trusted.
    pub fn by_index(&self, value: &T::Index) -> Result<Vec<Arc<T>>, StoreError> {
        let content = self.0.content.read();
        self.trusted(&content)?;
        content.slots.by_index(value).map(|entry| self.readable(entry)).collect()
    }

    /// Adds an index, like client-go's `AddIndexers`. `value_of` is called with each entry, also with those of which only
    /// the metadata decodes; entries without a value are not in the index. A later declaration with the same name is the
    /// same index, so controllers can share one.
    #[must_use]
    pub fn declare_index<V>(&self, name: &'static str, value_of: fn(&Entry<T>) -> Option<V>) -> Index<T, V>
    where
        V: Eq + Hash + Send + Sync + 'static,
    {
        let number = self.0.content.write().slots.declare_index(name, value_of);
        Index { store: self.clone(), number, values: PhantomData }
    }

    /// All known entries, decoded or not.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry<T>> {
        let content = self.0.content.read();
        let mut entries = Vec::with_capacity(content.slots.len());
        entries.extend(content.slots.iter().cloned());
        entries
    }

    /// How many objects there are, decoded or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.content.read().slots.len()
    }

    /// True when there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The version of the store; `None` before the first set.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.0.progress.version()
    }

    /// True once an event, a bookmark or a list at or above `version` was applied and the handlers were called.
    /// `version` must be of this type. A version that is not a number cannot be compared and counts as passed.
    #[must_use]
    pub fn has_passed(&self, version: &Version) -> bool {
        self.0.progress.has_passed(version)
    }

    /// Returns true when `version` has been passed already; then `wake` is dropped. Otherwise `wake` is called once it
    /// has been passed, or when the store went back to an older version. It is called in the informer's task, so it
    /// must be fast.
    pub fn call_when_passed(&self, version: Version, wake: Wake) -> bool {
        self.0.progress.call_when_passed(&version, wake)
    }

    pub(crate) fn unreadable(&self) -> usize {
        self.0.content.read().slots.unreadable()
    }

    pub(crate) fn is_synced(&self) -> bool {
        !matches!(self.0.content.read().trust, Trust::NotSynced)
    }

    pub(crate) fn resource(&self) -> &Resource {
        &self.0.resource
    }

    /// The stored entry, if it has the uid and version of `like`.
    pub(crate) fn same(&self, like: &Entry<T>) -> Option<Entry<T>> {
        let meta = like.meta();
        let content = self.0.content.read();
        content.slots.get(meta.namespace, meta.name).filter(|known| are_same(known, like)).cloned()
    }

    pub(crate) fn empty_set(&self) -> Slots<T> {
        self.0.content.read().slots.to_empty(self.0.seed)
    }

    /// Applies events in order; readers see all of them at once. Whether an event adds or updates depends on the
    /// content and not on the event type. An event without a change has no delta.
    pub(crate) fn apply(&self, batch: Vec<(Event, Entry<T>)>) -> Vec<Delta<T>> {
        let mut deltas = Vec::with_capacity(batch.len());
        let mut content = self.0.content.write();
        for (event, entry) in batch {
            let MetaRef { namespace, name, .. } = entry.meta();
            if event == Event::Deleted {
                content.slots.remove(namespace, name);
                // The object of a DELETED event has the last state, with the version of the deletion.
                deltas.push(Delta { old: Some(entry), new: None });
            } else if content.slots.get(namespace, name).is_none_or(|known| !are_same(known, &entry)) {
                let old = content.slots.upsert(entry.clone());
                deltas.push(Delta { old, new: Some(entry) });
            }
        }
        deltas
    }

    /// Replaces the content by `set`; readers see it at once. The deltas have deletions first, then updates and
    /// additions.
    pub(crate) fn replace(&self, mut set: Slots<T>) -> Vec<Delta<T>> {
        // Only the informer's task writes, so nothing changes between the comparison and the replacement.
        let deltas = self.compare(&set);
        let old = {
            let mut content = self.0.content.write();
            content.trust = Trust::Synced;
            set.declare_missing(&content.slots);
            std::mem::replace(&mut content.slots, set)
        };
        drop(old);
        deltas
    }

    /// From now on reads return errors, until the next [`Store::replace`].
    pub(crate) fn mark_untrusted(&self, why: &str) {
        let mut content = self.0.content.write();
        if !matches!(content.trust, Trust::NotSynced) {
            content.trust = Trust::Broken(why.into());
        }
    }

    fn compare(&self, set: &Slots<T>) -> Vec<Delta<T>> {
        let content = self.0.content.read();
        let mut deltas = Vec::new();
        for old in content.slots.iter() {
            let MetaRef { namespace, name, .. } = old.meta();
            if set.get(namespace, name).is_none() {
                deltas.push(Delta { old: Some(old.clone()), new: None });
            }
        }
        if content.slots.len() == 0 {
            deltas.reserve_exact(set.len());
        }
        for new in set.iter() {
            let MetaRef { namespace, name, .. } = new.meta();
            let old = content.slots.get(namespace, name);
            if old.is_none_or(|old| !are_same(old, new)) {
                deltas.push(Delta { old: old.cloned(), new: Some(new.clone()) });
            }
        }
        deltas
    }

    fn trusted(&self, content: &Content<T>) -> Result<(), StoreError> {
        let resource = || self.0.resource.clone();
        match &content.trust {
            Trust::Synced => Ok(()),
            Trust::NotSynced => Err(StoreError::NotSynced { resource: resource() }),
            Trust::Broken(why) => Err(StoreError::Broken { resource: resource(), why: why.clone() }),
        }
    }

    fn readable(&self, entry: &Entry<T>) -> Result<Arc<T>, StoreError> {
        match entry {
            Entry::Readable(object) => Ok(object.clone()),
            Entry::Unreadable(it) => Err(StoreError::Unreadable {
                resource: self.0.resource.clone(),
                key: it.meta.as_ref().key(),
                why: it.why.clone(),
            }),
        }
    }
}

impl<T: Cached, V: Eq + Hash + Send + Sync + 'static> Index<T, V> {
    /// All objects with this value, in no particular order.
    ///
    /// # Errors
    /// As [`Store::by_index`].
    pub fn get(&self, value: &V) -> Result<Vec<Arc<T>>, StoreError> {
        let content = self.store.0.content.read();
        self.store.trusted(&content)?;
        content.slots.by_declared_index(self.number, value).map(|entry| self.store.readable(entry)).collect()
    }
}

impl<T: Cached> Clone for Store<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// True when two entries of one key have the same uid and version. An empty version is never equal.
fn are_same<T: Cached>(a: &Entry<T>, b: &Entry<T>) -> bool {
    let alike =
        matches!((a, b), (Entry::Readable(_), Entry::Readable(_)) | (Entry::Unreadable(_), Entry::Unreadable(_)));
    let (a, b) = (a.meta(), b.meta());
    alike && a.uid == b.uid && a.version == b.version && !a.version.is_empty()
}
