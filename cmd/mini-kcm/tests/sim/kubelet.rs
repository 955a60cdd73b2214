//! Nodes of several scenarios: pods become ready, some are evicted, and they end when they are deleted.

use std::time::Duration;

use clock::Timestamp;
use fastrand::Rng;
use serde_json::{Value, json};
use test_cluster::Change;
use testing::sim::{MAX_CLOCK_SKEW, World, Write};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

const MS: Duration = Duration::from_millis(1);
const PODS: &str = "pods";

/// Pods of this image do not become ready before the world is calm.
pub(crate) const BROKEN: &str = "broken";

/// A pod was created, or its deletion has begun.
pub(crate) struct PodEvent {
    namespace: String,
    name: String,
    uid: String,
    is_deleted: bool,
}

/// Where the events of pods come from.
pub(crate) struct PodEvents(UnboundedSender<PodEvent>);

impl PodEvents {
    pub(crate) fn new() -> (Self, UnboundedReceiver<PodEvent>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Sends an event if this write needs one.
    pub(crate) fn report(&self, write: &Write) {
        let Some(after) = write.after().filter(|_| write.resource() == PODS) else { return };
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let metadata = &after["metadata"];
        let is_deleted = metadata["deletionTimestamp"].is_string();
        let was_deleted = write.before().is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string());
        if write.change() == Change::Added || (is_deleted && !was_deleted) {
            let (namespace, name, uid) = (&metadata["namespace"], &metadata["name"], &metadata["uid"]);
            let event = PodEvent { namespace: text(namespace), name: text(name), uid: text(uid), is_deleted };
            // The receiver exists during the whole run.
            let _ = self.0.send(event);
        }
    }
}

/// A pod on its node.
pub(crate) struct NodePod {
    pub(crate) world: World,
    namespace: String,
    name: String,
    uid: String,
}

/// All nodes. Each pod has its own task. `run_pod` schedules and runs a new one.
pub(crate) async fn run<R: Future<Output = ()> + Send + 'static>(
    world: World,
    mut events: UnboundedReceiver<PodEvent>,
    mut rng: Rng,
    run_pod: impl Fn(NodePod, Rng) -> R,
) {
    while let Some(PodEvent { namespace, name, uid, is_deleted }) = events.recv().await {
        let (pod, rng) = (NodePod { world: world.clone(), namespace, name, uid }, rng.fork());
        match is_deleted {
            false => world.spawn("pod", run_pod(pod, rng)),
            true => world.spawn("pod's end", pod.terminate(rng)),
        }
    }
}

impl NodePod {
    /// The pod, if no node runs it yet and it is not deleted.
    pub(crate) fn pending(&self) -> Option<Value> {
        self.in_phase("Pending")
    }

    fn in_phase(&self, phase: &str) -> Option<Value> {
        let pod = self.current()?;
        (pod["metadata"]["deletionTimestamp"].is_null() && pod["status"]["phase"] == phase).then_some(pod)
    }

    fn current(&self) -> Option<Value> {
        let pod = self.world.cluster().get(PODS, &self.namespace, &self.name)?;
        (pod["metadata"]["uid"] == self.uid.as_str()).then_some(pod)
    }

    /// Runs the pod on this node until it is ready. One of ten is evicted later.
    pub(crate) async fn run_on(self, node: &str, pod: &Value, may_be_evicted: bool, mut rng: Rng) {
        self.set_ready(node, false);
        self.world.sleep(MS * rng.u32(0..2_500)).await;
        while pod["spec"]["containers"][0]["image"] == BROKEN && !self.world.is_calm() {
            self.world.sleep(MS * 1_000).await;
        }
        if self.in_phase("Running").is_some() {
            self.set_ready(node, true);
        }
        if rng.u8(0..10) > 0 || !may_be_evicted {
            return;
        }
        self.world.sleep(MS * rng.u32(1_000..30_000)).await;
        if !self.world.is_calm() && self.in_phase("Running").is_some() {
            end(&self.world, &self.namespace, &self.name, "Failed");
        }
    }

    fn set_ready(&self, node: &str, is_ready: bool) {
        let at = self.world.clock().wall().as_second();
        let at = Timestamp::from_second(at).unwrap_or(Timestamp::UNIX_EPOCH).to_string();
        let status = if is_ready { "True" } else { "False" };
        self.world.cluster().update(PODS, &self.namespace, &self.name, |it| {
            it["spec"]["nodeName"] = node.into();
            it["status"]["phase"] = "Running".into();
            it["status"]["conditions"] = json!([{ "type": "Ready", "status": status, "lastTransitionTime": at }]);
        });
    }

    async fn terminate(self, mut rng: Rng) {
        self.world.sleep(MS * rng.u32(0..4_000)).await;
        if self.current().is_some() {
            self.world.cluster().remove(PODS, &self.namespace, &self.name);
        }
    }
}

/// Whether a pod is available for every manager, whose clock may be behind. Until then, a status may have the right
/// counters by accident.
pub(crate) fn is_available(world: &World, pod: &Value, min_ready_seconds: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let ready = conditions.iter().find(|it| it["type"] == "Ready" && it["status"] == "True");
    let since: Option<Timestamp> = ready.and_then(|it| it["lastTransitionTime"].as_str()?.parse().ok());
    let delay = min_ready_seconds.as_i64().filter(|it| *it > 0).map_or(0, |it| it + MAX_CLOCK_SKEW);
    since.is_some_and(|it| it.as_second() + delay <= world.clock().wall().as_second())
}

/// Ends a pod with this phase.
pub(crate) fn end(world: &World, namespace: &str, pod: &str, phase: &str) {
    world.cluster().update(PODS, namespace, pod, |it| {
        it["status"]["phase"] = phase.into();
        it["status"]["conditions"] = json!([]);
    });
}
