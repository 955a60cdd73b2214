//! A stand-in for the Job controller and the garbage collector: Jobs run for some time and end. Deleted Jobs are
//! removed when they have no finalizer.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;
use tokio::sync::mpsc::UnboundedReceiver;

use super::{HOME, SharedModel, time_after};

const MS: Duration = Duration::from_millis(1);
const JOBS: &str = "jobs.batch";
/// The maximum running time of a Job, in milliseconds.
pub(super) const RUN_TIME: &str = "sim/runs";
/// How many of a thousand Jobs fail.
pub(super) const FAILURE_RATE: &str = "sim/fails";

/// Runs each created Job.
pub(super) async fn run_jobs(world: World, mut created: UnboundedReceiver<(String, String)>, mut rng: Rng) {
    while let Some((name, uid)) = created.recv().await {
        world.spawn("job", run_job(world.clone(), name, uid, rng.fork()));
    }
}

fn current(world: &World, name: &str, uid: &str) -> Option<Value> {
    let job = world.cluster().get(JOBS, HOME, name)?;
    (job["metadata"]["uid"] == uid).then_some(job)
}

async fn run_job(world: World, name: String, uid: String, mut rng: Rng) {
    world.sleep(MS * rng.u32(0..1_000)).await;
    let Some(job) = current(&world, &name, &uid) else { return };
    let began = time_after(&world, 0);
    world.cluster().update(JOBS, HOME, &name, |it| {
        it["status"]["startTime"] = began.into();
        it["status"]["active"] = 1.into();
    });
    let note = |key: &str| job["metadata"]["annotations"][key].as_str().and_then(|it| it.parse::<u32>().ok());
    let most = note(RUN_TIME).unwrap_or(5_000);
    world.sleep(MS * rng.u32(most / 4..=most)).await;
    if current(&world, &name, &uid).is_none() {
        return;
    }
    let failed = rng.u32(..1_000) < note(FAILURE_RATE).unwrap_or(0);
    let at = time_after(&world, 0);
    world.cluster().update(JOBS, HOME, &name, |it| {
        let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": at });
        it["status"]["active"] = Value::Null;
        let kinds = if failed { ["FailureTarget", "Failed"] } else { ["SuccessCriteriaMet", "Complete"] };
        it["status"]["conditions"] = kinds.map(condition).to_vec().into();
        if !failed {
            it["status"]["completionTime"] = at.clone().into();
        }
    });
}

/// Removes Jobs that were deleted with Foreground after some time, and deletes Jobs whose CronJob is gone.
pub(super) async fn collect_garbage(world: World, shared: SharedModel, mut rng: Rng) {
    loop {
        world.sleep(MS * rng.u32(300..2_500)).await;
        let (held, orphans): (Vec<String>, Vec<String>) = {
            let model = shared.lock();
            let there = || model.jobs.values().filter(|it| !it.gone);
            let gone =
                |cron: &Option<String>| cron.as_ref().and_then(|it| model.crons.get(it)).is_some_and(|it| it.gone);
            let held = there().filter(|it| it.is_deleting()).map(|it| it.name.clone()).collect();
            (held, there().filter(|it| !it.is_deleting() && gone(&it.cron)).map(|it| it.name.clone()).collect())
        };
        for name in held {
            world.cluster().update(JOBS, HOME, &name, |it| it["metadata"]["finalizers"] = json!([]));
        }
        for name in orphans {
            world.cluster().remove(JOBS, HOME, &name);
        }
    }
}
