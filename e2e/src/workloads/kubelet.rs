//! The writes of a scheduler and a kubelet for a pod, as a script requires.

use std::collections::BTreeMap;

use clock::Timestamp;
use fake_nodes::PREFIX;
use serde_json::{Value, json};

use super::script::{Run, Which};
use crate::fields::{is_deleting, name};

pub(super) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(super) fn index(pod: &Value) -> Option<u32> {
    pod["metadata"]["annotations"][INDEX].as_str()?.parse().ok()
}

pub(super) fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

pub(super) fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].is_string()
}

pub(super) fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|it| it == FINALIZER))
}

/// The matching pods, the lowest index first; `None` while there are too few.
pub(super) fn choose(pods: Vec<Value>, which: &Which, fits: impl Fn(&Value) -> bool) -> Option<Vec<Value>> {
    let mut found: Vec<Value> = pods
        .into_iter()
        .filter(|it| fits(it) && !is_deleting(it))
        .filter(|it| which.index.is_none() || index(it) == which.index)
        .filter(|it| which.name.as_deref().is_none_or(|wanted| name(it) == wanted))
        .filter(|it| which.bound.is_none_or(|wanted| is_bound(it) == wanted))
        .collect();
    found.sort_by_key(index);
    found.truncate(which.count);
    (found.len() == which.count).then_some(found)
}

/// Binds a pod to a node whose fake kubelet reads the annotations.
pub(super) fn binding(pod: &Value, run: &Run, node: &str) -> Value {
    let mut lines = run.script.clone();
    if let Some(code) = run.exit {
        lines.entry("run-for".to_owned()).or_insert_with(|| "0s".to_owned());
        let key = run.container.as_ref().map_or_else(|| "exit-code".to_owned(), |it| format!("{it}.exit-code"));
        lines.insert(key, code.to_string());
    }
    let annotations: BTreeMap<String, String> =
        lines.into_iter().map(|(key, value)| (format!("{PREFIX}{key}"), value)).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": { "name": name(pod), "annotations": annotations },
        "target": { "kind": "Node", "name": node },
    })
}

/// The status of a pod that has ended, as a kubelet writes it.
pub(super) fn ended(pod: &Value, run: &Run, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let code = run.exit.unwrap_or_default();
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten().map(|it| {
        let meant = run.container.as_deref().is_none_or(|wanted| it["name"] == wanted);
        let code = if meant { code } else { 0 };
        let reason = if code == 0 { "Completed" } else { "Error" };
        json!({
            "name": it["name"], "image": it["image"], "imageID": "", "ready": false, "started": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now } },
        })
    });
    let containers: Vec<Value> = containers.collect();
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let condition = json!({ "type": "Ready", "status": "False", "lastTransitionTime": now });
    json!({ "status": { "phase": phase, "containerStatuses": containers, "conditions": [condition] } })
}

/// A condition that is True.
pub(super) fn marked(condition: &str, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({ "type": condition, "status": "True", "lastTransitionTime": now, "reason": "Scripted" });
    json!({ "status": { "conditions": [condition] } })
}
