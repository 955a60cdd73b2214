//! The equality with the upstream manager: both look after the same nodes and pods, each on an API server of its own.

use std::{collections::BTreeMap, time::Duration};

use e2e::{
    Assets, ControlPlane, Flavour, Manager, Options,
    equality::{self, Results, until_equal},
    fields::{condition, is_deleting, name, text},
    go_manager_or_skip, report,
};
use futures::future::{try_join, try_join_all};
use http::Method;
use serde_json::{Value, json};

use crate::{
    cases::{Case, State, Step, cases},
    setup::{NOT_READY, Nodes, UNREACHABLE, deleted_at, launch, node_path, pod_path, seconds, taint, tainted_at},
};

const CONTROLLERS: &str =
    "node-lifecycle-controller,taint-eviction-controller,pod-garbage-collector-controller,ttl-controller";
/// Short, but five times the interval at which kubelets renew their Leases.
const GRACE: Duration = Duration::from_secs(10);
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
/// Longer than a manager needs to notice a change.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the last changes may take, once all cases are played.
const LAST_CHANGES_TIMEOUT: Duration = Duration::from_secs(30);
/// How much the times of both managers may differ, in seconds: upstream observes a renewal and its absence up to a second
/// late each, and times of the API have no fraction.
const TIME_DIFFERENCE: i64 = 3;
/// The figures of zones on the page of metrics.
const ZONE_FIGURES: [&str; 3] =
    ["node_collector_zone_size", "node_collector_unhealthy_nodes_in_zone", "node_collector_zone_health"];

/// A manager with the nodes and pods of all cases.
struct Run {
    // Dropped in this order.
    manager: Manager,
    nodes: Nodes,
    _plane: ControlPlane,
}

impl Run {
    /// Starts everything and plays all cases.
    async fn play(assets: &'static Assets, flavour: Flavour, cases: &[Case]) -> anyhow::Result<Self> {
        let plane = ControlPlane::start(assets, Options::default()).await?;
        let specs = cases.iter().flat_map(|it| it.nodes.clone()).collect();
        // Without a scheduler: each pod has its node, and one case binds its pod itself.
        let nodes = Nodes::start(&plane, specs, RENEW_INTERVAL, &[]).await?;
        let pods = || cases.iter().flat_map(|it| &it.pods);
        nodes.admin.create_all(pods().map(|it| (pod_path(""), it.clone())).collect()).await?;
        let on_kubelet = cases.iter().filter(|it| !it.nodes.is_empty()).flat_map(|it| &it.pods);
        let on_kubelet: Vec<String> = on_kubelet.map(|it| name(it).to_owned()).collect();
        nodes.until_running(&on_kubelet).await?;
        try_join_all(cases.iter().map(|it| play(&nodes, it, &it.before))).await?;
        let launch = launch(&plane, flavour, CONTROLLERS, GRACE)?
            .flag("node-monitor-period", "1s")
            .flag("node-startup-grace-period", "10s")
            // Which ended pods are removed is compared by the test below: ours does not count pods that are held.
            .flag("terminated-pod-gc-threshold", "0");
        let manager = launch.started().await?;
        let is_registered = |it: &Value| taint(it, NOT_READY, "NoSchedule").is_none();
        let what = "the taints of the registration to be removed";
        nodes.until(what, |it| it.all_nodes().iter().all(is_registered)).await?;
        try_join_all(cases.iter().map(|it| play(&nodes, it, &it.steps))).await?;
        Ok(Self { manager, nodes, _plane: plane })
    }

    /// What must be equal: nodes, pods, events, and the figures of the zones.
    async fn results(&self) -> anyhow::Result<Results> {
        let mut results = Results::new();
        for node in self.nodes.all_nodes() {
            results.insert(format!("node {}", name(&node)), comparable_node(&node));
        }
        for pod in self.nodes.all_pods() {
            results.insert(format!("pod {}", name(&pod)), comparable_pod(&pod));
        }
        for event in self.nodes.all_events() {
            let object = &event["involvedObject"];
            let (kind, about, reason) = (text(&object["kind"]), text(&object["name"]), text(&event["reason"]));
            let described = json!({
                "type": event["type"], "message": event["message"], "namespace": event["metadata"]["namespace"],
                "from": event["source"]["component"], "reporting": event["reportingComponent"],
            });
            // Without the count: a taint that is noticed twice cancels or marks twice.
            results.insert(format!("event {kind} {about}: {reason} {}", text(&event["message"])), described);
        }
        results.extend(self.zones().await?);
        Ok(results)
    }

