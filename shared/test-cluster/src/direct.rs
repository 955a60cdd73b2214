use std::{collections::BTreeMap, sync::Arc};

use clock::{Clock, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::{
    Failure, Service, apiservice,
    cluster::{Door, Shared},
    crd, decode,
    delete::{self, DeleteOptions},
    discovery::Documents,
    faults::{Call, DiscoveryFault, Faults, Recorded, Verdict},
    kinds::{self, Kind},
    meta, namespace,
    store::{Objects, State, storage_key},
    versions,
    write::{self, Target},
};

/// What a test may settle about a new object that a creation by request may not.
const GIVEN: [&str; 6] =
    ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"];

/// How a cluster begins.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Of uids, generated names and random timeouts.
    pub seed: u64,
    /// Every object carries a `managedFields` entry, as on a real server, for those who must strip it.
    pub managed_fields: bool,
    /// How many changes of each resource are remembered for watches and past states.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 0, managed_fields: false, history: 50_000 }
    }
}

/// All that was stored at one time.
#[derive(Clone)]
pub struct Snapshot {
    objects: BTreeMap<String, Objects>,
    version: u64,
}

/// A cluster without nodes or controllers: an API server and what it stores. Clones are handles to the same cluster.
///
/// Resources are named by plural (`pods`), by plural and group (`foos.example.com`) or by kind (`Pod`).
#[derive(Clone)]
pub struct TestCluster {
    pub(crate) shared: Arc<Shared>,
}

impl TestCluster {
    /// A cluster with the four namespaces that are always there.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self::with_options(clock, Options::default())
    }

    /// The same with this seed for all randomness.
    #[must_use]
    pub fn with_seed(clock: Clock, seed: u64) -> Self {
        Self::with_options(clock, Options { seed, ..Options::default() })
    }

    /// The same with all options.
    #[must_use]
    pub fn with_options(clock: Clock, options: Options) -> Self {
        let Options { seed, managed_fields, history } = options;
        let mut state = State::new(seed, history, managed_fields, clock.clone());
        // The kind is built in, so there is no failure.
        let _ = apiservice::begin(&mut state, clock.wall());
        let state = Mutex::new(state);
        let cluster = Self {
            shared: Arc::new(Shared { state, faults: Faults::default(), documents: Documents::default(), clock }),
        };
        for name in namespace::ALWAYS {
            cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
        }
        cluster
    }

    /// The cluster as a transport: what a client takes in place of connections.
    #[must_use]
    pub fn service(&self) -> Service {
        Service::new(Door(self.shared.clone()))
    }

    /// The version of the last write.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.state.lock().version
    }
}

