//! Caches that are behind: live reads protect the pods.

use harness::{Manager, failure, pass};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{CANCELLED_A, MARKED_A, MS, SEC, World, pod, taint, tolerates};

/// The pod `a` tolerates the taint of its node for 10 s from the start of the test. A second later the open watches of the
/// resource freeze.
async fn frozen(resource: &str) -> (World, Manager) {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(10))]));
    let manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    pass(SEC).await;
    world.cluster.freeze_watches(resource);
    (world, manager)
}

#[tokio::test(start_paused = true)]
async fn a_lifted_taint_that_the_cache_does_not_show_evicts_no_pod() {
    let (world, _manager) = frozen("nodes").await;
    world.lift("n1");
    world.sleep_until(60 * SEC).await;
    assert!(world.call_count("get nodes n1") >= 1, "the timer found the lifted taint");
    assert_eq!(world.call_count("patch") + world.call_count("delete"), 0);
    // The frozen watch is replaced.
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.call_count("patch") + world.call_count("delete"), 0);
    assert!(world.call_count("get") < 12, "{:?}", world.lines());
    let events = world.events().await;
    assert!(events.is_empty() || events == [CANCELLED_A], "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_was_lifted_and_added_unobserved_counts_anew() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(50 * SEC).await;
    world.cluster.freeze_watches("nodes");
    world.lift("n1");
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(65 * SEC).await;
    assert!(world.call_count("get nodes n1") == 1 && !world.is_deleted("a"), "{:?}", world.lines());
    // The watch continues, and the taint is observed then.
    world.cluster.unfreeze_watches("nodes");
    world.sleep_until(124 * SEC).await;
    assert!(!world.is_deleted("a"), "{:?}", world.lines());
    world.sleep_until(126 * SEC).await;
    assert!(world.is_deleted("a"), "{:?}", world.lines());
}

/// A taint stays across a relist that skips states of its node. Returns when the pod is deleted.
async fn deletion_after_relist(time_added: Option<i64>) -> std::time::Duration {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let _manager = world.start().await;
    let mut taint = taint("k");
    taint["timeAdded"] = json!(time_added.map(World::time));
    world.taint("n1", json!([taint]));
    world.sleep_until(50 * SEC).await;
    world.cluster.freeze_watches("nodes");
    world.lift("n1");
    world.taint("n1", json!([taint]));
    world.cluster.compact();
    world.cluster.break_watches("nodes");
    world.sleep_until(600 * SEC).await;
    world.call_times("delete pods a")[0]
}

#[tokio::test(start_paused = true)]
async fn after_a_relist_only_time_added_proves_that_a_taint_is_the_same() {
    let without = deletion_after_relist(None).await;
    assert!(without >= 110 * SEC && without < 115 * SEC, "{without:?}");
    let with = deletion_after_relist(Some(0)).await;
    // The interruption does not count.
    assert!(with >= 60 * SEC && with < 63 * SEC, "{with:?}");
}

