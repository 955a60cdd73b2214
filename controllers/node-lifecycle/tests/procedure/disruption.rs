//! Full disruption: all zones are down, so the fault may be ours.

use harness::pass;
use serde_json::json;

use crate::world::{MS, SEC, World, is_punctual, is_suspended, of_zone};

const ENTER: &str = "Entering master disruption mode";
const LEAVE: &str = "Exiting master disruption mode";

#[tokio::test(start_paused = true)]
async fn acceptance_node_019_when_all_zones_go_down_all_taints_are_removed_and_none_is_added() {
    let world = World::new();
    for (zone, node) in [("x", "a"), ("x", "b"), ("y", "c"), ("y", "d")] {
        world.add_in(zone, node);
    }
    let _manager = world.start().await;
    world.kubelets(&["b", "c", "d"], 70 * SEC).await;
    assert_eq!(world.no_execute("a"), ["unreachable"]);
    assert_eq!(world.logged(ENTER).len(), 0);
    world.sleep_until(400 * SEC).await;
    assert_eq!(world.tainted(), [("a".to_owned(), 50)]);
    for node in ["a", "b", "c", "d"] {
        assert_eq!(world.ready(node), "Unknown", "{node}");
        assert_eq!(world.taints(node), ["unreachable:NoSchedule"], "{node}");
    }
    assert_eq!(world.logged(ENTER).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_019_nodes_that_are_all_down_at_the_start_lose_their_taints() {
    for ready in ["Unknown", "False"] {
        let world = World::new();
        let taint = if ready == "Unknown" { "unreachable" } else { "not-ready" };
        for node in ["a", "b"] {
            world.create_old(node, ready, 3600, &[&format!("{taint}:NoExecute"), &format!("{taint}:NoSchedule")]);
        }
        world.create_old("c", ready, 3600, &[]);
        let _manager = world.start().await;
        pass(300 * SEC).await;
        for node in ["a", "b", "c"] {
            assert_eq!(world.no_execute(node), [""; 0], "{node} {ready}");
            assert_eq!(world.no_schedule(node).len(), 1, "{node} {ready}");
        }
        assert_eq!(world.tainted(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_020_when_one_node_recovers_the_others_are_tainted_at_the_pace() {
    let world = World::with(&["a", "b", "c"]);
    let _manager = world.start().await;
    world.sleep_until(200 * SEC).await;
    assert_eq!(world.tainted(), []);
    world.post("a", "True");
    world.kubelets(&["a"], 300 * SEC).await;
    assert_eq!(world.logged(LEAVE).len(), 1);
    let times: Vec<u64> = world.tainted().into_iter().map(|it| it.1).collect();
    assert!(times.len() == 2 && times[0] >= 210 && times[0] <= 215 && times[1] == times[0] + 10, "{times:?}");
    assert!(world.no_execute("a").is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_032_watches_that_freeze_during_the_recovery_cause_no_panic_and_only_delay_it() {
    // k/k#141572
    for frozen in [&["leases"][..], &["nodes"], &["leases", "nodes"]] {
        let world = World::with(&["a", "b", "c"]);
        let manager = world.start().await;
        world.sleep_until(200 * SEC).await;
        assert_eq!(world.logged(ENTER).len(), 1, "{frozen:?}");
        frozen.iter().for_each(|it| world.cluster.freeze_watches(it));
        world.post("a", "True");
        world.kubelets(&["a"], 600 * SEC).await;
        let panics = manager.metric_lines("mini_kcm_sync_panics_total");
        assert!(!panics.is_empty() && panics.iter().all(|it| it.ends_with(" 0")), "{frozen:?}: {panics:?}");
        assert_eq!(world.logged(LEAVE).len(), 1, "{frozen:?}");
        // A frozen watch is replaced in less than 90 s.
        let times: Vec<u64> = world.tainted().into_iter().map(|it| it.1).collect();
        let is_in_time = times.iter().all(|it| (210..=330).contains(it));
        assert!(times.len() == 2 && is_in_time && times[1] >= times[0] + 10, "{frozen:?}: {times:?}");
        assert!(!is_suspended(&manager), "{frozen:?}");
        assert_eq!(world.unknown_at("a").len(), 1, "{frozen:?}: not again after its return");
        assert_eq!((world.ready("a"), world.no_execute("a").len()), ("True".into(), 0), "{frozen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_020_a_node_that_was_not_silent_for_long_has_a_full_grace_period_at_the_end() {
    let world = World::new();
    for (zone, node) in [("x", "a"), ("x", "b"), ("y", "c")] {
        world.add_in(zone, node);
    }
    let _manager = world.start().await;
    // All posted that they are not ready, for example because of a common network plugin.
    world.sleep_until(40 * SEC).await;
    ["a", "b", "c"].iter().for_each(|it| world.post(it, "False"));
    world.sleep_until(80 * SEC).await;
    assert_eq!(world.logged(ENTER).len(), 1);
    world.post("a", "True");
    world.renew("a");
    world.sleep_until(86 * SEC).await;
    assert_eq!(world.logged(LEAVE).len(), 1);
    world.kubelets(&["a"], 200 * SEC).await;
    for node in ["b", "c"] {
        let unknown_at = world.unknown_at(node)[0];
        assert!(unknown_at >= 130 * SEC && unknown_at <= 136 * SEC, "{node} {unknown_at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_dead_before_the_disruption_is_tainted_first_at_its_end() {
    // openyurt#2713
    let world = World::with(&["a", "b", "dead"]);
    let _manager = world.start().await;
    world.kubelets(&["a", "b"], 100 * SEC).await;
    assert_eq!(world.no_execute("dead"), ["unreachable"]);
    world.sleep_until(300 * SEC).await;
    assert_eq!(world.no_execute("dead"), [""; 0]);
    ["a", "b"].iter().for_each(|it| world.post(it, "True"));
    world.kubelets(&["a", "b"], 320 * SEC).await;
    let tainted = world.tainted();
    assert!(tainted.len() == 2 && tainted[1].0 == "dead" && tainted[1].1 <= 315, "{tainted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_ready_zone_ends_the_disruption() {
    let world = World::new();
    for node in ["a", "b"] {
        world.add_in("x", node);
    }
    let manager = world.start().await;
    world.sleep_until(200 * SEC).await;
    assert_eq!(world.logged(ENTER).len(), 1);
    world.add_in("y", "new");
    world.kubelets(&["new"], 300 * SEC).await;
    assert_eq!(world.logged(LEAVE).len(), 1);
    assert_eq!(world.tainted().len(), 2, "zone x is down, and another one is not");
    assert_eq!(of_zone(&manager, "evictions_total", "x"), 2);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_replace_all_others_end_the_disruption() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.sleep_until(200 * SEC).await;
    ["a", "b"].iter().for_each(|it| world.cluster.delete("nodes", "", it));
    world.sleep_until(210 * SEC).await;
    ["c", "d", "e"].iter().for_each(|it| world.add(it));
    world.kubelets(&["d", "e"], 300 * SEC).await;
    let tainted = world.tainted();
    assert_eq!(tainted, [("c".to_owned(), 260)]);
}

#[tokio::test(start_paused = true)]
async fn a_disruption_that_lasts_keeps_its_beginning_when_nodes_are_added() {
    let world = World::new();
    for node in ["a", "b"] {
        world.add_in("x", node);
    }
    let _manager = world.start().await;
    world.sleep_until(100 * SEC).await;
    world.create("new", json!({ crate::world::ZONE: "y" }), json!({}));
    world.sleep_until(110 * SEC).await;
    assert_eq!(world.logged(ENTER).len(), 1);
    assert_eq!(world.tainted(), []);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_turn_it_was_is_not_tainted_when_the_disruption_begins() {
    // k/k#111385: it is Unknown and waits. At its turn its Lease is read, and meanwhile all others go down.
    let (world, _manager) = World::with_a_waiting_node().await;
    world.on_lease_read(|_| test_cluster::Interception::DelayAnswer(2 * SEC));
    world.kubelets(&["c", "d", "e"], 61 * SEC).await;
    ["c", "d", "e"].iter().for_each(|it| world.post(it, "False"));
    world.sleep_until(70 * SEC).await;
    assert_eq!(world.logged(ENTER).len(), 1);
    assert_eq!(world.tainted(), [("a".to_owned(), 50)]);
    assert!(["a", "b", "c", "d", "e"].iter().all(|it| world.no_execute(it).is_empty()));
}

#[tokio::test(start_paused = true)]
async fn of_kubelets_that_return_one_after_the_other_at_most_one_is_tainted() {
    let world = World::with(&["a", "b", "c", "d"]);
    let _manager = world.start().await;
    world.kubelets(&["a", "b", "c", "d"], 20 * SEC).await;
    // Our own network fails for three minutes, and nothing arrives at the server.
    world.sleep_until(200 * SEC).await;
    for (number, node) in (0..).zip(["a", "b", "c", "d"]) {
        world.sleep_until(200 * SEC + number * 3 * SEC).await;
        world.renew(node);
        world.post(node, "True");
    }
    world.kubelets(&["a", "b", "c", "d"], 300 * SEC).await;
    // The first one is back after 0 s, the last one after 9 s: at most one node may be tainted meanwhile.
    assert!(world.tainted().len() <= 1, "{:?}", world.tainted());
    assert!(["a", "b", "c", "d"].iter().all(|it| world.taints(it).is_empty() && world.ready(it) == "True"));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_renew_their_leases_again_are_not_tainted_before_they_post_their_status() {
    let world = World::with(&["a", "b", "c", "d"]);
    let _manager = world.start().await;
    world.sleep_until(200 * SEC).await;
    ["a", "b", "c", "d"].iter().for_each(|it| world.renew(it));
    world.post("a", "True");
    world.kubelets(&["a", "b", "c", "d"], 240 * SEC).await;
    assert_eq!(world.tainted(), []);
    ["b", "c", "d"].iter().for_each(|it| world.post(it, "True"));
    world.kubelets(&["a", "b", "c", "d"], 400 * SEC).await;
    assert_eq!(world.tainted(), []);
}

#[tokio::test(start_paused = true)]
async fn nodes_become_unknown_at_their_deadlines_also_during_the_disruption() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.sleep_until(3 * SEC).await;
    world.renew("a");
    world.sleep_until(7 * SEC).await;
    world.renew("b");
    world.sleep_until(100 * SEC).await;
    for (node, due) in [("a", 53), ("b", 57)] {
        assert!(is_punctual(world.unknown_at(node)[0], due * SEC), "{node}: {:?}", world.unknown_at(node));
    }
    pass(100 * MS).await;
}
