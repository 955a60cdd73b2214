use std::time::Duration;

use crate::Backoff;
use parking_lot::Mutex;
use tasks::Scope;
use tokio::time::sleep;

use super::*;

const MS: Duration = Duration::from_millis(1);

#[derive(Debug, thiserror::Error)]
#[error("cannot create pod")]
struct Failed(#[source] Refused);

#[derive(Debug, thiserror::Error)]
#[error("refused with 403")]
struct Refused;

/// For each call: the time since the start, and the failures before it.
type Calls = Arc<Mutex<Vec<(Duration, u32)>>>;

struct Rig {
    scope: Scope,
    env: Environment,
    queue: Queue<&'static str>,
    log: harness::Log,
}

fn rig() -> Rig {
    let scope = Scope::new();
    let (clock, metrics) = (Clock::virtual_from(clock::Timestamp::UNIX_EPOCH), Metrics::new());
    let queue = Queue::new("test", Backoff::default(), clock.clone(), &metrics);
    let env = Environment { spawner: scope.spawner(), clock, metrics, stop: CancellationToken::new() };
    Rig { scope, env, queue, log: harness::listen() }
}

impl Rig {
    /// Starts one worker whose n-th call returns `script(n)`.
    fn play(&self, script: impl Fn(usize) -> Result<Outcome, Failed> + Send + Sync + 'static) -> (Workers, Calls) {
        let calls = Calls::default();
        let (seen, queue, clock, start) =
            (calls.clone(), self.queue.clone(), self.env.clock.clone(), self.env.clock.now());
        let workers = Workers::start(
            &self.env,
            "test",
            &WorkerHealth::new(&self.queue, 1, Clock::system()),
            self.queue.clone(),
            move |key| {
                let at = {
                    let mut seen = seen.lock();
                    seen.push((clock.now() - start, queue.failures(&key)));
                    seen.len() - 1
                };
                let result = script(at);
                async move { result }
            },
        );
        (workers, calls)
    }
}

#[tokio::test(start_paused = true)]
async fn each_outcome_is_reported_to_the_queue() {
    let rig = rig();
    let (_workers, calls) = rig.play(|call| match call {
        0 | 1 => Err(Failed(Refused)),        // 5 ms, 10 ms
        2 => Ok(Outcome::Parked(1_000 * MS)), // neither success nor failure
        3 => Err(Failed(Refused)),            // 20 ms: the failures still count
        4 => Ok(Outcome::After(2_000 * MS)),  // success, then again
        5 => Err(Failed(Refused)),            // 5 ms: the failures were reset
        _ => Ok(Outcome::Done),
    });
    rig.queue.add("a");
    sleep(60_000 * MS).await;
    let ms = |at: u32| at * MS;
    let want = [(ms(0), 0), (ms(5), 1), (ms(15), 2), (ms(1_015), 2), (ms(1_035), 3), (ms(3_035), 0), (ms(3_040), 1)];
    assert_eq!(*calls.lock(), want);
    assert_eq!(rig.queue.failures(&"a"), 0, "Done resets the back-off");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_one_key_is_contained_counted_and_retried_with_back_off() {
    let rig = rig();
    let (_workers, calls) = rig.play(|call| if call == 0 { panic!("broken") } else { Ok(Outcome::Done) });
    rig.queue.add("a");
    sleep(1_000 * MS).await;
    assert_eq!(*calls.lock(), [(Duration::ZERO, 0), (5 * MS, 1)]);
    assert!(rig.env.metrics.encode().contains("mini_kcm_sync_panics_total{controller=\"test\"} 1"));
    assert!(rig.scope.panicked().now_or_never().is_none(), "the process continues");
}

#[tokio::test(start_paused = true)]
async fn a_panic_after_an_await_is_contained_too() {
    let rig = rig();
    let synced = Arc::new(Mutex::new(Vec::new()));
    let sync = {
        let synced = synced.clone();
        move |key: &'static str| {
            let synced = synced.clone();
            async move {
                sleep(MS).await;
                assert_ne!(key, "bad", "broken");
                synced.lock().push(key);
                Ok::<_, Failed>(Outcome::Done)
            }
        }
    };
    let _workers =
        Workers::start(&rig.env, "test", &WorkerHealth::new(&rig.queue, 1, Clock::system()), rig.queue.clone(), sync);
    rig.queue.add("bad");
    rig.queue.add("good");
    sleep(4 * MS).await;
    assert_eq!((rig.queue.failures(&"bad"), &**synced.lock()), (1, &["good"][..]), "the worker took the next key");
}

#[tokio::test(start_paused = true)]
async fn a_stop_takes_no_further_key_and_completes_running_syncs() {
    let rig = rig();
    let finished = Arc::new(Mutex::new(Vec::new()));
    let sync = {
        let finished = finished.clone();
        move |key: &'static str| {
            let finished = finished.clone();
            async move {
                sleep(1_000 * MS).await;
                finished.lock().push(key);
                Ok::<_, Failed>(Outcome::Done)
            }
        }
    };
    let workers =
        Workers::start(&rig.env, "test", &WorkerHealth::new(&rig.queue, 2, Clock::system()), rig.queue.clone(), sync);
    ["a", "b", "c", "d"].into_iter().for_each(|key| rig.queue.add(key));
    sleep(400 * MS).await;
    rig.env.stop.cancel();
    let stopped_at = rig.env.clock.now();
    workers.wait_until_ended().await;
    assert_eq!(rig.env.clock.now() - stopped_at, 600 * MS);
    assert_eq!(*finished.lock(), ["a", "b"]);
    assert!(rig.queue.is_empty());
    rig.queue.add("late");
    assert!(rig.queue.is_empty(), "no worker would process it");
}

#[tokio::test(start_paused = true)]
async fn workers_end_with_their_queue() {
    let rig = rig();
    let (workers, calls) = rig.play(|_| Ok(Outcome::Done));
    rig.queue.add("a");
    rig.queue.shut_down();
    workers.wait_until_ended().await;
    assert_eq!(calls.lock().len(), 1, "queued keys are still processed");
}

#[tokio::test(start_paused = true)]
async fn an_error_is_logged_once_with_controller_key_and_all_causes() {
    let rig = rig();
    let (_workers, _) = rig.play(|call| if call == 0 { Err(Failed(Refused)) } else { Ok(Outcome::Done) });
    rig.queue.add("ns/a");
    sleep(1_000 * MS).await;
    let lines = rig.log.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["ERROR", "controller=\"test\"", "key=ns/a", "err=\"cannot create pod: refused with 403\""] {
        assert!(lines[0].contains(part), "{part} is not in {lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn log_lines_of_a_sync_have_controller_and_key() {
    let rig = rig();
    let (_workers, _) = rig.play(|_| {
        tracing::warn!("logged inside");
        Ok(Outcome::Done)
    });
    rig.queue.add("ns/a");
    rig.queue.add("ns/b");
    sleep(1_000 * MS).await;
    tracing::warn!("logged outside");
    let lines = rig.log.lines();
    for (line, key) in lines.iter().zip(["key=ns/a", "key=ns/b"]) {
        assert!(
            line.contains("logged inside") && line.contains("controller=\"test\"") && line.contains(key),
            "{lines:?}"
        );
    }
    assert!(lines.len() == 3 && !lines[2].contains("key="), "{lines:?}");
}
