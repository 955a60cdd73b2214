//! API groups that appear, disappear and fail.

use harness::pass;
use serde_json::json;
use test_cluster::{DiscoveryFault, Interception};

use crate::world::{MS, SEC, World};

const FINALIZE: &str = "update namespaces/finalize a";

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_014_a_group_that_fails_discovery_is_named_and_delays_only_the_finalizer() {
    let world = World::new();
    world.create_namespace("a");
    world.config_map("a", "x");
    world.object("apps/v1", "ReplicaSet", "a", "x", &[]);
    world.object("batch/v1", "Job", "a", "hidden", &[]);
    world.cluster.fail_discovery("batch", DiscoveryFault::Stale);
    let _manager = world.start().await;
    let start = world.clock.now();
    world.delete_namespace("a");
    pass(30 * SEC).await;
    assert_eq!((world.count("configmaps", "a"), world.count("replicasets", "a")), (0, 0));
    assert_eq!(world.count("jobs", "a"), 1);
    assert_eq!(
        world.condition("a", "NamespaceDeletionDiscoveryFailure"),
        "True DiscoveryFailed: Discovery failed for some groups, 1 failing: unable to retrieve the complete list of \
         server APIs: batch/v1: stale GroupVersion discovery: batch/v1 (see APIService v1.batch)"
    );
    assert_eq!(world.true_conditions("a"), ["NamespaceDeletionDiscoveryFailure"]);
    assert_eq!(
        world.condition("a", "NamespaceContentRemaining"),
        "Unknown ContentNotCounted: Some content could not be counted"
    );
    assert_eq!(world.times(FINALIZE, start).len(), 0);
    // Each pass ends in an error: the back-off grows from 5 ms.
    let looks = world.times("get namespaces a", start);
    let waits: Vec<_> = looks.windows(2).map(|it| it[1] - it[0]).collect();
    assert!(waits.len() >= 10 && waits[0] < 20 * MS, "{waits:?}");
    assert!(waits.windows(2).all(|it| it[1] > it[0] * 3 / 2), "{waits:?}");
    let failures = world.logged("Sync failed");
    assert_eq!(failures.len(), looks.len(), "{failures:?}");
    assert!(failures.iter().all(|it| it.contains("stale GroupVersion discovery: batch/v1")), "{failures:?}");

    world.cluster.restore_group("batch");
    let cluster = world.cluster.clone();
    world.fail_requests(move |line, _| {
        if line == FINALIZE {
            let namespace = cluster.get("namespaces", "", "a").unwrap();
            assert_eq!(
                namespace["status"]["conditions"][0]["status"], "False",
                "the condition is stored before the finalize request"
            );
        }
        None
    });
    pass(61 * SEC).await;
    assert_eq!(world.count("jobs", "a"), 0);
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn failed_discovery_deletes_nothing_and_is_retried() {
    let world = World::new();
    world.create_namespace("a");
    world.config_map("a", "x");
    let _manager = world.start().await;
    world.fail_requests(|line, _| {
        line.starts_with("GET /api").then(|| Interception::status(500, "InternalError", "etcd is unavailable"))
    });
    world.delete_namespace("a");
    pass(20 * SEC).await;
    assert_eq!(world.count("configmaps", "a"), 1);
    assert!(world.condition("a", "NamespaceDeletionDiscoveryFailure").contains("etcd is unavailable"));
    assert!(world.condition("a", "NamespaceContentRemaining").starts_with("Unknown ContentNotCounted"));
    assert!(world.lines("a").iter().all(|it| it.contains("namespaces")));
    world.fail_requests(|_, _| None);
    pass(61 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn a_server_without_aggregated_discovery_is_read_group_by_group() {
    let world = World::new();
    world.create_namespace("a");
    world.config_map("a", "x");
    world.object("batch/v1", "Job", "a", "x", &[]);
    let _manager = world.start().await;
    world.fail_requests(|line, _| {
        let body = match line {
            "GET /api" => json!({ "kind": "APIVersions", "versions": ["v1"] }),
            "GET /apis" => json!({ "kind": "APIGroupList", "groups": [
                { "name": "apps", "versions": [{ "groupVersion": "apps/v1" }] },
                { "name": "batch", "versions": [{ "groupVersion": "batch/v1" }] },
                { "name": "gone.io", "versions": [{ "groupVersion": "gone.io/v1" }] },
            ] }),
            _ => return None,
        };
        Some(Interception::Answer { status: 200, headers: Vec::new(), body })
    });
    world.delete_namespace("a");
    pass(10 * SEC).await;
    assert_eq!((world.count("configmaps", "a"), world.count("jobs", "a")), (0, 0));
    let told = world.condition("a", "NamespaceDeletionDiscoveryFailure");
    assert!(told.contains("gone.io/v1: ") && told.contains("(see APIService v1.gone.io)"), "{told}");
    assert!(world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_027_a_kind_that_came_after_the_start_is_emptied_too() {
    let world = World::new();
    world.create_namespace("early");
    let _manager = world.start().await;
    world.delete_namespace("early");
    pass(500 * MS).await;
    // Discovery is cached by now, without this kind.
    world.custom_kind("widgets", "Widget");
    world.create_namespace("a");
    world.object("example.com/v1", "Widget", "a", "x", &[]);
    world.delete_namespace("a");
    pass(10 * SEC).await;
    assert_eq!(world.count("widgets.example.com", "a"), 0);
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_namespace_029_an_aggregated_api_that_is_down_stops_nothing_else() {
    let world = World::new();
    world.custom_kind("widgets", "Widget");
    world.create_namespace("a");
    world.pod("a", "p", 0, &[]);
    world.config_map("a", "x");
    world.object("batch/v1", "Job", "a", "x", &[]);
    world.object("example.com/v1", "Widget", "a", "x", &[]);
    world.cluster.break_group("example.com");
    let _manager = world.start().await;
    world.delete_namespace("a");
    pass(20 * SEC).await;
    assert_eq!((world.count("pods", "a"), world.count("configmaps", "a"), world.count("jobs", "a")), (0, 0, 0));
    assert!(world.condition("a", "NamespaceDeletionDiscoveryFailure").contains("APIService v1.example.com"));
    assert!(world.exists("a"));
    world.cluster.restore_group("example.com");
    pass(61 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn a_discovered_group_that_does_not_respond_is_named_by_kind() {
    let world = World::new();
    world.custom_kind("widgets", "Widget");
    world.create_namespace("a");
    world.config_map("a", "x");
    world.object("example.com/v1", "Widget", "a", "x", &[]);
    let _manager = world.start().await;
    world.fail_requests(|_, call| (call.group == "example.com").then_some(Interception::Hang));
    world.delete_namespace("a");
    pass(11 * SEC).await;
    assert_eq!(world.count("configmaps", "a"), 0);
    assert!(
        world.condition("a", "NamespaceDeletionContentFailure").contains("widgets.example.com: not answered in time")
    );
    world.fail_requests(|_, _| None);
    pass(100 * SEC).await;
    assert!(!world.exists("a"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_cluster_list_hangs_is_listed_in_each_namespace() {
    let world = World::new();
    world.custom_kind("widgets", "Widget");
    ["a", "b", "held"].iter().for_each(|it| world.create_namespace(it));
    world.object("example.com/v1", "Widget", "a", "x", &[]);
    world.object("v1", "Secret", "held", "x", &["x.io/hold"]);
    let _manager = world.start().await;
    // A conversion webhook hangs on an object of a third namespace.
    world.fail_requests(|line, _| (line == "list widgets.example.com *").then_some(Interception::Hang));
    ["a", "b", "held"].iter().for_each(|it| world.delete_namespace(it));
    pass(8 * SEC).await;
    assert!(!world.exists("a") && !world.exists("b"));
    // The list is not repeated soon, while namespaces terminate.
    world.create_namespace("c");
    world.delete_namespace("c");
    pass(6 * SEC).await;
    assert!(!world.exists("c"));
}

#[tokio::test(start_paused = true)]
async fn a_discovery_that_hangs_or_is_empty_is_reported() {
    type Answer = fn(&str) -> Interception;
    fn hangs(_: &str) -> Interception {
        Interception::Hang
    }
    fn is_empty(_: &str) -> Interception {
        let body = json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": [] });
        Interception::Answer { status: 200, headers: Vec::new(), body }
    }
    // Discovery is not aggregated, and all of its groups hang, some at a time.
    fn hangs_by_group(line: &str) -> Interception {
        let group = |number| {
            let name = format!("g{number}.io");
            json!({ "name": name, "versions": [{ "groupVersion": format!("{name}/v1") }] })
        };
        let body = match line {
            "GET /api" => json!({ "kind": "APIVersions", "versions": ["v1"] }),
            "GET /apis" => json!({ "kind": "APIGroupList", "groups": (0..99).map(group).collect::<Vec<_>>() }),
            _ => return Interception::Hang,
        };
        Interception::Answer { status: 200, headers: Vec::new(), body }
    }
    let cases: [(Answer, &str); 3] = [
        (hangs, "/api: no answer within 10 s; /apis: no answer within 10 s"),
        (hangs_by_group, "discovery was not answered in time"),
        (is_empty, "the server lists no resources at all"),
    ];
    for (answer, want) in cases {
        let world = World::new();
        world.create_namespace("a");
        world.config_map("a", "x");
        let _manager = world.start().await;
        world.fail_requests(move |line, _| line.starts_with("GET /api").then(|| answer(line)));
        world.delete_namespace("a");
        pass(32 * SEC).await;
        assert_eq!(world.condition("a", "NamespaceDeletionDiscoveryFailure"), format!("True DiscoveryFailed: {want}"));
        assert_eq!(world.count("configmaps", "a"), 1);
        world.fail_requests(|_, _| None);
        pass(200 * SEC).await;
        assert!(!world.exists("a"), "{want}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_request_is_removed_with_its_kind_but_not_when_discovery_fails() {
    let cases = [
        (DiscoveryFault::Stale, "list widgets.example.com a"),
        (DiscoveryFault::Missing, "deletecollection widgets.example.com a"),
    ];
    for (fault, want) in cases {
        let world = World::new();
        world.custom_kind("widgets", "Widget");
        world.create_namespace("a");
        world.object("example.com/v1", "Widget", "a", "x", &["x.io/hold"]);
        world.object("v1", "Secret", "a", "x", &["x.io/hold"]);
        let _manager = world.start().await;
        world.delete_namespace("a");
        pass(10 * SEC).await;
        assert!(world.lines("a").contains(&"deletecollection widgets.example.com a".to_owned()));
        world.cluster.fail_discovery("example.com", fault);
        pass(100 * SEC).await;
        let before = world.lines("a").len();
        world.cluster.restore_group("example.com");
        pass(100 * SEC).await;
        let lines = world.lines("a").split_off(before);
        let of_the_kind = lines.iter().find(|it| it.ends_with(" widgets.example.com a"));
        assert_eq!(of_the_kind.map(String::as_str), Some(want), "{fault:?}");
    }
}
