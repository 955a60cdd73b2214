use clock::Clock;
use proptest::{
    prelude::*,
    test_runner::{Config, RngSeed, TestRunner},
};

use super::*;

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn core() -> (Core<u8>, Instant) {
    (Core::new(Backoff::default()), Clock::system().now())
}

/// Takes all queued keys, without calling `done`.
fn take_all(core: &mut Core<u8>, now: Instant) -> Vec<u8> {
    std::iter::from_fn(|| core.get(now).map(|it| it.key)).collect()
}

#[test]
fn acceptance_machinery_026_a_key_added_three_times_is_returned_once() {
    let (mut core, now) = core();
    assert_eq!(core.add(1, Lane::Now, now), Added::Queued);
    assert_eq!(core.add(1, Lane::Now, now), Added::Nothing);
    assert_eq!(core.add(1, Lane::Slow, now), Added::Nothing);
    assert_eq!(core.len(), 1);
    assert_eq!(core.get(now + secs(3)), Some(Taken { key: 1, waited: secs(3) }));
    assert_eq!(core.get(now), None);
}

#[test]
fn acceptance_machinery_027_028_a_key_in_processing_is_returned_again_only_after_done() {
    let (mut core, now) = core();
    core.add(1, Lane::Now, now);
    assert_eq!(take_all(&mut core, now), [1]);
    assert_eq!(core.add(1, Lane::Now, now), Added::Later);
    assert_eq!(core.add(1, Lane::Now, now), Added::Nothing);
    assert_eq!((core.get(now), core.len()), (None, 0), "a second worker gets nothing");
    assert_eq!(core.done(&1, now + secs(2)), Some(secs(2)));
    assert_eq!(take_all(&mut core, now), [1], "the key comes exactly once more");
    core.done(&1, now);
    assert!(take_all(&mut core, now).is_empty());
    assert_eq!(core.done(&1, now), None, "a second done has no effect");
}

#[test]
fn acceptance_machinery_032_the_earliest_of_two_delays_fires_once() {
    let (mut core, now) = core();
    core.add_after(1, now + secs(10));
    core.add_after(1, now + secs(1));
    core.add_after(1, now + secs(5));
    assert_eq!(core.next_deadline(), Some(now + secs(1)));
    assert_eq!(core.enqueue_due(now + Duration::from_millis(999)), 0);
    assert_eq!(core.enqueue_due(now + secs(1)), 1);
    assert_eq!((core.enqueue_due(now + secs(100)), core.next_deadline()), (0, None));
    assert_eq!(take_all(&mut core, now), [1]);
}

#[test]
fn a_cancelled_delay_does_not_fire_and_a_later_one_counts() {
    let (mut core, now) = core();
    core.add_after(1, now + secs(1));
    core.add_after(2, now + secs(3));
    core.cancel_delay(&1);
    assert_eq!(core.next_deadline(), Some(now + secs(3)));
    core.add_after(1, now + secs(5));
    core.cancel_delay(&3);
    assert_eq!((core.enqueue_due(now + secs(4)), core.enqueue_due(now + secs(5))), (1, 1));
    assert_eq!(take_all(&mut core, now), [2, 1]);
    core.add(4, Lane::Now, now);
    core.cancel_delay(&4);
    assert_eq!(take_all(&mut core, now), [4], "a queued key stays");
}

#[test]
fn an_immediate_add_does_not_cancel_a_delayed_one() {
    let (mut core, now) = core();
    core.add_after(1, now + secs(10));
    core.add(1, Lane::Now, now);
    assert_eq!(take_all(&mut core, now), [1]);
    core.done(&1, now);
    assert_eq!(core.enqueue_due(now + secs(10)), 1);
    assert_eq!(take_all(&mut core, now), [1]);
}

#[test]
fn acceptance_machinery_033_shutdown_returns_queued_keys_drops_delayed_ones_and_accepts_no_new_ones() {
    let (mut core, now) = core();
    core.add(1, Lane::Now, now);
    core.add(2, Lane::Slow, now);
    core.add_after(3, now + secs(1));
    core.shut_down();
    assert_eq!(core.add(4, Lane::Now, now), Added::Nothing);
    core.add_after(5, now + secs(1));
    assert_eq!((core.enqueue_due(now + secs(9)), core.next_deadline()), (0, None));
    assert_eq!(take_all(&mut core, now), [1, 2]);
    assert!(!core.is_drained(), "workers still have both keys");
    core.done(&1, now);
    core.done(&2, now);
    assert!(core.is_drained());
}

