//! CronJobs and Jobs with a TTL under all faults, and a CronJob that runs every minute while clocks change. A stand-in
//! replaces the Job controller, which has its own simulation.

mod fake_controllers;
mod many_cronjobs;
mod model;
mod users;

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::{Value, json};
use test_cluster::Change;
use testing::sim::{Scenario, World};
use tokio::sync::mpsc;

use crate::manager::manager;
use model::Model;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
const HOME: &str = "work";
/// The Lease of the leader election.
const LEASE: &str = "kube-system/kube-controller-manager";
/// Only the two controllers of this scenario.
const FLAGS: &[&str] = &["--controllers=cronjob-controller,ttl-after-finished-controller"];
/// The time limit after the faults: a hung call, a frozen watch, an expiring Lease, and one time of the rarest
/// schedule.
const TIME_LIMIT: Duration = Duration::from_secs(420);

/// The model, shared with its readers.
type SharedModel = Arc<Mutex<Model>>;

/// For many seeds: two managers, CronJobs of every kind, and users.
pub(crate) fn random() -> Scenario {
    Scenario::new("cronjobs", run_random)
}

/// For a sweep: the smallest scenario with every step.
pub(crate) fn swept() -> Scenario {
    Scenario::new("cronjobs, swept", run_swept)
}

/// For many seeds: many CronJobs with the same minute, a low rate limit, and a manager that is stopped or killed during
/// their start.
pub(crate) fn many() -> Scenario {
    Scenario::new("cronjobs, many at once", many_cronjobs::many_at_once)
}

async fn run_random(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let shared = start(&world, &mut rng);
    for number in 0..rng.u8(1..4) {
        users::create_random(&world, &format!("c{number}"), &mut rng);
    }
    users::create_job(&world, "once-0", None, Some(30), &mut rng);
    world.run_elected("a", LEASE, manager(FLAGS));
    if rng.u8(0..3) > 0 {
        world.spawn("users", users::change_randomly(world.clone(), rng.fork()));
    }
    world.sleep(MS * rng.u32(0..60_000)).await;
    world.run_elected("b", LEASE, manager(FLAGS));
    world.sleep(MS * rng.u32(60_000..400_000)).await;
    resume_and_finish(&world, &shared).await
}

async fn run_swept(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let shared = start(&world, &mut rng);
    // The time until the next full minute, in seconds.
    let early = (60 - world.clock().wall().as_second().rem_euclid(60)).rem_euclid(60).unsigned_abs();
    world.sleep(SEC * u32::try_from((early + 55) % 60).unwrap_or(0)).await;
    let spec = |policy: &str| {
        json!({
            "schedule": "* * * * *", "concurrencyPolicy": policy, "successfulJobsHistoryLimit": 0,
            "failedJobsHistoryLimit": 1,
        })
    };
    users::create(&world, "forbid", spec("Forbid"), 2_500, 0, Some(3));
    users::create(&world, "replace", spec("Replace"), 90_000, 0, None);
    users::create_job(&world, "once", None, Some(2), &mut rng);
    world.run_elected("a", LEASE, manager(FLAGS));
    world.sleep(SEC * 7).await;
    world.run_elected("b", LEASE, manager(FLAGS));
    world.sleep(SEC * 57).await;
    suspend(&world);
    finish(&world, &shared).await
}

/// A cluster with simulated Jobs, and with all guarantees checked.
fn start(world: &World, rng: &mut Rng) -> SharedModel {
    let shared = SharedModel::default();
    let (sender, receiver) = mpsc::unbounded_channel();
    let (model, clock) = (shared.clone(), world.clock().clone());
    world.always("the guarantees of the CronJob and TTL controllers", move |write| {
        let held = model.lock().check_write(write, clock.now(), clock.wall());
        if write.resource() == "jobs.batch" && write.change() == Change::Added {
            let uid = write.after().and_then(|it| it["metadata"]["uid"].as_str().map(str::to_owned));
            // The receiver exists during the whole run.
            let _ = sender.send((write.name().to_owned(), uid.unwrap_or_default()));
        }
        held
    });
    let reporter = world.clone();
    world.cluster().intercept(move |call| {
        if call.verb == "delete" && !call.json()["preconditions"]["uid"].is_string() {
            reporter.fail(format!("DELETE {} has no uid precondition", call.path));
        }
        test_cluster::Interception::Pass
    });
    world.cluster().create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HOME } }));
    world.spawn("jobs", fake_controllers::run_jobs(world.clone(), receiver, rng.fork()));
    world.spawn("collector", fake_controllers::collect_garbage(world.clone(), shared.clone(), rng.fork()));
    shared
}

