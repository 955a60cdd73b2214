//! Pods and nodes in words, for table tests.

use std::sync::Arc;

use api::{Cached, Node, Pod};
use clock::Timestamp;
use serde_json::{Value, json};

/// All times of pods are counted from here.
const EPOCH: i64 = 1_800_000_000;

fn at(seconds: &str) -> String {
    Timestamp::from_second(EPOCH + seconds.parse::<i64>().unwrap()).unwrap().to_string()
}

fn decode<T: Cached>(object: &Value) -> T {
    T::decode_object(&serde_json::to_vec(object).unwrap()).unwrap()
}

/// A pod: its name, then any of a phase, `Evicted`, `deleting`, `grace=30`, `held` (by a finalizer), `owned` (by a
/// controller), `on <node>`, `in <namespace>`, `created=7`, `finished=9`, `unready=8`.
pub(crate) fn pod(words: &str) -> Pod {
    let mut words = words.split_whitespace();
    let name = words.next().unwrap();
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
            "creationTimestamp": at("0") },
        "spec": {}, "status": {},
    });
    while let Some(word) = words.next() {
        match word.split_once('=').unwrap_or((word, "")) {
            ("Evicted", _) => pod["status"]["reason"] = json!("Evicted"),
            ("NoPhase", _) => {}
            ("deleting", _) => pod["metadata"]["deletionTimestamp"] = json!(at("100")),
            ("grace", seconds) => {
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(seconds.parse::<i64>().unwrap());
            }
            ("held", _) => pod["metadata"]["finalizers"] = json!(["example.com/hold"]),
            ("owned", _) => {
                pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet",
                    "name": "web", "uid": "owner", "controller": true }]);
            }
            ("on", _) => pod["spec"]["nodeName"] = json!(words.next().unwrap()),
            ("in", _) => pod["metadata"]["namespace"] = json!(words.next().unwrap()),
            ("created", seconds) => pod["metadata"]["creationTimestamp"] = json!(at(seconds)),
            ("finished", seconds) => {
                // The other container finished earlier, and an init container has no time.
                let ended =
                    |at: Option<String>| json!({ "name": "c", "state": { "terminated": { "finishedAt": at } } });
                pod["status"]["containerStatuses"] = json!([ended(Some(at("-9"))), ended(Some(at(seconds)))]);
                pod["status"]["initContainerStatuses"] = json!([ended(None)]);
            }
            ("unready", seconds) => {
                pod["status"]["conditions"] =
                    json!([{ "type": "Ready", "status": "False", "lastTransitionTime": at(seconds) }]);
            }
            (phase, _) => pod["status"]["phase"] = json!(phase),
        }
    }
    decode(&pod)
}

pub(crate) fn pods(all: &[&str]) -> Vec<Arc<Pod>> {
    all.iter().map(|it| Arc::new(pod(it))).collect()
}

/// A node: its name, then any of `Ready`, `NotReady`, `Unknown` (the condition) and `tainted=<effect>`, which is out of
/// service, or `tainted=<effect>=<value>`.
pub(crate) fn node(words: &str) -> Node {
    let mut words = words.split_whitespace();
    let name = words.next().unwrap();
    let mut node = json!({ "metadata": { "name": name, "uid": name, "resourceVersion": "1" } });
    for word in words {
        match word.split_once('=') {
            Some((_, taint)) => {
                let (effect, value) = taint.split_once('=').unwrap_or((taint, ""));
                node["spec"]["taints"] =
                    json!([{ "key": "node.kubernetes.io/out-of-service", "effect": effect, "value": value }]);
            }
            None => {
                let status = if word == "Ready" {
                    "True"
                } else if word == "NotReady" {
                    "False"
                } else {
                    word
                };
                node["status"]["conditions"] = json!([{ "type": "Ready", "status": status }]);
            }
        }
    }
    decode(&node)
}

pub(crate) fn pod_names(pods: &[Arc<Pod>]) -> Vec<String> {
    pods.iter().map(|it| it.meta.name.to_string()).collect()
}
