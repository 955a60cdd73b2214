use std::{
    convert::Infallible,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use clock::Clock;
use runner::{Environment, Outcome, Workers};
use tasks::Scope;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use workqueue::{Backoff, Queue};

use super::*;

/// A store that has come as far as a test says.
struct Store {
    resource: Resource,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    version: Version,
    waiting: Vec<(Version, Box<dyn FnOnce() + Send>)>,
    /// Where the store jumps to between being asked and being told to wake.
    overtakes: Option<Version>,
}

impl Store {
    fn at(plural: &str, version: &str) -> Arc<Self> {
        let resource = Resource::namespaced("", "v1", plural, "");
        Arc::new(Self { resource, state: Mutex::new(State { version: Version::new(version), ..State::default() }) })
    }

    fn advance(&self, version: &str) {
        let version = Version::new(version);
        let mut state = self.state.lock();
        state.version = version.clone();
        let (woken, waiting) = state.waiting.drain(..).partition(|it| !version.is_older_than(&it.0));
        state.waiting = waiting;
        drop(state);
        let woken: Vec<_> = woken;
        woken.into_iter().for_each(|it| (it.1)());
    }
}

impl Progress for Store {
    fn resource(&self) -> &Resource {
        &self.resource
    }

    fn passed(&self, version: &Version) -> bool {
        !self.state.lock().version.is_older_than(version)
    }

    fn when_passed(&self, version: Version, wake: Box<dyn FnOnce() + Send>) -> bool {
        let mut state = self.state.lock();
        if let Some(version) = state.overtakes.take() {
            state.version = version;
        }
        let passed = !state.version.is_older_than(&version);
        if !passed {
            state.waiting.push((version, wake));
        }
        passed
    }
}

struct Rig {
    gate: Gate,
    metrics: Metrics,
    woken: Arc<AtomicU32>,
}

fn rig() -> Rig {
    let metrics = Metrics::new();
    let gate = Gate::new("daemonset_controller", "DaemonSet", &metrics);
    Rig { gate, metrics, woken: Arc::default() }
}

impl Rig {
    fn wrote(&self, owner: &str, store: &Arc<Store>, version: &str) {
        let cache: Arc<dyn Progress> = store.clone();
        self.gate.wrote(&Uid::new(owner), &cache, &Version::new(version));
    }

    fn behind(&self, owner: &str) -> Option<Duration> {
        let woken = self.woken.clone();
        self.gate.behind(&Uid::new(owner), move || {
            woken.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn record(&self, owner: &str) -> Vec<String> {
        let records = self.gate.records.lock();
        records.get(&Uid::new(owner)).map_or(vec![], |it| it.iter().map(|it| it.version.to_string()).collect())
    }

    fn woken(&self) -> u32 {
        self.woken.load(Ordering::SeqCst)
    }
}

#[test]
fn acceptance_common_045_a_store_that_is_behind_keeps_the_record_and_wakes_when_it_has_caught_up() {
    let (rig, pods) = (rig(), Store::at("pods", "99"));
    assert_eq!(rig.behind("a"), None, "nothing was written");
    rig.wrote("a", &pods, "100");
    assert_eq!(rig.behind("a"), Some(PARKED));
    assert_eq!((rig.record("a"), rig.woken()), (vec!["100".to_owned()], 0));
    let skips = "daemonset_controller_stale_sync_skips_total{group=\"\",resource=\"pods\"} 1";
    assert!(rig.metrics.encode().contains(skips), "{}", rig.metrics.encode());

    pods.advance("100");
    assert_eq!(rig.woken(), 1);
    assert_eq!(rig.behind("a"), None);
    assert!(rig.gate.records.lock().is_empty());
    assert!(rig.metrics.encode().contains(skips), "a pass is no skip");
}

#[test]
fn acceptance_common_046_versions_are_compared_as_numbers() {
    let (rig, pods) = (rig(), Store::at("pods", "9"));
    rig.wrote("a", &pods, "10");
    assert!(rig.behind("a").is_some());
    let (rig, pods) = (self::rig(), Store::at("pods", "10"));
    rig.wrote("a", &pods, "9");
    assert_eq!(rig.behind("a"), None);
}

#[test]
fn acceptance_common_047_versions_that_cannot_be_compared_block_nobody() {
    for (store, written) in [("", "5"), ("x1", "5"), ("07", "9"), ("5", ""), ("5", "x9"), ("5", "0")] {
        let (rig, pods) = (rig(), Store::at("pods", store));
        rig.wrote("a", &pods, written);
        assert_eq!(rig.behind("a"), None, "store {store:?}, written {written:?}");
    }
    let (rig, pods) = (rig(), Store::at("pods", "4"));
    rig.wrote("a", &pods, "5");
    rig.wrote("a", &pods, "malformed");
    assert_eq!(rig.record("a"), ["5"], "and does not replace one that can");
}

#[test]
fn acceptance_common_048_the_highest_version_is_remembered() {
    let (rig, pods) = (rig(), Store::at("pods", "1"));
    rig.wrote("a", &pods, "5");
    rig.wrote("a", &pods, "3");
    assert_eq!(rig.record("a"), ["5"]);
    rig.wrote("a", &pods, "6");
    assert_eq!(rig.record("a"), ["6"]);
}

#[test]
fn acceptance_common_049_a_successor_has_a_record_of_its_own() {
    let (rig, pods) = (rig(), Store::at("pods", "1"));
    rig.wrote("a", &pods, "5");
    rig.wrote("b", &pods, "6");
    rig.gate.forget(&Uid::new("a")); // As the delete handler does.
    assert!(rig.record("a").is_empty());
    rig.gate.forget(&Uid::new("a"));
    assert_eq!(rig.record("b"), ["6"]);
}

#[test]
fn acceptance_common_050_concurrent_first_writes_lose_none() {
    let (rig, pods, jobs) = (rig(), Store::at("pods", "1"), Store::at("jobs", "1"));
    thread::scope(|scope| {
        for at in 1..=100u32 {
            let (rig, pods, jobs) = (&rig, &pods, &jobs);
            scope.spawn(move || rig.wrote("a", if at % 2 == 0 { pods } else { jobs }, &(100 + at).to_string()));
        }
    });
    let mut record = rig.record("a");
    record.sort();
    assert_eq!(record, ["199", "200"]);
    assert_eq!(rig.gate.records.lock().len(), 1);
}

#[test]
fn every_type_must_have_caught_up() {
    let (rig, pods, jobs) = (rig(), Store::at("pods", "1"), Store::at("jobs", "1"));
    rig.wrote("a", &pods, "5");
    rig.wrote("a", &jobs, "7");
    assert!(rig.behind("a").is_some());
    pods.advance("5");
    assert_eq!(rig.woken(), 1);
    assert!(rig.behind("a").is_some());
    jobs.advance("9");
    assert_eq!((rig.woken(), rig.behind("a")), (2, None));
}

#[test]
fn a_store_that_catches_up_between_check_and_registration_parks_nobody() {
    let (rig, pods, jobs) = (rig(), Store::at("pods", "1"), Store::at("jobs", "1"));
    rig.wrote("a", &pods, "5");
    pods.state.lock().overtakes = Some(Version::new("5"));
    assert_eq!(rig.behind("a"), None);

    // With another type still behind, the wake is not lost with the first.
    rig.wrote("a", &pods, "6");
    rig.wrote("a", &jobs, "7");
    pods.state.lock().overtakes = Some(Version::new("6"));
    assert!(rig.behind("a").is_some());
    jobs.advance("7");
    assert_eq!(rig.woken(), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_024_a_key_behind_its_own_write_is_parked_writes_nothing_and_wakes_with_the_store() {
    let (scope, metrics, stop) = (Scope::new(), Metrics::new(), CancellationToken::new());
    let clock = Clock::virtual_from(clock::Timestamp::UNIX_EPOCH);
    let queue = Queue::new("test", Backoff::default(), clock.clone(), &metrics);
    let gate = Arc::new(Gate::new("test", "Test", &metrics));
    let pods = Store::at("pods", "99");
    let writes = Arc::new(Mutex::new(Vec::new()));
    let sync = {
        let (queue, gate, clock, writes, pods) =
            (queue.clone(), gate.clone(), clock.clone(), writes.clone(), pods.clone());
        let start = clock.now();
        move |key: &'static str| {
            let wake = {
                let queue = queue.clone();
                move || queue.add(key)
            };
            let behind = gate.behind(&Uid::new(key), wake);
            if behind.is_none() {
                writes.lock().push(clock.now() - start);
                let cache: Arc<dyn Progress> = pods.clone();
                gate.wrote(&Uid::new(key), &cache, &Version::from(100));
            }
            async move { Ok::<_, Infallible>(behind.map_or(Outcome::Done, Outcome::Parked)) }
        }
    };
    let env = Environment { spawner: scope.spawner(), clock, metrics: metrics.clone(), stop };
    let _workers = Workers::start(&env, "test", 2, queue.clone(), sync);

    queue.add("a");
    sleep(Duration::from_secs(1)).await;
    queue.add("a");
    sleep(Duration::from_secs(40)).await; // Longer than a key is parked: it looks again, and parks again.
    assert_eq!(*writes.lock(), [Duration::ZERO], "no write while the cache is behind");
    assert_eq!(queue.failures(&"a"), 0, "parked, not rate-limited");
    assert!(metrics.encode().contains("test_stale_sync_skips_total{group=\"\",resource=\"pods\"} 2"));

    pods.advance("100");
    sleep(Duration::from_millis(1)).await;
    assert_eq!(*writes.lock(), [Duration::ZERO, Duration::from_secs(41)], "woken at once");
}
