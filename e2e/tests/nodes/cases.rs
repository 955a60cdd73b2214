//! The nodes and pods that both managers look after, and what happens to them.
//!
//! Each case has a zone of its own, so that no case changes the pace of another one. Left out are cases in which ours
//! differs on purpose: tolerations that are edited while a timer runs, zones in partial disruption (upstream taints
//! some nodes before it notices, #111385), and pods of a node that its kubelet declares not ready (#125618): those of
//! the cases here never become ready, so there is nothing to mark.

use fake_nodes::{NodeSpec, PREFIX};
use serde_json::{Value, json};

use crate::setup::{NOT_READY, UNREACHABLE, pod, toleration};

/// The finalizer that keeps a pod after its deletion, so that its last state can be compared.
const FINALIZER: &str = "example.com/kept";
const ZONE: &str = "topology.kubernetes.io/zone";
const LEGACY_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

/// What happens. It concerns the first node and the first pod of the case.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// The machine stops.
    Silence,
    /// The machine is back.
    Restore,
    /// The kubelet gets another script; `None` removes the line.
    Script(&'static str, Option<&'static str>),
    /// A merge patch of the node.
    EditNode(Value),
    /// A network plugin adds a condition to the node.
    AddCondition(Value),
    /// A user taints the node.
    Taint(Vec<Value>),
    /// A user removes the taints of a key.
    Untaint(&'static str),
    DeleteNode,
    DeleteLease,
    CreateNode(Value),
    CreatePod(Value),
    /// A scheduler binds the pod to the node.
    BindPod,
    DeletePod,
    /// A merge patch of the status of the pod.
    EditPodStatus(Value),
    /// Waits for a state.
    Until(State),
    /// Gives the manager time to set a timer, which cannot be observed.
    Pause,
}

/// A state to wait for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum State {
    /// The node has a taint with this key and effect.
    Tainted(&'static str, &'static str),
    /// The node has no taint of the controllers.
    Untainted,
    NodeGone,
    PodNotReady,
    PodDeleting,
    PodGone,
    PodFailed,
}

/// A case.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) nodes: Vec<NodeSpec>,
    pub(crate) pods: Vec<Value>,
    /// What happens before the manager starts.
    pub(crate) before: Vec<Step>,
    pub(crate) steps: Vec<Step>,
}

impl Case {
    /// With one node, which has the name of the case.
    fn new(name: &'static str) -> Self {
        let nodes = vec![NodeSpec::new(name).label(ZONE, name)];
        Self { name, nodes, pods: Vec::new(), before: Vec::new(), steps: Vec::new() }
    }

    /// Without a fake node.
    fn without_node(name: &'static str) -> Self {
        Self { nodes: Vec::new(), ..Self::new(name) }
    }

    fn node(mut self, change: impl FnOnce(NodeSpec) -> NodeSpec) -> Self {
        let first = self.nodes.remove(0);
        self.nodes.insert(0, change(first));
        self
    }

    /// One more pod on the node.
    fn pod(self, tolerations: Value) -> Self {
        let pod = pod(&self.pod_name(), self.name, &tolerations);
        self.add(pod)
    }

    /// One more pod, which stays after its deletion.
    fn kept_pod(self, tolerations: Value) -> Self {
        let pod = pod(&self.pod_name(), self.name, &tolerations);
        self.add(kept(pod))
    }

    /// One more pod, which never becomes ready.
    fn unready_pod(self, tolerations: Value) -> Self {
        let mut pod = pod(&self.pod_name(), self.name, &tolerations);
        pod["metadata"]["annotations"][format!("{PREFIX}hang")] = json!("true");
        self.add(kept(pod))
    }

    fn pod_name(&self) -> String {
        if self.pods.is_empty() { self.name.to_owned() } else { format!("{}-{}", self.name, self.pods.len() + 1) }
    }

    fn add(mut self, pod: Value) -> Self {
        self.pods.push(pod);
        self
    }

    fn before(mut self, step: Step) -> Self {
        self.before.push(step);
        self
    }

    fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    fn until(self, state: State) -> Self {
        self.then(Step::Until(state))
    }

    fn taint(self, keys: &[&str], effect: &str) -> Self {
        let taints = keys.iter().map(|key| json!({ "key": key, "value": "yes", "effect": effect })).collect();
        self.then(Step::Taint(taints))
    }

    /// The node is silent until it is tainted.
    fn silent(self) -> Self {
        self.then(Step::Silence).until(State::Tainted(UNREACHABLE, NO_EXECUTE))
    }