    /// How long silence lasted until the conditions showed it, how long after them the taint was added, and how long after
    /// the taint each pod was deleted. All in seconds.
    async fn times(&self) -> anyhow::Result<BTreeMap<String, i64>> {
        let leases = self.nodes.admin.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases").await?;
        let leases = leases["items"].as_array().into_iter().flatten();
        let renewals: BTreeMap<&str, i64> =
            leases.filter_map(|it| Some((name(it), seconds(&it["spec"]["renewTime"])?))).collect();
        let mut times = BTreeMap::new();
        let mut insert = |key: String, from: Option<i64>, to: Option<i64>| {
            times.extend(from.zip(to).map(|(from, to)| (key, to - from)));
        };
        for node in self.nodes.all_nodes() {
            let (node_name, ready) = (name(&node), condition(&node, "Ready"));
            let changed = seconds(&ready["lastTransitionTime"]);
            if ready["status"] == "Unknown" {
                insert(format!("{node_name}: silence"), renewals.get(node_name).copied(), changed);
            }
            for key in [UNREACHABLE, NOT_READY] {
                insert(format!("{node_name}: taint {key}"), changed, tainted_at(&node, key));
            }
        }
        for pod in self.nodes.all_pods().iter().filter(|it| is_deleting(it)) {
            let node = self.nodes.node(text(&pod["spec"]["nodeName"]));
            let tainted = node.and_then(|it| tainted_at(&it, UNREACHABLE).or_else(|| tainted_at(&it, NOT_READY)));
            insert(format!("{}: deletion", name(pod)), tainted, deleted_at(pod));
        }
        Ok(times)
    }

    /// The figures of the zones of existing nodes. Those of other zones depend on the order of a map upstream.
    async fn zones(&self) -> anyhow::Result<Results> {
        let answer = self.manager.endpoints()?.send(Method::GET, "/metrics", None).await?;
        anyhow::ensure!(answer.code == 200, "/metrics: {} {}", answer.code, answer.text);
        let zones: Vec<String> = self.nodes.all_nodes().iter().map(|it| format!(":{}\"}}", name(it))).collect();
        let lines = answer.text.lines().filter_map(|it| it.rsplit_once(' '));
        let figures = lines.filter(|(series, _)| {
            ZONE_FIGURES.iter().any(|it| series.starts_with(it)) && zones.iter().any(|it| series.ends_with(it))
        });
        Ok(figures.map(|(series, figure)| (series.to_owned(), json!(figure.parse::<f64>().ok()))).collect())
    }
}

async fn play(nodes: &Nodes, case: &Case, steps: &[Step]) -> anyhow::Result<()> {
    let (node, pod) = (node_path(case.name), pod_path(case.name));
    for step in steps {
        match step {
            Step::Silence => anyhow::ensure!(nodes.fleet.make_silent(case.name), "no node {}", case.name),
            Step::Restore => anyhow::ensure!(nodes.fleet.restore(case.name), "no node {}", case.name),
            Step::Script(key, value) => {
                let script =
                    json!({ "metadata": { "annotations": { format!("{}{key}", fake_nodes::PREFIX): value } } });
                nodes.admin.merge(&node, &script).await?;
            }
            Step::EditNode(patch) => drop(nodes.admin.merge(&node, patch).await?),
            Step::AddCondition(condition) => {
                let add = |it: &mut Value| {
                    if let Some(conditions) = it["status"]["conditions"].as_array_mut() {
                        conditions.push(condition.clone());
                    }
                };
                nodes.edit(&format!("{node}/status"), add).await?;
            }
            Step::Taint(taints) => nodes.add_taints(case.name, taints).await?,
            Step::Untaint(key) => nodes.remove_taints(case.name, key).await?,
            Step::DeleteNode => drop(nodes.admin.delete(&node).await?),
            Step::DeleteLease => {
                let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
                nodes.admin.delete(&format!("{leases}/{}", case.name)).await?;
            }
            Step::CreateNode(object) => drop(nodes.admin.create("/api/v1/nodes", object).await?),
            Step::CreatePod(object) => nodes.create_pod(object).await?,
            Step::BindPod => {
                let binding = json!({ "metadata": { "name": case.name },
                    "target": { "kind": "Node", "name": case.name } });
                nodes.admin.create(&format!("{pod}/binding"), &binding).await?;
            }
            Step::DeletePod => drop(nodes.admin.delete(&pod).await?),
            Step::EditPodStatus(patch) => drop(nodes.admin.merge(&format!("{pod}/status"), patch).await?),
            Step::Until(state) => {
                let what = format!("{}: {state:?}", case.name);
                nodes.until(&what, |it| is_reached(it, case.name, *state)).await?;
            }
            Step::Pause => tokio::time::sleep(PAUSE).await,
        }
    }
    Ok(())
}

