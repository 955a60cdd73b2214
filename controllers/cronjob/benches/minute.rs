//! Measures the cost of ten thousand CronJobs with a schedule of every minute: `cargo bench -p cronjob-controller`.
//!
//! A waiting CronJob is one delayed key in the work queue, and the cost of a sync does not depend on the Jobs of other
//! CronJobs. The API server is in memory in this process, so its cost is part of the last column.
#![expect(clippy::print_stdout, reason = "a bench prints its results")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]
#![expect(clippy::unwrap_used, reason = "a bench panics on missing values")]

use std::{
    future::Future,
    time::{Duration, Instant},
};

use client::Limits;
use clock::Clock;
use controller::Builder;
use cronjob_controller::Options;
use harness::Rig;
use serde_json::json;
use test_cluster::TestCluster;

const CRON_JOBS: usize = 10_000;

fn main() {
    println!("{CRON_JOBS} CronJobs | waiting for an hour | a sync of each | a Job of each");
    for jobs in [0, 1, 4] {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(measure(jobs));
    }
}

async fn measure(jobs: usize) {
    let clock = Clock::virtual_from("2026-05-19T10:00:10Z".parse().unwrap());
    let cluster = TestCluster::new(clock.clone());
    cluster.set_recording(false);
    fill(&cluster, jobs);
    let Rig { deps, scope, stop } = Rig::new(cluster.service(), clock.clone(), Limits { qps: 0.0, burst: 0 });
    let mut builder = Builder::new(cronjob_controller::NAME, deps);
    cronjob_controller::start(&mut builder, Options::default());
    let controller = builder.build();
    scope.spawner().spawn("controller", async move { controller.run(stop, std::future::ready(())).await });
    tokio::time::sleep(Duration::from_secs(20)).await;

    let waiting = spent(tokio::time::sleep(Duration::from_secs(58 * 60))).await;
    // After a clock jump every CronJob is synced, while no time is due.
    clock.suspend(Duration::from_secs(5));
    let looking = spent(tokio::time::sleep(Duration::from_secs(11))).await;
    let before = cluster.list("jobs", "ns").len();
    let making = spent(tokio::time::sleep(Duration::from_secs(150))).await;
    let made = cluster.list("jobs", "ns").len() - before;
    assert_eq!(made, CRON_JOBS);
    let each = |time: Duration| time.as_secs_f64() * 1e6 / CRON_JOBS as f64;
    let (all, waiting) = (jobs * CRON_JOBS, waiting.as_secs_f64() * 1e3);
    println!("{all} Jobs | {waiting:.1} ms | {:.2} µs | {:.1} µs", each(looking), each(making));
}

async fn spent(wait: impl Future<Output = ()>) -> Duration {
    let start = Instant::now();
    wait.await;
    start.elapsed()
}

/// Creates minutely CronJobs in one namespace, each with this many finished Jobs.
fn fill(cluster: &TestCluster, jobs: usize) {
    cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "ns" } }));
    let container = json!({ "name": "a", "image": "i" });
    let pod = json!({ "restartPolicy": "Never", "containers": [container] });
    let spec = json!({ "template": { "spec": pod } });
    for number in 0..CRON_JOBS {
        let name = format!("c{number}");
        let cron_job = cluster.create(json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": name, "namespace": "ns" },
            "spec": { "schedule": "0 * * * *", "successfulJobsHistoryLimit": 100, "jobTemplate": { "spec": spec } },
            "status": { "lastScheduleTime": "2026-05-19T10:00:00Z", "lastSuccessfulTime": "2026-05-19T10:00:05Z" },
        }));
        let owner = json!({ "apiVersion": "batch/v1", "kind": "CronJob", "name": name, "controller": true,
            "uid": cron_job["metadata"]["uid"] });
        for job in 0..jobs {
            cluster.create(json!({
                "apiVersion": "batch/v1", "kind": "Job", "spec": spec,
                "metadata": { "name": format!("{name}-old{job}"), "namespace": "ns", "ownerReferences": [owner] },
                "status": {
                    "startTime": "2026-05-19T10:00:00Z", "completionTime": "2026-05-19T10:00:05Z",
                    "conditions": [{ "type": "Complete", "status": "True" }],
                },
            }));
        }
    }
}
