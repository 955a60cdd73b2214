//! A real informer of pods against the test cluster, with random faults.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use api::{Pod, PodIndex, Uid};
use client::{Clients, Connection, Limits, Term};
use clock::Clock;
use fastrand::Rng;
use futures::FutureExt;
use metrics::Metrics;
use parking_lot::Mutex;
use serde_json::json;
use tasks::Scope;
use test_cluster::{Interception, TestCluster};

use crate::{Cause, Environment, Informer, Informers, Proved, prove};

const SECOND: Duration = Duration::from_secs(1);

struct Sim {
    cluster: TestCluster,
    clients: Clients,
    informers: Informers,
    clock: Clock,
    scope: Scope,
}

fn sim(seed: u64) -> Sim {
    let clock = Clock::virtual_from(clock::Timestamp::UNIX_EPOCH);
    let cluster = TestCluster::with_seed(clock.clone(), seed);
    let (metrics, scope) = (Metrics::new(), Scope::new());
    let environment = client::Environment {
        clock: clock.clone(),
        metrics: metrics.clone(),
        term: Term::endless(clock.clone()),
        stop: tokio_util::sync::CancellationToken::new(),
        user_agent: "test".to_owned(),
    };
    let clients = Clients::new(Connection::in_memory(cluster.service()), environment);
    let informers = Informers::new(Environment {
        watcher: clients.watcher(Limits::NONE),
        clock: clock.clone(),
        metrics,
        spawner: scope.spawner(),
        rng_seed: seed,
    });
    Sim { cluster, clients, informers, clock, scope }
}

impl Sim {
    fn create(&self, name: &str, owner: &str) {
        self.cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default",
                "ownerReferences": [
                    { "apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": true },
                ],
            },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
        }));
    }

    fn exists(&self, name: &str) -> bool {
        self.cluster.get("pods", "default", name).is_some()
    }

    /// Creates, changes or deletes one of a few objects.
    fn change(&self, rng: &mut Rng) {
        let name = format!("p{}", rng.u8(0..8));
        match (self.exists(&name), rng.u8(0..3)) {
            (false, _) => self.create(&name, &format!("owner-{}", rng.u8(0..2))),
            (true, 0) => self.cluster.remove("pods", "default", &name),
            (true, _) => {
                let node = format!("node-{}", rng.u8(0..3));
                self.cluster.update("pods", "default", &name, |pod| pod["spec"]["nodeName"] = json!(node));
            }
        }
    }

    /// Injects a random fault.
    fn fault(&self, rng: &mut Rng) {
        match rng.u8(0..8) {
            0 => self.cluster.break_watches("pods"),
            1 => self.cluster.end_watches("pods"),
            2 => self.cluster.freeze_watches("pods"),
            3 => self.cluster.compact(),
            4 => {
                // The events in between are lost and cannot be resumed.
                self.cluster.break_watches("pods");
                self.cluster.intercept(|_| Interception::Fail);
            }
            5 => self.cluster.intercept(|call| match call.parameter("sendInitialEvents").as_str() {
                "true" => Interception::status(422, "Invalid", "no streams here"),
                _ => Interception::Pass,
            }),
            6 => self.cluster.intercept(|_| Interception::status(429, "TooManyRequests", "later")),
            _ => self.cluster.stop_intercepting(),
        }
    }

    /// The version and node of each existing object, by name.
    fn cluster_state(&self) -> BTreeMap<String, (String, String)> {
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let pods = self.cluster.list("pods", "default").into_iter();
        pods.map(|pod| {
            let meta = &pod["metadata"];
            (text(&meta["name"]), (text(&meta["resourceVersion"]), text(&pod["spec"]["nodeName"])))
        })
        .collect()
    }
}

fn observed_state(pod: &Pod) -> (String, (String, String)) {
    (pod.meta.name.to_string(), (pod.meta.version.to_string(), pod.node.to_string()))
}

