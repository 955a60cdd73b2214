//! Simulated nodes for Jobs: pods are bound, run, and end as their annotations specify.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;
use tokio::sync::mpsc::UnboundedReceiver;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// How many of a thousand pods fail. In a calm world no pod fails, except for [`FAILING_INDEX`].
pub(super) const FAILURE_RATE: &str = "sim/fails";
/// Pods of this index always fail, also in a calm world.
pub(super) const FAILING_INDEX: &str = "sim/always-fails";
/// The exit code of a failing pod.
pub(super) const EXIT_CODE: &str = "sim/code";
/// The maximum running time of a pod, in milliseconds.
pub(super) const RUN_TIME: &str = "sim/runs";
/// The pod does not end before the world is calm.
pub(super) const UNTIL_CALM: &str = "sim/stays";

/// An event for the node of a pod.
pub(super) enum PodEvent {
    Created { namespace: String, name: String, uid: String },
    Deleted { namespace: String, name: String, uid: String },
}

/// A pod on its node.
struct NodePod {
    world: World,
    namespace: String,
    name: String,
    uid: String,
}

/// All nodes. Each pod has its own task.
pub(super) async fn nodes(world: World, mut events: UnboundedReceiver<PodEvent>, mut rng: Rng) {
    while let Some(event) = events.recv().await {
        let rng = rng.fork();
        let on_node = |namespace, name, uid| NodePod { world: world.clone(), namespace, name, uid };
        match event {
            PodEvent::Created { namespace, name, uid } => world.spawn("pod", on_node(namespace, name, uid).run(rng)),
            PodEvent::Deleted { namespace, name, uid } => {
                world.spawn("pod's end", on_node(namespace, name, uid).terminate(rng))
            }
        }
    }
}

impl NodePod {
    /// The pod, if it still exists with this uid.
    fn current(&self) -> Option<Value> {
        let pod = self.world.cluster().get("pods", &self.namespace, &self.name)?;
        (pod["metadata"]["uid"] == self.uid.as_str()).then_some(pod)
    }

    fn set(&self, change: impl FnOnce(&mut Value)) {
        self.world.cluster().update("pods", &self.namespace, &self.name, change);
    }

    async fn run(self, mut rng: Rng) {
        self.world.sleep(MS * rng.u32(0..1_500)).await;
        let Some(pod) = self.current().filter(may_continue) else { return };
        self.set(|it| {
            it["spec"]["nodeName"] = "node".into();
            it["status"]["phase"] = "Running".into();
            it["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        });
        let note = |key: &str| pod["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned();
        let most = note(RUN_TIME).parse().unwrap_or(4_000);
        self.world.sleep(MS * rng.u32(most / 4..=most)).await;
        while !note(UNTIL_CALM).is_empty() && !self.world.is_calm() {
            self.world.sleep(SEC).await;
        }
        let fails = rng.u32(..1_000) < note(FAILURE_RATE).parse().unwrap_or(0) && !self.world.is_calm();
        let index = pod["metadata"]["annotations"][super::model::INDEX].as_str().unwrap_or("none");
        let code = match fails || note(FAILING_INDEX) == index {
            true => note(EXIT_CODE).parse().unwrap_or(1),
            false => 0,
        };
        if self.current().filter(may_continue).is_some() {
            self.stop_containers(code);
        }
    }

    /// The containers have stopped.
    fn stop_containers(&self, code: i64) {
        let at = self.world.clock().wall().to_string();
        let at = format!("{}Z", at.split(['.', 'Z']).next().unwrap_or_default());
        self.set(|it| {
            it["status"]["phase"] = if code == 0 { "Succeeded" } else { "Failed" }.into();
            let ended = json!({ "exitCode": code, "startedAt": at, "finishedAt": at, "reason": "Ended" });
            it["status"]["containerStatuses"] = json!([{
                "name": "main", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "terminated": ended },
            }]);
            if let Some(ready) = it["status"]["conditions"].as_array_mut().and_then(|it| it.first_mut()) {
                *ready = json!({ "type": "Ready", "status": "False", "lastTransitionTime": at });
            }
        });
    }

    /// Ends a deleted pod: its containers stop within the grace period. The pod is removed when it has no finalizer.
    async fn terminate(self, mut rng: Rng) {
        let Some(pod) = self.current() else { return };
        let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
        let grace = u32::try_from(grace.min(60)).unwrap_or(0);
        self.world.sleep(MS * rng.u32(0..=grace * 1_000 + 300)).await;
        if let Some(pod) = self.current()
            && is_running(&pod)
        {
            self.stop_containers(if rng.u8(0..5) == 0 { 0 } else { 143 });
        }
        self.world.cluster().delete("pods", &self.namespace, &self.name);
    }
}

fn is_running(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// True when the pod has neither ended nor been deleted.
fn may_continue(pod: &Value) -> bool {
    is_running(pod) && pod["metadata"]["deletionTimestamp"].is_null()
}
