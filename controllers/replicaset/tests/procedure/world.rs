//! ReplicaSets and ReplicationControllers in the shared test world.

use std::{ops::Deref, time::Duration};

use client::Limits;
use harness::{Manager, NAMESPACE, merge, name, pass};
use replicaset_controller::Options;
use serde_json::{Value, json};
use test_cluster::Interception;

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// Only expectations prevent that a sync repeats its writes.
pub(crate) const WITHOUT_GATE: Options =
    Options { workers: 5, read_own_writes: false, compares_cost: true, counts_terminating: true };

pub(crate) const STATUS: &str = "update replicasets/status rs";

pub(crate) struct World {
    world: harness::World,
    resource: &'static str,
}

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.world
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::of(replicaset_controller::NAME, "replicasets.apps")
    }

    pub(crate) fn of_replication_controllers() -> Self {
        Self::of(replicaset_controller::REPLICATION_CONTROLLER_NAME, "replicationcontrollers")
    }

    fn of(controller: &'static str, resource: &'static str) -> Self {
        let world = harness::World::new(controller);
        world.create_namespace(NAMESPACE);
        Self { world, resource }
    }

    fn is_replica_set(&self) -> bool {
        self.resource == "replicasets.apps"
    }

    /// Starts a manager and waits until its caches have synced.
    pub(crate) async fn start(&self) -> Manager {
        self.start_with(Options::default()).await
    }

    pub(crate) async fn start_with(&self, options: Options) -> Manager {
        self.start_with_resync(options, Duration::ZERO).await
    }

    /// The same with a resync period.
    pub(crate) async fn start_with_resync(&self, options: Options, resync: Duration) -> Manager {
        let limits = Limits { qps: 100_000.0, burst: 100_000 };
        let process = self.process(limits, resync, |builder| {
            if self.is_replica_set() {
                replicaset_controller::start(builder, options);
            } else {
                replicaset_controller::start_replication_controller(builder, options);
            }
        });
        let manager = process.lead();
        pass(100 * MS).await;
        manager
    }

    /// The set `rs` whose pods are all ready, and its manager.
    pub(crate) async fn running(replicas: usize, spec: Value) -> (Self, Manager) {
        Self::running_with(replicas, spec, Options::default()).await
    }

    pub(crate) async fn running_with(replicas: usize, spec: Value, options: Options) -> (Self, Manager) {
        let world = Self::new();
        let manager = world.start_with(options).await;
        world.set(replicas, spec);
        pass(SEC).await;
        world.run_all();
        pass(SEC).await;
        assert_eq!((world.active_pods().len(), world.count("readyReplicas")), (replicas, replicas));
        world.cluster.clear_requests();
        (world, manager)
    }

    /// Creates the set `rs` with these changes of its spec.
    pub(crate) fn set(&self, replicas: usize, changes: Value) -> Value {
        self.named_set("rs", replicas, changes)
    }

    pub(crate) fn named_set(&self, name: &str, replicas: usize, changes: Value) -> Value {
        let (api_version, kind, selector) = if self.is_replica_set() {
            ("apps/v1", "ReplicaSet", json!({ "matchLabels": { "app": "web" } }))
        } else {
            ("v1", "ReplicationController", json!({ "app": "web" }))
        };
        let template = json!({ "metadata": { "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "main", "image": "one" }] } });
        let mut spec = json!({ "replicas": replicas, "selector": selector, "template": template });
        merge(&mut spec, changes);
        self.cluster.create(json!({ "apiVersion": api_version, "kind": kind,
            "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec }))
    }

    pub(crate) fn get_set(&self) -> Value {
        self.cluster.get(self.resource, NAMESPACE, "rs").unwrap()
    }

    pub(crate) fn update_set(&self, change: impl FnOnce(&mut Value)) {
        self.cluster.update(self.resource, NAMESPACE, "rs", change);
    }

    pub(crate) fn remove_set(&self) {
        self.cluster.remove(self.resource, NAMESPACE, "rs");
    }

    pub(crate) fn scale(&self, replicas: usize) {
        self.update_set(|it| it["spec"]["replicas"] = json!(replicas));
    }

    /// A change that enqueues the set and means nothing.
    pub(crate) fn touch_set(&self, value: &str) {
        self.update_set(|it| it["metadata"]["annotations"] = json!({ "touched": value }));
    }

    /// The set is being deleted, and a finalizer keeps it.
    pub(crate) fn delete_set(&self) {
        self.update_set(|it| {
            it["metadata"]["finalizers"] = json!(["orphan"]);
            it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
        });
    }

    pub(crate) fn status(&self) -> Value {
        self.get_set()["status"].clone()
    }

    pub(crate) fn count(&self, field: &str) -> usize {
        self.status()[field].as_u64().map_or(0, |it| usize::try_from(it).unwrap())
    }

    /// The reason of the condition ReplicaFailure.
    pub(crate) fn failure_reason(&self) -> Option<String> {
        let status = self.status();
        let conditions = status["conditions"].as_array()?;
        let found = conditions.iter().find(|it| it["type"] == "ReplicaFailure" && it["status"] == "True")?;
        Some(found["reason"].as_str().unwrap_or_default().to_owned())
    }

    pub(crate) fn pod(&self, name: &str) -> Value {
        self.cluster.get("pods", NAMESPACE, name).unwrap()
    }

    pub(crate) fn update_pod(&self, pod: &str, change: impl FnOnce(&mut Value)) {
        self.cluster.update("pods", NAMESPACE, pod, change);
    }

    pub(crate) fn relabel(&self, pod: &str, app: &str) {
        self.update_pod(pod, |it| it["metadata"]["labels"]["app"] = json!(app));
    }

    pub(crate) fn orphan(&self, pod: &str) {
        self.update_pod(pod, |it| it["metadata"]["ownerReferences"] = json!([]));
    }

    /// A running pod without an owner.
    pub(crate) fn add_pod(&self, name: &str) {
        self.cluster.create(json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "c", "image": "i" }] } }));
        self.run_pod(name);
    }

    /// The uid of the controller of a pod.
    pub(crate) fn owner(&self, pod: &str) -> Option<String> {
        let pod = self.pod(pod);
        let owners = pod["metadata"]["ownerReferences"].as_array()?;
        let controller = owners.iter().find(|it| it["controller"] == true)?;
        Some(controller["uid"].as_str().unwrap().to_owned())
    }

    pub(crate) fn uid(&self) -> String {
        self.get_set()["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// The active pods of the set.
    pub(crate) fn own(&self) -> Vec<String> {
        let uid = Some(self.uid());
        self.active_pods().into_iter().filter(|it| self.owner(it) == uid).collect()
    }

    /// Makes all pending pods running and ready.
    pub(crate) fn run_all(&self) {
        for pod in self.cluster.list("pods", NAMESPACE) {
            if pod["status"]["phase"] == "Pending" {
                self.run_pod(&name(&pod));
            }
        }
    }

    pub(crate) fn bodies(&self, verb: &str) -> Vec<Value> {
        self.calls().iter().filter(|it| it.verb == verb && it.resource == "pods").map(|it| it.json()).collect()
    }

    /// How often events with this reason were sent.
    pub(crate) async fn event_count(&self, reason: &str) -> i64 {
        pass(2 * SEC).await;
        let all = self.cluster.list("events", NAMESPACE);
        all.iter().filter(|it| it["reason"] == reason).map(|it| it["count"].as_i64().unwrap_or(1)).sum()
    }

    /// The present watches of a resource break, and the next ones must begin with a list.
    pub(crate) fn relist(&self, resource: &str) {
        self.cluster.compact();
        self.cluster.break_watches(resource);
    }

    /// The first `count` creations of pods succeed. The others are refused by a quota.
    pub(crate) fn quota(&self, count: usize) {
        let mut left = count;
        self.fail_requests(move |line, _| {
            if line != "create pods" {
                return None;
            }
            let is_allowed = left > 0;
            left = left.saturating_sub(1);
            (!is_allowed).then(|| Interception::status(403, "Forbidden", "exceeded quota: q"))
        });
    }

    /// All deletions of the pod that is deleted first have this fate.
    pub(crate) fn fail_first_deletion(&self, fate: Interception) {
        let mut first = None::<String>;
        self.fail_requests(move |line, _| {
            let fails = line.starts_with("delete pods") && first.get_or_insert_with(|| line.to_owned()) == line;
            fails.then(|| fate.clone())
        });
    }

    /// The first request that begins with these words has this fate.
    pub(crate) fn fail_first(&self, words: &'static str, fate: &Interception) {
        let (mut first, fate) = (true, fate.clone());
        self.fail_requests(move |line, _| {
            (line.starts_with(words) && std::mem::take(&mut first)).then(|| fate.clone())
        });
    }
}

/// The number of sets that wait for expectations.
pub(crate) fn waiting(manager: &Manager) -> u64 {
    let series = r#"mini_kcm_replicaset_waiting_for_expectations{controller="replicaset-controller"}"#;
    manager.metric(series)
}
