//! Owners and dependents in the shared test world, and a user.

use std::{ops::Deref, time::Duration};

use api::Resource;
use client::{Api, DeleteOptions, Limits, Propagation};
use controller::Query;
use garbage_collector_controller::{NAME, Options};
use harness::{Manager, NAMESPACE, Rig, Standby, line, pass};
use serde_json::{Value, json};
use test_cluster::{Interception, TestCluster};

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) struct World {
    world: harness::World,
    user: Api,
    _user: Rig,
}

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.world
    }
}

/// Begins the term of a process.
pub(crate) async fn lead(standby: Standby) -> Manager {
    let manager = standby.lead();
    tokio::task::yield_now().await;
    manager
}

/// The debug page that explains why an object still exists.
pub(crate) fn why(manager: &Manager, object: &Value) -> String {
    let uid = object["metadata"]["uid"].as_str().or_else(|| object["uid"].as_str()).unwrap();
    page(manager, "why", &Query::new([("uid".to_owned(), uid.to_owned())]))
}

/// The debug page with the graph.
pub(crate) fn graph(manager: &Manager) -> String {
    page(manager, "graph", &Query::new([]))
}

fn page(manager: &Manager, name: &str, query: &Query) -> String {
    manager.pages().iter().find(|it| it.name() == name).unwrap().render(query).unwrap().text
}

/// The value of a series of one of our own families, with or without labels.
pub(crate) fn own_metric(manager: &Manager, series: &str) -> u64 {
    manager.metric(&format!("mini_kcm_garbage_collector_{series}"))
}

/// The `apiVersion`, the resource, and whether it is namespaced, by kind.
fn served(kind: &str) -> (&'static str, Resource) {
    match kind {
        "ConfigMap" => ("v1", Resource::namespaced("", "v1", "configmaps", "ConfigMap")),
        "Secret" => ("v1", Resource::namespaced("", "v1", "secrets", "Secret")),
        "Pod" => ("v1", Resource::namespaced("", "v1", "pods", "Pod")),
        "ReplicationController" => {
            ("v1", Resource::namespaced("", "v1", "replicationcontrollers", "ReplicationController"))
        }
        "ReplicaSet" => ("apps/v1", Resource::namespaced("apps", "v1", "replicasets", "ReplicaSet")),
        "Deployment" => ("apps/v1", Resource::namespaced("apps", "v1", "deployments", "Deployment")),
        "CronJob" => ("batch/v1", Resource::namespaced("batch", "v1", "cronjobs", "CronJob")),
        "Job" => ("batch/v1", Resource::namespaced("batch", "v1", "jobs", "Job")),
        "ClusterRole" => (
            "rbac.authorization.k8s.io/v1",
            Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole"),
        ),
        "Widget" => ("example.com/v1", Resource::namespaced("example.com", "v1", "widgets", "Widget")),
        other => panic!("unknown kind {other}"),
    }
}

/// A reference to an object as it was created.
pub(crate) fn owner(object: &Value) -> Value {
    json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "name": object["metadata"]["name"], "uid": object["metadata"]["uid"],
    })
}

/// The same with blockOwnerDeletion: the owner's foreground deletion waits for the dependent.
pub(crate) fn blocking(object: &Value) -> Value {
    let mut reference = owner(object);
    reference["blockOwnerDeletion"] = json!(true);
    reference
}

/// A reference to an object that does not exist.
pub(crate) fn missing_owner(api_version: &str, kind: &str, name: &str) -> Value {
    json!({ "apiVersion": api_version, "kind": kind, "name": name, "uid": format!("00000000-0000-4000-8000-{:0>12}", name.len()) })
}

impl World {
    pub(crate) fn new() -> Self {
        let world = harness::World::new(NAME);
        for name in [NAMESPACE, "m"] {
            world.create_namespace(name);
        }
        let rig = Rig::new(world.cluster.service(), world.clock.clone(), Limits::NONE);
        let user = rig.deps.clients.controller("user", Limits::NONE);
        Self { world, user, _user: rig }
    }

