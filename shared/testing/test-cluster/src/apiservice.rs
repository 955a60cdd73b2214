//! APIServices: one object for each served group-version, and those whose server does not exist.

use clock::Timestamp;
use serde_json::{Value, json};

use crate::{
    Failure,
    crd::priority,
    kinds::{self, Kind},
    meta,
    response::Fault,
    store::State,
};

/// The label of objects that the server itself maintains.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// Priorities of group and version, highest first. The group of APIServices itself is not in the table.
const BUILTIN: [(&str, &str, i64, i64); 15] = [
    ("", "v1", 18_000, 1),
    ("apps", "v1", 17_800, 15),
    ("events.k8s.io", "v1", 17_750, 15),
    ("authentication.k8s.io", "v1", 17_700, 15),
    ("authorization.k8s.io", "v1", 17_600, 15),
    ("autoscaling", "v2", 17_500, 30),
    ("autoscaling", "v1", 17_500, 15),
    ("batch", "v1", 17_400, 15),
    ("policy", "v1", 17_100, 15),
    ("rbac.authorization.k8s.io", "v1", 17_000, 15),
    ("storage.k8s.io", "v1", 16_800, 15),
    ("apiextensions.k8s.io", "v1", 16_700, 15),
    ("scheduling.k8s.io", "v1", 16_600, 15),
    ("coordination.k8s.io", "v1", 16_500, 15),
    ("discovery.k8s.io", "v1", 16_200, 15),
];

/// Priorities of the groups of CustomResourceDefinitions.
const CUSTOM: (i64, i64) = (1000, 100);

/// One group-version in discovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) group: String,
    pub(crate) version: String,
    /// Its server responds.
    pub(crate) available: bool,
}

/// Stores the objects of the built-in groups.
///
/// # Errors
/// None, because the kind is always served.
pub(crate) fn create_all(state: &mut State, now: Timestamp) -> Result<(), Failure> {
    for (group, version, group_priority, version_priority) in BUILTIN {
        put(state, group, version, (group_priority, version_priority), "onstart", now)?;
    }
    Ok(())
}

fn put(
    state: &mut State,
    group: &str,
    version: &str,
    priorities: (i64, i64),
    managed: &str,
    now: Timestamp,
) -> Result<(), Failure> {
    let name = name_of(group, version);
    let mut spec = json!({
        "version": version, "groupPriorityMinimum": priorities.0, "versionPriority": priorities.1,
    });
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    let object = json!({
        "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1",
        "metadata": {
            "name": name, "uid": meta::new_uid(&mut state.rng), "creationTimestamp": meta::stamp(now),
            "labels": { MANAGED: managed },
        },
        "spec": spec, "status": { "conditions": [available(now)] },
    });
    state.put(kinds::API_SERVICES, &name, object).map(drop)
}

fn name_of(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

fn available(now: Timestamp) -> Value {
    condition("True", "Local", "Local APIServices are always available", now)
}

fn condition(status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    json!({
        "type": "Available", "status": status, "lastTransitionTime": meta::stamp(now), "reason": reason,
        "message": message,
    })
}

/// Updates the objects of a custom group to the versions that are served now.
pub(crate) fn update_group(state: &mut State, group: &str, now: Timestamp) -> Result<(), Failure> {
    let custom = state.tables.values().map(|it| &it.kind).filter(|it| it.custom && it.group == group);
    let served: Vec<String> = custom.flat_map(|it| it.versions.clone()).collect();
    for version in &served {
        if state.stored(kinds::API_SERVICES, &name_of(group, version)).is_none() {
            put(state, group, version, CUSTOM, "true", now)?;
        }
    }
    let stale: Vec<String> = objects(state)
        .filter(|it| it["spec"]["group"] == group && it["metadata"]["labels"][MANAGED] == "true")
        .filter(|it| !served.iter().any(|version| it["spec"]["version"] == version.as_str()))
        .map(|it| meta::name(&it).to_owned())
        .collect();
    for name in stale {
        state.remove(kinds::API_SERVICES, &name, now)?;
    }
    Ok(())
}

fn objects(state: &State) -> impl Iterator<Item = Value> {
    let table = state.tables.get(kinds::API_SERVICES);
    table.into_iter().flat_map(|it| it.objects.values()).map(|it| it.decode())
}

/// Validates a new object.
pub(crate) fn check(object: &Value, faults: &mut Vec<Fault>) {
    let text = |field: &str| object["spec"][field].as_str().unwrap_or_default();
    let wanted = name_of(text("group"), text("version"));
    if meta::name(object) != wanted {
        let why = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        faults.push(Fault::invalid("metadata.name", &json!(meta::name(object)), &why));
    }
}

/// Sets the fields of a new object that the server sets.
pub(crate) fn complete(object: &mut Value) {
    if object["spec"]["service"].is_object() {
        meta::default_at(object, "spec.service.port", 443.into());
    }
}

/// Sets the condition of a new or changed object. Only the server itself is available; no other server exists here.
pub(crate) fn after_write(state: &mut State, kind: &Kind, stored: &Value, now: Timestamp) -> Result<(), Failure> {
    if !kind.is(kinds::API_SERVICES) {
        return Ok(());
    }
    let service = &stored["spec"]["service"];
    let text = |field: &str| service[field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let told = if !service.is_object() {
        available(now)
    } else if state.stored(kinds::SERVICES, &format!("{namespace}/{name}")).is_none() {
        let message = format!("service/{name} in {namespace:?} is not present");
        condition("False", "ServiceNotFound", &message, now)
    } else {
        let message = format!("no server behind service/{name} in {namespace:?}: this cluster runs none");
        condition("False", "MissingEndpoints", &message, now)
    };
    let had = &stored["status"]["conditions"][0];
    if had["status"] == told["status"] && had["reason"] == told["reason"] {
        return Ok(());
    }
    let mut next = stored.clone();
    meta::map(&mut next, "status").insert("conditions".into(), json!([told]));
    state.put(kinds::API_SERVICES, meta::name(stored), next).map(drop)
}

/// All group-versions in the order of discovery: by priority of the group, then of the version.
pub(crate) fn served_versions(state: &State) -> Vec<Shown> {
    // The group of APIServices is served whatever objects exist.
    let own = ("apiregistration.k8s.io".to_owned(), "v1".to_owned(), 17_900, 15, true);
    let mut all = vec![own];
    for object in objects(state) {
        let spec = &object["spec"];
        let text = |field: &str| spec[field].as_str().unwrap_or_default().to_owned();
        let number = |field: &str| spec[field].as_i64().unwrap_or(0);
        let available = !spec["service"].is_object();
        let (group, version) = (text("group"), text("version"));
        all.push((group, version, number("groupPriorityMinimum"), number("versionPriority"), available));
    }
    let of_group = |group: &str| all.iter().filter(|it| it.0 == group).map(|it| it.2).max();
    let mut ordered = all.clone();
    ordered.sort_by(|a, b| {
        let groups = of_group(&b.0).cmp(&of_group(&a.0)).then_with(|| a.0.cmp(&b.0));
        groups.then_with(|| b.3.cmp(&a.3)).then_with(|| priority(&b.1).cmp(&priority(&a.1)))
    });
    ordered.into_iter().map(|(group, version, .., available)| Shown { group, version, available }).collect()
}

/// True when requests for this group-version go to a server that does not exist.
pub(crate) fn is_unavailable(state: &State, group: &str, version: &str) -> bool {
    let found = state.stored(kinds::API_SERVICES, &name_of(group, version));
    found.is_some_and(|it| it.decode()["spec"]["service"].is_object())
}
