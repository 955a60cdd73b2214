use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use clock::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use crate::{Failure, crd, kinds, kinds::Kind, meta};

/// Everything that the cluster holds, behind one lock: one counter, one table per resource.
pub(crate) struct State {
    /// The version of the last write.
    pub(crate) version: u64,
    pub(crate) tables: BTreeMap<String, Table>,
    pub(crate) rng: fastrand::Rng,
    /// How many changes a table remembers.
    pub(crate) history: usize,
    /// Every object carries a `managedFields` entry.
    pub(crate) managed_fields: bool,
    /// Raised to ask every watch for a bookmark.
    pub(crate) bookmark_calls: u64,
    /// Tables whose definition is gone, for the watches that have not shown their last changes yet.
    retired: Vec<Table>,
    /// Tells reads that wait for a version.
    pub(crate) progress: watch::Sender<u64>,
    next_table: u64,
}

/// The objects of one resource and how they came to be.
pub(crate) struct Table {
    pub(crate) kind: Arc<Kind>,
    /// Tells apart a table from its predecessor under the same key.
    pub(crate) id: u64,
    /// By storage key: `namespace/name`, or the name alone; so in the order of lists.
    pub(crate) objects: BTreeMap<Arc<str>, Arc<Value>>,
    pub(crate) events: VecDeque<Arc<Event>>,
    /// The oldest version from which a watch may start and a past state be listed.
    pub(crate) floor: u64,
    /// The version of the youngest change that is no longer remembered.
    pub(crate) forgotten: u64,
    /// Wakes the watches of this table.
    pub(crate) signal: watch::Sender<u64>,
    pub(crate) watches: WatchFaults,
}

/// Watches are numbered; those below a number are afflicted.
#[derive(Debug, Default)]
pub(crate) struct WatchFaults {
    pub(crate) next: u64,
    pub(crate) frozen_below: u64,
    pub(crate) broken_below: u64,
    pub(crate) ended_below: u64,
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Added,
    Modified,
    Removed,
}

/// One change, shared by all watches; each form is encoded once, when the first watch asks.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) key: Arc<str>,
    pub(crate) change: Change,
    /// The new state, or the last one with the version of the removal.
    pub(crate) object: Arc<Value>,
    pub(crate) previous: Option<Arc<Value>>,
    pub(crate) full: OnceLock<Bytes>,
    pub(crate) metadata: OnceLock<Bytes>,
}

/// A state of a table, present or past.
pub(crate) type Objects<'a> = Cow<'a, BTreeMap<Arc<str>, Arc<Value>>>;

/// The key under which an object is stored.
pub(crate) fn storage_key(kind: &Kind, namespace: &str, name: &str) -> String {
    if kind.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
}

impl State {
    pub(crate) fn new(seed: u64, history: usize, managed_fields: bool) -> Self {
        let mut state = Self {
            version: 0,
            tables: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            history,
            managed_fields,
            bookmark_calls: 0,
            retired: Vec::new(),
            progress: watch::Sender::new(0),
            next_table: 0,
        };
        for kind in kinds::builtin() {
            state.open_table(kind, 0);
        }
        state
    }

    /// Begins to serve a kind; watches start at `floor` or later.
    pub(crate) fn open_table(&mut self, kind: Kind, floor: u64) {
        self.next_table += 1;
        let table = Table {
            id: self.next_table,
            objects: BTreeMap::new(),
            events: VecDeque::new(),
            floor,
            forgotten: floor,
            signal: watch::Sender::new(0),
            watches: WatchFaults::default(),
            kind: Arc::new(kind),
        };
        self.tables.insert(table.kind.table(), table);
    }

    /// Ends a kind: its watches show what they have not shown yet, and end.
    pub(crate) fn retire_table(&mut self, table: &str) {
        if let Some(table) = self.tables.remove(table) {
            table.signal.send_replace(self.version);
            self.retired.push(table);
        }
    }

