//! Reports what one monitor observes to the graph.
//!
//! A `DELETED` event of a watch is reported separately from every other absence, because only that event proves a
//! deletion. While a complete set is being received, this stores its uids and those of its objects that are older than
//! the known state: they count only if the set is completed. Otherwise nothing is stored here.
//!
//! A complete set can also show that etcd was restored to an older state: it then has an object in a state that is not
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
    due::{Known, Telling},
    graph::MonitorId,
};

/// Feeds the graph with the objects of one type.
pub(super) struct Feed {
    known: Arc<Known>,
    by: MonitorId,
    /// Notified of every change, for types whose objects define other types.
    tells: Option<Arc<Notify>>,
    informer: OnceLock<Arc<dyn Watched>>,
    /// The store version at the last detected restore of etcd. One set has many objects that show the same restore.
    restored_at: Mutex<Version>,
}

/// A complete set that is being received.
#[derive(Debug, Default)]
pub(super) enum Arriving {
    /// No object has been received.
    #[default]
    Nothing,
    /// No object was known before, so none can be missing.
    First,
    /// Its uids, and those of its objects that are older than the known state.
    Again(HashSet<Uid>, BTreeMap<Uid, Meta>),
}

impl Feed {
    pub(super) fn new(known: Arc<Known>, by: MonitorId, tells: Option<Arc<Notify>>) -> Self {
        Self { known, by, tells, informer: OnceLock::new(), restored_at: Mutex::default() }
    }

    /// Sets the informer that feeds this. A set from before is the first one, which cannot show a restore.
    pub(super) fn set_informer(&self, informer: Arc<dyn Watched>) {
        // It is set once.
        let _ = self.informer.set(informer);
    }

    /// Applies a change of a typed informer.
    pub(super) fn hear(&self, change: &MetaChange<'_>) {
        let MetaChange { old, new, cause } = change;
        self.known.tell(|graph| {
            if let Some(new) = new
                && *cause == Cause::Relist
            {
                self.look_for_restore(graph, new.uid, new.version);
            }
            let gone = old.filter(|old| new.is_none_or(|new| new.uid != old.uid));
            match gone {
                Some(gone) if new.is_none() && *cause == Cause::Watch => graph.deleted(self.by, gone.uid),
                Some(gone) => graph.missing(self.by, gone.uid),
                None => {}
            }
            if let Some(new) = new {
                // The store has already decided which state is the newest.
                graph.observe_any(self.by, new.to_meta());
            }
        });
        if *cause != Cause::Initial {
            self.tell();
        }
    }

    /// Reports a restore of etcd to the graph, if an object of a complete set shows one.
    fn look_for_restore(&self, graph: &mut Telling<'_>, uid: &Uid, version: &Version) {
        // The store version changes only after the whole set was applied.
        let Some(shown) = self.informer.get().and_then(|it| it.store_version()) else { return };
        let is_newer = !version.compare(&shown).is_some_and(Ordering::is_le);
        if is_newer || uid.is_empty() || graph.graph().is_shown_so(self.by, uid, version, &shown) {
            return;
        }
        let before = std::mem::replace(&mut *self.restored_at.lock(), shown.clone());
        if before != shown {
            let informer = self.informer.get().map(|it| it.resource().to_string());
            tracing::warn!(
                resource = informer,
                "A list brought older objects than it may, as when etcd was restored: no owner is taken for gone any more"
            );
            graph.restored();
        }
    }

    fn tell(&self) {
        if let Some(tells) = &self.tells {
            tells.notify_one();
        }
    }
}

impl Sink for Feed {
    type Set = Arriving;

    /// The graph gets the object at once, unless it has a newer state.
    fn collect(&self, set: &mut Arriving, object: Meta) {
        if let Arriving::Nothing = set {
            let held = self.held();
            *set = match held {
                0 => Arriving::First,
                _ => Arriving::Again(HashSet::with_capacity(held), BTreeMap::new()),
            };
        }
        if let Arriving::Again(uids, older) = set {
            uids.insert(object.uid.clone());
            older.remove(&object.uid);
        }
        self.known.tell(|graph| {
            self.look_for_restore(graph, &object.uid, &object.version);
            match set {
                Arriving::Again(_, older) if graph.graph().shows_newer(self.by, &object) => {
                    older.insert(object.uid.clone(), object);
                }
                _ => graph.observe(self.by, object),
            }
        });
    }

    fn discard(&self, set: &mut Arriving, object: Meta) {
        if let Arriving::Again(uids, older) = set {
            uids.remove(&object.uid);
            older.remove(&object.uid);
        }
        self.known.tell(|graph| graph.deleted(self.by, &object.uid));
    }

    /// The informer requests no set older than what it has shown, except the most recent one. So every object of the
    /// set counts.
    fn replace(&self, set: Arriving) {
        let (there, older) = match set {
            Arriving::First => return,
            Arriving::Nothing if self.held() == 0 => return,
            Arriving::Nothing => Default::default(),
            Arriving::Again(uids, older) => (uids, older),
        };
        self.known.tell(|graph| {
            let known = graph.graph().observed_by(self.by);
            let missing: Vec<Uid> = known.filter(|uid| !there.contains(*uid)).cloned().collect();
            for uid in &missing {
                graph.missing(self.by, uid);
            }
            for object in older.into_values() {
                graph.observe_any(self.by, object);
            }
        });
        self.tell();
    }

    fn apply(&self, batch: Vec<(Event, Meta)>) {
        self.known.tell(|graph| {
            for (event, object) in batch {
                match event {
                    Event::Deleted => graph.deleted(self.by, &object.uid),
                    Event::Added | Event::Modified => graph.observe(self.by, object),
                }
            }
        });
        self.tell();
    }

    fn held(&self) -> usize {
        self.known.ask(|graph| graph.held(self.by))
    }
}

#[cfg(test)]
mod tests;