    /// The kubelet declares itself not ready, until the node is tainted.
    fn not_ready(self) -> Self {
        self.then(Step::Script("not-ready", Some("true"))).until(State::Tainted(NOT_READY, NO_EXECUTE))
    }
}

const NO_EXECUTE: &str = "NoExecute";
const NO_SCHEDULE: &str = "NoSchedule";

fn kept(mut pod: Value) -> Value {
    pod["metadata"]["finalizers"] = json!([FINALIZER]);
    pod
}

/// A toleration of the user's taint `evict`.
fn evict_toleration(seconds: Option<i64>) -> Value {
    toleration("evict", seconds)
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = silent_nodes();
    all.extend(unready_nodes());
    all.extend(conditions());
    all.extend(labels());
    all.extend(evictions());
    all.extend(changed_taints());
    all.extend(removed_nodes());
    all.extend(out_of_service());
    all
}

/// Kubelets that post too little.
fn silent_nodes() -> Vec<Case> {
    let both = json!([toleration(UNREACHABLE, Some(2)), toleration(NOT_READY, Some(2))]);
    let excluded = |it: NodeSpec| it.label("node.kubernetes.io/exclude-disruption", "");
    let companion = |mut case: Case| {
        case.nodes.push(NodeSpec::new(format!("{}-2", case.name)).label(ZONE, case.name));
        case
    };
    let zoneless = NodeSpec::new("zoneless");
    let without_status = json!({ "metadata": { "name": "never-posted", "labels": { ZONE: "never-posted" } } });
    vec![
        Case::new("healthy").pod(json!([])),
        companion(Case::new("silent")).pod(json!([])).silent(),
        Case::new("silent-evicted").pod(both.clone()).silent().until(State::PodDeleting),
        Case::new("silent-kept").pod(json!([toleration(UNREACHABLE, None)])).silent(),
        Case::new("silent-both")
            .pod(json!([toleration(UNREACHABLE, Some(2))]))
            .pod(json!([toleration(UNREACHABLE, Some(600))]))
            .silent()
            .until(State::PodDeleting),
        Case::new("silent-deleting").pod(json!([])).silent().then(Step::DeletePod).until(State::PodDeleting),
        Case::new("silent-without-lease").silent().then(Step::DeleteLease),
        Case::new("lease-only").node(|it| it.script("posts", "lease")),
        Case::new("status-only").node(|it| it.script("posts", "status")),
        Case::without_node("never-posted")
            .then(Step::CreateNode(without_status))
            .until(State::Tainted(UNREACHABLE, NO_EXECUTE)),
        companion(Case::new("excluded")).node(excluded).silent(),
        Case::new("legacy-zone").node(|it| it.label(LEGACY_ZONE, "legacy-zone").label(ZONE, "another-zone")).silent(),
        Case { nodes: vec![zoneless], ..Case::new("zoneless") }.silent(),
        Case::new("returns").pod(json!([])).silent().then(Step::Restore).until(State::Untainted),
        Case::new("returns-late")
            .pod(both)
            .silent()
            .until(State::PodDeleting)
            .then(Step::Restore)
            .until(State::Untainted)
            .until(State::PodGone),
        Case::new("bound-late")
            .silent()
            .then(Step::CreatePod({
                let mut pod = pod("bound-late", "", &json!([]));
                pod["spec"]["nodeName"] = Value::Null;
                pod
            }))
            .then(Step::EditPodStatus(running()))
            .then(Step::BindPod)
            .until(State::PodNotReady),
    ]
}

/// Kubelets that declare themselves not ready, and nodes that change between not ready and unreachable.
fn unready_nodes() -> Vec<Case> {
    vec![
        Case::new("not-ready").unready_pod(json!([])).not_ready(),
        Case::new("not-ready-evicted")
            .unready_pod(json!([toleration(NOT_READY, Some(1))]))
            .not_ready()
            .until(State::PodDeleting),
        Case::new("not-ready-returns").not_ready().then(Step::Script("not-ready", None)).until(State::Untainted),
        Case::new("flips-to-not-ready")
            .silent()
            .then(Step::Script("not-ready", Some("true")))
            .then(Step::Restore)
            .until(State::Tainted(NOT_READY, NO_EXECUTE)),
        Case::new("flips-to-unreachable").not_ready().silent(),
        Case::new("registered-tainted")
            .node(|it| it.taint(UNREACHABLE, "", NO_EXECUTE).taint(NOT_READY, "", NO_EXECUTE)),
        Case::new("taint-lost")
            .silent()
            .then(Step::Untaint(UNREACHABLE))
            .until(State::Tainted(UNREACHABLE, NO_EXECUTE)),
    ]
}

