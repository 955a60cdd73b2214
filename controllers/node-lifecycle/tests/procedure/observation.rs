//! What happens while this process cannot observe the nodes (KEP-5647, k/k#85221).

use std::time::Duration;

use harness::{Manager, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{MS, REVIEWS, SEC, World, is_punctual, is_status, is_suspended};

const FAILED_READS: &str = "mini_kcm_node_lifecycle_failed_lease_reads_total";
const SUSPENDED: &str =
    "Watches of nodes or Leases are interrupted or stale, so no node becomes Unknown or is tainted NoExecute";
const RESUMED: &str = "The watches of nodes and Leases work again, so silent nodes become Unknown";
const BOTH: &[&str] = &["nodes", "leases"];

/// Leases are read by GETs or by lists.
fn set_right(world: &World, by_get: bool) {
    if !by_get {
        world.forbid_to_get_leases();
    }
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_031_with_a_frozen_watch_of_leases_no_node_becomes_unknown_until_the_cache_is_fresh() {
    for by_get in [true, false] {
        let world = World::with(&["a", "b", "dead"]);
        set_right(&world, by_get);
        let manager = world.start().await;
        world.kubelets(&["a", "b", "dead"], 20 * SEC).await;
        world.cluster.freeze_watches("leases");
        world.kubelets(&["a", "b"], 65 * SEC).await;
        assert!(is_suspended(&manager));
        assert_eq!(world.logged("The Lease was renewed, but the cache does not show it").len(), 1);
        assert_eq!(world.logged(SUSPENDED).len(), 1);
        assert_eq!(world.lines(), [""; 0], "the dead node does not become Unknown either");
        assert!(world.lease_reads() <= 3, "{}", world.lease_reads());
        world.kubelets(&["a", "b"], 200 * SEC).await;
        assert!(!is_suspended(&manager));
        assert_eq!((world.logged(SUSPENDED).len(), world.logged(RESUMED).len()), (1, 1));
        assert_eq!((world.ready("a"), world.ready("b")), ("True".into(), "True".into()));
        assert_eq!(world.ready("dead"), "Unknown", "decisions are made again");
        assert_eq!(world.no_execute("dead"), ["unreachable"]);
        assert_eq!(manager.metric(FAILED_READS), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_deleted_while_its_watch_was_frozen_counts_as_renewed() {
    for by_get in [true, false] {
        let world = World::with(&["a", "b"]);
        set_right(&world, by_get);
        let _manager = world.start().await;
        world.kubelets(&["a", "b"], 20 * SEC).await;
        world.cluster.freeze_watches("leases");
        world.kubelets(&["a", "b"], 60 * SEC).await;
        world.cluster.remove("leases", "kube-node-lease", "a");
        world.kubelets(&["b"], 300 * SEC).await;
        let unknown_at = world.unknown_at("a");
        assert!(unknown_at.len() == 1 && unknown_at[0] >= 100 * SEC, "the last renewal was at 50 s: {unknown_at:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_came_and_went_while_its_watch_was_frozen_counts_as_renewed() {
    // After the watch was compacted, neither the cache nor a live read ever shows the Lease.
    for is_compacted in [false, true] {
        let world = World::with(&["a", "b"]);
        world.cluster.remove("leases", "kube-node-lease", "a");
        let _manager = world.start().await;
        world.kubelets(&["b"], 10 * SEC).await;
        world.cluster.freeze_watches("leases");
        world.kubelets(&["a", "b"], 40 * SEC).await;
        world.cluster.remove("leases", "kube-node-lease", "a");
        if is_compacted {
            world.cluster.compact();
        }
        world.kubelets(&["b"], 300 * SEC).await;
        let unknown_at = world.unknown_at("a");
        assert!(
            unknown_at.len() == 1 && unknown_at[0] >= 80 * SEC,
            "{is_compacted}: the last renewal was at 30 s: {unknown_at:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_frozen_watch_of_leases_does_not_take_the_taint_of_a_dead_node() {
    let world = World::with(&["a", "b", "c", "dead"]);
    let _manager = world.start().await;
    world.kubelets(&["a", "b", "c"], 60 * SEC).await;
    assert_eq!(world.no_execute("dead"), ["unreachable"]);
    world.cluster.clear_requests();
    world.cluster.freeze_watches("leases");
    world.kubelets(&["a", "b", "c"], 300 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "all other nodes only seem silent");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_live_read_shows_renewed_is_a_sign_of_life() {
    // The renewal is on its way to the cache while the Lease is read.
    let world = World::with(&["a", "b"]);
    let manager = world.start().await;
    let cluster = world.cluster.clone();
    let mut renewed = false;
    world.on_lease_read(move |node| {
        if node == "a" && !std::mem::replace(&mut renewed, true) {
            cluster.update("leases", "kube-node-lease", "a", |it| {
                it["spec"]["renewTime"] = json!("2027-01-15T08:00:49.900000Z")
            });
        }
        Interception::Pass
    });
    world.kubelets(&["b"], 100 * SEC).await;
    assert_eq!(world.ready("a"), "True");
    assert!(!is_suspended(&manager));
    world.kubelets(&["b"], 110 * SEC).await;
    assert!(is_punctual(world.unknown_at("a")[0], 100 * SEC), "{:?}", world.unknown_at("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_031_with_a_frozen_watch_of_nodes_a_node_that_posts_its_status_does_not_become_unknown() {
    let world = World::new();
    for node in ["a", "b", "dead"] {
        world.create(node, json!({}), json!({}));
        world.post(node, "True");
    }
    let _manager = world.start().await;
    for second in 1..40 {
        world.sleep_until(10 * second * SEC).await;
        if second == 2 {
            world.cluster.freeze_watches("nodes");
        }
        ["a", "b"].iter().for_each(|it| world.post(it, "True"));
        if second <= 3 {
            world.post("dead", "True");
        }
    }
    // In the cache, all have been silent since the second 10. They have no Leases that a live read could show, so only
    // the version of a write reveals that the cache is old.
    let calls = world.calls();
    for node in ["a", "b"] {
        let answers: Vec<u16> =
            calls.iter().filter(|it| it.name == node && is_status(it)).map(|it| it.status).collect();
        assert!(!answers.is_empty() && answers.iter().all(|it| *it == 409), "{node}: {answers:?}");
        assert_eq!((world.ready(node), world.no_execute(node).len()), ("True".into(), 0), "{node}");
    }
    let unknown_at = world.unknown_at("dead");
    assert!(
        unknown_at.len() == 1 && unknown_at[0] >= 80 * SEC,
        "{unknown_at:?}: 50 s after its last post, not after the cached one"
    );
    assert_eq!(world.ready("dead"), "Unknown", "decisions are made again");
}

#[tokio::test(start_paused = true)]
async fn when_a_lease_cannot_be_read_its_node_does_not_become_unknown_and_the_metric_counts() {
    for failure in [
        Interception::status(500, "InternalError", "not now"),
        Interception::status(403, "Forbidden", "not you"),
        Interception::Fail,
    ] {
        let world = World::with(&["a", "b"]);
        let manager = world.start().await;
        let answer = failure.clone();
        world.on_lease_read(move |_| answer.clone());
        world.kubelets(&["b"], 120 * SEC).await;
        assert_eq!(world.lines(), [""; 0], "{failure:?}");
        let reads = manager.metric(FAILED_READS);
        assert!((30..=38).contains(&reads), "{failure:?}: about once in two seconds: {reads}");
        assert!(!world.logged("its Lease cannot be read").is_empty());
        world.end_outage();
        world.kubelets(&["b"], 123 * SEC).await;
        assert!(
            is_punctual(world.unknown_at("a")[0], 120 * SEC) || world.unknown_at("a")[0] <= 122 * SEC,
            "{failure:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_read_does_not_keep_other_nodes_from_becoming_unknown() {
    let world = World::with(&["a", "b", "c"]);
    let _manager = world.start().await;
    world.sleep_until(500 * MS).await;
    world.renew("c");
    world.on_lease_read(|node| match node {
        "a" => Interception::status(500, "InternalError", "not now"),
        _ => Interception::Pass,
    });
    world.kubelets(&["b"], 70 * SEC).await;
    assert_eq!(["a", "b", "c"].map(|it| world.ready(it)), ["True", "True", "Unknown"]);
    assert!(world.unknown_at("c")[0] <= 53 * SEC, "{:?}", world.unknown_at("c"));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_does_not_decode_proves_nothing() {
    for by_get in [true, false] {
        let world = World::with(&["a", "b"]);
        set_right(&world, by_get);
        let manager = world.start().await;
        world.cluster.update("leases", "kube-node-lease", "a", |it| it["spec"]["renewTime"] = json!(5));
        world.kubelets(&["b"], 100 * SEC).await;
        assert_eq!(world.lines(), [""; 0]);
        assert!(manager.metric(FAILED_READS) >= 20);
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_hangs_is_given_up() {
    let world = World::with(&["a", "b"]);
    let manager = world.start().await;
    world.on_lease_read(|_| Interception::Hang);
    world.kubelets(&["b"], 62 * SEC).await;
    assert_eq!((world.lines().len(), manager.metric(FAILED_READS)), (0, 1));
    world.end_outage();
    world.kubelets(&["b"], 75 * SEC).await;
    assert_eq!(world.ready("a"), "Unknown");
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_turn_comes_is_tainted_only_after_its_lease_was_read() {
    let (world, _manager) = World::with_a_waiting_node().await;
    assert_eq!(world.lease_reads_by("get"), 2);
    world.cluster.freeze_watches("leases");
    world.renew("b");
    world.kubelets(&["c", "d", "e"], 70 * SEC).await;
    assert_eq!(world.no_execute("b"), [""; 0], "the live Lease is newer than the cached one");
    assert_eq!((world.lease_reads_by("get"), world.lease_reads_by("list")), (3, 0));
}

/// The role of the built-in manager does not allow getting a Lease.
#[tokio::test(start_paused = true)]
async fn a_lease_that_the_manager_may_not_get_is_read_by_a_list() {
    let world = World::with(&["a", "b", "c"]);
    world.forbid_to_get_leases();
    let _manager = world.start().await;
    world.kubelets(&["a"], 60 * SEC).await;
    assert_eq!(["a", "b", "c"].map(|it| world.ready(it)), ["True", "Unknown", "Unknown"]);
    world.kubelets(&[""; 0], 130 * SEC).await;
    assert_eq!(world.ready("a"), "Unknown");
    assert_eq!((world.lease_reads_by("get"), world.lease_reads_by("list") >= 3), (0, true));
    let reviews = world.cluster.requests().iter().filter(|it| it.resource == REVIEWS).count();
    assert!((1..=2).contains(&reviews), "both nodes may ask at the same time: {reviews}");
}

#[tokio::test(start_paused = true)]
async fn after_a_refused_get_leases_are_read_by_lists() {
    let world = World::with(&["a", "b", "c"]);
    let _manager = world.start().await;
    world.kubelets(&["b", "c"], 60 * SEC).await;
    assert_eq!((world.ready("a"), world.lease_reads_by("list")), ("Unknown".into(), 0));
    world.forbid_to_get_leases();
    world.kubelets(&["c"], 115 * SEC).await;
    assert_eq!(["b", "c"].map(|it| world.ready(it)), ["Unknown", "True"]);
    world.kubelets(&[""; 0], 200 * SEC).await;
    assert_eq!((world.ready("c"), world.lease_reads_by("get")), ("Unknown".into(), 2));
}

#[tokio::test(start_paused = true)]
async fn while_the_right_is_not_known_leases_are_read_by_lists() {
    // A server that refuses the review is not asked again.
    for (code, asks_again) in [(500, true), (403, false)] {
        let world = World::with(&["a", "b", "c"]);
        world.cluster.intercept(move |call| match &*call.resource {
            REVIEWS => Interception::status(code, "InternalError", "not now"),
            _ => Interception::Pass,
        });
        let _manager = world.start().await;
        world.kubelets(&["b", "c"], 60 * SEC).await;
        world.kubelets(&["c"], 120 * SEC).await;
        assert_eq!(["a", "b"].map(|it| world.ready(it)), ["Unknown"; 2]);
        let reviews = world.cluster.requests().iter().filter(|it| it.resource == REVIEWS).count();
        assert_eq!((world.lease_reads_by("get"), reviews > 1), (0, asks_again), "{code}: {reviews}");
    }
}

/// The last leader has set the conditions, but not yet the other taint.
#[tokio::test(start_paused = true)]
async fn one_taint_replaces_the_other_only_after_the_lease_was_read() {
    let world = World::with(&["b", "c"]);
    world.create_old("a", "Unknown", 100, &["not-ready:NoExecute"]);
    let standby = world.standby().await;
    world.cluster.freeze_watches("leases");
    world.renew("a");
    let _manager = standby.lead();
    world.kubelets(&["b", "c"], 30 * SEC).await;
    assert_eq!(world.no_execute("a"), ["not-ready"], "the live Lease is newer than the cached one");
    world.kubelets(&["b", "c"], 300 * SEC).await;
    assert_eq!(world.no_execute("a"), ["unreachable"]);
}

#[tokio::test(start_paused = true)]
async fn healthy_nodes_need_no_live_read() {
    let world = World::with(&["a", "b"]);
    let _manager = world.start().await;
    world.kubelets(&["a", "b"], 600 * SEC).await;
    assert_eq!(world.lease_reads(), 0);
}

/// Waits until the watches work again, and returns when. The informers back off for a minute at most.
async fn resumed(world: &World, manager: &Manager, alive: &[&str]) -> Duration {
    let latest = world.elapsed() + 62 * SEC;
    while is_suspended(manager) {
        assert!(world.elapsed() < latest);
        world.kubelets(alive, world.elapsed() + 100 * MS).await;
    }
    world.elapsed()
}

#[tokio::test(start_paused = true)]
async fn after_an_interruption_of_the_watches_all_grace_periods_start_anew() {
    for resources in [BOTH, &["nodes"], &["leases"]] {
        let world = World::with(&["a", "b"]);
        let manager = world.start().await;
        world.kubelets(&["a", "b"], 20 * SEC).await;
        world.begin_outage(resources);
        world.kubelets(&["b"], 80 * SEC).await;
        assert!(is_suspended(&manager), "{resources:?}");
        assert_eq!(world.lines(), [""; 0], "{resources:?}: a has been silent for 60 s");
        world.end_outage();
        let end = resumed(&world, &manager, &["b"]).await;
        world.kubelets(&["b"], end + 60 * SEC).await;
        let unknown_at = world.unknown_at("a");
        assert!(
            unknown_at.len() == 1 && unknown_at[0] >= end + 49 * SEC && unknown_at[0] <= end + 51 * SEC,
            "{resources:?} {end:?} {unknown_at:?}"
        );
        assert_eq!(world.ready("b"), "True", "{resources:?}");
        assert_eq!(world.logged("all grace periods start anew").len(), 1, "{resources:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interruption_of_a_few_seconds_delays_unknown_by_its_length() {
    let world = World::with(&["a", "b"]);
    let manager = world.start().await;
    world.kubelets(&["a", "b"], 5 * SEC).await;
    let begin = world.elapsed();
    world.begin_outage(&["leases"]);
    while !is_suspended(&manager) {
        pass(100 * MS).await;
    }
    world.end_outage();
    let length = resumed(&world, &manager, &["b"]).await - begin;
    assert!(length > 2 * SEC && length < 10 * SEC, "{length:?}");
    world.kubelets(&["b"], 70 * SEC).await;
    let due = 50 * SEC + length;
    let unknown_at = world.unknown_at("a");
    assert!(
        unknown_at.len() == 1 && unknown_at[0] + SEC >= due && unknown_at[0] <= due + SEC,
        "{unknown_at:?}, {due:?}"
    );
    assert_eq!(world.logged("all grace periods start anew"), [""; 0]);
    let suspended = world.logged(SUSPENDED);
    assert!(suspended.len() == 1 && suspended[0].contains("leases"), "the log names the watch: {suspended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_or_breaks_and_is_opened_again_delays_nothing() {
    let world = World::with(&["a", "b"]);
    let manager = world.start().await;
    for second in [5, 15, 25, 35, 45] {
        world.kubelets(&["b"], second * SEC).await;
        world.cluster.end_watches("leases");
        world.cluster.break_watches("nodes");
    }
    world.kubelets(&["b"], 60 * SEC).await;
    assert!(is_punctual(world.unknown_at("a")[0], 50 * SEC), "{:?}", world.unknown_at("a"));
    assert!(!is_suspended(&manager));
}

#[tokio::test(start_paused = true)]
async fn during_an_interruption_no_waiting_node_is_tainted() {
    let world = World::with(&["a", "b", "c", "d", "e", "f"]);
    let _manager = world.start().await;
    world.kubelets(&["d", "e", "f"], 55 * SEC).await;
    assert_eq!(world.tainted().len(), 1);
    world.begin_outage(&["leases"]);
    world.kubelets(&["d", "e", "f"], 115 * SEC).await;
    assert_eq!(world.tainted().len(), 1);
    world.end_outage();
    world.kubelets(&["d", "e", "f"], 200 * SEC).await;
    assert_eq!(world.tainted().len(), 3, "they are Unknown, so they need no new grace period");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_becomes_not_ready_during_an_interruption_is_tainted_after_it() {
    let world = World::with(&["a", "b"]);
    let manager = world.start().await;
    world.kubelets(&["a", "b"], 20 * SEC).await;
    world.begin_outage(&["leases"]);
    world.kubelets(&["a", "b"], 30 * SEC).await;
    world.post("a", "False");
    world.kubelets(&["a", "b"], 60 * SEC).await;
    assert_eq!(world.taints("a"), ["not-ready:NoSchedule"]);
    world.end_outage();
    let end = resumed(&world, &manager, &["a", "b"]).await;
    world.kubelets(&["a", "b"], end + 6 * SEC).await;
    assert_eq!(world.no_execute("a"), ["not-ready"], "at the next pass");
}

/// The manager begins to lead while the watch of Leases is interrupted. The node `a` is Unknown and has these taints, and
/// `b` is ready.
async fn led_during_outage(taints: &[&str]) -> (World, Manager) {
    let world = World::with(&["b"]);
    world.create_old("a", "Unknown", 3600, taints);
    let standby = world.standby().await;
    world.begin_outage(&["leases"]);
    world.sleep_until(5 * SEC).await;
    let manager = standby.lead();
    world.kubelets(&["b"], 30 * SEC).await;
    (world, manager)
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_unknown_and_synced_during_an_interruption_is_tainted_after_it() {
    let (world, manager) = led_during_outage(&[]).await;
    assert_eq!(world.taints("a"), ["unreachable:NoSchedule"]);
    world.end_outage();
    let end = resumed(&world, &manager, &["b"]).await;
    world.kubelets(&["b"], end + 6 * SEC).await;
    assert_eq!(world.no_execute("a"), ["unreachable"]);
}

/// A pod may tolerate `not-ready` for longer than `unreachable`.
#[tokio::test(start_paused = true)]
async fn a_node_with_the_taint_for_its_status_before_gets_the_right_one_after_an_interruption() {
    let (world, manager) = led_during_outage(&["not-ready:NoExecute"]).await;
    assert_eq!(world.no_execute("a"), ["not-ready"]);
    world.end_outage();
    let end = resumed(&world, &manager, &["b"]).await;
    world.kubelets(&["b"], end + 2 * SEC).await;
    assert_eq!(world.no_execute("a"), ["unreachable"]);
}

#[tokio::test(start_paused = true)]
async fn an_interruption_does_not_begin_a_full_disruption() {
    let world = World::with(&["a", "b", "c", "dead"]);
    let _manager = world.start().await;
    world.kubelets(&["a", "b", "c"], 60 * SEC).await;
    assert_eq!(world.no_execute("dead"), ["unreachable"]);
    world.cluster.clear_requests();
    world.begin_outage(BOTH);
    world.kubelets(&["a", "b", "c"], 200 * SEC).await;
    world.end_outage();
    world.kubelets(&["a", "b", "c"], 400 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    assert_eq!(world.logged("Entering master disruption mode"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn after_a_suspension_of_the_machine_all_grace_periods_start_anew() {
    let world = World::new();
    // Without Leases, no live read could show that they are alive.
    for node in ["a", "b"] {
        world.create(node, json!({}), json!({}));
        world.post(node, "True");
    }
    let _manager = world.start().await;
    world.sleep_until(30 * SEC).await;
    world.clock.suspend(3600 * SEC);
    world.sleep_until(31 * SEC).await;
    world.post("b", "True");
    world.sleep_until(80 * SEC - MS).await;
    assert_eq!(world.lines(), [""; 0]);
    world.post("b", "True");
    world.sleep_until(90 * SEC).await;
    let unknown_at = world.unknown_at("a");
    assert!(unknown_at.len() == 1 && unknown_at[0] >= 80 * SEC && unknown_at[0] <= 82 * SEC, "{unknown_at:?}");
    assert_eq!(world.ready("b"), "True");
    assert_eq!(world.logged("all grace periods start anew").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_suspension_does_not_hasten_the_taint_of_a_waiting_node_without_a_live_read() {
    let (world, _manager) = World::with_a_waiting_node().await;
    let reads = world.lease_reads();
    world.clock.suspend(3600 * SEC);
    world.kubelets(&["c", "d", "e"], 80 * SEC).await;
    assert_eq!(world.no_execute("b"), ["unreachable"]);
    assert!(world.lease_reads() > reads);
    assert!(["c", "d", "e"].iter().all(|it| world.ready(it) == "True"));
}
