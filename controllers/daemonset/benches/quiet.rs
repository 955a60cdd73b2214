//! Measures a sync that has nothing to do, with 100,000 pods in the cache: `cargo bench -p daemonset-controller --bench
//! quiet`.
//! Target: 10 µs for a set with three nodes.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::expect_used, reason = "a bench panics on errors")]

use harness::bench::{BATCHES, large_cluster};
use serde_json::{Value, json};

use crate::common::{Manager, NAMESPACE, create_sets, node, node_name, pod};

mod common;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const PODS: usize = 100_000;
const NODES: usize = 3;
const ROUNDS: u64 = 100;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(measure());
}

async fn measure() {
    let cluster = large_cluster();
    let sets = create_sets(&cluster, ["quiet".to_owned()]).await;
    (0..PODS).for_each(|number| drop(cluster.create(other(number))));
    (0..NODES).for_each(|number| drop(cluster.create(pod(&sets[0], &node_name(number)))));
    (0..NODES).for_each(|number| drop(cluster.create(node(number, &json!([]), 0))));
    let manager = Manager::start(&cluster, |_| {});
    manager.wait_until_complete(&cluster, NODES).await;
    let (median, worst) = manager.measure_syncs(&cluster, "quiet", ROUNDS).await;
    println!(
        "a sync that finds nothing to do: {median:.2} µs (median of {BATCHES} x {ROUNDS}; worst batch {worst:.2} µs; \
         {PODS} pods of other controllers cached, {NODES} nodes; target: 10 µs)"
    );
}

/// A pod of another controller.
fn other(number: usize) -> Value {
    let app = format!("app-{}", number % 100);
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "controller": true,
        "uid": format!("00000000-0000-4000-8000-{:012}", number % 100) });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": format!("other-{number:06}"), "namespace": NAMESPACE, "labels": { "app": app },
            "ownerReferences": [owner] },
        "spec": { "nodeName": node_name(number % 1000),
            "containers": [{ "name": "main", "image": "example.com/main:1" }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}
