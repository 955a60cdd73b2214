//! The guarantees for nodes: conditions, taints, labels and the annotation.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;
use test_cluster::Change;
use testing::sim::Write;

use super::{
    Checked, LEASES, NODES,
    model::{Model, NOT_READY, NodeState, OUTAGE, Ready, Tainted, UNREACHABLE, condition, list, ready, text},
    timeline::Point,
    zones::Modes,
};

/// The conditions that become unknown together.
pub(super) const OF_KUBELET: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// The annotation of the node TTL controller. Small clusters have the value 0.
pub(super) const TTL: &str = "node.alpha.kubernetes.io/ttl";
/// The labels of the node, and the old ones that follow them.
pub(super) const LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// The key of the taint for each condition that should be false.
const PRESSURES: [(&str, &str); 4] = [
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];
/// One of the watches may begin so much later than the other.
const FIRST_LIST: Duration = Duration::from_secs(5);
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A taint as it is stored, by key and effect.
type Taints<'a> = BTreeMap<(String, String), &'a Value>;

/// A change of a node by a manager.
struct NodeChange<'a> {
    write: &'a Write<'a>,
    before: &'a Value,
    after: &'a Value,
    point: Point,
}

/// Checks a write of a manager.
pub(super) fn check(model: &mut Model, write: &Write, after: Option<&Value>, point: Point) -> Checked {
    let (Change::Modified, Some(before), Some(after)) = (write.change(), write.before(), after) else {
        return Err("creates or deletes a node".to_owned());
    };
    let change = NodeChange { write, before: &before, after, point };
    change.check_rest()?;
    change.check_conditions(model)?;
    change.check_taints(model)
}

/// The key of each NoSchedule taint that a node should have.
pub(super) fn no_schedule_keys(node: &Value) -> Vec<&'static str> {
    let of_conditions = PRESSURES.iter().filter(|it| condition(node, it.0)["status"] == "True").map(|it| it.1);
    let of_ready = match ready(node) {
        Some(Ready::False) => Some(NOT_READY),
        Some(Ready::Unknown) => Some(UNREACHABLE),
        Some(Ready::True) | None => None,
    };
    let of_spec = (node["spec"]["unschedulable"] == true).then_some(UNSCHEDULABLE);
    of_conditions.chain(of_ready).chain(of_spec).collect()
}

/// True if the controller decides alone about this taint.
pub(super) fn is_managed(key: &str, effect: &str) -> bool {
    let is_of_outage = OUTAGE.contains(&key);
    match effect {
        "NoExecute" => is_of_outage,
        "NoSchedule" => is_of_outage || key == UNSCHEDULABLE || PRESSURES.iter().any(|it| it.1 == key),
        _ => false,
    }
}

fn taints(node: &Value) -> Taints<'_> {
    let all = list(&node["spec"]["taints"]).iter();
    all.map(|it| ((text(&it["key"]), text(&it["effect"])), it)).collect()
}

/// The object without what a manager may change.
fn rest(object: &Value) -> Value {
    let mut rest = object.clone();
    let mut remove = |path: &[&str], field: &str| {
        let mut at = &mut rest;
        for step in path {
            at = &mut at[*step];
        }
        if let Some(it) = at.as_object_mut() {
            it.remove(field);
        }
    };
    for field in ["resourceVersion", "generation", "managedFields"] {
        remove(&["metadata"], field);
    }
    LABELS.iter().for_each(|it| remove(&["metadata", "labels"], it.1));
    remove(&["metadata", "annotations"], TTL);
    remove(&["spec"], "taints");
    remove(&["status"], "conditions");
    without_empty(rest)
}

/// Empty objects and nulls are omitted.
pub(super) fn without_empty(value: Value) -> Value {
    let Value::Object(fields) = value else { return value };
    let fields = fields.into_iter().map(|(key, value)| (key, without_empty(value)));
    let is_empty = |it: &Value| it.is_null() || it.as_object().is_some_and(serde_json::Map::is_empty);
    Value::Object(fields.filter(|it| !is_empty(&it.1)).collect())
}

