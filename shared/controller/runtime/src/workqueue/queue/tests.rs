use std::{
    collections::HashSet,
    future::{Future, poll_fn},
    sync::atomic::{AtomicU32, Ordering},
};

use futures::FutureExt;
use tokio::{
    task::{JoinHandle, yield_now},
    time::sleep,
};

use super::*;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);

fn queue(backoff: Backoff) -> (Queue<u32>, Clock, Metrics) {
    let (clock, metrics) = (Clock::virtual_from(clock::Timestamp::UNIX_EPOCH), Metrics::new());
    (Queue::new("test", backoff, clock.clone(), &metrics), clock, metrics)
}

/// Runs every task that can run, without advancing time.
async fn run_ready_tasks() {
    for _ in 0..100 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_is_returned_to_a_waiting_get_at_its_time() {
    let (queue, clock, _) = queue(Backoff::default());
    let start = clock.now();
    queue.add_after(1, 10_000 * MS);
    let getter = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await }
    });
    run_ready_tasks().await;
    queue.add_after(1, 1_000 * MS);
    assert_eq!(getter.await.unwrap(), Some(1));
    assert_eq!(clock.now() - start, 1_000 * MS);
    queue.done(&1);
    assert!(tokio::time::timeout(Duration::from_secs(60), queue.get()).await.is_err(), "it fires once");
}

/// Three tasks that wait for a key. Each takes one and ends.
async fn waiting_getters(queue: &Queue<u32>, clock: &Clock) -> Vec<JoinHandle<(Option<u32>, Instant)>> {
    let getters = (0..3).map(|_| {
        let (queue, clock) = (queue.clone(), clock.clone());
        tokio::spawn(async move { (queue.get().await, clock.now()) })
    });
    let getters = getters.collect();
    run_ready_tasks().await;
    getters
}

#[tokio::test(start_paused = true)]
async fn a_timer_remains_when_its_get_returns_another_key() {
    let (queue, clock, _) = queue(Backoff::default());
    let start = clock.now();
    let getters = waiting_getters(&queue, &clock).await;
    queue.add_after(1, 10 * MS);
    run_ready_tasks().await;
    queue.add(2);
    queue.add_after(3, 20 * MS);
    let mut got = Vec::new();
    for getter in getters {
        let (key, at) = getter.await.unwrap();
        got.push((key.unwrap(), at - start));
    }
    got.sort_unstable();
    assert_eq!(got, [(1, 10 * MS), (2, Duration::ZERO), (3, 20 * MS)]);
}

#[tokio::test(start_paused = true)]
async fn keys_that_are_due_together_are_returned_together() {
    let (queue, clock, _) = queue(Backoff::default());
    let start = clock.now();
    let getters = waiting_getters(&queue, &clock).await;
    (1..=3).for_each(|it| queue.add_after(it, 10 * MS));
    for getter in getters {
        let (key, at) = getter.await.unwrap();
        assert_eq!((key.is_some(), at - start), (true, 10 * MS));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_wakes_one_worker_and_another_waits_for_the_next() {
    let (queue, clock, _) = queue(Backoff::default());
    let (polls, last) = (Arc::new(AtomicU32::new(0)), clock.now() + 100 * SEC);
    for _ in 0..8 {
        let (queue, polls) = (queue.clone(), polls.clone());
        tokio::spawn(async move {
            loop {
                let mut get = pin!(queue.get());
                let key = poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    get.as_mut().poll(context)
                });
                queue.done(&key.await.unwrap());
            }
        });
    }
    (1..=100).for_each(|it| queue.add_after(it, it * SEC));
    run_ready_tasks().await;
    polls.store(0, Ordering::Relaxed);
    tokio::time::sleep_until(last + MS).await;
    assert!(queue.is_empty());
    // One poll returns the key, one waits for the lock again, and one other worker takes it.
    let polls = polls.load(Ordering::Relaxed);
    assert!((200..=330).contains(&polls), "{polls}");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_is_kept_when_the_get_that_waits_for_it_is_dropped() {
    let (queue, clock, _) = queue(Backoff::default());
    queue.add_after(1, 10 * SEC);
    let mut first = Box::pin(queue.get());
    assert!(first.as_mut().now_or_never().is_none());
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await }
    });
    run_ready_tasks().await;
    let start = clock.now();
    drop(first);
    assert_eq!((second.await.unwrap(), clock.now() - start), (Some(1), 10 * SEC));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_getter_loses_no_notification() {
    let (queue, ..) = queue(Backoff::default());
    let mut first = Box::pin(queue.get());
    let second = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await }
    });
    tokio::select! { biased; _ = &mut first => panic!("no key is queued"), () = run_ready_tasks() => {} }
    queue.add(1); // Notifies the getter that has waited longest.
    drop(first);
    assert_eq!(second.await.unwrap(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_key_queued_again_by_done_is_returned_to_another_get() {
    let (queue, ..) = queue(Backoff::default());
    queue.add(1);
    assert_eq!(queue.get().await, Some(1));
    queue.add(1);
    let other = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await }
    });
    run_ready_tasks().await;
    queue.done(&1); // This worker takes no further key.
    assert_eq!(tokio::time::timeout(Duration::from_secs(9), other).await.unwrap().unwrap(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn retries_back_off_until_forget() {
    let (queue, clock, _) = queue(Backoff::default());
    let mut waits = Vec::new();
    for _ in 0..3 {
        let start = clock.now();
        queue.add_rate_limited(1);
        queue.get().await.unwrap();
        queue.done(&1);
        waits.push(clock.now() - start);
    }
    assert_eq!(waits, [5 * MS, 10 * MS, 20 * MS]);
    assert_eq!(queue.failures(&1), 3);
    queue.forget(&1);
    assert_eq!((queue.failures(&1), queue.add_rate_limited(1)), (0, 5 * MS));
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_034_drain_returns_after_the_last_done() {
    let (queue, clock, _) = queue(Backoff::default());
    let start = clock.now();
    for key in 0..4 {
        queue.add(key);
    }
    for _ in 0..2 {
        let queue = queue.clone();
        tokio::spawn(async move {
            while let Some(key) = queue.get().await {
                sleep(1_000 * MS).await;
                queue.done(&key);
            }
        });
    }
    run_ready_tasks().await;
    queue.drain().await;
    assert_eq!(clock.now() - start, 2_000 * MS);
    assert_eq!(queue.get().await, None);
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_every_waiting_getter_and_close_removes_the_keys() {
    let (queue, ..) = queue(Backoff::default());
    let getters: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await })
        })
        .collect();
    run_ready_tasks().await;
    queue.shut_down();
    for getter in getters {
        assert_eq!(getter.await.unwrap(), None);
    }

    let (queue, ..) = self::queue(Backoff::default());
    (0..5).for_each(|key| queue.add(key));
    queue.close();
    assert_eq!((queue.len(), queue.get().await), (0, None));
    queue.drain().await;
}

