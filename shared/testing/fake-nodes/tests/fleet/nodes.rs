use std::time::Duration;

use fake_nodes::{NodeSpec, Options, PREFIX};
use serde_json::json;
use test_cluster::Interception;

use crate::world::{World, advance, condition};

#[tokio::test(start_paused = true)]
async fn nodes_are_registered_like_by_a_kubelet() {
    let options = Options { nodes: vec![NodeSpec::new("a").label("zone", "x")], ..Options::with_nodes(0) };
    let world = World::new(options).await;
    let node = world.cluster.get("nodes", "", "a").unwrap();
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "a");
    assert_eq!(node["metadata"]["labels"]["zone"], "x");
    assert_eq!(node["status"]["allocatable"]["pods"], "110");
    assert_eq!(node["status"]["addresses"][0]["type"], "InternalIP");
    assert_eq!(condition(&node, "Ready")["status"], "True");
    let lease = world.cluster.get("leases", "kube-node-lease", "a").unwrap();
    assert_eq!(lease["spec"]["holderIdentity"], "a");
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_every_ten_seconds_and_status_every_five_minutes() {
    let world = World::new(Options::with_nodes(2)).await;
    advance(10).await;
    world.cluster.clear_requests();
    advance(300).await;
    let requests = world.cluster.requests();
    let count = |resource: &str, name: &str| {
        let writes = requests.iter().filter(|it| it.resource == resource && it.name == name && it.verb != "get");
        writes.filter(|it| it.status == 200).count()
    };
    for node in ["node-1", "node-2"] {
        assert_eq!(count("leases", node), 30, "{node}");
        assert_eq!(count("nodes", node), 1, "{node}");
    }
}

#[tokio::test(start_paused = true)]
async fn changed_or_deleted_lease_is_renewed_again() {
    let world = World::new(Options::with_nodes(1)).await;
    world.cluster.update("leases", "kube-node-lease", "node-1", |it| it["spec"]["renewTime"] = json!(null));
    advance(11).await;
    assert!(!world.cluster.get("leases", "kube-node-lease", "node-1").unwrap()["spec"]["renewTime"].is_null());
    world.cluster.remove("leases", "kube-node-lease", "node-1");
    advance(11).await;
    assert!(world.cluster.get("leases", "kube-node-lease", "node-1").is_some());
}

