//! Nodes, their Leases and pods in the shared test world.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Deref,
    time::Duration,
};

use client::Limits;
use clock::{Instant, Timestamp};
use harness::{Manager, NAMESPACE, Standby, line, pass};
use node_lifecycle_controller::{NAME, Options};
use serde_json::{Value, json};
use test_cluster::{Call, Interception};

pub(crate) const SEC: Duration = Duration::from_secs(1);
pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) const ZONE: &str = "topology.kubernetes.io/zone";

/// The namespace of the Leases of nodes.
const LEASES: &str = "kube-node-lease";
/// The resource by which the manager asks for its rights.
pub(crate) const REVIEWS: &str = "selfsubjectaccessreviews";
/// The prefix of the keys of all taints of this controller.
const PREFIX: &str = "node.kubernetes.io/";
/// How often a kubelet renews its Lease.
const RENEWAL: Duration = Duration::from_secs(10);

pub(crate) struct World {
    world: harness::World,
    start: Instant,
}

impl Deref for World {
    type Target = harness::World;

    fn deref(&self) -> &harness::World {
        &self.world
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let world = harness::World::new(NAME);
        world.create_namespace(NAMESPACE);
        let start = world.clock.now();
        Self { world, start }
    }

    /// A world with these ready nodes in one zone without a name.
    pub(crate) fn with(nodes: &[&str]) -> Self {
        let world = Self::new();
        nodes.iter().for_each(|it| world.add(it));
        world
    }

    /// A world with a manager and the nodes `a` to `e` at the second 55: `a` is tainted, `b` waits for its turn at the
    /// second 60, and the others are ready.
    pub(crate) async fn with_a_waiting_node() -> (Self, Manager) {
        let world = Self::with(&["a", "b", "c", "d", "e"]);
        let manager = world.start().await;
        world.sleep_until(SEC).await;
        world.renew("b");
        world.kubelets(&["c", "d", "e"], 55 * SEC).await;
        assert_eq!(world.tainted(), [("a".to_owned(), 50)]);
        (world, manager)
    }

    /// Starts a manager and waits until its workers run.
    pub(crate) async fn start(&self) -> Manager {
        self.start_with(Options::default()).await
    }

    pub(crate) async fn start_with(&self, options: Options) -> Manager {
        let manager = self.declared(options).lead();
        pass(100 * MS).await;
        manager
    }

    /// Starts a manager that does not lead yet.
    pub(crate) async fn standby(&self) -> Standby {
        let mut standby = self.declared(Options::default());
        standby.begin();
        pass(100 * MS).await;
        standby
    }

    fn declared(&self, options: Options) -> Standby {
        let limits = Limits { qps: 10_000.0, burst: 10_000 };
        self.process(limits, Duration::ZERO, |builder| node_lifecycle_controller::start(builder, options))
    }

