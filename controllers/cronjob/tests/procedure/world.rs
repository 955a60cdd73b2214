//! A cluster, and managers that run the controller against it.

use std::time::Duration;

use client::Limits;
use clock::{Clock, Timestamp};
use controller::{Builder, Controller};
use cronjob_controller::{Options, ProcessZone};
use metrics::Metrics;
use serde_json::{Value, json};
use tasks::{Scope, Task};
use test_cluster::{Call, Interception, TestCluster};
use testing::Rig;
use tokio_util::sync::CancellationToken;

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
/// Longer than the padding of a sync plus the time for its effects.
pub(crate) const SOON: Duration = Duration::from_millis(500);

/// The namespace of all objects.
const NS: &str = "ns";
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) cluster: TestCluster,
}

/// One process. Dropping it simulates a crash.
pub(crate) struct Manager {
    _scope: Scope,
    metrics: Metrics,
    stop: CancellationToken,
    controller: Task,
}

/// One process that is not the leader yet.
pub(crate) struct Standby {
    scope: Scope,
    metrics: Metrics,
    stop: CancellationToken,
    controller: Controller,
}

impl Standby {
    /// Begins the term, and waits until the workers run.
    pub(crate) async fn lead(self) -> Manager {
        let Self { scope, metrics, stop, controller } = self;
        let stopped = stop.clone();
        let run = async move { controller.run(stopped, std::future::ready(())).await };
        let controller = scope.spawner().spawn("controller", run);
        pass(SOON).await;
        Manager { _scope: scope, metrics, stop, controller }
    }
}

impl Manager {
    /// Stops like before the release of the Lease.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.controller.ended().await;
    }

    /// How many keys have been added to its work queue.
    pub(crate) fn woken(&self) -> u64 {
        let lines = self.metrics("workqueue_adds_total{name=\"cronjob\"");
        lines[0].rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// The lines of `/metrics` that begin with this prefix.
    pub(crate) fn metrics(&self, prefix: &str) -> Vec<String> {
        let text = self.metrics.encode();
        text.lines().filter(|it| it.starts_with(prefix)).map(str::to_owned).collect()
    }
}

