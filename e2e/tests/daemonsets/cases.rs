//! The nodes and the sets that both managers run, and what users do to them.
//!
//! The nodes `node-1` to `node-5` never change. A case that changes nodes has its own ones: their taint `case` keeps
//! the pods of all other sets away.

use fake_nodes::{NodeSpec, PREFIX};
use serde_json::{Value, json};

/// The state that a set must reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Want {
    pub(crate) desired: i64,
    pub(crate) misscheduled: i64,
    pub(crate) ready: i64,
    /// Nodes whose pod has the present template.
    pub(crate) updated: i64,
    /// All existing pods.
    pub(crate) pods: usize,
}

impl Want {
    /// One ready pod with the present template on each of so many nodes.
    pub(crate) fn on_nodes(nodes: usize) -> Self {
        let count = i64::try_from(nodes).unwrap_or(i64::MAX);
        Self { desired: count, misscheduled: 0, ready: count, updated: count, pods: nodes }
    }
}

/// What a user does.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Waits until the set has this state.
    Wait(Want),
    /// The same, and causes syncs meanwhile: the upstream manager does not notice some changes of nodes, and not always
    /// that the newer pod of a node becomes available.
    WaitWithSyncs(Want),
    /// Changes the spec.
    Edit(Value),
    /// Changes the spec, and once more when the first new pod exists.
    EditMeanwhile(Value, Value),
    /// Changes a node.
    EditNode(&'static str, Value),
    /// Adds a node without a kubelet, so its pods stay pending.
    AddNode(&'static str),
    /// Deletes a node.
    RemoveNode(&'static str),
    /// Deletes the pod on a node.
    DeletePod(&'static str),
    /// Lets the pod on a node fail.
    FailPod(&'static str),
}

/// A pod that exists before the set and has no controller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Orphan {
    pub(crate) name: &'static str,
    pub(crate) node: &'static str,
    /// Its exit code; `None` runs for ever.
    pub(crate) exit_code: Option<u8>,
}

impl Orphan {
    /// The phase that it reaches before the set is created.
    pub(crate) fn phase(self) -> &'static str {
        match self.exit_code {
            None => "Running",
            Some(0) => "Succeeded",
            Some(_) => "Failed",
        }
    }
}

/// A set.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The spec without the selector.
    pub(crate) spec: Value,
    /// Fields of the pod's spec, in every template.
    fields: Value,
    pub(crate) orphans: Vec<Orphan>,
    pub(crate) steps: Vec<Step>,
    /// The result is the same on some node, because the order of the nodes is undefined upstream.
    pub(crate) on_any_node: bool,
}

impl Case {
    pub(crate) fn new(name: &'static str, fields: Value) -> Self {
        let spec = json!({ "template": template(name, "1", &fields) });
        Self { name, spec, fields, orphans: Vec::new(), steps: Vec::new(), on_any_node: false }
    }

    /// On its own nodes.
    fn own(name: &'static str) -> Self {
        Self::new(name, of_own_nodes(name))
    }

    fn with(mut self, spec: Value) -> Self {
        for (key, value) in spec.as_object().into_iter().flatten() {
            self.spec[key] = value.clone();
        }
        self
    }

    fn orphan(mut self, name: &'static str, node: &'static str, exit_code: Option<u8>) -> Self {
        self.orphans.push(Orphan { name, node, exit_code });
        self
    }

    fn then(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    fn wait(self, want: Want) -> Self {
        self.then(Step::Wait(want))
    }

    fn on(self, nodes: usize) -> Self {
        self.wait(Want::on_nodes(nodes))
    }

    fn edit(self, spec: Value) -> Self {
        self.then(Step::Edit(spec))
    }

    fn image(self, tag: &str) -> Self {
        let spec = json!({ "template": template(self.name, tag, &self.fields) });
        self.edit(spec)
    }

    fn meanwhile(self, edit: Value) -> Self {
        let first = json!({ "template": template(self.name, "2", &self.fields) });
        self.then(Step::EditMeanwhile(first, edit))
    }

    fn on_any_node(mut self) -> Self {
        self.on_any_node = true;
        self
    }

    /// Whether its result depends on the time of an edit.
    pub(crate) fn is_timed(&self) -> bool {
        self.steps.iter().any(|it| matches!(it, Step::EditMeanwhile(..)))
    }
}

/// The image whose containers never become ready.
const BROKEN: &str = "broken";

/// The template of a set, with pods that start and stop soon. A key that is in one template is in all, because an edit
/// is a merge patch.
pub(crate) fn template(name: &str, tag: &str, fields: &Value) -> Value {
    let script = json!({
        format!("{PREFIX}start-after"): "300ms", format!("{PREFIX}stop-after"): "100ms",
        format!("{PREFIX}hang"): (tag == BROKEN).to_string(),
    });
    let mut template = json!({
        "metadata": { "labels": { "app": name }, "annotations": script },
        "spec": { "terminationGracePeriodSeconds": 1,
            "containers": [{ "name": "main", "image": format!("example.com/main:{tag}"), "args": ["<a>&b"] }] },
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        template["spec"][key] = value.clone();
    }
    template
}

/// What pods need to run on the nodes of this case.
fn of_own_nodes(case: &str) -> Value {
    json!({ "nodeSelector": { "case": case },
        "tolerations": [{ "key": "case", "operator": "Equal", "value": case, "effect": "NoSchedule" }] })
}

pub(crate) fn rolling(unavailable: Value, surge: Value) -> Value {
    json!({ "updateStrategy": { "type": "RollingUpdate",
        "rollingUpdate": { "maxUnavailable": unavailable, "maxSurge": surge } } })
}

fn on_delete() -> Value {
    json!({ "updateStrategy": { "type": "OnDelete", "rollingUpdate": null } })
}

/// A required node affinity with these terms.
fn required(terms: Value) -> Value {
    json!({ "affinity": { "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } } } })
}

/// The taints of a node of this case, with one more.
fn taints(case: &str, more: Option<(&str, &str)>) -> Value {
    let mut taints = vec![json!({ "key": "case", "value": case, "effect": "NoSchedule" })];
    taints.extend(more.map(|(key, effect)| json!({ "key": key, "effect": effect })));
    json!({ "spec": { "taints": taints } })
}

/// Nodes that are all the same.
pub(crate) fn plain_nodes(count: usize) -> Vec<NodeSpec> {
    (1..=count).map(|it| NodeSpec::new(format!("node-{it}"))).collect()
}

/// All nodes of the cases. Those of [`Step::AddNode`] come later.
pub(crate) fn nodes() -> Vec<NodeSpec> {
    let zones = ["a", "b", "c", "d", "e"];
    let mut all: Vec<NodeSpec> = plain_nodes(zones.len());
    for (number, (node, zone)) in all.iter_mut().zip(zones).enumerate() {
        *node = node.clone().label("zone", zone).label("rank", &number.to_string()).label("pool", "fixed");
    }
    all[3] = all[3].clone().taint("dedicated", "yes", "NoSchedule");
    all[4] = all[4].clone().taint("gpu", "yes", "NoExecute");
    let own = |case: &str, number: usize| own_node(&format!("node-{case}-{number}"), case);
    let pressure = ["disk-pressure", "memory-pressure", "pid-pressure", "unschedulable"]
        .into_iter()
        .fold(own("pressure", 1), |node, key| node.taint(&format!("node.kubernetes.io/{key}"), "", "NoSchedule"))
        .taint("node.kubernetes.io/not-ready", "", "NoExecute")
        .taint("node.kubernetes.io/unreachable", "", "NoExecute");
    all.extend([
        pressure,
        own("network", 1).taint("node.kubernetes.io/network-unavailable", "", "NoSchedule"),
        own("avoided", 1).taint("avoid", "", "PreferNoSchedule"),
        own("relabelled", 1).label("color", "red"),
        own("relabelled", 2).label("color", "blue"),
        own("no-schedule", 1),
        own("no-schedule", 2),
        own("no-execute", 1),
        own("no-execute", 2),
        own("removed", 1),
        own("removed", 2),
        own("added", 1),
    ]);
    all
}

/// A node of a case.
pub(crate) fn own_node(name: &str, case: &str) -> NodeSpec {
    NodeSpec::new(name).label("case", case).taint("case", case, "NoSchedule")
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = placement();
    all.extend(templates());
    all.extend(changed_nodes());
    all.extend(pods());
    all.extend(rollouts());
    all.extend(surges());
    all.extend(edits_in_rollouts());
    all
}

/// Which nodes have pods.
fn placement() -> Vec<Case> {
    let tolerates = |name: &'static str, toleration: Value| Case::new(name, json!({ "tolerations": [toleration] }));
    let is_in =
        |key: &str, value: &str| json!({ "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }] });
    let everything = json!({ "nodeSelector": { "pool": "fixed" }, "tolerations": [{ "operator": "Exists" }] });
    let mut on_network = of_own_nodes("network");
    let without_network = Case::new("pod-network", on_network.clone());
    on_network["hostNetwork"] = json!(true);
    let excluded = json!([{ "matchExpressions": [
        { "key": "zone", "operator": "NotIn", "values": ["a"] }, { "key": "zone", "operator": "Exists" },
        { "key": "case", "operator": "DoesNotExist" } ] }]);
    let above = json!([{ "matchExpressions": [{ "key": "rank", "operator": "Gt", "values": ["0"] }] }]);
    let by_name = json!([{ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["node-2"] }] }]);
    let both = json!({ "nodeSelector": { "zone": "a" }, "nodeName": "node-3" });
    vec![
        Case::new("plain", json!({})).on(3),
        tolerates("tolerates", json!({ "key": "dedicated", "value": "yes", "effect": "NoSchedule" })).on(4),
        tolerates("tolerates-key", json!({ "key": "gpu", "operator": "Exists" })).on(4),
        tolerates("tolerates-other", json!({ "key": "dedicated", "value": "no" })).on(3),
        tolerates(
            "tolerates-briefly",
            json!({ "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300 }),
        )
        .on(3),
        Case::new("tolerates-all", everything).on(5),
        Case::own("pressure").on(1),
        Case::new("host-network", on_network).on(1),
        without_network.on(0),
        Case::own("avoided").on(1),
        Case::new("selected", json!({ "nodeSelector": { "zone": "b" } })).on(1),
        Case::new("selected-none", json!({ "nodeSelector": { "zone": "z" } })).on(0),
        Case::new("affinity", required(json!([is_in("zone", "a"), is_in("zone", "c")]))).on(2),
        Case::new("affinity-not", required(excluded)).on(2),
        Case::new("affinity-above", required(above)).on(2),
        Case::new("affinity-name", required(by_name)).on(1),
        Case::new("node-name", json!({ "nodeName": "node-3" })).on(1),
        Case::new("node-name-other", both).on(0),
    ]
}

/// What is in the pods.
fn templates() -> Vec<Case> {
    let env = json!({ "containers": [{ "name": "main", "image": "example.com/main:1", "env": [
        { "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
        { "name": "PLAIN", "value": "1" } ] }] });
    let volumes =
        json!({ "volumes": [{ "name": "data", "emptyDir": {} }, { "name": "host", "hostPath": { "path": "/" } }] });
    let affinity = json!({ "affinity": {
        "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "preference": {
            "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] } }] },
        "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{ "weight": 1, "podAffinityTerm": {
            "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "x" } } } }] } } });
    let mut labels = Case::new("labels", json!({}));
    labels.spec["template"]["metadata"]["labels"]["extra"] = json!("a");
    labels.spec["template"]["metadata"]["annotations"]["note"] = json!("b");
    vec![
        Case::new("env", env).on(3),
        Case::new("volumes", volumes).on(3),
        Case::new("preferred", affinity).on(3),
        labels.on(3),
        Case::new("min-ready", json!({})).with(json!({ "minReadySeconds": 1 })).on(3),
    ]
}

/// Nodes that come, go, are tainted and relabelled.
fn changed_nodes() -> Vec<Case> {
    let color = |value: Value| json!({ "metadata": { "labels": { "color": value } } });
    let mut red = of_own_nodes("relabelled");
    red["nodeSelector"]["color"] = json!("red");
    let misscheduled = Want { misscheduled: 1, pods: 2, ..Want::on_nodes(1) };
    let pending = Want { ready: 1, ..Want::on_nodes(2) };
    let no_schedule = |more| Step::EditNode("node-no-schedule-1", taints("no-schedule", more));
    let no_execute = |more| Step::EditNode("node-no-execute-1", taints("no-execute", more));
    vec![
        Case::new("relabelled", red)
            .on(1)
            .then(Step::EditNode("node-relabelled-2", color(json!("red"))))
            .on(2)
            .then(Step::EditNode("node-relabelled-1", color(Value::Null)))
            .on(1),
        Case::own("no-schedule")
            .on(2)
            .then(no_schedule(Some(("stop", "NoSchedule"))))
            .then(Step::WaitWithSyncs(misscheduled))
            .then(no_schedule(None))
            .on(2)
            .then(no_schedule(Some(("stop", "NoSchedule"))))
            .then(Step::WaitWithSyncs(misscheduled)),
        Case::own("no-execute").on(2).then(no_execute(Some(("leave", "NoExecute")))).on(1).then(no_execute(None)).on(2),
        Case::own("removed")
            .on(2)
            .then(Step::RemoveNode("node-removed-1"))
            // The pod is left to the pod garbage collector.
            .then(Step::WaitWithSyncs(Want { pods: 2, ..Want::on_nodes(1) })),
        Case::own("added")
            .on(1)
            .then(Step::AddNode("node-added-2"))
            .wait(pending)
            .then(Step::RemoveNode("node-added-2"))
            .then(Step::WaitWithSyncs(Want::on_nodes(1))),
    ]
}

/// Pods that are deleted, have ended, or existed before.
fn pods() -> Vec<Case> {
    vec![
        Case::new("deleted", json!({})).on(3).then(Step::DeletePod("node-2")).on(3),
        Case::new("failed", json!({})).on(3).then(Step::FailPod("node-2")).on(3),
        Case::new("adopted", json!({})).orphan("adopted-x", "node-1", None).on(3),
        Case::new("adopted-kept", json!({}))
            .with(on_delete())
            .orphan("adopted-kept-x", "node-1", None)
            .wait(Want { updated: 2, ..Want::on_nodes(3) }),
        Case::new("adopted-two", json!({}))
            .with(on_delete())
            .orphan("adopted-two-a", "node-1", None)
            .orphan("adopted-two-b", "node-1", None)
            .wait(Want { updated: 2, ..Want::on_nodes(3) }),
        Case::new("adopted-misplaced", json!({})).orphan("adopted-misplaced-x", "node-5", None).on(3),
        Case::new("orphan-succeeded", json!({})).orphan("orphan-succeeded-x", "node-1", Some(0)).on(3),
        Case::new("orphan-failed", json!({})).orphan("orphan-failed-x", "node-1", Some(1)).on(3),
    ]
}

/// Updates without surge.
fn rollouts() -> Vec<Case> {
    let rolled = |name: &'static str, spec: Value| Case::new(name, json!({})).with(spec).on(3).image("2").on(3);
    // On one node, because more than ten similar events are combined.
    let history = |name: &'static str, limit: i64| {
        let case = Case::new(name, json!({ "nodeSelector": { "zone": "a" } }));
        let case = case.with(json!({ "revisionHistoryLimit": limit })).on(1);
        ["2", "3", "4"].into_iter().fold(case, |case, tag| case.image(tag).on(1))
    };
    let tolerations = json!({ "tolerations": [{ "key": "dedicated", "operator": "Exists" }] });
    let untolerating = json!({ "template": { "spec": { "tolerations": [] } } });
    let in_zone = |zone: &str| json!({ "template": { "spec": { "nodeSelector": { "zone": zone } } } });
    let version = json!({ "template": { "metadata": { "labels": { "version": "2" } } } });
    let blocked = |name: &'static str| {
        let state = Want { ready: 2, updated: 1, ..Want::on_nodes(3) };
        Case::new(name, json!({})).on(3).image(BROKEN).wait(state)
    };
    let outdated = Want { updated: 0, ..Want::on_nodes(3) };
    vec![
        rolled("rolled", json!({})),
        rolled("rolled-two", rolling(json!(2), json!(0))),
        rolled("rolled-half", rolling(json!("50%"), json!(0))),
        rolled("rolled-ready", json!({ "minReadySeconds": 1 })),
        rolled("reverted", json!({})).image("1").on(3),
        Case::new("new-label", json!({})).on(3).edit(version).on(3),
        Case::new("untolerating", tolerations).on(4).edit(untolerating).on(3),
        Case::new("moved", json!({ "nodeSelector": { "zone": "a" } })).on(1).edit(in_zone("b")).on(1),
        Case::new("on-delete", json!({})).with(on_delete()).on(3).image("2").wait(outdated),
        Case::new("on-delete-lost", json!({}))
            .with(on_delete())
            .on(3)
            .image("2")
            .wait(outdated)
            .then(Step::DeletePod("node-2"))
            .wait(Want { updated: 1, ..outdated }),
        Case::new("on-delete-ended", json!({}))
            .with(on_delete())
            .on(3)
            .image("2")
            .wait(outdated)
            .edit(rolling(json!(1), json!(0)))
            .on(3),
        history("history-none", 0),
        history("history-one", 1),
        blocked("blocked").on_any_node(),
        blocked("blocked-reverted").image("1").on(3).on_any_node(),
        blocked("blocked-mended").image("3").on(3),
    ]
}

/// Updates with surge.
fn surges() -> Vec<Case> {
    let surging = |name: &'static str, surge: Value| Case::new(name, json!({})).with(rolling(json!(0), surge)).on(3);
    let blocked = |name: &'static str| {
        // The older pod of a node counts.
        let state = Want { updated: 0, pods: 4, ..Want::on_nodes(3) };
        surging(name, json!(1)).image(BROKEN).wait(state)
    };
    vec![
        surging("surge", json!(1)).image("2").on(3),
        surging("surge-half", json!("50%")).image("2").on(3),
        surging("surge-all", json!("100%")).image("2").on(3),
        surging("surge-ready", json!(1))
            .edit(json!({ "minReadySeconds": 1 }))
            .on(3)
            .image("2")
            .then(Step::WaitWithSyncs(Want::on_nodes(3))),
        blocked("surge-blocked").on_any_node(),
        blocked("surge-blocked-reverted").image("1").on(3).on_any_node(),
    ]
}

/// Edits in the middle of a rollout.
fn edits_in_rollouts() -> Vec<Case> {
    let image = |name: &str, tag: &str| json!({ "template": template(name, tag, &json!({})) });
    let case = |name: &'static str| Case::new(name, json!({})).on(3);
    vec![
        case("mid-edited").meanwhile(image("mid-edited", "3")).on(3),
        case("mid-reverted").meanwhile(image("mid-reverted", "1")).on(3),
        case("mid-surged").meanwhile(rolling(json!(0), json!(1))).on(3),
        case("mid-selected").meanwhile(json!({ "template": { "spec": { "nodeSelector": { "zone": "b" } } } })).on(1),
    ]
}
