//! What was stored of Deployments, sets and pods. It does not depend on the controllers' code. A set is a ReplicaSet or a
//! ReplicationController.

use std::collections::BTreeMap;

use clock::Instant;
use serde_json::Value;

use crate::history::{History, LAG, is_recent};

/// The annotation with the number of a rollout.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// The annotation that demands a rollback.
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
const HASH: &str = "pod-template-hash";

/// Every Deployment, set and pod that ever existed, by uid.
#[derive(Default)]
pub(super) struct Model {
    pub(super) deployments: BTreeMap<String, Deployment>,
    pub(super) sets: BTreeMap<String, Set>,
    pub(super) pods: BTreeMap<String, Pod>,
    /// When something other than a manager last changed the readiness of a pod or an owner.
    pub(super) disturbed_at: Option<Instant>,
}

/// One Deployment.
#[derive(Default)]
pub(super) struct Deployment {
    pub(super) name: String,
    pub(super) gone: bool,
    pub(super) deleted_since: Option<Instant>,
    pub(super) specs: History<DeploymentSpec>,
    pub(super) status: Value,
    /// The number in its annotation; 0 without one.
    pub(super) revision: i64,
    /// Whether a rollback is demanded.
    pub(super) rollbacks: History<bool>,
    /// A ReplicaSet was taken from it, so that a revision may be used again.
    pub(super) has_lost_sets: bool,
}

/// The fields of a spec that decide.
#[derive(Clone, Default, PartialEq)]
pub(super) struct DeploymentSpec {
    pub(super) replicas: i64,
    pub(super) template: Value,
    pub(super) selector: Value,
    pub(super) is_paused: bool,
    pub(super) is_recreate: bool,
    /// How many pods there may be in addition.
    pub(super) surge: i64,
    /// How many pods may be unavailable.
    pub(super) unavailable: i64,
    pub(super) history_limit: usize,
}

/// One ReplicaSet or ReplicationController.
#[derive(Clone, Default)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) is_replica_set: bool,
    pub(super) gone: bool,
    pub(super) deleted_by_manager: bool,
    pub(super) deleted_since: Option<Instant>,
    pub(super) specs: History<SetSpec>,
    pub(super) labels: History<Value>,
    /// The uid of the controller.
    pub(super) owner: Option<String>,
    pub(super) revision: i64,
    pub(super) observed: i64,
    /// When its owner or labels were last changed, or its spec by another hand than that of a manager.
    pub(super) changed_at: Option<Instant>,
}

/// The fields of a spec that decide.
#[derive(Clone, Default, PartialEq)]
pub(super) struct SetSpec {
    pub(super) replicas: i64,
    pub(super) selector: Value,
    pub(super) template: Value,
}

/// One pod.
#[derive(Clone, Default)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) owners: History<Option<String>>,
    pub(super) labels: History<Value>,
    pub(super) image: Value,
    /// Its labels or its owner were changed, or another hand than that of a manager has created it.
    pub(super) is_foreign: bool,
    pub(super) is_ready: bool,
    pub(super) has_ended: bool,
    pub(super) deleting: bool,
    pub(super) gone: bool,
    /// When it ended or was deleted.
    inactive_since: Option<Instant>,
    deleted_by_manager: bool,
}

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// The uid of the controller.
pub(super) fn controller(object: &Value) -> Option<String> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|it| it["controller"] == true).map(|it| text(&it["uid"]))
}

/// The number of a rollout; 0 without one.
pub(super) fn revision(object: &Value) -> i64 {
    text(&object["metadata"]["annotations"][REVISION]).parse().unwrap_or_default()
}

/// A pod template without the hash in its labels.
pub(super) fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    template
}

/// Whether labels have everything that a selector names.
pub(crate) fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object().filter(|it| !it.is_empty());
    wanted.is_some_and(|it| it.iter().all(|(key, value)| labels[key] == *value))
}

impl DeploymentSpec {
    pub(super) fn of(object: &Value) -> Self {
        let (spec, rolling) = (&object["spec"], &object["spec"]["strategy"]["rollingUpdate"]);
        let (replicas, is_recreate) = (number(&spec["replicas"]), spec["strategy"]["type"] == "Recreate");
        // Percentages of the surge are rounded up, the others down.
        let percent = |it: &Value| it.as_str().and_then(|it| it.trim_end_matches('%').parse::<i64>().ok());
        let resolve = |it: &Value, rest: i64| match percent(it) {
            Some(percent) => (replicas * percent + rest) / 100,
            None => number(it),
        };
        let (surge, unavailable) = (resolve(&rolling["maxSurge"], 99), resolve(&rolling["maxUnavailable"], 0));
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        let (surge, unavailable) = if is_recreate { (0, 0) } else { (surge, unavailable) };
        Self {
            replicas,
            template: without_hash(&spec["template"]),
            selector: spec["selector"]["matchLabels"].clone(),
            is_paused: spec["paused"] == true,
            is_recreate,
            surge,
            unavailable: unavailable.min(replicas),
            history_limit: usize::try_from(number(&spec["revisionHistoryLimit"])).unwrap_or(usize::MAX),
        }
    }
}

impl Deployment {
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
        self.specs.record(DeploymentSpec::of(object), now);
        self.status = object["status"].clone();
        self.revision = revision(object);
        self.rollbacks.record(object["metadata"]["annotations"][ROLLBACK_TO].is_string(), now);
    }

    /// The specs that a process may use now.
    pub(super) fn recent(&self, now: Instant) -> impl Iterator<Item = &DeploymentSpec> {
        self.specs.recent(now)
    }
}

