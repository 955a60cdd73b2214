//! Many CronJobs with the same minute, and a manager with a low rate limit, which is stopped or killed during their
//! start.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use serde_json::json;
use testing::sim::{Process, World};
use tokio_util::sync::CancellationToken;

use super::{FLAGS, LEASE, MS, SharedModel, resume_and_finish, start, users};
use crate::manager::manager;

/// `--concurrent-cron-job-syncs`
const WORKERS: usize = 5;

/// Ends a process from outside.
#[derive(Clone)]
struct ProcessControl {
    stop: CancellationToken,
    kill: CancellationToken,
}

/// The started processes, in order.
type Started = Arc<Mutex<Vec<ProcessControl>>>;

/// The network has no faults here. So a start that is missing in the status at the end was not sent.
pub(super) async fn many_at_once(world: World) -> Result<(), String> {
    world.calm();
    let mut rng = world.rng();
    let shared = start(&world, &mut rng);
    require_starts_in_status(&world, &shared);
    for number in 0..rng.u8(20..50) {
        let policy = ["Allow", "Forbid", "Replace"][rng.usize(..3)];
        let spec = json!({
            "schedule": "* * * * *", "concurrencyPolicy": policy, "successfulJobsHistoryLimit": rng.u8(0..2),
        });
        let live = rng.bool().then(|| [0, 5][rng.usize(..2)]);
        users::create(&world, &format!("c{number}"), spec, rng.u32(400..5_000), 0, live);
    }
    let limits = [format!("--kube-api-qps={}", rng.u8(5..15)), "--kube-api-burst=5".to_owned()];
    let args: Vec<&str> = FLAGS.iter().copied().chain(limits.iter().map(String::as_str)).collect();
    let started = Started::default();
    world.run_elected("a", LEASE, controllable(started.clone(), manager(&args)));
    world.sleep(MS * rng.u32(0..30_000)).await;
    world.run_elected("b", LEASE, manager(&args));
    world.sleep(MS * rng.u32(30_000..120_000)).await;
    let Some(first) = started.lock().first().cloned() else { return Err("no process was started".to_owned()) };
    if rng.u8(0..3) > 0 {
        first.stop.cancel();
    } else {
        first.kill.cancel();
        let missing = shared.lock().unrecorded_starts("a#1");
        if missing.len() > WORKERS {
            return Err(format!("killed, but more than one start of each worker is not in the status: {missing:?}"));
        }
    }
    world.sleep(MS * rng.u32(20_000..90_000)).await;
    resume_and_finish(&world, &shared).await
}

/// Every time that a process started must be in a status before it releases its Lease.
fn require_starts_in_status(world: &World, shared: &SharedModel) {
    let shared = shared.clone();
    world.always("each started time is in a status before the Lease is released", move |write| {
        let released = write.after().is_some_and(|it| it["spec"]["holderIdentity"] == "");
        if write.kind() != "Lease" || !released {
            return Ok(());
        }
        let missing = shared.lock().unrecorded_starts(write.by);
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{} releases the Lease, but these starts are not in the status: {missing:?}", write.by))
        }
    });
}

/// A process that can be stopped and killed.
fn controllable(
    started: Started,
    run: impl Fn(Process) -> BoxFuture<'static, Result<(), String>>,
) -> impl Fn(Process) -> BoxFuture<'static, Result<(), String>> {
    move |process| {
        let control = ProcessControl { stop: process.stop.clone(), kill: CancellationToken::new() };
        started.lock().push(control.clone());
        let run = run(process);
        async move {
            tokio::select! {
                biased;
                () = control.kill.cancelled() => Err("killed".to_owned()),
                ended = run => ended,
            }
        }
        .boxed()
    }
}
