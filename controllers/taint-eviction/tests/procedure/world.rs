//! Pods and tainted nodes in the shared test world.

use std::{ops::Deref, time::Duration};

use client::Limits;
use harness::{Manager, NAMESPACE, START, Standby, pass};
use serde_json::{Value, json};
use taint_eviction_controller::{NAME, Options};

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// The taints of an outage.
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The requests that evict the pod `a` from the node `n1`.
pub(crate) const EVICTION_OF_A: [&str; 4] = ["get pods a", "get nodes n1", "patch pods/status a", "delete pods a"];

pub(crate) const MARKED_A: &str = "Normal TaintManagerEviction: Marking for deletion Pod n/a";
pub(crate) const CANCELLED_A: &str = "Normal TaintManagerEviction: Cancelling deletion of Pod n/a";

pub(crate) struct World(harness::World);

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.0
    }
}

impl World {
    /// A world with the nodes `n1` and `n2`.
    pub(crate) fn new() -> Self {
        let world = harness::World::new(NAME);
        world.create_namespace(NAMESPACE);
        let world = Self(world);
        ["n1", "n2"].into_iter().for_each(|it| world.add_node(it, json!([])));
        world
    }

    /// A process that does not lead yet.
    pub(crate) fn standby(&self) -> Standby {
        self.process_within(Limits { qps: 10_000.0, burst: 10_000 }, Duration::ZERO)
    }

    fn process_within(&self, limits: Limits, resync: Duration) -> Standby {
        let start = |builder: &mut controller::Builder| taint_eviction_controller::start(builder, Options::default());
        self.process(limits, resync, start)
    }

    /// Starts a manager and waits until its workers run.
    pub(crate) async fn start(&self) -> Manager {
        let manager = self.standby().lead();
        pass(100 * MS).await;
        manager
    }

    /// The same with the default limits of clients.
    pub(crate) async fn start_limited(&self) -> Manager {
        let manager = self.process_within(Limits { qps: 20.0, burst: 30 }, Duration::ZERO).lead();
        pass(100 * MS).await;
        manager
    }

    /// The same with this resync period.
    pub(crate) async fn start_with_resync(&self, resync: Duration) -> Manager {
        let manager = self.process_within(Limits { qps: 20.0, burst: 30 }, resync).lead();
        pass(100 * MS).await;
        manager
    }

    pub(crate) fn add_node(&self, name: &str, taints: Value) {
        self.cluster.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
            "spec": { "taints": taints } }));
        self.set_ready(name, true);
    }

    /// Taints a node. With the taint of an outage it is not ready.
    pub(crate) fn taint(&self, node: &str, taints: Value) {
        let has_outage =
            taints.as_array().is_some_and(|it| it.iter().any(|it| it["key"] == UNREACHABLE || it["key"] == NOT_READY));
        if has_outage {
            self.set_ready(node, false);
        }
        self.cluster.update("nodes", "", node, |it| it["spec"]["taints"] = taints);
    }

    pub(crate) fn set_ready(&self, node: &str, is_ready: bool) {
        let status = if is_ready { "True" } else { "Unknown" };
        let conditions = json!([{ "type": "Ready", "status": status }]);
        self.cluster.update("nodes", "", node, |it| it["status"]["conditions"] = conditions);
    }

    /// Removes all taints.
    pub(crate) fn lift(&self, node: &str) {
        self.taint(node, json!([]));
    }

    /// Adds a running pod.
    pub(crate) fn add_pod(&self, name: &str, node: &str, tolerations: Value) -> Value {
        self.cluster.create(pod(name, node, tolerations))
    }

    pub(crate) fn update_pod(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.cluster.update("pods", NAMESPACE, name, change);
    }

    pub(crate) fn set_tolerations(&self, name: &str, tolerations: Value) {
        self.update_pod(name, |it| it["spec"]["tolerations"] = tolerations);
    }

    /// Removes a pod at once.
    pub(crate) fn remove_pod(&self, name: &str) {
        self.cluster.remove("pods", NAMESPACE, name);
    }

    pub(crate) fn get_pod(&self, name: &str) -> Option<Value> {
        self.cluster.get("pods", NAMESPACE, name)
    }

    /// True for a pod that is gone or is being deleted.
    pub(crate) fn is_deleted(&self, name: &str) -> bool {
        self.get_pod(name).is_none_or(|it| it["metadata"]["deletionTimestamp"].is_string())
    }

    /// Asserts that a pod is deleted at this time after the start of the test, and not earlier.
    pub(crate) async fn assert_deleted_at(&self, name: &str, time: Duration) {
        self.sleep_until(time - MS).await;
        assert!(!self.is_deleted(name), "{name} was deleted early: {:?}", self.lines());
        self.sleep_until(time + 50 * MS).await;
        assert!(self.is_deleted(name), "{name} was not deleted: {:?}", self.lines());
    }

    /// The time of the API this many seconds after the start of the test.
    pub(crate) fn time(seconds: i64) -> String {
        clock::Timestamp::from_second(START + seconds).unwrap().to_string()
    }
}

/// A running pod.
#[expect(clippy::needless_pass_by_value, reason = "tests hand over a json!() literal")]
pub(crate) fn pod(name: &str, node: &str, tolerations: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "nodeName": node, "tolerations": tolerations, "containers": [{ "name": "c", "image": "i" }] },
        "status": { "phase": "Running" } })
}

/// A `NoExecute` taint as `kubectl taint` writes it, without timeAdded.
pub(crate) fn taint(key: &str) -> Value {
    json!({ "key": key, "value": "v", "effect": "NoExecute" })
}

/// A toleration of a `NoExecute` taint; `None` means without limit.
pub(crate) fn tolerates(key: &str, seconds: Option<i64>) -> Value {
    json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds })
}

/// How many pods were deleted, and the sum of their delays in seconds.
pub(crate) fn deletions(manager: &Manager) -> (u64, f64) {
    let count = manager.metric("taint_eviction_controller_pod_deletions_total");
    let name = "taint_eviction_controller_pod_deletion_duration_seconds";
    assert_eq!(manager.metric(&format!("{name}_count")), count);
    (count, manager.fraction(&format!("{name}_sum")))
}
