//! The final state of all Deployments and sets.

use serde_json::Value;
use testing::sim::World;

use super::{
    CONTROLLERS, DEPLOYMENTS, HOME, PODS, SETS,
    deployment_checks::condition,
    model::{ROLLBACK_TO, controller, revision, selects, text, without_hash},
};
use crate::kubelet;

/// The condition Progressing after a rollout.
const COMPLETE: &str = "True NewReplicaSetAvailable";

/// The first object that is not in its final state, as a text.
pub(super) fn first_unfinished(world: &World) -> Option<String> {
    let cluster = world.cluster();
    let (sets, pods) = (cluster.list(SETS, HOME), cluster.list(PODS, HOME));
    let deployments = cluster.list(DEPLOYMENTS, HOME);
    let unfinished_deployment = || deployments.iter().find_map(|it| unfinished_deployment(it, &sets, &pods));
    let controllers = cluster.list(CONTROLLERS, HOME);
    let of_pods = || sets.iter().chain(&controllers);
    of_pods()
        .filter(|it| !is_garbage(it, &deployments))
        .find_map(|it| unfinished_set(world, it, &pods))
        .or_else(|| orphan(&pods, of_pods()))
        .or_else(|| orphan(&sets, deployments.iter()))
        .or_else(unfinished_deployment)
}

fn selector(owner: &Value) -> &Value {
    match &owner["spec"]["selector"] {
        selector if owner["kind"] == "ReplicationController" => selector,
        selector => &selector["matchLabels"],
    }
}

/// The first object without an owner that one of these selects.
fn orphan<'a>(all: &[Value], owners: impl Iterator<Item = &'a Value> + Clone) -> Option<String> {
    let is_orphan = |it: &&Value| controller(it).is_none() && !is_deleting(it) && !has_ended(it);
    let selects = |it: &Value| owners.clone().any(|owner| selects(selector(owner), &it["metadata"]["labels"]));
    let found = all.iter().filter(is_orphan).find(|it| selects(it))?;
    Some(format!("{} has no owner and is selected", found["metadata"]["name"]))
}

/// Whether its Deployment is gone. A process whose cache is late may create such a set, and the garbage collector deletes it.
fn is_garbage(set: &Value, deployments: &[Value]) -> bool {
    let owner = set["metadata"]["ownerReferences"].as_array().into_iter().flatten().find(|it| it["controller"] == true);
    owner.is_some_and(|it| {
        it["kind"] == "Deployment" && deployments.iter().all(|owner| owner["metadata"]["uid"] != it["uid"])
    })
}

fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn owned<'a>(all: &'a [Value], owner: &Value) -> Vec<&'a Value> {
    let uid = text(&owner["metadata"]["uid"]);
    all.iter().filter(|it| controller(it).as_ref() == Some(&uid)).collect()
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The first field of a status that has not this number.
fn wrong_number(object: &Value, expected: &[(&str, i64)]) -> Option<String> {
    let (name, status) = (&object["metadata"]["name"], &object["status"]);
    let (field, number) = expected.iter().find(|it| status[it.0].as_i64().unwrap_or_default() != it.1)?;
    Some(format!("{field} of {name} is {}, not {number}", status[*field]))
}