/// Direct access: what a test arranges and inspects without a request.
impl TestCluster {
    /// The state as of now: what was due by now is gone.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.shared.state.lock();
        state.expire();
        state
    }

    /// Stores a new object as given, filled in as a creation does, but neither admitted nor validated: status, uid, times,
    /// generation and deletion stay as they are given.
    ///
    /// # Panics
    /// If the kind is not served, the object has no name, or one of its name exists.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "tests hand over a json!() literal")]
    pub fn create(&self, object: Value) -> Value {
        let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let mut state = self.state();
        let kind = object["kind"].as_str().unwrap_or_default();
        let version_and_kind =
            |it: &&Arc<Kind>| it.kind == kind && it.versions.iter().any(|v| kinds::join(&it.group, v) == api_version);
        let found = kinds::builtin().iter().chain(state.tables.values().map(|it| &it.kind)).find(version_and_kind);
        let Some(kind) = found.cloned() else { panic!("{api_version} {kind} is not served") };
        let now = self.shared.clock.wall();
        let (namespace, name) = (meta::namespace(&object), meta::name(&object));
        let namespace = if namespace.is_empty() { "default" } else { namespace };
        assert!(!name.is_empty(), "an object needs a name: {object}");
        let key = storage_key(&kind, namespace, name);
        assert!(state.stored(&kind.table(), &key).is_none(), "{} {key} exists", kind.qualified());
        let read = versions::stored(&kind, &api_version, decode::direct(&kind, &api_version, object.clone()));
        let mut stored = write::prepare(&mut state, &kind, namespace, name, read.clone(), now);
        for field in GIVEN {
            if !object["metadata"][field].is_null() {
                meta::set(&mut stored, field, object["metadata"][field].clone());
            }
        }
        if !object["status"].is_null() {
            meta::as_map(&mut stored).insert("status".into(), read["status"].clone());
            decode::complete(&kind, &mut stored);
        }
        let stored = state.put(&kind.table(), &key, stored);
        let stored = stored.and_then(|it| after_create(&mut state, &kind, &it, now).map(|()| it));
        match stored {
            Ok(stored) => Value::clone(&state.object(&kind.table(), &key).unwrap_or(stored)),
            Err(failure) => panic!("{failure:?}"),
        }
    }

    /// An object as it is stored now.
    #[must_use]
    #[track_caller]
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.state();
        let kind = find(&state, resource);
        state.stored(&kind.table(), &storage_key(&kind, namespace, name)).map(|it| it.decode())
    }

    /// Changes an object, status and all, as `change` says: nobody checks. The generation counts unless `change` sets it.
    /// An object that was only waiting for its last finalizer goes when `change` takes it.
    ///
    /// # Panics
    /// If there is no such object.
    #[track_caller]
    pub fn update(&self, resource: &str, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) -> Value {
        let mut state = self.state();
        let kind = find(&state, resource);
        let (table, key) = (kind.table(), storage_key(&kind, namespace, name));
        let Some(current) = state.object(&table, &key) else { panic!("no {resource} {key}") };
        let mut next = Value::clone(&current);
        change(&mut next);
        meta::tidy(&mut next);
        let generation = &current["metadata"]["generation"];
        if write::counts_as_generation(&kind, &current, &next) && next["metadata"]["generation"] == *generation {
            meta::set(&mut next, "generation", generation.as_i64().unwrap_or(0).saturating_add(1));
        }
        let now = self.shared.clock.wall();
        let stored = if next == *current {
            Ok(current)
        } else if write::may_go(&kind, &next) {
            state.remove(&table, &key, now)
        } else {
            state.put(&table, &key, next)
        };
        let stored = stored.and_then(|it| after_update(&mut state, &kind, &it, now).map(|()| it));
        match stored {
            Ok(stored) => Value::clone(&stored),
            Err(failure) => panic!("{failure:?}"),
        }
    }

    /// Deletes an object as a DELETE without options does; a pod as the kubelet does, without grace. Finalizers hold.
    /// What is not there is no error.
    #[track_caller]
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        self.delete_with(resource, namespace, name, None);
    }

    /// The same with a propagation policy: `Background`, `Foreground` or `Orphan`.
    ///
    /// # Panics
    /// If there is no such policy or resource.
    #[track_caller]
    pub fn delete_as(&self, resource: &str, namespace: &str, name: &str, policy: &str) {
        assert!(matches!(policy, "Background" | "Foreground" | "Orphan"), "no policy: {policy}");
        self.delete_with(resource, namespace, name, Some(policy.to_owned()));
    }

    #[track_caller]
    fn delete_with(&self, resource: &str, namespace: &str, name: &str, propagation: Option<String>) {
        let mut state = self.state();
        let kind = find(&state, resource);
        let target = Target {
            table: kind.table(),
            api_version: kind.api_version(),
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let options = DeleteOptions { grace: Some(0), propagation, ..DeleteOptions::default() };
        match delete::delete(&mut state, &target, &options, self.shared.clock.wall()) {
            Err(failure) if !failure.is_not_found() => panic!("{failure:?}"),
            _ => {}
        }
    }

    /// Whether there is such a resource now: those of custom kinds come and go with their definitions.
    #[must_use]
    pub fn serves(&self, resource: &str) -> bool {
        self.shared.state.lock().find(resource).is_some()
    }

    /// Removes an object at once, finalizers or not. What is not there is no error.
    #[track_caller]
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
        let mut state = self.state();
        let kind = find(&state, resource);
        let key = storage_key(&kind, namespace, name);
        match state.remove(&kind.table(), &key, self.shared.clock.wall()) {
            Err(failure) if !failure.is_not_found() => panic!("{failure:?}"),
            _ => {}
        }
    }

    /// All objects of a namespace, or of the cluster where `namespace` is empty, in the order of lists.
    #[must_use]
    #[track_caller]
    pub fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let state = self.state();
        let kind = find(&state, resource);
        let objects = state.tables.get(&kind.table()).into_iter().flat_map(|it| it.objects.values());
        objects.filter(|it| namespace.is_empty() || it.namespace() == namespace).map(|it| it.decode()).collect()
    }
}

