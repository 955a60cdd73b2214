//! DaemonSets and nodes in the shared test world.

use std::{collections::BTreeMap, ops::Deref, time::Duration};

use client::Limits;
use clock::Timestamp;
use daemonset_controller::Options;
use harness::{Manager, NAMESPACE, merge, name, pass};
use serde_json::{Value, json};

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// Only expectations prevent that a sync repeats its writes.
pub(crate) const WITHOUT_GATE: Options = Options { workers: 2, read_own_writes: false, compare_numbers: false };

/// The label of pods and revisions with the hash of their revision.
pub(crate) const HASH: &str = "controller-revision-hash";

/// The annotation in which the server counts changes of the template.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

pub(crate) struct World(harness::World);

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.0
    }
}

impl World {
    /// A world with the nodes `node-1`, `node-2` and so on.
    pub(crate) fn with_nodes(count: usize) -> Self {
        let world = harness::World::new(daemonset_controller::NAME);
        world.create_namespace(NAMESPACE);
        let world = Self(world);
        (1..=count).for_each(|it| world.add_node(&format!("node-{it}")));
        world
    }

    /// Starts a manager and waits until its caches have synced.
    pub(crate) async fn start(&self) -> Manager {
        self.start_with(Options::default()).await
    }

    pub(crate) async fn start_with(&self, options: Options) -> Manager {
        let limits = Limits { qps: 10_000.0, burst: 10_000 };
        let process = self.process(limits, Duration::ZERO, |builder| daemonset_controller::start(builder, options));
        let manager = process.lead();
        pass(100 * MS).await;
        manager
    }

    /// A set whose pods are all ready on nodes of this number, and its manager.
    pub(crate) async fn running(nodes: usize, spec: Value) -> (Self, Manager) {
        let world = Self::with_nodes(nodes);
        let manager = world.start().await;
        world.set(spec);
        world.kubelet(20).await;
        world.cluster.clear_requests();
        (world, manager)
    }

    pub(crate) fn add_node(&self, name: &str) {
        self.add_tainted_node(name, json!([]));
    }