#[test]
fn a_closed_queue_returns_no_further_key() {
    let (mut core, now) = core();
    for key in [1, 2, 3] {
        core.add(key, Lane::Now, now);
    }
    let taken = core.get(now).unwrap().key;
    core.add(taken, Lane::Now, now);
    core.close();
    assert_eq!(core.get(now), None);
    core.done(&taken, now);
    assert_eq!(core.get(now), None, "a key that was added while a worker had it is removed too");
    assert!(core.is_drained());
}

#[test]
fn changed_keys_are_served_first_and_the_slow_lane_gets_its_share() {
    let (mut core, now) = core();
    for key in 0..16 {
        core.add(100 + key, Lane::Slow, now);
        core.add(key, Lane::Now, now);
    }
    let order = take_all(&mut core, now);
    assert_eq!(order[..16], [0, 1, 2, 3, 4, 5, 6, 100, 7, 8, 9, 10, 11, 12, 13, 101]);
    assert_eq!(order[16..18], [14, 15]);
    assert_eq!(order[18..], [102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115]);
}

#[test]
fn a_slow_key_that_changes_now_moves_up() {
    let (mut core, now) = core();
    for key in [1, 2, 3] {
        core.add(key, Lane::Slow, now);
    }
    assert_eq!(core.add(3, Lane::Now, now + secs(1)), Added::Nothing);
    assert_eq!(core.len(), 3);
    assert_eq!(
        core.get(now + secs(2)),
        Some(Taken { key: 3, waited: secs(2) }),
        "the waiting time begins at the first add"
    );
    // Its old entry in the slow lane must not let it pass 1 and 2 later.
    core.done(&3, now);
    core.add(3, Lane::Slow, now);
    assert_eq!(take_all(&mut core, now), [1, 2, 3]);
}

#[test]
fn a_key_added_while_a_worker_has_it_is_queued_in_the_better_lane() {
    let (mut core, now) = core();
    core.add(1, Lane::Now, now);
    core.get(now);
    core.add(1, Lane::Slow, now);
    core.add(1, Lane::Now, now);
    core.add(2, Lane::Slow, now);
    core.done(&1, now);
    assert_eq!(take_all(&mut core, now), [1, 2]);
}

#[test]
fn a_delay_beyond_the_clock_does_not_overflow() {
    let (mut core, now) = core();
    core.add_after(1, add_capped(now, Duration::MAX));
    assert_eq!(core.enqueue_due(now + secs(1)), 0);
}

/// A simple and slow model of the queue.
#[derive(Default)]
struct Model {
    /// Every queued key with its lane; the order within a lane is the order of the vector.
    waiting: Vec<(u8, Lane)>,
    processing: Vec<u8>,
    /// Keys that were added while a worker had them.
    again: Vec<(u8, Lane)>,
    delayed: Vec<(Instant, u8)>,
    passed_over: u32,
    shut_down: bool,
}

impl Model {
    fn add(&mut self, key: u8, lane: Lane) {
        if self.shut_down {
            return;
        }
        if self.processing.contains(&key) {
            match self.again.iter_mut().find(|it| it.0 == key) {
                None => self.again.push((key, lane)),
                Some(it) if lane == Lane::Now => it.1 = Lane::Now,
                Some(_) => {}
            }
            return;
        }
        match self.waiting.iter().position(|it| it.0 == key) {
            None => self.waiting.push((key, lane)),
            Some(at) if self.waiting[at].1 == Lane::Slow && lane == Lane::Now => {
                self.waiting.remove(at);
                self.waiting.push((key, Lane::Now));
            }
            Some(_) => {}
        }
    }

    fn add_after(&mut self, key: u8, at: Instant) {
        if self.shut_down || self.delayed.iter().any(|it| it.1 == key && it.0 <= at) {
            return;
        }
        self.delayed.retain(|it| it.1 != key);
        self.delayed.push((at, key));
    }

    fn enqueue_due(&mut self, now: Instant) {
        self.delayed.sort_by_key(|it| it.0); // Stable: keys of one instant keep their order.
        while self.delayed.first().is_some_and(|it| it.0 <= now) {
            let (_, key) = self.delayed.remove(0);
            self.add(key, Lane::Now);
        }
    }

