//! The namespace controller: a namespace with many kinds is deleted step by step, and its conditions show what remains.

use serde_json::{Value, json};

use super::{Act, Operation, Progress, Sample, SampleContext, Step, pods, true_condition};
use crate::observed::Observed;

/// How many objects of each plain kind.
const PER_KIND: usize = 4;
const FINALIZER: &str = "playground.mini-kcm.dev/backup";
/// The pod that needs a while to end.
const SLOW: &str = "web-1";
/// The object with the finalizer.
const WITH_FINALIZER: &str = "ledger";

pub(super) const NAMESPACE_DELETION: Sample = Sample {
    name: "ns-deletion",
    shows: "a namespace with a dozen kinds is deleted: pods end first, a finalizer keeps one object, then it is gone",
    needs: &["namespace-controller"],
    objects,
    watched_kinds: &[],
    steps: &[
        Step {
            when: |context, observed| {
                let running = |it: &Value| it["status"]["phase"] == "Running";
                observed.get("Pod", &context.deleted_namespace, SLOW).is_some_and(running)
            },
            command: |context| format!("kubectl delete namespace {}", context.deleted_namespace),
            act: |context| Act {
                api_version: "v1",
                kind: "Namespace",
                namespace: String::new(),
                name: context.deleted_namespace.clone(),
                operation: Operation::Delete,
            },
        },
        Step {
            when: |context, observed| is_only_finalizer_left(namespace(context, observed)),
            command: |context| {
                let patch = r#"{"metadata":{"finalizers":null}}"#;
                format!(
                    "kubectl patch configmap {WITH_FINALIZER} -n {} --type=merge -p '{patch}'",
                    context.deleted_namespace
                )
            },
            act: |context| Act {
                api_version: "v1",
                kind: "ConfigMap",
                namespace: context.deleted_namespace.clone(),
                name: WITH_FINALIZER.to_owned(),
                operation: Operation::Merge(json!({ "metadata": { "finalizers": null } })),
            },
        },
    ],
    progress: |context, observed| {
        if observed.is_gone("Namespace", "", &context.deleted_namespace) {
            return Progress::done("gone, with all that was in it");
        }
        let Some(namespace) = namespace(context, observed) else { return Progress::going("created") };
        if namespace["metadata"]["deletionTimestamp"].is_null() {
            return Progress::going("filled with a dozen kinds");
        }
        let told = ["NamespaceDeletionContentFailure", "NamespaceContentRemaining", "NamespaceFinalizersRemaining"];
        let messages = told.iter().filter_map(|it| true_condition(namespace, it)?["message"].as_str());
        let text: Vec<&str> = messages.collect();
        Progress::going(if text.is_empty() {
            "Terminating".to_owned()
        } else {
            format!("Terminating: {}", text.join("; "))
        })
    },
};

fn namespace<'a>(context: &SampleContext, observed: &'a Observed) -> Option<&'a Value> {
    observed.get("Namespace", "", &context.deleted_namespace)
}

/// Only the object with the finalizer remains.
fn is_only_finalizer_left(namespace: Option<&Value>) -> bool {
    let Some(namespace) = namespace else { return false };
    let message = |name: &str| true_condition(namespace, name).and_then(|it| it["message"].as_str());
    let held = message("NamespaceFinalizersRemaining").is_some_and(|it| it.contains(FINALIZER));
    held && message("NamespaceContentRemaining")
        .is_some_and(|it| it == "Some resources are remaining: configmaps. has 1 resource instances")
}

fn objects(context: &SampleContext) -> Vec<Value> {
    let mut objects = vec![json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": context.deleted_namespace },
    })];
    for number in 1..=PER_KIND {
        objects.extend(plain(number));
    }
    objects.push(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": WITH_FINALIZER, "finalizers": [FINALIZER] }, "data": { "balance": "1" },
    }));
    let inside = SampleContext { home: context.deleted_namespace.clone(), ..context.clone() };
    objects.push(pods::pod(&inside, SLOW, "Always", &[("stop-after", "2s")]));
    objects.push(pods::pod(&inside, "web-2", "Always", &[]));
    for object in &mut objects[1..] {
        object["metadata"]["namespace"] = json!(context.deleted_namespace);
    }
    objects
}

/// One object of each kind. None needs a controller for its deletion, and none creates other objects.
fn plain(number: usize) -> Vec<Value> {
    let of = |api_version: &str, kind: &str, rest: Value| {
        let mut object = rest;
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"]["name"] = json!(format!("it-{number}"));
        object
    };
    let labels = json!({ "app": format!("it-{number}") });
    let containers = json!([{ "name": "main", "image": "example.com/main:1" }]);
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": containers } });
    let once = json!({ "spec": { "restartPolicy": "Never", "containers": containers } });
    let selector = json!({ "matchLabels": labels });
    let workload = json!({ "replicas": 0, "selector": selector, "template": template });
    let mut stateful = workload.clone();
    stateful["serviceName"] = json!("it");
    let job = json!({ "suspend": true, "template": once });
    let cron = json!({ "suspend": true, "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": once } } });
    let rules = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
    vec![
        of("v1", "ConfigMap", json!({ "data": { "key": "value" } })),
        of("v1", "Secret", json!({ "data": { "key": "dmFsdWU=" } })),
        of("v1", "ServiceAccount", json!({})),
        of("v1", "Service", json!({ "spec": { "clusterIP": "None", "selector": labels, "ports": [{ "port": 80 }] } })),
        of("apps/v1", "Deployment", json!({ "spec": workload })),
        of("apps/v1", "StatefulSet", json!({ "spec": stateful })),
        of("batch/v1", "Job", json!({ "spec": job })),
        of("batch/v1", "CronJob", json!({ "spec": cron })),
        of("policy/v1", "PodDisruptionBudget", json!({ "spec": { "minAvailable": 1, "selector": selector } })),
        of("rbac.authorization.k8s.io/v1", "Role", json!({ "rules": rules })),
        of("coordination.k8s.io/v1", "Lease", json!({ "spec": { "holderIdentity": "none" } })),
    ]
}
