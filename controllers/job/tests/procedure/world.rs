//! A cluster with one namespace, and managers that run the controller against it.

use std::time::Duration;

use client::Limits;
use clock::{Clock, Timestamp};
use controller::Builder;
use job_controller::Options;
use metrics::Metrics;
use serde_json::{Map, Value, json};
use tasks::Scope;
use test_cluster::{Call, Interception, TestCluster};
use testing::Rig;
use tokio_util::sync::CancellationToken;

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

/// The finalizer of a pod until it is counted.
pub(crate) const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub(crate) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) cluster: TestCluster,
    _log: testing::Log,
}

/// One process. Dropping it simulates a crash.
pub(crate) struct Manager {
    _scope: Scope,
    stop: CancellationToken,
    metrics: Metrics,
}

impl Manager {
    /// Like SIGTERM: no further key is processed, and running calls are completed.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// The value of one series, such as `job_controller_job_syncs_total{...}`; 0 if it does not exist.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let text = self.metrics.encode();
        let line = text.lines().find_map(|it| it.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0, |it| it.parse().unwrap())
    }

    pub(crate) fn page(&self) -> String {
        self.metrics.encode()
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Clock::virtual_from(Timestamp::from_second(1_800_000_000).unwrap());
        let cluster = TestCluster::new(clock.clone());
        cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" } }));
        Self { cluster, clock, _log: testing::listen() }
    }

    /// Starts a manager and waits until its caches have synced.
    pub(crate) async fn start(&self) -> Manager {
        self.start_with(Options::default()).await
    }

    pub(crate) async fn start_with(&self, options: Options) -> Manager {
        self.start_limited(options, Limits { qps: 10_000.0, burst: 10_000 }).await
    }

    pub(crate) async fn start_limited(&self, options: Options, limits: Limits) -> Manager {
        let Rig { deps, scope, stop } = Rig::new(self.cluster.service(), self.clock.clone(), limits);
        let metrics = deps.metrics.clone();
        let mut builder = Builder::new(job_controller::NAME, deps);
        job_controller::start(&mut builder, options);
        let controller = builder.build();
        let run = stop.clone();
        scope.spawner().spawn("controller", async move { controller.run(run, std::future::ready(())).await });
        pass(100 * MS).await;
        Manager { _scope: scope, stop, metrics }
    }

    /// Creates a Job with one pod, with these changes of its spec.
    pub(crate) fn job(&self, name: &str, spec: Value) -> Value {
        self.job_of(&json!({ "name": name, "namespace": "n" }), spec)
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
        self.cluster.update("jobs.batch", "n", job, |it| change(&mut it["spec"]));
    }

    pub(crate) fn status(&self, job: &str) -> Value {
        self.cluster.get("jobs.batch", "n", job).unwrap()["status"].clone()
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

    /// The names of all pods, in the order of lists.
    pub(crate) fn pods(&self) -> Vec<String> {
        self.cluster.list("pods", "n").iter().map(name).collect()
    }

    /// The names of pods that have neither ended nor are being deleted.
    pub(crate) fn active(&self) -> Vec<String> {
        let active = |it: &&Value| {
            let phase = it["status"]["phase"].as_str().unwrap_or_default();
            it["metadata"]["deletionTimestamp"].is_null() && phase != "Succeeded" && phase != "Failed"
        };
        self.cluster.list("pods", "n").iter().filter(active).map(name).collect()
    }

    pub(crate) fn pod(&self, name: &str) -> Value {
        self.cluster.get("pods", "n", name).unwrap()
    }

    pub(crate) fn has_finalizer(&self, pod: &str) -> bool {
        let finalizers = &self.pod(pod)["metadata"]["finalizers"];
        finalizers.as_array().is_some_and(|it| it.contains(&json!(FINALIZER)))
    }

    /// The number of pods with our finalizer.
    pub(crate) fn with_finalizer(&self) -> usize {
        self.pods().iter().filter(|it| self.has_finalizer(it)).count()
    }

    /// Gives the pod a node and makes it running and ready.
    pub(crate) fn run(&self, pod: &str) {
        let now = self.second();
        self.cluster.update("pods", "n", pod, |it| {
            it["spec"]["nodeName"] = json!("node");
            it["status"]["phase"] = json!("Running");
            it["status"]["conditions"] = json!([{ "type": "Ready", "status": "True", "lastTransitionTime": now }]);
        });
    }

    /// The time in whole seconds, as in the API.
    pub(crate) fn second(&self) -> String {
        Timestamp::from_second(self.clock.wall().as_second()).unwrap().to_string()
    }

    pub(crate) fn succeed(&self, pod: &str) {
        self.end(pod, "Succeeded", 0);
    }

    pub(crate) fn fail(&self, pod: &str) {
        self.end(pod, "Failed", 1);
    }

    pub(crate) fn end(&self, pod: &str, phase: &str, code: i32) {
        let now = self.second();
        self.cluster.update("pods", "n", pod, |it| {
            it["spec"]["nodeName"] = json!("node");
            it["status"]["phase"] = json!(phase);
            it["status"]["conditions"] = json!([]);
            it["status"]["containerStatuses"] = json!([{ "name": "main", "restartCount": 0, "image": "i", "imageID": "",
                "ready": false, "state": { "terminated": { "exitCode": code, "finishedAt": now } } }]);
        });
    }

    /// A user deletes a pod, which gets a grace period if it runs.
    pub(crate) fn delete_gracefully(&self, pod: &str) {
        let now = self.second();
        self.cluster.update("pods", "n", pod, |it| {
            it["metadata"]["deletionTimestamp"] = json!(now);
            it["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        });
    }

    /// Deletes every terminating pod, as the kubelet does after the grace period.
    pub(crate) fn kill_terminating(&self) {
        for pod in self.cluster.list("pods", "n") {
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                self.cluster.delete("pods", "n", &name(&pod));
            }
        }
    }

    /// The controller's calls so far as `verb resource name`, without events.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.calls().iter().map(line).collect()
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.cluster.requests().into_iter().filter(is_ours).collect()
    }

    /// How many calls began with these words.
    pub(crate) fn call_count(&self, words: &str) -> usize {
        self.lines().iter().filter(|it| it.starts_with(words)).count()
    }

    /// `Type Reason: message`, sorted. A repeated event is listed once, with its count.
    pub(crate) async fn events(&self) -> Vec<String> {
        pass(2 * SEC).await;
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let events = self.cluster.list("events", "n");
        let line = |it: &Value| format!("{} {}: {}", text(&it["type"]), text(&it["reason"]), text(&it["message"]));
        let mut lines: Vec<String> = events.iter().map(line).collect();
        lines.sort();
        lines
    }

    /// Makes the interceptor answer some calls of the controller.
    pub(crate) fn intercept(&self, mut respond: impl FnMut(&str, &Call) -> Option<Interception> + Send + 'static) {
        self.cluster.intercept(move |call| {
            let interception = if is_ours(call) { respond(&line(call), call) } else { None };
            interception.unwrap_or(Interception::Pass)
        });
    }
}

fn is_ours(call: &Call) -> bool {
    let acts = matches!(call.verb, "get" | "create" | "update" | "patch" | "delete");
    call.user_agent.contains(job_controller::NAME) && acts && call.resource != "events"
}

/// `create pods`, `patch pods a`, `update jobs/status j`.
fn line(call: &Call) -> String {
    let sub = if call.subresource.is_empty() { String::new() } else { format!("/{}", call.subresource) };
    format!("{} {}{sub} {}", call.verb, call.resource, call.name).trim_end().to_owned()
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Merges the members of `changes` into `object`; null removes a member.
fn merge(object: &mut Value, changes: Value) {
    let changes: Map<String, Value> = serde_json::from_value(changes).unwrap();
    for (key, value) in changes {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(&key);
        } else {
            object[key] = value;
        }
    }
}

pub(crate) fn failure(code: u16, reason: &str) -> Option<Interception> {
    Some(Interception::status(code, reason, "not now"))
}

pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
