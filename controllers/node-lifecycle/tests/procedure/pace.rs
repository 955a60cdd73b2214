//! At which pace the nodes of a zone are tainted.

use std::{collections::BTreeMap, time::Duration};

use harness::{Manager, failure, pass};
use node_lifecycle_controller::Options;
use serde_json::json;

use crate::world::{MS, SEC, World, ZONE, is_punctual, names, of_zone};

/// A world with `alive` nodes, which stay ready, and `dead` nodes of this zone.
fn zone(world: &World, zone: &str, alive: usize, dead: usize) -> (Vec<String>, Vec<String>) {
    let (alive, dead) = (names(&format!("{zone}-alive"), alive), names(&format!("{zone}-dead"), dead));
    alive.iter().chain(&dead).for_each(|it| world.add_in(zone, it));
    (alive, dead)
}

/// Starts a manager and waits until the second 55: the first of the dead nodes is tainted, and the others wait in their
/// order for the second 60.5 and later.
async fn until_waiting(world: &World, alive: &[String], dead: &[String]) -> Manager {
    let manager = world.start().await;
    for (number, node) in (1..).zip(dead) {
        world.sleep_until(number * 500 * MS).await;
        world.renew(node);
    }
    world.kubelets(alive, 55 * SEC).await;
    assert_eq!(world.tainted(), [(dead[0].clone(), 50)]);
    manager
}

