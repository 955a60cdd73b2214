//! Measures a sync that has nothing to do, with 100,000 pods in the cache: `cargo bench -p statefulset-controller --bench
//! quiet`.
//! Target: 10 µs for a set of ten pods with one claim each.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::expect_used, reason = "a bench panics on errors")]

use std::time::Duration;

use harness::bench::{BATCHES, MeasuredController, PATIENCE, change_label, large_cluster};
use serde_json::{Value, json};
use statefulset_controller::{NAME, Options};
use test_cluster::TestCluster;
use tokio::time::{sleep, timeout};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const NAMESPACE: &str = "default";
const PODS: usize = 100_000;
const REPLICAS: usize = 10;
const ROUNDS: u64 = 100;
/// A controller without a sync for this long is idle: before that, no key is queued or delayed for longer.
const REST: Duration = Duration::from_secs(6);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let cluster = large_cluster();
        (0..PODS).for_each(|number| drop(cluster.create(other(number))));
        let controller = MeasuredController::start(&cluster, NAME, "statefulset", |builder| {
            statefulset_controller::start(builder, Options::default());
        });
        cluster.create(set());
        timeout(PATIENCE, run_pods(&cluster)).await.expect("the pods are ready");
        controller.until_idle(REST).await;

        let object = ["statefulsets.apps", NAMESPACE, "quiet"];
        let (median, worst) = controller.measure_syncs(&cluster, object, ROUNDS, change_label).await;
        println!(
            "a sync that finds nothing to do: {median:.2} µs (median of {BATCHES} x {ROUNDS}; worst batch {worst:.2} µs; \
             {PODS} pods cached, half of them without an owner, {REPLICAS} of the set; target: 10 µs)"
        );
    });
}

/// Runs the pods of the set until its status shows all as available.
async fn run_pods(cluster: &TestCluster) {
    let is_done = |set: Value| set["status"]["availableReplicas"] == REPLICAS;
    while !cluster.get("statefulsets.apps", NAMESPACE, "quiet").is_some_and(is_done) {
        for name in (0..REPLICAS).map(|it| format!("quiet-{it}")) {
            if cluster.get("pods", NAMESPACE, &name).is_some_and(|it| it["status"]["phase"] == "Pending") {
                let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
                cluster.update("pods", NAMESPACE, &name, |it| it["status"] = status);
            }
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn set() -> Value {
    let claim = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "quiet", "namespace": NAMESPACE },
        "spec": {
            "replicas": REPLICAS, "serviceName": "quiet", "selector": { "matchLabels": { "app": "quiet" } },
            "template": { "metadata": { "labels": { "app": "quiet" } },
                "spec": { "containers": [{ "name": "main", "image": "example.com/main:1" }] } },
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim }],
            "persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Delete", "whenScaled": "Retain" },
        },
    })
}

/// A pod of another controller, or one without an owner.
fn other(number: usize) -> Value {
    let app = format!("app-{}", number % 100);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("other-{number:06}"), "namespace": NAMESPACE, "labels": { "app": app } },
        "spec": { "nodeName": format!("node-{}", number % 1000),
            "containers": [{ "name": "main", "image": "example.com/main:1" }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    if number.is_multiple_of(2) {
        pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app,
            "controller": true, "uid": format!("00000000-0000-4000-8000-{:012}", number % 100) }]);
    }
    pod
}
