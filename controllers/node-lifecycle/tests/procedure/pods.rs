//! Pods of nodes that are not ready.

use harness::{NAMESPACE, failure, pass};
use serde_json::json;

use crate::world::{MS, SEC, World, condition, is_punctual};

/// Nodes `a` and `b`, a pod on each, and a manager; then `a` falls silent at the second 0.
async fn silent() -> (World, harness::Manager) {
    let world = World::with(&["a", "b"]);
    world.add_pod("on-a", "a");
    world.add_pod("on-b", "b");
    let manager = world.start().await;
    (world, manager)
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_007_the_pods_of_a_silent_node_are_marked_with_unchanged_reason() {
    let (world, _manager) = silent().await;
    world.add_pod("marked", "a");
    world.add_pod("bare", "a");
    let set = |pod: &str, conditions| {
        world.cluster.update("pods", NAMESPACE, pod, |it| it["status"]["conditions"] = conditions)
    };
    set("marked", json!([{ "type": "Ready", "status": "False", "reason": "Other" }]));
    set("bare", json!([]));
    world.kubelets(&["b"], 60 * SEC).await;
    let ready = condition(&world.pod("on-a"), "Ready");
    let fields = ["status", "reason", "message", "lastTransitionTime"].map(|it| ready[it].as_str().unwrap());
    assert_eq!(fields, ["False", "Started", "it serves", "2027-01-15T08:00:50Z"]);
    assert!(!world.is_marked("on-b"));
    let marked = world.call_times("patch pods/status");
    assert!(marked.len() == 1 && is_punctual(marked[0], 50 * SEC), "{marked:?}: only the pod that was ready");
    assert_eq!(world.event_count("NodeNotReady").await, 1);
    let events = world.events().await;
    assert_eq!(events, ["Warning NodeNotReady: Node is not ready"]);
    let uid = world.pod("on-a")["metadata"]["uid"].clone();
    let event = &world.cluster.list("events", NAMESPACE)[0];
    assert_eq!((&event["involvedObject"]["name"], &event["involvedObject"]["uid"]), (&json!("on-a"), &uid));
    let body = world.calls().iter().find(|it| it.resource == "pods").unwrap().json();
    assert_eq!(body["metadata"]["uid"], uid, "not another pod of the same name");
    assert!(body["metadata"]["resourceVersion"].is_string(), "not a pod that its kubelet has written since");
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_008_a_failed_write_is_repeated_until_it_succeeds() {
    let (world, _manager) = silent().await;
    world.add_pod("second", "a");
    world.fail_requests(|line, _| if line == "patch pods/status on-a" { failure(500, "InternalError") } else { None });
    world.kubelets(&["b"], 400 * SEC).await;
    assert!(world.is_marked("second") && !world.is_marked("on-a"));
    assert!(world.call_count("patch pods/status on-a") > 5);
    assert_eq!(world.events().await.len(), 1, "only of the pod that was marked");
    world.fail_requests(|_, _| None);
    world.kubelets(&["b"], 406 * SEC).await;
    assert!(world.is_marked("on-a"), "not later than upstream's next pass");
    let count = world.call_count("patch pods/status");
    world.kubelets(&["b"], 600 * SEC).await;
    assert_eq!(world.call_count("patch pods/status"), count);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_009_a_pod_that_is_gone_counts_as_marked() {
    let (world, _manager) = silent().await;
    ["c", "d"].iter().for_each(|it| world.add_pod(it, "a"));
    pass(SEC).await;
    world.cluster.freeze_watches("pods");
    world.cluster.remove("pods", NAMESPACE, "on-a");
    world.cluster.remove("pods", NAMESPACE, "c");
    world.add_pod("c", "b");
    world.kubelets(&["b"], 60 * SEC).await;
    assert!(world.is_marked("d"));
    assert!(!world.is_marked("c"), "a new pod of the same name on another node");
    let [c, d, on_a] = ["c", "d", "on-a"].map(|it| world.call_count(&format!("patch pods/status {it}")));
    assert_eq!((d, on_a), (1, 1));
    // The conflict does not tell whether `c` was replaced or only changed, so it is tried again every second until the
    // cache shows it.
    assert!((2..=11).contains(&c), "{c} in 10 s");
    assert_eq!(world.call_count("patch pods"), c + d + on_a);
    assert_eq!(world.logged("Sync failed"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_node_010_a_pod_that_is_bound_to_a_node_that_is_not_ready_is_marked() {
    let (world, _manager) = silent().await;
    world.kubelets(&["b"], 100 * SEC).await;
    world.add_pod("new", "a");
    world.cluster.create(
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "pending", "namespace": NAMESPACE },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }),
    );
    pass(100 * MS).await;
    assert!(world.is_marked("new") && !world.is_marked("pending"));
    world.cluster.update("pods", NAMESPACE, "pending", |it| it["spec"]["nodeName"] = json!("a"));
    pass(100 * MS).await;
    assert!(world.is_marked("pending"));
}

#[tokio::test(start_paused = true)]
async fn pods_of_ready_and_of_unknown_nodes_are_not_marked() {
    let (world, _manager) = silent().await;
    world.add_pod("lost", "nowhere");
    world.kubelets(&["a", "b"], 200 * SEC).await;
    world.add_pod("new", "b");
    pass(10 * SEC).await;
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn pods_are_marked_when_the_controller_learns_of_their_node_later() {
    let (world, _manager) = silent().await;
    world.add_pod("early", "late");
    world.kubelets(&["a", "b"], 20 * SEC).await;
    world.create_old("late", "Unknown", 3600, &[]);
    pass(100 * MS).await;
    assert!(world.is_marked("early"));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_not_ready_at_the_start_are_marked() {
    // k/k#135205: the node died while no manager ran, or the one before did not finish.
    for (ready, delay) in [("Unknown", 0), ("False", 10)] {
        let world = World::with(&["b"]);
        world.create_old("a", ready, 20, &[]);
        world.add_pod("on-a", "a");
        world.add_pod("on-b", "b");
        let _manager = world.start().await;
        world.kubelets(&["b"], delay * SEC + 200 * MS).await;
        assert!(world.is_marked("on-a"), "{ready}");
        world.kubelets(&["b"], 20 * SEC).await;
        assert!(!world.is_marked("on-b"));
        assert_eq!(world.call_count("patch pods/status"), 1, "{ready}");
        assert_eq!(world.event_count("NodeNotReady").await, 0, "the node did not change");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_marked_when_the_kubelet_posts_for_ten_seconds_that_its_node_is_not_ready() {
    // k/k#125618
    let (world, _manager) = silent().await;
    world.kubelets(&["a", "b"], 20 * SEC).await;
    world.post("a", "False");
    world.kubelets(&["a", "b"], 30 * SEC - MS).await;
    assert!(!world.is_marked("on-a"));
    world.kubelets(&["a", "b"], 31 * SEC).await;
    assert!(world.is_marked("on-a") && !world.is_marked("on-b"));
    let marked = world.call_times("patch pods/status");
    assert!(is_punctual(marked[0], 30 * SEC), "{marked:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_are_not_marked_when_a_kubelet_only_restarts() {
    let (world, _manager) = silent().await;
    world.kubelets(&["a", "b"], 20 * SEC).await;
    world.post("a", "False");
    world.kubelets(&["a", "b"], 28 * SEC).await;
    world.post("a", "True");
    world.kubelets(&["a", "b"], 60 * SEC).await;
    assert_eq!(world.call_count("patch pods/status"), 0);
}

#[tokio::test(start_paused = true)]
async fn pods_are_marked_again_when_a_node_that_was_not_ready_falls_silent() {
    // k/k#112733
    let (world, _manager) = silent().await;
    world.post("a", "False");
    world.kubelets(&["b"], 20 * SEC).await;
    assert!(world.is_marked("on-a"));
    // Its kubelet has posted the pod as ready again, and dies.
    world.cluster.update("pods", NAMESPACE, "on-a", |it| it["status"]["conditions"][0]["status"] = json!("True"));
    world.kubelets(&["b"], 45 * SEC).await;
    assert!(!world.is_marked("on-a"), "the kubelet is alive and knows better");
    world.kubelets(&["b"], 60 * SEC).await;
    assert!(world.is_marked("on-a"));
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_came_back_are_not_marked_by_an_old_failure() {
    let (world, _manager) = silent().await;
    world.fail_requests(|line, _| if line.contains("pods/status") { failure(500, "InternalError") } else { None });
    world.kubelets(&["b"], 60 * SEC).await;
    world.post("a", "True");
    world.renew("a");
    pass(100 * MS).await;
    world.fail_requests(|_, _| None);
    world.cluster.clear_requests();
    world.kubelets(&["a", "b"], 600 * SEC).await;
    assert!(!world.is_marked("on-a"));
    assert_eq!(world.lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn pods_are_marked_although_the_taint_waits_or_is_never_set() {
    let world = World::with(&["a", "b", "c", "d"]);
    for node in ["a", "b", "c"] {
        world.add_pod(node, node);
    }
    let _manager = world.start().await;
    world.kubelets(&["d"], 51 * SEC).await;
    assert!(["a", "b", "c"].iter().all(|it| world.is_marked(it)), "3 of 4 nodes: the rate of the zone is zero");
    assert_eq!(world.taintings(), []);
}
