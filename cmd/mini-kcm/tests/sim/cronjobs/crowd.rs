//! Many CronJobs with the same minute, and a manager with a low rate limit, which is stopped or killed during their
//! start.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use serde_json::json;
use testing::sim::{Process, World};
use tokio_util::sync::CancellationToken;

use super::{FLAGS, LEASE, MS, Shared, begins, ends, users};
use crate::manager::manager;

/// `--concurrent-cron-job-syncs`
const WORKERS: usize = 5;

/// Ends a process from outside.
#[derive(Clone)]
struct Reins {
    stop: CancellationToken,
    kill: CancellationToken,
}

/// The started processes, in order.
type Started = Arc<Mutex<Vec<Reins>>>;

/// The network has no faults here. So a start that is missing in the status at the end was not sent.
pub(super) async fn many_at_once(world: World) -> Result<(), String> {
    world.calm();
    let mut rng = world.rng();
    let shared = begins(&world, &mut rng);
    tells_before_it_releases(&world, &shared);
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
    world.run_elected("a", LEASE, held(started.clone(), manager(&args)));
    world.sleep(MS * rng.u32(0..30_000)).await;
    world.run_elected("b", LEASE, manager(&args));
    world.sleep(MS * rng.u32(30_000..120_000)).await;
    let Some(first) = started.lock().first().cloned() else { return Err("no process was started".to_owned()) };
    if rng.u8(0..3) > 0 {
        first.stop.cancel();
    } else {
        first.kill.cancel();
        let untold = shared.lock().untold("a#1");
        if untold.len() > WORKERS {
            return Err(format!("killed, and more than one time of each worker is untold: {untold:?}"));
        }
    }
    world.sleep(MS * rng.u32(20_000..90_000)).await;
    ends(&world, &shared).await
}

/// Every time that a process started must be in a status before it releases its Lease.
fn tells_before_it_releases(world: &World, shared: &Shared) {
    let shared = shared.clone();
    world.always("a status tells of each time before the Lease is released", move |write| {
        let released = write.after().is_some_and(|it| it["spec"]["holderIdentity"] == "");
        if write.kind() != "Lease" || !released {
            return Ok(());
        }
        let untold = shared.lock().untold(write.by);
        if untold.is_empty() { Ok(()) } else { Err(format!("{} leaves untold: {untold:?}", write.by)) }
    });
}

/// A process that can be stopped and killed.
fn held(
    started: Started,
    run: impl Fn(Process) -> BoxFuture<'static, Result<(), String>>,
) -> impl Fn(Process) -> BoxFuture<'static, Result<(), String>> {
    move |process| {
        let reins = Reins { stop: process.stop.clone(), kill: CancellationToken::new() };
        started.lock().push(reins.clone());
        let run = run(process);
        async move {
            tokio::select! {
                biased;
                () = reins.kill.cancelled() => Err("killed".to_owned()),
                ended = run => ended,
            }
        }
        .boxed()
    }
}