    /// The time since the start of the test.
    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.start)
    }

    /// A ready node with a Lease.
    pub(crate) fn add(&self, node: &str) {
        self.add_with(node, json!({}));
    }

    /// The same in this zone.
    pub(crate) fn add_in(&self, zone: &str, node: &str) {
        self.add_with(node, json!({ ZONE: zone }));
    }

    /// The same with these labels.
    pub(crate) fn add_with(&self, node: &str, labels: Value) {
        self.create(node, labels, json!({}));
        self.renew(node);
        self.post(node, "True");
    }

    /// A node without status and Lease.
    pub(crate) fn create(&self, node: &str, labels: Value, spec: Value) {
        self.cluster
            .create(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node, "labels": labels },
            "spec": spec }));
    }

    /// A node with these taints and this status of Ready, written `age` seconds ago by its kubelet or a controller. Its
    /// Lease was renewed then too.
    pub(crate) fn create_old(&self, node: &str, ready: &str, age: i64, taints: &[&str]) {
        let taints: Vec<Value> = taints.iter().map(|it| self.taint(it)).collect();
        self.create(node, json!({}), json!({ "taints": taints }));
        let time = self.second_before(age);
        let reason = if ready == "Unknown" { "NodeStatusUnknown" } else { "Kubelet" };
        self.update(node, |it| {
            it["metadata"]["creationTimestamp"] = json!(time);
            it["status"]["conditions"] = json!([{ "type": "Ready", "status": ready, "reason": reason,
                "message": "text", "lastHeartbeatTime": time, "lastTransitionTime": time }]);
        });
        self.renew_at(node, self.clock.wall().as_microsecond() - age * 1_000_000);
    }

    /// A taint of this controller, such as `not-ready:NoExecute`, that was added now.
    fn taint(&self, text: &str) -> Value {
        let (key, effect) = text.split_once(':').unwrap();
        json!({ "key": format!("{PREFIX}{key}"), "effect": effect, "timeAdded": self.second() })
    }

    pub(crate) fn second_before(&self, seconds: i64) -> String {
        Timestamp::from_second(self.clock.wall().as_second() - seconds).unwrap().to_string()
    }

    pub(crate) fn update(&self, node: &str, change: impl FnOnce(&mut Value)) {
        self.cluster.update("nodes", "", node, change);
    }

    pub(crate) fn set_labels(&self, node: &str, labels: Value) {
        self.update(node, |it| it["metadata"]["labels"] = labels);
    }

    /// The kubelet renews the Lease of its node.
    pub(crate) fn renew(&self, node: &str) {
        self.renew_at(node, self.clock.wall().as_microsecond());
    }

    /// The same with this time, in microseconds since the epoch.
    pub(crate) fn renew_at(&self, node: &str, micros: i64) {
        let time = Timestamp::from_microsecond(micros).unwrap().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        if self.cluster.get("leases", LEASES, node).is_some() {
            self.cluster.update("leases", LEASES, node, |it| it["spec"]["renewTime"] = json!(time));
        } else {
            self.cluster.create(json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": node, "namespace": LEASES },
                "spec": { "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": time } }));
        }
    }

    /// The kubelet posts a status with this Ready condition and without pressure.
    pub(crate) fn post(&self, node: &str, ready: &str) {
        self.post_with(node, ready, &[]);
    }

    /// The same with True for these conditions.
    pub(crate) fn post_with(&self, node: &str, ready: &str, bad: &[&str]) {
        let now = self.second();
        self.update(node, |it| {
            let mut posted = vec![("Ready", ready)];
            for type_ in ["MemoryPressure", "DiskPressure", "PIDPressure"] {
                posted.push((type_, if bad.contains(&type_) { "True" } else { "False" }));
            }
            let conditions = posted.iter().map(|(type_, status)| {
                let before = condition(it, type_);
                let is_same = before["status"] == *status;
                let since = if is_same { before["lastTransitionTime"].clone() } else { json!(now) };
                json!({ "type": type_, "status": status, "reason": "Kubelet", "message": "posted by the kubelet",
                    "lastHeartbeatTime": now, "lastTransitionTime": since })
            });
            let conditions: Vec<Value> = conditions.collect();
            it["status"]["conditions"] = json!(conditions);
        });
    }

    /// The kubelets of these nodes renew their Leases now and every ten seconds until this time of the test.
    pub(crate) async fn kubelets(&self, nodes: &[impl AsRef<str>], until: Duration) {
        while self.elapsed() < until {
            nodes.iter().for_each(|it| self.renew(it.as_ref()));
            self.sleep_until(until.min(self.elapsed() + RENEWAL)).await;
        }
    }

    pub(crate) fn node(&self, node: &str) -> Value {
        self.cluster.get("nodes", "", node).unwrap()
    }

    /// A condition of the node; null if it has none.
    pub(crate) fn condition(&self, node: &str, type_: &str) -> Value {
        condition(&self.node(node), type_)
    }

    /// The status of the Ready condition; empty if there is none.
    pub(crate) fn ready(&self, node: &str) -> String {
        self.condition(node, "Ready")["status"].as_str().unwrap_or_default().to_owned()
    }

    /// The taints of a node, sorted, as `key:effect` without the common prefix.
    pub(crate) fn taints(&self, node: &str) -> Vec<String> {
        shown(&self.node(node)["spec"]["taints"])
    }

    /// The keys of the taints with this effect.
    fn keys(&self, node: &str, effect: &str) -> Vec<String> {
        let taints = self.taints(node);
        taints.iter().filter_map(|it| it.strip_suffix(&format!(":{effect}"))).map(str::to_owned).collect()
    }

    pub(crate) fn no_execute(&self, node: &str) -> Vec<String> {
        self.keys(node, "NoExecute")
    }

    pub(crate) fn no_schedule(&self, node: &str) -> Vec<String> {
        self.keys(node, "NoSchedule")
    }

    /// Each successful write of the controller after which a node has a taint NoExecute, though the write before had
    /// none, with its time in the test.
    pub(crate) fn taintings(&self) -> Vec<(String, Duration)> {
        let mut tainted = BTreeSet::new();
        let mut taintings = Vec::new();
        for call in self.calls().iter().filter(|it| it.resource == "nodes" && it.status == 200) {
            let body = call.json();
            if body["spec"]["taints"].is_null() {
                continue;
            }
            let has_taint = shown(&body["spec"]["taints"])
                .iter()
                .any(|it| it.ends_with("e:NoExecute") || it.ends_with("y:NoExecute"));
            if !has_taint {
                tainted.remove(&call.name);
            } else if tainted.insert(call.name.clone()) {
                taintings.push((call.name.clone(), call.at.saturating_duration_since(self.start)));
            }
        }
        taintings
    }

    /// The nodes of [`World::taintings`] in their order, and the whole seconds.
    pub(crate) fn tainted(&self) -> Vec<(String, u64)> {
        self.taintings().into_iter().map(|(node, at)| (node, at.as_secs())).collect()
    }

    /// When the status of the node was set to Unknown by the controller, each time.
    pub(crate) fn unknown_at(&self, node: &str) -> Vec<Duration> {
        let calls = self.calls();
        let written = calls.iter().filter(|it| is_status(it) && it.name == node && it.status == 200);
        written.map(|it| it.at.saturating_duration_since(self.start)).collect()
    }

    /// The calls of the controller without the live reads of Leases and the review of the right to them.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.world.calls().into_iter().filter(|it| !is_lease_read(it) && it.resource != REVIEWS).collect()
    }

    /// The same as lines.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.calls().iter().map(line).collect()
    }

    /// The manager may not get Leases, as with the role of the built-in manager.
    pub(crate) fn forbid_to_get_leases(&self) {
        self.cluster.intercept(|call| match &*call.resource {
            REVIEWS => Interception::access(false),
            "leases" if call.verb == "get" => Interception::status(403, "Forbidden", "no"),
            _ => Interception::Pass,
        });
    }

    /// How often the controller has read a Lease live.
    pub(crate) fn lease_reads(&self) -> usize {
        self.lease_reads_by("get") + self.lease_reads_by("list")
    }

    /// The same with this verb.
    pub(crate) fn lease_reads_by(&self, verb: &str) -> usize {
        self.cluster.requests().iter().filter(|it| is_lease_read(it) && it.verb == verb).count()
    }

    /// The reads of single Leases get what `respond` returns for the node.
    pub(crate) fn on_lease_read(&self, mut respond: impl FnMut(&str) -> Interception + Send + 'static) {
        self.cluster.intercept(move |call| match is_lease_read(call) {
            true if call.verb == "get" => respond(call.path.rsplit('/').next().unwrap_or_default()),
            true => respond(call.query.rsplit("%3D").next().unwrap_or_default()),
            false => Interception::Pass,
        });
    }

    /// Lists and watches of these resources fail from now on, until [`World::end_outage`].
    pub(crate) fn begin_outage(&self, resources: &'static [&'static str]) {
        self.cluster.intercept(move |call| {
            let is_hit = matches!(call.verb, "list" | "watch") && resources.contains(&&*call.resource);
            if is_hit { Interception::text(503, "no backend") } else { Interception::Pass }
        });
        resources.iter().for_each(|it| self.cluster.break_watches(it));
    }

    pub(crate) fn end_outage(&self) {
        self.cluster.stop_intercepting();
    }

    /// A ready pod on this node.
    pub(crate) fn add_pod(&self, pod: &str, node: &str) {
        let ready = json!({ "type": "Ready", "status": "True", "reason": "Started", "message": "it serves",
            "lastTransitionTime": self.second() });
        self.cluster.create(
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": pod, "namespace": NAMESPACE },
            "spec": { "nodeName": node, "containers": [{ "name": "c", "image": "i" }] },
            "status": { "phase": "Running", "conditions": [ready] } }),
        );
    }

    pub(crate) fn pod(&self, pod: &str) -> Value {
        self.cluster.get("pods", NAMESPACE, pod).unwrap()
    }

    /// Whether the Ready condition of the pod is False.
    pub(crate) fn is_marked(&self, pod: &str) -> bool {
        condition(&self.pod(pod), "Ready")["status"] == "False"
    }

    /// The events of nodes as `reason node: message`, with how often each was sent.
    pub(crate) async fn node_events(&self) -> BTreeMap<String, i64> {
        pass(2 * SEC).await;
        let mut events = BTreeMap::new();
        for event in self.cluster.list("events", "default") {
            let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
            assert_eq!(
                (text(&event["source"]["component"]), text(&event["type"])),
                ("node-controller".into(), "Normal".into())
            );
            let line = format!(
                "{} {}: {}",
                text(&event["reason"]),
                text(&event["involvedObject"]["name"]),
                text(&event["message"])
            );
            *events.entry(line).or_default() += event["count"].as_i64().unwrap_or(1);
        }
        events
    }

    /// How many events of nodes have this reason.
    pub(crate) async fn event_count(&self, reason: &str) -> i64 {
        let events = self.node_events().await;
        events.iter().filter(|it| it.0.starts_with(&format!("{reason} "))).map(|it| it.1).sum()
    }
}