    pub(crate) fn add_tainted_node(&self, name: &str, taints: Value) {
        self.cluster.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
            "spec": { "taints": taints },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }));
    }

    pub(crate) fn update_node(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.cluster.update("nodes", "", name, change);
    }

    pub(crate) fn taint(&self, node: &str, taints: Value) {
        self.update_node(node, |it| it["spec"]["taints"] = taints);
    }

    pub(crate) fn label_node(&self, node: &str, labels: Value) {
        self.update_node(node, |it| it["metadata"]["labels"] = labels);
    }

    /// Creates the set `web` with these changes of its spec.
    pub(crate) fn set(&self, changes: Value) -> Value {
        let mut spec = json!({ "selector": { "matchLabels": { "app": "web" } }, "template": template(json!({})) });
        merge(&mut spec, changes);
        self.cluster.create(json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "name": "web", "namespace": NAMESPACE }, "spec": spec }))
    }

    /// Changes the set like a request: the server counts changes of the template.
    pub(crate) fn edit(&self, change: impl FnOnce(&mut Value)) {
        self.update_set(|it| {
            let before = it["spec"]["template"].clone();
            change(&mut it["spec"]);
            if it["spec"]["template"] != before {
                let count = &mut it["metadata"]["annotations"][TEMPLATE_GENERATION];
                *count = json!((count.as_str().unwrap().parse::<i64>().unwrap() + 1).to_string());
            }
        });
    }

    pub(crate) fn update_set(&self, change: impl FnOnce(&mut Value)) {
        self.cluster.update("daemonsets.apps", NAMESPACE, "web", change);
    }

    pub(crate) fn set_image(&self, image: &str) {
        self.edit(|spec| spec["template"]["spec"]["containers"][0]["image"] = json!(image));
    }

    /// The set is being deleted, and a finalizer keeps it.
    pub(crate) fn delete_set(&self) {
        self.update_set(|it| {
            it["metadata"]["finalizers"] = json!(["orphan"]);
            it["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
        });
    }

    pub(crate) fn status(&self) -> Value {
        self.cluster.get("daemonsets.apps", NAMESPACE, "web").unwrap()["status"].clone()
    }

    pub(crate) fn count(&self, field: &str) -> i64 {
        self.status()[field].as_i64().unwrap_or_default()
    }

    pub(crate) fn pod(&self, name: &str) -> Value {
        self.cluster.get("pods", NAMESPACE, name).unwrap()
    }

    /// How often events with this reason were sent.
    pub(crate) fn event_count(&self, reason: &str) -> i64 {
        let all = self.cluster.list("events", NAMESPACE);
        all.iter().filter(|it| it["reason"] == reason).map(|it| it["count"].as_i64().unwrap_or(1)).sum()
    }

    /// The present watches of a resource break, and the next ones must begin with a list.
    pub(crate) fn relist(&self, resource: &str) {
        self.cluster.compact();
        self.cluster.break_watches(resource);
    }

    /// Removes a pod whose watch is frozen. No watch reports it, and the next list does not contain it.
    pub(crate) fn remove_unobserved(&self, pod: &str) {
        self.cluster.remove("pods", NAMESPACE, pod);
        self.relist("pods");
    }

    /// The pod of a node.
    pub(crate) fn pod_on(&self, node: &str) -> String {
        let pods = self.cluster.list("pods", NAMESPACE);
        name(pods.iter().find(|it| target(it) == node).unwrap())
    }

    /// The nodes of all pods, sorted. A node with two pods is listed twice.
    pub(crate) fn pod_nodes(&self) -> Vec<String> {
        let mut nodes: Vec<String> = self.cluster.list("pods", NAMESPACE).iter().map(target).collect();
        nodes.sort();
        nodes
    }

    /// The node of each pod.
    pub(crate) fn node_of_pods(&self) -> BTreeMap<String, String> {
        self.cluster.list("pods", NAMESPACE).iter().map(|it| (name(it), target(it))).collect()
    }

    /// The image of the pod of each node.
    pub(crate) fn images(&self) -> BTreeMap<String, String> {
        let image = |it: &Value| it["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
        self.cluster.list("pods", NAMESPACE).iter().map(|it| (target(it), image(it))).collect()
    }

    pub(crate) fn hash(&self, pod: &str) -> String {
        self.pod(pod)["metadata"]["labels"][HASH].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn owner(&self, pod: &str) -> Option<String> {
        self.pod(pod)["metadata"]["ownerReferences"][0]["name"].as_str().map(str::to_owned)
    }

    /// The bodies of all requests that create pods, in their order.
    pub(crate) fn created(&self) -> Vec<Value> {
        self.calls().iter().filter(|it| it.verb == "create" && it.resource == "pods").map(|it| it.json()).collect()
    }

    /// The pods that requests have deleted, in their order.
    pub(crate) fn deleted(&self) -> Vec<String> {
        self.lines().iter().filter_map(|it| it.strip_prefix("delete pods ")).map(str::to_owned).collect()
    }

    /// Name and number of each revision, by number.
    pub(crate) fn revisions(&self) -> Vec<(String, i64)> {
        let all = self.cluster.list("controllerrevisions.apps", NAMESPACE);
        let mut all: Vec<(String, i64)> = all.iter().map(|it| (name(it), it["revision"].as_i64().unwrap())).collect();
        all.sort_by_key(|it| it.1);
        all
    }

    pub(crate) fn revision(&self, name: &str) -> Value {
        self.cluster.get("controllerrevisions.apps", NAMESPACE, name).unwrap()
    }

    /// A ready pod without an owner, with these labels, on this node, which was created `age` seconds ago.
    pub(crate) fn add_pod(&self, name: &str, labels: Value, node: &str, age: i64) {
        let creation = Timestamp::from_second(self.clock.wall().as_second() - age).unwrap().to_string();
        let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": creation }]);
        self.cluster.create(json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": NAMESPACE, "labels": labels, "creationTimestamp": creation },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
            "status": { "phase": "Running", "conditions": ready } }));
    }

    /// Binds the pod to its node and makes it ready.
    pub(crate) fn run(&self, pod: &str) {
        let node = target(&self.pod(pod));
        let now = self.second();
        let status = json!({ "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": now }] });
        self.update_pod(pod, |it| {
            it["spec"]["nodeName"] = json!(node);
            it["status"] = status;
        });
    }

    pub(crate) fn update_pod(&self, pod: &str, change: impl FnOnce(&mut Value)) {
        self.cluster.update("pods", NAMESPACE, pod, change);
    }

    /// Runs all pending pods.
    pub(crate) fn run_pending(&self) {
        for pod in self.cluster.list("pods", NAMESPACE) {
            if pod["status"]["phase"] == "Pending" {
                self.run(&name(&pod));
            }
        }
    }

    /// Ends the pod on its node.
    pub(crate) fn end(&self, pod: &str, phase: &str) {
        let node = target(&self.pod(pod));
        self.update_pod(pod, |it| {
            it["spec"]["nodeName"] = json!(node);
            it["status"] = json!({ "phase": phase });
        });
    }

    /// Binds pending pods to their nodes, makes them ready, and removes terminating pods, once a second.
    pub(crate) async fn kubelet(&self, seconds: u32) {
        self.kubelet_without("", seconds).await;
    }

    /// The same, but the kubelet of one node does not run.
    pub(crate) async fn kubelet_without(&self, dead: &str, seconds: u32) {
        for _ in 0..seconds {
            pass(SEC).await;
            let all = self.cluster.list("pods", NAMESPACE);
            for pod in all.iter().filter(|it| dead.is_empty() || target(it) != dead) {
                if !pod["metadata"]["deletionTimestamp"].is_null() {
                    self.cluster.delete("pods", NAMESPACE, &name(pod));
                } else if pod["status"]["phase"] == "Pending" {
                    self.run(&name(pod));
                }
            }
        }
    }
}

/// A template of the set `web` with these changes of its pod spec.
pub(crate) fn template(changes: Value) -> Value {
    let mut spec = json!({ "containers": [{ "name": "main", "image": "one" }] });
    merge(&mut spec, changes);
    json!({ "metadata": { "labels": { "app": "web" } }, "spec": spec })
}

pub(crate) fn rolling(max_unavailable: u32, max_surge: u32) -> Value {
    json!({ "type": "RollingUpdate",
        "rollingUpdate": { "maxUnavailable": max_unavailable, "maxSurge": max_surge } })
}

pub(crate) fn on_delete() -> Value {
    json!({ "type": "OnDelete" })
}

/// A taint that no pod tolerates by default.
pub(crate) fn custom_taint(effect: &str) -> Value {
    json!([{ "key": "example.com/custom", "value": "x", "effect": effect }])
}

/// The node of a pod: where it runs, or the only one to which its affinity allows to bind it; empty for a pod that
/// fits on any node.
pub(crate) fn target(pod: &Value) -> String {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let term = &pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"][0];
    let bound = pod["spec"]["nodeName"].as_str();
    bound.or(term["matchFields"][0]["values"][0].as_str()).unwrap_or_default().to_owned()
}

/// How often keys were added to a work queue.
pub(crate) fn adds(manager: &Manager, queue: &str) -> u64 {
    let adds = manager.metric(&format!("workqueue_adds_total{{name=\"{queue}\"}}"));
    assert!(adds > 0, "there is such a metric");
    adds
}