impl NodeChange<'_> {
    /// Nothing but these fields is changed.
    fn check_rest(&self) -> Checked {
        let Self { before, after, .. } = self;
        if rest(before) != rest(after) {
            return Err(format!("changes a foreign field: {before} becomes {after}"));
        }
        let labels = |it: &Value| it["metadata"]["labels"].clone();
        let (old, new) = (labels(before), labels(after));
        for (source, label) in LABELS {
            if old[label] != new[label] && (new[label] != new[source] || new[source].is_null()) {
                return Err(format!("sets the label {label} to {}", new[label]));
            }
        }
        let ttl = |it: &Value| it["metadata"]["annotations"][TTL].clone();
        if ttl(before) != ttl(after) && ttl(after) != "0" {
            return Err(format!("sets the TTL to {}", ttl(after)));
        }
        Ok(())
    }

    /// Conditions become unknown, all four together, after the node was silent for its whole grace.
    fn check_conditions(&self, model: &Model) -> Checked {
        let conditions = |it: &Value| -> Vec<Value> {
            list(&it["status"]["conditions"]).iter().map(|it| without_empty(it.clone())).collect()
        };
        let (old, new) = (conditions(self.before), conditions(self.after));
        if old == new {
            return Ok(());
        }
        if let Some(lost) = old.iter().find(|it| condition(self.after, &text(&it["type"])).is_null()) {
            return Err(format!("removes the condition {}", lost["type"]));
        }
        for it in new.iter().filter(|it| !old.contains(it)) {
            self.check_condition(it)?;
        }
        if let Some(kind) = OF_KUBELET.into_iter().find(|it| condition(self.after, it)["status"] != "Unknown") {
            return Err(format!("sets conditions to unknown, but not {kind}"));
        }
        self.check_silence(model)?;
        self.check_watched(model)
    }

    fn check_condition(&self, new: &Value) -> Checked {
        let kind = text(&new["type"]);
        let old = condition(self.before, &kind);
        if !OF_KUBELET.contains(&&*kind) || new["status"] != "Unknown" || old["status"] == "Unknown" {
            return Err(format!("changes the condition {kind} from {old} to {new}"));
        }
        let (heartbeat, reason, message) = if old.is_null() {
            let created = &self.before["metadata"]["creationTimestamp"];
            (created, "NodeStatusNeverUpdated", "Kubelet never posted node status.")
        } else {
            (&old["lastHeartbeatTime"], "NodeStatusUnknown", "Kubelet stopped posting node status.")
        };
        if new["lastHeartbeatTime"] != *heartbeat {
            return Err(format!("changes the heartbeat of {kind} from {heartbeat} to {}", new["lastHeartbeatTime"]));
        }
        if new["reason"] != reason || new["message"] != message || !new["lastTransitionTime"].is_string() {
            return Err(format!("sets a wrong reason, message or time: {new}"));
        }
        Ok(())
    }

    /// The node was silent for its whole grace. It may be back since the request was sent.
    fn check_silence(&self, model: &Model) -> Checked {
        let settings = &model.settings;
        let grace = if ready(self.before).is_none() { settings.startup_grace } else { settings.grace };
        let node = model.nodes.get(self.write.name());
        if node.is_some_and(|it| it.was_silent_for(grace, settings.in_flight, self.point.at)) {
            return Ok(());
        }
        Err("the node was not silent for its whole grace".to_owned())
    }

    /// A process sets a node to Unknown only after it has watched for about a whole grace itself.
    fn check_watched(&self, model: &Model) -> Checked {
        let Write { by, .. } = self.write;
        for resource in [NODES, LEASES] {
            let since = model.shown.watched_since(by, resource);
            if since.is_none_or(|it| it + model.settings.grace > self.point.at + FIRST_LIST) {
                return Err(format!("sets a node to Unknown, but has not watched {resource} for a whole grace"));
            }
        }
        Ok(())
    }

    fn check_taints(&self, model: &mut Model) -> Checked {
        let (old, new) = (taints(self.before), taints(self.after));
        if new.len() != list(&self.after["spec"]["taints"]).len() {
            return Err("the node has two taints of one key and effect".to_owned());
        }
        for it in old.keys().chain(new.keys()) {
            let ((key, effect), old, new) = (it, old.get(it), new.get(it));
            if old == new {
                continue;
            }
            if !is_managed(key, effect) || (old.is_some() && new.is_some()) {
                return Err(format!("changes the taint {key}:{effect} from {old:?} to {new:?}"));
            }
            if effect == "NoSchedule" && no_schedule_keys(self.after).contains(&&**key) != new.is_some() {
                return Err(format!("sets {key}:{effect} to {new:?}, which does not match the node"));
            }
            if new.is_some_and(|it| !it["value"].is_null() || !it["timeAdded"].is_string()) {
                return Err(format!("the taint {key}:{effect} has a value, or no time: {new:?}"));
            }
        }
        self.check_outage_taints(model)
    }

    /// The NoExecute taints of the outage.
    fn check_outage_taints(&self, model: &mut Model) -> Checked {
        let (before, after) = (NodeState::of(self.before), NodeState::of(self.after));
        let keys = |it: &NodeState| {
            let all = OUTAGE.into_iter().filter(|key| it.taints.iter().any(|it| it.key == *key));
            all.collect::<Vec<_>>()
        };
        let (old, new) = (keys(&before), keys(&after));
        if old == new {
            return Ok(());
        }
        let wanted = match after.ready {
            Some(Ready::False) => Some(NOT_READY),
            Some(Ready::Unknown) => Some(UNREACHABLE),
            Some(Ready::True) | None => None,
        };
        match *new {
            [] => self.check_lifted(model, &before),
            [key] if Some(key) != wanted => Err(format!("leaves {key}:NoExecute, but Ready is {:?}", after.ready)),
            [UNREACHABLE] if !old.contains(&UNREACHABLE) => {
                self.check_silence(model)?;
                if old.is_empty() { self.check_pace(model) } else { Ok(()) }
            }
            [_] if old.is_empty() => self.check_pace(model),
            [_] => Ok(()),
            _ => Err("leaves both NoExecute taints of an outage".to_owned()),
        }
    }

    /// A node loses its taint when it is ready again, or when no node of the cluster is ready.
    fn check_lifted(&self, model: &Model, before: &NodeState) -> Checked {
        let now = self.point.at;
        let oldest = model.oldest_base(self.write, NODES, now);
        let all_down_at = |version: u64| {
            model.nodes.values().all(|node| {
                let periods = node.states.periods();
                let state = periods.iter().rfind(|it| it.from.version <= version).map(|it| it.value);
                state.is_none_or(|it| !it.exists() || it.is_excluded || it.is_not_ready())
                    || node.was_silent_for(model.settings.grace, model.settings.in_flight, now)
            })
        };
        // The process may not have been shown the newest states yet.
        let versions = || {
            let begins = model.nodes.values().flat_map(|it| it.states.periods()).map(|it| it.from.version);
            begins.filter(|it| *it > oldest).chain([oldest])
        };
        let is_cut_off =
            || model.possible_modes(self.write, self.point.at).any(Modes::are_all_full) || versions().any(all_down_at);
        if matches!(before.ready, Some(Ready::True) | None) || is_cut_off() {
            return Ok(());
        }
        Err(format!("lifts the NoExecute taint, but Ready is {:?}, and other nodes are ready", before.ready))
    }

    /// The zone of the node allows it now, and not too many nodes of the zone were tainted lately.
    fn check_pace(&self, model: &mut Model) -> Checked {
        let now = self.point.at;
        let states = model.possible_states(self.write, self.write.name(), now);
        let zone = NodeState::of(self.before).zone;
        // A node that moves may be paced by either zone.
        if states.iter().any(|it| it.exists() && it.zone != zone) {
            return Ok(());
        }
        let settings = model.settings;
        let rate = model.possible_modes(self.write, now).map(|it| it.rate(&zone, &settings)).fold(0.0, f64::max);
        if rate <= 0.0 {
            return Err(format!("adds a NoExecute taint, but zone {zone:?} or the whole cluster allows none"));
        }
        let by = self.write.by;
        let tainted = Tainted { node: self.write.name().to_owned(), by: by.to_owned(), point: self.point };
        let all = model.tainted.entry(zone.clone()).or_default();
        all.push(tainted);
        let earlier: Vec<Tainted> = all.iter().rev().skip(1).cloned().collect();
        // One more than fits in the time between, because the first one needs no time.
        for (Tainted { point, .. }, more) in
            earlier.into_iter().filter(|it| model.knows_taint(by, &zone, it)).zip(1_u32..)
        {
            let passed = now.saturating_duration_since(point.at);
            let known = model.shown.known_before(by, NODES, settings.in_flight, point.at);
            let modes = model.modes.since(known).chain(model.modes.after(point.at, settings.in_flight));
            let most = modes.map(|it| it.rate(&zone, &settings)).fold(rate, f64::max);
            if f64::from(more) > (passed + settings.in_flight).as_secs_f64() * most {
                return Err(format!("taints {more} more nodes of zone {zone:?} in {passed:?}, at {most} a second"));
            }
        }
        Ok(())
    }
}
