//! What was stored of nodes, their Leases and pods. It does not depend on the controllers' code.

use std::{collections::BTreeMap, time::Duration};

use clock::Instant;
use serde_json::Value;
use testing::sim::Write;

use super::{
    NODES,
    settings::Settings,
    timeline::{Period, Point, ShownVersions, Timeline},
    zones::Modes,
};

pub(super) const NOT_READY: &str = "node.kubernetes.io/not-ready";
pub(super) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(super) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
pub(super) const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
pub(super) const LEGACY_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";
/// The taints of an outage. One replaces the other.
pub(super) const OUTAGE: [&str; 2] = [NOT_READY, UNREACHABLE];

/// Every node (by name) and pod (by uid) that ever existed.
pub(super) struct Model {
    pub(super) settings: Settings,
    pub(super) nodes: BTreeMap<String, Node>,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) shown: ShownVersions,
    pub(super) modes: Timeline<Modes>,
    /// For each zone: the nodes that got a taint of an outage and had none.
    pub(super) tainted: BTreeMap<String, Vec<Tainted>>,
    /// How many terminated pods exist.
    terminated: Timeline<usize>,
    started: Point,
}

/// One name of a node.
pub(super) struct Node {
    /// The last stored object; null while there is none.
    pub(super) object: Value,
    pub(super) states: Timeline<NodeState>,
    /// When the present node was created, its Lease renewed, or its status posted.
    renewals: Vec<Instant>,
    renew_time: Value,
}

/// The fields of a node that decide. The default is a node that does not exist.
#[derive(Clone, PartialEq, Default)]
pub(super) struct NodeState {
    uid: String,
    pub(super) zone: String,
    pub(super) is_excluded: bool,
    pub(super) ready: Option<Ready>,
    /// The taints with the effect NoExecute.
    pub(super) taints: Vec<Taint>,
    pub(super) is_out_of_service: bool,
}

/// The status of the Ready condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ready {
    True,
    False,
    Unknown,
}

/// A taint with the effect NoExecute.
#[derive(Clone, PartialEq, Default)]
pub(super) struct Taint {
    pub(super) key: String,
    value: String,
}

/// A node got a taint of an outage and had none.
#[derive(Clone)]
pub(super) struct Tainted {
    pub(super) node: String,
    /// The process.
    pub(super) by: String,
    pub(super) point: Point,
}

/// One pod.
pub(super) struct Pod {
    pub(super) name: String,
    /// Empty for a pod that is not scheduled.
    pub(super) node: String,
    pub(super) created: Point,
    pub(super) tolerations: Timeline<Vec<Toleration>>,
    pub(super) phase: String,
    pub(super) ready: Option<Ready>,
    pub(super) has_finalizer: bool,
    /// Its grace period, and when its deletion began.
    pub(super) deletion: Option<(Duration, Instant)>,
    pub(super) gone: bool,
}

/// A toleration of NoExecute taints.
#[derive(Clone, PartialEq)]
pub(super) struct Toleration {
    key: String,
    value: Option<String>,
    seconds: Option<i64>,
}

/// How long a pod stays on a node with a taint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tolerated {
    Never,
    For(Duration),
    Always,
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The condition of this type; null if there is none.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    list(&object["status"]["conditions"]).iter().find(|it| it["type"] == kind).unwrap_or(&Value::Null)
}

pub(super) fn ready(object: &Value) -> Option<Ready> {
    match condition(object, "Ready")["status"].as_str()? {
        "True" => Some(Ready::True),
        "False" => Some(Ready::False),
        _ => Some(Ready::Unknown),
    }
}

/// The zone by the legacy label, or else by the present one; empty without both.
pub(super) fn zone(node: &Value) -> String {
    let labels = &node["metadata"]["labels"];
    text([LEGACY_ZONE, ZONE].into_iter().map(|it| &labels[it]).find(|it| it.is_string()).unwrap_or(&Value::Null))
}

impl NodeState {
    pub(super) fn of(object: &Value) -> Self {
        let taints = list(&object["spec"]["taints"]);
        let no_execute = taints.iter().filter(|it| it["effect"] == "NoExecute");
        Self {
            uid: text(&object["metadata"]["uid"]),
            zone: zone(object),
            is_excluded: object["metadata"]["labels"][EXCLUDED].is_string(),
            ready: ready(object),
            taints: no_execute.map(|it| Taint { key: text(&it["key"]), value: text(&it["value"]) }).collect(),
            is_out_of_service: taints.iter().any(|it| it["key"] == OUT_OF_SERVICE),
        }
    }

    pub(super) fn exists(&self) -> bool {
        !self.uid.is_empty()
    }

    pub(super) fn is_not_ready(&self) -> bool {
        self.exists() && self.ready != Some(Ready::True)
    }

    fn has_outage_taint(&self) -> bool {
        self.taints.iter().any(Taint::is_of_outage)
    }

    fn has(&self, taint: &Taint) -> bool {
        self.taints.iter().any(|it| it.continues(taint))
    }
}