impl World {
    /// A new cluster at this time.
    pub(crate) fn at(time: &str) -> Self {
        testing::listen();
        let clock = Clock::virtual_from(time.parse().unwrap());
        let cluster = TestCluster::new(clock.clone());
        cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NS } }));
        Self { cluster, clock }
    }

    /// Starts a manager in UTC and waits until its workers run.
    pub(crate) async fn start(&self) -> Manager {
        self.start_in("UTC").await
    }

    /// The same in another time zone.
    pub(crate) async fn start_in(&self, zone: &'static str) -> Manager {
        self.start_with(zone, Duration::ZERO).await
    }

    /// The same with this resync period.
    pub(crate) async fn start_with(&self, zone: &'static str, resync: Duration) -> Manager {
        self.declare(zone, resync).lead().await
    }

    /// A standby in UTC, while another manager leads.
    pub(crate) fn stand_by(&self) -> Standby {
        let mut standby = self.declare("UTC", Duration::ZERO);
        standby.controller.begin();
        standby
    }

    fn declare(&self, zone: &'static str, resync: Duration) -> Standby {
        let limits = Limits { qps: 20.0, burst: 30 };
        let Rig { mut deps, scope, stop } = Rig::new(self.cluster.service(), self.clock.clone(), limits);
        deps.resync = resync;
        let metrics = deps.metrics.clone();
        let mut builder = Builder::new(cronjob_controller::NAME, deps);
        cronjob_controller::start(&mut builder, Options { zone: ProcessZone::Named(zone), ..Options::default() });
        Standby { scope, metrics, stop, controller: builder.build() }
    }

    /// Creates a CronJob with these fields of its spec.
    pub(crate) fn cron_job(&self, name: &str, fields: Value) {
        let mut spec = json!({ "schedule": "* * * * *", "jobTemplate": template() });
        for (key, value) in fields.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let metadata = json!({ "name": name, "namespace": NS });
        self.cluster.create(json!({ "apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec }));
    }

    /// Creates a Job of another client; `owner` is the CronJob that controls it.
    pub(crate) fn job(&self, name: &str, owner: Option<&str>) {
        let mut metadata = json!({ "name": name, "namespace": NS });
        if let Some(owner) = owner {
            let uid = &self.get("cronjobs", owner)["metadata"]["uid"];
            metadata["ownerReferences"] =
                json!([{ "apiVersion": "batch/v1", "kind": "CronJob", "name": owner, "uid": uid, "controller": true }]);
        }
        let spec = template()["spec"].clone();
        self.cluster.create(json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec }));
    }

    pub(crate) fn edit(&self, name: &str, field: &str, value: Value) {
        self.cluster.update("cronjobs", NS, name, |it| it["spec"][field] = value);
    }

    /// Finishes the Job with the condition `Complete` or `Failed`.
    pub(crate) fn end(&self, job: &str, condition: &str) {
        let now = self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        self.cluster.update("jobs", NS, job, |it| {
            it["status"]["conditions"] = json!([{ "type": condition, "status": "True" }]);
            if condition == "Complete" {
                it["status"]["completionTime"] = now.into();
            }
        });
    }

    /// Like a DELETE request: an object with finalizers stays.
    pub(crate) fn delete(&self, resource: &str, name: &str) {
        self.cluster.delete(resource, NS, name);
    }

    /// Removes a Job, because no garbage collector runs in these tests.
    pub(crate) fn remove_job(&self, name: &str) {
        self.cluster.remove("jobs", NS, name);
    }

    pub(crate) fn get(&self, resource: &str, name: &str) -> Value {
        self.cluster.get(resource, NS, name).unwrap()
    }

    /// The names of all Jobs.
    pub(crate) fn jobs(&self) -> Vec<String> {
        self.cluster.list("jobs", NS).iter().map(|it| text(&it["metadata"]["name"])).collect()
    }

    /// The scheduled times of all Jobs, from their annotations.
    pub(crate) fn times(&self) -> Vec<String> {
        let time = |it: &Value| text(&it["metadata"]["annotations"][SCHEDULED]);
        self.cluster.list("jobs", NS).iter().map(time).collect()
    }

    /// The names of the active Jobs.
    pub(crate) fn active(&self, name: &str) -> Vec<String> {
        let active = self.get("cronjobs", name)["status"]["active"].as_array().cloned().unwrap_or_default();
        active.iter().map(|it| text(&it["name"])).collect()
    }

    /// A time of the status; empty if it is not set.
    pub(crate) fn status(&self, name: &str, field: &str) -> String {
        text(&self.get("cronjobs", name)["status"][field])
    }

    pub(crate) fn set_status(&self, name: &str, field: &str, value: Value) {
        self.cluster.update("cronjobs", NS, name, |it| it["status"][field] = value);
    }

    /// `2 Normal SuccessfulCreate Created job c-1`, beginning with the count.
    pub(crate) fn events(&self) -> Vec<String> {
        let event = |it: &Value| {
            let count = it["count"].as_i64().unwrap_or(1);
            format!("{count} {} {} {}", text(&it["type"]), text(&it["reason"]), text(&it["message"]))
        };
        let mut events = self.cluster.list("events", NS);
        events.sort_by_key(|it| it["metadata"]["resourceVersion"].as_str().and_then(|it| it.parse::<u64>().ok()));
        events.iter().map(event).collect()
    }

    /// How many events had this reason.
    pub(crate) fn event_count(&self, reason: &str) -> i64 {
        let events = self.cluster.list("events", NS);
        let of = events.iter().filter(|it| it["reason"] == reason);
        of.map(|it| it["count"].as_i64().unwrap_or(1)).sum()
    }

    /// The controller's calls since the last use of this function, without informers and events.
    pub(crate) fn calls(&self) -> Vec<String> {
        let ours = |it: &&Call| it.user_agent.contains(cronjob_controller::NAME) && it.resource != "events";
        let calls = self.cluster.requests().iter().filter(ours).map(line).collect();
        self.cluster.clear_requests();
        calls
    }

    /// The CronJobs that have a Job and no `lastScheduleTime`.
    pub(crate) fn unrecorded(&self) -> Vec<String> {
        let owner = |it: &Value| text(&it["metadata"]["ownerReferences"][0]["name"]);
        let owners = self.cluster.list("jobs", NS).iter().map(owner).collect::<Vec<_>>();
        owners.into_iter().filter(|it| self.status(it, "lastScheduleTime").is_empty()).collect()
    }

    /// Makes the interceptor answer some calls of the controller, selected by their line.
    pub(crate) fn fail_requests(&self, mut respond: impl FnMut(&str) -> Option<Interception> + Send + 'static) {
        self.cluster.intercept(move |call| {
            let ours = call.user_agent.contains(cronjob_controller::NAME);
            let interception = if ours { respond(&line(call)) } else { None };
            interception.unwrap_or(Interception::Pass)
        });
    }

    /// Advances to this time and [`SOON`] beyond it, so that the effects of that time have happened.
    pub(crate) async fn until(&self, time: &str) {
        let time: Timestamp = time.parse().unwrap();
        let left = Duration::try_from(time.duration_since(self.clock.wall())).unwrap();
        pass(left + SOON).await;
    }
}

/// A template of Jobs that do not finish by themselves.
fn template() -> Value {
    let container = json!({ "name": "a", "image": "i" });
    json!({ "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [container] } } } })
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// `create jobs`, `update cronjobs/status c`.
fn line(call: &Call) -> String {
    let Call { verb, resource, subresource, name, .. } = call;
    let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    format!("{verb} {resource}{subresource} {name}").trim_end().to_owned()
}

pub(crate) fn broken() -> Option<Interception> {
    Some(Interception::status(500, "InternalError", "internal error"))
}

pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
