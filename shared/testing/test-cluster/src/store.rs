use std::{
    collections::{BTreeMap, VecDeque},
    iter::Peekable,
    ops::Bound,
    sync::Arc,
};

use clock::{Clock, Timestamp};
use serde_json::Value;

use crate::{
    Failure, crd,
    expiry::Expiry,
    kinds,
    kinds::Kind,
    meta,
    observe::Observers,
    service_addresses::ServiceAddresses,
    signal,
    stored::{Change, Stored},
    tokens::Tokens,
};

/// The whole state of the cluster, behind one lock: one version counter, one table per resource.
pub(crate) struct State {
    /// The version of the last write.
    pub(crate) version: u64,
    pub(crate) tables: BTreeMap<String, Table>,
    pub(crate) rng: fastrand::Rng,
    /// How many changes a table keeps.
    pub(crate) history: usize,
    /// Every object gets a `managedFields` entry.
    pub(crate) managed_fields: bool,
    /// The present request is a dry run: nothing is stored, and observers are not called.
    pub(crate) dry_run: bool,
    /// Increased by every write that may change discovery.
    pub(crate) served: u64,
    /// Increased to send a bookmark on every watch.
    pub(crate) bookmark_calls: u64,
    pub(crate) observers: Observers,
    recent: Recent,
    /// Tables whose definition was removed, for watches that have not sent their last changes yet.
    retired: Vec<Table>,
    /// Notifies reads that wait for a version.
    pub(crate) progress: signal::Sender,
    next_table: u64,
    next_address: u32,
    pub(crate) expiry: Expiry,
    pub(crate) clock: Clock,
    /// Addresses and ports of Services.
    pub(crate) service_addresses: ServiceAddresses,
    /// Tokens of ServiceAccounts.
    pub(crate) tokens: Tokens,
}

/// The objects of one resource with their latest changes.
pub(crate) struct Table {
    pub(crate) kind: Arc<Kind>,
    /// Distinguishes a table from an earlier one with the same key.
    pub(crate) id: u64,
    pub(crate) objects: Objects,
    pub(crate) events: VecDeque<Arc<Event>>,
    /// The oldest version from which a watch may start and that may be listed.
    pub(crate) floor: u64,
    /// The version of the newest change that is not kept any more.
    pub(crate) forgotten: u64,
    /// Wakes the watches of this table.
    pub(crate) signal: signal::Sender,
    pub(crate) watches: WatchFaults,
}

/// By storage key: `namespace/name`, or only the name, so in the order of lists.
pub(crate) type Objects = BTreeMap<Arc<str>, Arc<Stored>>;

/// Faults of watches. Watches have increasing numbers; those below a limit have the fault.
#[derive(Debug, Default)]
pub(crate) struct WatchFaults {
    pub(crate) next: u64,
    pub(crate) frozen_below: u64,
    pub(crate) broken_below: u64,
    pub(crate) ended_below: u64,
}

/// One change, shared by all watches.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) change: Change,
    /// The new state, or the last one with the version of the removal.
    pub(crate) object: Arc<Stored>,
    pub(crate) previous: Option<Arc<Stored>>,
}

/// The response of a dry run: a new object has no version, a changed one has the version before the change.
fn dry_run_result(mut object: Value, previous: Option<&Stored>) -> Value {
    match previous {
        Some(previous) => meta::set(&mut object, "resourceVersion", previous.version()),
        None => meta::remove(&mut object, "resourceVersion"),
    }
    object
}

/// The key under which an object is stored.
pub(crate) fn storage_key(kind: &Kind, namespace: &str, name: &str) -> String {
    if kind.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
}

impl State {
    pub(crate) fn new(seed: u64, history: usize, managed_fields: bool, clock: Clock) -> Self {
        let mut state = Self {
            version: 0,
            tables: BTreeMap::new(),
            rng: fastrand::Rng::with_seed(seed),
            history,
            managed_fields,
            dry_run: false,
            served: 0,
            bookmark_calls: 0,
            observers: Observers::default(),
            recent: Recent::default(),
            retired: Vec::new(),
            progress: signal::Sender::new(0),
            next_table: 0,
            next_address: 0,
            expiry: Expiry::default(),
            clock,
            service_addresses: ServiceAddresses::default(),
            tokens: Tokens::default(),
        };
        for kind in kinds::builtin().iter().filter(|it| it.has_table()) {
            state.open_table(kind.clone(), 0);
        }
        state
    }

    /// A number for an address that was not used yet.
    pub(crate) fn next_address(&mut self) -> u32 {
        self.next_address += 1;
        self.next_address
    }

    /// Starts serving a kind; watches start at `floor` or later.
    pub(crate) fn open_table(&mut self, kind: impl Into<Arc<Kind>>, floor: u64) {
        let kind = kind.into();
        self.next_table += 1;
        let table = Table {
            id: self.next_table,
            objects: BTreeMap::new(),
            events: VecDeque::new(),
            floor,
            forgotten: floor,
            signal: signal::Sender::new(0),
            watches: WatchFaults::default(),
            kind,
        };
        self.tables.insert(table.kind.table(), table);
    }

