//! Nodes that fall silent and pods that are evicted, with upstream's own role: the whole way on both servers, many
//! nodes at once, and the equality with the upstream manager in objects, order and pace.
//!
//! With `E2E_MANAGER=go` the upstream manager runs instead of ours.

#![expect(clippy::unwrap_used, reason = "scenarios are tests, called by the macro's")]

#[path = "../support/mod.rs"]
mod support;

mod cases;
mod many;
mod pace;
mod setup;
mod upstream;

use std::time::Duration;

use e2e::{
    Flavour, Options, eventually,
    fields::{condition, is_deleting, is_ready, name, uid},
};
use fake_nodes::NodeSpec;
use serde_json::{Value, json};

use setup::{
    NOT_READY, Nodes, TIME_LIMIT, UNREACHABLE, deleted_at, launch, pod, pod_path, taint, tainted_at, toleration,
};
use support::{On, on_both_servers};

/// Five times the interval at which kubelets renew their Leases.
const GRACE: Duration = Duration::from_secs(5);
const RENEW_INTERVAL: Duration = Duration::from_secs(1);
/// How long pods tolerate an unreachable node.
const TOLERATED: i64 = 2;
/// How much later a pod may be evicted: the seconds count from the observation of the taint, a moment after `timeAdded`;
/// node and pod are read live before the deletion; and both times have no fraction.
const LATE: i64 = 3;

on_both_servers! {
    acceptance_node_042_043_050_pods_of_a_silent_node_are_evicted_when_their_tolerations_end
    acceptance_node_045_taints_of_users_evict_without_the_node_lifecycle_controller
    acceptance_node_046_without_the_taint_eviction_controller_nodes_are_tainted_and_no_pod_is_deleted
}

async fn start(site: &e2e::Site, count: usize) -> anyhow::Result<Nodes> {
    let specs = (1..=count).map(|it| NodeSpec::new(format!("node-{it}"))).collect();
    Nodes::start(site, specs, RENEW_INTERVAL, &["default-scheduler"]).await
}

/// Creates pods and waits until they are ready.
async fn create_pods(nodes: &Nodes, pods: &[Value]) {
    nodes.admin.create_all(pods.iter().map(|it| (pod_path(""), it.clone())).collect()).await.unwrap();
    let all_ready = |it: &Nodes| pods.iter().all(|pod| it.pod(name(pod)).is_some_and(|it| is_ready(&it)));
    nodes.until("the pods to be ready", all_ready).await.unwrap();
}

/// Waits until a node is ready and has no taint.
async fn until_recovered(nodes: &Nodes, node: &str) {
    let is_clean = |it: &Value| is_ready(it) && it["spec"]["taints"].as_array().is_none_or(Vec::is_empty);
    nodes.until(&format!("{node} to have no taint"), |it| it.node(node).is_some_and(|it| is_clean(&it))).await.unwrap();
}

/// Waits until a node has both taints of an unreachable node.
async fn until_unreachable(nodes: &Nodes, node: &str) -> Value {
    let is_tainted = |it: &Value| ["NoExecute", "NoSchedule"].iter().all(|of| taint(it, UNREACHABLE, of).is_some());
    let what = format!("{node} to be unreachable");
    eventually(&what, TIME_LIMIT, async || Ok(nodes.node(node).filter(&is_tainted))).await.unwrap()
}

/// Waits until a pod is being deleted.
async fn until_deleting(nodes: &Nodes, pod: &str) -> Value {
    let what = format!("{pod} to be evicted");
    eventually(&what, TIME_LIMIT, async || Ok(nodes.pod(pod).filter(is_deleting))).await.unwrap()
}

/// Waits until a pod does not exist any more.
async fn until_gone(nodes: &Nodes, pod: &str) {
    nodes.until(&format!("{pod} to go"), |it| it.pod(pod).is_none()).await.unwrap();
}

async fn until_event(nodes: &Nodes, about: &str, message: &str) {
    let is_it = |it: &Value| it["involvedObject"]["name"] == about && it["message"] == message;
    nodes.until(&format!("the event {message:?}"), |it| it.all_events().iter().any(is_it)).await.unwrap();
}

