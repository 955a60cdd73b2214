use std::{convert::Infallible, future::pending};

use metrics::Metrics;
use tasks::Scope;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use workqueue::Backoff;

use super::*;
use crate::{Environment, Outcome, Workers};

const SECOND: Duration = Duration::from_secs(1);
const BASE: Reading =
    Reading { queue: "q", depth: 0, oldest: None, workers: 2, silences: Vec::new(), active: Some(SECOND) };

struct Case {
    name: &'static str,
    reading: Reading,
    want: Result<(), Stuck>,
}

#[test]
fn only_what_does_not_move_is_stuck() {
    let almost = STALL - SECOND;
    let waiting = |depth, oldest, active| Reading { depth, oldest: Some(oldest), active, ..BASE };
    let busy = |silences: &[Duration]| Reading { silences: silences.to_vec(), ..BASE };
    let cases = [
        Case { name: "nothing to do, for hours", reading: Reading { active: Some(100 * STALL), ..BASE }, want: Ok(()) },
        Case { name: "busy, and something happened lately", reading: busy(&[almost, SECOND]), want: Ok(()) },
        Case { name: "one of two is stuck", reading: busy(&[SECOND, STALL]), want: Err(Stuck::Key("q", STALL)) },
        Case { name: "the first key after a quiet hour", reading: waiting(1, SECOND, Some(100 * STALL)), want: Ok(()) },
        Case { name: "a long queue that moves", reading: waiting(9, 100 * STALL, Some(SECOND)), want: Ok(()) },
        Case {
            name: "keys wait and free workers take none",
            reading: waiting(3, STALL + SECOND, Some(2 * STALL)),
            want: Err(Stuck::Queue("q", 3, STALL + SECOND)),
        },
        Case {
            name: "keys wait because every worker is busy, and moves",
            reading: Reading { silences: vec![SECOND, SECOND], ..waiting(3, 2 * STALL, Some(2 * STALL)) },
            want: Ok(()),
        },
        Case { name: "before the term", reading: waiting(3, 2 * STALL, None), want: Ok(()) },
    ];
    for Case { name, reading, want } in cases {
        assert_eq!(reading.verdict(), want, "{name}");
    }
}

struct Rig {
    _scope: Scope,
    env: Environment,
    queue: Queue<&'static str>,
    pulse: Pulse,
}

fn rig(workers: usize) -> Rig {
    let scope = Scope::new();
    let (clock, metrics) = (Clock::virtual_from(clock::Timestamp::UNIX_EPOCH), Metrics::new());
    let queue = Queue::new("test", Backoff::default(), clock.clone(), &metrics);
    let pulse = Pulse::new(&queue, workers, clock.clone());
    let env = Environment { spawner: scope.spawner(), clock, metrics, stop: CancellationToken::new() };
    Rig { _scope: scope, env, queue, pulse }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_stuck_fails_the_check_and_one_that_moves_for_hours_never_does() {
    let Rig { env, queue, pulse, _scope } = rig(2);
    let _workers = Workers::start(&env, "test", &pulse, queue.clone(), |key| async move {
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
        assert_eq!(pulse.read().verdict(), Ok(()));
    }
    queue.add("hangs");
    sleep(STALL - SECOND).await;
    assert_eq!(pulse.read().verdict(), Ok(()));
    sleep(2 * SECOND).await;
    assert!(matches!(pulse.read().verdict(), Err(Stuck::Key("test", _))), "{:?}", pulse.read());
}

#[tokio::test(start_paused = true)]
async fn keys_that_nobody_takes_fail_the_check_until_somebody_does() {
    let Rig { env, queue, pulse, _scope } = rig(1);
    queue.add("a");
    sleep(2 * STALL).await;
    assert_eq!(pulse.read().verdict(), Ok(()), "the workers have not started");
    pulse.started();
    sleep(STALL + SECOND).await;
    assert!(matches!(pulse.read().verdict(), Err(Stuck::Queue("test", 1, _))), "{:?}", pulse.read());
    let sync = |_: &'static str| async { Ok::<_, Infallible>(Outcome::Done) };
    let _workers = Workers::start(&env, "test", &pulse, queue.clone(), sync);
    sleep(SECOND).await;
    assert_eq!(pulse.read().verdict(), Ok(()));
    assert_eq!(pulse.read(), Reading { workers: 1, queue: "test", ..BASE });
}

#[tokio::test(start_paused = true)]
async fn a_key_that_panics_or_fails_is_with_nobody_afterwards() {
    let Rig { env, queue, pulse, _scope } = rig(1);
    let _workers = Workers::start(&env, "test", &pulse, queue.clone(), |key: &'static str| async move {
        assert_ne!(key, "bad", "a key that panics");
        Ok::<_, Infallible>(Outcome::Done)
    });
    queue.add("bad");
    sleep(2 * STALL).await;
    assert!(pulse.read().silences.is_empty());
    assert_eq!(pulse.read().verdict(), Ok(()));
}