    /// Stops serving a kind: its watches send their last changes and end.
    pub(crate) fn retire_table(&mut self, table: &str) {
        // Retired tables without watches are not needed.
        self.retired.retain(|it| it.signal.has_receivers());
        if let Some(table) = self.tables.remove(table) {
            table.signal.send(self.version);
            self.retired.push(table);
        }
    }

    /// The table of a watch, and whether it is retired.
    pub(crate) fn watched_table(&self, table: &str, id: u64) -> Option<(&Table, bool)> {
        let present = self.tables.get(table).filter(|it| it.id == id).map(|it| (it, false));
        present.or_else(|| self.retired.iter().find(|it| it.id == id).map(|it| (it, true)))
    }

    pub(crate) fn table(&self, table: &str) -> Result<&Table, Failure> {
        self.tables.get(table).ok_or_else(Failure::no_group)
    }

    /// A kind by plural (`pods`), by plural and group (`foos.example.com`) or by its kind name (`Pod`).
    pub(crate) fn find(&self, resource: &str) -> Option<Arc<Kind>> {
        let matches = |it: &&Arc<Kind>| it.plural == resource || it.kind == resource || it.qualified() == resource;
        self.tables.values().map(|it| &it.kind).find(matches).cloned()
    }

    /// An object as it is stored: its bytes and the values for selectors.
    pub(crate) fn stored(&self, table: &str, key: &str) -> Option<&Arc<Stored>> {
        self.tables.get(table)?.objects.get(key)
    }

    /// An object decoded, for a change.
    pub(crate) fn object(&self, table: &str, key: &str) -> Option<Arc<Value>> {
        let stored = self.stored(table, key)?;
        Some(self.recent.get(stored).unwrap_or_else(|| Arc::new(stored.decode())))
    }

    /// Runs a request on the state, possibly as a dry run.
    ///
    /// # Errors
    /// Those of `act`.
    pub(crate) fn act<T>(
        &mut self,
        dry_run: bool,
        act: impl FnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let trying = DryRun(self);
        trying.0.dry_run = dry_run;
        act(&mut *trying.0)
    }

    /// Stores a new or changed object under the next version. In a dry run it is returned with its old version.
    pub(crate) fn put(&mut self, table: &str, key: &str, mut object: Value) -> Result<Arc<Value>, Failure> {
        self.record_served(table);
        let version = self.version + 1;
        let limit = self.history;
        let it = self.tables.get_mut(table).ok_or_else(Failure::no_group)?;
        let previous = it.objects.get(key).cloned();
        if self.dry_run {
            return Ok(Arc::new(dry_run_result(object, previous.as_deref())));
        }
        meta::set(&mut object, "resourceVersion", version.to_string());
        let (change, key) = match &previous {
            Some(previous) => (Change::Modified, previous.key.clone()),
            None => (Change::Added, key.into()),
        };
        let stored = Arc::new(Stored::new(&it.kind, key.clone(), change, &object, previous.as_deref()));
        if table == kinds::SERVICES {
            self.service_addresses.record(&key, Some(&object));
        }
        it.objects.insert(key, stored.clone());
        let event = it.record(limit, Event { version, change, object: stored, previous });
        let object = Arc::new(object);
        self.recent.add(&event.object, &object);
        self.record_expiry(table, &event.object.key, version);
        self.advance(&event);
        Ok(object)
    }

    /// Removes an object and returns its last state, with the version of the removal.
    pub(crate) fn remove(&mut self, table: &str, key: &str, now: Timestamp) -> Result<Arc<Value>, Failure> {
        self.record_served(table);
        let version = self.version + 1;
        let limit = self.history;
        let it = self.tables.get_mut(table).ok_or_else(Failure::no_group)?;
        let Some(previous) = it.objects.get(key).cloned() else {
            return Err(Failure::not_found(&it.kind, key.rsplit('/').next().unwrap_or(key)));
        };
        if self.dry_run {
            return Ok(Arc::new(previous.decode()));
        }
        it.objects.remove(key);
        if table == kinds::SERVICES {
            self.service_addresses.record(key, None);
        }
        let last = Arc::new(previous.renumbered(Change::Removed, version));
        let mut value = self.recent.take(&previous).map_or_else(|| previous.decode(), Arc::unwrap_or_clone);
        meta::set(&mut value, "resourceVersion", version.to_string());
        let value = Arc::new(value);
        let event =
            it.record(limit, Event { version, change: Change::Removed, object: last, previous: Some(previous) });
        self.advance(&event);
        crd::after_removal(self, table, &value, now)?;
        Ok(value)
    }

    fn advance(&mut self, event: &Event) {
        self.version = event.version;
        self.progress.send(event.version);
        self.notify(event);
    }

