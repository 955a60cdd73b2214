//! Which pods are evicted, and how.

use harness::pass;
use serde_json::{Value, json};

use crate::world::{EVICTION_OF_A, MARKED_A, MS, NOT_READY, SEC, UNREACHABLE, World, deletions, taint, tolerates};

#[tokio::test(start_paused = true)]
async fn acceptance_node_033_a_pod_without_toleration_is_deleted_at_once() {
    let world = World::new();
    let uid = world.add_pod("a", "n1", json!([]))["metadata"]["uid"].clone();
    let manager = world.start().await;
    assert_eq!(world.lines(), [""; 0]);
    world.taint("n1", json!([taint("k")]));
    pass(100 * MS).await;
    assert_eq!(world.lines(), EVICTION_OF_A);
    let calls = world.calls();
    let condition = json!({ "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "observedGeneration": 1,
        "lastTransitionTime": world.second() });
    assert_eq!(calls[2].json(), json!({ "metadata": { "uid": uid }, "status": { "conditions": [condition] } }));
    let options = calls[3].json();
    assert_eq!(options["preconditions"], json!({ "uid": uid }));
    assert!(options["gracePeriodSeconds"].is_null(), "the grace period of the pod: {options}");
    let stored = world.get_pod("a").unwrap();
    assert_eq!(stored["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(stored["status"]["conditions"][0]["type"], "DisruptionTarget");

    assert_eq!(world.events().await, [MARKED_A]);
    let event = &world.cluster.list("events", "n")[0];
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "a" });
    assert_eq!((&event["involvedObject"], &event["source"]["component"]), (&pod, &json!("taint-eviction-controller")));
    assert_eq!(world.logged("Deleting a pod because of a NoExecute taint").len(), 1);
    let (count, seconds) = deletions(&manager);
    assert!(count == 1 && seconds < 0.1, "{count} {seconds}");

    world.remove_pod("a");
    pass(3600 * SEC).await;
    assert_eq!(world.lines().len(), 4, "nothing follows");
    assert!(world.logged("Sync failed").is_empty());
}

