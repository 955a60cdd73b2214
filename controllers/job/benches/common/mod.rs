//! What both benches do.

use api::{Job, Typed};
use client::{Clients, Limits};
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "default";

/// Creates a Job the way a user does, so that the API server sets the defaults.
pub(crate) async fn create_job(clients: &Clients, name: &str, mut spec: Value) -> Result<(), client::ApiError> {
    let containers = json!([{ "name": "main", "image": "example.com/main:1" }]);
    spec["template"] = json!({ "spec": { "restartPolicy": "Never", "containers": containers } });
    let metadata = json!({ "name": name, "namespace": NAMESPACE });
    let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec });
    clients.controller("user", Limits::NONE).create(&Job::resource(), NAMESPACE, &job).await.map(drop)
}