    /// The same with a custom resource, `widgets.example.com`, in two served versions.
    pub(crate) fn with_widgets() -> Self {
        let world = Self::new();
        world.define_widgets();
        world
    }

    pub(crate) fn define_widgets(&self) {
        let version = |name: &str, storage: bool| {
            json!({ "name": name, "served": true, "storage": storage,
                    "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } } })
        };
        self.cluster.create(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": "widgets.example.com" },
            "spec": { "group": "example.com", "scope": "Namespaced", "names": { "plural": "widgets", "kind": "Widget" },
                      "versions": [version("v1", true), version("v1beta1", false)] },
        }));
    }

    /// Starts a manager and waits until its monitors have synced.
    pub(crate) async fn start(&self) -> Manager {
        self.start_with(Options::default()).await
    }

    pub(crate) async fn start_with(&self, options: Options) -> Manager {
        self.start_limited(options, Limits { qps: 10_000.0, burst: 10_000 }).await
    }

    pub(crate) async fn start_limited(&self, options: Options, limits: Limits) -> Manager {
        let standby = self.begin(options, limits);
        let manager = lead(standby).await;
        pass(2 * SEC).await;
        manager
    }

    /// Starts a process that watches, and leads only when the test begins its term.
    pub(crate) async fn stand_by(&self) -> Standby {
        let standby = self.begin(Options::default(), Limits { qps: 10_000.0, burst: 10_000 });
        pass(2 * SEC).await;
        standby
    }

    fn begin(&self, options: Options, limits: Limits) -> Standby {
        let start = |builder: &mut controller::Builder| garbage_collector_controller::start(builder, options);
        let mut standby = self.process(limits, Duration::ZERO, start);
        standby.begin();
        standby
    }

    /// Creates an object in namespace `n`, or a cluster-scoped one, by its kind.
    pub(crate) fn create(&self, kind: &str, name: &str, owners: &[Value]) -> Value {
        self.create_in("n", kind, name, owners)
    }

    pub(crate) fn create_in(&self, namespace: &str, kind: &str, name: &str, owners: &[Value]) -> Value {
        self.create_with(kind, json!({ "namespace": namespace, "name": name, "ownerReferences": owners }))
    }

    /// The same with a foreign finalizer.
    pub(crate) fn create_held(&self, kind: &str, name: &str, owners: &[Value]) -> Value {
        let held = json!(["example.com/hold"]);
        self.create_with(kind, json!({ "namespace": "n", "name": name, "ownerReferences": owners, "finalizers": held }))
    }

    pub(crate) fn create_with(&self, kind: &str, mut metadata: Value) -> Value {
        let (api_version, resource) = served(kind);
        if !resource.namespaced
            && let Some(metadata) = metadata.as_object_mut()
        {
            metadata.remove("namespace");
        }
        let template = json!({ "metadata": { "labels": { "app": "x" } }, "spec": {
            "restartPolicy": if kind == "Job" || kind == "CronJob" { "Never" } else { "Always" },
            "containers": [{ "name": "main", "image": "i" }] } });
        let selector = json!({ "matchLabels": { "app": "x" } });
        let spec = match kind {
            "Pod" => template["spec"].clone(),
            "ReplicationController" => json!({ "replicas": 0, "selector": { "app": "x" }, "template": template }),
            "ReplicaSet" | "Deployment" => json!({ "replicas": 0, "selector": selector, "template": template }),
            "Job" => json!({ "selector": selector, "template": template }),
            "CronJob" => json!({ "schedule": "0 0 1 1 *", "jobTemplate": { "spec": { "template": template } } }),
            _ => Value::Null,
        };
        let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
        if !spec.is_null() {
            object["spec"] = spec;
        }
        let mut created = self.cluster.create(object);
        created["apiVersion"] = json!(api_version);
        created["kind"] = json!(kind);
        created
    }