#[tokio::test(start_paused = true)]
async fn a_read_of_the_node_from_before_a_pod_was_due_does_not_count() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(10))]));
    let _manager = world.start().await;
    world.sleep_until(SEC).await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(1500 * MS).await;
    world.add_pod("b", "n1", json!([tolerates("k", Some(10))]));
    world.sleep_until(11_200 * MS).await;
    assert!(world.is_deleted("a"));
    world.cluster.freeze_watches("nodes");
    world.lift("n1");
    world.sleep_until(3600 * SEC).await;
    assert!(!world.is_deleted("b"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn a_read_of_the_node_from_before_its_last_change_is_not_shared() {
    let world = World::new();
    for name in ["a", "b"] {
        world.add_pod(name, "n1", json!([tolerates("k", Some(10)), tolerates("l", None)]));
    }
    let _manager = world.start().await;
    let mut is_first = true;
    world.fail_requests(move |line, _| {
        let is_delayed = line == "get pods b" && std::mem::take(&mut is_first);
        is_delayed.then_some(Interception::Delay(500 * MS))
    });
    world.sleep_until(SEC).await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(11_300 * MS).await;
    assert!(world.is_deleted("a") && !world.is_deleted("b"));
    world.taint("n1", json!([taint("k"), taint("l")]));
    world.sleep_until(11_600 * MS).await;
    assert!(world.is_deleted("b"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn seconds_do_not_count_before_pods_are_listed() {
    let world = World::new();
    world.taint("n1", json!([taint("k")]));
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    world.cluster.intercept(|call| match (call.resource.as_str(), call.verb) {
        ("pods", "list" | "watch") => failure(500, "InternalError").unwrap(),
        _ => Interception::Pass,
    });
    let _manager = world.start().await;
    world.sleep_until(500 * SEC).await;
    world.cluster.stop_intercepting();
    world.sleep_until(559 * SEC).await;
    assert!(!world.is_deleted("a"), "{:?}", world.lines());
    world.sleep_until(700 * SEC).await;
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone_unobserved_evicts_no_pod() {
    let (world, _manager) = frozen("nodes").await;
    world.cluster.remove("nodes", "", "n1");
    pass(3600 * SEC).await;
    assert!(world.call_count("get nodes n1") >= 1);
    assert_eq!(world.call_count("patch") + world.call_count("delete"), 0);
    assert_eq!(world.logged("Sync failed"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_toleration_that_the_cache_does_not_show_is_respected() {
    for (seconds, deleted) in [(None, None), (Some(40), Some(40 * SEC))] {
        let (world, _manager) = frozen("pods").await;
        world.set_tolerations("a", json!([tolerates("k", seconds)]));
        world.sleep_until(30 * SEC).await;
        assert_eq!(world.lines(), ["get pods a", "get nodes n1"], "{seconds:?}");
        world.sleep_until(600 * SEC).await;
        let times = world.call_times("delete pods a");
        match deleted {
            None => assert!(times.is_empty() && world.events().await == [CANCELLED_A], "{times:?}"),
            Some(after) => assert!(times.len() == 1 && times[0] >= after && times[0] < after + SEC, "{times:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_toleration_that_is_added_while_the_condition_is_written_is_respected() {
    let world = World::new();
    world.add_pod("a", "n1", json!([]));
    let _manager = world.start().await;
    let cluster = world.cluster.clone();
    world.fail_requests(move |line, _| {
        (line == "patch pods/status a").then(|| {
            let tolerations = json!([tolerates("k", None)]);
            cluster.update("pods", "n", "a", |it| it["spec"]["tolerations"] = tolerations);
            Interception::DelayAnswer(2 * SEC)
        })
    });
    world.taint("n1", json!([taint("k")]));
    pass(3600 * SEC).await;
    assert!(!world.is_deleted("a"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_047_a_pod_that_was_replaced_unobserved_is_not_deleted() {
    let (world, _manager) = frozen("pods").await;
    world.remove_pod("a");
    world.cluster.create(pod("a", "n2", json!([])));
    world.sleep_until(3600 * SEC).await;
    assert_eq!(world.lines(), ["get pods a"]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_047_a_pod_that_was_replaced_during_the_calls_is_not_deleted() {
    for (replaced_at, calls) in [("get nodes n1", 3), ("patch pods/status a", 3), ("delete pods a", 4)] {
        let world = World::new();
        world.add_pod("a", "n1", json!([]));
        let manager = world.start().await;
        let cluster = world.cluster.clone();
        world.fail_requests(move |line, _| {
            if line == replaced_at {
                cluster.remove("pods", "n", "a");
                cluster.create(pod("a", "n2", json!([])));
            }
            None
        });
        world.taint("n1", json!([taint("k")]));
        pass(3600 * SEC).await;
        assert_eq!(world.lines().len(), calls, "{replaced_at}: {:?}", world.lines());
        let new = world.get_pod("a").unwrap();
        assert!(!world.is_deleted("a") && new["status"]["conditions"].is_null(), "{replaced_at}: {new}");
        assert_eq!(world.logged("Sync failed"), [""; 0], "{replaced_at}");
        assert_eq!(crate::world::deletions(&manager).0, 0, "{replaced_at}");
        assert!(!world.events().await.contains(&CANCELLED_A.to_owned()), "{replaced_at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_unobserved_is_not_deleted_again() {
    for is_gone in [true, false] {
        let (world, _manager) = frozen("pods").await;
        if is_gone {
            world.remove_pod("a");
        } else {
            world.delete_pod_gracefully("a");
        }
        world.sleep_until(3600 * SEC).await;
        let reads = world.lines();
        assert!(reads[0] == "get pods a" && reads.len() <= 2, "{reads:?}");
        assert!(!world.events().await.contains(&MARKED_A.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_decode_evicts_no_pod_until_it_does() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(10))]));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(5 * SEC).await;
    world.cluster.update("nodes", "", "n1", |it| it["spec"]["unschedulable"] = json!("yes"));
    world.sleep_until(60 * SEC).await;
    assert!(world.call_count("get nodes n1") > 1, "the read is tried again: {:?}", world.lines());
    assert_eq!(world.call_count("patch") + world.call_count("delete"), 0);
    world.cluster.update("nodes", "", "n1", |it| it["spec"]["unschedulable"] = json!(false));
    // Meanwhile the taint may have been lifted and added again.
    world.assert_deleted_at("a", 70 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn the_arrival_of_a_pod_is_known_before_it_is_evicted() {
    let world = World::new();
    world.taint("n1", json!([taint("k")]));
    let _manager = world.start().await;
    world.sleep_until(500 * SEC).await;
    // Every event of pods comes together, also the one that puts the pod on its node.
    world.cluster.freeze_watches("pods");
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    world.sleep_until(510 * SEC).await;
    world.cluster.unfreeze_watches("pods");
    world.sleep_until(510 * SEC + MS).await;
    world.assert_deleted_at("a", 570 * SEC).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restore_of_etcd_the_live_node_counts() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(60))]));
    let _manager = world.start().await;
    let before = world.cluster.snapshot();
    world.taint("n1", json!([taint("k")]));
    pass(SEC).await;
    // Versions continue from the snapshot, so the watch sends nothing, and the cache has passed all versions for long.
    world.cluster.restore_versions_too(&before);
    world.sleep_until(62 * SEC).await;
    assert_eq!(world.lines(), ["get pods a", "get nodes n1"]);
    world.sleep_until(3600 * SEC).await;
    assert!(!world.is_deleted("a"), "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_the_cache_does_not_show_is_not_cancelled() {
    let (world, _manager) = frozen("pods").await;
    world.sleep_until(11 * SEC).await;
    assert!(world.is_deleted("a"));
    world.lift("n1");
    pass(60 * SEC).await;
    assert_eq!(world.events().await, [MARKED_A]);
}

#[tokio::test(start_paused = true)]
async fn time_in_which_nodes_could_not_report_does_not_count_as_tolerated() {
    // The watch of nodes fails from the second 20 on for so long. When it works again depends on the back-off.
    for (outage, is_standby, arrives_late) in
        [(1, false, false), (1, false, true), (600, false, false), (600, true, false), (600, false, true)]
    {
        let world = World::new();
        let start = world.clock.now();
        let add_pod = || drop(world.add_pod("a", "n1", json!([tolerates("k", Some(60))])));
        let mut standby = world.standby();
        let leader = if is_standby { None } else { Some(world.start().await) };
        standby.begin();
        if !arrives_late {
            add_pod();
        }
        world.sleep_until(SEC).await;
        world.taint("n1", json!([taint("k")]));
        if arrives_late {
            world.sleep_until(15 * SEC).await;
            add_pod();
        }
        world.sleep_until(20 * SEC).await;
        world.cluster.intercept(|call| {
            let is_hit = matches!(call.verb, "list" | "watch") && call.resource == "nodes";
            if is_hit { Interception::text(503, "no backend") } else { Interception::Pass }
        });
        world.cluster.break_watches("nodes");
        world.sleep_until((20 + outage) * SEC).await;
        assert_eq!(world.lines(), [""; 0]);
        world.cluster.stop_intercepting();
        let _leader = leader.unwrap_or_else(|| standby.lead());
        let end = (20 + outage) * SEC;
        while !world.is_deleted("a") {
            assert!(world.clock.now() - start < end + 130 * SEC, "it is evicted in the end");
            pass(SEC).await;
        }
        let evicted = world.clock.now() - start;
        if outage < 10 {
            let due = if arrives_late { 75 * SEC } else { 61 * SEC };
            assert!((due + SEC..=due + 11 * SEC).contains(&evicted), "{evicted:?}");
        } else {
            assert!(evicted >= end + 60 * SEC, "{evicted:?}: the node had no time to report");
        }
    }
}