/// Records the changes that a handler gets, and asserts that every `old` is the state that it got before.
fn follow(informer: &Informer<Pod>) -> Arc<Mutex<BTreeMap<String, (String, String)>>> {
    let observed: Arc<Mutex<BTreeMap<_, _>>> = Arc::default();
    let keep = observed.clone();
    informer.add_handler("follower", Some(50 * SECOND), move |change| {
        let mut observed = keep.lock();
        let readable =
            |entry: Option<&api::Entry<Pod>>| entry.and_then(|it| it.readable()).map(|it| observed_state(it));
        match (readable(change.old), readable(change.new)) {
            (old, Some((name, new))) => {
                let before = observed.insert(name, new);
                assert_eq!(before, old.map(|(_, old)| old), "{:?}", change.cause);
            }
            (Some((name, _)), None) => assert!(observed.remove(&name).is_some(), "deleted without having been added"),
            (None, None) => panic!("a change without objects"),
        }
        assert!(change.cause != Cause::Resync || change.old.is_some());
    });
    observed
}

#[tokio::test(start_paused = true)]
async fn after_faults_store_indexes_and_handlers_agree_with_the_cluster() {
    for seed in 0..12 {
        let mut rng = Rng::with_seed(seed);
        let sim = sim(seed);
        let informer = sim.informers.typed::<Pod>();
        let early = follow(&informer);
        let mut late = None;
        for step in 0..80 {
            (0..rng.u8(0..4)).for_each(|_| sim.change(&mut rng));
            if rng.u8(0..3) == 0 {
                sim.fault(&mut rng);
            }
            if step == 40 {
                late = Some(follow(&informer));
            }
            tokio::time::sleep(Duration::from_millis(rng.u64(1..8_000))).await;
        }
        sim.cluster.stop_intercepting();
        sim.cluster.unfreeze_watches("pods");
        // Long enough for the back-off and for the time in which a frozen watch is replaced.
        tokio::time::sleep(180 * SECOND).await;
        sim.change(&mut rng);
        tokio::time::sleep(SECOND).await;

        let cluster_state = sim.cluster_state();
        let entries = informer.store().entries();
        let stored: BTreeMap<_, _> = entries.iter().map(|it| observed_state(it.readable().unwrap())).collect();
        assert_eq!(stored, cluster_state, "seed {seed}");
        assert_eq!(*early.lock(), cluster_state, "seed {seed}");
        assert_eq!(*late.unwrap().lock(), cluster_state, "seed {seed}");
        let owners = ["owner-0", "owner-1"].map(|owner| PodIndex::Owner(Uid::new(owner)));
        let owned: usize = owners.iter().map(|owner| informer.store().by_index(owner).unwrap().len()).sum();
        assert_eq!(owned, cluster_state.len(), "seed {seed}");
        assert_eq!(sim.scope.panicked().now_or_never(), None, "seed {seed}");
        sim.informers.shut_down().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_frozen_watch_is_healed_within_90_s_by_another_watch() {
    let sim = sim(1);
    sim.create("before", "owner");
    let informer = sim.informers.typed::<Pod>();
    informer.watched().wait_for_sync().await;
    for round in 0..4 {
        sim.cluster.clear_requests();
        sim.cluster.freeze_watches("pods");
        let name = format!("during-{round}");
        sim.create(&name, "owner");
        tokio::time::sleep(90 * SECOND).await;
        assert!(informer.store().get("default", &name).unwrap().is_some(), "round {round}");
        let requests = sim.cluster.requests();
        assert!(
            requests.iter().all(|it| it.parameter("watch") == "true" && it.parameter("sendInitialEvents").is_empty())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_proves_its_cache_by_watch() {
    let sim = sim(2);
    let informer = sim.informers.typed::<Pod>();
    informer.watched().wait_for_sync().await;
    tokio::time::sleep(SECOND).await;
    // Objects of other types move the version that a list returns.
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "other" } });
    sim.cluster.create(namespace);
    let reads = sim.clients.unfenced("proof", Limits::NONE);
    let began = sim.clock.now();
    let proved = prove(&*informer.watched(), &reads, &sim.clock, None).await.unwrap();
    assert_eq!(proved, Proved::ByWatch);
    assert!(sim.clock.now() - began < 4 * SECOND);
    assert_eq!(informer.store().version(), Some(sim.cluster.version().into()));
}
