//! What Jobs cost in calls, with nodes that run their pods.

use std::time::Duration;

use fake_nodes::{Environment, Fleet, NodeSpec, Options, in_memory};
use serde_json::{Value, json};
use tasks::Scope;
use test_cluster::Verdict;

use crate::world::{MS, SEC, World, pass};

/// Nodes for many pods, which run each for a while.
async fn nodes(world: &World) -> (Scope, Fleet) {
    let scope = Scope::new();
    let environment = Environment {
        client: in_memory(world.cluster.service()),
        clock: world.clock.clone(),
        spawner: scope.spawner(),
    };
    let nodes = (0..20).map(|it| NodeSpec::new(format!("node-{it}"))).collect();
    let fleet = Fleet::start(Options { nodes, ..Options::with_nodes(0) }, environment);
    fleet.registered().await;
    (scope, fleet)
}

fn spec(parallelism: u32, completions: u32, mode: &str) -> Value {
    // Shorter than the second after which it is told that a pod is ready.
    let annotations = json!({ "fake-nodes.mini-kcm.dev/run-for": "500ms" });
    json!({
        "parallelism": parallelism, "completions": completions, "completionMode": mode,
        "template": { "metadata": { "labels": { "app": "x" }, "annotations": annotations }, "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }] } },
    })
}

/// Runs these Jobs to their end, each call taking a while; how many calls there were.
async fn cost(jobs: usize, spec: &Value, call: Duration) -> usize {
    let world = World::new();
    let (_scope, _fleet) = nodes(&world).await;
    let _manager = world.start().await;
    world.spoil(move |_, _| Some(Verdict::DelayAnswer(call)));
    for job in 0..jobs {
        world.job(&format!("j-{job}"), spec.clone());
    }
    for _ in 0..600 {
        pass(SEC).await;
        let ended = |it: &Value| it["status"]["completionTime"].is_string();
        if world.cluster.list("jobs.batch", "n").iter().all(ended) {
            assert_eq!(world.held(), 0);
            return world.calls().len();
        }
    }
    panic!("the Jobs do not end");
}

#[tokio::test(start_paused = true)]
async fn a_job_of_one_pod_costs_five_calls_at_most() {
    let calls = cost(50, &spec(1, 1, "NonIndexed"), 10 * MS).await;
    assert!(calls <= 5 * 50, "{calls}: one creation, one finalizer, three statuses");
}

#[tokio::test(start_paused = true)]
async fn jobs_of_twenty_pods_cost_little_more_than_two_calls_for_each_pod() {
    let calls = cost(10, &spec(20, 20, "NonIndexed"), 10 * MS).await;
    assert!(calls * 10 <= 10 * 20 * 22, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_large_indexed_job_costs_two_calls_for_each_pod_and_few_statuses() {
    let calls = cost(1, &spec(200, 1_000, "Indexed"), 10 * MS).await;
    assert!(calls * 100 <= 1_000 * 205, "{calls}");
}
