use std::{collections::BTreeMap, sync::Arc};

use clock::{Clock, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use crate::{
    Failure, Service, apiservice,
    cluster::{ClusterService, Shared},
    crd, decode,
    delete::{self, DeleteOptions},
    discovery::Documents,
    faults::{Call, DiscoveryFault, Faults, Interception, Recorded},
    kinds::{self, Kind},
    meta, namespace,
    store::{Objects, State, storage_key},
    stored::Stored,
    versions,
    write::{self, Target},
};

/// Fields that a test may set in a new object although a create request may not.
const GIVEN: [&str; 6] =
    ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"];

/// The parameters of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The seed of uids, generated names and random timeouts.
    pub seed: u64,
    /// Every object has a `managedFields` entry, as on a real server, for clients that must remove it.
    pub managed_fields: bool,
    /// How many changes of each resource are kept for watches and lists of older states.
    pub history: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { seed: 0, managed_fields: false, history: 50_000 }
    }
}

/// The objects of a cluster at one time.
#[derive(Clone)]
pub struct Snapshot {
    objects: BTreeMap<String, Objects>,
    version: u64,
}

/// A cluster without nodes or controllers: an API server and its objects. Clones are handles to the same cluster.
///
/// A resource is given by plural (`pods`), by plural and group (`foos.example.com`) or by kind (`Pod`).
#[derive(Clone)]
pub struct TestCluster {
    pub(crate) shared: Arc<Shared>,
}

impl TestCluster {
    /// A cluster with the four namespaces that always exist.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self::with_options(clock, Options::default())
    }

    /// The same with this seed for all random values.
    #[must_use]
    pub fn with_seed(clock: Clock, seed: u64) -> Self {
        Self::with_options(clock, Options { seed, ..Options::default() })
    }

    /// The same with all options.
    #[must_use]
    pub fn with_options(clock: Clock, options: Options) -> Self {
        let Options { seed, managed_fields, history } = options;
        let mut state = State::new(seed, history, managed_fields, clock.clone());
        // The kind is built in, so this cannot fail.
        let _ = apiservice::create_all(&mut state, clock.wall());
        let state = Mutex::new(state);
        let cluster = Self {
            shared: Arc::new(Shared { state, faults: Faults::default(), documents: Documents::default(), clock }),
        };
        for name in namespace::ALWAYS {
            cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
        }
        cluster
    }

    /// The cluster as a tower service, which a client uses instead of connections.
    #[must_use]
    pub fn service(&self) -> Service {
        Service::new(ClusterService(self.shared.clone()))
    }

    /// The version of the last write.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.shared.state.lock().version
    }
}

/// Direct access without a request, for tests.
impl TestCluster {
    /// The present state, after the removal of expired objects.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.shared.state.lock();
        state.expire();
        state
    }

    /// Stores a new object. Defaults are set as by a create request, but there is no admission and no validation:
    /// status, uid, times, generation and deletionTimestamp stay as given.
    ///
    /// # Panics
    /// If the kind is not served, the object has no name, or it exists already.
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

    /// The object as it is stored now.
    #[must_use]
    #[track_caller]
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.state();
        let kind = find(&state, resource);
        state.stored(&kind.table(), &storage_key(&kind, namespace, name)).map(|it| it.decode())
    }

    /// Changes an object, including its status, without any check. The generation is increased unless `change` sets it.
    /// An object that is being deleted is removed when `change` removes its last finalizer.
    ///
    /// # Panics
    /// If the object does not exist.
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
        if write::is_generation_change(&kind, &current, &next) && next["metadata"]["generation"] == *generation {
            meta::set(&mut next, "generation", generation.as_i64().unwrap_or(0).saturating_add(1));
        }
        let now = self.shared.clock.wall();
        let stored = if next == *current {
            Ok(current)
        } else if write::may_be_removed(&kind, &next) {
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

    /// Deletes an object like a DELETE without options; a pod is deleted without grace, as its kubelet does it. An
    /// object with finalizers remains. A missing object is not an error.
    #[track_caller]
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) {
        self.delete_with(resource, namespace, name, None);
    }

    /// The same with a propagation policy: `Background`, `Foreground` or `Orphan`.
    ///
    /// # Panics
    /// If the policy or the resource does not exist.
    #[track_caller]
    pub fn delete_with_policy(&self, resource: &str, namespace: &str, name: &str, policy: &str) {
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

    /// True when the resource is served now. Custom resources appear and disappear with their definitions.
    #[must_use]
    pub fn is_served(&self, resource: &str) -> bool {
        self.shared.state.lock().find(resource).is_some()
    }

    /// Removes an object at once, even with finalizers. A missing object is not an error.
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

    /// All objects of a namespace, or of the cluster if `namespace` is empty, in the order of lists.
    #[must_use]
    #[track_caller]
    pub fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        self.list_as(resource, namespace, Stored::decode)
    }

    /// The same objects, of which each is decoded only to its metadata.
    #[must_use]
    #[track_caller]
    pub fn list_metadata(&self, resource: &str, namespace: &str) -> Vec<Value> {
        self.list_as(resource, namespace, Stored::decode_metadata)
    }

    #[track_caller]
    fn list_as(&self, resource: &str, namespace: &str, read: fn(&Stored) -> Value) -> Vec<Value> {
        let state = self.state();
        let kind = find(&state, resource);
        let objects = state.tables.get(&kind.table()).into_iter().flat_map(|it| it.objects.values());
        objects.filter(|it| namespace.is_empty() || it.namespace() == namespace).map(|it| read(it)).collect()
    }
}

