//! The number of API calls of Jobs whose pods run on fake nodes.

use std::time::Duration;

use client::Limits;
use fake_nodes::{Environment, Fleet, NodeSpec, Options, in_memory};
use harness::pass;
use serde_json::{Value, json};
use tasks::Scope;
use test_cluster::Interception;

use crate::world::{MS, SEC, World};

/// Fake nodes that run many pods for a while each.
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
    // Shorter than the second after which a pod's readiness is written to the status.
    let annotations = json!({ "fake-nodes.mini-kcm.dev/run-for": "500ms" });
    json!({
        "parallelism": parallelism, "completions": completions, "completionMode": mode,
        "template": { "metadata": { "labels": { "app": "x" }, "annotations": annotations }, "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }] } },
    })
}

/// Runs these Jobs to their end with this duration per call. Returns the number of calls.
async fn cost(jobs: usize, spec: &Value, call: Duration) -> usize {
    let world = World::new();
    let (_scope, _fleet) = nodes(&world).await;
    let _manager = world.start().await;
    world.fail_requests(move |_, _| Some(Interception::DelayAnswer(call)));
    for job in 0..jobs {
        world.job(&format!("j-{job}"), spec.clone());
    }
    for _ in 0..600 {
        pass(SEC).await;
        let ended = |it: &Value| it["status"]["completionTime"].is_string();
        if world.cluster.list("jobs.batch", "n").iter().all(ended) {
            assert_eq!(world.with_finalizer(), 0);
            return world.calls().len();
        }
    }
    panic!("the Jobs did not finish in time");
}

#[tokio::test(start_paused = true)]
async fn a_job_of_one_pod_needs_at_most_five_calls() {
    let calls = cost(50, &spec(1, 1, "NonIndexed"), 10 * MS).await;
    assert!(calls <= 5 * 50, "{calls}: one creation, one finalizer, three statuses");
}

#[tokio::test(start_paused = true)]
async fn jobs_of_twenty_pods_need_little_more_than_two_calls_per_pod() {
    let calls = cost(10, &spec(20, 20, "NonIndexed"), 10 * MS).await;
    assert!(calls * 10 <= 10 * 20 * 22, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_large_indexed_job_needs_two_calls_per_pod_and_few_status_writes() {
    let calls = cost(1, &spec(200, 1_000, "Indexed"), 10 * MS).await;
    assert!(calls * 100 <= 1_000 * 205, "{calls}");
}

#[tokio::test(start_paused = true)]
async fn a_small_job_does_not_wait_for_large_jobs() {
    let world = World::new();
    let _manager = world.start_limited(job_controller::Options::default(), Limits { qps: 20.0, burst: 30 }).await;
    let large = |change: &str| {
        for job in 0..5 {
            match change {
                "create" => drop(world.job(&format!("large-{job}"), json!({ "parallelism": 400, "completions": 400 }))),
                _ => world.edit(&format!("large-{job}"), |spec| spec["suspend"] = json!(true)),
            }
        }
    };
    for change in ["create", "suspend"] {
        large(change);
        pass(10 * SEC).await;
        // All workers are busy for at least a hundred seconds.
        world.job(change, json!({}));
        pass(25 * SEC).await;
        assert_eq!(world.count(change, "active"), 1, "{change}");
        let (mut before, mut waited) = (0, 0);
        while world.calls().len() > before {
            before = world.calls().len();
            waited += 1;
            pass(5 * SEC).await;
        }
        let active = (0..5).map(|it| world.count(&format!("large-{it}"), "active")).sum::<i64>();
        let want = if change == "create" { 5 * 400 } else { 0 };
        assert_eq!(active, want, "{change}, after {waited} times 5 s: the postponed calls follow");
    }
    // A Job that is cut and requeued writes one more status each time.
    let pods = world.call_count("create pods");
    assert_eq!((pods, world.pods().len()), (5 * 400 + 2, 2));
    let statuses = world.call_count("update jobs/status");
    assert!(statuses < pods / 10, "{statuses}");
}
