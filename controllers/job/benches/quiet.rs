//! Measures a sync that has nothing to do, with 100,000 pods in the cache: `cargo bench -p job-controller --bench
//! quiet`.
//! Target: 10 µs for a Job with ten active pods.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::expect_used, reason = "a bench panics on errors")]

use std::time::Duration;

use harness::bench::{BATCHES, MeasuredController, PATIENCE, created_pods, large_cluster};
use job_controller::{NAME, Options};
use serde_json::{Value, json};
use test_cluster::TestCluster;
use tokio::time::{sleep, timeout};

use crate::common::{NAMESPACE, create_job};

mod common;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PODS: usize = 100_000;
const ACTIVE: usize = 10;
const ROUNDS: u64 = 100;
/// A controller without a sync for this long is idle: before that, no key is queued or delayed for longer.
const REST: Duration = Duration::from_secs(3);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        measure("all of other controllers", |_| true).await;
        // Pods without an owner are candidates for adoption.
        measure("half of them without an owner", |number| number % 2 == 0).await;
    });
}

async fn measure(whose: &str, is_owned: impl Fn(usize) -> bool) {
    let cluster = large_cluster();
    (0..PODS).for_each(|number| drop(cluster.create(other(number, is_owned(number)))));
    let created = created_pods(&cluster);
    let controller = MeasuredController::start(&cluster, NAME, "job", |builder| {
        job_controller::start(builder, Options::default());
    });
    let spec = json!({ "completions": ACTIVE, "parallelism": ACTIVE });
    create_job(&controller.rig.deps.clients, "quiet", spec).await.expect("a Job");
    timeout(PATIENCE, all_ready(&cluster, &created)).await.expect("the Job's pods are ready");
    controller.until_idle(REST).await;

    let change = |it: &mut Value, round| it["spec"]["ttlSecondsAfterFinished"] = json!(round);
    let (median, worst) = controller.measure_syncs(&cluster, ["jobs", NAMESPACE, "quiet"], ROUNDS, change).await;
    println!(
        "a sync that finds nothing to do: {median:.2} µs (median of {BATCHES} x {ROUNDS}; worst batch {worst:.2} µs; \
         {PODS} pods cached, {whose}, {ACTIVE} active of the Job; target: 10 µs)"
    );
}

/// Runs the pods of the Job until its status shows all as ready.
async fn all_ready(cluster: &TestCluster, created: &parking_lot::Mutex<Vec<String>>) {
    let is_ready = |job: Value| job["status"]["ready"] == ACTIVE;
    while !cluster.get("jobs", NAMESPACE, "quiet").is_some_and(is_ready) {
        for name in std::mem::take(&mut *created.lock()) {
            let ready = json!([{ "type": "Ready", "status": "True" }]);
            let status = json!({ "phase": "Running", "conditions": ready });
            cluster.update("pods", NAMESPACE, &name, |it| it["status"] = status);
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn other(number: usize, is_owned: bool) -> Value {
    let name = format!("other-{number:06}");
    let app = format!("app-{}", number % 100);
    let owner = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "controller": true, "blockOwnerDeletion": true,
        "uid": format!("00000000-0000-4000-8000-{:012}", number % 100),
    }]);
    let containers = json!([{ "name": "main", "image": "example.com/main:1" }]);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "app": app } },
        "spec": { "nodeName": format!("node-{}", number % 1000), "containers": containers },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    if is_owned {
        pod["metadata"]["ownerReferences"] = owner;
    }
    pod
}