/// Taints that follow conditions and the spec of the node.
fn conditions() -> Vec<Case> {
    let key = |name: &'static str| State::Tainted(name, NO_SCHEDULE);
    let (memory, disk) = ("node.kubernetes.io/memory-pressure", "node.kubernetes.io/disk-pressure");
    let (pid, network) = ("node.kubernetes.io/pid-pressure", "node.kubernetes.io/network-unavailable");
    let without_network = |case: Case| {
        let condition = json!({ "type": "NetworkUnavailable", "status": "True", "reason": "NoRoute", "message": "" });
        case.then(Step::AddCondition(condition)).until(key(network))
    };
    let cordon = |case: Case, on: bool| case.then(Step::EditNode(json!({ "spec": { "unschedulable": on } })));
    let (unschedulable, mine) = ("node.kubernetes.io/unschedulable", "example.com/mine");
    vec![
        Case::new("pressures").then(Step::Script("pressure", Some("memory,disk,pid"))).until(key(pid)),
        Case::new("pressure-ends")
            .then(Step::Script("pressure", Some("disk")))
            .until(key(disk))
            .then(Step::Script("pressure", None))
            .until(State::Untainted),
        Case::new("pressure-unknown").then(Step::Script("pressure", Some("memory"))).until(key(memory)).silent(),
        without_network(Case::new("network-unavailable")),
        without_network(Case::new("network-unknown")).silent(),
        cordon(Case::new("cordoned"), true).pod(json!([])).until(key(unschedulable)),
        cordon(cordon(Case::new("uncordoned"), true).until(key(unschedulable)), false).until(State::Untainted),
        Case::new("user-taint").taint(&[mine], NO_SCHEDULE).silent(),
        Case::new("user-taint-returns")
            .taint(&[mine], NO_SCHEDULE)
            .silent()
            .then(Step::Restore)
            .until(State::Untainted),
        // Its condition is false, so the controller removes it.
        Case::new("user-pressure").taint(&[disk], NO_SCHEDULE),
    ]
}

/// Labels that are kept equal to others.
fn labels() -> Vec<Case> {
    let set = |name: &'static str, labels: Value| {
        Case::new(name).then(Step::EditNode(json!({ "metadata": { "labels": labels } })))
    };
    vec![
        set("labels-missing", json!({ "beta.kubernetes.io/os": null, "beta.kubernetes.io/arch": null })),
        Case::new("labels-other").node(|it| it.label("beta.kubernetes.io/arch", "arm64")),
        set("labels-without-source", json!({ "kubernetes.io/os": null, "beta.kubernetes.io/os": "windows" })),
    ]
}

/// A user's NoExecute taint and the tolerations of pods.
fn evictions() -> Vec<Case> {
    let evicted = |name: &'static str, tolerations: Value| {
        Case::new(name).kept_pod(tolerations).taint(&["evict"], NO_EXECUTE).until(State::PodDeleting)
    };
    let stays = |name: &'static str, tolerations: Value| Case::new(name).pod(tolerations).taint(&["evict"], NO_EXECUTE);
    let equal = |value: &str| json!([{ "key": "evict", "operator": "Equal", "value": value, "effect": NO_EXECUTE }]);
    let two = |first: i64, second: i64| {
        json!([evict_toleration(Some(first)), { "key": "second", "operator": "Exists", "tolerationSeconds": second,
            "effect": NO_EXECUTE }])
    };
    vec![
        evicted("untolerated", json!([])),
        evicted("tolerated-for-no-time", json!([evict_toleration(Some(0))])),
        evicted("tolerated-for-less", json!([evict_toleration(Some(-5))])),
        evicted("tolerated-briefly", json!([evict_toleration(Some(3))])),
        evicted("tolerated-other-value", equal("no")),
        evicted("tolerated-other-effect", json!([{ "key": "evict", "operator": "Exists", "effect": NO_SCHEDULE }])),
        stays("tolerated", json!([evict_toleration(None)])),
        stays("tolerated-value", equal("yes")),
        stays("tolerated-any", json!([{ "operator": "Exists" }])),
        stays("tolerated-any-effect", json!([{ "key": "evict", "operator": "Exists" }])),
        // The first toleration that matches counts, not the shortest.
        stays(
            "tolerated-first",
            json!([evict_toleration(Some(600)), { "key": "evict", "operator": "Exists",
            "tolerationSeconds": 1, "effect": NO_EXECUTE }]),
        ),
        Case::new("two-taints").kept_pod(two(600, 2)).taint(&["evict", "second"], NO_EXECUTE).until(State::PodDeleting),
        Case::new("two-pods")
            .kept_pod(json!([evict_toleration(Some(2))]))
            .kept_pod(json!([evict_toleration(Some(600))]))
            .taint(&["evict"], NO_EXECUTE)
            .until(State::PodDeleting),
        Case::new("no-schedule").pod(json!([])).taint(&["evict"], NO_SCHEDULE),
        Case::new("prefer-no-schedule").pod(json!([])).taint(&["evict"], "PreferNoSchedule"),
    ]
}

