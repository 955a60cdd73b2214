//! Deployments in the shared test world.

use std::{ops::Deref, time::Duration};

use client::Limits;
use deployment_controller::Options;
use harness::{Manager, NAMESPACE, merge, name, pass};
use serde_json::{Value, json};

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";
pub(crate) const HISTORY: &str = "deployment.kubernetes.io/revision-history";
pub(crate) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
pub(crate) const MAX: &str = "deployment.kubernetes.io/max-replicas";
pub(crate) const HASH: &str = "pod-template-hash";
pub(crate) const STATUS: &str = "update deployments/status d";

const SETS: &str = "replicasets.apps";
const DEPLOYMENTS: &str = "deployments.apps";

pub(crate) struct World(harness::World);

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.0
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let world = harness::World::new(deployment_controller::NAME);
        world.create_namespace(NAMESPACE);
        Self(world)
    }

    /// Starts a manager and waits until its caches have synced.
    pub(crate) async fn start(&self) -> Manager {
        let limits = Limits { qps: 10_000.0, burst: 10_000 };
        let options = Options::default();
        let process = self.process(limits, Duration::ZERO, |builder| deployment_controller::start(builder, options));
        let manager = process.lead();
        pass(100 * MS).await;
        manager
    }

    /// A Deployment of 10 with surge 3 and 2 unavailable, with eight old pods and five of a new template, none of which is
    /// available.
    pub(crate) async fn with_broken_rollout(surge: Value, unavailable: Value) -> (Self, Manager) {
        let (world, manager) = Self::running(json!({ "replicas": 10, "strategy": rolling(surge, unavailable) })).await;
        world.set_image("two");
        pass(100 * MS).await;
        world.run_set("one", 8);
        world.run_set("two", 0);
        pass(SEC).await;
        assert_eq!(world.sizes(), pairs(&[("one", 8), ("two", 5)]));
        (world, manager)
    }

    /// A Deployment whose rollout is complete, and its manager. The calls so far are forgotten.
    pub(crate) async fn running(spec: Value) -> (Self, Manager) {
        let world = Self::new();
        let manager = world.start().await;
        world.deploy(spec);
        world.run_rollout().await;
        world.cluster.clear_requests();
        (world, manager)
    }

    /// Creates the Deployment `d` of 3 with these changes of its spec.
    pub(crate) fn deploy(&self, changes: Value) -> Value {
        self.deploy_as("d", json!({}), changes)
    }

    pub(crate) fn deploy_as(&self, name: &str, annotations: Value, changes: Value) -> Value {
        let mut spec =
            json!({ "replicas": 3, "selector": { "matchLabels": { "app": "d" } }, "template": template("one") });
        merge(&mut spec, changes);
        let metadata = json!({ "name": name, "namespace": NAMESPACE, "annotations": annotations });
        self.cluster
            .create(json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec }))
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Value)) {
        self.cluster.update(DEPLOYMENTS, NAMESPACE, "d", change);
    }

    pub(crate) fn edit(&self, change: impl FnOnce(&mut Value)) {
        self.update(|it| change(&mut it["spec"]));
    }

    pub(crate) fn scale(&self, replicas: i64) {
        self.edit(|spec| spec["replicas"] = json!(replicas));
    }

    pub(crate) fn set_image(&self, image: &str) {
        self.edit(|spec| spec["template"]["spec"]["containers"][0]["image"] = json!(image));
    }

    /// The Deployment is being deleted, and a finalizer keeps it.
    pub(crate) fn delete(&self) {
        self.update(|it| {
            it["metadata"]["finalizers"] = json!(["orphan"]);
            it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
        });
    }

    pub(crate) fn stored(&self) -> Value {
        self.cluster.get(DEPLOYMENTS, NAMESPACE, "d").unwrap()
    }

    pub(crate) fn status(&self) -> Value {
        self.stored()["status"].clone()
    }

    pub(crate) fn count(&self, field: &str) -> i64 {
        self.status()[field].as_i64().unwrap_or_default()
    }

    /// Status and reason of a condition; empty without it.
    pub(crate) fn condition(&self, type_: &str) -> String {
        let status = self.status();
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|it| it["type"] == type_);
        found
            .map(|it| format!("{} {}", it["status"].as_str().unwrap(), it["reason"].as_str().unwrap()))
            .unwrap_or_default()
    }

    pub(crate) fn revision(&self) -> Value {
        self.stored()["metadata"]["annotations"][REVISION].clone()
    }

    /// All ReplicaSets, in the order of their revisions.
    pub(crate) fn sets(&self) -> Vec<Value> {
        let mut sets = self.cluster.list(SETS, NAMESPACE);
        sets.sort_by_key(|it| it["metadata"]["annotations"][REVISION].as_str().and_then(|it| it.parse::<i64>().ok()));
        sets
    }

    /// Image and size of all ReplicaSets, in the order of their revisions.
    pub(crate) fn sizes(&self) -> Vec<(String, i64)> {
        self.sets().iter().map(|it| (image(it).to_owned(), it["spec"]["replicas"].as_i64().unwrap())).collect()
    }

    /// The ReplicaSet with this image.
    pub(crate) fn set_of(&self, wanted: &str) -> Value {
        self.sets().into_iter().find(|it| image(it) == wanted).unwrap()
    }

    pub(crate) fn update_set(&self, image: &str, change: impl FnOnce(&mut Value)) {
        self.cluster.update(SETS, NAMESPACE, &name(&self.set_of(image)), change);
    }

    /// What the ReplicaSet controller does: all pods run, and so many are available.
    pub(crate) fn run_set(&self, image: &str, available: i64) {
        self.run_named(&name(&self.set_of(image)), available);
    }

    fn run_named(&self, name: &str, available: i64) {
        self.cluster.update(SETS, NAMESPACE, name, |it| {
            let (size, generation) = (it["spec"]["replicas"].clone(), it["metadata"]["generation"].clone());
            it["status"] = json!({ "replicas": size, "readyReplicas": available, "availableReplicas": available,
                "fullyLabeledReplicas": size, "observedGeneration": generation, "terminatingReplicas": 0 });
        });
    }

    /// The same for all ReplicaSets with all pods available, if their status differs.
    pub(crate) fn run_sets(&self) {
        for set in self.sets() {
            let (size, status) = (set["spec"]["replicas"].as_i64().unwrap(), &set["status"]);
            let counts = ["replicas", "availableReplicas"].map(|it| status[it].as_i64().unwrap_or_default());
            if counts != [size; 2] || status["observedGeneration"] != set["metadata"]["generation"] {
                self.run_named(&name(&set), size);
            }
        }
    }

    /// Runs the ReplicaSets for four seconds, in which a rollout ends.
    pub(crate) async fn run_rollout(&self) {
        for _ in 0..60 {
            pass(50 * MS).await;
            self.run_sets();
        }
        pass(SEC).await;
    }

    /// A pod of the ReplicaSet with this image.
    pub(crate) fn add_pod(&self, pod: &str, image: &str, phase: &str) {
        let set = self.set_of(image);
        let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name(&set),
            "uid": set["metadata"]["uid"], "controller": true });
        self.cluster.create(json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": pod, "namespace": NAMESPACE, "labels": { "app": "d" }, "ownerReferences": [owner] },
            "spec": { "containers": [{ "name": "c", "image": image }] }, "status": { "phase": phase } }));
    }

    /// A ReplicaSet of 3 that no controller has, with these labels.
    pub(crate) fn add_set(&self, name: &str, image: &str, labels: Value, annotations: Value) -> Value {
        self.cluster.create(json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations },
            "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "d" } }, "template": template(image) } }))
    }

    /// The bodies of all requests that create ReplicaSets, in their order.
    pub(crate) fn created(&self) -> Vec<Value> {
        let calls = self.calls();
        calls.iter().filter(|it| it.verb == "create" && it.resource == "replicasets").map(|it| it.json()).collect()
    }

    /// How many calls got this response.
    pub(crate) fn response_count(&self, code: u16) -> usize {
        self.calls().iter().filter(|it| it.status == code).count()
    }
}

/// A template with this image.
pub(crate) fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "d" } }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

/// A strategy with these limits.
pub(crate) fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } })
}

pub(crate) fn image(set: &Value) -> &str {
    set["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

/// The name of the controller of an object.
pub(crate) fn owner(object: &Value) -> Option<&str> {
    object["metadata"]["ownerReferences"][0]["name"].as_str()
}

/// How often keys were added to the queue.
pub(crate) fn adds(manager: &Manager) -> u64 {
    let adds = manager.metric("workqueue_adds_total{name=\"deployment\"}");
    assert!(adds > 0, "there is such a metric");
    adds
}

pub(crate) fn pairs(of: &[(&str, i64)]) -> Vec<(String, i64)> {
    of.iter().map(|(image, size)| ((*image).to_owned(), *size)).collect()
}
