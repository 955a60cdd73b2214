use std::{
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use crate::{Backoff, Outcome, Queue, WorkerHealth, Workers};
use api::{Node, Pod, Typed};
use client::{ApiError, Clients, Connection, Limits, Term};
use clock::Clock;
use informer::Informers;
use serde_json::{Value, json};
use tasks::Scope;
use test_cluster::{Interception, TestCluster};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A store with real informers of an in-memory cluster.
struct Rig {
    cluster: TestCluster,
    clients: Clients,
    informers: Informers,
    consistency: Arc<ConsistencyStore>,
    clock: Clock,
    metrics: Metrics,
    scope: Scope,
    wakes: Arc<AtomicU32>,
}

fn rig() -> Rig {
    let clock = Clock::virtual_from(clock::Timestamp::UNIX_EPOCH);
    let cluster = TestCluster::new(clock.clone());
    let (metrics, scope) = (Metrics::new(), Scope::new());
    let environment = client::Environment {
        clock: clock.clone(),
        metrics: metrics.clone(),
        term: Term::endless(clock.clone()),
        stop: CancellationToken::new(),
        user_agent: "test".to_owned(),
    };
    let clients = Clients::new(Connection::in_memory(cluster.service()), environment);
    let informers = Informers::new(informer::Environment {
        watcher: clients.watcher(Limits::NONE),
        clock: clock.clone(),
        metrics: metrics.clone(),
        spawner: scope.spawner(),
        rng_seed: 1,
    });
    let consistency =
        Arc::new(ConsistencyStore::new("daemonset_controller", "DaemonSet", true, &metrics, clock.clone()));
    Rig { cluster, clients, informers, consistency, clock, metrics, scope, wakes: Arc::default() }
}

impl Rig {
    /// A synced cache.
    async fn cache<T: Typed>(&self) -> Arc<dyn Watched> {
        let watched = self.informers.typed::<T>().watched();
        watched.wait_for_sync().await;
        watched
    }

    /// A synced cache of pods at `version`, which shows no later version until it is thawed.
    async fn pods_at(&self, version: u64) -> Arc<dyn Watched> {
        self.write_up_to(version);
        let pods = self.cache::<Pod>().await;
        assert_eq!(pods.store_version(), Some(version.into()));
        self.cluster.freeze_watches("pods");
        pods
    }

    /// Creates pods until the cluster is at `version`.
    fn write_up_to(&self, version: u64) {
        while self.cluster.version() < version {
            let mut pod = pod();
            pod["metadata"]["name"] = json!(format!("p{}", self.cluster.version()));
            self.cluster.create(pod);
        }
    }

    /// Lets the caches of this resource show the delayed events.
    async fn thaw(&self, resource: &str) {
        self.cluster.unfreeze_watches(resource);
        sleep(Duration::from_millis(1)).await;
    }

    fn record_write(&self, owner: &str, cache: &Arc<dyn Watched>, version: &str) {
        self.consistency.record_write(&Uid::new(owner), cache, &Version::new(version));
    }

    fn park_if_stale(&self, owner: &str) -> Option<Duration> {
        let wakes = self.wakes.clone();
        self.consistency.park_or_wake(&Uid::new(owner), move || {
            wakes.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn record(&self, owner: &str) -> Vec<String> {
        let records = self.consistency.records.lock();
        records.get(&Uid::new(owner)).map_or(vec![], |it| it.iter().map(|it| it.version.to_string()).collect())
    }

    fn wakes(&self) -> u32 {
        self.wakes.load(Ordering::SeqCst)
    }

    fn skips(&self, resource: &str) -> Option<String> {
        let series = format!("daemonset_controller_stale_sync_skips_total{{group=\"\",resource=\"{resource}\"}} ");
        self.metrics.encode().lines().find_map(|it| it.strip_prefix(&series).map(str::to_owned))
    }
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "generateName": "p-", "namespace": "default" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    })
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_045_a_stale_store_keeps_the_record_and_enqueues_when_it_has_caught_up() {
    let rig = rig();
    let pods = rig.pods_at(99).await;
    assert_eq!(rig.park_if_stale("a"), None, "nothing was written");
    rig.write_up_to(100);
    rig.record_write("a", &pods, "100");
    assert_eq!(rig.park_if_stale("a"), Some(PARKED));
    assert_eq!((rig.record("a"), rig.wakes()), (vec!["100".to_owned()], 0));
    assert_eq!(rig.skips("pods").as_deref(), Some("1"));

    rig.thaw("pods").await;
    assert_eq!(rig.wakes(), 1);
    assert_eq!(rig.park_if_stale("a"), None);
    assert!(rig.consistency.records.lock().is_empty());
    assert_eq!(rig.skips("pods").as_deref(), Some("1"), "a sync that runs is not a skip");
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_046_versions_are_compared_as_numbers() {
    let rig = rig();
    let pods = rig.pods_at(99).await;
    rig.record_write("a", &pods, "100");
    assert!(rig.park_if_stale("a").is_some());
    let rig = self::rig();
    let pods = rig.pods_at(100).await;
    rig.record_write("a", &pods, "99");
    assert_eq!(rig.park_if_stale("a"), None);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_047_versions_that_cannot_be_compared_do_not_block() {
    for (store, written) in [("", "5"), ("x1", "5"), ("07", "9"), ("0", "9")] {
        let rig = rig();
        let annotations = json!({ "k8s.io/initial-events-end": "true" });
        let metadata = json!({ "resourceVersion": store, "annotations": annotations });
        let object = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata });
        let first_set = format!("{}\n", json!({ "type": "BOOKMARK", "object": object }));
        rig.cluster.intercept(move |call| match call.parameter("sendInitialEvents").as_str() {
            "true" => Interception::text(200, &first_set),
            _ => Interception::Hang,
        });
        let pods = rig.cache::<Pod>().await;
        assert_eq!(pods.store_version(), Some(Version::new(store)));
        rig.record_write("a", &pods, written);
        assert_eq!(rig.record("a"), [written]);
        assert_eq!(rig.park_if_stale("a"), None, "store {store:?}, written {written:?}");
        assert!(rig.record("a").is_empty());
    }

    let rig = rig();
    let pods = rig.pods_at(99).await;
    for written in ["", "x99", "0", "0100"] {
        rig.record_write("a", &pods, written);
        assert_eq!(rig.park_if_stale("a"), None, "written {written:?}");
    }
    rig.record_write("a", &pods, "malformed");
    rig.record_write("a", &pods, "100");
    rig.record_write("a", &pods, "malformed");
    assert_eq!(rig.record("a"), ["100"], "a version that cannot be compared does not replace it");
}

#[tokio::test(start_paused = true)]
async fn an_unsynced_cache_shows_no_write_and_enqueues_after_its_first_list() {
    let rig = rig();
    rig.write_up_to(99);
    rig.cluster.intercept(|_| Interception::Delay(SECOND));
    let pods = rig.informers.typed::<Pod>().watched();
    rig.record_write("a", &pods, "99");
    assert_eq!(rig.park_if_stale("a"), Some(PARKED));
    pods.wait_for_sync().await;
    assert_eq!((rig.wakes(), rig.park_if_stale("a")), (1, None));
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_048_the_highest_version_is_recorded() {
    let rig = rig();
    let pods = rig.pods_at(99).await;
    rig.record_write("a", &pods, "102");
    rig.record_write("a", &pods, "101");
    assert_eq!(rig.record("a"), ["102"]);
    rig.write_up_to(101);
    rig.thaw("pods").await;
    assert!(pods.has_passed(&101.into()) && rig.park_if_stale("a").is_some(), "the lower version is not enough");
    rig.record_write("a", &pods, "103");
    assert_eq!(rig.record("a"), ["103"]);
    rig.write_up_to(103);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.park_if_stale("a"), None);
}

/// Records are by uid, so a new object of the same name has its own record. The delete handler removes the record of
/// the old one.
#[tokio::test(start_paused = true)]
async fn acceptance_common_049_a_new_owner_of_the_same_name_has_its_own_record() {
    let rig = rig();
    let pods = rig.pods_at(99).await;
    rig.record_write("a", &pods, "105");
    rig.record_write("b", &pods, "106");
    rig.consistency.remove(&Uid::new("a")); // Like the delete handler.
    assert!(rig.record("a").is_empty());
    rig.consistency.remove(&Uid::new("a"));
    assert_eq!(rig.record("b"), ["106"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_common_050_concurrent_first_writes_are_all_recorded() {
    let rig = rig();
    let (pods, nodes) = (rig.cache::<Pod>().await, rig.cache::<Node>().await);
    thread::scope(|scope| {
        for at in 1..=100u32 {
            let (rig, pods, nodes) = (&rig, &pods, &nodes);
            scope.spawn(move || rig.record_write("a", if at % 2 == 0 { pods } else { nodes }, &(100 + at).to_string()));
        }
    });
    let mut record = rig.record("a");
    record.sort();
    assert_eq!(record, ["199", "200"]);
    assert_eq!(rig.consistency.records.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn every_type_must_have_caught_up() {
    let rig = rig();
    let (pods, nodes) = (rig.pods_at(99).await, rig.cache::<Node>().await);
    rig.cluster.freeze_watches("nodes");
    rig.write_up_to(100);
    rig.cluster.create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n" } }));
    rig.record_write("a", &pods, "100");
    rig.record_write("a", &nodes, "101");
    assert!(rig.park_if_stale("a").is_some());
    rig.thaw("pods").await;
    assert_eq!(rig.wakes(), 1);
    assert!(rig.park_if_stale("a").is_some(), "the callback of the other type remains");
    assert_eq!((rig.skips("pods").as_deref(), rig.skips("nodes").as_deref()), (Some("1"), Some("1")));
    rig.thaw("nodes").await;
    assert_eq!((rig.wakes(), rig.park_if_stale("a")), (2, None));
}

#[tokio::test(start_paused = true)]
async fn a_key_parked_repeatedly_adds_one_callback_for_each_version() {
    let rig = rig();
    let pods = rig.pods_at(99).await;
    rig.record_write("a", &pods, "100");
    for _ in 0..100 {
        assert_eq!(rig.park_if_stale("a"), Some(PARKED));
    }
    assert_eq!(rig.skips("pods").as_deref(), Some("100"), "each attempt is counted");
    rig.record_write("a", &pods, "101");
    rig.record_write("a", &pods, "101");
    for _ in 0..100 {
        assert_eq!(rig.park_if_stale("a"), Some(PARKED));
    }
    rig.write_up_to(101);
    rig.thaw("pods").await;
    assert_eq!((rig.wakes(), rig.park_if_stale("a")), (2, None), "one for 100 and one for 101");

    rig.cluster.freeze_watches("pods");
    rig.record_write("a", &pods, "102");
    assert_eq!(rig.park_if_stale("a"), Some(PARKED));
    rig.write_up_to(102);
    rig.thaw("pods").await;
    assert_eq!((rig.wakes(), rig.park_if_stale("a")), (3, None), "a later write adds a callback");
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_024_a_key_with_an_unobserved_write_is_parked_until_the_store_shows_it() {
    let rig = rig();
    let pods = rig.cache::<Pod>().await;
    rig.cluster.freeze_watches("pods");
    let queue = Queue::new("test", Backoff::default(), rig.clock.clone(), &rig.metrics);
    let api = rig.clients.controller("test", Limits::NONE);
    let sync = {
        let (queue, consistency) = (queue.clone(), rig.consistency.clone());
        move |key: &'static str| {
            let (queue, consistency, api, pods) = (queue.clone(), consistency.clone(), api.clone(), pods.clone());
            async move {
                let owner = Uid::new(key);
                if let Some(limit) = consistency.park_if_stale(&owner, &queue, &key) {
                    return Ok::<_, ApiError>(Outcome::Parked(limit));
                }
                let written = api.create(pods.resource(), "default", &pod()).await?;
                consistency.record_write(&owner, &pods, &written.version);
                Ok(Outcome::Done)
            }
        }
    };
    let env = crate::Environment {
        spawner: rig.scope.spawner(),
        clock: rig.clock.clone(),
        metrics: rig.metrics.clone(),
        stop: CancellationToken::new(),
    };
    let _workers = Workers::start(&env, "test", &WorkerHealth::new(&queue, 2, env.clock.clone()), queue.clone(), sync);
    let start = rig.clock.now();
    let writes = || {
        let calls = rig.cluster.requests().into_iter().filter(|it| it.verb == "create");
        calls.map(|it| (it.at - start).as_secs()).collect::<Vec<_>>()
    };

    queue.add("a");
    sleep(SECOND).await;
    queue.add("a");
    sleep(40 * SECOND).await; // Longer than a key is parked, so it is synced and parked again.
    assert_eq!(writes(), [0], "no write while the cache is behind");
    assert_eq!(queue.failures(&"a"), 0, "parked, not rate-limited");
    assert_eq!(rig.skips("pods").as_deref(), Some("2"));

    rig.thaw("pods").await;
    assert_eq!(writes(), [0, 41], "enqueued at once");
}

/// After etcd was restored to an older state, versions start again from an earlier number.
#[tokio::test(start_paused = true)]
async fn a_write_that_the_cache_never_shows_is_awaited_until_a_later_complete_list() {
    let rig = rig();
    let pods = rig.pods_at(99).await;
    let snapshot = rig.cluster.snapshot();
    rig.cluster.unfreeze_watches("pods");
    rig.write_up_to(500);
    sleep(SECOND).await;
    rig.cluster.freeze_watches("pods");
    rig.write_up_to(501);
    rig.record_write("a", &pods, "501");
    assert_eq!(rig.park_if_stale("a"), Some(PARKED));
    rig.cluster.restore_versions_too(&snapshot);
    rig.thaw("pods").await;
    assert_eq!((rig.wakes(), rig.park_if_stale("a")), (0, Some(PARKED)));
    rig.cluster.end_watches("pods");
    // The server accepts a watch from a future version, so nothing shows the restored state yet.
    let mut is_first = true;
    rig.cluster.intercept(move |call| {
        let is_watch = call.parameter("watch") == "true" || call.parameter("watch") == "1";
        if is_watch && std::mem::replace(&mut is_first, false) {
            return Interception::status(410, "Expired", "too old");
        }
        Interception::Pass
    });
    sleep(60 * SECOND).await;
    assert_eq!(pods.store_version(), Some(99.into()));
    assert_eq!((rig.wakes(), rig.park_if_stale("a")), (1, None), "enqueued, and not parked again");
    // Later writes are awaited as before.
    rig.cluster.freeze_watches("pods");
    rig.write_up_to(100);
    rig.record_write("a", &pods, "100");
    assert_eq!(rig.park_if_stale("a"), Some(PARKED));
    rig.thaw("pods").await;
    assert_eq!((rig.wakes(), rig.park_if_stale("a")), (2, None));
}

#[tokio::test(start_paused = true)]
async fn a_list_requested_before_a_write_does_not_show_it() {
    let rig = rig();
    let pods = rig.pods_at(99).await;
    rig.record_write("a", &pods, "200");
    sleep(SECOND / 100).await;
    // The list takes one second, and another write happens meanwhile.
    rig.cluster.intercept(|_| Interception::Delay(SECOND));
    pods.relist_consistently();
    sleep(SECOND / 2).await;
    rig.record_write("a", &pods, "150");
    sleep(SECOND).await;
    assert_eq!(rig.park_if_stale("a"), Some(PARKED));
    pods.relist_consistently();
    sleep(2 * SECOND).await;
    assert_eq!(rig.park_if_stale("a"), None);
}