/// Taints and pods that come later, and taints that are removed in time.
fn changed_taints() -> Vec<Case> {
    let tolerating = || json!([evict_toleration(Some(600))]);
    let tainted = |key: &'static str| State::Tainted(key, NO_EXECUTE);
    vec![
        Case::new("taint-removed")
            .pod(tolerating())
            .taint(&["evict"], NO_EXECUTE)
            .until(tainted("evict"))
            .then(Step::Pause)
            .then(Step::Untaint("evict")),
        Case::new("taint-added")
            .kept_pod(tolerating())
            .taint(&["evict"], NO_EXECUTE)
            .until(tainted("evict"))
            .then(Step::Pause)
            .taint(&["second"], NO_EXECUTE)
            .until(State::PodDeleting),
        Case::new("pod-added")
            .taint(&["evict"], NO_EXECUTE)
            .until(tainted("evict"))
            .then(Step::Pause)
            .then(Step::CreatePod({
                let mut pod = kept(pod("pod-added", "pod-added", &json!([])));
                // Its containers do not start before it is evicted.
                pod["metadata"]["annotations"][format!("{PREFIX}start-after")] = json!("60s");
                pod
            }))
            .until(State::PodDeleting),
    ]
}

/// A status of a pod that runs.
fn running() -> Value {
    let condition =
        |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    json!({ "status": { "phase": "Running", "conditions": [condition("Ready"), condition("ContainersReady")] } })
}

/// Pods of nodes that do not exist.
fn removed_nodes() -> Vec<Case> {
    let absent = |name: &'static str, phase: &str, is_kept: bool| {
        let mut status = running();
        status["status"]["phase"] = json!(phase);
        let pod = pod(name, &format!("absent-{name}"), &json!([]));
        let case = Case::without_node(name).add(if is_kept { kept(pod) } else { pod });
        case.before(Step::EditPodStatus(status))
    };
    let unbound = |name: &'static str| {
        let mut pod = kept(pod(name, "", &json!([])));
        pod["spec"]["nodeName"] = Value::Null;
        Case::without_node(name).add(pod)
    };
    let mut two_ports = absent("absent-two-ports", "Running", true);
    let port = json!({ "containerPort": 80, "protocol": "TCP" });
    two_ports.pods[0]["spec"]["containers"][0]["ports"] = json!([port, port]);
    two_ports.pods[0]["spec"]["containers"][0]["env"] =
        json!([{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }]);
    vec![
        absent("absent-running", "Running", false).until(State::PodGone),
        absent("absent-running-kept", "Running", true).until(State::PodFailed),
        absent("absent-pending-kept", "Pending", true).until(State::PodFailed),
        absent("absent-succeeded", "Succeeded", false).until(State::PodGone),
        absent("absent-succeeded-kept", "Succeeded", true).until(State::PodDeleting),
        absent("absent-failed-kept", "Failed", true).until(State::PodDeleting),
        two_ports.until(State::PodFailed),
        Case::new("removed-before")
            .pod(json!([]))
            .kept_pod(json!([]))
            .before(Step::Silence)
            .before(Step::DeleteNode)
            .until(State::PodGone),
        Case::new("removed").silent().then(Step::DeleteNode).until(State::NodeGone),
        unbound("unbound"),
        unbound("unbound-deleting").before(Step::DeletePod).until(State::PodFailed),
    ]
}

/// Nodes that a user declares out of service.
fn out_of_service() -> Vec<Case> {
    let key = "node.kubernetes.io/out-of-service";
    vec![
        Case::new("out-of-service")
            .pod(json!([]))
            .kept_pod(json!([]))
            .silent()
            .taint(&[key], NO_EXECUTE)
            .until(State::PodGone),
        Case::new("out-of-service-deleted")
            .pod(json!([]))
            .pod(json!([]))
            .silent()
            .taint(&[key], NO_SCHEDULE)
            .then(Step::DeletePod)
            .until(State::PodGone),
    ]
}
