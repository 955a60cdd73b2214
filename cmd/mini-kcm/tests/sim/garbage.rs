//! Objects with every kind of owner reference, under all faults: the guarantees of the garbage collector. Users delete
//! with all three propagation policies, change owners, and create successors with the same name.

mod checks;
mod kinds;
mod model;
mod other_controllers;
mod server_faults;
mod shown_objects;
mod users;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::json;
use test_cluster::DiscoveryFault;
use testing::sim::{Scenario, World};

use crate::manager::manager;
use kinds::{CONTROLLER, MAP, QUIET_GROUPS, ROLE, TYPES, WIDGET};
use model::Model;
pub(crate) use other_controllers::{deleted_cron_job, expired_job};
use server_faults::ServerFaults;
use users::{HOMES, Location, reference};

const MS: Duration = Duration::from_millis(1);
/// The Lease of the leader election.
const LEASE: &str = "kube-system/kube-controller-manager";
/// Only the garbage collector.
const ALONE: &str = "--controllers=garbage-collector-controller";
/// The time limit after the faults: a hung call, a frozen watch, an expiring Lease, discovery, and a back-off as long
/// as the faults lasted; and as many minutes as the breaker needs.
const TIME_LIMIT: Duration = Duration::from_secs(900);

/// How long a request may be delayed.
const LONGEST_DELAY: Duration = Duration::from_secs(90);

/// The model, shared with its readers.
type SharedModel = Arc<Mutex<Model>>;

/// For many seeds: two managers, objects of every kind, and users.
pub(crate) fn random() -> Scenario {
    Scenario::new("garbage", run_random)
}

/// For a sweep: the smallest scenario with every step.
pub(crate) fn swept() -> Scenario {
    Scenario::new("garbage, swept", run_swept)
}

async fn run_random(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let shared = start(&world);
    let faults = ServerFaults::intercept(&world);
    // Each additional group costs a dozen requests per start.
    if rng.u8(0..8) > 0 {
        hide(&world, &QUIET_GROUPS);
    }
    let mut flags = vec![if rng.u8(0..6) == 0 { "--controllers=*".to_owned() } else { ALONE.to_owned() }];
    if rng.u8(0..4) == 0 {
        let most = rng.u8(1..6);
        shared.lock().deletion_limit = Some(usize::from(most));
        flags.push(format!("--gc-max-deletes-per-minute={most}"));
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    for _ in 0..rng.u8(6..20) {
        users::create_random(&world, &mut rng);
    }
    if rng.u8(0..3) == 0 {
        users::create_cycle(&world, &mut rng);
    }
    world.run_elected("a", LEASE, manager(&flags));
    if rng.bool() {
        world.spawn("faults", faults.handle().run(world.clone(), shared.clone(), rng.fork()));
    }
    // In some runs the caches are complete long before the first deletion.
    let first = if rng.u8(0..3) == 0 { 60_000 } else { 3_000 };
    world.sleep(MS * rng.u32(0..first)).await;
    let slow = [300, 2_000, 8_000][rng.usize(..3)];
    world.spawn("users", users::change_randomly(world.clone(), slow, rng.fork()));
    world.sleep(MS * rng.u32(0..3_000)).await;
    world.run_elected("b", LEASE, manager(&flags));
    world.sleep(MS * rng.u32(4_000..40 * slow.clamp(1_000, 3_000))).await;
    world.calm();
    faults.end_all(&world, &shared);
    users::remove_finalizers(&world);
    wait_until_collected(&world, &shared).await
}

/// Each of the three propagation policies once, with the most different kinds.
async fn run_swept(world: World) -> Result<(), String> {
    let shared = start(&world);
    let _faults = ServerFaults::intercept(&world);
    hide(&world, &QUIET_GROUPS);
    hide(&world, &["apiregistration.k8s.io", "batch", "parts.example.com"]);
    let make = |of, name: &str, owners: &[(&Location, bool)]| {
        let at = Location::new(of, HOMES[0], name);
        let owners = owners.iter().filter_map(|(it, blocks)| Some(reference(&it.get(&world)?, *blocks)));
        at.create(&world, owners.collect::<Vec<_>>().into());
        at
    };
    let back = make(CONTROLLER, "back", &[]);
    let stays = make(ROLE, "stays", &[]);
    make(MAP, "alone", &[(&back, true)]);
    make(MAP, "shared", &[(&back, true), (&stays, false)]);
    let front = make(WIDGET, "front", &[]);
    let middle = make(MAP, "middle", &[(&front, true)]);
    make(WIDGET, "leaf", &[(&middle, true)]);
    let left = make(WIDGET, "left", &[]);
    make(MAP, "kept", &[(&left, true)]);
    make(WIDGET, "kept", &[(&left, false)]);
    world.run_elected("a", LEASE, manager(&[ALONE]));
    world.sleep(MS * 2_500).await;
    world.run_elected("b", LEASE, manager(&[ALONE]));
    back.delete(&world, "Background");
    world.sleep(MS * 1_500).await;
    front.delete(&world, "Foreground");
    world.sleep(MS * 1_500).await;
    left.delete(&world, "Orphan");
    world.sleep(MS * 1_500).await;
    // A successor with the same name owns nothing.
    left.create(&world, json!([]));
    world.sleep(MS * 3_000).await;
    world.calm();
    users::remove_finalizers(&world);
    wait_until_collected(&world, &shared).await
}

/// A cluster with every type, and with all guarantees checked.
fn start(world: &World) -> SharedModel {
    let shared = SharedModel::default();
    let (model, clock) = (shared.clone(), world.clock().clone());
    world.always("the guarantees of the garbage collector", move |write| {
        checks::check_write(&mut model.lock(), write, clock.now())
    });
    let (model, clock) = (shared.clone(), world.clock().clone());
    world.on_delivered(move |delivery| model.lock().shown.record(delivery, clock.now()));
    for home in HOMES {
        world.cluster().create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": home } }));
    }
    TYPES.iter().for_each(|it| kinds::define(world, it));
    shared
}

fn hide(world: &World, groups: &[&str]) {
    groups.iter().for_each(|it| world.cluster().fail_discovery(it, DiscoveryFault::Missing));
}

/// Objects without owners are deleted, no owner waits without a reason, and no reference names a deleted object.
async fn wait_until_collected(world: &World, shared: &SharedModel) -> Result<(), String> {
    // Delayed requests may still arrive, and removed types return. The present state is not final.
    world.sleep(LONGEST_DELAY).await;
    let over = || shared.lock().first_unfinished().is_none();
    let until = world.clock().now() + TIME_LIMIT;
    // The breaker may delay a deletion by minutes. Its dependents are only deleted after it.
    let ended = loop {
        let ended = world.eventually(TIME_LIMIT, "every object without a remaining owner is gone", over).await;
        if ended.is_ok() || world.clock().now() >= until {
            break ended;
        }
    };
    ended.map_err(|why| format!("{why}; {}", shared.lock().first_unfinished().unwrap_or_default()))
}