impl Taint {
    fn is_of_outage(&self) -> bool {
        OUTAGE.contains(&&*self.key)
    }

    /// True if this is the same taint, or the other one of an outage, which replaces it.
    fn continues(&self, other: &Self) -> bool {
        self == other || (self.is_of_outage() && other.is_of_outage())
    }
}

impl Toleration {
    fn of(object: &Value) -> Option<Self> {
        let applies = object["effect"].is_null() || object["effect"] == "NoExecute";
        let toleration = Self {
            key: text(&object["key"]),
            value: (object["operator"] != "Exists").then(|| text(&object["value"])),
            seconds: object["tolerationSeconds"].as_i64(),
        };
        applies.then_some(toleration)
    }

    fn matches(&self, taint: &Taint) -> bool {
        let has_key = self.key.is_empty() || self.key == taint.key;
        has_key && self.value.as_ref().is_none_or(|it| *it == taint.value)
    }
}

/// The first toleration that matches decides.
pub(super) fn tolerated(tolerations: &[Toleration], taint: &Taint) -> Tolerated {
    let Some(first) = tolerations.iter().find(|it| it.matches(taint)) else { return Tolerated::Never };
    let Some(seconds) = first.seconds else { return Tolerated::Always };
    Tolerated::For(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

impl Node {
    fn new(started: Point) -> Self {
        let states = Timeline::starting_with(NodeState::default(), started);
        Self { object: Value::Null, states, renewals: Vec::new(), renew_time: Value::Null }
    }

    pub(super) fn state(&self) -> NodeState {
        self.states.last().cloned().unwrap_or_default()
    }

    /// True if the node was silent for this time, until now or until a moment not longer ago than `in_flight`.
    pub(super) fn was_silent_for(&self, time: Duration, in_flight: Duration, now: Instant) -> bool {
        let mut end = now;
        for begin in self.renewals.iter().rev() {
            if end + in_flight < now {
                return false;
            }
            if *begin + time <= end {
                return true;
            }
            end = *begin;
        }
        false
    }

    /// `is_posted` is true for a write of the node itself.
    fn update(&mut self, object: Value, is_posted: bool, point: Point) {
        let heartbeat = |it: &Value| condition(it, "Ready")["lastHeartbeatTime"].clone();
        let is_new = object["metadata"]["uid"] != self.object["metadata"]["uid"];
        if is_new {
            self.renewals.clear();
        }
        let is_renewed = is_new || (is_posted && heartbeat(&object) != heartbeat(&self.object));
        if !object.is_null() && is_renewed {
            self.renewals.push(point.at);
        }
        self.states.record(NodeState::of(&object), point);
        self.object = object;
    }
}

impl Pod {
    fn new(object: &Value, created: Point) -> Self {
        let tolerations = Timeline::starting_with(tolerations(object), created);
        let mut pod = Self {
            name: text(&object["metadata"]["name"]),
            node: text(&object["spec"]["nodeName"]),
            created,
            tolerations,
            phase: String::new(),
            ready: None,
            has_finalizer: false,
            deletion: None,
            gone: false,
        };
        pod.update(Some(object), created);
        pod
    }

    fn update(&mut self, object: Option<&Value>, point: Point) {
        let Some(object) = object else {
            self.gone = true;
            return;
        };
        let metadata = &object["metadata"];
        self.tolerations.record(tolerations(object), point);
        self.phase = text(&object["status"]["phase"]);
        self.ready = ready(object);
        self.has_finalizer = !list(&metadata["finalizers"]).is_empty();
        if metadata["deletionTimestamp"].is_string() {
            let grace = metadata["deletionGracePeriodSeconds"].as_u64().unwrap_or(0);
            let since = self.deletion.map_or(point.at, |it| it.1);
            self.deletion = Some((Duration::from_secs(grace), since));
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(&*self.phase, "Succeeded" | "Failed")
    }

    /// True if only a finalizer keeps the object.
    pub(super) fn is_held(&self) -> bool {
        self.has_finalizer && self.has_ended() && self.deletion.is_some_and(|it| it.0.is_zero())
    }
}

fn tolerations(pod: &Value) -> Vec<Toleration> {
    list(&pod["spec"]["tolerations"]).iter().filter_map(Toleration::of).collect()
}

impl Model {
    pub(super) fn new(settings: Settings, started: Point) -> Self {
        Self {
            settings,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            shown: ShownVersions::default(),
            modes: Timeline::starting_with(Modes::default(), started),
            tainted: BTreeMap::new(),
            terminated: Timeline::starting_with(0, started),
            started,
        }
    }

    /// The model of a node, also if it never existed.
    pub(super) fn node_mut(&mut self, name: &str) -> &mut Node {
        let started = self.started;
        self.nodes.entry(name.to_owned()).or_insert_with(|| Node::new(started))
    }

    pub(super) fn record_node(&mut self, name: &str, object: Option<Value>, is_posted: bool, point: Point) {
        self.node_mut(name).update(object.unwrap_or_default(), is_posted, point);
        let states = self.nodes.values().filter_map(|it| it.states.last());
        let modes = Modes::of(states, &self.settings);
        self.modes.record(modes, point);
    }

    /// Records the Lease of a node.
    pub(super) fn record_lease(&mut self, name: &str, object: Option<&Value>, point: Point) {
        let node = self.node_mut(name);
        let renew_time = object.map_or(&Value::Null, |it| &it["spec"]["renewTime"]);
        if renew_time.is_string() && *renew_time != node.renew_time {
            node.renewals.push(point.at);
        }
        node.renew_time = renew_time.clone();
    }

    pub(super) fn record_pod(&mut self, uid: &str, object: Option<&Value>, point: Point) {
        match (self.pods.get_mut(uid), object) {
            (Some(pod), object) => pod.update(object, point),
            (None, Some(object)) => drop(self.pods.insert(uid.to_owned(), Pod::new(object, point))),
            (None, None) => {}
        }
        let terminated = self.pods.values().filter(|it| !it.gone && it.has_ended() && !it.is_held()).count();
        self.terminated.record(terminated, point);
    }

    pub(super) fn living_pods(&self) -> impl Iterator<Item = (&String, &Pod)> {
        self.pods.iter().filter(|it| !it.1.gone)
    }

    /// The oldest version of a resource on which a write of this process may be based.
    pub(super) fn oldest_base(&self, write: &Write, resource: &str, now: Instant) -> u64 {
        self.shown.known_before(write.by, resource, self.settings.in_flight, now)
    }

    /// The states of a node on which a write of this process may be based.
    pub(super) fn possible_states(&self, write: &Write, node: &str, now: Instant) -> Vec<&NodeState> {
        let oldest = self.oldest_base(write, NODES, now);
        self.nodes.get(node).map(|it| it.states.since(oldest).collect()).unwrap_or_default()
    }

    /// The modes on which a write of this process may be based.
    pub(super) fn possible_modes(&self, write: &Write, now: Instant) -> impl Iterator<Item = &Modes> {
        self.modes.since(self.oldest_base(write, NODES, now))
    }

    /// The largest number of terminated pods that a process may know.
    pub(super) fn most_terminated(&self, oldest: u64) -> usize {
        self.terminated.since(oldest).copied().max().unwrap_or(0)
    }

    /// True if a process knows that this node of the zone was tainted: it did so itself, or was shown the taint before the
    /// node moved to another zone.
    pub(super) fn knows_taint(&self, by: &str, zone: &str, tainted: &Tainted) -> bool {
        let Some(node) = self.nodes.get(&tainted.node).filter(|_| by != tainted.by) else { return true };
        let later = node.states.periods().into_iter().filter(|it| it.from.version >= tainted.point.version);
        let mut with_taint = later.take_while(|it| it.value.has_outage_taint());
        with_taint.any(|it| it.value.zone == zone && self.shown.has_shown(by, NODES, &it))
    }

    /// When the present taint of a node began for this process. It does not begin anew after a gap that the process
    /// was not shown.
    pub(super) fn taint_begin(&self, by: &str, node: &Node, period: &Period<NodeState>, taint: &Taint) -> Instant {
        let mut begin = period.from.at;
        let earlier = node.states.periods().into_iter().rev().filter(|it| it.from.version < period.from.version);
        for it in earlier {
            if it.value.has(taint) {
                begin = it.from.at;
            } else if self.shown.has_shown(by, NODES, &it) {
                break;
            }
        }
        begin
    }

    /// If one of the taints of an outage has replaced the other one: the last other one, and when the first began for this
    /// process, by the same rule.
    pub(super) fn replaced<'a>(
        &self,
        by: &str,
        node: &'a Node,
        period: &Period<NodeState>,
        taint: &Taint,
    ) -> Option<(&'a Taint, Instant)> {
        let (mut other, mut begin) = (None, period.from.at);
        let earlier = node.states.periods().into_iter().rev().filter(|it| it.from.version < period.from.version);
        for it in earlier {
            if it.value.has_outage_taint() {
                begin = it.from.at;
                let is_other = |it: &&Taint| it.is_of_outage() && it.key != taint.key;
                other = other.or_else(|| it.value.taints.iter().find(is_other));
            } else if self.shown.has_shown(by, NODES, &it) {
                break;
            }
        }
        other.filter(|_| taint.is_of_outage()).map(|it| (it, begin))
    }

    /// When the node began to be absent for this process, by the same rule.
    pub(super) fn absence_begin(&self, by: &str, node: &Node, period: &Period<NodeState>) -> Instant {
        let mut begin = period.from.at;
        let earlier = node.states.periods().into_iter().rev().filter(|it| it.from.version < period.from.version);
        for it in earlier {
            if !it.value.exists() {
                begin = it.from.at;
            } else if self.shown.has_shown(by, NODES, &it) {
                break;
            }
        }
        begin
    }
}
