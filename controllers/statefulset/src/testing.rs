//! Sets, pods and claims for table tests of the rules.

use std::{convert::Infallible, sync::Arc};

use api::{Cached, PersistentVolumeClaim, Pod, StatefulSet};
use clock::Timestamp;
use serde_json::{Value, json};

use crate::rules::snapshot::{Gates, Revisions, Snapshot, gather};

/// The time of all tests, in seconds.
pub(crate) const NOW: i64 = 1_767_323_045;

/// The revisions of all tests.
pub(crate) const REVISIONS: Revisions<'static> = Revisions { current: "old", update: "new" };

/// The RFC 3339 time this many seconds after [`NOW`].
pub(crate) fn at(seconds: i64) -> String {
    Timestamp::from_second(NOW + seconds).unwrap().to_string()
}

/// The set `web` with these changes of its spec.
pub(crate) fn set(spec: Value) -> StatefulSet {
    set_with(spec, json!({}), json!({}))
}

/// The same with these changes of its metadata and status.
pub(crate) fn set_with(spec: Value, metadata: Value, status: Value) -> StatefulSet {
    let mut object = json!({
        "metadata": { "name": "web", "namespace": "n", "uid": "set-uid", "resourceVersion": "1", "generation": 1 },
        "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "web" } }, "serviceName": "svc", "template": {},
            "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } } },
        "status": {},
    });
    merge(&mut object["metadata"], metadata);
    merge(&mut object["spec"], spec);
    merge(&mut object["status"], status);
    decode(&object)
}

fn merge(object: &mut Value, changes: Value) {
    for (key, value) in changes.as_object().unwrap() {
        object[key] = value.clone();
    }
}

/// Describes a pod by words: its ordinal, then `old` or `new` (its revision), then its state, one of `pending`,
/// `running`, `ready`, `failed`, `succeeded`, then `deleting` and `unnamed` (without the label with its name).
pub(crate) fn pod(words: &str) -> Arc<Pod> {
    let words: Vec<&str> = words.split(' ').collect();
    let has = |word: &str| words.contains(&word);
    let name = format!("web-{}", words[0]);
    let mut labels = json!({ "app": "web", "controller-revision-hash": words[1] });
    if !has("unnamed") {
        labels["statefulset.kubernetes.io/pod-name"] = json!(name);
    }
    let phase = match () {
        () if has("pending") => "Pending",
        () if has("failed") => "Failed",
        () if has("succeeded") => "Succeeded",
        () => "Running",
    };
    // `ready:30` is ready since 30 s, `unready:30` is not ready since 30 s.
    let seconds =
        |prefix: &str| words.iter().find_map(|it| it.strip_prefix(prefix)).map(|it| it.parse::<i64>().unwrap());
    let is_ready = has("ready") || seconds("ready:").is_some();
    let since = seconds("ready:").or(seconds("unready:"));
    let ready = json!({ "type": "Ready", "status": if is_ready { "True" } else { "False" },
        "lastTransitionTime": at(-since.unwrap_or(1_000)) });
    let deletion = if has("deleting") { json!(at(-20)) } else { Value::Null };
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": format!("data-{name}") } }]);
    Arc::new(decode(&json!({
        "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{}", words[0]), "resourceVersion": "1",
            "creationTimestamp": at(-2_000), "labels": labels, "deletionTimestamp": deletion },
        "spec": { "nodeName": "node-1", "volumes": volumes },
        "status": { "phase": phase, "conditions": [ready] },
    })))
}

pub(crate) fn pods(list: &[&str]) -> Vec<Arc<Pod>> {
    list.iter().map(|it| pod(it)).collect()
}

/// A claim with these owner references.
pub(crate) fn claim(name: &str, owners: &[Value], extra: Value) -> Arc<PersistentVolumeClaim> {
    let mut object = json!({
        "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "ownerReferences": owners },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } },
    });
    merge(&mut object["metadata"], extra);
    Arc::new(decode(&object))
}

/// The owner reference of the pod of this ordinal.
pub(crate) fn by_pod(ordinal: u32, uid: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "name": format!("web-{ordinal}"), "uid": uid, "controller": true })
}

/// The claim templates of a set with one claim.
pub(crate) fn one_claim() -> Value {
    json!([{ "metadata": { "name": "data" },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } }])
}

/// The snapshot of a sync without claims.
pub(crate) fn snapshot_of<'a>(set: &'a StatefulSet, pods: &'a [Arc<Pod>], gates: Gates) -> Snapshot<'a> {
    snapshot_with(set, pods, &[], gates)
}

/// The snapshot of a sync with these claims.
pub(crate) fn snapshot_with<'a>(
    set: &'a StatefulSet,
    pods: &'a [Arc<Pod>],
    claims: &[Arc<PersistentVolumeClaim>],
    gates: Gates,
) -> Snapshot<'a> {
    let now = Timestamp::from_second(NOW).unwrap();
    let find = |name: &str| {
        let found = claims.iter().find(|it| &*it.meta.name == name);
        Ok::<_, Infallible>(found.cloned())
    };
    let Ok(snapshot) = gather(set, pods, find, REVISIONS, now, gates);
    snapshot
}

fn decode<T: Cached>(object: &Value) -> T {
    T::decode_object(object.to_string().as_bytes()).unwrap()
}
