//! The sets that both managers run, and what users do to them.

use fake_nodes::PREFIX;
use serde_json::{Value, json};

/// What a user does. The last field is the number of pods with the present template that there must be then.
#[derive(Clone)]
pub(crate) enum Step {
    /// Changes the spec.
    Edit(Value, i64),
    /// Changes the spec, and once more when the first pod was replaced.
    EditMeanwhile(Value, Value, i64),
    /// Deletes a pod.
    DeletePod(&'static str, i64),
}

/// A set.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Changes of the usual spec.
    pub(crate) spec: Value,
    /// Pods that exist before the set and have no controller.
    pub(crate) orphans: Vec<&'static str>,
    /// The number of pods with the present template before the first step.
    pub(crate) updated: i64,
    pub(crate) steps: Vec<Step>,
}

impl Case {
    pub(crate) fn new(name: &'static str, mut spec: Value) -> Self {
        if spec["template"].is_null() {
            spec["template"] = template(name, "1");
        }
        let updated = spec["replicas"].as_i64().unwrap_or(3);
        Self { name, spec, orphans: Vec::new(), updated, steps: Vec::new() }
    }

    fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    fn edit(self, spec: Value, updated: i64) -> Self {
        self.then(Step::Edit(spec, updated))
    }

    fn image(self, tag: &str, updated: i64) -> Self {
        let spec = json!({ "template": template(self.name, tag) });
        self.edit(spec, updated)
    }

    /// Whether its result depends on the time of an edit.
    pub(crate) fn is_timed(&self) -> bool {
        self.steps.iter().any(|it| matches!(it, Step::EditMeanwhile(..)))
    }
}

/// The template of a set, with pods that start and stop soon.
fn template(name: &str, tag: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": name },
            "annotations": { format!("{PREFIX}start-after"): "400ms", format!("{PREFIX}stop-after"): "100ms" } },
        "spec": { "containers": [{ "name": "main", "image": format!("example.com/main:{tag}"), "args": ["<a>&b"] }] },
    })
}

/// The same, with more fields in the spec of the pod.
fn template_with(name: &str, fields: Value) -> Value {
    let mut template = template(name, "1");
    for (key, value) in fields.as_object().into_iter().flatten() {
        template["spec"][key] = value.clone();
    }
    template
}

fn claims() -> Value {
    json!([{ "metadata": { "name": "data" }, "spec": { "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": "1Gi" } } } }])
}

