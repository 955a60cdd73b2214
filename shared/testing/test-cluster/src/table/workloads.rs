use clock::Timestamp;
use serde_json::Value;

use super::{
    AGE, Column, NAME, NONE, Printer, age, cells, containers, integer, list_at, name, number_at, pairs, selector, text,
    text_at, wide,
};

pub(super) fn printer(plural: &str) -> Option<Printer> {
    Some(match plural {
        "deployments" => Printer { columns: DEPLOYMENT, cells: deployment },
        "replicasets" => Printer { columns: REPLICA_SET, cells: replica_set },
        "replicationcontrollers" => Printer { columns: REPLICA_SET, cells: replication_controller },
        "statefulsets" => Printer { columns: STATEFUL_SET, cells: stateful_set },
        "daemonsets" => Printer { columns: DAEMON_SET, cells: daemon_set },
        "controllerrevisions" => Printer { columns: REVISION, cells: revision },
        _ => return None,
    })
}

const CONTAINERS: Column = wide("Containers");
const IMAGES: Column = wide("Images");
const SELECTOR: Column = wide("Selector");

const DEPLOYMENT: &[Column] =
    &[NAME, text("Ready"), text("Up-to-date"), text("Available"), AGE, CONTAINERS, IMAGES, SELECTOR];

fn deployment(it: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(&it["spec"]["template"]["spec"]);
    cells![
        name(it),
        ready_of(it),
        number_at(it, "status.updatedReplicas"),
        number_at(it, "status.availableReplicas"),
        age(it, now),
        names,
        images,
        selector(&it["spec"]["selector"]),
    ]
}

fn ready_of(it: &Value) -> String {
    format!("{}/{}", number_at(it, "status.readyReplicas"), number_at(it, "spec.replicas"))
}

const REPLICA_SET: &[Column] =
    &[NAME, integer("Desired"), integer("Current"), integer("Ready"), AGE, CONTAINERS, IMAGES, SELECTOR];

fn replica_set(it: &Value, now: Timestamp) -> Vec<Value> {
    replicas(it, now, selector(&it["spec"]["selector"]))
}

fn replication_controller(it: &Value, now: Timestamp) -> Vec<Value> {
    replicas(it, now, pairs(&it["spec"]["selector"]))
}

fn replicas(it: &Value, now: Timestamp, selector: String) -> Vec<Value> {
    let [names, images] = containers(&it["spec"]["template"]["spec"]);
    cells![
        name(it),
        number_at(it, "spec.replicas"),
        number_at(it, "status.replicas"),
        number_at(it, "status.readyReplicas"),
        age(it, now),
        names,
        images,
        selector,
    ]
}

const STATEFUL_SET: &[Column] = &[NAME, text("Ready"), AGE, CONTAINERS, IMAGES];

fn stateful_set(it: &Value, now: Timestamp) -> Vec<Value> {
    let [names, images] = containers(&it["spec"]["template"]["spec"]);
    cells![name(it), ready_of(it), age(it, now), names, images]
}

const DAEMON_SET: &[Column] = &[
    NAME,
    integer("Desired"),
    integer("Current"),
    integer("Ready"),
    integer("Up-to-date"),
    integer("Available"),
    text("Node Selector"),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];

fn daemon_set(it: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &it["spec"]["template"]["spec"];
    let [names, images] = containers(spec);
    let status = |field: &str| number_at(&it["status"], field);
    cells![
        name(it),
        status("desiredNumberScheduled"),
        status("currentNumberScheduled"),
        status("numberReady"),
        status("updatedNumberScheduled"),
        status("numberAvailable"),
        pairs(&spec["nodeSelector"]),
        age(it, now),
        names,
        images,
        selector(&it["spec"]["selector"]),
    ]
}

const REVISION: &[Column] = &[NAME, text("Controller"), text("Revision"), AGE];

fn revision(it: &Value, now: Timestamp) -> Vec<Value> {
    let owner = list_at(it, "metadata.ownerReferences").iter().find(|it| it["controller"] == true);
    let controller = owner.map_or_else(|| NONE.to_owned(), resource_name);
    cells![name(it), controller, number_at(it, "revision"), age(it, now)]
}

/// `statefulset.apps/web`
fn resource_name(owner: &Value) -> String {
    let kind = text_at(owner, "kind").to_lowercase();
    let name = text_at(owner, "name");
    match text_at(owner, "apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}
