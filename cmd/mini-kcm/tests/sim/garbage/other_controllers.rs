//! Owners that other controllers create, with all controllers running and without faults: a Job whose TTL has expired,
//! and a CronJob that is deleted.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use test_cluster::Change;
use testing::sim::{Scenario, World};

use super::users::HOMES;
use crate::manager::manager;

const SEC: Duration = Duration::from_secs(1);
const HOME: &str = HOMES[0];
const JOBS: &str = "jobs.batch";
const CRON_JOBS: &str = "cronjobs.batch";
const PODS: &str = "pods";
/// Enough time for one run of the schedule, its end, and the deletions after it.
const TIME_LIMIT: Duration = Duration::from_secs(200);
/// How long a pod of `quick` runs, in seconds. Other pods run for ever.
const RUN_TIME: i64 = 3;

/// A Job whose TTL has expired: its pods are deleted before it.
pub(crate) fn expired_job() -> Scenario {
    Scenario::new("a Job expires", run_expired_job)
}

/// A CronJob that is deleted while one of its Jobs runs: the Job and its pods are deleted too.
pub(crate) fn deleted_cron_job() -> Scenario {
    Scenario::new("a CronJob is deleted", run_deleted_cron_job)
}

async fn run_expired_job(world: World) -> Result<(), String> {
    start(&world);
    let went = Arc::new(AtomicUsize::new(0));
    let count = went.clone();
    world.always("pods are deleted before their Job", move |write| {
        if write.resource() != JOBS || write.change() != Change::Removed {
            return Ok(());
        }
        count.fetch_add(1, Ordering::Relaxed);
        let waits = write.before().is_some_and(|it| it["metadata"]["finalizers"] == json!(["foregroundDeletion"]));
        match write.list(PODS, HOME).len() {
            0 if waits => Ok(()),
            0 => Err("the Job did not wait for its pods".to_owned()),
            left => Err(format!("the Job is deleted before {left} of its pods")),
        }
    });
    let mut job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j", "namespace": HOME } });
    job["spec"] = spec("quick");
    job["spec"]["ttlSecondsAfterFinished"] = 4.into();
    job["spec"]["completions"] = 2.into();
    job["spec"]["parallelism"] = 2.into();
    world.cluster().create(job);
    world.run(
        "a",
        manager(&[
            "--leader-elect=false",
            "--controllers=job-controller,ttl-after-finished-controller,garbage-collector-controller",
        ]),
    );
    let works = || world.cluster().list(PODS, HOME).len() == 2;
    world
        .eventually(TIME_LIMIT, "its two pods exist or existed", || works() || went.load(Ordering::Relaxed) > 0)
        .await?;
    let gone = || world.cluster().list(JOBS, HOME).is_empty() && world.cluster().list(PODS, HOME).is_empty();
    world.eventually(TIME_LIMIT, "the Job is gone, and its pods before it", gone).await?;
    if went.load(Ordering::Relaxed) == 1 { Ok(()) } else { Err("no Job was deleted".to_owned()) }
}

async fn run_deleted_cron_job(world: World) -> Result<(), String> {
    start(&world);
    world.cluster().create(json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "c", "namespace": HOME },
        "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": spec("endless") } },
    }));
    let mut stranger =
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "s", "namespace": HOME } });
    stranger["spec"] = spec("endless");
    world.cluster().create(stranger);
    world.run(
        "a",
        manager(&[
            "--leader-elect=false",
            "--controllers=cronjob-controller,job-controller,garbage-collector-controller",
        ]),
    );
    let works = || world.cluster().list(PODS, HOME).len() >= 2;
    world.eventually(TIME_LIMIT, "a Job of the schedule and the other Job run", works).await?;
    world.cluster().delete(CRON_JOBS, HOME, "c");
    let names = |resource: &str, field: &dyn Fn(&Value) -> Value| -> Vec<Value> {
        world.cluster().list(resource, HOME).iter().map(field).collect()
    };
    let left = || {
        let jobs = names(JOBS, &|it| it["metadata"]["name"].clone());
        let pods = names(PODS, &|it| it["metadata"]["ownerReferences"][0]["name"].clone());
        jobs == [json!("s")] && pods == [json!("s")]
    };
    world.eventually(TIME_LIMIT, "its Jobs and their pods are gone, and no others", left).await
}

fn start(world: &World) {
    world.calm();
    world.cluster().create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HOME } }));
    world.spawn("kubelet", kubelet(world.clone()));
}

fn spec(app: &str) -> Value {
    json!({ "template": {
        "metadata": { "labels": { "app": app } },
        "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }] },
    }})
}

/// Runs the pods, and removes deleted ones.
async fn kubelet(world: World) {
    loop {
        world.sleep(SEC).await;
        let now = world.clock().wall().as_second();
        for pod in world.cluster().list(PODS, HOME) {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            let began = pod["status"]["startTime"].as_str().and_then(|it| it.parse::<clock::Timestamp>().ok());
            if !pod["metadata"]["deletionTimestamp"].is_null() {
                world.cluster().delete(PODS, HOME, name);
                continue;
            }
            let started = began.map(|it| it.as_second());
            let ends = pod["metadata"]["labels"]["app"] == "quick" && started.is_some_and(|it| it + RUN_TIME <= now);
            let phase = if ends { "Succeeded" } else { "Running" };
            if pod["status"]["phase"] != phase {
                let at = world.clock().wall().to_string();
                world.cluster().update(PODS, HOME, name, |it| {
                    it["spec"]["nodeName"] = "node".into();
                    it["status"]["phase"] = phase.into();
                    if started.is_none() {
                        it["status"]["startTime"] = at.into();
                    }
                });
            }
        }
    }
}
