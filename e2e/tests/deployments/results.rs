//! What must be equal, whichever manager did the work.

use std::collections::BTreeMap;

use e2e::{
    equality::{self, Results, without_generated_names},
    fields::{condition, is_ready, name, owner, text},
};
use serde_json::{Value, json};

use crate::{
    cases::{CREATED, Case, Kind, PROGRESSES},
    setup::{CREATE_ERROR, Nodes},
};

/// Events that the upstream manager does not send, see `docs/differences.md`: about the end of a rollout, and about pods
/// that fail at once.
const ONLY_OURS: [&str; 3] = ["ProgressDeadlineExceeded", "NewReplicaSetAvailable", "BackOff"];
/// The case whose rollout to an old ReplicaSet has a condition of its own only here.
const UNDONE: &str = "reverted-recreate";
/// More than nine similar events are combined into one.
const COMBINED: &str = "(combined from similar events): ";

/// All objects and events of these cases.
pub(crate) async fn results(nodes: &Nodes, cases: &[Case]) -> anyhow::Result<Results> {
    let case_of = |object: &Value| cases.iter().find(|it| it.name == text(&object["metadata"]["namespace"]));
    let mut results = Results::new();
    for kind in [Kind::Deployment, Kind::ReplicaSet, Kind::ReplicationController] {
        for object in nodes.all("", kind.resource()).await? {
            if let Some(case) = case_of(&object) {
                let compared = comparable(&object);
                results.insert(format!("{} {} {}", case.name, kind.resource(), name(&object)), compared);
            }
        }
    }
    let mut pods: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for pod in nodes.all("", "pods").await? {
        if let Some(case) = case_of(&pod) {
            let group = format!("{} pods of {:?}", case.name, owner(&pod));
            pods.entry(group).or_default().push(comparable_pod(&pod));
        }
    }
    for (key, mut group) in pods {
        group.sort_by_key(Value::to_string);
        results.insert(key, Value::Array(group));
    }
    for event in nodes.all("", "events").await? {
        let case = case_of(&event).filter(|it| !it.is_timed() && !ONLY_OURS.contains(&text(&event["reason"])));
        if let Some(case) = case {
            let about = &event["involvedObject"];
            let (kind, message) = (text(&about["kind"]), comparable_message(case, &event));
            let key = format!("{} event of {kind} {}", case.name, text(&about["name"]));
            // Without the count and what differs in a combined one: failures are repeated as often as there is time.
            let from = event["source"]["component"].clone();
            results.insert(format!("{key}: {} {} {message}", event["type"], event["reason"]), from);
        }
    }
    Ok(results)
}

/// A Deployment, ReplicaSet or ReplicationController with its status.
fn comparable(object: &Value) -> Value {
    let mut compared = equality::comparable(object);
    compared["status"] = comparable_status(object);
    compared
}

fn comparable_status(object: &Value) -> Value {
    let mut status = object["status"].clone();
    // The number of changes of a ReplicaSet is another one: ours makes several changes in one write.
    status["observedGeneration"] = json!(status["observedGeneration"] == object["metadata"]["generation"]);
    let pods = [format!("{}-", name(object))];
    let is_refused = condition(object, "Progressing")["reason"] == CREATE_ERROR;
    // Upstream keeps the message about the ReplicaSet before the undo, because no other reason came in between.
    let is_undone = name(object) == UNDONE;
    if let Some(conditions) = status["conditions"].as_array_mut() {
        // Ours replaces several conditions in one write, so their order is another one.
        conditions.sort_by_key(|it| text(&it["type"]).to_owned());
        for condition in conditions.iter_mut() {
            if is_undone && condition["type"] == "Progressing" {
                condition["message"] = json!("left out");
            }
            if condition["type"] == "ReplicaFailure" {
                condition["message"] = json!(without_generated_names(text(&condition["message"]), &pods));
            }
            if condition["reason"] == CREATED || condition["reason"] == PROGRESSES {
                // Which one it is depends on whether a sync observes the ReplicaSet before its first pod.
                (condition["reason"], condition["message"]) = (json!(PROGRESSES), Value::Null);
            }
            for time in ["lastUpdateTime", "lastTransitionTime"] {
                condition[time] = json!(condition[time].is_string());
            }
        }
    }
    if is_refused {
        // Ours writes the whole status after a failure too.
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let refusal: Vec<Value> = conditions.filter(|it| it["type"] == "Progressing").cloned().collect();
        status = json!({ "conditions": refusal });
    }
    status
}

/// A pod without the random part of its name and without its node.
fn comparable_pod(pod: &Value) -> Value {
    let mut compared = equality::comparable(pod);
    if compared["metadata"]["generateName"].is_string() {
        compared["metadata"]["name"] = json!("generated");
    }
    if let Some(spec) = compared["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    compared["phase"] = pod["status"]["phase"].clone();
    compared["ready"] = json!(is_ready(pod));
    compared
}

fn comparable_message(case: &Case, event: &Value) -> String {
    let message = text(&event["message"]);
    let message = message.strip_prefix(COMBINED).unwrap_or(message);
    let about = &event["involvedObject"];
    if about["kind"] != "Deployment" {
        return without_generated_names(message, &[format!("{}-", text(&about["name"]))]);
    }
    let without_sizes =
        message.split(" from ").next().filter(|_| case.sizes_vary && event["reason"] == "ScalingReplicaSet");
    without_sizes.unwrap_or(message).to_owned()
}
