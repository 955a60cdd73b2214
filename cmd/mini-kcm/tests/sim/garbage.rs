//! Objects that own each other in every way, while everything goes wrong: what the garbage collector promises, and users who
//! delete in all three ways, change owners, and make again under a name what is gone.

mod book;
mod chains;
mod kinds;
mod rules;
mod shown;
mod troubles;
mod users;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::json;
use test_cluster::DiscoveryFault;
use testing::sim::{Scenario, World};

use crate::manager::manager;
use book::Book;
pub(crate) use chains::{cron_job_goes, job_expires};
use kinds::{CONTROLLER, MAP, QUIET_GROUPS, ROLE, TYPES, WIDGET};
use troubles::Troubles;
use users::{At, HOMES, reference};

const MS: Duration = Duration::from_millis(1);
/// By which managers are elected.
const LEASE: &str = "kube-system/kube-controller-manager";
/// Nothing but the collector.
const ALONE: &str = "--controllers=garbage-collector-controller";
/// After the faults: a hung call, a frozen watch, an expiring lease, discovery, and the back-off of what failed as long as the
/// faults lasted; and as many minutes as the breaker needs.
const ENOUGH: Duration = Duration::from_secs(900);

/// A request may be on its way for so long.
const LATE: Duration = Duration::from_secs(90);

/// What the writes so far say, shared with who reads them.
type Shared = Arc<Mutex<Book>>;

/// For many seeds: two managers, objects of every kind, and users.
pub(crate) fn wild() -> Scenario {
    Scenario::new("garbage", random)
}

/// For a sweep: as little as shows every step.
pub(crate) fn small() -> Scenario {
    Scenario::new("garbage, swept", swept)
}

async fn random(world: World) -> Result<(), String> {
    let mut rng = world.rng();
    let shared = begins(&world);
    let troubles = Troubles::begin(&world);
    // Each group more is a dozen requests more for each start.
    if rng.u8(0..8) > 0 {
        hide(&world, &QUIET_GROUPS);
    }
    let mut flags = vec![if rng.u8(0..6) == 0 { "--controllers=*".to_owned() } else { ALONE.to_owned() }];
    if rng.u8(0..4) == 0 {
        let most = rng.u8(1..6);
        shared.lock().most = Some(usize::from(most));
        flags.push(format!("--gc-max-deletes-per-minute={most}"));
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    for _ in 0..rng.u8(6..20) {
        users::any(&world, &mut rng);
    }
    if rng.u8(0..3) == 0 {
        users::circle(&world, &mut rng);
    }
    world.run_elected("a", LEASE, manager(&flags));
    if rng.bool() {
        world.spawn("troubles", troubles.handle().happen(world.clone(), shared.clone(), rng.fork()));
    }
    // Some have known everything for long before anything is deleted.
    let first = if rng.u8(0..3) == 0 { 60_000 } else { 3_000 };
    world.sleep(MS * rng.u32(0..first)).await;
    let slow = [300, 2_000, 8_000][rng.usize(..3)];
    world.spawn("users", users::meddle(world.clone(), slow, rng.fork()));
    world.sleep(MS * rng.u32(0..3_000)).await;
    world.run_elected("b", LEASE, manager(&flags));
    world.sleep(MS * rng.u32(4_000..40 * slow.clamp(1_000, 3_000))).await;
    world.calm();
    troubles.mend(&world, &shared);
    users::settle(&world);
    ends(&world, &shared).await
}

/// Each of the three ways once, with what differs most.
async fn swept(world: World) -> Result<(), String> {
    let shared = begins(&world);
    let _troubles = Troubles::begin(&world);
    hide(&world, &QUIET_GROUPS);
    hide(&world, &["apiregistration.k8s.io", "batch", "parts.example.com"]);
    let make = |of, name: &str, owners: &[(&At, bool)]| {
        let at = At::new(of, HOMES[0], name);
        let owners = owners.iter().filter_map(|(it, blocks)| Some(reference(&it.get(&world)?, *blocks)));
        at.make(&world, owners.collect::<Vec<_>>().into());
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
    // Another one under its name owns nothing.
    left.make(&world, json!([]));
    world.sleep(MS * 3_000).await;
    world.calm();
    users::settle(&world);
    ends(&world, &shared).await
}

/// A cluster with every type, and with everything that is promised watched over.
fn begins(world: &World) -> Shared {
    let shared = Shared::default();
    let (book, clock) = (shared.clone(), world.clock().clone());
    world.always("the book", move |write| rules::look(&mut book.lock(), write, clock.now()));
    let (book, clock) = (shared.clone(), world.clock().clone());
    world.seen(move |seen| book.lock().shown.take(seen, clock.now()));
    for home in HOMES {
        world.cluster().create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": home } }));
    }
    TYPES.iter().for_each(|it| kinds::define(world, it));
    shared
}

fn hide(world: &World, groups: &[&str]) {
    groups.iter().for_each(|it| world.cluster().fail_discovery(it, DiscoveryFault::Missing));
}

/// What has no owner left goes, what is to wait for nothing waits no more, and nothing names who is gone.
async fn ends(world: &World, shared: &Shared) -> Result<(), String> {
    // Requests are on their way still, and types come that went: what is true now need not be then.
    world.sleep(LATE).await;
    let over = || shared.lock().missing().is_none();
    let until = world.clock().now() + ENOUGH;
    // What the breaker holds back may go minutes later, and only then what depends on it is to go.
    let ended = loop {
        let ended = world.eventually(ENOUGH, "what has no owner left is gone", over).await;
        if ended.is_ok() || world.clock().now() >= until {
            break ended;
        }
    };
    ended.map_err(|why| format!("{why}; {}", shared.lock().missing().unwrap_or_default()))
}