/// All its pods are available, and its status is right.
fn unfinished_set(world: &World, set: &Value, pods: &[Value]) -> Option<String> {
    let (name, replicas) = (text(&set["metadata"]["name"]), set["spec"]["replicas"].as_i64().unwrap_or_default());
    if is_deleting(set) {
        return Some(format!("{name} is being deleted"));
    }
    let own = owned(pods, set);
    if let Some(pod) = own.iter().find(|it| is_deleting(it)) {
        return Some(format!("{} of {name} is not gone", pod["metadata"]["name"]));
    }
    let active: Vec<&&Value> = own.iter().filter(|it| !has_ended(it)).collect();
    if let Some(pod) = active.iter().find(|it| !selects(selector(set), &it["metadata"]["labels"])) {
        return Some(format!("{} of {name} is not released", pod["metadata"]["name"]));
    }
    if i64::try_from(active.len()).ok() != Some(replicas) {
        return Some(format!("{name} has {} pods, not {replicas}", active.len()));
    }
    let min_ready_seconds = &set["spec"]["minReadySeconds"];
    if let Some(pod) = active.iter().find(|it| !kubelet::is_available(world, it, min_ready_seconds)) {
        return Some(format!("{} of {name} is not available", pod["metadata"]["name"]));
    }
    let counters = ["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    let generation = set["metadata"]["generation"].as_i64().unwrap_or_default();
    let expected = counters.iter().map(|it| (*it, replicas)).chain([("observedGeneration", generation)]);
    let expected: Vec<(&str, i64)> = expected.collect();
    // The API of a ReplicationController has no such field.
    let terminating = if set["kind"] == "ReplicaSet" { 0.into() } else { Value::Null };
    if set["status"]["terminatingReplicas"] != terminating || !condition(&set["status"], "ReplicaFailure").is_null() {
        return Some(format!("the status of {name} is {}", set["status"]));
    }
    wrong_number(set, &expected)
}

/// Only its new ReplicaSet has pods; the status, the conditions, the revision and the history are right.
fn unfinished_deployment(deployment: &Value, sets: &[Value], pods: &[Value]) -> Option<String> {
    let (metadata, spec, status) = (&deployment["metadata"], &deployment["spec"], &deployment["status"]);
    let (name, replicas) = (text(&metadata["name"]), spec["replicas"].as_i64().unwrap_or_default());
    if is_deleting(deployment) || metadata["annotations"][ROLLBACK_TO].is_string() {
        return Some(format!("{name} is being deleted, or is not rolled back yet"));
    }
    let mut own = owned(sets, deployment);
    own.sort_by_key(|it| (text(&it["metadata"]["creationTimestamp"]), text(&it["metadata"]["name"])));
    let is_new = |it: &&Value| without_hash(&it["spec"]["template"]) == without_hash(&spec["template"]);
    let Some(at) = own.iter().position(is_new) else { return Some(format!("{name} has no new ReplicaSet")) };
    let new = own.remove(at);
    if let Some(old) = own.iter().find(|it| it["spec"]["replicas"] != 0) {
        return Some(format!("the old {} has the size {}", old["metadata"]["name"], old["spec"]["replicas"]));
    }
    let desired = text(&new["metadata"]["annotations"]["deployment.kubernetes.io/desired-replicas"]);
    if new["spec"]["replicas"] != replicas || (replicas > 0 && desired != replicas.to_string()) {
        return Some(format!("{} has the size {}, not {replicas}", new["metadata"]["name"], new["spec"]["replicas"]));
    }
    let image = &spec["template"]["spec"]["containers"][0]["image"];
    if let Some(pod) = owned(pods, new).iter().find(|it| it["spec"]["containers"][0]["image"] != *image) {
        return Some(format!("{} has not the template of {name}", pod["metadata"]["name"]));
    }
    let newest = revision(new);
    if revision(deployment) != newest || own.iter().any(|it| revision(it) >= newest) {
        return Some(format!(
            "the revision of {name} is {}, and that of its ReplicaSet {newest}",
            revision(deployment)
        ));
    }
    let limit = spec["revisionHistoryLimit"].as_u64().and_then(|it| usize::try_from(it).ok());
    if limit.is_some_and(|it| own.len() > it) {
        return Some(format!("{name} has {} old ReplicaSets, the limit is {limit:?}", own.len()));
    }
    let row = |type_: &str| {
        let it = condition(status, type_);
        format!("{} {}", text(&it["status"]), text(&it["reason"]))
    };
    let progressing = if spec["progressDeadlineSeconds"] == i32::MAX { " " } else { COMPLETE };
    let rows = [row("Available"), row("Progressing"), row("ReplicaFailure")];
    if rows != ["True MinimumReplicasAvailable", progressing, " "] {
        return Some(format!("the conditions of {name} are {}", status["conditions"]));
    }
    let counters = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
    let others = [
        ("unavailableReplicas", 0),
        ("terminatingReplicas", 0),
        ("observedGeneration", metadata["generation"].as_i64().unwrap_or_default()),
    ];
    let expected: Vec<(&str, i64)> = counters.iter().map(|it| (*it, replicas)).chain(others).collect();
    wrong_number(deployment, &expected)
}
