//! Finished Jobs in the shared test world.

use std::{ops::Deref, time::Duration};

use client::Limits;
use clock::Timestamp;
use harness::{Manager, START, pass};
use serde_json::{Value, json};
use ttl_after_finished_controller::{NAME, Options};

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) struct World(harness::World);

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.0
    }
}

/// How many keys have been added to the work queue of the manager, including timers.
pub(crate) fn queued(manager: &Manager) -> u64 {
    manager.metric("workqueue_adds_total{name=\"ttl_jobs_to_delete\"}")
}

/// The count and the sum of the observed deletions.
pub(crate) fn observed(manager: &Manager) -> (u64, f64) {
    let name = "ttl_after_finished_controller_job_deletion_duration_seconds";
    (manager.metric(&format!("{name}_count")), manager.fraction(&format!("{name}_sum")))
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
        Self(harness::World::new(NAME))
    }

    /// Starts a manager and waits until its workers run.
    pub(crate) async fn start(&self) -> Manager {
        self.start_with(Duration::ZERO).await
    }

    /// The same with this resync period.
    pub(crate) async fn start_with(&self, resync: Duration) -> Manager {
        let limits = Limits { qps: 20.0, burst: 30 };
        let start =
            |builder: &mut controller::Builder| ttl_after_finished_controller::start(builder, Options::default());
        let manager = self.process(limits, resync, start).lead();
        pass(100 * MS).await;
        manager
    }

    /// The seconds since the start of the test, rounded down.
    pub(crate) fn seconds(&self) -> i64 {
        self.clock.wall().as_second() - START
    }

    /// Finishes the Job now.
    pub(crate) fn finish(&self, name: &str, kind: &str) {
        let now = condition(kind, "True", self.seconds());
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
}
