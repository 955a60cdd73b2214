//! What the kubelet and users do to the pods of [`NAMESPACE`].

use serde_json::{Value, json};

use crate::{NAMESPACE, World, name};

impl World {
    /// The names of all pods, in the order of lists.
    #[must_use]
    pub fn pods(&self) -> Vec<String> {
        self.cluster.list("pods", NAMESPACE).iter().map(name).collect()
    }

    /// The names of pods that have neither ended nor are being deleted.
    #[must_use]
    pub fn active_pods(&self) -> Vec<String> {
        let active = |it: &&Value| {
            let phase = it["status"]["phase"].as_str().unwrap_or_default();
            it["metadata"]["deletionTimestamp"].is_null() && phase != "Succeeded" && phase != "Failed"
        };
        self.cluster.list("pods", NAMESPACE).iter().filter(active).map(name).collect()
    }

    /// Gives the pod a node and makes it running and ready.
    pub fn run_pod(&self, pod: &str) {
        let now = self.second();
        self.cluster.update("pods", NAMESPACE, pod, |it| {
            it["spec"]["nodeName"] = json!("node");
            it["status"]["phase"] = json!("Running");
            it["status"]["conditions"] = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": now }]);
        });
    }

    /// Ends the pod with this phase and exit code.
    pub fn end_pod(&self, pod: &str, phase: &str, code: i32) {
        let now = self.second();
        self.cluster.update("pods", NAMESPACE, pod, |it| {
            it["spec"]["nodeName"] = json!("node");
            it["status"]["phase"] = json!(phase);
            it["status"]["conditions"] = json!([]);
            it["status"]["containerStatuses"] = json!([{ "name": "main", "restartCount": 0, "image": "i", "imageID": "",
                "ready": false, "state": { "terminated": { "exitCode": code, "finishedAt": now } } }]);
        });
    }

    /// A user deletes a running pod, which gets a grace period.
    pub fn delete_pod_gracefully(&self, pod: &str) {
        let now = self.second();
        self.cluster.update("pods", NAMESPACE, pod, |it| {
            it["metadata"]["deletionTimestamp"] = json!(now);
            it["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        });
    }

    /// Removes every terminating pod, as the kubelet does after the grace period.
    pub fn remove_terminating_pods(&self) {
        for pod in self.cluster.list("pods", NAMESPACE) {
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                self.cluster.delete("pods", NAMESPACE, &name(&pod));
            }
        }
    }
}
