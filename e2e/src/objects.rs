//! Objects for the content of namespaces, each with the path of its collection.

use serde_json::{Value, json};

/// A collection's path and an object for it.
pub type PathAndObject = (String, Value);

/// The group of the custom resources that scenarios define.
const GROUP: &str = "e2e.mini-kcm.dev";

/// `total` objects of twelve built-in kinds, spread evenly.
#[must_use]
pub fn dozen(namespace: &str, total: usize) -> Vec<PathAndObject> {
    (0..total).map(|number| one(namespace, number % 12, &format!("it-{number:05}"))).collect()
}

/// A ConfigMap.
#[must_use]
pub fn config_map(namespace: &str, name: &str) -> PathAndObject {
    core(namespace, "configmaps", json!({ "metadata": { "name": name }, "data": { "key": "value" } }))
}

/// A Secret.
#[must_use]
pub fn secret(namespace: &str, name: &str) -> PathAndObject {
    core(namespace, "secrets", json!({ "metadata": { "name": name }, "data": { "key": "dmFsdWU=" } }))
}

/// A Service without an address.
#[must_use]
pub fn service(namespace: &str, name: &str) -> PathAndObject {
    let spec = json!({ "clusterIP": "None", "selector": { "app": name }, "ports": [{ "port": 80 }] });
    core(namespace, "services", json!({ "metadata": { "name": name }, "spec": spec }))
}

/// A Deployment; no controller creates pods for it here.
#[must_use]
pub fn deployment(namespace: &str, name: &str) -> PathAndObject {
    group(namespace, "apps/v1", "deployments", json!({ "metadata": { "name": name }, "spec": workload(name) }))
}

/// A pod without a kubelet: a delete removes it at once unless it has finalizers.
#[must_use]
pub fn pod(namespace: &str, name: &str) -> PathAndObject {
    core(namespace, "pods", json!({ "metadata": { "name": name }, "spec": { "containers": [container()] } }))
}

/// A pod on a node: after a delete it remains until the scenario, as the kubelet, deletes it without grace.
#[must_use]
pub fn scheduled_pod(namespace: &str, name: &str, grace_seconds: u32) -> PathAndObject {
    let (path, mut pod) = pod(namespace, name);
    pod["spec"]["nodeName"] = json!("nowhere");
    pod["spec"]["terminationGracePeriodSeconds"] = json!(grace_seconds);
    (path, pod)
}

/// The same object with a finalizer.
#[must_use]
pub fn with_finalizer(finalizer: &str, (path, mut object): PathAndObject) -> PathAndObject {
    object["metadata"]["finalizers"] = json!([finalizer]);
    (path, object)
}

/// A patch that removes all finalizers.
#[must_use]
pub fn without_finalizers() -> Value {
    json!({ "metadata": { "finalizers": null } })
}

/// The definition of a namespaced custom resource, such as `widgets`.
#[must_use]
pub fn definition(plural: &str) -> PathAndObject {
    let (singular, kind) = (plural.trim_end_matches('s'), kind(plural));
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let object = json!({
        "metadata": { "name": format!("{plural}.{GROUP}") },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": { "plural": plural, "singular": singular, "kind": kind, "listKind": format!("{kind}List") },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    });
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions".to_owned(), object)
}

/// An object of a resource that [`definition`] defines.
#[must_use]
pub fn custom(namespace: &str, plural: &str, name: &str) -> PathAndObject {
    let api_version = format!("{GROUP}/v1");
    let object = json!({ "apiVersion": api_version, "kind": kind(plural), "metadata": { "name": name } });
    group(namespace, &api_version, plural, object)
}

/// An aggregated API of group `name` whose service does not exist: the server answers 503 for it.
#[must_use]
pub fn unavailable_api(name: &str) -> PathAndObject {
    let object = json!({
        "metadata": { "name": format!("v1.{name}") },
        "spec": {
            "group": name,
            "version": "v1",
            "groupPriorityMinimum": 1000,
            "versionPriority": 15,
            "insecureSkipTLSVerify": true,
            "service": { "namespace": "default", "name": "nowhere" },
        },
    });
    ("/apis/apiregistration.k8s.io/v1/apiservices".to_owned(), object)
}

/// An admission policy that forbids deletes of `resource` (of the core group) in one namespace, with its binding.
#[must_use]
pub fn undeletable(name: &str, namespace: &str, resource: &str) -> [PathAndObject; 2] {
    let policy = json!({
        "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [
                { "apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": [resource] },
            ] },
            "validations": [{ "expression": "false", "message": format!("{resource} stay") }],
        },
    });
    let selector = json!({ "matchLabels": { "kubernetes.io/metadata.name": namespace } });
    let binding = json!({
        "metadata": { "name": name },
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": selector },
        },
    });
    let root = "/apis/admissionregistration.k8s.io/v1";
    [
        (format!("{root}/validatingadmissionpolicies"), policy),
        (format!("{root}/validatingadmissionpolicybindings"), binding),
    ]
}

fn one(namespace: &str, kind: usize, name: &str) -> PathAndObject {
    let named = json!({ "name": name });
    let bare = json!({ "metadata": named });
    let spec = |spec: Value| json!({ "metadata": named, "spec": spec });
    let job = json!({ "template": { "spec": { "restartPolicy": "Never", "containers": [container()] } } });
    match kind {
        0 => config_map(namespace, name),
        1 => secret(namespace, name),
        2 => service(namespace, name),
        3 => core(namespace, "serviceaccounts", bare),
        // No claims, because the controller that removes their protection finalizer does not run here.
        4 => {
            let mut set = workload(name);
            set["serviceName"] = json!(name);
            group(namespace, "apps/v1", "statefulsets", spec(set))
        }
        5 => deployment(namespace, name),
        6 => group(namespace, "apps/v1", "replicasets", spec(workload(name))),
        // Without a propagation policy the server would add the orphan finalizer.
        7 => {
            let template = workload(name)["template"].take();
            core(namespace, "replicationcontrollers", spec(json!({ "replicas": 0, "template": template })))
        }
        8 => group(namespace, "batch/v1", "jobs", spec(job)),
        9 => {
            let schedule = json!({ "schedule": "0 0 1 1 *", "jobTemplate": { "spec": job } });
            group(namespace, "batch/v1", "cronjobs", spec(schedule))
        }
        10 => {
            let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
            let role = json!({ "metadata": named, "rules": rules });
            group(namespace, "rbac.authorization.k8s.io/v1", "roles", role)
        }
        _ => group(namespace, "policy/v1", "poddisruptionbudgets", spec(json!({ "selector": {}, "minAvailable": 1 }))),
    }
}

fn workload(name: &str) -> Value {
    let labels = json!({ "app": name });
    json!({
        "replicas": 0,
        "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": [container()] } },
    })
}

fn container() -> Value {
    json!({ "name": "main", "image": "example.com/main:1" })
}

fn kind(plural: &str) -> String {
    let singular = plural.trim_end_matches('s');
    let mut letters = singular.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn core(namespace: &str, plural: &str, object: Value) -> PathAndObject {
    (format!("/api/v1/namespaces/{namespace}/{plural}"), object)
}

fn group(namespace: &str, api_version: &str, plural: &str, object: Value) -> PathAndObject {
    (format!("/apis/{api_version}/namespaces/{namespace}/{plural}"), object)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn dozen_has_twelve_kinds() {
        let kinds: BTreeSet<String> = dozen("a", 24).into_iter().map(|(path, _)| path).collect();
        assert_eq!(kinds.len(), 12);
        assert_eq!(custom("a", "widgets", "w").1["kind"], "Widget");
    }
}
