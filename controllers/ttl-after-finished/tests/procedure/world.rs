//! A cluster, and managers that run the controller against it.

use std::time::Duration;

use client::Limits;
use clock::{Clock, Instant, Timestamp};
use controller::Builder;
use metrics::Metrics;
use serde_json::{Value, json};
use tasks::Scope;
use test_cluster::{Call, Interception, TestCluster};
use testing::Rig;
use tokio_util::sync::CancellationToken;
use ttl_after_finished_controller::{NAME, Options};

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);
/// The time at which each test starts, in seconds since the epoch.
pub(crate) const START: i64 = 1_800_000_000;

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) cluster: TestCluster,
    began: Instant,
    log: testing::Log,
}

/// One process. Dropping it simulates a crash.
pub(crate) struct Manager {
    _scope: Scope,
    _stop: CancellationToken,
    metrics: Metrics,
}

impl Manager {
    /// The value of a series; 0 if it does not exist.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let text = self.metrics.encode();
        let value = text.lines().find_map(|it| it.strip_prefix(series)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0.0)
    }

    /// How many keys have been added to the work queue, including timers.
    pub(crate) fn queued(&self) -> f64 {
        self.metric("workqueue_adds_total{name=\"ttl_jobs_to_delete\"}")
    }

    /// The count and the sum of the observed deletions.
    pub(crate) fn observed(&self) -> (f64, f64) {
        let name = "ttl_after_finished_controller_job_deletion_duration_seconds";
        (self.metric(&format!("{name}_count")), self.metric(&format!("{name}_sum")))
    }
}

/// A Job in namespace `default`, as another client created it.
pub(crate) fn job(name: &str, ttl: Option<i32>, conditions: &[Value]) -> Value {
    let containers = json!([{ "name": "main", "image": "example.com/main:1" }]);
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "ttlSecondsAfterFinished": ttl, "parallelism": 1, "completions": 1, "backoffLimit": 6,
            "selector": { "matchLabels": { "job": name } },
            "template": {
                "metadata": { "labels": { "job": name } },
                "spec": { "restartPolicy": "Never", "containers": containers },
            },
        },
        "status": { "conditions": conditions },
    })
}

/// A condition with this status since this second of the test.
pub(crate) fn condition(kind: &str, status: &str, second: i64) -> Value {
    let time = Timestamp::from_second(START + second).unwrap().to_string();
    json!({ "type": kind, "status": status, "lastProbeTime": time, "lastTransitionTime": time })
}

/// `Complete` since this second of the test.
pub(crate) fn complete(second: i64) -> Value {
    condition("Complete", "True", second)
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Clock::virtual_from(Timestamp::from_second(START).unwrap());
        Self { cluster: TestCluster::new(clock.clone()), began: clock.now(), clock, log: testing::listen() }
    }

    /// Starts a manager and waits until its workers run.
    pub(crate) async fn start(&self) -> Manager {
        self.start_with(Duration::ZERO).await
    }

    /// The same with this resync period.
    pub(crate) async fn start_with(&self, resync: Duration) -> Manager {
        let limits = Limits { qps: 20.0, burst: 30 };
        let Rig { mut deps, scope, stop } = Rig::new(self.cluster.service(), self.clock.clone(), limits);
        deps.resync = resync;
        let metrics = deps.metrics.clone();
        let mut builder = Builder::new(NAME, deps);
        ttl_after_finished_controller::start(&mut builder, Options::default());
        let controller = builder.build();
        let run = stop.clone();
        scope.spawner().spawn("controller", async move { controller.run(run, std::future::ready(())).await });
        pass(100 * MS).await;
        Manager { _scope: scope, _stop: stop, metrics }
    }

    /// Sleeps until this time after the start of the test.
    pub(crate) async fn until(&self, time: Duration) {
        tokio::time::sleep_until(self.began + time).await;
    }

    /// The seconds since the start of the test, rounded down.
    pub(crate) fn second(&self) -> i64 {
        self.clock.wall().as_second() - START
    }

    /// Finishes the Job now.
    pub(crate) fn finish(&self, name: &str, kind: &str) {
        let now = condition(kind, "True", self.second());
        self.cluster.update("jobs", "default", name, |it| it["status"]["conditions"] = json!([now]));
    }

    pub(crate) fn set_ttl(&self, name: &str, ttl: Option<i32>) {
        self.cluster.update("jobs", "default", name, |it| it["spec"]["ttlSecondsAfterFinished"] = json!(ttl));
    }

    pub(crate) fn get(&self, name: &str) -> Option<Value> {
        self.cluster.get("jobs", "default", name)
    }

    /// True for a Job that is gone or is being deleted.
    pub(crate) fn is_deleted(&self, name: &str) -> bool {
        self.get(name).is_none_or(|it| it["metadata"]["deletionTimestamp"].is_string())
    }

    /// The controller's calls about Jobs so far, without informers.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let ours = |it: &Call| it.user_agent.contains(NAME) && it.resource == "jobs";
        self.cluster.requests().into_iter().filter(ours).collect()
    }

    /// The same calls as lines such as `get a`.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.calls().iter().map(line).collect()
    }

    /// When these calls were sent, after the start of the test.
    pub(crate) fn times(&self, wanted: &str) -> Vec<Duration> {
        let calls = self.calls();
        calls.iter().filter(|it| line(it) == wanted).map(|it| it.at.saturating_duration_since(self.began)).collect()
    }

    /// The log lines with these words since the start of the test.
    pub(crate) fn logged(&self, words: &str) -> Vec<String> {
        self.log.lines().into_iter().filter(|it| it.contains(words)).collect()
    }

    /// Makes the interceptor answer some calls of the controller.
    pub(crate) fn intercept(
        &self,
        mut respond: impl FnMut(&str, &TestCluster) -> Option<Interception> + Send + 'static,
    ) {
        let cluster = self.cluster.clone();
        self.cluster.intercept(move |call| {
            let ours = call.user_agent.contains(NAME) && call.resource == "jobs";
            let interception = if ours { respond(&line(call), &cluster) } else { None };
            interception.unwrap_or(Interception::Pass)
        });
    }
}

fn line(call: &Call) -> String {
    format!("{} {}", call.verb, call.name)
}

pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