    /// Deletes an object of namespace `n` as a user.
    pub(crate) async fn delete(&self, kind: &str, name: &str, policy: Option<Propagation>) {
        let options = DeleteOptions { propagation: policy, ..DeleteOptions::default() };
        self.user.delete(&served(kind).1, "n", name, &options).await.unwrap();
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> Option<Value> {
        self.cluster.get(kind, "n", name)
    }

    /// True while it exists, also while it is being deleted.
    pub(crate) fn has(&self, kind: &str, name: &str) -> bool {
        self.get(kind, name).is_some()
    }

    pub(crate) fn is_deleting(&self, kind: &str, name: &str) -> bool {
        self.get(kind, name).is_some_and(|it| it["metadata"]["deletionTimestamp"].is_string())
    }

    /// The names of its owners.
    pub(crate) fn owners(&self, kind: &str, name: &str) -> Vec<String> {
        let object = self.get(kind, name).unwrap();
        let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn finalizers(&self, kind: &str, name: &str) -> Vec<String> {
        let object = self.get(kind, name).unwrap();
        let finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.iter().map(|it| it.as_str().unwrap().to_owned()).collect()
    }

    /// Removes the foreign finalizer.
    pub(crate) fn release(&self, kind: &str, name: &str) {
        self.cluster.update(kind, "n", name, |it| {
            let metadata = &mut it["metadata"];
            let left = metadata["finalizers"].as_array().cloned().unwrap_or_default();
            metadata["finalizers"] = left.into_iter().filter(|it| it != "example.com/hold").collect();
        });
    }

    pub(crate) fn names(&self, kind: &str) -> Vec<String> {
        let name = |it: &Value| it["metadata"]["name"].as_str().unwrap().to_owned();
        let mut names: Vec<String> = self.cluster.list(kind, "n").iter().map(name).collect();
        // Some API servers create one in each namespace.
        names.retain(|it| it != "kube-root-ca.crt");
        names
    }

    /// The times between the requests that begin with these words.
    pub(crate) fn pauses(&self, words: &str) -> Vec<Duration> {
        let calls = self.calls();
        let times: Vec<_> = calls.iter().filter(|it| line(it).starts_with(words)).map(|it| it.at).collect();
        times.windows(2).map(|it| it[1] - it[0]).collect()
    }

    /// `namespace Type DeleteReason: message` of all events, sorted.
    pub(crate) async fn events(&self) -> Vec<String> {
        pass(2 * SEC).await;
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let line = |it: &Value| {
            let namespace = text(&it["metadata"]["namespace"]);
            format!("{namespace} {} {}: {}", text(&it["type"]), text(&it["reason"]), text(&it["message"]))
        };
        let mut lines: Vec<String> = self.cluster.list("events", "").iter().map(line).collect();
        lines.sort();
        lines
    }

    /// Makes the API server respond to some requests of the collector, as [`harness::World::fail_requests`].
    pub(crate) fn respond(&self, mut respond: impl FnMut(&str, &TestCluster) -> Option<Interception> + Send + 'static) {
        let cluster = self.cluster.clone();
        self.fail_requests(move |line, _| respond(line, &cluster));
    }

    /// Makes lists and watches of this resource fail.
    pub(crate) fn fail_lists(&self, resource: &'static str) {
        self.cluster.intercept(move |call| {
            let spoiled = call.resource == resource && matches!(call.verb, "list" | "watch");
            if spoiled {
                Interception::status(500, "InternalError", "the conversion webhook is down")
            } else {
                Interception::Pass
            }
        });
    }
}

/// A 404 response for the object of this name, of a resource in a group.
pub(crate) fn missing(name: &str, resource: &str, group: &str) -> Interception {
    let details = json!({ "name": name, "kind": resource, "group": group });
    let message = format!("{resource} {name:?} not found");
    let body = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
                       "reason": "NotFound", "message": message, "details": details });
    Interception::Answer { status: 404, headers: Vec::new(), body }
}