impl SetSpec {
    fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let selector =
            if object["kind"] == "ReplicaSet" { &spec["selector"]["matchLabels"] } else { &spec["selector"] };
        Self { replicas: number(&spec["replicas"]), selector: selector.clone(), template: spec["template"].clone() }
    }
}

impl Set {
    pub(super) fn update_from(&mut self, object: Option<&Value>, by_manager: bool, now: Instant) {
        let Some(object) = object else {
            (self.gone, self.deleted_by_manager) = (true, by_manager);
            self.deleted_since.get_or_insert(now);
            return;
        };
        let metadata = &object["metadata"];
        let is_new = self.name.is_empty();
        let (spec, owner) = (SetSpec::of(object), controller(object));
        let is_changed = owner != self.owner || self.labels.last() != Some(&metadata["labels"]);
        if !is_new && (is_changed || (!by_manager && self.specs.last() != Some(&spec))) {
            self.changed_at = Some(now);
        }
        self.name = text(&metadata["name"]);
        self.is_replica_set = object["kind"] == "ReplicaSet";
        if metadata["deletionTimestamp"].is_string() {
            self.deleted_since.get_or_insert(now);
        }
        self.specs.record(spec, now);
        self.labels.record(metadata["labels"].clone(), now);
        self.owner = owner;
        self.revision = revision(object);
        self.observed = number(&object["status"]["observedGeneration"]);
    }

    /// The specs that a process may use now.
    pub(super) fn recent(&self, now: Instant) -> impl Iterator<Item = &SetSpec> {
        self.specs.recent(now)
    }

    pub(super) fn replicas(&self) -> i64 {
        self.specs.last().map_or(0, |it| it.replicas)
    }

    /// Its template without the hash.
    pub(super) fn template(&self) -> Value {
        self.specs.last().map(|it| without_hash(&it.template)).unwrap_or_default()
    }

    /// True if a process may not know its owner, labels or size.
    pub(super) fn is_changed_lately(&self, now: Instant) -> bool {
        is_recent(self.changed_at, now)
    }
}

impl Pod {
    pub(super) fn update_from(&mut self, object: Option<&Value>, by_manager: bool, now: Instant) {
        let was_active = self.is_active();
        match object {
            Some(object) => self.read(object, by_manager, now),
            None => (self.gone, self.is_ready) = (true, false),
        }
        if !self.is_active() {
            if self.inactive_since.is_none() {
                self.deleted_by_manager = was_active && by_manager;
            }
            self.inactive_since.get_or_insert(now);
        }
    }

    fn read(&mut self, object: &Value, by_manager: bool, now: Instant) {
        let (metadata, status) = (&object["metadata"], &object["status"]);
        let (is_new, owner) = (self.name.is_empty(), controller(object));
        let is_changed = self.owners.last() != Some(&owner) || self.labels.last() != Some(&metadata["labels"]);
        self.is_foreign |= if is_new { !by_manager } else { is_changed };
        self.name = text(&metadata["name"]);
        self.owners.record(owner, now);
        self.labels.record(metadata["labels"].clone(), now);
        self.image = object["spec"]["containers"][0]["image"].clone();
        self.deleting = metadata["deletionTimestamp"].is_string();
        self.has_ended = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let is_ready = conditions.any(|it| it["type"] == "Ready" && it["status"] == "True");
        self.is_ready = is_ready && status["phase"] == "Running" && !self.deleting;
    }

    pub(super) fn owner(&self) -> Option<&str> {
        self.owners.last()?.as_deref()
    }

    /// True if it counts as a pod of its set.
    pub(super) fn is_active(&self) -> bool {
        !self.gone && !self.deleting && !self.has_ended
    }

    /// True if a process may count it as a pod of this set. A process knows which pods were deleted by a manager.
    pub(super) fn may_count(&self, set: &str, now: Instant) -> bool {
        let may_be_active = self.inactive_since.is_none_or(|it| it + LAG >= now && !self.deleted_by_manager);
        may_be_active && self.owners.recent(now).any(|it| it.as_deref() == Some(set))
    }
}

impl Model {
    /// The ReplicaSets of a Deployment that exist, with their uids.
    pub(super) fn sets_of<'a>(&'a self, deployment: &'a str) -> impl Iterator<Item = (&'a str, &'a Set)> {
        let all = self.sets.iter().map(|(uid, set)| (&**uid, set));
        all.filter(move |(_, it)| !it.gone && it.owner.as_deref() == Some(deployment))
    }

    /// The pods of a set that exist.
    pub(super) fn pods_of<'a>(&'a self, set: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.values().filter(move |it| !it.gone && it.owner() == Some(set))
    }

    /// A set that exists, or that was deleted so late that a process may not know it.
    pub(super) fn living_set(&self, uid: &str, now: Instant) -> Result<&Set, String> {
        let set = self.sets.get(uid).ok_or("its set never existed")?;
        match set.deleted_since {
            Some(at) if !is_recent(Some(at), now) => Err(format!("{} was deleted long ago", set.name)),
            _ => Ok(set),
        }
    }

    /// The same for a Deployment.
    pub(super) fn living_deployment(&self, uid: &str, now: Instant) -> Result<&Deployment, String> {
        let deployment = self.deployments.get(uid).ok_or("its Deployment never existed")?;
        match deployment.deleted_since {
            Some(at) if !is_recent(Some(at), now) => Err(format!("{} was deleted long ago", deployment.name)),
            _ => Ok(deployment),
        }
    }
}