/// Faults and inspection.
impl TestCluster {
    /// Every request so far, in the order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.faults.calls()
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.shared.faults.clear_calls();
    }

    /// Whether requests are recorded; load tests switch it off.
    pub fn set_recording(&self, on: bool) {
        self.shared.faults.set_recording(on);
    }

    /// Tells `witness` of every request from now on when its answer begins, in place of any earlier one: an audit log. It
    /// may not call this.
    pub fn witness(&self, witness: impl FnMut(&Recorded) + Send + 'static) {
        self.shared.faults.set_witness(Box::new(witness));
    }

    /// Lets `judge` decide about every request from now on, in place of any earlier one. It may use the cluster, but
    /// neither this call nor [`TestCluster::stop_intercepting`].
    pub fn intercept(&self, judge: impl FnMut(&Call) -> Verdict + Send + 'static) {
        self.shared.faults.set_interceptor(Some(Box::new(judge)));
    }

    /// Every request passes again.
    pub fn stop_intercepting(&self) {
        self.shared.faults.set_interceptor(None);
    }

    /// Versions before now are too old to start a watch from or to list.
    pub fn compact(&self) {
        self.shared.state.lock().compact();
    }

    /// All that is stored now, for [`TestCluster::restore`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state();
        let objects = state.tables.iter().map(|(name, table)| (name.clone(), table.objects.clone())).collect();
        Snapshot { objects, version: state.version }
    }

    /// Etcd is restored from a snapshot, as with `etcdutl snapshot restore --bump-revision --mark-compacted`: objects are as
    /// they were then, in the versions of then, and what is written next is newer than all that there was. Watches are too old.
    pub fn restore(&self, snapshot: &Snapshot) {
        let mut state = self.shared.state.lock();
        let version = state.version + 1_000;
        state.restore(&snapshot.objects, version);
    }

    /// The same without these options: versions begin again where they were then, and watches wait for what is newer than
    /// all that they have shown.
    pub fn restore_versions_too(&self, snapshot: &Snapshot) {
        self.shared.state.lock().restore(&snapshot.objects, snapshot.version);
    }

    /// Every watch that allows bookmarks gets one now, except where the version is the one it started at.
    pub fn send_bookmarks(&self) {
        let mut state = self.shared.state.lock();
        state.bookmark_calls += 1;
        let version = state.version;
        for table in state.tables.values() {
            table.signal.send(version);
        }
    }

    /// The watches of a resource that are open now fall silent: no event, no bookmark, no end. Later ones work.
    #[track_caller]
    pub fn freeze_watches(&self, resource: &str) {
        self.afflict(resource, |it| it.frozen_below = it.next);
    }

    /// Frozen watches go on where they stopped.
    #[track_caller]
    pub fn thaw(&self, resource: &str) {
        self.afflict(resource, |it| it.frozen_below = 0);
    }

    /// The watches of a resource that are open now break off with an error.
    #[track_caller]
    pub fn break_watches(&self, resource: &str) {
        self.afflict(resource, |it| it.broken_below = it.next);
    }

    /// The watches of a resource that are open now end cleanly, as after their timeout.
    #[track_caller]
    pub fn end_watches(&self, resource: &str) {
        self.afflict(resource, |it| it.ended_below = it.next);
    }

    #[track_caller]
    fn afflict(&self, resource: &str, change: impl FnOnce(&mut crate::store::WatchFaults)) {
        let mut state = self.shared.state.lock();
        let (table, version) = (find(&state, resource).table(), state.version);
        if let Some(table) = state.tables.get_mut(&table) {
            change(&mut table.watches);
            table.signal.send(version);
        }
    }

    /// Discovery of one API group fails; its resources are served as ever.
    pub fn fail_discovery(&self, group: &str, fault: DiscoveryFault) {
        self.shared.faults.change_groups(|it| {
            it.discovery.insert(group.to_owned(), fault);
        });
    }

    /// Every request of one API group answers 503 in plain text, as if its aggregated server were down.
    pub fn break_group(&self, group: &str) {
        self.shared.faults.change_groups(|it| {
            it.broken.insert(group.to_owned());
        });
    }

    /// The group works again, discovery included.
    pub fn mend_group(&self, group: &str) {
        self.shared.faults.change_groups(|it| {
            it.broken.remove(group);
            it.discovery.remove(group);
        });
    }
}

fn after_create(state: &mut State, kind: &Kind, stored: &Arc<Value>, now: Timestamp) -> Result<(), Failure> {
    crd::after_create(state, kind, stored, now)?;
    apiservice::after_write(state, kind, stored, now)
}

fn after_update(state: &mut State, kind: &Kind, stored: &Arc<Value>, now: Timestamp) -> Result<(), Failure> {
    crd::after_update(state, kind, stored, now)?;
    apiservice::after_write(state, kind, stored, now)
}

#[track_caller]
fn find(state: &State, resource: &str) -> Arc<Kind> {
    match state.find(resource) {
        Some(kind) => kind,
        None => panic!("resource {resource} is not served"),
    }
}
