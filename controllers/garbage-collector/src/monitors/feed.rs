//! Reports what one monitor observes to the graph.
//!
//! A `DELETED` event of a watch is reported separately from every other absence, because only that event proves a
//! deletion. While a complete list is being received, this stores its uids and those of its objects that are older than
//! the known state: they count only if the list is completed. Otherwise nothing is stored here.
//!
//! A complete list can also show that etcd was restored to an older state: it then has an object in a state that is not
//! newer than what was shown before, and that was never shown. All earlier proofs are then invalid. The graph gets that
//! report first.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashSet},
    sync::{Arc, OnceLock},
};

use api::{Event, Meta, Uid, Version};
use informer::{Cause, MetaChange, Sink, Watched};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    graph::MonitorId,
    shared_graph::{GraphUpdate, SharedGraph},
};

/// Feeds the graph with the objects of one type.
pub(super) struct Feed {
    graph: Arc<SharedGraph>,
    by: MonitorId,
    /// Notified of every change, for types whose objects define other types.
    types_changed: Option<Arc<Notify>>,
    informer: OnceLock<Arc<dyn Watched>>,
    /// The store version at the last detected restore of etcd. One list has many objects that show the same restore.
    restored_at: Mutex<Version>,
}

/// A complete list that is being received.
#[derive(Debug, Default)]
pub(super) enum PartialList {
    /// No object has been received.
    #[default]
    Nothing,
    /// No object was known before, so none can be missing.
    First,
    /// Its uids, and those of its objects that are older than the known state.
    Again(HashSet<Uid>, BTreeMap<Uid, Meta>),
}

impl Feed {
    pub(super) fn new(graph: Arc<SharedGraph>, by: MonitorId, types_changed: Option<Arc<Notify>>) -> Self {
        Self { graph, by, types_changed, informer: OnceLock::new(), restored_at: Mutex::default() }
    }

    /// Sets the informer that feeds this. A list from before is the first one, which cannot show a restore.
    pub(super) fn set_informer(&self, informer: Arc<dyn Watched>) {
        // It is set once.
        let _ = self.informer.set(informer);
    }

    /// Applies a change of a typed informer.
    pub(super) fn on_change(&self, change: &MetaChange<'_>) {
        let MetaChange { old, new, cause } = change;
        self.graph.update(|graph| {
            if let Some(new) = new
                && *cause == Cause::Relist
            {
                self.detect_restore(graph, new.uid, new.version);
            }
            let gone = old.filter(|old| new.is_none_or(|new| new.uid != old.uid));
            match gone {
                Some(gone) if new.is_none() && *cause == Cause::Watch => graph.on_deleted(self.by, gone.uid),
                Some(gone) => graph.on_missing(self.by, gone.uid),
                None => {}
            }
            if let Some(new) = new {
                // The store has already decided which state is the newest.
                graph.observe_any(self.by, new.to_meta());
            }
        });
        if *cause != Cause::Initial {
            self.notify_types_changed();
        }
    }

    /// Reports a restore of etcd to the graph, if an object of a complete list shows one.
    fn detect_restore(&self, graph: &mut GraphUpdate<'_>, uid: &Uid, version: &Version) {
        // The store version changes only after the whole list was applied.
        let Some(shown) = self.informer.get().and_then(|it| it.store_version()) else { return };
        let is_newer = !version.compare(&shown).is_some_and(Ordering::is_le);
        if is_newer || uid.is_empty() || graph.graph().is_shown_at(self.by, uid, version, &shown) {
            return;
        }
        let before = std::mem::replace(&mut *self.restored_at.lock(), shown.clone());
        if before != shown {
            let informer = self.informer.get().map(|it| it.resource().to_string());
            tracing::warn!(
                resource = informer,
                "A list contains older objects than expected. etcd was probably restored. \
                 All proofs that owners are gone are dropped."
            );
            graph.on_etcd_restored();
        }
    }

    fn notify_types_changed(&self) {
        if let Some(types_changed) = &self.types_changed {
            types_changed.notify_one();
        }
    }
}

impl Sink for Feed {
    type List = PartialList;

    /// The graph gets the object at once, unless it has a newer state.
    fn collect(&self, list: &mut PartialList, object: Meta) {
        if let PartialList::Nothing = list {
            let object_count = self.object_count();
            *list = match object_count {
                0 => PartialList::First,
                _ => PartialList::Again(HashSet::with_capacity(object_count), BTreeMap::new()),
            };
        }
        if let PartialList::Again(uids, older) = list {
            uids.insert(object.uid.clone());
            older.remove(&object.uid);
        }
        self.graph.update(|graph| {
            self.detect_restore(graph, &object.uid, &object.version);
            match list {
                PartialList::Again(_, older) if graph.graph().has_newer(self.by, &object) => {
                    older.insert(object.uid.clone(), object);
                }
                _ => graph.observe(self.by, object),
            }
        });
    }

    fn discard(&self, list: &mut PartialList, object: Meta) {
        if let PartialList::Again(uids, older) = list {
            uids.remove(&object.uid);
            older.remove(&object.uid);
        }
        self.graph.update(|graph| graph.on_deleted(self.by, &object.uid));
    }

    /// The informer requests no list older than what it has shown, except the most recent one. So every object of the
    /// list counts.
    fn replace(&self, list: PartialList) {
        let (present, older) = match list {
            PartialList::First => return,
            PartialList::Nothing if self.object_count() == 0 => return,
            PartialList::Nothing => Default::default(),
            PartialList::Again(uids, older) => (uids, older),
        };
        self.graph.update(|graph| {
            let known = graph.graph().observed_by(self.by);
            let missing: Vec<Uid> = known.filter(|uid| !present.contains(*uid)).cloned().collect();
            for uid in &missing {
                graph.on_missing(self.by, uid);
            }
            for object in older.into_values() {
                graph.observe_any(self.by, object);
            }
            graph.on_complete_set(self.by, |uid| present.contains(uid));
        });
        self.notify_types_changed();
    }

    fn apply(&self, batch: Vec<(Event, Meta)>) {
        self.graph.update(|graph| {
            for (event, object) in batch {
                match event {
                    Event::Deleted => graph.on_deleted(self.by, &object.uid),
                    Event::Added | Event::Modified => graph.observe(self.by, object),
                }
            }
        });
        self.notify_types_changed();
    }

    fn object_count(&self) -> usize {
        self.graph.read(|graph| graph.observed_count(self.by))
    }
}

#[cfg(test)]
mod tests;
