//! What one monitor sees, told to the graph.
//!
//! The server's own word that an object was deleted (`DELETED` on a watch) is told apart from everything else that lacks it:
//! only the former proves anything. Nothing is held here but, while a set arrives that is to be compared with what is known,
//! the uids in it, and what is older in it than what is known: that counts only if the set becomes whole.
//!
//! A whole set may also show that etcd was restored to an older state: it has an object in a state as old as what was shown
//! before, and no such state was shown. Then no proof of before holds any more. The graph is told first.

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
    /// Told of every change, where that may mean that other types come or go.
    tells: Option<Arc<Notify>>,
    informer: OnceLock<Arc<dyn Watched>>,
    /// How far the informer was when a set showed last that etcd was restored: a set has many objects that show it.
    restored_at: Mutex<Version>,
}

/// A whole set on its way.
#[derive(Debug, Default)]
pub(super) enum Arriving {
    /// Nothing of it has come.
    #[default]
    Nothing,
    /// Nothing was known before, so that nothing can be missed.
    First,
    /// What is in it, and what of that is older than what is known.
    Again(HashSet<Uid>, BTreeMap<Uid, Meta>),
}

impl Feed {
    pub(super) fn new(known: Arc<Known>, by: MonitorId, tells: Option<Arc<Notify>>) -> Self {
        Self { known, by, tells, informer: OnceLock::new(), restored_at: Mutex::default() }
    }

    /// Names the informer that feeds it. What comes before that is a first set, which shows nothing of etcd.
    pub(super) fn set_informer(&self, informer: Arc<dyn Watched>) {
        // It is named once.
        let _ = self.informer.set(informer);
    }

    /// Takes a change that a typed informer tells of.
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
                // The store has decided which state is the newest.
                graph.observe_any(self.by, new.to_meta());
            }
        });
        if *cause != Cause::Initial {
            self.tell();
        }
    }

    /// Tells the graph if an object of a whole set shows that etcd was restored.
    fn look_for_restore(&self, graph: &mut Telling<'_>, uid: &Uid, version: &Version) {
        // It moves on when the set was taken.
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

    /// The graph takes it at once, but for what is newer there.
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

    /// The informer asks for none that is older than what it has shown, but for the most recent: whatever is in it counts.
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