    /// The table that a watch was opened on, and whether it is retired.
    pub(crate) fn watched(&self, table: &str, id: u64) -> Option<(&Table, bool)> {
        let present = self.tables.get(table).filter(|it| it.id == id).map(|it| (it, false));
        present.or_else(|| self.retired.iter().find(|it| it.id == id).map(|it| (it, true)))
    }

    pub(crate) fn table(&self, table: &str) -> Result<&Table, Failure> {
        self.tables.get(table).ok_or_else(Failure::no_group)
    }

    pub(crate) fn object(&self, table: &str, key: &str) -> Option<&Arc<Value>> {
        self.tables.get(table)?.objects.get(key)
    }

    /// Stores an object, new or changed, under the next version.
    pub(crate) fn put(&mut self, table: &str, key: &str, mut object: Value) -> Result<Arc<Value>, Failure> {
        let version = self.version + 1;
        let limit = self.history;
        let it = self.tables.get_mut(table).ok_or_else(Failure::no_group)?;
        meta::set(&mut object, "resourceVersion", version.to_string());
        let object = Arc::new(object);
        let key: Arc<str> = it.objects.get_key_value(key).map_or_else(|| key.into(), |it| it.0.clone());
        let previous = it.objects.insert(key.clone(), object.clone());
        let change = if previous.is_some() { Change::Modified } else { Change::Added };
        it.record(limit, Event::new(version, key, change, object.clone(), previous));
        self.advance(version);
        Ok(object)
    }

    /// Removes an object and returns its last state, with the version of the removal.
    pub(crate) fn remove(&mut self, table: &str, key: &str, now: Timestamp) -> Result<Arc<Value>, Failure> {
        let version = self.version + 1;
        let limit = self.history;
        let it = self.tables.get_mut(table).ok_or_else(Failure::no_group)?;
        let Some((key, previous)) = it.objects.remove_entry(key) else {
            return Err(Failure::not_found(&it.kind, key.rsplit('/').next().unwrap_or(key)));
        };
        let mut last = Value::clone(&previous);
        meta::set(&mut last, "resourceVersion", version.to_string());
        let last = Arc::new(last);
        it.record(limit, Event::new(version, key, Change::Removed, last.clone(), Some(previous)));
        self.advance(version);
        crd::after_removal(self, table, &last, now)?;
        Ok(last)
    }

    fn advance(&mut self, version: u64) {
        self.version = version;
        self.progress.send_replace(version);
    }

    /// Makes every version before now too old to start from.
    pub(crate) fn compact(&mut self) {
        for table in self.tables.values_mut() {
            table.floor = self.version;
        }
    }
}

impl Table {
    fn record(&mut self, limit: usize, event: Event) {
        let version = event.version;
        self.events.push_back(Arc::new(event));
        while self.events.len() > limit {
            if let Some(old) = self.events.pop_front() {
                self.forgotten = old.version;
                self.floor = self.floor.max(old.version);
            }
        }
        self.signal.send_replace(version);
    }

    /// The state as it was at `version`, which must not lie before the floor.
    pub(crate) fn at(&self, version: u64) -> Objects<'_> {
        let later = self.events.partition_point(|it| it.version <= version);
        if later == self.events.len() {
            return Cow::Borrowed(&self.objects);
        }
        let mut objects = self.objects.clone();
        for event in self.events.range(later..).rev() {
            match &event.previous {
                Some(previous) => objects.insert(event.key.clone(), previous.clone()),
                None => objects.remove(&event.key),
            };
        }
        Cow::Owned(objects)
    }

    /// Changes after `version`, in order, at most `most`.
    pub(crate) fn since(&self, version: u64, most: usize) -> impl Iterator<Item = &Arc<Event>> {
        let first = self.events.partition_point(|it| it.version <= version);
        self.events.range(first..).take(most)
    }
}

impl Event {
    fn new(version: u64, key: Arc<str>, change: Change, object: Arc<Value>, previous: Option<Arc<Value>>) -> Self {
        Self { version, key, change, object, previous, full: OnceLock::new(), metadata: OnceLock::new() }
    }
}
