use std::{convert::Infallible, future::pending};

use metrics::Metrics;
use tasks::Scope;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    Backoff,
    runner::{Environment, Outcome, Workers},
};

const SECOND: Duration = Duration::from_secs(1);
const BASE: WorkerStatus =
    WorkerStatus { queue: "q", depth: 0, oldest: None, workers: 2, since_progress: Vec::new(), active: Some(SECOND) };

struct Case {
    name: &'static str,
    status: WorkerStatus,
    want: Result<(), Stuck>,
}

#[test]
fn only_workers_without_progress_are_stuck() {
    let almost = STALL - SECOND;
    let waiting = |depth, oldest, active| WorkerStatus { depth, oldest: Some(oldest), active, ..BASE };
    let busy = |since_progress: &[Duration]| WorkerStatus { since_progress: since_progress.to_vec(), ..BASE };
    let cases = [
        Case { name: "no keys for hours", status: WorkerStatus { active: Some(100 * STALL), ..BASE }, want: Ok(()) },
        Case { name: "busy, with recent progress", status: busy(&[almost, SECOND]), want: Ok(()) },
        Case { name: "one of two is stuck", status: busy(&[SECOND, STALL]), want: Err(Stuck::Key("q", STALL)) },
        Case {
            name: "the first key after an hour without keys",
            status: waiting(1, SECOND, Some(100 * STALL)),
            want: Ok(()),
        },
        Case { name: "a long queue with progress", status: waiting(9, 100 * STALL, Some(SECOND)), want: Ok(()) },
        Case {
            name: "keys wait and free workers take none",
            status: waiting(3, STALL + SECOND, Some(2 * STALL)),
            want: Err(Stuck::Queue("q", 3, STALL + SECOND)),
        },
        Case {
            name: "keys wait because every worker is busy, with progress",
            status: WorkerStatus { since_progress: vec![SECOND, SECOND], ..waiting(3, 2 * STALL, Some(2 * STALL)) },
            want: Ok(()),
        },
        Case { name: "before the term", status: waiting(3, 2 * STALL, None), want: Ok(()) },
    ];
    for Case { name, status, want } in cases {
        assert_eq!(status.check(), want, "{name}");
    }
}

struct Rig {
    _scope: Scope,
    env: Environment,
    queue: Queue<&'static str>,
    worker_health: WorkerHealth,
}

fn rig(workers: usize) -> Rig {
    let scope = Scope::new();
    let (clock, metrics) = (Clock::virtual_from(clock::Timestamp::UNIX_EPOCH), Metrics::new());
    let queue = Queue::new("test", Backoff::default(), clock.clone(), &metrics);
    let worker_health = WorkerHealth::new(&queue, workers, clock.clone());
    let env = Environment { spawner: scope.spawner(), clock, metrics, stop: CancellationToken::new() };
    Rig { _scope: scope, env, queue, worker_health }
}

#[tokio::test(start_paused = true)]
async fn a_stuck_key_fails_the_check_and_a_long_sync_with_progress_does_not() {
    let Rig { env, queue, worker_health, _scope } = rig(2);
    let _workers = Workers::start(&env, "test", &worker_health, queue.clone(), |key| async move {
        match key {
            "hangs" => pending().await,
            // A hundred calls, each with the longest duration of a call.
            _ => {
                for _ in 0..100 {
                    sleep(70 * SECOND).await;
                }
            }
        }
        Ok::<_, Infallible>(Outcome::Done)
    });
    queue.add("long");
    for _ in 0..700 {
        sleep(10 * SECOND).await;
        assert_eq!(worker_health.read().check(), Ok(()));
    }
    queue.add("hangs");
    sleep(STALL - SECOND).await;
    assert_eq!(worker_health.read().check(), Ok(()));
    sleep(2 * SECOND).await;
    assert!(matches!(worker_health.read().check(), Err(Stuck::Key("test", _))), "{:?}", worker_health.read());
}

#[tokio::test(start_paused = true)]
async fn keys_that_no_worker_takes_fail_the_check_until_one_is_taken() {
    let Rig { env, queue, worker_health, _scope } = rig(1);
    queue.add("a");
    sleep(2 * STALL).await;
    assert_eq!(worker_health.read().check(), Ok(()), "the workers have not started");
    worker_health.on_started();
    sleep(STALL + SECOND).await;
    assert!(matches!(worker_health.read().check(), Err(Stuck::Queue("test", 1, _))), "{:?}", worker_health.read());
    let sync = |_: &'static str| async { Ok::<_, Infallible>(Outcome::Done) };
    let _workers = Workers::start(&env, "test", &worker_health, queue.clone(), sync);
    sleep(SECOND).await;
    assert_eq!(worker_health.read().check(), Ok(()));
    assert_eq!(worker_health.read(), WorkerStatus { workers: 1, queue: "test", ..BASE });
}

#[tokio::test(start_paused = true)]
async fn a_key_is_released_after_a_panic_or_an_error() {
    let Rig { env, queue, worker_health, _scope } = rig(1);
    let _workers = Workers::start(&env, "test", &worker_health, queue.clone(), |key: &'static str| async move {
        assert_ne!(key, "bad", "a key that panics");
        Ok::<_, Infallible>(Outcome::Done)
    });
    queue.add("bad");
    sleep(2 * STALL).await;
    assert!(worker_health.read().since_progress.is_empty());
    assert_eq!(worker_health.read().check(), Ok(()));
}
