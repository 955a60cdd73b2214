//! The guarantees for pods: which may be evicted, collected and marked as not ready, and when.

use std::time::Duration;

use serde_json::Value;
use test_cluster::Change;
use testing::sim::Write;

use super::{
    Checked, NODES, PODS,
    model::{Model, NodeState, OUTAGE, Pod, Ready, Taint, Tolerated, condition, list, text, tolerated},
    node_checks::without_empty,
    timeline::{Period, Point},
    zones::Modes,
};

/// For this long a node must be gone before its pods are collected.
const QUARANTINE: Duration = Duration::from_secs(40);
/// For this long the pods of a node that is ready again are kept, although it has the taint of an outage.
const TO_LIFT: Duration = Duration::from_secs(60);
const DISRUPTION: &str = "DisruptionTarget";

/// A change of a pod by a manager.
struct PodChange<'a> {
    model: &'a Model,
    write: &'a Write<'a>,
    pod: &'a Pod,
    before: &'a Value,
    after: &'a Value,
    point: Point,
}

/// Checks a write of a manager.
pub(super) fn check(model: &Model, write: &Write, uid: &str, after: Option<&Value>, point: Point) -> Checked {
    let (Some(before), Some(pod)) = (write.before(), model.pods.get(uid)) else {
        return Err("creates a pod".to_owned());
    };
    match (write.change(), after) {
        (Change::Modified, Some(after)) => PodChange { model, write, pod, before: &before, after, point }.check(),
        // The mark of the deletion, which precedes the removal, was checked.
        _ if pod.deletion.is_some_and(|it| it.0.is_zero()) => Ok(()),
        _ => Err("removes a pod whose deletion is not marked".to_owned()),
    }
}

/// The object without what a manager may change.
fn rest(object: &Value) -> Value {
    let mut rest = object.clone();
    let changed = [
        ("metadata", "resourceVersion"),
        ("metadata", "generation"),
        ("metadata", "managedFields"),
        ("metadata", "deletionTimestamp"),
        ("metadata", "deletionGracePeriodSeconds"),
        ("status", "observedGeneration"),
        ("status", "conditions"),
        ("status", "phase"),
    ];
    for (part, field) in changed {
        if let Some(it) = rest[part].as_object_mut() {
            it.remove(field);
        }
    }
    without_empty(rest)
}

