//! StatefulSets in the shared test world.

use std::{ops::Deref, time::Duration};

use client::Limits;
use harness::{Manager, NAMESPACE, merge, name, pass};
use serde_json::{Value, json};
use statefulset_controller::Options;

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) struct World(harness::World);

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.0
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let world = harness::World::new(statefulset_controller::NAME);
        world.create_namespace(NAMESPACE);
        Self(world)
    }

    /// Starts a manager and waits until its caches have synced.
    pub(crate) async fn start(&self) -> Manager {
        self.start_with(Options::default()).await
    }

    pub(crate) async fn start_with(&self, options: Options) -> Manager {
        self.start_with_limits(options, Limits { qps: 10_000.0, burst: 10_000 }).await
    }

    pub(crate) async fn start_with_limits(&self, options: Options, limits: Limits) -> Manager {
        let process = self.process(limits, Duration::ZERO, |builder| statefulset_controller::start(builder, options));
        let manager = process.lead();
        pass(100 * MS).await;
        manager
    }

    /// Creates the set `web` with three replicas and these changes of its spec.
    pub(crate) fn set(&self, spec: Value) -> Value {
        self.set_named("web", spec)
    }

    pub(crate) fn set_named(&self, name: &str, changes: Value) -> Value {
        let mut spec = json!({
            "replicas": 3, "serviceName": "svc", "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": "one" }] } },
        });
        merge(&mut spec, changes);
        let metadata = json!({ "name": name, "namespace": NAMESPACE });
        self.cluster
            .create(json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec }))
    }

    pub(crate) fn edit(&self, change: impl FnOnce(&mut Value)) {
        self.cluster.update("statefulsets.apps", NAMESPACE, "web", |it| change(&mut it["spec"]));
    }

    pub(crate) fn scale(&self, replicas: u32) {
        self.edit(|spec| spec["replicas"] = json!(replicas));
    }

    pub(crate) fn set_image(&self, image: &str) {
        self.edit(|spec| spec["template"]["spec"]["containers"][0]["image"] = json!(image));
    }

    pub(crate) fn stored(&self) -> Value {
        self.cluster.get("statefulsets.apps", NAMESPACE, "web").unwrap()
    }

    pub(crate) fn status(&self) -> Value {
        self.stored()["status"].clone()
    }

    pub(crate) fn count(&self, field: &str) -> i64 {
        self.status()[field].as_i64().unwrap_or_default()
    }

    pub(crate) fn text(&self, field: &str) -> String {
        self.status()[field].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn pod(&self, name: &str) -> Value {
        self.cluster.get("pods", NAMESPACE, name).unwrap()
    }

    pub(crate) fn label(&self, pod: &str, key: &str) -> String {
        self.pod(pod)["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn revision(&self, pod: &str) -> String {
        self.label(pod, "controller-revision-hash")
    }

    pub(crate) fn image(&self, pod: &str) -> String {
        self.pod(pod)["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
    }

    /// `name=number` of each revision, by number.
    pub(crate) fn revisions(&self) -> Vec<(String, i64)> {
        let all = self.cluster.list("controllerrevisions.apps", NAMESPACE);
        let mut all: Vec<(String, i64)> = all.iter().map(|it| (name(it), it["revision"].as_i64().unwrap())).collect();
        all.sort_by_key(|it| it.1);
        all
    }

    pub(crate) fn claims(&self) -> Vec<String> {
        self.cluster.list("persistentvolumeclaims", NAMESPACE).iter().map(name).collect()
    }

    /// `Kind/name` of the owners of a claim.
    pub(crate) fn owners(&self, claim: &str) -> Vec<String> {
        let claim = self.cluster.get("persistentvolumeclaims", NAMESPACE, claim).unwrap();
        let owners = claim["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.iter().map(|it| format!("{}/{}", it["kind"].as_str().unwrap(), it["name"].as_str().unwrap())).collect()
    }

    /// Makes pending pods ready and removes terminating ones, once a second.
    pub(crate) async fn kubelet(&self, seconds: u32) {
        for _ in 0..seconds {
            pass(SEC).await;
            self.remove_terminating_pods();
            for pod in self.cluster.list("pods", NAMESPACE) {
                if pod["status"]["phase"] == "Pending" {
                    self.run_pod(&name(&pod));
                }
            }
        }
    }

    /// A set whose pods are all ready, and its manager.
    pub(crate) async fn running(spec: Value) -> (Self, Manager) {
        Self::running_with(Options::default(), spec).await
    }

    pub(crate) async fn running_with(options: Options, spec: Value) -> (Self, Manager) {
        let world = Self::new();
        let manager = world.start_with(options).await;
        world.set(spec);
        world.kubelet(20).await;
        world.cluster.clear_requests();
        (world, manager)
    }
}

/// One claim per pod, called `data`.
pub(crate) fn claim_templates() -> Value {
    json!([{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } }])
}

pub(crate) fn retention(when_deleted: &str, when_scaled: &str) -> Value {
    json!({ "whenDeleted": when_deleted, "whenScaled": when_scaled })
}
