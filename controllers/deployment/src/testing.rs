//! Deployments and ReplicaSets for table tests of the rules.

use std::sync::Arc;

use api::{Cached, Deployment, ReplicaSet, StatusOwner};
use clock::Timestamp;
use serde_json::{Value, json};

use crate::rules::{
    annotations,
    snapshot::{Snapshot, new_set, sort},
    template,
};

/// The time of all tests, in seconds.
pub(crate) const NOW: i64 = 1_767_323_045;

/// The name of a ReplicaSet for the present template in all tests.
pub(crate) const NAME_OF_NEW: &str = "d-hash";

/// The RFC 3339 time this many seconds after [`NOW`].
pub(crate) fn at(seconds: i64) -> String {
    Timestamp::from_second(NOW + seconds).unwrap().to_string()
}

/// The Deployment `d` of 3 with these changes of its spec.
pub(crate) fn deployment(spec: Value) -> Deployment {
    deployment_with(spec, json!({}), json!({}))
}

/// The same with these changes of its metadata and status.
pub(crate) fn deployment_with(spec: Value, metadata: Value, status: Value) -> Deployment {
    let mut object = json!({
        "metadata": { "name": "d", "namespace": "n", "uid": "uid-d", "resourceVersion": "1", "generation": 1 },
        "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "d" } }, "template": template("new"),
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } } },
        "status": {},
    });
    merge(&mut object["metadata"], metadata);
    merge(&mut object["spec"], spec);
    merge(&mut object["status"], status);
    decode(&object)
}

/// A template with this image.
pub(crate) fn template(image: &str) -> Value {
    json!({ "metadata": { "labels": { "app": "d" } }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

/// A Deployment and its ReplicaSets. A row is the name of a ReplicaSet, the image of its template, its size, and words;
/// see [`replica_set`].
pub(crate) struct World {
    pub(crate) deployment: Deployment,
    sets: Vec<Arc<ReplicaSet>>,
    pub(crate) has_old_pods: bool,
}

impl World {
    pub(crate) fn new(deployment: Deployment, rows: &[&str]) -> Self {
        let replicas = deployment.spec.replicas;
        let mut sets: Vec<_> = rows.iter().map(|it| Arc::new(replica_set(it, replicas))).collect();
        sort(&mut sets);
        Self { deployment, sets, has_old_pods: false }
    }

    pub(crate) fn snapshot(&self) -> Snapshot<'_> {
        let has_template = |set: &ReplicaSet| template::is_equal(&set.spec.template, &self.deployment.spec.template);
        let new = new_set(&self.sets, has_template).unwrap();
        Snapshot {
            deployment: &self.deployment,
            annotations: annotations::all(self.deployment.raw_metadata()).unwrap(),
            sets: &self.sets,
            new,
            new_annotations: new.map(|at| annotations::all(self.sets[at].raw_metadata()).unwrap()).unwrap_or_default(),
            name_of_new: NAME_OF_NEW.to_owned(),
            has_old_pods: self.has_old_pods,
            reports_terminating: true,
            now: Timestamp::from_second(NOW).unwrap(),
        }
    }
}

/// A ReplicaSet. After its size may stand a slash and the number of available pods. Words: `age:30` (seconds), `pods:1`
/// and `ready:1` (the default is the available pods, or the size), `revision:2` (the default is 1), `desired:3`, `max:4`,
/// `terminating:1`, `generation:1` (the default is 2), `unobserved`, `never` (synced), `deleting`, `failure`, `bare`
/// (without annotations).
fn replica_set(row: &str, replicas: i32) -> ReplicaSet {
    let words: Vec<&str> = row.split(' ').collect();
    let text = |prefix: &str| words.iter().find_map(|it| it.strip_prefix(prefix));
    let number = |prefix: &str| text(prefix).map(|it| it.parse::<i64>().unwrap());
    let has = |word: &str| words.contains(&word);
    let (name, image) = (words[0], words[1]);
    let (size, available) = words[2].split_once('/').unwrap_or((words[2], words[2]));
    let (size, available): (i64, i64) = (size.parse().unwrap(), available.parse().unwrap());
    let pods = number("pods:").unwrap_or(size.max(available));
    let generation = number("generation:").unwrap_or(2);
    let observed = match () {
        () if has("never") => 0,
        () if has("unobserved") => generation - 1,
        () => generation,
    };
    let desired = replicas.to_string();
    let mut annotations = json!({
        "deployment.kubernetes.io/revision": text("revision:").unwrap_or("1"),
        "deployment.kubernetes.io/desired-replicas": text("desired:").unwrap_or(&desired),
    });
    if let Some(max) = text("max:") {
        annotations["deployment.kubernetes.io/max-replicas"] = json!(max);
    }
    let failure = json!([{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
        "message": format!("{name} is refused"), "lastTransitionTime": "1970-01-01T00:00:05Z" }]);
    let mut template = template(image);
    template["metadata"]["labels"]["pod-template-hash"] = json!(name);
    let age = number("age:").unwrap_or(1_000);
    let mut object = json!({
        "metadata": { "name": name, "namespace": "n", "uid": format!("uid-{name}"), "resourceVersion": "1",
            "generation": generation, "creationTimestamp": at(-age),
            "annotations": if has("bare") { json!({}) } else { annotations },
            "deletionTimestamp": if has("deleting") { json!(at(-5)) } else { Value::Null } },
        "spec": { "replicas": size, "template": template },
        "status": { "replicas": pods, "readyReplicas": number("ready:").unwrap_or(available),
            "availableReplicas": available, "observedGeneration": observed,
            "conditions": if has("failure") { failure } else { json!([]) } },
    });
    if let Some(count) = number("terminating:") {
        object["status"]["terminatingReplicas"] = json!(count);
    }
    decode(&object)
}

/// Sets the members of `changes`.
pub(crate) fn merge(object: &mut Value, changes: Value) {
    for (key, value) in changes.as_object().unwrap() {
        object[key] = value.clone();
    }
}

fn decode<T: Cached>(object: &Value) -> T {
    T::decode_object(object.to_string().as_bytes()).unwrap()
}
