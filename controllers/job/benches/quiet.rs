//! Measures a sync that has nothing to do, with 100,000 pods in the cache: `cargo bench -p job-controller --bench
//! quiet`.
//! Target: 10 µs for a Job with ten active pods.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::expect_used, reason = "a bench panics on errors")]

use std::time::Duration;

use clock::Clock;
use metrics::{Histogram, Metrics};
use serde_json::{Value, json};
use test_cluster::{Options, TestCluster};
use tokio::time::{sleep, timeout};

use crate::common::{Manager, NAMESPACE, created_pods};

mod common;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PODS: usize = 100_000;
const ACTIVE: usize = 10;
const BATCHES: usize = 21;
const ROUNDS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(300);
/// While a Job settles, no key is queued or delayed for longer than this.
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
    // Only a few of the last writes are kept for watches, because the pods exist before any watch starts.
    let cluster = TestCluster::with_options(Clock::system(), Options { history: 5_000, ..Options::default() });
    cluster.set_recording(false);
    (0..PODS).for_each(|number| drop(cluster.create(other(number, is_owned(number)))));
    let created = created_pods(&cluster);
    let (manager, metrics) = Manager::start(cluster.service(), Clock::system());
    let syncs = syncs(&metrics);
    manager.create("quiet", json!({ "completions": ACTIVE, "parallelism": ACTIVE })).await.expect("a Job");
    timeout(PATIENCE, all_ready(&cluster, &created)).await.expect("the Job's pods are ready");
    timeout(PATIENCE, until_idle(&syncs)).await.expect("the Job is idle");

    let before = cluster.version();
    let mut means = Vec::with_capacity(BATCHES);
    for batch in 0..BATCHES as u64 {
        means.push(timeout(PATIENCE, run_batch(&cluster, &syncs, batch)).await.expect("each change is synced"));
    }
    let written = cluster.version() - before - BATCHES as u64 * ROUNDS;
    assert_eq!(written, 0, "a sync without changes writes nothing");
    means.sort_by(f64::total_cmp);
    println!(
        "a sync that finds nothing to do: {:.2} µs (median of {BATCHES} x {ROUNDS}; worst batch {:.2} µs; {PODS} pods \
         cached, {whose}, {ACTIVE} active of the Job; target: 10 µs)",
        means[BATCHES / 2],
        means[BATCHES - 1],
    );
}

/// Syncs the Job many times. Returns the average duration in microseconds.
async fn run_batch(cluster: &TestCluster, syncs: &Histogram, batch: u64) -> f64 {
    let (count, sum) = (syncs.get_sample_count(), syncs.get_sample_sum());
    for round in 1..=ROUNDS {
        // A change that does not concern the Job controller.
        let ttl = batch * ROUNDS + round;
        cluster.update("jobs", NAMESPACE, "quiet", |it| it["spec"]["ttlSecondsAfterFinished"] = json!(ttl));
        while syncs.get_sample_count() < count + round {
            tokio::task::yield_now().await;
        }
    }
    let syncs_made = (syncs.get_sample_count() - count) as f64;
    (syncs.get_sample_sum() - sum) * 1e6 / syncs_made
}

/// The work duration of each key.
fn syncs(metrics: &Metrics) -> Histogram {
    // The work queue has registered this family; the call returns the existing one.
    let family = metrics.histograms("workqueue_work_duration_seconds", "Duration of each sync.", &["name"], &[1.0]);
    family.with_label_values(&["job"])
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