    fn get(&mut self) -> Option<u8> {
        let first = |lane| self.waiting.iter().position(|it| it.1 == lane);
        let at = match (first(Lane::Now), first(Lane::Slow)) {
            (Some(now), Some(_)) if self.passed_over < SLOW_SHARE - 1 => {
                self.passed_over += 1;
                now
            }
            (now, slow) => {
                self.passed_over = 0;
                slow.or(now)?
            }
        };
        let (key, _) = self.waiting.remove(at);
        self.processing.push(key);
        Some(key)
    }

    fn done(&mut self, key: u8) {
        self.processing.retain(|it| *it != key);
        if let Some(at) = self.again.iter().position(|it| it.0 == key) {
            let again = self.again.remove(at);
            self.waiting.push(again);
        }
    }

    fn close(&mut self) {
        self.shut_down = true;
        self.delayed.clear();
        self.waiting.clear();
        self.again.clear();
    }
}

#[derive(Debug, Clone)]
enum Step {
    Add(u8, Lane),
    AddAfter(u8, u64),
    CancelDelay(u8),
    Get,
    /// Calls `done` for one of the keys that workers have, by its index.
    Done(usize),
    Wait(u64),
    ShutDown,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let lane = prop_oneof![Just(Lane::Now), Just(Lane::Slow)];
    let step = prop_oneof![
        60 => (0u8..12, lane).prop_map(|(key, lane)| Step::Add(key, lane)),
        30 => (0u8..12, 0u64..20).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        10 => (0u8..12).prop_map(Step::CancelDelay),
        60 => Just(Step::Get),
        50 => (0usize..12).prop_map(Step::Done),
        20 => (0u64..8).prop_map(Step::Wait),
        1 => Just(Step::ShutDown),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 1..200)
}

#[test]
fn behaves_as_the_naive_model_under_random_operations() {
    let config = Config { cases: 2_000, rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..Config::default() };
    let check = |steps: Vec<Step>| {
        let (mut core, mut now) = core();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Add(key, lane) => {
                    core.add(key, lane, now);
                    model.add(key, lane);
                }
                Step::AddAfter(key, delay) => {
                    core.add_after(key, now + secs(delay));
                    model.add_after(key, now + secs(delay));
                }
                Step::CancelDelay(key) => {
                    core.cancel_delay(&key);
                    model.delayed.retain(|it| it.1 != key);
                }
                Step::Get => {
                    core.enqueue_due(now);
                    model.enqueue_due(now);
                    prop_assert_eq!(core.get(now).map(|it| it.key), model.get());
                }
                Step::Done(at) if !model.processing.is_empty() => {
                    let key = model.processing[at % model.processing.len()];
                    core.done(&key, now);
                    model.done(key);
                }
                Step::Done(_) => {}
                Step::Wait(time) => now += secs(time),
                Step::ShutDown => {
                    core.shut_down();
                    model.shut_down = true;
                    model.delayed.clear();
                }
                Step::Close => {
                    core.close();
                    model.close();
                }
            }
            prop_assert_eq!(core.len(), model.waiting.len());
            prop_assert_eq!(core.next_deadline(), model.delayed.iter().map(|it| it.0).min());
            prop_assert_eq!(core.running().count(), model.processing.len());
            let drained = model.shut_down && model.waiting.is_empty() && model.processing.is_empty();
            prop_assert_eq!(core.is_drained(), drained);
        }
        Ok(())
    };
    TestRunner::new(config).run(&steps(), check).unwrap();
}

#[test]
fn the_oldest_key_is_the_first_of_the_lane_that_waits_longer() {
    const SLOW: u8 = 1;
    const NOW: u8 = 2;
    let (mut core, begin) = core();
    assert_eq!(core.oldest(), None);
    core.add(SLOW, Lane::Slow, begin + secs(1));
    core.add(NOW, Lane::Now, begin + secs(2));
    assert_eq!(core.oldest(), Some(begin + secs(1)));
    core.add(SLOW, Lane::Now, begin + secs(3));
    assert_eq!(core.oldest(), Some(begin + secs(2)), "its old entry is ignored");
    assert_eq!(core.get(begin + secs(4)).map(|it| it.key), Some(NOW));
    assert_eq!(core.oldest(), Some(begin + secs(1)), "the waiting time begins at the first add");
    core.get(begin + secs(4));
    assert_eq!(core.oldest(), None);
}
