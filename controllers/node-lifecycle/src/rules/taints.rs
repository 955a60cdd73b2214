//! The taints and labels that a node should have.

use api::{Atom, ConditionStatus, Node, Taint, TaintEffect};
use serde_json::{Map, Value, json};

use super::conditions::{READY, readiness};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A condition, its status, and the NoSchedule taint for it (`nodeConditionToTaintKeyStatusMap`).
const BY_CONDITION: [(&str, ConditionStatus, &str); 6] = [
    (READY, ConditionStatus::False, NOT_READY),
    (READY, ConditionStatus::Unknown, UNREACHABLE),
    ("MemoryPressure", ConditionStatus::True, "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", ConditionStatus::True, "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", ConditionStatus::True, "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", ConditionStatus::True, "node.kubernetes.io/pid-pressure"),
];

/// Pairs of a label and the older label that gets the same value (`labelReconcileInfo`).
const LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// What to do about the NoExecute taints `not-ready` and `unreachable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoExecute {
    /// Leave them as they are.
    Keep,
    /// Remove both.
    Remove,
    /// Add the one for the status of Ready, and remove the other one.
    Set,
}

/// The changes of a node, as one patch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Edit {
    /// All taints, if they change.
    pub(crate) taints: Option<Vec<Taint>>,
    /// The labels that change.
    pub(crate) labels: Vec<(&'static str, Atom)>,
}

/// The key of the NoExecute taint for the status of Ready.
fn no_execute_key(node: &Node) -> Option<&'static str> {
    match readiness(node)? {
        ConditionStatus::False => Some(NOT_READY),
        ConditionStatus::Unknown => Some(UNREACHABLE),
        ConditionStatus::True | ConditionStatus::Other(_) => None,
    }
}

/// Whether the taint is one of the two NoExecute taints of this controller.
pub(crate) fn is_no_execute(taint: &Taint) -> bool {
    taint.effect == TaintEffect::NoExecute && matches!(&*taint.key, NOT_READY | UNREACHABLE)
}

/// Whether the node has a NoExecute taint of this controller.
pub(crate) fn has_no_execute(node: &Node) -> bool {
    node.taints.iter().any(is_no_execute)
}

/// Whether the node has a NoExecute taint that is not the one for its status of Ready.
pub(crate) fn has_other_no_execute(node: &Node) -> bool {
    let key = no_execute_key(node);
    node.taints.iter().any(|it| is_no_execute(it) && Some(&*it.key) != key)
}

/// Whether this controller adds and removes the NoSchedule taint of this key.
fn is_no_schedule(taint: &Taint) -> bool {
    let is_managed = |key: &str| key == UNSCHEDULABLE || BY_CONDITION.iter().any(|it| it.2 == key);
    taint.effect == TaintEffect::NoSchedule && is_managed(&taint.key)
}

/// The changes that the node needs; `now` is the time of added taints. `None` if it needs none.
pub(crate) fn edit(node: &Node, no_execute: NoExecute, now: i64) -> Option<Edit> {
    let mut wanted: Vec<(&str, TaintEffect)> = Vec::new();
    for (type_, status, key) in BY_CONDITION {
        if node.condition(type_).is_some_and(|it| it.status == status) {
            wanted.push((key, TaintEffect::NoSchedule));
        }
    }
    if node.unschedulable {
        wanted.push((UNSCHEDULABLE, TaintEffect::NoSchedule));
    }
    if no_execute == NoExecute::Set {
        wanted.extend(no_execute_key(node).map(|it| (it, TaintEffect::NoExecute)));
    }
    let is_ours = |it: &Taint| is_no_schedule(it) || (no_execute != NoExecute::Keep && is_no_execute(it));
    let is = |taint: &Taint, (key, effect): &(&str, TaintEffect)| *taint.key == **key && taint.effect == *effect;
    let kept = |it: &&Taint| !is_ours(it) || wanted.iter().any(|wanted| is(it, wanted));
    let mut taints: Vec<Taint> = node.taints.iter().filter(kept).cloned().collect();
    for (key, effect) in &wanted {
        if !taints.iter().any(|it| is(it, &(key, effect.clone()))) {
            let (key, value) = ((*key).into(), Atom::default());
            taints.push(Taint { key, value, effect: effect.clone(), added: Some(now) });
        }
    }
    let labels = LABELS.iter().filter_map(|(from, to)| {
        let value = node.labels.get(from)?;
        (node.labels.get(to) != Some(value)).then(|| (*to, value.into()))
    });
    let edit = Edit { taints: (*taints != *node.taints).then_some(taints), labels: labels.collect() };
    (edit != Edit::default()).then_some(edit)
}

/// The body of the patch, which is refused if the node has changed.
pub(crate) fn patch(node: &Node, edit: &Edit) -> Value {
    let Edit { taints, labels } = edit;
    let mut metadata = json!({ "resourceVersion": node.meta.version });
    if let (false, Some(fields)) = (labels.is_empty(), metadata.as_object_mut()) {
        let labels: Map<String, Value> = labels.iter().map(|it| (it.0.to_owned(), (&*it.1).into())).collect();
        fields.insert("labels".to_owned(), labels.into());
    }
    let mut body = json!({ "metadata": metadata });
    if let (Some(taints), Some(fields)) = (taints, body.as_object_mut()) {
        let taints: Vec<Value> = taints.iter().map(taint).collect();
        fields.insert("spec".to_owned(), json!({ "taints": taints }));
    }
    body
}

fn taint(it: &Taint) -> Value {
    let mut value = json!({ "key": &*it.key, "effect": it.effect.as_str() });
    if let Some(fields) = value.as_object_mut() {
        if !it.value.is_empty() {
            fields.insert("value".to_owned(), (&*it.value).into());
        }
        if let Some(added) = it.added.and_then(|it| api::rfc3339(it).ok()) {
            fields.insert("timeAdded".to_owned(), added.into());
        }
    }
    value
}

#[cfg(test)]
mod tests;
