//! Measures the controller in a cluster of 5,000 nodes: `cargo bench -p daemonset-controller --bench large`.
//!
//! With 50 sets: the memory of a pod, and the cost of a heartbeat and of a label change of a node, from the line of the
//! watch to the end of the handlers. With one set: a sync that finds nothing to do. Everything runs in one thread, so
//! the time that passes is the CPU time if the machine is idle. The part of the in-memory server that sends the stored
//! lines is counted too.
//! Targets: 20 µs for a heartbeat, 1 ms for a label change, 3 ms for a sync.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::expect_used, reason = "a bench panics on errors")]

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use api::Node;
use clock::Clock;
use harness::bench::{BATCHES, large_cluster, median_and_worst};
use serde_json::{Value, json};
use test_cluster::TestCluster;
use tokio::time::{sleep, timeout};

use crate::common::{Manager, Set, conditions, create_sets, node, node_name, pod};

mod common;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const NODES: usize = 5_000;
const SETS: usize = 50;
/// The number of nodes with pods if the pods of all nodes would take longer than [`FILL_LIMIT`].
const FEWER_NODES: usize = 1_000;
const FILL_LIMIT: Duration = Duration::from_secs(60);
/// The numbers of images of the nodes, in turn. A kubelet reports up to 50.
const IMAGES: [usize; 2] = [0, 50];
/// The nodes that change in each batch: as many heartbeats as the whole cluster sends in a second.
const CHANGES: usize = 500;
const ROUNDS: u64 = 20;
const PATIENCE: Duration = Duration::from_secs(60);
/// The allocator returns unused pages to the system within this time.
const DECAY: Duration = Duration::from_secs(15);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        // First, because the memory that the other one leaves would be used again.
        measure_many_sets().await;
        measure_one_set().await;
    });
}

async fn measure_many_sets() {
    let cluster = large_cluster();
    let sets = create_sets(&cluster, (0..SETS).map(|it| format!("agent-{it:02}"))).await;
    let filled = create_pods(&cluster, &sets);
    create_nodes(&cluster, filled);
    sleep(DECAY).await;
    let before = resident();
    let changes = Arc::new(AtomicU64::new(0));
    let counter = changes.clone();
    let manager = Manager::start(&cluster, move |builder| {
        // Called after the handler of the controller.
        let nodes = builder.deps().informers.typed::<Node>();
        builder.on_change(&nodes, None, move |_, _| {
            counter.fetch_add(1, Ordering::SeqCst);
        });
    });
    manager.wait_until_complete(&cluster, filled).await;
    sleep(DECAY).await;
    let (grown, pods) = (resident().saturating_sub(before), filled * SETS);
    let why = if filled < NODES { "; 250,000 would take longer than a minute" } else { "" };
    println!(
        "memory: {} bytes for each of {pods} pods of {SETS} sets (growth of the resident memory by {} MiB; {NODES} \
         nodes included{why})",
        grown / pods,
        grown >> 20,
    );

    let syncs = manager.0.syncs.get_sample_count();
    for (at, images) in IMAGES.into_iter().enumerate() {
        let names: Vec<String> = (at..NODES).step_by(IMAGES.len()).take(CHANGES).map(node_name).collect();
        let size = cluster.get("nodes", "", &names[0]).map_or(0, |it| it.to_string().len());
        let shape = format!("a node of {size} bytes with {images} images, {NODES} nodes, {SETS} sets");
        let beat = |node: &mut Value, batch: u64| node["status"]["conditions"] = conditions(batch);
        let (median, worst) = measure_changes(&cluster, &names, &changes, beat).await;
        println!(
            "a heartbeat: {median:.2} µs (median of {BATCHES} x {CHANGES}; worst batch {worst:.2} µs; {shape}; \
             target: 20 µs)"
        );
        // No set selects this label.
        let label = |node: &mut Value, batch: u64| {
            node["metadata"]["labels"]["example.com/batch"] = json!(batch.to_string());
        };
        let (median, worst) = measure_changes(&cluster, &names, &changes, label).await;
        println!(
            "a label change: {median:.2} µs (median of {BATCHES} x {CHANGES}; worst batch {worst:.2} µs; {shape}; \
             target: 1,000 µs)"
        );
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(manager.0.syncs.get_sample_count(), syncs, "these changes enqueue no set");
}

async fn measure_one_set() {
    let cluster = large_cluster();
    let sets = create_sets(&cluster, ["large".to_owned()]).await;
    (0..NODES).for_each(|number| drop(cluster.create(pod(&sets[0], &node_name(number)))));
    create_nodes(&cluster, NODES);
    let manager = Manager::start(&cluster, |_| {});
    manager.wait_until_complete(&cluster, NODES).await;
    let (median, worst) = manager.measure_syncs(&cluster, "large", ROUNDS).await;
    println!(
        "a sync that finds nothing to do: {:.2} ms (median of {BATCHES} x {ROUNDS}; worst batch {:.2} ms; {NODES} \
         nodes with a ready pod each; target: 3 ms)",
        median / 1e3,
        worst / 1e3,
    );
}

/// Creates the pods of all sets, node by node. Returns the number of nodes with pods.
fn create_pods(cluster: &TestCluster, sets: &[Set]) -> usize {
    let clock = Clock::system();
    let begun = clock.now();
    for number in 0..NODES {
        let share = FILL_LIMIT * FEWER_NODES as u32 / NODES as u32;
        if number == FEWER_NODES && clock.now().saturating_duration_since(begun) > share {
            return FEWER_NODES;
        }
        sets.iter().for_each(|set| drop(cluster.create(pod(set, &node_name(number)))));
    }
    NODES
}

/// Creates all nodes. Only this number of them takes pods.
fn create_nodes(cluster: &TestCluster, filled: usize) {
    let [none, refused] = [json!([]), json!([{ "key": "example.com/other", "effect": "NoSchedule" }])];
    for number in 0..NODES {
        let taints = if number < filled { &none } else { &refused };
        cluster.create(node(number, taints, IMAGES[number % IMAGES.len()]));
    }
}

/// Changes these nodes in each batch. Returns the median and the highest of the average times of a change, in
/// microseconds.
async fn measure_changes(
    cluster: &TestCluster,
    names: &[String],
    changes: &AtomicU64,
    change: impl Fn(&mut Value, u64),
) -> (f64, f64) {
    let (clock, mut means) = (Clock::system(), Vec::with_capacity(BATCHES));
    for batch in 1..=BATCHES as u64 {
        let wanted = changes.load(Ordering::SeqCst) + names.len() as u64;
        // The watch gets nothing before this task waits, so the time of the writes is not counted.
        for name in names {
            cluster.update("nodes", "", name, |it| change(it, batch));
        }
        let handled = async {
            while changes.load(Ordering::SeqCst) < wanted {
                tokio::task::yield_now().await;
            }
        };
        let begun = clock.now();
        timeout(PATIENCE, handled).await.expect("each change is handled");
        let spent = clock.now().saturating_duration_since(begun);
        means.push(spent.as_secs_f64() * 1e6 / names.len() as f64);
    }
    median_and_worst(means)
}

/// The resident bytes of this process; 0 if the system does not report them.
fn resident() -> usize {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|it| it.parse::<usize>().ok()).unwrap_or_default() * 4_096
}
