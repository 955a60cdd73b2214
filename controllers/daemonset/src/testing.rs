//! Sets, nodes and pods for table tests of the rules.

use std::{collections::HashMap, sync::Arc, time::Duration};

use api::{Cached, DaemonSet, Node, Pod};
use clock::Timestamp;
use serde_json::{Value, json};

use crate::rules::snapshot::{Cluster, Snapshot, gather, sort_nodes, sort_pods};

/// The time of all tests, in seconds.
pub(crate) const NOW: i64 = 1_767_323_045;

/// The hash of the current revision of all tests.
pub(crate) const HASH: &str = "new";

/// The RFC 3339 time this many seconds after [`NOW`].
pub(crate) fn at(seconds: i64) -> String {
    Timestamp::from_second(NOW + seconds).unwrap().to_string()
}

/// The set `ds` with these changes of its spec.
pub(crate) fn set(spec: Value) -> DaemonSet {
    set_with(spec, json!({}), json!({}))
}

/// The same with these changes of its metadata and status.
pub(crate) fn set_with(spec: Value, metadata: Value, status: Value) -> DaemonSet {
    let mut object = json!({
        "metadata": { "name": "ds", "namespace": "n", "uid": "set-uid", "resourceVersion": "1", "generation": 1 },
        "spec": { "selector": { "matchLabels": { "app": "ds" } }, "template": {},
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 } } },
        "status": {},
    });
    merge(&mut object["metadata"], metadata);
    merge(&mut object["spec"], spec);
    merge(&mut object["status"], status);
    decode(&object)
}

/// A set with this limit of unavailable nodes and this surge.
pub(crate) fn rolling(max_unavailable: Value, max_surge: Value) -> DaemonSet {
    let rolling = json!({ "maxUnavailable": max_unavailable, "maxSurge": max_surge });
    set(json!({ "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": rolling } }))
}

/// A node with these fields.
pub(crate) fn node(name: &str, fields: Value) -> Node {
    let mut object = json!({ "metadata": { "name": name, "uid": name, "resourceVersion": "1" } });
    for (key, value) in fields.as_object().unwrap() {
        if object[key].is_null() {
            object[key] = value.clone();
        } else {
            merge(&mut object[key], value.clone());
        }
    }
    decode(&object)
}

/// Nodes with their pods. A row is the name of a node, then `keep` (it takes no new pods) or `no` (it must not run one)
/// or `unreachable:30` (for 30 s), a colon, and its pods, divided by `/`; see [`pod`]. With `nowhere` the node does not
/// exist. Its failed pods must wait for 7 s if it has the word `backoff`.
pub(crate) struct Rows {
    nodes: Vec<Arc<Node>>,
    pods: Vec<Arc<Pod>>,
    backoff: HashMap<String, Duration>,
}

impl Rows {
    pub(crate) fn new(rows: &[&str]) -> Self {
        let mut all = Self { nodes: Vec::new(), pods: Vec::new(), backoff: HashMap::new() };
        for row in rows {
            let (node, pods) = row.split_once(':').unwrap();
            // The time of an unreachable node has a colon too.
            let (node, pods) = match pods.split_once(':') {
                Some((seconds, rest)) if node.ends_with("unreachable") => (format!("{node}:{seconds}"), rest),
                _ => (node.to_owned(), pods),
            };
            let words: Vec<&str> = node.split(' ').collect();
            let name = words[0];
            for (index, words) in pods.split('/').map(str::trim).filter(|it| !it.is_empty()).enumerate() {
                all.pods.push(pod(name, index, words));
            }
            if words.contains(&"backoff") {
                all.backoff.insert(name.to_owned(), Duration::from_secs(7));
            }
            if !words.contains(&"nowhere") {
                all.nodes.push(Arc::new(described_node(name, &words)));
            }
        }
        sort_nodes(&mut all.nodes);
        sort_pods(&mut all.pods);
        all
    }

    pub(crate) fn snapshot<'a>(&'a self, set: &'a DaemonSet) -> Snapshot<'a> {
        let cluster = Cluster { nodes: &self.nodes, pods: &self.pods, compares_numbers: false };
        let now = Timestamp::from_second(NOW).unwrap();
        gather(set, HASH, cluster, |node| self.backoff.get(node).copied(), now)
    }
}

fn described_node(name: &str, words: &[&str]) -> Node {
    let taint = |key: &str, effect: &str, since: i64| {
        let taint = json!({ "key": key, "effect": effect, "timeAdded": at(-since) });
        node(name, json!({ "spec": { "taints": [taint] } }))
    };
    let unreachable = words.iter().find_map(|it| it.strip_prefix("unreachable:"));
    match () {
        () if words.contains(&"keep") => taint("dedicated", "NoSchedule", 0),
        () if words.contains(&"no") => taint("dedicated", "NoExecute", 0),
        () => match unreachable {
            Some(seconds) => taint("node.kubernetes.io/unreachable", "NoExecute", seconds.parse().unwrap()),
            None => node(name, json!({})),
        },
    }
}

/// Describes a pod by words: its hash, then one of `pending`, `running`, `ready`, `failed`, `succeeded`, then `deleting`,
/// `unbound`, `age:30` (seconds; the first pod of a node is the oldest), `template:2` (its number). `ready:30` is ready
/// since 30 s.
pub(crate) fn pod(node: &str, index: usize, words: &str) -> Arc<Pod> {
    let words: Vec<&str> = words.split(' ').collect();
    let has = |word: &str| words.contains(&word);
    let number =
        |prefix: &str| words.iter().find_map(|it| it.strip_prefix(prefix)).map(|it| it.parse::<i64>().unwrap());
    let phase = match () {
        () if has("pending") => "Pending",
        () if has("failed") => "Failed",
        () if has("succeeded") => "Succeeded",
        () => "Running",
    };
    let name = format!("{node}-{index}");
    let mut labels = json!({ "app": "ds", "controller-revision-hash": words[0] });
    if let Some(template) = number("template:") {
        labels["pod-template-generation"] = json!(template.to_string());
    }
    let is_ready = has("ready") || number("ready:").is_some();
    let ready = json!({ "type": "Ready", "status": if is_ready { "True" } else { "False" },
        "lastTransitionTime": at(-number("ready:").unwrap_or(1_000)) });
    let age = number("age:").unwrap_or(2_000 - i64::try_from(index).unwrap());
    let term = json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [node] }] });
    let mut spec = json!({ "affinity": { "nodeAffinity":
        { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [term] } } } });
    if !has("unbound") {
        spec["nodeName"] = json!(node);
    }
    Arc::new(decode(&json!({
        "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "creationTimestamp": at(-age), "labels": labels,
            "deletionTimestamp": if has("deleting") { json!(at(-20)) } else { Value::Null } },
        "spec": spec,
        "status": { "phase": phase, "conditions": [ready] },
    })))
}

fn merge(object: &mut Value, changes: Value) {
    for (key, value) in changes.as_object().unwrap() {
        object[key] = value.clone();
    }
}

fn decode<T: Cached>(object: &Value) -> T {
    T::decode_object(object.to_string().as_bytes()).unwrap()
}
