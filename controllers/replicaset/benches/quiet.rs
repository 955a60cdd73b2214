//! Measures a sync that has nothing to do, with 100,000 pods in the cache, and the memory of these pods:
//! `cargo bench -p replicaset-controller --bench quiet`.
//! Targets: 10 µs for a set of ten pods; 1,000 bytes for a pod of 9 kB with all indexes.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::expect_used, reason = "a bench panics on errors")]

use std::{future::ready, sync::Arc, time::Duration};

use client::Limits;
use clock::Clock;
use controller::Builder;
use harness::Rig;
use metrics::Histogram;
use parking_lot::Mutex;
use pods::{Pods, resident};
use replicaset_controller::{NAME, Options};
use serde_json::{Value, json};
use test_cluster::{Change, TestCluster};
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
const BATCHES: u64 = 21;
const ROUNDS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(300);
/// While a set settles, no key is queued or delayed for longer than this.
const REST: Duration = Duration::from_secs(6);
/// The allocator returns unused pages to the system within this time.
const DECAY: Duration = Duration::from_secs(15);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        // Only a few of the last writes are kept for watches, because the pods exist before the watch starts.
        let options = test_cluster::Options { history: 5_000, ..test_cluster::Options::default() };
        let cluster = TestCluster::with_options(Clock::system(), options);
        cluster.set_recording(false);
        cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }));
        let bytes = create_others(&cluster);
        sleep(DECAY).await;
        let before = resident();

        let created = created_pods(&cluster);
        let Rig { deps, scope, stop } = Rig::new(cluster.service(), Clock::system(), Limits::NONE);
        let family = ["workqueue_work_duration_seconds", "Duration of each sync."];
        let metrics = deps.metrics.clone();
        let mut builder = Builder::new(NAME, deps);
        replicaset_controller::start(&mut builder, Options::default());
        let controller = builder.build();
        scope.spawner().spawn("controller", async move { controller.run(stop, ready(())).await });
        // The work queue has registered this family; the call returns the existing one.
        let syncs = metrics.histograms(family[0], family[1], &["name"], &[1.0]).with_label_values(&["replicaset"]);
        cluster.create(set());
        timeout(PATIENCE, run_pods(&cluster, &created)).await.expect("the pods are ready");
        timeout(PATIENCE, until_idle(&syncs)).await.expect("the set is idle");
        sleep(DECAY).await;
        println!(
            "memory: {} bytes for each of {PODS} pods of {bytes} bytes, with all indexes of the controller (target: \
             1,000 bytes)",
            resident().saturating_sub(before) / PODS,
        );
        measure(&cluster, &syncs, "each with a controller").await;

        (0..ORPHANS).for_each(|number| drop(cluster.create(orphan(number))));
        timeout(PATIENCE, until_idle(&syncs)).await.expect("the set is idle");
        measure(&cluster, &syncs, &format!("and {ORPHANS} in the namespace of the set without one")).await;
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

/// The names of pods that were created since the list was last taken.
fn created_pods(cluster: &TestCluster) -> Arc<Mutex<Vec<String>>> {
    let created: Arc<Mutex<Vec<String>>> = Arc::default();
    let names = created.clone();
    cluster.observe(move |write| {
        if write.change() == Change::Added && write.kind() == "Pod" {
            names.lock().push(write.name().to_owned());
        }
    });
    created
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

/// Returns when there was no sync for [`REST`].
async fn until_idle(syncs: &Histogram) {
    loop {
        let before = syncs.get_sample_count();
        sleep(REST).await;
        if syncs.get_sample_count() == before {
            return;
        }
    }
}

async fn measure(cluster: &TestCluster, syncs: &Histogram, whose: &str) {
    let before = cluster.version();
    let mut means = Vec::new();
    for batch in 0..BATCHES {
        means.push(timeout(PATIENCE, run_batch(cluster, syncs, batch)).await.expect("each change is synced"));
    }
    let written = cluster.version() - before - BATCHES * ROUNDS;
    assert_eq!(written, 0, "a sync without changes writes nothing");
    means.sort_by(f64::total_cmp);
    println!(
        "a sync that finds nothing to do: {:.2} µs (median of {BATCHES} x {ROUNDS}; worst batch {:.2} µs; {PODS} pods \
         cached, {whose}, {REPLICAS} of the set; target: 10 µs)",
        means[means.len() / 2],
        means[means.len() - 1],
    );
}

/// Syncs the set many times. Returns the average duration in microseconds.
async fn run_batch(cluster: &TestCluster, syncs: &Histogram, batch: u64) -> f64 {
    let (count, sum) = (syncs.get_sample_count(), syncs.get_sample_sum());
    for round in 1..=ROUNDS {
        // A change that does not concern the controller.
        let value = (batch * ROUNDS + round).to_string();
        cluster.update("replicasets.apps", NAMESPACE, "quiet", |it| {
            it["metadata"]["labels"] = json!({ "round": value });
        });
        while syncs.get_sample_count() < count + round {
            tokio::task::yield_now().await;
        }
    }
    let syncs_made = (syncs.get_sample_count() - count) as f64;
    (syncs.get_sample_sum() - sum) * 1e6 / syncs_made
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