/// Injected faults, and inspection.
impl TestCluster {
    /// Every request so far, in the order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.faults.calls()
    }

    /// Deletes the recorded requests.
    pub fn clear_requests(&self) {
        self.shared.faults.clear_calls();
    }

    /// Switches the recording of requests on or off; load tests switch it off.
    pub fn set_recording(&self, on: bool) {
        self.shared.faults.set_recording(on);
    }

    /// Calls `callback` for every request from now on, when its response begins. It replaces an earlier callback. It
    /// works like an audit log, and must not call this method.
    pub fn on_response(&self, callback: impl FnMut(&Recorded) + Send + 'static) {
        self.shared.faults.set_response_callback(Box::new(callback));
    }

    /// Calls `respond` to decide about every request from now on. It replaces an earlier callback. It may use the
    /// cluster, except this method and [`TestCluster::stop_intercepting`].
    pub fn intercept(&self, respond: impl FnMut(&Call) -> Interception + Send + 'static) {
        self.shared.faults.set_interceptor(Some(Box::new(respond)));
    }

    /// Removes the callback, so that every request is served.
    pub fn stop_intercepting(&self) {
        self.shared.faults.set_interceptor(None);
    }

    /// Makes all earlier versions too old for watches and lists.
    pub fn compact(&self) {
        self.shared.state.lock().compact();
    }

    /// Returns the present objects, for [`TestCluster::restore`].
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state();
        let objects = state.tables.iter().map(|(name, table)| (name.clone(), table.objects.clone())).collect();
        Snapshot { objects, version: state.version }
    }

    /// Restores the objects of a snapshot with their versions, as `etcdutl snapshot restore --bump-revision
    /// --mark-compacted` does: the next write gets a version that is newer than all before, and watches expire.
    pub fn restore(&self, snapshot: &Snapshot) {
        let mut state = self.shared.state.lock();
        let version = state.version + 1_000;
        state.restore(&snapshot.objects, version);
    }

    /// The same without these options: versions continue from that of the snapshot, and a watch sends nothing until
    /// they pass the version that it has sent.
    pub fn restore_versions_too(&self, snapshot: &Snapshot) {
        self.shared.state.lock().restore(&snapshot.objects, snapshot.version);
    }

    /// Sends a bookmark now on every watch that allows bookmarks, unless it started at the present version.
    pub fn send_bookmarks(&self) {
        let mut state = self.shared.state.lock();
        state.bookmark_calls += 1;
        let version = state.version;
        for table in state.tables.values() {
            table.signal.send(version);
        }
    }

    /// The open watches of a resource become silent: no event, no bookmark, no end. Later watches work.
    #[track_caller]
    pub fn freeze_watches(&self, resource: &str) {
        self.change_watch_faults(resource, |it| it.frozen_below = it.next);
    }

    /// Frozen watches continue where they stopped.
    #[track_caller]
    pub fn unfreeze_watches(&self, resource: &str) {
        self.change_watch_faults(resource, |it| it.frozen_below = 0);
    }

    /// The open watches of a resource break with an error.
    #[track_caller]
    pub fn break_watches(&self, resource: &str) {
        self.change_watch_faults(resource, |it| it.broken_below = it.next);
    }

    /// The open watches of a resource end normally, as after their timeout.
    #[track_caller]
    pub fn end_watches(&self, resource: &str) {
        self.change_watch_faults(resource, |it| it.ended_below = it.next);
    }

    #[track_caller]
    fn change_watch_faults(&self, resource: &str, change: impl FnOnce(&mut crate::store::WatchFaults)) {
        let mut state = self.shared.state.lock();
        let (table, version) = (find(&state, resource).table(), state.version);
        if let Some(table) = state.tables.get_mut(&table) {
            change(&mut table.watches);
            table.signal.send(version);
        }
    }

    /// Discovery of one API group fails; its resources are still served.
    pub fn fail_discovery(&self, group: &str, fault: DiscoveryFault) {
        self.shared.faults.change_groups(|it| {
            it.discovery.insert(group.to_owned(), fault);
        });
    }

    /// Every request for one API group gets 503 in plain text, as if its aggregated server were not running.
    pub fn break_group(&self, group: &str) {
        self.shared.faults.change_groups(|it| {
            it.broken.insert(group.to_owned());
        });
    }

    /// The group works again, discovery included.
    pub fn restore_group(&self, group: &str) {
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
