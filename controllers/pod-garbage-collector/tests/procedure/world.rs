//! Pods and nodes in the shared test world.

use std::{ops::Deref, time::Duration};

use client::Limits;
use harness::{Manager, NAMESPACE, merge, name, pass};
use pod_garbage_collector_controller::{NAME, Options};
use serde_json::{Value, json};

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// Limits that delay no request.
pub(crate) const FAST: Limits = Limits { qps: 10_000.0, burst: 10_000 };

/// The default limits.
pub(crate) const SLOW: Limits = Limits { qps: 20.0, burst: 30 };

pub(crate) struct World(harness::World);

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.0
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let world = harness::World::new(NAME);
        world.create_namespace(NAMESPACE);
        Self(world)
    }

    /// Starts a manager with the default threshold, and waits until its workers run.
    pub(crate) async fn start(&self) -> Manager {
        self.start_with(Options::default().terminated_pod_threshold, FAST).await
    }

    pub(crate) async fn start_with(&self, terminated_pod_threshold: i32, limits: Limits) -> Manager {
        let options = Options { terminated_pod_threshold };
        let start = |builder: &mut controller::Builder| pod_garbage_collector_controller::start(builder, options);
        let manager = self.process(limits, Duration::ZERO, start).lead();
        pass(10 * MS).await;
        manager
    }

    /// A ready node.
    pub(crate) fn add_node(&self, name: &str) {
        self.add_node_with(name, "True", json!([]));
    }

    /// A node with this Ready condition and these taints.
    pub(crate) fn add_node_with(&self, name: &str, ready: &str, taints: Value) {
        self.cluster.create(node(name, ready, taints));
    }

    pub(crate) fn remove_node(&self, name: &str) {
        self.cluster.remove("nodes", "", name);
    }

    /// A pod on this node; an empty name means that it is not bound.
    pub(crate) fn add_pod(&self, name: &str, node: &str, phase: &str) -> Value {
        self.add_pod_with(name, node, phase, json!({}))
    }

    /// The same with these fields of its metadata.
    pub(crate) fn add_pod_with(&self, name: &str, node: &str, phase: &str, metadata: Value) -> Value {
        self.cluster.create(pod(name, node, phase, metadata))
    }

    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        self.cluster.get("pods", NAMESPACE, name)
    }

    /// The names of all pods, sorted.
    pub(crate) fn pod_names(&self) -> Vec<String> {
        self.cluster.list("pods", NAMESPACE).iter().map(name).collect()
    }

    /// The bodies of the requests that begin with these words.
    pub(crate) fn bodies(&self, words: &str) -> Vec<Value> {
        let calls = self.calls();
        calls.iter().filter(|it| harness::line(it).starts_with(words)).map(|it| it.json()).collect()
    }
}

pub(crate) fn node(name: &str, ready: &str, taints: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name }, "spec": { "taints": taints },
        "status": { "conditions": [{ "type": "Ready", "status": ready }] } })
}

pub(crate) fn pod(name: &str, node: &str, phase: &str, metadata: Value) -> Value {
    let mut spec = json!({ "containers": [{ "name": "c", "image": "i" }] });
    if !node.is_empty() {
        spec["nodeName"] = json!(node);
    }
    let mut all = json!({ "name": name, "namespace": NAMESPACE });
    merge(&mut all, metadata);
    let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": "2027-01-01T00:00:00Z" }]);
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": all, "spec": spec,
        "status": { "phase": phase, "conditions": ready } })
}

/// Metadata of a pod that a user deletes with this grace period.
pub(crate) fn terminating(grace: i64) -> Value {
    json!({ "deletionTimestamp": "2027-01-15T08:00:00Z", "deletionGracePeriodSeconds": grace })
}

/// The same with a finalizer.
pub(crate) fn held(grace: i64) -> Value {
    let mut metadata = terminating(grace);
    merge(&mut metadata, finalizer());
    metadata
}

pub(crate) fn finalizer() -> Value {
    json!({ "finalizers": ["example.com/hold"] })
}

pub(crate) fn out_of_service(effect: &str) -> Value {
    json!([{ "key": "node.kubernetes.io/out-of-service", "effect": effect }])
}

/// The value of a counter of this controller for the namespace of the tests.
pub(crate) fn counted(manager: &Manager, counter: &str, reason: &str) -> u64 {
    manager.metric(&format!("pod_gc_collector_{counter}{{namespace=\"{NAMESPACE}\",reason=\"{reason}\"}}"))
}