fn seconds(world: &World) -> Vec<u64> {
    world.tainted().into_iter().map(|it| it.1).collect()
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_012_five_dead_nodes_of_a_hundred_are_tainted_ten_seconds_apart() {
    let world = World::new();
    let (alive, dead) = zone(&world, "z", 95, 5);
    let manager = world.start().await;
    world.kubelets(&alive, 120 * SEC).await;
    for (number, (node, at)) in (0..).zip(world.taintings()) {
        assert!(dead.contains(&node) && is_punctual(at, (50 + 10 * number) * SEC), "{node} {at:?}");
    }
    assert_eq!(world.taintings().len(), 5);
    assert_eq!(of_zone(&manager, "evictions_total", "z"), 5);
    assert!(dead.iter().all(|it| world.no_schedule(it) == ["unreachable"]));
    assert_eq!(world.call_times("patch nodes/status").last().unwrap().as_secs(), 50, "the conditions do not wait");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_016_a_large_zone_with_33_of_60_nodes_down_is_tainted_at_the_reduced_rate() {
    let world = World::new();
    let (alive, dead) = zone(&world, "z", 27, 33);
    let _manager = world.start().await;
    dead.iter().for_each(|it| world.post(it, "False"));
    world.kubelets(&alive, 40 * SEC).await;
    assert_eq!(seconds(&world), [0]);
    let all: Vec<String> = alive.iter().chain(&dead).cloned().collect();
    world.kubelets(&all, 310 * SEC).await;
    assert_eq!(seconds(&world), [0, 100, 200, 300]);
    // One comes back: 32 of 60.
    let back = dead.iter().find(|it| world.no_execute(it).is_empty()).unwrap();
    world.post(back, "True");
    world.kubelets(&all, 339 * SEC).await;
    let since = &seconds(&world)[4..];
    assert!(since.len() >= 2 && since[0] <= 315, "{since:?}: the zone is normal again");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_017_in_a_small_zone_with_28_of_50_nodes_down_none_is_tainted() {
    let world = World::new();
    let (alive, dead) = zone(&world, "z", 22, 28);
    let manager = world.start().await;
    dead.iter().for_each(|it| world.post(it, "False"));
    pass(10 * SEC).await;
    let all: Vec<String> = alive.iter().chain(&dead).cloned().collect();
    world.kubelets(&all, 300 * SEC).await;
    assert_eq!(world.taintings(), []);
    assert!(dead.iter().all(|it| world.no_schedule(it) == ["not-ready"]));
    assert_eq!(of_zone(&manager, "unhealthy_nodes_in_zone", "z"), 28);
    // 27 of 50 are 54 %.
    world.post(&dead[0], "True");
    world.kubelets(&all, 330 * SEC).await;
    let since = seconds(&world);
    assert!(since.len() >= 2 && since[0] >= 310 && since[0] <= 315, "{since:?}: the first one waits too");
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_was_set_before_the_zone_became_unhealthy_stays() {
    let world = World::new();
    let (alive, dead) = zone(&world, "z", 4, 2);
    let _manager = world.start().await;
    world.post(&dead[0], "False");
    pass(100 * MS).await;
    world.post(&dead[1], "False");
    [&alive[0], &alive[1]].iter().for_each(|it| world.post(it, "False"));
    world.kubelets(&[alive, dead.clone()].concat(), 100 * SEC).await;
    assert_eq!(world.tainted(), [(dead[0].clone(), 0)]);
    assert_eq!(world.no_execute(&dead[0]), ["not-ready"], "enhancements#5263");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_018_two_of_three_nodes_down_are_tainted_at_the_normal_pace() {
    let world = World::new();
    let (alive, _) = zone(&world, "z", 1, 2);
    let _manager = world.start().await;
    world.kubelets(&alive, 100 * SEC).await;
    assert_eq!(seconds(&world), [50, 60]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_021_a_zone_that_is_down_while_another_is_not_is_tainted_at_the_normal_pace() {
    let world = World::new();
    let (alive, _) = zone(&world, "x", 3, 0);
    zone(&world, "y", 0, 5);
    let _manager = world.start().await;
    world.kubelets(&alive, 110 * SEC).await;
    assert_eq!(seconds(&world), [50, 60, 70, 80, 90]);
}

#[tokio::test(start_paused = true)]
async fn zones_have_a_pace_of_their_own() {
    let world = World::new();
    let (alive_x, dead_x) = zone(&world, "x", 5, 2);
    let (alive_y, dead_y) = zone(&world, "y", 5, 2);
    let _manager = world.start().await;
    world.kubelets(&[alive_x, alive_y].concat(), 100 * SEC).await;
    assert_eq!(seconds(&world), [50, 50, 60, 60]);
    let first: Vec<String> = world.tainted().into_iter().take(2).map(|it| it.0).collect();
    assert!(first.iter().any(|it| dead_x.contains(it)) && first.iter().any(|it| dead_y.contains(it)));
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_022_excluded_nodes_do_not_count_and_are_tainted() {
    const KEY: &str = "node.kubernetes.io/exclude-disruption";
    // Five of six nodes would be a partial disruption.
    let world = World::with(&["alive"]);
    names("dead", 5).iter().for_each(|it| world.add_with(it, json!({ KEY: "" })));
    let manager = world.start().await;
    world.kubelets(&["alive"], 110 * SEC).await;
    assert_eq!(seconds(&world), [50, 60, 70, 80, 90]);
    assert_eq!(of_zone(&manager, "zone_size", ""), 1);

    // The only ready node does not count, so all zones are down.
    let world = World::with(&["dead"]);
    world.add_with("alive", json!({ KEY: "true" }));
    let _manager = world.start().await;
    world.kubelets(&["alive"], 200 * SEC).await;
    assert_eq!((world.ready("dead"), world.tainted()), ("Unknown".to_owned(), vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_zone_of_excluded_nodes_keeps_its_pace() {
    let world = World::with(&["alive"]);
    for node in ["a", "b"] {
        world.add_with(node, json!({ "node.kubernetes.io/exclude-disruption": "", ZONE: "z" }));
    }
    let _manager = world.start().await;
    world.sleep_until(6 * SEC).await;
    world.renew("b");
    world.kubelets(&["alive"], 100 * SEC).await;
    assert_eq!(world.tainted(), [("a".to_owned(), 50), ("b".to_owned(), 60)]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_023_zones_by_legacy_labels() {
    const LEGACY: &str = "failure-domain.beta.kubernetes.io/zone";
    let world = World::new();
    for (node, labels) in [
        ("x-alive", json!({ LEGACY: "x" })),
        ("x-dead", json!({ LEGACY: "x", ZONE: "same" })),
        ("y-alive", json!({ LEGACY: "y", ZONE: "same" })),
        ("y-dead", json!({ LEGACY: "y", ZONE: "same" })),
        ("same-dead", json!({ ZONE: "same" })),
        ("same-alive", json!({ ZONE: "same" })),
    ] {
        world.add_with(node, labels);
    }
    let manager = world.start().await;
    world.kubelets(&["x-alive", "y-alive", "same-alive"], 60 * SEC - MS).await;
    assert_eq!(seconds(&world), [50, 50, 50], "three zones");
    for zone in ["x", "y", "same"] {
        assert_eq!(of_zone(&manager, "zone_size", zone), 2, "{zone}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_a_rate_that_is_not_positive_no_node_is_tainted() {
    for rate in [0.0, -0.5] {
        let world = World::with(&["a", "b", "c"]);
        let _manager = world.start_with(Options { rate, ..Options::default() }).await;
        world.kubelets(&["c"], 300 * SEC).await;
        assert_eq!((world.ready("a"), world.tainted()), ("Unknown".to_owned(), vec![]), "{rate}");
        assert_eq!(world.no_schedule("a"), ["unreachable"]);
    }
}

#[tokio::test(start_paused = true)]
async fn rates_and_thresholds_of_the_user_apply() {
    let world = World::new();
    let (alive, _) = zone(&world, "z", 2, 4);
    let options = Options { rate: 1.0, secondary_rate: 0.5, large_zone: 5, unhealthy_zone: 0.6, ..Options::default() };
    let _manager = world.start_with(options).await;
    world.kubelets(&alive, 70 * SEC).await;
    assert_eq!(seconds(&world), [50, 52, 54, 56], "4 of 6 are 67 %, and the zone is large");
}

/// At a rate that is no limit.
#[tokio::test(start_paused = true)]
async fn each_of_many_silent_nodes_is_tainted_at_most_100_ms_after_its_own_grace_period() {
    let grace = 20 * SEC;
    let last = |number: u32| SEC + number * 97 * MS;
    let world = World::new();
    let (alive, dead) = zone(&world, "", 200, 100);
    let options = Options { grace, rate: 1_000.0, secondary_rate: 1_000.0, ..Options::default() };
    let _manager = world.start_with(options).await;
    for (number, node) in (0..).zip(&dead) {
        world.sleep_until(last(number)).await;
        world.renew(node);
    }
    world.kubelets(&alive, 32 * SEC).await;
    let tainted: BTreeMap<String, Duration> = world.taintings().into_iter().collect();
    for (number, node) in (0..).zip(&dead) {
        let at = tainted.get(node).copied();
        assert!(at.is_some_and(|it| is_punctual(it, last(number) + grace)), "{node}: {at:?}");
    }
    assert_eq!(tainted.len(), dead.len());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_node_that_is_deleted_or_ready_again_blocks_no_other() {
    let world = World::new();
    let (alive, dead) = zone(&world, "z", 5, 4);
    let _manager = world.start().await;
    world.kubelets(&alive, 55 * SEC).await;
    let waiting: Vec<&String> = dead.iter().filter(|it| world.no_execute(it).is_empty()).collect();
    world.cluster.delete("nodes", "", waiting[0]);
    world.post(waiting[1], "True");
    world.renew(waiting[1]);
    let alive = [alive.clone(), vec![waiting[1].clone()]].concat();
    world.kubelets(&alive, 100 * SEC).await;
    let tainted: Vec<(String, u64)> = world.tainted().into_iter().skip(1).collect();
    assert_eq!(tainted, [(waiting[2].clone(), 60)]);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_node_that_cannot_be_tainted_blocks_no_other() {
    for why in [
        "renews its Lease",
        "lost its condition",
        "unreadable Lease",
        "hanging read",
        "conflict, then a failed read",
        "conflict, then a hanging read",
        "refused",
        "does not decode",
    ] {
        let world = World::new();
        let (alive, dead) = zone(&world, "z", 6, 4);
        let _manager = until_waiting(&world, &alive, &dead).await;
        let stuck = dead[1].clone();
        let mut renewing = alive.clone();
        match why {
            "renews its Lease" => renewing.push(stuck.clone()),
            "does not decode" => world.update(&stuck, |it| it["spec"]["unschedulable"] = json!("perhaps")),
            "hanging read" => {
                let stuck = stuck.clone();
                world.on_lease_read(move |node| match node == stuck {
                    true => test_cluster::Interception::Hang,
                    false => test_cluster::Interception::Pass,
                });
            }
            "lost its condition" => world.update(&stuck, |it| it["status"]["conditions"] = json!([])),
            "unreadable Lease" => {
                let stuck = stuck.clone();
                world.on_lease_read(move |node| match node == stuck {
                    true => test_cluster::Interception::status(500, "InternalError", "not this one"),
                    false => test_cluster::Interception::Pass,
                });
            }
            "conflict, then a failed read" | "conflict, then a hanging read" => {
                let (patch, get) = (format!("patch nodes {stuck}"), format!("get nodes {stuck}"));
                world.fail_requests(move |it, _| match it {
                    it if it == patch => failure(409, "Conflict"),
                    it if it == get && why.contains("hanging") => Some(test_cluster::Interception::Hang),
                    it if it == get => failure(500, "InternalError"),
                    _ => None,
                });
            }
            _ => {
                let line = format!("patch nodes {stuck}");
                world.fail_requests(move |it, _| if it == line { failure(403, "Forbidden") } else { None });
            }
        }
        world.kubelets(&renewing, 105 * SEC).await;
        let tainted: Vec<(String, u64)> = world.tainted().into_iter().skip(1).collect();
        assert_eq!(tainted.len(), 2, "{why}: {tainted:?}");
        let limit = match why {
            // Its turn begins at 60.5. The read is given up after 10 s, and then no Lease is read for a second, so the two
            // others are tainted at 71.5 and 81.5.
            "hanging read" => 81,
            // If its turn is lost, the others have the next ones, at 70.5 and 80.5.
            _ => 80,
        };
        assert!(tainted.iter().all(|it| it.0 != stuck && it.1 <= limit), "{why}: {tainted:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_that_cannot_be_confirmed_do_not_enqueue_each_other_without_a_pause() {
    let world = World::new();
    let (alive, _) = zone(&world, "z", 6, 0);
    // The leader before has set them to Unknown, and they have no Lease. For a grace period after a list this proves
    // nothing.
    for node in ["a", "b"] {
        world.create_old(node, "Unknown", 3600, &[]);
        world.update(node, |it| it["metadata"]["labels"][ZONE] = json!("z"));
        world.cluster.delete("leases", "kube-node-lease", node);
    }
    let _manager = world.start().await;
    world.kubelets(&alive, 45 * SEC).await;
    let reads = world.lease_reads();
    assert!((20..=100).contains(&reads), "about once a second for each: {reads}");
    world.kubelets(&alive, 80 * SEC).await;
    assert_eq!((world.no_execute("a").len(), world.no_execute("b").len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_pace_is_kept_when_the_first_attempt_fails_for_longer_than_the_interval() {
    for refused in ["read", "write"] {
        let world = World::new();
        let (alive, dead) = zone(&world, "z", 6, 4);
        let _manager = until_waiting(&world, &alive, &dead).await;
        let stuck = dead[1].clone();
        if refused == "read" {
            let stuck = stuck.clone();
            world.on_lease_read(move |node| match node == stuck {
                true => test_cluster::Interception::status(500, "InternalError", "not this one"),
                false => test_cluster::Interception::Pass,
            });
        } else {
            let line = format!("patch nodes {stuck}");
            world.fail_requests(move |it, _| if it == line { failure(500, "InternalError") } else { None });
        }
        // Each attempt of the node begins with its turn. The failure ends shortly after another one was tainted.
        world.kubelets(&alive, 72 * SEC).await;
        world.end_outage();
        world.kubelets(&alive, 200 * SEC).await;
        let times: Vec<_> = world.taintings().into_iter().map(|it| it.1).collect();
        assert_eq!(times.len(), 4, "{refused}: {times:?}");
        let pauses: Vec<_> = times.windows(2).map(|it| it[1] - it[0]).collect();
        assert!(pauses.iter().all(|it| *it >= 10 * SEC), "{refused}: {pauses:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_node_that_moves_waits_in_its_new_zone_and_blocks_none_in_the_old_one() {
    for is_observed in [true, false] {
        let world = World::new();
        let (alive_x, dead) = zone(&world, "x", 5, 3);
        let (alive_y, _) = zone(&world, "y", 1, 0);
        let alive = [alive_x, alive_y].concat();
        let _manager = until_waiting(&world, &alive, &dead).await;
        let moving = dead[1].clone();
        if is_observed {
            world.set_labels(&moving, json!({ ZONE: "y" }));
        } else {
            // Its next write finds the new label, before the cache shows it.
            let (cluster, line) = (world.cluster.clone(), format!("patch nodes {moving}"));
            let (node, mut moved) = (moving.clone(), false);
            world.fail_requests(move |it, _| {
                if it == line && !std::mem::replace(&mut moved, true) {
                    cluster.update("nodes", "", &node, |it| it["metadata"]["labels"] = json!({ ZONE: "y" }));
                }
                None
            });
            world.update(&moving, |it| it["spec"]["unschedulable"] = json!(true));
        }
        world.kubelets(&alive, 100 * SEC).await;
        let want = [(dead[0].clone(), 50), (moving, 55), (dead[2].clone(), 60)];
        assert_eq!(world.tainted(), want, "k/k#47791, k/k#117555, observed: {is_observed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_goes_dark_is_counted_before_its_first_node_is_tainted() {
    let world = World::new();
    let (alive, dead) = zone(&world, "z", 3, 5);
    let _manager = world.start().await;
    // The zone loses its network at the second 10. The last renewals were up to 10 s before.
    for (number, node) in (0..).zip(&dead) {
        world.sleep_until(number * 2 * SEC + 200 * MS).await;
        world.renew(node);
    }
    world.kubelets(&alive, 300 * SEC).await;
    assert!(dead.iter().all(|it| world.ready(it) == "Unknown"));
    assert_eq!(world.tainted(), [], "upstream taints the first one before it counts the others");
}

#[tokio::test(start_paused = true)]
async fn a_zone_that_keeps_only_excluded_nodes_does_not_keep_its_pace() {
    let world = World::new();
    let (alive, dead) = zone(&world, "z", 1, 3);
    world.add_with("excluded", json!({ ZONE: "z", "node.kubernetes.io/exclude-disruption": "" }));
    world.add_in("y", "other");
    let _manager = world.start().await;
    let renewing = [alive.clone(), vec!["excluded".to_owned(), "other".to_owned()]].concat();
    world.kubelets(&renewing, 70 * SEC).await;
    assert_eq!(world.tainted(), [], "the zone is small, and most of its nodes are not ready");
    alive.iter().chain(&dead).for_each(|it| world.cluster.delete("nodes", "", it));
    world.kubelets(&["other"], 140 * SEC).await;
    assert_eq!(world.no_execute("excluded"), ["unreachable"]);
}
