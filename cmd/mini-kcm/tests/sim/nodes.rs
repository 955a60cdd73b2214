//! Nodes that die, flap, sleep and return, under all faults: the guarantees of the node lifecycle controller, of taint
//! eviction, of the pod garbage collector and of the node TTL controller.

mod checks;
mod goal;
mod kubelets;
mod model;
mod node_checks;
mod pod_checks;
mod settings;
mod timeline;
mod users;
mod zones;

use std::{sync::Arc, time::Duration};

use clock::{Clock, Instant};
use fastrand::Rng;
use parking_lot::Mutex;
use serde_json::json;
use testing::sim::{Scenario, World};

use crate::manager::manager;
use goal::first_unfinished;
use kubelets::{Link, Machine, Machines, Power};
use model::{Model, NOT_READY, OUT_OF_SERVICE, UNREACHABLE};
use settings::Settings;
use timeline::Point;
use users::Edits;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
/// The namespace of the pods.
const HOME: &str = "work";
/// The namespace of the Leases of nodes.
const NODE_LEASES: &str = "kube-node-lease";
const PODS: &str = "pods";
const NODES: &str = "nodes";
const LEASES: &str = "leases.coordination.k8s.io";
/// The largest difference, in seconds, between a wall clock and its start, so that waits for a timeAdded stay short.
const MAX_JUMP: i64 = 20;
/// The Lease of the leader election.
const LEASE: &str = "kube-system/kube-controller-manager";

type Checked = Result<(), String>;

/// The cluster, its machines, and the model of what is stored.
#[derive(Clone)]
struct SimulatedCluster {
    world: World,
    /// Must not be locked during a write, which locks it.
    model: Arc<Mutex<Model>>,
    machines: Arc<Mutex<Machines>>,
    /// The clocks of all processes so far, and what operators have added to their wall time, in seconds.
    clocks: Arc<Mutex<Vec<(Clock, i64)>>>,
}

/// For many seeds: two managers, up to three zones, and users. One run in five has no faults, so that the checks allow
/// no delay.
pub(crate) fn random() -> Scenario {
    Scenario::new("nodes", run_random)
}

/// For a sweep: the smallest scenario with every step.
pub(crate) fn swept() -> Scenario {
    Scenario::new("nodes, swept", run_swept)
}

async fn run_random(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let has_faults = rng.u8(0..5) > 0;
    if !has_faults {
        world.calm();
    }
    let settings = Settings::random(&mut rng, has_faults);
    let cluster = start(&world, settings, &mut rng);
    create_random_nodes(&cluster, &mut rng);
    for number in 0..rng.u8(2..8) {
        users::create_random_pod(&cluster, &format!("p{number}"), &mut rng);
    }
    run_manager(&cluster, "a", &settings);
    if has_faults && rng.u8(0..3) == 0 {
        world.spawn("clocks", set_clocks_randomly(cluster.clone(), rng.fork()));
    }
    let edits = Edits::random(&mut rng);
    world.spawn("users", users::change_randomly(cluster.clone(), edits, has_faults, rng.fork()));
    world.sleep(MS * rng.u32(0..8_000)).await;
    run_manager(&cluster, "b", &settings);
    world.sleep(MS * edits.duration(&mut rng)).await;
    finish(&cluster).await
}

/// Up to three zones: one with up to eight nodes, the others smaller.
fn create_random_nodes(cluster: &SimulatedCluster, rng: &mut Rng) {
    let mut zones = ["a", "b", "old", "both", ""];
    rng.shuffle(&mut zones);
    let (some, mut number) = (rng.usize(1..4), 0);
    for (place, zone) in zones.into_iter().take(some).enumerate() {
        for _ in 0..rng.u8(2..if place == 0 { 9 } else { 5 }) {
            users::create_node(cluster, &format!("n{number}"), zone, rng);
            number += 1;
        }
    }
}

