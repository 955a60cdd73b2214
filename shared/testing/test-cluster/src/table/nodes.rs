use std::collections::BTreeSet;

use clock::Timestamp;
use serde_json::Value;

use super::{AGE, Column, NAME, NONE, Printer, age, cells, condition, list_at, name, or, text, text_at, wide};

const COLUMNS: &[Column] = &[
    NAME,
    text("Status"),
    text("Roles"),
    AGE,
    text("Version"),
    wide("Internal-IP"),
    wide("External-IP"),
    wide("OS-Image"),
    wide("Kernel-Version"),
    wide("Container-Runtime"),
];

const UNKNOWN: &str = "<unknown>";

pub(super) fn printer(plural: &str) -> Option<Printer> {
    (plural == "nodes").then_some(Printer { columns: COLUMNS, cells })
}

fn cells(node: &Value, now: Timestamp) -> Vec<Value> {
    let info = |field: &str| node["status"]["nodeInfo"][field].as_str().unwrap_or_default();
    let kernel = or(info("kernelVersion"), UNKNOWN);
    let kernel = match info("architecture") {
        "" => kernel.to_owned(),
        architecture => format!("{kernel} ({architecture})"),
    };
    cells![
        name(node),
        status(node),
        roles(node),
        age(node, now),
        info("kubeletVersion"),
        address(node, "InternalIP"),
        address(node, "ExternalIP"),
        or(info("osImage"), UNKNOWN),
        kernel,
        or(info("containerRuntimeVersion"), UNKNOWN),
    ]
}

fn status(node: &Value) -> String {
    let ready = match condition(node, "Ready") {
        "" => "Unknown",
        "True" => "Ready",
        _ => "NotReady",
    };
    let cordoned = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{ready}{cordoned}")
}

fn roles(node: &Value) -> String {
    let labels = node["metadata"]["labels"].as_object();
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            None if key == "kubernetes.io/role" => value.as_str(),
            role => role,
        })
        .filter(|it| !it.is_empty())
        .collect();
    or(&roles.into_iter().collect::<Vec<_>>().join(","), NONE).to_owned()
}

fn address<'a>(node: &'a Value, of: &str) -> &'a str {
    let found = list_at(node, "status.addresses").iter().find(|it| it["type"] == of);
    or(found.map(|it| text_at(it, "address")).unwrap_or_default(), NONE)
}
