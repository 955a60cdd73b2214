use std::time::Duration;

use clock::{Clock, Timestamp};
use fake_nodes::{Environment, Fleet, Options, PREFIX, in_memory};
use serde_json::{Value, json};
use tasks::Scope;
use test_cluster::TestCluster;

/// A cluster with a registered fleet. Dropping it ends both.
pub(crate) struct World {
    pub(crate) cluster: TestCluster,
    pub(crate) fleet: Fleet,
    pub(crate) clock: Clock,
    _scope: Scope,
}

impl World {
    pub(crate) async fn new(options: Options) -> Self {
        let clock = Clock::virtual_from(Timestamp::from_second(1_800_000_000).unwrap());
        let (cluster, scope) = (TestCluster::with_seed(clock.clone(), options.seed), Scope::new());
        let client = in_memory(cluster.service());
        let environment = Environment { client, clock: clock.clone(), spawner: scope.spawner() };
        let fleet = Fleet::start(options, environment);
        fleet.registered().await;
        Self { cluster, fleet, clock, _scope: scope }
    }

    /// Stores a pod as the API server would store it.
    pub(crate) fn create(&self, name: &str, spec: Value, lines: &[(&str, &str)]) {
        let annotations: serde_json::Map<String, Value> =
            lines.iter().map(|(key, value)| (format!("{PREFIX}{key}"), json!(value))).collect();
        let mut spec = spec;
        if spec["containers"].is_null() {
            spec["containers"] = json!([{ "name": "main", "image": "main:1" }]);
        }
        self.cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": { "name": name, "namespace": "default", "annotations": annotations },
        }));
    }

    pub(crate) fn pod(&self, name: &str) -> Option<Value> {
        self.cluster.get("pods", "default", name)
    }

    /// The phase, or `gone`.
    pub(crate) fn phase(&self, name: &str) -> String {
        self.pod(name).map_or("gone".to_owned(), |it| it["status"]["phase"].as_str().unwrap().to_owned())
    }

    /// Marks a pod as deleted with grace, like a DELETE of a pod with a node.
    pub(crate) fn mark_deleted(&self, name: &str, grace: u32) {
        let now = self.clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        self.cluster.update("pods", "default", name, |pod| {
            pod["metadata"]["deletionTimestamp"] = json!(now);
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        });
    }
}

/// Advances virtual time, and half a step more, so that everything that is due at the end is done.
pub(crate) async fn advance(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds) + Duration::from_millis(20)).await;
}

pub(crate) fn condition(object: &Value, name: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|it| it["type"] == name).unwrap_or_default()
}
