//! What was stored of sets, pods, nodes and revisions. It does not depend on the controller's code.

use std::collections::{BTreeMap, BTreeSet};

use clock::Instant;
use serde_json::Value;

use super::nodes::TAINT;
use crate::history::{History, LAG};

/// Every set, pod, revision (by uid) and node (by name) that ever existed.
#[derive(Default)]
pub(super) struct Model {
    pub(super) sets: BTreeMap<String, Set>,
    pub(super) pods: BTreeMap<String, Pod>,
    pub(super) revisions: BTreeMap<String, Revision>,
    nodes: BTreeMap<String, History<NodeState>>,
}

/// One set.
#[derive(Default)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) gone: bool,
    pub(super) deleted_since: Option<Instant>,
    specs: History<Spec>,
    /// The nodes of which an available pod was deleted for an update, and no pod is ready since.
    pub(super) taken_down: BTreeSet<String>,
    /// For each node: the uid of the last pod that was created beside an available one.
    pub(super) surged: BTreeMap<String, String>,
}

/// The fields of a spec that decide.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Spec {
    pub(super) template: Template,
    pub(super) is_on_delete: bool,
    pub(super) max_unavailable: i64,
    max_surge: i64,
    pub(super) history_limit: usize,
}

/// The fields of a template that users change.
#[derive(Clone, Default, PartialEq)]
pub(super) struct Template {
    image: String,
    /// The value of its node selector; empty without one.
    zone: String,
    has_toleration: bool,
}

/// The fields of a node that decide. The default is a node that does not exist.
#[derive(Clone, Default, PartialEq)]
pub(super) struct NodeState {
    pub(super) exists: bool,
    zone: String,
    is_no_schedule: bool,
    is_no_execute: bool,
}

/// One pod.
#[derive(Clone, Default)]
pub(super) struct Pod {
    pub(super) name: String,
    /// The node for which it was created.
    pub(super) node: String,
    pub(super) set: Option<String>,
    /// The set at its creation.
    pub(super) created_for: Option<String>,
    /// Every set that has owned it: a deletion may arrive when it is an orphan already.
    pub(super) owned_by: BTreeSet<String>,
    pub(super) template: Template,
    pub(super) hash: String,
    /// Its labels do not match the selector any more.
    pub(super) is_lost: bool,
    pub(super) is_ready: bool,
    ready_since: Option<Instant>,
    /// The last time at which it was ready.
    pub(super) ready_at: Option<Instant>,
    pub(super) bound_at: Option<Instant>,
    created_at: Option<Instant>,
    /// The time at which it ended, was deleted, or lost its set.
    live_until: Option<Instant>,
    pub(super) has_ended: bool,
    pub(super) deleting: bool,
    pub(super) gone: bool,
}

/// One revision.
#[derive(Clone, Default)]
pub(super) struct Revision {
    pub(super) hash: String,
    pub(super) template: Template,
    pub(super) set: Option<String>,
    pub(super) gone: bool,
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The uid of the DaemonSet that controls an object.
fn controller(object: &Value) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|it| it["controller"] == true && it["kind"] == "DaemonSet")?;
    owner["uid"].as_str().map(str::to_owned)
}

impl Spec {
    pub(super) fn of(object: &Value) -> Self {
        let (spec, strategy) = (&object["spec"], &object["spec"]["updateStrategy"]);
        let number = |it: &Value| it.as_i64().unwrap_or_default();
        Self {
            template: Template::of(&spec["template"]["spec"]),
            is_on_delete: strategy["type"] == "OnDelete",
            max_unavailable: number(&strategy["rollingUpdate"]["maxUnavailable"]),
            max_surge: number(&strategy["rollingUpdate"]["maxSurge"]),
            history_limit: usize::try_from(number(&spec["revisionHistoryLimit"])).unwrap_or(usize::MAX),
        }
    }

    /// The number of nodes that may have two pods.
    pub(super) fn surge(&self) -> i64 {
        if self.is_on_delete { 0 } else { self.max_surge }
    }
}

impl Template {
    /// From the spec of a pod or of a template.
    pub(super) fn of(spec: &Value) -> Self {
        let mut tolerations = spec["tolerations"].as_array().into_iter().flatten();
        Self {
            image: text(&spec["containers"][0]["image"]),
            zone: text(&spec["nodeSelector"]["zone"]),
            has_toleration: tolerations.any(|it| it["key"] == TAINT),
        }
    }

    /// True if a pod should be created on this node.
    pub(super) fn is_wanted_on(&self, node: &NodeState) -> bool {
        self.may_stay_on(node) && (self.has_toleration || !node.is_no_schedule)
    }

    /// True if a pod on this node is not deleted.
    pub(super) fn may_stay_on(&self, node: &NodeState) -> bool {
        let is_selected = self.zone.is_empty() || self.zone == node.zone;
        node.exists && is_selected && (self.has_toleration || !node.is_no_execute)
    }
}

impl NodeState {
    pub(super) fn of(object: Option<&Value>) -> Self {
        let Some(object) = object else { return Self::default() };
        let has = |effect: &str| {
            let mut taints = object["spec"]["taints"].as_array().into_iter().flatten();
            taints.any(|it| it["effect"] == effect)
        };
        Self {
            exists: true,
            zone: text(&object["metadata"]["labels"]["zone"]),
            is_no_schedule: has("NoSchedule"),
            is_no_execute: has("NoExecute"),
        }
    }
}

