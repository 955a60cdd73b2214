//! An in-memory cluster and the whole controller: informers, handlers, work queue, workers and client.

use std::{future::ready, sync::Arc};

use api::{Job, Typed};
use client::{Limits, Transport};
use clock::Clock;
use controller::Builder;
use harness::Rig;
use job_controller::{NAME, Options};
use metrics::Metrics;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tasks::Scope;
use test_cluster::{Change, TestCluster};
use tokio_util::sync::CancellationToken;

pub(crate) const NAMESPACE: &str = "default";

/// A manager that runs only the Job controller, and a client of a user.
pub(crate) struct Manager {
    user: client::Api,
    _scope: Scope,
    _stop: CancellationToken,
}

impl Manager {
    /// Sends requests through `server` without a rate limit. Returns the metrics of the manager too.
    pub(crate) fn start(server: Transport, clock: Clock) -> (Self, Metrics) {
        let Rig { deps, scope, stop } = Rig::new(server, clock, Limits::NONE);
        let (metrics, user) = (deps.metrics.clone(), deps.clients.controller("user", Limits::NONE));
        let mut builder = Builder::new(NAME, deps);
        job_controller::start(&mut builder, Options::default());
        let controller = builder.build();
        let run = stop.clone();
        scope.spawner().spawn("controller", async move { controller.run(run, ready(())).await });
        (Self { user, _scope: scope, _stop: stop }, metrics)
    }

    /// Creates a Job the way a user does, so that the API server sets the defaults.
    pub(crate) async fn create(&self, name: &str, mut spec: Value) -> Result<(), client::ApiError> {
        let containers = json!([{ "name": "main", "image": "example.com/main:1" }]);
        spec["template"] = json!({ "spec": { "restartPolicy": "Never", "containers": containers } });
        let metadata = json!({ "name": name, "namespace": NAMESPACE });
        let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec });
        self.user.create(&Job::resource(), NAMESPACE, &job).await.map(drop)
    }
}

/// The names of pods that were created since the list was last taken.
pub(crate) fn created_pods(cluster: &TestCluster) -> Arc<Mutex<Vec<String>>> {
    let created: Arc<Mutex<Vec<String>>> = Arc::default();
    let names = created.clone();
    cluster.observe(move |write| {
        if write.change() == Change::Added && write.kind() == "Pod" {
            names.lock().push(write.name().to_owned());
        }
    });
    created
}