/// A DaemonSet with a pod on each node.
async fn create_daemon_set(nodes: &Nodes, count: usize) -> Vec<Value> {
    let labels = json!({ "app": "agent" });
    let template = json!({ "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": "example.com/main:1" }] } });
    let set = json!({ "metadata": { "name": "agent" },
        "spec": { "selector": { "matchLabels": labels }, "template": template } });
    let path = format!("/apis/apps/v1/namespaces/{}/daemonsets", setup::NAMESPACE);
    nodes.admin.create(&path, &set).await.unwrap();
    let pods = eventually("the pods of the DaemonSet", TIME_LIMIT, async || {
        let pods = nodes.all_pods().into_iter().filter(|it| it["metadata"]["labels"]["app"] == "agent" && is_ready(it));
        let pods: Vec<Value> = pods.collect();
        Ok((pods.len() == count).then_some(pods))
    });
    pods.await.unwrap()
}

/// A pod whose budget allows no disruption.
async fn create_guarded(nodes: &Nodes, tolerations: &Value) -> Value {
    let mut guarded = pod("guarded", "node-1", tolerations);
    guarded["metadata"]["labels"] = json!({ "app": "guarded" });
    let budget = json!({ "metadata": { "name": "guarded" },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "guarded" } } } });
    let path = format!("/apis/policy/v1/namespaces/{}/poddisruptionbudgets", setup::NAMESPACE);
    nodes.admin.create(&path, &budget).await.unwrap();
    guarded
}

async fn acceptance_node_042_043_050_pods_of_a_silent_node_are_evicted_when_their_tolerations_end(on: On) {
    let scenario = "the pods of a silent node are evicted, and the node recovers";
    let Some(server) = on.server(scenario, Options::default()).await.unwrap() else { return };
    let nodes = start(&server, 3).await.unwrap();
    let controllers = "node-lifecycle-controller,taint-eviction-controller,daemonset-controller";
    let launch = launch(&server, Flavour::from_environment(), controllers, GRACE).unwrap();
    let _manager = launch.flag("node-monitor-period", "1s").started().await.unwrap();
    for node in ["node-1", "node-2", "node-3"] {
        until_recovered(&nodes, node).await;
    }
    let agents = create_daemon_set(&nodes, 3).await;
    let agent = agents.iter().find(|it| it["spec"]["nodeName"] == "node-1").unwrap();
    let briefly = json!([toleration(UNREACHABLE, Some(TOLERATED)), toleration(NOT_READY, Some(TOLERATED))]);
    let mut mirror = pod("mirror", "node-1", &json!([{ "operator": "Exists", "effect": "NoExecute" }]));
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("hash");
    let guarded = create_guarded(&nodes, &briefly).await;
    let brief = pod("brief", "node-1", &briefly);
    let other = pod("other", "node-2", &briefly);
    create_pods(&nodes, &[pod("plain", "node-1", &json!([])), brief, guarded, mirror, other]).await;
    let stay = ["plain", "mirror", name(agent)];
    let before: Vec<String> = stay.iter().chain(&["other"]).map(|it| uid(&nodes.pod(it).unwrap())).collect();

    assert!(nodes.fleet.make_silent("node-1"));
    let node = until_unreachable(&nodes, "node-1").await;
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let shown = condition(&node, kind);
        assert_eq!((&shown["status"], &shown["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")), "{kind}");
    }
    until_event(&nodes, "node-1", "Node node-1 status is now: NodeNotReady").await;
    let tainted = tainted_at(&node, UNREACHABLE).unwrap();
    for evicted in ["brief", "guarded"] {
        let pod = until_deleting(&nodes, evicted).await;
        let deleted = deleted_at(&pod).unwrap();
        let tolerated = deleted - tainted;
        assert!((TOLERATED..=TOLERATED + LATE).contains(&tolerated), "{evicted} is evicted after {tolerated} s");
        let target = condition(&pod, "DisruptionTarget");
        assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!("DeletionByTaintManager")));
        let marked = format!("Marking for deletion Pod {}/{evicted}", setup::NAMESPACE);
        until_event(&nodes, evicted, &marked).await;
    }
    for kept in stay {
        let is_marked = |it: &Nodes| it.pod(kept).is_some_and(|it| !is_ready(&it));
        nodes.until(&format!("{kept} to be marked as not ready"), is_marked).await.unwrap();
    }
    let plain = nodes.pod("plain").unwrap();
    let seconds = plain["spec"]["tolerations"].as_array().unwrap().iter().map(|it| it["tolerationSeconds"].as_i64());
    assert!(seconds.eq([Some(300), Some(300)]), "{}", plain["spec"]["tolerations"]);

    assert!(nodes.fleet.restore("node-1"));
    until_recovered(&nodes, "node-1").await;
    for evicted in ["brief", "guarded"] {
        until_gone(&nodes, evicted).await;
    }
    let cancelled = format!("Cancelling deletion of Pod {}/plain", setup::NAMESPACE);
    until_event(&nodes, "plain", &cancelled).await;
    for (kept, before) in stay.iter().chain(&["other"]).zip(before) {
        let is_back = |it: &Nodes| it.pod(kept).is_some_and(|it| is_ready(&it));
        nodes.until(&format!("{kept} to be ready"), is_back).await.unwrap();
        let now = nodes.pod(kept).unwrap();
        assert_eq!((uid(&now), is_deleting(&now)), (before, false), "{kept}");
    }
}

