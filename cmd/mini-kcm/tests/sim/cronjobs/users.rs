//! CronJobs, Jobs with a TTL, and users who change them.

use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use testing::sim::World;

use super::{
    HOME,
    fake_controllers::{FAILURE_RATE, RUN_TIME},
};

const MS: Duration = Duration::from_millis(1);
const CRONS: &str = "cronjobs.batch";
const JOBS: &str = "jobs.batch";
const SCHEDULES: [&str; 4] = ["* * * * *", "*/2 * * * *", "1-59/2 * * * *", "@every 90s"];
const TIMES_TO_LIVE: [u32; 4] = [0, 5, 45, 90];

/// A CronJob of a random kind.
pub(super) fn create_random(world: &World, name: &str, rng: &mut Rng) {
    let policy = ["Allow", "Forbid", "Replace"][rng.usize(..3)];
    let mut spec = json!({
        "schedule": SCHEDULES[rng.usize(..4)], "concurrencyPolicy": policy,
        "successfulJobsHistoryLimit": rng.u8(0..3), "failedJobsHistoryLimit": rng.u8(0..2),
        "suspend": rng.u8(0..8) == 0,
    });
    if rng.u8(0..4) == 0 {
        spec["startingDeadlineSeconds"] = rng.u32(40..120).into();
    }
    let live = (rng.u8(0..3) == 0).then(|| TIMES_TO_LIVE[rng.usize(..4)]);
    create(world, name, spec, rng.u32(1_000..110_000), rng.u32(0..400), live);
}

/// A CronJob. Its Jobs run for `runs` milliseconds at most, `fails` of a thousand fail, and their TTL is `live`
/// seconds.
pub(super) fn create(world: &World, name: &str, mut spec: Value, runs: u32, fails: u32, live: Option<u32>) {
    let mut job = job_spec();
    if let Some(live) = live {
        job["ttlSecondsAfterFinished"] = live.into();
    }
    let notes = json!({ RUN_TIME: runs.to_string(), FAILURE_RATE: fails.to_string() });
    spec["jobTemplate"] = json!({ "metadata": { "annotations": notes, "labels": { "app": name } }, "spec": job });
    world.cluster().create(json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": name, "namespace": HOME }, "spec": spec,
    }));
}

fn job_spec() -> Value {
    json!({ "template": { "spec": {
        "restartPolicy": "Never", "containers": [{ "name": "main", "image": "i" }],
    }}})
}

/// A Job with a TTL that was not created by a schedule.
pub(super) fn create_job(world: &World, name: &str, owner: Option<&Value>, live: Option<u32>, rng: &mut Rng) {
    if world.cluster().get(JOBS, HOME, name).is_some() {
        return;
    }
    let mut spec = job_spec();
    if let Some(live) = live {
        spec["ttlSecondsAfterFinished"] = live.into();
    }
    let owners: Vec<Value> = owner
        .map(|it| {
            json!({
                "apiVersion": "batch/v1", "kind": "CronJob", "name": it["metadata"]["name"],
                "uid": it["metadata"]["uid"], "controller": true,
            })
        })
        .into_iter()
        .collect();
    let notes = json!({ RUN_TIME: rng.u32(500..30_000).to_string(), FAILURE_RATE: "200" });
    world.cluster().create(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "namespace": HOME, "annotations": notes, "ownerReferences": owners }, "spec": spec,
    }));
}

fn pick<T: Clone>(all: &[T], rng: &mut Rng) -> Option<T> {
    (!all.is_empty()).then(|| all[rng.usize(..all.len())].clone())
}

/// Changes a CronJob or a Job from time to time, until the world is calm.
pub(super) async fn change_randomly(world: World, mut rng: Rng) {
    for number in 0_u32.. {
        world.sleep(MS * rng.u32(1_000..20_000)).await;
        if world.is_calm() {
            return;
        }
        let cluster = world.cluster();
        let Some(cron) = pick(&cluster.list(CRONS, HOME), &mut rng) else { continue };
        let name = cron["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let set = |change: &dyn Fn(&mut Value)| {
            cluster.update(CRONS, HOME, &name, change);
        };
        match rng.u8(0..16) {
            0 | 1 => set(&|it| it["spec"]["suspend"] = (it["spec"]["suspend"] != true).into()),
            2 => {
                let to = SCHEDULES[rng.usize(..4)];
                set(&|it| it["spec"]["schedule"] = to.into());
            }
            3 => {
                let to = rng.u8(0..3);
                set(&|it| it["spec"]["successfulJobsHistoryLimit"] = to.into());
            }
            4 => {
                cluster.remove(CRONS, HOME, &name);
                world.sleep(MS * rng.u32(0..4_000)).await;
                if rng.u8(0..3) > 0 && !world.is_calm() {
                    create_random(&world, &name, &mut rng);
                }
            }
            5 => create_job(&world, &format!("manual-{number}"), Some(&cron), None, &mut rng),
            // The name for the Job of a future time is already used by another Job.
            6 => {
                let minute = world.clock().wall().as_second() / 60 + 1;
                create_job(&world, &format!("{name}-{minute}"), None, Some(0), &mut rng);
            }
            7 => create_job(
                &world,
                &format!("once-{}", rng.u8(..3)),
                None,
                Some(TIMES_TO_LIVE[rng.usize(..4)]),
                &mut rng,
            ),
            8 => cluster.compact(),
            // A past minute of this hour, so that the next run is an hour later.
            9 | 10 => {
                let minute = (world.clock().wall().as_second() / 60 - rng.i64(1..4)).rem_euclid(60);
                set(&|it| it["spec"]["schedule"] = format!("{minute} * * * *").into());
            }
            _ => change_job(&world, &mut rng),
        }
    }
}

/// Deletes a Job, or changes its TTL.
fn change_job(world: &World, rng: &mut Rng) {
    let Some(job) = pick(&world.cluster().list(JOBS, HOME), rng) else { return };
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    match rng.u8(0..5) {
        0 | 1 => world.cluster().remove(JOBS, HOME, name),
        2 => {
            world.cluster().update(JOBS, HOME, name, |it| {
                if let Some(spec) = it["spec"].as_object_mut() {
                    spec.remove("ttlSecondsAfterFinished");
                }
            });
        }
        _ => {
            let live = TIMES_TO_LIVE[rng.usize(..4)];
            world.cluster().update(JOBS, HOME, name, |it| it["spec"]["ttlSecondsAfterFinished"] = live.into());
        }
    }
}