/// The faults end: every CronJob continues. Then all are suspended, and all surplus Jobs must be deleted.
async fn resume_and_finish(world: &World, shared: &SharedModel) -> Result<(), String> {
    world.calm();
    for cron in world.cluster().list("cronjobs.batch", HOME) {
        let name = cron["metadata"]["name"].as_str().unwrap_or_default();
        world.cluster().update("cronjobs.batch", HOME, name, |it| {
            it["spec"]["suspend"] = false.into();
            it["spec"]["schedule"] = "* * * * *".into();
        });
    }
    let since = world.clock().wall().as_second();
    let start_jobs_again = || {
        let model = shared.lock();
        model.crons.values().filter(|it| !it.gone).all(|it| it.started.keys().any(|it| *it > since + 1))
    };
    world.eventually(TIME_LIMIT, "every CronJob starts Jobs again", start_jobs_again).await?;
    suspend(world);
    finish(world, shared).await
}

fn suspend(world: &World) {
    for cron in world.cluster().list("cronjobs.batch", HOME) {
        let name = cron["metadata"]["name"].as_str().unwrap_or_default();
        world.cluster().update("cronjobs.batch", HOME, name, |it| it["spec"]["suspend"] = true.into());
    }
}

async fn finish(world: &World, shared: &SharedModel) -> Result<(), String> {
    let what = "history has its allowed length, nothing is active, and expired Jobs are gone";
    world.eventually_complete(TIME_LIMIT, what, || first_unfinished(&shared.lock(), world)).await
}

/// The first object that is not in its final state, as a text.
fn first_unfinished(model: &Model, world: &World) -> Option<String> {
    for (uid, cron) in model.crons.iter().filter(|it| !it.1.gone) {
        for how in ["Complete", "Failed"] {
            let alike = model.children(uid).filter(|it| it.finished().is_some_and(|it| it.0 == how)).count();
            if alike > cron.limit(how) {
                return Some(format!("{} has {alike} Jobs with condition {how}", cron.name));
            }
        }
        let active: Vec<&Value> = cron.object["status"]["active"].as_array().into_iter().flatten().collect();
        let running: Vec<&str> =
            model.children(uid).filter(|it| it.finished().is_none() && it.scheduled).map(|it| &*it.name).collect();
        let named = active.iter().all(|it| it["name"].as_str().is_some_and(|it| running.contains(&it)));
        if !named || active.len() != running.len() || !running.is_empty() {
            return Some(format!("the status of {} has the active Jobs {active:?}, but {running:?} run", cron.name));
        }
    }
    let now = world.clock().wall().as_second();
    let late = model.jobs.values().find(|it| !it.gone && it.expires_at().is_some_and(|it| it + 40 < now));
    late.map(|it| format!("{} expired at {:?} and still exists at {now}", it.name, it.expires_at()))
}

/// The wall time plus so many seconds, in the format of the API.
fn time_after(world: &World, seconds: i64) -> String {
    let at = world.clock().wall().as_second() + seconds;
    clock::Timestamp::from_second(at).unwrap_or(clock::Timestamp::UNIX_EPOCH).to_string()
}

/// A clock change of a zone, and a schedule with a time that is skipped or repeated by it.
#[derive(Clone, Copy)]
pub(crate) struct ClockChange {
    pub(crate) zone: &'static str,
    /// The time of the change, in seconds since the epoch.
    pub(crate) at: i64,
    pub(crate) schedule: &'static str,
    /// The times of the schedule, in seconds from the change.
    pub(crate) times: &'static [i64],
}

/// The seconds before and after a change.
const AROUND: i64 = 2_400;

/// A CronJob that runs every minute during a clock change: each minute has one Job, for any local time.
pub(crate) fn across(change: ClockChange) -> Scenario {
    Scenario::new("cronjobs, clocks change", move |world| run_across(world, change)).starting_at(change.at - AROUND)
}

async fn run_across(world: World, change: ClockChange) -> Result<(), String> {
    world.calm();
    let mut rng = world.rng();
    let shared = start(&world, &mut rng);
    for (name, schedule) in [("minutely", "* * * * *"), ("odd", change.schedule)] {
        let spec = json!({ "schedule": schedule, "timeZone": change.zone, "successfulJobsHistoryLimit": 1 });
        users::create(&world, name, spec, 2_000, 0, None);
    }
    world.run("a", manager(&["--leader-elect=false", FLAGS[0]]));
    world.sleep(SEC * u32::try_from(2 * AROUND).unwrap_or(0)).await;
    suspend(&world);
    finish(&world, &shared).await?;
    let model = shared.lock();
    let started = |name: &str| -> Vec<i64> {
        let cron = model.crons.values().find(|it| it.name == name);
        cron.map(|it| it.started.keys().map(|it| it - change.at).collect()).unwrap_or_default()
    };
    let (minutes, odd) = (started("minutely"), started("odd"));
    let gap = minutes.windows(2).find(|it| it[1] - it[0] != 60);
    let whole =
        minutes.first().is_some_and(|it| *it < 120 - AROUND) && minutes.last().is_some_and(|it| *it > AROUND - 120);
    match gap {
        Some(gap) => Err(format!("no Job between {} s and {} s from the change", gap[0], gap[1])),
        None if !whole => {
            Err(format!("the first Job is at {:?} and the last at {:?}", minutes.first(), minutes.last()))
        }
        None if odd != change.times => Err(format!("{} has Jobs at {odd:?} s from the change", change.schedule)),
        None => Ok(()),
    }
}
