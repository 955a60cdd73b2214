//! Namespaces and their content in the shared test world.

use std::{ops::Deref, time::Duration};

use client::Limits;
use harness::{Manager, pass};
use informer::Informers;
use namespace_controller::Options;
use serde_json::{Value, json};
use test_cluster::{Call, Interception};

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) struct World(harness::World);

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.0
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self(harness::World::new(namespace_controller::NAME))
    }

    /// Starts a manager and waits until it works.
    pub(crate) async fn start(&self) -> Manager {
        self.start_with(|_| {}).await
    }

    /// The same. Calls `first` before the controller is registered.
    pub(crate) async fn start_with(&self, first: impl FnOnce(&Informers)) -> Manager {
        let start = |builder: &mut controller::Builder| {
            first(&builder.deps().informers);
            namespace_controller::start(builder, Options::default());
        };
        let manager = self.process(Limits { qps: 20.0, burst: 30 }, Duration::ZERO, start).lead();
        pass(100 * MS).await;
        manager
    }

    pub(crate) fn delete_namespace(&self, name: &str) {
        self.cluster.delete("namespaces", "", name);
    }

    pub(crate) fn object(&self, api_version: &str, kind: &str, namespace: &str, name: &str, finalizers: &[&str]) {
        let metadata = json!({ "name": name, "namespace": namespace, "finalizers": finalizers });
        self.cluster.create(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {} }));
    }

    pub(crate) fn config_map(&self, namespace: &str, name: &str) {
        self.object("v1", "ConfigMap", namespace, name, &[]);
    }

    /// A running pod that uses its grace period.
    pub(crate) fn pod(&self, namespace: &str, name: &str, grace: u32, finalizers: &[&str]) {
        self.cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": namespace, "finalizers": finalizers },
            "spec": { "nodeName": "node", "terminationGracePeriodSeconds": grace, "containers": [] },
            "status": { "phase": "Running" },
        }));
    }

    pub(crate) fn custom_kind(&self, plural: &str, kind: &str) {
        let schema = json!({ "openAPIV3Schema": { "type": "object" } });
        self.cluster.create(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.example.com") },
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": { "plural": plural, "kind": kind },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
            },
        }));
    }

    pub(crate) fn release(&self, resource: &str, namespace: &str, name: &str) {
        self.cluster.update(resource, namespace, name, |it| it["metadata"]["finalizers"] = json!([]));
    }

    pub(crate) fn exists(&self, namespace: &str) -> bool {
        self.cluster.get("namespaces", "", namespace).is_some()
    }

    pub(crate) fn spec_finalizers(&self, namespace: &str) -> Vec<String> {
        let namespace = self.cluster.get("namespaces", "", namespace).unwrap();
        let finalizers = namespace["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.iter().map(|it| it.as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn count(&self, resource: &str, namespace: &str) -> usize {
        self.cluster.list(resource, namespace).len()
    }

    /// `True SomeResourcesRemain: pods. has ...`; empty if there is no such condition.
    pub(crate) fn condition(&self, namespace: &str, kind: &str) -> String {
        let conditions = self.conditions(namespace);
        let found = conditions.iter().find(|it| it["type"] == kind);
        found.map_or(String::new(), |it| {
            let [status, reason, message] = ["status", "reason", "message"].map(|it_is| it[it_is].as_str().unwrap());
            format!("{status} {reason}: {message}")
        })
    }

    pub(crate) fn conditions(&self, namespace: &str) -> Vec<Value> {
        let namespace = self.cluster.get("namespaces", "", namespace).unwrap();
        namespace["status"]["conditions"].as_array().cloned().unwrap_or_default()
    }

    /// The names of those of the five conditions that are true.
    pub(crate) fn true_conditions(&self, namespace: &str) -> Vec<String> {
        let conditions = self.conditions(namespace);
        assert_eq!(conditions.len(), 5, "{conditions:?}");
        let is_true = conditions.iter().filter(|it| it["status"] == "True");
        is_true.map(|it| it["type"].as_str().unwrap().to_owned()).collect()
    }

    /// The requests of the controller so far, without those of informers.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let ours = |it: &Call| it.user_agent.contains(namespace_controller::NAME);
        self.cluster.requests().into_iter().filter(ours).collect()
    }

    /// The same as lines such as `deletecollection secrets a`, only for requests about this namespace alone.
    pub(crate) fn lines(&self, namespace: &str) -> Vec<String> {
        let calls = self.calls();
        let about = |it: &&Call| it.namespace == namespace || (it.resource == "namespaces" && it.name == namespace);
        calls.iter().filter(about).map(line).collect()
    }

    /// When those requests arrived, as time since `since`.
    pub(crate) fn times(&self, wanted: &str, since: clock::Instant) -> Vec<Duration> {
        let calls = self.calls();
        calls.iter().filter(|it| line(it) == wanted).map(|it| it.at.saturating_duration_since(since)).collect()
    }

    /// Lets the interceptor answer some requests of the controller.
    pub(crate) fn fail_requests(&self, mut respond: impl FnMut(&str, &Call) -> Option<Interception> + Send + 'static) {
        self.cluster.intercept(move |call| {
            let ours = call.user_agent.contains(namespace_controller::NAME);
            let interception = if ours { respond(&line(call), call) } else { None };
            interception.unwrap_or(Interception::Pass)
        });
    }
}

/// The request as `deletecollection deployments.apps a`, `update namespaces/status a`, `GET /apis`.
pub(crate) fn line(call: &Call) -> String {
    if call.verb.is_empty() {
        return format!("{} {}", call.method, call.path);
    }
    let mut resource = call.resource.clone();
    if !call.group.is_empty() {
        resource = format!("{resource}.{}", call.group);
    }
    if !call.subresource.is_empty() {
        resource = format!("{resource}/{}", call.subresource);
    }
    let place = match (call.namespace.as_str(), call.name.as_str()) {
        ("", "") => "*".to_owned(),
        (namespace, "") => namespace.to_owned(),
        ("", name) => name.to_owned(),
        (namespace, name) if namespace == name && call.resource == "namespaces" => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    format!("{} {resource} {place}", call.verb)
}

pub(crate) fn forbidden() -> Option<Interception> {
    Some(Interception::status(403, "Forbidden", "not you"))
}

pub(crate) fn not_found() -> Option<Interception> {
    Some(Interception::status(404, "NotFound", "the server could not find the requested resource"))
}

pub(crate) fn not_allowed() -> Option<Interception> {
    Some(Interception::status(405, "MethodNotAllowed", "the server does not allow this method"))
}

pub(crate) fn conflict() -> Option<Interception> {
    Some(Interception::status(409, "Conflict", "the object has been modified"))
}
