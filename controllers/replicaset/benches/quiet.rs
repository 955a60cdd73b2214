//! Measures a sync that has nothing to do, with 100,000 pods in the cache, and the memory of these pods:
//! `cargo bench -p replicaset-controller --bench quiet`.
//! Targets: 10 µs for a set of ten pods; 1,000 bytes for a pod of 9 kB with all indexes.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::expect_used, reason = "a bench panics on errors")]

use std::time::Duration;

use harness::bench::{BATCHES, MeasuredController, PATIENCE, change_label, created_pods, large_cluster};
use parking_lot::Mutex;
use pods::{Pods, resident};
use replicaset_controller::{NAME, Options};
use serde_json::{Value, json};
use test_cluster::TestCluster;
use tokio::time::{sleep, timeout};

/// Pods as an API server sends them, which the benches of `api` measure too.
#[path = "../../../shared/kube/api/tests/common/mod.rs"]
mod pods;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// One of the namespaces of the other pods.
const NAMESPACE: &str = "team-namespace-00";
const PODS: usize = 100_000;
/// More pods of the namespace, which no controller has.
const ORPHANS: usize = 1_000;
const REPLICAS: usize = 10;
const ROUNDS: u64 = 100;
/// A controller without a sync for this long is idle: before that, no key is queued or delayed for longer.
const REST: Duration = Duration::from_secs(6);
/// The allocator returns unused pages to the system within this time.
const DECAY: Duration = Duration::from_secs(15);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let cluster = large_cluster();
        cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }));
        let bytes = create_others(&cluster);
        sleep(DECAY).await;
        let before = resident();

        let created = created_pods(&cluster);
        let controller = MeasuredController::start(&cluster, NAME, "replicaset", |builder| {
            replicaset_controller::start(builder, Options::default());
        });
        cluster.create(set());
        timeout(PATIENCE, run_pods(&cluster, &created)).await.expect("the pods are ready");
        controller.until_idle(REST).await;
        sleep(DECAY).await;
        println!(
            "memory: {} bytes for each of {PODS} pods of {bytes} bytes, with all indexes of the controller (target: \
             1,000 bytes)",
            resident().saturating_sub(before) / PODS,
        );
        measure(&cluster, &controller, "each with a controller").await;

        (0..ORPHANS).for_each(|number| drop(cluster.create(orphan(number))));
        controller.until_idle(REST).await;
        measure(&cluster, &controller, &format!("and {ORPHANS} in the namespace of the set without one")).await;
    });
}

/// Creates the pods of other controllers. Returns the size of one.
fn create_others(cluster: &TestCluster) -> usize {
    let mut source = Pods::new();
    let mut object = |number| {
        let mut frame: Value = serde_json::from_slice(source.frame(number)).expect("a frame");
        frame["object"].take()
    };
    (0..PODS).for_each(|number| drop(cluster.create(object(number))));
    object(0).to_string().len()
}

/// Runs the pods of the set until its status shows all as available.
async fn run_pods(cluster: &TestCluster, created: &Mutex<Vec<String>>) {
    let is_done = |set: Value| set["status"]["availableReplicas"] == REPLICAS;
    while !cluster.get("replicasets.apps", NAMESPACE, "quiet").is_some_and(is_done) {
        for name in std::mem::take(&mut *created.lock()) {
            let status = json!({ "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] });
            cluster.update("pods", NAMESPACE, &name, |it| it["status"] = status);
        }
        sleep(Duration::from_millis(10)).await;
    }
}

async fn measure(cluster: &TestCluster, controller: &MeasuredController, whose: &str) {
    let object = ["replicasets.apps", NAMESPACE, "quiet"];
    let (median, worst) = controller.measure_syncs(cluster, object, ROUNDS, change_label).await;
    println!(
        "a sync that finds nothing to do: {median:.2} µs (median of {BATCHES} x {ROUNDS}; worst batch {worst:.2} µs; \
         {PODS} pods cached, {whose}, {REPLICAS} of the set; target: 10 µs)"
    );
}

fn set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "quiet", "namespace": NAMESPACE },
        "spec": {
            "replicas": REPLICAS, "selector": { "matchLabels": { "app": "quiet" } },
            "template": { "metadata": { "labels": { "app": "quiet" } },
                "spec": { "containers": [{ "name": "main", "image": "example.com/main:1" }] } },
        },
    })
}

/// A pod that the set might adopt if it had other labels.
fn orphan(number: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("orphan-{number:04}"), "namespace": NAMESPACE, "labels": { "app": "other" } },
        "spec": { "containers": [{ "name": "main", "image": "example.com/main:1" }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}
