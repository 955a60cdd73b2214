use std::time::Duration;

use client::Limits;
use clock::{Clock, Instant, Timestamp};
use controller::Builder;
use serde_json::{Map, Value, json};
use test_cluster::{Call, Interception, TestCluster};

use crate::{Log, Rig, Standby, listen};

/// The time at which a test starts, in seconds since the epoch.
pub const START: i64 = 1_800_000_000;

/// The namespace of the objects of most tests.
pub const NAMESPACE: &str = "n";

/// A cluster, and managers that run one controller against it. Call [`pass`] to let virtual time pass.
pub struct World {
    /// The clock of the cluster and of all managers.
    pub clock: Clock,
    /// The API server.
    pub cluster: TestCluster,
    /// The name of the controller, which is in the user agent of its requests.
    controller: &'static str,
    start: Instant,
    log: Log,
}

impl World {
    /// An empty cluster for a controller of this name.
    #[must_use]
    pub fn new(controller: &'static str) -> Self {
        Self::at(controller, Timestamp::from_second(START).unwrap())
    }

    /// The same at this time.
    #[must_use]
    pub fn at(controller: &'static str, time: Timestamp) -> Self {
        let clock = Clock::virtual_from(time);
        Self { cluster: TestCluster::new(clock.clone()), start: clock.now(), clock, controller, log: listen() }
    }

    /// Creates a namespace.
    pub fn create_namespace(&self, name: &str) {
        self.cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }));
    }

    /// A new process, with these client limits and this resync period, in which `start` adds the controller.
    pub fn process(&self, limits: Limits, resync: Duration, start: impl FnOnce(&mut Builder)) -> Standby {
        let Rig { mut deps, scope, stop } = Rig::new(self.cluster.service(), self.clock.clone(), limits);
        deps.resync = resync;
        let metrics = deps.metrics.clone();
        let mut builder = Builder::new(self.controller, deps);
        start(&mut builder);
        Standby::new(builder.build(), scope, stop, metrics)
    }

    /// Sleeps until this time after the start of the test.
    pub async fn sleep_until(&self, time: Duration) {
        tokio::time::sleep_until(self.start + time).await;
    }

    /// The time in whole seconds, as in the API.
    #[must_use]
    pub fn second(&self) -> String {
        Timestamp::from_second(self.clock.wall().as_second()).unwrap().to_string()
    }

    /// The controller's calls so far, without lists, watches and events.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.cluster.requests().into_iter().filter(|it| is_of(self.controller, it)).collect()
    }

    /// The same calls as [`line()`]s.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.calls().iter().map(line).collect()
    }

    /// How many calls begin with these words.
    #[must_use]
    pub fn call_count(&self, words: &str) -> usize {
        self.lines().iter().filter(|it| it.starts_with(words)).count()
    }

    /// When the calls that begin with these words were sent, after the start of the test.
    #[must_use]
    pub fn call_times(&self, words: &str) -> Vec<Duration> {
        let calls = self.calls();
        let wanted = calls.iter().filter(|it| line(it).starts_with(words));
        wanted.map(|it| it.at.saturating_duration_since(self.start)).collect()
    }

    /// Makes the API server respond to some calls of the controller with what `respond` returns for their [`line()`].
    pub fn fail_requests(&self, mut respond: impl FnMut(&str, &Call) -> Option<Interception> + Send + 'static) {
        let controller = self.controller;
        self.cluster.intercept(move |call| {
            let interception = if is_of(controller, call) { respond(&line(call), call) } else { None };
            interception.unwrap_or(Interception::Pass)
        });
    }

    /// `Type Reason: message` of the events of [`NAMESPACE`], sorted. A repeated event is listed once.
    pub async fn events(&self) -> Vec<String> {
        pass(Duration::from_secs(2)).await;
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let line = |it: &Value| format!("{} {}: {}", text(&it["type"]), text(&it["reason"]), text(&it["message"]));
        let mut lines: Vec<String> = self.cluster.list("events", NAMESPACE).iter().map(line).collect();
        lines.sort();
        lines
    }

    /// The log lines with these words since the start of the test.
    #[must_use]
    pub fn logged(&self, words: &str) -> Vec<String> {
        self.log.lines().into_iter().filter(|it| it.contains(words)).collect()
    }
}

fn is_of(controller: &str, call: &Call) -> bool {
    let acts = matches!(call.verb, "get" | "create" | "update" | "patch" | "delete" | "deletecollection");
    call.user_agent.contains(controller) && acts && call.resource != "events"
}

/// A call as `create pods`, `patch pods a`, `update jobs/status j`.
#[must_use]
pub fn line(call: &Call) -> String {
    let Call { verb, resource, subresource, name, .. } = call;
    let subresource = if subresource.is_empty() { String::new() } else { format!("/{subresource}") };
    format!("{verb} {resource}{subresource} {name}").trim_end().to_owned()
}

/// The name of an object.
#[must_use]
pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// Merges the members of `changes` into `object`; null removes a member.
pub fn merge(object: &mut Value, changes: Value) {
    let changes: Map<String, Value> = serde_json::from_value(changes).unwrap();
    for (key, value) in changes {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(&key);
        } else {
            object[key] = value;
        }
    }
}

/// A response with this code and reason.
#[must_use]
pub fn failure(code: u16, reason: &str) -> Option<Interception> {
    Some(Interception::status(code, reason, "not now"))
}

/// Lets virtual time pass.
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
