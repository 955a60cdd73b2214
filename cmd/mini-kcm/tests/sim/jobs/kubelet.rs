//! Simulated nodes for Jobs: pods are bound, run, and end as their annotations specify.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;
use tokio::sync::mpsc::UnboundedReceiver;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

/// How many of a thousand pods fail. In a calm world no pod fails, except for [`ALWAYS`].
pub(super) const FAILS: &str = "sim/fails";
/// Pods of this index always fail, also in a calm world.
pub(super) const ALWAYS: &str = "sim/always-fails";
/// The exit code of a failing pod.
pub(super) const CODE: &str = "sim/code";
/// The maximum running time of a pod, in milliseconds.
pub(super) const RUNS: &str = "sim/runs";
/// The pod does not end before the world is calm.
pub(super) const STAYS: &str = "sim/stays";

/// An event for the node of a pod.
pub(super) enum Told {
    Made { namespace: String, name: String, uid: String },
    Deleted { namespace: String, name: String, uid: String },
}

/// A pod on its node.
struct Known {
    world: World,
    namespace: String,
    name: String,
    uid: String,
}

/// All nodes. Each pod has its own task.
pub(super) async fn nodes(world: World, mut told: UnboundedReceiver<Told>, mut rng: Rng) {
    while let Some(told) = told.recv().await {
        let rng = rng.fork();
        let play = |namespace, name, uid| Known { world: world.clone(), namespace, name, uid };
        match told {
            Told::Made { namespace, name, uid } => world.spawn("pod", play(namespace, name, uid).lives(rng)),
            Told::Deleted { namespace, name, uid } => world.spawn("pod's end", play(namespace, name, uid).ends(rng)),
        }
    }
}

impl Known {
    /// The pod, if it still exists with this uid.
    fn now(&self) -> Option<Value> {
        let pod = self.world.cluster().get("pods", &self.namespace, &self.name)?;
        (pod["metadata"]["uid"] == self.uid.as_str()).then_some(pod)
    }

    fn set(&self, change: impl FnOnce(&mut Value)) {
        self.world.cluster().update("pods", &self.namespace, &self.name, change);
    }

    async fn lives(self, mut rng: Rng) {
        self.world.sleep(MS * rng.u32(0..1_500)).await;
        let Some(pod) = self.now().filter(may_go_on) else { return };
        self.set(|it| {
            it["spec"]["nodeName"] = "node".into();
            it["status"]["phase"] = "Running".into();
            it["status"]["conditions"] = json!([{ "type": "Ready", "status": "True" }]);
        });
        let note = |key: &str| pod["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned();
        let most = note(RUNS).parse().unwrap_or(4_000);
        self.world.sleep(MS * rng.u32(most / 4..=most)).await;
        while !note(STAYS).is_empty() && !self.world.is_calm() {
            self.world.sleep(SEC).await;
        }
        let fails = rng.u32(..1_000) < note(FAILS).parse().unwrap_or(0) && !self.world.is_calm();
        let index = pod["metadata"]["annotations"][super::book::INDEX].as_str().unwrap_or("none");
        let code = match fails || note(ALWAYS) == index {
            true => note(CODE).parse().unwrap_or(1),
            false => 0,
        };
        if self.now().filter(may_go_on).is_some() {
            self.stops(code);
        }
    }

    /// The containers have stopped.
    fn stops(&self, code: i64) {
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
    async fn ends(self, mut rng: Rng) {
        let Some(pod) = self.now() else { return };
        let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
        let grace = u32::try_from(grace.min(60)).unwrap_or(0);
        self.world.sleep(MS * rng.u32(0..=grace * 1_000 + 300)).await;
        if let Some(pod) = self.now()
            && works(&pod)
        {
            self.stops(if rng.u8(0..5) == 0 { 0 } else { 143 });
        }
        self.world.cluster().delete("pods", &self.namespace, &self.name);
    }
}

fn works(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// True when the pod has neither ended nor been deleted.
fn may_go_on(pod: &Value) -> bool {
    works(pod) && pod["metadata"]["deletionTimestamp"].is_null()
}
