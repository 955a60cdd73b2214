//! CronJobs in the shared test world.

use std::{ops::Deref, time::Duration};

use client::Limits;
use clock::Timestamp;
use cronjob_controller::{Options, ProcessZone};
use harness::{Manager, Standby, pass};
use serde_json::{Value, json};
use test_cluster::Interception;

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
/// Longer than the padding of a sync plus the time for its effects.
pub(crate) const SOON: Duration = Duration::from_millis(500);

/// The namespace of all objects.
const NS: &str = "ns";
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

pub(crate) struct World(harness::World);

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.0
    }
}

/// How many keys have been added to the work queue of the manager.
pub(crate) fn queued(manager: &Manager) -> u64 {
    manager.metric("workqueue_adds_total{name=\"cronjob\"}")
}

impl World {
    /// A new cluster at this time.
    pub(crate) fn at(time: &str) -> Self {
        let world = harness::World::at(cronjob_controller::NAME, time.parse().unwrap());
        world.create_namespace(NS);
        Self(world)
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
        lead(self.declare(zone, resync)).await
    }

    /// A standby in UTC, while another manager leads.
    pub(crate) fn stand_by(&self) -> Standby {
        let mut standby = self.declare("UTC", Duration::ZERO);
        standby.begin();
        standby
    }

    fn declare(&self, zone: &'static str, resync: Duration) -> Standby {
        let options = Options { zone: ProcessZone::Named(zone), ..Options::default() };
        let limits = Limits { qps: 20.0, burst: 30 };
        self.process(limits, resync, |builder| cronjob_controller::start(builder, options))
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

    /// The controller's calls since the last use of this function.
    pub(crate) fn new_calls(&self) -> Vec<String> {
        let lines = self.lines();
        self.cluster.clear_requests();
        lines
    }

    /// The CronJobs that have a Job and no `lastScheduleTime`.
    pub(crate) fn unrecorded(&self) -> Vec<String> {
        let owner = |it: &Value| text(&it["metadata"]["ownerReferences"][0]["name"]);
        let owners = self.cluster.list("jobs", NS).iter().map(owner).collect::<Vec<_>>();
        owners.into_iter().filter(|it| self.status(it, "lastScheduleTime").is_empty()).collect()
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

pub(crate) fn broken() -> Option<Interception> {
    Some(Interception::status(500, "InternalError", "internal error"))
}

/// Begins the term, and waits until the workers run.
pub(crate) async fn lead(standby: Standby) -> Manager {
    let manager = standby.lead();
    pass(SOON).await;
    manager
}
