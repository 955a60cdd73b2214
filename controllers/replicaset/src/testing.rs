//! Sets and pods for table tests of the rules.

use std::sync::{Arc, LazyLock};

use api::{Cached, Pod, ReplicaSet};
use clock::Timestamp;
use serde_json::{Value, json};

use crate::rules::{backoff::Streak, plan::Snapshot};

/// The time of all tests, in seconds.
pub(crate) const NOW: i64 = 1_767_323_045;

/// The same as a timestamp.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

/// The RFC 3339 time this many seconds after [`NOW`].
pub(crate) fn at(seconds: i64) -> String {
    Timestamp::from_second(NOW + seconds).unwrap().to_string()
}

/// A set without pods, for the fields that a test does not mention.
pub(crate) static BASE: LazyLock<Base> = LazyLock::new(|| Base(set(json!({}))));

pub(crate) struct Base(ReplicaSet);

impl Base {
    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            set: &self.0,
            active: &[],
            terminating: None,
            streak: Streak::default(),
            uncounted: 0,
            namespace_terminates: false,
            now: now(),
        }
    }
}

/// The set `rs` with these changes of its spec.
pub(crate) fn set(spec: Value) -> ReplicaSet {
    set_with(spec, json!({}), json!({}))
}

/// The same with these changes of its metadata and status.
pub(crate) fn set_with(spec: Value, metadata: Value, status: Value) -> ReplicaSet {
    let mut object = json!({
        "metadata": { "name": "rs", "namespace": "n", "uid": "set-uid", "resourceVersion": "1", "generation": 1 },
        "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "rs" } },
            "template": { "metadata": { "labels": { "app": "rs" } } } },
        "status": {},
    });
    for (field, changes) in [("spec", spec), ("metadata", metadata), ("status", status)] {
        for (key, value) in changes.as_object().unwrap() {
            object[field][key] = value.clone();
        }
    }
    ReplicaSet::decode_object(object.to_string().as_bytes()).unwrap()
}

/// The pods `p0`, `p1` and so on, see [`pod`].
pub(crate) fn pods(rows: &[&str]) -> Vec<Arc<Pod>> {
    rows.iter().enumerate().map(|(index, words)| pod(index, words)).collect()
}

/// Describes a pod by words: `pending`, `running`, `ready`, `ready:30` (for 30 s), `failed:30` (30 s ago),
/// `succeeded:30`, then `age:30` (seconds; by default 1,000, and one second before the end of a failed pod), `on:node`,
/// `unassigned`, `not-ready`, `deleting`, `cost:5`, `restarts:5`, `reason:Evicted`, `label:key=value`.
fn pod(index: usize, words: &str) -> Arc<Pod> {
    let words: Vec<&str> = words.split(' ').collect();
    let text = |prefix: &str| words.iter().find_map(|it| it.strip_prefix(prefix));
    let number = |prefix: &str| text(prefix).map(|it| it.parse::<i64>().unwrap());
    let ended = number("failed:").or(number("succeeded:"));
    let phase = match () {
        () if number("failed:").is_some() => "Failed",
        () if ended.is_some() => "Succeeded",
        () if words.contains(&"pending") => "Pending",
        () => "Running",
    };
    let age = number("age:").unwrap_or(ended.map_or(1_000, |it| it + 1));
    let is_ready = words.contains(&"ready") || number("ready:").is_some();
    let ready_for = number("ready:").unwrap_or(age);
    let ready = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": at(-ready_for) }]);
    let mut labels = json!({ "app": "rs" });
    if let Some((key, value)) = text("label:").and_then(|it| it.split_once('=')) {
        labels[key] = json!(value);
    }
    let mut object = json!({
        "metadata": { "name": format!("p{index}"), "namespace": "n", "uid": format!("uid-{index:02}"),
            "resourceVersion": "1", "creationTimestamp": at(-age), "labels": labels, "annotations": {} },
        "spec": { "nodeName": text("on:").unwrap_or("node") },
        "status": { "phase": phase, "reason": text("reason:").unwrap_or_default(),
            "conditions": if is_ready { ready } else { json!([]) },
            "containerStatuses": [{ "name": "c", "restartCount": number("restarts:").unwrap_or(0) }] },
    });
    if words.contains(&"deleting") {
        object["metadata"]["deletionTimestamp"] = json!(at(0));
    }
    if words.contains(&"unassigned") {
        object["spec"]["nodeName"] = Value::Null;
    }
    if let Some(cost) = text("cost:") {
        object["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"] = json!(cost);
    }
    if let Some(ended) = ended {
        object["status"]["startTime"] = json!(at(-ended));
    }
    Arc::new(Pod::decode_object(object.to_string().as_bytes()).unwrap())
}