/// Neither a taint that is there at the start nor one that is added later evicts such a pod.
async fn assert_stays(tolerations: Value, taints: Value) {
    let world = World::new();
    world.taint("n1", taints.clone());
    world.add_pod("a", "n1", tolerations.clone());
    world.add_pod("b", "n2", tolerations.clone());
    let _manager = world.start().await;
    world.taint("n2", taints.clone());
    world.add_pod("c", "n1", tolerations.clone());
    pass(86_400 * SEC).await;
    assert_eq!(world.lines(), [""; 0], "{tolerations} {taints}");
    assert!(["a", "b", "c"].iter().all(|it| !world.is_deleted(it)));
    assert!(world.events().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_034_a_pod_that_tolerates_without_limit_stays() {
    assert_stays(json!([tolerates("k", None)]), json!([taint("k")])).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_040_an_empty_key_tolerates_all_taints() {
    let all = json!([{ "operator": "Exists", "effect": "NoExecute" }]);
    assert_stays(all, json!([taint("k"), taint("node.kubernetes.io/out-of-service")])).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_041_taints_of_other_effects_evict_no_pod() {
    let taints = json!([{ "key": "a", "effect": "NoSchedule" }, { "key": "b", "effect": "PreferNoSchedule" }]);
    assert_stays(json!([]), taints).await;
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_043_static_pods_and_daemon_pods_stay() {
    let down = json!([taint(NOT_READY), taint(UNREACHABLE)]);
    // As the kubelet and the DaemonSet controller write them.
    assert_stays(json!([{ "operator": "Exists", "effect": "NoExecute" }]), down.clone()).await;
    let of_daemon = [NOT_READY, UNREACHABLE].map(|it| tolerates(it, None));
    assert_stays(json!(of_daemon), down).await;
}

#[tokio::test(start_paused = true)]
async fn out_of_service_is_a_taint_like_any_other() {
    let world = World::new();
    let of_daemon = [NOT_READY, UNREACHABLE].map(|it| tolerates(it, None));
    world.add_pod("a", "n1", json!(of_daemon));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("node.kubernetes.io/out-of-service")]));
    pass(100 * MS).await;
    assert_eq!(world.lines(), EVICTION_OF_A);
    assert_eq!(world.calls()[3].json()["gracePeriodSeconds"], Value::Null, "only pod garbage collection forces");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_042_a_disruption_budget_does_not_protect() {
    let world = World::new();
    world.cluster.create(json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "b", "namespace": "n" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "x" } } },
        "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 } }));
    world.add_pod("a", "n1", json!([]));
    world.update_pod("a", |it| it["metadata"]["labels"] = json!({ "app": "x" }));
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    pass(100 * MS).await;
    assert_eq!(world.lines(), EVICTION_OF_A, "no use of the eviction API");
    assert!(world.is_deleted("a"));
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_045_running_pods_are_evicted_without_any_other_controller() {
    let world = World::new();
    for number in 0..20 {
        world.add_pod(&format!("p{number}"), "n1", json!([]));
        world.add_pod(&format!("q{number}"), "n2", json!([]));
    }
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    pass(100 * MS).await;
    for number in 0..20 {
        assert!(world.is_deleted(&format!("p{number}")) && !world.is_deleted(&format!("q{number}")), "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_to_a_tainted_node_are_evicted() {
    let world = World::new();
    world.taint("n1", json!([taint("k")]));
    world.add_pod("old", "n1", json!([]));
    let _manager = world.start().await;
    assert!(world.is_deleted("old"), "the taint was there at the start");
    world.add_pod("new", "n1", json!([]));
    let unbound = world.add_pod("unbound", "", json!([]));
    assert!(unbound["spec"]["nodeName"].as_str().unwrap_or_default().is_empty());
    pass(100 * MS).await;
    assert!(world.is_deleted("new") && !world.is_deleted("unbound"));
    world.update_pod("unbound", |it| it["spec"]["nodeName"] = json!("n1"));
    pass(100 * MS).await;
    assert!(world.is_deleted("unbound"));
}

#[tokio::test(start_paused = true)]
async fn pods_that_end_anyway_are_left_alone() {
    let world = World::new();
    for (name, phase) in [("succeeded", "Succeeded"), ("failed", "Failed"), ("terminating", "Running")] {
        world.add_pod(name, "n1", json!([tolerates("timed", Some(10))]));
        world.update_pod(name, |it| it["status"]["phase"] = json!(phase));
    }
    world.delete_pod_gracefully("terminating");
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    pass(10 * SEC).await;
    world.taint("n1", json!([taint("timed")]));
    pass(60 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
    assert!(world.events().await.is_empty());
    assert_eq!(world.pods().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_begins_to_end_while_it_waits_is_left_alone() {
    let world = World::new();
    for name in ["a", "b"] {
        world.add_pod(name, "n1", json!([tolerates("k", Some(10))]));
    }
    let _manager = world.start().await;
    world.taint("n1", json!([taint("k")]));
    pass(5 * SEC).await;
    world.delete_pod_gracefully("a");
    world.update_pod("b", |it| it["status"]["phase"] = json!("Succeeded"));
    pass(60 * SEC).await;
    world.remove_pod("a");
    assert!(world.events().await.is_empty(), "its deletion was not cancelled");
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_share_a_read_of_the_node() {
    let world = World::new();
    for number in 0..100 {
        world.add_pod(&format!("p{number}"), "n1", json!([tolerates("k", Some(60))]));
    }
    let manager = world.start_limited().await;
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(80 * SEC).await;
    assert_eq!((world.call_count("get pods"), world.call_count("delete pods"), deletions(&manager).0), (100, 100, 100));
    // 300 other requests take 14 s.
    let reads = world.call_times("get nodes n1");
    assert!(reads.len() <= 16, "{reads:?}");
    assert!(reads.windows(2).all(|it| it[1] - it[0] >= SEC), "{reads:?}");
    let last = *world.call_times("delete pods").last().unwrap();
    assert!(last - *reads.last().unwrap() < 3 * SEC, "no pod is deleted long after the read");
}

#[tokio::test(start_paused = true)]
async fn changes_that_mean_nothing_enqueue_nothing() {
    let world = World::new();
    world.taint("n1", json!([taint("k")]));
    for (name, node) in [("a", "n1"), ("b", "n2")] {
        world.add_pod(name, node, json!([tolerates("k", None)]));
    }
    let manager = world.start_with_resync(10 * SEC).await;
    let adds = |queue: &str| manager.metric(&format!("workqueue_adds_total{{name=\"{queue}\"}}"));
    let both = || (adds("noexec_taint_node"), adds("noexec_taint_pod"));
    assert_eq!(both(), (1, 1), "one node with one pod");
    for second in 0..100 {
        let labels = json!({ "at": second.to_string() });
        ["n1", "n2"].iter().for_each(|it| {
            world.cluster.update("nodes", "", it, |it| it["metadata"]["labels"] = labels.clone());
        });
        ["a", "b"].iter().for_each(|it| world.update_pod(it, |it| it["metadata"]["labels"] = labels.clone()));
        pass(SEC).await;
    }
    world.taint("n2", json!([{ "key": "k", "effect": "NoSchedule" }]));
    world.add_pod("c", "n2", json!([]));
    world.add_node("n3", json!([]));
    pass(SEC).await;
    assert_eq!(both(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn durations_are_observed_in_seconds() {
    let world = World::new();
    world.add_pod("a", "n1", json!([tolerates("k", Some(10))]));
    let manager = world.start().await;
    world.fail_requests(|line, _| (line == "get pods a").then_some(test_cluster::Interception::Delay(8 * SEC)));
    world.taint("n1", json!([taint("k")]));
    world.sleep_until(60 * SEC).await;
    let (count, seconds) = deletions(&manager);
    assert!(count == 1 && (8.0..8.1).contains(&seconds), "{count} {seconds}");
    let le = |bound: &str| {
        let name = "taint_eviction_controller_pod_deletion_duration_seconds_bucket";
        manager.metric(&format!("{name}{{le=\"{bound}\"}}"))
    };
    let bounds = ["0.005", "0.025", "0.1", "0.5", "1", "2.5", "10", "30", "60", "120", "180", "240", "+Inf"];
    assert_eq!(bounds.map(le), [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1], "upstream's buckets");
}
