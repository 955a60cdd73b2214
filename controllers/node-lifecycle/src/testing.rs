//! Nodes for the tables.

use api::{Atom, Cached, Node};
use clock::Timestamp;
use serde_json::{Value, json};

/// The time of all tables, in seconds.
pub(crate) const NOW: i64 = 1_800_000_000;

/// The time this many seconds after [`NOW`].
pub(crate) fn at(seconds: i64) -> String {
    Timestamp::from_second(NOW + seconds).unwrap().to_string()
}

/// The node `a`, created an hour ago, with these conditions, such as `Ready=True`. Their heartbeat is 10 s ago.
pub(crate) fn node(conditions: &[&str]) -> Node {
    node_with(conditions, json!({}), json!({}))
}

/// The same with these labels and this spec.
pub(crate) fn node_with(conditions: &[&str], labels: Value, spec: Value) -> Node {
    let conditions: Vec<Value> = conditions.iter().map(|it| condition(it)).collect();
    decode(&json!({
        "metadata": { "name": "a", "uid": "uid-a", "resourceVersion": "7", "creationTimestamp": at(-3600),
            "labels": labels },
        "spec": spec,
        "status": { "conditions": conditions },
    }))
}

/// A condition as a kubelet posted it 10 s ago; Unknown as a controller wrote it.
pub(crate) fn condition(text: &str) -> Value {
    let (type_, status) = text.split_once('=').unwrap();
    let reason = if status == "Unknown" { "NodeStatusUnknown" } else { "Kubelet" };
    json!({ "type": type_, "status": status, "reason": reason, "message": "text",
        "lastHeartbeatTime": at(-10), "lastTransitionTime": at(-60) })
}

pub(crate) fn decode(object: &Value) -> Node {
    Node::decode_object(object.to_string().as_bytes()).unwrap()
}

pub(crate) fn atom(text: &str) -> Atom {
    text.into()
}