#[tokio::test(start_paused = true)]
async fn silent_node_renews_nothing_and_reports_when_restored() {
    let world = World::new(Options::with_nodes(1)).await;
    world.create("p", json!({ "nodeName": "node-1", "restartPolicy": "Never" }), &[("run-for", "20s")]);
    world.create("deleted", json!({ "nodeName": "node-1" }), &[("stop-after", "2s")]);
    advance(1).await;
    assert!(world.fleet.make_silent("node-1") && !world.fleet.make_silent("unknown"));
    advance(1).await;
    world.cluster.clear_requests();
    let lost = |node: &mut serde_json::Value| {
        let conditions = node["status"]["conditions"].as_array_mut().unwrap();
        conditions.iter_mut().for_each(|it| it["status"] = json!("Unknown"));
    };
    world.cluster.update("nodes", "", "node-1", lost);
    world.mark_deleted("deleted", 30);
    advance(100).await;
    let calls = world.cluster.requests();
    assert!(calls.iter().all(|it| it.verb == "list" || it.verb == "watch"), "{calls:?}");
    assert_eq!((world.phase("p").as_str(), world.phase("deleted").as_str()), ("Running", "Running"));

    world.fleet.restore("node-1");
    advance(1).await;
    let node = world.cluster.get("nodes", "", "node-1").unwrap();
    assert_eq!(condition(&node, "Ready")["status"], "True");
    assert_eq!(world.phase("p"), "Succeeded", "its containers continued while the node was silent");
    let finished = world.pod("p").unwrap()["status"]["containerStatuses"][0]["state"]["terminated"].clone();
    assert_eq!(finished["finishedAt"], "2027-01-15T08:00:20Z");
    assert_eq!(world.phase("deleted"), "Running", "its containers are stopped only now");
    advance(2).await;
    assert_eq!(world.phase("deleted"), "gone");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_restored_node_are_ready_again() {
    let world = World::new(Options::with_nodes(1)).await;
    world.create("p", json!({ "nodeName": "node-1" }), &[]);
    advance(1).await;
    assert_eq!(condition(&world.pod("p").unwrap(), "Ready")["status"], "True");
    assert!(world.fleet.make_silent("node-1"));
    // As the node lifecycle controller does it.
    world.cluster.update("pods", "default", "p", |pod| {
        let conditions = pod["status"]["conditions"].as_array_mut().unwrap();
        conditions.iter_mut().filter(|it| it["type"] == "Ready").for_each(|it| it["status"] = json!("False"));
    });
    advance(60).await;
    assert_eq!(condition(&world.pod("p").unwrap(), "Ready")["status"], "False");
    world.cluster.clear_requests();
    world.fleet.restore("node-1");
    advance(60).await;
    assert_eq!(condition(&world.pod("p").unwrap(), "Ready")["status"], "True");
    let writes = world.cluster.requests().into_iter().filter(|it| it.resource == "pods" && it.verb == "patch").count();
    assert_eq!(writes, 1);
}

#[tokio::test(start_paused = true)]
async fn script_of_a_pod_can_make_its_node_silent_for_some_time() {
    let world = World::new(Options::with_nodes(2)).await;
    let lines = [("node-lost-after", "5s"), ("node-back-after", "60s")];
    world.create("p", json!({ "nodeName": "node-2" }), &lines);
    advance(6).await;
    assert_eq!(world.fleet.silent().into_iter().collect::<Vec<_>>(), ["node-2"]);
    advance(60).await;
    assert!(world.fleet.silent().is_empty());
}

/// Changes the script of a node, as `kubectl annotate` does.
fn annotate(world: &World, node: &str, key: &str, value: Option<&str>) {
    world.cluster.update("nodes", "", node, |it| {
        let annotations = &mut it["metadata"]["annotations"];
        match value {
            Some(value) => annotations[format!("{PREFIX}{key}")] = json!(value),
            None => drop(annotations.as_object_mut().unwrap().remove(&format!("{PREFIX}{key}"))),
        }
    });
}

#[tokio::test(start_paused = true)]
async fn annotation_makes_a_node_silent_until_it_is_removed() {
    let world = World::new(Options::with_nodes(1)).await;
    advance(1).await;
    annotate(&world, "node-1", "silent", Some("true"));
    advance(1).await;
    assert!(world.fleet.silent().contains("node-1"));
    world.cluster.clear_requests();
    advance(60).await;
    let calls = world.cluster.requests();
    assert!(calls.iter().all(|it| it.verb == "list" || it.verb == "watch"), "{calls:?}");
    assert!(world.fleet.restore("node-1"));
    assert!(world.fleet.silent().contains("node-1"), "its script counts");

    annotate(&world, "node-1", "silent", None);
    advance(1).await;
    assert!(world.fleet.silent().is_empty());
    let calls = world.cluster.requests();
    let writes = |resource: &str| calls.iter().filter(|it| it.resource == resource && it.verb != "get").count();
    assert!(writes("leases") > 0 && writes("nodes") > 0, "it reports at once: {calls:?}");
}

#[tokio::test(start_paused = true)]
async fn annotated_conditions_are_posted_at_once() {
    let world = World::new(Options::with_nodes(1)).await;
    let shown = |name: &str| condition(&world.cluster.get("nodes", "", "node-1").unwrap(), name)["status"].clone();
    advance(1).await;
    annotate(&world, "node-1", "not-ready", Some("true"));
    annotate(&world, "node-1", "pressure", Some("memory,pid"));
    advance(1).await;
    let names = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
    assert_eq!(names.map(shown), ["False", "True", "False", "True"]);
    annotate(&world, "node-1", "pressure", Some("cpu"));
    advance(20).await;
    assert_eq!(shown("MemoryPressure"), "True", "an invalid script changes nothing");
    annotate(&world, "node-1", "pressure", None);
    annotate(&world, "node-1", "not-ready", None);
    advance(1).await;
    assert_eq!(names.map(shown), ["True", "False", "False", "False"]);
}

#[tokio::test(start_paused = true)]
async fn kubelet_may_post_only_its_lease_or_only_its_status() {
    let nodes =
        vec![NodeSpec::new("lease").script("posts", "lease"), NodeSpec::new("status").script("posts", "status")];
    let options = Options { nodes, renew_interval: Duration::from_secs(2), ..Options::with_nodes(0) };
    let world = World::new(options).await;
    advance(20).await;
    let renewed = |name: &str| world.cluster.get("leases", "kube-node-lease", name);
    assert_eq!(world.cluster.get("nodes", "", "lease").unwrap()["status"]["conditions"], json!(null));
    assert!(renewed("lease").is_some() && renewed("status").is_none());
    let requests = world.cluster.requests();
    let count = |resource: &str, name: &str| {
        requests.iter().filter(|it| it.resource == resource && it.name == name && it.verb != "get").count()
    };
    assert!((9..=11).contains(&count("leases", "lease")), "{}", count("leases", "lease"));
    assert!((9..=12).contains(&count("nodes", "status")), "{}", count("nodes", "status"));
}

#[tokio::test(start_paused = true)]
async fn fleet_continues_after_server_failures() {
    let world = World::new(Options::with_nodes(1)).await;
    let mut calls = 0;
    world.cluster.intercept(move |call| {
        calls += 1;
        match calls % 4 {
            0 => Interception::status(500, "InternalError", "no luck"),
            1 if call.verb != "watch" => Interception::Hang,
            2 if call.verb != "watch" => Interception::LoseAnswer,
            _ => Interception::Pass,
        }
    });
    world.create("p", json!({ "nodeName": "node-1", "restartPolicy": "Never" }), &[("run-for", "3s")]);
    for resource in ["pods", "nodes"] {
        world.cluster.break_watches(resource);
    }
    world.cluster.compact();
    advance(120).await;
    assert_eq!(world.phase("p"), "Succeeded");
    world.cluster.stop_intercepting();
    advance(60).await;
    let renewed = world.cluster.get("leases", "kube-node-lease", "node-1").unwrap()["spec"]["renewTime"].clone();
    let renewed: clock::Timestamp = renewed.as_str().unwrap().parse().unwrap();
    assert!(world.clock.wall().duration_since(renewed).as_secs() <= 10);
}

#[tokio::test(start_paused = true)]
async fn removed_fleet_leaves_no_objects() {
    let world = World::new(Options::with_nodes(3)).await;
    advance(1).await;
    let World { cluster, fleet, .. } = world;
    assert_eq!(fleet.remove().await, Vec::<String>::new());
    assert!(cluster.list("nodes", "").is_empty() && cluster.list("leases", "").is_empty());
}

#[tokio::test(start_paused = true)]
async fn same_seed_gives_same_run() {
    async fn run(seed: u64) -> Vec<String> {
        let world = World::new(Options { seed, events: true, ..Options::with_nodes(3) }).await;
        for number in 0..12 {
            let node = format!("node-{}", number % 3 + 1);
            let lines = [("run-for", "700ms"), ("crashes", "2"), ("backoff", "500ms")];
            let spec = json!({ "nodeName": node, "restartPolicy": "OnFailure" });
            world.create(&format!("p{number}"), spec, &lines);
        }
        advance(40).await;
        let calls = world.cluster.requests();
        let body = |it: &test_cluster::Recorded| String::from_utf8_lossy(&it.body).into_owned();
        calls.iter().map(|it| format!("{} {} {} {}", it.method, it.path, it.status, body(it))).collect()
    }
    let (one, same, other) = (run(1).await, run(1).await, run(2).await);
    assert!(one.len() > 100, "{}", one.len());
    assert_eq!(one, same);
    assert_ne!(one, other);
}