/// Whether the node and the pod of this name are in a state.
fn is_reached(nodes: &Nodes, name: &str, state: State) -> bool {
    let (node, pod) = (|| nodes.node(name), || nodes.pod(name));
    match state {
        State::Tainted(key, effect) => node().is_some_and(|it| taint(&it, key, effect).is_some()),
        State::Untainted => node().is_some_and(|it| {
            let taints = it["spec"]["taints"].as_array();
            !taints.into_iter().flatten().any(|taint| text(&taint["key"]).starts_with("node.kubernetes.io/"))
        }),
        State::NodeGone => node().is_none(),
        State::PodNotReady => pod().is_some_and(|it| condition(&it, "Ready")["status"] == "False"),
        State::PodDeleting => pod().is_some_and(|it| is_deleting(&it)),
        State::PodGone => pod().is_none(),
        State::PodFailed => pod().is_some_and(|it| it["status"]["phase"] == "Failed"),
    }
}

/// A node with its conditions. Times are compared by [`assert_equal_times`].
fn comparable_node(node: &Value) -> Value {
    let mut compared = equality::comparable(node);
    if let Some(taints) = compared["spec"]["taints"].as_array_mut() {
        for taint in taints.iter_mut().filter(|it| !it["timeAdded"].is_null()) {
            taint["timeAdded"] = json!("a time");
        }
        // Upstream adds the two taints of an outage from two tasks, so their order is undefined.
        let is_paced = |it: &Value| it["effect"] == "NoExecute" && (it["key"] == UNREACHABLE || it["key"] == NOT_READY);
        taints.sort_by_key(is_paced);
    }
    // By type: the list is a map, and a patch may change its order.
    for it in node["status"]["conditions"].as_array().into_iter().flatten() {
        let condition = &mut compared["conditions"][text(&it["type"])];
        *condition = json!({ "status": it["status"], "reason": it["reason"], "message": it["message"] });
        if it["status"] == "Unknown" {
            condition["is heartbeat older"] = json!(text(&it["lastHeartbeatTime"]) < text(&it["lastTransitionTime"]));
        }
        if it["reason"] == "NodeStatusNeverUpdated" {
            condition["is heartbeat the creation"] =
                json!(it["lastHeartbeatTime"] == node["metadata"]["creationTimestamp"]);
        }
    }
    compared
}

/// A pod with the parts of its status that the controllers write.
fn comparable_pod(pod: &Value) -> Value {
    let mut compared = equality::comparable(pod);
    if is_deleting(pod) {
        compared["metadata"]["deletionTimestamp"] = json!("a time");
    }
    compared["phase"] = pod["status"]["phase"].clone();
    compared["reason"] = pod["status"]["reason"].clone();
    for kind in ["Ready", "DisruptionTarget"] {
        let found = condition(pod, kind);
        compared[kind] = json!({ "status": found["status"], "reason": found["reason"], "message": found["message"] });
    }
    compared["DisruptionTarget"]["observedGeneration"] =
        condition(pod, "DisruptionTarget")["observedGeneration"].clone();
    compared
}

/// Both managers must have acted after the same times, and ours never before the grace is over.
fn assert_equal_times(ours: &BTreeMap<String, i64>, theirs: &BTreeMap<String, i64>) {
    assert!(ours.keys().eq(theirs.keys()), "ours: {ours:?}, theirs: {theirs:?}");
    let of = |kind: &str| ours.keys().filter(|it| it.contains(kind)).count();
    assert!(of(": silence") > 10 && of(": taint") > 10 && of(": deletion") > 2, "too few times: {ours:?}");
    let grace = i64::try_from(GRACE.as_secs()).unwrap();
    for (what, ours) in ours {
        let theirs = theirs[what];
        assert!((ours - theirs).abs() <= TIME_DIFFERENCE, "{what}: ours after {ours} s, theirs after {theirs} s");
        // Times have no fraction.
        assert!(!what.contains(": silence") || *ours >= grace - 1, "{what}: ours after {ours} s");
    }
    report(&format!(
        "nodes: {} times of conditions, taints and deletions are those of the upstream manager",
        ours.len()
    ));
}

