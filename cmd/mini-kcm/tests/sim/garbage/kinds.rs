//! The types of the scenario, and the definitions of the custom ones.

use serde_json::{Value, json};
use testing::sim::World;

/// A type of objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Type {
    /// The name in the test cluster.
    pub(super) resource: &'static str,
    /// The version in which objects are created.
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) namespaced: bool,
    /// True for a type that is added and removed with its CustomResourceDefinition.
    pub(super) custom: bool,
}

const fn built_in(resource: &'static str, api_version: &'static str, kind: &'static str, namespaced: bool) -> Type {
    Type { resource, api_version, kind, namespaced, custom: false }
}

pub(super) const MAP: Type = built_in("configmaps", "v1", "ConfigMap", true);
pub(super) const CONTROLLER: Type = built_in("replicationcontrollers", "v1", "ReplicationController", true);
pub(super) const ROLE: Type = built_in("clusterroles.rbac.authorization.k8s.io", RBAC, "ClusterRole", false);
const RBAC: &str = "rbac.authorization.k8s.io/v1";
pub(super) const WIDGET: Type = Type {
    resource: "widgets.example.com",
    api_version: "example.com/v1",
    kind: "Widget",
    namespaced: true,
    custom: true,
};
const GIZMO: Type = Type {
    resource: "gizmos.parts.example.com",
    api_version: "parts.example.com/v1",
    kind: "Gizmo",
    namespaced: false,
    custom: true,
};

/// The types of the objects that are created.
pub(super) static TYPES: [Type; 7] = [
    MAP,
    built_in("secrets", "v1", "Secret", true),
    // The default propagation policy of these two is `Orphan`.
    CONTROLLER,
    built_in("jobs.batch", "batch/v1", "Job", true),
    ROLE,
    WIDGET,
    GIZMO,
];

/// Groups that are added and removed.
pub(super) const CUSTOM_GROUPS: [&str; 2] = ["example.com", "parts.example.com"];
/// Groups of built-in types without objects here. A run without them is faster.
pub(super) const QUIET_GROUPS: [&str; 7] =
    ["apps", "autoscaling", "policy", "storage.k8s.io", "scheduling.k8s.io", "discovery.k8s.io", "coordination.k8s.io"];
/// A second version of the custom types, which may stop being served.
pub(super) const OLD_VERSION: &str = "v1beta1";
pub(super) const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

impl Type {
    pub(super) fn group(&self) -> &'static str {
        group(self.api_version)
    }
}

/// The group; empty for the core group.
pub(super) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |it| it.0)
}

/// The type of an object or a reference, for any version.
pub(super) fn named(api_version: &str, kind: &str) -> Option<&'static Type> {
    TYPES.iter().find(|it| it.kind == kind && it.group() == group(api_version))
}

/// Creates the definition of a custom type, if it does not exist.
pub(super) fn define(world: &World, of: &Type) {
    let plural = of.resource.split('.').next().unwrap_or_default();
    if !of.custom || world.cluster().get(DEFINITIONS, "", of.resource).is_some() {
        return;
    }
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let version =
        |name: &str, storage: bool| json!({ "name": name, "served": true, "storage": storage, "schema": schema });
    world.cluster().create(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": of.resource },
        "spec": {
            "group": of.group(), "scope": if of.namespaced { "Namespaced" } else { "Cluster" },
            "names": { "plural": plural, "kind": of.kind },
            "versions": [version("v1", true), version(OLD_VERSION, false)],
        },
    }));
}

/// Sets whether the second version of a custom type is served.
pub(super) fn serve_old_version(world: &World, of: &Type, served: bool) {
    if world.cluster().get(DEFINITIONS, "", of.resource).is_some() {
        world.cluster().update(DEFINITIONS, "", of.resource, |it| {
            it["spec"]["versions"][1]["served"] = served.into();
        });
    }
}

/// True when objects of the type can be created now.
pub(super) fn is_open(world: &World, of: &Type) -> bool {
    let definition = || world.cluster().get(DEFINITIONS, "", of.resource);
    !of.custom || definition().is_some_and(|it| it["metadata"]["deletionTimestamp"].is_null())
}

/// The fields of an object besides its metadata.
pub(super) fn body(of: &Type) -> Value {
    let template = json!({
        "metadata": { "labels": { "app": "a" } },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }] },
    });
    match of.kind {
        // Suspended, so that the Job controller does not create pods.
        "Job" => json!({ "spec": { "suspend": true, "template": template } }),
        "ReplicationController" => {
            json!({ "spec": { "replicas": 0, "selector": { "app": "a" }, "template": template } })
        }
        _ => json!({}),
    }
}
