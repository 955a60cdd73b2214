//! Measures a sync that has nothing to do, with 100,000 pods in the cache: `cargo bench -p deployment-controller --bench
//! quiet`.
//! Target: 10 µs for a Deployment with ten old ReplicaSets.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::expect_used, reason = "a bench panics on errors")]

use std::time::Duration;

use deployment_controller::{NAME, Options};
use harness::bench::{BATCHES, MeasuredController, change_label, large_cluster};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const NAMESPACE: &str = "default";
const PODS: usize = 100_000;
const OLD_SETS: usize = 10;
const ROUNDS: u64 = 100;
/// A controller without a sync for this long is idle: before that, no key is queued or delayed for longer.
const REST: Duration = Duration::from_secs(2);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let cluster = large_cluster();
        (0..PODS).for_each(|number| drop(cluster.create(pod(number))));
        let controller = MeasuredController::start(&cluster, NAME, "deployment", |builder| {
            deployment_controller::start(builder, Options::default());
        });
        cluster.create(deployment());
        for round in 0..=OLD_SETS {
            let image = format!("example.com/main:{round}");
            cluster.update("deployments.apps", NAMESPACE, "quiet", |it| {
                it["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            });
            controller.until_idle(REST).await;
        }
        assert_eq!(cluster.list("replicasets.apps", NAMESPACE).len(), OLD_SETS + 1);

        let object = ["deployments.apps", NAMESPACE, "quiet"];
        let (median, worst) = controller.measure_syncs(&cluster, object, ROUNDS, change_label).await;
        println!(
            "a sync that finds nothing to do: {median:.2} µs (median of {BATCHES} x {ROUNDS}; worst batch {worst:.2} µs; \
             {PODS} pods cached, {OLD_SETS} old ReplicaSets; target: 10 µs)"
        );
    });
}

/// A Deployment without pods, so that each rollout is complete at once.
fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "quiet", "namespace": NAMESPACE },
        "spec": {
            "replicas": 0, "revisionHistoryLimit": 2 * OLD_SETS, "selector": { "matchLabels": { "app": "quiet" } },
            "template": { "metadata": { "labels": { "app": "quiet" } },
                "spec": { "containers": [{ "name": "main", "image": "example.com/main:0" }] } },
        },
    })
}

/// A pod of another ReplicaSet.
fn pod(number: usize) -> Value {
    let app = format!("app-{}", number % 100);
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "controller": true,
        "uid": format!("00000000-0000-4000-8000-{:012}", number % 100) });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("other-{number:06}"), "namespace": NAMESPACE, "labels": { "app": app },
            "ownerReferences": [owner] },
        "spec": { "nodeName": format!("node-{}", number % 1000),
            "containers": [{ "name": "main", "image": "example.com/main:1" }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}