impl PodChange<'_> {
    fn check(&self) -> Checked {
        let Self { before, after, .. } = self;
        if rest(before) != rest(after) {
            return Err(format!("changes a foreign field: {before} becomes {after}"));
        }
        if before["status"]["phase"] != after["status"]["phase"] {
            self.check_phase()?;
        }
        let conditions = |it: &Value| -> Vec<Value> {
            list(&it["status"]["conditions"]).iter().map(|it| without_empty(it.clone())).collect()
        };
        let (old, new) = (conditions(before), conditions(after));
        if let Some(lost) = old.iter().find(|it| condition(after, &text(&it["type"])).is_null()) {
            return Err(format!("removes the condition {}", lost["type"]));
        }
        for it in new.iter().filter(|it| !old.contains(it)) {
            self.check_condition(it)?;
        }
        let grace = |it: &Value| it["metadata"]["deletionGracePeriodSeconds"].as_u64();
        if grace(before) != grace(after) { self.check_deletion(grace(after) == Some(0)) } else { Ok(()) }
    }

    /// Only a pod that is collected gets a phase.
    fn check_phase(&self) -> Checked {
        let Self { pod, after, .. } = self;
        if pod.has_ended() || after["status"]["phase"] != "Failed" {
            return Err(format!("changes the phase from {} to {}", pod.phase, after["status"]["phase"]));
        }
        let has_condition = condition(after, DISRUPTION)["reason"] == "DeletionByPodGC";
        match self.check_orphan() {
            _ if self.is_stuck() => Ok(()),
            Ok(()) if !has_condition => Err("fails an orphan without the condition".to_owned()),
            held => held.map_err(|why| format!("fails a pod: {why}")),
        }
    }

    fn check_condition(&self, new: &Value) -> Checked {
        let (kind, old) = (text(&new["type"]), condition(self.before, &text(&new["type"])));
        match (&*kind, new["status"].as_str(), new["reason"].as_str(), new["message"].as_str()) {
            (
                DISRUPTION,
                Some("True"),
                Some("DeletionByTaintManager"),
                Some("Taint manager: deleting due to NoExecute taint"),
            ) => self.check_eviction(),
            (DISRUPTION, Some("True"), Some("DeletionByPodGC"), Some("PodGC: node no longer exists")) => {
                self.check_orphan()
            }
            ("Ready", Some("False"), ..) => self.check_marked(old, new),
            _ => Err(format!("changes the condition {kind} from {old} to {new}")),
        }
    }

    /// Only pods of a node that is not ready are marked, and reason and message stay.
    fn check_marked(&self, old: &Value, new: &Value) -> Checked {
        if old.is_null() || old["reason"] != new["reason"] || old["message"] != new["message"] {
            return Err(format!("changes the condition Ready from {old} to {new}"));
        }
        let states = self.model.possible_states(self.write, &self.pod.node, self.point.at);
        if states.iter().any(|it| it.is_not_ready()) {
            return Ok(());
        }
        Err(format!("marks a pod of {} as not ready, but the node is ready", self.pod.node))
    }

    /// A deletion has the reason of one of the two controllers.
    fn check_deletion(&self, is_forced: bool) -> Checked {
        let Self { pod, before, .. } = self;
        // Such a pod has no grace period in any deletion.
        let is_idle = pod.node.is_empty() || pod.has_ended() || before["spec"]["terminationGracePeriodSeconds"] == 0;
        if !is_forced || (is_idle && self.check_eviction().is_ok()) {
            return self.check_eviction();
        }
        if !pod.has_ended() {
            return Err(format!("removes a pod whose phase is {}", pod.phase));
        }
        let oldest = self.model.oldest_base(self.write, PODS, self.point.at);
        let is_surplus = self.model.most_terminated(oldest) > self.model.settings.terminated_pods;
        if is_surplus || self.is_stuck() { Ok(()) } else { self.check_orphan() }
    }

    /// A pod that is being deleted and that no node will end: it has no node, or a node that is out of service.
    fn is_stuck(&self) -> bool {
        let Self { model, write, pod, point, .. } = self;
        let is_out_of_service = || {
            model.possible_states(write, &pod.node, point.at).iter().any(|it| it.is_not_ready() && it.is_out_of_service)
        };
        pod.deletion.is_some() && (pod.node.is_empty() || is_out_of_service())
    }

    /// The node of the pod was gone for the whole quarantine. It may be back since the request was sent.
    fn check_orphan(&self) -> Checked {
        let Self { model, write, pod, point, .. } = self;
        let Some(node) = model.nodes.get(&pod.node).filter(|_| !pod.node.is_empty()) else {
            return Err("the pod has no node".to_owned());
        };
        let is_over = |period: &Period<NodeState>| {
            let end = period.until.map_or(point.at, |it| it.at);
            let is_recent = end + model.settings.in_flight >= point.at;
            is_recent && model.absence_begin(write.by, node, period) + QUARANTINE <= end
        };
        let absences = node.states.periods().into_iter().filter(|it| !it.value.exists());
        if absences.into_iter().any(|it| is_over(&it)) {
            return Ok(());
        }
        Err(format!("node {} is not gone for {QUARANTINE:?}", pod.node))
    }

    /// A taint that the pod does not tolerate, or does not tolerate any longer. It may have been lifted since the
    /// process observed it.
    fn check_eviction(&self) -> Checked {
        let Self { model, write, pod, point, .. } = self;
        let Some(node) = model.nodes.get(&pod.node).filter(|_| !pod.node.is_empty()) else {
            return Err("evicts a pod without a node".to_owned());
        };
        let oldest = model.oldest_base(write, NODES, point.at);
        let is_possible = |it: &Period<NodeState>| it.until.is_none_or(|end| end.version > oldest);
        let versions = model.oldest_base(write, PODS, point.at);
        // Then the taints of outages must have been lifted, unless the process is new and its writes are delayed.
        let since = model.shown.watched_since(write.by, NODES);
        let is_new = since.is_none_or(|it| it + model.settings.in_flight > point.at);
        let is_cut_off = !is_new && model.possible_modes(write, point.at).all(Modes::are_all_full);
        let counts = |it: &&Taint| !is_cut_off || !OUTAGE.contains(&&*it.key);
        let mut earliest = None;
        let periods = node.states.periods();
        for (at, period) in periods.iter().enumerate().filter(|(_, it)| is_possible(it)) {
            // If the node is ready again, its taint must be lifted first.
            let ready = periods[..=at].iter().rev().take_while(|it| it.value.ready == Some(Ready::True)).last();
            let known_end = period.until.and_then(|it| model.shown.shown_at(write.by, NODES, it.version));
            let latest = known_end.map_or(point.at, |it| point.at.min(it + model.settings.processing));
            let is_back = ready.is_some_and(|it| latest < it.from.at + TO_LIFT);
            for taint in period.value.taints.iter().filter(counts).filter(|it| !is_back || !OUTAGE.contains(&&*it.key))
            {
                let begin = model.taint_begin(write.by, node, period, taint).max(pod.created.at);
                let replaced = model.replaced(write.by, node, period, taint);
                for tolerations in pod.tolerations.since(versions) {
                    let due = match tolerated(tolerations, taint) {
                        Tolerated::Always => continue,
                        Tolerated::Never => begin,
                        Tolerated::For(time) => match replaced.map(|(it, first)| (tolerated(tolerations, it), first)) {
                            Some((Tolerated::For(before), first)) => {
                                (begin + time).min(first.max(pod.created.at) + time.max(before))
                            }
                            _ => begin + time,
                        },
                    };
                    if due <= latest {
                        return Ok(());
                    }
                    earliest = earliest.max(Some(due));
                }
            }
        }
        match earliest {
            None => Err(format!("evicts a pod that may stay on {}", pod.node)),
            Some(due) => {
                let early = due.saturating_duration_since(point.at);
                Err(format!("evicts a pod {early:?} too early, or after the taint of {} was lifted", pod.node))
            }
        }
    }
}