/// Each case runs under both managers at the same time. Nodes with conditions, taints, labels and annotations, pods, events,
/// the figures of the zones and the times between silence, taint and eviction must be equal. With `E2E_MANAGER=go` the
/// upstream manager is compared with itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_and_pods_are_those_of_the_upstream_manager() {
    let scenario = "nodes: conditions, taints, evictions and events are those of the upstream manager";
    let Some(assets) = go_manager_or_skip(scenario) else { return };
    let cases = cases();
    let (theirs, ours) =
        try_join(Run::play(assets, Flavour::Go, &cases), Run::play(assets, Flavour::from_environment(), &cases))
            .await
            .unwrap();
    let equal = until_equal(LAST_CHANGES_TIMEOUT, async || ours.results().await, async || theirs.results().await);
    let equal = equal.await.unwrap();
    assert_equal_times(&ours.times().await.unwrap(), &theirs.times().await.unwrap());
    report(&format!("{} cases of nodes and pods are equal: {equal} objects, events and figures", cases.len()));
}

/// How many ended pods remain.
const THRESHOLD: usize = 4;

/// The names of the ended pods that remain of some, which ended in the order of their names.
async fn remaining_ended_pods(assets: &'static Assets, flavour: Flavour) -> anyhow::Result<Results> {
    let plane = ControlPlane::start(assets, Options::default()).await?;
    let nodes = Nodes::start(&plane, Vec::new(), RENEW_INTERVAL, &[]).await?;
    for number in 0..10 {
        let pod_name = format!("ended-{number}");
        nodes.create_pod(&crate::setup::pod(&pod_name, "", &json!([]))).await?;
        // The last one but one was evicted by its kubelet, so it is removed before the others.
        let (phase, reason) = match number {
            8 => ("Failed", "Evicted"),
            _ if number % 2 == 0 => ("Succeeded", ""),
            _ => ("Failed", "Error"),
        };
        let finished = format!("2026-01-01T00:00:{number:02}Z");
        let terminated = json!({ "exitCode": 0, "startedAt": finished, "finishedAt": finished });
        let container = json!({ "name": "main", "image": "example.com/main:1", "imageID": "", "ready": false,
            "restartCount": 0, "state": { "terminated": terminated } });
        let status = json!({ "status": { "phase": phase, "reason": reason, "containerStatuses": [container] } });
        nodes.admin.merge(&format!("{}/status", pod_path(&pod_name)), &status).await?;
    }
    let running = json!({ "status": { "phase": "Running" } });
    nodes.create_pod(&crate::setup::pod("running", "", &json!([]))).await?;
    nodes.admin.merge(&format!("{}/status", pod_path("running")), &running).await?;
    let threshold = THRESHOLD.to_string();
    let launch = launch(&plane, flavour, "pod-garbage-collector-controller", GRACE)?;
    let _manager = launch.flag("terminated-pod-gc-threshold", &threshold).started().await?;
    nodes.until("the ended pods to be removed", |it| it.all_pods().len() == THRESHOLD + 1).await?;
    Ok(nodes.all_pods().iter().map(|it| (name(it).to_owned(), comparable_pod(it))).collect())
}

/// The oldest ended pods go first, and evicted ones before them. Ours differs only between namespaces and in pods that
/// are held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_pods_above_the_threshold_are_those_of_the_upstream_manager() {
    let scenario = "pod garbage collection: ended pods above the threshold";
    let Some(assets) = go_manager_or_skip(scenario) else { return };
    let (theirs, ours) =
        try_join(remaining_ended_pods(assets, Flavour::Go), remaining_ended_pods(assets, Flavour::from_environment()))
            .await
            .unwrap();
    let names: Vec<&str> = theirs.keys().map(String::as_str).collect();
    assert_eq!(names, ["ended-5", "ended-6", "ended-7", "ended-9", "running"]);
    assert_eq!(ours, theirs);
}