/// The condition of an object; null if it has none.
pub(crate) fn condition(object: &Value, type_: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|it| it["type"] == type_).unwrap_or_default()
}

fn shown(taints: &Value) -> Vec<String> {
    let mut taints: Vec<String> = taints
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| {
            let key = it["key"].as_str().unwrap();
            format!("{}:{}", key.strip_prefix(PREFIX).unwrap_or(key), it["effect"].as_str().unwrap())
        })
        .collect();
    taints.sort();
    taints
}

/// True for a PATCH of the status of a node.
pub(crate) fn is_status(call: &Call) -> bool {
    call.resource == "nodes" && call.subresource == "status"
}

/// True for the live read of a Lease.
fn is_lease_read(call: &Call) -> bool {
    let is_single = call.verb == "get" || call.verb == "list" && call.query.contains("fieldSelector");
    is_single && call.path.contains("/kube-node-lease/")
}

/// The names `prefix-1` to `prefix-count`.
pub(crate) fn names(prefix: &str, count: usize) -> Vec<String> {
    (1..=count).map(|it| format!("{prefix}-{it}")).collect()
}

/// Whether watches of nodes or Leases are interrupted or stale, as the metric shows it.
pub(crate) fn is_suspended(manager: &Manager) -> bool {
    manager.metric("mini_kcm_node_lifecycle_suspended") == 1
}

/// The value of a metric of this zone. The label of a zone contains a NUL.
pub(crate) fn of_zone(manager: &Manager, metric: &str, zone: &str) -> u64 {
    let zone = if zone.is_empty() { String::new() } else { format!(":\0:{zone}") };
    manager.metric(&format!("node_collector_{metric}{{zone=\"{zone}\"}}"))
}

/// True if `time` is at most 100 ms after `due`.
pub(crate) fn is_punctual(time: Duration, due: Duration) -> bool {
    time >= due && time <= due + 100 * MS
}