/// Many getters on several threads. Keys are added from outside, by timers, and while a worker has them. Each add must
/// be followed by a sync.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_add_is_lost_and_no_key_has_two_workers() {
    const KEYS: u32 = 64;
    const ROUNDS: u32 = 300;
    let queue = Queue::new("busy", Backoff::default(), Clock::system(), &Metrics::new());
    let wanted: Arc<Vec<AtomicU32>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
    let seen: Arc<Vec<AtomicU32>> = Arc::new((0..KEYS).map(|_| AtomicU32::new(0)).collect());
    let in_work = Arc::new(Mutex::new(HashSet::new()));
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (queue, wanted, seen, in_work) = (queue.clone(), wanted.clone(), seen.clone(), in_work.clone());
            tokio::spawn(async move {
                while let Some(key) = queue.get().await {
                    assert!(in_work.lock().insert(key), "two workers have key {key}");
                    let newest = wanted[key as usize].load(Ordering::SeqCst);
                    yield_now().await;
                    seen[key as usize].store(newest, Ordering::SeqCst);
                    in_work.lock().remove(&key);
                    queue.done(&key);
                }
            })
        })
        .collect();
    for round in 1..=ROUNDS {
        for key in 0..KEYS {
            wanted[key as usize].store(round, Ordering::SeqCst);
            match (key + round) % 3 {
                0 => queue.add(key),
                1 => queue.add_to(key, Lane::Slow),
                _ => queue.add_after(key, Duration::from_micros(u64::from(key))),
            }
        }
        if round % 16 == 0 {
            yield_now().await;
        }
    }
    // A lost notification would leave a key unprocessed forever. Without one, this loop ends by itself.
    let all_synced = async {
        while (0..KEYS as usize).any(|key| seen[key].load(Ordering::SeqCst) != ROUNDS) {
            yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all_synced).await.expect("every add must be followed by a sync");
    queue.drain().await;
    for worker in workers {
        worker.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_035_a_named_queue_has_seven_series_and_an_idle_one_has_no_depth() {
    let (queue, _, metrics) = queue(Backoff::default());
    let has = |line: &str| {
        let text = metrics.encode();
        assert!(text.lines().any(|it| it == line), "{line} is not in\n{text}");
    };
    queue.add(1);
    queue.add(2);
    queue.add_after(3, 1_000 * MS);
    has("workqueue_depth{name=\"test\"} 2");
    assert_eq!((queue.get().await, queue.get().await), (Some(1), Some(2)));
    sleep(1_500 * MS).await;
    has("workqueue_depth{name=\"test\"} 1"); // The third key is due, and no getter waits for it.
    has("workqueue_unfinished_work_seconds{name=\"test\"} 3");
    has("workqueue_longest_running_processor_seconds{name=\"test\"} 1.5");
    queue.done(&1);
    queue.done(&2);
    queue.get().await;
    queue.done(&3);

    has("workqueue_depth{name=\"test\"} 0");
    has("workqueue_adds_total{name=\"test\"} 3");
    has("workqueue_retries_total{name=\"test\"} 1");
    has("workqueue_queue_duration_seconds_count{name=\"test\"} 3");
    has("workqueue_queue_duration_seconds_bucket{name=\"test\",le=\"0.00000001\"} 3");
    has("workqueue_work_duration_seconds_bucket{name=\"test\",le=\"1\"} 1");
    has("workqueue_work_duration_seconds_bucket{name=\"test\",le=\"10\"} 3");
    has("workqueue_unfinished_work_seconds{name=\"test\"} 0");
    has("workqueue_longest_running_processor_seconds{name=\"test\"} 0");
}

#[tokio::test(start_paused = true)]
async fn queues_share_families_and_leave_them_when_dropped() {
    let (one, clock, metrics) = queue(Backoff::default());
    let two = Queue::new("other", Backoff::default(), clock, &metrics);
    one.add(1);
    two.add(1);
    two.add(2);
    let text = metrics.encode();
    assert!(text.contains("workqueue_depth{name=\"test\"} 1") && text.contains("workqueue_depth{name=\"other\"} 2"));
    assert_eq!(text.matches("# TYPE workqueue_depth gauge").count(), 1);
    drop(two);
    assert!(!metrics.encode().contains("workqueue_depth{name=\"other\"}"));
}