async fn acceptance_node_045_taints_of_users_evict_without_the_node_lifecycle_controller(on: On) {
    let scenario = "a user's taint evicts without the node lifecycle controller";
    let Some(server) = on.server(scenario, Options::default()).await.unwrap() else { return };
    let nodes = start(&server, 2).await.unwrap();
    // Upstream's needs another controller for its index of pods.
    let launch = launch(&server, Flavour::Ours, "taint-eviction-controller", GRACE).unwrap();
    let _manager = launch.started().await.unwrap();
    let tolerating = pod("tolerating", "node-1", &json!([toleration("evict", None)]));
    create_pods(&nodes, &[pod("plain", "node-1", &json!([])), tolerating, pod("other", "node-2", &json!([]))]).await;
    let evict = json!({ "key": "evict", "value": "now", "effect": "NoExecute" });
    nodes.add_taints("node-1", &[evict]).await.unwrap();
    until_gone(&nodes, "plain").await;
    until_event(&nodes, "plain", &format!("Marking for deletion Pod {}/plain", setup::NAMESPACE)).await;
    for kept in ["tolerating", "other"] {
        let now = nodes.pod(kept).unwrap();
        assert!(is_ready(&now) && !is_deleting(&now), "{kept}: {now}");
    }
    let node = nodes.node("node-2").unwrap();
    assert!(taint(&node, NOT_READY, "NoSchedule").is_some(), "the taint of the registration stays: {node}");
}

async fn acceptance_node_046_without_the_taint_eviction_controller_nodes_are_tainted_and_no_pod_is_deleted(on: On) {
    let scenario = "without the taint eviction controller no pod is deleted";
    let Some(server) = on.server(scenario, Options::default()).await.unwrap() else { return };
    let nodes = start(&server, 2).await.unwrap();
    let flavour = Flavour::from_environment();
    let launch = launch(&server, flavour, "node-lifecycle-controller", GRACE).unwrap();
    let _manager = launch.flag("node-monitor-period", "1s").started().await.unwrap();
    until_recovered(&nodes, "node-1").await;
    create_pods(&nodes, &[pod("brief", "node-1", &json!([toleration(UNREACHABLE, Some(TOLERATED))]))]).await;
    let before = uid(&nodes.pod("brief").unwrap());
    assert!(nodes.fleet.make_silent("node-1"));
    until_unreachable(&nodes, "node-1").await;
    let is_marked = |it: &Nodes| it.pod("brief").is_some_and(|it| !is_ready(&it));
    nodes.until("the pod to be marked as not ready", is_marked).await.unwrap();
    // Twice as long as the pod tolerates the taint.
    tokio::time::sleep(Duration::from_secs(2 * TOLERATED.unsigned_abs())).await;
    let pod = nodes.pod("brief").unwrap();
    assert!(!is_deleting(&pod) && condition(&pod, "DisruptionTarget").is_null(), "{pod}");
    assert!(nodes.fleet.restore("node-1"));
    until_recovered(&nodes, "node-1").await;
    nodes.until("the pod to be ready", |it| it.pod("brief").is_some_and(|it| is_ready(&it))).await.unwrap();
    assert_eq!(uid(&nodes.pod("brief").unwrap()), before);
}