impl Set {
    pub(super) fn update_from(&mut self, object: Option<&Value>, now: Instant) {
        let Some(object) = object else {
            self.gone = true;
            self.deleted_since.get_or_insert(now);
            return;
        };
        self.name = text(&object["metadata"]["name"]);
        if object["metadata"]["deletionTimestamp"].is_string() {
            self.deleted_since.get_or_insert(now);
        }
        self.specs.record(Spec::of(object), now);
    }

    /// The specs that a process may use now.
    pub(super) fn recent(&self, now: Instant) -> impl Iterator<Item = &Spec> {
        self.specs.recent(now)
    }
}

impl Pod {
    pub(super) fn update_from(&mut self, object: Option<&Value>, now: Instant) {
        let was_ready = self.is_ready;
        match object {
            Some(object) => self.read(object, now),
            None => (self.gone, self.is_ready) = (true, false),
        }
        if self.gone || self.deleting || self.has_ended || self.is_lost {
            self.live_until.get_or_insert(now);
        }
        if was_ready || self.is_ready {
            self.ready_at = Some(now);
        }
        self.ready_since = self.is_ready.then(|| self.ready_since.unwrap_or(now));
    }

    fn read(&mut self, object: &Value, now: Instant) {
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        self.name = text(&metadata["name"]);
        self.set = controller(object);
        self.owned_by.extend(self.set.clone());
        if self.created_at.is_none() {
            (self.created_at, self.created_for) = (Some(now), self.set.clone());
        }
        let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        self.node = text(&required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]);
        self.template = Template::of(spec);
        self.hash = text(&metadata["labels"]["controller-revision-hash"]);
        self.is_lost = metadata["labels"]["app"] == "lost";
        self.deleting = metadata["deletionTimestamp"].is_string();
        self.has_ended = matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        if spec["nodeName"].is_string() {
            self.bound_at.get_or_insert(now);
        }
        let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.any(|it| it["type"] == "Ready" && it["status"] == "True");
        self.is_ready = is_ready && object["status"]["phase"] == "Running" && !self.deleting && !self.is_lost;
    }

    pub(super) fn is_live(&self) -> bool {
        self.live_until.is_none()
    }

    /// True if every process knows that it is available.
    pub(super) fn is_surely_ready(&self, now: Instant) -> bool {
        self.ready_since.is_some_and(|it| it + LAG < now)
    }

    pub(super) fn was_ready_lately(&self, now: Instant) -> bool {
        self.is_ready || self.ready_at.is_some_and(|it| it + LAG >= now)
    }

    /// True if a process may see both pods as live.
    pub(super) fn overlaps(&self, other: &Self, now: Instant) -> bool {
        other.live_until.is_none_or(|end| self.created_at.is_none_or(|it| end >= it) && end + LAG >= now)
    }
}

impl Revision {
    pub(super) fn of(object: &Value, gone: bool) -> Self {
        Self {
            hash: text(&object["metadata"]["labels"]["controller-revision-hash"]),
            template: Template::of(&object["data"]["spec"]["template"]["spec"]),
            set: controller(object),
            gone,
        }
    }
}

impl Model {
    pub(super) fn record_node(&mut self, name: String, object: Option<&Value>, now: Instant) {
        let is_first = !self.nodes.contains_key(&name);
        let states = self.nodes.entry(name).or_default();
        // The nodes before the first set are older than everything that a process reads.
        if is_first && !self.sets.is_empty() {
            states.record(NodeState::default(), now);
        }
        states.record(NodeState::of(object), now);
    }

    /// The states of a node that a process may use now.
    pub(super) fn recent_states(&self, node: &str, now: Instant) -> impl Iterator<Item = &NodeState> {
        self.nodes.get(node).into_iter().flat_map(move |it| it.recent(now))
    }

    /// True if every process knows that the set wants a pod on this node.
    pub(super) fn is_surely_wanted(&self, set: &Set, node: &str, now: Instant) -> bool {
        set.recent(now).all(|spec| self.recent_states(node, now).all(|it| spec.template.is_wanted_on(it)))
    }

    /// The pods of a set that exist.
    pub(super) fn pods_of<'a>(&'a self, set: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.values().filter(move |it| !it.gone && !it.is_lost && it.set.as_deref() == Some(set))
    }

    /// At the end each set has at most its limit of revisions that are not in use.
    pub(super) fn check_history_limits(&self) -> Result<(), String> {
        for (uid, set) in self.sets.iter().filter(|it| !it.1.gone) {
            let Some(spec) = set.specs.last() else { continue };
            let is_in_use =
                |it: &Revision| it.template == spec.template || self.pods_of(uid).any(|pod| pod.hash == it.hash);
            let of_set = self.revisions.values().filter(|it| !it.gone && it.set.as_deref() == Some(uid));
            let unused = of_set.filter(|it| !is_in_use(it)).count();
            if unused > spec.history_limit {
                return Err(format!("{} has {unused} unused revisions, the limit is {}", set.name, spec.history_limit));
            }
        }
        Ok(())
    }
}
