//! The body of a new ReplicaSet, and the patch of one that exists.

use api::{Deployment, ReplicaSet, Selector};
use serde_json::{Map, Value, json};

use crate::rules::{
    annotations::{self, Annotations, DESIRED_REPLICAS, MAX_REPLICAS, REVISION},
    limits::Limits,
    plan::{Creation, SetChange},
    template::HASH_LABEL,
};

/// The longest name of an object.
const MAX_NAME: usize = 253;

/// `<deployment>-<hash>`. The name of the Deployment is cut so that the hash is complete (`generateReplicaSetName`).
pub(crate) fn name(deployment: &str, hash: &str) -> String {
    let most = MAX_NAME.saturating_sub(hash.len() + 1);
    // Object names are ASCII, so any cut is at a character boundary.
    format!("{}-{hash}", deployment.get(..most).unwrap_or(deployment))
}

/// The body of the creation (`getNewReplicaSet`). `owner` is the reference that makes the Deployment its controller.
pub(crate) fn body(
    deployment: &Deployment,
    deployment_annotations: &Annotations,
    owner: &Value,
    hash: &str,
    creation: Creation,
) -> Result<Value, serde_json::Error> {
    let (spec, limits) = (&deployment.spec, Limits::of(&deployment.spec));
    let mut template: Value = serde_json::from_str(&spec.template)?;
    let labels = with_hash(template.pointer("/metadata/labels"), hash);
    template["metadata"]["labels"] = labels.clone();
    let copied = deployment_annotations.iter().filter(|(key, _)| annotations::is_copied(key));
    let mut annotations: Map<String, Value> = copied.map(|(key, value)| (key.clone(), value.as_str().into())).collect();
    annotations.insert(REVISION.to_owned(), creation.revision.to_string().into());
    annotations.insert(DESIRED_REPLICAS.to_owned(), limits.replicas.to_string().into());
    annotations.insert(MAX_REPLICAS.to_owned(), limits.max_total().to_string().into());
    Ok(json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name(&deployment.meta.name, hash),
            "namespace": &*deployment.meta.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": {
            "replicas": creation.replicas,
            "minReadySeconds": spec.min_ready_seconds,
            "selector": selector(spec.selector.as_ref(), hash),
            "template": template,
        },
    }))
}

/// The merge patch for a change. Upstream sends the whole object; the resourceVersion makes both exact.
pub(crate) fn patch(set: &ReplicaSet, change: &SetChange) -> Value {
    let SetChange { at: _, replicas, min_ready_seconds, annotations } = change;
    let mut metadata = json!({ "uid": set.meta.uid, "resourceVersion": set.meta.version });
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    let mut patch = json!({ "metadata": metadata });
    for (field, value) in [("replicas", replicas), ("minReadySeconds", min_ready_seconds)] {
        if let Some(value) = value {
            patch["spec"][field] = json!(value);
        }
    }
    patch
}

fn with_hash(labels: Option<&Value>, hash: &str) -> Value {
    let mut labels = labels.and_then(Value::as_object).cloned().unwrap_or_default();
    labels.insert(HASH_LABEL.to_owned(), hash.into());
    labels.into()
}

fn selector(selector: Option<&Selector>, hash: &str) -> Value {
    let mut labels = Map::new();
    let mut requirements = Vec::new();
    if let Some(selector) = selector {
        labels.extend(selector.labels.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))));
        requirements.extend(selector.requirements.iter().map(|it| {
            let values: Vec<&str> = it.values.iter().map(|it| &**it).collect();
            json!({ "key": &*it.key, "operator": it.operator, "values": values })
        }));
    }
    labels.insert(HASH_LABEL.to_owned(), hash.into());
    let mut selector = json!({ "matchLabels": labels });
    if !requirements.is_empty() {
        selector["matchExpressions"] = requirements.into();
    }
    selector
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{World, deployment, deployment_with};

    #[test]
    fn acceptance_deploy_011_the_name_of_a_set_keeps_the_hash() {
        let long = name(&"a".repeat(253), "5c7586484");
        assert_eq!(long.len(), 253);
        assert!(long.ends_with("a-5c7586484"));
        assert_eq!(name("web", "5c7586484"), "web-5c7586484");
    }

    #[test]
    fn acceptance_deploy_001_002_a_new_set_has_the_template_the_hash_and_the_annotations() {
        let expression = json!({ "key": "tier", "operator": "Exists" });
        let deployment = deployment_with(
            json!({ "replicas": 3, "minReadySeconds": 5,
                "selector": { "matchLabels": { "app": "d" }, "matchExpressions": [expression] },
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
                "template": { "metadata": { "labels": { "app": "d", "tier": "x" } }, "spec": { "new": [1] } } }),
            json!({}),
            json!({}),
        );
        let annotations = [("a", "1"), ("kubectl.kubernetes.io/last-applied-configuration", "{}"), (REVISION, "7")];
        let annotations = annotations.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let owner = json!({ "uid": "o" });
        let body = body(&deployment, &annotations, &owner, "h", Creation { replicas: 2, revision: 4 }).unwrap();
        let labels = json!({ "app": "d", "tier": "x", "pod-template-hash": "h" });
        let want = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet",
            "metadata": { "name": "d-h", "namespace": "n", "labels": labels, "ownerReferences": [owner],
                "annotations": { "a": "1", REVISION: "4", DESIRED_REPLICAS: "3", MAX_REPLICAS: "4" } },
            "spec": { "replicas": 2, "minReadySeconds": 5,
                "selector": { "matchLabels": { "app": "d", "pod-template-hash": "h" },
                    "matchExpressions": [{ "key": "tier", "operator": "Exists", "values": [] }] },
                "template": { "metadata": { "labels": labels }, "spec": { "new": [1] } } },
        });
        assert_eq!(body, want);
    }

    #[test]
    fn a_patch_has_only_what_changes_and_the_version() {
        let world = World::new(deployment(json!({})), &["a new 3"]);
        let snapshot = world.snapshot();
        let mut change = SetChange { replicas: Some(0), ..SetChange::default() };
        let patched = |change: &SetChange| patch(&snapshot.sets[0], change);
        let metadata = json!({ "uid": "uid-a", "resourceVersion": "1" });
        assert_eq!(patched(&change), json!({ "metadata": metadata, "spec": { "replicas": 0 } }));
        change = SetChange { min_ready_seconds: Some(5), ..SetChange::default() };
        change.annotations.insert("k".to_owned(), "v".to_owned());
        let mut metadata = metadata;
        metadata["annotations"] = json!({ "k": "v" });
        assert_eq!(patched(&change), json!({ "metadata": metadata, "spec": { "minReadySeconds": 5 } }));
    }
}
