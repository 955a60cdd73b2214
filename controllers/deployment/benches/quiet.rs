//! Measures a sync that has nothing to do, with 100,000 pods in the cache: `cargo bench -p deployment-controller --bench
//! quiet`.
//! Target: 10 µs for a Deployment with ten old ReplicaSets.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::expect_used, reason = "a bench panics on errors")]

use std::{future::ready, time::Duration};

use client::Limits;
use clock::Clock;
use controller::Builder;
use deployment_controller::{NAME, Options};
use harness::Rig;
use metrics::Histogram;
use serde_json::{Value, json};
use test_cluster::TestCluster;
use tokio::time::{sleep, timeout};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const NAMESPACE: &str = "default";
const PODS: usize = 100_000;
const OLD_SETS: usize = 10;
const BATCHES: usize = 21;
const ROUNDS: u64 = 100;
const PATIENCE: Duration = Duration::from_secs(300);
/// While a Deployment settles, no key is queued for longer than this.
const REST: Duration = Duration::from_secs(2);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let options = test_cluster::Options { history: 5_000, ..test_cluster::Options::default() };
        let cluster = TestCluster::with_options(Clock::system(), options);
        cluster.set_recording(false);
        (0..PODS).for_each(|number| drop(cluster.create(pod(number))));
        let Rig { deps, scope, stop } = Rig::new(cluster.service(), Clock::system(), Limits::NONE);
        let family = ["workqueue_work_duration_seconds", "Duration of each sync."];
        let metrics = deps.metrics.clone();
        let mut builder = Builder::new(NAME, deps);
        deployment_controller::start(&mut builder, Options::default());
        let controller = builder.build();
        scope.spawner().spawn("controller", async move { controller.run(stop, ready(())).await });
        // The work queue has registered this family; the call returns the existing one.
        let syncs = metrics.histograms(family[0], family[1], &["name"], &[1.0]).with_label_values(&["deployment"]);
        cluster.create(deployment());
        for round in 0..=OLD_SETS {
            let image = format!("example.com/main:{round}");
            cluster.update("deployments.apps", NAMESPACE, "quiet", |it| {
                it["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            });
            timeout(PATIENCE, until_idle(&syncs)).await.expect("the Deployment is idle");
        }
        assert_eq!(cluster.list("replicasets.apps", NAMESPACE).len(), OLD_SETS + 1);

        let before = cluster.version();
        let mut means = Vec::with_capacity(BATCHES);
        for batch in 0..BATCHES as u64 {
            means.push(timeout(PATIENCE, run_batch(&cluster, &syncs, batch)).await.expect("each change is synced"));
        }
        let written = cluster.version() - before - BATCHES as u64 * ROUNDS;
        assert_eq!(written, 0, "a sync without changes writes nothing");
        means.sort_by(f64::total_cmp);
        println!(
            "a sync that finds nothing to do: {:.2} µs (median of {BATCHES} x {ROUNDS}; worst batch {:.2} µs; {PODS} \
             pods cached, {OLD_SETS} old ReplicaSets; target: 10 µs)",
            means[BATCHES / 2],
            means[BATCHES - 1],
        );
    });
}

/// Syncs the Deployment many times. Returns the average duration in microseconds.
async fn run_batch(cluster: &TestCluster, syncs: &Histogram, batch: u64) -> f64 {
    let (count, sum) = (syncs.get_sample_count(), syncs.get_sample_sum());
    for round in 1..=ROUNDS {
        // A change that does not concern the controller.
        let value = (batch * ROUNDS + round).to_string();
        cluster.update("deployments.apps", NAMESPACE, "quiet", |it| {
            it["metadata"]["labels"] = json!({ "round": value });
        });
        while syncs.get_sample_count() < count + round {
            tokio::task::yield_now().await;
        }
    }
    let syncs_made = (syncs.get_sample_count() - count) as f64;
    (syncs.get_sample_sum() - sum) * 1e6 / syncs_made
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