async fn run_swept(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let settings = Settings::swept();
    let cluster = start(&world, settings, &mut rng);
    for (name, zone) in [("n0", "a"), ("n1", "a"), ("n2", "b")] {
        users::create_node(&cluster, name, zone, &mut rng);
    }
    let tolerates = |key: &str, seconds: u8| {
        let time = json!(seconds);
        json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": time })
    };
    users::create_pod(&cluster, "on-n0", "n0", vec![tolerates(NOT_READY, 5)], false);
    users::create_pod(&cluster, "on-n1", "n1", vec![tolerates(UNREACHABLE, 8), tolerates(NOT_READY, 8)], false);
    users::create_pod(&cluster, "on-n2", "n2", vec![tolerates("k", 4)], false);
    run_manager(&cluster, "a", &settings);
    world.sleep(MS * 3_000).await;
    run_manager(&cluster, "b", &settings);
    // One node dies, one is not ready for a while, and one gets a taint and loses it.
    let set = |name: &str, change: fn(&mut Machine)| users::change_one_machine(&cluster, name, change);
    set("n1", |it| it.power = Power::Dead);
    set("n0", |it| it.is_ready = false);
    world.sleep(MS * 14_000).await;
    set("n0", |it| it.is_ready = true);
    users::add_taint(&cluster, "n2", json!({ "key": "k", "effect": "NoExecute" }));
    world.sleep(MS * 2_000).await;
    users::remove_taint(&cluster, "n2", &["k"], "NoExecute");
    world.sleep(MS * 18_000).await;
    set("n2", |it| it.set_link(Link::LeaseOnly));
    users::add_taint(&cluster, "n1", json!({ "key": OUT_OF_SERVICE, "effect": "NoExecute" }));
    world.sleep(MS * 4_000).await;
    users::create_pod(&cluster, "late", "n1", vec![json!({ "operator": "Exists" })], false);
    world.cluster().remove(NODES, "", "n1");
    world.sleep(MS * 3_000).await;
    finish(&cluster).await
}

fn run_manager(cluster: &SimulatedCluster, name: &'static str, settings: &Settings) {
    let flags = settings.flags();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let (main, clocks) = (manager(&flags), cluster.clocks.clone());
    cluster.world.run_elected(name, LEASE, move |process| {
        clocks.lock().push((process.clock.clone(), 0));
        main(process)
    });
}

/// Operators set the wall clocks of managers, forward and back.
async fn set_clocks_randomly(cluster: SimulatedCluster, mut rng: Rng) {
    while !cluster.is_over() {
        cluster.world.sleep(MS * rng.u32(500..20_000)).await;
        let mut clocks = cluster.clocks.lock();
        if let Some((clock, added)) = rng.choice(clocks.iter_mut()) {
            let wanted = rng.i64(-MAX_JUMP..=MAX_JUMP);
            clock.jump(wanted - *added);
            *added = wanted;
        }
    }
}

/// A cluster with kubelets, and with all guarantees checked.
fn start(world: &World, settings: Settings, rng: &mut Rng) -> SimulatedCluster {
    let clock = world.clock().clone();
    let started = Point { version: world.cluster().version(), at: clock.now() };
    let model = Arc::new(Mutex::new(Model::new(settings, started)));
    let cluster = SimulatedCluster {
        world: world.clone(),
        model: model.clone(),
        machines: Arc::default(),
        clocks: Arc::default(),
    };
    let (checked, now) = (model.clone(), clock.clone());
    world.always("the guarantees of the node controllers", move |write| {
        checks::check_write(&mut checked.lock(), write, now.now())
    });
    world.on_delivered(move |delivery| {
        if [NODES, PODS, LEASES].contains(&delivery.resource) {
            model.lock().shown.record(delivery, clock.now());
        }
    });
    checks::check_requests(&cluster);
    world.cluster().create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HOME } }));
    world.spawn("kubelets", kubelets::run(cluster.clone(), rng.fork()));
    cluster
}

/// The faults end, and everything reaches its final state.
async fn finish(cluster: &SimulatedCluster) -> Result<(), String> {
    cluster.world.calm();
    cluster.machines.lock().end_run();
    let settings = cluster.model.lock().settings;
    // A decision that was right before may still be under way.
    cluster.world.sleep(settings.in_flight).await;
    let (limit, what) = (settings.time_limit(), "every node and every pod is in its final state");
    cluster.world.eventually_complete(limit, what, || first_unfinished(cluster)).await
}

impl SimulatedCluster {
    fn now(&self) -> Instant {
        self.world.clock().now()
    }

    fn is_over(&self) -> bool {
        self.machines.lock().is_over
    }
}