fn two_claims() -> Value {
    json!([
        { "metadata": { "name": "data", "labels": { "app": "mine", "x": "y" }, "annotations": { "a": "b" } },
          "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } },
        { "metadata": { "name": "log" },
          "spec": { "accessModes": ["ReadWriteMany"], "resources": { "requests": { "storage": "1024Mi" } } } },
    ])
}

fn retention(deleted: &str, scaled: &str) -> Value {
    json!({ "whenDeleted": deleted, "whenScaled": scaled })
}

fn owned(replicas: i64, deleted: &str, scaled: &str) -> Value {
    json!({ "replicas": replicas, "volumeClaimTemplates": claims(),
        "persistentVolumeClaimRetentionPolicy": retention(deleted, scaled) })
}

fn rolling(partition: i64) -> Value {
    json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": partition } })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = shapes();
    all.extend(claim_policies());
    all.extend(rollouts());
    all.extend(edits_in_rollouts());
    all
}

/// Sets that are only created and scaled.
fn shapes() -> Vec<Case> {
    let env = json!({ "containers": [{ "name": "main", "image": "example.com/main:1", "env": [
        { "name": "INDEX", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['apps.kubernetes.io/pod-index']" } } },
        { "name": "PLAIN", "value": "1" } ] }] });
    let volumes = json!({ "volumes": [{ "name": "data", "emptyDir": {} }, { "name": "other", "emptyDir": {} }],
        "containers": [{ "name": "main", "image": "example.com/main:1",
            "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }] });
    let sidecar = json!({ "initContainers": [{ "name": "first", "image": "example.com/first:1" },
        { "name": "side", "image": "example.com/side:1", "restartPolicy": "Always" }] });
    let placement = json!({ "tolerations": [{ "key": "a", "operator": "Exists", "effect": "NoSchedule" }],
        "affinity": { "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1,
            "podAffinityTerm": { "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "x" } } } }] } },
        "terminationGracePeriodSeconds": 0, "priority": 0, "dnsPolicy": "Default" });
    let mut labels = template("labels", "1");
    labels["metadata"]["labels"]["extra"] = json!("a");
    labels["metadata"]["annotations"]["note"] = json!("b");
    labels["metadata"]["finalizers"] = json!([]);
    let named = |name: &'static str, fields: Value| {
        Case::new(name, json!({ "replicas": 1, "template": template_with(name, fields) }))
    };
    let mut with_volumes = named("volumes", volumes);
    with_volumes.spec["volumeClaimTemplates"] = claims();
    vec![
        Case::new("plain", json!({})),
        Case::new("parallel", json!({ "podManagementPolicy": "Parallel", "replicas": 2 })),
        Case::new("start", json!({ "ordinals": { "start": 5 }, "replicas": 2 })),
        Case::new(
            "parallel-start",
            json!({ "podManagementPolicy": "Parallel", "ordinals": { "start": 3 }, "replicas": 2 }),
        ),
        Case::new("none", json!({ "replicas": 0 })),
        Case::new("ready", json!({ "replicas": 2, "minReadySeconds": 1 })),
        Case::new("no-service", json!({ "replicas": 1, "serviceName": "" })),
        Case::new("labels", json!({ "replicas": 1, "template": labels })),
        named("hostname", json!({ "hostname": "mine", "subdomain": "theirs" })),
        named("env", env),
        named("sidecar", sidecar),
        named("placement", placement),
        with_volumes,
        Case::new("scaled-up", json!({ "replicas": 1 })).edit(json!({ "replicas": 3 }), 3),
        Case::new("scaled-down", json!({})).edit(json!({ "replicas": 1 }), 1),
        Case::new("scaled-to-none", json!({ "replicas": 2, "podManagementPolicy": "Parallel" }))
            .edit(json!({ "replicas": 0 }), 0),
        Case::new("start-moved", json!({ "replicas": 2 })).edit(json!({ "ordinals": { "start": 1 } }), 2),
        Case::new("replaced", json!({ "replicas": 2 })).then(Step::DeletePod("replaced-0", 2)),
        Case { orphans: vec!["adopted-0", "adopted-x"], ..Case::new("adopted", json!({ "replicas": 2 })) },
    ]
}

/// Claims and their owners.
fn claim_policies() -> Vec<Case> {
    let policy =
        |deleted: &str, scaled: &str| json!({ "persistentVolumeClaimRetentionPolicy": retention(deleted, scaled) });
    vec![
        Case::new("claims", json!({ "replicas": 2, "volumeClaimTemplates": two_claims() })),
        Case::new("kept", owned(1, "Retain", "Delete")),
        Case::new("owned", owned(1, "Delete", "Delete")),
        Case::new("scaled-kept", owned(2, "Retain", "Retain")).edit(json!({ "replicas": 1 }), 1),
        Case::new("scaled-owned", owned(2, "Retain", "Delete")).edit(json!({ "replicas": 1 }), 1),
        Case::new("scaled-both", owned(3, "Delete", "Delete")).edit(json!({ "replicas": 1 }), 1),
        Case::new("scaled-set", owned(2, "Delete", "Retain")).edit(json!({ "replicas": 1 }), 1),
        Case::new("policy-on", owned(2, "Retain", "Retain")).edit(policy("Delete", "Retain"), 2),
        Case::new("policy-off", owned(2, "Delete", "Delete")).edit(policy("Retain", "Retain"), 2),
        Case::new("reused", owned(2, "Retain", "Retain"))
            .edit(json!({ "replicas": 1 }), 1)
            .edit(json!({ "replicas": 2 }), 2),
    ]
}

/// Updates that are not disturbed.
fn rollouts() -> Vec<Case> {
    let on_delete = json!({ "replicas": 2, "updateStrategy": { "type": "OnDelete" } });
    let with_claims = json!({ "replicas": 2, "volumeClaimTemplates": claims() });
    let mut relabelled = template("relabelled", "1");
    relabelled["metadata"]["labels"]["version"] = json!("2");
    let history = |name: &'static str, limit: i64| {
        let spec = json!({ "replicas": 1, "revisionHistoryLimit": limit });
        ["2", "3", "4"].into_iter().fold(Case::new(name, spec), |case, tag| case.image(tag, 1))
    };
    vec![
        Case::new("rolled", json!({})).image("2", 3),
        Case::new("rolled-parallel", json!({ "podManagementPolicy": "Parallel" })).image("2", 3),
        Case::new("rolled-claims", with_claims).image("2", 2),
        Case::new("rolled-ready", json!({ "replicas": 2, "minReadySeconds": 1 })).image("2", 2),
        Case::new("reverted", json!({ "replicas": 2 })).image("2", 2).image("1", 2),
        Case::new("relabelled", json!({ "replicas": 2 })).edit(json!({ "template": relabelled }), 2),
        Case::new("canary", json!({ "updateStrategy": rolling(2) })).image("2", 1),
        Case::new("canary-lost", json!({ "updateStrategy": rolling(2) }))
            .image("2", 1)
            .then(Step::DeletePod("canary-lost-0", 1)),
        Case::new("canary-ended", json!({ "updateStrategy": rolling(1) }))
            .image("2", 2)
            .edit(json!({ "updateStrategy": rolling(0) }), 3),
        Case::new("canary-scaled", json!({ "replicas": 2, "updateStrategy": rolling(1) }))
            .image("2", 1)
            .edit(json!({ "replicas": 3 }), 2),
        Case::new("partition-above", json!({ "replicas": 2, "updateStrategy": rolling(5) })).image("2", 0),
        Case::new("on-delete", on_delete.clone()).image("2", 0),
        Case::new("on-delete-lost", on_delete).image("2", 0).then(Step::DeletePod("on-delete-lost-1", 1)),
        history("history-none", 0),
        history("history-one", 1),
    ]
}

/// Edits in the middle of a rollout.
fn edits_in_rollouts() -> Vec<Case> {
    let image = |name: &str, tag: &str| json!({ "template": template(name, tag) });
    let meanwhile = |name: &'static str, spec: Value, edit: Value, updated: i64| {
        Case::new(name, spec).then(Step::EditMeanwhile(image(name, "2"), edit, updated))
    };
    vec![
        meanwhile("mid-scaled-up", json!({}), json!({ "replicas": 4 }), 4),
        meanwhile("mid-scaled-down", json!({}), json!({ "replicas": 2 }), 2),
        meanwhile("mid-scaled-parallel", json!({ "podManagementPolicy": "Parallel" }), json!({ "replicas": 4 }), 4),
        meanwhile("mid-edited", json!({}), image("mid-edited", "3"), 3),
        meanwhile("mid-reverted", json!({}), image("mid-reverted", "1"), 3),
    ]
}
