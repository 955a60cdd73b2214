//! A failure of one type does not affect the other types.

use client::Limits;
use client::Propagation::{Background, Foreground, Orphan};
use garbage_collector_controller::Options;
use harness::pass;
use test_cluster::Interception;

use crate::world::{SEC, World, missing_owner, owner};

/// The failure of the type of many owners.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    Unknown,
    Unreadable,
    NotServed,
    NeverShown,
}

#[tokio::test(start_paused = true)]
async fn dependents_of_unresolvable_owners_delay_no_others() {
    for trouble in [Trouble::Unknown, Trouble::Unreadable, Trouble::NotServed, Trouble::NeverShown] {
        let world = World::with_widgets();
        for number in 0..1_500 {
            let widget = match trouble {
                Trouble::Unknown => missing_widget("example.com/v9", number),
                Trouble::NeverShown => owner(&world.create("Widget", &format!("w-{number}"), &[])),
                _ => missing_widget("example.com/v1", number),
            };
            world.create("ConfigMap", &format!("of-{number}"), &[widget]);
        }
        let rc = world.create("ReplicationController", "rc", &[]);
        world.create("Pod", "pod", &[owner(&rc)]);
        let mut refused = false;
        world.cluster.intercept(move |call| match (call.resource.as_str(), call.verb) {
            ("widgets", "list" | "watch") => {
                Interception::status(500, "InternalError", "the conversion webhook is down")
            }
            ("widgets", "get") if matches!(trouble, Trouble::Unreadable) => {
                Interception::status(500, "InternalError", "too")
            }
            ("widgets", "get") if matches!(trouble, Trouble::NotServed) => {
                Interception::text(404, "404 page not found")
            }
            // Only the first time.
            ("pods", "delete") if !std::mem::replace(&mut refused, true) => {
                Interception::status(500, "InternalError", "once")
            }
            _ => Interception::Pass,
        });
        let manager = world.start().await;
        pass(60 * SEC).await;
        world.delete("ReplicationController", "rc", Some(Background)).await;
        pass(5 * SEC).await;
        assert!(!world.has("pods", "pod"), "{trouble:?}");
        assert_eq!(world.call_count("delete pods pod"), 2, "{trouble:?}");
        assert_eq!(world.names("configmaps").len(), 1_500, "{trouble:?}");
        let tries = manager.metric("workqueue_retries_total{name=\"garbage_collector_attempt_to_delete\"}");
        assert!((5_000..40_000).contains(&tries), "{trouble:?}: the retries back off: {tries}");
    }
}

/// A reference to a widget that does not exist, or whose type is unknown.
fn missing_widget(api_version: &str, number: u32) -> serde_json::Value {
    let mut reference = missing_owner(api_version, "Widget", &format!("w-{number}"));
    reference["uid"] = serde_json::json!(format!("00000000-0000-4000-8000-{number:012}"));
    reference
}

