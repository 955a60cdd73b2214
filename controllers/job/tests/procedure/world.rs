//! Jobs in the shared test world.

use std::{ops::Deref, time::Duration};

use client::Limits;
use harness::{Manager, NAMESPACE, merge, pass};
use job_controller::Options;
use serde_json::{Value, json};

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// The finalizer of a pod until it is counted.
pub(crate) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(crate) struct World(harness::World);

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.0
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let world = harness::World::new(job_controller::NAME);
        world.create_namespace(NAMESPACE);
        Self(world)
    }

    /// Starts a manager and waits until its caches have synced.
    pub(crate) async fn start(&self) -> Manager {
        self.start_with(Options::default()).await
    }

    pub(crate) async fn start_with(&self, options: Options) -> Manager {
        self.start_limited(options, Limits { qps: 10_000.0, burst: 10_000 }).await
    }

    pub(crate) async fn start_limited(&self, options: Options, limits: Limits) -> Manager {
        let process = self.process(limits, Duration::ZERO, |builder| job_controller::start(builder, options));
        let manager = process.lead();
        pass(100 * MS).await;
        manager
    }

    /// Creates a Job with one pod, with these changes of its spec.
    pub(crate) fn job(&self, name: &str, spec: Value) -> Value {
        self.job_of(&json!({ "name": name, "namespace": NAMESPACE }), spec)
    }

    pub(crate) fn job_of(&self, metadata: &Value, changes: Value) -> Value {
        let mut spec = json!({
            "parallelism": 1, "completions": 1,
            "template": { "metadata": { "labels": { "app": "x" } }, "spec": { "restartPolicy": "Never",
                "containers": [{ "name": "main", "image": "i" }] } },
        });
        merge(&mut spec, changes);
        self.cluster.create(json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec }))
    }

    pub(crate) fn edit(&self, job: &str, change: impl FnOnce(&mut Value)) {
        self.cluster.update("jobs.batch", NAMESPACE, job, |it| change(&mut it["spec"]));
    }

    pub(crate) fn status(&self, job: &str) -> Value {
        self.cluster.get("jobs.batch", NAMESPACE, job).unwrap()["status"].clone()
    }

    /// A counter of the status; zero if it is not set.
    pub(crate) fn count(&self, job: &str, field: &str) -> i64 {
        self.status(job)[field].as_i64().unwrap_or_default()
    }

    /// `Type=Status Reason` of each condition, in order.
    pub(crate) fn conditions(&self, job: &str) -> Vec<String> {
        let status = self.status(job);
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let text = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
        conditions
            .iter()
            .map(|it| format!("{}={} {}", text(it, "type"), text(it, "status"), text(it, "reason")))
            .collect()
    }

    pub(crate) fn pod(&self, name: &str) -> Value {
        self.cluster.get("pods", NAMESPACE, name).unwrap()
    }

    pub(crate) fn has_finalizer(&self, pod: &str) -> bool {
        let finalizers = &self.pod(pod)["metadata"]["finalizers"];
        finalizers.as_array().is_some_and(|it| it.contains(&json!(FINALIZER)))
    }

    /// The number of pods with our finalizer.
    pub(crate) fn with_finalizer(&self) -> usize {
        self.pods().iter().filter(|it| self.has_finalizer(it)).count()
    }

    pub(crate) fn succeed(&self, pod: &str) {
        self.end_pod(pod, "Succeeded", 0);
    }

    pub(crate) fn fail(&self, pod: &str) {
        self.end_pod(pod, "Failed", 1);
    }
}