    /// Discovery depends on these two kinds, so the counter is increased under the same lock.
    fn record_served(&mut self, table: &str) {
        if matches!(table, kinds::CRDS | kinds::API_SERVICES) {
            self.served += 1;
        }
    }

    /// Makes every earlier version too old to start from.
    pub(crate) fn compact(&mut self) {
        for table in self.tables.values_mut() {
            table.floor = self.version;
        }
    }

    /// Replaces the objects of each served type by these, with their versions, and sends no events to watches. Versions
    /// before `version` count as compacted, and the next write gets a later version.
    pub(crate) fn restore(&mut self, objects: &BTreeMap<String, Objects>, version: u64) {
        self.version = version;
        for (name, table) in &mut self.tables {
            table.objects = objects.get(name).cloned().unwrap_or_default();
            table.events.clear();
            table.floor = version;
            table.forgotten = version;
            table.signal.send(version);
        }
        self.progress.send(version);
    }
}

/// Ends a dry run in any case, so that after a panic later requests are not dry runs too.
struct DryRun<'a>(&'a mut State);

impl Drop for DryRun<'_> {
    fn drop(&mut self) {
        self.0.dry_run = false;
    }
}

impl Table {
    fn record(&mut self, limit: usize, event: Event) -> Arc<Event> {
        let event = Arc::new(event);
        self.events.push_back(event.clone());
        while self.events.len() > limit {
            if let Some(old) = self.events.pop_front() {
                self.forgotten = old.version;
                self.floor = self.floor.max(old.version);
            }
        }
        self.signal.send(event.version);
        event
    }

    /// The state at `version`, which must not be older than the floor.
    pub(crate) fn at(&self, version: u64) -> Snapshot<'_> {
        let later = self.events.partition_point(|it| it.version <= version);
        let mut changed = BTreeMap::new();
        // Backwards, so that the state before the first of the later changes is used.
        for event in self.events.range(later..).rev() {
            changed.insert(&*event.object.key, event.previous.as_ref());
        }
        Snapshot { now: &self.objects, changed }
    }

    /// At most `most` changes after `version`, in order.
    pub(crate) fn events_since(&self, version: u64, most: usize) -> impl Iterator<Item = &Arc<Event>> {
        let first = self.events.partition_point(|it| it.version <= version);
        self.events.range(first..).take(most)
    }
}

/// The last written objects, decoded: a client often writes an object again soon, and then it need not be decoded.
#[derive(Default)]
struct Recent(VecDeque<(Arc<Stored>, Arc<Value>)>);

impl Recent {
    /// Enough for the clients that write at one time. A decoded value is several times larger than its bytes.
    const MOST: usize = 32;

    fn add(&mut self, stored: &Arc<Stored>, value: &Arc<Value>) {
        self.0.truncate(Self::MOST - 1);
        self.0.push_front((stored.clone(), value.clone()));
    }

    fn get(&self, stored: &Arc<Stored>) -> Option<Arc<Value>> {
        self.0.iter().find(|it| Arc::ptr_eq(&it.0, stored)).map(|it| it.1.clone())
    }

    fn take(&mut self, stored: &Arc<Stored>) -> Option<Arc<Value>> {
        let at = self.0.iter().position(|it| Arc::ptr_eq(&it.0, stored))?;
        self.0.remove(at).map(|it| it.1)
    }
}

/// The state of a table at a version: the present objects, except those that have changed since.
pub(crate) struct Snapshot<'a> {
    now: &'a Objects,
    changed: BTreeMap<&'a str, Option<&'a Arc<Stored>>>,
}

impl Snapshot<'_> {
    /// The objects from a key on, in the order of keys.
    pub(crate) fn range<'a>(&'a self, first: Bound<&'a str>) -> impl Iterator<Item = &'a Arc<Stored>> {
        let same = self.now.range::<str, _>((first, Bound::Unbounded)).map(|it| it.1);
        let same = same.filter(|it| !self.changed.contains_key(&*it.key));
        let changed = self.changed.range::<str, _>((first, Bound::Unbounded)).filter_map(|it| *it.1);
        Merged { left: same.peekable(), right: changed.peekable() }
    }
}

/// Merges two sorted sequences.
struct Merged<L: Iterator, R: Iterator> {
    left: Peekable<L>,
    right: Peekable<R>,
}

impl<'a, L, R> Iterator for Merged<L, R>
where
    L: Iterator<Item = &'a Arc<Stored>>,
    R: Iterator<Item = &'a Arc<Stored>>,
{
    type Item = &'a Arc<Stored>;

    fn next(&mut self) -> Option<Self::Item> {
        match (self.left.peek(), self.right.peek()) {
            (Some(left), Some(right)) if left.key < right.key => self.left.next(),
            (_, Some(_)) => self.right.next(),
            (_, None) => self.left.next(),
        }
    }
}