#[tokio::test(start_paused = true)]
async fn a_type_with_hanging_reads_leaves_workers_to_other_types() {
    for one_owner in [false, true] {
        let world = World::with_widgets();
        let (rc, other) =
            (world.create("ReplicationController", "rc", &[]), world.create("ReplicationController", "other", &[]));
        let widget = world.create("Widget", "w", &[]);
        for number in 0..100 {
            // Many items that wait for one response use as many workers as items that wait for one response each.
            let owners = if one_owner {
                vec![owner(&other), owner(&widget)]
            } else {
                vec![missing_widget("example.com/v1", number)]
            };
            world.create("ConfigMap", &format!("of-{number}"), &owners);
        }
        for number in 0..50 {
            world.create("Pod", &format!("pod-{number}"), &[owner(&rc)]);
        }
        world.cluster.intercept(|call| match (call.resource.as_str(), call.verb) {
            ("widgets", "list" | "watch") => {
                Interception::status(500, "InternalError", "the conversion webhook is down")
            }
            ("widgets", "get") => Interception::Delay(30 * SEC),
            _ => Interception::Pass,
        });
        let manager = world.start().await;
        // The workers wait this long for that type.
        pass(31 * SEC).await;
        world.delete("ReplicationController", "other", Some(Background)).await;
        pass(SEC).await;
        world.delete("ReplicationController", "rc", Some(Background)).await;
        pass(3 * SEC).await;
        assert_eq!(world.names("pods"), [""; 0], "one owner: {one_owner}");
        // One read for each worker, then only as many as there are permits.
        assert!(world.call_count("get widgets") <= 30, "one owner: {one_owner}: {:?}", world.lines());
        assert_eq!(world.names("configmaps").len(), 100, "one owner: {one_owner}");
        // The postponed items are not retried all the time either.
        let queued = || manager.metric("workqueue_adds_total{name=\"garbage_collector_attempt_to_delete\"}");
        let early = queued();
        pass(10 * SEC).await;
        assert!(queued() - early < 1_200, "one owner: {one_owner}: {}", queued() - early);
        // As soon as the type responds, all items are processed.
        world.cluster.stop_intercepting();
        pass(40 * SEC).await;
        if one_owner {
            assert!((0..100).all(|it| world.owners("configmaps", &format!("of-{it}")) == ["w"]));
        } else {
            assert_eq!(world.names("configmaps"), [""; 0]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_types_with_hanging_reads_leave_workers_to_other_types() {
    let types = [("v1", "Secret", "secrets"), ("apps/v1", "ReplicaSet", "replicasets"), ("batch/v1", "Job", "jobs")];
    let types: Vec<_> = types
        .into_iter()
        .chain([("batch/v1", "CronJob", "cronjobs"), ("apps/v1", "Deployment", "deployments")])
        .collect();
    let world = World::new();
    let mut number = 0;
    for (api_version, kind, _) in &types {
        for _ in 0..60 {
            number += 1;
            let mut owner = missing_widget(api_version, number);
            owner["kind"] = serde_json::json!(kind);
            world.create("ConfigMap", &format!("of-{number}"), &[owner]);
        }
    }
    let rc = world.create("ReplicationController", "rc", &[]);
    for number in 0..50 {
        world.create("Pod", &format!("pod-{number}"), &[owner(&rc)]);
    }
    let silent: Vec<&str> = types.iter().map(|it| it.2).collect();
    world.cluster.intercept(move |call| {
        if call.verb == "get" && silent.contains(&call.resource.as_str()) {
            Interception::Hang
        } else {
            Interception::Pass
        }
    });
    let manager = world.start().await;
    for life in 0..3 {
        // Owners that are not known to exist are looked up, too.
        let mut never = missing_widget("v1", 1_000 + life);
        never["kind"] = serde_json::json!("ReplicationController");
        world.create("ConfigMap", "lost", &[never]);
        // At first, every type is allowed a moment for its response.
        pass(if life == 0 { 10 * SEC } else { 2 * SEC }).await;
        assert!(!world.has("configmaps", "lost"), "{life}: {:?}", world.lines());
        pass(100 * SEC).await;
    }
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(2 * SEC).await;
    assert_eq!(world.names("pods"), [""; 0]);
    assert_eq!(world.names("configmaps").len(), 300);
    let queued = || manager.metric("workqueue_adds_total{name=\"garbage_collector_attempt_to_delete\"}");
    let early = queued();
    pass(10 * SEC).await;
    assert!(queued() - early < 5 * 1_200, "{}", queued() - early);
    world.cluster.stop_intercepting();
    pass(200 * SEC).await;
    assert_eq!(world.names("configmaps"), [""; 0]);
}

/// The writes to widgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Delete,
    Detach,
    Orphan,
    Finish,
}

#[tokio::test(start_paused = true)]
async fn a_type_with_hanging_writes_leaves_workers_to_other_types() {
    for write in [Write::Delete, Write::Detach, Write::Orphan, Write::Finish] {
        let world = World::with_widgets();
        let create_rc = |name: &str| owner(&world.create("ReplicationController", name, &[]));
        let live = create_rc("live");
        for number in 0..100 {
            let mut gone = missing_widget("v1", number);
            gone["kind"] = serde_json::json!("ReplicationController");
            let owners = match write {
                Write::Delete => vec![gone],
                Write::Detach => vec![gone, live.clone()],
                Write::Orphan => vec![create_rc(&format!("rc-{number}"))],
                Write::Finish => vec![],
            };
            world.create("Widget", &format!("w-{number}"), &owners);
        }
        let (pods_go, pod_stays) = (create_rc("pods-go"), create_rc("pod-stays"));
        for number in 0..50 {
            world.create("Pod", &format!("pod-{number}"), std::slice::from_ref(&pods_go));
        }
        world.create("Secret", "stays", &[pod_stays]);
        world.respond(|line, _| {
            let hangs = line.starts_with("delete widgets") || line.starts_with("patch widgets");
            hangs.then_some(Interception::Hang)
        });
        let _manager = world.start().await;
        for number in 0..100 {
            match write {
                Write::Delete | Write::Detach => {}
                Write::Orphan => world.delete("ReplicationController", &format!("rc-{number}"), Some(Orphan)).await,
                Write::Finish => world.delete("Widget", &format!("w-{number}"), Some(Foreground)).await,
            }
        }
        pass(3 * SEC).await;
        world.delete("ReplicationController", "pods-go", Some(Background)).await;
        world.delete("ReplicationController", "pod-stays", Some(Orphan)).await;
        pass(3 * SEC).await;
        assert_eq!(world.names("pods"), [""; 0], "{write:?}");
        assert!(!world.has("replicationcontrollers", "pod-stays"), "{write:?}: {:?}", world.lines());
        assert!(world.owners("secrets", "stays").is_empty(), "{write:?}");
        let sent = world.call_count("delete widgets") + world.call_count("patch widgets");
        assert!((5..=25).contains(&sent), "{write:?}: {sent}");
        assert_eq!(world.names("widgets").len(), 100, "{write:?}");
        world.cluster.stop_intercepting();
        pass(400 * SEC).await;
        let left = world.names("widgets");
        match write {
            Write::Delete | Write::Finish => assert_eq!(left, [""; 0], "{write:?}"),
            Write::Detach => assert!(left.iter().all(|it| world.owners("widgets", it) == ["live"])),
            Write::Orphan => assert!(left.iter().all(|it| world.owners("widgets", it).is_empty())),
        }
        assert_eq!(left.len(), if matches!(write, Write::Delete | Write::Finish) { 0 } else { 100 }, "{write:?}");
        assert!(world.names("replicationcontrollers").len() <= 1, "{write:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_type_that_answers_late_is_collected_all_the_same() {
    let world = World::with_widgets();
    let rc = world.create("ReplicationController", "rc", &[]);
    (0..30).for_each(|it| drop(world.create("Widget", &format!("w-{it}"), &[owner(&rc)])));
    world.respond(|line, _| line.starts_with("delete widgets").then_some(Interception::Delay(2 * SEC)));
    let _manager = world.start().await;
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(60 * SEC).await;
    assert_eq!(world.names("widgets"), [""; 0], "{:?}", world.lines());
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_our_own_budget_makes_no_type_late() {
    let world = World::new();
    let rc = world.create("ReplicationController", "rc", &[]);
    (0..60).for_each(|it| drop(world.create("Pod", &format!("pod-{it}"), &[owner(&rc)])));
    let _manager = world.start_limited(Options::default(), Limits { qps: 2.0, burst: 1 }).await;
    world.delete("ReplicationController", "rc", Some(Background)).await;
    pass(60 * SEC).await;
    assert_eq!(world.names("pods"), [""; 0], "{:?}", world.lines());
    assert_eq!((world.call_count("delete pods"), world.logged("A deletion was not answered").len()), (60, 0));
}
